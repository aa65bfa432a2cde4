"""Writes are versions: who must run before whom when a buffer is overwritten in place.

A node that destroys its input writes into that input's storage. Every other reader of the old version, through whatever
views, must run first. A reader that cannot (it needs the result as well, or is itself a second writer, or is an output)
gets the old value kept for it: the writer is given a copy to write into. Nothing about this is hidden; the copy is a node.
"""

from __future__ import annotations

from ..core import ir
from ..core.ir import Graph, Node
from ..core.ops import OPS
from .lower import storage_root, view_base


def order_writes(graph: Graph) -> tuple[Graph, dict[Node, set[Node]]]:
    """The graph with its safety copies, and for each writer the readers that must come before it."""
    while True:
        nodes = graph.nodes()
        writers = [n for n in nodes if n.op.destroys is not None]
        if not writers:
            return graph, {}
        ancestors, position = _ancestors(nodes), {n: k for k, n in enumerate(nodes)}
        readers = _readers(nodes)
        before: dict[Node, set[Node]] = {}
        rewritten = None
        for w in writers:
            target = w.inputs[w.op.destroys or 0]
            reading = {r for alias in _aliases(target, readers) for r in readers.get(alias, ())
                       if r is not w and not r.op.is_view}
            overlap = [k for k, i in enumerate(w.inputs) if k != w.op.destroys and storage_root(i) is storage_root(target)]
            if not _writable(storage_root(target), graph):
                rewritten = _with_copy(graph, w, w.op.destroys or 0)
            elif overlap:  # the source is read from the buffer that is written
                rewritten = _with_copy(graph, w, overlap[0])
            elif any(ancestors[r] >> position[w] & 1 for r in reading) or any(
                    o in graph.outputs for o in _aliases(target, readers)) or any(
                    r.op.destroys is not None and storage_root(r) is storage_root(w) and r in before for r in reading):
                rewritten = _with_copy(graph, w, w.op.destroys or 0)
            if rewritten is not None:
                break
            before[w] = reading
        if rewritten is None:
            stuck = _cycle(nodes, before)
            if stuck is None:
                return graph, before
            rewritten = _with_copy(graph, stuck, stuck.op.destroys or 0)
        graph = rewritten


def _cycle(nodes: list[Node], before: dict[Node, set[Node]]) -> Node | None:
    """A writer that waits for itself, through readers that wait for other writers; None when an order exists."""
    done: set[Node] = set()
    left = nodes
    while left:
        waiting = []
        for n in left:
            if done.issuperset(n.inputs) and done.issuperset(before.get(n, ())):
                done.add(n)
            else:
                waiting.append(n)
        if len(waiting) == len(left):
            return next(n for n in waiting if n in before)
        left = waiting
    return None


def _aliases(target: Node, readers: dict[Node, list[Node]]) -> list[Node]:
    """The nodes that show the same version of the same storage: up through the views to their base, and down again."""
    found, todo = [], [view_base(target)]
    while todo:
        n = todo.pop()
        found.append(n)
        todo += [r for r in readers.get(n, ()) if r.op.is_view]
    return found


def _readers(nodes: list[Node]) -> dict[Node, list[Node]]:
    out: dict[Node, list[Node]] = {}
    for n in nodes:
        for i in dict.fromkeys(n.inputs):
            out.setdefault(i, []).append(n)
    return out


def _ancestors(nodes: list[Node]) -> dict[Node, int]:
    """For each node the set (as bits of their positions) of nodes it needs, itself included."""
    out: dict[Node, int] = {}
    for k, n in enumerate(nodes):
        bits = 1 << k
        for i in n.inputs:
            bits |= out[i]
        out[n] = bits
    return out


def _writable(root: Node, graph: Graph) -> bool:
    if root.op is ir.INPUT:
        return graph.inputs.index(root) in graph.donated
    return root.op not in (ir.CONSTANT, ir.FULL)


def _with_copy(graph: Graph, writer: Node, position: int) -> Graph:
    """The graph in which `writer` gets a copy of one of its inputs."""
    def rewrite(node: Node, inputs: tuple[Node, ...]) -> Node:
        if node is writer:
            copy = ir.make(OPS["copy"], (inputs[position],), {"uid": ir.unique()}, node.where)
            inputs = (*inputs[:position], copy, *inputs[position + 1:])
        return ir.with_inputs(node, inputs)

    return ir.rebuild(graph, rewrite)
