"""Nodes and graphs. A node is an op applied to nodes: immutable and interned, so equal computations are one object and
comparison is `is`. Leaves that have identity (inputs, captured arrays) carry a number of their own."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import dtypes as dt
from .dims import Dim, SymEnv, same_shape
from .dtypes import DType
from .errors import ArgumentError, GraphError
from .layout import Shape
from .ops import Aval, OpDef, op
from .source import Location

Attrs = tuple[tuple[str, Any], ...]
REPORT = "this is a bug in a pass: please report it with the printed graph"


def _leaf(name: str, doc: str) -> OpDef:
    def infer(**attrs: Any) -> Aval:
        raise GraphError(f"{name} nodes carry their own shape", cure=REPORT)

    return op(name, "leaf", "", infer=infer, doc=doc)


INPUT = _leaf("input", "an argument of the traced function")
CONSTANT = _leaf("constant", "a captured array, read from its own memory at every run")
FULL = _leaf("full", "a scalar repeated to a shape")
EMPTY = _leaf("empty", "a fresh buffer, to be written into")


class Node:
    """`op(*inputs, **attrs)` with its shape and dtype, and the user's line that recorded it first."""

    __slots__ = ("__weakref__", "_base", "_key", "_root", "attrs", "dtype", "id", "inputs", "op", "shape", "where")
    op: OpDef
    inputs: tuple[Node, ...]
    attrs: Attrs
    shape: Shape
    dtype: DType
    where: Location | None
    id: int
    _key: Any
    _base: Node | None
    _root: Node | None

    @property
    def base(self) -> Node:
        """The node that made the values this one shows: itself, unless it is a view."""
        return self._base or self

    @property
    def root(self) -> Node:
        """The node that owns the storage this node's value lies in: itself, unless it is a view or a write."""
        return self._root or self

    def attr(self, name: str) -> Any:
        for k, v in self.attrs:
            if k == name:
                return v
        raise KeyError(name)

    @property
    def attributes(self) -> dict[str, Any]:
        return dict(self.attrs)

    @property
    def aval(self) -> Aval:
        return Aval(self.shape, self.dtype)

    def __repr__(self) -> str:
        args = ", ".join([f"%{n.id}" for n in self.inputs] + [f"{k}={v!r}" for k, v in self.attrs])
        return f"%{self.id} = {self.op.name}({args}): {self.aval}"


_pool: weakref.WeakValueDictionary[Any, Node] = weakref.WeakValueDictionary()
_lock = threading.Lock()
_ids = itertools.count(1)

if hasattr(os, "register_at_fork"):  # a child must not find it held by a thread that it does not have
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def intern(op_: OpDef, inputs: Sequence[Node], attrs: Mapping[str, Any], shape: Shape, dtype: DType,
           where: Location | None = None) -> Node:
    """The node for this application: the existing one, if there is one."""
    items = tuple(attrs.items())
    key = (op_, tuple(n.id for n in inputs), _freeze(items), shape, dtype.name)
    with _lock:
        node = _pool.get(key)
        if node is None:
            node = object.__new__(Node)
            node.op, node.inputs, node.attrs, node.shape, node.dtype = op_, tuple(inputs), items, shape, dtype
            node.where, node.id, node._key = where, next(_ids), key
            node._base = node.inputs[0].base if op_.is_view else None
            node._root = (node.inputs[0 if op_.is_view else op_.destroys].root  # type: ignore[index]
                          if op_.is_view or op_.destroys is not None else None)
            _pool[key] = node
    return node


def _freeze(items: Attrs) -> Any:
    """Attributes as a key: -0.0 differs from 0.0, True from 1, and NaN equals itself."""
    return tuple((k, freeze_value(v)) for k, v in items)


def freeze_value(v: Any) -> Any:
    """A value as (part of) a key: see `_freeze`."""
    if isinstance(v, np.generic):  # compared with a tuple, it would give an array
        return (type(v).__name__, v.tobytes())
    if isinstance(v, float):
        return ("float", v.hex())
    if isinstance(v, tuple):
        return tuple(freeze_value(x) for x in v)
    return (type(v).__name__, v) if isinstance(v, (bool, int)) else v


def make(op_: OpDef, inputs: Sequence[Node], attrs: Mapping[str, Any] | None = None, where: Location | None = None) -> Node:
    """Apply an op whose attributes are canonical: infers shape and dtype."""
    attrs = attrs or {}
    out = op_.infer(*(n.aval for n in inputs), **attrs)
    return intern(op_, inputs, attrs, out.shape, out.dtype, where)


def input_node(name: str, shape: Shape, dtype: DType, where: Location | None = None) -> Node:
    return intern(INPUT, (), {"uid": next(_ids), "name": name}, shape, dtype, where)


