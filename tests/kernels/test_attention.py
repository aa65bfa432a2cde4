"""attention and rope, un-jitted, against float64 NumPy and values worked out by hand."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from fuelnumba.core.dtypes import FLOATS
from fuelnumba.core.errors import ArgumentError, DTypeError, ShapeError
from fuelnumba.kernels.attention import attention, rope

from .unjitted import message, operand, refer, run

TOLERANCE = {"f32": 3e-6, "f64": 1e-13, "f16": 2e-3, "bf16": 1.6e-2}
LENGTH = 3
NAN, INF = np.nan, np.inf


def wave(*shape: int) -> np.ndarray:
    return np.sin(np.arange(np.prod(shape)) * 0.9 + len(shape) * shape[-1]).reshape(shape)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("attrs", [{}, {"causal": False}, {"scale": 0.3}, {"softcap": 1.5}], ids=str)
def test_against_float64(dtype, attrs):
    q, k, v = (wave(*s).astype(dtype.numpy) for s in ((2, 4, 3, 5), (2, 2, 6, 5), (2, 2, 6, 3)))
    tol = TOLERANCE[dtype.name]
    for length in ((), (np.array(4),), (np.array([6, 2], np.int32),), (np.array(3, np.uint32),)):
        got = run(attention, q, k, v, *length, **attrs)
        assert got.dtype == q.dtype and got.shape == (2, 4, 3, 3)
        np.testing.assert_allclose(got.astype(float), refer(attention, q, k, v, *length, **attrs), tol, tol)


def test_several_blocks_of_keys_and_of_columns():
    q, k, v = (wave(*s).astype(np.float32) for s in ((1, 1, 2, 3), (1, 1, 131, 3), (1, 1, 131, 259)))
    k[0, 0, 100] = 30  # the largest score comes late: what was summed before must shrink
    for length in (64, 65, 131):
        got = run(attention, q, k, v, np.array(length), scale=1.0)
        np.testing.assert_allclose(got, refer(attention, q, k, v, np.array(length), scale=1.0), 1e-5, 1e-6)


def test_strided_operands():
    x = wave(2, 5, 4, 6).astype(np.float32)
    # (batch, length, heads, width) seen as (batch, heads, length, width)
    q, k, v = (a.transpose(0, 2, 1, 3) for a in (x, x[:, ::-1, :2], x[:, :, 1:3, :3]))
    np.testing.assert_allclose(run(attention, q, k, v), refer(attention, q, k, v), 1e-5, 1e-6)
    shared = np.broadcast_to(k[:1, :1], k.shape)
    np.testing.assert_allclose(run(attention, q, shared, v), refer(attention, q, shared, v), 1e-5, 1e-6)
    lengths = np.array([4, 9, 5, 9])[::2]
    np.testing.assert_allclose(run(attention, q, k, v, lengths), refer(attention, q, k, v, lengths), 1e-5,
                               1e-6)
    assert attention.kernels[0].accepts([operand(a) for a in (q, k, x[..., ::2])], {}) == (
        "the rows of v are not contiguous")


def test_bottom_right_mask_and_poison_beyond_the_length():
    q = f32(1, 0, 0, 1).reshape(1, 1, 2, 2)
    k = f32(1, 0, 0, 1, 1, 1, NAN, INF).reshape(1, 1, 4, 2)
    v = f32(5, 6, 7, 8, 9, 10, NAN, NAN).reshape(1, 1, 4, 2)
    e = np.e
    want = [[(5 * e + 7) / (e + 1), (6 * e + 8) / (e + 1)],
            [(5 + 7 * e + 9 * e) / (1 + 2 * e), (6 + 8 * e + 10 * e) / (1 + 2 * e)]]
    got = run(attention, q, k, v, np.array(3), scale=1.0)
    np.testing.assert_allclose(got[0, 0], want, 1e-6)


def test_query_heads_share_kv_heads_in_groups():
    # case 16: heads 0, 1 -> 0 and 2, 3 -> 1
    v = f32(1, 2, 30, 40).reshape(1, 2, 1, 2)
    got = run(attention, np.ones((1, 4, 1, 2), "f4"), np.ones((1, 2, 1, 2), "f4"), v, scale=1.0, causal=False)
    np.testing.assert_array_equal(got[0, :, 0], [[1, 2], [1, 2], [30, 40], [30, 40]])


def test_softcap_comes_before_the_mask():
    # case 17
    q, k = f32(3, -2, 4).reshape(1, 1, 3, 1), f32(2, 5, -3).reshape(1, 1, 3, 1)
    v = f32(1, 0, 10, -4, 100, 7).reshape(1, 1, 3, 2)
    want = [[1, 0], [5.498490933744661, -1.9993293038865159], [11.489310778498236, -1.4295897056450686]]
    np.testing.assert_allclose(run(attention, q, k, v, scale=1.0, softcap=1.0)[0, 0], want, 1e-5)


def test_a_capacity_buffer_with_a_nan_tail():
    # case 18, second part
    q, k = f32(0.5).reshape(1, 1, 1, 1), f32(1, 2, NAN, NAN).reshape(1, 1, 4, 1)
    v = f32(10, 20, NAN, INF).reshape(1, 1, 4, 1)
    got = run(attention, q, k, v, np.array([2]), scale=1.0, causal=False)
    np.testing.assert_allclose(got.item(), 16.224593312018545, 1e-6)


def test_a_query_that_sees_nothing_gives_zero():
    # case 19
    v = f32(3, 5, 7, 9).reshape(2, 1, 2, 1)
    ones = np.ones((2, 1, 2, 1), "f4")
    got = run(attention, ones[:, :, :1], ones, v, np.array([0, 2]), scale=1.0, causal=False)
    np.testing.assert_array_equal(got.ravel(), [0, 8])
    got = run(attention, np.zeros((1, 1, 3, 1), "f4"), np.zeros((1, 1, 2, 1), "f4"), v[:1], scale=1.0)
    np.testing.assert_array_equal(got.ravel(), [0, 3, 4])
    assert not run(attention, ones, ones[:, :, :0], v[:, :, :0]).any()


def test_half_types_accumulate_in_f32():
    n = 3000
    q, k = np.zeros((1, 1, 1, 4)), np.zeros((1, 1, n, 4))
    v = np.full((1, 1, n, 2), 40.0)
    for half in (np.float16, ml_dtypes.bfloat16):
        got = run(attention, *(a.astype(half) for a in (q, k, v)))
        np.testing.assert_array_equal(got.astype(float).ravel(), [40, 40])


@pytest.mark.parametrize("bad", [7, -1])
def test_a_length_out_of_range_is_reported(bad):
    q, k = wave(2, 1, 1, 4).astype("f4"), wave(2, 1, 6, 4).astype("f4")
    lengths = np.array([6, bad])
    out, status = run(attention, q, k, k, lengths, expect_fault=True)
    assert status.tolist() == [LENGTH, bad, 5, 6]
    np.testing.assert_allclose(out[:1], refer(attention, q[:1], k[:1], k[:1]), 1e-5, 1e-6)


def test_attention_messages():
    def arrays(*shapes):
        return tuple(np.zeros(s, np.float32) for s in shapes)

    q, k = (1, 4, 2, 8), (1, 2, 5, 8)
    assert message(ShapeError, attention, *arrays(q[1:], k, k)) == (
        "attention(): q is f32[4, 2, 8], but needs the axes (batch, heads, length, width)\n"
        "   = insert the missing axes, e.g. x[None]"
    )
    assert message(ShapeError, attention, *arrays(q, (1, 3, 5, 8), (1, 3, 5, 8))) == (
        "attention(): 4 query heads do not divide among 3 key heads\n"
        "   = the number of query heads must be a multiple of that of key heads"
    )
    assert message(ShapeError, attention, *arrays(q, (1, 2, 5, 7), k)) == (
        "attention() got q (1, 4, 2, 8), k (1, 2, 5, 7), v (1, 2, 5, 8): batches, k's and v's heads and lengths, and q's and k's widths must agree\n"
        "   = transpose to (batch, heads, length, width)"
    )
    assert message(DTypeError, attention, *arrays(q, k), np.zeros(k)) == (
        "attention(): v is f64 and q is f32: one float dtype is needed\n"
        "   = cast them to one of f32, f64, f16, bf16"
    )
    assert message(ArgumentError, attention, *arrays(q, k, k), np.zeros(3, np.int64)) == (
        "attention(): length is i64[3], but must be an integer scalar or one for each batch\n"
        "   = pass an int, or int64 lengths of shape (batch,)"
    )


# ---------------------------------------------------------------------------------------- rope
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("paired", [False, True])
def test_rope_turns_pairs(dtype, interleaved, paired):
    x = wave(2, 3, 5, 8).astype(dtype.numpy)
    angle = np.arange(20).reshape(5, 4) * 0.37
    z = x.astype(float)
    z = z[..., ::2] + 1j * z[..., 1::2] if interleaved else z[..., :4] + 1j * z[..., 4:]
    z = z * np.exp(1j * angle)
    want = np.concatenate([z.real, z.imag], -1)
    if interleaved:
        want = np.stack([z.real, z.imag], -1).reshape(x.shape)
    if paired:
        angle = np.repeat(angle, 2, 1) if interleaved else np.tile(angle, 2)
    tables = np.cos(angle).astype(dtype.numpy), np.sin(angle).astype(dtype.numpy)
    tol = TOLERANCE[dtype.name]
    np.testing.assert_allclose(run(rope, x, *tables, interleaved=interleaved).astype(float), want, tol,
                               tol * 2)
    np.testing.assert_allclose(refer(rope, x, *tables, interleaved=interleaved), want, tol, tol * 2)


def test_rope_on_strided_operands():
    x = wave(3, 5, 2, 8).astype(np.float32)
    cos, sin = (wave(9, 4).astype(np.float32)[k::2] for k in (0, 0))
    for view in (x.transpose(0, 2, 1, 3), x.transpose(2, 0, 1, 3)[::-1], x[..., :4].transpose(0, 2, 1, 3),
                 x[0, :, 0]):
        tables = cos[:, :view.shape[-1] // 2], sin[:, :view.shape[-1] // 2]
        np.testing.assert_allclose(run(rope, view, *tables), refer(rope, view, *tables), 1e-5, 1e-6)
    shared = np.broadcast_to(cos[:1], (5, 4))
    np.testing.assert_allclose(run(rope, x[:, :, 0], shared, shared),
                               refer(rope, x[:, :, 0], shared, shared), 1e-5, 1e-6)


def test_rope_messages():
    x, table = np.zeros((2, 5, 8), "f4"), np.zeros((5, 4), "f4")
    assert message(ShapeError, rope, x[..., :7], table, table) == (
        "rope() turns pairs: the width 7 of f32[2, 5, 7] is odd\n"
        "   = pad the last axis to an even width"
    )
    assert message(ShapeError, rope, x[0, 0], table, table) == (
        "rope() needs an array of rank 2 or more (..., length, width), not f32[8]\n"
        "   = insert axes in front: x[None]"
    )
    assert message(ShapeError, rope, x, table[:4], table) == (
        "rope(): cos has shape (4, 4), but f32[2, 5, 8] needs (5, 8) or (5, 4) for both tables\n"
        "   = give one row of cos and sin per position"
    )
    assert message(DTypeError, rope, x, table, np.zeros((5, 4))) == (
        "rope(): sin is f64, x is f32\n"
        "   = cast the tables: cos.astype(x.dtype)"
    )
