"""Writing into buffers: write_slice, and concat and stack in terms of it.

`write_slice` destroys its first input: its result is that buffer's next version, in the same storage. The
kernel does not get the destroyed input; its output pointer is that storage, holding the old values. The
source may have any layout, but the two must not overlap: the planner copies the source first when they might.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fuelnumba.core import dtypes as dt
from fuelnumba.core.dims import Extent, product, same
from fuelnumba.core.errors import ArgumentError, DTypeError, ShapeError
from fuelnumba.core.layout import collapse, contiguous
from fuelnumba.core.ops import CPU, OPS, Attr, Aval, Axis, Launch, Operand, check_axis, check_extent, fmt, op
from fuelnumba.kernels.generic import I, ceil_div, copy_element, load, numbered, pad
from fuelnumba.kernels.index import INDEX_TYPES
from fuelnumba.kernels.lang import fault, i64, select

AXES = 5  # axes a copy walks, after collapsing
RUN = 4096  # elements of the last one per work item


# ---------------------------------------------------------------- write_slice
def write_slice_rows(src, start: I, out, n1: int, n2: int, n3: int, n4: int,
                     s0: int, s1: int, s2: int, s3: int, s4: int,
                     d0: int, d1: int, d2: int, d3: int, d4: int, base: int, start_at: int, start_limit: int,
                     start_stride: int, runs: int, HAS_START: bool, UNIT: bool, status, site, lo, hi):
    """Copy src (strides s) to out (strides d) from element `base` on; a work item is a run of up to 4096
    elements.

    A run-time start adds `start * start_stride`; start_at + start must lie in 0..start_limit, or nothing is
    written.
    """
    origin = i64(base)
    faults = i64(0)
    if HAS_START:
        moved = i64(load(start, 0))
        origin = origin + moved * start_stride
        first_row = start_at + moved
        if first_row < 0 or first_row > start_limit:
            faults = i64(1)
            fault(status, 2, first_row, site, start_limit)
    if faults == 0 and status[0] == 0:
        for item in range(lo, hi):
            row = item // runs
            first = item % runs * 4096
            count = select(n4 - first < 4096, n4 - first, 4096)
            c3 = row % n3
            row = row // n3
            c2 = row % n2
            row = row // n2
            c1 = row % n1
            c0 = row // n1
            source = c0 * s0 + c1 * s1 + c2 * s2 + c3 * s3 + first * s4
            target = origin + c0 * d0 + c1 * d1 + c2 * d2 + c3 * d3 + first * d4
            if UNIT:
                for j in range(count):
                    copy_element(out, target + j, src, source + j)
            else:
                for j in range(count):
                    copy_element(out, target + j * d4, src, source + j * s4)


def write_slice_launch(inputs: Sequence[Operand], outputs: Sequence[Operand],
                       attrs: Mapping[str, Any]) -> Launch:
    src, out = inputs[0], outputs[0]
    strides = contiguous(out.shape).strides
    shape, (source, target) = collapse(src.shape, [src.layout.strides, strides])
    n, s, d = (pad(v, AXES, filler) for v, filler in ((shape, 1), (source, 0), (target, 0)))
    at, axis = attrs["at"], attrs["axis"]
    base: Extent = 0
    for a, stride in zip(at, strides):
        base = base + a * stride
    args = {**numbered("n", n), **numbered("s", s), **numbered("d", d), "base": base,
            "runs": ceil_div(n[-1], RUN), "start_at": 0, "start_limit": 0, "start_stride": 0}
    del args["n0"]
    if axis is not None:
        args |= {"start_at": at[axis], "start_limit": out.shape[axis] - src.shape[axis],
                 "start_stride": strides[axis]}
    bake = {"HAS_START": axis is not None, "UNIT": (same(s[-1], 1) and same(d[-1], 1)) or not shape}
    return Launch(args, product(n[:-1]) * args["runs"], RUN, bake)


def write_slice_accepts(inputs: Sequence[Operand], attrs: Mapping[str, Any]) -> str | None:
    long = [n for n in inputs[0].shape if not same(n, 1)]
    return f"the source has {len(long)} axes, more than {AXES}" if len(long) > AXES else None


def _check_at(value: Any, avals: Sequence[Aval]) -> tuple[Extent, ...]:
    rank = avals[0].rank
    if value is None:
        return (0,) * rank
    at = tuple(check_extent(v) for v in (value if isinstance(value, (tuple, list)) else (value,)))
    if len(at) != rank:
        raise ArgumentError(f"{fmt(at)} needs one start for each of {rank} axes",
                            cure="give a tuple with a start for every axis")
    return at


def _check_optional_axis(value: Any, avals: Sequence[Aval]) -> int | None:
    return None if value is None else check_axis(value, avals[0].rank)


def infer_write_slice(x: Aval, src: Aval, start: Aval | None = None, *, at: tuple[Extent, ...],
                      axis: int | None) -> Aval:
    """x's shape and dtype. Raises ShapeError when the slice leaves x, naming start, length and bound."""
    if src.rank != x.rank:
        raise ShapeError(f"write_slice() got {x} and a source of rank {src.rank}: the ranks must be equal",
                         cure="insert axes: src[None]")
    if src.dtype is not x.dtype:
        raise DTypeError(f"write_slice() cannot write {src.dtype} into {x.dtype}",
                         cure="cast the source: src.astype(x.dtype)")
    if (start is None) is not (axis is None):
        raise ArgumentError("write_slice() needs both start and axis, or neither",
                            cure="pass start together with axis")
    if start is not None and (start.rank != 0 or start.dtype not in INDEX_TYPES):
        raise ArgumentError(f"write_slice(): start must be an integer scalar, not {start}",
                            cure="give an int, or a traced integer without axes")
    for k, (first, n, bound) in enumerate(zip(at, src.shape, x.shape)):
        if k == axis:  # where it begins is known at run time only
            if n > bound:
                raise ShapeError(f"write_slice(): length {n} exceeds the bound {bound} of axis {k}",
                                 cure="cut the source, or write into a longer buffer")
        elif first < 0 or first + n > bound:
            raise ShapeError(f"write_slice(): start {first} with length {n} leaves axis {k}, "
                             f"whose bound is {bound}",
                             cure="starts are not negative, and start + length must not pass the bound")
    return x


