"""Equal pieces of a graph that follow one another, such as the layers of a model: found by structure, and exactly.

A repeat is a run of equally long pieces of a topological order in which the nodes at the same place have the same op,
attributes, shape and dtype, and read the same: a node of their own piece, a value carried over from an earlier piece (the
first piece reads another value wherever the later ones read this one), or something else from outside, of which only shape
and dtype must agree (each layer has weights of its own). Scalars must be equal.
The place in a stack of layers, `slice(start=)` or `write_slice(at=)`, may advance by a fixed step from piece to piece.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import ir
from .dims import Dim
from .ir import Graph, Node

LEAVES = frozenset({ir.INPUT, ir.CONSTANT, ir.FULL})
PLACES = {"slice": "start", "write_slice": "at"}  # attributes that may advance
MAX_PERIOD = 4096  # nodes of one piece: the search takes this times the number of nodes
MAX_LAG = 2  # pieces back from which a value may be carried
MAX_TRIES = 40  # candidates looked at more closely
EFFORT = 150  # nodes looked at, for each node there is: a graph in which more has to be tried keeps the rest unfolded


@dataclass(eq=False)
class Source:
    """What an operand of a piece's node reads. `kind`: 'scalar'; 'inside', node `index` of its own piece; 'carried', node
    `index` of the piece `lag` before it, the first `lag` pieces reading `nodes`; 'outside', `nodes`, one for each piece."""

    kind: str
    index: int = -1
    lag: int = 0
    nodes: list[Node] = field(default_factory=list)


@dataclass(eq=False)
class Repeat:
    """`pieces[r][j]` is node j of piece r; `sources[j]` are the operands of node j."""

    pieces: list[list[Node]]
    sources: list[list[Source]]

    @property
    def count(self) -> int:
        return len(self.pieces)

    def places(self, j: int) -> tuple[list[int], list[int]] | None:
        """The numbers in the place of node j in the first and in the last piece, when they advance."""
        first, last = _place(self.pieces[0][j]), _place(self.pieces[-1][j])
        return (first, last) if first != last else None


def fold(nodes: Iterable[Node], groups: Sequence[tuple[Hashable, Sequence[Node]]] = (), least: int = 1) -> list[Node | Repeat]:
    """The nodes in topological order, without inputs, captured arrays and scalars, runs of equal pieces put together.

    groups: nodes that belong together, with a name: a piece has all of a group or nothing of it, and groups at the same
        place have the same name. The nodes of a group must follow one another.
    least: a repeat must spare this number of nodes.
    """
    return _Folder([n for n in nodes if n.op not in LEAVES], groups).fold(least)


def stretches(keys: Sequence[Hashable], least: int) -> list[tuple[int, int, int]]:
    """Where equal groups of keys follow one another: (position, keys of a group, groups), in order and apart, those that
    spare most found first. least: a stretch must spare this number of keys."""
    known: dict[Hashable, int] = {}
    numbers = np.array([known.setdefault(k, len(known)) for k in keys], np.int64)
    found: list[tuple[int, int, int]] = []
    todo, left = [(0, len(keys))], EFFORT * len(keys) + 10_000
    while todo and left > 0:
        lo, hi = todo.pop()
        spared, best = least - 1, (0, 0, 0)
        for period in range(1, min((hi - lo) // 2, MAX_PERIOD) + 1):
            if spared >= hi - lo - period or left <= 0:  # no longer period can spare more
                break
            left -= (hi - lo) // 10
            start, run = _longest_run(numbers[lo:hi - period] == numbers[lo + period:hi])
            if run // period * period > spared:
                spared, best = run // period * period, (lo + start, period, run // period + 1)
        if best[1]:
            found.append(best)
            todo += [(lo, best[0]), (best[0] + best[1] * best[2], hi)]
    return sorted(found)


def _longest_run(equal: np.ndarray[Any, Any]) -> tuple[int, int]:
    """(position, length) of the longest run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], equal, [0]))))
    if not len(edges):
        return 0, 0
    runs = edges[1::2] - edges[::2]
    k = int(runs.argmax())
    return int(edges[2 * k]), int(runs[k])


