"""Symbolic lengths: algebra against integers, comparisons, guards."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fuelnumba.core.dims import (
    Dim,
    Guard,
    SymEnv,
    divide_exact,
    evaluate,
    lower_bound,
    product,
    same,
    same_shape,
    symbols,
    tracing,
)

ENV = SymEnv()
NAMES = ("a", "b", "c")
A, B, C = (ENV.symbol(n, 2 + k) for k, n in enumerate(NAMES))
values = st.fixed_dictionaries({n: st.integers(2, 9) for n in NAMES})
leaves = st.one_of(st.integers(-4, 6), st.sampled_from([A, B, C]))


def _combined(parts: Any) -> Any:
    return st.tuples(st.sampled_from([operator.add, operator.sub, operator.mul]), parts, parts)


trees = st.recursive(leaves, _combined, max_leaves=8)


def build(tree: Any, env: dict[str, int] | None = None) -> Any:
    """The expression as a Dim, or as an int for given symbols."""
    if isinstance(tree, tuple):
        op, a, b = tree
        return op(build(a, env), build(b, env))
    return evaluate(tree, env) if env is not None else tree


@given(trees, values)
def test_algebra(tree: Any, env: dict[str, int]) -> None:
    assert evaluate(build(tree), env) == build(tree, env)


@given(trees, trees, values)
def test_quotients(x: Any, y: Any, env: dict[str, int]) -> None:
    a, b = build(x), build(y)
    va, vb = build(x, env), build(y, env)
    exact = divide_exact(a, b)
    if exact is not None and vb:
        assert evaluate(exact, env) * vb == va
    if vb and not (isinstance(b, int) and b == 0):
        assert evaluate(a // b, env) == va // vb
        assert evaluate(a % b, env) == va % vb


@given(trees, trees)
def test_equal_polynomials_are_equal_and_hash_alike(x: Any, y: Any) -> None:
    a, b = build((operator.mul, x, y)), build((operator.mul, y, x))
    assert same(a, b) and hash(a) == hash(b) and a == b
    assert same(build((operator.sub, x, x)), 0)


@given(trees, values)
def test_lower_bound(tree: Any, env: dict[str, int]) -> None:
    low = lower_bound(build(tree))
    assert low is None or low <= build(tree, env)


@given(trees, trees, values)
def test_comparisons_hold_for_the_hints_and_are_guarded(x: Any, y: Any, env: dict[str, int]) -> None:
    """Decided as integers are for the traced lengths; for others, alike or refused by a guard."""
    trace = SymEnv(dict(env))
    a, b = build(x), build(y)
    with tracing(trace):
        found = (a == b, a != b, a < b, a <= b, a > b, a >= b)
    va, vb = build(x, env), build(y, env)
    assert found == (va == vb, va != vb, va < vb, va <= vb, va > vb, va >= vb)
    assert all(g.check(env) for g in trace.guards)
    for other in ({"a": 2, "b": 2, "c": 2}, {"a": 9, "b": 3, "c": 2}, {"a": 3, "b": 8, "c": 5}):
        if all(g.check(other) for g in trace.guards):
            va, vb = build(x, other), build(y, other)
            assert found == (va == vb, va != vb, va < vb, va <= vb, va > vb, va >= vb)


@pytest.mark.parametrize(("x", "text"), [
    (A + 1, "a + 1"), (2 * A - B, "2*a - 1*b"), (A * B + A * A, "a*a + a*b"), (A // 2, "(a // 2)"), ((A + B) % 3, "((a + b) % 3)"),
    (-A, "-1*a"),
])
def test_text(x: Dim, text: str) -> None:
    assert str(x) == text


@pytest.mark.parametrize(("a", "b", "quotient"), [
    (6, 3, 2), (7, 3, None), (6, 0, None), (A, A, 1), (6 * A, 3, 2 * A), (A * B, A, B), (A * B + A, A, B + 1), (A + 1, A, None),
    (A, 2, None), (0, A, 0), (4 * A, 2 * A, 2), (A, 2 * A, None), (A + B, A + B, 1),
])
def test_exact_division(a: Any, b: Any, quotient: Any) -> None:
    found = divide_exact(a, b)
    assert (found is None) == (quotient is None) and (quotient is None or same(found, quotient))


def test_what_needs_no_guard() -> None:
    trace = SymEnv({"a": 5, "b": 5, "c": 7})
    with tracing(trace):
        assert A != 1 and A != 0 and A > 1 and A >= 2 and A + 1 > A and A * B > 3 and not A < 2 and bool(A)
        assert A + B == B + A and A != A + 1 and 2 * A != A
    assert trace.guards == []
    with tracing(trace):
        assert A == B and B == A and A < C and A != 6
        assert int(A) == 5 and list(range(A)) == [0, 1, 2, 3, 4]
    assert [str(g) for g in trace.guards] == ["a == b", "a < c", "a != 6", "a == 5"]
    assert not Guard("==", A, B, True).check({"a": 2, "b": 3})


def test_outside_a_trace() -> None:
    assert (A == B) is False and A == A + 0
    with pytest.raises(TypeError, match="symbolic length a used as an int outside a trace"):
        int(A)
    with pytest.raises(TypeError, match="cannot order a and b outside a trace"):
        _ = A < B
    with pytest.raises(ZeroDivisionError):
        _ = A // 0
    assert A.__add__("x") is NotImplemented and (A == "x") is False


def test_helpers() -> None:
    assert same(product([A, 2, B]), 2 * A * B) and product([]) == 1
    assert same_shape((A, 2), [A, 2]) and not same_shape((A, 2), (A,)) and not same_shape((A,), (B,))
    assert symbols(A * 2 + B // C) == {"a", "b", "c"} and symbols(3) == set()
    assert same(A ** 2, A * A) and A ** 0 == 1


# --------------------------------------------------------------------------------------- with // and % inside expressions
HINTS = {"n": 6, "m": 4, "k": 6}
OPS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod}
lengths = st.fixed_dictionaries({name: st.integers(2, 40) for name in HINTS})
formulas = st.recursive(st.one_of(st.sampled_from(sorted(HINTS)), st.integers(-5, 12)),
                        lambda t: st.tuples(st.sampled_from(sorted(OPS)), t, t), max_leaves=7)
COMPARE = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


def made() -> tuple[SymEnv, Dim, Dim, Dim]:
    env = SymEnv()
    return env, *(env.symbol(name, hint) for name, hint in HINTS.items())


def run(formula: Any, names: Any) -> Any:
    """A formula's value where `names` says what the symbols are: Dims or ints."""
    if isinstance(formula, tuple):
        return OPS[formula[0]](run(formula[1], names), run(formula[2], names))
    return names[formula] if isinstance(formula, str) else formula


