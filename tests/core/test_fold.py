"""Equal pieces of a graph: found where they are, and nowhere else. Every repeat is proven by building its pieces again from
what it says of them: since nodes are interned, the same computation gives the same objects."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuelnumba import ops  # noqa: F401  (declares the ops)
from fuelnumba.core import dtypes as dt
from fuelnumba.core import ir
from fuelnumba.core.dims import SymEnv
from fuelnumba.core.fold import LEAVES, PLACES, Repeat, fold, in_order, stretches
from fuelnumba.core.ir import Node
from fuelnumba.core.ops import OPS

SHAPE = (3, 4)


def leaf(name: str = "w", shape: Any = SHAPE, dtype: Any = dt.f32) -> Node:
    return ir.input_node(name, shape, dtype)


def op(name: str, *inputs: Node, **attrs: Any) -> Node:
    return ir.make(OPS[name], inputs, attrs)


def full(value: float, shape: Any = SHAPE) -> Node:
    return ir.full_node(value, shape, dt.f32)


def layer(x: Node, scale: float = 0.5) -> Node:
    """Four ops over a weight of its own, and one shared with nobody but x twice."""
    return op("add", x, op("tanh", op("multiply", op("add", x, leaf()), full(scale))))


def moved(v: Any, by: Any) -> Any:
    """A place with its numbers increased by those that `by` gives, one after the other."""
    if isinstance(v, tuple):
        return tuple(moved(x, by) for x in v)
    return v + next(by) if type(v) is int else v


def place(n: Node) -> Any:
    return n.attr(PLACES[n.op.name])


def numbers(v: Any) -> list[int]:
    return [k for x in v for k in numbers(x)] if isinstance(v, tuple) else [v] if type(v) is int else []


def proven(items: list[Node | Repeat], nodes: list[Node]) -> list[Node | Repeat]:
    """The items, after checking that they are the nodes, in an order that is topological, and that repeats are repeats."""
    flat = [n for i in items for n in ([n for p in i.pieces for n in p] if isinstance(i, Repeat) else [i])]
    assert sorted(n.id for n in flat) == sorted(n.id for n in nodes if n.op not in LEAVES)
    at = {n: k for k, n in enumerate(flat)}
    for n in flat:
        assert all(i.op in LEAVES or at[i] < at[n] for i in n.inputs), "an input comes later"
    for repeat in items:
        if not isinstance(repeat, Repeat):
            continue
        assert repeat.count >= 2
        inside = {n for p in repeat.pieces for n in p}
        for r, piece in enumerate(repeat.pieces):
            for j, (n, sources) in enumerate(zip(piece, repeat.sources, strict=True)):
                inputs = []
                for s, given_input in zip(sources, n.inputs, strict=True):
                    if s.kind == "scalar":
                        first = repeat.pieces[0][j].inputs[sources.index(s)]
                        assert first.op is ir.FULL and given_input is first
                        inputs.append(first)
                    elif s.kind == "inside":
                        inputs.append(piece[s.index])
                    elif s.kind == "carried":
                        assert len(s.nodes) == s.lag
                        inputs.append(s.nodes[r] if r < s.lag else repeat.pieces[r - s.lag][s.index])
                    else:
                        assert s.kind == "outside" and len(s.nodes) == repeat.count
                        inputs.append(s.nodes[r])
                    assert s.kind in ("scalar", "inside") or not inside & set(s.nodes)
                first = repeat.pieces[0][j]
                attrs = dict(first.attrs)
                if n.op.name in PLACES:
                    step = [b - a for a, b in zip(numbers(place(first)), numbers(place(repeat.pieces[1][j])))]
                    attrs[PLACES[n.op.name]] = moved(place(first), iter([r * s for s in step]))
                if "uid" in attrs:
                    attrs["uid"] = n.attr("uid")
                assert ir.intern(first.op, inputs, attrs, first.shape, first.dtype) is n
    return items


def folded(*outputs: Node, **options: Any) -> list[tuple[int, int] | str]:
    """Per item: the op's name, or (repetitions, ops of one)."""
    nodes = ir.topological(outputs)
    items = proven(fold(nodes, **options), nodes)
    return [(i.count, len(i.sources)) if isinstance(i, Repeat) else i.op.name for i in items]


# ------------------------------------------------------------------------------------------------ how often
@pytest.mark.parametrize("count", [2, 3, 30, 200])
def test_equal_layers_are_one(count: int) -> None:
    x = leaf("x")
    for _ in range(count):
        x = layer(x)
    assert folded(op("exp", x)) == [(count, 4), "exp"]


