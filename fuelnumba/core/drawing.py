"""Boxes, frames around boxes, and edges: laid out in rows from top to bottom, and written as SVG.

Rows are longest paths; within a row, boxes are ordered by where their neighbours stand (barycentres) and then moved as near
to them as the distances allow. A frame is laid out for itself first and is a box for what is around it; an edge that crosses
its border does so at a port. Lengths are pixels. The SVG takes its colour from the text around it, for light pages and dark.
"""

from __future__ import annotations

import bisect
import colorsys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise

CHAR, LINE, PAD_X, PAD_Y = 6.7, 14.0, 8.0, 5.0  # a character of the font, a line of text, a box around text
GAP_X, GAP_Y, FRAME, HEAD, LOOP = 16.0, 24.0, 10.0, 20.0, 9.0
SWEEPS = 8

# kind of box: (fill, its opacity, stroke, its opacity, dashes, radius, opacity of the text)
STYLES = {
    "op": ("#4c8dd6", 0.16, "currentColor", 0.6, "", 3, 1.0),
    "view": ("none", 0.0, "currentColor", 0.4, "3 2", 3, 0.65),
    "constant": ("#888888", 0.14, "currentColor", 0.35, "", 3, 0.75),
    "copy": ("#d65c4c", 0.2, "currentColor", 0.6, "", 3, 1.0),
    "input": ("#46a567", 0.22, "#46a567", 0.9, "", 9, 1.0),
    "donated": ("#e0882b", 0.28, "#e0882b", 1.0, "", 9, 1.0),
    "output": ("#9067d6", 0.24, "#9067d6", 0.9, "", 9, 1.0),
}


@dataclass(eq=False)
class Box:
    """Lines of text; the first is bold. x, y are its top left corner, once laid out."""

    lines: list[str]
    kind: str = "op"
    title: str = ""  # shown when the mouse rests on it
    parent: Frame | None = None
    slots: int = 0  # operands drawn
    x: float = 0.0
    y: float = 0.0

    def __post_init__(self) -> None:
        self.w = CHAR * max(map(len, self.lines)) + 2 * PAD_X
        self.h = LINE * len(self.lines) + 2 * PAD_Y


@dataclass(eq=False)
class Frame:
    """A group of boxes and frames with a border. kind: 'kernel', 'repeat', or 'page' for the outermost."""

    label: str = ""
    kind: str = "page"
    title: str = ""
    hue: int = 0
    parent: Frame | None = None
    children: list[Box | Frame] = field(default_factory=list)
    loops: list[Hashable] = field(default_factory=list)  # ports by which comes in again what the frame gives
    segments: dict[tuple[_End, _End], None] = field(default_factory=dict)
    x: float = 0.0
    y: float = 0.0
    w: float = 0.0
    h: float = 0.0
    entries: dict[Hashable, float] = field(default_factory=dict)  # ports: how far from the left edge
    exits: dict[Hashable, float] = field(default_factory=dict)
    lines: list[list[tuple[float, float]]] = field(default_factory=list)  # edges inside: points, relative to x, y
    loop_lines: list[list[tuple[float, float]]] = field(default_factory=list)
    arrows: list[bool] = field(default_factory=list)  # whether a line ends at a box

    def add(self, child: Box | Frame) -> None:
        child.parent = self
        self.children.append(child)


# an end of a segment: ('in', value) and ('out', value) are ports of the frame, ('box', child, slot or value)
_End = tuple[Hashable, ...]


def connect(source: Box, target: Box, slot: int, value: Hashable = None) -> None:
    """An edge to an operand of the target. Edges of one `value` enter a frame by one port; the source itself is meant where
    it is not given."""
    leaving = ("value", id(source))
    value = leaving if value is None else value
    above, below = _frames(source), _frames(target)
    while above and below and above[-1] is below[-1]:
        common = above.pop()
        below.pop()
    end: _End = ("box", source, None)
    for frame in above:
        frame.segments[end, ("out", leaving)] = None
        end = ("box", frame, leaving)
    inner: Box | Frame = target
    key: Hashable = slot
    for frame in below:
        frame.segments[("in", value), ("box", inner, key)] = None
        inner, key = frame, value
    common.segments[end, ("box", inner, key)] = None


