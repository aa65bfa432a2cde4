"""Jitted functions while they run: faults, kernels of one's own, threads; and what a graph cannot hold."""

from __future__ import annotations

import inspect
import itertools
import threading
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

import fuelnumba
from fuelnumba import errors, jit, ops

from .asking import F32, arange, message, said
from .at_once import at_once


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

    at_once(16, work)
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

    at_once(16, work)


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


@pytest.mark.parametrize("result", ["text", 1, 2.5, True, None, (), [], {}, np.float32(3), ("a", 3, [None]), {"n": 1}, np.tanh, 2 + 1j])
def test_results_that_are_no_arrays(result: Any) -> None:
    """Alone as in a container; a container is a new one for each call."""
    f = jit(lambda x: result)
    for _ in range(20):
        got = f(arange(2))
        assert type(got) is type(result) and got == result
    assert f.compilations == 1


def test_results_that_traced_values_hide_in() -> None:
    class Box:
        def __init__(self, value: Any) -> None:
            self.value = value

    for f, where in ((lambda x: {x + 1}, "its result[0]"), (lambda x: Box(x), "its result.value"), (lambda x: lambda: x, "closure x of its result"),
                     (lambda x: [1, {"k": Box([x * 2])}], 'its result[1]["k"].value[0]')):
        assert said(lambda f=f: jit(f)(arange(2)), errors.LeakedTracerError) == (
            f"<lambda>() left Tensor(f32[2]) in {where}\n   = return arrays in lists, tuples, dicts or dataclasses")
    text = said(lambda: jit(lambda x: [1, map(np.exp, [x])])(arange(2)), errors.ArgumentError)
    assert text == "<lambda>() returned a value of type map: its result[1] can be used only once\n   = return a list or a tuple"


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