@pytest.mark.parametrize("count", [0, 1])
def test_what_stands_once_is_no_repeat(count: int) -> None:
    x = leaf("x")
    for _ in range(count):
        x = layer(x)
    assert folded(op("exp", x)) == ["add", "multiply", "tanh", "add"] * count + ["exp"]


def test_no_nodes() -> None:
    assert fold([]) == [] and fold([leaf(), full(1.0)]) == []


def test_two_blocks() -> None:
    x = leaf("x")
    for _ in range(5):
        x = layer(x)
    x = op("sin", x)
    for _ in range(3):
        x = op("cos", op("subtract", x, leaf()))
    assert folded(x) == [(5, 4), "sin", (3, 2)]


def test_two_blocks_that_touch() -> None:
    x = leaf("x")
    for _ in range(4):
        x = layer(x)
    for _ in range(4):
        x = layer(x, scale=0.25)
    assert folded(x) == [(4, 4), (4, 4)]


def test_a_chain_of_one_op() -> None:
    x = leaf("x")
    for _ in range(7):
        x = op("tanh", x)
    assert folded(x) == [(7, 1)]


def test_least_spared() -> None:
    x = leaf("x")
    for _ in range(3):
        x = layer(x)
    assert folded(x, least=8) == [(3, 4)]
    assert folded(x, least=9) == ["add", "multiply", "tanh", "add"] * 3


# ------------------------------------------------------------------------------------------------ what differs a little
def with_one_changed(change: Callable[[int, Node], Node | None]) -> Node:
    x = leaf("x")
    for k in range(4):
        new = change(k, x)
        x = layer(x) if new is None else new
    return x


@pytest.mark.parametrize(("changed", "expected"), [
    (0, [4, (3, 4)]), (1, [8, (2, 4)]), (2, [(2, 4), 8]), (3, [(3, 4), 4]),
])
def test_a_layer_with_another_scalar(changed: int, expected: list[Any]) -> None:
    found = folded(with_one_changed(lambda k, x: layer(x, 0.75) if k == changed else None), least=4)
    flat: list[Any] = []
    for f in found:
        if isinstance(f, tuple):
            flat.append(f)
        elif flat and isinstance(flat[-1], int):
            flat[-1] += 1
        else:
            flat.append(1)
    assert flat == expected


@pytest.mark.parametrize("other", [
    lambda x: op("add", x, op("sin", op("multiply", op("add", x, leaf()), full(0.5)))),  # another op
    lambda x: op("add", x, op("tanh", op("multiply", op("add", leaf(), x), full(0.5)))),  # operands the other way round
    lambda x: op("add", x, op("tanh", op("multiply", op("add", x, x), full(0.5)))),  # no weight
    lambda x: op("add", leaf(), op("tanh", op("multiply", op("add", x, leaf()), full(0.5)))),  # no residual
    lambda x: op("add", x, op("tanh", op("multiply", op("add", x, leaf()), leaf()))),  # an array for the scalar
    lambda x: op("add", x, op("tanh", op("multiply", full(0.5), op("add", x, leaf())))),
], ids=["op", "swapped", "weight", "residual", "array", "scalar first"])
def test_almost_equal_layers_do_not_fold(other: Callable[[Node], Node]) -> None:
    x = layer(other(leaf("x")))
    assert [f for f in folded(x, least=2) if isinstance(f, tuple)] == []
    x = layer(layer(other(layer(layer(leaf("x"))))))
    assert max(f[0] for f in folded(x) if isinstance(f, tuple)) == 2


def test_attributes_shapes_and_dtypes_must_agree() -> None:
    x = leaf("x")
    assert folded(op("powi", op("exp", op("powi", op("exp", x), n=3)), n=3)) == [(2, 2)]
    assert folded(op("powi", op("exp", op("powi", op("exp", x), n=2)), n=3)) == ["exp", "powi", "exp", "powi"]
    a = op("permute", op("exp", op("permute", op("exp", x), axes=(1, 0))), axes=(1, 0))  # f32[4, 3], then f32[3, 4]
    assert folded(a) == ["exp", "permute", "exp", "permute"]
    a = op("cast", op("exp", op("cast", op("exp", x), dtype=dt.f64)), dtype=dt.f32)
    assert folded(a) == ["exp", "cast", "exp", "cast"]
    b = op("add", op("exp", leaf()), op("exp", leaf("w", SHAPE, dt.f32)))
    assert folded(b) == [(2, 1), "add"]  # side by side, nothing carried