def carry(frame: Frame, value: Hashable, box: Box) -> None:
    """What `box` gives is what comes in by the frame's port `value` the next time."""
    if value in frame.loops:
        return
    end: _End = ("box", box, None)
    for inner in _frames(box):
        if inner is frame:
            break
        inner.segments[end, ("out", ("value", id(box)))] = None
        end = ("box", inner, ("value", id(box)))
    frame.segments[end, ("loop", value)] = None
    frame.loops.append(value)


def _frames(box: Box | Frame) -> list[Frame]:
    """The frames around a box, innermost first."""
    out = []
    frame = box.parent
    while frame is not None:
        out.append(frame)
        frame = frame.parent
    return out


# ------------------------------------------------------------------------------------------------ layout
@dataclass(eq=False)
class _Item:
    """What stands in a row: a box, a frame, a port, the place of a label, or a bend of an edge over several rows."""

    w: float
    h: float
    thing: Box | Frame | None = None
    row: int = 0
    x: float = 0.0  # its middle
    y: float = 0.0
    tied: float = 1.0
    is_low: bool = False  # stands at the bottom of its row, near to its reader
    above: list[tuple[_Item, float, float]] = field(default_factory=list)  # neighbour, port there, port here: from the middles
    below: list[tuple[_Item, float, float]] = field(default_factory=list)


def arrange(frame: Frame) -> None:
    """Place all that is in a frame, and find its size and ports."""
    for child in frame.children:
        if isinstance(child, Frame):
            arrange(child)
    _Level(frame).place()


