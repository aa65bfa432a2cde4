"""Products of arrays: matmul by NumPy's rules, and what is said through it (dot, tensordot, einsum, ...)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.dims import Dim, Extent, divide_exact, product, same
from ..core.errors import ArgumentError, AxisError, ShapeError, UnsupportedFunctionError
from ..core.layout import Shape
from ..core.ops import broadcast_shapes, check_axis, fmt
from .apply import as_tensor, broadcast_to, call, permute, reshape
from .traced import in_form, located, refuse


@located
def matmul(a: Any, b: Any) -> Any:
    """a @ b. Batch lengths broadcast; where a's is a multiple of b's, neighbours in a share a matrix of b, as
    grouped attention has it."""
    a, b = as_tensor(a), as_tensor(b)
    if a.ndim == 0 or b.ndim == 0:
        raise ShapeError(f"matmul() got shapes {fmt(a.shape)} and {fmt(b.shape)}: "
                         "both need an axis to sum over", cure="use * to multiply by a scalar")
    depth = b.shape[-2] if b.ndim > 1 else b.shape[0]
    if a.shape[-1] != depth:
        raise ShapeError(f"matmul() cannot multiply {fmt(a.shape)} by {fmt(b.shape)}: "
                         f"{a.shape[-1]} columns meet {depth} rows",
                         cure="the last axis of the first must be as long as the last but one of the second: transpose one")
    row, column = a.ndim == 1, b.ndim == 1
    if row:
        a = call("unsqueeze", a, axis=0)
    if column:
        b = call("unsqueeze", b, axis=1)
    out = _matrices(a, b)
    if column:
        out = call("squeeze", out, axis=out.ndim - 1)
    out = call("squeeze", out, axis=out.ndim - (1 if column else 2)) if row else out
    return in_form(out, "scalar")


def _matrices(a: Any, b: Any) -> Any:
    """The product of stacks of matrices."""
    if b.ndim == 2 and a.ndim > 2:  # one matrix for the whole batch: one tall product
        out = call("matmul", reshape(a, (product(a.shape[:-1]), a.shape[-1])), b)
        return reshape(out, (*a.shape[:-1], b.shape[-1]))
    shared = _shared_axis(a.shape[:-2], b.shape[:-2])
    if shared is not None:
        k, groups, per_group = shared
        split = reshape(a, (*a.shape[:k], groups, per_group, *a.shape[k + 1:]))
        out = _matrices(split, call("unsqueeze", b, axis=k + 1))
        return reshape(out, (*out.shape[:k], groups * per_group, *out.shape[k + 2:]))
    try:
        batch = broadcast_shapes("matmul", [a.shape[:-2], b.shape[:-2]])
    except ShapeError as err:
        raise ShapeError(f"matmul() cannot multiply {fmt(a.shape)} by {fmt(b.shape)}: their batch shapes "
                         f"{fmt(a.shape[:-2])} and {fmt(b.shape[:-2])} do not broadcast",
                         cure=err.cure) from None
    return call("matmul", _with_batch(a, batch), _with_batch(b, batch))


def _shared_axis(a: Shape, b: Shape) -> tuple[int, Extent, Extent] | None:
    """The batch axis where a's length is a multiple of b's, with b's length and the quotient."""
    if len(a) != len(b):
        return None
    for k, (n, m) in enumerate(zip(a, b)):
        if same(n, m) or same(m, 1) or same(n, 1) or same(m, 0) or n == m:
            continue
        times = divide_exact(n, m)
        if times is None and (isinstance(n, Dim) or isinstance(m, Dim)):  # algebra does not tell: the present lengths do
            n, m = int(n), int(m)
            times = divide_exact(n, m)
        return None if times is None else (k, m, times)
    return None


def _with_batch(x: Any, batch: Shape) -> Any:
    lead = len(batch) - (x.ndim - 2)
    own = batch[:lead] + tuple(n if n == m else m for n, m in zip(x.shape[:-2], batch[lead:]))
    return broadcast_to(x, (*own, *x.shape[-2:]))


@located
def dot(a: Any, b: Any, out: Any = None) -> Any:
    refuse("numpy.dot", out=out)
    a, b = as_tensor(a), as_tensor(b)
    if a.ndim == 0 or b.ndim == 0:
        return call("multiply", a, b)
    if a.ndim <= 2 and b.ndim <= 2:
        return matmul(a, b)
    return tensordot(a, b, ((-1,), (-2 if b.ndim > 1 else -1,)))


def inner(a: Any, b: Any) -> Any:
    a, b = as_tensor(a), as_tensor(b)
    return call("multiply", a, b) if a.ndim == 0 or b.ndim == 0 else tensordot(a, b, ((-1,), (-1,)))


def outer(a: Any, b: Any, out: Any = None) -> Any:
    refuse("numpy.outer", out=out)
    a, b = reshape(as_tensor(a), (-1,)), reshape(as_tensor(b), (-1,))
    return call("multiply", call("unsqueeze", a, axis=1), b)


def vdot(a: Any, b: Any) -> Any:
    return matmul(reshape(as_tensor(a), (-1,)), reshape(as_tensor(b), (-1,)))


