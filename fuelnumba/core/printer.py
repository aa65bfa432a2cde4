"""A graph as a Python program: run it, read it. Each line has the result's shape and dtype and the user's line. Of a long
program, what repeats stands there once, between dots."""

from __future__ import annotations

import keyword
import math
from typing import Any

from . import ir
from .dims import Dim, symbols
from .dtypes import DType
from .fold import LEAVES, Repeat, fold, in_order
from .ir import Graph, Node

LONG = 40_000  # characters: up to here, a program is printed as a whole, and shown below a picture
LEAST = 8  # nodes that folding a repeat must spare


def format_graph(graph: Graph, folded: bool | None = None) -> str:
    """The program text. It defines `NAME(inputs)`; captured arrays are read from the list `constants`. folded: whether of
    equal pieces that follow one another the first and the last alone are shown; None: where the whole is long."""
    whole = "" if folded else _program(graph, graph.nodes(), {})
    return whole if folded is False or (folded is None and len(whole) <= LONG) else _program(graph, *_folded(graph))


def _folded(graph: Graph) -> tuple[list[Node], dict[Node, str]]:
    """The nodes of the folded program, and the lines that stand before some of them for those that are left out."""
    computed: list[Node] = []
    left_out: dict[Node, str] = {}
    for item in fold(in_order(graph), least=LEAST):
        if not isinstance(item, Repeat):
            computed.append(item)
        elif item.count == 2:
            computed += [*item.pieces[0], *item.pieces[1]]
        else:
            computed += [*item.pieces[0], *item.pieces[-1]]
            left_out[item.pieces[-1][0]] = f"# ... {again(item.count - 2, len(item.sources), 'line', 'lines')}"
    nodes: dict[Node, None] = {}
    for n in computed:
        nodes.update(dict.fromkeys(i for i in n.inputs if i.op in LEAVES))
        nodes[n] = None
    return list(nodes | dict.fromkeys(o for o in graph.outputs if o.op in LEAVES)), left_out


def again(times: int, of: int, one: str, several: str) -> str:
    """`x 12 more of these 3 lines`."""
    return f"x {times} more of " + (f"this {one}" if of == 1 else f"these {of} {several}")


def _program(graph: Graph, nodes: list[Node], left_out: dict[Node, str]) -> str:
    names = node_names(graph)
    captured = [n for n in graph.nodes() if n.op is ir.CONSTANT]
    arguments = [names[n] for n in graph.inputs]
    header = f"def {graph.name if graph.name.isidentifier() else 'graph'}({', '.join(arguments)}):"
    lines: list[tuple[str, str]] = []
    for n in graph.inputs:
        lines.append((f"# {names[n]}: {n.aval}" + (" (donated)" if graph.inputs.index(n) in graph.donated else ""), ""))
    for name, source in _symbol_sources(graph, names).items():
        lines.append((f"{name} = {source}", ""))
    if left_out:
        lines.append(("# repeats are left out: graph.format(folded=False) is the whole program", ""))
    for k, n in enumerate(captured):
        lines.append((f"{names[n]} = constants[{k}]", _comment(n)))
    for n in nodes:
        if n in left_out:
            lines.append((left_out[n], ""))
        if n.op not in (ir.INPUT, ir.CONSTANT):
            lines.append((f"{names[n]} = {_call(n, names)}", _comment(n)))
    results = ", ".join(names[o] for o in graph.outputs)
    lines.append((f"return {results}", ""))
    width = min(max((len(text) for text, comment in lines if comment), default=0), 72)
    body = [f"    {text:{width}s}  {comment}".rstrip() if comment else f"    {text}" for text, comment in lines]
    return "\n".join(["import fuelnumba.ops as ops", "", "", header, *body])


def node_names(graph: Graph) -> dict[Node, str]:
    """The variable of each node in the program text."""
    names: dict[Node, str] = {}
    taken = {"ops", "constants", "return"} | graph.env.hints.keys()
    for n in graph.inputs:
        base = "".join(c if c.isalnum() else "_" for c in n.attr("name")).strip("_") or "x"
        base = f"x_{base}" if base[0].isdigit() or keyword.iskeyword(base) else base
        name, k = base, 2
        while name in taken:
            name, k = f"{base}_{k}", k + 1
        taken.add(name)
        names[n] = name
    count = 0
    for n in graph.nodes():
        if n not in names:
            while f"v{count}" in taken:
                count += 1
            names[n] = f"v{count}"
            count += 1
    return names


def line_of(n: Node, names: dict[Node, str]) -> str:
    """The line of the program text that computes a node, with its comment."""
    return f"{names[n]} = {_call(n, names)}   {_comment(n)}"


def _symbol_sources(graph: Graph, names: dict[Node, str]) -> dict[str, str]:
    """Where each symbolic length is read from."""
    out: dict[str, str] = {}
    for n in graph.inputs:
        for axis, extent in enumerate(n.shape):
            if isinstance(extent, Dim) and len(found := symbols(extent)) == 1 and repr(extent) in found:
                out.setdefault(repr(extent), f"{names[n]}.shape[{axis}]")
    return out


def _call(n: Node, names: dict[Node, str]) -> str:
    if n.op is ir.FULL:
        value = n.attr("value")
        finite = not isinstance(value, float) or math.isfinite(value)
        shown = repr(value) if finite else f"float({str(value)!r})"
        return f"ops.full({shown}, {_value(n.shape)}, {n.dtype.name!r})"
    if n.op is ir.EMPTY:
        return f"ops.full(0, {_value(n.shape)}, {n.dtype.name!r})"
    args = [names[i] for i in n.inputs]
    attrs = n.attributes
    if n.op.name == "write_slice":
        at = [repr(a) for a in attrs["at"]]
        if attrs["axis"] is not None:
            at[attrs["axis"]] = names[n.inputs[2]] + (f" + {at[attrs['axis']]}" if at[attrs["axis"]] != "0" else "")
        return f"ops.write_slice({names[n.inputs[0]]}, {names[n.inputs[1]]}, at=({', '.join(at)},))"
    if n.op.name in ("copy", "contiguous"):
        return f"ops.contiguous({args[0]})"
    if n.op.name == "slice":
        start, length, step, axis = attrs["start"], attrs["length"], attrs["step"], attrs["axis"]
        return f"ops.slice({args[0]}, axis={axis}, start={start}, length={length}, step={step})"
    return f"ops.{n.op.name}({', '.join([*args, *(f'{k}={_value(v)}' for k, v in attrs.items())])})"


def _value(v: Any) -> str:
    if isinstance(v, DType):
        return repr(v.name)
    if isinstance(v, tuple):
        return "(" + ", ".join(map(_value, v)) + ("," if len(v) == 1 else "") + ")"
    if isinstance(v, float) and (v != v or abs(v) == float("inf")):
        return f"float({str(v)!r})"
    return repr(v)


def _comment(n: Node) -> str:
    return f"# {n.aval}" + (f"   {n.where}" if n.where else "")
