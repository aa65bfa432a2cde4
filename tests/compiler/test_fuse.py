"""Which nodes become one launch, what it stores, and where regions end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuelnumba import jit, ops
from fuelnumba.compiler import bindings, codegen, fuse, plan
from fuelnumba.core import dtypes as dt
from fuelnumba.core import ir
from fuelnumba.core.layout import contiguous
from fuelnumba.core.ops import OPS

F32 = np.float32
X = np.linspace(-1, 1, 12, dtype=F32).reshape(3, 4)


def made(fn: Callable[..., Any], *arrays: Any, **options: Any) -> Any:
    """The plan, after checking the values against NumPy's in float64."""
    f = jit(**options)(fn) if options else jit(fn)
    got = f(*arrays)
    expected = fn(*(a.astype(np.float64) for a in arrays))
    pairs = zip(got, expected) if isinstance(expected, (tuple, list)) else [(got, expected)]
    for g, e in pairs:
        np.testing.assert_allclose(g, e, rtol=2e-5, atol=1e-6)
    return f.plan


def labels(p: Any) -> list[str]:
    return [s.label for s in p.launches]


def stores(step: Any) -> int:
    return step.source.text().count("store_out(")


def loads(step: Any) -> int:
    return step.source.text().count("load_in(")


# ------------------------------------------------------------ what is one launch
def test_a_chain_is_one_launch_that_stores_once() -> None:
    p = made(lambda x: np.exp(np.sin(x * 2) + 1) - x, X)
    assert labels(p) == ["multiply_sin_add_exp_subtract"]
    assert stores(p.launches[0]) == 1 and loads(p.launches[0]) == 1
    assert [s.kind for s in p.storages] == ["output", "input"]


def test_a_diamond_with_a_reduction_between_is_two_regions() -> None:
    def f(x: Any) -> Any:
        y = np.exp(x)
        return y / y.sum()

    assert [[n.op.name for n in s.nodes] for s in made(f, X).launches] == [["exp"], ["sum"], ["divide"]]


def test_a_diamond_with_two_reductions_between() -> None:
    """Nothing may join a region that an ancestor of it waits for."""

    def f(x: Any) -> Any:
        y = np.exp(x)
        a = y.sum(axis=1, keepdims=True)
        b = np.sin(y) / a
        return np.cos(b - b.max()) * y + a

    found = [[n.op.name for n in s.nodes] for s in made(f, X).launches]
    assert found == [["exp", "sin"], ["sum"], ["divide"], ["max"], ["subtract", "cos", "multiply", "add"]]


def test_regions_that_meet_late_do_not_close_a_cycle() -> None:
    """a -> sum -> b and b' -> sum -> a' where a, a' and b, b' could each be one region, but not both."""

    def f(x: Any, y: Any) -> Any:
        a, b = np.exp(x), np.exp(y)
        c = np.sin(y) * a.sum()
        d = np.sin(x) * b.sum()
        return (a * d).sum() + (b * c).sum(), a + d, b - c

    p = made(f, X, X + F32(0.5))
    assert len(p.launches) <= 9


def test_independent_chains_over_one_input_stay_correct() -> None:
    p = made(lambda x: (np.exp(x) * 2, np.sin(x) - 1), X)
    assert sorted("_".join(labels(p)).split("_")) == ["exp", "multiply", "sin", "subtract"]
    assert sum(stores(s) for s in p.launches) == 2


def test_different_shapes_are_different_loops() -> None:
    assert (
        labels(made(lambda x: (np.exp(x) * 2, np.exp(x[0]) * 2, np.exp(x.reshape(-1)) * 2), X))
        == ["exp_multiply"] * 3
    )


def test_a_broadcast_operand_is_loaded_where_it_changes() -> None:
    x, row, column, one = X, X[0].copy(), X[:, :1].copy(), F32(3) * np.ones((1, 1), F32)
    p = made(lambda x, r, c, o: x * r + c - o, x, row, column, one)
    assert labels(p) == ["multiply_add_subtract"]
    text = p.launches[0].source.text()
    lines = [line for line in text.splitlines() if "load_in(" in line]
    depth = sorted(len(line) - len(line.lstrip()) for line in lines)
    assert depth == [4, 8, 12, 12]  # before the loops, per row, per element


def test_a_value_used_by_several_regions_is_stored_once() -> None:
    def f(x: Any) -> Any:
        y = np.exp(x)
        return y.sum(axis=0) + np.sin(y.max(axis=0)), (y.T + 1) * 2, y * 3

    p = made(f, X)
    writers = [s for s in p.launches if any(n.op.name == "exp" for n in s.nodes)]
    assert len(writers) == 1 and stores(writers[0]) == 2  # y, and y * 3


def test_a_view_of_the_region_s_own_value_is_not_read_inside_it() -> None:
    for fn in (
        lambda x: np.exp(x) + np.exp(x)[::-1],
        lambda x: np.exp(x) * np.exp(x)[:, ::-1] + x,
        lambda x: np.sin(np.exp(x)) - np.roll(np.exp(x), 1, 0),
    ):
        p = made(fn, X)
        assert len(p.launches) >= 2 and "exp" in labels(p)[0]


def test_a_square_matrix_plus_its_transpose() -> None:
    p = made(lambda x: np.exp(x) + np.exp(x).T, X[:, :3].copy())
    assert labels(p) == ["exp", "add"]