def run_both(formula: Any, *calls: dict[str, int]) -> tuple[Any, list[int]]:
    """As a Dim, and on ints for each call. Gives up where the program would divide by zero anyway."""
    try:
        return run(formula, dict(zip(HINTS, made()[1:]))), [run(formula, c) for c in calls]
    except ZeroDivisionError:
        assume(False)
        raise


@given(formulas, lengths)
def test_formulas_and_their_text_are_python(formula: Any, at: dict[str, int]) -> None:
    x, (expected,) = run_both(formula, at)
    assert isinstance(x, Dim) or type(x) is int
    assert evaluate(x, at) == expected
    assert eval(repr(x), dict(at)) == expected
    assert set(compile(repr(x), "", "eval").co_names) == symbols(x)
    low = lower_bound(x)
    assert low is None or low <= expected


@given(formulas, formulas, st.sampled_from(COMPARE), st.lists(lengths, min_size=1, max_size=8))
def test_a_decision_holds_wherever_its_guards_do(
        a: Any, b: Any, compare: Callable[..., bool], calls: list[dict[str, int]]) -> None:
    (x, xs), (y, ys) = run_both(a, HINTS, *calls), run_both(b, HINTS, *calls)
    env = SymEnv(dict(HINTS))
    with tracing(env):
        decided = compare(x, y)
    assert decided is compare(xs[0], ys[0])
    assert all(g.check(HINTS) for g in env.guards)
    for at, va, vb in zip(calls, xs[1:], ys[1:]):
        if all(g.check(at) for g in env.guards):
            assert compare(va, vb) is decided


