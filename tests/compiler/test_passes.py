"""Rules, lowering, the order of writes, fusion: each by what it does to small graphs, and by the numbers that come out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuelnumba import jit, ops
from fuelnumba.compiler import bindings, rules
from fuelnumba.compiler.fuse import fuse
from fuelnumba.compiler.lower import Layouts, legalise, lower
from fuelnumba.compiler.order import order_writes
from fuelnumba.core import dims, ir
from fuelnumba.core import dtypes as dt
from fuelnumba.core.errors import GraphError, NoKernelError
from fuelnumba.core.ir import Graph, Node
from fuelnumba.core.layout import contiguous
from fuelnumba.core.ops import OPS

F32 = np.float32


def x_(*shape: int, dtype: Any = dt.f32) -> Node:
    return ir.input_node("x", shape, dtype)


def make(name: str, *inputs: Node, **attrs: Any) -> Node:
    return ir.make(OPS[name], inputs, attrs)


def arange(*shape: int) -> np.ndarray[Any, Any]:
    return np.arange(1, 1 + int(np.prod(shape)), dtype=F32).reshape(shape)


def lowered(fn: Callable[..., Any], *arrays: Any, donate: Any = ()) -> Graph:
    """The graph after all passes before fusion."""
    f = jit(fn, donate=donate)
    f(*arrays)
    ir.verify(f.plan.lowered)
    return f.plan.lowered


def names(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes() if n.op.kind != "leaf"]


# ------------------------------------------------------------------------------------------------ interning
def test_equal_nodes_are_one_object() -> None:
    x, y = x_(3), x_(3)
    assert x is not y
    assert make("add", x, y) is make("add", x, y)
    assert make("add", x, y) is not make("add", y, x)
    assert make("sum", x, axis=(0,), keepdims=False) is not make("sum", x, axis=(0,), keepdims=True)
    assert ir.full_node(0.0, (3,), dt.f32) is not ir.full_node(-0.0, (3,), dt.f32)
    assert ir.full_node(1, (3,), dt.i64) is not ir.full_node(True, (3,), dt.i64)
    assert ir.full_node(1, (3,), dt.i64) is not ir.full_node(1, (3,), dt.i32)
    assert ir.full_node(float("nan"), (), dt.f32) is ir.full_node(float("nan"), (), dt.f32)
    assert ir.empty_node((3,), dt.f32) is not ir.empty_node((3,), dt.f32)


def test_equal_computations_run_once() -> None:
    f = jit(lambda x: np.exp(x).sum() + np.exp(x).sum() * np.exp(x).max())
    f(arange(4))
    assert names(f.graph).count("exp") == 1 and names(f.graph).count("sum") == 1


def test_unused_nodes_are_dropped() -> None:
    def f(x):
        np.sin(x).sum()
        return x + 1

    assert names(lowered(f, arange(3))) == ["add"]


# ------------------------------------------------------------------------------------------------ rules
def _rule_cases() -> list[tuple[str, Callable[[], tuple[Node, Node]]]]:
    """(rule, () -> a node and what the rule makes of it)"""
    def case(rule: Callable[..., Any]) -> Callable[[Callable[[], tuple[Node, Node]]], None]:
        def add(build: Callable[[], tuple[Node, Node]]) -> None:
            cases.append((rule.__name__, build))
        return add

    cases: list[tuple[str, Callable[[], tuple[Node, Node]]]] = []

    @case(rules.drop_identity_view)
    def _() -> tuple[Node, Node]:
        x = x_(3, 4)
        return make("reshape", x, shape=(3, 4)), x

    @case(rules.drop_identity_view)
    def _() -> tuple[Node, Node]:
        x = x_(3, 4)
        return make("permute", x, axes=(0, 1)), x

    @case(rules.drop_identity_view)
    def _() -> tuple[Node, Node]:
        x = x_(3, 4)
        return make("slice", x, axis=1, start=0, length=4, step=1), x

    @case(rules.fold_permute_of_permute)
    def _() -> tuple[Node, Node]:
        x = x_(2, 3, 4)
        return make("permute", make("permute", x, axes=(2, 0, 1)), axes=(0, 2, 1)), make("permute", x, axes=(2, 1, 0))

    @case(rules.fold_reshape_of_reshape)
    def _() -> tuple[Node, Node]:
        x = x_(2, 6)
        return make("reshape", make("reshape", x, shape=(3, 4)), shape=(12,)), make("reshape", x, shape=(12,))

    @case(rules.fold_reshape_of_reshape)
    def _() -> tuple[Node, Node]:
        x = x_(2, 6)
        return make("reshape", make("unsqueeze", x, axis=0), shape=(12,)), make("reshape", x, shape=(12,))

    @case(rules.fold_flip_of_flip)
    def _() -> tuple[Node, Node]:
        x = x_(2, 6)
        return make("flip", make("flip", x, axis=1), axis=1), x

    @case(rules.fold_view_of_full)
    def _() -> tuple[Node, Node]:
        return make("permute", ir.full_node(2.0, (3, 4), dt.f32), axes=(1, 0)), ir.full_node(2.0, (4, 3), dt.f32)

    @case(rules.drop_identity_cast)
    def _() -> tuple[Node, Node]:
        x = x_(3)
        return make("cast", x, dtype=dt.f32), x

    @case(rules.fold_exact_cast)
    def _() -> tuple[Node, Node]:
        x = x_(3, dtype=dt.f16)
        return make("cast", make("cast", x, dtype=dt.f32), dtype=dt.bf16), make("cast", x, dtype=dt.bf16)

    @case(rules.drop_double_negation)
    def _() -> tuple[Node, Node]:
        x = x_(3)
        return make("negative", make("negative", x)), x

    @case(rules.drop_copy_of_fresh)
    def _() -> tuple[Node, Node]:
        x = make("contiguous", x_(3))
        return make("contiguous", x), x

    @case(rules.same_reduction_of_nothing)
    def _() -> tuple[Node, Node]:
        x = x_(3)
        return make("sum", x, axis=(), keepdims=False), x

    return cases


@pytest.mark.parametrize(("rule", "build"), _rule_cases())
def test_rule(rule: str, build: Callable[[], tuple[Node, Node]]) -> None:
    node, simpler = build()
    fn = next(r for r in rules.RULES if r.__name__ == rule)
    assert fn(node) is simpler
    assert rules.simplify(node) is simpler


def test_every_rule_has_a_case() -> None:
    assert {r.__name__ for r in rules.RULES} == {name for name, _ in _rule_cases()}


@pytest.mark.parametrize("build", [
    lambda x: make("permute", x, axes=(1, 0)),
    lambda x: make("slice", x, axis=1, start=0, length=4, step=1) if x.shape[1] == 5 else make("flip", x, axis=0),
    lambda x: make("flip", make("flip", x, axis=1), axis=0),
    lambda x: make("cast", make("cast", x, dtype=dt.i32), dtype=dt.f32),  # drops fractions
    lambda x: make("cast", make("cast", x, dtype=dt.f16), dtype=dt.f32),  # rounds
    lambda x: make("cast", make("cast", make("cast", x, dtype=dt.i64), dtype=dt.f64), dtype=dt.i64),  # 2**53 and on
    lambda x: make("multiply", x, ir.full_node(1.0, x.shape, x.dtype)),
    lambda x: make("add", x, ir.full_node(0.0, x.shape, x.dtype)),  # -0.0 + 0.0 is 0.0
    lambda x: make("multiply", x, ir.full_node(0.0, x.shape, x.dtype)),  # NaN * 0 is NaN
    lambda x: make("not_equal", x, x),  # true for NaN
    lambda x: make("mean", x, axis=(), keepdims=False),
])
def test_what_no_rule_may_touch(build: Callable[[Node], Node]) -> None:
    for node in (build(x_(3, 4)), build(x_(3, 5))):
        assert rules.simplify(node) is node


def test_identities_that_floats_do_not_have() -> None:
    f = jit(lambda x: (x + 0.0, x * 1.0, x - x, x * 0.0, -(-x)))
    plus, times, minus, zero, twice = f(np.array([-0.0, np.nan, np.inf, 1.0], F32))
    assert np.signbit(plus).tolist()[::3] == [False, False] and np.signbit(times)[0] and np.signbit(twice)[0]
    assert np.isnan(minus[1:3]).all() and np.isnan(zero[1:3]).all()


# ------------------------------------------------------------------------------------------------ lowering
@pytest.mark.parametrize(("fn", "expected"), [
    (lambda x: ops.clamp(x, 0.0, 2.0), ["maximum", "minimum"]),
    (lambda x: ops.clamp(x, None, 2.0), ["minimum"]),
    (lambda x: ops.powi(x, 5), ["square", "square", "multiply"]),
    (lambda x: ops.powi(x, -1), ["reciprocal"]),
    (lambda x: ops.masked_fill(x, x > 2, value=0.5), ["greater", "where"]),
    (lambda x: ops.concat(x, x), ["write_slice", "write_slice"]),
    (lambda x: ops.stack(x, x, axis=1), ["unsqueeze", "write_slice", "write_slice"]),
    (lambda x: ops.softmax(x), ["softmax"]),
])
def test_composites_are_written_out(fn: Callable[..., Any], expected: list[str]) -> None:
    assert sorted(names(lowered(fn, arange(3, 4)))) == sorted(expected)


def test_matmul_of_halves_is_done_in_f32() -> None:
    graph = lowered(lambda a, b: a @ b, np.ones((3, 4), np.float16), np.ones((4, 5), np.float16))
    product = next(n for n in graph.nodes() if n.op.name == "matmul")
    assert product.dtype is dt.f32 and graph.outputs[0].dtype is dt.f16


@pytest.mark.parametrize(("fn", "copies"), [
    (lambda x: x.T.reshape(-1) * 2, 1),  # no view has these elements in this order
    (lambda x: x.reshape(2, 2, 3) * 2, 0),
    (lambda x: x.T * 2, 0),
    (lambda x: x.T, 1),  # a result is contiguous
    (lambda x: x, 1),  # and its own
    (lambda x: ops.softmax(x.T), 1),  # this kernel wants its rows together
    (lambda x: x.T.sum(axis=0), 0),  # this one walks any strides
    (lambda x: x.T @ x, 0),
])
def test_copies_that_layouts_force(fn: Callable[..., Any], copies: int) -> None:
    graph = lowered(fn, arange(4, 3))
    assert sum(n in ("contiguous", "copy") for n in names(graph)) == copies


def test_no_kernel() -> None:
    e4m3 = np.ones((2, 2)).astype(dt.f8e4m3.numpy)
    with pytest.raises(NoKernelError) as caught:
        x = ir.constant_node(ir.Captured(e4m3), (2, 2), dt.f8e4m3)
        legalise(Graph([], [ir.intern(OPS["softmax"], (x,), {"axis": 1}, (2, 2), dt.f8e4m3)]), Layouts({}), bindings.current())
    assert str(caught.value).startswith("no kernel for softmax on (f8e4m3 -> f8e4m3) on cpu; softmax has kernels for bf16, f16, f32, f64")


def test_verifier() -> None:
    x, y = x_(3), x_(4)
    good = make("negative", x)
    ir.verify(Graph([x], [good]))
    with pytest.raises(GraphError, match="is not among the graph's inputs"):
        ir.verify(Graph([y], [good]))
    wrong = ir.intern(OPS["negative"], (x,), {}, (4,), dt.f32)
    with pytest.raises(GraphError, match=r"should be f32\[3\]"):
        ir.verify(Graph([x], [wrong]))
    with pytest.raises(GraphError, match="has 1 inputs; add takes 2 to 2"):
        ir.verify(Graph([x], [ir.intern(OPS["add"], (x,), {}, (3,), dt.f32)]))


# ------------------------------------------------------------------------------------------------ writes and their order
def written(x: Node, src: Node, *at: int) -> Node:
    return make("write_slice", x, src, at=at, axis=None)


def order(outputs: list[Node], inputs: list[Node], donated: tuple[int, ...] = ()) -> tuple[Graph, list[str]]:
    """The graph with its safety copies, and the names of its steps as they run."""
    graph = Graph(inputs, outputs, donated=frozenset(donated))
    bound = bindings.current()
    with dims.tracing(graph.env):
        layouts = Layouts({n: contiguous(n.shape) for n in inputs})
        graph, before = order_writes(legalise(lower(graph, bound), layouts, bound))
        steps = fuse(graph, before, bound)
    return graph, [n.op.name for s in steps for n in s.nodes]


def test_a_write_waits_for_the_readers_of_the_old_version() -> None:
    x, src = x_(4), x_(2)
    total = make("sum", x, axis=(0,), keepdims=False)
    _, steps = order([written(x, src, 0), total], [x, src], donated=(0,))
    assert steps == ["sum", "write_slice"]


def test_readers_through_views_and_reshapes_count() -> None:
    x, src = x_(4, 2), x_(1, 2)
    flat = make("reshape", make("slice", x, axis=0, start=0, length=2, step=1), shape=(4,))
    _, steps = order([written(x, src, 0, 0), make("exp", flat)], [x, src], donated=(0,))
    assert steps == ["exp", "write_slice"]


def test_a_reader_of_both_versions_gets_a_copy() -> None:
    x, src = x_(4), x_(2)
    new = written(x, src, 0)
    _, steps = order([make("add", new, x)], [x, src], donated=(0,))
    assert steps == ["copy", "write_slice", "add"]


def test_what_is_not_donated_is_copied() -> None:
    x, src = x_(4), x_(2)
    _, steps = order([written(x, src, 0)], [x, src])
    assert steps == ["copy", "write_slice"]


def test_two_versions_of_one_buffer() -> None:
    x, src = x_(4), x_(2)
    _, steps = order([written(x, src, 0), written(x, src, 2)], [x, src], donated=(0,))
    assert steps.count("write_slice") == 2
    f = jit(lambda x, s: (ops.write_slice(x, s, at=0), ops.write_slice(x, s * 2, at=2), ops.write_slice(x, s, at=0).reshape(2, 2)))
    got = f(arange(4), -arange(2))
    assert [g.ravel().tolist() for g in got] == [[-1, -2, 3, 4], [1, 2, -2, -4], [-1, -2, 3, 4]]
    got[0][:] = 9
    assert got[2].tolist() == [[-1, -2], [3, 4]]


def test_a_chain_of_writes_needs_no_copy() -> None:
    x, src = x_(4), x_(2)
    _, steps = order([written(written(x, src, 0), src, 2)], [x, src], donated=(0,))
    assert steps == ["write_slice", "write_slice"]


def test_a_source_in_the_buffer_that_is_written() -> None:
    x = x_(6)
    part = make("slice", x, axis=0, start=0, length=5, step=1)
    _, steps = order([written(x, part, 1)], [x], donated=(0,))
    assert steps == ["copy", "write_slice"]


WRITE_CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], Any]] = {
    # name: what is traced, what it means in NumPy on copies, the donated buffer
    "shift down": (lambda x: ops.write_slice(x, x[:-1], at=1), lambda x: np.concatenate([x[:1], x[:-1]]), arange(6)),
    "shift up": (lambda x: ops.write_slice(x, x[1:], at=0), lambda x: np.concatenate([x[1:], x[-1:]]), arange(6)),
    "add the flipped": (lambda x: ops.write_slice(x, x + np.flip(x, 0), at=0), lambda x: x + x[::-1], arange(6)),
    "large shift": (lambda x: ops.write_slice(x, x[:1023], at=1), lambda x: np.concatenate([x[:1], x[:1023]]), arange(1024, 257)),
    "old and new": (lambda x: (ops.write_slice(x, x * 10, at=0) + x), lambda x: x * 11, arange(4)),
    "transposed": (lambda x: ops.write_slice(x, x.T, at=0), lambda x: x.T, arange(64, 64)),
    "swap halves": (lambda x: ops.write_slice(ops.write_slice(x, x[2:], at=0), x[:2], at=2),
                    lambda x: np.concatenate([x[2:], x[:2]]), arange(4)),
}


@pytest.mark.parametrize("donate", [True, False], ids=["donated", "kept"])
@pytest.mark.parametrize("case", WRITE_CASES)
def test_written_values(case: str, donate: bool) -> None:
    """As if every source had been copied first."""
    fn, meaning, x = WRITE_CASES[case]
    f = jit(fn, donate=[next(iter(fn.__code__.co_varnames))] if donate else ())
    given = x.copy()
    got = f(given)
    assert np.array_equal(got, meaning(x))
    assert donate or np.array_equal(given, x)


def test_step_and_sigmoid_of_one_value() -> None:
    """A value that is overwritten after it was read is read first."""
    @jit(donate="x")
    def f(x):
        return (x > 0) * 1.0, ops.write_slice(x, ops.sigmoid(x), at=0)

    x = np.array([1, -2, 3, -4], F32)
    step, new = f(x)
    assert step.tolist() == [1, 0, 1, 0] and new is x
    np.testing.assert_allclose(new, 1 / (1 + np.exp([-1.0, 2, -3, 4])), rtol=1e-6)


def test_relu_in_place_plus_the_old_value() -> None:
    @jit(donate="x")
    def f(x):
        return ops.write_slice(x, ops.relu(x), at=0) + x

    assert f(np.array([1, -2, 3, -4], F32)).tolist() == [2, -2, 6, -4]


def test_a_reader_between_two_writes() -> None:
    """B = 0; X = write(B, [1, 2] at 0); K = relu(reshape(X[0:2])); Y = write(X, [99, 98] at 0): K is [1, 2]."""
    @jit(donate="b")
    def f(b):
        x = ops.write_slice(b, np.array([1, 2], F32), at=0)
        k = ops.relu(x[0:2].reshape(2, 1)).reshape(2)
        return k, ops.write_slice(x, np.array([99, 98], F32), at=0)

    b = np.zeros(4, F32)
    k, y = f(b)
    assert k.tolist() == [1, 2] and y is b and y.tolist() == [99, 98, 0, 0]


def test_a_reader_that_writes_elsewhere() -> None:
    """The same in two layers: L1 = write(B1, relu(reshape(X[0:2]))) while X is overwritten in the next round."""
    @jit(donate=("b", "b1"))
    def f(b, b1):
        x = ops.write_slice(b, np.array([1, 2], F32), at=0)
        l1 = ops.write_slice(b1, ops.relu(x[0:2].reshape(2, 1)).reshape(2), at=0)
        return l1, ops.write_slice(x, np.array([99, 98], F32), at=0)

    b, b1 = np.zeros(4, F32), np.zeros(4, F32)
    l1, y = f(b, b1)
    assert l1 is b1 and l1.tolist() == [1, 2, 0, 0] and y is b and y.tolist() == [99, 98, 0, 0]


def test_two_buffers_written_from_one_another() -> None:
    @jit(donate=("x", "y"))
    def f(x, y):
        return ops.write_slice(x, y, at=0), ops.write_slice(y, x, at=0)

    x, y = arange(3), -arange(3)
    a, b = f(x, y)
    assert a.tolist() == [-1, -2, -3] and b.tolist() == [1, 2, 3]


def test_a_donated_input_and_a_view_of_it_are_results() -> None:
    @jit(donate="x")
    def f(x):
        return ops.write_slice(x, x[:1] * 10, at=2), x[1:], x

    x = arange(3)
    new, tail, old = f(x)
    assert new.tolist() == [1, 2, 10] and tail.tolist() == [2, 3] and old.tolist() == [1, 2, 3]


def test_captured_arrays_are_not_written_to() -> None:
    table = arange(4)
    f = jit(lambda x: ops.write_slice(table, x, at=1))
    assert f(np.zeros(2, F32)).tolist() == [1, 0, 0, 4] and table.tolist() == [1, 2, 3, 4]


# ------------------------------------------------------------------------------------------------ fusion
def launches(fn: Callable[..., Any], *arrays: Any) -> list[str]:
    f = jit(fn)
    f(*arrays)
    return [s.label for s in f.plan.launches]


X = arange(6, 5)


@pytest.mark.parametrize(("fn", "count"), [
    (lambda x: np.tanh(np.exp(x * 2) + 1), 1),
    (lambda x: (x * 2, np.exp(x * 2), x * 2 + np.exp(x * 2)), 1),  # several results
    (lambda x: np.where(x > 1, x.astype(np.int32), 3).astype(np.float16), 1),  # through casts
    (lambda x: (x + 1) * (x + 1).T[:5, :5].sum(), 3),
    (lambda x: x - x.max(axis=1, keepdims=True), 2),
    (lambda x: np.exp(x) + np.exp(x[0]), 2),  # another shape is another loop
    (lambda x: np.exp(x) + np.exp(x)[::-1], 2),  # reads elements that other iterations make
    (lambda x: np.exp(x) + (np.sin(x) + np.cos(x)), 1),  # regions that meet
    (lambda x: x @ x.T, 1),
    (lambda x: np.exp(x @ x.T) + 1, 2),
])
def test_number_of_launches(fn: Callable[..., Any], count: int) -> None:
    found = launches(fn, X)
    assert len(found) == count, found


def test_a_diamond_around_a_reduction_is_no_cycle() -> None:
    """y = exp(x); out = y / sum(y): the quotient cannot join the region that the sum needs."""
    def f(x):
        y = np.exp(x)
        z = np.sin(y)
        return (y + 1) * y.sum() + z / z.max() + np.cos(y)

    got = jit(f)(X * F32(0.1))
    np.testing.assert_allclose(got, f(X.astype(np.float64) * 0.1), rtol=1e-5)
    assert launches(f, X)[1:].count("sum") <= 1


def test_long_chains_are_cut_and_right() -> None:
    def f(x):
        for k in range(300):
            x = x * 0.5 + np.sin(x) * (k % 3)
        return x

    got = jit(f)(X)
    np.testing.assert_allclose(got, f(X.astype(np.float64)), rtol=1e-3, atol=1e-4)


def test_many_operands() -> None:
    xs = [arange(3, 4) * k for k in range(40)]
    f = jit(lambda *xs: sum(xs[1:], xs[0]))
    assert np.array_equal(f(*xs), sum(xs[1:], xs[0]))


def test_scalars_are_run_time_values() -> None:
    """`x * 3.5` and `x * 4.0` are one compiled kernel."""
    f, g = jit(lambda x: x * 3.5 + 1.0), jit(lambda x: x * 4.0 + 2.0)
    f(X), g(X)
    assert [s.name for s in f.plan.launches] == [s.name for s in g.plan.launches]
    assert g(X)[0, 0] == 6.0


def test_temporaries_are_shared() -> None:
    """Buffers that do not live at the same time lie in one place."""
    def f(x):
        for _ in range(6):
            x = ops.softmax(x) @ np.eye(5, dtype=F32)
        return x

    j = jit(f)
    np.testing.assert_allclose(j(X), f_reference(X.astype(np.float64)), rtol=1e-5)
    special = j._last
    instance = next(iter(special.instances.values()))
    assert instance.arena_size <= 3 * 192 < sum(6 * 5 * 4 for s in instance.temporaries)


def f_reference(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    for _ in range(6):
        e = np.exp(x - x.max(axis=-1, keepdims=True))
        x = e / e.sum(axis=-1, keepdims=True)
    return x
