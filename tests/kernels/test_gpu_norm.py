"""Normalisations by groups, un-jitted, against float64 NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from fuelnumba.core import dtypes as dt
from fuelnumba.core.dims import Dim
from fuelnumba.core.layout import Layout, contiguous
from fuelnumba.core.ops import GPU, Operand
from fuelnumba.kernels import gpu_norm
from fuelnumba.kernels.norm import layer_norm, log_softmax, rms_norm, softmax

from . import unjitted
from .unjitted import refer

RTOL = {"f32": 2e-6, "f64": 1e-14, "f16": 2e-3, "bf16": 1.6e-2}
COLUMNS = (1, 2, 4, 7, 12, 31, 32, 33, 130, 500, 513, 600, 4200)  # rows that are held, by fours or not, and read again

pytestmark = pytest.mark.usefixtures("group")


def wave(*shape: int) -> np.ndarray:
    return np.sin(np.arange(np.prod(shape)) * 1.7).reshape(shape) * 3


def check(op, *arrays, **attrs):
    want = refer(op, *arrays, **attrs)
    got = unjitted.run(op, *arrays, backend=GPU, **attrs)
    assert got.dtype == arrays[0].dtype and got.shape == want.shape
    rtol = RTOL[dt.of_numpy(got.dtype).name]
    np.testing.assert_allclose(got.astype(float), want, rtol, rtol * np.abs(want).max(initial=0))


@pytest.mark.parametrize("cols", COLUMNS)
@pytest.mark.parametrize("dtype", dt.FLOATS, ids=str)
def test_rows_of_all_lengths(dtype, cols):
    x = wave(2, cols).astype(dtype.numpy)
    weight, bias = (np.linspace(a, b, cols).astype(dtype.numpy) for a, b in ((0.5, 2), (-1, 1)))
    for op in (softmax, log_softmax, rms_norm, layer_norm):
        check(op, x)
    check(rms_norm, x, weight)
    if cols > 1:
        check(layer_norm, x, weight, bias)
        check(layer_norm, x, weight)


def test_no_rows_and_no_columns():
    for shape in ((0, 5), (3, 0), (0, 0)):
        for op in (softmax, log_softmax, rms_norm, layer_norm):
            assert unjitted.run(op, np.zeros(shape, np.float32), backend=GPU).shape == shape


def test_infinities_and_nan():
    x = np.array([[1, -np.inf, 2, -np.inf], [np.inf, 1, 2, 3], [np.nan, 1, 2, 3], [-np.inf] * 4], np.float32)
    got = unjitted.run(softmax, x, backend=GPU)
    np.testing.assert_allclose(got[0], [1 / (1 + np.e), 0, np.e / (1 + np.e), 0], 1e-6)
    assert np.isnan(got[1, 0]) and np.isnan(got[2:]).all()


def test_large_numbers_and_a_large_mean():
    check(softmax, np.array([[1e30, 1e30, -1e30], [88, 89, 90]], np.float32))
    x = (np.sin(np.arange(2 * 132.0)).reshape(2, 132) + 1000).astype(np.float32)
    np.testing.assert_allclose(unjitted.run(layer_norm, x, backend=GPU), refer(layer_norm, x), 1e-4, 1e-4)
    same = np.full((2, 132), 12345.678, np.float32)
    np.testing.assert_allclose(unjitted.run(layer_norm, same, backend=GPU), 0, atol=1e-3)


@pytest.mark.parametrize("shape, offset, fours, held", [
    ((3, 64), 0, True, True), ((3, 64), 2, False, True), ((3, 63), 0, False, True), ((3, 8 * 4 * 16), 0, True, True),
    ((3, 8 * 4 * 16 + 4), 0, False, False)])
def test_which_rows_are_held(shape, offset, fours, held):
    x = Operand(Layout(shape, contiguous(shape).strides, offset), dt.f32)
    launch = gpu_norm.row_launch(LOG=False)([x], [], {})
    assert (launch.bake["FOURS"], launch.bake["HELD"]) == (fours, held)
    assert launch.group == launch.bake["GROUP"] <= 8


def test_symbolic_lengths():
    n = Dim({("n",): 1})
    launch = gpu_norm.row_launch(LOG=False)([Operand(contiguous((n, 64)), dt.f32)], [], {})
    assert launch.bake["HELD"] and launch.total == n
    launch = gpu_norm.row_launch(LOG=False)([Operand(contiguous((64, n)), dt.f32)], [], {})
    assert not launch.bake["HELD"]
