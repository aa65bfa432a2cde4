"""Attention by groups, un-jitted, against float64 NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from fuelnumba.core import dtypes as dt
from fuelnumba.core.dims import Dim
from fuelnumba.core.layout import contiguous
from fuelnumba.core.ops import GPU, Operand
from fuelnumba.kernels import gpu_attention
from fuelnumba.kernels.attention import attention

from . import unjitted
from .unjitted import operand, refer

TOLERANCE = {"f32": 3e-6, "f64": 1e-13, "f16": 2e-3, "bf16": 1.6e-2}

pytestmark = pytest.mark.usefixtures("group")


def run(*arrays, **attrs):
    return unjitted.run(attention, *arrays, kernel="group_attention", backend=GPU, **attrs)


def wave(*shape: int) -> np.ndarray:
    return np.sin(np.arange(np.prod(shape)) * 0.9 + len(shape) * shape[-1]).reshape(shape)


CASES = [(dtype, {}, 3, 5, 3) for dtype in dt.FLOATS] + [
    (dt.f32, {"causal": False}, 1, 8, 9), (dt.f16, {"scale": 0.3}, 9, 4, 20), (dt.f32, {"softcap": 1.5}, 3, 4, 8)]


@pytest.mark.parametrize("dtype, attrs, queries, depth, width", CASES, ids=str)
def test_against_float64(dtype, attrs, queries, depth, width):
    q, k, v = (wave(*s).astype(dtype.numpy) for s in ((2, 4, queries, depth), (2, 2, 12, depth), (2, 2, 12, width)))
    tol = TOLERANCE[dtype.name]
    for length in ((), (np.array(4),), (np.array([12, 2], np.int32),)):
        got = run(q, k, v, *length, **attrs)
        assert got.dtype == q.dtype and got.shape == (2, 4, queries, width)
        np.testing.assert_allclose(got.astype(float), refer(attention, q, k, v, *length, **attrs), tol, tol)


@pytest.mark.parametrize("queries", [1, 2])
def test_keys_in_parts(queries):
    q, k, v = (wave(*s).astype(np.float32) for s in ((1, 2, queries, 4), (1, 1, 67, 4), (1, 1, 67, 6)))
    k[0, 0, 40] = 30  # the largest score comes late: what was summed before must shrink
    launch = gpu_attention.group_launch([operand(a) for a in (q, k, v)], [], {"scale": 1.0, "causal": True, "softcap": None})
    assert launch.finish is not None
    for length in (0, 1, 5, 64, 67):
        got = run(q, k, v, np.array(length), scale=1.0)
        np.testing.assert_allclose(got, refer(attention, q, k, v, np.array(length), scale=1.0), 1e-5, 1e-6)


def test_strided_operands():
    x = wave(2, 5, 4, 8).astype(np.float32)
    q, k, v = (a.transpose(0, 2, 1, 3) for a in (x, x[:, ::-1, :2], x[:, :, 1:3, :3]))
    np.testing.assert_allclose(run(q, k, v), refer(attention, q, k, v), 1e-5, 1e-6)
    shared = np.broadcast_to(k[:1, :1], k.shape)
    np.testing.assert_allclose(run(q, shared, v), refer(attention, q, shared, v), 1e-5, 1e-6)
    lengths = np.array([4, 9, 5, 9])[::2]
    np.testing.assert_allclose(run(q, k, v, lengths), refer(attention, q, k, v, lengths), 1e-5, 1e-6)


def test_what_is_not_seen_may_be_anything():
    q, k, v = (wave(*s).astype(np.float32) for s in ((1, 1, 6, 4), (1, 1, 9, 4), (1, 1, 9, 4)))
    want = refer(attention, q, k, v, np.array(7))
    k[0, 0, 7:] = v[0, 0, 7:] = np.nan
    np.testing.assert_allclose(run(q, k, v, np.array(7)), want, 1e-5, 1e-6)
    v[0, 0, 6] = np.inf  # seen by the last query only
    got = run(q, k, v, np.array(7))
    np.testing.assert_allclose(got[0, 0, :5], want[0, 0, :5], 1e-5, 1e-6)
    assert np.isinf(got[0, 0, 5]).all()


def test_a_query_that_sees_nothing_gives_zeros():
    q, k, v = (wave(*s).astype(np.float32) for s in ((1, 1, 5, 4), (1, 1, 3, 4), (1, 1, 3, 4)))
    got = run(q, k, v)
    assert (got[0, 0, :2] == 0).all()
    np.testing.assert_allclose(got, refer(attention, q, k, v), 1e-5, 1e-6)


def test_a_length_out_of_range_is_reported():
    q, k, v = (wave(*s).astype(np.float32) for s in ((2, 1, 1, 4), (2, 1, 5, 4), (2, 1, 5, 4)))
    out, status = run(q, k, v, np.array([3, 6]), expect_fault=True)
    assert status.tolist() == [3, 6, 5, 5]
    assert (out[1] == 0).all()


def test_refusals():
    accepts = gpu_attention.accepts
    x = Operand(contiguous((1, 2, 3, 300)), dt.f32)
    assert accepts([x, x, x], {}) == "the rows of q have 300 elements, not a known number from 1 to 256"
    x = Operand(contiguous((1, 2, 3, Dim({("n",): 1}))), dt.f32)
    assert accepts([x, x, x], {}) == "the rows of q have n elements, not a known number from 1 to 256"
    x = Operand(contiguous((1, 2, Dim({("n",): 1}), 8)), dt.f32)
    assert accepts([x, x, x], {}) is None
    assert gpu_attention.group_launch([x, x, x], [], {"scale": 1.0, "causal": True, "softcap": None}).bake["QUERIES"] == 8
