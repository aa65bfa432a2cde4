"""A printed graph is a program: run, it computes what the function computes."""

from __future__ import annotations

import re

import numpy as np
import pytest

import fuelnumba as fn

TABLE = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def _arithmetic(x, y):
    return np.where(x > y, x * 2.5, np.exp(y)) + TABLE


def _shapes(x, y):
    z = np.concatenate([x.T, y.T], axis=1)[::-1, 1:5]
    return z.reshape(2, -1), z.sum(axis=0, keepdims=True), np.argmax(z, axis=1)


def _structured(x, y):
    cache = fn.ops.write_slice(x, y[:1] * 3, at=(2, 0))
    return fn.ops.softmax(cache, axis=0), x @ y.T, fn.ops.rms_norm(y), x.astype(np.float16), np.inf * x


@pytest.mark.parametrize("function", [_arithmetic, _shapes, _structured])
@pytest.mark.parametrize("calls", [1, 2])  # with static lengths, then with symbolic ones
def test_printed_graph_is_the_function(function, calls):
    rng = np.random.default_rng(0)
    jitted = fn.jit(function)
    rows = 3
    for k in range(calls):
        x, y = (rng.standard_normal((rows, 4 + k if function is not _arithmetic else 4)).astype(np.float32) for _ in range(2))
        expected = jitted(x, y)
    text = str(jitted.graph)
    names: dict = {}
    exec(text, names)
    names["constants"] = [TABLE]
    got = names[function.__name__](x, y)
    for g, e in zip(got if isinstance(got, tuple) else (got,), expected if isinstance(expected, tuple) else (expected,)):
        np.testing.assert_array_equal(g, e)
        assert g.dtype == e.dtype


def test_text():
    @fn.jit
    def scale(x, k):
        return x * k + 1

    scale(np.ones(3, np.float32), 2.0)
    line = scale.__wrapped__.__code__.co_firstlineno + 2
    assert str(scale.graph) == f"""\
import fuelnumba.ops as ops


def scale(x, k):
    # x: f32[3]
    # k: f64[]
    v0 = ops.cast(k, dtype='f32')          # f32[]   test_printer.py:{line}
    v1 = ops.broadcast_to(v0, shape=(3,))  # f32[3]   test_printer.py:{line}
    v2 = ops.multiply(x, v1)               # f32[3]   test_printer.py:{line}
    v3 = ops.full(1.0, (3,), 'f32')        # f32[3]
    v4 = ops.add(v2, v3)                   # f32[3]   test_printer.py:{line}
    return v4"""


def _layers(x, ws):
    before = x
    for w in ws:
        x = fn.ops.softmax(np.tanh(x @ w) + 0.5 * before)
        before = x * 2
    return x, before


def _steps(x, ws):
    out = []
    for k in range(40):
        x = np.tanh(x @ ws[0]) + k
        out.append(x[0])
    return x - ws[1], *out


def _twice(x, ws):
    for _ in range(20):
        x = np.exp(x) @ ws[0]
    x = x.max(axis=0) + TABLE[:, :3]
    for _ in range(20):
        x = np.where(x > 1, x, x.T) * 0.5
    return x


@pytest.mark.parametrize("function", [_layers, _steps, _twice])
def test_a_folded_program(function):
    """Each of its lines is one of the whole program, in order of need, or says how many are left out. It cannot be run by
    mistake; the whole program can."""
    x, ws = np.full((3, 3), 0.1, np.float32), [np.full((3, 3), k / 64, np.float32) for k in range(32)]
    jitted = fn.jit(function)
    expected = jitted(x, ws)
    whole, folded = (jitted.graph.format(folded=f).splitlines() for f in (False, True))
    lines, shown = ([re.sub(r"(?<=\S) +# .*", "", line) for line in text] for text in (whole, folded))
    note = "    # repeats are left out: graph.format(folded=False) is the whole program"
    left_out = 0
    if function is not _steps:  # whose results and numbers differ from step to step
        assert note in shown
    for line in shown:
        if again := re.fullmatch(r"    # \.\.\. x (\d+) more of (?:this line|these (\d+) lines)", line):
            left_out += int(again[1]) * int(again[2] or 1)
        elif line != note:
            lines.remove(line)
    assert len(lines) == left_out
    names: dict = {"constants": [TABLE[:, :3]]}
    exec("\n".join(whole), names)
    arguments = [x, *ws][:len(jitted.graph.inputs)]
    got = names[function.__name__](*arguments)
    for g, e in zip(got if isinstance(got, tuple) else (got,), expected if isinstance(expected, tuple) else (expected,)):
        np.testing.assert_array_equal(g, e)
    if left_out:
        exec("\n".join(folded), names)
        with pytest.raises(NameError):
            names[function.__name__](*arguments)


def test_only_long_programs_are_folded():
    f = fn.jit(_layers)
    x, ws = np.ones((3, 3), np.float32), [np.ones((3, 3), np.float32)] * 32
    f(x, ws)
    assert str(f.graph) == f.graph.format(folded=False) != f.graph.format(folded=True)
    f(x, ws * 20)
    assert str(f.graph) == f.graph.format(folded=True) != f.graph.format(folded=False)
