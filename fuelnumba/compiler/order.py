"""Writes are versions: who must run before whom when a buffer is overwritten in place.

A node that destroys its input writes into that input's storage. Every other reader of the old version, through whatever
views, must run first. A reader that cannot (it needs the result as well, or is itself a second writer, or is an output)
gets the old value kept for it: the writer is given a copy to write into. Nothing about this is hidden; the copy is a node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ..core import ir
from ..core.ir import Graph, Node
from ..core.ops import OPS

T = TypeVar("T")


def order_writes(graph: Graph) -> tuple[Graph, dict[Node, set[Node]]]:
    """The graph with its safety copies, and for each writer the readers that must come before it."""
    while True:
        nodes = graph.nodes()
        before, copies = _decide(graph, nodes)
        if not copies:
            copies = {w: [w.op.destroys or 0] for w in _stuck(nodes, before)}
        if not copies:
            return graph, before
        graph = _with_copies(graph, copies)


def _decide(graph: Graph, nodes: list[Node]) -> tuple[dict[Node, set[Node]], dict[Node, list[int]]]:
    """The writers that write in place, each with who must come before it; and those that cannot, each with the inputs of which
    it gets copies. A version is the node that made it; who reads a view of it reads it."""
    writers = [n for n in nodes if n.op.destroys is not None]
    if not writers:
        return {}, {}
    position = {n: k for k, n in enumerate(nodes)}
    readers: dict[Node, dict[Node, None]] = {}  # of a version; no views
    users: dict[Node, list[Node]] = {}
    for n in nodes:
        for i in dict.fromkeys(n.inputs):
            users.setdefault(i, []).append(n)
            if not n.op.is_view:
                readers.setdefault(i.base, {})[n] = None
    donated = {graph.inputs[k] for k in graph.donated}
    shown = {o.base for o in graph.outputs}
    overwritten: set[Node] = set()
    before: dict[Node, set[Node]] = {}
    copies: dict[Node, list[int]] = {}
    owner: dict[Node, Node] = {}  # of the storage that a writer's result lies in; a writer that gets a copy owns that

    def owner_of(node: Node) -> Node:
        return owner.get(node.base, node.base)

    for w in writers:
        k = w.op.destroys or 0
        version, root = w.inputs[k].base, owner_of(w.inputs[k])
        owner[w] = w
        if (root.op in (ir.CONSTANT, ir.FULL) or (root.op is ir.INPUT and root not in donated) or version in shown
                or version in overwritten):
            copies[w] = [k]
            continue
        late = [r for r in readers[version] if position[r] > position[w]]
        if late and leads(w, late, lambda n: n.inputs, lambda n: users.get(n, ())):  # one needs the result as well
            copies[w] = [k]
            continue
        overwritten.add(version)
        owner[w] = root
        overlap = [j for j, i in enumerate(w.inputs) if j != k and owner_of(i) is root]
        if overlap:  # the source is read from the buffer that is written
            copies[w] = overlap
        else:
            before[w] = {r for r in readers[version] if r is not w}
    return before, copies


def leads(goal: T, starts: Iterable[T], wants: Callable[[T], Iterable[T]], users: Callable[[T], Iterable[T]]) -> bool:
    """Whether one of `starts` needs `goal`. Looked for from both ends in turn: one of them is near as a rule, as something new
    that has no users yet, or a value that comes from the inputs directly."""
    up, down = deque(starts), deque([goal])
    above, below = set(up), {goal}
    while up and down:
        for w in wants(up.popleft()):
            if w in below:
                return True
            if w not in above:
                above.add(w)
                up.append(w)
        for u in users(down.popleft()):
            if u in above:
                return True
            if u not in below:
                below.add(u)
                down.append(u)
    return False


def _stuck(nodes: list[Node], before: Mapping[Node, set[Node]]) -> list[Node]:
    """Writers that wait for themselves, through readers that wait for other writers: without them, an order exists."""
    unlocks: dict[Node, list[Node]] = {}
    left: dict[Node, int] = {}
    for n in nodes:
        waits = {*n.inputs, *before.get(n, ())}
        left[n] = len(waits)
        for w in waits:
            unlocks.setdefault(w, []).append(n)
    ready = [n for n in nodes if not left[n]]
    done: set[Node] = set()
    writers = iter([n for n in nodes if n in before])
    stuck: list[Node] = []
    while True:
        while ready:
            n = ready.pop()
            done.add(n)
            for u in unlocks.get(n, ()):
                left[u] -= 1
                if not left[u]:
                    ready.append(u)
        writer = next((w for w in writers if w not in done), None)
        if writer is None:
            return stuck
        stuck.append(writer)  # with a copy, it waits for its inputs only
        for r in before[writer] - done - set(writer.inputs):
            unlocks[r].remove(writer)
            left[writer] -= 1
        if not left[writer]:
            ready.append(writer)


def _with_copies(graph: Graph, copies: Mapping[Node, list[int]]) -> Graph:
    """The graph in which writers get copies of some of their inputs."""
    def rewrite(node: Node, inputs: tuple[Node, ...]) -> Node:
        made = list(inputs)
        for k in copies.get(node, ()):
            made[k] = ir.make(OPS["copy"], (inputs[k],), {"uid": ir.unique()}, node.where)
        return ir.with_inputs(node, tuple(made))

    return ir.rebuild(graph, rewrite)