def test_zeros_of_two_signs_and_symbolic_lengths_differ() -> None:
    x = leaf("x")
    a = op("exp", op("multiply", op("exp", op("multiply", x, full(0.0))), full(-0.0)))
    assert folded(a) == ["multiply", "exp", "multiply", "exp"]
    env = SymEnv()
    n, m = env.symbol("n", 5), env.symbol("m", 5)
    y = ir.input_node("y", (n,), dt.f32)
    z = ir.input_node("z", (m,), dt.f32)
    assert folded(op("exp", op("exp", y)), op("tanh", op("exp", z))) == [(2, 1), "exp", "tanh"]
    assert env.guards == []


def test_wiring_must_agree() -> None:
    """The same ops in the same order, but one reads two steps back what the others read one step back."""
    x = leaf("x")
    values = [x]
    for k in range(6):
        y = op("exp", values[-1] if k != 3 else values[-2])
        values.append(op("add", y, leaf()))
    assert (6, 2) not in folded(*values)


def test_weights_shared_by_some_are_told_apart() -> None:
    """add(w, w) and add(w, v) have the same shapes; the sources say which arrays they read."""
    a, b, c = leaf("a"), leaf("b"), leaf("c")
    x = leaf("x")
    for w, v in ((a, a), (b, c)):
        x = op("add", x, op("subtract", w, v))
    items = fold(ir.topological([x]))
    (repeat,) = [i for i in items if isinstance(i, Repeat)]
    subtract = next(ss for p, ss in zip(repeat.pieces[0], repeat.sources) if p.op.name == "subtract")
    assert [s.nodes for s in subtract] == [[a, b], [a, c]]


# ------------------------------------------------------------------------------------------------ what is carried
def test_a_value_from_two_steps_back() -> None:
    """x(n+1) = sin(x(n)) - x(n-1)"""
    before, now = leaf("x0"), leaf("x1")
    first = before, now
    for _ in range(10):
        before, now = now, op("subtract", op("sin", now), before)
    items = proven(fold(ir.topological([now])), ir.topological([now]))
    (repeat,) = items
    assert isinstance(repeat, Repeat) and repeat.count == 10
    (sin,), (a, b) = repeat.sources
    assert (sin.kind, sin.lag, sin.nodes) == ("carried", 1, [first[1]])
    assert (a.kind, a.index) == ("inside", 0)
    assert (b.kind, b.lag, b.index, b.nodes) == ("carried", 2, 1, list(first))


def test_what_later_layers_share_moves_before_the_first() -> None:
    """As a mask or rotary angles that the first layer computes."""
    x, angle = leaf("x"), leaf("angle")
    for _ in range(6):
        x = op("add", op("exp", x), op("multiply", op("exp", x), op("cos", op("sin", angle))))
    assert folded(x) == ["sin", "cos", (6, 3)]


def test_a_stack_that_is_written_layer_by_layer() -> None:
    """Places in a stack of layers may advance, and by one step only."""
    def stack(places: list[int]) -> list[Any]:
        cache, x = leaf("cache", (8, 4)), leaf("x", (1, 4))
        for k in places:
            cache = op("write_slice", cache, x, at=(k, 0), axis=None)
            x = op("tanh", op("slice", cache, axis=0, start=k, length=1, step=1))
        return folded(x, cache)

    assert stack([0, 1, 2, 3, 4]) == [(5, 3)]
    assert stack([6, 4, 2, 0]) == [(4, 3)]
    assert stack([0, 1, 2, 4, 5, 6]) == [(3, 3), (3, 3)]
    shorter = op("slice", op("slice", leaf("x", (9, 2)), axis=0, start=1, length=7, step=1), axis=0, start=1, length=5, step=1)
    assert folded(shorter) == ["slice", "slice"]


def test_fresh_buffers_are_part_of_a_piece() -> None:
    x = leaf("x", (1, 4))
    for _ in range(3):
        buffer = ir.empty_node((2, 4), dt.f32)
        both = op("write_slice", op("write_slice", buffer, x, at=(0, 0), axis=None), x, at=(1, 0), axis=None)
        x = op("slice", op("exp", both), axis=0, start=0, length=1, step=1)
    assert [(i.count, len(i.sources)) for i in fold(in_order(ir.Graph([], [x]))) if isinstance(i, Repeat)] == [(3, 5)]


def test_weights_on_the_left_stand_with_their_layer() -> None:
    """w @ x: depth first, all transposed weights would come before the first product."""
    x = leaf("x", (4, 2))
    for _ in range(5):
        x = op("tanh", op("matmul", op("permute", leaf("w", (4, 4)), axes=(1, 0)), x))
    nodes = in_order(ir.Graph([], [op("exp", x)]))
    items = proven(fold(nodes), nodes)
    assert [(i.count, len(i.sources)) if isinstance(i, Repeat) else i.op.name for i in items] == [(5, 3), "exp"]


