"""Indices held by arrays that are out of range when the kernel runs: the user's line, the index and the length; the function
works on afterwards. And indices that are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

import fuelnumba
from fuelnumba import errors, jit, ops

from .told import raised, told

F32 = np.float32
X = np.arange(20, dtype=F32).reshape(5, 4)
BAD = [5, -6, 2**31 - 1, -(2**31), 2**40, -(2**62)]


def helper(x, i):
    return np.take(x, i, axis=0) * 2


def along(x, i):
    return np.take_along_axis(x, np.broadcast_to(i[:, None], (2, 4)), axis=0)


WAYS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "take": (lambda x, i: np.take(x, i, axis=0), "np.take(x, i, axis=0)"),
    "take flat": (lambda x, i: np.take(x[:, 0], i), "np.take(x[:, 0], i)"),
    "method": (lambda x, i: x.take(i, axis=0), "x.take(i, axis=0)"),
    "bracket": (lambda x, i: x[i], "x[i]"),
    "second axis": (lambda x, i: x.T[:, i], "x.T[:, i]"),
    "take_along_axis": (along, "np.take_along_axis(x, np.broadcast_to(i[:, None], (2, 4)), axis=0)"),
    "embedding": (lambda x, i: ops.embedding(x, i), "ops.embedding(x, i)"),
    "index_select": (lambda x, i: ops.index_select(x, i, axis=0), "ops.index_select(x, i, axis=0)"),
    "gather": (lambda x, i: ops.gather(x[:, :1], i[:, None], axis=0), "ops.gather(x[:, :1], i[:, None], axis=0)"),
    "fused with others": (lambda x, i: np.exp(x[i + 0] - 1) * 2, "x[i + 0]"),
    "in a helper function": (helper, "np.take(x, i, axis=0)"),
    "in a helper of another": (lambda x, i: np.sqrt(helper(x, i)), "np.take(x, i, axis=0)"),
    "in a jitted function inside": (lambda x, i: np.sqrt(jit(helper)(x, i)), "np.take(x, i, axis=0)"),
}
FUNCTIONS = {name: jit(fn) for name, (fn, _) in WAYS.items()}


@pytest.mark.parametrize("name", WAYS)
def test_the_line_the_index_and_the_length(name: str) -> None:
    fn, marked = WAYS[name]
    f = FUNCTIONS[name]
    expected = fn(X, np.array([4, -5])) if name not in ("embedding", "index_select", "gather") else f(X, np.array([4, -5]))
    for bad in BAD:
        assert told(lambda bad=bad: f(X, np.array([1, bad])), __file__) == (
            f"FuelIndexError: index {bad} is out of range for an axis of length 5\nat {marked}\n= check the indices")
        np.testing.assert_allclose(f(X, np.array([4, -5])), expected, rtol=1e-6)  # it works on, and negative ones count from the end
    with pytest.raises(IndexError):
        f(X, np.array([5, 0]))


@pytest.mark.parametrize("dtype", ["u4", "i4", "i8", "u1", "i2"])
def test_dtypes_of_indices(dtype: str) -> None:
    f = jit(lambda x, i: x[i])
    last = np.array([4, 0], dtype)
    np.testing.assert_array_equal(f(X, last), X[[4, 0]])
    text = told(lambda: f(X, np.array([0, 5], dtype)), __file__)
    assert text.startswith("FuelIndexError: index 5 is out of range for an axis of length 5\n")


def test_lengths_that_are_symbols() -> None:
    f = jit(lambda x, i: np.take(x, i, axis=0))
    for n in (5, 7, 9):
        assert f(np.arange(float(n)), np.array([n - 1, -n])).tolist() == [n - 1, 0]
        for bad in (n, -n - 1):
            text = told(lambda n=n, bad=bad: f(np.arange(float(n)), np.array([0, bad])), __file__)
            assert text.startswith(f"FuelIndexError: index {bad} is out of range for an axis of length {n}\nat np.take(x, i, axis=0)\n")


def test_an_op_names_the_line_of_each_caller() -> None:
    i = np.array([9])
    first = raised(lambda: ops.take(X, i, axis=0))
    second = raised(lambda: ops.take(X, i, axis=0))
    assert first.where is not None and second.where is not None
    assert second.where.line == first.where.line + 1 and second.where.file == __file__


@pytest.mark.parametrize("many", [2, 40_000], ids=["small", "divided among threads"])
def test_results_and_inputs_are_untouched(many: int) -> None:
    f = jit(lambda x, i: np.take(x, i, axis=0))
    x, good, bad = X.copy(), np.zeros(many, np.int64), np.zeros(many, np.int64)
    bad[many // 2] = 77
    kept = f(x, good)
    raised(lambda: f(x, bad))
    assert (kept == X[0]).all() and (x == X).all() and not good.any()
    assert (f(x, good) == X[0]).all()


# ------------------------------------------------------------------------------------------------ writes
@pytest.mark.parametrize("start", [4, -1, 2**40, -(2**63)])
def test_a_start_out_of_range_writes_nothing(start: int) -> None:
    @jit(donate="cache")
    def put(cache, rows, at):
        return ops.write_slice(cache, rows, at=(at, 0))

    cache, rows = np.zeros((5, 2)), np.ones((2, 2))
    assert told(lambda: put(cache, rows, start), __file__) == (
        f"FuelIndexError: write_slice(): start {start} is out of range: it must lie in 0..3 for the slice to fit; nothing was written\n"
        "at ops.write_slice(cache, rows, at=(at, 0))\n= check the start against the buffer's length")
    assert not cache.any()
    assert put(cache, rows, 3) is cache and cache[3:].all() and not cache[:3].any()


def test_a_write_after_a_failed_read_is_not_done() -> None:
    @jit(donate="cache")
    def step(cache, table, i, at):
        return ops.write_slice(cache, np.take(table, i, axis=0), at=(at, 0))

    cache = np.zeros((5, 4), F32)
    text = told(lambda: step(cache, X, np.array([9]), 1), __file__)
    assert text.startswith("FuelIndexError: index 9 is out of range for an axis of length 5\nat np.take(table, i, axis=0)\n")
    assert not cache.any()
    assert (step(cache, X, np.array([2]), 1)[1] == X[2]).all()


def test_a_write_before_a_failed_read_is_done() -> None:
    """As docs/errors.md says: a donated argument keeps what earlier launches wrote."""
    @jit(donate="cache")
    def step(cache, rows, i, at):
        cache = ops.write_slice(cache, rows, at=(at, 0))
        return cache, np.take(cache, i, axis=0)

    cache, rows = np.zeros((5, 4), F32), np.ones((1, 4), F32)
    raised(lambda: step(cache, rows, np.array([9]), 1))
    assert cache[1].all() and not cache[[0, 2, 3, 4]].any()
    assert step(cache, rows, np.array([1]), 2)[1].tolist() == [[1] * 4]
    assert cache[1:3].all()


# ------------------------------------------------------------------------------------------------ no indices
@pytest.mark.parametrize("i", [np.array([0.0, 1.0]), np.array([np.nan]), np.float32(np.nan), np.nan, 1.5], ids=str)
@pytest.mark.parametrize("where", ["argument", "captured"])
def test_floats_are_no_indices(i: Any, where: str) -> None:
    f = jit(lambda x, i: x[i])
    call = (lambda: f(X, i)) if where == "argument" else lambda: jit(lambda x: x[i])(X)
    text = told(call, __file__)
    assert text.startswith("DTypeError: an index must be integers, not ") and text.endswith(("i.astype(np.int64)", "int(i)"))
    for op in (lambda x, i: np.take(x, i, axis=0), lambda x, i: ops.embedding(x, i)):
        text = told(lambda op=op: jit(op)(X, i), __file__)
        assert ": indices must be integers, not f" in text and text.startswith("DTypeError: ")
        assert text.endswith("= cast them first, e.g. indices.astype(np.int64)")


def test_masks_are_no_indices() -> None:
    mask = np.array([True, False, True, False, True])
    assert told(lambda: jit(lambda x, m: x[m])(X, mask), __file__) == (
        "DTypeError: a boolean mask cannot index Tensor(f32[5, 4]): how many elements it selects is not known while tracing\n"
        "at x[m]\n= use np.where(mask, x, other), which keeps the shape")
    for key in (mask, mask.tolist(), True, np.bool_(True)):
        assert raised(lambda key=key: jit(lambda x: x[key])(X)).what.startswith(("a boolean mask", "an index must be integers, not bool"))
    assert raised(lambda: jit(lambda x, m: np.take(x, m, axis=0))(X, mask)).what == "take(): indices must be integers, not bool"


@pytest.mark.parametrize(("key", "what"), [
    (5, "index 5 is out of range for axis 0 of length 5"),
    (-6, "index -6 is out of range for axis 0 of length 5"),
    ((0, 4), "index 4 is out of range for axis 1 of length 4"),
    ((None, slice(2), None, 4), "index 4 is out of range for axis 1 of length 4"),
    (2**70, f"index {2**70} is out of range for axis 0 of length 5"),
    ((0, 0, 0), "3 indices for Tensor(f32[5, 4]) of rank 2"),
], ids=str)
def test_written_indices_out_of_range(key: Any, what: str) -> None:
    err = raised(lambda: jit(lambda x: x[key])(X))
    assert isinstance(err, errors.FuelIndexError) and err.what == what
    assert err.where is not None and err.where.file == __file__ and err.cure
    assert jit(lambda x: x[-5])(X).tolist() == X[0].tolist()


def test_an_error_after_a_bad_index_leaves_nothing_behind() -> None:
    """A kernel reported an index; then a kernel of the user's raised. The next call is not blamed for either."""
    @numba.njit
    def picky(x, out):
        if x[0] > 5:
            raise ValueError("too large")
        out[:] = x

    fuelnumba.register_kernel("tanh", ("f64", "f64"), picky)
    try:
        f = fuelnumba.jit(lambda x, i: np.tanh(np.take(x, i)))
        with pytest.raises(ValueError, match="too large"):
            f(np.array([1.0, 2.0, 9.0]), np.array([2, 7]))
        assert f(np.array([1.0, 2.0, 9.0]), np.array([0, 1])).tolist() == [1, 2]
    finally:
        fuelnumba.unregister_kernel("tanh", ("f64", "f64"))
