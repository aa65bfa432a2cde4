"""From the traced graph to one that kernels can run: simplified, composite ops written out, and every copy that a layout
forces made visible as a `contiguous` node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core import ir
from ..core.dims import Extent, same_shape
from ..core.dtypes import DType
from ..core.ir import Graph, Node
from ..core.layout import Layout, contiguous
from ..core.ops import OPS, OpDef, Operand
from ..core.source import Location
from .bindings import Bindings
from .rules import simplify


class Builder:
    """Makes lowered nodes: each is simplified, then written out if its op is a composite."""

    def __init__(self, bound: Bindings) -> None:
        self.bound = bound
        self.where: Location | None = None

    def op(self, op: OpDef | str, inputs: Sequence[Node], **attrs: Any) -> Node:
        return self.lower(ir.make(OPS[op] if isinstance(op, str) else op, tuple(inputs), attrs, self.where))

    def full(self, value: Any, shape: tuple[Extent, ...], dtype: DType) -> Node:
        return ir.full_node(value, shape, dtype, self.where)

    def full_like(self, x: Node, value: Any) -> Node:
        return self.full(value, x.shape, x.dtype)

    def empty(self, shape: tuple[Extent, ...], dtype: DType) -> Node:
        return ir.empty_node(shape, dtype, self.where)

    def lower(self, node: Node) -> Node:
        simpler = simplify(node)
        if simpler is not node:
            return simpler if simpler in node.inputs else self.lower(simpler)
        op = node.op
        is_direct = op.expr is not None or op.name == "cast" or op.kind == "leaf" or op.is_view
        if op.decompose is not None and not is_direct and not self.bound.is_bound(node):
            return op.decompose(self, node.inputs, **node.attributes)
        return node


def lower(graph: Graph, bound: Bindings) -> Graph:
    """Simplify and write out composites, to a fixpoint (one pass over a graph in topological order reaches it)."""
    build = Builder(bound)

    def rewrite(node: Node, inputs: tuple[Node, ...]) -> Node:
        build.where = node.where
        return build.lower(ir.with_inputs(node, inputs))

    return ir.rebuild(graph, rewrite)


class Layouts:
    """The layout of every node's value in its storage. Inputs and captured arrays have the strides they came with."""

    def __init__(self, inputs: Mapping[Node, Layout]):
        self.known: dict[Node, Layout] = dict(inputs)

    def __call__(self, node: Node) -> Layout:
        found = self.known.get(node)
        if found is None:
            found = self.known[node] = self._derive(node)
        return found

    def _derive(self, node: Node) -> Layout:
        if node.op.is_view:
            assert node.op.view is not None
            view = node.op.view(self(node.inputs[0]), **node.attributes)
            assert view is not None
            return view
        if node.op is ir.CONSTANT:
            array = node.attr("captured").array
            return Layout(tuple(array.shape), tuple(s // array.itemsize for s in array.strides))
        return contiguous(node.shape)

    def operand(self, node: Node) -> Operand:
        return Operand(self(node), node.dtype)


def legalise(graph: Graph, layouts: Layouts, bound: Bindings) -> Graph:
    """Insert the copies that kernels need. Raises NoKernelError for a node nothing serves."""

    def copy(node: Node) -> Node:
        return ir.make(OPS["contiguous"], (node,), {}, node.where)

    def dense(node: Node) -> Node:
        return node if node.op is not ir.FULL and layouts(node).is_contiguous else copy(node)

    def whole(node: Node) -> Node:
        """A value that fills its storage: what a write may go into."""
        filled = dense(node)
        return filled if same_shape((layouts(filled.root).size,), (layouts(filled).size,)) else copy(filled)

    def rewrite(node: Node, inputs: tuple[Node, ...]) -> Node:
        op = node.op
        if op.kind == "leaf" or bound.is_fusible(node):
            return ir.with_inputs(node, inputs)
        inputs = tuple(copy(i) if i.op is ir.FULL else i for i in inputs)
        if op.is_view:
            assert op.view is not None
            if op.view(layouts(inputs[0]), **node.attributes) is None:
                inputs = (copy(inputs[0]),)
            return ir.with_inputs(node, inputs)
        if op.destroys is not None:
            inputs = tuple(whole(i) if k == op.destroys else i for k, i in enumerate(inputs))
        new = ir.with_inputs(node, inputs)
        if bound.user_kernel(new) is not None:
            return ir.with_inputs(new, tuple(map(dense, inputs)))
        read = [i for k, i in enumerate(inputs) if k != op.destroys]
        kernel, _ = bound.choose(new, [layouts.operand(i) for i in read], node.attributes)
        if kernel is None:  # copies may help: first of the loose inputs one by one, then of all
            for attempt in [{i} for i in read if not layouts(i).is_contiguous] + [set(read)]:
                tried = tuple(dense(i) if i in attempt else i for i in inputs)
                kept = [i for k, i in enumerate(tried) if k != op.destroys]
                kernel, refused = bound.choose(new, [layouts.operand(i) for i in kept], node.attributes)
                if kernel is not None:
                    return ir.with_inputs(new, tried)
            raise bound.no_kernel(new, refused)
        return new

    graph = ir.rebuild(graph, rewrite)
    outputs: list[Node] = []
    listed, taken, given_away = set(), set(), {graph.inputs[k] for k in graph.donated}
    for o in graph.outputs:
        root = o.root
        donated = root in given_away
        filling = o.op is not ir.FULL and layouts(o).is_contiguous and same_shape((layouts(root).size,), (layouts(o).size,))
        given = root.op in (ir.INPUT, ir.CONSTANT, ir.FULL)  # not to be handed out, unless donated
        base = o.base
        if given and not donated and base.op.destroys is not None:
            given, root = False, base  # the write will get a copy of its own to write into (order_writes)
        owned = not given or (donated and same_shape(o.shape, root.shape))  # a donated array keeps its shape
        if not (filling and owned) or (root in taken and o not in listed):
            o = ir.make(OPS["copy"], (o,), {"uid": ir.unique()}, o.where)
            root = o
        taken.add(root)
        listed.add(o)
        outputs.append(o)
    return Graph(graph.inputs, outputs, graph.name, graph.env, graph.donated)
