"""What plans and explanations say, word for word, and how they look in a notebook."""

from __future__ import annotations

import copy
import pickle
import re
import tracemalloc
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest

from fuelnumba import errors, jit, ops
from fuelnumba.compiler import show
from fuelnumba.core.dims import SymEnv

F32 = np.float32
X, Y = np.linspace(-1, 1, 6, dtype=F32).reshape(2, 3), np.ones((3, 2), F32)


def plain(text: str) -> str:
    """Without what differs from run to run."""
    text = re.sub(r"k_[0-9a-f]{16}", "k_0123456789abcdef", text)
    return re.sub(r"   # \w+\.py:\d+", "", re.sub(r"in \d+\.\d ms", "in 1.0 ms", text))


def test_one_launch() -> None:
    @jit
    def f(x, y):
        return np.exp(x) * 2 + y.T

    f(X, Y)
    assert plain(str(f.plan)) == """\
plan of f: 1 launch of 1 kernel
    0  k_0123456789abcdef   exp_multiply_add -> f32[2, 3], 3 ops fused, 6 work items
  buffers: 1 output, 2 input"""
    assert plain(f.explain()) == """\
f: 1 compilation, 1 set of lengths, traced and planned in 1.0 ms
arguments:
  x: f32[2, 3]
  y: f32[3, 2]
guards:
  the code of f
  global np = module numpy
4 ops traced, 1 launch:
    0  k_0123456789abcdef   exp_multiply_add -> f32[2, 3], 3 ops fused, 6 work items, reads 48 B, writes 24 B"""


def test_several_launches_apart_for_their_shapes() -> None:
    @jit
    def f(x):
        return np.exp(x[:1]) * 2, np.exp(np.exp(x[:1]) * 2 + 1) - x

    f(X)
    text = plain(f.explain()).splitlines()
    at = text.index("not fused with what they read:")
    assert text[at + 1] == "  1 and 0: their shapes differ: f32[2, 3] and f32[1, 3]"
    assert f.explain().sections[-1][0] == "not fused with what they read:"


def test_apart_for_what_lies_between() -> None:
    @jit
    def f(x):
        y = np.exp(x)
        return y / y.sum()

    f(X)
    assert "not fused with what they read:\n  2 and 0: reduce_rows runs between them" in f.explain()


def whole(lines: list[str]) -> list[str]:
    """The launches without their numbers, those that are left out put back."""
    found: list[str] = []
    for line in lines:
        if again := re.fullmatch(r"  \.\.\.  x (\d+) more of (?:this launch|these (\d+) launches), (\d+) to (\d+)", line):
            times, group, first, last = (int(g or 1) for g in again.groups())
            assert first == len(found) and last == first + times * group - 1
            found += found[-group:] * times
        elif launch := re.fullmatch(r" +(\d+)  (\w+ .*)", line):
            assert int(launch[1]) == len(found)
            found.append(launch[2])
    return found


def _one(x, w):
    for _ in range(60):
        x = np.tanh(x @ w)
    return x


def _two_after_each_other(x, w):
    for _ in range(40):
        x = (x @ w).sum(axis=0) + x
    x = np.exp(x @ w.T).max(axis=0) * x
    for _ in range(30):
        x = np.cos(x @ w) - x @ w
    return x


def _nested(x, w):
    for _ in range(8):
        for _ in range(7):
            x = np.sin(x @ w)
        x = x / x.sum(axis=0)
    return x


def _nothing_alike(x, w):
    for _ in range(50):
        x = np.concatenate([x, x[:1]]) @ w
    return x


@pytest.mark.parametrize(("function", "most"), [(_one, 3), (_two_after_each_other, 20), (_nested, 16), (_nothing_alike, 150)])
def test_what_repeats_is_listed_once(function: Any, most: int) -> None:
    f = jit(function)
    f(np.full((3, 3), 0.1, F32), np.full((3, 3), 0.1, F32))
    launches = len(f.plan.launches)
    assert launches > 40
    full, folded = f.plan.format(folded=False).splitlines(), str(f.plan).splitlines()
    assert len(whole(full)) == launches and "(plan.format(folded=False) lists every launch)" not in full
    assert whole(folded) == whole(full) and sum(bool(re.match(r" +\d+  ", line)) for line in folded) <= most
    assert (len(folded) < len(full)) is ("  (plan.format(folded=False) lists every launch)" in folded)
    told, told_in_full = str(f.explain()).splitlines(), str(f.explain(folded=False)).splitlines()
    assert whole(told) == whole(told_in_full) and len(whole(told)) == launches
    assert len(told_in_full) - len(told) == len(full) - len(folded)


