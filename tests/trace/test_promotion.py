"""Which dtype operands meet in, with NumPy as the oracle."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuelnumba.core import dtypes as dt
from fuelnumba.core.errors import ArgumentError, DTypeError, PromotionError
from fuelnumba.trace.namespace import namespace

from .tracing import run, trace

ops = namespace()

SHARED = [d for d in dt.COMPUTABLE if d is not dt.bf16]  # those NumPy has
BINARY = ["add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "maximum",
          "minimum", "copysign",
          "equal", "less", "greater_equal", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift",
          "right_shift",
          "logical_and", "logical_xor"]
UNARY = ["negative", "absolute", "sign", "square", "sqrt", "exp", "expm1", "log", "log2", "log10", "log1p",
         "sin", "cos",
         "tan", "tanh", "floor", "ceil", "trunc", "rint", "isnan", "isinf", "isfinite", "logical_not",
         "invert",
         "reciprocal", "positive", "deg2rad", "conjugate", "fabs", "signbit"]


def one(dtype: dt.DType) -> np.ndarray[Any, Any]:
    return np.ones(3, dtype.numpy)


def result_dtype(fn: Callable[..., Any], *args: Any) -> np.dtype[Any]:
    _, out = trace(fn, args)
    return out.dtype


@pytest.mark.parametrize("name", BINARY)
def test_two_arrays_meet_as_in_numpy(name: str) -> None:
    ufunc = getattr(np, name)
    for a, b in itertools.product(SHARED, SHARED):
        try:
            expected = ufunc(one(a), one(b)).dtype
        except TypeError:
            with pytest.raises((DTypeError, PromotionError)):
                result_dtype(ufunc, one(a), one(b))
            continue
        if a is b is dt.bool_ and name in NOT_FOR_BOOL:
            with pytest.raises(DTypeError, match="is not defined for bool"):
                result_dtype(ufunc, one(a), one(b))
            continue
        assert result_dtype(ufunc, one(a), one(b)) == expected, (a, b)


# NumPy computes these of two booleans in int8; here they want a cast that says so.
NOT_FOR_BOOL = {"floor_divide", "remainder", "power", "left_shift", "right_shift"}
# (ufunc, kind of dtype) where we differ on purpose: 1/x of integers is a float, x*x of booleans a boolean.
DIFFERENT = {("reciprocal", "b"), ("reciprocal", "i"), ("reciprocal", "u"), ("square", "b"),
             ("conjugate", "b")}


@pytest.mark.parametrize("name", UNARY)
def test_one_array_becomes_what_numpy_makes_of_it(name: str) -> None:
    ufunc = getattr(np, name)
    for d in SHARED:
        if (name, d.kind) in DIFFERENT:
            continue
        try:
            expected = ufunc(one(d)).dtype
        except TypeError:
            with pytest.raises(DTypeError):
                result_dtype(ufunc, one(d))
            continue
        assert result_dtype(ufunc, one(d)) == expected, d


@pytest.mark.parametrize("name", ["add", "multiply", "divide", "power", "maximum", "copysign", "less",
                                  "floor_divide"])
@pytest.mark.parametrize("scalar", [True, 2, 2.5])
def test_python_scalars_are_weak(name: str, scalar: Any) -> None:
    ufunc = getattr(np, name)
    for d in SHARED:
        if d is dt.bool_ and scalar is True:
            continue
        expected = ufunc(one(d), scalar).dtype
        assert result_dtype(lambda x: ufunc(x, scalar), one(d)) == expected, (d, "written")
        assert result_dtype(ufunc, one(d), scalar) == expected, (d, "traced")
        expected = ufunc(scalar, one(d)).dtype
        assert result_dtype(lambda x: ufunc(scalar, x), one(d)) == expected, (d, "reflected")


def test_numpy_scalars_are_strong() -> None:
    x = np.ones(3, np.float32)
    assert result_dtype(lambda x: x * np.float64(2), x) == np.float64
    assert result_dtype(lambda x: x * np.float16(2), x) == np.float32
    assert result_dtype(lambda x: np.int64(2) + x, x) == np.float64
    assert result_dtype(lambda x: x * np.array(2.0), x) == np.float64


def test_bfloat16_behaves_as_float16_does() -> None:
    x = np.ones(3, ml_dtypes.bfloat16)
    assert result_dtype(lambda x: x * 2.0 + 1, x) == x.dtype
    assert result_dtype(np.exp, x) == x.dtype
    assert result_dtype(lambda x: x + np.float32(1), x) == np.float32
    assert result_dtype(lambda x: x + np.ones(3, np.int8), x) == x.dtype
    assert result_dtype(lambda x: x + np.ones(3, np.int16), x) == np.float32
    assert result_dtype(lambda x: x + np.ones(3, np.float16), x) == np.float32
    assert result_dtype(lambda x: x.mean(), x) == x.dtype
    assert result_dtype(lambda x: x.std(), x) == x.dtype


def test_eight_bit_floats_are_for_storage() -> None:
    x = np.ones(3, ml_dtypes.float8_e4m3fn)
    assert result_dtype(lambda x: x.astype(np.float32) * 2, x) == np.float32
    assert result_dtype(lambda x: x.reshape(3, 1)[::-1].T, x) == x.dtype
    assert result_dtype(lambda x: np.concatenate([x, x]), x) == x.dtype
    assert result_dtype(lambda x: np.take(x, [0, 1]), x) == x.dtype
    for fn in (lambda x: x + x, lambda x: x * 2.0, np.exp, lambda x: x.sum(), lambda x: x > 0):
        with pytest.raises(DTypeError, match="f8e4m3, which is for storage only"):
            trace(fn, [x])


REDUCE = ["sum", "prod", "mean", "max", "min", "any", "all", "argmax", "argmin", "var", "std"]


@pytest.mark.parametrize("name", REDUCE)
def test_reductions(name: str) -> None:
    for d in SHARED:
        expected = getattr(np, name)(one(d)).dtype
        if name in ("sum", "prod") and d.kind == "u":
            expected = np.dtype(np.int64)  # NumPy: uint64, which is no dtype of ours
        assert result_dtype(getattr(np, name), one(d)) == expected, d
        assert result_dtype(lambda x: getattr(x, name)(), one(d)) == expected, d


@pytest.mark.parametrize(("dtype", "value"),
                         [(np.uint8, 256), (np.uint8, -1), (np.int8, 128), (np.int32, 2**31),
                                              (np.uint32, -1), (np.int64, 2**63)])
def test_a_python_int_must_fit(dtype: Any, value: int) -> None:
    x = np.ones(3, dtype)
    with pytest.raises(OverflowError):
        x + value
    with pytest.raises(ArgumentError, match=f"the Python int {value} does not fit"):
        trace(lambda x: x + value, [x])


@pytest.mark.parametrize("fn", [
    lambda x: np.full_like(x, 300), lambda x: np.full(2, -1, np.uint8, like=x), lambda x: np.where(x > 1, x, 300),
    lambda x: np.pad(x, 1, constant_values=256),
    lambda x: ops["full"](300, 2, "u8"), lambda x: ops["clamp"](x, 300, None), lambda x: np.full_like(x, np.int64(300)),
])
def test_a_written_int_must_fit_where_it_fills(fn: Callable[..., Any]) -> None:
    with pytest.raises(ArgumentError, match=r"the Python int (300|256|-1) does not fit u8"):
        trace(fn, [np.ones(3, np.uint8)])


@pytest.mark.parametrize(("value", "there"), [(2.7, 2), (-2.7, 0), (float("nan"), 0), (1e30, 255), (float("-inf"), 0),
                                              (np.float16(3.5), 3), (ml_dtypes.bfloat16(2.5), 2)])
def test_written_floats_become_integers_as_casts_have_it(value: Any, there: int) -> None:
    x = np.ones(2, np.uint8)
    assert run(lambda x: np.full_like(x, value), x).tolist() == [there] * 2


@pytest.mark.parametrize("value", [1j, np.complex64(1), "a", None, [1, 2]])
def test_arrays_are_filled_with_numbers(value: Any) -> None:
    with pytest.raises(ArgumentError, match=r"full\(\): the value cannot be"):
        trace(lambda x: ops["full"](value, 2, "u8"), [np.ones(3)])


@pytest.mark.parametrize("bounds", [(-1, 300), (2, 2**70), (-np.inf, 7.0), (None, 2.0)])
def test_clamp_of_integers(bounds: tuple[Any, Any]) -> None:
    x = np.array([0, 5, 255], np.uint8)
    assert run(lambda x: ops["clamp"](x, *bounds), x).tolist() == np.clip(x, *bounds).tolist()


@pytest.mark.parametrize("bounds", [(0.5, None), (None, float("nan")), (float("inf"), None)])
def test_clamp_of_integers_takes_whole_bounds(bounds: tuple[Any, Any]) -> None:
    with pytest.raises(ArgumentError, match="bound"):
        trace(lambda x: ops["clamp"](x, *bounds), [np.ones(2, np.uint8)])


@pytest.mark.parametrize("value", [2**63, -2**63 - 1, 2**100, 300])
@pytest.mark.parametrize("compare", [np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal])
def test_comparisons_take_ints_of_any_size(compare: Any, value: int) -> None:
    big = np.array([2**63 - 1, -2**63])
    assert run(lambda x: compare(x, value), big).tolist() == compare(big, value).tolist()
    assert run(lambda x: compare(value, x), big).tolist() == compare(value, big).tolist()


def test_comparisons_take_ints_that_do_not_fit() -> None:
    x = np.array([0, 255], np.uint8)
    assert run(lambda x: x < 300, x).tolist() == [True, True]
    assert run(lambda x: x > -1, x).tolist() == [True, True]
    assert run(lambda x: x == 256, x).tolist() == [False, False]


def test_floats_of_any_size_fit_floats() -> None:
    x = np.ones(2, np.float16)
    with np.errstate(over="ignore"):
        assert run(lambda x: x * 1e30, x).dtype == np.float16
    assert run(lambda x: x * 2**40, np.ones(2, np.float32)).tolist() == [2.0**40] * 2


def test_only_weak_operands_stay_weak() -> None:
    def f(x: Any, n: Any, s: Any) -> Any:
        scale = (n + 1) * s / 2
        assert (scale.weak, n.weak, (n > 1).weak, (n / 2).weak) == ("f", "i", "b", "f")
        return x * scale + n

    x = np.arange(3, dtype=np.float32)
    out = run(f, x, 3, 0.5)
    assert out.dtype == np.float32
    assert out.tolist() == [3.0, 4.0, 5.0]


def test_where_of_numbers_is_strong_as_in_numpy() -> None:
    x = np.arange(3, dtype=np.float32)
    assert result_dtype(lambda x: np.where(x > 1, 1.0, 0.0), x) == np.float64
    assert result_dtype(lambda x: np.where(x > 1, x, 0.0), x) == np.float32
    assert result_dtype(lambda x: np.where(x, x, 0.0), x) == np.float32


def test_mixed_integers_and_floats_as_in_the_table() -> None:
    for a, b in itertools.product(SHARED, SHARED):
        assert dt.promote(a, b).numpy == np.promote_types(a.numpy, b.numpy)


def test_index_operands_do_not_promote() -> None:
    x = np.arange(5, dtype=np.float32)
    assert result_dtype(lambda x, i: np.take(x, i), x, np.array([1], np.uint8)) == np.float32
    with pytest.raises(DTypeError, match=r"take\(\): indices must be integers, not f32"):
        trace(lambda x: np.take(x, x), [x])


def test_casts_are_visible_nodes() -> None:
    graph, _ = trace(lambda x, y: x + y, [np.ones(3, np.float32), np.ones(3, np.float64)])
    assert [n.op.name for n in graph.nodes()] == ["input", "cast", "input", "add"]


def test_written_scalars_are_made_in_the_target_dtype() -> None:
    graph, _ = trace(lambda x: x * 0.1, [np.ones(3, np.float32)])
    assert [repr(n.attr("value")) for n in graph.nodes() if n.op.name == "full"] == ["0.1"]
    graph, _ = trace(lambda x: x * 0.1, [np.ones(3, np.float16)])
    assert [n.attr("value") for n in graph.nodes() if n.op.name == "full"] == [float(np.float16(0.1))]
