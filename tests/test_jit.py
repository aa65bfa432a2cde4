"""The decorator: what may be passed, what comes back, and what it says when it cannot."""

from __future__ import annotations

import dataclasses
import gc
from collections import OrderedDict, namedtuple
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fuelnumba
from fuelnumba import errors, jit, ops

from .asking import F32, arange, said


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
