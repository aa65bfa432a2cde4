"""Static arguments that are objects: what the function reads of them is watched as what it reads from outside is."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from fuelnumba import jit

X = np.arange(1.0, 4.0)
GLOBAL = 2.0


class Inner:
    def __init__(self, m: float) -> None:
        self.m = m


class Config:
    of_class = 3.0

    def __init__(self) -> None:
        self.k = 2.0
        self.items = [1.0, 2.0]
        self.table = np.ones(3)
        self.inner = Inner(1.0)
        self.unused = 0

    @property
    def doubled(self) -> float:
        return self.k * 2

    def method(self, x: Any) -> Any:
        return x * self.k + self.inner.m

    def __call__(self, x: Any) -> Any:
        return x * self.k


class Slotted:
    __slots__ = ("k",)

    def __init__(self) -> None:
        self.k = 2.0


def nested(x: Any, c: Any) -> Any:
    def inside(y: Any) -> Any:
        return y * c.k

    return inside(x)


def handed_on(x: Any, c: Any) -> Any:
    return helper(x, c)


def helper(x: Any, c: Any) -> Any:
    return x * c.k


CHANGES = {
    "attribute": (lambda x, c: x * c.k, lambda c: setattr(c, "k", 5.0)),
    "of the class": (lambda x, c: x * c.of_class, lambda c: setattr(Config, "of_class", 7.0)),
    "shadows the class's": (lambda x, c: x * c.of_class, lambda c: setattr(c, "of_class", 8.0)),
    "deleted and read from the class": (lambda x, c: x * getattr(c, "k", 9.0), lambda c: delattr(c, "k")),
    "nested": (lambda x, c: x * c.inner.m, lambda c: setattr(c.inner, "m", 4.0)),
    "nested, another object": (lambda x, c: x * c.inner.m, lambda c: setattr(c, "inner", Inner(6.0))),
    "list": (lambda x, c: x * sum(c.items), lambda c: c.items.append(3.0)),
    "array": (lambda x, c: x * c.table, lambda c: c.table.__setitem__(0, 5.0)),
    "property": (lambda x, c: x * c.doubled, lambda c: setattr(c, "k", 5.0)),
    "method": (lambda x, c: c.method(x), lambda c: setattr(c.inner, "m", 5.0)),
    "method redefined": (lambda x, c: c.method(x), lambda c: setattr(Config, "method", lambda self, x: x - 1)),
    "called": (lambda x, c: c(x), lambda c: setattr(c, "k", 5.0)),
    "by name": (lambda x, c: x * getattr(c, "k"), lambda c: setattr(c, "k", 5.0)),  # noqa: B009
    "vars": (lambda x, c: x * vars(c)["k"], lambda c: setattr(c, "k", 5.0)),
    "nested function": (nested, lambda c: setattr(c, "k", 5.0)),
    "helper": (handed_on, lambda c: setattr(c, "k", 5.0)),
}


@pytest.mark.parametrize("given", ["names", "nums", "default"])
@pytest.mark.parametrize("what", CHANGES)
def test_what_is_read_is_watched(what: str, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("of_class", "method"):
        monkeypatch.setattr(Config, name, vars(Config)[name])  # set back afterwards
    f, change = CHANGES[what]
    c = Config()
    if given == "default":
        jitted: Any = jit(lambda x, c=c: f(x, c))
        args: tuple[Any, ...] = (X,)
    else:
        jitted = jit(f, **({"static_argnames": "c"} if given == "names" else {"static_argnums": -1}))  # type: ignore[call-overload]
        args = (X, c)
    for _ in range(20):
        np.testing.assert_array_equal(jitted(*args), f(X, c))
    assert jitted.compilations == 1
    change(c)
    for _ in range(2):
        np.testing.assert_array_equal(jitted(*args), f(X, c))
    assert jitted.compilations == 2 and len(jitted.misses) == 1


def test_what_is_not_read_is_not_watched() -> None:
    c = Config()
    f = jit(lambda x, c: x * c.k, static_argnames="c")
    f(X, c)
    c.unused, c.of_class = 1, 5.0
    f(X, c)
    assert f.compilations == 1


def test_slots_classes_and_containers() -> None:
    s, c = Slotted(), Config()
    f = jit(lambda x, s: x * s[0].k * s[1][0].k, static_argnames="s")
    args = (s, (c,))
    for where in (s, c):
        where.k = 3.0
        np.testing.assert_array_equal(f(X, args), X * s.k * c.k)
    assert f.misses == ["s[1][0].k changed from 2.0 to 3.0"]


def test_a_function_as_static_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    def g(x: Any) -> Any:
        return x * GLOBAL

    f = jit(lambda x, g: g(x), static_argnames="g")
    assert f(X, g).tolist() == (X * 2).tolist()
    monkeypatch.setitem(globals(), "GLOBAL", 3.0)
    assert f(X, g).tolist() == (X * 3).tolist() and f.misses == [f"global GLOBAL changed from 2.0 to 3.0"]  # noqa: F541
    assert f(X, np.exp).tolist() == np.exp(X).tolist()


class Named:
    """Equal by name only."""

    def __init__(self, name: str, k: float) -> None:
        self.name, self.k, self.inner = name, k, Inner(k)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


@dataclasses.dataclass(frozen=True)
class Part:
    name: str
    k: float = dataclasses.field(default=1.0, compare=False)


@pytest.mark.parametrize("make", [Named, Part, lambda n, k: (Named(n, k), 3)[:1], lambda n, k: (Part(n, k),)])
def test_equal_objects_that_differ_in_what_is_read(make: Any) -> None:
    def first(c: Any) -> Any:
        return c[0] if isinstance(c, tuple) else c

    f = jit(lambda x, c: x * first(c).k, static_argnames="c")
    for _ in range(3):
        for k in (2.0, 3.0):
            assert f(X, make("a", k)).tolist() == (X * k).tolist()
    assert f.compilations == 2


def test_equal_objects_that_differ_deeper() -> None:
    f = jit(lambda x, c: x * c.inner.m, static_argnames="c")
    for k in (2.0, 3.0, 2.0):
        assert f(X, Named("a", k)).tolist() == (X * k).tolist()
    assert f.compilations == 2 and f.misses == ["c.inner.m changed from 2.0 to 3.0"]
    odd = Named("a", 2.0)
    odd.__dict__["m"] = 1
    g = jit(lambda x, c: x * getattr(c, "extra", 1.0), static_argnames="c")
    more = Named("a", 1.0)
    more.extra = 5.0  # type: ignore[attr-defined]
    assert g(X, odd).tolist() == X.tolist() and g(X, more).tolist() == (X * 5).tolist()


@dataclasses.dataclass(frozen=True)
class Frozen:
    k: float
    names: tuple[str, ...] = ()


def test_equal_objects_made_anew_need_no_new_plan() -> None:
    f = jit(lambda x, c: x * c.k, static_argnames="c")
    for _ in range(5):
        assert f(X, Frozen(2.0, ("a", "b"))).tolist() == (X * 2).tolist()
    assert f.compilations == 1
    f(X, Frozen(3.0))
    assert f.compilations == 2