def test_few_launches_are_all_listed() -> None:
    f = jit(lambda x, w: np.tanh(np.tanh(np.tanh(x @ w) @ w) @ w))
    f(np.eye(3, dtype=F32), np.eye(3, dtype=F32))
    assert str(f.plan) == f.plan.format(folded=False) and "..." not in str(f.explain())


def test_thousands_of_steps_are_told_shortly() -> None:
    @jit
    def f(x, w):
        for _ in range(3000):
            x = np.tanh(x @ w)
        return x

    f(np.eye(3, dtype=F32), np.eye(3, dtype=F32))
    assert "x 2999 more of these 2 launches, 2 to 5999" in str(f.plan)
    tracemalloc.start()
    try:
        texts = [str(f.plan), str(f.graph), str(f.explain()), f.plan._repr_html_(), f.graph._repr_html_()]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert all(len(t) < 8_000 for t in texts) and most < 60_000_000
    assert repr(f.graph) == str(f.graph) and repr(f.plan) == str(f.plan)


def test_apart_for_another_order_of_elements() -> None:
    @jit
    def f(x):
        y = np.exp(x @ x)
        return y - y.T

    f(np.eye(3, dtype=F32))
    assert "one reads the other's elements in another order" in f.explain()


def test_symbolic_lengths_threads_and_anew() -> None:
    @jit(dims={"x": ("n",)})
    def f(x):
        return np.exp(x) * 2

    f(np.ones(5, F32))
    assert "n work items, reads 4*n B, writes 4*n B" in f.explain()
    assert "threads" not in f.explain()
    f(np.ones(1, F32))
    assert plain(f.explain()).splitlines()[0] == "f: 2 compilations, 1 set of lengths, traced and planned in 1.0 ms"
    assert "1 work item, reads 4 B, writes 4 B" in f.explain()
    assert "  axis 0 of x has length 1: lengths 0 and 1 are compiled for on their own" in f.explain()
    f(np.ones(6, F32))
    f(np.ones(1_000_000, F32))
    assert "2 compilations, 3 sets of lengths" in f.explain() and "divided among threads" in f.explain()


def test_copies_and_refusals() -> None:
    @jit
    def f(x, w):
        return (x.T.reshape(-1) + 1, x @ w)

    f(X, Y)
    text = f.explain()
    assert "copies, because a layout or a later write asks for them:\n  contiguous of permute f32[3, 2]" in text
    assert text.splitlines()[-2] == "refused kernels:"


def test_what_is_written_in_place() -> None:
    @jit(donate="x")
    def f(x, row):
        return ops.write_slice(x, row, at=(1, 0))

    f(X.copy(), X[:1].copy())
    assert "reads 12 B, writes 12 B" in f.explain()


def test_what_is_done_in_parts() -> None:
    """A sum of few results from many elements: parts, and their sum."""
    f = jit(dims={"x": ("n", None)})(lambda x: x.sum(axis=0))
    f(np.ones((50, 3), F32))
    parts, finish = f.plan.launches
    scratch = show.bytes_in_words(parts.writes[0].nbytes)
    lines = next(lines for head, lines in f.explain().sections if head == "1 op traced, 2 launches:")
    assert f"reads 12*n B, writes {scratch}" in lines[0] and f"reads {scratch}, writes 12 B" in lines[1]
    assert f.explain().count("reduce_columns: ") == 1
    assert finish.nodes == parts.nodes and "0, 1: sum axis=(0,)" in f.plan.svg()


def test_what_is_taken_from_a_table() -> None:
    f = jit(lambda table, rows: ops.embedding(table, rows))
    f(np.ones((1000, 4), F32), np.array([3, 5]))
    assert "reads 48 B, writes 32 B" in f.explain()  # two rows and their numbers


