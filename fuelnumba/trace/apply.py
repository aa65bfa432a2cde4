"""`apply`: the front door of every op. Wraps arguments, promotes, broadcasts, checks, and records a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core import dtypes as dt
from ..core import ir
from ..core.dims import Dim, Extent, divide_exact, product, same, same_shape
from ..core.dtypes import DType, dtype_of
from ..core.errors import ArgumentError, DTypeError, InputArrayError, ShapeError
from ..core.ir import Node
from ..core.layout import Shape
from ..core.ops import OPS, Aval, OpDef, broadcast_shapes, check_shape, check_size, fmt
from ..core.source import Location, user_location
from . import promote
from .foreign import check_array, described, instead
from .promote import Operand
from .traced import Narrowing, Trace, Traced, check_alive, in_form, located, running_trace


@located
def apply(op: OpDef, *args: Any, **attrs: Any) -> Any:
    """Record `op(*args, **attrs)` into the running trace and return its traced result.

    `args` are traced values, arrays, NumPy scalars, Python numbers, or lists of numbers. Errors point at the
    user's line.
    """
    trace, where = running_trace(f"{op.name}()", args), user_location()
    operands = [operand(trace, op.name, name, a) for name, a in zip(_names(op, args), args)]
    meeting = promote.meet(op, operands)
    nodes = [promote.settle(op, o, meeting, where) for o in operands]
    for o in operands:
        if o.role == "data" and meeting.dtype is not None:
            _must_fit(trace, o, meeting.dtype, op.name, where)
    if op.is_elementwise and len(nodes) > 1:
        shape = broadcast_shapes(op.name, [n.shape for n in nodes])
        nodes = [spread(n, shape, where) for n in nodes]
    given = op.check_attrs([n.aval for n in nodes], attrs)
    if op.last_axis:
        return trace.wrap(_on_last_axis(op, nodes, given, where), None, where)
    node = ir.make(op, nodes, given, where)
    check_size(op.name, node.aval)
    return trace.wrap(node, node.dtype.kind if meeting.weak else None, where)


def _must_fit(trace: Trace, o: Operand, dtype: DType, op: str, where: Location | None) -> None:
    """Have calls look whether a Python int that is not known yet fits the integer dtype it is brought to."""
    if promote.unknown_int(o) and dtype.is_integer and dtype is not dt.i64:
        assert o.node is not None
        trace.narrowings.append(Narrowing(o.node, dtype, op, where))


def call(name: str, *args: Any, **attrs: Any) -> Any:
    """`apply` for an op by its name."""
    return apply(OPS[name], *args, **attrs)


def _names(op: OpDef, args: Sequence[Any]) -> list[str]:
    """The parameter that each argument goes to."""
    least, most = op.arity()
    if not least <= len(args) <= most:
        upto = f"at least {least}" if most == float("inf") else f"{least} to {most}"
        takes = str(least) if least == most else upto
        arrays = "array" if takes.split()[-1] == "1" else "arrays"
        raise ArgumentError(f"{op.name}() takes {takes} {arrays} ({', '.join(op.inputs)}), not {len(args)}",
                            cure="parameters that are no arrays go by name")
    if not args:
        raise ArgumentError(f"{op.name}() needs at least one array",
                            cure="pass one or more")
    names = [n.rstrip("?").lstrip("*") for n in op.inputs]
    return names[:len(args)] + names[-1:] * (len(args) - len(names))


def _on_last_axis(op: OpDef, nodes: list[Node], attrs: dict[str, Any], where: Location | None) -> Node:
    """Apply an op whose kernels want an axis last: arrays of the first one's rank are permuted."""
    rank, axis = len(nodes[0].shape), attrs[op.last_axis]
    if rank == 0 or axis == rank - 1:
        return ir.make(op, nodes, attrs, where)
    axes = (*(k for k in range(rank) if k != axis), axis)
    nodes = [_permuted(n, axes, where) if len(n.shape) == rank else n for n in nodes]
    out = ir.make(op, nodes, {**attrs, op.last_axis: rank - 1}, where)
    return out if len(out.shape) != rank else _permuted(out, tuple(int(k) for k in np.argsort(axes)), where)


