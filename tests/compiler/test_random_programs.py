"""Random programs full of writes, views and conversions. Every value is a small integer, exact in each dtype,
so that one element read from the wrong version of a buffer shows.

A program is the text of a function. NumPy runs it with writes on copies; a failure prints it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuelnumba import jit, ops
from fuelnumba.compiler import bindings, fuse, plan
from fuelnumba.compiler.lower import Layouts
from fuelnumba.core import dims, ir
from fuelnumba.core.layout import contiguous, product
from fuelnumba.trace.interpret import evaluate_node
from tests.trace.tracing import trace

DTYPES = ("float32", "float64", "float16", "int32", "bool")
LARGEST = 1000  # f16 holds integers up to 2048


def write(x: Any, source: Any, at: tuple[int, ...]) -> Any:
    """What ops.write_slice means: x is never touched."""
    out = np.array(x)
    out[tuple(slice(a, a + n) for a, n in zip(at, source.shape))] = source
    return out


class Program:
    """`instances` are argument lists the program is valid for; the first is the one it is compiled for."""

    def __init__(self, seed: int, symbolic: bool) -> None:
        self.r = r = np.random.default_rng(seed)
        self.count = int(r.integers(1, 4))
        ranks = [2 if symbolic else int(r.integers(1, 3)) for _ in range(self.count)]
        widths = [int(r.choice([2, 3, 4, 6])) for _ in range(self.count)]
        dtypes = [str(r.choice(DTYPES, p=[0.6, 0.1, 0.1, 0.1, 0.1])) for _ in range(self.count)]
        lengths = [5, 9, 14] if symbolic else [5, 5]
        self.instances = [
            [
                *(r.integers(-4, 5, (n, w)[:rank]).astype(t) for rank, w, t in zip(ranks, widths, dtypes)),
                k % 2,
            ]
            for k, n in enumerate(lengths)
        ]
        self.donated = [f"v{k}" for k in range(self.count) if r.random() < 0.5]
        self.lines: list[str] = []
        self.values: list[list[Any]] = [
            [i[k] for i in self.instances] for k in range(self.count)
        ]  # per value, per instance
        wanted = int(r.integers(5, 22))
        for _ in range(wanted * 8):
            if len(self.lines) < wanted:
                self._step()
        chosen = r.choice(len(self.values), min(len(self.values), int(r.integers(1, 4))), replace=False)
        self.outputs = [*(int(k) for k in chosen), len(self.values) - 1]

    def __str__(self) -> str:
        arguments = ", ".join([*(f"v{k}" for k in range(self.count)), "s"])
        of = [
            f"# v{k}: {a.dtype}{list(a.shape)}" + " donated" * (f"v{k}" in self.donated)
            for k, a in enumerate(self.instances[0][:-1])
        ]
        returned = ", ".join(f"v{k}" for k in self.outputs)
        return "\n    ".join([f"def f({arguments}):", *of, *self.lines, f"return [{returned}]"])

    def function(self, **words: Any) -> Any:
        scope: dict[str, Any] = {"np": np, **words}
        exec(str(self), scope)
        return scope["f"]

    # -- making it
    def _step(self) -> None:
        kind = self.r.choice(
            ["write", "view", "unary", "binary", "reduce", "join", "cast"],
            p=[0.3, 0.2, 0.1, 0.22, 0.06, 0.06, 0.06],
        )
        text = getattr(self, f"_{kind}")()
        if text is None:
            return
        made = []
        for k, instance in enumerate(self.instances):
            scope = {
                "np": np,
                "write": write,
                "s": instance[-1],
                **{f"v{j}": v[k] for j, v in enumerate(self.values)},
            }
            try:
                value = np.asarray(eval(text, scope))
            except (ValueError, IndexError):
                return
            if value.size > 200 or value.size == 0 or np.abs(value.astype(float)).max() > LARGEST:
                return
            made.append(value)
        if len({v.dtype for v in made}) > 1 or str(made[0].dtype) not in DTYPES:
            return
        self.lines.append(f"v{len(self.values)} = {text}")
        self.values.append(made)

    def _pick(self, of: Any = lambda v: True) -> int | None:
        """A value of this kind; late ones more often."""
        fits = [k for k, v in enumerate(self.values) if of(v[0])]
        return fits[-1 - min(int(self.r.geometric(0.3)) - 1, len(fits) - 1)] if fits else None

    def _write(self) -> str | None:
        r = self.r
        into = self._pick(lambda v: v.ndim in (1, 2))
        if into is None:
            return None
        x = self.values[into]
        source = self._pick(lambda v: v.ndim == x[0].ndim and v.dtype == x[0].dtype)
        text = f"v{source}"
        if source == into or r.random() < 0.3:  # a part of the very buffer
            text = f"v{into}{r.choice(['[1:]', '[:-1]', '[::-1]', '[:2]', '', f'[:1] + v{into}[1:2]'])}"
            text += ".T" if x[0].ndim == 2 and r.random() < 0.2 else ""
        room = []
        for k in range(len(self.instances)):
            scope = {"np": np, **{f"v{j}": v[k] for j, v in enumerate(self.values)}}
            try:
                part = eval(text, scope)
            except (TypeError, ValueError):
                return None
            room.append([n - m for n, m in zip(x[k].shape, part.shape)])
        least = np.min(room, axis=0)
        if least.min() < 0:
            return None
        at = [str(int(r.integers(n + 1))) for n in least]
        if least[0] and r.random() < 0.25:
            at[0] = "s"
        return f"write(v{into}, {text}, ({', '.join(at)},))"

    def _view(self) -> str | None:
        k = self._pick(lambda v: v.ndim > 0)
        forms = [
            "v[1:]",
            "v[:-1]",
            "v[::-1]",
            "v[::2]",
            "v.T",
            "v.reshape(-1)",
            "v[None]",
            "v[-1]",
            "v[..., :1]",
            "v[1:3]",
            "np.broadcast_to(v, (2, *v.shape))",
            "v.reshape(v.shape[::-1])",
            "np.flip(v)",
            "v[..., None]",
            "v[:2]",
        ]
        return None if k is None else str(self.r.choice(forms)).replace("v", f"v{k}")

    def _unary(self) -> str | None:
        k = self._pick()
        dtype = self.values[k or 0][0].dtype
        forms = (
            ["~v"]
            if dtype.kind == "b"
            else [
                "-v",
                "np.abs(v)",
                "np.maximum(v, 0)",
                "np.sign(v)",
                "v + 1",
                "v * 2",
                "3 - v",
                "np.clip(v, -2, 2)",
                "v * v",
            ]
        )
        return str(self.r.choice(forms)).replace("v", f"v{k}")

    def _binary(self) -> str | None:
        k = self._pick()
        x = self.values[k or 0][0]
        j = self._pick(lambda v: v.dtype == x.dtype and _broadcasts(v.shape, x.shape))
        c = self._pick(lambda v: v.dtype.kind == "b" and _broadcasts(v.shape, x.shape))
        forms = (
            ["x & y", "x | y", "x ^ y", "x == y"]
            if x.dtype.kind == "b"
            else [
                "x + y",
                "x - y",
                "x * y",
                "np.maximum(x, y)",
                "np.minimum(x, y)",
                "x < y",
                "x == y",
                "x >= y",
            ]
        )
        forms += ["np.where(c, x, y)"] * 2 if c is not None else []
        text = str(self.r.choice(forms))
        for name, number in (("x", k), ("y", j), ("c", c)):
            text = (
                text.replace(f"{name} ", f"v{number} ")
                .replace(f" {name}", f" v{number}")
                .replace(f"({name},", f"(v{number},")
            )
        return text

    def _reduce(self) -> str | None:
        k = self._pick(
            lambda v: v.ndim > 0 and v.dtype.kind != "b" and np.abs(v.astype(float)).sum() <= LARGEST
        )
        if k is None:
            return None
        x = self.values[k][0]
        name = str(self.r.choice(["sum", "max", "min"] if x.dtype != np.int32 else ["max", "min"]))
        axis = int(self.r.integers(x.ndim))
        return f"v{k}.{name}(axis={axis}, keepdims={bool(self.r.random() < 0.7)})"

    def _join(self) -> str | None:
        k = self._pick(lambda v: v.ndim > 0)
        x = self.values[k or 0][0]
        axis = int(self.r.integers(max(x.ndim, 1)))
        j = self._pick(lambda v: v.ndim == x.ndim and v.dtype == x.dtype)
        forms = [
            f"np.concatenate([v{k}, v{j}], {axis})",
            f"np.stack([v{k}, v{j}], {axis})",
            f"np.take(v{k}, [1, -1, 0], axis={axis})",
            f"np.roll(v{k}, 1, {axis})",
        ]
        if x.ndim == 2 and x.dtype.kind == "f" and np.abs(x.astype(float)).max() < 6:
            forms += [f"v{k} @ v{k}.T"] * 2
        return str(self.r.choice(forms))

    def _cast(self) -> str | None:
        return f"v{self._pick()}.astype(np.{str(self.r.choice(DTYPES)).replace('bool', 'bool_')})"


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(n == m or n == 1 or m == 1 for n, m in zip(a[::-1], b[::-1]))


def run(seed: int, symbolic: bool = False) -> Any:
    """Every instance, the first twice: values, dtypes, untouched arguments, results that stay as they are."""
    program = Program(seed, symbolic)
    numpy = program.function(write=write)
    f = jit(donate=program.donated)(
        program.function(write=lambda x, source, at: ops.write_slice(x, source, at=at))
    )
    repro = f"python -c 'from tests.compiler.test_random_programs import run; run({seed}, {symbolic})'"
    say = f"seed {seed}{', symbolic' * symbolic}: {repro}\n{program}"
    results = []
    for instance in [*program.instances, program.instances[0]]:
        given = [a.copy() if isinstance(a, np.ndarray) else a for a in instance]
        expected = [np.array(e) for e in numpy(*instance)]
        try:
            got = f(*given)
        except Exception as err:
            raise AssertionError(say) from err
        for name, before, after in zip([f"v{k}" for k in range(program.count)], instance, given):
            assert name in program.donated or np.array_equal(before, after), f"{name} was modified\n{say}"
        results.append((got, expected))
    for call, (got, expected) in enumerate(results):  # after all calls: no result lies in memory of another
        for k, g, e in zip(program.outputs, got, expected):
            assert g.dtype == e.dtype and g.shape == e.shape, (
                f"v{k} is {g.dtype}{g.shape}, not {e.dtype}{e.shape}\n{say}"
            )
            assert np.array_equal(g, e), f"call {call}: v{k} is\n{g}\nnot\n{e}\n{say}\n{f.plan}"
        for k, g in enumerate(got):
            for j in range(k):
                assert (
                    program.outputs[j] == program.outputs[k]
                    or not np.shares_memory(g, got[j])
                    or _same(f, j, k)
                ), say
    return f


def _same(f: Any, j: int, k: int) -> bool:
    """Whether two results are one node: equal computations."""
    a, b = f.plan.lowered.outputs[j], f.plan.lowered.outputs[k]
    return a is b and a.root is b.root


@pytest.mark.parametrize("seed", range(90))
def test_program_op_by_op(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without fusion, so that the programs share kernels."""
    monkeypatch.setattr(fuse, "MAX_WEIGHT", 0)
    run(seed)


