"""Every op of the table, called on arrays, against NumPy, SciPy and ml_dtypes in float64.

Elementwise ops are checked on each dtype over values at which implementations differ (`edges`), and on one dtype in every
layout: how an operand is walked does not depend on the op. A table per kind of op; the last test checks that none is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.special

import fuelnumba
from fuelnumba.core.ops import OPS
from fuelnumba.trace.interpret import rounded

from .values import (
    ALL,
    EIGHT_BIT,
    FLOATS,
    INTS,
    LAYOUTS,
    NUMPY,
    agree,
    arranged,
    binary,
    edges,
    repro,
    same_signs,
    sample,
    unary,
)

Array = np.ndarray[Any, Any]
ops = fuelnumba.ops
NUMBERS = FLOATS + INTS
ANY = (*NUMBERS, "bool")

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, for infinities and NaN


def wide(x: Array) -> Array:
    """Floats in float64; integers and booleans as they are."""
    return x if x.dtype.kind in "iub" else x.astype(np.float64)


def int_or(of_float: Callable[[Array], Array], of_int: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: of_float(x) if x.dtype.kind == "f" else of_int(x)


def same(x: Array) -> Array:
    return x


def gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


#        op           reference                                      dtypes  tolerances by dtype
UNARY: dict[str, tuple[Callable[[Array], Array], tuple[str, ...], dict[str, dict[str, float]]]] = {
    "negative": (np.negative, NUMBERS, {}),
    "absolute": (np.absolute, ANY, {}),
    "sign": (np.sign, NUMBERS, {}),
    "sqrt": (np.sqrt, FLOATS, {}),
    "exp": (np.exp, FLOATS, {}),
    "exp2": (np.exp2, FLOATS, {}),
    "expm1": (np.expm1, FLOATS, {}),
    "log": (np.log, FLOATS, {}),
    "log2": (np.log2, FLOATS, {}),
    "log10": (np.log10, FLOATS, {}),
    "log1p": (np.log1p, FLOATS, {}),
    "sin": (np.sin, FLOATS, {}),
    "cos": (np.cos, FLOATS, {}),
    "tan": (np.tan, FLOATS, {}),
    "tanh": (np.tanh, FLOATS, {}),
    "sigmoid": (scipy.special.expit, FLOATS, {}),
    "erf": (scipy.special.erf, FLOATS, {}),
    "erfc": (scipy.special.erfc, FLOATS, {}),
    "floor": (int_or(np.floor, same), ANY, {}),
    "ceil": (int_or(np.ceil, same), ANY, {}),
    "trunc": (int_or(np.trunc, same), ANY, {}),
    "round": (int_or(np.rint, same), ANY, {}),
    "bitwise_not": (np.invert, (*INTS, "bool"), {}),
    "isnan": (np.isnan, ANY, {}),
    "isinf": (np.isinf, ANY, {}),
    "isfinite": (np.isfinite, ANY, {}),
    "logical_not": (np.logical_not, ANY, {}),
    "square": (lambda x: x & x if x.dtype.kind == "b" else x * x, ANY, {}),
    "reciprocal": (lambda x: 1 / x, FLOATS, {}),
    "rsqrt": (lambda x: 1 / np.sqrt(x), FLOATS, {}),
    "silu": (lambda x: x * scipy.special.expit(x), FLOATS, {}),
    "relu": (lambda x: np.maximum(x, x.dtype.type(0)), NUMBERS, {}),
    "step": (lambda x: (x > 0).astype(x.dtype), NUMBERS, {}),
    # the rounding of x / sqrt(2) is raised to its square
    "gelu": (lambda x: 0.5 * x * scipy.special.erfc(-x / np.sqrt(2.0)), FLOATS, {"f64": {"rtol": 1e-12}}),
    # 1 + tanh cancels for negative x: the error is one of the sum, not of the result
    "gelu_tanh": (gelu_tanh, FLOATS, {"f32": {"atol": 1e-6}, "f64": {"atol": 1e-14}, "f16": {"atol": 1e-6},
                                      "bf16": {"atol": 1e-6}}),
    "softplus": (lambda x: np.logaddexp(0, x), FLOATS, {}),
}
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
LOGICAL = ("logical_and", "logical_or", "logical_xor")
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor")


def in_its_own_dtype(fn: np.ufunc) -> Callable[[Array, Array], Array]:
    """Quotients rounded down depend on the width they are computed in: NumPy's own for f32 and f64, f32 for halves."""
    def reference(x: Array, y: Array) -> Array:
        return fn(x, y) if x.dtype.kind in "iu" or x.dtype.itemsize > 2 else fn(x.astype(np.float32), y.astype(np.float32))

    return reference


def power(x: Array, y: Array) -> Array:
    """NumPy refuses negative integer exponents; here they round towards 0, and 0 to a negative power is 0."""
    if x.dtype.kind not in "iu":
        return np.power(x, y)
    up = np.power(x, np.maximum(y, y.dtype.type(0)))
    odd = np.where(y % 2 == 0, 1, x)
    return np.where(y >= 0, up, np.where(np.abs(x) == 1, odd, 0)).astype(x.dtype)


