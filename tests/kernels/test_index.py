"""gather, take, index_select, embedding, un-jitted, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from fuelnumba.core import dtypes as dt
from fuelnumba.core.errors import ArgumentError, AxisError, DTypeError, ShapeError
from fuelnumba.kernels.index import embedding, gather, index_select, take

from .unjitted import POISON, layouts, message, operand, run

RANGE = 1


def raw(dtype: dt.DType, *shape: int) -> np.ndarray:
    """Arbitrary bits (NaNs with payload among them): what moves elements must not look at them."""
    count = int(np.prod(shape)) * dtype.itemsize
    bits = (np.arange(count) * 151 + 13) % (2 if dtype is dt.bool_ else 256)
    return bits.astype(np.uint8).view(dtype.numpy).reshape(shape)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", dt.ALL, ids=str)
def test_every_dtype_moves_bit_by_bit(dtype):
    x = raw(dtype, 4, 5)
    rows = np.array([3, -4, 0, 3])
    assert same_bits(run(take, x, rows, axis=0), x[rows])
    assert same_bits(run(take, x, rows, axis=1), x[:, rows])
    assert same_bits(run(embedding, x, rows), x[rows])
    at = (np.arange(20).reshape(4, 5) * 7) % 8 - 4
    assert same_bits(run(gather, x, at, axis=0), np.take_along_axis(x, at, 0))


@pytest.mark.parametrize("index_type", [np.int32, np.int64, np.uint32])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_take_in_every_layout(axis, index_type):
    x = np.arange(3 * 4 * 5, dtype=np.float32).reshape(3, 4, 5)
    indices = np.array([[2, 0], [1, 1], [0, 2]], index_type)
    for name, array in layouts(x).items():
        if name in ("column major", "rotated axes") and axis in (0, 2, -1):
            array = np.ascontiguousarray(array)  # several strides on one side of the axis: refused, see below
        if (name, axis) in (("reversed", 2), ("reversed rows", 0)) or axis == -1:
            array = np.ascontiguousarray(array)
        np.testing.assert_array_equal(run(take, array, indices, axis=axis), np.take(x, indices, axis),
                                      err_msg=name)
    np.testing.assert_array_equal(run(index_select, x, indices[0], axis=axis), np.take(x, indices[0], axis))


def test_take_of_broadcast_rows_reads_them_where_they_are():
    # case 21 in small: the axis has stride 0, no copy of x is needed
    x = np.broadcast_to(np.arange(7, dtype=np.uint8), (70000, 7))
    np.testing.assert_array_equal(run(take, x, np.array([69999, 50000]), axis=0),
                                  np.tile(np.arange(7), (2, 1)))


def test_take_states_which_layouts_it_refuses():
    kernel = take.kernels[0]
    x = np.zeros((2, 3, 4), np.float32)
    indices = np.zeros((4, 2), np.int64)
    assert kernel.accepts([operand(x.T), operand(indices)], {"axis": 0}) == (
        "the axes before or after the indexed one do not lie one after the other")
    assert kernel.accepts([operand(x), operand(indices.T)], {"axis": 0}) == "the indices are not contiguous"
    assert kernel.accepts([operand(x), operand(indices)], {"axis": 1}) is None


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_is_take_along_axis(axis):
    x = np.arange(3 * 4 * 5, dtype=np.float32).reshape(3, 4, 5)
    for n in (1, 4, 7):
        shape = (*x.shape[:axis], n, *x.shape[axis + 1:])
        at = (np.arange(np.prod(shape)).reshape(shape) * 5) % (2 * x.shape[axis]) - x.shape[axis]
        for array in layouts(x).values():
            np.testing.assert_array_equal(run(gather, array, at, axis=axis), np.take_along_axis(x, at, axis))


def test_scalar_index_and_nothing():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(run(take, x, np.array(2), axis=0), x[2])
    np.testing.assert_array_equal(run(embedding, x, np.array(-3)), x[0])
    assert run(take, x, np.zeros(0, np.int64), axis=1).shape == (3, 0)
    assert run(take, x[:, :0], np.array([0, 1]), axis=0).shape == (2, 0)
    assert run(gather, x, np.zeros((0, 4), np.int64), axis=0).shape == (0, 4)


@pytest.mark.parametrize("bad", [4, -5, 2**40, -(2**40)])
def test_an_index_out_of_range_is_reported_and_its_row_left_alone(bad):
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    indices = np.array([1, bad, 3])
    for op in (take, index_select):
        out, status = run(op, x, indices, axis=0, expect_fault=True)
        assert status.tolist() == [RANGE, bad, 5, 4]
        np.testing.assert_array_equal(out[[0, 2]], x[[1, 3]])
        assert np.isnan(out[1]).all()
    out, status = run(embedding, x, indices, expect_fault=True)
    assert status.tolist() == [RANGE, bad, 5, 4]
    out, status = run(gather, x, np.full((1, 5), bad), axis=0, expect_fault=True)
    assert status.tolist() == [RANGE, bad, 5, 4] and np.isnan(out).all()


def test_the_first_fault_stays():
    out, status = run(take, np.zeros(4, np.int32), np.array([9]), axis=0, expect_fault=True)
    assert status[1] == 9 and out[0] == POISON["i"]
    # an axis of length 0 has no valid index
    _, status = run(take, np.zeros((0, 2), np.float32), np.array([0, 0]), axis=0, expect_fault=True)
    assert status.tolist() == [RANGE, 0, 5, 0]


def test_messages():
    x, flat = np.zeros((3, 4), np.float32), np.zeros(2, np.int64)
    assert message(DTypeError, take, x, np.zeros(2, np.int16), axis=0) == (
        "take(): indices are i16\n   = cast them: indices.astype(np.int64)")
    assert message(AxisError, take, x, flat, axis=2) == (
        "take(): axis 2 is out of range for an array of rank 2\n"
        "   = its axes are -2 to 1"
    )
    assert message(ArgumentError, take, x, flat) == (
        "take() needs the parameter 'axis'\n"
        "   = pass it by name"
    )
    assert message(ShapeError, gather, x, flat, axis=0) == (
        "gather() got f32[3, 4] and indices of rank 1: the ranks must be equal\n"
        "   = use take() for indices that choose whole rows")
    assert message(ShapeError, gather, x, np.zeros((2, 3), np.int64), axis=0) == (
        "gather() got shapes (3, 4) and (2, 3): axis 1 is 4 in one and 3 in the other, and only axis 0 may differ\n"
        "   = broadcast the indices first, or use np.take_along_axis, which does"
    )
    assert message(ShapeError, index_select, x, np.zeros((2, 2), np.int64), axis=0) == (
        "index_select() needs indices of rank 1, not (2, 2)\n   = use take() for indices of any shape")
    assert message(ShapeError, embedding, x[0], flat) == (
        "embedding() needs a table of rank 2, not f32[4]\n"
        "   = use take(x, indices, axis=0) for other ranks"
    )