# ------------------------------------------------------------------------------------------------ what a node is
def _plain(v: Any) -> Any:
    """A value as a key that is compared without deciding anything about symbolic lengths."""
    if isinstance(v, Dim):
        return ("length", repr(v))
    return tuple(map(_plain, v)) if isinstance(v, tuple) else ir.freeze_value(v)


def _without_place(v: Any) -> Any:
    if isinstance(v, tuple):
        return tuple(map(_without_place, v))
    return "place" if type(v) is int else _plain(v)


def _numbers(v: Any) -> list[int]:
    if isinstance(v, tuple):
        return [n for x in v for n in _numbers(x)]
    return [v] if type(v) is int else []


def _place(n: Node) -> list[int]:
    return _numbers(n.attr(PLACES[n.op.name])) if n.op.name in PLACES else []


def _signature(n: Node) -> Hashable:
    place = PLACES.get(n.op.name)
    attrs = tuple((k, _without_place(v) if k == place else _plain(v)) for k, v in n.attrs if k != "uid")
    operands = tuple((str(i.aval), _plain(i.attr("value")) if i.op is ir.FULL else None) for i in n.inputs)
    return n.op.name, attrs, str(n.aval), operands


def _is_clear(sources: list[list[Source]]) -> bool:
    """Whether each carried value comes from one place at first, and from one that pieces read as nothing else."""
    first: dict[tuple[int, int], list[Node]] = {}
    flat = [s for ss in sources for s in ss]
    if any(first.setdefault((s.index, s.lag), s.nodes) != s.nodes for s in flat if s.kind == "carried"):
        return False
    begun = {i for nodes in first.values() for i in nodes}
    return not any(s.kind == "outside" and not begun.isdisjoint(s.nodes) and len(set(s.nodes)) > 1 for s in flat)


def in_order(graph: Graph) -> list[Node]:
    """The nodes in the order in which they were recorded, so that those of a layer stand together."""
    return sorted(graph.nodes(), key=lambda n: n.id)


def _begun_earlier(s: Source, i: Node) -> Source:
    """The operand when there is one more piece before, whose node reads i."""
    if s.kind == "outside":
        return Source(s.kind, nodes=[i, *s.nodes])
    return Source(s.kind, s.index, s.lag, [i, *s.nodes[:-1]]) if s.kind == "carried" else s