BINARY: dict[str, tuple[Callable[[Array, Array], Array], tuple[str, ...]]] = {
    "add": (np.add, ANY), "subtract": (np.subtract, NUMBERS), "multiply": (np.multiply, ANY), "divide": (np.divide, FLOATS),
    "floor_divide": (in_its_own_dtype(np.floor_divide), NUMBERS), "remainder": (in_its_own_dtype(np.remainder), NUMBERS),
    "power": (power, NUMBERS), "maximum": (np.maximum, ANY), "minimum": (np.minimum, ANY), "copysign": (np.copysign, FLOATS),
    "left_shift": (np.left_shift, INTS), "right_shift": (np.right_shift, INTS),
    **{n: (getattr(np, n), (*INTS, "bool")) for n in BITS},
    **{n: (getattr(np, n), ANY) for n in COMPARISONS},
    **{n: (getattr(np, n), ("bool", "f32", "i32")) for n in LOGICAL},
}
BOOLEAN = {*COMPARISONS, *LOGICAL, "isnan", "isinf", "isfinite", "logical_not"}
NATIVE = {"floor_divide", "remainder"}  # compared in the dtype itself


# ------------------------------------------------------------------------------------------------ elementwise
@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n, (_, ds, _) in UNARY.items() for d in ds])
def test_unary(name: str, dtype: str) -> None:
    reference, _, tolerances = UNARY[name]
    x, = unary(dtype)
    expected = reference(wide(x))
    got = getattr(ops, name)(x)
    agree(got, expected, "bool" if name in BOOLEAN else dtype, **tolerances.get(dtype, {}))
    if dtype in FLOATS and name not in BOOLEAN | {"gelu_tanh", "step", "relu"}:
        same_signs(got, expected)


@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n, (_, ds) in BINARY.items() for d in ds])
def test_binary(name: str, dtype: str) -> None:
    reference, _ = BINARY[name]
    x, y = binary(dtype)
    expected = reference(x, y) if name in NATIVE else reference(wide(x), wide(y))
    got = getattr(ops, name)(x, y)
    # a sum or difference in f32 may round where float64 does not: that is one rounding, within the tolerance
    agree(got, expected, "bool" if name in BOOLEAN else dtype)


@pytest.mark.parametrize("dtype", ANY)
def test_where(dtype: str) -> None:
    x, y = binary(dtype)
    condition = np.arange(len(x)) % 3 == 0
    agree(ops.where(condition, x, y), np.where(condition, wide(x), wide(y)), dtype)


@pytest.mark.parametrize("dtype", ANY)
def test_masked_fill(dtype: str) -> None:
    x, = unary(dtype)
    value = True if dtype == "bool" else 7
    condition = np.arange(len(x)) % 3 == 0
    if dtype == "bool":
        x = x.astype(np.bool_)
        with pytest.raises(fuelnumba.errors.ArgumentError):
            ops.masked_fill(x, condition, value=value)
        return
    agree(ops.masked_fill(x, condition, value=value), np.where(condition, value, wide(x)), dtype)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("bounds", [(1, 100), (None, 3), (2, None)], ids=["both", "upper", "lower"])
def test_clamp(dtype: str, bounds: tuple[Any, Any]) -> None:
    x, = unary(dtype)
    agree(ops.clamp(x, *bounds), np.clip(wide(x), *bounds), dtype)


@pytest.mark.parametrize("dtype, n", [(d, n) for d in NUMBERS for n in (0, 1, 2, 3, 5, -1) if n >= 0 or d not in INTS])
def test_powi(dtype: str, n: int) -> None:  # the reciprocal of integers is a float's
    x, = unary(dtype)
    # each multiplication rounds once, and halves are rounded after each
    slack = {"f16": {"rtol": 4e-3, "atol": 2e-7}, "bf16": {"rtol": 3e-2}, "f32": {"rtol": 1e-6, "atol": 1e-43}}.get(dtype, {})
    agree(ops.powi(x, n), np.power(wide(x), n), dtype, **slack)


def layout_cases() -> list[tuple[str, str, str]]:
    return [(n, d, la) for table in (UNARY, BINARY) for n, row in table.items() for la in LAYOUTS[1:]
            for d in [("f32" if "f32" in row[1] else "i32")]]


def small(dtype: str, seed: int = 0) -> Array:
    return sample(dtype, 7 * 13, seed).reshape(7, 13)


@pytest.mark.parametrize(("name", "dtype", "layout"), layout_cases())
def test_layout(name: str, dtype: str, layout: str) -> None:
    xs = [arranged(small(dtype, k), layout) for k in range(1 if name in UNARY else 2)]
    reference = UNARY[name][0] if name in UNARY else BINARY[name][0]
    before = [x.copy() for x in xs]
    expected = reference(*xs) if name in NATIVE else reference(*map(wide, xs))
    agree(getattr(ops, name)(*xs), expected, "bool" if name in BOOLEAN else dtype, atol=1e-6)
    assert all(np.array_equal(x, b, equal_nan=True) for x, b in zip(xs, before)), "an input was modified" + repro()


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_copy_of_layout(dtype: str, layout: str) -> None:
    """Every dtype in every layout, all bits kept."""
    x = arranged(small(dtype), layout)
    got = ops.contiguous(x)
    assert got.dtype == x.dtype and got.shape == x.shape and got.flags.c_contiguous and not np.shares_memory(got, x)
    assert np.ascontiguousarray(x).tobytes() == got.tobytes(), repro()


