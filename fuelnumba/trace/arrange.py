"""NumPy's functions that move elements without computing: reshape, transpose, concatenate, split, take, ...

Parameters are NumPy's. Everything becomes views, `concat`, `take` or `gather`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..core.dims import Dim, Extent, same
from ..core.dtypes import dtype_of
from ..core.errors import ArgumentError, AxisError, DTypeError, ShapeError
from ..core.ops import broadcast_shapes, check_axes, check_axis, check_extent, check_shape, fmt, whole
from . import apply as ap
from .apply import as_tensor, call, permute
from .indexing import bounds, getitem
from .traced import Traced, located, refuse


# ---------------------------------------------------------------------------------------- axes and order
def reshape(a: Any, /, shape: Any, order: str = "C", *, copy: Any = None) -> Any:
    refuse("numpy.reshape", order=order)
    return ap.reshape(a, shape)


def ravel(a: Any, order: str = "C") -> Any:
    refuse("numpy.ravel", order=order)
    return ap.reshape(a, (-1,))


def transpose(a: Any, axes: Any = None) -> Any:
    a = as_tensor(a)
    return permute(a, range(a.ndim)[::-1] if axes is None else [check_axis(k, a.ndim) for k in _tuple(axes)])


def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    a = as_tensor(a)
    j, k = check_axis(axis1, a.ndim), check_axis(axis2, a.ndim)
    return permute(a, [k if i == j else j if i == k else i for i in range(a.ndim)])


def matrix_transpose(x: Any, /) -> Any:
    return swapaxes(x, -1, -2)


def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    a = as_tensor(a)
    old, new = ([check_axis(k, a.ndim) for k in _tuple(v)] for v in (source, destination))
    if len(old) != len(new) or len(set(old)) != len(old) or len(set(new)) != len(new):
        raise AxisError(f"moveaxis() cannot move axes {tuple(old)} to {tuple(new)}",
                        cure="name as many destinations as sources, each axis once")
    order = [k for k in range(a.ndim) if k not in old]
    for to, k in sorted(zip(new, old)):
        order.insert(to, k)
    return permute(a, order)


def expand_dims(a: Any, axis: Any) -> Any:
    a = as_tensor(a)
    for k in check_axes(_tuple(axis), a.ndim + len(_tuple(axis))):
        a = call("unsqueeze", a, axis=k)
    return a


def has_none(a: Any, axis: Any) -> bool:
    """Whether a value without axes is asked for its axis 0 or -1, which many of NumPy's functions take to be of length 1."""
    return not a.shape and isinstance(axis, (int, np.integer)) and not isinstance(axis, bool) and axis in (0, -1)


def in_line(a: Any, axis: Any) -> tuple[Any, Any]:
    """A value and the axis to go along: that of all elements when it is None, or when there is none."""
    a = as_tensor(a)
    return (ap.reshape(a, (-1,)), 0) if axis is None or has_none(a, axis) else (a, axis)


def squeeze(a: Any, axis: Any = None) -> Any:
    a = as_tensor(a)
    if has_none(a, axis):
        return a
    if axis is None:
        axes = [k for k, n in enumerate(a.shape) if same(n, 1)]
    else:
        axes = [check_axis(k, a.ndim) for k in _tuple(axis)]
    for k in sorted(axes, reverse=True):
        a = call("squeeze", a, axis=k)
    return a


def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    return ap.broadcast_to(array, shape)


def broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Any, ...]:
    arrays = [as_tensor(a) for a in args]
    shape = broadcast_shapes("broadcast_arrays", [a.shape for a in arrays])
    return tuple(ap.broadcast_to(a, shape) for a in arrays)


def atleast(rank: int) -> Callable[..., Any]:
    def at_least(*arrays: Any) -> Any:
        found = tuple(_at_least(as_tensor(a), rank) for a in arrays)
        return found[0] if len(found) == 1 else found

    return at_least


def _at_least(a: Any, rank: int) -> Any:
    if rank == 3 and 0 < a.ndim < 3:  # (n,) becomes (1, n, 1), (m, n) becomes (m, n, 1)
        return ap.reshape(a, (1, *a.shape, 1) if a.ndim == 1 else (*a.shape, 1))
    while a.ndim < rank:
        a = call("unsqueeze", a, axis=0)
    return a


def flip(m: Any, axis: Any = None) -> Any:
    m = as_tensor(m)
    for k in check_axes(axis, m.ndim):
        m = call("flip", m, axis=k)
    return m


