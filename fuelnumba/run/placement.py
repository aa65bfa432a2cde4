"""Placement: graphs that run on several machines.

A node runs on the machine that its operands were brought to with `to_device`, or where their arrays lie; what is computed
from host arrays alone, on the one that the call chose. NumPy arrays, numbers, and what is made of nothing else (views of
such arrays, say) go wherever they are needed. A machine's nodes are put in parts by how many borders lie before them:
a part is a graph of its own, with a plan, and waits for nothing once its operands are there. A device's part is submitted
and goes on by itself, so parts are run in an order in which those come first that wait for no device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..compiler.bindings import Bindings
from ..compiler.plan import Output, Plan, Storage, make_plan
from ..core import ir
from ..core.dims import product
from ..core.errors import ArgumentError, DonationError, FuelIndexError, NoBackendForOp, NoKernelError
from ..core.ir import Graph, Node
from ..core.layout import Layout, contiguous
from ..core.ops import OPS
from .array import DeviceArray
from .bound import Bound
from .fits import Fits
from .target import Target, cpu, device, moved


@dataclass(frozen=True)
class Call:
    """What placement has to know of the call that a graph was traced for."""

    target: Target  # where it runs if nothing else is said
    bound: Bindings  # what was bound there before the trace
    lies: Mapping[Node, Target]  # the graph's inputs that lie on devices
    scalars: Mapping[Node, str]  # those that are Python numbers
    layouts: Mapping[Node, Layout]
    positions: Mapping[Node, int]  # the places of the inputs among the call's leaves
    fallback: bool  # whether the CPU may run what a device has no kernel for


def starts_on(leaves: Sequence[Any], asked: Target | None, named: Callable[[int], tuple[str, str]]) -> Target:
    """The machine for a call if nothing else is said: the one that was asked for, else where its first device array lies.
    `named` gives the names of the function and of a leaf. Raises ArgumentError for an array that lies elsewhere than asked,
    BackendError for those of a closed device."""
    arrays = [(k, leaf) for k, leaf in enumerate(leaves) if type(leaf) is DeviceArray]
    target = asked or (arrays[0][1].device if arrays else cpu)
    apart = [(k, leaf) for k, leaf in arrays if leaf.device is not target]
    if apart:
        for _, leaf in arrays:
            leaf.wait()  # says that a device was closed: the one that was opened in its place has the same name
        if asked is not None:
            function, name = named(apart[0][0])
            raise ArgumentError(f"{function}(): {name} lies on {apart[0][1].device.name}, what device(...) chose is {asked.name}",
                                cure=f"bring it there: fuelnumba.to_device({name}, {asked.name!r})")
    return target


def planned(graph: Graph, call: Call) -> tuple[Plan, Callable[..., Any]]:
    """A plan, and what makes an instance of it (see `Target.instance`). Raises NoKernelError, ArgumentError for operands on
    two machines, DonationError."""
    home = _homes(graph, call)
    try:
        return _planned(graph, call, home, {})
    except NoBackendForOp:
        unserved = _unserved(graph, call, home) if call.fallback else {}
        if not unserved:
            raise
    return _planned(graph, call, home, unserved)


def _planned(graph: Graph, call: Call, home: Mapping[Node, Target | None],
             unserved: Mapping[Node, NoKernelError]) -> tuple[Plan, Callable[..., Any]]:
    target = call.target
    if not unserved and all(h is None or h is target for h in home.values()):
        plan = make_plan(graph, _layouts(graph, call, target), call.bound)
        target.admit(plan)
        plan.printer = target.text
        places = [call.positions[n] for n in graph.inputs]
        for s in plan.storages:
            if s.kind == "input":
                s.index = places[s.index]
        for o in plan.outputs:
            o.donated = None if o.donated is None else places[o.donated]
        return plan, target.instance
    return _Split(graph, call, home, unserved).plan(), Composite


def _layouts(graph: Graph, call: Call, target: Target) -> dict[Node, Layout]:
    """How the values of a graph's leaves lie on its machine. What is sent to a device is contiguous there."""
    captured = [n for n in graph.nodes() if n.op is ir.CONSTANT and (target is not cpu or _resident(n) is not None)]
    return {**(call.layouts if target is call.target else {}), **{n: contiguous(n.shape) for n in captured}}


