"""Views: ops that only change how storage is walked. They have no kernels; `contiguous` is the one that copies, and
`to_device` says where what is computed from a value runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core import scalar
from ..core.dims import Extent, product
from ..core.errors import ArgumentError, AxisError, ShapeError
from ..core.layout import Shape
from ..core.ops import Attr, Aval, Axis, Int, ShapeAttr, check_axis, check_extent, fmt, op, shown


def _permutation(axes: Any, avals: Any) -> tuple[int, ...]:
    if not isinstance(axes, (tuple, list, range)):
        raise ArgumentError(f"axes must be a tuple of integers, not {shown(axes)}",
                            cure="name every axis once, e.g. (1, 0)")
    found = tuple(check_axis(a, avals[0].rank) for a in axes)
    if sorted(found) != list(range(avals[0].rank)):
        raise AxisError(f"axes {tuple(axes)} do not name each of {avals[0].rank} axes once",
                        cure="name every axis once, e.g. (1, 0)")
    return found


def _extent_attr(default: Any) -> Attr:
    return Attr(lambda v, _: check_extent(v), default, "int")


def _permute(x: Aval, axes: tuple[int, ...]) -> Aval:
    return Aval(tuple(x.shape[a] for a in axes), x.dtype)


def _broadcast_to(x: Aval, shape: Shape) -> Aval:
    lead = len(shape) - x.rank
    if lead < 0 or any(n != 1 and n != m for n, m in zip(x.shape, shape[lead:])):
        raise ShapeError(f"cannot broadcast shape {fmt(x.shape)} to {fmt(shape)}",
                         cure="lengths must be equal or 1, counted from the last axis")
    return Aval(shape, x.dtype)


def _slice(x: Aval, axis: int, start: Extent, length: Extent, step: int) -> Aval:
    last = start + (length - 1) * step
    if length < 0:
        raise ShapeError(f"slice() cannot have the negative length {length}",
                         cure="give a length of 0 or more")
    if length != 0 and not (0 <= start < x.shape[axis] and 0 <= last < x.shape[axis]):
        raise ShapeError(f"slice() of {length} elements from {start} by {step} leaves axis {axis} of length {x.shape[axis]}",
                         cure="a slice must lie within its axis")
    return Aval(x.shape[:axis] + (length,) + x.shape[axis + 1:], x.dtype)


def _squeeze(x: Aval, axis: int) -> Aval:
    if x.shape[axis] != 1:
        raise ShapeError(f"cannot squeeze axis {axis} of length {x.shape[axis]}: only axes of length 1 can go",
                         cure="index the element you want, or reshape")
    return Aval(x.shape[:axis] + x.shape[axis + 1:], x.dtype)


def _reshape(x: Aval, shape: Shape) -> Aval:
    if product(x.shape) != product(shape):
        raise ShapeError(f"cannot reshape {fmt(x.shape)} ({product(x.shape)} elements) to {fmt(shape)} "
                         f"({product(shape)} elements)",
                         cure="the numbers of elements must be equal; one length may be -1")
    return Aval(shape, x.dtype)


def _slice_ref(x: Any, axis: int, start: int, length: int, step: int) -> Any:
    return np.take(x, [start + k * step for k in range(length)], axis)


def _samples(*attrs: dict[str, Any], shape: tuple[int, ...] = (3, 4, 5)) -> Any:
    """Views of one array, with these attributes."""
    return lambda: [((np.arange(float(np.prod(shape))).reshape(shape),), a) for a in attrs]


def _device(value: Any, avals: Any) -> str:
    if not isinstance(value, str):
        raise ArgumentError(f"a device is named by a string, not {shown(value)}", cure="'cpu' or 'vulkan', for example")
    return value


_insert = Attr(lambda v, avals: check_axis(v, avals[0].rank + 1), kind="axis")

op("permute", "view", "x", attrs={"axes": Attr(_permutation, kind="permutation")}, infer=_permute, domain="mixed",
   samples=_samples({"axes": (2, 0, 1)}, {"axes": (0, 1, 2)}, {"axes": (1, 0, 2)}),
   view=lambda x, axes: x.permute(axes), ref=lambda x, axes: np.transpose(x, axes),
   like="numpy.transpose, torch.permute", args={"axes": "each axis of x once; a negative one counts from the end"},
   shapes="out.shape[k] is x.shape[axes[k]]", raises={"AxisError": "axes do not name each axis once"},
   doc="axes in another order: out axis k is x's axis axes[k]")
op("broadcast_to", "view", "x", attrs={"shape": ShapeAttr()}, infer=_broadcast_to, domain="mixed",
   samples=_samples({"shape": (2, 3, 4, 5)}, {"shape": (3, 4, 5)}),
   view=lambda x, shape: x.broadcast_to(shape), ref=lambda x, shape: np.broadcast_to(x, shape),
   like="numpy.broadcast_to, torch.broadcast_to", args={"shape": "the lengths of the result"}, shapes="the given one",
   raises={"ShapeError": "a length of x is neither 1 nor that of the shape"},
   doc="x repeated along axes of length 1 and new leading axes, by NumPy's rule")
op("slice", "view", "x",
   samples=_samples(*({"axis": a, "start": b, "length": n, "step": s} for a, b, n, s in
                      [(0, 1, 2, 1), (1, 3, 4, -1), (2, 0, 3, 2), (2, 4, 2, -3), (1, 2, 0, 1)])),
   domain="mixed", infer=_slice, ref=_slice_ref,
   attrs={"axis": Axis(), "start": _extent_attr(0), "length": _extent_attr(1), "step": _extent_attr(1)},
   view=lambda x, axis, start, length, step: x.slice(axis, start, length, step),
   like="x[start:start + length * step:step] of one axis, torch.narrow", shapes="x's, with `length` on the axis",
   args={"axis": "the axis of x that is cut; a negative one counts from the end", "start": "the first element, from 0",
         "length": "how many elements", "step": "from one element to the next"},
   raises={"ShapeError": "an element lies outside of x"},
   doc="`length` elements of one axis, from `start` on, every `step`-th; a negative step walks backwards")
op("flip", "view", "x", attrs={"axis": Axis()}, infer=lambda x, axis: x, domain="mixed",
   samples=_samples({"axis": 0}, {"axis": -1}),
   view=lambda x, axis: x.flip(axis), ref=lambda x, axis: np.flip(x, axis),
   like="numpy.flip, torch.flip", shapes="x's", doc="one axis reversed")
op("squeeze", "view", "x", attrs={"axis": Axis()}, infer=_squeeze, domain="mixed",
   samples=_samples({"axis": 0}, {"axis": -1}, shape=(1, 12, 1)),
   view=lambda x, axis: x.squeeze(axis), ref=lambda x, axis: np.squeeze(x, axis),
   like="numpy.squeeze, torch.squeeze", args={"axis": "the axis or axes to leave out; None: all of length 1"},
   shapes="x's without these axes", raises={"ShapeError": "an axis has another length than 1"},
   doc="x without an axis of length 1")
op("unsqueeze", "view", "x", attrs={"axis": _insert},
   samples=_samples({"axis": 0}, {"axis": 3}, {"axis": 1}),
   domain="mixed", like="numpy.expand_dims, torch.unsqueeze",
   args={"axis": "where the new axis is in the result; a negative one counts from the end"},
   shapes="x's with a 1 more, at the axis",
   infer=lambda x, axis: Aval(x.shape[:axis] + (1,) + x.shape[axis:], x.dtype),
   view=lambda x, axis: x.unsqueeze(axis), ref=lambda x, axis: np.expand_dims(x, axis),
   doc="x with a new axis of length 1 before `axis`")
op("reshape", "view", "x", attrs={"shape": ShapeAttr()}, infer=_reshape, domain="mixed",
   samples=_samples({"shape": (12, 5)}, {"shape": (5, 12)}, {"shape": (10, 2, 3)}, {"shape": (60,)}),
   view=lambda x, shape: x.reshape(shape), ref=lambda x, shape: np.reshape(x, shape),
   like="numpy.reshape, torch.reshape", args={"shape": "the lengths of the result, of which one may be -1: what is left"},
   shapes="the given one", raises={"ShapeError": "it has another number of elements than x"},
   doc="the same elements in row-major order under another shape; copies when x's layout does not allow a view")
op("to_device", "memory", "x", attrs={"device": Attr(_device, kind="device")}, infer=lambda x, device: x, domain="mixed",
   samples=_samples({"device": "cpu"}), ref=lambda x, device: x, decompose=lambda build, inputs, device: inputs[0],
   shapes="x's", raises={"BackendError": "the device is not there"},
   doc="x itself, on a device: what is computed from it runs there")
op("contiguous", "elementwise", "x", infer=lambda x: x, expr=scalar.arg(0), ref=lambda x: np.array(x, order="C"), domain="mixed",
   like="numpy.ascontiguousarray, torch.Tensor.contiguous", doc="a row-major copy")
op("copy", "elementwise", "x", infer=lambda x, uid: x, expr=scalar.arg(0), ref=lambda x, uid: np.array(x), domain="mixed",
   attrs={"uid": Int()}, doc="a copy of its own, made where a later write would reach an earlier reader")
