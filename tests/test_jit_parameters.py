"""What a function's parameters are given: defaults that are left out, static arguments, methods of every kind, callables."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from fuelnumba import errors, jit, ops

from .asking import arange, said

X = np.arange(1.0, 4.0)
W = np.ones(3)


# ------------------------------------------------------------------------------------------------ defaults that are left out
def counted(x: Any, n: Any = 3) -> Any:
    for _ in range(n):
        x = x * 2
    return x


def along(x: Any, axis: Any = 0, keepdims: Any = False) -> Any:
    return x.sum(axis, keepdims=keepdims)


def switched(x: Any, verbose: Any = False, mode: Any = "up") -> Any:
    if verbose:
        x = x + 1000
    return x + 1 if mode == "up" else x - 1


def typed(x: Any, dtype: Any = np.float32, f: Any = np.tanh) -> Any:
    return f(x.astype(dtype))


def keyword(x: Any, *, n: Any = 2, scale: Any = (1.0, 2.0)) -> Any:
    return counted(x, n) * scale[n - 1]


def between(x: Any, n: Any = 2, scale: Any = 1.0) -> Any:
    return counted(x, n) * scale


def mixed(x: Any, n: Any = 2, *more: Any, k: Any = 3, **others: Any) -> Any:
    return counted(x, n) + k + sum(more) + sum(others.values())


def by_position(x: Any, n: Any = 2, k: Any = 3, /) -> Any:
    return counted(x, n) + k


def arrays(x: Any, w: Any = W, rows: Any = (W, W), n: Any = 1) -> Any:
    return counted(x, n) * w + rows[0]


TWO = np.float32(2)


def numpys(x: Any, k: Any = TWO, shape: Any = (3, 1), nothing: Any = None) -> Any:
    return (x * k).reshape(shape) if nothing is None else x


@pytest.mark.parametrize("f", [counted, along, switched, typed, keyword, between, mixed, by_position, arrays, numpys])
def test_a_default_left_out_is_the_python_value_it_is(f: Any) -> None:
    jitted = jit(f)
    for _ in range(20):
        got, expected = jitted(X), f(X)
        np.testing.assert_array_equal(got, expected)
        assert got.dtype == expected.dtype
    assert jitted.compilations == 1


def test_a_default_that_is_given_is_an_argument() -> None:
    f = jit(between)
    np.testing.assert_array_equal(f(X), X * 4)
    np.testing.assert_array_equal(f(X, scale=3.0), X * 12)
    np.testing.assert_array_equal(f(X, scale=5.0), X * 20)
    assert f.compilations == 2 and f.misses == ["scale is given, not left out"]
    for call in (lambda: f(X, 2), lambda: f(X, n=2)):
        with pytest.raises(errors.TracedConversionError):
            call()
    f(X)
    assert f.compilations == 2 and "  n = 2 (left out)" in f.explain() and "  scale = 1.0 (left out)" in f.explain()
    assert jit(keyword)(X, scale=(5.0, 6.0)).tolist() == (X * 24).tolist()


def test_defaults_that_change() -> None:
    """One that is a list is watched; one that is an array is an argument: what is in it now counts."""
    table, w = [1.0, 2.0], np.ones(3)

    def f(x: Any, table: Any = table, w: Any = w) -> Any:
        return x * sum(table) + w

    jitted = jit(f)
    np.testing.assert_array_equal(jitted(X), f(X))
    table.append(4.0)
    w[:] = 7
    np.testing.assert_array_equal(jitted(X), f(X))
    assert jitted.compilations == 2 and len(jitted.misses) == 1


def test_donated_defaults_are_arrays() -> None:
    f = jit(lambda x, k=2.0: x * k, dims={"x": ("n",)})
    np.testing.assert_array_equal(f(X), X * 2)
    np.testing.assert_array_equal(f(np.ones(7)), np.ones(7) * 2)
    assert f.compilations == 1


# ------------------------------------------------------------------------------------------------ functions that are NumPy's
@pytest.mark.parametrize("f, args", [(np.exp, (X,)), (np.add, (X, W)), (np.dot, (X, W)), (np.where, (X > 1, X, W)), (np.sum, (X,)), (np.mean, (X,)),
                                     (np.clip, (X, 1.5, 2.5)), (np.linalg.norm, (X,)), (np.concatenate, ([X, W],)), (np.take, (X, np.array(1))),
                                     (np.matmul, (X, W)), (np.argmax, (X,))], ids=lambda f: getattr(f, "__name__", ""))
def test_numpys_functions(f: Any, args: Any) -> None:
    got, expected = jit(f)(*args), f(*args)
    np.testing.assert_allclose(got, expected)
    assert type(got) is type(expected)


def test_functions_that_do_not_tell_their_parameters() -> None:
    class Odd:
        __signature__ = "none"

        def __call__(self, x: Any, k: Any) -> Any:
            return x * k

    assert jit(Odd())(X, 2.0).tolist() == [2, 4, 6] and jit(max)((X,)).tolist() == X.tolist()
    assert "static_argnames names 'k'" in said(lambda: jit(Odd(), static_argnames="k"), errors.ArgumentError)


# ------------------------------------------------------------------------------------------------ static_argnums
def scaled(x: Any, n: Any, k: Any = 2) -> Any:
    return x * len(range(n)) + len(range(k))


@pytest.mark.parametrize("numbers, given", [((1, 2), "static_argnums"), ([-1, -2], "static_argnums"), ((1, np.int64(-1)), "static_argnums")])
def test_static_argnums(numbers: Any, given: str) -> None:
    f = jit(scaled, static_argnums=numbers)
    for args, kwargs in (((X, 3, 4), {}), ((X, 3), {}), ((X,), {"n": 5}), ((X, 3), {"k": 1})):
        np.testing.assert_array_equal(f(*args, **kwargs), scaled(*args, **kwargs))
    assert set(f.parameters.static) == {"n", "k"}


def test_one_static_argnum_and_names_beside_it() -> None:
    assert jit(lambda n, x: x * len(range(n)), static_argnums=0)(3, X).tolist() == (X * 3).tolist()
    assert jit(scaled, static_argnums=1, static_argnames="k")(X, 3, 4).tolist() == scaled(X, 3, 4).tolist()
    assert jit(scaled, static_argnums=1, static_argnames=["k", "n"])(X, 3, 4).tolist() == scaled(X, 3, 4).tolist()

    @jit(static_argnums=1)
    def decorated(x: Any, n: Any) -> Any:
        return x * len(range(n))

    assert decorated(X, 2).tolist() == (X * 2).tolist()


@pytest.mark.parametrize("numbers", [3, -4, (0, 5), (1.5,), ("x",), True])
def test_static_argnums_that_are_none(numbers: Any) -> None:
    text = said(lambda: jit(scaled, static_argnums=numbers), errors.ArgumentError)
    assert "static_argnums has" in text and "takes 3 arguments by position" in text
    assert "takes 0 arguments" in said(lambda: jit(lambda *xs: xs[0], static_argnums=0), errors.ArgumentError)


# ------------------------------------------------------------------------------------------------ methods and callables
class Scale:
    factor = 2.0

    @classmethod
    @jit
    def of_class(klass, x: Any, n: Any = 2) -> Any:
        return x * klass.factor * len(range(n))

    @jit
    def of_instance(this, x: Any) -> Any:
        return x * this.factor

    @jit(static_argnums=0)
    def static_self(self, x: Any) -> Any:
        return x * self.factor

    @staticmethod
    @jit
    def of_nobody(x: Any) -> Any:
        return x + 1

    fixed = functools.partialmethod(of_instance, X)


class Other(Scale):
    factor = 9.0


def test_methods_of_every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = Scale(), Scale()
    calls = {"class": lambda: Scale.of_class(X) / 2, "class by instance": lambda: one.of_class(X) / 2, "instance": lambda: one.of_instance(X),
             "static self": lambda: one.static_self(X), "partialmethod": lambda: one.fixed()}
    for factor in (2.0, 3.0):  # of the class
        monkeypatch.setattr(Scale, "factor", factor)
        for name, call in calls.items():
            assert call().tolist() == (X * factor).tolist(), name
    assert Other.of_class(X).tolist() == (X * 18).tolist() and Scale.of_class(X).tolist() == (X * 6).tolist()
    one.factor = 5.0
    for name in ("instance", "static self", "partialmethod"):
        assert calls[name]().tolist() == (X * 5).tolist(), name
    assert two.of_instance(X).tolist() == (X * 3).tolist() and two.static_self(X).tolist() == (X * 3).tolist()
    assert one.of_nobody(X).tolist() == (X + 1).tolist()
    assert said(lambda: jit(lambda c, x: x)(one, X), errors.ArgumentError).startswith("<lambda>(): c is a value of type tests.Scale, neither an array")


def test_methods_given_to_a_class_later() -> None:
    class Late:
        factor = 4.0

    Late.method = jit(lambda me, x: x * me.factor)  # type: ignore[attr-defined]
    assert Late().method(X).tolist() == (X * 4).tolist()


def weighted(a: Any, x: Any, n: Any = 2, *, k: Any = 3) -> Any:
    return counted(x, n) * a + k


class Doubling:
    factor = 2.0

    def __call__(self, x: Any, n: Any = 2) -> Any:
        return counted(x, n) * self.factor


def test_partials_and_callables() -> None:
    for made in (functools.partial(weighted, 2.0), functools.partial(weighted, 2.0, k=5), functools.partial(functools.partial(weighted, n=1), 2.0)):
        assert jit(made)(X).tolist() == made(X).tolist()
    assert functools.partial(jit(weighted), 2.0)(X).tolist() == weighted(2.0, X).tolist()
    assert jit(functools.partial(weighted, 2.0))(X, k=7.0).tolist() == weighted(2.0, X, k=7.0).tolist()
    double = Doubling()
    f = jit(double)
    assert f(X).tolist() == double(X).tolist()
    double.factor = 5.0
    assert f(X).tolist() == double(X).tolist() == (X * 20).tolist() and f.compilations == 2


def test_ops_share_a_plan_with_and_without_their_defaults() -> None:
    x = arange(2, 3)
    np.testing.assert_array_equal(ops.softmax(x), ops.softmax(x, axis=-1))
    np.testing.assert_array_equal(ops.layer_norm(x), ops.layer_norm(x, None, None, 1e-5))