@pytest.mark.parametrize("shapes", [((3, 1), (4,)), ((1,), (5, 1, 2)), ((), (2, 3)), ((0, 1), (1, 4)), ((1, 1), (1,)),
                                    ((2, 3, 4, 5), (3, 1, 5)), ((2, 1, 2, 1, 2), (1, 3, 1, 3, 1))], ids=str)
def test_broadcast_operands(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    x, y = (sample("f32", int(np.prod(s)), k).reshape(s) for k, s in enumerate(shapes))
    agree(ops.subtract(x, y), wide(x) - wide(y), "f32")


# ------------------------------------------------------------------------------------------------ casts
@pytest.mark.parametrize("source", ALL)
@pytest.mark.parametrize("target", ALL)
def test_cast(source: str, target: str) -> None:
    """ml_dtypes and NumPy, where they define the result; floats to integers saturate and NaN gives 0."""
    of = np.dtype(NUMPY[target])
    if source in EIGHT_BIT:
        x = np.arange(256, dtype=np.uint8).view(NUMPY[source])
    else:
        x, = unary(source)
    got = ops.cast(x, target)
    assert got.dtype == of and got.shape == x.shape
    if target in INTS and source in FLOATS + EIGHT_BIT:
        expected = rounded(x.astype(np.float64), fuelnumba.dtypes.dtype_of(target))
    elif target in INTS:
        expected = x.astype(of)  # integers keep their low bits
    elif target == "bool":
        expected = x.astype(np.float64) != 0
    elif source in INTS and target in (*EIGHT_BIT, "bf16", "f16"):
        expected = x.astype(np.float64).astype(of)  # rounded once, from the exact integer
        if source == "i64":
            expected = x.astype(np.longdouble).astype(np.float64).astype(of)
    elif source in EIGHT_BIT and target in EIGHT_BIT and "f8e8m0" in (source, target):
        expected = x.astype(np.float32).astype(of)  # ml_dtypes has no direct way; f32 holds every value of the source
    elif target == "f8e8m0" and source == "f64":
        expected = np.where(x > 0, np.maximum(x, 2.0**-140), x).astype(of)  # ml_dtypes loses what f32 cannot hold
    else:
        expected = x.astype(of)
    if target in FLOATS + EIGHT_BIT:
        g, e = got.astype(np.float64), expected.astype(np.float64)
        wrong = ~((np.isnan(g) & np.isnan(e)) | (got.view(f"u{of.itemsize}") == expected.view(f"u{of.itemsize}")))
    else:
        wrong = got != expected
    k = int(np.argmax(wrong))
    assert not wrong.any(), f"{int(wrong.sum())} differ; {x[k]!r} gave {got[k]!r}, not {expected[k]!r}" + repro()


# ------------------------------------------------------------------------------------------------ reductions
SUMS = {"sum": np.sum, "prod": np.prod, "mean": np.mean, "max": np.max, "min": np.min, "any": np.any, "all": np.all}
SUM_DTYPES = {"sum": (*FLOATS, "i64", "u8"), "prod": (*FLOATS, "i64"), "mean": (*FLOATS, "i32"), "max": ANY, "min": ANY,
              "any": ("bool", "f32"), "all": ("bool", "i16")}
AXES = [(None, False), (0, False), (1, True), ((0, 2), False), (-1, False)]


def block(dtype: str) -> Array:
    x = sample(dtype, 3 * 5 * 37, 3)
    if dtype in FLOATS:
        x = (x.astype(np.float64) / 4 + 0.5).astype(NUMPY[dtype])
    return x.reshape(3, 5, 37)


@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n, ds in SUM_DTYPES.items() for d in ds])
def test_reduction(name: str, dtype: str) -> None:
    x = block(dtype)
    result = {"sum": "i64", "prod": "i64", "mean": "f64"}.get(name, dtype) if dtype not in FLOATS else dtype
    result = "bool" if name in ("any", "all") else result
    for axis, keepdims in AXES:
        expected = SUMS[name](wide(x), axis=axis, keepdims=keepdims)
        slack = {"f32": {"rtol": 2e-6, "atol": 1e-4}, "f64": {"rtol": 1e-13, "atol": 1e-12}, "f16": {"rtol": 2e-3, "atol": 1e-4},
                 "bf16": {"rtol": 1e-2, "atol": 1e-4}}.get(result, {})
        agree(getattr(ops, name)(x, axis, keepdims), expected, result, **slack)