class _Level:
    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        strip = LOOP * len(frame.loops)
        self.head = 0.0 if frame.kind == "page" else HEAD + strip
        self.foot = 0.0 if frame.kind == "page" else FRAME + strip
        self.segments = frame.segments
        self.items: dict[Hashable, _Item] = {}
        for a, _ in self.segments:
            if a[0] == "in":
                self.items[a] = _Item(4, self.head)
        for c in frame.children:
            self.items[c] = _Item(c.w, c.h, c)
        for _, b in self.segments:
            if b[0] in ("out", "loop"):
                self.items[b] = _Item(4, self.foot)

    def item(self, end: _End) -> _Item:
        return self.items[end[1] if end[0] == "box" else end]

    def port(self, end: _End, entering: bool) -> float:
        """How far from the middle of its item an edge ends."""
        if end[0] != "box":
            return 0.0
        thing, key = end[1], end[2]
        if isinstance(thing, Frame):
            return (thing.entries if entering else thing.exits)[key] - thing.w / 2
        assert isinstance(thing, Box)
        if not entering or not isinstance(key, int):
            return 0.0
        step = min(22.0, (thing.w - 10) / max(thing.slots, 1))
        return (key - (thing.slots - 1) / 2) * step

    def place(self) -> None:
        frame = self.frame
        self._rows()
        chains = self._bends()
        rows: list[list[_Item]] = [[] for _ in range(1 + max((i.row for i in self.all), default=0))]
        for item in self.all:
            rows[item.row].append(item)
        _order(rows)
        if frame.kind != "page":
            label = _Item(CHAR * len(frame.label) + 4, 0.0)
            rows[0].insert(0, label)
            self.all.append(label)
        _move(rows)
        if frame.kind != "page":  # at the left edge, and left of all ports
            label.x = min(i.x - i.w / 2 for i in self.all if i is not label or len(self.all) == 1) + label.w / 2
            if len(rows[0]) > 1:
                label.x = min(label.x, rows[0][1].x - (rows[0][1].w + label.w) / 2 - GAP_X)
        side = 0.0 if frame.kind == "page" else FRAME + LOOP * len(frame.loops)
        left = min((i.x - i.w / 2 for i in self.all), default=0.0) - side
        right = max((i.x + i.w / 2 for i in self.all), default=0.0) + (0.0 if frame.kind == "page" else FRAME)
        y = 0.0
        spans = []
        for k, row in enumerate(rows):
            height = max((i.h for i in row), default=0.0)
            if k == 0:
                height = max(height, self.head)
            spans.append((y, y + height))
            for i in row:
                i.x -= left
                i.y = y if i.thing is None else y + (height - i.h) * (1.0 if i.is_low else 0.5)
                if i.thing is not None:
                    i.thing.x, i.thing.y = i.x - i.w / 2, i.y
            y += height + GAP_Y
        closed = frame.kind != "page" and not any(b[0] != "box" for _, b in self.segments)
        frame.w, frame.h = right - left, max(y - GAP_Y + (self.foot if closed else 0.0), 0.0)
        for (a, b), chain in zip(self.segments, chains):
            self._line(a, b, chain, spans)
        for key, item in self.items.items():
            if isinstance(key, tuple) and key[0] in ("in", "out"):
                (frame.entries if key[0] == "in" else frame.exits)[key[1]] = item.x
        for k, value in enumerate(frame.loops):
            self._loop(k, value)

    def _rows(self) -> None:
        """Rows by longest path; what depends on nothing but inputs stands right above its first reader."""
        after: dict[_Item, list[_Item]] = {}
        waiting = dict.fromkeys(self.items.values(), 0)
        for a, b in self.segments:
            after.setdefault(self.item(a), []).append(self.item(b))
            waiting[self.item(b)] += 1
        ports = {i for k, i in self.items.items() if isinstance(k, tuple)}
        first = 0 if self.frame.kind == "page" else 1
        order = [i for i, n in waiting.items() if not n]
        roots = set(order)
        fed: set[_Item] = set()  # what ports and computed values lead to
        for i in order:
            i.row = i.row if i in ports else max(i.row, first)
            is_view = isinstance(i.thing, Box) and i.thing.kind == "view"
            if i in ports or i in fed or not (is_view or i in roots):
                fed.add(i)
                fed.update(after.get(i, ()))
            for reader in after.get(i, ()):
                reader.row = max(reader.row, i.row + 1)
                waiting[reader] -= 1
                if not waiting[reader]:
                    order.append(reader)
        for i in reversed(order):
            if i not in fed and i in after:
                i.row = max(min(b.row for b in after[i]) - 1, i.row)
                i.is_low = True
        last = max((i.row for i in order if i not in ports), default=0) + 1
        for key, i in self.items.items():
            if isinstance(key, tuple):
                i.row = 0 if key[0] == "in" else last

    def _bends(self) -> list[list[_Item]]:
        """The items that each segment passes, first and last included."""
        self.all = list(self.items.values())
        chains = []
        for a, b in self.segments:
            start, end = self.item(a), self.item(b)
            chain = [start]
            for row in range(start.row + 1, end.row):
                bend = _Item(6, 0, row=row, tied=8.0)
                self.all.append(bend)
                chain.append(bend)
            chain.append(end)
            for k, (p, q) in enumerate(pairwise(chain)):
                out = self.port(a, False) if k == 0 else 0.0
                into = self.port(b, True) if q is end else 0.0
                p.below.append((q, into, out))
                q.above.append((p, out, into))
            chains.append(chain)
        return chains

    def _line(self, a: _End, b: _End, chain: list[_Item], spans: Sequence[tuple[float, float]]) -> None:
        start, end = chain[0], chain[-1]
        x = start.x + self.port(a, False)
        points = [(x, 0.0 if a[0] == "in" else start.y + start.h), (x, spans[start.row][1])]
        for bend in chain[1:-1]:
            points += [(bend.x, spans[bend.row][0]), (bend.x, spans[bend.row][1])]
        x = end.x + self.port(b, True)
        points.append((x, spans[end.row][0]))
        points.append((x, end.y if b[0] == "box" else self.frame.h if b[0] == "out" else end.y + self._depth(b[1])))
        self.frame.lines.append(points)
        self.frame.arrows.append(b[0] == "box" and isinstance(b[1], Box))

    def _depth(self, value: Hashable) -> float:
        return LOOP * self.frame.loops.index(value) + LOOP / 2

    def _loop(self, k: int, value: Hashable) -> None:
        """From below the last row around the left side to the port above."""
        end, start = self.items["loop", value], self.items["in", value]
        bottom, top, side = end.y + self._depth(value), HEAD + LOOP * k + LOOP / 2, LOOP * k + LOOP
        self.frame.loop_lines.append([(end.x, bottom), (side, bottom), (side, top), (start.x, top)])


