"""A graph as a picture: what each node's box says, which boxes stand together, and what is drawn of a large graph."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from . import ir, printer
from .dims import Dim
from .drawing import Box, Frame, carry, connect, svg, text
from .dtypes import DType
from .fold import LEAVES, PLACES, Repeat, Source, fold, in_order
from .ir import Graph, Node

FOLD_FROM = 24  # nodes: smaller graphs are drawn as they are
LEAST = 8  # nodes that folding a repeat must spare
MOST = 240  # boxes drawn
SHOWN_BY_SHAPE = {"shape", "dtype", "length", "uid"}
IDLE = 8  # inputs named that nothing reads
LABEL = 38  # characters of a line in a box


@dataclass(frozen=True, eq=False)
class Group:
    """Nodes that one kernel computes. `key`: equal for equal kernels."""

    key: Hashable
    number: int  # of the launch
    title: str
    nodes: Sequence[Node]


def draw(graph: Graph, folded: bool | None = None, groups: Sequence[Group] = (), order: Sequence[Node] | None = None) -> str:
    """The graph as SVG. folded: whether equal pieces that follow one another are drawn once; None: in graphs that are not
    small. groups, order: the kernels that compute it, and its nodes in an order in which those of a kernel are together."""
    return _Picture(graph, folded, groups, in_order(graph) if order is None else order).svg()


class _Picture:
    def __init__(self, graph: Graph, folded: bool | None, groups: Sequence[Group], order: Sequence[Node]) -> None:
        self.graph = graph
        self.names = printer.node_names(graph)
        self.page = Frame()
        self.boxes: dict[Node, tuple[Box, int, int]] = {}  # its box; of how many pieces, which one
        self.chosen: dict[tuple[Box, tuple[int, ...]], Box] = {}
        self.drawn = self.left_out = 0
        computed = [n for n in order if n.op.kind != "leaf" or n.op is ir.EMPTY]
        is_small = len(computed) <= FOLD_FROM
        items: Sequence[Node | Repeat] = computed
        if folded or (folded is None and not is_small):
            items = fold(computed, [(g.key, g.nodes) for g in groups], 1 if is_small else LEAST)
        self.group = {n: g for g in groups for n in g.nodes if len(g.nodes) > 1}
        self.alone: dict[Node, list[Group]] = {}  # two for an op that is done in parts and put together
        for g in groups:
            if len(g.nodes) == 1:
                self.alone.setdefault(g.nodes[0], []).append(g)
        self.frames: dict[tuple[int, int], Frame] = {}
        for item in items:
            self._repeat(item) if isinstance(item, Repeat) else self._node(item)
        self._results()

    def svg(self) -> str:
        note = f"{count(self.left_out, 'more op')} not drawn" if self.left_out else ""
        return svg(self.page, f"the graph of {self.graph.name}", note)

    # -------------------------------------------------------------------------------------- boxes
    def _room(self, boxes: int = 1, ops: int = 0) -> bool:
        if self.drawn + boxes > MOST:
            self.left_out += ops
            return False
        self.drawn += boxes
        return True

    def _leaf(self, n: Node) -> Box | None:
        """The box of an input, made when it is first read."""
        found = self.boxes.get(n)
        if found is not None:
            return found[0]
        if n.op not in LEAVES or not self._room():
            return None
        box = Box(_leaf_lines([n], self.graph), _leaf_kind(n, self.graph), _leaf_title(n, self.names))
        self.page.add(box)
        self.boxes[n] = box, 0, 1
        return box

    def _node(self, n: Node) -> None:
        if not self._room(ops=1):
            return
        box = self._box([n], self.page)
        operands = [i for i in n.inputs if i.op is not ir.FULL]
        alike: dict[Box, list[int]] = {}  # where it reads several of a repeat's pieces, as a concatenation of all does
        for i in operands:
            if i in self.boxes and self.boxes[i][2] > 1:
                alike.setdefault(self.boxes[i][0], []).append(self.boxes[i][1])
        for slot, i in enumerate(operands):
            pieces = alike.get(self.boxes[i][0], []) if i in self.boxes else []
            if len(pieces) <= 1:
                self._edge(i, box, slot)
            elif self.boxes[i][1] == pieces[0]:
                connect(self._choice(self.boxes[i][0], pieces), box, slot)

    def _box(self, nodes: Sequence[Node], home: Frame, repeat: Repeat | None = None, j: int = 0) -> Box:
        """The box of a node, or of the nodes at one place of all pieces."""
        n = nodes[0]
        alone = self.alone.get(n, [])
        place = repeat.places(j) if repeat is not None else None
        lines = [_clip(_label(n, place)), _clip(str(n.aval))]
        title = printer.line_of(n, self.names) + (_advances(place) if place else "")
        if n.where is not None and n.where.text():
            title += "\n" + n.where.text().strip()
        if alone:
            numbers = ", ".join(f"{g.number}{'…' * (len(nodes) > 1)}" for g in alone)
            lines[0] = f"{numbers}: {lines[0]}"
            title += "".join("\n" + g.title for g in alone)
        if len(nodes) > 1:
            title += f"\none of {len(nodes)} alike"
        kind = ("view" if n.op.is_view else "constant" if n.op.kind == "leaf" else
                "copy" if n.op.name in ("copy", "contiguous") else "op")
        box = Box(lines, kind, title, slots=sum(i.op is not ir.FULL for i in n.inputs))
        self._home(n, home).add(box)
        for r, m in enumerate(nodes):
            self.boxes[m] = box, r, len(nodes)
        return box

    def _home(self, n: Node, home: Frame) -> Frame:
        """The frame of the kernel that computes this node with others; `home` if there is none."""
        group = self.group.get(n)
        if group is None:
            return home
        frame = self.frames.get((id(group), id(home)))
        if frame is None:
            hue = (47 * len(self.frames) + 200) % 360
            frame = self.frames[id(group), id(home)] = Frame(
                f"launch {group.number}{'…' * (home is not self.page)}", "kernel", group.title, hue)
            home.add(frame)
        return frame

    def _repeat(self, repeat: Repeat) -> None:
        nodes = sum(len(p) for p in repeat.pieces)
        if not self._room(len(repeat.sources)):
            for n in (n for piece in repeat.pieces for n in piece):  # as many as there is room for
                self._node(n)
            return
        frame = Frame(f"× {repeat.count}", "repeat", f"{repeat.count} equal pieces of {len(repeat.sources)} ops, {nodes} in all")
        self.page.add(frame)
        places = [[p[j] for p in repeat.pieces] for j in range(len(repeat.sources))]
        boxes = [self._box(nodes, frame, repeat, j) for j, nodes in enumerate(places)]
        families: dict[tuple[Node, ...], Box] = {}
        for box, sources in zip(boxes, repeat.sources):
            slot = 0
            for s in sources:
                if s.kind == "scalar":
                    continue
                if s.kind == "inside":
                    connect(boxes[s.index], box, slot)
                elif s.kind == "carried":
                    value = ("carried", id(frame), s.index, s.lag, tuple(s.nodes))
                    begun = [self._edge(i, box, slot, value) for i in s.nodes]
                    if all(begun):
                        carry(frame, value, boxes[s.index])
                elif _is_shared(s):
                    self._edge(s.nodes[0], box, slot)
                else:
                    connect(self._family(tuple(s.nodes), frame, families), box, slot)
                slot += 1

    def _family(self, nodes: tuple[Node, ...], frame: Frame, families: dict[tuple[Node, ...], Box]) -> Box:
        """The box of values from outside of which each piece reads its own."""
        box = families.get(nodes)
        if box is None:
            leaf = all(n.op in (ir.INPUT, ir.CONSTANT) for n in nodes)
            lines = _leaf_lines(nodes, self.graph) if leaf else [f"one of {len(set(nodes))} values", _clip(str(nodes[0].aval))]
            kind = _leaf_kind(nodes[0], self.graph) if leaf else "view"
            shown = [_leaf_title(n, self.names) if leaf else self.names[n] for n in (nodes[0], nodes[-1])]
            box = families[nodes] = Box(lines, kind, "\nto ".join(shown) + "\none for each piece", slots=0 if leaf else 1)
            frame.add(box)
            self.drawn += 1
            if not leaf:
                for n in dict.fromkeys(nodes):
                    self._edge(n, box, 0, ("family", id(box)))
        return box

    def _results(self) -> None:
        alike: dict[Box, list[int]] = {}  # results that the pieces of a repeat give in one place
        for k, o in enumerate(self.graph.outputs):
            found = self.boxes.get(o)
            if found is not None and found[2] > 1:
                alike.setdefault(found[0], []).append(k)
        many = {k: ks for ks in alike.values() if len(ks) > 2 for k in ks}
        for k, o in enumerate(self.graph.outputs):
            together = many.get(k, [k])
            if together[0] != k or not self._room():
                continue
            name = "result" if len(self.graph.outputs) == 1 else f"result {k}"
            name = name if len(together) == 1 else f"{len(together)} results, {k}…{together[-1]}"
            box = Box([name, _clip(str(o.aval))], "output", name, slots=1)
            self.page.add(box)
            if len(together) > 1:
                connect(self._choice(self.boxes[o][0], [self.boxes[self.graph.outputs[t]][1] for t in together]), box, 0)
            else:
                self._edge(o, box, 0)

    # -------------------------------------------------------------------------------------- edges
    def _edge(self, source: Node, box: Box, slot: int, value: Hashable = None) -> bool:
        """From the box of a node, if there is one. Of many alike, the last is meant unless a box between says which."""
        start = self._leaf(source)
        if start is None:
            return False
        _, r, alike = self.boxes[source]
        connect(start if r == alike - 1 else self._choice(start, [r]), box, slot, value)
        return True

    def _choice(self, start: Box, pieces: Sequence[int]) -> Box:
        """A box that says of which repetitions a value is read, between a repeat and who reads it."""
        key = (start, tuple(pieces))
        box = self.chosen.get(key)
        if box is None:
            numbers = [r + 1 for r in pieces]
            row = len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1))
            which = f"{numbers[0]}…{numbers[-1]}" if row else ", ".join(map(str, numbers))
            box = self.chosen[key] = Box([_clip(f"of repetition{'s' * (len(numbers) > 1)} {which}")], "view", slots=1)
            self.page.add(box)
            self.drawn += 1
            connect(start, box, 0)
        return box


def _is_shared(s: Source) -> bool:
    return s.kind == "outside" and all(n is s.nodes[0] for n in s.nodes)


# ------------------------------------------------------------------------------------------------ words
def _label(n: Node, place: tuple[list[int], list[int]] | None) -> str:
    """The op with its attributes, those left out that are as they always are or that the result's shape shows."""
    if n.op is ir.EMPTY:
        return "new buffer"
    attrs = []
    for k, v in n.attrs:
        declared = n.op.attrs.get(k)
        is_place = k == PLACES.get(n.op.name)
        if k in SHOWN_BY_SHAPE or v is None or (declared is not None and _same(declared.default, v) and not is_place):
            continue
        if n.op.name == "write_slice" and k == "axis":
            continue
        shown = _advanced(v, place) if place is not None and is_place else _value(v)
        if n.op.name == "write_slice" and n.attr("axis") is not None:  # this start is an operand
            at = shown[1:-1].split(", ")
            at[n.attr("axis")] = "·"
            shown = f"({', '.join(at)})"
        attrs.append(f"{k}={shown}")
    if any(i.op is ir.FULL for i in n.inputs):
        attrs = [_value(i.attr("value")) if i.op is ir.FULL else "·" for i in n.inputs] + attrs
        return f"{n.op.name}({', '.join(attrs)})"
    return " ".join([n.op.name, *attrs])


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and not isinstance(a, Dim) and not isinstance(a, tuple) and a == b


