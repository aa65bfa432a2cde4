"""Fusion and order: nodes become steps. Elementwise nodes of one shape that lie next to each other become one region, one
kernel; every other node is a step of its own. Steps are put in an order that keeps data and write dependences."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..core import ir
from ..core.dims import same_shape
from ..core.ir import Graph, Node
from .bindings import Bindings
from .order import leads

MAX_WEIGHT, MAX_POINTERS = 250, 24  # past these, compile time and registers cost more than a pass over memory (measured)


@dataclass(eq=False)
class Step:
    """One launch: the nodes it computes (several only for a region) and those of them that others read."""

    nodes: list[Node]
    is_region: bool
    outputs: list[Node] = field(default_factory=list)


def _runs(node: Node) -> bool:
    """Views and leaves are no work."""
    return not node.op.is_view and node.op.kind != "leaf"


def _in_order(nodes: list[Node], before: Mapping[Node, set[Node]]) -> list[Node]:
    """The nodes such that each comes after its inputs and, when it overwrites a buffer, after the buffer's readers."""
    if not before:
        return nodes
    position = {n: k for k, n in enumerate(nodes)}
    out: dict[Node, None] = {}
    stack = nodes[::-1]
    while stack:
        n = stack.pop()
        waiting = [i for i in (*n.inputs, *sorted(before.get(n, ()), key=position.__getitem__)) if i not in out]
        if n in out:
            continue
        if waiting:
            stack += [n, *reversed(waiting)]
        else:
            out[n] = None
    return list(out)


@dataclass(eq=False)
class _Group:
    """A step while it grows. `wants` are the groups that must run before it, `users` those that wait for it."""

    number: int
    nodes: list[Node]
    inside: set[Node]
    wants: dict[_Group, None] = field(default_factory=dict)  # a set in order, that of insertion
    users: dict[_Group, None] = field(default_factory=dict)
    weight: int = 0
    reads: set[Node] = field(default_factory=set)

    def need(self, groups: Iterable[_Group]) -> None:
        for g in groups:
            if g is not self:
                self.wants[g] = None
                g.users[self] = None


def fuse(graph: Graph, before: Mapping[Node, set[Node]], bound: Bindings) -> list[Step]:
    """The steps of a graph, in the order they run."""
    nodes = [n for n in _in_order(graph.nodes(), before) if _runs(n)]
    group: dict[Node, _Group] = {}
    pinned = {r for readers in before.values() for r in readers} | set(before)
    free = {n for n in nodes if n not in pinned and bound.is_fusible(n)}
    for number, n in enumerate(nodes):
        wanted = dict.fromkeys([group[p] for p in _producers(n)] + [group[r] for r in before.get(n, ()) if r in group])
        home = _home(n, wanted, group, free) if n in free else None
        if home is None:
            group[n] = home = _Group(number, [n], {n}, weight=_weight([n]), reads=_reads([n]))
            home.need(wanted)
        else:
            home.nodes.append(n)
            home.inside.add(n)
            home.weight += _weight([n])
            home.reads = (home.reads | _reads([n])) - home.inside
            home.need(wanted)
            group[n] = home
            _merge_into(home, n, group, free)
    groups = sorted(set(group.values()), key=lambda g: g.number)
    users = _readers(nodes)
    roots = {o.base for o in graph.outputs}
    steps = {g: Step(g.nodes, bound.is_fusible(g.nodes[0])) for g in groups}
    for g, s in steps.items():
        s.outputs = [n for n in s.nodes if n in roots or any(group[u] is not g for u in users.get(n, ()))]
    return _ordered(steps)


def _home(n: Node, wanted: Mapping[_Group, None], group: Mapping[Node, _Group], free: set[Node]) -> _Group | None:
    """The region among those that n reads which n can join: what n needs apart from it does not need it."""
    for p in n.inputs:
        g = group.get(p)
        if g is not None and _fits(g, n, free) and not _reads_view_of(g.inside, [n]) and not _leads(g, wanted):
            return g
    return None


def _fits(g: _Group, n: Node, free: set[Node]) -> bool:
    return (g.nodes[0] in free and same_shape(g.nodes[0].shape, n.shape) and g.weight + _weight([n]) <= MAX_WEIGHT
            and len((g.reads | _reads([n])) - g.inside) < MAX_POINTERS)


def _weight(region: list[Node]) -> int:
    return sum(n.op.weight for n in region)


def _reads(nodes: list[Node]) -> set[Node]:
    inside = set(nodes)
    return {i for n in nodes for i in n.inputs if i not in inside and i.op is not ir.FULL}


def _reads_view_of(region: set[Node], nodes: list[Node]) -> bool:
    """Whether a node reads what the region makes through a view: elements that other iterations of its loop make."""
    return any(i.op.is_view and i.base in region for n in nodes for i in n.inputs)


def _leads(g: _Group, groups: Iterable[_Group]) -> bool:
    """Whether one of the groups, apart from g itself, needs g."""
    return leads(g, [w for w in groups if w is not g], lambda s: s.wants, lambda s: s.users)


def _merge_into(home: _Group, n: Node, group: dict[Node, _Group], free: set[Node]) -> None:
    """Pull the other elementwise regions that n reads into its own, where no path leads around."""
    for p in n.inputs:
        g = group.get(p)
        if g is None or g is home or not _fits(g, n, free):
            continue
        reads = (g.reads | home.reads) - g.inside - home.inside
        if g.weight + home.weight > MAX_WEIGHT or len(reads) > MAX_POINTERS or _reads_view_of(g.inside, home.nodes):
            continue
        if _leads(g, home.wants):
            continue
        home.nodes[:0] = g.nodes
        home.inside |= g.inside
        home.weight += g.weight
        home.reads = reads
        for m in g.nodes:
            group[m] = home
        for w in g.wants:
            del w.users[g]
        for u in g.users:
            del u.wants[g]
            u.need([home])
        home.need(g.wants)


def _producers(n: Node) -> list[Node]:
    return [i.base for i in n.inputs if _runs(i.base)]


def _readers(nodes: list[Node]) -> dict[Node, list[Node]]:
    out: dict[Node, list[Node]] = {}
    for n in nodes:
        for p in _producers(n):
            out.setdefault(p, []).append(n)
    return out


def _ordered(steps: Mapping[_Group, Step]) -> list[Step]:
    """Kahn's order; of the steps that could run, the one whose last node was recorded first."""
    rank = {g: k for k, g in enumerate(steps)}
    left = {g: len(g.wants) for g in steps}
    ready = [(rank[g], g) for g, k in left.items() if not k]
    out: list[Step] = []
    while ready:
        _, g = heapq.heappop(ready)
        out.append(steps[g])
        for u in g.users:
            left[u] -= 1
            if not left[u]:
                heapq.heappush(ready, (rank[u], u))
    assert len(out) == len(steps), "steps wait for one another"
    return out