def write_slice_ref(x: Any, src: Any, start: Any = None, *, at: tuple[int, ...], axis: int | None) -> Any:
    out, begin = np.array(x), list(at)
    if axis is not None:
        begin[axis] += int(start)
        if not 0 <= begin[axis] <= x.shape[axis] - src.shape[axis]:
            raise IndexError(f"start {begin[axis]} with length {src.shape[axis]} leaves axis {axis}")
    out[tuple(slice(b, b + n) for b, n in zip(begin, src.shape))] = src
    return out


def write_slice_samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    x, src = np.arange(105.0).reshape(3, 5, 7), -np.arange(1.0, 9.0).reshape(2, 2, 2)
    yield (x, src), {"at": (1, 3, 4)}
    yield (x, src, np.array(3)), {"at": (1, 0, 4), "axis": 1}
    yield (x[0], -x[0, 1:3]), {"at": (2, 0)}
    yield (np.arange(5.0), np.zeros(0)), {"at": (5,)}


write_slice = op("write_slice", "memory", "x src start?", infer=infer_write_slice, ref=write_slice_ref,
                 domain="mixed", attrs={"at": Attr(_check_at, None, "shape"),
                                        "axis": Attr(_check_optional_axis, None, "axis")},
                 destroys=0, samples=write_slice_samples, like="x[at:at + n] = src on a copy, jax.lax.dynamic_update_slice",
                 args={"src": "what is written, cast to x's dtype; it gets the leading axes it lacks",
                       "at": "where it begins: a start for each axis, of which one may be a traced integer; one number is "
                             "that of axis 0"},
                 shapes="x's", raises={"ShapeError": "src does not lie within x, or has more axes",
                                       "DTypeError": "a traced start is no integer",
                                       "FuelIndexError": "a traced start puts src outside of x"},
                 doc="x with src written into it, beginning at `at`")
write_slice.kernel(CPU, {"T": dt.ALL, "I": INDEX_TYPES}, launch=write_slice_launch, strided=True,
                   accepts=write_slice_accepts)(write_slice_rows)


# ---------------------------------------------------------------- concat, stack, split
def infer_concat(*xs: Aval, axis: int) -> Aval:
    if not xs:
        raise ArgumentError("concat() needs at least one array",
                            cure="pass one or more")
    total: Extent = 0
    for x in xs:
        if x.dtype is not xs[0].dtype:
            raise DTypeError(f"concat() got {xs[0].dtype} and {x.dtype}", cure="cast one of them")
        pairs = enumerate(zip(x.shape, xs[0].shape))
        if x.rank != xs[0].rank or any(n != m for k, (n, m) in pairs if k != axis):
            raise ShapeError(f"concat() got shapes {fmt(xs[0].shape)} and {fmt(x.shape)}: "
                             f"only axis {axis} may differ",
                             cure="transpose, pad or cut the others to one shape, or name another axis")
        total = total + x.shape[axis]
    return Aval(xs[0].shape[:axis] + (total,) + xs[0].shape[axis + 1:], xs[0].dtype)


