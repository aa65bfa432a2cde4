"""A plan: the launches of a graph over storages, with every number an extent of the plan's symbols. Nothing in it depends on
a particular call; `run.executor` makes it concrete for given lengths."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..core import dims, ir
from ..core.dims import Extent, product
from ..core.dtypes import DType
from ..core.errors import ArgumentError
from ..core.ir import Graph, Node
from ..core.layout import Layout, contiguous
from ..core.ops import CPU, Kernel, Launch, shown
from ..core.source import Location
from . import bindings
from .bindings import Bindings, UserKernel
from .codegen import Source, kernel_source, region_source
from .fuse import Step, fuse
from .lower import Layouts, legalise, lower
from .order import order_writes


@dataclass(eq=False)
class Storage:
    """A buffer. `kind`: 'input' (number `index` of the arguments), 'constant', 'output' or 'temporary'."""

    id: int
    kind: str
    nbytes: Extent
    index: int = -1
    array: np.ndarray[Any, Any] | None = None
    first: int = -1  # steps between which a temporary lives
    last: int = -1


@dataclass(frozen=True)
class Pointer:
    storage: Storage
    offset: Extent  # bytes


@dataclass(eq=False)
class LaunchStep:
    """One kernel call: `args` are Pointers, extents, floats, or the words 'status' and 'site', in the block's order."""

    label: str
    source: Source | None
    args: list[Any]
    total: Extent
    cost: Extent
    where: Location | None
    nodes: list[Node]
    blas: bool = False
    user: UserKernel | None = None
    arrays: list[tuple[Pointer, Layout, DType]] = field(default_factory=list)  # for a user's kernel
    reads: list[Storage] = field(default_factory=list)
    writes: list[Storage] = field(default_factory=list)
    note: str = ""
    group: int = 0  # threads that share a work item, on a device

    @property
    def name(self) -> str:
        return self.user.name if self.user else self.source.name if self.source else ""


@dataclass(eq=False)
class Output:
    """A result: a fresh array over its storage, or the donated argument itself."""

    storage: Storage
    shape: tuple[Extent, ...]
    dtype: DType
    donated: int | None = None
    form: str = "array"  # without axes also "scalar", of NumPy's, or "python"


@dataclass(eq=False)
class Plan:
    graph: Graph  # as traced
    lowered: Graph
    launches: list[LaunchStep]
    storages: list[Storage]
    outputs: list[Output]
    generation: int
    backend: str = CPU
    printer: Callable[[Source, int], str] | None = None  # the text of a kernel in the machine's language
    notes: list[tuple[str, list[str]]] = field(default_factory=list)  # for explanations: headings, each with its lines

    def source(self, which: int | Node) -> str:
        """The text of the kernel of a launch (its number), or of the launch that computes a node of `lowered`, as the machine
        gets it: Python for the CPU, GLSL for Vulkan. Raises ArgumentError when there is none."""
        steps = self.launches[which:which + 1] if isinstance(which, int) else [s for s in self.launches if which in s.nodes]
        if not steps or steps[0].source is None:
            raise ArgumentError(f"the plan has no kernel for {shown(which)}",
                                cure=f"give the number of a launch, 0 to {len(self.launches) - 1}, or one of its nodes")
        step = steps[0]
        assert step.source is not None
        return self.printer(step.source, step.group) if self.printer is not None else step.source.text()

    @property
    def sources(self) -> list[Source]:
        """The distinct kernels, in order of first use."""
        found = {s.source.key: s.source for s in self.launches if s.source is not None}
        return list(found.values())

    def format(self, folded: bool | None = None) -> str:
        """The launches, a line each. folded: whether groups of equal launches that follow one another are listed once;
        None: where there are many."""
        from .show import format_plan

        return format_plan(self, folded)

    def __str__(self) -> str:
        return self.format()

    __repr__ = __str__

    def svg(self, folded: bool | None = None) -> str:
        """The lowered graph as a picture, SVG, with the ops of one kernel in one frame. folded: as for `Graph.svg`."""
        from .show import plan_svg

        return plan_svg(self, folded)

    def _repr_html_(self) -> str:
        from .show import plan_html

        return plan_html(self)


def make_plan(graph: Graph, input_layouts: Mapping[Node, Layout], bound: Bindings | None = None) -> Plan:
    """Lower, order, fuse and lay out a traced graph, with what was bound when its trace began, or is bound now. Raises
    NoKernelError, GraphError."""
    bound = bound or bindings.current()
    with dims.tracing(graph.env):
        layouts = Layouts(input_layouts)
        lowered = lower(graph, bound)
        lowered = legalise(lowered, layouts, bound)
        lowered, before = order_writes(lowered)
        steps = fuse(lowered, before, bound)
        return _Planner(graph, lowered, layouts, bound).plan(steps)