def _order(rows: list[list[_Item]]) -> None:
    """Order each row by the barycentres of its neighbours; of all sweeps, the order with fewest crossings stays."""
    best, fewest = [list(r) for r in rows], _crossings(rows)
    for sweep in range(SWEEPS):
        if not fewest:
            break
        down = sweep % 2 == 0
        place = {i: (k + 0.5) / len(row) for row in rows for k, i in enumerate(row)}
        for row in rows[1:] if down else rows[-2::-1]:
            wanted = {}
            for i in row:
                near = i.above if down else i.below
                wanted[i] = sum(place[n] + p * 1e-6 for n, p, _ in near) / len(near) if near else place[i]
            row.sort(key=wanted.__getitem__)
            place.update((i, (k + 0.5) / len(row)) for k, i in enumerate(row))
        count = _crossings(rows)
        if count < fewest:
            best, fewest = [list(r) for r in rows], count
    rows[:] = best


def _crossings(rows: list[list[_Item]]) -> int:
    count = 0
    for upper, lower in pairwise(rows):
        place = {i: k for k, i in enumerate(lower)}
        ends = sorted((k + out * 1e-4, place[n] + into * 1e-4) for k, i in enumerate(upper) for n, into, out in i.below)
        seen: list[float] = []
        for _, there in ends:
            count += len(seen) - bisect.bisect_right(seen, there)
            bisect.insort(seen, there)
    return count


def _move(rows: list[list[_Item]]) -> None:
    """Move items within their rows towards their neighbours, keeping order and distances."""
    for row in rows:
        x = 0.0
        for i in row:
            i.x = x + i.w / 2
            x += i.w + GAP_X
        for i in row:
            i.x -= x / 2
    for sweep in range(4 * SWEEPS):
        for row in rows if sweep % 2 == 0 else rows[::-1]:
            wanted, weights = [], []
            for i in row:
                near = (i.above if sweep % 2 == 0 else i.below) or i.above or i.below
                if sweep >= 2 * SWEEPS:
                    near = i.above + i.below
                pull = [(n.x + there - here, n.tied * i.tied) for n, there, here in near]
                total = sum(t for _, t in pull)
                wanted.append(sum(x * t for x, t in pull) / total if total else i.x)
                weights.append(total or 0.05)
            for i, x in zip(row, _pack(wanted, weights, [(a.w + b.w) / 2 + GAP_X for a, b in pairwise(row)])):
                i.x = x


def _pack(wanted: Sequence[float], weights: Sequence[float], apart: Sequence[float]) -> list[float]:
    """The places nearest to the wanted ones (weighted squares) with the given least distances between neighbours:
    isotonic regression, pooling neighbours that push each other."""
    if not wanted:
        return []
    shift = [0.0]
    for a in apart:
        shift.append(shift[-1] + a)
    pools: list[tuple[float, float, int]] = []  # mean, weight, members
    for x, w, s in zip(wanted, weights, shift):
        mean, weight, n = x - s, w, 1
        while pools and pools[-1][0] > mean:
            m, v, k = pools.pop()
            mean, weight, n = (mean * weight + m * v) / (weight + v), weight + v, n + k
        pools.append((mean, weight, n))
    flat = [mean for mean, _, n in pools for _ in range(n)]
    return [x + s for x, s in zip(flat, shift)]


# ------------------------------------------------------------------------------------------------ SVG
def svg(page: Frame, label: str = "", note: str = "") -> str:
    """The picture of a page, with a note below."""
    arrange(page)
    margin = 8.0
    w, h = max(page.w, CHAR * len(note)) + 2 * margin, page.h + 2 * margin
    parts: list[str] = []
    _draw(page, margin, margin, parts)
    if note:
        h += LINE
        parts.append(f'<text x="{margin:.0f}" y="{h - margin:.0f}" font-style="italic">{text(note)}</text>')
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{w:.0f}" height="{h:.0f}" viewBox="0 0 {w:.0f} {h:.0f}" '
            f'role="img" aria-label="{text(label)}" font-family="monospace" font-size="11" fill="currentColor" '
            'stroke="none">')
    return "\n".join([head, *parts, "</svg>"])


def text(s: str) -> str:
    """Escaped for XML and HTML, without the characters that XML has no way to write."""
    return escape("".join(c if " " <= c < "\ud800" or c > "\udfff" or c in "\n\t" else "\ufffd" for c in s))


