"""Kernel sources: from a region of elementwise nodes, or from a kernel function and dtypes, to the text of one function
`name(args, lo, hi)` and the list of what its argument block holds.

The argument block is an array of 64-bit slots. A pointer takes two: the address of the cell with its storage's base
address, and the byte offset from there. Integers and doubles take one each. So a warm call writes one address per storage
and nothing per launch, and every kernel has the same C signature.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..core import ir, scalar
from ..core.dims import Extent, same
from ..core.dtypes import BY_NAME, DType
from ..core.ir import Node
from ..core.layout import Layout, collapse
from ..core.ops import Kernel
from . import flatten

SLOTS = {"pointer": 2, "int": 1, "float": 1, "status": 1, "site": 1}


@dataclass(frozen=True)
class Param:
    """One parameter of a kernel: `kind` is a key of SLOTS, `dtype` the storage type of a pointer."""

    name: str
    kind: str
    dtype: DType | None = None

    def unpack(self, slot: int) -> str:
        if self.kind == "pointer":
            assert self.dtype is not None
            return f"{self.name} = ptr_{self.dtype.storage}(args, {slot})"
        if self.kind == "float":
            return f"{self.name} = f64_arg(args, {slot})"
        if self.kind == "status":
            return f"{self.name} = raw_i64(args[{slot}])"
        return f"{self.name} = args[{slot}]"


@dataclass(frozen=True, eq=False)
class Source:
    """A kernel before compilation. `identity` determines the text completely; the text is made when it is needed."""

    label: str
    params: tuple[Param, ...]
    identity: str
    body: Callable[[], str] = field(repr=False)  # statements after unpacking, not yet flat

    @cached_property
    def key(self) -> str:
        shape = ";".join(f"{p.name}:{p.kind}:{p.dtype}" for p in self.params)
        return hashlib.sha256(f"{self.label}\n{shape}\n{self.identity}".encode()).hexdigest()

    @property
    def name(self) -> str:
        return f"k_{self.key[:16]}"

    def text(self) -> str:
        """The flat Python module of this kernel."""
        lines, slot = [], 0
        for p in self.params:
            lines.append(p.unpack(slot))
            slot += SLOTS[p.kind]
        body = "\n".join(lines) + "\n" + self.body()
        indented = "\n".join("    " + line for line in body.splitlines())
        return flatten.flatten_text(f"def {self.name}(args, lo, hi):\n{indented}\n")


# ------------------------------------------------------------------------------------------------ written kernels
_sources: dict[Any, Source] = {}  # a plan asks for the same kernel hundreds of times


def kernel_source(kernel: Kernel, dtypes: Sequence[DType], bake: Mapping[str, Any]) -> Source:
    """The source of a kernel function for these dtypes of its pointers (inputs, then outputs)."""
    key = (kernel.fn, tuple(dtypes), repr(sorted(bake.items())))  # as text: 1, 1.0 and True are not the same literal
    found = _sources.get(key)
    if found is None:
        found = _sources[key] = _written(kernel, dtypes, bake)
    return found


def _written(kernel: Kernel, dtypes: Sequence[DType], bake: Mapping[str, Any]) -> Source:
    variables = kernel.match(dtypes)
    assert variables is not None
    node = flatten.parse_kernel(kernel.fn)
    params: list[Param] = []
    operands = list(kernel.operands(len(dtypes)))
    for a in node.args.args[:-2]:
        if a.arg in operands:
            params.append(Param(a.arg, "pointer", dtypes[operands.index(a.arg)]))
        elif a.arg in ("status", "site"):
            params.append(Param(a.arg, a.arg))
        elif a.arg not in bake and a.arg not in kernel.optional:
            is_float = isinstance(a.annotation, ast.Name) and a.annotation.id == "float"
            params.append(Param(a.arg, "float" if is_float else "int"))
    pointers = {p.name: p.dtype for p in params if p.dtype is not None}
    identity = flatten.kernel_text(kernel.fn) + repr(sorted(bake.items())) + repr(sorted(variables.items()))

    def body() -> str:
        statements = flatten.specialise(flatten.parse_kernel(kernel.fn), pointers, variables, bake)
        module = ast.fix_missing_locations(ast.Module(statements, []))
        return ast.unparse(module)

    return Source(kernel.name, tuple(params), identity, body)


# ------------------------------------------------------------------------------------------------ elementwise regions
def convert(value: str, src: DType, dst: DType) -> str:
    """The text that turns a computed value of one dtype into a computed value of another, rounded to that dtype."""
    if src is dst:
        return value
    a, b = src.compute, dst.compute
    if dst.name == "bool":
        return f"({value} != {a}(0))"
    if src.name == "bool":
        return f"select({value}, {b}(1), {b}(0))"
    if dst.kind in "iu":
        return f"sat_{dst.name}({value})" if a[0] == "f" else f"{b}({value})"
    if dst.name in ("f32", "f64"):
        return value if a == b else f"{b}({value})"
    return loaded(narrowed(value, src, dst), dst)


def is_narrow(dtype: DType) -> bool:
    """Of floats that are computed in f32: what a node gives is rounded to them, so that what is fused does not decide the
    value. Inside one formula, f32 stays."""
    return dtype.kind in "fs" and dtype.bits < 32


def narrowed(value: str, src: DType, dst: DType) -> str:
    """The text for the bits, in a float of 8 or 16, of a computed value of another dtype."""
    a = src.compute
    if src.name == "bool":
        a, value = "f32", f"select({value}, f32(1), f32(0))"
    elif a[0] != "f":
        a, value = ("f32", f"f32({value})") if src.bits <= 16 else ("f64", f"f64({value})")
    return f"{a}_to_{dst.name}({value})"


def stored(value: str, dtype: DType) -> str:
    return flatten.CONVERSIONS[dtype.name][1].format(value) if dtype.name in flatten.CONVERSIONS else value


def loaded(value: str, dtype: DType) -> str:
    return flatten.CONVERSIONS[dtype.name][0].format(value) if dtype.name in flatten.CONVERSIONS else value


@dataclass
class RegionKernel:
    """The source for a region and what to put in its argument block."""

    source: Source
    pointers: list[Node]  # one per pointer parameter: inputs, then outputs
    values: dict[str, Any]  # scalar parameters: extents, strides, constants
    total: Extent
    steps: int  # scalar operations per element


def region_source(nodes: Sequence[Node], outputs: Sequence[Node], layouts: Callable[[Node], Layout],
                  out_layouts: Sequence[Layout]) -> RegionKernel:
    """One kernel for elementwise nodes of one shape. Inputs are what the nodes read from outside; scalars (`full` nodes)
    become run-time parameters, so that `x * 3.5` and `x * 4.0` are one kernel."""
    inside = set(nodes)
    inputs: list[Node] = []
    scalars: list[Node] = []
    for n in nodes:
        for i in n.inputs:
            group = scalars if i.op is ir.FULL else inputs
            if i not in inside and i not in group:
                group.append(i)
    operand_layouts = [layouts(i) for i in inputs] + list(out_layouts)
    shape, strides = collapse(nodes[0].shape, [la.strides for la in operand_layouts])
    rank = len(shape)

    params: list[Param] = []
    values: dict[str, Any] = {}
    in_names = [f"in{k}" for k in range(len(inputs))]
    out_names = [f"out{k}" for k in range(len(outputs))]
    for name, node in zip(in_names + out_names, [*inputs, *outputs]):
        params.append(Param(name, "pointer", node.dtype))

    def number(name: str, value: Any, kind: str = "int") -> str:
        params.append(Param(name, kind))
        values[name] = value
        return name

    def times(index: str, stride: Extent, name: str) -> str | None:
        """Text of index * stride, None for stride 0."""
        if isinstance(stride, int) and stride == 0:
            return None
        return index if same(stride, 1) else f"{index} * {number(name, stride)}"

    extents = [""] + [number(f"n{k}", shape[k]) for k in range(1, rank)]
    head: list[str] = []  # once
    rows: list[str] = []  # once per run of the last axis
    body: list[str] = []  # per element
    operand_index: list[str] = []
    loaded_at: list[int] = []  # 0: once, 1: per run, 2: per element
    for name, st in zip(in_names + out_names, strides):
        outer = [times(f"c{k}", st[k], f"{name}_s{k}") for k in range(rank - 1)]
        inner = times("j", st[-1], f"{name}_s{rank - 1}") if rank else None
        base = " + ".join(t for t in outer if t)
        if base:
            rows.append(f"{name}_base = {base}")
            base = f"{name}_base"
        operand_index.append(" + ".join(t for t in (base, inner) if t) or "0")
        loaded_at.append(2 if inner else 1 if base else 0)

    names: dict[Node, tuple[str, str]] = {}
    for k, (name, node) in enumerate(zip(in_names, inputs)):
        text = f"x{k} = " + loaded(f"load_in({name}, {operand_index[k]})", node.dtype)
        (head, rows, body)[loaded_at[k]].append(text)
        names[node] = (f"x{k}", node.dtype.compute)
    for k, node in enumerate(scalars):
        of = node.dtype.compute
        raw = number(f"a{k}", node.attr("value"), "float" if of[0] == "f" else "int")
        head.append(f"y{k} = " + (f"({raw} != 0)" if of == "b1" else f"{of}({raw})"))
        if is_narrow(node.dtype):
            head[-1] = f"y{k} = " + convert(f"f64({raw})", BY_NAME["f64"], node.dtype)
        names[node] = (f"y{k}", of)

    def emit(text: str) -> str:
        name = f"v{len(body)}"
        body.append(f"{name} = {text}")
        return name

    bits: dict[Node, str] = {}  # of values that were rounded to a dtype narrower than what they are computed in
    for n in nodes:
        args = [names[i] for i in n.inputs]
        if n.op.expr is not None:
            value, of = scalar.spell(n.op.expr, args, _operand_type(n), emit)
            narrow = stored(value, n.dtype) if is_narrow(n.dtype) and not scalar.keeps(n.op.expr) else None
        else:  # a cast
            value, of, source = args[0][0], n.dtype.compute, n.inputs[0].dtype
            narrow = narrowed(value, source, n.dtype) if is_narrow(n.dtype) and source is not n.dtype else None
            value = value if narrow else emit(convert(value, source, n.dtype))
        if narrow:
            bits[n] = emit(narrow)
            value = emit(loaded(bits[n], n.dtype))
        names[n] = (value, of)
    for k, node in enumerate(outputs):
        value = bits.get(node) or stored(names[node][0], node.dtype)
        body.append(f"store_out({out_names[k]}, {operand_index[len(inputs) + k]}, {value})")

    text = "\n".join(head) + "\n" + _loops(rank, extents, rows, body)
    label = "_".join(dict.fromkeys(n.op.name for n in nodes))[:60]
    total: Extent = 1
    for e in shape:
        total = total * e
    return RegionKernel(Source(label, tuple(params), text, lambda: text), [*inputs, *outputs], values, total, len(body))


def _operand_type(n: Node) -> str:
    """The computation type of a node's formula: that of its data, which for comparisons is not that of its result."""
    data = [i for i, name in zip(n.inputs, n.op.inputs) if name != "condition"]
    return data[0].dtype.compute


def _loops(rank: int, extents: list[str], rows: list[str], body: list[str]) -> str:
    """One loop over a flat range; or, for several axes, runs of the last axis with the outer coordinates c0, c1, ..."""
    def indent(lines: list[str], by: int) -> list[str]:
        return [" " * by + line for line in lines]

    if rank <= 1:
        return "\n".join(["for j in range(lo, hi):", *indent(rows + body, 4)])
    inner = extents[rank - 1]
    coordinates = []
    for k in range(rank - 2, 0, -1):
        coordinates += [f"c{k} = c % {extents[k]}", f"c = c // {extents[k]}"]
    return "\n".join([
        "i = lo",
        "while i < hi:",
        *indent([f"c = i // {inner}", f"first = i - c * {inner}", f"last = minimum({inner}, first + hi - i)",
                 "i += last - first", *coordinates, "c0 = c", *rows, "for j in range(first, last):"], 4),
        *indent(body, 8),
    ])
