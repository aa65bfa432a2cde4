"""`Tensor`: operators, indexing, methods, captured arrays, and the graph they leave behind."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuelnumba.core import ir
from fuelnumba.core.errors import (
    ArgumentError,
    DTypeError,
    FuelIndexError,
    InputArrayError,
    TracedConversionError,
)
from fuelnumba.trace.tensor import Tensor, Trace, current_trace, tracing_into

from .tracing import check, run, trace

F32 = np.linspace(-2, 3, 24, dtype=np.float32).reshape(2, 3, 4)
I32 = (np.arange(24, dtype=np.int32) * 7 % 11 + 1).reshape(2, 3, 4)
BOOL = I32 > 5

ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
              operator.pow,
              operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
BITS = [operator.and_, operator.or_, operator.xor]
SHIFTS = [operator.lshift, operator.rshift]
UNARY = [operator.neg, operator.pos, operator.abs]


def ops_of(graph: ir.Graph) -> list[str]:
    return [n.op.name for n in graph.nodes() if n.op.kind != "leaf"]


# ---------------------------------------------------------------------------------------- operators
@pytest.mark.parametrize("op", ARITHMETIC)
def test_binary_operators(op: Callable[..., Any]) -> None:
    positive = np.abs(F32) + 1
    for x in (positive, positive.astype(np.float64), I32):
        check(op, x, x[::-1].copy())
        check(lambda x: op(x, 2), x)
        check(lambda x: op(3, x), x)
        check(lambda x: op(x, 2.5), x)
        check(lambda x: op(1.5, x), x)
        check(lambda x, y=x[0]: op(x, y), x)  # a captured array on the right
        check(lambda x, y=x[0]: op(y, x), x)  # ... and on the left
        check(lambda x: op(np.float32(2), x), x)
        check(lambda x: op(x, [1, 2, 3, 4]), x)


@pytest.mark.parametrize("op", BITS)
def test_bit_operators(op: Callable[..., Any]) -> None:
    for x in (I32, BOOL):
        check(op, x, x[::-1].copy())
        check(lambda x: op(x, True), x)
        check(lambda x: op(True, x), x)
    check(operator.invert, I32)
    check(operator.invert, BOOL)


@pytest.mark.parametrize("op", SHIFTS)
def test_shifts(op: Callable[..., Any]) -> None:
    check(lambda x: op(x, 2), I32)
    check(lambda x: op(1, x), I32)
    check(op, I32, I32[::-1].copy())


@pytest.mark.parametrize("op", UNARY)
def test_unary_operators(op: Callable[..., Any]) -> None:
    check(op, F32)
    check(op, I32)


@pytest.mark.parametrize(("power", "expected"),
                         [(2, ["square"]), (3, ["powi"]), (8, ["powi"]), (9, ["power"]),
                                                 (0.5, ["sqrt"]), (1.5, ["power"]), (-1, ["power"])])
def test_powers(power: Any, expected: list[str]) -> None:
    x = np.abs(F32) + 1
    check(lambda x: x**power, x)
    assert ops_of(trace(lambda x: x**power, [x])[0]) == expected
    check(lambda x: np.power(x, power), x)


def test_powers_of_integers_and_booleans() -> None:
    check(lambda x: x**2 + x**3, I32)
    check(lambda x: x**0.5, I32)
    assert run(lambda x: x**2, BOOL).dtype == np.int64  # NumPy: int8
    with pytest.raises(ArgumentError, match="integers have no negative powers"):
        trace(lambda x: x**-1, [I32])


def test_augmented_assignment_rebinds() -> None:
    def f(x: Any) -> Any:
        y = x
        y += 1
        y *= 2
        y @= np.ones((4, 4), np.float32)
        return x, y

    x, y = run(f, F32)
    np.testing.assert_array_equal(x, F32)
    np.testing.assert_allclose(y, (F32 + 1) * 2 @ np.ones((4, 4), np.float32), rtol=1e-6)


def test_objects_that_know_arrays_get_their_turn() -> None:
    class Knows:
        __array_ufunc__ = None

        def __radd__(self, other: Any) -> str:
            return "radd"

    def f(x: Any) -> Any:
        assert x + Knows() == "radd"
        return x

    run(f, F32)


# ---------------------------------------------------------------------------------------- indexing
INDEX: list[Any] = [
    0, -1, (1, 2), (1, -1, 3), np.int64(1), slice(None), slice(1, None), slice(None, -1), slice(-2, None),
    slice(5, 9),
    slice(0, 0), slice(None, None, 2), slice(None, None, -1), slice(2, 0, -1), slice(-1, None, -2),
    slice(10, None, -3),
    slice(1, 3, 5), (slice(None), slice(1, None), slice(None, None, -2)), ..., (..., 0), (0, ...),
    (0, ..., 1),
    None, (None, 0), (..., None), (0, None, slice(1, 2)), (slice(None), None, 1),
    (slice(None), slice(None), slice(3, 0, -1)),
    [0, 1, 1], (slice(None), [2, 0]), np.array([[1], [0]]), (..., np.array([3, -1])), (0, [1, 2]),
    ([1, 0], 2),
    (0, slice(None), [1, 2, 0]), ([1, 0], slice(None), 2), (slice(None), 1, np.array([[0, 1]])),
    (1, ..., np.array([2, 2])),
    (None, [0, 1]), (slice(None, None, -1), [0, 2], slice(1, 3)), np.array(1), (slice(None), np.array(2)),
    [], (0, 1, [3]),
    (0, None, [1, 2]),
]


@pytest.mark.parametrize("key", INDEX, ids=repr)
def test_indexing(key: Any) -> None:
    check(lambda x: x[key], F32)
    check(lambda x: x[key], I32)


def test_indexing_by_traced_values() -> None:
    check(lambda x, i: x[i], F32, np.array([1, 0, -1]))
    check(lambda x, i: x[:, i], F32, np.array([[1], [2]], np.int32))
    check(lambda x, i: x[0, :, i], F32, np.array([1, 2], np.uint8))
    graph, out = trace(lambda x, i: x[:, i], [F32, 2])
    assert (ops_of(graph), out.shape) == (["take"], (2, 4))


def test_a_full_slice_is_no_node() -> None:
    graph, _ = trace(lambda x: x[:, 0:, :4][...], [F32])
    assert ops_of(graph) == []


@pytest.mark.parametrize(("key", "error", "message"), [
    (2, FuelIndexError, "index 2 is out of range for axis 0 of length 2"),
    ((0, -4), FuelIndexError, "index -4 is out of range for axis 1 of length 3"),
    ((0, 0, 0, 0), FuelIndexError, "4 indices for Tensor(f32[2, 3, 4]) of rank 3"),
    ((..., ...), FuelIndexError, "an index may have only one ellipsis (...)"),
    (slice(None, None, 0), FuelIndexError, "a slice step must be a static int other than 0, not 0"),
    (True, DTypeError,
     "a boolean mask cannot index Tensor(f32[2, 3, 4]): how many elements it selects is not known while "
     "tracing"),
    (BOOL, DTypeError,
     "a boolean mask cannot index Tensor(f32[2, 3, 4]): how many elements it selects is not known while "
     "tracing"),
    ([0.5], DTypeError, "an index must be integers, not f64"),
    ("a", ArgumentError, "'a' cannot be an index"),
    (1.0, DTypeError, "an index must be integers, not 1.0"),
    (slice("a", None), ArgumentError, "a slice bound must be an integer or None, not 'a'"),
    (([0], [1]), ArgumentError, "only one array may index at a time"),
])
def test_wrong_indices(key: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        trace(lambda x: x[key], [F32])
    assert caught.value.what == message  # type: ignore[attr-defined]
    assert caught.value.where.file == __file__  # type: ignore[attr-defined]


def test_traced_masks_and_bounds() -> None:
    with pytest.raises(DTypeError, match="a boolean mask"):
        trace(lambda x: x[x > 0], [F32])
    with pytest.raises(TracedConversionError, match=r"a slice bound is Tensor\(i64\[\], weak\)"):
        trace(lambda x, n: x[:n], [F32, 2])


# ---------------------------------------------------------------------------------------- methods
@pytest.mark.parametrize("fn", [
    lambda x: x.sum(), lambda x: x.sum(0), lambda x: x.sum(axis=(0, 1), keepdims=True), lambda x: x.mean(-1),
    lambda x: x.max(),
    lambda x: x.min(axis=1), lambda x: x.prod(axis=2), lambda x: (x > 0).any(), lambda x: (x > 0).all(axis=0),
    lambda x: x.argmax(), lambda x: x.argmin(axis=1), lambda x: x.std(axis=0), lambda x: x.var(),
    lambda x: x.astype(np.int32),
    lambda x: x.astype("float64"), lambda x: x.astype(float, copy=False), lambda x: x.astype(bool),
    lambda x: x.conj(),
    lambda x: x.dot(np.ones(4, np.float32)), lambda x: x.real, lambda x: x.flatten(), lambda x: x.ravel(),
])
def test_methods(fn: Callable[..., Any]) -> None:
    check(fn, F32)


def test_properties() -> None:
    def f(x: Any) -> Any:
        assert isinstance(x, Tensor)
        assert repr(x) == str(x) == f"{x}" == "Tensor(f32[2, 3, 4])"
        assert x.dtype == np.float32
        assert {x: 1}[x] == 1
        assert len(x) == 2
        assert x.T.shape == (4, 3, 2)
        return x

    run(f, F32)


# ---------------------------------------------------------------------------------------- captured arrays
def test_an_array_from_outside_is_one_live_constant() -> None:
    table, seen = np.arange(4, dtype=np.float32), []
    t = Trace(on_capture=seen.append)
    graph, _ = trace(lambda x: (x * table + table) ** table, [F32], trace=t)
    constants = [n for n in graph.nodes() if n.op is ir.CONSTANT]
    assert len(constants) == 1
    assert constants[0].attr("captured").array is table
    assert [a is table for a in seen] == [True]


def test_zero_dimensional_arrays_are_live_but_numpy_scalars_are_written_down() -> None:
    array = np.array(2.0, np.float32)
    graph, _ = trace(lambda x: x * array + np.float32(3), [F32])
    assert sorted(n.op.name for n in graph.nodes() if n.op.kind == "leaf") == ["constant", "full", "input"]


@pytest.mark.parametrize(("array", "message"), [
    (np.zeros(4, ">f4"), "add(): y: an array of dtype >f4 is not in this machine's byte order"),
    (np.array([None, 1]), "add(): y: an array of Python objects cannot be traced"),
    (np.ma.masked_array([1.0, 2.0], [True, False]), "add(): y: a masked array cannot be traced"),
])
def test_arrays_that_cannot_be_captured(array: Any, message: str) -> None:
    with pytest.raises(InputArrayError) as caught:
        trace(lambda x: x + array if type(array) is np.ndarray else np.exp(x).__add__(array), [F32])
    assert caught.value.what == message


def test_captured_dtypes_that_are_not_ours() -> None:
    with pytest.raises(DTypeError, match=r"add\(\): y: an array of complex64 is not supported"):
        trace(lambda x: x + np.zeros(4, np.complex64), [F32])


# ---------------------------------------------------------------------------------------- the graph
def test_equal_computations_are_one_node() -> None:
    graph, _ = trace(lambda x: np.exp(x) + np.exp(x), [F32])
    assert ops_of(graph) == ["exp", "add"]


def test_broadcasting_is_visible() -> None:
    graph, _ = trace(lambda x: x + x[0] * 2, [F32])
    assert ops_of(graph) == ["slice", "squeeze", "multiply", "broadcast_to", "add"]


def test_nodes_remember_the_users_line() -> None:
    def f(x: Any) -> Any:
        return np.tanh(x)

    graph, _ = trace(f, [F32])
    where = graph.outputs[0].where
    assert where is not None
    assert where.file == __file__
    assert where.text().strip() == "return np.tanh(x)"


def test_traces_nest_and_belong_to_their_thread() -> None:
    outer, inner = Trace(name="outer"), Trace(name="inner")
    seen: list[Any] = []
    assert current_trace() is None
    with tracing_into(outer):
        with tracing_into(inner):
            assert current_trace() is inner
        assert current_trace() is outer
        thread = threading.Thread(target=lambda: seen.append(current_trace()))
        thread.start()
        thread.join()
        assert outer.active
        assert not inner.active
    assert seen == [None]
    assert not outer.active


def test_a_traced_value_of_the_outer_trace_can_be_used_inside() -> None:
    outer, inner = Trace(), Trace()
    with tracing_into(outer):
        x = outer.wrap(ir.input_node("x", (3,), trace(lambda x: x, [F32])[1].node.dtype))
        with tracing_into(inner):
            assert (x + 1).origin is inner