@pytest.mark.parametrize("name", [*SUMS, "argmax", "argmin"])
@pytest.mark.parametrize("layout", ["transposed", "broadcast", "reversed", "stepped"])
def test_reduction_layout(name: str, layout: str) -> None:
    x = arranged(small("f32"), layout)
    for axis in (0, 1):
        expected = getattr(np, name)(wide(x), axis=axis)
        agree(getattr(ops, name)(x, axis=axis), expected, {"any": "bool", "all": "bool"}.get(name, "i64" if "arg" in name else "f32"),
              rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", ANY)
def test_arg_reduction(name: str, dtype: str) -> None:
    x = block(dtype)
    for axis in (0, 1, -1):
        agree(getattr(ops, name)(x, axis=axis), getattr(np, name)(wide(x), axis=axis), "i64")
    ties = np.concatenate([x, x, x], axis=1)
    agree(getattr(ops, name)(ties, axis=1, keepdims=True), getattr(np, name)(wide(ties), axis=1, keepdims=True), "i64")


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin", "sum", "mean"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_reduction_of_nan(name: str, dtype: str) -> None:
    """A NaN anywhere decides, in every lane of a vector and in what is left over after the last."""
    n = 37
    x = np.tile(np.arange(n), (n, 1)).astype(NUMPY[dtype])
    x[np.arange(n), np.arange(n)] = np.nan
    for axis in (0, 1):
        expected = np.arange(n) if "arg" in name else np.full(n, np.nan)
        agree(getattr(ops, name)(x, axis=axis), expected, "i64" if "arg" in name else dtype)
    x[:, 5], x[:, 20] = np.nan, np.nan  # several: the first counts
    if "arg" in name:
        agree(getattr(ops, name)(x, axis=1), np.minimum(np.arange(n), 5), "i64")


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_reduction_of_infinities(name: str) -> None:
    for x in (np.full((3, 20), np.inf, "f4"), np.full((3, 20), -np.inf, "f4"), np.array([[-np.inf, 1, np.inf]] * 2, "f4")):
        for axis in (0, 1):
            agree(getattr(ops, name)(x, axis=axis), getattr(np, name)(x, axis=axis), "i64" if "arg" in name else "f32")


def test_empty_reductions() -> None:
    x = np.zeros((3, 0, 2), np.float32)
    agree(ops.sum(x, axis=1), np.zeros((3, 2)), "f32")
    agree(ops.prod(x, axis=1), np.ones((3, 2)), "f32")
    agree(ops.mean(x, axis=1), np.full((3, 2), np.nan), "f32")
    agree(ops.any(x, axis=1), np.zeros((3, 2), bool), "bool")
    agree(ops.all(x, axis=1), np.ones((3, 2), bool), "bool")
    agree(ops.sum(x), np.array(0.0), "f32")
    for name in ("max", "min", "argmax", "argmin"):
        with pytest.raises(fuelnumba.errors.ShapeError, match="no identity"):
            getattr(ops, name)(x, axis=1)
        agree(getattr(ops, name)(x, axis=0), np.zeros((0, 2)), "i64" if "arg" in name else "f32")


# ------------------------------------------------------------------------------------------------ products
MATMUL_SHAPES = [((3, 4), (4, 5)), ((1, 7), (7, 33)), ((2, 3, 5), (2, 5, 4)), ((17, 65), (65, 31)), ((5,), (5,)), ((3, 4), (4,)),
                 ((4,), (4, 3)), ((2, 2, 0), (2, 0, 3)), ((0, 4), (4, 3)), ((2, 1, 3, 4), (5, 4, 2))]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_matmul(dtype: str) -> None:
    for k, (sa, sb) in enumerate(MATMUL_SHAPES):
        a, b = (sample(dtype, int(np.prod(s)), 10 * k + j).reshape(s) for j, s in enumerate((sa, sb)))
        depth = max(sa[-1], 1)
        slack = {"f32": {"rtol": 1e-5, "atol": 1e-5 * depth}, "f64": {"rtol": 1e-13, "atol": 1e-13 * depth},
                 "f16": {"atol": 2e-3}, "bf16": {"atol": 1e-2}}.get(dtype, {})
        agree(ops.matmul(a, b), np.matmul(wide(a), wide(b)), dtype, **slack)


@pytest.mark.parametrize("dtype", ["f32", "i32", "f16"])
@pytest.mark.parametrize("left", LAYOUTS[:5])
@pytest.mark.parametrize("right", LAYOUTS[:5])
@pytest.mark.parametrize("rows", [1, 7])
def test_matmul_layouts(dtype: str, left: str, right: str, rows: int) -> None:
    a, b = arranged(small(dtype)[:rows], left), arranged(small(dtype, 1).reshape(13, 7), right)
    agree(ops.matmul(a, b), np.matmul(wide(a), wide(b)), dtype, **({"rtol": 1e-5, "atol": 2e-4} if dtype == "f32" else
                                                                  {"atol": 2e-2} if dtype == "f16" else {}))


def test_matmul_of_overlapping_rows() -> None:
    """Rows that share memory, as of a sliding window: BLAS refuses them, and must not leave the result unwritten."""
    windows = np.lib.stride_tricks.sliding_window_view(np.arange(9, dtype=np.float32), 3)
    weights = small("f32")[:3]
    agree(ops.matmul(windows, weights), wide(windows) @ wide(weights), "f32", rtol=1e-5, atol=1e-4)
    agree(ops.matmul(weights.T, windows.T), wide(weights.T) @ wide(windows.T), "f32", rtol=1e-5, atol=1e-4)


# ------------------------------------------------------------------------------------------------ norms, attention, rope
SLACK = {"f32": {"rtol": 1e-5, "atol": 2e-6}, "f64": {"rtol": 1e-13, "atol": 1e-14}, "f16": {"rtol": 2e-3, "atol": 2e-4},
         "bf16": {"rtol": 1.6e-2, "atol": 2e-3}}


def from_samples(name: str, dtype: str, change: Callable[[Array], Array] = same) -> None:
    """The op's own samples in a dtype against its float64 reference."""
    op = OPS[name]
    assert op.samples is not None and op.ref is not None
    for arrays, attrs in op.samples():
        xs = [np.asarray(a).astype(NUMPY[dtype]) if np.asarray(a).dtype.kind == "f" else np.asarray(a) for a in arrays]
        canonical = op.check_attrs([fuelnumba.Aval(x.shape, fuelnumba.dtypes.of_numpy(x.dtype)) for x in xs], attrs)
        expected = op.ref(*map(wide, xs), **canonical)
        agree(getattr(ops, name)(*map(change, xs), **attrs), expected, dtype, **SLACK.get(dtype, {}))


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "rms_norm", "attention", "rope"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_rows(name: str, dtype: str) -> None:
    from_samples(name, dtype)


def turned(x: Array) -> Array:
    """The same values with the axes lying the other way round in memory."""
    return np.asfortranarray(x) if x.ndim > 1 else np.ascontiguousarray(x[::-1])[::-1] if x.ndim else x


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "rms_norm", "attention", "rope"])
def test_rows_in_other_layouts(name: str) -> None:
    from_samples(name, "f32", turned)
    if name not in ("attention", "rope"):
        for layout in LAYOUTS[1:5]:
            x = arranged(small("f32"), layout)
            op = OPS[name]
            assert op.ref is not None
            canonical = op.check_attrs([fuelnumba.Aval(x.shape, fuelnumba.dtypes.f32)], {})
            agree(getattr(ops, name)(x), op.ref(wide(x), **canonical), "f32", **SLACK["f32"])


