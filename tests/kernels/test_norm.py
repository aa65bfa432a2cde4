"""softmax, log_softmax, layer_norm, rms_norm, un-jitted, against float64 NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from fuelnumba.core.dtypes import FLOATS
from fuelnumba.core.errors import AxisError, DTypeError, ShapeError
from fuelnumba.kernels.norm import layer_norm, log_softmax, rms_norm, softmax

from .unjitted import message, refer, run

TOLERANCE = {"f32": 2e-6, "f64": 1e-13, "f16": 1e-3, "bf16": 8e-3}


def wave(*shape: int) -> np.ndarray:
    return np.sin(np.arange(np.prod(shape)) * 1.3).reshape(shape) * 3


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(3, 5, 7), (1,), (4, 1), (2, 1029), (7, 16)], ids=str)
def test_against_float64(dtype, shape):
    x = wave(*shape).astype(dtype.numpy)
    weight = np.linspace(0.5, 2, shape[-1]).astype(dtype.numpy)
    bias = np.linspace(-1, 1, shape[-1]).astype(dtype.numpy)
    tol = TOLERANCE[dtype.name]
    for op, extra in ((softmax, ()), (log_softmax, ()), (layer_norm, ()), (layer_norm, (weight,)),
                      (layer_norm, (weight, bias)), (rms_norm, ()), (rms_norm, (weight,))):
        got = run(op, x, *extra)
        assert got.dtype == x.dtype and got.shape == x.shape
        np.testing.assert_allclose(got.astype(float), refer(op, x, *extra), tol, tol * 4, err_msg=op.name)


def test_any_layout_is_taken_after_a_copy():
    x = wave(6, 5).astype(np.float32)
    np.testing.assert_allclose(run(softmax, x.T), refer(softmax, x.T), 1e-6)
    np.testing.assert_allclose(run(rms_norm, x[::-1, ::-1]), refer(rms_norm, x[::-1, ::-1]), 1e-6)


def test_layer_norm_of_rows_with_a_large_mean():
    # case 4: E[x**2] - E[x]**2 would cancel
    x = np.array([[40000.0, 40001.0, 40002.0, 40003.0], [1234.0] * 4, [-2000.25, -2000.0, -1999.75, -1999.5]])
    want = [[-1.3416354199689269, -0.447211806656309, 0.447211806656309, 1.3416354199689269], [0.0] * 4,
            [-1.3415549297316995, -0.4471849765772332, 0.4471849765772332, 1.3415549297316995]]
    np.testing.assert_allclose(run(layer_norm, x.astype(np.float32), eps=1e-5), want, 1e-6, 1e-7)


def test_layer_norm_where_the_mean_is_no_f32():
    # the mean rounds by up to half an ulp of 1e7, which is as large as the deviations
    x = (1e7 + np.array([[0, 1, 1, 1, 0, 1, 1]])).astype(np.float32)
    np.testing.assert_allclose(run(layer_norm, x), refer(layer_norm, x), 1e-5)
    constant = np.full((1, 1000), 0.1, np.float32)
    assert np.abs(run(layer_norm, constant)).max() < 1e-5


def test_softmax_at_the_edges():
    inf, nan = np.inf, np.nan
    x = np.array([[-inf, 0, -inf], [-inf] * 3, [1, nan, 2], [1e4, 1e4, -1e4], [inf, 0, 1]], np.float32)
    want = np.array([[0, 1, 0], [nan] * 3, [nan] * 3, [0.5, 0.5, 0], [nan] * 3])
    np.testing.assert_array_equal(run(softmax, x), want)
    half = -np.log(2)
    want = np.array([[-inf, 0, -inf], [nan] * 3, [nan] * 3, [half, half, -2e4 + half], [nan] * 3])
    np.testing.assert_allclose(run(log_softmax, x), want, 1e-6)


def test_empty():
    for shape in ((3, 0), (0, 3)):
        x = np.zeros(shape, np.float32)
        for op in (softmax, log_softmax, layer_norm, rms_norm):
            assert run(op, x).shape == shape


def test_messages():
    x = np.zeros((2, 3), np.float32)
    assert message(AxisError, softmax, x, axis=2) == (
        "softmax(): axis 2 is out of range for an array of rank 2\n"
        "   = its axes are -2 to 1"
    )
    assert message(AxisError, rms_norm, np.float32(1).reshape(())) == (
        "rms_norm() needs an array of at least one axis, not a scalar\n"
        "   = pass an array of rank 1 or more, e.g. x[None]"
    )
    assert message(DTypeError, layer_norm, x.astype(np.int64)) == (
        "layer_norm() is not defined for i64\n"
        "   = cast it first, e.g. x.astype('f32')"
    )
    assert message(ShapeError, layer_norm, x, np.zeros(3, np.float32), np.zeros(2, np.float32)) == (
        "layer_norm(): bias has shape (2,), but the last axis of f32[2, 3] needs (3,)\n"
        "   = give one element for each column"
    )
    assert message(DTypeError, rms_norm, x, np.zeros(3)) == (
        "rms_norm(): weight is f64, x is f32\n"
        "   = cast it: weight.astype(x.dtype)"
    )
