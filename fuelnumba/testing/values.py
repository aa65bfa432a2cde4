"""Arrays for tests: values at which implementations differ, ordinary values, and every way an array can lie in memory."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ..core import dtypes as dt
from ..core.dtypes import DType, dtype_of
from ..core.errors import ArgumentError
from ..trace.interpret import rounded

Array = np.ndarray[Any, Any]

#        relative error, absolute error for what lies among or near the subnormals
_TOLERANCE = {"f32": (1e-6, 2e-45), "f64": (1e-14, 1e-323), "f16": (1e-3, 6e-8), "bf16": (8e-3, 1e-40)}

LAYOUTS = ("contiguous", "transposed", "broadcast", "reversed", "stepped", "odd", "empty", "scalar")
#: Layouts that keep shape and values: the others repeat an element, or leave some out.
SAME_VALUES = ("contiguous", "transposed", "reversed", "stepped", "odd")


def tolerance(dtype: Any) -> tuple[float, float]:
    """(relative, absolute) error that an elementwise function may have in a dtype: 8 ulp of f32, 45 of f64 (whose reference
    is itself computed in f64), and one rounding of the half types. (0, 0) for all others, which are exact."""
    return _TOLERANCE.get(dtype_of(dtype).name, (0.0, 0.0))


def edge_values(dtype: Any) -> Array:
    """Values at which implementations tend to differ: NaN, infinities, both zeros, subnormals, the extremes, halves;
    for integers their extremes, powers of two, and small numbers of both signs."""
    d = dtype_of(dtype)
    if d is dt.bool_:
        return np.array([False, True])
    if d.is_integer:
        info = np.iinfo(d.numpy)
        wanted = {0, 1, 2, 3, 5, 7, 8, 10, 31, 33, 63, 64, 100, info.max, info.max - 1, info.max // 2, -1, -2, -7, -8, -100,
                  info.min, info.min + 1}
        return np.array(sorted(v for v in wanted if info.min <= v <= info.max), d.numpy)
    if d is dt.f8e8m0:  # powers of two only: no zero, no sign, no infinity
        return np.array([2.0**-127, 2.0**-126, 0.25, 0.5, 1.0, 2.0, 4.0, 2.0**127, np.nan]).astype(d.numpy)
    of = ml_dtypes.finfo(d.numpy)
    least, tiny, most = (float(v) for v in (of.smallest_subnormal, of.tiny, of.max))
    positive = [0.0, 0.25, 0.5, float(np.nextafter(np.float32(0.5), np.float32(0))), 1.0, 1 + float(of.eps), 1.5, 2.0, 2.5,
                3.0, 5.5, 7.0, 10.0, 17.25, 88.0, 200.0, least, tiny, most, float("inf")]
    return np.array([*positive, *(-v for v in positive), float("nan")], d.numpy)


def sample_values(dtype: Any, shape: int | Sequence[int], seed: int = 0) -> Array:
    """Ordinary values: floats around 0 with a deviation of 3, integers from their whole range, as many true as false."""
    d, r = dtype_of(dtype), np.random.default_rng(seed)
    if d is dt.bool_:
        return r.random(shape) < 0.5
    if d.is_integer:
        info = np.iinfo(d.numpy)
        return r.integers(info.min, info.max, shape, d.numpy, endpoint=True)
    if d is dt.f8e8m0:
        return np.asarray(np.exp2(r.integers(-4, 4, shape))).astype(d.numpy)
    return np.asarray(r.standard_normal(shape) * 3).astype(d.numpy)


def cast_values(a: Any, dtype: Any) -> Array:
    """Numbers in a dtype, as near as it can hold them: negative ones wrap in unsigned integers, booleans are their last bit,
    and f8e8m0 gets the power of two below their magnitude."""
    a, d = np.asarray(a), dtype_of(dtype)
    if a.dtype == d.numpy:
        return a
    if d is dt.bool_:
        return np.asarray(np.trunc(a.astype(np.float64)) % 2 != 0)
    if d is dt.f8e8m0:
        return np.exp2(np.floor(np.log2(np.abs(a.astype(np.float64)) + 0.5))).astype(d.numpy)
    if d.is_integer and a.dtype.kind not in "iub":
        return np.trunc(a.astype(np.float64)).astype(np.int64).astype(d.numpy)
    with np.errstate(all="ignore"):
        return a.astype(np.float64).astype(d.numpy) if d.kind in "fs" else a.astype(d.numpy)


def seed_of(*words: Any) -> int:
    """A seed that is the same in every process."""
    return zlib.crc32(repr(words).encode())


# ------------------------------------------------------------------------------------------------ layouts
def with_layout(array: Any, layout: str) -> Array:
    """An array's values lying in memory as `layout` says; it shares no memory with `array`.

    'contiguous'; 'transposed' (column by column); 'broadcast' (stride 0: the first element of the last axis repeated);
    'reversed' (negative strides); 'stepped' (every second element of each axis, every third of the last); 'odd' (rows that
    begin one element in, an odd number of elements apart); 'empty' (the first axis with length 0); 'scalar' (rank 0: the
    first element). Raises ArgumentError for another name, and for 'scalar' of an empty array.
    """
    a = np.asarray(array)
    if layout not in LAYOUTS:
        raise ArgumentError(f"there is no layout {layout!r}", cure="the layouts are: " + ", ".join(LAYOUTS))
    if layout == "scalar":
        if a.size == 0:
            raise ArgumentError(f"an array of shape {a.shape} has no element to make a scalar of")
        return np.array(a[(0,) * a.ndim])
    if layout == "empty":
        return np.ascontiguousarray(a[:0]) if a.ndim else np.zeros(0, a.dtype)
    if layout == "contiguous" or a.ndim == 0:
        return np.array(a, order="C")
    if layout == "transposed":
        return np.array(a, order="F")
    if layout == "broadcast":
        return np.broadcast_to(a[..., :1].copy(), a.shape)
    if layout == "reversed":
        back = (slice(None, None, -1),) * a.ndim
        return np.array(a[back], order="C")[back]
    if layout == "stepped":
        steps = (2,) * (a.ndim - 1) + (3,)
        wide = np.zeros([n * s for n, s in zip(a.shape, steps)], a.dtype)
        chosen = wide[tuple(slice(s - 1 if s == 2 else 0, None, s) for s in steps)]
    else:
        wide = np.zeros((*a.shape[:-1], (a.shape[-1] + 1) | 1), a.dtype)
        chosen = wide[..., 1:1 + a.shape[-1]]
    chosen[...] = a
    return chosen


def layout_of(array: Any) -> str:
    """How an array lies, in words: 'C-contiguous', or its strides in elements."""
    a = np.asarray(array)
    if a.flags.c_contiguous:
        return "C-contiguous"
    return f"strides {_steps(a)}"


def _steps(a: Array) -> tuple[int, ...]:
    return tuple(s // a.itemsize for s in a.strides)


def footprint(a: Array) -> tuple[Array, int]:
    """(the elements from the lowest to the highest address an array reaches, the position of its first among them)."""
    steps = _steps(a)
    if a.size == 0:
        return np.zeros(0, a.dtype), 0
    low = sum((n - 1) * s for n, s in zip(a.shape, steps) if s < 0)
    high = sum((n - 1) * s for n, s in zip(a.shape, steps) if s > 0)
    lowest = np.atleast_1d(a)[tuple(slice(n - 1, n) if s < 0 else slice(0, 1) for n, s in zip(a.shape, steps))]
    return np.lib.stride_tricks.as_strided(lowest, (high - low + 1,), (a.itemsize,)).copy(), -low


def from_footprint(elements: Array, first: int, shape: Sequence[int], steps: Sequence[int]) -> Array:
    """The array again that `footprint` was taken of."""
    if math.prod(shape) == 0:
        return np.zeros(tuple(shape), elements.dtype)
    size = elements.itemsize
    return np.ndarray(tuple(shape), elements.dtype, elements, first * size, tuple(s * size for s in steps))


def in_dtype(d: DType, a: Any) -> Array:
    """Numbers of any width in a dtype, rounded once; in integers as `cast` does it."""
    a = np.asarray(a)
    with np.errstate(all="ignore"):
        if d.kind in "fs" and a.dtype.kind in "iub":
            a = a.astype(np.float64)  # from integers, ml_dtypes rounds twice
        if d is dt.f8e8m0 and a.dtype == np.float64:
            a = np.where(a > 0, np.maximum(a, 2.0**-140), a)  # ml_dtypes loses what f32 cannot hold
        return rounded(a, d)
