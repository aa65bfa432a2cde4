"""Lengths of zero, broadcasting, rolls, and indices that are negative, too large, or far beyond 2**31 bytes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuelnumba as fn
from fuelnumba import ops

F32 = np.float32
ShapeError, FuelIndexError = fn.errors.ShapeError, fn.errors.FuelIndexError


def poison() -> None:
    """Memory that buffers are made of is given back full of NaN, so that a result nobody wrote shows."""
    for n in (6, 8, 12, 24, 64):
        dirty = fn.jit(lambda x: x + np.float32("nan"))(np.zeros(n, F32))
        assert np.isnan(dirty).all()
        del dirty


# ------------------------------------------------------------------------------------------------ products over nothing
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32], ids=lambda d: np.dtype(d).name)
def test_a_product_over_no_terms_is_zero(dtype: Any) -> None:
    """The loop over the terms also wrote the result: without terms, what was in memory comes back."""
    for left, right in [((2, 2, 0), (2, 0, 3)), ((2, 0), (0, 4)), ((0,), (0,)), ((3, 0), (0,)), ((5, 1, 2, 0), (1, 3, 0, 2))]:
        poison()
        a, b = np.zeros(left, dtype), np.zeros(right, dtype)
        expected = a @ b
        got = ops.matmul(a, b)
        assert got.shape == expected.shape and got.dtype == dtype and not got.any()


def test_a_product_over_no_terms_plus_a_bias() -> None:
    poison()
    linear = fn.jit(lambda x, w, b: x @ w.T + b)
    b = np.array([1, 2, 3], F32)
    assert linear(np.zeros((2, 0), F32), np.zeros((3, 0), F32), b).tolist() == [[1, 2, 3], [1, 2, 3]]
    assert linear(np.ones((2, 4), F32), np.ones((3, 4), F32), b).tolist() == [[5, 6, 7], [5, 6, 7]]
    scaled = fn.jit(lambda x, w: np.maximum((x @ w) * 2 - 1, -5))
    assert scaled(np.zeros((2, 0), F32), np.zeros((0, 3), F32)).tolist() == [[-1] * 3] * 2


@pytest.mark.parametrize(("left", "right"), [((0, 4), (4, 3)), ((3, 4), (4, 0)), ((0, 4), (4, 0)), ((2, 0, 4), (2, 4, 3)),
                                             ((0, 3, 4), (0, 4, 2)), ((0, 0), (0, 0)), ((0, 3, 4), (4, 2))])
def test_products_without_elements(left: Any, right: Any) -> None:
    a, b = np.zeros(left, F32), np.zeros(right, F32)
    got = ops.matmul(a, b)
    assert got.shape == (a @ b).shape and got.dtype == F32


def test_a_symbolic_length_that_is_zero() -> None:
    """The same function for 3, 2, 4 and then no terms, no rows, no columns."""
    f = fn.jit(lambda a, b: a @ b + 1, dims={"a": ("m", "k"), "b": ("k", "n")})
    for m, k, n in [(3, 2, 2), (2, 3, 4), (5, 4, 3), (3, 0, 2), (0, 3, 2), (3, 2, 0), (0, 0, 0), (1, 0, 1), (2, 5, 3)]:
        got = f(np.ones((m, k), F32), np.ones((k, n), F32))
        assert got.shape == (m, n) and (got == k + 1).all()


# ------------------------------------------------------------------------------------------------ reductions of nothing
NEUTRAL = {"sum": 0.0, "prod": 1.0, "any": False, "all": True, "mean": np.nan}


@pytest.mark.parametrize("name", NEUTRAL)
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions_of_nothing(name: str, keepdims: bool) -> None:
    for shape, axis in [((0,), 0), ((3, 0), 1), ((0, 3), 0), ((2, 0, 3), 1), ((2, 0, 3), (1, 2)), ((2, 0, 3), None), ((0, 0), (0, 1))]:
        poison()
        x = np.zeros(shape, bool if name in ("any", "all") else F32)
        got = getattr(ops, name)(x, axis=axis, keepdims=keepdims)
        expected = np.sum(np.zeros(shape), axis=axis, keepdims=keepdims).shape
        assert got.shape == expected
        np.testing.assert_array_equal(got, np.full(expected, NEUTRAL[name]))


@pytest.mark.parametrize("name", [*NEUTRAL, "max", "min"])
def test_reductions_whose_result_is_empty(name: str) -> None:
    for shape, axis in [((0, 3), 1), ((3, 0), 0), ((2, 0, 3), 2), ((2, 0, 3), (0, 2))]:
        got = getattr(ops, name)(np.zeros(shape, bool if name in ("any", "all") else F32), axis=axis)
        assert got.shape == np.sum(np.zeros(shape), axis=axis).shape


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_the_largest_of_nothing_is_an_error(name: str) -> None:
    for shape, axis in [((0,), 0), ((3, 0), 1), ((0, 3), 0)]:
        with pytest.raises(ShapeError, match="has no identity"):
            getattr(ops, name)(np.zeros(shape, F32), axis=axis)
    largest = fn.jit(lambda x: getattr(np, name)(x, axis=0), dims={"x": ("n",)})
    for n in (3, 2, 5):
        assert largest(np.zeros(n, F32)) == 0
    with pytest.raises(ShapeError, match="has no identity"):
        largest(np.zeros(0, F32))


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "rms_norm"])
@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (2, 0, 3), (0,)])
def test_rows_of_nothing(name: str, shape: Any) -> None:
    assert getattr(ops, name)(np.zeros(shape, F32)).shape == shape


# ------------------------------------------------------------------------------------------------ broadcasting
SHAPES = [(), (1,), (3,), (0,), (1, 3), (2, 1), (2, 3), (0, 3), (2, 0), (1, 0), (2, 1, 3), (4, 2, 3), (4, 1, 1), (0, 1, 3)]


def test_every_pair_of_shapes() -> None:
    """As NumPy: equal lengths, or 1, which also stretches to 0. Anything else is an error that names both shapes."""
    f = fn.jit(lambda a, b: a * 2 - b)
    seen = {True: 0, False: 0}
    for left, right in itertools.product(SHAPES, SHAPES):
        a, b = np.arange(np.prod(left, dtype=int), dtype=F32).reshape(left), np.arange(np.prod(right, dtype=int), dtype=F32).reshape(right)
        try:
            expected = a * 2 - b
        except ValueError:
            with pytest.raises(ShapeError, match="cannot broadcast"):
                f(a, b)
            seen[False] += 1
        else:
            got = f(a, b)
            assert got.shape == expected.shape
            np.testing.assert_array_equal(got, expected)
            seen[True] += 1
    assert seen[True] > 100 and seen[False] > 10


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3), (2, 0, 3)])
def test_movement_of_nothing(shape: Any) -> None:
    x = np.zeros(shape, F32)
    moves: list[Callable[[Any], Any]] = [
        lambda x: np.concatenate([x, x], axis=0), lambda x: np.concatenate([x, np.zeros((2, *x.shape[1:]), F32)], axis=0), np.transpose,
        lambda x: np.flip(x), lambda x: np.stack([x, x], axis=-1), lambda x: np.tile(x, 2), lambda x: np.repeat(x, 3, axis=0),
        lambda x: np.pad(x, 1), lambda x: np.expand_dims(x, 0) + 1, lambda x: x[::-1], lambda x: np.reshape(x, (-1,)) if x.size else x,
        lambda x: np.where(x > 0, x, 1), lambda x: x.astype(np.int32), lambda x: np.broadcast_to(x, (4, *x.shape))]
    for move in moves:
        got, expected = fn.jit(move)(x), move(x)
        assert got.shape == expected.shape and got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


# ------------------------------------------------------------------------------------------------ rolls
def test_roll_of_nothing_and_far() -> None:
    """A shift is taken modulo the length: of 0 that is a division by zero, and too large a shift reads outside."""
    roll = fn.jit(lambda x, by, axis: np.roll(x, by, axis), static_argnames=("by", "axis"))
    for by, axis in itertools.product((0, 1, -1, 3, 1000), (0, 1, 2, -1)):
        assert roll(np.zeros((2, 0, 3), F32), by, axis).shape == (2, 0, 3)
    assert roll(np.zeros(0, F32), 3, 0).shape == (0,)
    five = np.arange(5, dtype=F32)
    assert roll(five, -7, 0).tolist() == [2, 3, 4, 0, 1]
    assert roll(five, 12, -1).tolist() == [3, 4, 0, 1, 2]
    for by in (5, -5, 0, 10, 10**12):
        assert roll(five, by, 0).tolist() == [0, 1, 2, 3, 4]
    assert roll(np.arange(6, dtype=F32).reshape(2, 3), 4, None).tolist() == [[2, 3, 4], [5, 0, 1]]
    assert roll(np.arange(6, dtype=F32).reshape(2, 3), (1, -1), (0, 1)).tolist() == [[4, 5, 3], [1, 2, 0]]


@pytest.mark.parametrize("by", [0, 1, -1, 3, -7, 12])
def test_roll_of_a_length_that_varies(by: int) -> None:
    roll = fn.jit(lambda x: np.roll(x, by, 0) + 0, dims={"x": ("n",)})
    for n in (5, 4, 7, 3, 1, 2, 0, 6):
        x = np.arange(n, dtype=F32)
        assert roll(x).tolist() == np.roll(x, by).tolist()


# ------------------------------------------------------------------------------------------------ indices
@pytest.mark.parametrize("index_type", [np.int64, np.int32, np.int8, np.uint8], ids=lambda d: np.dtype(d).name)
def test_indices_count_from_the_end_or_are_refused(index_type: Any) -> None:
    """-1 is the last. n and -n - 1 would be read from outside the array, or be wrapped to something that exists."""
    x = np.arange(12, dtype=F32).reshape(4, 3)
    signed = np.iinfo(index_type).min < 0
    good = [0, 3, 1, *([-1, -4] if signed else [])]
    rows = [*fn.jit(lambda x, i: (np.take(x, i, axis=0), x[i], ops.embedding(x, i), ops.index_select(x, i, axis=0)))(
        x, np.array(good, index_type))]
    for got in rows:
        np.testing.assert_array_equal(got, x[good])
    columns = np.array([0, 2, 1, *([-1, -3] if signed else [])], index_type)
    np.testing.assert_array_equal(ops.take(x, columns, axis=1), x[:, columns])
    at = np.tile(columns, (4, 1))
    np.testing.assert_array_equal(ops.gather(x, at, axis=1), np.take_along_axis(x, at.astype(np.int64), 1))
    for bad in [4, 100, *([-5, -128] if signed else [255])]:
        wrong = np.array([1, bad, 0], index_type)
        for pick in (lambda i: ops.take(x, i, axis=0), lambda i: ops.embedding(x, i), fn.jit(lambda i: ops.take(x, i, axis=0)),
                     lambda i: ops.gather(x, np.tile(i, (4, 1)), axis=0)):
            with pytest.raises(FuelIndexError, match=rf"index {bad} is out of range for an axis of length 4"):
                pick(wrong)


def test_an_index_into_nothing() -> None:
    x = np.zeros((0, 3), F32)
    assert ops.take(x, np.zeros(0, np.int64), axis=0).shape == (0, 3)
    for bad in (0, -1):
        with pytest.raises(FuelIndexError, match="length 0"):
            ops.take(x, np.array([bad]), axis=0)


def test_labels_of_a_loss() -> None:
    """A label past the classes is an error, not a read of the next row; an ignored one may be any number."""
    @fn.jit(static_argnames="ignored")
    def loss(scores: Any, labels: Any, ignored: int) -> Any:
        kept = labels != ignored
        picked = np.take_along_axis(ops.log_softmax(scores), np.where(kept, labels, 0)[:, None], axis=1)[:, 0]
        return -np.sum(np.where(kept, picked, 0)) / np.sum(kept)

    scores = np.zeros((2, 3), F32)
    for labels, ignored in (([0, 2], -100), ([0, 3], 3), ([-100, 1], -100), ([0, -1], -1)):
        np.testing.assert_allclose(loss(scores, np.array(labels), ignored), np.log(3), rtol=1e-6)
    for labels in ([0, 3], [-4, 0]):
        with pytest.raises(FuelIndexError, match="out of range for an axis of length 3"):
            loss(scores, np.array(labels), -100)


def test_offsets_beyond_32_bits() -> None:
    """Row 69999 of 70000 begins at byte 4.9e9. The rows are one row seen 70000 times, so that it all fits into 70 kB."""
    row = np.arange(7, dtype=np.uint8).repeat(10_000)
    x = np.broadcast_to(row, (70_000, 70_000))
    f = fn.jit(lambda x, i: np.take(x, i, axis=0))
    for rows in ([69_999, 50_000], [-1, 0]):
        np.testing.assert_array_equal(f(x, np.array(rows)), np.tile(row, (2, 1)))
    assert len(list(f.plan.sources)) == 1, "x is read where it is"


@pytest.mark.parametrize("mode", ["reflect", "edge"])
def test_pads_that_are_not_there(mode: str) -> None:
    with pytest.raises(fn.errors.UnsupportedFunctionError, match="pad"):
        fn.jit(lambda x: np.pad(x, (3, 0), mode=mode))(np.ones(3, F32))
