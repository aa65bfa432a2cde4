"""What is fused does not decide a value: every op gives a value of its dtype, as in NumPy.

Chains of ops that are exactly rounded (or cannot be inexact) are run by NumPy and as one fused kernel; the results are the
same bit for bit. A chain is Python that runs on both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuelnumba import jit
from fuelnumba.core import scalar
from fuelnumba.core.ops import OPS

Array = np.ndarray[Any, Any]
BF16 = np.dtype(ml_dtypes.bfloat16)
F16 = np.dtype(np.float16)


def bits(x: Array) -> Array:
    """Equal where values are the same: all NaN are one, and zeros of two signs are two."""
    x = np.asarray(x)
    if x.dtype.kind in "biu":
        return x
    nan = x.dtype.type(np.nan)
    return np.where(x != x, nan, x).view(f"u{x.dtype.itemsize}")


def same_as_numpy(f: Callable[..., Any], *args: Any) -> None:
    with np.errstate(all="ignore"):
        wanted = f(*args)
    got = jit(f)(*args)
    if not isinstance(wanted, tuple):
        wanted, got = (wanted,), (got,)
    for k, (a, b) in enumerate(zip(got, wanted, strict=True)):
        assert a.dtype == b.dtype, f"result {k}: {a.dtype}, not {b.dtype}"
        np.testing.assert_array_equal(bits(a), bits(b), err_msg=f"result {k}")


def of(x: Any, value: float) -> Any:
    """A number in x's dtype: ml_dtypes before 0.7 makes f32 of a bf16 array and a Python float."""
    return np.asarray(value, x.dtype)


X16 = np.array([60.03, 2049, 3e-6, 65504, -65504, np.inf, np.nan, 0, -0.0, 6e-8, 1.001], np.float16)


@pytest.mark.parametrize("f", [
    lambda x: (x + np.float16(2.6)).astype(np.float32),
    lambda x: (x + np.float16(2.6)).astype(np.float16).astype(np.float32),
    lambda x: (x + np.float16(2.6)) == np.float16(62.62),
    lambda x: x + 1 - 1,
    lambda x: x * 2 / 2,
    lambda x: x * x - x * x,
    lambda x: (x * x) * np.float32(1),
    lambda x: np.where(x * x > x, x * 3, x / 3).astype(np.float64),
    lambda x: np.sqrt(x) * np.sqrt(x),
    lambda x: x * of(x, 0.1) + x * of(x, 0.2),
    lambda x: -(x * 3) + np.abs(x * 3),
    lambda x: (x * 3).astype(np.float32).astype(np.float16) / 3,
    lambda x: np.rint(x * 3) - np.floor(x * 3),
    lambda x: 1 / (x * x),
    lambda x: np.isinf(x * 2) | np.isnan(x - x),
    lambda x: np.round(x, 2),
    lambda x: np.maximum(x * 3, of(x, 1.5)) - x,
    lambda x: np.copysign(x * 3, of(x, -1.0)) / 7,
], ids=range(18))
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_a_half_value_is_rounded_where_numpy_rounds_it(f: Callable[..., Any], dtype: Any) -> None:
    same_as_numpy(f, X16.astype(dtype))


def test_functions_of_small_integers_and_bools_are_half() -> None:
    b = np.array([True, False])
    same_as_numpy(lambda b, y: np.exp(b) * y, b, np.array([1.0, 3.0]))
    same_as_numpy(lambda u, y: np.sqrt(u) + y, np.arange(40, dtype=np.uint8), np.linspace(0, 1, 40))
    same_as_numpy(lambda i, y: np.sqrt(np.abs(i)) + y, np.arange(-20, 20, dtype=np.int8), np.linspace(0, 1, 40))


def test_a_power_is_rounded_once() -> None:
    """NumPy's is that of f32; products of ours would each be rounded."""
    x = np.linspace(0.5, 3, 999).astype(np.float16)
    for n in (3, 5, 7):
        got = jit(lambda x, n: x**n, static_argnames="n")(x, n)
        np.testing.assert_array_equal(got, (x.astype(np.float64)**n).astype(np.float16))


def test_an_angle_is_scaled_in_f32() -> None:
    x = np.linspace(-400, 400, 999).astype(np.float16)
    for f in (np.deg2rad, np.rad2deg):
        same_as_numpy(lambda x: f(x), x)  # noqa: B023


