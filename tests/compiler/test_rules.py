"""Rewrite rules keep values: pairs of casts over all bit patterns, random chains of views, near misses.

What each rule makes of its case is in test_passes.py.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from fuelnumba.compiler import bindings, rules
from fuelnumba.compiler.lower import lower
from fuelnumba.core import dtypes as dt
from fuelnumba.core import ir
from fuelnumba.core.ir import Graph, Node
from fuelnumba.core.ops import OPS
from fuelnumba.trace.interpret import interpret, rounded

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def make(name: str, *inputs: Node, **attrs: Any) -> Node:
    return ir.make(OPS[name], inputs, attrs)


def patterns(d: dt.DType) -> np.ndarray[Any, Any]:
    """All values of a small dtype; of a large one, what lies at the edges of every other dtype."""
    if d is dt.bool_:
        return np.array([False, True])
    if d.bits <= 16:
        return np.arange(2**d.bits).astype(f"u{d.itemsize}").view(d.numpy)
    edges = [0, 1, 2, 3, 255, 256, 257, 2047, 2048, 2049, 65503, 65504, 65519, 65520, 65536]
    edges += [2**k + e for k in (7, 8, 15, 16, 24, 31, 32, 53, 62) for e in (-1, 0, 1)] + [2**63 - 1]
    if d.is_integer:
        info = np.iinfo(d.numpy)
        return np.array(
            [v for e in edges for v in (e, -e) if info.min <= v <= info.max] + [info.min], d.numpy
        )
    floats = [float(v) for e in edges for v in (e, -e)] + [
        0.5,
        -0.5,
        1e-8,
        6e-8,
        1e-40,
        1e39,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1 / 3,
    ]
    return np.array(floats).astype(d.numpy)


def bits(x: np.ndarray[Any, Any]) -> Any:
    """Bits, with every NaN the same."""
    raw = x.view(f"u{x.itemsize}").astype(np.uint64)
    nan = np.isnan(x.astype(np.float64)) if x.dtype.kind in "fV" else np.zeros(x.shape, bool)
    return np.where(nan, np.uint64(2**64 - 1), raw)


def cast(x: np.ndarray[Any, Any], d: dt.DType) -> np.ndarray[Any, Any]:
    return rounded(x.astype(np.float64) if x.dtype.kind in "fV" else x, d)


@pytest.mark.parametrize("source", dt.ALL, ids=str)
def test_casts_through_a_middle_that_is_dropped_give_the_same_bits(source: dt.DType) -> None:
    values = patterns(source)
    for middle, target in itertools.product(dt.ALL, dt.ALL):
        x = ir.input_node("x", (len(values),), source)
        node = make("cast", make("cast", x, dtype=middle), dtype=target)
        if rules.fold_exact_cast(node) is None:
            continue
        assert rules.fold_exact_cast(node) is make("cast", x, dtype=target)
        two, one = cast(cast(values, middle), target), cast(values, target)
        assert np.array_equal(bits(two), bits(one)), f"{source} -> {middle} -> {target}"


def test_every_cast_there_and_back_that_loses_something_is_kept() -> None:
    """The table of exact casts against NumPy: a -> b -> a is dropped only where it is the identity."""
    for a, b in itertools.permutations(dt.ALL, 2):
        x = ir.input_node("x", (1,), a)
        node = make("cast", make("cast", x, dtype=b), dtype=a)
        values = patterns(a)
        lossless = np.array_equal(bits(cast(cast(values, b), a)), bits(values))
        folded = rules.simplify(node) is not node
        assert lossless or not folded, f"{a} -> {b} -> {a} is not the identity"
    x = ir.input_node("x", (1,), dt.f32)
    there = make("cast", make("cast", x, dtype=dt.f16), dtype=dt.f32)
    assert rules.simplify(there) is there


def test_f16_through_f32_and_back_is_nothing() -> None:
    x = ir.input_node("x", (3,), dt.f16)
    node = make("cast", make("cast", x, dtype=dt.f32), dtype=dt.f16)
    assert lower(Graph([x], [node]), bindings.current()).outputs == [x]


@pytest.mark.parametrize(
    "build",
    [
        lambda x: make("slice", x, axis=0, start=3, length=4, step=-1),  # as long as x, reversed
        lambda x: make("slice", x, axis=0, start=1, length=3, step=1),
        lambda x: make("permute", x, axes=(1, 0)),  # of a square: the same shape
        lambda x: make("flip", make("flip", x, axis=0), axis=1),
        lambda x: make("negative", make("absolute", make("negative", x))),
        lambda x: make("sum", x, axis=(0,), keepdims=True),
        lambda x: make("broadcast_to", x, shape=(1, 4, 4)),
        lambda x: make("reshape", make("permute", x, axes=(1, 0)), shape=(16,)),
        lambda x: make("contiguous", make("copy", x, uid=ir.unique())),
        lambda x: make("cast", make("cast", x, dtype=dt.i32), dtype=dt.f32),
    ],
)
def test_near_misses(build: Any) -> None:
    node = build(ir.input_node("x", (4, 4), dt.f32))
    assert rules.simplify(node) is node


def view(r: np.random.Generator, x: Node) -> Node:
    """A view of x, more often than not one that undoes or repeats the one before."""
    rank = len(x.shape)
    axis = int(r.integers(max(rank, 1)))
    kind = str(r.choice(["permute", "reshape", "flip", "slice", "unsqueeze", "squeeze", "broadcast_to"]))
    if kind == "reshape":
        n = int(np.prod(x.shape))
        options = [(n,), (1, n), x.shape[::-1], x.shape, (n // 2, 2) if n % 2 == 0 else (n,)]
        return make("reshape", x, shape=options[int(r.integers(len(options)))])
    if rank == 0 or kind == "unsqueeze":
        return make("unsqueeze", x, axis=axis) if rank < 5 else x
    if kind == "permute":
        return make("permute", x, axes=tuple(int(k) for k in r.permutation(rank)))
    if kind == "flip":
        return make("flip", x, axis=axis)
    if kind == "squeeze":
        return make("squeeze", x, axis=axis) if x.shape[axis] == 1 else x
    if kind == "broadcast_to":
        return make("broadcast_to", x, shape=(2, *x.shape) if rank < 4 and r.random() < 0.3 else x.shape)
    n = x.shape[axis]
    start, length, step = [(0, n, 1), (n - 1, n, -1), (0, max(1, n - 1), 1), (0, (n + 1) // 2, 2)][
        int(r.integers(4))
    ]
    return make("slice", x, axis=axis, start=start, length=length, step=step)


@pytest.mark.parametrize("seed", range(60))
def test_random_views_keep_their_values_when_simplified(seed: int) -> None:
    r = np.random.default_rng(seed)
    array = r.integers(-9, 9, (4, 3, 2)).astype(np.float32)
    x = ir.input_node("x", array.shape, dt.f32)
    outputs = []
    for _ in range(6):
        node = ir.full_node(3.0, (4, 1, 2), dt.f32) if r.random() < 0.2 else x
        for _ in range(int(r.integers(2, 9))):
            node = view(r, node)
            if r.random() < 0.15:
                node = make("negative", node)
        outputs.append(node)
    graph = Graph([x], outputs)
    simpler = lower(graph, bindings.current())
    ir.verify(simpler)
    assert len(simpler.nodes()) <= len(graph.nodes())
    for a, b, n in zip(interpret(graph, [array]), interpret(simpler, [array]), simpler.outputs):
        assert a.dtype == b.dtype and np.array_equal(a, b), f"{graph}\n{simpler}\n{n!r}"
    again = lower(simpler, bindings.current())
    assert again.outputs == simpler.outputs, "one pass simplifies all there is"