def _value(v: Any) -> str:
    if isinstance(v, DType):
        return v.name
    if isinstance(v, tuple):
        return "(" + ", ".join(map(_value, v)) + ("," if len(v) == 1 else "") + ")"
    return f"{v:.6g}" if isinstance(v, float) else repr(v)


def _advanced(v: Any, place: tuple[list[int], list[int]]) -> str:
    """The place with its first and last number where it advances."""
    numbers = iter(zip(*place))

    def one(v: Any) -> str:
        if isinstance(v, tuple):
            return "(" + ", ".join(map(one, v)) + ("," if len(v) == 1 else "") + ")"
        if type(v) is not int:
            return _value(v)
        first, last = next(numbers)
        return f"{first}" if first == last else f"{first}…{last}"

    return one(v)


def _advances(place: tuple[list[int], list[int]]) -> str:
    return f"\nin the last piece the place is {', '.join(map(str, place[1]))}"


def _leaf_lines(nodes: Sequence[Node], graph: Graph) -> list[str]:
    n = nodes[0]
    if n.op is ir.FULL:
        return [_clip(_value(n.attr("value"))), _clip(str(n.aval))]
    if n.op is ir.CONSTANT:
        names = ["captured array" if len(nodes) == 1 else f"{len(set(nodes))} captured arrays"]
    else:
        names = [_clip(_common([m.attr("name") for m in nodes]))]
    return [*names, _clip(str(n.aval) + (" donated" if _leaf_kind(n, graph) == "donated" else ""))]


