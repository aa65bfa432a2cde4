"""Fusion and order: nodes become steps. Elementwise nodes of one shape that lie next to each other become one region, one
kernel; every other node is a step of its own. Steps are put in an order that keeps data and write dependences."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..core import ir, scalar
from ..core.dims import same_shape
from ..core.ir import Graph, Node
from .bindings import Bindings
from .lower import view_base

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


def fuse(graph: Graph, before: Mapping[Node, set[Node]], bound: Bindings) -> list[Step]:
    """The steps of a graph, in the order they run."""
    nodes = [n for n in _in_order(graph.nodes(), before) if _runs(n)]
    group: dict[Node, int] = {}  # node -> number of its step
    members: dict[int, list[Node]] = {}
    needs: dict[int, int] = {}  # step -> bits of all steps that must run before it
    pinned = {r for readers in before.values() for r in readers} | set(before)
    free = {n for n in nodes if n not in pinned and bound.is_fusible(n)}

    def direct(n: Node) -> set[int]:
        return {group[p] for p in _producers(n)} | {group[r] for r in before.get(n, ()) if r in group}

    for mine, n in enumerate(nodes):  # a number of its own, since groups disappear when they are merged
        wanted = direct(n)
        bits = 0
        for g in wanted:
            bits |= needs[g] | 1 << g
        home = None
        if n in free:
            for p in n.inputs:
                if p not in group:
                    continue
                g = group[p]
                if not _fusible(members[g], n, free) or _reads_view_of(members[g], [n]):
                    continue
                others = 0  # what n needs apart from g must not need g
                for w in wanted - {g}:
                    others |= needs[w] | 1 << w
                if not others >> g & 1:
                    home = g
                    break
        if home is None:
            members[mine], needs[mine], group[n] = [n], bits, mine
        else:
            members[home].append(n)
            group[n] = home
            bits &= ~(1 << home)
            if bits & ~needs[home]:
                needs[home] |= bits
                for g, old in needs.items():  # whatever needs the region now needs these too
                    if old >> home & 1:
                        needs[g] = old | bits
            _merge_into(home, n, group, members, needs, free)
    steps = {g: Step(m, bound.is_fusible(m[0])) for g, m in members.items()}
    users = _readers(nodes)
    roots = {view_base(o) for o in graph.outputs}
    for g, s in steps.items():
        s.outputs = [n for n in s.nodes if n in roots or any(group[u] != g for u in users.get(n, ()))]
    return _ordered(steps, group, before)


def _fusible(region: list[Node], n: Node, free: set[Node]) -> bool:
    return (region[0] in free and same_shape(region[0].shape, n.shape) and _weight([*region, n]) <= MAX_WEIGHT
            and len(_reads([*region, n])) < MAX_POINTERS)


def _weight(region: list[Node]) -> int:
    return sum(scalar.weight(n.op.expr) if n.op.expr is not None else 2 for n in region)


def _reads(nodes: list[Node]) -> set[Node]:
    inside = set(nodes)
    return {i for n in nodes for i in n.inputs if i not in inside and i.op is not ir.FULL}


def _reads_view_of(region: list[Node], nodes: list[Node]) -> bool:
    """Whether a node reads what the region makes through a view: elements that other iterations of its loop make."""
    return not set(region).isdisjoint(view_base(i) for n in nodes for i in n.inputs if i.op.is_view)


def _merge_into(home: int, n: Node, group: dict[Node, int], members: dict[int, list[Node]], needs: dict[int, int],
                free: set[Node]) -> None:
    """Pull the other elementwise regions that n reads into its own, where no path leads around."""
    for p in n.inputs:
        g = group.get(p)
        if g is None or g == home or not _fusible(members[g], n, free):
            continue
        merged = members[g] + members[home]
        if _weight(merged) > MAX_WEIGHT or len(_reads(merged)) > MAX_POINTERS or _reads_view_of(members[g], members[home]):
            continue
        between = [s for s, b in needs.items() if s not in (g, home) and b >> g & 1 and needs[home] >> s & 1]
        if between or needs[g] >> home & 1:
            continue
        members[home] = merged
        for m in members.pop(g):
            group[m] = home
        bits = needs.pop(g)
        needs[home] = (needs[home] | bits) & ~(1 << g) & ~(1 << home)
        for s, old in needs.items():
            if s != home and old >> g & 1:
                needs[s] = (old & ~(1 << g)) | 1 << home | needs[home]
            elif s != home and old >> home & 1:
                needs[s] = old | needs[home]


def _producers(n: Node) -> list[Node]:
    return [b for b in map(view_base, n.inputs) if _runs(b)]


def _readers(nodes: list[Node]) -> dict[Node, list[Node]]:
    out: dict[Node, list[Node]] = {}
    for n in nodes:
        for p in _producers(n):
            out.setdefault(p, []).append(n)
    return out


def _ordered(steps: dict[int, Step], group: dict[Node, int], before: Mapping[Node, set[Node]]) -> list[Step]:
    """Kahn's order; of the steps that could run, the one whose last node was recorded first."""
    wants: dict[int, set[int]] = {}
    for g, s in steps.items():
        found: set[int] = set()
        for n in s.nodes:
            found |= {group[p] for p in _producers(n)} | {group[r] for r in before.get(n, ()) if r in group}
        wants[g] = found - {g}
    rank = {g: k for k, g in enumerate(steps)}
    unlocks: dict[int, list[int]] = {}
    for g, ws in wants.items():
        for w in ws:
            unlocks.setdefault(w, []).append(g)
    left = {g: len(ws) for g, ws in wants.items()}
    ready = [(rank[g], g) for g, k in left.items() if not k]
    heapq.heapify(ready)
    out: list[Step] = []
    while ready:
        _, g = heapq.heappop(ready)
        out.append(steps[g])
        for u in unlocks.get(g, ()):
            left[u] -= 1
            if not left[u]:
                heapq.heappush(ready, (rank[u], u))
    assert len(out) == len(steps), "steps wait for one another"
    return out
