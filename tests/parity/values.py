"""Inputs with awkward values, in every layout, and comparison by dtype. Failures say how to run the one case again."""

from __future__ import annotations

import os
from typing import Any

import ml_dtypes
import numpy as np

NUMPY = {"bool": np.bool_, "u8": np.uint8, "i8": np.int8, "u32": np.uint32, "i16": np.int16, "i32": np.int32,
         "i64": np.int64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
         "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2, "f8e8m0": ml_dtypes.float8_e8m0fnu}
FLOATS = ("f32", "f64", "f16", "bf16")
INTS = ("u8", "i8", "u32", "i16", "i32", "i64")
EIGHT_BIT = ("f8e4m3", "f8e5m2", "f8e8m0")
ALL = tuple(NUMPY)

#        relative error, absolute error for what lies among or near the subnormals
TOLERANCE = {"f32": (1e-6, 2e-45), "f64": (1e-14, 1e-323), "f16": (1e-3, 6e-8), "bf16": (8e-3, 1e-40)}

LAYOUTS = ("contiguous", "transposed", "broadcast", "reversed", "stepped", "empty", "scalar")


def repro() -> str:
    case = os.environ.get("PYTEST_CURRENT_TEST", "").rsplit(" (", 1)[0]
    return f"\nrun it again with: python -m pytest '{case}'"


def edges(dtype: str) -> np.ndarray[Any, Any]:
    """Values at which implementations tend to differ."""
    of = np.dtype(NUMPY[dtype])
    if dtype == "bool":
        return np.array([False, True])
    if dtype in INTS:
        info = np.iinfo(of)
        wanted = {0, 1, 2, 3, 5, 7, 8, 10, 31, 33, 63, 64, 100, info.max, info.max - 1, info.max // 2, -1, -2, -7, -8, -100,
                  info.min, info.min + 1}
        return np.array(sorted(v for v in wanted if info.min <= v <= info.max), of)
    info = ml_dtypes.finfo(of)
    least, tiny, most = (float(v) for v in (info.smallest_subnormal, info.tiny, info.max))
    half_ulp = 1 + float(info.eps)
    positive = [0.0, 0.25, 0.5, float(np.nextafter(np.float32(0.5), np.float32(0))), 1.0, half_ulp, 1.5, 2.0, 2.5, 3.0, 5.5, 7.0,
                10.0, 17.25, 88.0, 200.0, least, tiny, most, float("inf")]
    return np.array([*positive, *(-v for v in positive), float("nan")], of)


def sample(dtype: str, size: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Ordinary values: floats around 0, integers from the whole range."""
    r = np.random.default_rng(seed)
    of = np.dtype(NUMPY[dtype])
    if dtype == "bool":
        return r.random(size) < 0.5
    if dtype in INTS:
        info = np.iinfo(of)
        return r.integers(info.min, info.max, size, of, endpoint=True)
    if dtype == "f8e8m0":
        return np.exp2(r.integers(-4, 4, size)).astype(of)
    return (r.standard_normal(size) * 3).astype(of)


def unary(dtype: str) -> tuple[np.ndarray[Any, Any], ...]:
    return (np.concatenate([edges(dtype), sample(dtype, 70)]),)


def binary(dtype: str) -> tuple[np.ndarray[Any, Any], ...]:
    """Every edge with every edge, then ordinary pairs."""
    e = edges(dtype)
    return (np.concatenate([np.repeat(e, len(e)), sample(dtype, 61, 1)]), np.concatenate([np.tile(e, len(e)), sample(dtype, 61, 2)]))


def arranged(a: np.ndarray[Any, Any], layout: str) -> np.ndarray[Any, Any]:
    """A matrix with a's values (its first row or element, where the layout repeats it) in a given layout."""
    if layout == "contiguous":
        return np.ascontiguousarray(a)
    if layout == "transposed":
        return np.asfortranarray(a)
    if layout == "broadcast":
        return np.broadcast_to(a[:, :1].copy(), a.shape)
    if layout == "reversed":
        return a[::-1, ::-1].copy()[::-1, ::-1]
    if layout == "stepped":
        wide = np.zeros((2 * a.shape[0], 3 * a.shape[1]), a.dtype)
        wide[1::2, ::3] = a
        return wide[1::2, ::3]
    if layout == "empty":
        return a[:0]
    assert layout == "scalar"
    return np.array(a[0, 0])


def agree(got: Any, expected: Any, dtype: str, *, rtol: float | None = None, atol: float | None = None) -> None:
    """`got` has the dtype and shape, and the values of `expected` (any float width) once rounded to the dtype."""
    of = np.dtype(NUMPY[dtype])
    assert isinstance(got, np.ndarray), f"{type(got).__name__} instead of an array" + repro()
    expected = np.asarray(expected)
    assert got.dtype == of, f"{got.dtype} instead of {of}" + repro()
    assert got.shape == expected.shape, f"{got.shape} instead of {expected.shape}" + repro()
    with np.errstate(all="ignore"):
        expected = expected.astype(of)
    if dtype not in FLOATS + EIGHT_BIT:
        same = got == expected
    else:
        r, a = TOLERANCE.get(dtype, (0.0, 0.0))
        r, a = r if rtol is None else rtol, a if atol is None else atol
        g, e = got.astype(np.float64), expected.astype(np.float64)
        with np.errstate(all="ignore"):
            same = (np.isnan(g) & np.isnan(e)) | (g == e) | (np.abs(g - e) <= a + r * np.abs(e))
            most = float(ml_dtypes.finfo(of).max)  # an infinity stands for what rounds to the greatest number, and back
            same |= np.isfinite(e) & (np.abs(e) >= most * (1 - r)) & (g == np.copysign(np.inf, e))
            same |= np.isinf(e) & (np.abs(g) >= most * (1 - r)) & (np.sign(g) == np.sign(e))
    if not np.all(same):
        at = tuple(int(k[0]) for k in np.nonzero(~np.atleast_1d(same)))
        g, e = np.atleast_1d(got)[at], np.atleast_1d(expected)[at]
        count = int(np.sum(~same))
        raise AssertionError(f"{count} of {got.size} values differ; first at {at}: got {g!r}, expected {e!r}" + repro())


def same_signs(got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    """Zeros have the expected sign."""
    zero = (got.astype(np.float64) == 0) & (np.asarray(expected, np.float64) == 0)
    differ = zero & (np.signbit(got.astype(np.float64)) != np.signbit(np.asarray(expected, np.float64)))
    assert not differ.any(), f"the sign of a zero at {np.nonzero(differ)[0][:5]}" + repro()