@pytest.mark.parametrize(("text", "make"), [
    ("((n + 1) // 3)", lambda n, m: (n + 1) // 3), ("(n // (2*m))", lambda n, m: n // (2 * m)),
    ("(2*n // m)", lambda n, m: 2 * n // m), ("(n % (m + 1))", lambda n, m: n % (m + 1)),
    ("4*(n // 3)", lambda n, m: n // 3 * 4), ("((n // 3) // 5)", lambda n, m: n // 3 // 5),
    ("(7 // n)", lambda n, m: 7 // n), ("n*n", lambda n, m: n ** 2), ("n - 3", lambda n, m: n - 3)])
def test_text_of_divisions(text: str, make: Callable[[Any, Any], Any]) -> None:
    _, n, m, _ = made()
    assert repr(make(n, m)) == str(make(n, m)) == text


def test_opaque_divisions() -> None:
    _, n, m, _ = made()
    assert same(n // 3, n // 3) and hash(n // 3) == hash(n // 3)
    assert not same(n // 3, m // 3) and not same(n // 3, n % 3)
    assert same(n // 3 + n // 3, 2 * (n // 3)) and same((n // 3) * m // (n // 3), m)
    assert evaluate(n // 3 * 3 + n % 3, {"n": 17}) == 17
    assert (evaluate(7 // n, {"n": 3}), evaluate(7 % n, {"n": 3})) == (2, 1)
    assert evaluate(-n // 4, {"n": 6}) == -2  # floors, as Python does
    assert symbols((n + 1) // m) == {"n", "m"}


def test_what_divisions_cannot_fall_below() -> None:
    env, n, m, _ = made()
    bounds = [lower_bound(x) for x in (n // 4, (n + 6) // 4, n // m, n % m, 3 * (n // 2) + 1, n * n, n - 1, n - m)]
    assert bounds == [0, 2, 0, 0, 4, 4, 1, None]
    with tracing(env):
        assert n % 5 >= 0 and (n + 1) // 2 >= 1 and n // m >= 0 and n // 3 + 1 > 0
    assert env.guards == []
    # these may be negative
    assert [lower_bound(x) for x in ((n - 5) // 2, n % (m - 9), n // (m - 9))] == [None] * 3
    with tracing(env):
        assert (n - 5) // 2 + 1 > 0  # 1 here, -1 for n = 2
    (guard,) = env.guards
    assert guard.check({"n": 6}) and not guard.check({"n": 2})


def test_guards() -> None:
    _, n, m, _ = made()
    at, alike = {"n": 6, "m": 4}, {"n": 4, "m": 4}
    assert Guard("==", n, 6, True).check(at) and not Guard("==", n, 6, False).check(at)
    assert Guard("==", n, m, False).check(at) and not Guard("==", n, m, False).check(alike)
    assert Guard("<", m, n, True).check(at) and not Guard("<", m, n, True).check(alike)
    assert Guard("<", n, m, False).check(alike) and not Guard("<", m, n, False).check(at)
    assert Guard("==", n % 2, 0, True).check(at)
    assert [str(Guard(op, n, m, holds)) for op in ("==", "<") for holds in (True, False)] == [
        "n == m", "n != m", "n < m", "n >= m"]


def test_equal_by_hints_is_not_the_same() -> None:
    env, n, _, k = made()
    with tracing(env):
        assert not same(n, k) and not same(n, 6) and not same(6, n) and not same_shape((n,), (k,))
    assert env.guards == []


def test_traces_nest_and_end() -> None:
    outer, n, _, _ = made()
    inner = SymEnv(dict(HINTS, n=9))
    with tracing(outer):
        with tracing(inner):
            assert int(n) == 9
        assert int(n) == 6
        with pytest.raises(KeyError), tracing(inner):
            raise KeyError
        assert int(n) == 6
    assert [str(g) for g in inner.guards] == ["n == 9"]
    with pytest.raises(TypeError, match="outside a trace"):
        int(n)


# --------------------------------------------------------------------------------------- lengths beside other numbers
@pytest.mark.parametrize("make", [
    lambda n: [*range(20)][n], lambda n: list(range(n)), int, float, lambda n: [0] * n, lambda n: n / 4, lambda n: 1 / n,
    lambda n: n * 0.5, lambda n: 0.5 * n, lambda n: n + 0.5, lambda n: n - 0.5, lambda n: 0.5 - n, lambda n: n // 4.0,
    lambda n: 20.0 // n, lambda n: n % 4.0, lambda n: 20.0 % n, lambda n: n < 6.5, lambda n: n >= 6.5, lambda n: operator.le(6.5, n),
    lambda n: n == 6.0, lambda n: n != 6.0, lambda n: n ** 5, lambda n: n ** -1, lambda n: n ** 0.5, lambda n: 2 ** n, np.sqrt,
    lambda n: np.float32(0.5) * n, lambda n: n * np.float32(0.5), lambda n: (np.arange(3) * n).tolist(),
    lambda n: (n * np.arange(3)).tolist(), lambda n: np.maximum(n, 9)])
def test_what_has_no_polynomial_pins_the_length(make: Callable[[Any], Any]) -> None:
    env, n, _, _ = made()
    with tracing(env):
        value = make(n)
    assert type(value) is type(make(6)) and value == make(6)
    assert [str(g) for g in env.guards] == ["n == 6"]


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8, np.uint64, bool])
def test_integers_of_any_type_stay_symbolic(kind: type) -> None:
    _, n, _, _ = made()
    one = kind(1)
    for x, expected in [(n + one, n + 1), (one + n, n + 1), (n - one, n - 1), (one - n, 1 - n), (n * one, n), (one * n, n),
                        (n // one, n), (n % one, 0), (one // n, 1 // n)]:
        assert same(x, expected)
    assert n != one and one != n and n > one and one < n


def test_what_is_no_number() -> None:
    env, n, _, _ = made()
    with tracing(env):
        for other in ("x", None, [1]):
            assert n != other
            for fn in (operator.add, operator.sub, operator.floordiv, operator.mod, operator.truediv, operator.lt):
                with pytest.raises(TypeError):
                    fn(n, other)
    assert env.guards == []
