"""A function that raises halfway: its own exception comes out unchanged, and nothing is left of the trace."""

from __future__ import annotations

import contextlib
import gc
import threading
import traceback
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fuelnumba import errors, jit, ops
from fuelnumba.core import dims
from fuelnumba.trace.tensor import current_trace

from .told import raised, told

X = np.arange(6.0).reshape(2, 3)


class Own(Exception):
    pass


class OwnBase(BaseException):
    pass


def clean() -> bool:
    return current_trace() is None and getattr(dims._active, "env", None) is None


@pytest.mark.parametrize("kind", [Own, OwnBase, ValueError, TypeError, IndexError, StopIteration, KeyboardInterrupt, SystemExit,
                                  GeneratorExit, RecursionError, MemoryError])
def test_an_exception_of_the_users_passes_through(kind: type[BaseException]) -> None:
    wanted = kind("the words of the user")
    fail = True

    def f(x):
        y = np.exp(x)
        if fail:
            raise wanted
        return y

    g = jit(f)
    for _ in range(2):
        with pytest.raises(kind) as caught:
            g(X)
        assert caught.value is wanted and caught.value.__cause__ is None
        assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "f"
        assert clean() and g.compilations == 0
    fail = False
    np.testing.assert_allclose(g(X), np.exp(X), rtol=1e-14)


def test_a_cause_of_the_users_is_kept() -> None:
    def f(x):
        try:
            {}["missing"]
        except KeyError as err:
            raise ValueError("wrapped") from err

    with pytest.raises(ValueError, match="wrapped") as caught:
        jit(f)(X)
    assert isinstance(caught.value.__cause__, KeyError)

    def g(x):
        try:
            return x @ x
        except errors.ShapeError as err:
            raise ValueError("a better word") from err

    with pytest.raises(ValueError, match="a better word") as caught:
        jit(g)(X)
    assert type(caught.value) is ValueError and isinstance(caught.value.__cause__, errors.ShapeError)


def test_an_error_of_ours_can_be_caught_inside() -> None:
    @jit
    def f(x):
        try:
            return x @ x
        except errors.ShapeError:
            return x @ x.T

    np.testing.assert_allclose(f(X), X @ X.T)

    @jit
    def g(x):
        try:
            n = int(x[0, 0])
        except TypeError:
            n = 3
        return x * n

    np.testing.assert_allclose(g(X), X * 3)


def test_an_error_caught_inside_does_not_stand_for_another() -> None:
    @jit
    def f(x):
        for words in ("first", "second"):
            with contextlib.suppress(TypeError):
                float(x)
            if words == "second":
                raise ValueError(words)

    with pytest.raises(ValueError, match=r"^second$"):
        f(X)


def test_what_numpy_puts_its_own_words_over() -> None:
    """NumPy replaces the errors that a traced value raises; the user sees ours."""
    assert told(lambda: jit(lambda x: np.concatenate(x))(X), __file__).startswith("TracedIterationError: iteration over Tensor(f64[2, 3])")
    assert told(lambda: jit(lambda n: np.zeros(n))(3), __file__).startswith("TracedConversionError: use as an index or a size")

    def assign(x):
        out = np.zeros(3)
        out[0] = x[0, 0]
        return out

    assert told(lambda: jit(assign)(X), __file__).startswith("TracedConversionError: float() of Tensor(f64[])")


def test_in_a_jitted_function_inside() -> None:
    @jit
    def inner(x):
        raise Own

    @jit
    def outer(x):
        return inner(np.exp(x)) + 1

    with pytest.raises(Own):
        outer(X)
    assert clean()

    @jit
    def careful(x):
        try:
            return inner(x)
        except Own:
            return x + 1

    np.testing.assert_allclose(careful(X), X + 1)


def test_a_generator_left_half_way() -> None:
    def rows(x: Any) -> Iterator[Any]:
        for k in range(2):
            yield x[k] * 2
        raise Own

    @jit
    def first(x):
        return next(rows(x))

    np.testing.assert_allclose(first(X), X[0] * 2)
    gc.collect()
    assert clean()

    @jit
    def both(x):
        return np.stack(list(rows(x)))

    with pytest.raises(Own):
        both(X)
    assert clean()

    kept: list[Iterator[Any]] = []

    @jit
    def lent(x):
        made = rows(x)
        kept.append(made)
        return next(made)

    np.testing.assert_allclose(lent(X), X[0] * 2)
    assert isinstance(raised(lambda: next(kept[0])), errors.LeakedTracerError)


def test_recursion() -> None:
    @jit
    def countdown(x, n=4):
        return x if n == 0 else countdown(x * 2, n - 1)

    np.testing.assert_allclose(countdown(X), X * 16)  # n is left out: a Python int
    with pytest.raises(errors.TracedBoolError):  # n is traced
        countdown(X, 4)
    assert clean()

    @jit(static_argnames="n")
    def static(x, n):
        return x if n == 0 else static(x * 2, n - 1)

    np.testing.assert_allclose(static(X, 4), X * 16)

    @jit
    def endless(x):
        return endless(x + 1)

    with pytest.raises(RecursionError):
        endless(X)
    assert clean()
    np.testing.assert_allclose(static(X, 3), X * 8)


def test_in_threads_at_once() -> None:
    """One thread's trace fails while the others' go on."""
    count, problems = 8, []
    meet = threading.Barrier(count)

    def work(k: int) -> None:
        def f(x):
            y = x * k
            meet.wait(60)
            if k % 2:
                raise Own(k)
            return y + 1

        try:
            g = jit(f)
            for _ in range(3):
                if k % 2:
                    with pytest.raises(Own) as caught:
                        g(X)
                    assert caught.value.args == (k,)
                else:
                    g.clear()
                    np.testing.assert_allclose(g(X), X * k + 1)
                assert clean()
        except BaseException as err:  # handed to the main thread
            problems.append(err)
            meet.abort()

    threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not any(t.is_alive() for t in threads)
    if problems:
        raise problems[0]


def test_a_failed_trace_keeps_nothing_alive() -> None:
    class Big:
        product: Any = None

    made: list[weakref.ref[Any]] = []

    def f(x):
        big = Big()
        made.append(weakref.ref(big))
        big.product = x + np.ones(3)
        raise Own

    g = jit(f)
    with pytest.raises(Own):
        g(X)
    with pytest.raises(TypeError):
        jit(lambda x: (f.__class__, float(x)))(X)
    gc.collect()
    assert made[0]() is None


def test_a_failed_call_leaves_earlier_plans() -> None:
    f = jit(lambda x, w: x @ w)
    np.testing.assert_allclose(f(X, X.T), X @ X.T)
    for _ in range(3):
        assert isinstance(raised(lambda: f(X, X)), errors.ShapeError)
        np.testing.assert_allclose(f(X, X.T), X @ X.T)
    assert f.compilations == 1
    assert f(X[:1], X.T).shape == (1, 2)


def test_an_op_outside_a_trace_after_a_failure() -> None:
    with pytest.raises(Own):
        jit(lambda x: (_ for _ in ()).throw(Own))(X)
    assert ops.relu(np.array([-1.0, 2.0])).tolist() == [0, 2]
