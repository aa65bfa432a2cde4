"""The decorator: what may be passed, what comes back, when it compiles again, and what it says when it cannot."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import itertools
import threading
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numba
import numpy as np
import pytest

import fuelnumba
from fuelnumba import errors, jit, ops

F32 = np.float32


def arange(*shape: int, dtype: Any = F32) -> np.ndarray[Any, Any]:
    return np.arange(1, 1 + int(np.prod(shape)), dtype=dtype).reshape(shape)


def message(call: Callable[[], Any], kind: type[errors.FuelError] = errors.FuelError) -> str:
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind or kind is errors.FuelError
    return str(caught.value)


def said(call: Callable[[], Any], kind: type[errors.FuelError] = errors.FuelError) -> str:
    """The message without its place, which lies in this file."""
    with pytest.raises(kind) as caught:
        call()
    err = caught.value
    assert type(err) is kind or kind is errors.FuelError
    assert err.where is not None and err.where.file == __file__
    return str(type(err)(err.what, cure=err.cure))


# ------------------------------------------------------------------------------------------------ forms of the decorator
def test_forms() -> None:
    @jit
    def bare(x):
        """Doubles."""
        return x * 2

    @jit()
    def called(x):
        return x * 2

    @jit(static_argnames="n")
    def parameters(x, n=2):
        return x * n

    inline = jit(lambda x: x * 2)
    x = arange(3)
    for f in (bare, called, parameters, inline):
        assert f(x).tolist() == [2, 4, 6]
        assert isinstance(f, fuelnumba.Jitted)
    assert (bare.__name__, bare.__doc__, bare.__module__) == ("bare", "Doubles.", __name__)
    assert bare.__wrapped__(3) == 6
    assert repr(bare) == "<jitted bare(x), 1 compilation>"
    assert repr(jit(bare.__wrapped__)) == "<jitted bare(x), 0 compilations>"


def test_forms_that_are_refused() -> None:
    def f(x, y):
        return x

    assert said(lambda: jit(3), errors.ArgumentError) == "jit takes a function, not 3\n   = decorate a function, or pass one"
    assert said(lambda: jit(staticmethod(f)), errors.ArgumentError) == (
        "jit goes under @staticmethod, next to the function\n   = write @staticmethod above @jit")
    assert said(lambda: jit(f, static_argnames="z"), errors.ArgumentError) == (
        "static_argnames names 'z', which f(x, y) does not have\n   = name parameters of the function")
    assert said(lambda: jit(f, donate=["x", "w"]), errors.ArgumentError) == (
        "donate names 'w', which f(x, y) does not have\n   = name parameters of the function")
    assert said(lambda: jit(f, dims={"q": ("n",)}), errors.ArgumentError) == (
        "dims names 'q', which f(x, y) does not have\n   = name parameters of the function")
    assert said(lambda: jit(f, donate="x", static_argnames="x"), errors.ArgumentError) == (
        "x cannot be static and donated\n   = a static argument is a value in the program, a donated one an array")
    assert said(lambda: jit(f)(np.ones(3)), errors.ArgumentError) == (
        "f(): missing a required argument: 'y'\n   = its signature is f(x, y)")


def test_kinds_of_parameters() -> None:
    @jit
    def f(a, /, b, *rest, c=10.0, **more):
        out = a + 2 * b + c
        for r in rest:
            out = out + 100 * r
        for k in sorted(more):
            out = out * more[k]
        return out

    x = arange(2)
    assert f(x, x).tolist() == [13, 16]
    assert f(x, x, x, x).tolist() == [213, 416]
    assert f(x, b=x, c=0.0).tolist() == [3, 6]
    assert f(x, x, k=x, z=2.0).tolist() == [26, 64]


def test_no_arguments_and_constant_results() -> None:
    table = arange(3)

    @jit
    def f():
        return table * 2

    @jit
    def g(x):
        return {"y": x + 1, "name": "g", "n": 3, "none": None}

    assert f().tolist() == [2, 4, 6]
    out = g(arange(2))
    assert out["y"].tolist() == [2, 3] and (out["name"], out["n"], out["none"]) == ("g", 3, None)


# ------------------------------------------------------------------------------------------------ nested arguments
Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Layer:
    w: Any
    b: Any
    scale: float = 1.0


@dataclasses.dataclass(frozen=True)
class Model:
    layers: list[Layer]
    extra: dict[str, Any]


def test_nested_arguments() -> None:
    @jit
    def f(model, pair, items):
        out = items[0]
        for layer in model.layers:
            out = out @ layer.w + layer.b * layer.scale
        return {"out": out, "pair": Pair(pair.right, pair.left), "last": [items[-1][0], (model.extra["k"],)]}

    w, b = arange(2, 2), arange(2)
    out = f(Model([Layer(w, b), Layer(w, b, 0.5)], {"k": b}), Pair(b, w), [w, (b,)])
    first = w @ w + b
    np.testing.assert_array_equal(out["out"], first @ w + b * F32(0.5))
    assert isinstance(out["pair"], Pair) and out["pair"].left.tolist() == w.tolist()
    assert out["last"][0].tolist() == b.tolist() and out["last"][1][0].tolist() == b.tolist()
    assert f.compilations == 1
    f(Model([Layer(w, b), Layer(w, b, 2.0)], {"k": b}), Pair(b, w), [w, (b,)])
    assert f.compilations == 1  # a number inside a dataclass is an argument like others
    f(Model([Layer(w, b)], {"k": b}), Pair(b, w), [w, (b,)])
    assert f.compilations == 2 and "structure" in f.misses[0]


def test_containers_come_back_as_they_are() -> None:
    @jit
    def f(x):
        return OrderedDict(b=x, a=(x + 1, [x + 2])), Layer(x, None, 2.0)

    first, second = f(arange(2))
    assert type(first) is OrderedDict and list(first) == ["b", "a"]
    assert isinstance(first["a"], tuple) and isinstance(first["a"][1], list)
    assert isinstance(second, Layer) and second.b is None and second.scale == 2.0


@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "u4", "i2", "i4", "i8", "f2", ml_dtypes.bfloat16, "f4", "f8",
                                   ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu])
def test_numpy_in_and_out(dtype: Any) -> None:
    x = np.ones((2, 3), dtype)
    f = jit(lambda x: (x, x.T))
    same, turned = f(x)
    assert type(same) is np.ndarray and same.dtype == turned.dtype == x.dtype
    assert same.shape == (2, 3) and turned.shape == (3, 2)
    assert not np.shares_memory(same, x) and not np.shares_memory(turned, x)
    assert same.flags.writeable and same.flags.c_contiguous


def test_scalars_and_zero_rank() -> None:
    @jit
    def f(x, s):
        return x * s

    assert f(np.float32(2), 3).dtype == F32
    got = f(np.array(2, np.int16), 3)
    assert got.shape == () and got.dtype == np.int16 and got == 6


# ------------------------------------------------------------------------------------------------ memory of inputs and results
def test_inputs_are_never_modified() -> None:
    @jit
    def f(x, y):
        x += y
        x = ops.write_slice(x, y[:1], at=0)
        return x * 2, x.T

    x, y = arange(3, 3), arange(3, 3)
    f(x, y)
    f(x[::-1], y.T)
    assert x.tolist() == arange(3, 3).tolist() and y.tolist() == arange(3, 3).tolist()


def test_results_are_kept() -> None:
    """A result that the caller holds, or of which he holds a view, is never overwritten."""
    f = jit(lambda x: x + 1)
    held, views = [], []
    for k in range(20):
        held.append(f(np.full(1000, k, F32)))
        views.append(f(np.full(1000, -k, F32))[10:20])
    assert [h[5] for h in held] == [k + 1 for k in range(20)]
    assert [float(v[0]) for v in views] == [1 - k for k in range(20)]


def test_dropped_results_are_recycled() -> None:
    f = jit(lambda x: x + 1)
    x = np.zeros(100_000, F32)
    seen = set()
    for _ in range(20):
        seen.add(f(x).ctypes.data)
    assert len(seen) <= 2


def test_results_may_be_written_to() -> None:
    f = jit(lambda x: x + 1)
    first = f(arange(3))
    first[:] = 0
    assert f(arange(3)).tolist() == [2, 3, 4] and first.tolist() == [0, 0, 0]


def test_one_array_returned_twice() -> None:
    f = jit(lambda x: (x + 1, x + 1, x, x))
    x = arange(4)
    a, b, c, d = f(x)
    assert a.tolist() == b.tolist() == [2, 3, 4, 5] and c.tolist() == d.tolist() == x.tolist()
    c[0] = 99
    assert x[0] == 1


# ------------------------------------------------------------------------------------------------ static arguments
def test_static_arguments() -> None:
    @jit(static_argnames=("axis", "mode"))
    def f(x, axis, mode="sum"):
        return x.sum(axis=axis) if mode == "sum" else x.max(axis=axis)

    x = arange(2, 3)
    assert f(x, 0).tolist() == [5, 7, 9]
    assert f(x, axis=1).tolist() == [6, 15]
    assert f(x, 1, mode="max").tolist() == [3, 6]
    assert f(x, (0, 1)).tolist() == 21
    f(x, 1)
    assert f.compilations == 4
    assert f.misses == ["the static argument axis is 1, not 0", "the static argument mode is 'max', not 'sum'",
                        "the static argument axis is (0, 1), not 1"]
    assert said(lambda: f(x, [0, 1]), errors.ArgumentError) == (
        "f(): the static argument axis of type list is not hashable\n   = pass a tuple or a frozen dataclass")


def test_static_numpy_scalars_beside_tuples() -> None:
    f = jit(static_argnames="n")(lambda x, n: x + np.sum(n))
    assert [f(arange(1), n)[0] for n in (np.int64(1), (0, 2), 3, (np.int64(4),), np.float32(0.5))] == [2, 3, 4, 5, 1.5]
    assert f.misses == [f"the static argument n is {n}" for n in (
        "(0, 2), not np.int64(1)", "3, not (0, 2)", "(np.int64(4),), not 3", "np.float32(0.5), not (np.int64(4),)")]


def test_static_arguments_of_other_types_differ() -> None:
    f = jit(static_argnames="n")(lambda x, n: x * n)
    x = arange(2, dtype=np.int32)
    assert f(x, 1).dtype == np.int32
    assert f(x, 1.0).dtype == np.float64
    assert f(x, True).dtype == np.int32
    assert f.compilations == 3


def test_a_static_argument_that_is_needed() -> None:
    f = jit(lambda x, mode: x)
    text = said(lambda: f(np.ones(2), "fast"), errors.ArgumentError)
    assert text == ("<lambda>(): mode is a value of type str, neither an array nor a Python number\n"
                    "   = a string or an object that chooses what is computed belongs in static_argnames")


# ------------------------------------------------------------------------------------------------ donation
def test_a_donated_buffer_is_returned_itself() -> None:
    @jit(donate="cache")
    def step(cache, row, at):
        return ops.write_slice(cache, row, at=at), cache.sum()

    cache = np.zeros((4, 2), F32)
    for k in range(4):
        got, total = step(cache, np.full((1, 2), k + 1, F32), k)
        assert got is cache
        assert total == sum(2 * j for j in range(1, k + 1))  # of the old version
    assert cache.tolist() == [[1, 1], [2, 2], [3, 3], [4, 4]]
    assert step.compilations == 1


def test_donated_containers() -> None:
    @jit(donate="state")
    def step(state, x):
        return {k: ops.write_slice(v, x, at=0) for k, v in state.items()}

    state = {"a": np.zeros(3, F32), "b": np.ones(3, F32)}
    new = step(state, arange(2))
    assert new["a"] is state["a"] and new["b"] is state["b"]
    assert state["a"].tolist() == [1, 2, 0] and state["b"].tolist() == [1, 2, 1]


def test_a_donated_buffer_that_is_not_rewritten() -> None:
    f = jit(donate="x")(lambda x: x + 1)
    x = arange(3)
    got = f(x)
    assert got.tolist() == [2, 3, 4] and got is not x


def test_refused_donations() -> None:
    @jit(donate="x")
    def f(x, y):
        return ops.write_slice(x, y, at=0)

    x, y = np.zeros((3, 4), F32), np.ones((1, 4), F32)
    cure = "\n   = donate a writeable, C-contiguous array"
    frozen = x.copy()
    frozen.flags.writeable = False
    assert said(lambda: f(frozen, y), errors.DonationError) == f"f(): the donated argument x is read-only{cure}"
    assert said(lambda: f(x.T, y), errors.DonationError) == f"f(): the donated argument x is not C-contiguous{cure}"
    assert said(lambda: f(2.0, y), errors.DonationError) == f"f(): the donated argument x is not an array{cure}"
    assert said(lambda: f(x, x), errors.DonationError) == (
        "f(): x and y are the same memory, and one is donated\n   = pass a copy of one of them")
    assert said(lambda: f(x, x[1:]), errors.DonationError) == (
        "f(): x and y are the same memory, and one is donated\n   = pass a copy of one of them")
    assert not x.any()


# ------------------------------------------------------------------------------------------------ methods
class Scaler:
    def __init__(self, scale: Any) -> None:
        self.scale = scale
        self.offset = 1.0

    @jit
    def apply(self, x):
        return x * self.scale + self.offset

    @staticmethod
    @jit
    def double(x):
        return x * 2

    @classmethod
    def make(cls, n: int) -> Scaler:
        return cls(np.full(3, n, F32))


def test_methods() -> None:
    one, two = Scaler.make(1), Scaler.make(2)
    x = arange(3)
    assert one.apply(x).tolist() == [2, 3, 4]
    assert two.apply(x).tolist() == [3, 5, 7]
    assert one.apply(x).tolist() == [2, 3, 4]
    assert Scaler.apply(two, x).tolist() == [3, 5, 7]
    assert Scaler.double(x).tolist() == [2, 4, 6]
    two.offset = 0.0
    assert two.apply(x).tolist() == [2, 4, 6]
    two.scale[:] = 10  # in place: read at the next call, or traced anew
    assert two.apply(x).tolist() == [10, 20, 30]
    two.scale = np.zeros(3, F32)
    assert two.apply(x).tolist() == [0, 0, 0]


@dataclasses.dataclass
class Linear:
    w: Any
    b: Any

    @jit
    def __call__(self, x):
        return x @ self.w + self.b


def test_dataclass_self_is_an_argument() -> None:
    x = arange(2, 2)
    one, two = Linear(arange(2, 2), arange(2)), Linear(-arange(2, 2), arange(2))
    before = Linear.__call__.compilations
    np.testing.assert_array_equal(one(x), x @ one.w + one.b)
    np.testing.assert_array_equal(two(x), x @ two.w + two.b)
    assert Linear.__call__.compilations == before + 1


def test_an_object_of_one_class_does_not_stand_for_another() -> None:
    """Identity is the key of an object: one made at the address of a dead one is not taken for it."""
    x = arange(3)
    for k in range(50):
        s = Scaler.make(k)
        assert s.apply(x)[0] == k + 1
        del s
        gc.collect(0)


# ------------------------------------------------------------------------------------------------ what is read from outside
def test_closures_share_code_not_constants() -> None:
    def make(k):
        @jit
        def scaled(x):
            return x * k
        return scaled

    two, three = make(2.0), make(3.0)
    x = np.array([1.0, -1.0], F32)
    assert [f(x).tolist() for f in (two, three, two)] == [[2, -2], [3, -3], [2, -2]]


def test_a_changed_closure() -> None:
    factor, table = 2.0, [1, 2]

    @jit
    def f(x):
        return x * factor + len(table)

    x = arange(2)
    assert f(x).tolist() == [4, 6]
    factor = 3.0
    assert f(x).tolist() == [5, 8]
    table.append(5)
    assert f(x).tolist() == [6, 9]
    f(x)
    assert f.compilations == 3
    assert len(f.misses) == 2 and "factor" in f.misses[0] and "from 2.0 to 3.0" in f.misses[0] and "table" in f.misses[1]


GLOBAL = 1.0


def test_a_changed_global(monkeypatch: pytest.MonkeyPatch) -> None:
    @jit
    def f(x):
        return x + GLOBAL

    assert f(arange(2)).tolist() == [2, 3]
    monkeypatch.setitem(globals(), "GLOBAL", 10.0)
    assert f(arange(2)).tolist() == [11, 12]
    assert "GLOBAL" in f.misses[0] and "GLOBAL" in f.explain()


@pytest.mark.parametrize("size", [3, 30_000], ids=["compared", "read from its own memory"])
def test_a_captured_array_changed_in_place(size: int) -> None:
    w = np.ones(size, F32)
    f = jit(lambda x: x * w)
    x = np.ones(size, F32)
    first = f(x)
    w[:] = 10
    assert first[0] == 1 and f(x)[0] == 10 and f(x)[-1] == 10


def test_a_helper_that_is_replaced() -> None:
    def helper(x):
        return x + 1

    @jit
    def f(x):
        return helper(x)

    assert f(arange(2)).tolist() == [2, 3]

    def helper(x):
        return x - 1

    assert f(arange(2)).tolist() == [0, 1]


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


# ------------------------------------------------------------------------------------------------ faults at run time
def test_index_out_of_range() -> None:
    @jit
    def f(table, i):
        rows = np.take(table, i, axis=0)
        return rows * 2

    table = arange(5, 8)
    f(table, np.array([0, -5, 4]))
    text = message(lambda: f(table, np.array([0, 7])), errors.FuelIndexError)
    line = inspect.getsourcelines(f.__wrapped__)[1] + 2
    gap = " " * len(str(line))
    assert text == f"""\