def test_softmax_of_extremes() -> None:
    x = np.array([[1e4, -1e4, 1e4, -np.inf], [-1e38, 1e38, 0, 0], [np.nan, 0, 0, 0], [-np.inf] * 4], np.float32)
    nan = np.full(4, np.nan)
    agree(ops.softmax(x), np.array([[0.5, 0, 0.5, 0], [0, 1, 0, 0], nan, nan]), "f32")
    log2 = np.log(2)
    agree(ops.log_softmax(x), np.array([[-log2, -2e4 - log2, -log2, -np.inf], [-2e38, 0, -1e38, -1e38], nan, nan]), "f32")
    for empty in (np.zeros((3, 0), "f4"), np.zeros((0, 3), "f4")):
        for op in (ops.softmax, ops.log_softmax, ops.layer_norm, ops.rms_norm):
            agree(op(empty), empty, "f32")


# ------------------------------------------------------------------------------------------------ views and memory
X = np.arange(3 * 4 * 5).reshape(3, 4, 5)
VIEWS = {
    "permute": [((2, 0, 1), X.transpose(2, 0, 1)), ((0, 1, 2), X)],
    "broadcast_to": [((2, 3, 4, 5), np.broadcast_to(X, (2, 3, 4, 5)))],
    "flip": [(0, X[::-1]), (-1, X[..., ::-1])],
    "unsqueeze": [(0, X[None]), (3, X[..., None]), (-1, X[..., None])],
    "reshape": [((12, 5), X.reshape(12, 5)), ((5, 12), X.reshape(5, 12)), ((-1, 2, 3), X.reshape(-1, 2, 3)), ((60,), X.ravel())],
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "u8", "f8e4m3", "i64", "bool"])
def test_view(name: str, dtype: str) -> None:
    of = NUMPY[dtype]
    for x in (X.astype(of), np.asfortranarray(X.astype(of)), X.astype(of)[::-1].copy()[::-1]):
        for argument, expected in VIEWS[name]:
            got = getattr(ops, name)(x, argument)
            assert got.dtype == of and got.shape == expected.shape
            assert got.tobytes() == np.ascontiguousarray(expected.astype(of)).tobytes(), repro()


def test_slice() -> None:
    x = X.astype(np.float32)
    for axis, start, length, step in [(0, 1, 2, 1), (1, 3, 4, -1), (2, 0, 3, 2), (2, 4, 2, -3), (1, 2, 0, 1)]:
        chosen = [start + k * step for k in range(length)]
        agree(ops.slice(x, axis=axis, start=start, length=length, step=step), np.take(x, chosen, axis), "f32")
    for axis, start, length, step in [(0, 1, 3, 1), (0, -1, 1, 1), (2, 0, 4, 2), (1, 0, 2, -1)]:
        with pytest.raises(fuelnumba.errors.ShapeError, match=r"slice\(\) of"):
            ops.slice(x, axis=axis, start=start, length=length, step=step)


