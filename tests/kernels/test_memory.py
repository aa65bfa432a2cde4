"""write_slice un-jitted; concat and stack through their decomposition into it."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

import fuelnumba.kernels.movement  # noqa: F401  (stack needs unsqueeze)
from fuelnumba.core import dtypes as dt
from fuelnumba.core import ir
from fuelnumba.core.dims import Dim
from fuelnumba.core.errors import ArgumentError, DTypeError, ShapeError
from fuelnumba.core.layout import Layout
from fuelnumba.core.ops import OPS, Aval, Operand
from fuelnumba.kernels.memory import concat, split_bounds, stack, write_slice

from .test_index import raw, same_bits
from .unjitted import layouts, message, operand, refer, run

START = 2


@pytest.mark.parametrize("dtype", dt.ALL, ids=str)
def test_every_dtype_moves_bit_by_bit(dtype):
    x, src = raw(dtype, 4, 6), np.ascontiguousarray(raw(dtype, 5, 7)[1:3, 2:6])
    want = x.copy()
    want[1:3, 2:6] = src
    assert same_bits(run(write_slice, x, src, at=(1, 2)), want)


def test_every_layout_of_the_source():
    x = np.arange(4 * 6 * 9, dtype=np.float32).reshape(4, 6, 9)
    src = -np.arange(2 * 3 * 5, dtype=np.float32).reshape(2, 3, 5)
    for name, array in layouts(src).items():
        got = run(write_slice, x, array, at=(1, 3, 4))
        np.testing.assert_array_equal(got, refer(write_slice, x, src, at=(1, 3, 4)), err_msg=name)
    row = np.broadcast_to(np.float32(-1), (2, 6, 1))
    np.testing.assert_array_equal(run(write_slice, x, row, at=(0, 0, 8))[:2, :, 8], np.full((2, 6), -1))


def test_five_axes():
    x = np.arange(3**5 * 32, dtype=np.int32).reshape((6,) * 5)[:6]
    src = -np.ones((5, 4, 3, 4, 5), np.int32)
    for axes in list(permutations(range(5)))[::17]:
        part = src.transpose(axes)
        np.testing.assert_array_equal(run(write_slice, x, part, at=(1, 0, 1, 1, 1)),
                                      refer(write_slice, x, part, at=(1, 0, 1, 1, 1)))
    assert write_slice.kernels[0].accepts([operand(np.zeros((2,) * 6))], {}) == (
        "the source has 6 axes, more than 5")
    assert write_slice.kernels[0].accepts([operand(np.zeros((2, 1, 2, 2, 1, 2, 2)))], {}) is None


def test_runs_longer_than_4096():
    x, src = np.zeros((2, 9000), np.uint8), np.arange(2 * 8193, dtype=np.uint8).reshape(2, 8193)
    np.testing.assert_array_equal(run(write_slice, x, src, at=(0, 7)), refer(write_slice, x, src, at=(0, 7)))


@pytest.mark.parametrize("index_type", [np.int32, np.int64, np.uint32])
def test_run_time_start(index_type):
    cache = np.arange(2 * 8 * 3, dtype=np.float32).reshape(2, 8, 3)
    new = -np.ones((2, 2, 3), np.float32)
    for start in (0, 3, 5):
        got = run(write_slice, cache, new, np.array(start, index_type), at=(0, 1, 0), axis=1)
        want = cache.copy()
        want[:, start + 1:start + 3] = -1
        np.testing.assert_array_equal(got, want)
    if index_type is not np.uint32:
        got = run(write_slice, cache, new, np.array(-1, index_type), at=(0, 1, 0), axis=1)
        assert (got[:, :2] == -1).all()


@pytest.mark.parametrize("start", [3, -1, 2**40])
def test_a_run_time_start_that_does_not_fit_writes_nothing(start):
    # case 23: no shift back over older rows
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    out, status = run(write_slice, x, np.full((2, 2), 99, np.float32), np.array(start), axis=0,
                      expect_fault=True)
    assert status.tolist() == [START, start, 5, 2]
    np.testing.assert_array_equal(out, x)


def test_static_starts_that_do_and_do_not_fit():
    # case 23
    x, src = np.arange(8, dtype=np.float32).reshape(4, 2), np.full((2, 2), 99.0, np.float32)
    np.testing.assert_array_equal(run(write_slice, x, src, at=(2, 0)), [[0, 1], [2, 3], [99, 99], [99, 99]])
    np.testing.assert_array_equal(run(write_slice, x, src[:0], at=(4, 0)), x)
    for start in (3, 5, -1):
        assert message(ShapeError, write_slice, x, src, at=(start, 0)) == (
            f"write_slice(): start {start} with length 2 leaves axis 0, whose bound is 4\n"
            "   = starts are not negative, and start + length must not pass the bound")


def test_messages():
    x, src, i = np.zeros((4, 2), "f4"), np.zeros((2, 2), "f4"), np.array(0)
    assert message(ShapeError, write_slice, x, src[0]) == (
        "write_slice() got f32[4, 2] and a source of rank 1: the ranks must be equal\n"
        "   = insert axes: src[None]"
    )
    assert message(DTypeError, write_slice, x, src.astype(float)) == (
        "write_slice() cannot write f64 into f32\n   = cast the source: src.astype(x.dtype)")
    assert message(ArgumentError, write_slice, x, src, i) == (
        "write_slice() needs both start and axis, or neither\n"
        "   = pass start together with axis"
    )
    assert message(ArgumentError, write_slice, x, src, axis=0) == (
        "write_slice() needs both start and axis, or neither\n"
        "   = pass start together with axis"
    )
    assert message(ArgumentError, write_slice, x, src, at=(0,)) == (
        "write_slice(): at: (0,) needs one start for each of 2 axes\n"
        "   = give a tuple with a start for every axis"
    )
    assert message(ShapeError, write_slice, src, x, i, axis=0) == (
        "write_slice(): length 4 exceeds the bound 2 of axis 0\n"
        "   = cut the source, or write into a longer buffer"
    )
    assert message(ArgumentError, write_slice, x, src, np.zeros(1, np.int64), axis=0) == (
        "write_slice(): start must be an integer scalar, not i64[1]\n"
        "   = give an int, or a traced integer without axes"
    )


def test_scalar_buffer():
    assert run(write_slice, np.zeros((), np.float32), np.full((), 3, np.float32)) == 3


# ---------------------------------------------------------------- concat, stack, split
class Builder:
    """Builds nodes and runs them at once, as far as the decompositions need it."""

    def __init__(self) -> None:
        self.values: dict[ir.Node, np.ndarray] = {}

    def leaf(self, array: np.ndarray) -> ir.Node:
        node = ir.input_node("x", array.shape, operand(array).dtype)
        self.values[node] = array
        return node

    def empty(self, shape, dtype):
        return self.leaf(np.full(shape, 77, dtype.numpy))

    def op(self, op, inputs, **attrs):
        node = ir.make(op, inputs, attrs)
        arrays = [self.values[n] for n in inputs]
        self.values[node] = op.ref(*arrays, **attrs) if op.is_view else run(op, *arrays, **attrs)
        return node


@pytest.mark.parametrize("op", [concat, stack], ids=lambda o: o.name)
def test_decompositions(op):
    for arrays, attrs in op.samples():
        arrays = [a.astype(np.float32) for a in arrays]
        builder = Builder()
        axis = op.check_attrs([Aval(a.shape, dt.f32) for a in arrays], attrs)["axis"]
        node = op.decompose(builder, [builder.leaf(a) for a in arrays], axis=axis)
        want = op.ref(*arrays, axis=axis)
        np.testing.assert_array_equal(builder.values[node], want)
        assert op.infer(*(Aval(a.shape, dt.f32) for a in arrays), axis=axis) == Aval(want.shape, dt.f32)


def test_concat_of_symbolic_lengths():
    n = Dim({("n",): 1})
    out = concat.infer(Aval((n, 2), dt.f32), Aval((3, 2), dt.f32), axis=0)
    assert str(out) == "f32[n + 3, 2]"
    src = Operand(Layout((n, 2), (2, 1)), dt.f32)
    launch = write_slice.kernels[0].launch([src], [Operand(Layout((n + 3, 2), (2, 1)), dt.f32)],
                                           {"at": (3, 0), "axis": None})
    assert launch.args["base"] == 6 and str(launch.args["n4"]) == "2*n"


def test_concat_messages():
    x = np.zeros((2, 3), "f4")
    assert message(ShapeError, concat, x, x.T) == (
        "concat() got shapes (2, 3) and (3, 2): only axis 0 may differ\n"
        "   = transpose, pad or cut the others to one shape, or name another axis"
    )
    assert message(DTypeError, concat, x, x.astype(float)) == (
        "concat() got f32 and f64\n   = cast one of them")
    assert message(ShapeError, stack, x, x[:1]) == (
        "stack() got shapes (2, 3) and (1, 3): they must be equal\n"
        "   = broadcast or cut them to one shape; concat joins arrays that differ along one axis"
    )


def test_split_bounds():
    for n, sections in ((6, 3), (5, 1), (0, 2), (7, [2, 5]), (7, [5, 2]), (7, [-2, 9]), (4, [])):
        parts = np.split(np.arange(n), sections)
        assert [list(range(a, a + k)) for a, k in split_bounds(n, sections)] == [p.tolist() for p in parts]
    with pytest.raises(ShapeError) as caught:
        split_bounds(7, 2)
    assert str(caught.value) == ("split() cannot cut an axis of length 7 into 2 equal parts\n"
                                 "   = give the positions to cut at, or use array_split")
    assert "unsqueeze" in OPS
