"""Right values known by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuelnumba
from fuelnumba.core.ops import OPS

from .agree import agree

Array = np.ndarray[Any, Any]
ops = fuelnumba.ops
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, for infinities and NaN


@pytest.mark.parametrize("n", [1, 3, 8, 9, 100])
def test_remainder_has_the_sign_of_the_divisor(n: int) -> None:
    x = np.array([-7.0, 7.0, -7.0, 7.0, 5.0, -5.0, -0.5, 1e-3, 6.0], np.float32)
    y = np.array([3.0, -3.0, -3.0, 3.0, -5.0, 5.0, 2.0, -1.0, 4.0], np.float32)
    agree(ops.remainder(np.tile(x, n), np.tile(y, n)), np.tile([2.0, -2.0, -1.0, 1.0, 0.0, 0.0, 1.5, -0.999, 2.0], n), "f32")
    a, b = np.array([-7, 7, -7, 7, 0, -128], np.int8), np.array([3, -3, -3, 3, -5, 127], np.int8)
    agree(ops.remainder(np.tile(a, n), np.tile(b, n)), np.tile([2, -2, -1, 1, 0, 126], n), "i8")


def test_round_to_even() -> None:
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, np.nextafter(np.float32(0.5), np.float32(0)), 8388609, -8388609, 3.5], np.float32)
    got = ops.round(x)
    agree(got, np.array([-2, -2, 0, 0, 2, 2, 0, 8388609, -8388609, 4]), "f32")
    assert np.signbit(got[2])


def test_gelu_keeps_its_small_values() -> None:
    x = np.array([-2.0, -4.0, -5.0, -5.5, -6.0], np.float32)
    known = [-0.04550026389635842, -0.0001266849673324797, -1.4332578593959695e-06, -1.0444259356238245e-07, -5.9195258702261885e-09]
    agree(ops.gelu(x), np.array(known), "f32", rtol=2e-6)


def test_layer_norm_of_a_large_mean() -> None:
    x = np.array([[40000.0, 40001.0, 40002.0, 40003.0], [1234.0] * 4, [-2000.25, -2000.0, -1999.75, -1999.5]], np.float32)
    known = [[-1.3416354199689269, -0.447211806656309, 0.447211806656309, 1.3416354199689269], [0.0] * 4,
             [-1.3415549297316995, -0.4471849765772332, 0.4471849765772332, 1.3415549297316995]]
    agree(ops.layer_norm(x, eps=1e-5), np.array(known), "f32", rtol=1e-4, atol=1e-5)


def test_softmax_of_extremes() -> None:
    x = np.array([[1e4, -1e4, 1e4, -np.inf], [-1e38, 1e38, 0, 0], [np.nan, 0, 0, 0], [-np.inf] * 4], np.float32)
    nan = np.full(4, np.nan)
    agree(ops.softmax(x), np.array([[0.5, 0, 0.5, 0], [0, 1, 0, 0], nan, nan]), "f32")
    log2 = np.log(2)
    agree(ops.log_softmax(x), np.array([[-log2, -2e4 - log2, -log2, -np.inf], [-2e38, 0, -1e38, -1e38], nan, nan]), "f32")
    for empty in (np.zeros((3, 0), "f4"), np.zeros((0, 3), "f4")):
        for op in (ops.softmax, ops.log_softmax, ops.layer_norm, ops.rms_norm):
            agree(op(empty), empty, "f32")


def test_half_sums_do_not_stall_or_overflow() -> None:
    half = np.float16
    agree(ops.mean(np.full((64, 64), 32.0, half)), np.array(32.0), "f16")
    agree(ops.sum(np.array([32000.0] * 4 + [-32000.0] * 4, half), axis=0), np.array(0.0), "f16")
    agree(ops.sum(np.ones(4096, half)), np.array(4096.0), "f16")
    agree(ops.matmul(np.ones((1, 4096), half), np.ones((4096, 1), half)), np.array([[4096.0]]), "f16")


def test_bf16_rounds_to_even_and_keeps_nan() -> None:
    bits = [0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x7F7FFFFF, 0xFF7F7FFF, 0x00000001, 0x00018000, 0x80008001, 0, 0x80000000]
    got = ops.cast(np.array(bits, np.uint32).view(np.float32), "bf16").view(np.uint16)
    assert [hex(b) for b in got] == [hex(b) for b in (0x3F80, 0x3F82, 0x3F81, 0x3F80, 0x7F80, 0xFF7F, 0, 2, 0x8001, 0, 0x8000)]
    nans = np.array([0x7F800001, 0x7FFFFFFF, 0xFF800001], np.uint32).view(np.float32)
    assert np.isnan(ops.cast(nans, "bf16").astype(np.float32)).all()


def test_f8e4m3_rounds_before_it_overflows() -> None:
    x = np.array([448, 464, 465, 1000, np.inf, -np.inf, np.nan, 2.0**-9, 2.0**-10, 2.0**-10 * 1.001, 17, 19, -0.0, 0.0175, -464.5],
                 np.float32)
    known = [0x7E, 0x7E, 0x7F, 0x7F, 0x7F, 0xFF, 0x7F, 0x01, 0x00, 0x01, 0x58, 0x5A, 0x80, 0x09, 0xFF]
    assert ops.cast(x, "f8e4m3").view(np.uint8).tolist() == known


def test_empty_reductions() -> None:
    x = np.zeros((3, 0, 2), np.float32)
    agree(ops.sum(x, axis=1), np.zeros((3, 2)), "f32")
    agree(ops.prod(x, axis=1), np.ones((3, 2)), "f32")
    agree(ops.mean(x, axis=1), np.full((3, 2), np.nan), "f32")
    agree(ops.any(x, axis=1), np.zeros((3, 2), bool), "bool")
    agree(ops.all(x, axis=1), np.ones((3, 2), bool), "bool")
    agree(ops.sum(x), np.array(0.0), "f32")
    for name in ("max", "min", "argmax", "argmin"):
        with pytest.raises(fuelnumba.errors.ShapeError, match="no identity"):
            getattr(ops, name)(x, axis=1)
        agree(getattr(ops, name)(x, axis=0), np.zeros((0, 2)), "i64" if "arg" in name else "f32")


def test_matmul_over_nothing_is_zero() -> None:
    agree(ops.matmul(np.zeros((2, 2, 0), np.float32), np.zeros((2, 0, 3), np.float32)), np.zeros((2, 2, 3)), "f32")

    @fuelnumba.jit
    def linear(x: Any, w: Any, b: Any) -> Any:
        return x @ w.T + b

    got = linear(np.zeros((2, 0), np.float32), np.zeros((3, 0), np.float32), np.array([1, 2, 3], np.float32))
    agree(got, np.array([[1, 2, 3], [1, 2, 3]]), "f32")


def test_grouped_heads() -> None:
    """Query head h reads key head h // group."""
    q, k = np.ones((1, 4, 1, 2), np.float32), np.ones((1, 2, 1, 2), np.float32)
    v = np.array([[[[1.0, 2.0]], [[30.0, 40.0]]]], np.float32)
    agree(ops.attention(q, k, v, scale=1.0, causal=False), np.array([[[[1, 2]], [[1, 2]], [[30, 40]], [[30, 40]]]]), "f32")
    a, b = np.ones((1, 4, 1, 1), np.float32), np.array([[[[5.0]], [[7.0]]]], np.float32)
    agree(ops.matmul(a, b), np.array([[[[5]], [[5]], [[7]], [[7]]]]), "f32")