def test_squeeze_and_full() -> None:
    x = X.astype(np.float32)
    agree(ops.squeeze(x[None], 0), x, "f32")
    agree(ops.squeeze(x[None, :, :, None]), x, "f32")
    with pytest.raises(fuelnumba.errors.ShapeError, match="cannot squeeze axis 1 of length 4"):
        ops.squeeze(x, 1)
    for dtype in ALL:
        value = 1 if dtype in (*INTS, "bool") else 0.5
        agree(ops.full(value, (2, 3), dtype), np.full((2, 3), value), dtype)


@pytest.mark.parametrize("dtype", ALL)
def test_concat_stack_split(dtype: str) -> None:
    of = NUMPY[dtype]
    a, b = sample(dtype, 12).reshape(3, 4), sample(dtype, 20, 1).reshape(5, 4)
    got = ops.concat(a, b, np.zeros((0, 4), of), axis=0)
    assert got.dtype == of and got.tobytes() == np.concatenate([a, b]).tobytes()
    t = np.asfortranarray(a)
    assert ops.concat([a, t[:, ::-1]], axis=1).tobytes() == np.concatenate([a, a[:, ::-1]], 1).tobytes()
    for axis in (0, 1, 2, -1):
        assert ops.stack(a, t, axis=axis).tobytes() == np.ascontiguousarray(np.stack([a, a], axis)).tobytes()
    parts = ops.split(b, [1, 3])
    assert [p.tobytes() for p in parts] == [p.tobytes() for p in np.split(b, [1, 3])]


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("name", ["gather", "take", "index_select", "embedding"])
def test_index(name: str, dtype: str) -> None:
    op = OPS[name]
    assert op.samples is not None and op.ref is not None
    for arrays, attrs in op.samples():
        x, indices = np.asarray(arrays[0]), np.asarray(arrays[1])
        x = (x % 2).astype(NUMPY[dtype]) if dtype in ("bool", "f8e8m0") else x.astype(NUMPY[dtype])
        expected = op.ref(x, indices, **{k: v % x.ndim for k, v in attrs.items()})
        for index_dtype in ("i64", "i32") if dtype == "f32" else ("i64",):
            for change in (same, turned) if dtype == "f32" else (same,):
                got = getattr(ops, name)(change(x), change(indices.astype(NUMPY[index_dtype])), **attrs)
                assert got.dtype == x.dtype and got.shape == expected.shape
                assert got.tobytes() == np.ascontiguousarray(expected).tobytes(), repro()


@pytest.mark.parametrize("dtype", ALL)
def test_write_slice(dtype: str) -> None:
    op = OPS["write_slice"]
    assert op.samples is not None
    for arrays, attrs in op.samples():
        x, src = (np.asarray(a) % 3 if dtype in ("bool", "f8e8m0") else np.asarray(a) for a in arrays[:2])
        x, src = np.abs(x).astype(NUMPY[dtype]), np.abs(src).astype(NUMPY[dtype])
        at = list(attrs["at"])
        if len(arrays) > 2:
            at[attrs["axis"]] += int(arrays[2])
        expected = x.copy()
        expected[tuple(slice(a, a + n) for a, n in zip(at, src.shape))] = src
        for change in (same, turned) if dtype == "f32" else (same,):
            given = change(x)
            got = ops.write_slice(given, change(src), at=tuple(at))
            assert got.tobytes() == expected.tobytes(), repro()
            assert np.array_equal(given.view(np.uint8) if given.flags.c_contiguous else given,
                                  x.view(np.uint8) if given.flags.c_contiguous else x), "the input was modified"


# ------------------------------------------------------------------------------------------------ right values known by hand
@pytest.mark.parametrize("n", [1, 3, 8, 9, 100])
def test_remainder_has_the_sign_of_the_divisor(n: int) -> None:
    x = np.array([-7.0, 7.0, -7.0, 7.0, 5.0, -5.0, -0.5, 1e-3, 6.0], np.float32)
    y = np.array([3.0, -3.0, -3.0, 3.0, -5.0, 5.0, 2.0, -1.0, 4.0], np.float32)
    agree(ops.remainder(np.tile(x, n), np.tile(y, n)), np.tile([2.0, -2.0, -1.0, 1.0, 0.0, 0.0, 1.5, -0.999, 2.0], n), "f32")
    a, b = np.array([-7, 7, -7, 7, 0, -128], np.int8), np.array([3, -3, -3, 3, -5, 127], np.int8)
    agree(ops.remainder(np.tile(a, n), np.tile(b, n)), np.tile([2, -2, -1, 1, 0, 126], n), "i8")


def test_round_to_even() -> None:
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, np.nextafter(np.float32(0.5), np.float32(0)), 8388609, -8388609, 3.5], np.float32)
    got = ops.round(x)
    agree(got, np.array([-2, -2, 0, 0, 2, 2, 0, 8388609, -8388609, 4]), "f32")
    assert np.signbit(got[2])


def test_gelu_keeps_its_small_values() -> None:
    x = np.array([-2.0, -4.0, -5.0, -5.5, -6.0], np.float32)
    known = [-0.04550026389635842, -0.0001266849673324797, -1.4332578593959695e-06, -1.0444259356238245e-07, -5.9195258702261885e-09]
    agree(ops.gelu(x), np.array(known), "f32", rtol=2e-6)