class Resident:
    """An array that lies on a device, and is never written to. It has `shape`, `dtype`, `device` and `numpy()`."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class Captured:
    """An array the trace captured: compared by identity, kept alive by the graphs that read it."""

    array: Any  # NumPy's, or a Resident

    def __repr__(self) -> str:
        return f"<array {self.array.dtype}{list(self.array.shape)}>"


def constant_node(captured: Captured, shape: Shape, dtype: DType, where: Location | None = None) -> Node:
    return intern(CONSTANT, (), {"captured": captured}, shape, dtype, where)


def canonical(value: Any, dtype: DType) -> Any:
    """A number as `full` nodes keep it: a Python bool, int or float that `dtype` holds exactly.

    f32 values keep their short spelling: 0.1, not 0.10000000149011612.
    """
    if isinstance(value, Dim):
        return value
    if dtype.kind == "b":
        return bool(value)
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        if not isinstance(value, (int, np.integer, np.bool_)):  # as a cast has it: truncated, saturated, NaN is 0
            return 0 if value != value else int(min(max(float(value), info.min), info.max))
        if not info.min <= value <= info.max:
            raise ArgumentError(f"the Python int {value} does not fit {dtype}", cure="give a value that fits, or a wider dtype")
        return int(value)
    try:
        v = float(value)
    except OverflowError:
        raise ArgumentError(f"the Python int {value} does not fit {dtype}",
                            cure="write it as a float") from None
    if dtype is dt.f64 or v != v:
        return v
    with np.errstate(all="ignore"):
        rounded = dtype.numpy.type(v)
    if dtype is dt.f32:
        short = float(str(rounded))
        if np.float32(short) == rounded:
            return short
    return float(rounded)


def full_node(value: Any, shape: Shape, dtype: DType, where: Location | None = None) -> Node:
    """A scalar repeated to a shape. It is one node wherever it is written, in whatever function, and so keeps no line."""
    return intern(FULL, (), {"value": value}, shape, dtype)


def empty_node(shape: Shape, dtype: DType, where: Location | None = None) -> Node:
    return intern(EMPTY, (), {"uid": next(_ids)}, shape, dtype, where)


def unique() -> int:
    """A number for attributes that make a node differ from all others."""
    return next(_ids)


# ------------------------------------------------------------------------------------------------ graphs
@dataclass
class Graph:
    """What a trace wrote: input nodes in the order of the flattened arguments, and output nodes."""

    inputs: list[Node]
    outputs: list[Node]
    name: str = "graph"
    env: SymEnv = field(default_factory=SymEnv)
    donated: frozenset[int] = frozenset()  # positions in `inputs` whose arrays may be overwritten

    def nodes(self) -> list[Node]:
        """All nodes the outputs need, inputs of a node before the node; ties by first visit."""
        return topological(self.outputs)

    def users(self) -> dict[Node, list[Node]]:
        out: dict[Node, list[Node]] = {}
        for n in self.nodes():
            for i in n.inputs:
                users = out.setdefault(i, [])
                if n not in users:
                    users.append(n)
        return out

    def format(self, folded: bool | None = None) -> str:
        """The graph as a program. folded: whether repeated layers are shown once; None: in long programs. Only a program
        that is not folded can be run."""
        from .printer import format_graph

        return format_graph(self, folded)

    def __str__(self) -> str:
        return self.format()

    __repr__ = __str__

    def svg(self, folded: bool | None = None) -> str:
        """The graph as a picture, SVG. folded: whether repeated layers are drawn once; None: in graphs that are not small."""
        from .picture import draw

        return draw(self, folded)

    def _repr_html_(self) -> str:
        from .picture import graph_html

        return graph_html(self)


def topological(roots: Iterable[Node]) -> list[Node]:
    seen: set[Node] = set()
    order: list[Node] = []
    for root in roots:
        stack: list[tuple[Node, int]] = [(root, 0)]
        while stack:
            node, k = stack.pop()
            if node in seen:
                continue
            if k < len(node.inputs):
                stack.append((node, k + 1))
                if node.inputs[k] not in seen:
                    stack.append((node.inputs[k], 0))
            else:
                seen.add(node)
                order.append(node)
    return order


def rebuild(graph: Graph, rewrite: Callable[[Node, tuple[Node, ...]], Node]) -> Graph:
    """A graph in which every node is `rewrite(node, new_inputs)`; unchanged parts stay the same objects."""
    new: dict[Node, Node] = {}
    for node in graph.nodes():
        new[node] = rewrite(node, tuple(new[i] for i in node.inputs))
    return Graph(graph.inputs, [new[o] for o in graph.outputs], graph.name, graph.env, graph.donated)


def with_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    """The same op and attributes over other inputs (the very same node when they are unchanged)."""
    if all(a is b for a, b in zip(node.inputs, inputs)):
        return node
    return intern(node.op, inputs, node.attributes, node.shape, node.dtype, node.where)


def verify(graph: Graph) -> None:
    """Check what every pass must keep: shapes and dtypes as the ops infer them, attributes canonical, inputs declared.

    Raises GraphError naming the node and the user's line.
    """
    declared = set(graph.inputs)
    for node in graph.nodes():
        if node.op is INPUT:
            if node not in declared:
                raise GraphError(f"{node!r} is not among the graph's inputs", where=node.where, cure=REPORT)
            continue
        if node.op.kind == "leaf":
            continue
        least, most = node.op.arity()
        if not least <= len(node.inputs) <= most:
            raise GraphError(f"{node!r} has {len(node.inputs)} inputs; {node.op.name} takes {least} to {most}",
                             where=node.where, cure=REPORT)
        out = node.op.infer(*(i.aval for i in node.inputs), **node.attributes)
        if out.dtype is not node.dtype or not same_shape(out.shape, node.shape):
            raise GraphError(f"{node!r} should be {out}", where=node.where, cure=REPORT)
    for o in graph.outputs:
        if not isinstance(o, Node):
            raise GraphError(f"output {o!r} is not a node", cure=REPORT)
