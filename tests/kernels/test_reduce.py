"""Reductions, un-jitted, against float64 NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from fuelnumba.core.dims import Dim, same
from fuelnumba.core.dtypes import FLOATS, INTS, f32, i64
from fuelnumba.core.errors import AxisError, DTypeError, ShapeError
from fuelnumba.core.layout import contiguous
from fuelnumba.core.ops import Aval, Operand
from fuelnumba.kernels.reduce import REDUCTIONS, argmax, argmin

from .unjitted import layouts, message, operand, refer, run

SUM, MEAN, PROD, MAX, MIN, ANY, ALL = REDUCTIONS.values()
RTOL = {"f32": 2e-6, "f64": 1e-13, "f16": 1e-3, "bf16": 8e-3}
NAN = np.nan


def wave(*shape: int) -> np.ndarray:
    return np.sin(np.arange(np.prod(shape)) * 1.3).reshape(shape) * 2 + 0.01


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", [SUM, MEAN, PROD, MAX, MIN], ids=lambda o: o.name)
@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2), -1])
def test_floats_over_axes_in_every_layout(op, dtype, axis):
    x = wave(3, 5, 7).astype(dtype.numpy)
    want = refer(op, x, axis=axis)
    for name, array in layouts(x).items():
        got = run(op, array, axis=axis)
        assert got.dtype == x.dtype
        atol = RTOL[dtype.name] * 3
        np.testing.assert_allclose(got.astype(float), want, RTOL[dtype.name], atol, err_msg=name)


@pytest.mark.parametrize("dtype", INTS, ids=str)
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_extremes_of_integers(dtype, axis):
    x = (np.arange(35).reshape(5, 7) * 37 % 120).astype(dtype.numpy)
    x[2, 3] = np.iinfo(dtype.numpy).max
    x[4, 0] = np.iinfo(dtype.numpy).min
    for array in layouts(x).values():
        np.testing.assert_array_equal(run(MAX, array, axis=axis), x.max(axis=axis))
        np.testing.assert_array_equal(run(MIN, array, axis=axis), x.min(axis=axis))
        if axis is not None:
            np.testing.assert_array_equal(run(argmax, array, axis=axis), x.argmax(axis=axis))
            np.testing.assert_array_equal(run(argmin, array, axis=axis), x.argmin(axis=axis))


def test_sums_of_i64_wrap():
    x = np.array([[2**62, 2**62, 2**62], [3, -5, 7]])
    np.testing.assert_array_equal(run(SUM, x, axis=1), x.sum(axis=1))
    np.testing.assert_array_equal(run(SUM, x, axis=0), x.sum(axis=0))
    np.testing.assert_array_equal(run(PROD, x, axis=0), x.prod(axis=0))


def test_truth():
    x = np.array([[True, False, True], [True, True, True], [False, False, False]])
    for array in layouts(x).values():
        for axis in (None, 0, 1):
            np.testing.assert_array_equal(run(ANY, array, axis=axis), x.any(axis=axis))
            np.testing.assert_array_equal(run(ALL, array, axis=axis), x.all(axis=axis))
            np.testing.assert_array_equal(run(MAX, array, axis=axis), x.max(axis=axis))
    np.testing.assert_array_equal(run(argmax, x, axis=1), [0, 0, 0])
    np.testing.assert_array_equal(run(argmin, x, axis=0), [2, 0, 2])


@pytest.mark.parametrize("kernel", ["reduce_rows", "reduce_columns"])
def test_long_axes_and_many_columns(kernel):
    # past one block of 1024 and past one block of 256 columns, with ragged ends
    x = wave(1030, 3).astype(np.float32) if kernel == "reduce_columns" else wave(3, 1030).astype(np.float32)
    axis = 0 if kernel == "reduce_columns" else 1
    np.testing.assert_allclose(run(SUM, x, axis=axis, kernel=kernel), x.sum(axis, float), 1e-6, 1e-5)
    np.testing.assert_array_equal(run(MAX, x, axis=axis, kernel=kernel), x.max(axis))
    if kernel == "reduce_columns":
        y = wave(2, 3, 259).astype(np.float32)
        np.testing.assert_allclose(run(MEAN, y, axis=1, kernel=kernel), y.mean(1, float), 1e-6, 1e-6)


def test_stride_zero():
    x = np.broadcast_to(np.array([1.5, -2.0, 4.0], np.float32), (4, 5, 3))
    for axis in (None, 0, 1, 2, (0, 2), (1, 2)):
        np.testing.assert_allclose(run(SUM, x, axis=axis), x.sum(axis))
        np.testing.assert_array_equal(run(MAX, x, axis=axis), x.max(axis))
    np.testing.assert_array_equal(run(argmax, x, axis=2), np.full((4, 5), 2))
    np.testing.assert_array_equal(run(argmax, x, axis=0), np.zeros((5, 3)))


def test_nothing_to_reduce():
    for shape, axis in (((3, 0), 1), ((0, 3), 0), ((0,), None), ((2, 0, 3), 1)):
        x = np.zeros(shape, np.float32)
        np.testing.assert_array_equal(run(SUM, x, axis=axis), x.sum(axis))
        np.testing.assert_array_equal(run(PROD, x, axis=axis), x.prod(axis))
        np.testing.assert_array_equal(run(MEAN, x, axis=axis), np.full(x.sum(axis).shape, NAN))
        np.testing.assert_array_equal(run(ANY, x.astype(bool), axis=axis), x.any(axis))
        np.testing.assert_array_equal(run(ALL, x.astype(bool), axis=axis), x.all(axis))
    assert run(MAX, np.zeros((0, 3), np.float32), axis=1).shape == (0,)
    assert run(argmax, np.zeros((3, 0, 2), np.float32), axis=0).shape == (0, 2)
    assert run(SUM, np.float32(2.5).reshape(())) == 2.5
    np.testing.assert_array_equal(run(SUM, np.ones((2, 3), np.float32), axis=()), np.ones((2, 3)))


def test_a_nan_anywhere_is_the_extreme():
    # case 1: row i has its NaN in column i, beside the lanes of vector code as well as in them
    x = np.tile(np.arange(11, dtype=np.float32), (11, 1))
    np.fill_diagonal(x, NAN)
    for op in (MAX, MIN):
        for axis in (0, 1, None):
            assert np.isnan(run(op, x, axis=axis)).all()
    assert np.isnan(run(MIN, np.array([[NAN, NAN, NAN, 42.0]], np.float32), axis=1)).all()
    for op in (argmax, argmin):
        np.testing.assert_array_equal(run(op, x, axis=1), np.arange(11))
        np.testing.assert_array_equal(run(op, x, axis=0), np.arange(11))


@pytest.mark.parametrize("axis", [0, 1])
def test_the_first_of_equal_extremes_wins(axis):
    rows = np.array([[3, 7, 7, 1, 1], [NAN, 9, NAN, -1, -1], [0.0, -0.0, 0.0, -0.0, 0.0], [-np.inf] * 5])
    x = (rows if axis else rows.T).astype(np.float32)
    for op, want in ((argmax, [1, 0, 0, 0]), (argmin, [3, 0, 0, 0])):
        np.testing.assert_array_equal(run(op, np.ascontiguousarray(x), axis=axis), want)
    # the same with the extreme in the second block of 1024
    y = np.zeros((1, 1500), np.float32)
    y[0, [1100, 1400]] = 5
    assert run(argmax, y, axis=1)[0] == 1100
    y[0, [1200, 1300]] = NAN
    assert run(argmax, y, axis=1)[0] == 1200


def test_half_types_accumulate_in_f32():
    # case 5
    assert run(MEAN, np.full((64, 64), 32.0, np.float16)) == 32.0
    assert run(SUM, np.array([32000.0] * 4 + [-32000.0] * 4, np.float16), axis=0) == 0.0
    assert run(SUM, np.ones(4096, np.float16), axis=0) == 4096.0
    assert run(SUM, np.ones((4096, 1), ml_dtypes.bfloat16), axis=0)[0] == 4096.0


def test_keepdims():
    x = wave(2, 3, 4).astype(np.float32)
    for axis in (None, 1, (0, 2)):
        assert run(SUM, x, axis=axis, keepdims=True).shape == x.sum(axis, keepdims=True).shape
    assert run(argmax, x, axis=1, keepdims=True).shape == (2, 1, 4)


def test_four_kept_and_four_reduced_axes():
    x = wave(2, 3, 2, 3, 2, 3, 2, 3).astype(np.float32)
    for axis in ((0, 2, 4, 6), (1, 3, 5, 7)):
        np.testing.assert_allclose(run(SUM, x, axis=axis), x.sum(axis, float), 1e-5, 1e-5)


def test_refusals():
    x = np.zeros((2, 1, 2) * 3, np.float32)[:, :, ::2]
    deep = operand(np.broadcast_to(np.zeros((2, 3) * 5, np.float32), (2, 3) * 5))
    rows = next(k for k in SUM.kernels if k.name == "reduce_rows")
    assert rows.accepts([deep], {"axis": (0, 2, 4, 6, 8)}) == (
        "its layout has 5 kept and 5 reduced axes after collapsing, more than 4 of one kind")
    columns = next(k for k in SUM.kernels if k.name == "reduce_columns")
    assert columns.accepts([operand(x)], {"axis": (8,)}) == (
        "neighbouring outputs do not come from neighbouring elements")


def test_messages():
    empty = np.zeros((3, 0), np.float32)
    assert message(ShapeError, MAX, empty, axis=1) == (
        "zero-size array to reduction operation max which has no identity: axis 1 of f32[3, 0] has length 0\n   = reduce over axes that hold something, or concatenate a first value")
    assert message(ShapeError, argmin, empty, axis=1) == (
        "zero-size array to reduction operation argmin which has no identity: "
        "axis 1 of f32[3, 0] has length 0\n   = reduce over axes that hold something, or concatenate a first value")
    assert message(AxisError, SUM, empty, axis=2) == (
        "sum(): axis 2 is out of range for an array of rank 2\n"
        "   = its axes are -2 to 1"
    )
    assert message(DTypeError, SUM, np.zeros(3, np.int32)) == "sum() is not defined for i32"
    f8 = np.zeros(3, ml_dtypes.float8_e5m2)
    assert message(DTypeError, MAX, f8) == "max() is not defined for f8e5m2"


def test_symbolic_extents():
    n = Dim({("n",): 1})
    x = Aval((n, 4), f32)
    assert SUM.infer(x, axis=(1,), keepdims=False) == Aval((n,), f32)
    assert argmax.infer(x, axis=0, keepdims=False) == Aval((4,), i64)
    symbolic = Operand(contiguous((n, 4)), f32)
    columns, rows = (k for k in SUM.kernels if k.backend == "cpu")
    launch = rows.launch([symbolic], [], {"axis": (1,)})
    assert same(launch.total, n) and launch.args["m3"] == 4 and launch.bake["UNIT"]
    launch = columns.launch([symbolic], [], {"axis": (0,)})
    assert launch.total == 1 and same(launch.args["m3"], n)