@located
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    a, b = as_tensor(a), as_tensor(b)
    if isinstance(axes, (int, np.integer)):
        if not 0 <= axes <= min(a.ndim, b.ndim):
            raise AxisError(f"tensordot() cannot sum over {axes} axes of {fmt(a.shape)} and {fmt(b.shape)}")
        axes = (range(a.ndim - axes, a.ndim), range(axes))
    if not isinstance(axes, (tuple, list)) or len(axes) != 2:
        raise ArgumentError("tensordot(): axes must be an int or a pair of axes",
                            cure="e.g. axes=2, or axes=((1,), (0,))")
    left, right = ([check_axis(k, x.ndim) for k in (s if hasattr(s, "__iter__") else (s,))]
                   for s, x in zip(axes, (a, b)))
    if len(left) != len(right) or any(a.shape[i] != b.shape[j] for i, j in zip(left, right)):
        raise ShapeError(f"tensordot() cannot sum {fmt(a.shape)} over axes {tuple(left)} with {fmt(b.shape)} "
                         f"over axes {tuple(right)}: the lengths differ",
                         cure="name axes of equal lengths, in the same order")
    rows = [k for k in range(a.ndim) if k not in left]
    columns = [k for k in range(b.ndim) if k not in right]
    return _product(a, b, ([], rows, left), ([], right, columns))


def _product(a: Any, b: Any, a_axes: Sequence[list[int]], b_axes: Sequence[list[int]]) -> Any:
    """Permute to [batch, rows, depth] and [batch, depth, columns], multiply, and split the axes again."""

    def matrices(x: Any, batch: list[int], first: list[int], second: list[int]) -> tuple[Any, list[Shape]]:
        shapes = [tuple(x.shape[k] for k in axes) for axes in (batch, first, second)]
        x = permute(x, [*batch, *first, *second])
        return reshape(x, (*shapes[0], product(shapes[1]), product(shapes[2]))), shapes

    left, (batch, rows, _) = matrices(a, *a_axes)
    right, (_, _, columns) = matrices(b, *b_axes)
    return reshape(call("matmul", left, right), (*batch, *rows, *columns))


# ---------------------------------------------------------------------------------------- einsum
@located
def einsum(subscripts: str, *operands: Any, **refused: Any) -> Any:
    """Sums of products of one or more arrays; no repeated letter within one array and no ellipsis."""
    if not isinstance(subscripts, str) or "." in subscripts:
        raise UnsupportedFunctionError("numpy.einsum is covered for subscripts such as 'bij,bjk->bik', "
                                       f"not {subscripts!r}",
                                       cure="write every axis as a letter, without ellipsis")
    named = [k for k, v in refused.items() if k != "optimize" and v is not None]
    if named:
        raise UnsupportedFunctionError(f"numpy.einsum is not covered with {named[0]}=",
                                       cure="leave it out")
    left, arrow, out = subscripts.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow:
        out = "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))
    arrays = [as_tensor(x) for x in operands]
    if len(terms) != len(arrays):
        raise ArgumentError(f"einsum(): {subscripts!r} names {len(terms)} arrays, {len(arrays)} are given",
                            cure="write one term for each array, separated by commas")
    lengths: dict[str, Extent] = {}
    for term, x in zip(terms, arrays):
        if len(term) != x.ndim:
            raise ShapeError(f"einsum(): {term!r} names {len(term)} axes of an array of shape {fmt(x.shape)}",
                             cure="write one letter for each axis")
        if len(set(term)) != len(term):
            raise UnsupportedFunctionError("numpy.einsum is not covered for a repeated letter, "
                                           f"as in {term!r}",
                                           cure="take the diagonal first: np.take_along_axis, or multiply by np.eye(n) and sum")
        for c, n in zip(term, x.shape):
            if lengths.setdefault(c, n) != n:
                raise ShapeError(f"einsum(): {c!r} is {lengths[c]} in one array and {n} in another",
                                 cure="one letter is one length")
    if unknown := [c for c in out if c not in lengths]:
        raise ArgumentError(f"einsum(): {unknown[0]!r} stands on the right of {subscripts!r} only",
                            cure="every letter on the right must stand on the left")
    x, term = arrays[0], terms[0]
    for k in range(1, len(arrays)):
        x, term = _pair(x, term, arrays[k], terms[k], set(out).union(*terms[k + 1:]))
    x, term = _sum_out(x, term, set(out))
    return permute(x, [term.index(c) for c in out])


def _sum_out(x: Any, term: str, keep: set[str]) -> tuple[Any, str]:
    """Sum over the axes nobody asks for; the sum stays in x's dtype, as einsum has it."""
    axes = tuple(k for k, c in enumerate(term) if c not in keep)
    if not axes:
        return x, term
    return call("cast", call("sum", x, axis=axes), dtype=x.dtype), "".join(c for c in term if c in keep)


def _pair(a: Any, left: str, b: Any, right: str, keep: set[str]) -> tuple[Any, str]:
    a, left = _sum_out(a, left, keep | set(right))
    b, right = _sum_out(b, right, keep | set(left))
    batch = [c for c in left if c in right and c in keep]
    depth = [c for c in left if c in right and c not in keep]
    rows = [c for c in left if c not in right]
    columns = [c for c in right if c not in left]
    out = _product(a, b, [[left.index(c) for c in part] for part in (batch, rows, depth)],
                   [[right.index(c) for c in part] for part in (batch, depth, columns)])
    return out, "".join((*batch, *rows, *columns))


