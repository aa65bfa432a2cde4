"""Pictures: well-formed, complete, and laid out so that nothing lies on anything else. They are read back from the SVG."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest

from fuelnumba import ops
from fuelnumba.compiler.plan import Plan, make_plan
from fuelnumba.core import drawing, fold, ir, picture
from fuelnumba.core import dtypes as dt
from fuelnumba.core.dims import SymEnv
from fuelnumba.core.layout import contiguous
from fuelnumba.core.ops import OPS
from tests.trace.tracing import trace

X = np.ones((3, 4), np.float32)
SVG = "{http://www.w3.org/2000/svg}"


def plan_of(graph: ir.Graph) -> Plan:
    return make_plan(graph, {n: contiguous(n.shape) for n in graph.inputs})


def scalars(graph: ir.Graph) -> list[ir.Node]:
    return [n for n in graph.nodes() if n.op is ir.FULL]


# ------------------------------------------------------------------------------------------------ reading a picture
@dataclass
class Rect:
    x: float
    y: float
    w: float
    h: float
    lines: list[str]
    title: str
    is_frame: bool

    def overlaps(self, o: Rect) -> bool:
        return self.x < o.x + o.w and o.x < self.x + self.w and self.y < o.y + o.h and o.y < self.y + self.h

    def holds(self, o: Rect) -> bool:
        return self.x <= o.x and self.y <= o.y and o.x + o.w <= self.x + self.w and o.y + o.h <= self.y + self.h

    def has(self, x: float, y: float, by: float = 0.0) -> bool:
        return self.x + by <= x <= self.x + self.w - by and self.y + by <= y <= self.y + self.h - by


@dataclass
class Drawn:
    boxes: list[Rect]
    frames: list[Rect]
    lines: list[list[tuple[float, float]]]  # points along each edge
    loops: int
    width: float
    height: float

    def box(self, first: str) -> Rect:
        (found,) = [b for b in self.boxes if b.lines[0] == first]
        return found

    def labels(self) -> list[str]:
        return sorted(b.lines[0] for b in self.boxes)


def read(svg: str) -> Drawn:
    root = ET.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    boxes, frames, lines, loops = [], [], [], 0
    for g in root.findall(f"{SVG}g"):
        r, title = g.find(f"{SVG}rect"), g.find(f"{SVG}title")
        assert r is not None
        texts = ["".join(t.itertext()) for t in g.findall(f"{SVG}text")]
        is_frame = float(r.get("rx", 0)) in (6, 8)
        sizes = (float(r.get(k, "nan")) for k in ("x", "y", "width", "height"))
        (frames if is_frame else boxes).append(Rect(*sizes, texts, title.text or "" if title is not None else "", is_frame))
    for p in root.findall(f"{SVG}path"):
        if p.get("stroke") == "currentColor":
            lines.append(points(p.get("d", "")))
        else:
            loops += 1
    return Drawn(boxes, frames, lines, loops, float(root.get("width", 0)), float(root.get("height", 0)))


def points(d: str) -> list[tuple[float, float]]:
    """Points along a path, its arrow head left out."""
    tokens = re.findall(r"[A-Z]|-?[\d.]+", d)
    out: list[tuple[float, float]] = []
    while tokens:
        command = tokens.pop(0)
        if command == "M" and out:
            break
        if command in "ML":
            out.append((float(tokens.pop(0)), float(tokens.pop(0))))
        elif command == "V":
            out.append((out[-1][0], float(tokens.pop(0))))
        else:
            assert command == "C"
            n = [float(tokens.pop(0)) for _ in range(6)]
            (a, b), ts = out[-1], np.linspace(0, 1, 9)[1:]
            out += [((1 - t) ** 3 * a + 3 * t * (1 - t) ** 2 * n[0] + 3 * t * t * (1 - t) * n[2] + t ** 3 * n[4],
                     (1 - t) ** 3 * b + 3 * t * (1 - t) ** 2 * n[1] + 3 * t * t * (1 - t) * n[3] + t ** 3 * n[5]) for t in ts]
    return out


def check(svg: str) -> Drawn:
    """What any picture must be."""
    assert "script" not in svg and "href" not in svg and "url(" not in svg
    assert svg.count("http") == 1  # the name space
    assert not re.search(r"white|#fff|background", svg)
    d = read(svg)
    for a, b in combinations(d.boxes, 2):
        assert not a.overlaps(b), f"{a.lines} lies on {b.lines}"
    for f in d.frames:
        for b in [*d.boxes, *d.frames]:
            assert b is f or f.holds(b) or b.holds(f) or not f.overlaps(b), f"{b.lines} crosses the border of {f.lines}"
    for r in [*d.boxes, *d.frames]:
        assert r.x >= 0 and r.x + r.w <= d.width and r.y >= 0 and r.y + r.h <= d.height
        widest = max(len(t) for t in r.lines)
        assert r.is_frame or widest * 6.6 <= r.w, f"{r.lines} is wider than its box"
    for line in d.lines:
        assert all(b[1] >= a[1] - 0.1 for a, b in pairwise(line)), "an edge goes up"
        for end, (x, y) in (("start", line[0]), ("end", line[-1])):
            assert any(abs(y - (r.y + r.h if end == "start" else r.y)) < 0.15 and r.x - 0.1 <= x <= r.x + r.w + 0.1
                       for r in d.boxes) or any(abs(y - e) < 8 * drawing.LOOP and r.x <= x <= r.x + r.w
                                                for r in d.frames for e in (r.y, r.y + r.h)), f"an edge's {end} is loose"
        for b in d.boxes:
            assert not any(b.has(x, y, 1.0) for x, y in line), f"an edge runs through {b.lines}"
    return d


def complete(graph: ir.Graph) -> Drawn:
    """An unfolded picture has each node, result and operand once; scalars stand in the text of who reads them."""
    d = check(graph.svg(folded=False))
    nodes = [n for n in graph.nodes() if n.op is not ir.FULL]
    assert len(d.boxes) == len(nodes) + len(graph.outputs) + len([o for o in graph.outputs if o.op is ir.FULL])
    operands = sum(i.op is not ir.FULL for n in nodes for i in n.inputs)
    assert len(d.lines) == operands + len(graph.outputs) and not d.frames and not d.loops
    titles = [b.title for b in d.boxes]
    for n in nodes:
        if n.op not in fold.LEAVES:
            name = picture.printer.node_names(graph)[n]
            assert len([t for t in titles if t.startswith(f"{name} = ")]) == 1
    return d


# ------------------------------------------------------------------------------------------------ graphs
def diamond(x: Any) -> Any:
    y = np.exp(x)
    return np.sin(y) + np.cos(y) * y


def squares(x: Any) -> Any:
    return x * x + 0.5, x.sum(axis=0), x


def written(x: Any) -> Any:
    return ops.write_slice(x * 2, x[:1], at=(2, 0)), np.concatenate([x, x[1:]], axis=1 if x.ndim == 1 else 0)


def attention(q: Any) -> Any:
    h = ops.rms_norm(q) @ np.ones((4, 4), np.float32)
    return ops.softmax(h @ q.T, axis=-1) @ h + q


def constant(x: Any) -> Any:
    return x, ops.full(2.0, (3,), "f32")


@pytest.mark.parametrize("function", [diamond, squares, written, attention, constant], ids=lambda f: f.__name__)
def test_every_node_and_edge_once(function: Callable[..., Any]) -> None:
    graph, _ = trace(function, [X])
    complete(graph)
    check(plan_of(graph).svg())


def test_random_graphs(rng: np.random.Generator) -> None:
    for _ in range(25):
        values = [ir.input_node(f"x{k}", (3, 4), dt.f32) for k in range(3)]
        inputs = list(values)
        for _ in range(int(rng.integers(3, 40))):
            a, b = (values[-int(k)] for k in rng.integers(1, min(len(values), 9) + 1, 2))
            kind = rng.integers(4)
            values.append(ir.make(OPS["tanh"], [a]) if kind == 0 else
                          ir.make(OPS["flip"], [a], {"axis": 1}) if kind == 1 else ir.make(OPS["add"], [a, b]))
        graph = ir.Graph(inputs, [values[-1], values[-2], values[5]], "random")
        complete(graph)
        check(graph.svg(folded=True))
        check(plan_of(graph).svg())


def test_what_the_boxes_say() -> None:
    def f(x: Any) -> Any:
        return (x * 0.25).sum(axis=1, keepdims=True) + x.T[0, 0]

    graph, _ = trace(f, [X])
    d = complete(graph)
    assert "multiply(·, 0.25)" in d.labels() and "sum axis=(1,) keepdims=True" in d.labels()
    assert "permute axes=(1, 0)" in d.labels() and "x0" in d.labels() and "result" in d.labels()
    assert d.box("multiply(·, 0.25)").lines[1] == "f32[3, 4]"
    line = f.__code__.co_firstlineno + 1
    title = d.box("multiply(·, 0.25)").title
    assert f"test_picture.py:{line}" in title and "return (x * 0.25).sum(axis=1, keepdims=True)" in title
    assert "ops.multiply(x0, v0)" in title  # as in the program


def test_inputs_results_donated_and_views_look_different() -> None:
    x, y = (ir.input_node(n, (3, 4), dt.f32) for n in "xy")
    captured = ir.constant_node(ir.Captured(X), (3, 4), dt.f32)
    out = ir.make(OPS["add"], [ir.make(OPS["flip"], [ir.make(OPS["add"], [x, y])], {"axis": 0}), captured])
    svg = ir.Graph([x, y], [out], donated=frozenset({1})).svg()
    d = check(svg)
    assert d.labels() == ["add", "add", "captured array", "flip axis=0", "result", "x", "y"]
    assert d.box("y").lines[1] == "f32[3, 4] donated"
    looks = {}
    for g in ET.fromstring(svg).findall(f"{SVG}g"):
        r, t = g.find(f"{SVG}rect"), g.find(f"{SVG}text")
        assert r is not None and t is not None
        looks[t.text] = tuple(r.get(k) for k in ("fill", "stroke", "stroke-dasharray", "fill-opacity"))
    assert len(set(looks.values())) == 6  # both additions alike


# ------------------------------------------------------------------------------------------------ text
NASTY = "<&\">'\x00\x1b\ud800é…"


def test_all_text_is_escaped() -> None:
    x = ir.input_node(f'params["{NASTY}"]', (2,), dt.f32)
    graph = ir.Graph([x], [ir.make(OPS["exp"], [x])], NASTY)
    d = check(graph.svg())
    assert any("<&\">'" in b.lines[0] for b in d.boxes)
    html = graph._repr_html_()
    html.encode()
    assert "<&\">" not in html and "&lt;&amp;" in html
    ET.fromstring(html)
    ET.fromstring(plan_of(graph)._repr_html_())


def test_long_names_are_cut() -> None:
    x = ir.input_node("p" * 500 + ".weight", (2,), dt.f32)
    d = check(ir.Graph([x], [ir.make(OPS["exp"], [x])]).svg())
    assert all(len(t) <= picture.LABEL for b in d.boxes for t in b.lines)
    assert any(t.endswith(".weight") for b in d.boxes for t in b.lines)


# ------------------------------------------------------------------------------------------------ folded
def decoder(layers: int, d: int = 8, reads: bool = True) -> ir.Graph:
    """Layers with a norm, a product, a residual, a stack that each writes into, and angles that the first computes."""
    env = SymEnv()
    rows = env.symbol("T", 5)
    x = ir.input_node("x", (rows, d), dt.f32)
    cache = ir.input_node("cache", (layers, d), dt.f32)
    angle = ir.input_node("angle", (rows, d), dt.f32)
    inputs = [x, cache, angle]
    for k in range(layers):
        w = ir.input_node(f'layers[{k}]["w"]', (d, d), dt.f32)
        g = ir.input_node(f'layers[{k}]["norm"]', (d,), dt.f32)
        inputs += [w, g]
        h = ir.make(OPS["rms_norm"], [x, g], {"eps": 1e-5})
        h = ir.make(OPS["matmul"], [h, ir.make(OPS["permute"], [w], {"axes": (1, 0)})])
        h = ir.make(OPS["multiply"], [ir.make(OPS["silu"], [h]), ir.make(OPS["cos"], [angle])])
        last = ir.make(OPS["slice"], [h], {"axis": 0, "start": 0, "length": 1, "step": 1})
        cache = ir.make(OPS["write_slice"], [cache, last], {"at": (k, 0), "axis": None})
        if reads:
            row = ir.make(OPS["slice"], [cache], {"axis": 0, "start": k, "length": 1, "step": 1})
            h = ir.make(OPS["multiply"], [h, ir.make(OPS["broadcast_to"], [row], {"shape": (rows, d)})])
        x = ir.make(OPS["add"], [x, h])
    return ir.Graph(inputs, [x, cache], "decoder", env, frozenset({1}))


@pytest.mark.parametrize("layers", [5, 30])
def test_layers_are_drawn_once(layers: int) -> None:
    graph = decoder(layers, reads=False)
    d = check(graph.svg())
    (frame,) = d.frames
    assert frame.lines == [f"× {layers}"]
    inside = sorted(b.lines[0] for b in d.boxes if frame.holds(b))
    assert inside == sorted(["add", f'layers[0…{layers - 1}]["norm"]', f'layers[0…{layers - 1}]["w"]', "matmul", "multiply",
                             "permute axes=(1, 0)", "rms_norm eps=1e-05", "silu", "slice axis=0 start=0",
                             f"write_slice at=(0…{layers - 1}, 0)"])
    assert sorted(b.lines[0] for b in d.boxes if not frame.holds(b)) == ["angle", "cache", "cos", "result 0", "result 1", "x"]
    assert d.loops == 2  # x and the cache go from layer to layer
    nodes = (len(graph.nodes()) - 3 - 1 - 2 * layers) // layers
    assert frame.title == f"{layers} equal pieces of {nodes} ops, {layers * nodes} in all"


def test_layers_of_a_plan_are_drawn_once_with_their_kernels() -> None:
    graph = decoder(30)
    plan = plan_of(graph)
    d = check(plan.svg())
    (repeat,) = [f for f in d.frames if f.lines[0].startswith("×")]
    assert repeat.lines == ["× 29"]  # the first layer's kernel also computes the cosines
    kernels = [f for f in d.frames if f.lines[0].startswith("launch ")]
    assert [f.lines[0].endswith("…") for f in kernels] == [repeat.holds(f) for f in kernels]
    assert any(repeat.holds(f) for f in kernels)
    several = {frozenset(n.op.name for n in s.nodes) for s in plan.launches if len(s.nodes) > 1}
    drawn = {frozenset(b.lines[0] for b in d.boxes if f.holds(b)) for f in kernels}
    assert drawn == several


def test_unfolded_when_asked() -> None:
    graph = decoder(4)
    d = check(graph.svg(folded=False))
    assert not d.frames and len([b for b in d.boxes if b.lines[0] == "matmul"]) == 4
    assert len(check(graph.svg(folded=True)).frames) == 1


def test_small_graphs_are_not_folded() -> None:
    graph, _ = trace(lambda x: np.tanh(np.tanh(np.tanh(np.tanh(x)))), [X])
    assert not check(graph.svg()).frames
    assert [f.lines for f in check(graph.svg(folded=True)).frames] == [["× 4"]]


def states(x: Any) -> Any:
    """All the states, and one from the middle, are read after the layers."""
    out = []
    for _ in range(12):
        x = np.tanh(x * 2 + 1) - x
        out.append(x)
    return np.concatenate(out), out[4] + 1, np.exp(out[-1]), *out


def test_which_repetition_is_read() -> None:
    graph, _ = trace(states, [X])
    d = check(graph.svg())
    (frame,) = d.frames
    assert frame.lines == ["× 12"]
    assert [t for t in d.labels() if t.startswith("of ")] == ["of repetition 5", "of repetitions 1…12"]
    assert "12 results, 3…14" in d.labels()


def test_a_value_of_each_layer_that_is_computed_before() -> None:
    def f(x: Any, w: Any) -> Any:
        ws = [np.exp(w[k] * k) for k in range(12)]  # no two alike
        for k in range(12):
            x = np.tanh(x + ws[k]) * 2
        return x

    graph, _ = trace(f, [X, np.ones((12, 3, 4), np.float32)])
    d = check(graph.svg())
    assert "one of 12 values" in d.labels()


@pytest.mark.parametrize("layers", [30, 200])
def test_pages_stay_small(layers: int) -> None:
    graph = decoder(layers)
    assert len(graph._repr_html_()) < 100_000
    assert len(plan_of(graph)._repr_html_()) < 120_000
    assert graph.format(folded=False).count("ops.matmul(") == layers
    assert str(graph).count("ops.matmul(") == (2 if layers == 200 else layers)  # of a long program, the first and the last


def test_what_cannot_be_folded_is_cut(rng: np.random.Generator) -> None:
    x = ir.input_node("x", (3, 4), dt.f32)
    y = x
    names = ["exp", "sin", "cos", "tanh", "silu", "square"]
    for k in rng.integers(len(names), size=2000):
        y = ir.make(OPS[names[k]], [y])
    graph = ir.Graph([x], [y])
    svg = graph.svg(folded=False)
    assert len(check(svg).boxes) == picture.MOST and "1761 more ops not drawn" in svg
    assert len(graph._repr_html_()) < 300_000


def test_a_layer_that_is_too_large_is_cut(rng: np.random.Generator) -> None:
    y = x = ir.input_node("x", (3, 4), dt.f32)
    layer = [("exp", "sin", "cos", "tanh", "silu", "square")[k] for k in rng.integers(6, size=300)]
    for name in layer * 3:
        y = ir.make(OPS[name], [y])
    svg = ir.Graph([x], [y]).svg()
    d = check(svg)
    assert len(d.boxes) == picture.MOST and not d.frames and "661 more ops not drawn" in svg


def test_no_room_for_the_inputs_of_a_layer() -> None:
    inputs = [ir.input_node(f"x{k}", (3, 4), dt.f32) for k in range(400)]
    y = inputs[0]
    for x in inputs[1:]:
        y = ir.make(OPS["add"], [y, x])
    for _ in range(5):
        for name in ("exp", "sin", "cos", "tanh"):
            y = ir.make(OPS["multiply"], [ir.make(OPS[name], [y]), inputs[-1]])
    for folded in (True, False):
        check(ir.Graph(inputs, [y]).svg(folded))
    wide = ir.make(OPS["concat"], inputs, {"axis": 0})
    assert len(check(ir.Graph(inputs, [wide]).svg()).boxes) == picture.MOST


# ------------------------------------------------------------------------------------------------ in notebooks
def test_html_of_graph_and_plan() -> None:
    graph, _ = trace(diamond, [X])
    for page, words in ((graph._repr_html_(), ["graph of <b>diamond</b>: 5 ops", "as a program", "return v"]),
                        (plan_of(graph)._repr_html_(), ["plan of <b>diamond</b>: 1 launch of 1 kernel", "as a list", "5 ops fused"])):
        ET.fromstring(page)  # well-formed
        assert "overflow:auto" in page and all(w in page for w in words)


def test_inputs_that_nothing_reads_are_named() -> None:
    graph, _ = trace(lambda *xs: xs[1] + 1, [X] * 3)
    assert "1 op; not read: x0, x2</div>" in graph._repr_html_()
    assert check(graph.svg()).labels() == ["add(·, 1)", "result", "x1"]
    graph, _ = trace(lambda *xs: xs[0] + 1, [X] * 20)
    assert "not read: x1, x2, x3, x4, x5, x6, x7, x8 …</div>" in graph._repr_html_()


def test_count() -> None:
    assert [picture.count(n, "launch") for n in (0, 1, 2, 1234)] == ["0 launches", "1 launch", "2 launches", "1234 launches"]
    assert picture.count("3*n", "work item") == "3*n work items"


def test_pictures_cost_nothing_at_start() -> None:
    code = ("import sys, fuelnumba; print(*[m for m in sys.modules if m.startswith('fuelnumba.') and "
            "m.rpartition('.')[2] in ('picture', 'drawing', 'fold', 'show', 'printer')])")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


# ------------------------------------------------------------------------------------------------ placing
def test_pack_is_the_nearest() -> None:
    """Against all solutions on a grid."""
    rng = np.random.default_rng(1)
    for _ in range(6):
        wanted, apart, weights = (rng.integers(*r).astype(float).tolist() for r in ((0, 8, 3), (1, 4, 2), (1, 4, 3)))

        def cost(xs: Any, wanted: Any = wanted, weights: Any = weights) -> float:
            return float(np.sum(np.array(weights) * (np.array(xs) - wanted) ** 2))

        got = drawing._pack(wanted, weights, apart)
        assert all(b - a >= d - 1e-9 for a, b, d in zip(got, got[1:], apart))
        grid = np.arange(-8, 17, 0.5)
        best = min(cost((a, b, c)) for a in grid for b in grid[grid >= a + apart[0]] for c in grid[grid >= b + apart[1]])
        assert cost(got) <= best + 1e-9