@pytest.mark.parametrize("seed", range(1020, 1050))
def test_program_of_varying_length_op_by_op(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuse, "MAX_WEIGHT", 0)
    run(seed, symbolic=True)


@pytest.mark.parametrize("seed", range(2000, 2016))
def test_fused_program(seed: int) -> None:
    run(seed, symbolic=seed % 4 == 0)


# ------------------------------------------------------------ without kernels
class Machine:
    """Runs the steps of a plan on buffers, as kernels would: a region reads what it does not make from memory
    and stores its outputs; writes go into the buffer that their target lies in. New buffers hold 77."""

    def __init__(self, graph: ir.Graph, arrays: list[Any]) -> None:
        self.memory = {n: np.array(a, n.dtype.numpy).reshape(-1) for n, a in zip(graph.inputs, arrays)}
        self.layouts = Layouts({n: contiguous(n.shape) for n in graph.inputs})
        bound = bindings.current()
        with dims.tracing(graph.env):
            graph, before = plan.order_writes(plan.legalise(plan.lower(graph, bound), self.layouts, bound))
            for step in plan.fuse(graph, before, bound):
                self.step(step)
        self.results = [self.at(o).copy() for o in graph.outputs]
        self.graph = graph

    def at(self, node: ir.Node) -> Any:
        """The node's value in memory; of a scalar, the value itself."""
        if node.op is ir.FULL:
            return evaluate_node(node, [], {})
        root = node.root
        if root not in self.memory:
            made = (
                root.attr("captured").array.reshape(-1)
                if root.op is ir.CONSTANT
                else np.full(product(root.shape), 77, root.dtype.numpy)
            )
            self.memory[root] = made
        layout, size = self.layouts(node), node.dtype.itemsize
        return np.ndarray(
            layout.shape,
            node.dtype.numpy,
            self.memory[root],
            layout.offset * size,
            [s * size for s in layout.strides],
        )

    def step(self, step: fuse.Step) -> None:
        made: dict[ir.Node, Any] = {}
        for n in step.nodes:
            given = [made[i] if i in made else self.at(i) for i in n.inputs]
            if n.op.name == "write_slice":
                assert not step.is_region and not np.shares_memory(given[0], given[1]), (
                    "the source lies in the buffer"
                )
                at = list(n.attr("at"))
                if n.attr("axis") is not None:
                    at[n.attr("axis")] += int(given[2])
                given[0][tuple(slice(a, a + m) for a, m in zip(at, given[1].shape))] = given[1]
            else:
                made[n] = evaluate_node(n, given, {})
        for o in step.outputs:
            if o in made:
                self.at(o)[...] = made[o]


@pytest.mark.parametrize("seed", [*range(3000, 3200), 55014])
def test_plan_without_kernels(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Order, fusion and copies alone, for regions of all sizes."""
    monkeypatch.setattr(fuse, "MAX_WEIGHT", [0, 2, 4, 8, 500][seed % 5])
    program = Program(seed, seed % 3 == 0)
    expected = program.function(write=write)(*program.instances[0])
    graph, _ = trace(
        program.function(write=lambda x, source, at: ops.write_slice(x, source, at=at)), program.instances[0]
    )
    graph.donated = frozenset(int(name[1:]) for name in program.donated)
    given = [np.array(a) for a in program.instances[0]]
    machine = Machine(graph, given)
    for k, g, e in zip(program.outputs, machine.results, expected):
        assert np.array_equal(g, e), f"seed {seed}: v{k} is\n{g}\nnot\n{e}\n{program}\n{machine.graph}"
    for n, a in zip(graph.inputs, given):
        kept = graph.inputs.index(n) in graph.donated or np.array_equal(machine.memory[n], a.reshape(-1))
        assert kept, f"seed {seed}: {n!r} was modified\n{program}"