def test_casts_are_part_of_a_region() -> None:
    f = jit(lambda x: ((x * 10).astype(np.int32) // 2).astype(np.float16) * 0.5)
    np.testing.assert_array_equal(f(X), (np.trunc(X * 10).astype(int) // 2 * 0.5).astype(np.float16))
    assert len(f.plan.launches) == 1


def test_readers_of_a_buffer_that_is_overwritten_run_before_the_write() -> None:
    @jit(donate="x")
    def f(x: Any, a: Any) -> Any:
        y = np.exp(x) * 2
        return ops.write_slice(x, a, at=(0, 0)), np.sin(x) + y

    x = X.copy()
    new, other = f(x, np.zeros((1, 4), F32))
    assert new is x
    np.testing.assert_allclose(other, np.sin(X) + np.exp(X) * 2, rtol=1e-5)
    assert labels(f.plan).index("write_slice_rows") >= 2


# ------------------------------------------------------------ one kernel, many uses
def key(fn: Callable[..., Any], *arrays: Any) -> list[str]:
    f = jit(fn)
    f(*arrays)
    return [s.source.key for s in f.plan.launches]


def test_what_shares_a_kernel() -> None:
    y = np.ones((5, 7), F32)
    base = key(lambda x: x * 3.5, X)
    assert base == key(lambda x: x * 4.0, X) == key(lambda x: x * 3.5, y)
    assert base == key(lambda x: x * 4, X)
    assert base == key(lambda x: x * -0.0, X) == key(lambda x: x * float("nan"), X)
    assert base == key(lambda x: x * 4.0, X.reshape(-1)) == key(lambda x: x * 4.0, X.reshape(2, 3, 2))


def test_what_does_not_share_a_kernel() -> None:
    keys = [
        key(lambda x: x * 3.5, X),
        key(lambda x: x + 3.5, X),
        key(lambda x: x * 3.5, X.astype(np.float64)),
        key(lambda x: x * x, X),
        key(lambda x: x * 3.5, X.T),
        key(lambda x: x.astype(np.float16) * 3.5, X),
    ]
    assert len({tuple(k) for k in keys}) == len(keys)


def test_a_key_does_not_depend_on_what_was_made_before() -> None:
    def f(x: Any) -> Any:
        return np.sin(x) * x + np.exp(x)

    first = key(f, X)
    jit(lambda x: np.cos(x) + 17.0)(X)
    assert key(f, X) == first and key(f, X + 1) == first


def test_the_source_is_what_its_name_says() -> None:
    f = jit(lambda x: x * 3.5)
    f(X)
    source = f.plan.launches[0].source
    assert source.name == "k_" + source.key[:16]
    assert source.text().startswith(f"def {source.name}(args, lo, hi):\n")
    compile(source.text(), "kernel", "exec")


# ------------------------------------------------------------ limits
def chain(length: int) -> ir.Graph:
    x = ir.input_node("x", (64,), dt.f32)
    node = x
    for k in range(length):
        node = ir.make(OPS["multiply"], (node, ir.full_node(float(k), (64,), dt.f32)))
    return ir.Graph([x], [node])


@pytest.mark.parametrize("limit", [0, 1, 5, 40, 500])
def test_no_region_weighs_more_than_the_limit(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuse, "MAX_WEIGHT", limit)
    steps = fuse.fuse(chain(60), {}, bindings.current())
    assert sum(len(s.nodes) for s in steps) == 60
    assert all(len(s.nodes) == 1 or fuse._weight(s.nodes) <= limit for s in steps)
    if limit == 500:
        assert len(steps) == 1


@pytest.mark.parametrize("limit", [2, 4, 24])
def test_no_region_reads_more_arrays_than_the_limit(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuse, "MAX_POINTERS", limit)
    xs = [ir.input_node(f"x{k}", (8,), dt.f32) for k in range(60)]
    level = list(xs)
    while len(level) > 1:  # a tree: regions of both sides meet
        level = [ir.make(OPS["add"], (a, b)) for a, b in zip(level[::2], level[1::2])] + level[
            len(level) // 2 * 2 :
        ]
    steps = fuse.fuse(ir.Graph(xs, level), {}, bindings.current())
    assert sum(len(s.nodes) for s in steps) == 59
    for s in steps:
        region = codegen.region_source(
            s.nodes, s.outputs, lambda n: contiguous(n.shape), [contiguous(o.shape) for o in s.outputs]
        )
        assert len(fuse._reads(s.nodes)) <= limit
        assert len(region.pointers) == len(fuse._reads(s.nodes)) + len(s.outputs)


def test_values_of_regions_cut_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: Any, y: Any) -> Any:
        for _ in range(6):
            x, y = x * 0.5 + y, np.maximum(y - x, x * y)
        return x, y

    whole = made(f, X, X[::-1].copy())
    monkeypatch.setattr(fuse, "MAX_WEIGHT", 8)
    parts = made(f, X, X[::-1].copy())
    assert len(whole.launches) == 1 < len(parts.launches)


def test_the_time_of_planning_a_thousand_nodes() -> None:
    """Milliseconds each, not more with the size of the graph: it guards against a pass that is cubic."""
    graph = chain(1000)
    start = time.process_time()
    p = plan.make_plan(graph, {graph.inputs[0]: contiguous((64,))})
    assert time.process_time() - start < 5
    assert sum(len(s.nodes) for s in p.launches) == 1000


def test_a_region_does_not_take_in_what_waits_for_its_reader() -> None:
    """The write waits for the reader of x, which waits for exp: what needs the write cannot join exp."""

    @jit(donate="x")
    def f(x: Any, a: Any, s: Any) -> Any:
        e = np.exp(a)
        w = ops.write_slice(x, s, at=0)
        return np.sin(e) + w, x * e

    x, a, s = (np.linspace(0, 1, n, dtype=F32) + k for k, n in enumerate((4, 4, 2)))
    e = np.exp(a)
    new, old = np.concatenate([s, x[2:]]), x.copy()
    got = f(x, a, s)
    np.testing.assert_allclose(got[0], np.sin(e) + new, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got[1], old * e, rtol=1e-5)