def test_softcap_comes_before_the_mask() -> None:
    q, k = (np.array(v, np.float32).reshape(1, 1, 3, 1) for v in ([3.0, -2.0, 4.0], [2.0, 5.0, -3.0]))
    v = np.array([[1.0, 0.0], [10.0, -4.0], [100.0, 7.0]], np.float32).reshape(1, 1, 3, 2)
    known = [[1.0, 0.0], [5.498490933744661, -1.9993293038865159], [11.489310778498236, -1.4295897056450686]]
    agree(ops.attention(q, k, v, scale=1.0, softcap=1.0), np.array(known).reshape(1, 1, 3, 2), "f32", rtol=1e-5)


def test_attention_does_not_read_unused_rows() -> None:
    k = np.array([1, 2, np.nan, np.nan], np.float32).reshape(1, 1, 4, 1)
    v = np.array([10, 20, np.nan, np.inf], np.float32).reshape(1, 1, 4, 1)
    got = ops.attention(np.full((1, 1, 1, 1), 0.5, np.float32), k, v, np.array([2]), scale=1.0, causal=False)
    agree(got, np.array([[[[16.224593312018545]]]]), "f32")


def test_attention_that_sees_nothing_is_zero() -> None:
    v = np.array([[[[3.0], [5.0]]], [[[7.0], [9.0]]]], np.float32)
    q, k = np.ones((2, 1, 1, 1), np.float32), np.ones((2, 1, 2, 1), np.float32)
    agree(ops.attention(q, k, v, np.array([0, 2]), scale=1.0, causal=False), np.array([0.0, 8.0]).reshape(2, 1, 1, 1), "f32")