def _colour(hue: float) -> str:
    """Of middle lightness, for light pages and dark ones; as #rrggbb, which every program that draws SVG understands."""
    return "#" + "".join(f"{round(255 * v):02x}" for v in colorsys.hls_to_rgb(hue % 360 / 360, 0.5, 0.6))


def _draw(frame: Frame, x: float, y: float, parts: list[str]) -> None:
    title = f"<title>{text(frame.title)}</title>" if frame.title else ""
    if frame.kind == "kernel":
        colour = _colour(frame.hue)
        parts.append(f'<g>{title}<rect x="{x:.1f}" y="{y:.1f}" width="{frame.w:.1f}" height="{frame.h:.1f}" rx="6" '
                     f'fill="{colour}" fill-opacity="0.1" stroke="{colour}" stroke-opacity="0.9"/>')
    elif frame.kind == "repeat":
        parts.append(f'<g>{title}<rect x="{x:.1f}" y="{y:.1f}" width="{frame.w:.1f}" height="{frame.h:.1f}" rx="8" '
                     'fill="currentColor" fill-opacity="0.04" stroke="currentColor" stroke-width="1.5" stroke-dasharray="7 3"/>')
    if frame.kind != "page":
        parts.append(f'<text x="{x + 6:.1f}" y="{y + 13:.1f}" font-weight="bold">{text(frame.label)}</text></g>')
    for points, arrow in zip(frame.lines, frame.arrows):
        parts.append(f'<path d="{_curve(points, x, y, arrow)}" fill="none" stroke="currentColor" stroke-opacity="0.55"/>')
    for points in frame.loop_lines:
        corners = " ".join(f"{'ML'[k > 0]}{px + x:.1f} {py + y:.1f}" for k, (px, py) in enumerate(points))
        px, py = points[-1][0] + x, points[-1][1] + y
        way = -5 if points[-2][0] < points[-1][0] else 5
        parts.append(f'<path d="{corners} M{px + way:.1f} {py - 3:.1f} L{px:.1f} {py:.1f} L{px + way:.1f} {py + 3:.1f}" '
                     'fill="none" stroke="#e0882b" stroke-width="1.3"><title>carried from one repetition to the next</title>'
                     '</path>')
    for child in frame.children:
        if isinstance(child, Frame):
            _draw(child, x + child.x, y + child.y, parts)
        else:
            _draw_box(child, x + child.x, y + child.y, parts)


def _draw_box(box: Box, x: float, y: float, parts: list[str]) -> None:
    fill, fill_opacity, stroke, stroke_opacity, dashes, radius, strength = STYLES[box.kind]
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    out = [f'<g><title>{text(box.title)}</title><rect x="{x:.1f}" y="{y:.1f}" width="{box.w:.1f}" height="{box.h:.1f}" '
           f'rx="{radius}" fill="{fill}" fill-opacity="{fill_opacity}" stroke="{stroke}" '
           f'stroke-opacity="{stroke_opacity}"{dashed}/>']
    for k, line in enumerate(box.lines):
        weight = ' font-weight="bold"' if k == 0 else ""
        faint = strength if k == 0 else strength * 0.8
        opacity = f' fill-opacity="{faint:.2f}"' if faint < 1 else ""
        out.append(f'<text x="{x + box.w / 2:.1f}" y="{y + PAD_Y + LINE * k + 10.5:.1f}" text-anchor="middle"'
                   f'{weight}{opacity}>{text(line)}</text>')
    parts.append("".join(out) + "</g>")


def _curve(points: Sequence[tuple[float, float]], x: float, y: float, arrow: bool) -> str:
    """Straight down along boxes of the same row, and curves between rows."""
    (x0, y0), *rest = [(px + x, py + y) for px, py in points]
    d = [f"M{x0:.1f} {y0:.1f}"]
    for k, (x1, y1) in enumerate(rest):
        if k % 2 == 1 and abs(x1 - x0) > 0.05:
            middle = (y0 + y1) / 2
            d.append(f"C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}")
        elif y1 > y0 + 0.05:
            d.append(f"V{y1:.1f}")
        x0, y0 = x1, y1
    if arrow:
        d.append(f"M{x0 - 3:.1f} {y0 - 5:.1f} L{x0:.1f} {y0:.1f} L{x0 + 3:.1f} {y0 - 5:.1f}")
    return " ".join(d)