def test_integers_wrap_at_every_op() -> None:
    u = np.arange(256, dtype=np.uint8)
    same_as_numpy(lambda u: (u + u < u, u * 3 // 2, (u - 1) > u, (u + np.uint8(200)).astype(np.int64) + 1, -u % 7), u)
    i = np.arange(-128, 128).astype(np.int8)
    same_as_numpy(lambda i: (i + i < i, np.abs(i) + i, (i * 5).astype(np.float32), -i > 0, (i * 3) >> 1, ~i * i), i)
    h = np.arange(-32768, 32767, 7).astype(np.int16)
    same_as_numpy(lambda h: (h * h > 0, np.minimum(h * 3, 7) + h, (h + 30000).astype(np.int8)), h)


# ------------------------------------------------------------------------------------------------ random chains
def near(x: Any, low: float, high: float) -> Any:
    """Held between numbers that are not 0: of which zero is the greater, NumPy leaves open."""
    return np.minimum(np.maximum(x, of(x, low)), of(x, high))


FLOAT_OPS: dict[str, tuple[int, Callable[..., Any]]] = {
    "x + y": (2, lambda x, y: x + y), "x - y": (2, lambda x, y: x - y), "x * y": (2, lambda x, y: x * y),
    "x / y": (2, lambda x, y: x / y), "x + 1.3": (1, lambda x: x + of(x, 1.3)), "x * 3": (1, lambda x: x * 3),
    "0.7 - x": (1, lambda x: of(x, 0.7) - x), "sqrt": (1, lambda x: np.sqrt(np.abs(x))), "-x": (1, lambda x: -x),
    "where": (2, lambda x, y: np.where(x > y, x, y + y)), "near": (1, lambda x: near(x, -2.5, 3.25)),
    "f32 and back": (1, lambda x: (x.astype(np.float32) * np.float32(1.1)).astype(x.dtype)),
    "square": (1, np.square), "equal": (2, lambda x, y: np.where(x + y == y, x, y)),
    "of bool": (2, lambda x, y: x + (x <= y)), "of u8": (1, lambda x: x * np.uint8(3)),
    "1 / x": (1, lambda x: 1 / x), "scaled": (1, lambda x: x * of(x, 1e-3)),
}
INTEGER_OPS: dict[str, tuple[int, Callable[..., Any]]] = {
    "x + y": (2, lambda x, y: x + y), "x - y": (2, lambda x, y: x - y), "x * y": (2, lambda x, y: x * y),
    "x + 100": (1, lambda x: x + 100), "3 * x": (1, lambda x: 3 * x), "-x": (1, lambda x: -x), "~x": (1, lambda x: ~x),
    "and": (2, lambda x, y: x & y), "xor": (2, lambda x, y: x ^ y), "abs": (1, np.abs), "x >> 1": (1, lambda x: x >> 1),
    "x << 2": (1, lambda x: x << 2), "near": (1, lambda x: near(x, 5, 90)), "floor": (1, lambda x: x // 7),
    "mod": (1, lambda x: x % 5), "where": (2, lambda x, y: np.where(x + y < x, x, y)),
    "wide": (2, lambda x, y: (x.astype(np.int32) * y).astype(x.dtype)), "of bool": (2, lambda x, y: x + (x - y > y)),
}
CHAINS = [(F16, FLOAT_OPS), (BF16, FLOAT_OPS), *((np.dtype(d), INTEGER_OPS) for d in (np.uint8, np.int8, np.int16))]


@pytest.mark.parametrize(("dtype", "table"), CHAINS, ids=[str(d) for d, _ in CHAINS])
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_chain_gives_numpys_bits(dtype: np.dtype[Any], table: dict[str, tuple[int, Callable[..., Any]]], data: Any) -> None:
    """At several lengths, so that vectorised loops and their ends are seen."""
    names = data.draw(st.lists(st.sampled_from(sorted(table)), min_size=6, max_size=14), label="ops")
    steps = [(table[n][1], [data.draw(st.integers(0, min(k + 1, 4))) for _ in range(table[n][0])])
             for k, n in enumerate(names)]

    def chain(x: Any, y: Any) -> tuple[Any, ...]:
        values = [x, y]
        for f, back in steps:
            values.append(f(*(values[-1 - b] for b in back)))
        return values[-1], values[len(values) // 2], (values[-1] < values[-2])

    run = jit(chain)
    rng = np.random.default_rng(len(names))
    for length in (300, 7, 129):
        args = [rng.integers(0, 256, length * dtype.itemsize).astype(np.uint8).view(dtype) for _ in range(2)]
        if length == 7 and dtype in (F16, BF16):
            args = [rng.standard_normal(length).astype(dtype) for _ in range(2)]
        with np.errstate(all="ignore"):
            wanted = chain(*args)
        for a, b in zip(run(*args), wanted, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(bits(a), bits(b))


# ------------------------------------------------------------------------------------------------ what needs no rounding
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_formulas_that_are_not_rounded_give_values_of_the_dtype(dtype: Any) -> None:
    """An op's formula of which `keeps` says that it gives only what its operands' dtype holds: every pattern, many pairs."""
    every = np.arange(65536, dtype=np.uint16).view(dtype).astype(np.float32)
    other = np.random.default_rng(0).permutation(every)
    kept = 0
    for op in OPS.values():
        if op.expr is None or not scalar.keeps(op.expr) or op.domain in ("truth", "bits", "int"):
            continue
        values = iter((every, other))
        args = [every > other if n == "condition" else next(values) for n in op.inputs]
        with np.errstate(all="ignore"):
            out = np.asarray(scalar.evaluate(op.expr, args), np.float32)
            kept += 1
            np.testing.assert_array_equal(out, out.astype(dtype).astype(np.float32), err_msg=op.name)
    assert kept >= 12