def _leaf_kind(n: Node, graph: Graph) -> str:
    if n.op is not ir.INPUT:
        return "constant"
    return "donated" if n in graph.inputs and graph.inputs.index(n) in graph.donated else "input"


def _leaf_title(n: Node, names: dict[Node, str]) -> str:
    return f"{names.get(n, '')}: {n.aval}" + (f"   {n.where}" if n.where else "")


def _common(names: Sequence[str]) -> str:
    """`layers[0]["w"]` and `layers[29]["w"]` as `layers[0…29]["w"]`."""
    first, last = names[0], names[-1]
    if first == last:
        return first
    a = 0
    while a < min(len(first), len(last)) and first[a] == last[a]:
        a += 1
    while a and first[a - 1].isdigit():
        a -= 1
    b = 0
    while b < min(len(first), len(last)) - a and first[-1 - b] == last[-1 - b]:
        b += 1
    while b and first[len(first) - b].isdigit():
        b -= 1
    return f"{first[:len(first) - b]}…{last[a:]}"


def _clip(s: str) -> str:
    """A label's length; names lose their beginning, since they differ at the end."""
    return s if len(s) <= LABEL else s[:LABEL // 3] + "…" + s[-(LABEL - LABEL // 3 - 1):]


# ------------------------------------------------------------------------------------------------ HTML
def scrolling(picture: str) -> str:
    return f'<div style="max-width:100%;max-height:42em;overflow:auto">{picture}</div>'


def details(summary: str, body: str, is_open: bool = False) -> str:
    opened = ' open="open"' if is_open else ""
    return f"<details{opened}><summary>{text(summary)}</summary>{body}</details>"


def preformatted(body: str) -> str:
    return f'<pre style="overflow:auto;max-height:42em">{text(body)}</pre>'


def graph_html(graph: Graph) -> str:
    """The picture, and below it the program, where it is not long."""
    nodes = graph.nodes()
    ops = sum(n.op.kind != "leaf" for n in nodes)
    source = str(graph)
    lines = source.count("\n") + 1
    program = (details("as a program", preformatted(source)) if len(source) <= printer.LONG else
               f"<p>As a program it has {lines} lines: <code>print(f.graph)</code>.</p>")
    read = set(nodes)
    idle = [n.attr("name") for n in graph.inputs if n not in read]
    rest = f"; not read: {', '.join(idle[:IDLE])}{' …' * (len(idle) > IDLE)}" if idle else ""
    head = f"<div>graph of <b>{text(graph.name)}</b>: {count(ops, 'op')}{text(rest)}</div>"
    return f"<div>{head}{scrolling(draw(graph))}{program}</div>"


def count(n: Any, noun: str) -> str:
    """`1 launch`, `2 launches`."""
    plural = noun + ("es" if noun.endswith(("ch", "s", "x")) else "s")
    return f"{n} {noun if n == 1 and isinstance(n, int) else plural}"