def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    a = as_tensor(a)
    if axis is None:
        return ap.reshape(roll(ap.reshape(a, (-1,)), shift, 0), a.shape)
    axes, shifts = _tuple(axis), _tuple(shift)
    if len(axes) != len(shifts) and 1 not in (len(axes), len(shifts)):
        raise ShapeError(f"roll() got {len(shifts)} shifts for {len(axes)} axes",
                         cure="give one shift for each axis, or one for all")
    count = max(len(axes), len(shifts)) if axes and shifts else 0
    axes, shifts = (v * count if len(v) == 1 else v for v in (axes, shifts))
    for axis, by in zip(axes, shifts):
        k = check_axis(axis, a.ndim)
        n = a.shape[k]
        by = check_extent(by)
        if same(by, 0) or same(n, 0):
            continue
        at = by if 0 < by < n else n + by if -n < by < 0 else by % n
        if at != 0:
            a = call("concat", _cut(a, k, n - at, n), _cut(a, k, 0, n - at), axis=k)
    return a


def centred(back: bool) -> Callable[..., Any]:
    """np.fft.fftshift, which brings element 0 to the middle of each axis, and its inverse."""

    def shift(x: Any, axes: Any = None) -> Any:
        x = as_tensor(x)
        which = [check_axis(k, x.ndim) for k in (range(x.ndim) if axes is None else _tuple(axes))]
        return roll(x, [-(x.shape[k] // 2) if back else x.shape[k] // 2 for k in which], tuple(which))

    return located(shift)


def copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    """The value itself: traced values never change."""
    refuse("numpy.copy", order=order)
    return as_tensor(a)


@located
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Any, ...]:
    """Each vector along an axis of its own, the first two axes exchanged for 'xy'; views unless sparse."""
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"meshgrid(): indexing is 'xy' or 'ij', not {indexing!r}",
                            cure="give one of the two")
    axes = list(range(len(xi)))
    if indexing == "xy" and len(xi) > 1:
        axes[:2] = 1, 0
    grids = tuple(ap.reshape(x, (*(1,) * k, -1, *(1,) * (len(xi) - 1 - k))) for k, x in zip(axes, xi))
    return grids if sparse else broadcast_arrays(*grids)


def converted(function: str, x: Any, dtype: Any, casting: str | None = None) -> Any:
    """x in a dtype, if NumPy's rule `casting` ('same_kind' unless given) allows that; x itself for None."""
    if dtype is None:
        return as_tensor(x)
    source, target = as_tensor(x), dtype_of(dtype)
    if source.weak is None and not np.can_cast(source.dtype, target.numpy, casting or "same_kind"):  # type: ignore[arg-type]
        raise DTypeError(f"{function}() cannot cast {source.node.dtype} to {target} by the rule {casting or 'same_kind'!r}",
                         cure="cast it first: x.astype(dtype)")
    return as_tensor(x, target)


# ---------------------------------------------------------------------------------------- joining
@located
def concatenate(arrays: Any, /, axis: Any = 0, out: Any = None, *, dtype: Any = None,
                casting: Any = None) -> Any:
    refuse("numpy.concatenate", out=out)
    parts = [converted("concatenate", a, dtype, casting) for a in arrays]
    if axis is None:
        parts, axis = [ap.reshape(a, (-1,)) for a in parts], 0
    if any(a.ndim == 0 for a in parts):
        raise ShapeError("concatenate() cannot join arrays without axes", cure="use np.stack")
    return call("concat", *parts, axis=axis)


def stack(arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: Any = None) -> Any:
    refuse("numpy.stack", out=out)
    return call("stack", *(converted("stack", a, dtype, casting) for a in arrays), axis=axis)


def vstack(tup: Any, *, dtype: Any = None, casting: Any = None) -> Any:
    return concatenate([_at_least(as_tensor(a), 2) for a in tup], 0, dtype=dtype, casting=casting)


def hstack(tup: Any, *, dtype: Any = None, casting: Any = None) -> Any:
    parts = [_at_least(as_tensor(a), 1) for a in tup]
    return concatenate(parts, 0 if parts and parts[0].ndim == 1 else 1, dtype=dtype, casting=casting)


def dstack(tup: Any) -> Any:
    return concatenate([_at_least(as_tensor(a), 3) for a in tup], 2)


def column_stack(tup: Any) -> Any:
    parts = [as_tensor(a) for a in tup]
    return concatenate([a if a.ndim > 1 else ap.reshape(a, (-1, 1)) for a in parts], 1)


@located
def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    """With constant values."""
    refuse("numpy.pad", mode=None if mode == "constant" else mode)
    out = as_tensor(array)
    widths = _pairs(pad_width, out.ndim)
    values = np.broadcast_to(np.asarray(kwargs.pop("constant_values", 0)), (out.ndim, 2)).tolist()
    refuse("numpy.pad", **kwargs)
    for k, ends in enumerate(zip(widths, values)):
        parts = []
        for n, v in zip(*ends):
            n = check_extent(n)
            shape = (*out.shape[:k], n, *out.shape[k + 1:])
            parts.append(ap.full(v, shape, out.dtype) if n else None)
        found = [p for p in (parts[0], out, parts[1]) if p is not None]
        out = call("concat", *found, axis=k) if len(found) > 1 else out
    return out


def _pairs(widths: Any, rank: int) -> list[tuple[Any, ...]]:
    """Before and after, for each axis: from one number, one pair, or a pair per axis. Lengths stay symbolic."""
    rows = _tuple(widths.tolist() if isinstance(widths, np.ndarray) else widths)
    if not any(isinstance(row, (tuple, list)) for row in rows):
        rows = (rows,)
    pairs = [_tuple(row) * 2 if len(_tuple(row)) == 1 else _tuple(row) for row in rows] * (rank if len(rows) == 1 else 1)
    if len(pairs) != rank or any(len(pair) != 2 for pair in pairs):
        raise ShapeError(f"pad() needs two widths for each of {rank} axes, not {widths!r}",
                         cure="give one number for all, one pair for all, or a pair for each axis")
    return pairs


# ---------------------------------------------------------------------------------------- cutting
def _cut(a: Any, axis: int, start: Extent, stop: Extent) -> Any:
    return getitem(a, (*(slice(None),) * axis, slice(start, stop)))


@located
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    a = as_tensor(ary)
    k = check_axis(axis, a.ndim)
    if isinstance(indices_or_sections, (int, np.integer, Dim)):
        n, parts = a.shape[k], _few(indices_or_sections, "split(): the number of parts")
        if parts < 1 or n % parts != 0:
            raise ShapeError(f"split() cannot cut axis {k} of length {n} into {parts} equal parts",
                             cure="give the positions to cut at, or use np.array_split")
        return _pieces(a, [n // parts * i for i in range(int(parts) + 1)], k)
    return array_split(a, indices_or_sections, k)


@located
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    a = as_tensor(ary)
    k = check_axis(axis, a.ndim)
    n = a.shape[k]
    if isinstance(indices_or_sections, (int, np.integer)):
        parts, length = _few(indices_or_sections, "array_split(): the number of parts"), int(n)
        if parts < 1:
            raise ShapeError(f"array_split() cannot cut an axis into {parts} parts",
                             cure="give at least one part")
        each, longer = divmod(length, parts)
        return _pieces(a, [i * each + min(i, longer) for i in range(parts + 1)], k)
    cuts = [0, *(bounds(slice(None, check_extent(c)), n)[1] for c in indices_or_sections), n]
    return _pieces(a, cuts, k)


MOST = 10_000  # nodes that one call may write into a graph


def _few(n: Any, what: str) -> Any:
    """A number of nodes to make. Raises ArgumentError where a graph would never end."""
    if not isinstance(n, Dim):
        n = whole(n, what)
        if n > MOST:
            raise ArgumentError(f"{what} is {n}, more than {MOST}",
                                cure="each is an op of its own: use an op on the whole array")
    return n


def _pieces(a: Any, cuts: Sequence[Extent], axis: int) -> list[Any]:
    return [_cut(a, axis, start, stop) for start, stop in pairwise(cuts)]


@located
def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    a = as_tensor(x)
    k = check_axis(axis, a.ndim)
    return tuple(getitem(a, (*(slice(None),) * k, i)) for i in range(int(a.shape[k])))


def split_along(axis: int) -> Callable[..., list[Any]]:
    """np.hsplit and its like; hsplit of a vector cuts its only axis."""

    def split_(ary: Any, indices_or_sections: Any) -> list[Any]:
        a = as_tensor(ary)
        if a.ndim < max(axis + 1, 1 if axis == 1 else 2):
            raise ShapeError(f"{'vhd'[axis]}split() needs more axes than {a!r} has", cure="use np.split along an axis it has")
        return split(a, indices_or_sections, 0 if axis == 1 and a.ndim == 1 else axis)

    return split_


@located
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = np._NoValue, append: Any = np._NoValue) -> Any:
    out, n = as_tensor(a), whole(n, "n")
    if n < 0:
        raise ArgumentError(f"diff(): n must not be negative, as {n} is",
                            cure="give 0 or more")
    if n == 0:
        return out
    k = check_axis(axis, out.ndim)
    ends = [None if v is None or v is np._NoValue else as_tensor(v) for v in (prepend, append)]
    if any(v is not None for v in ends):  # a scalar stands for one element on the axis
        edge = (*out.shape[:k], 1, *out.shape[k + 1:])
        before, after = (v if v is None or v.ndim else ap.broadcast_to(v, edge) for v in ends)
        out = concatenate([v for v in (before, out, after) if v is not None], k)
    op = "not_equal" if out.dtype.kind == "b" else "subtract"
    for _ in range(_few(n, "diff(): n")):
        out = call(op, _cut(out, k, 1, out.shape[k]), _cut(out, k, 0, out.shape[k] - 1))
    return out


# ---------------------------------------------------------------------------------------- repeating
@located
def repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    """Each element `repeats` times, which must be one static integer."""
    if not isinstance(repeats, (int, np.integer, Dim)):
        raise ArgumentError("repeat(): repeats must be one static integer",
                            cure="for a number per element, use np.take(x, np.repeat(np.arange(n), repeats))")
    a, axis = in_line(a, axis)
    k = check_axis(axis, a.ndim)
    wide = call("broadcast_to", call("unsqueeze", a, axis=k + 1),
                shape=(*a.shape[:k + 1], check_extent(repeats), *a.shape[k + 1:]))
    return ap.reshape(wide, (*a.shape[:k], a.shape[k] * repeats, *a.shape[k + 1:]))


@located
def tile(A: Any, reps: Any) -> Any:
    a, times = as_tensor(A), check_shape(reps)
    a = ap.reshape(a, (1,) * (len(times) - a.ndim) + a.shape)
    times = (1,) * (a.ndim - len(times)) + times
    split_ = ap.reshape(a, tuple(m for n in a.shape for m in (1, n)))
    wide = ap.broadcast_to(split_, tuple(m for r, n in zip(times, a.shape) for m in (r, n)))
    return ap.reshape(wide, tuple(r * n for r, n in zip(times, a.shape)))


# ---------------------------------------------------------------------------------------- by index
@located
def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: Any = "raise") -> Any:
    refuse("numpy.take", out=out, mode=None if mode == "raise" else mode)
    a, axis = in_line(a, axis)
    return call("take", a, indices, axis=axis)


@located
def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    x, indices = as_tensor(arr), as_tensor(indices)
    if axis is None:
        x, axis = ap.reshape(x, (-1,)), 0
    if x.ndim != indices.ndim:
        raise ShapeError(f"take_along_axis() got shapes {fmt(x.shape)} and {fmt(indices.shape)}: "
                         "the ranks must be equal",
                         cure="use np.take for indices that choose whole rows")
    k = check_axis(axis, x.ndim)
    others = [(*v.shape[:k], 1, *v.shape[k + 1:]) for v in (x, indices)]
    around = broadcast_shapes("take_along_axis", others)
    x, indices = (ap.broadcast_to(v, (*around[:k], v.shape[k], *around[k + 1:])) for v in (x, indices))
    return call("gather", x, indices, axis=k)


def triangle(name: str) -> Callable[..., Any]:
    """np.tril and np.triu: the last two axes must be static."""

    def part(m: Any, k: int = 0) -> Any:
        m = as_tensor(m)
        if m.ndim < 2:
            raise ShapeError(f"{name}() needs at least two axes, not shape {fmt(m.shape)}",
                             cure="pass a matrix, e.g. x[None]")
        rows, columns = (int(n) for n in m.shape[-2:])
        k = max(-rows, min(whole(k, "k"), columns))
        mask = np.tri(rows, columns, k if name == "tril" else k - 1, dtype=bool)
        zero = ap.full(0, m.shape, m.dtype)
        return call("where", mask, m, zero) if name == "tril" else call("where", mask, zero, m)

    return located(part)


# ---------------------------------------------------------------------------------------- new arrays
def filled_like(name: str, value: Any) -> Callable[..., Any]:
    """np.zeros_like and its like."""

    def like(a: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None, *,
             device: Any = None) -> Any:
        refuse(f"numpy.{name}", order=order, device=device)
        a = as_tensor(a)
        return ap.full(value, a.shape if shape is None else shape, a.dtype if dtype is None else dtype)

    return like


zeros_like = filled_like("zeros_like", 0)


def new(shape: Any, value: Any, dtype: Any) -> Any:
    """np.full(shape, value, like=x) and its like, whose shape may be symbolic."""
    if dtype is None:
        dtype = value.dtype if isinstance(value, (Traced, np.ndarray, np.generic)) else type(value)
    return ap.full(value, shape, dtype)


def _constant(name: str, value: int) -> Callable[..., Any]:
    def filled(shape: Any, dtype: Any = None, order: Any = "C", *, device: Any = None,
               like: Any = None) -> Any:
        refuse(f"numpy.{name}", order=order, device=device)
        return new(shape, value, float if dtype is None else dtype)

    return filled


zeros, ones = _constant("zeros", 0), _constant("ones", 1)


def full(shape: Any, fill_value: Any, dtype: Any = None, order: Any = "C", *, device: Any = None,
         like: Any = None) -> Any:
    refuse("numpy.full", order=order, device=device)
    return new(shape, fill_value, dtype)


def full_like(a: Any, fill_value: Any, dtype: Any = None, **more: Any) -> Any:
    return filled_like("full_like", fill_value)(a, dtype, **more)


def _tuple(v: Any) -> tuple[Any, ...]:
    return tuple(v) if isinstance(v, (tuple, list)) else (v,)