def _resident(n: Node) -> DeviceArray | None:
    """The captured array that a node is, when it lies on a device."""
    array = n.attr("captured").array if n.op is ir.CONSTANT else None
    return array if isinstance(array, DeviceArray) else None


# ------------------------------------------------------------------------------------------------ where nodes belong
def _homes(graph: Graph, call: Call) -> dict[Node, Target | None]:
    """The machine that the program gives each node; None where any will do."""
    home: dict[Node, Target | None] = {}
    made: set[Node] = set()  # of numbers only
    for n in graph.nodes():
        if n.op is OPS["to_device"]:
            home[n] = device(n.attr("device"))
        elif n.op.kind == "leaf":
            there = _resident(n)
            home[n] = call.lies.get(n) if there is None else there.device
            if n.op is not ir.CONSTANT and (n.op is not ir.INPUT or n in call.scalars):
                made.add(n)
        else:
            found: dict[Target, Node] = {}
            for i in n.inputs:
                where = home[i]
                if where is not None:
                    found.setdefault(where, i)
            if len(found) > 1:
                (one, x), (two, y) = list(found.items())[:2]
                raise ArgumentError(f"{n.op.name}(): {_called(x)} is on {one.name}, {_called(y)} on {two.name}", where=n.where,
                                    cure=f"bring one to the other: fuelnumba.to_device(x, {two.name!r})")
            if made.issuperset(n.inputs):
                made.add(n)
            anywhere = n in made or n.op.is_view or n.op.name == "cast"
            home[n] = next(iter(found), None if anywhere else call.target)
    return home


def _called(n: Node) -> str:
    while n.op.name in ("to_device", "cast") or n.op.is_view:
        n = n.inputs[0]
    return n.attr("name") if n.op is ir.INPUT else f"the result of {n.op.name}"


def _unserved(graph: Graph, call: Call, home: Mapping[Node, Target | None]) -> dict[Node, NoKernelError]:
    """The nodes for which their device has no kernel, and what it said; each is planned on its own to find out."""
    devices = dict.fromkeys(d for d in (call.target, *home.values()) if d is not None and d is not cpu)
    known: dict[Any, NoKernelError | None] = {}
    found = {}
    for n in graph.nodes():
        if n.op.kind == "leaf" or n.op is OPS["to_device"]:
            continue
        where = home[n]
        operands = tuple(i if i.op is ir.FULL else i.aval for i in n.inputs)
        for d in devices if where is None else [where] * (where is not cpu):
            key = (d, n.op, operands, tuple((k, ir.freeze_value(v)) for k, v in n.attrs))
            if key not in known:
                known[key] = _refusal(n, d, graph)
            refusal = known[key]
            if refusal is not None:
                found[n] = refusal
    return found


def _refusal(n: Node, target: Target, graph: Graph) -> NoKernelError | None:
    inputs = [i if i.op is ir.FULL else ir.input_node("x", i.shape, i.dtype) for i in n.inputs]
    alone = Graph([i for i in inputs if i.op is ir.INPUT], [ir.with_inputs(n, tuple(inputs))], graph.name, graph.env)
    try:
        target.admit(make_plan(alone, {}, target.bindings()))
    except NoKernelError as err:
        return err
    return None


# ------------------------------------------------------------------------------------------------ parts
@dataclass(eq=False)
class Part:
    """A graph on one machine. `inputs` and `outputs` are nodes of the whole graph; `nodes` maps these to the part's own."""

    target: Target
    level: int
    nodes: dict[Node, Node] = field(default_factory=dict)
    inputs: dict[Node, Node] = field(default_factory=dict)
    outputs: list[Node] = field(default_factory=list)
    needs: set[Part] = field(default_factory=set)
    plan: Plan = None  # type: ignore[assignment]
    reads: list[int] = field(default_factory=list)  # slots of the run's values: of its inputs, of its results
    writes: list[int] = field(default_factory=list)

    def of(self, n: Node) -> Node:
        """The part's own node for one of the whole graph's: an input for what is computed elsewhere."""
        if n not in self.nodes:
            mine = n if n.op is ir.INPUT else ir.input_node(f"{n.op.name}_{n.id}", n.shape, n.dtype, n.where)
            self.nodes[n] = self.inputs[n] = mine
        return self.nodes[n]

    def give(self, n: Node) -> None:
        if n not in self.outputs:
            self.outputs.append(n)