def test_attention_over_a_buffer_is_aligned_at_the_end() -> None:
    """Query i sees keys up to length - queries + i; the fourth row of the buffer is poison."""
    e = np.e
    q = np.array([[1, 0], [0, 1]], np.float32)[None, None]
    k = np.array([[1, 0], [0, 1], [1, 1], [np.nan, np.nan]], np.float32)[None, None]
    v = np.array([[5, 6], [7, 8], [9, 10], [np.nan, np.nan]], np.float32)[None, None]
    known = [[(5 * e + 7) / (e + 1), (6 * e + 8) / (e + 1)], [(5 + 7 * e + 9 * e) / (1 + 2 * e), (6 + 8 * e + 10 * e) / (1 + 2 * e)]]
    agree(ops.attention(q, k, v, np.array(3), scale=1.0), np.array(known)[None, None], "f32")


def test_u8_wraps_between_fused_steps() -> None:
    @fuelnumba.jit
    def f(x: Any, y: Any) -> Any:
        return (-x) < 4, (x - y).astype(np.float32), (x + x) > 250

    small_, cast_, large = f(np.array([6, 0, 250, 253], np.uint8), np.array([7, 0, 251, 100], np.uint8))
    assert small_.tolist() == [False, True, False, True]
    assert cast_.tolist() == [255.0, 0.0, 255.0, 153.0]
    assert large.tolist() == [False, False, False, False]


def test_nan_is_found_in_fused_code() -> None:
    @fuelnumba.jit
    def f(x: Any) -> Any:
        zero = x * 0.0
        return np.where(x != x, 0.0, x), np.where(zero != zero, 1.0, 0.0)

    x = np.array([1.0, np.nan, -2.0, np.inf], np.float32)
    clean, flagged = f(x)
    agree(clean, np.array([1.0, 0.0, -2.0, np.inf]), "f32")
    assert flagged.tolist() == [0.0, 1.0, 0.0, 1.0]


@pytest.mark.parametrize("shift", [-7, 12, 0, 5, 1])
def test_roll(shift: int) -> None:
    roll = fuelnumba.jit(static_argnames="k")(lambda x, k: np.roll(x, k, axis=0))
    for n in (5, 0, 1, 3):
        x = np.arange(n, dtype=np.float32)
        agree(roll(x, shift), np.roll(x, shift), "f32")


@pytest.mark.parametrize("name", ["big", "small"])
def test_numpy_bits_of_subnormals(name: str) -> None:
    """Subnormal f32 numbers are kept, not flushed."""
    x = np.array([1e-40, -1e-42, 1e-45], np.float32) * (1 if name == "small" else np.float32(1e10))
    assert ops.add(x, np.zeros_like(x)).tobytes() == x.tobytes()
    assert ops.cast(x, "f64").tobytes() == x.astype(np.float64).tobytes()


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("tables", [1, 2], ids=["half tables", "full tables"])
def test_rope_of_many_widths(interleaved: bool, tables: int) -> None:
    """Widths of x and of the tables become two symbols; whether they are equal must not be lost."""
    r = np.random.default_rng(0)
    for rows, half in ((3, 2), (5, 4), (4, 3), (7, 8), (2, 1)):
        x, cos, sin = (r.random(s).astype(np.float32) for s in ((rows, 2 * half), (rows, half * tables), (rows, half * tables)))
        reference = OPS["rope"].ref
        assert reference is not None
        wide = (a.astype(np.float64) for a in (x, cos, sin))
        agree(ops.rope(x, cos, sin, interleaved=interleaved), reference(*wide, interleaved=interleaved), "f32", atol=1e-6)
