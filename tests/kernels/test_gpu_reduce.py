"""Reductions by groups, un-jitted, against float64 NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from fuelnumba.core.dims import Dim
from fuelnumba.core.dtypes import FLOATS, INTS, f32
from fuelnumba.core.layout import Layout, contiguous
from fuelnumba.core.ops import GPU, Operand
from fuelnumba.kernels import gpu_reduce
from fuelnumba.kernels.reduce import REDUCTIONS, argmax, argmin

from . import unjitted
from .unjitted import layouts, operand, refer

SUM, MEAN, PROD, MAX, MIN, ANY, ALL = REDUCTIONS.values()
RTOL = {"f32": 2e-6, "f64": 1e-13, "f16": 1e-3, "bf16": 8e-3}
NAN = np.nan

pytestmark = pytest.mark.usefixtures("group")


def run(op, x, kernel=None, **attrs):
    return unjitted.run(op, x, kernel=kernel, backend=GPU, **attrs)


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
        np.testing.assert_allclose(got.astype(float), want, RTOL[dtype.name], RTOL[dtype.name] * 3, err_msg=name)


@pytest.mark.parametrize("shape", [(1, 1), (4, 64), (3, 300), (64, 8), (40, 4), (300, 12), (2, 1000), (1000, 1), (1, 515)],
                         ids=str)
@pytest.mark.parametrize("dtype", [f32, FLOATS[2]], ids=str)
def test_shapes_of_all_kinds(shape, dtype):
    # groups with several rows, of several slices, parts that are put together, four at a time and not
    x = wave(*shape).astype(dtype.numpy)
    for axis in (0, 1, None):
        np.testing.assert_allclose(run(SUM, x, axis=axis), refer(SUM, x, axis=axis), RTOL[dtype.name], 1e-4)
        np.testing.assert_allclose(run(MEAN, x, axis=axis), refer(MEAN, x, axis=axis), RTOL[dtype.name], 1e-4)
        np.testing.assert_array_equal(run(MIN, x, axis=axis), x.min(axis))
        if axis is not None:
            np.testing.assert_array_equal(run(argmax, x, axis=axis), x.argmax(axis))


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
    for axis in (0, 1):
        np.testing.assert_array_equal(run(SUM, x, axis=axis), x.sum(axis=axis))
    np.testing.assert_array_equal(run(PROD, x, axis=0), x.prod(axis=0))


def test_truth():
    x = np.array([[True, False, True], [True, True, True], [False, False, False]])
    many = np.zeros((2, 700), bool)
    many[1, 650] = True
    for array in [*layouts(x).values(), many, ~many]:
        for axis in (None, 0, 1):
            np.testing.assert_array_equal(run(ANY, array, axis=axis), array.any(axis=axis))
            np.testing.assert_array_equal(run(ALL, array, axis=axis), array.all(axis=axis))
            np.testing.assert_array_equal(run(MAX, array, axis=axis), array.max(axis=axis))
    np.testing.assert_array_equal(run(argmax, x, axis=1), [0, 0, 0])
    np.testing.assert_array_equal(run(argmin, x, axis=0), [2, 0, 2])


def test_nothing_to_reduce():
    for shape, axis in (((3, 0), 1), ((0, 3), 0), ((0,), None), ((2, 0, 3), 1), ((0, 0), 1)):
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
    x = np.tile(np.arange(41, dtype=np.float32), (41, 1))
    np.fill_diagonal(x, NAN)
    for op in (MAX, MIN):
        for axis in (0, 1, None):
            assert np.isnan(run(op, x, axis=axis)).all()
    for op in (argmax, argmin):
        np.testing.assert_array_equal(run(op, x, axis=1), np.arange(41))
        np.testing.assert_array_equal(run(op, x, axis=0), np.arange(41))


@pytest.mark.parametrize("axis", [0, 1])
def test_the_first_of_equal_extremes_wins(axis):
    rows = np.array([[3, 7, 7, 1, 1], [NAN, 9, NAN, -1, -1], [0.0, -0.0, 0.0, -0.0, 0.0], [-np.inf] * 5])
    x = (rows if axis else rows.T).astype(np.float32)
    for op, want in ((argmax, [1, 0, 0, 0]), (argmin, [3, 0, 0, 0])):
        np.testing.assert_array_equal(run(op, np.ascontiguousarray(x), axis=axis), want)
    y = np.zeros((1, 150), np.float32)
    for places in ([110, 140], [111, 118], [36, 37]):
        for value in (5, NAN):
            y[:] = 0
            y[0, places] = value
            assert run(argmax, y if axis else y.T.copy(), axis=axis)[0] == places[0]


def test_half_types_accumulate_in_f32():
    assert run(MEAN, np.full((64, 64), 32.0, np.float16)) == 32.0
    assert run(SUM, np.array([32000.0] * 4 + [-32000.0] * 4, np.float16), axis=0) == 0.0
    assert run(SUM, np.ones(4096, np.float16), axis=0) == 4096.0
    assert run(SUM, np.ones((4096, 2), np.float16), axis=0).tolist() == [4096.0] * 2


def test_products_pass_the_range_on_the_way():
    x = np.array([[1e30, 1e30, 1e-30, 1e-30]], np.float32)
    np.testing.assert_allclose(run(PROD, x, axis=1), [1], 1e-6)
    np.testing.assert_allclose(run(PROD, np.repeat(x, 300, 0).T.copy(), axis=0), np.ones(300), 1e-6)


def test_stride_zero_and_offsets():
    x = np.broadcast_to(np.array([1.5, -2.0, 4.0, 8.0], np.float32), (4, 5, 4))
    for axis in (None, 0, 1, 2, (0, 2), (1, 2)):
        np.testing.assert_allclose(run(SUM, x, axis=axis), x.sum(axis))
    layout = Layout((8, 64), (64, 1), 2)  # two elements on: no fours lie aligned
    assert not gpu_reduce.rows_of(gpu_reduce.RULES["sum"], Operand(layout, f32), (1,), 64).bake["FOURS"]
    assert gpu_reduce.rows_of(gpu_reduce.RULES["sum"], Operand(contiguous((8, 64)), f32), (1,), 64).bake["FOURS"]


def test_refusals():
    deep = operand(np.zeros((2, 3, 2, 3, 2, 3), np.float32))
    columns, rows = (k for k in SUM.kernels if k.backend == GPU)
    assert rows.accepts([deep], {"axis": (0, 2, 4)}) == (
        "its layout has 3 kept and 3 reduced axes after collapsing, more than 4 and 2")
    assert columns.accepts([operand(np.zeros((2, 3)))], {"axis": (1,)}) == (
        "neighbouring outputs do not come from neighbouring elements")


def test_symbolic_extents():
    n = Dim({("n",): 1})
    columns, rows = (k for k in SUM.kernels if k.backend == GPU)
    for kernel, axis in ((rows, 0), (rows, 1), (columns, 0)):
        launch = kernel.launch([Operand(contiguous((n, 16)), f32)], [], {"axis": (axis,)})
        assert launch.group == launch.bake["GROUP"] == 8
        assert all(isinstance(v, (int, bool, str)) for v in launch.bake.values())
    whole = rows.launch([Operand(contiguous((n, n)), f32)], [], {"axis": (0, 1)})
    assert whole.finish is not None and whole.scratch is not None