@dataclass(frozen=True, eq=False)
class Copy:
    """A value that goes over a border."""

    node: Node
    source: Target
    target: Target
    read: int
    write: int

    def __str__(self) -> str:
        from ..compiler.show import bytes_in_words

        n = self.node
        return (f"copy of {_called(n)} {n.aval} from {self.source.name} to {self.target.name}, "
                f"{bytes_in_words(product(n.shape) * n.dtype.itemsize)}")


class _Split:
    """A graph cut into parts. Nodes without a place are in every part that needs them."""

    def __init__(self, graph: Graph, call: Call, home: Mapping[Node, Target | None],
                 unserved: Mapping[Node, NoKernelError]) -> None:
        self.graph, self.call, self.home, self.unserved = graph, call, home, unserved
        self.nodes = graph.nodes()
        self.base: dict[Node, Node] = {}  # the node whose value it is: to_device is seen through
        self.place: dict[Node, Target | None] = {}
        self.level: dict[Node, int] = {}  # borders before it, -1 for what calls come with
        self.parts: dict[tuple[Target, int], Part] = {}
        self.members: dict[Node, dict[Part, None]] = {}
        self.slots: dict[tuple[Node, Target], int] = {}
        self.steps: list[Part | Copy] = []
        for n in self.nodes:
            self._settle(n)

    def _settle(self, n: Node) -> None:
        is_moved, is_leaf = n.op is OPS["to_device"], n.op.kind == "leaf"
        self.base[n] = self.base[n.inputs[0]] if is_moved else n
        place = self.place[n] = None if is_moved or is_leaf else cpu if n in self.unserved else self.home[n]
        if place is None:  # of nodes without a place, only those that fell back are computed before it, on the CPU
            self.level[n] = max((self.level[self.base[i]] for i in n.inputs), default=-1)
        else:
            self.level[n] = max((self._after(self.base[i], place) for i in n.inputs), default=0)
            self.members[n] = {self._part(place, self.level[n]): None}

    def _after(self, n: Node, target: Target) -> int:
        """The first level on which a machine can have a node's value."""
        return max(self.level[n], 0) + (self.level[n] >= 0 and (self.place[n] or cpu) is not target)

    def _part(self, target: Target, level: int) -> Part:
        return self.parts.setdefault((target, level), Part(target, level))

    def _source(self, n: Node) -> Target:
        """Where the value of an input, or of a node with a place, is had from."""
        return self.place[n] or self.call.lies.get(n, cpu)

    # -------------------------------------------------------------------------------------- building
    def plan(self) -> PlacedPlan:
        outputs = [(self.base[o], self.home[o] or self.call.target) for o in self.graph.outputs]
        for n, target in outputs:
            crosses = n.op is ir.INPUT and n not in self.call.scalars and self._source(n) is not target
            if self.place[n] is not None:
                next(iter(self.members[n])).give(n)
            elif not crosses:
                part = self._part(target, self._after(n, target))
                part.give(n)
                self.members.setdefault(n, {})[part] = None
        for n in reversed(self.nodes):
            for part in self.members.get(n, ()):
                for i in n.inputs:
                    self._use(self.base[i], part)
        for n in self.nodes:
            for part in self.members.get(n, ()):
                if n.op is ir.INPUT:
                    part.of(n)
                else:
                    part.nodes[n] = ir.with_inputs(n, tuple(part.of(self.base[i]) for i in n.inputs))
        for part in self.parts.values():
            part.plan = self._plan_of(part)
        self.slots = {(n, self.call.lies.get(n, cpu)): k for n, k in self.call.positions.items()}
        self.free = max(self.call.positions.values(), default=-1) + 1
        self._order()
        results = [self._slot(n, target) for n, target in outputs]
        return self._whole(results)

    def _use(self, n: Node, part: Part) -> None:
        if n.op is ir.INPUT:
            return
        if self.place[n] is None:
            self.members.setdefault(n, {})[part] = None
        elif part not in self.members[n]:
            maker = next(iter(self.members[n]))
            maker.give(n)
            part.needs.add(maker)

    def _plan_of(self, part: Part) -> Plan:
        call, whole = self.call, self.graph
        inputs = list(part.inputs)
        donated = frozenset(inputs.index(n) for n in (whole.inputs[k] for k in whole.donated) if n in part.inputs)
        for k in donated:
            others = [p for p in self.parts.values() if p is not part and inputs[k] in p.inputs]
            if others:
                raise DonationError(f"the donated argument {inputs[k].attr('name')} is used in parts of {whole.name}() that run "
                                    f"one after another, on {part.target.name} and on {others[0].target.name}",
                                    cure="do not donate it, or use it in one place only")
        graph = Graph(list(part.inputs.values()), [part.nodes[o] for o in part.outputs], whole.name, whole.env, donated)
        bound = call.bound if part.target is call.target else part.target.bindings()
        plan = make_plan(graph, _layouts(graph, call, part.target), bound)
        for s in plan.storages:
            if isinstance(s.array, DeviceArray):
                s.array = moved(s.array, part.target)
        part.target.admit(plan)
        plan.printer = part.target.text
        return plan

    def _order(self) -> None:
        left, done = list(self.parts.values()), set[Part]()
        while left:
            part = min((p for p in left if p.needs <= done), key=self._rank)
            part.reads = [self._slot(n, part.target) for n in part.inputs]
            for n in part.outputs:
                part.writes.append(self.free)
                self.slots[n, part.target] = self.free
                self.free += 1
            self.steps.append(part)
            left.remove(part)
            done.add(part)

    def _rank(self, part: Part) -> tuple[int, int]:
        """Of parts that could be run next, what a device can begin at once comes first, then what waits for no device."""
        waits = any(self._source(n) not in (cpu, part.target) for n in part.inputs)
        return (2 if waits else int(part.target is cpu), part.level)

    def _slot(self, n: Node, target: Target) -> int:
        """Where a run has a value on a machine; the first use there makes the copy."""
        source = self._source(n)
        if n in self.call.scalars and n.op is ir.INPUT and (n, target) not in self.slots:
            return self.slots[n, source]
        if (n, target) not in self.slots:
            self.steps.append(Copy(n, source, target, self.slots[n, source], self.free))
            self.slots[n, target] = self.free
            self.free += 1
        return self.slots[n, target]

    def _whole(self, results: Sequence[int]) -> PlacedPlan:
        parts = [s for s in self.steps if isinstance(s, Part)]
        plans = [p.plan for p in parts]
        lowered = Graph([i for p in plans for i in p.lowered.inputs], [o for p in plans for o in p.lowered.outputs],
                        self.graph.name, self.graph.env)
        made = PlacedPlan(self.graph, lowered, [s for p in plans for s in p.launches], [s for p in plans for s in p.storages],
                          [Output(Storage(k, "output", product(o.shape) * o.dtype.itemsize), o.shape, o.dtype)
                           for k, o in enumerate(self.graph.outputs)], self.call.bound.generation, self.call.target.backend)
        made.steps, made.parts, made.size, made.results = self.steps, parts, self.free, results
        made.dense = self.call.target is not cpu
        made.notes = [("parts and copies:", [f"  {s}" for s in made.lines()])]
        if self.unserved:
            made.notes.append(("run on the CPU, because their device has no kernel for them:", [
                f"  {n.op.name} {n.aval}: {err.what}" + (f"   # {n.where}" if n.where else "")
                for n, err in self.unserved.items() if n in self.members]))
        return made


