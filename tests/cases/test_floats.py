"""NaN, infinities, tails, large means, half-precision sums, rounding and casts of floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fuelnumba as fn
from fuelnumba import ops

F16, F32, F64, BF16 = np.float16, np.float32, np.float64, ml_dtypes.bfloat16
NAN, INF = math.nan, math.inf
LENGTHS = [1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 65]  # around the widths of vectors
FLOATS = pytest.mark.parametrize("dtype", [F32, F64, F16, BF16], ids=["f32", "f64", "f16", "bf16"])


# ------------------------------------------------------------------------------------------------ NaN in reductions
@pytest.mark.parametrize("name", ["max", "min", "sum", "mean", "prod"])
@FLOATS
def test_one_nan_anywhere_makes_a_reduction_nan(name: str, dtype: Any) -> None:
    """Vector lanes and the rest of a row disagree about a NaN; or the place or the number of the NaNs matters."""
    reduce = fn.jit(lambda x, axis: getattr(np, name)(x, axis=axis), static_argnames="axis")
    for n in LENGTHS:
        x = np.tile(np.arange(n), (n, 1)).astype(dtype)
        np.fill_diagonal(x, NAN)  # row i and column i have their NaN at i
        assert np.isnan(reduce(x, 1).astype(F64)).all() and np.isnan(reduce(x, 0).astype(F64)).all()
        for k in {0, n // 2, n - 1}:
            assert math.isnan(float(reduce(x[k], None)))
    x[:] = 1
    x[3], x[:, 5] = NAN, NAN  # all of a row, all of a column, nothing else
    nan = np.isnan(x.astype(F64))
    assert np.isnan(reduce(x, 1).astype(F64)).tolist() == nan.any(1).tolist()
    assert np.isnan(reduce(x[:, :5], 1).astype(F64)).tolist() == nan[:, :5].any(1).tolist()
    assert np.isnan(reduce(x[:3], 0).astype(F64)).tolist() == nan[:3].any(0).tolist()


def test_three_nans_and_a_number() -> None:
    x = np.array([[NAN, NAN, NAN, 42.0], [42.0, NAN, NAN, NAN], [INF, -INF, NAN, 0.0]], F32)
    for reduce in (ops.max, ops.min):
        assert np.isnan(reduce(x, axis=1)).all()
        np.testing.assert_array_equal(reduce(x[:, 3:], axis=1), [42.0, NAN, 0.0])


@pytest.mark.parametrize("n", [4, 9, 40])
def test_argmax_and_argmin_give_the_first_nan(n: int) -> None:
    x = np.linspace(5, -5, n * n, dtype=F32).reshape(n, n)
    np.fill_diagonal(x, NAN)
    x[:, -1] = NAN  # a second one, later in all rows but the last
    for find in (ops.argmax, ops.argmin):
        assert find(x, axis=1).tolist() == [*range(n)]
        assert find(x[:, :-1], axis=0).tolist() == [*range(n - 1)]


# ------------------------------------------------------------------------------------------------ NaN in fused code
@pytest.mark.parametrize("n", LENGTHS)
def test_fused_code_keeps_comparisons_of_a_value_with_itself(n: int) -> None:
    """Fast-math assumes that there is no NaN: x != x becomes False, x - x and x * 0 become 0, x == x becomes True."""
    @fn.jit
    def f(x: Any) -> Any:
        zero, nothing = x * 0.0, x - x
        return (np.where(x != x, 0.0, x), np.where(zero != zero, 1.0, 0.0), np.where(nothing == 0, 1.0, 0.0), x == x,
                ~(x <= x), np.isnan(x * 2 + 1), x / x)

    x = np.resize(np.array([1.0, NAN, -2.0, INF, -INF, -0.0], F32), n)
    finite, nan = np.isfinite(x), np.isnan(x)
    with np.errstate(all="ignore"):
        expected = (np.where(nan, 0, x), ~finite * 1.0, finite * 1.0, ~nan, nan, nan, x / x)
    for got, wanted in zip(f(x), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


@FLOATS
def test_maximum_and_minimum_of_a_nan_on_either_side(dtype: Any) -> None:
    a, b = (np.tile(v, 3).astype(dtype) for v in ([NAN, 1.0, NAN, -0.0, INF], [1.0, NAN, NAN, 2.0, NAN]))
    for op, fourth in ((ops.maximum, 2.0), (ops.minimum, 0.0)):
        np.testing.assert_array_equal(op(a, b).astype(F64), np.tile([NAN, NAN, NAN, fourth, NAN], 3))
    np.testing.assert_array_equal(np.isnan(ops.clamp(a, min=-1, max=1).astype(F64)), np.isnan(a.astype(F64)))
    np.testing.assert_array_equal(np.isnan(ops.relu(a).astype(F64)), np.isnan(a.astype(F64)))


# ------------------------------------------------------------------------------------------------ tails
def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


FAR = [-0.5, -1, -2, -4, -5, -5.5, -6, -7, -8, -10, -12.5]
NEAR = [v / 1000 for v in FAR]
TAILS: dict[str, tuple[list[float], Callable[[float], float]]] = {
    "gelu": (FAR, lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2))),
    "gelu_tanh": (FAR[:-1], lambda x: x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": (FAR, lambda x: x * sigmoid(x)),
    "sigmoid": (FAR, sigmoid),
    "softplus": (FAR, lambda x: math.log1p(math.exp(x))),
    "erfc": ([-x for x in FAR[:-2]], math.erfc),  # further out f32 has fewer digits, then none
    "expm1": (NEAR, math.expm1),
    "log1p": (NEAR, math.log1p),
}


@pytest.mark.parametrize("name", TAILS)
@pytest.mark.parametrize(("dtype", "rtol"), [(F32, 3e-5), (F64, 1e-12)], ids=["f32", "f64"])
def test_small_results_of_activations_are_not_cancelled(name: str, dtype: Any, rtol: float) -> None:
    """1 + erf(x), 1 + tanh(x) and 1 + exp(x) round to 1 where what was added is small: tens of percent, then 0."""
    inputs, exact = TAILS[name]
    x = np.array(inputs, dtype)
    np.testing.assert_allclose(getattr(ops, name)(x), [exact(float(v)) for v in x], rtol=rtol)


def test_gelu_far_out_by_hand() -> None:
    """The five numbers are x * Phi(x) to sixteen places."""
    x = np.array([-2.0, -4.0, -5.0, -5.5, -6.0], F32)
    known = [-0.04550026389635842, -0.0001266849673324797, -1.4332578593959695e-06, -1.0444259356238245e-07, -5.9195258702261885e-09]
    np.testing.assert_allclose(ops.gelu(x), known, rtol=2e-6)


def test_softplus_over_its_whole_range() -> None:
    """log(1 + exp(x)) is 0 below -17 and inf above 88 when it is computed as it is written."""
    x = np.array([-20.0, -88.0, 0.0, 20.5, 100.0, 1e30, -1e30, INF, -INF, NAN], F32)
    expected = [2.0611536203143808e-09, 6.054601895401186e-39, math.log(2), 20.500000001250154, 100.0, 1e30, 0.0, INF, 0.0, NAN]
    np.testing.assert_allclose(ops.softplus(x), expected, rtol=1e-6, atol=2e-45)


# ------------------------------------------------------------------------------------------------ large means
LARGE = np.array([[40000.0, 40001.0, 40002.0, 40003.0], [1234.0] * 4, [-2000.25, -2000.0, -1999.75, -1999.5]])


def normal(x: Any, eps: float) -> Any:
    x = x.astype(F64)
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + eps)


@pytest.mark.parametrize("times", [1, 5, 300])
def test_layer_norm_of_a_large_mean(times: int) -> None:
    """The mean of the squares minus the square of the mean cancels: nonsense or NaN, also for a row of one value."""
    x = np.tile(LARGE, times).astype(F32)
    np.testing.assert_allclose(ops.layer_norm(x, eps=1e-5), normal(x, 1e-5), rtol=1e-4, atol=1e-5)
    assert (ops.layer_norm(x)[1] == 0).all()
    w, b = np.linspace(1, 2, 4 * times, dtype=F32), np.linspace(-1, 1, 4 * times, dtype=F32)
    np.testing.assert_allclose(ops.layer_norm(x, w, b), normal(x, 1e-5) * w + b, rtol=2e-4, atol=1e-5)


def test_layer_norm_of_a_large_mean_by_hand() -> None:
    """Steps of 1 around the mean: (-1.5, -0.5, 0.5, 1.5) / sqrt(1.25 + eps)."""
    steps = np.array([-1.5, -0.5, 0.5, 1.5])
    known = [steps / math.sqrt(1.25 + 1e-5), steps * 0, steps / 4 / math.sqrt(1.25 / 16 + 1e-5)]
    np.testing.assert_allclose(ops.layer_norm(LARGE.astype(F32), eps=1e-5), known, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=["f16", "bf16"])
def test_layer_norm_of_halves_with_a_large_mean(dtype: Any) -> None:
    x = (np.arange(4) * 4 + 256 + np.array([[0], [512]])).astype(dtype)
    np.testing.assert_allclose(ops.layer_norm(x).astype(F64), normal(x, 1e-5), rtol=8e-3)


@FLOATS
def test_var_and_std_of_a_large_mean(dtype: Any) -> None:
    """The four numbers lie 4 apart: their variance is 16 * 1.25 = 20, with one degree of freedom less 80 / 3."""
    x = (np.arange(4) * 4 + 256).astype(dtype)
    f = fn.jit(lambda x: (np.var(x), np.std(x), np.var(x, ddof=1), np.std(x, ddof=1)))
    expected = np.array([20, math.sqrt(20), 80 / 3, math.sqrt(80 / 3)])
    rtol = {F32: 1e-6, F64: 1e-14, F16: 2**-11, BF16: 2**-8}[dtype]
    np.testing.assert_allclose([float(v) for v in f(x)], expected, rtol=rtol)


# ------------------------------------------------------------------------------------------------ sums of half types
HALVES = pytest.mark.parametrize(("dtype", "stalls"), [(F16, 2048), (BF16, 256)], ids=["f16", "bf16"])


@HALVES
def test_sums_of_half_types_go_on(dtype: Any, stalls: int) -> None:
    """A sum kept in 16 bits stands still at 2048 (f16) or 256 (bf16), since adding 1 changes nothing any more."""
    for n in (2 * stalls, 16 * stalls):
        ones = np.ones((3, n), dtype)
        assert (ops.sum(ones, axis=1) == n).all()
        assert (ops.sum(np.ascontiguousarray(ones.T), axis=0) == n).all()
        assert float(ops.mean(ones)) == 1
        assert (ops.matmul(ones, np.ones((n, 2), dtype)) == n).all()
    assert (fn.jit(lambda x: np.einsum("ij,ij->i", x, x))(ones) == n).all()
    assert (fn.jit(lambda x: np.vecdot(x, x))(ones) == n).all()


def test_f16_sums_that_leave_the_range_on_the_way() -> None:
    """f16 ends at 65504. What is added up may pass it when the result does not."""
    assert float(ops.mean(np.full((64, 64), 32.0, F16))) == 32
    there_and_back = np.array([32000.0] * 4 + [-32000.0] * 4, F16)
    assert float(ops.sum(there_and_back)) == float(ops.mean(there_and_back)) == 0
    assert float(ops.matmul(np.ones((1, 4096), F16), np.ones((4096, 1), F16))[0, 0]) == 4096
    assert float(ops.mean(np.full(9, 60000.0, F16))) == float(F16(60000))


PRODUCTS: dict[str, tuple[Callable[[Any, Any], Any], float]] = {
    "matmul": (lambda a, b: a @ b, 0), "dot": (np.dot, 0), "inner": (np.inner, 0), "vdot": (np.vdot, 0), "vecdot": (lambda a, b: np.vecdot(a, b), 0),
    "einsum": (lambda a, b: np.einsum("i,i->", a, b), 0), "tensordot": (lambda a, b: np.tensordot(a, b, 1), 0),
    "std": (lambda a, b: np.std(b), 300), "norm": (lambda a, b: np.linalg.norm(a), 600), "var": (lambda a, b: np.var(b / 3), 10000),
    "rms_norm": (lambda a, b: ops.rms_norm(a)[0], 1), "layer_norm": (lambda a, b: ops.layer_norm(b)[0], 1),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_f16_squares_that_do_not_fit(name: str) -> None:
    """300 * 300 is more than f16 holds; two such products cancel, or a root is taken of their sum."""
    fun, expected = PRODUCTS[name]
    a, b = np.full(4, 300, F16), np.array([300, -300, 300, -300], F16)
    got = fn.jit(fun)(a, b)
    assert got.dtype == F16 and float(got) == expected


def test_softmax_of_a_long_row_of_halves() -> None:
    for n in (3000, 70000):
        np.testing.assert_allclose(ops.softmax(np.zeros(n, F16)).astype(F64), F16(1 / n).astype(F64), rtol=2**-10)
        np.testing.assert_allclose(ops.log_softmax(np.zeros(n, F16)).astype(F64), -math.log(n), rtol=2**-11)


# ------------------------------------------------------------------------------------------------ rounding
def rounded(round_: Callable[[Any], Any]) -> Any:
    return fn.jit(lambda x: (round_(x), round_(x) + 1))


@FLOATS
def test_halves_are_rounded_to_even(dtype: Any) -> None:
    """Halves go away from zero, or up."""
    x = np.array([-3.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 0.25, -0.75, INF, -INF, NAN, -0.0] * 3, dtype)
    known = np.array([-4, -2, -2, 0, 0, 2, 2, 4, 0, -1, INF, -INF, NAN, 0] * 3)
    for round_ in (np.round, np.rint, np.around):
        alone, fused = rounded(round_)(x)
        np.testing.assert_array_equal(alone.astype(F64), known)
        np.testing.assert_array_equal(fused.astype(F64), known + 1)
        assert np.signbit(alone.astype(F64))[:13].tolist() == np.signbit(x.astype(F64))[:13].tolist(), "a zero keeps its sign"


def test_rounding_where_adding_a_half_fails() -> None:
    """floor(x + 0.5) makes 1 of the number just below 0.5, and moves odd numbers above 2**23, where there are no halves."""
    below = np.nextafter(F32(0.5), F32(0))
    x = np.array([below, -below, 8388609, -8388609, 8388607.5, 4194304.5, 4194305.5, 3e38], F32)
    np.testing.assert_array_equal(ops.round(x), np.array([0, 0, 8388609, -8388609, 8388608, 4194304, 4194306, 3e38], F32))
    wide = np.array([np.nextafter(0.5, 0), 2.0**52 + 1, 2.0**52 - 0.5, -(2.0**51) - 0.5])
    np.testing.assert_array_equal(ops.round(wide), [0, 2.0**52 + 1, 2.0**52, -(2.0**51)])


# ------------------------------------------------------------------------------------------------ casts
def bits_of(values: Any, dtype: str, bits: Any) -> list[str]:
    return [hex(b) for b in ops.cast(values, dtype).view(bits)]


def test_f32_to_bf16() -> None:
    """bf16 is f32 without its low 16 bits. Cutting these off does not round; adding to them may turn a NaN into inf or -0."""
    table = {0x3F808000: 0x3F80, 0x3F818000: 0x3F82,  # ties go to the even neighbour
             0x3F808001: 0x3F81, 0x3F807FFF: 0x3F80,  # just beside a tie
             0x7F7FFFFF: 0x7F80, 0xFF7F7FFF: 0xFF7F, 0x7F7F8000: 0x7F80,  # the largest becomes inf, by a carry
             0x00000001: 0x0000, 0x00008000: 0x0000, 0x00018000: 0x0002, 0x80008001: 0x8001,  # subnormals
             0x00000000: 0x0000, 0x80000000: 0x8000, 0x7F800000: 0x7F80, 0xFF800000: 0xFF80}
    x = np.array([*table], np.uint32).view(F32)
    assert bits_of(x, "bf16", np.uint16) == [hex(b) for b in table.values()]
    nans = np.array([0x7F800001, 0x7FFFFFFF, 0xFF800001, 0x7FC00000, 0xFFFFFFFF], np.uint32).view(F32)
    assert np.isnan(ops.cast(nans, "bf16").astype(F32)).all()
    fused = fn.jit(lambda x: (x * 1.0).astype(BF16).astype(F32))(nans)
    assert np.isnan(fused).all()


def test_f32_to_f16() -> None:
    """The tie between 65504 and what would come next goes to infinity; 2**-25 is the tie between 0 and the least subnormal."""
    table = {65504.0: 0x7BFF, 65519.0: 0x7BFF, 65520.0: 0x7C00, -65520.0: 0xFC00, 1e9: 0x7C00, 2.0**-24: 0x0001,
             2.0**-25: 0x0000, 2.0**-25 * 1.001: 0x0001, -(2.0**-25): 0x8000, 2.0**-24 * 1.5: 0x0002, 2.0**-14: 0x0400,
             1 + 2.0**-11: 0x3C00, 1 + 3 * 2.0**-11: 0x3C02, 1 + 2.0**-11 + 2.0**-20: 0x3C01, INF: 0x7C00, -0.0: 0x8000}
    assert bits_of(np.array([*table], F32), "f16", np.uint16) == [hex(b) for b in table.values()]
    assert bits_of(np.array([*table], F64), "f16", np.uint16) == [hex(b) for b in table.values()]


@pytest.mark.parametrize(("dtype", "digits"), [("f16", 10), ("bf16", 7), ("f8e4m3", 3), ("f8e5m2", 2), ("f32", 23)])
def test_f64_is_rounded_once(dtype: str, digits: int) -> None:
    """By way of f32, a number just beside a tie becomes the tie first, and then goes to the wrong side."""
    ulp = 2.0**-digits
    x = np.array([1 + ulp / 2 + 2.0**-45, 1 + 1.5 * ulp - 2.0**-45, 1 + ulp / 2, 1 + 1.5 * ulp])
    np.testing.assert_array_equal(ops.cast(x, dtype).astype(F64), [1 + ulp, 1 + ulp, 1, 1 + 2 * ulp])


def test_to_f8e4m3() -> None:
    """448 is the largest, 464 the tie above it: what is rounded up past it becomes NaN, there being no infinity.

    Holding a value at 448 before it is rounded would hide that."""
    table = {448.0: 0x7E, 464.0: 0x7E, 465.0: 0x7F, 1000.0: 0x7F, INF: 0x7F, -INF: 0xFF, -464.5: 0xFF, 2.0**-9: 0x01, 2.0**-10: 0x00,
             2.0**-10 * 1.001: 0x01, 17.0: 0x58, 19.0: 0x5A, -0.0: 0x80, 0.0175: 0x09, NAN: 0x7F}
    for source in (F32, F64):
        assert bits_of(np.array([*table], source), "f8e4m3", np.uint8) == [hex(b) for b in table.values()]
    held = fn.jit(lambda x: np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn))(np.array([*table], F32)).view(np.uint8)
    assert [hex(b) for b in held[:7]] == [hex(b) for b in (0x7E, 0x7E, 0x7E, 0x7E, 0x7E, 0xFE, 0xFE)]


def test_to_f8e5m2() -> None:
    """57344 is the largest and 61440 the tie above it, which goes to infinity: the even neighbour."""
    table = {57344.0: 0x7B, 61439.0: 0x7B, 61440.0: 0x7C, 1e9: 0x7C, -INF: 0xFC, 2.0**-16: 0x01, 2.0**-17: 0x00, 2.0**-17 * 1.001: 0x01,
             1.125: 0x3C, 1.375: 0x3E, -0.0: 0x80}
    for source in (F32, F64):
        assert bits_of(np.array([*table], source), "f8e5m2", np.uint8) == [hex(b) for b in table.values()]
    assert np.isnan(ops.cast(np.array([NAN], F32), "f8e5m2").astype(F32))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("source", [F32, F64], ids=["f32", "f64"])
def test_floats_to_integers_stay_in_range(dtype: Any, source: Any) -> None:
    """Truncated towards zero; beyond the range the nearest end, and 0 for NaN. C leaves these undefined."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.array([1.9, -0.9, 0.0, 1e30, -1e30, INF, -INF, NAN, 100.5] * 2, source)
    known = np.array([1, 0, 0, high, low, high, low, 0, 100] * 2, dtype)
    np.testing.assert_array_equal(ops.cast(x, dtype), known)
    np.testing.assert_array_equal(fn.jit(lambda x: (x + 0).astype(dtype) + dtype(0))(x), known)