def decompose_concat(builder: Any, inputs: Sequence[Any], *, axis: int) -> Any:
    """One write per array into a fresh buffer."""
    if len(inputs) == 1:
        return inputs[0]
    shape = infer_concat(*(n.aval for n in inputs), axis=axis).shape
    out = builder.empty(shape, inputs[0].dtype)
    first: Extent = 0
    for n in inputs:
        if not same(n.shape[axis], 0):
            at = tuple(first if k == axis else 0 for k in range(len(shape)))
            out = builder.op(write_slice, (out, n), at=at, axis=None)
        first = first + n.shape[axis]
    return out


def infer_stack(*xs: Aval, axis: int) -> Aval:
    if not xs:
        raise ArgumentError("stack() needs at least one array",
                            cure="pass one or more")
    for x in xs:
        if x.dtype is not xs[0].dtype:
            raise DTypeError(f"stack() got {xs[0].dtype} and {x.dtype}", cure="cast one of them")
        if x.shape != xs[0].shape:
            raise ShapeError(f"stack() got shapes {fmt(xs[0].shape)} and {fmt(x.shape)}: they must be equal",
                             cure="broadcast or cut them to one shape; concat joins arrays that differ along one axis")
    return Aval(xs[0].shape[:axis] + (len(xs),) + xs[0].shape[axis:], xs[0].dtype)


def decompose_stack(builder: Any, inputs: Sequence[Any], *, axis: int) -> Any:
    return decompose_concat(builder, [builder.op(OPS["unsqueeze"], (n,), axis=axis) for n in inputs],
                            axis=axis)


def concat_ref(*xs: Any, axis: int) -> Any:
    return np.concatenate(xs, axis=axis)


def stack_ref(*xs: Any, axis: int) -> Any:
    return np.stack(xs, axis=axis)


def concat_samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    x = np.arange(105.0).reshape(3, 5, 7)
    yield (x, -x[:2]), {"axis": 0}
    yield (x, -x[:, :0], x[:, :1]), {"axis": 1}
    yield (x, x[..., :3]), {"axis": -1}
    yield (x,), {"axis": 0}


def stack_samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    x = np.arange(15.0).reshape(3, 5)
    for axis in (0, 1, 2):
        yield (x, -x, x + 1), {"axis": axis}


concat = op("concat", "memory", "*xs", infer=infer_concat, attrs={"axis": Axis(0)}, ref=concat_ref,
            samples=concat_samples, decompose=decompose_concat,
            like="numpy.concatenate, torch.cat", args={"xs": "arrays, or one list of arrays"},
            shapes="that of each, with the sum of their lengths on the axis",
            raises={"ShapeError": "the shapes differ on another axis", "ArgumentError": "no array is given",
                    "PromotionError": "an 8-bit float meets another dtype"},
            doc="arrays one after the other along an axis")
stack = op("stack", "memory", "*xs", infer=infer_stack, ref=stack_ref, samples=stack_samples,
           decompose=decompose_stack,
           attrs={"axis": Attr(lambda v, avals: check_axis(v, avals[0].rank + 1), 0, "axis")},
           like="numpy.stack, torch.stack", shapes="that of each, with their number as a new axis",
           args={"xs": "arrays of one shape, or one list of them",
                 "axis": "where the new axis is in the result; a negative one counts from the end"},
           raises={"ShapeError": "the shapes differ", "ArgumentError": "no array is given",
                   "PromotionError": "an 8-bit float meets another dtype"},
           doc="arrays of one shape along a new axis")


def split_bounds(length: int, sections: int | Sequence[int], *, name: str = "split") -> list[tuple[int, int]]:
    """(start, length) of the parts of an axis: so many equal ones, or cut at the given positions.

    Raises ShapeError when the parts would not be equal. (A node has one output: split is that many slices.)
    """
    if isinstance(sections, (int, np.integer)):
        if sections < 1 or length % sections:
            raise ShapeError(f"{name}() cannot cut an axis of length {length} into {sections} equal parts",
                             cure="give the positions to cut at, or use array_split")
        n = length // sections
        return [(k * n, n) for k in range(sections)]
    cuts = [slice(None, c).indices(length)[1] for c in sections]
    edges = list(zip([0, *cuts], [*cuts, length]))
    return [(a, max(b - a, 0)) for a, b in edges]
