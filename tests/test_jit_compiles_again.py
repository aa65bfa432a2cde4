"""When a jitted function compiles again, and when it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuelnumba
from fuelnumba import errors, jit

from .asking import F32, arange, said


# ------------------------------------------------------------------------------------------------ when it compiles again
def test_symbolic_lengths() -> None:
    """The second length makes the axis symbolic; no later one compiles."""
    f = jit(lambda x: np.exp(x).sum(axis=0) * x.shape[0])
    kernels = None
    for k, n in enumerate([5, 7, 9, 100, 5, 2]):
        x = np.linspace(-1, 1, 3 * n, dtype=F32).reshape(n, 3)
        np.testing.assert_allclose(f(x), np.exp(x.astype(float)).sum(axis=0) * n, rtol=1e-5)
        assert f.compilations == min(k + 1, 2)
        if k == 1:
            kernels = fuelnumba.cache_stats().compiled
    assert fuelnumba.cache_stats().compiled == kernels
    assert f.misses == ["axis 0 of x has length 7, not 5"]
    assert f.graph.inputs[0].shape[1] == 3 and str(f.graph.inputs[0].shape[0]) == "x_0"


def test_lengths_0_and_1_are_their_own() -> None:
    f = jit(lambda x, y: x + y)
    y = arange(4)
    for n in (4, 1, 0):
        x = np.ones(n, F32)
        if n == 0:
            with pytest.raises(errors.ShapeError):
                f(x, y)
            continue
        assert f(x, y).tolist() == [2, 3, 4, 5]
    g = jit(lambda x: (x * 2).sum())
    for n in (3, 5, 1, 0, 7, 1, 0):
        assert g(np.ones(n, F32)) == 2 * n
    assert g.compilations == 4
    assert g.misses[1:] == ["axis 0 of x has length 0: lengths 0 and 1 are compiled for on their own"] * 2 or len(g.misses) == 3


def test_named_dims() -> None:
    @jit(dims={"x": ("n", None), "y": ("n",)})
    def f(x, y):
        return (x * y[:, None]).sum()

    for n in (3, 8, 21):
        assert f(np.ones((n, 2), F32), np.ones(n, F32)) == 2 * n
    assert f.compilations == 1
    assert said(lambda: f(np.ones((3, 2), F32), np.ones(4, F32)), errors.ArgumentError).startswith(
        "f(): dims says that n is one length, but it is 3 and, on axis 0 of y, 4")
    g = jit(dims={"x": ("n",)})(lambda x: x)
    assert said(lambda: g(np.ones((3, 2), F32)), errors.ArgumentError) == (
        "<lambda>(): dims names 1 axes of x, which has 2\n   = give one entry for each axis, None for those without a name")


def test_equality_guards() -> None:
    """Two lengths that were equal by chance: the plan says so, and others get a plan of their own."""
    f = jit(lambda x, y: x + y)
    for n, m in ((3, 3), (5, 5), (6, 6)):
        assert f(np.ones(n, F32), np.ones(m, F32)).shape == (n,)
    assert f.compilations == 2
    assert [str(g) for g in f.guards] == ["x_0 == y_0"]
    with pytest.raises(errors.ShapeError):
        f(np.ones(4, F32), np.ones(5, F32))
    assert f(np.ones(9, F32), np.ones(9, F32)).shape == (9,)


def test_a_branch_on_a_length() -> None:
    f = jit(lambda x: x * 2 if x.shape[0] > 4 else x - 1)
    for n, first in ((3, 0), (5, 2), (2, 0), (8, 2), (4, 0)):
        assert f(np.ones(n, F32))[0] == first
    compiled = f.compilations
    for n, first in ((9, 2), (3, 0), (2, 0), (77, 2)):
        assert f(np.ones(n, F32))[0] == first
    assert f.compilations == compiled


def test_a_length_used_as_a_number() -> None:
    f = jit(lambda x: x / x.shape[0] + np.arange(x.shape[0], dtype=F32))
    for n in (3, 5, 4, 8):
        np.testing.assert_allclose(f(np.ones(n, F32)), 1 / n + np.arange(n), rtol=1e-6)


def test_python_numbers_do_not_compile_again_and_do_not_widen() -> None:
    f = jit(lambda x, s: x * s)
    for dtype in (np.float16, F32, np.float64):
        for s in (1.5, 2.5, -1e3, float("inf")):
            got = f(np.ones(2, dtype), s)
            assert got.dtype == dtype and got[0] == s
    assert f.compilations == 3
    x = np.ones(2, np.int16)
    for s in (2, -3, 1000):
        assert f(x, s).dtype == np.int16 and f(x, s)[0] == s
    assert f.compilations == 4
    assert f(x, 0.5).dtype == np.float64
    assert f.misses[-1] == "s is a Python float, not a Python int"
    assert f(x, True).dtype == np.int16


def test_python_ints_that_do_not_fit() -> None:
    f = jit(lambda x, s: x * s)
    assert f(np.ones(2, F32), 2**62)[0] == 2.0**62
    for s in (2**63, -(2**70)):
        assert said(lambda s=s: f(np.ones(2, F32), s), errors.ArgumentError) == (
            f"<lambda>(): s: the Python int {s} does not fit i64\n   = pass a float")
    assert f(np.ones(2, F32), 3)[0] == 3


def test_other_dtypes_ranks_and_layouts_compile_again() -> None:
    f = jit(lambda x: x + 1)
    f(arange(2, 3))
    f(arange(2, 3).astype("f8"))
    f(arange(6))
    f(np.asfortranarray(arange(2, 3)))
    assert f.misses == ["x is float64 of rank 2, not float32 of rank 2", "x is float32 of rank 1, not float32 of rank 2",
                        "x is float32 of rank 2 with strides (4, 8), not float32 of rank 2"]
    assert f.compilations == 4
    f(arange(2, 3))
    assert f.compilations == 4


def test_explain() -> None:
    @jit
    def f(x, y):
        return np.exp(x) * 2 + y.T

    with pytest.raises(errors.FuelError, match="f has not been called yet"):
        f.explain()
    f(arange(2, 3), arange(3, 2))
    text = f.explain()
    assert text.startswith("f: 1 compilation, 1 set of lengths, traced and planned in ")
    for line in ("  x: f32[2, 3]", "  y: f32[3, 2]", "ops traced, 1 launch:"):
        assert line in text
    assert "exp_multiply_add" in text and f"{__file__.rsplit('/', 1)[-1]}" in text
    assert str(f.plan).startswith("plan of f: 1 launch of 1 kernel")


def test_clear() -> None:
    f = jit(lambda x: x + 1)
    f(arange(3))
    f.clear()
    assert f.compilations == 0
    assert f(arange(3)).tolist() == [2, 3, 4] and f.compilations == 1


# ------------------------------------------------------------------------------------------------ layouts of inputs
@pytest.mark.parametrize("change", [
    lambda a: a.T, lambda a: a[::-1], lambda a: a[:, ::-2], lambda a: a[1:, 1:3], lambda a: np.broadcast_to(a[:1], (4, 4)),
    lambda a: np.broadcast_to(F32(3), (4, 4)), lambda a: a[:0], lambda a: a[None, :, None, :], lambda a: np.diagonal(a),
    lambda a: np.lib.stride_tricks.sliding_window_view(a, 2, axis=0),
], ids=["transposed", "flipped", "stepped", "window", "repeated", "scalar repeated", "empty", "long", "diagonal", "overlapping"])
def test_layouts_of_inputs(change: Callable[[Any], Any]) -> None:
    f = jit(lambda x: (x + 1, x.sum(axis=0), x.T * 2, x.reshape(-1), x[:1], np.flip(x, -1)))
    x = change(arange(4, 4))
    got = f(x)
    for g, e in zip(got, (x + 1, x.sum(axis=0), x.T * 2, x.reshape(-1), x[:1], np.flip(x, -1))):
        np.testing.assert_array_equal(g, e)
        assert g.dtype == e.dtype and g.shape == e.shape


def test_read_only_inputs() -> None:
    x = arange(3)
    x.flags.writeable = False
    assert jit(lambda x: x + 1)(x).tolist() == [2, 3, 4]


def test_strides_between_elements() -> None:
    record = np.zeros(4, [("a", "f4"), ("b", "i2")])  # 6 bytes each
    record["a"] = arange(4)
    assert said(lambda: jit(lambda x: x)(record["a"]), errors.InputArrayError) == (
        "<lambda>(): x: the array is not aligned: its elements do not start at multiples of their size\n   = pass a copy: x.copy()")


# ------------------------------------------------------------------------------------------------ functions in functions
def test_nested_jit_is_part_of_the_outer_one() -> None:
    @jit
    def inner(x):
        return np.tanh(x) * 2

    @jit
    def outer(x):
        return inner(x) + 1

    x = arange(4)
    np.testing.assert_allclose(outer(x), np.tanh(x.astype(float)) * 2 + 1, rtol=1e-6)
    assert inner.compilations == 0 and len(outer.plan.launches) == 1
