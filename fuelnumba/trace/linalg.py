"""NumPy's `linalg` functions on traced values, as far as they are sums, products and views: norms, diagonals, powers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core import dtypes as dt
from ..core.dims import same
from ..core.errors import ArgumentError, AxisError, ShapeError, UnsupportedFunctionError
from ..core.ops import broadcast_shapes, check_axes, check_axis, check_bool, fmt, whole
from . import arrange, contract
from .apply import as_tensor, broadcast_to, call, cast, permute, reshape
from .indexing import getitem
from .promote import CONVERSIONS
from .traced import located, refuse


def as_float(x: Any, domain: str = "float") -> Any:
    """x in the floats that NumPy's functions of a domain use for its dtype."""
    x = as_tensor(x)
    return cast(x, CONVERSIONS[domain][x.node.dtype]) if x.node.dtype in CONVERSIONS[domain] else x


def widened(x: Any) -> Any:
    """Half types in f32: a square or product of theirs may not fit where the sum, mean or root made of it does."""
    return cast(x, dt.f32) if x.node.dtype.is_float and x.node.dtype.bits == 16 else x


# ---------------------------------------------------------------------------------------- products
@located
def vecdot(a: Any, b: Any, /, *, axis: int = -1) -> Any:
    """Sums of products along an axis that both have; counted from the end, it is the axis before broadcasting."""
    a, b = as_tensor(a), as_tensor(b)
    if a.ndim == 0 or b.ndim == 0:
        raise ShapeError(f"vecdot() got shapes {fmt(a.shape)} and {fmt(b.shape)}: both need an axis to sum over",
                         cure="use * to multiply by a scalar")
    a, b = (arrange.moveaxis(x, axis, -1) for x in (a, b))
    if a.shape[-1] != b.shape[-1]:
        raise ShapeError(f"vecdot() got axes of lengths {a.shape[-1]} and {b.shape[-1]}", cure="lengths must be equal")
    dtype = dt.promote(a.node.dtype, b.node.dtype)
    return cast(call("sum", call("multiply", widened(a), widened(b)), axis=-1), dtype)


@located
def outer(x1: Any, x2: Any, /) -> Any:
    x1, x2 = as_tensor(x1), as_tensor(x2)
    if x1.ndim != 1 or x2.ndim != 1:
        raise ShapeError(f"linalg.outer() takes two vectors, not shapes {fmt(x1.shape)} and {fmt(x2.shape)}",
                         cure="np.outer flattens its arguments")
    return contract.outer(x1, x2)


@located
def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Of vectors of three, along an axis of the broadcast arrays."""
    x1, x2 = as_tensor(x1), as_tensor(x2)
    shape = broadcast_shapes("cross", [x1.shape, x2.shape])
    k = check_axis(axis, len(shape))
    if any(x.ndim < len(shape) - k or x.shape[k - len(shape)] != 3 for x in (x1, x2)):
        raise ShapeError(f"cross() takes vectors of three along axis {axis}, not shapes {fmt(x1.shape)} and {fmt(x2.shape)}",
                         cure="name the axis of length 3 with axis=")

    def turned(x: Any, by: int) -> Any:
        return arrange.roll(x, by, axis=k - len(shape))

    left = call("multiply", turned(x1, -1), turned(x2, -2))
    return call("subtract", left, call("multiply", turned(x1, -2), turned(x2, -1)))


@located
def matrix_power(a: Any, n: Any) -> Any:
    """The product of n equal square matrices, n static and not negative."""
    a = as_tensor(a)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ShapeError(f"matrix_power() takes square matrices, not shape {fmt(a.shape)}",
                         cure="the last two axes must be of one length")
    n = whole(n, "n")
    if n < 0:
        raise UnsupportedFunctionError("numpy.linalg.matrix_power is not covered for negative powers",
                                       cure="invert outside the jitted function, and take a positive power")
    if n == 0:
        return broadcast_to(as_tensor(np.eye(int(a.shape[-1]), dtype=a.dtype)), a.shape)
    out, square, left = None, a, n
    while left:
        if left & 1:
            out = square if out is None else contract.matmul(out, square)
        left >>= 1
        if left:
            square = contract.matmul(square, square)
    return out


# ---------------------------------------------------------------------------------------- diagonals
@located
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The elements [.., i, .., i + offset, ..], as a new last axis; both lengths must be static."""
    a, offset = as_tensor(a), whole(offset, "offset")
    j, k = (check_axis(axis, a.ndim) for axis in (axis1, axis2))
    if j == k:
        raise AxisError(f"diagonal(): axes {axis1} and {axis2} are the same",
                        cure="name two axes")
    a = permute(a, [*(i for i in range(a.ndim) if i not in (j, k)), j, k])
    rows, columns = (int(n) for n in a.shape[-2:])
    length = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    first = offset if offset >= 0 else -offset * columns
    flat = reshape(a, (*a.shape[:-2], rows * columns))
    last = first + (length - 1) * (columns + 1)
    return getitem(flat, (..., slice(first, last + 1, columns + 1) if length else slice(0, 0)))


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    """The sum of a diagonal, in the dtype of np.sum."""
    refuse("numpy.trace", out=out)
    line = as_tensor(diagonal(a, offset, axis1, axis2), dtype)
    result = call("sum", line, axis=-1)
    return result if dtype is None else cast(result, dtype)


