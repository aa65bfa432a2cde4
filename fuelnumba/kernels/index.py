"""Reading by index: gather, take, index_select, embedding. Elements move as raw storage: any dtype is served.

Signed indices count from the end when negative, as in NumPy. An index out of range stops nothing: the kernel
notes it in `status` (code 1, the index, the site, the length of the axis) and skips that row; the caller
raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fuelnumba.core import dtypes as dt
from fuelnumba.core.dims import product, same
from fuelnumba.core.errors import DTypeError, ShapeError
from fuelnumba.core.layout import collapse
from fuelnumba.core.ops import CPU, Aval, Axis, Launch, Operand, fmt, op
from fuelnumba.kernels.generic import I, copy_element, load
from fuelnumba.kernels.lang import fault, i64

INDEX_TYPES = (dt.i64, dt.i32, dt.u32)
TYPES = {"T": dt.ALL, "I": INDEX_TYPES}


# ---------------------------------------------------------------- kernels
def gather_rows(x, indices: I, out, length: int, chosen: int, inner: int, status, site, lo, hi):
    """x [outer, length, inner], indices and out [outer, chosen, inner]: every element has its own index."""
    slab = lo // chosen * length
    row_end = (lo // chosen + 1) * chosen
    for item in range(lo, hi):
        if item == row_end:
            slab = slab + length
            row_end = row_end + chosen
        row = item * inner
        for j in range(inner):
            given = i64(load(indices, row + j))
            k = given
            if k < 0:
                k = k + length
            if k >= 0 and k < length:
                copy_element(out, row + j, x, (slab + k) * inner + j)
            else:
                fault(status, 1, given, site, length)


def take_rows(x, indices: I, out, length: int, chosen: int, inner: int, outer_stride: int, axis_stride: int,
              inner_stride: int, UNIT: bool, status, site, lo, hi):
    """x [outer, length, inner] by strides, indices [chosen], out [outer, chosen, inner]: rows are copied."""
    slab = lo // chosen
    at = lo - slab * chosen - 1
    for item in range(lo, hi):
        at = at + 1
        if at == chosen:
            at = i64(0)
            slab = slab + 1
        given = i64(load(indices, at))
        k = given
        if k < 0:
            k = k + length
        if k >= 0 and k < length:
            row = item * inner
            source = slab * outer_stride + k * axis_stride
            if UNIT:
                for j in range(inner):
                    copy_element(out, row + j, x, source + j)
            else:
                for j in range(inner):
                    copy_element(out, row + j, x, source + j * inner_stride)
        else:
            fault(status, 1, given, site, length)


def gather_launch(inputs: Sequence[Operand], outputs: Sequence[Operand], attrs: Mapping[str, Any]) -> Launch:
    x, indices = inputs
    axis = attrs["axis"]
    inner = product(indices.shape[axis + 1:])
    args = {"length": x.shape[axis], "chosen": indices.shape[axis], "inner": inner}
    return Launch(args, product(indices.shape[:axis + 1]), inner * 2)


def _around(x: Operand, axis: int) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
    """(length, stride) of the collapsed axes before `axis`, and of those after it."""
    before, (before_strides,) = collapse(x.layout.shape[:axis], [x.layout.strides[:axis]])
    after, (after_strides,) = collapse(x.layout.shape[axis + 1:], [x.layout.strides[axis + 1:]])
    return list(zip(before, before_strides)), list(zip(after, after_strides))


def take_accepts(inputs: Sequence[Operand], attrs: Mapping[str, Any]) -> str | None:
    if not inputs[1].layout.is_contiguous:
        return "the indices are not contiguous"
    before, after = _around(inputs[0], attrs.get("axis", 0))
    if len(before) > 1 or len(after) > 1:
        return "the axes before or after the indexed one do not lie one after the other"
    return None


def take_launch(inputs: Sequence[Operand], outputs: Sequence[Operand], attrs: Mapping[str, Any]) -> Launch:
    x, indices = inputs
    axis = attrs.get("axis", 0)
    before, after = _around(x, axis)
    outer, outer_stride = before[0] if before else (1, 0)
    inner, inner_stride = after[0] if after else (1, 1)
    chosen = product(indices.shape)
    args = {"length": x.shape[axis], "chosen": chosen, "inner": inner, "outer_stride": outer_stride,
            "axis_stride": x.layout.strides[axis], "inner_stride": inner_stride}
    return Launch(args, outer * chosen, inner + 4, {"UNIT": same(inner_stride, 1)})


# ---------------------------------------------------------------- declarations
_INDICES = {"indices": "integers; a negative one counts from the end of the axis"}
_NOT_INTEGERS = {"DTypeError": "the indices are no integers"}


def check_indices(name: str, indices: Aval) -> None:
    if indices.dtype not in INDEX_TYPES:
        raise DTypeError(f"{name}(): indices are {indices.dtype}", cure="cast them: indices.astype(np.int64)")


def infer_gather(x: Aval, indices: Aval, *, axis: int) -> Aval:
    check_indices("gather", indices)
    if indices.rank != x.rank:
        raise ShapeError(f"gather() got {x} and indices of rank {indices.rank}: the ranks must be equal",
                         cure="use take() for indices that choose whole rows")
    for k, (n, m) in enumerate(zip(x.shape, indices.shape)):
        if k != axis and n != m:
            raise ShapeError(f"gather() got shapes {fmt(x.shape)} and {fmt(indices.shape)}: axis {k} is {n} "
                             f"in one and {m} in the other, and only axis {axis} may differ",
                             cure="broadcast the indices first, or use np.take_along_axis, which does")
    return Aval(indices.shape, x.dtype)


def infer_take(x: Aval, indices: Aval, *, axis: int) -> Aval:
    check_indices("take", indices)
    return Aval(x.shape[:axis] + indices.shape + x.shape[axis + 1:], x.dtype)


def infer_index_select(x: Aval, indices: Aval, *, axis: int) -> Aval:
    if indices.rank != 1:
        raise ShapeError(f"index_select() needs indices of rank 1, not {fmt(indices.shape)}",
                         cure="use take() for indices of any shape")
    check_indices("index_select", indices)
    return Aval(x.shape[:axis] + indices.shape + x.shape[axis + 1:], x.dtype)


def infer_embedding(weight: Aval, indices: Aval) -> Aval:
    if weight.rank != 2:
        raise ShapeError(f"embedding() needs a table of rank 2, not {weight}",
                         cure="use take(x, indices, axis=0) for other ranks")
    check_indices("embedding", indices)
    return Aval(indices.shape + weight.shape[1:], weight.dtype)


def take_ref(x: Any, indices: Any, *, axis: int = 0) -> Any:
    return np.take(x, indices.astype(np.int64), axis=axis)


def gather_ref(x: Any, indices: Any, *, axis: int) -> Any:
    return np.take_along_axis(x, indices.astype(np.int64), axis=axis)


def _data() -> np.ndarray[Any, Any]:
    return (np.arange(3 * 5 * 7, dtype=np.float64).reshape(3, 5, 7) * 37) % 101


def gather_samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    for axis, n in ((0, 4), (1, 2), (2, 9)):
        shape = (3, 5, 7)[:axis] + (n,) + (3, 5, 7)[axis + 1:]
        length = (3, 5, 7)[axis]
        yield (_data(), np.arange(np.prod(shape)).reshape(shape) * 5 % (2 * length) - length), {"axis": axis}


def take_samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    yield (_data(), np.array([2, 0, -1, 2])), {"axis": 0}
    yield (_data(), np.array([[4, -5, 1], [0, 3, 3]])), {"axis": 1}
    yield (_data(), np.array(6)), {"axis": -1}


def index_select_samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    yield (_data(), np.array([2, 0, -1, 2])), {"axis": 0}
    yield (_data(), np.array([6])), {"axis": 2}


def embedding_samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    yield (_data()[0], np.array([[4, 0, 1], [2, 2, -1]])), {}
    yield (_data()[1], np.array(3)), {}


gather = op("gather", "index", "x indices", infer=infer_gather, attrs={"axis": Axis()}, ref=gather_ref,
            domain="mixed", samples=gather_samples,
            like="numpy.take_along_axis, torch.gather", args=_INDICES, shapes="that of the indices",
            raises={**_NOT_INTEGERS, "ShapeError": "x and indices differ in rank, or in a length of another axis"},
            doc="out[i, j] = x[indices[i, j], j] (for axis 0): take_along_axis")
take = op("take", "index", "x indices", infer=infer_take, attrs={"axis": Axis()}, ref=take_ref,
          domain="mixed", samples=take_samples, like="numpy.take", args=_INDICES, raises=_NOT_INTEGERS,
          shapes="x.shape[:axis] + indices.shape + x.shape[axis + 1:]", doc="the slices of x along an axis that the indices name")
index_select = op("index_select", "index", "x indices", infer=infer_index_select, attrs={"axis": Axis()},
                  ref=take_ref, domain="mixed", samples=index_select_samples,
                  like="torch.index_select, numpy.take", args=_INDICES,
                  shapes="x's, with the number of indices on the axis",
                  raises={**_NOT_INTEGERS, "ShapeError": "the indices have not one axis"},
                  doc="take() with indices of rank 1")
embedding = op("embedding", "index", "weight indices", infer=infer_embedding, ref=take_ref, domain="mixed",
               samples=embedding_samples, like="torch.nn.functional.embedding",
               args={"weight": "the table, (rows, width)", "indices": "numbers of rows; a negative one counts from the end"},
               shapes="indices.shape + (width,)", raises={**_NOT_INTEGERS, "ShapeError": "the table has not two axes"},
               doc="rows of a table")

gather.kernel(CPU, TYPES, launch=gather_launch)(gather_rows)
for _op in (take, index_select, embedding):
    _op.kernel(CPU, TYPES, launch=take_launch, strided=True, accepts=take_accepts)(take_rows)