class _Planner:
    def __init__(self, graph: Graph, lowered: Graph, layouts: Layouts, bound: Bindings):
        self.graph, self.lowered, self.layouts, self.bound = graph, lowered, layouts, bound
        self.storages: dict[Node, Storage] = {}
        self.scratch: list[Storage] = []

    def plan(self, steps: Sequence[Step]) -> Plan:
        outputs = [self._output(o) for o in self.lowered.outputs]
        launches = []
        for k, s in enumerate(steps):
            for launch in [self._region(s)] if s.is_region else self._kernel(s.nodes[0]):
                for storage in launch.reads + launch.writes:
                    storage.first = k if storage.first < 0 else storage.first
                    storage.last = k
                launches.append(launch)
        return Plan(self.graph, self.lowered, launches, [*self.storages.values(), *self.scratch], outputs,
                    self.bound.generation, self.bound.backend)

    # -- storage
    def storage(self, node: Node) -> Storage:
        root = node.root
        found = self.storages.get(root)
        if found is None:
            found = self.storages[root] = self._new(root, "temporary")
        return found

    def _new(self, root: Node, kind: str) -> Storage:
        number = len(self.storages) + len(self.scratch)
        nbytes = product(root.shape) * root.dtype.itemsize
        if root.op is ir.INPUT:
            return Storage(number, "input", nbytes, self.lowered.inputs.index(root))
        if root.op is ir.CONSTANT:
            return Storage(number, "constant", nbytes, array=root.attr("captured").array)
        return Storage(number, kind, nbytes)

    def _output(self, node: Node) -> Output:
        root = node.root
        if root not in self.storages:
            self.storages[root] = self._new(root, "output")
        storage = self.storages[root]
        return Output(storage, node.shape, node.dtype, storage.index if storage.kind == "input" else None)

    def pointer(self, node: Node) -> Pointer:
        return Pointer(self.storage(node), self.layouts(node).offset * node.dtype.itemsize)

    # -- launches
    def _region(self, step: Step) -> LaunchStep:
        layouts = [contiguous(o.shape) for o in step.outputs]
        made = region_source(step.nodes, step.outputs, self.layouts, layouts)
        pointers = iter(made.pointers)
        args = [self.pointer(next(pointers)) if p.kind == "pointer" else made.values[p.name] for p in made.source.params]
        inside = set(step.nodes)
        return LaunchStep(made.source.label, made.source, args, made.total, made.steps + 8 * len(made.pointers),
                          step.nodes[-1].where, step.nodes,
                          reads=[self.storage(n) for n in made.pointers if n not in inside],
                          writes=[self.storage(o) for o in step.outputs])

    def _kernel(self, node: Node) -> list[LaunchStep]:
        read = [i for k, i in enumerate(node.inputs) if k != node.op.destroys]
        operands = [self.layouts.operand(i) for i in read]
        result = self.layouts.operand(node)
        pointers = [self.pointer(n) for n in (*read, node)]
        reads, writes = [self.storage(i) for i in read], [self.storage(node)]
        user = self.bound.user_kernel(node)
        if user is not None:
            arrays = [(p, o.layout, o.dtype) for p, o in zip(pointers, [*operands, result])]
            return [LaunchStep(node.op.name, None, list(node.attributes.values()), 1, 1, node.where, [node], user=user,
                               arrays=arrays, reads=reads, writes=writes, note="registered by the user")]
        kernel, refused = self.bound.choose(node, operands, node.attributes)
        if kernel is None:
            raise self.bound.no_kernel(node, refused)
        launch = kernel.launch(operands, [result], node.attributes)
        note = "; ".join(refused)
        if launch.finish is None:
            return [self._launch(node, kernel, launch, bindings.key_dtypes(node), pointers, reads, writes, note)]
        assert launch.scratch is not None
        shape, dtype = launch.scratch
        between = Storage(len(self.storages) + len(self.scratch), "temporary", product(shape) * dtype.itemsize)
        self.scratch.append(between)
        *sources, target = pointers
        parts = self._launch(node, kernel, launch, (*(i.dtype for i in read), dtype), [*sources, Pointer(between, 0)], reads,
                             [between], note)
        parts.label += " in parts"
        last = next(k for k in self.bound.of(node.op) if k.name == (launch.finish_with or kernel.name))
        return [parts, self._launch(node, last, launch.finish, (dtype, node.dtype), [Pointer(between, 0), target], [between],
                                    writes, note)]

    def _launch(self, node: Node, kernel: Kernel, launch: Launch, dtypes: Sequence[DType], pointers: Sequence[Pointer],
                reads: list[Storage], writes: list[Storage], note: str) -> LaunchStep:
        source = kernel_source(kernel, dtypes, launch.bake)
        given = iter(pointers)
        args = [next(given) if p.kind == "pointer" else p.kind if p.kind in ("status", "site") else launch.args[p.name]
                for p in source.params]
        return LaunchStep(source.label, source, args, launch.total, launch.cost, node.where, [node], kernel.blas,
                          reads=reads, writes=writes, note=note, group=launch.group)