class _Folder:
    def __init__(self, nodes: list[Node], groups: Sequence[tuple[Hashable, Sequence[Node]]]) -> None:
        self.nodes = nodes
        self.group = {n: (g, k, len(members)) for g, (_, members) in enumerate(groups) for k, n in enumerate(members)}
        known: dict[Hashable, int] = {}
        numbers = {}
        for n in nodes:
            g = self.group.get(n)
            numbers[n] = known.setdefault((_signature(n), (groups[g[0]][0], g[1:]) if g else None), len(known))
        self.left = EFFORT * len(nodes) + 10_000
        self.number = numbers  # equal numbers: same op, attributes, shapes, scalars, and place in an equal group
        self._place_all()

    def _place_all(self) -> None:
        self.at = {n: p for p, n in enumerate(self.nodes)}
        last = list(range(len(self.nodes)))
        for p, n in enumerate(self.nodes):
            for i in n.inputs:
                if i in self.at:
                    last[self.at[i]] = p
        change = np.zeros(len(self.nodes) + 2, np.int64)
        for p, until in enumerate(last):
            change[p + 1] += 1
            change[until + 1] -= 1
        self.crossing = change.cumsum()  # values from before a position that are read from it on

    def fold(self, least: int) -> list[Node | Repeat]:
        found: list[tuple[int, int, Repeat]] = []
        todo = [(0, len(self.nodes))]
        while todo and self.left > 0:
            lo, hi = todo.pop()
            best = self._best(lo, hi, least)
            if best is None:
                continue
            self.nodes, start, repeat = best
            self._place_all()
            end = start + repeat.count * len(repeat.sources)
            found.append((start, end, repeat))
            todo += [(lo, start), (end, hi)]
        out: list[Node | Repeat] = []
        p = 0
        for start, end, repeat in sorted(found, key=lambda f: f[0]):
            out += [*self.nodes[p:start], repeat]
            p = end
        return out + list(self.nodes[p:])

    # -------------------------------------------------------------------------------------- candidates
    def _best(self, lo: int, hi: int, least: int) -> tuple[list[Node], int, Repeat] | None:
        """The repeat in this range that spares most nodes: the order in which it is one, its position there, and it."""
        numbers = np.array([self.number[n] for n in self.nodes[lo:hi]], np.int64)
        self.left -= 10 * len(numbers)
        candidates: list[tuple[int, int, int, int]] = []
        for period in range(1, min(len(numbers) // 2, MAX_PERIOD) + 1):
            equal = numbers[:-period] == numbers[period:]
            if np.count_nonzero(equal) < period:
                continue
            begin, run = _longest_run(equal)
            spared = run // period * period
            if spared >= least and run >= period:
                candidates.append((-spared, period, lo + begin, run))
        best: tuple[list[Node], int, Repeat] | None = None
        most = 0
        for spared, period, start, run in sorted(candidates)[:MAX_TRIES]:
            if 2 * (-spared + period) - period < most or self.left <= 0:
                break
            got = self._longest(lo, start, run, period)
            if got is None or (got[2].count - 1) * period < least:
                continue
            score = 2 * (got[2].count - 1) * period - period  # of repeats that spare about the same, the one of short pieces
            if score > most or (score == most and best is not None and period < len(best[2].sources)):
                best, most = got, score
        return best

    def _longest(self, lo: int, start: int, run: int, period: int) -> tuple[list[Node], int, Repeat] | None:
        """The longest repeat in a run of nodes like those a period later."""
        end = start + run + period
        begins = [c for c in range(start, min(start + period, end - 2 * period + 1)) if self._is_cut(c)]
        begins.sort(key=lambda c: (-((end - c) // period), self.crossing[c + period], c))  # most pieces; fewest values carried
        best: tuple[list[Node], int, Repeat] | None = None
        for c in begins[:3]:
            while end - c >= 2 * period and self.left > 0:
                repeat, count = self._repeat(c, period, (end - c) // period)
                if repeat is not None:
                    order = self.nodes
                    begin, repeat = self._with_earlier(lo, c, repeat)
                    if best is None or repeat.count > best[2].count:
                        best = self.nodes, begin, repeat
                    if self.nodes is not order:
                        self.nodes = order
                        self.at.update((n, p) for p, n in enumerate(order[lo:c], lo))
                c += max(count, 1) * period
        return best

    def _is_cut(self, p: int) -> bool:
        """Whether no group goes on across this position."""
        g = self.group.get(self.nodes[p])
        return g is None or g[1] == 0

    # -------------------------------------------------------------------------------------- proof
    def _repeat(self, start: int, period: int, count: int) -> tuple[Repeat | None, int]:
        """The first `count` pieces from a position, or as many as agree, and their number; None when only one does."""
        while count > 1:
            pieces: list[list[Node]] = []
            sources = [[Source("scalar" if i.op is ir.FULL else "") for i in n.inputs] for n in self.nodes[start:start + period]]
            while len(pieces) < count:
                r = len(pieces)
                pieces.append(self.nodes[start + r * period:start + (r + 1) * period])
                if not self._agrees(start, period, pieces, sources, r):
                    break
            else:
                return (Repeat(pieces, sources), count) if _is_clear(sources) else (None, 1)
            count = r  # what the pieces before the wrong one read is looked at again: it may have read on
        return None, count

    def _agrees(self, start: int, period: int, pieces: list[list[Node]], sources: list[list[Source]], r: int) -> bool:
        self.left -= period
        for j, n in enumerate(pieces[r]):
            for s, i in zip(sources[j], n.inputs):
                if s.kind == "scalar":
                    continue
                p = self.at.get(i, -1)
                if p < start:  # from outside, so far in every piece or in those that cannot reach back far enough
                    if s.kind not in ("", "outside"):
                        return False
                    s.kind = "outside"
                    s.nodes.append(i)
                    continue
                lag, index = r - (p - start) // period, (p - start) % period
                if not r and not lag:
                    s.kind, s.index = "inside", index
                elif s.kind == "outside" and 0 < lag == r <= MAX_LAG:
                    s.kind, s.index, s.lag = "carried", index, lag
                elif s.kind not in ("inside", "carried") or (s.index, s.lag) != (index, lag):
                    return False
            if r > 1 and n.op.name in PLACES:
                before, first, second = _place(pieces[r - 1][j]), _place(pieces[0][j]), _place(pieces[1][j])
                if [b - a for a, b in zip(before, _place(n))] != [b - a for a, b in zip(first, second)]:
                    return False
        return True

    # -------------------------------------------------------------------------------------- pieces with others between
    def _with_earlier(self, lo: int, start: int, repeat: Repeat) -> tuple[int, Repeat]:
        """The repeat with the pieces right before it whose nodes do not follow one another: in the first layer often stands
        what later ones share. Those other nodes are moved before the repeat."""
        while True:
            piece = self._earlier(lo, start, repeat)
            if piece is None:
                return start, repeat
            sources = [[_begun_earlier(s, i) for s, i in zip(ss, n.inputs)] for ss, n in zip(repeat.sources, piece)]
            if not _is_clear(sources):
                return start, repeat
            mine = set(piece)
            begin = min(self.at[n] for n in piece)
            others = [n for n in self.nodes[begin:start] if n not in mine]
            self.nodes = [*self.nodes[:begin], *others, *piece, *self.nodes[start:]]
            self.at.update((n, p) for p, n in enumerate(self.nodes[begin:start], begin))
            self.left -= start - begin
            start -= len(piece)
            repeat = Repeat([piece, *repeat.pieces], sources)

    def _earlier(self, lo: int, start: int, repeat: Repeat) -> list[Node] | None:
        """The piece before the first one: the nodes that carried values come from, and what these read."""
        found: dict[int, Node] = {}
        todo = [(s.index, s.nodes[-1]) for ss in repeat.sources for s in ss if s.kind == "carried"]
        while todo:
            j, n = todo.pop()
            if j in found:
                if found[j] is not n:
                    return None
                continue
            if not lo <= self.at.get(n, -1) < start or self.number[n] != self.number[repeat.pieces[0][j]]:
                return None
            step = [b - a for a, b in zip(_place(repeat.pieces[0][j]), _place(repeat.pieces[1][j]))]
            if [b - a for a, b in zip(_place(n), _place(repeat.pieces[0][j]))] != step:
                return None
            found[j] = n
            todo += [(s.index, i) for s, i in zip(repeat.sources[j], n.inputs) if s.kind == "inside"]
        piece = [found[j] for j in sorted(found)]
        mine = set(piece)
        if len(mine) != len(repeat.sources):
            return None
        groups = {self.group[n][0]: self.group[n][2] for n in piece if n in self.group}
        if sum(groups.values()) != sum(n in self.group for n in piece):
            return None
        for n, ss in zip(piece, repeat.sources):
            for s, i in zip(ss, n.inputs):
                from_outside = [i, *s.nodes] if s.kind == "outside" else [i, *s.nodes[:-1]] if s.kind == "carried" else []
                if not mine.isdisjoint(from_outside):
                    return None
        between = self.nodes[min(self.at[n] for n in piece):start]
        if any(n not in mine and not mine.isdisjoint(n.inputs) for n in between):
            return None  # it depends on the piece, and cannot move before it
        return piece