# ------------------------------------------------------------------------------------------------ groups
def grouped(count: int, shift: int = 0) -> tuple[list[Node], list[tuple[str, list[Node]]]]:
    x = leaf("x")
    nodes = []
    for _ in range(count):
        for name in ("exp", "sin", "tanh"):
            x = op(name, x)
            nodes.append(x)
    cuts = [0, *range(shift, len(nodes), 3), len(nodes)] if shift else list(range(0, len(nodes) + 1, 3))
    groups = [("abc", nodes[a:b]) for a, b in pairwise(cuts)]
    return nodes, groups


def test_groups_stay_whole() -> None:
    nodes, groups = grouped(5)
    (repeat,) = proven(fold(nodes, groups), nodes)
    assert isinstance(repeat, Repeat) and repeat.count == 5
    nodes, groups = grouped(5, shift=2)  # exp sin | tanh exp sin | ... | tanh
    items = proven(fold(nodes, groups), nodes)
    assert [i.count if isinstance(i, Repeat) else i.op.name for i in items] == ["exp", "sin", 4, "tanh"]


def test_groups_of_other_names_differ() -> None:
    nodes, groups = grouped(4)
    groups[1] = ("other", groups[1][1])
    items = proven(fold(nodes, groups), nodes)
    assert [i.count if isinstance(i, Repeat) else i.op.name for i in items] == ["exp", "sin", "tanh"] * 2 + [2]


# ------------------------------------------------------------------------------------------------ any graph
@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=8), st.integers(1, 6),
       st.integers(1, 4))
def test_any_repeat_is_one(body: list[tuple[int, int, int]], count: int, breaks: int) -> None:
    """Random pieces over the last few values, written out several times, now and then with another op between."""
    values = [leaf(f"x{k}") for k in range(5)]
    for r in range(count):
        for kind, a, b in body:
            values.append(op("tanh", values[-a]) if kind == 0 else op("add", values[-a], values[-b]) if kind == 1 else
                          op("multiply", values[-a], leaf()) if kind == 2 else op("subtract", values[-a], full(float(b))))
        if breaks > 1 and r % breaks == 0:
            values.append(op("exp", values[-1]))
    nodes = ir.topological(values[5:])
    proven(fold(nodes), nodes)


def test_graphs_of_random_ops(rng: np.random.Generator) -> None:
    for _ in range(30):
        values = [leaf("x")]
        for _ in range(60):
            a, b = (values[-int(k)] for k in rng.integers(1, min(len(values), 4) + 1, 2))
            values.append(op(str(rng.choice(["tanh", "exp"])), a) if rng.random() < 0.5 else op("add", a, b))
        nodes = ir.topological(values)
        proven(fold(nodes), nodes)


# ------------------------------------------------------------------------------------------------ of plain keys
def spared(keys: str, least: int = 1) -> list[tuple[int, int, int]]:
    found = stretches(keys, least)
    end = 0
    for start, group, times in found:
        assert start >= end and times > 1 and group * (times - 1) >= least
        end = start + group * times
        assert keys[start:end] == keys[start:start + group] * times
    return found


@pytest.mark.parametrize(("keys", "found"), [
    ("", []), ("a", []), ("abc", []), ("aaaa", [(0, 1, 4)]), ("xabcabcaby", [(1, 3, 2)]), ("aaabbb", [(0, 1, 3), (3, 1, 3)]),
    ("aabaabaab", [(0, 3, 3)]), ("xyabababxy", [(2, 2, 3)]), ("abababcdcdcdcd", [(0, 2, 3), (6, 2, 4)])])
def test_stretches(keys: str, found: list[tuple[int, int, int]]) -> None:
    assert spared(keys) == found


def test_stretches_that_spare_little_are_left() -> None:
    assert spared("aabbbbbb", 3) == [(2, 1, 6)]


@given(st.text("ab", max_size=40), st.integers(1, 5))
def test_stretches_of_anything(keys: str, least: int) -> None:
    found = spared(keys, least)
    most = max((n for p in range(1, len(keys)) for a in range(len(keys))
                if (n := next((k for k in range(len(keys) - a - p) if keys[a + k] != keys[a + k + p]), max(len(keys) - a - p, 0))
                    // p * p) >= least), default=0)
    assert max((group * (times - 1) for _, group, times in found), default=0) == most