index 7 is out of range for an axis of length 5
{gap}--> {__file__}:{line}, in f
{gap} |
{line} |         rows = np.take(table, i, axis=0)
{gap} |                ^^^^^^^^^^^^^^^^^^^^^^^^^
{gap} = check the indices"""
    with pytest.raises(IndexError):
        f(table, np.array([-6]))
    assert f(table, np.array([1]))[0, 0] == 18  # and it still works


@pytest.mark.parametrize("start", [-1, 3, 5, 2**40])
def test_a_write_past_the_end_writes_nothing(start: int) -> None:
    @jit(donate="x")
    def f(x, src, start):
        return ops.write_slice(x, src, at=start)

    x = np.arange(8, dtype=F32).reshape(4, 2)
    src = np.full((2, 2), 99, F32)
    text = message(lambda: f(x, src, start), errors.FuelIndexError)
    assert text.startswith(f"write_slice(): start {start} is out of range: it must lie in 0..2 for the slice to fit; "
                           "nothing was written\n")
    assert x.tolist() == np.arange(8).reshape(4, 2).tolist()
    assert f(x, src, 2) is x and x.tolist() == [[0, 1], [2, 3], [99, 99], [99, 99]]


def test_a_static_write_past_the_end() -> None:
    x, src = np.arange(8, dtype=F32).reshape(4, 2), np.full((2, 2), 99, F32)
    for start in (3, 5):
        with pytest.raises(errors.FuelError, match=r"write_slice\(\)"):
            ops.write_slice(x, src, at=(start, 0))
    got = ops.write_slice(x, np.zeros((0, 2), F32), at=(4, 0))
    assert got.tolist() == x.tolist()


def test_eager_errors_name_the_callers_line() -> None:
    text = message(lambda: ops.take(arange(3), np.array([3]), axis=0), errors.FuelIndexError)
    assert "lambda: ops.take(arange(3), np.array([3]), axis=0)" in text and __file__ in text


# ------------------------------------------------------------------------------------------------ a kernel of one's own
def test_user_kernel() -> None:
    calls = []

    @numba.njit
    def thrice(x, out):
        for i in range(x.size):
            out.flat[i] = 3 * x.flat[i]

    f = jit(lambda x: np.exp(x) + 1)
    x = np.zeros((2, 3), F32)
    assert f(x).tolist() == [[2] * 3] * 2
    fuelnumba.register_kernel("exp", ("f32", "f32"), thrice)
    try:
        assert f(x + 2).tolist() == [[7] * 3] * 2
        assert f.misses == ["kernels were registered or removed"]
        assert "thrice" in f.explain() and "(yours)" in f.explain()
        assert ops.exp(np.zeros(2, "f8")).tolist() == [1, 1]  # another key
        assert f((x + 2).T.copy().T).tolist() == [[7] * 3] * 2
        fuelnumba.register_kernel("exp", ("f32", "f32"), thrice)  # as a cell does that is run again
        assert "registered kernel" in said(lambda: fuelnumba.register_kernel("exp", ("f32", "f32"), numba.njit(lambda x, y: 0)))
    finally:
        fuelnumba.unregister_kernel("exp", ("f32", "f32"))
    assert f(x).tolist() == [[2] * 3] * 2
    assert "no registered kernel" in said(lambda: fuelnumba.unregister_kernel("exp", ("f32", "f32")))
    assert not calls


def test_user_kernel_of_a_reduction() -> None:
    @numba.njit
    def last_row(x, out, axis, keepdims):
        for j in range(x.shape[1]):
            out[j] = x[-1, j]

    fuelnumba.register_kernel("sum", ("i64", "i64"), last_row)
    try:
        f = jit(lambda x: x.sum(axis=0) * 10)
        assert f(np.arange(6).reshape(3, 2)).tolist() == [40, 50]
    finally:
        fuelnumba.unregister_kernel("sum", ("i64", "i64"))
    assert f(np.arange(6).reshape(3, 2)).tolist() == [60, 90]


def test_refused_user_kernels() -> None:
    def plain(x, out):
        pass

    jitted = numba.njit(plain)
    for arguments, text in (
        (("no_such", ("f32", "f32"), jitted), "there is no op 'no_such'"),
        (("exp", ("f32", "f32"), plain), "'plain' is not a Numba function"),
        (("reshape", ("f32", "f32"), jitted), "reshape moves no data and takes no kernel"),
        (("exp", ("f32",), jitted), "exp has 1 inputs and one output; got 1 dtypes"),
        (("exp", ("f32", "f99"), jitted), "'f99' is not a dtype of fuelnumba"),
    ):
        assert said(lambda arguments=arguments: fuelnumba.register_kernel(*arguments)).startswith(text)
    assert said(lambda: fuelnumba.register_kernel("exp", ("f32", "f32"), jitted, backend="tpu")).startswith(
        "there is no backend 'tpu'")


# ------------------------------------------------------------------------------------------------ threads
def in_threads(count: int, work: Callable[[int], None]) -> None:
    """All at once; the first failure is raised here."""
    failures: list[BaseException] = []
    start = threading.Barrier(count)

    def run(k: int) -> None:
        try:
            start.wait()
            work(k)
        except BaseException as err:  # handed to the main thread
            failures.append(err)

    threads = [threading.Thread(target=run, args=(k,), daemon=True) for k in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not any(t.is_alive() for t in threads), "a thread hangs"
    if failures:
        raise failures[0]


@pytest.mark.parametrize("size", [8, 60_000], ids=["small", "divided among threads"])
def test_many_threads_one_function(size: int) -> None:
    unique = next(_numbers)

    @jit
    def f(x):
        return (x * 2.0 + float(unique)), (x + 1.0).sum()

    def work(k: int) -> None:
        x = np.full(size, float(k), F32)
        kept = []
        for r in range(30):
            x[0] = r
            kept.append(f(x))
        for r, (y, total) in enumerate(kept):
            assert y[0] == 2 * r + unique and (y[1:] == 2 * k + unique).all()
            assert total == (k + 1) * (size - 1) + r + 1

    in_threads(16, work)
    assert f.compilations == 1


_numbers = itertools.count(3)


def test_many_threads_many_functions_and_shapes() -> None:
    functions = [jit(eval(f"lambda x: (x * 2.0 + {k}.0).sum()")) for k in range(4)]
    product = jit(lambda x, y: x @ y)

    def work(k: int) -> None:
        x = np.full((8 + k, 8), float(k), F32)
        for r in range(10):
            assert functions[(k + r) % 4](x) == 8 * (8 + k) * (2 * k + (k + r) % 4)
            assert product(x, x.T).sum() == 8 * (8 + k) ** 2 * k * k

    in_threads(16, work)


def test_a_trace_does_not_leave_its_thread() -> None:
    found = []

    @jit
    def f(x):
        def inside():
            try:
                x + 1
            except errors.FuelError as err:
                found.append(err)
        t = threading.Thread(target=inside)
        t.start()
        t.join()
        return x

    f(arange(2))
    assert isinstance(found[0], errors.LeakedTracerError) and "runs in another thread" in str(found[0])


# ------------------------------------------------------------------------------------------------ what a graph cannot hold
def trace_error(fn: Callable[..., Any], kind: type[errors.FuelError], *arguments: Any) -> tuple[str, int]:
    f = jit(fn)
    text = message(lambda: f(*(arguments or (arange(3, 4),))), kind)
    assert f.compilations == 0
    return text, inspect.getsourcelines(fn)[1]


def framed(first: str, line: int, source: str, underlined: str, cure: str, name: str) -> str:
    gap = " " * len(str(line))
    return (f"{first}\n{gap}--> {__file__}:{line}, in {name}\n{gap} |\n{line} | {source}\n"
            f"{gap} | {' ' * source.index(underlined)}{'^' * len(underlined)}\n{gap} = {cure}")


NUMBERS_CURE = ("use NumPy functions and operators inside, and take the numbers from what the function returns; "
                "a number that chooses a shape belongs in static_argnames")
CONVERSION_CURE = "keep it an array, x.astype(...) or np.exp(x) for math.exp(x), or name the argument in static_argnames"


def test_truth() -> None:
    def f(x):
        if x.sum() > 0:
            return x
        return -x

    text, line = trace_error(f, errors.TracedBoolError)
    assert text == framed("the truth of Tensor(bool[]) is not known while tracing", line + 1, "        if x.sum() > 0:",
                          "x.sum() > 0", "use np.where(condition, a, b) and & | ~, or name the argument in static_argnames", "f")


def test_int() -> None:
    def f(x):
        return x * int(x[0, 0])

    text, line = trace_error(f, errors.TracedConversionError)
    assert text == framed("int() of Tensor(f32[]): its value is not known while tracing", line + 1,
                          "        return x * int(x[0, 0])", "int(x[0, 0])", CONVERSION_CURE, "f")


def test_scalar_argument_as_a_size() -> None:
    def f(x, n):
        return x * len(range(n))

    text, line = trace_error(f, errors.TracedConversionError, arange(3), 3)
    assert text == framed("use as an index or a size of Tensor(i64[], weak): its value is not known while tracing", line + 1,
                          "        return x * len(range(n))", "range(n)", CONVERSION_CURE, "f")


def test_iteration() -> None:
    def f(x):
        return sum(row for row in x)

    text, line = trace_error(f, errors.TracedIterationError)
    assert text.startswith("iteration over Tensor(f32[3, 4]): a loop over its elements would unroll the graph\n")
    assert f"--> {__file__}:{line + 1}, in f\n" in text


def test_write() -> None:
    def f(x):
        x[0] = 1
        return x

    text, line = trace_error(f, errors.TracedMutationError)
    assert text == framed("x[...] = value would write into Tensor(f32[3, 4]), which a graph cannot hold", line + 1,
                          "        x[0] = 1", "x[0]", "make a new value: np.where(condition, a, b), np.concatenate([...]) or "
                          "fuelnumba.ops.write_slice(x, src, at)", "f")


def test_outside_code() -> None:
    def f(x):
        return np.asarray(x) + 1

    text, line = trace_error(f, errors.TracedToNumpyError)
    assert text == framed("np.asarray() or other code outside fuelnumba needs the memory of Tensor(f32[3, 4]), which does not "
                          "exist while tracing", line + 1, "        return np.asarray(x) + 1", "np.asarray(x)", NUMBERS_CURE, "f")


KEPT: dict[str, Any] = {}


def test_leak() -> None:
    def f(x):
        KEPT["x"] = x + 1
        return x

    try:
        text, line = trace_error(f, errors.LeakedTracerError)
        assert text == framed("f() left Tensor(f32[3, 4]) in global KEPT['x']", line + 1, '        KEPT["x"] = x + 1', "x + 1",
                              "return the value instead: what a trace stores elsewhere is not computed", "f")
        with pytest.raises(errors.LeakedTracerError, match=r"is used, but the trace of f\(\) has ended"):
            KEPT["x"] + 1
    finally:
        KEPT.clear()


def test_an_exception_of_the_users() -> None:
    def f(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        jit(f)(arange(2))
    assert jit(lambda x: x + 1)(arange(2)).tolist() == [2, 3]  # no trace is left running


def test_a_result_that_is_no_array() -> None:
    text = said(lambda: jit(lambda x: "text")(arange(2)), errors.ArgumentError)
    assert text == "<lambda>() returned 'text', which does not depend on its arguments as an array\n   = return an array, or compute this outside"


@pytest.mark.parametrize("first, second", [(0.0, -0.0), ((1,), (1.0,)), ((1,), (True,)), ((0.0, 2), (-0.0, 2))])
def test_equal_static_values_that_are_not_the_same(first: Any, second: Any) -> None:
    """Python's == takes them for one; what is computed differs."""
    @jit(static_argnames="k")
    def scaled(x: Any, k: Any) -> Any:
        return x * (k[0] if isinstance(k, tuple) else k)

    x = np.array([2, 3], np.int32)
    for k in (first, second, first):
        got, expected = scaled(x, k), scaled.__wrapped__(x, k)
        np.testing.assert_array_equal(got, expected)
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))


def test_static_values_that_cannot_be_compared() -> None:
    """They meet in a table of plans, where neither a refused call nor another's comparison may get in the way."""
    class Odd:
        __hash__ = object.__hash__

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("no equality")

    f = jit(static_argnames="n")(lambda x, n: x + (n if isinstance(n, int) else np.sum(x, axis=n)))
    for _ in range(2):
        with pytest.raises(errors.ArgumentError):
            f(arange(3), Odd())
        assert f(arange(3), 1).tolist() == [2, 3, 4]
    assert f(arange(3), 2).tolist() == [3, 4, 5]
    assert f.misses == ["the static argument n is 2, not 1"]
    kept = jit(static_argnames="n")(lambda x, n: x + 1)
    for n in (Odd(), 3, Odd(), 4):
        assert kept(arange(2), n).tolist() == [2, 3]