def test_layer_norm_of_a_large_mean() -> None:
    x = np.array([[40000.0, 40001.0, 40002.0, 40003.0], [1234.0] * 4, [-2000.25, -2000.0, -1999.75, -1999.5]], np.float32)
    known = [[-1.3416354199689269, -0.447211806656309, 0.447211806656309, 1.3416354199689269], [0.0] * 4,
             [-1.3415549297316995, -0.4471849765772332, 0.4471849765772332, 1.3415549297316995]]
    agree(ops.layer_norm(x, eps=1e-5), np.array(known), "f32", rtol=1e-4, atol=1e-5)


def test_half_sums_do_not_stall_or_overflow() -> None:
    half = np.float16
    agree(ops.mean(np.full((64, 64), 32.0, half)), np.array(32.0), "f16")
    agree(ops.sum(np.array([32000.0] * 4 + [-32000.0] * 4, half), axis=0), np.array(0.0), "f16")
    agree(ops.sum(np.ones(4096, half)), np.array(4096.0), "f16")
    agree(ops.matmul(np.ones((1, 4096), half), np.ones((4096, 1), half)), np.array([[4096.0]]), "f16")


def test_bf16_rounds_to_even_and_keeps_nan() -> None:
    bits = [0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x7F7FFFFF, 0xFF7F7FFF, 0x00000001, 0x00018000, 0x80008001, 0, 0x80000000]
    got = ops.cast(np.array(bits, np.uint32).view(np.float32), "bf16").view(np.uint16)
    assert [hex(b) for b in got] == [hex(b) for b in (0x3F80, 0x3F82, 0x3F81, 0x3F80, 0x7F80, 0xFF7F, 0, 2, 0x8001, 0, 0x8000)]
    nans = np.array([0x7F800001, 0x7FFFFFFF, 0xFF800001], np.uint32).view(np.float32)
    assert np.isnan(ops.cast(nans, "bf16").astype(np.float32)).all()


def test_f8e4m3_rounds_before_it_overflows() -> None:
    x = np.array([448, 464, 465, 1000, np.inf, -np.inf, np.nan, 2.0**-9, 2.0**-10, 2.0**-10 * 1.001, 17, 19, -0.0, 0.0175, -464.5],
                 np.float32)
    known = [0x7E, 0x7E, 0x7F, 0x7F, 0x7F, 0xFF, 0x7F, 0x01, 0x00, 0x01, 0x58, 0x5A, 0x80, 0x09, 0xFF]
    assert ops.cast(x, "f8e4m3").view(np.uint8).tolist() == known


def test_matmul_over_nothing_is_zero() -> None:
    agree(ops.matmul(np.zeros((2, 2, 0), np.float32), np.zeros((2, 0, 3), np.float32)), np.zeros((2, 2, 3)), "f32")

    @fuelnumba.jit
    def linear(x: Any, w: Any, b: Any) -> Any:
        return x @ w.T + b

    got = linear(np.zeros((2, 0), np.float32), np.zeros((3, 0), np.float32), np.array([1, 2, 3], np.float32))
    agree(got, np.array([[1, 2, 3], [1, 2, 3]]), "f32")


def test_grouped_heads() -> None:
    """Query head h reads key head h // group."""
    q, k = np.ones((1, 4, 1, 2), np.float32), np.ones((1, 2, 1, 2), np.float32)
    v = np.array([[[[1.0, 2.0]], [[30.0, 40.0]]]], np.float32)
    agree(ops.attention(q, k, v, scale=1.0, causal=False), np.array([[[[1, 2]], [[1, 2]], [[30, 40]], [[30, 40]]]]), "f32")
    a, b = np.ones((1, 4, 1, 1), np.float32), np.array([[[[5.0]], [[7.0]]]], np.float32)
    agree(ops.matmul(a, b), np.array([[[[5]], [[5]], [[7]], [[7]]]]), "f32")


def test_softcap_comes_before_the_mask() -> None:
    q, k = (np.array(v, np.float32).reshape(1, 1, 3, 1) for v in ([3.0, -2.0, 4.0], [2.0, 5.0, -3.0]))
    v = np.array([[1.0, 0.0], [10.0, -4.0], [100.0, 7.0]], np.float32).reshape(1, 1, 3, 2)
    known = [[1.0, 0.0], [5.498490933744661, -1.9993293038865159], [11.489310778498236, -1.4295897056450686]]
    agree(ops.attention(q, k, v, scale=1.0, softcap=1.0), np.array(known).reshape(1, 1, 3, 2), "f32", rtol=1e-5)


def test_attention_does_not_read_unused_rows() -> None:
    k = np.array([1, 2, np.nan, np.nan], np.float32).reshape(1, 1, 4, 1)
    v = np.array([10, 20, np.nan, np.inf], np.float32).reshape(1, 1, 4, 1)
    got = ops.attention(np.full((1, 1, 1, 1), 0.5, np.float32), k, v, np.array([2]), scale=1.0, causal=False)
    agree(got, np.array([[[[16.224593312018545]]]]), "f32")


