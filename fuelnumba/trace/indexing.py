"""`x[...]` as views and at most one `take`: ints, static slices, `...`, None, and one integer array."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.dims import Dim, Extent, same
from ..core.errors import ArgumentError, DTypeError, FuelIndexError, TracedConversionError
from .apply import as_tensor, call, permute
from .traced import Traced, in_form, located


@located
def getitem(x: Any, key: Any) -> Any:
    keys = key if isinstance(key, tuple) else (key,)
    items = _expand(x, keys)
    out, axis = x, 0
    taken: tuple[int, Any] | None = None  # axis of `out` that the array indexes, and the array
    advanced: list[int] = []  # positions of ints and arrays in the key
    own = -1  # the axis of x
    for position, item in enumerate(items):
        own += item is not None
        if item is None:
            out, axis = call("unsqueeze", out, axis=axis), axis + 1
        elif isinstance(item, slice):
            out, axis = _slice(out, axis, item), axis + 1
        elif _is_static_int(item):
            out = _pick(out, axis, item, own)
            advanced.append(position)
        else:
            if taken is not None:
                raise ArgumentError("only one array may index at a time",
                                    cure="index the flattened array, or use np.take_along_axis")
            taken = (axis, _indices(item))
            axis += 1
            advanced.append(position)
    if taken is None:
        return in_form(out, "array" if any(item is Ellipsis for item in keys) else "scalar")
    at, indices = taken
    out = in_form(call("take", out, indices, axis=at), "array" if any(item is Ellipsis for item in keys) else "scalar")
    # NumPy: when ints and arrays stand apart, the axes of the array come first.
    if advanced[-1] - advanced[0] >= len(advanced) and at > 0:
        moved = range(at, at + indices.ndim)
        out = permute(out, (*moved, *(k for k in range(out.ndim) if k not in moved)))
    return out


def _is_static_int(item: Any) -> bool:
    return isinstance(item, (int, np.integer, Dim)) and not isinstance(item, bool)


def _expand(x: Any, key: tuple[Any, ...]) -> list[Any]:
    """The key with `...` written out, one entry per axis and per None."""
    dots = [k for k, item in enumerate(key) if item is Ellipsis]
    if len(dots) > 1:
        raise FuelIndexError("an index may have only one ellipsis (...)",
                             cure="write : for the other axes")
    for item in key:
        if isinstance(item, (bool, np.bool_)) or getattr(item, "dtype", None) == np.bool_:
            raise DTypeError(f"a boolean mask cannot index {x!r}: "
                             "how many elements it selects is not known while tracing",
                             cure="use np.where(mask, x, other), which keeps the shape")
    count = sum(1 for item in key if item is not None and item is not Ellipsis)
    if count > x.ndim:
        raise FuelIndexError(f"{count} indices for {x!r} of rank {x.ndim}",
                             cure="drop the surplus ones, or insert an axis: x[..., None]")
    rest = [slice(None)] * (x.ndim - count)
    at = dots[0] if dots else len(key)
    return [*key[:at], *rest, *key[at + 1:]]


def _indices(item: Any) -> Any:
    if isinstance(item, float):
        raise DTypeError(f"an index must be integers, not {item!r}", cure="cast it: int(i)")
    if not isinstance(item, (Traced, np.ndarray, list, np.generic)):
        raise ArgumentError(f"{item!r} cannot be an index",
                            cure="index with ints, slices, ..., None or one array of integers")
    indices = as_tensor(np.empty(0, np.int64) if isinstance(item, list) and not item else item)
    if not indices.node.dtype.is_integer:
        raise DTypeError(f"an index must be integers, not {indices.node.dtype}",
                         cure="cast it: i.astype(np.int64)")
    return indices


def _pick(x: Any, axis: int, item: Any, named: int) -> Any:
    """One element of an axis, which is the axis `named` to the user."""
    n = x.shape[axis]
    k = item if isinstance(item, Dim) else int(item)
    start = k + n if k < 0 else k
    if start < 0 or start >= n:
        raise FuelIndexError(f"index {k} is out of range for axis {named} of length {n}",
                             cure=f"indices go from {-n} to {n - 1}" if isinstance(n, int) and n else "check the index")
    return call("squeeze", call("slice", x, axis=axis, start=start, length=1), axis=axis)


def _slice(x: Any, axis: int, s: slice) -> Any:
    n = x.shape[axis]
    start, length, step = bounds(s, n)
    if same(length, n) and same(start, 0) and step == 1:
        return x
    return call("slice", x, axis=axis, start=start, length=length, step=step)


def bounds(s: slice, n: Extent) -> tuple[Extent, Extent, int]:
    """start, length, step of a slice of an axis of length n, by Python's rules."""
    step = 1 if s.step is None else _bound(s.step)
    if not isinstance(step, int) or step == 0:
        raise FuelIndexError(f"a slice step must be a static int other than 0, not {step}",
                             cure="give an int, such as 1 or -1")
    lowest, highest = (0, n) if step > 0 else (-1, n - 1)
    first, last = (lowest, highest) if step > 0 else (highest, lowest)
    start = first if s.start is None else _clamp(_bound(s.start), n, lowest, highest)
    stop = last if s.stop is None else _clamp(_bound(s.stop), n, lowest, highest)
    span = stop - start if step > 0 else start - stop
    if span <= 0:
        return 0, 0, step
    stride = abs(step)
    return start, span if stride == 1 else (span + (stride - 1)) // stride, step


def _bound(v: Any) -> Extent:
    if isinstance(v, Traced):
        raise TracedConversionError(f"a slice bound is {v!r}, "
                                    "but the length of the result must be known while tracing",
                                    cure="take elements by an array, x[start + np.arange(length)], "
                                         "or name the bound in static_argnames")
    if isinstance(v, Dim):
        return v
    if not hasattr(v, "__index__"):
        raise ArgumentError(f"a slice bound must be an integer or None, not {v!r}",
                            cure="give an int, a length such as x.shape[0], or nothing")
    return int(v.__index__())


def _clamp(v: Extent, n: Extent, lowest: Extent, highest: Extent) -> Extent:
    if v < 0:
        v = v + n
        return lowest if v < lowest else v
    return highest if v > highest else v
