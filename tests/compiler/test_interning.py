"""Nodes are interned: equal computations are one object, and nothing that is different is."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np

from fuelnumba import jit
from fuelnumba.core import dims, ir
from fuelnumba.core import dtypes as dt
from fuelnumba.core.ops import OPS
from fuelnumba.core.source import Location
from tests.at_once import at_once


def make(name: str, *inputs: ir.Node, **attrs: Any) -> ir.Node:
    return ir.make(OPS[name], inputs, attrs)


def x_(*shape: Any, dtype: Any = dt.f32) -> ir.Node:
    return ir.input_node("x", shape, dtype)


def test_equal_computations_are_one_object_all_the_way_down() -> None:
    x = x_(2, 3)

    def build() -> ir.Node:
        return make(
            "sum",
            make("multiply", make("exp", x), ir.full_node(2.0, (2, 3), dt.f32)),
            axis=(1,),
            keepdims=False,
        )

    assert build() is build()


def test_the_line_that_recorded_it_does_not_count() -> None:
    x = x_(3)
    one = ir.make(OPS["exp"], (x,), {}, Location("a.py", 1, 1, 0, 5, "f"))
    two = ir.make(OPS["exp"], (x,), {}, Location("b.py", 2, 2, 0, 5, "g"))
    assert one is two and one.where is not None and one.where.line == 1


def test_attributes_that_python_calls_equal_are_told_apart() -> None:
    shape = (3,)
    values = [0.0, -0.0, 0, False, 1, 1.0, True, float("nan"), float("inf"), 2**53, float(2**53)]
    nodes = [ir.full_node(v, shape, dt.f64) for v in values]
    assert len({n.id for n in nodes}) == len(values)
    assert [ir.full_node(v, shape, dt.f64) for v in values] == nodes
    for v, n in zip(values, nodes):
        assert type(n.attr("value")) is type(v) and repr(n.attr("value")) == repr(v)


def test_attributes_inside_tuples_are_told_apart() -> None:
    def node(value: Any) -> ir.Node:
        return ir.intern(ir.FULL, (), {"value": value}, (), dt.f32)

    values = [(0.0,), (-0.0,), (0,), (False,), ((0,),), (0, 0), ()]
    nodes = [node(v) for v in values]
    assert len(set(nodes)) == len(values) and all(node(v) is n for v, n in zip(values, nodes))


def test_symbolic_shapes_are_compared_by_value() -> None:
    env = dims.SymEnv()
    n, m = env.symbol("n", 5), env.symbol("m", 5)
    with dims.tracing(env):
        assert ir.full_node(1.0, (n + 1,), dt.f32) is ir.full_node(1.0, (1 + n,), dt.f32)
        assert ir.full_node(1.0, (n,), dt.f32) is not ir.full_node(1.0, (m,), dt.f32)
        assert ir.full_node(1.0, (n,), dt.f32) is not ir.full_node(1.0, (5,), dt.f32)
    assert env.guards == [], "looking a node up decides nothing about lengths"


def test_leaves_are_distinct() -> None:
    a = np.zeros(3, np.float32)
    captured = ir.Captured(a)
    assert x_(3) is not x_(3)
    assert ir.empty_node((3,), dt.f32) is not ir.empty_node((3,), dt.f32)
    assert ir.constant_node(captured, (3,), dt.f32) is ir.constant_node(captured, (3,), dt.f32)
    assert ir.constant_node(captured, (3,), dt.f32) is not ir.constant_node(ir.Captured(a), (3,), dt.f32)


def test_dtype_shape_and_order_count() -> None:
    x, y = x_(3), x_(3)
    nodes = [
        make("subtract", x, y),
        make("subtract", y, x),
        make("subtract", x, x),
        make("add", x, y),
        make("cast", x, dtype=dt.f64),
        make("cast", x, dtype=dt.f16),
        make("flip", x, axis=0),
        make("slice", x, axis=0, start=0, length=2, step=1),
        make("slice", x, axis=0, start=1, length=2, step=1),
    ]
    assert len(set(nodes)) == len(nodes)


def test_dead_nodes_leave_the_pool() -> None:
    gc.collect()
    before = len(ir._pool)
    x = x_(3)
    node = x
    for _ in range(200):
        node = make("exp", node)
    assert len(ir._pool) == before + 201
    last = node.id
    del node
    gc.collect()
    assert len(ir._pool) == before + 1
    again = make("exp", x)
    assert again.id > last, "a number is never used again"


def test_a_cleared_function_leaves_no_nodes() -> None:
    def run(x: np.ndarray[Any, Any]) -> None:
        f = jit(lambda x: np.exp(x) * 2 + x.sum())
        f(x)
        f.clear()

    x = np.ones(5, np.float32)
    run(x)
    gc.collect()
    before = len(ir._pool)
    for _ in range(3):
        run(x)
    gc.collect()
    assert len(ir._pool) == before


def test_a_chain_of_ten_thousand_nodes() -> None:
    """Walks are loops: Python's stack does not limit a graph."""
    x = x_(3)
    node = x
    for _ in range(10_000):
        node = make("negative", node)
    graph = ir.Graph([x], [node])
    assert len(graph.nodes()) == 10_001
    ir.verify(graph)
    same = ir.rebuild(graph, ir.with_inputs)
    assert same.outputs == graph.outputs


def test_threads_get_the_same_objects() -> None:
    x = x_(4)
    results: list[list[ir.Node]] = [[] for _ in range(4)]

    def build(thread: int) -> None:
        for k in range(500):
            results[thread].append(make("multiply", x, ir.full_node(float(k), (4,), dt.f32)))

    at_once(4, build)
    assert all(len({id(r[k]) for r in results}) == 1 for k in range(500))