def matrix_diagonal(x: Any, /, *, offset: int = 0) -> Any:
    return diagonal(x, offset, -2, -1)


def matrix_trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    return trace(x, offset, -2, -1, dtype)


# ---------------------------------------------------------------------------------------- norms
def _extremum(x: Any, axes: Sequence[int], ord: Any) -> str:
    """The op for an order's largest or smallest; the largest of nothing is 0 here, which is its sum."""
    return "min" if ord < 0 else "sum" if any(same(x.shape[k], 0) for k in axes) else "max"


@located
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """Of the elements along any axes: of order inf, -inf, 0 (how many are not 0), or any number."""
    x = as_float(x, "division")
    axes = check_axes(axis, x.ndim)
    how = {"axis": axes, "keepdims": check_bool(keepdims)}
    if not isinstance(ord, (int, float, np.number)):
        raise ArgumentError(f"vector_norm(): ord must be a number, not {ord!r}")
    if ord == 2:
        return cast(call("sqrt", call("sum", call("square", widened(x)), **how)), x.dtype)
    if ord in (np.inf, -np.inf):
        return call(_extremum(x, axes, ord), call("absolute", x), **how)
    if ord == 0:
        return call("sum", cast(call("not_equal", x, 0), x.dtype), **how)
    if ord == 1:
        return call("sum", call("absolute", x), **how)
    sums = call("sum", call("power", call("absolute", widened(x)), float(ord)), **how)
    return cast(call("power", sums, 1 / float(ord)), x.dtype)


@located
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """Of the last two axes: Frobenius, or the largest or smallest sum of a row (inf, -inf) or of a column (1, -1)."""
    x = as_float(x, "division")
    if x.ndim < 2:
        raise ShapeError(f"a norm of matrices needs two axes, not shape {fmt(x.shape)}",
                         cure="insert an axis, or use np.linalg.norm")
    if ord is None or (isinstance(ord, str) and ord == "fro"):
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    if not isinstance(ord, (int, float, np.number)) or ord not in (1, -1, np.inf, -np.inf):
        raise UnsupportedFunctionError(f"numpy.linalg.matrix_norm is not covered with ord={ord!r} for {x!r}",
                                       cure="covered are 1, -1, inf, -inf and the Frobenius norm")
    summed, compared = (-2, -1) if ord in (1, -1) else (-1, -2)
    sums = call("sum", call("absolute", x), axis=summed, keepdims=True)
    out = call(_extremum(x, (compared,), ord), sums, axis=compared, keepdims=True)
    return out if keepdims else call("squeeze", call("squeeze", out, axis=out.ndim - 1), axis=out.ndim - 2)


@located
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """np.linalg.norm: of all elements, of vectors along one axis, or of matrices in two."""
    x = as_tensor(x)
    if ord is None:
        return vector_norm(x, axis=axis, keepdims=keepdims)
    axes = check_axes(axis, x.ndim)
    if len(axes) == 1:
        return vector_norm(x, axis=axes, keepdims=keepdims, ord=ord)
    if len(axes) != 2:
        raise AxisError(f"norm() of order {ord!r} takes one axis or two, not {len(axes)}",
                        cure="name one axis for vectors, two for matrices")
    j, k = axes if axis is None else (check_axis(v, x.ndim) for v in axis)  # the order says which are the rows
    out = matrix_norm(permute(x, [*(i for i in range(x.ndim) if i not in axes), j, k]), keepdims=False, ord=ord)
    if keepdims:
        for i in axes:
            out = call("unsqueeze", out, axis=i)
    return out