def _permuted(node: Node, axes: tuple[int, ...], where: Location | None) -> Node:
    return ir.make(OPS["permute"], (node,), {"axes": axes}, where)


def spread(node: Node, shape: Shape, where: Location | None = None) -> Node:
    """The node broadcast to a shape: a scalar is written at that shape, an array gets a `broadcast_to` view.

    A length that equals its target only by a guard of the trace keeps its own name.
    """
    if node.op is ir.FULL:
        return ir.full_node(node.attr("value"), shape, node.dtype, where)
    lead = len(shape) - len(node.shape)
    shape = shape[:lead] + tuple(n if n == m else m for n, m in zip(node.shape, shape[lead:]))
    if same_shape(node.shape, shape):
        return node
    return ir.make(OPS["broadcast_to"], (node,), {"shape": shape}, where)


# ---------------------------------------------------------------------------------------- arguments
def operand(trace: Trace, op: str, name: str, value: Any) -> Operand:
    """An argument as an operand: a traced value, a captured array, a NumPy scalar, or a weak number."""
    if isinstance(value, Traced):
        check_alive(value)
        return Operand(name, value.node, None, value.weak)
    if isinstance(value, bool):
        return Operand(name, None, value, "b")
    if isinstance(value, (int, Dim)) and not isinstance(value, np.generic):
        return Operand(name, None, value, "i")
    if isinstance(value, float) and not isinstance(value, np.generic):
        return Operand(name, None, value, "f")
    if isinstance(value, np.generic):
        known = dt.of_numpy(value.dtype)
        if known is not None and not known.is_storage_only:
            return Operand(name, promote.full(value, (), known))
        value = np.asarray(value)
    if isinstance(value, (list, tuple)):
        value = array_of(op, name, value)
    if not isinstance(value, (np.ndarray, ir.Resident)):
        raise not_an_array(op, name, value)
    try:
        return Operand(name, capture(trace, value))
    except (DTypeError, InputArrayError) as err:
        raise type(err)(f"{op}(): {name}: {err.what}" if op else err.what, cure=err.cure) from None


def not_an_array(op: str, name: str, value: Any) -> ArgumentError:
    """The error for an argument of an op that is neither an array nor a number."""
    what = f"{op}(): {name} cannot be {described(value)}" if op else f"{described(value)} cannot stand for an array"
    return ArgumentError(what,
                         cure=instead(value, "pass an array, a Python number, or a (nested) list of numbers"))


def array_of(op: str, name: str, value: Any) -> np.ndarray[Any, Any]:
    """A new array of a nested list of numbers."""
    start = (f"{op}(): {name} is " if op else "") + f"a {type(value).__name__}"
    flat = list(value)
    for v in flat:  # grows while it is walked
        if isinstance(v, (list, tuple)):
            flat.extend(v)
        elif isinstance(v, Traced):
            raise ArgumentError(f"{start} that holds traced values",
                                cure="make it one array first: np.stack([...])")
    try:
        array = np.array(value)
    except ValueError:
        array = np.array(None)
    if array.dtype.kind not in "biuf":
        raise ArgumentError(f"{start} that is no regular array of numbers",
                            cure="rows must be of one length, and every element a bool, int or float")
    return array


def capture(trace: Trace, array: Any) -> Node:
    """The constant node of an array from outside: one per array, read from its own memory at every run."""
    node = trace.captured.get(id(array))
    if node is None:
        is_resident = isinstance(array, ir.Resident)
        dtype = dt.dtype_of(array.dtype) if is_resident else check_array(array)
        node = ir.constant_node(ir.Captured(array), tuple(array.shape), dtype, user_location())
        trace.captured[id(array)] = node
        if trace.on_capture is not None and not is_resident:
            trace.on_capture(array)
    return node