@pytest.mark.parametrize(("n", "text"), [(0, "0 B"), (9999, "9999 B"), (10_000, "10 kB"), (1_234_567, "1234.6 kB"),
                                         (12_345_678, "12.3 MB"), (3 * 10**10, "30 GB")])
def test_bytes(n: int, text: str) -> None:
    assert show.bytes_in_words(n) == text


def test_bytes_of_a_symbolic_length() -> None:
    assert show.bytes_in_words(SymEnv().symbol("n", 4) * 12 + 8) == "12*n + 8 B"


# ------------------------------------------------------------------------------------------------ misses
def test_the_nearest_plan_gives_the_reason() -> None:
    f = jit(lambda x, y, z: (x + 1, y + 1, z + 1))
    a, b = np.ones(3, F32), np.ones((3, 1), F32)
    f(a, a, a)
    f(b, b, b)
    f(b, b, a)
    f(a, a, b)
    assert f.misses == ["x is float32 of rank 2, not float32 of rank 1", "z is float32 of rank 1, not float32 of rank 2",
                        "z is float32 of rank 2, not float32 of rank 1"]
    f = jit(lambda x, y: (x + 1, y + 1))
    f(np.ones(1, F32), np.ones(1, F32))
    f(np.ones(5, F32), np.ones(5, F32))
    f(np.ones(5, F32), np.ones(1, F32))  # of the first plan one axis differs, of the second one
    f(np.ones(1, F32), np.ones(5, F32))
    assert f.misses[0] == "axis 0 of x has length 5, not 1"
    assert f.misses[1] == "axis 0 of y has length 1, not 5"
    assert f.misses[2] in ("axis 0 of x has length 1, not 5", "axis 0 of y has length 5, not 1")


def test_self_and_static_arguments() -> None:
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = by

        @jit(static_argnames=("mode", "power"))
        def __call__(self, x: Any, mode: str = "up", power: int = 1) -> Any:
            return x * self.by if mode == "up" else x * (1 / self.by)

    class Other(Scale):
        pass

    f = Scale.__call__
    a, b, c = Scale(2.0), Scale(4.0), Other(2.0)
    assert a(X)[0, 0] == -2
    b(X)
    c(X)
    c(X, "down", 2)
    assert f.misses == ["self is another object of Scale", "self is an object of Other, not of Scale",
                        "the static argument mode is 'down', not 'up'"]
    assert "  self: an object, by identity" in f.explain() and "  mode = 'down' (static)" in f.explain()


# ------------------------------------------------------------------------------------------------ in notebooks
def test_an_explanation_is_a_str() -> None:
    f = jit(lambda x: np.exp(x) * 2 + 1 < 3)
    f(X)
    text = f.explain()
    assert isinstance(text, str) and f"{text}" == text == str(text) and repr(text) == text
    assert "\n".join([text.head, *(line for title, lines in text.sections for line in (title, *lines))]) == text
    assert text + "!" == str(text) + "!" and text.upper().startswith("<LAMBDA>: 1 COMPILATION,")
    for other in (pickle.loads(pickle.dumps(text)), copy.deepcopy(text)):
        assert other == text and other.sections == text.sections
    page = text._repr_html_()
    ET.fromstring(page)
    assert "&lt;lambda&gt;" in page and "<lambda>" not in page
    assert re.findall(r"<summary>(.*?)</summary>", page) == ["arguments", "guards", "4 ops traced, 1 launch"]


def test_a_jitted_function_in_a_notebook() -> None:
    @jit
    def f(x):
        return np.exp(x) * 2 + 1 < 3

    assert f._repr_html_() == "<div><div><code>jitted f(x), 0 compilations</code></div><p>It has not been called yet.</p></div>"
    f(X)
    page = f._repr_html_()
    ET.fromstring(page)
    assert "jitted f(x), 1 compilation<" in page
    for part in ("graph of <b>f</b>: 4 ops", "plan of <b>f</b>: 1 launch of 1 kernel", "f: 1 compilation, 1 set of lengths"):
        assert part in page
    with pytest.raises(errors.FuelError, match="has not been called yet"):
        jit(lambda x: x).explain()