def test_attention_that_sees_nothing_is_zero() -> None:
    v = np.array([[[[3.0], [5.0]]], [[[7.0], [9.0]]]], np.float32)
    q, k = np.ones((2, 1, 1, 1), np.float32), np.ones((2, 1, 2, 1), np.float32)
    agree(ops.attention(q, k, v, np.array([0, 2]), scale=1.0, causal=False), np.array([0.0, 8.0]).reshape(2, 1, 1, 1), "f32")


def test_attention_over_a_buffer_is_aligned_at_the_end() -> None:
    """Query i sees keys up to length - queries + i; the fourth row of the buffer is poison."""
    e = np.e
    q = np.array([[1, 0], [0, 1]], np.float32)[None, None]
    k = np.array([[1, 0], [0, 1], [1, 1], [np.nan, np.nan]], np.float32)[None, None]
    v = np.array([[5, 6], [7, 8], [9, 10], [np.nan, np.nan]], np.float32)[None, None]
    known = [[(5 * e + 7) / (e + 1), (6 * e + 8) / (e + 1)], [(5 + 7 * e + 9 * e) / (1 + 2 * e), (6 + 8 * e + 10 * e) / (1 + 2 * e)]]
    agree(ops.attention(q, k, v, np.array(3), scale=1.0), np.array(known)[None, None], "f32")


def test_u8_wraps_between_fused_steps() -> None:
    @fuelnumba.jit
    def f(x: Any, y: Any) -> Any:
        return (-x) < 4, (x - y).astype(np.float32), (x + x) > 250

    small_, cast_, large = f(np.array([6, 0, 250, 253], np.uint8), np.array([7, 0, 251, 100], np.uint8))
    assert small_.tolist() == [False, True, False, True]
    assert cast_.tolist() == [255.0, 0.0, 255.0, 153.0]
    assert large.tolist() == [False, False, False, False]


def test_nan_is_found_in_fused_code() -> None:
    @fuelnumba.jit
    def f(x: Any) -> Any:
        zero = x * 0.0
        return np.where(x != x, 0.0, x), np.where(zero != zero, 1.0, 0.0)

    x = np.array([1.0, np.nan, -2.0, np.inf], np.float32)
    clean, flagged = f(x)
    agree(clean, np.array([1.0, 0.0, -2.0, np.inf]), "f32")
    assert flagged.tolist() == [0.0, 1.0, 0.0, 1.0]


@pytest.mark.parametrize("shift", [-7, 12, 0, 5, 1])
def test_roll(shift: int) -> None:
    roll = fuelnumba.jit(static_argnames="k")(lambda x, k: np.roll(x, k, axis=0))
    for n in (5, 0, 1, 3):
        x = np.arange(n, dtype=np.float32)
        agree(roll(x, shift), np.roll(x, shift), "f32")


@pytest.mark.parametrize("name", ["big", "small"])
def test_numpy_bits_of_subnormals(name: str) -> None:
    """Subnormal f32 numbers are kept, not flushed."""
    x = np.array([1e-40, -1e-42, 1e-45], np.float32) * (1 if name == "small" else np.float32(1e10))
    assert ops.add(x, np.zeros_like(x)).tobytes() == x.tobytes()
    assert ops.cast(x, "f64").tobytes() == x.astype(np.float64).tobytes()


# ------------------------------------------------------------------------------------------------ nothing is missing
OTHERS = {"where", "masked_fill", "clamp", "powi", "cast", "contiguous", "matmul", "softmax", "log_softmax", "layer_norm", "rms_norm",
          "attention", "rope", "gather", "take", "index_select", "embedding", "write_slice", "concat", "stack", "slice", "squeeze",
          "argmax", "argmin", *SUMS, *VIEWS}


def test_every_op_is_here() -> None:
    public = {n for n, op in OPS.items() if op.kind != "leaf" and n != "copy"}
    assert public == OTHERS | set(UNARY) | set(BINARY)
    for name, (_, dtypes, *_) in {**UNARY, **BINARY}.items():
        assert set(OPS[name].dtypes()["cpu"]) <= set(dtypes), f"{name} is not tested on all of its dtypes"


def test_edges_are_what_they_say() -> None:
    for dtype in FLOATS:
        x = edges(dtype).astype(np.float64)
        assert np.isnan(x).sum() == 1 and np.isinf(x).sum() == 2 and (x == 0).sum() == 2
        assert float(ml_dtypes.finfo(NUMPY[dtype]).smallest_subnormal) in x


# ------------------------------------------------------------------------------------------------ lengths that vary, in both operands
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("tables", [1, 2], ids=["half tables", "full tables"])
def test_rope_of_many_widths(interleaved: bool, tables: int) -> None:
    """Widths of x and of the tables become two symbols; whether they are equal must not be lost."""
    r = np.random.default_rng(0)
    for rows, half in ((3, 2), (5, 4), (4, 3), (7, 8), (2, 1)):
        x, cos, sin = (r.random(s).astype(np.float32) for s in ((rows, 2 * half), (rows, half * tables), (rows, half * tables)))
        reference = OPS["rope"].ref
        assert reference is not None
        agree(ops.rope(x, cos, sin, interleaved=interleaved), reference(wide(x), wide(cos), wide(sin), interleaved=interleaved), "f32", atol=1e-6)