@located
def as_tensor(value: Any, dtype: Any = None) -> Any:
    """A traced value of anything `apply` takes; Python numbers stay weak unless a dtype is given."""
    if isinstance(value, Traced) and dtype is None:
        check_alive(value)
        return value
    trace, where = running_trace("an array operation", (value,)), user_location()
    o = operand(trace, "", "x", value)
    node = o.node if o.node is not None else promote.full(o.value, (), o.dtype, where)
    if dtype is not None:
        form = None if not isinstance(value, Traced) or value.weak is not None else value.form
        return trace.wrap(promote.cast(node, dtype_of(dtype), where), None, where, form)
    return trace.wrap(node, o.weak, where)


# ---------------------------------------------------------------------------------------- helpers on top
@located
def full(value: Any, shape: Any, dtype: Any) -> Any:
    """A number (or traced scalar) repeated to a shape."""
    shape, dtype = check_shape(shape), dtype_of(dtype)
    check_size("full", Aval(shape, dtype))
    if isinstance(value, (Traced, np.ndarray)):
        return in_form(broadcast_to(cast_to_fit(value, dtype, "full"), shape), "array")
    if not isinstance(value, (bool, int, float, Dim, np.generic)) or isinstance(value, np.complexfloating):
        raise ArgumentError(f"full(): the value cannot be {described(value)}", cure="give a number, or an array without axes")
    where = user_location()
    return running_trace("full()", ()).wrap(promote.full(value, shape, dtype, where), None, where)


@located
def cast(x: Any, dtype: Any) -> Any:
    """x in another dtype; x itself when it has it already and is not weak."""
    x, dtype = as_tensor(x), dtype_of(dtype)
    if x.node.dtype is dtype:
        return x if x.weak is None else x.origin.wrap(x.node, None, x.where)
    out = call("cast", x, dtype=dtype)
    return out if x.weak is not None or x.form is None else in_form(out, x.form)


@located
def cast_to_fit(x: Any, dtype: DType, op: str) -> Any:
    """x in the dtype of an array that it becomes a part of: a Python int must fit, where `cast` wraps around."""
    trace, where = running_trace(f"{op}()", (x,)), user_location()
    o = operand(trace, op, "x", x)
    if o.node is None:
        return trace.wrap(promote.full(o.value, (), dtype, where), None, where)
    _must_fit(trace, o, dtype, op, where)
    return cast(x, dtype)


@located
def broadcast_to(x: Any, shape: Any) -> Any:
    x, shape = as_tensor(x), check_shape(shape)
    return x if same_shape(x.shape, shape) else call("broadcast_to", x, shape=shape)


def permute(x: Any, axes: Sequence[int]) -> Any:
    """x with its axes in another order; x itself when the order is the same."""
    return x if tuple(axes) == tuple(range(x.ndim)) else call("permute", x, axes=tuple(axes))


@located
def reshape(x: Any, shape: Any) -> Any:
    """x under another shape; one length may be -1."""
    x = as_tensor(x)
    found = _fill_in(x.shape, check_shape(shape))
    return x if same_shape(found, x.shape) else call("reshape", x, shape=found)


def _fill_in(old: Shape, new: Shape) -> Shape:
    """The new shape with its -1 worked out: symbolic lengths divide by algebra, or by a guard."""
    open_ = [k for k, n in enumerate(new) if isinstance(n, int) and n < 0]
    if not open_:
        return new
    if len(open_) > 1 or new[open_[0]] != -1:
        raise ShapeError(f"cannot reshape {fmt(old)} to {fmt(new)}: one length may be -1, the others count",
                         cure="leave one length open at most")
    total, known = product(old), product(n for n in new if not (isinstance(n, int) and n < 0))
    rest: Extent | None = None if same(known, 0) else divide_exact(total, known)
    if rest is None:
        if same(known, 0) or total % known != 0:
            raise ShapeError(f"cannot reshape {fmt(old)} to {fmt(new)}: "
                             f"{total} elements do not divide by {known}",
                             cure="the known lengths must divide the number of elements")
        rest = total // known
    return tuple(rest if k == open_[0] else n for k, n in enumerate(new))