class PlacedPlan(Plan):
    """The plans of several parts, as one: their launches are counted through."""

    steps: list[Part | Copy]
    parts: list[Part]
    size: int  # values that a run holds: the call's leaves, then what is made
    results: Sequence[int]
    dense: bool  # whether parts on the CPU take host arrays for contiguous, as devices do

    def source(self, which: int | Node) -> str:
        first = 0
        for part in self.parts:
            steps = part.plan.launches
            if isinstance(which, Node) and any(which in s.nodes for s in steps):
                return part.plan.source(which)
            if isinstance(which, int) and first <= which < first + len(steps):
                return part.plan.source(which - first)
            first += len(steps)
        return super().source(which)

    def lines(self) -> list[str]:
        """One for each part and each copy, in the order in which they run."""
        first, out = 0, []
        for s in self.steps:
            if isinstance(s, Copy):
                out.append(str(s))
                continue
            after = first + len(s.plan.launches)
            numbers = f"launch {first}" if after == first + 1 else f"launches {first} to {after - 1}"
            out.append(f"on {s.target.name}: {numbers if after > first else 'nothing to run'}")
            first = after
        return out

    def format(self, folded: bool | None = None) -> str:
        from ..compiler.show import launch_lines, numbered, size_in_words
        from ..core.picture import count

        copies = len(self.steps) - len(self.parts)
        out = [f"plan of {self.graph.name}: {count(len(self.parts), 'part')}, copies between machines: {copies}, "
               f"{size_in_words(self)}"]
        launches = iter(numbered(launch_lines(self), False))
        for s, line in zip(self.steps, self.lines()):
            out.append(f"  {line}")
            if isinstance(s, Part):
                out += [f"  {next(launches)}" for _ in s.plan.launches]
        return "\n".join(out)


class Composite:
    """A placed plan for one set of lengths: instances of its parts, and the copies between them."""

    def __init__(self, plan: PlacedPlan, env: Mapping[str, int], scalars: Mapping[int, str], fits: Fits | None,
                 progress: Any) -> None:
        self.plan, self.fits, self.lengths = plan, fits, dict(env)
        self.forms = [(k, o.form) for k, o in enumerate(plan.outputs) if o.form != "array"]
        self.instances: dict[Part, Bound] = {}
        done = 0
        for part in plan.parts:
            kinds = {k: scalars[slot] for k, slot in enumerate(part.reads) if slot in scalars}
            self.instances[part] = part.target.instance(part.plan, env, kinds, None, _counted(progress, done, len(plan.launches)))
            done += len(part.plan.launches)

    def divided(self) -> set[int]:
        return {k for i in self.instances.values() for k in i.divided()}

    def __call__(self, leaves: Sequence[Any]) -> list[Any]:
        """Run on a call's leaves. Gives NumPy arrays and DeviceArrays. Raises FuelErrors."""
        plan = self.plan
        if self.fits is not None:
            self.fits.check(leaves, self.lengths)
        values = [*leaves, *[None] * (plan.size - len(leaves))]
        begun: list[Callable[[], None]] = []  # to ask devices what their kernels met, when all is under way
        try:
            for s in plan.steps:
                if isinstance(s, Copy):
                    values[s.write] = moved(values[s.read], s.target)
                else:
                    self._begin(s, values, begun)
        except FuelIndexError:  # perhaps because of what an earlier part had left unwritten
            for finish in begun:
                finish()
            raise
        for finish in begun:
            finish()
        results = [values[k] for k in plan.results]
        for k, form in self.forms:
            if type(results[k]) is np.ndarray:
                results[k] = results[k].item() if form == "python" else results[k][()]
        return results

    def _begin(self, part: Part, values: list[Any], begun: list[Callable[[], None]]) -> None:
        given = [values[k] for k in part.reads]
        if self.plan.dense and part.target is cpu:
            given = [np.asarray(v, order="C") if type(v) is np.ndarray else v for v in given]
        results, finish = self.instances[part].begin(given)
        for k, value in zip(part.writes, results):
            values[k] = value
        if finish is not None:
            begun.append(finish)


def _counted(progress: Any, before: int, total: int) -> Any:
    """Progress of one part as that of the whole."""
    if progress is None:
        return None
    return lambda done, _, label: progress(before + done, total, label)
