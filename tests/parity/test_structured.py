"""What the table's samples do not have: front doors, refusals, NaN in every lane, pairs of layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuelnumba
from fuelnumba.core.ops import OPS
from fuelnumba.testing import LAYOUTS, cases, sample_values, with_layout
from fuelnumba.testing.parity import alone

from .agree import ALL, ANY, FLOATS, INTS, NUMBERS, NUMPY, agree, wide

Array = np.ndarray[Any, Any]
ops = fuelnumba.ops

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, for infinities and NaN


# ------------------------------------------------------------------------------------------------ reductions
SUMS = {"sum": np.sum, "prod": np.prod, "mean": np.mean, "max": np.max, "min": np.min, "any": np.any, "all": np.all}
SUM_DTYPES = {"sum": (*FLOATS, "i64", "u8"), "prod": (*FLOATS, "i64"), "mean": (*FLOATS, "i32"), "max": ANY, "min": ANY,
              "any": ("bool", "f32"), "all": ("bool", "i16")}
AXES = [(None, False), (0, False), (1, True), ((0, 2), False), (-1, False)]


def block(dtype: str) -> Array:
    x = sample_values(dtype, 3 * 5 * 37, 3)
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


# ------------------------------------------------------------------------------------------------ products
MATMUL_SHAPES = [((3, 4), (4, 5)), ((1, 7), (7, 33)), ((2, 3, 5), (2, 5, 4)), ((17, 65), (65, 31)), ((5,), (5,)), ((3, 4), (4,)),
                 ((4,), (4, 3)), ((2, 2, 0), (2, 0, 3)), ((0, 4), (4, 3)), ((2, 1, 3, 4), (5, 4, 2))]


def small(dtype: str, seed: int = 0) -> Array:
    return sample_values(dtype, 7 * 13, seed).reshape(7, 13)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_matmul(dtype: str) -> None:
    for k, (sa, sb) in enumerate(MATMUL_SHAPES):
        a, b = (sample_values(dtype, int(np.prod(s)), 10 * k + j).reshape(s) for j, s in enumerate((sa, sb)))
        depth = max(sa[-1], 1)
        slack = {"f32": {"rtol": 1e-5, "atol": 1e-5 * depth}, "f64": {"rtol": 1e-13, "atol": 1e-13 * depth},
                 "f16": {"atol": 2e-3}, "bf16": {"atol": 1e-2}}.get(dtype, {})
        agree(ops.matmul(a, b), np.matmul(wide(a), wide(b)), dtype, **slack)


@pytest.mark.parametrize("dtype", ["f32", "i32", "f16"])
@pytest.mark.parametrize("left", LAYOUTS[:5])
@pytest.mark.parametrize("right", LAYOUTS[:5])
@pytest.mark.parametrize("rows", [1, 7])
def test_matmul_layouts(dtype: str, left: str, right: str, rows: int) -> None:
    a, b = with_layout(small(dtype)[:rows], left), with_layout(small(dtype, 1).reshape(13, 7), right)
    agree(ops.matmul(a, b), np.matmul(wide(a), wide(b)), dtype, **({"rtol": 1e-5, "atol": 2e-4} if dtype == "f32" else
                                                                  {"atol": 2e-2} if dtype == "f16" else {}))


def test_matmul_of_overlapping_rows() -> None:
    """Rows that share memory, as of a sliding window: BLAS refuses them, and must not leave the result unwritten."""
    windows = np.lib.stride_tricks.sliding_window_view(np.arange(9, dtype=np.float32), 3)
    weights = small("f32")[:3]
    agree(ops.matmul(windows, weights), wide(windows) @ wide(weights), "f32", rtol=1e-5, atol=1e-4)
    agree(ops.matmul(weights.T, windows.T), wide(weights.T) @ wide(windows.T), "f32", rtol=1e-5, atol=1e-4)


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
            assert got.tobytes() == np.ascontiguousarray(expected.astype(of)).tobytes()


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
    a, b = sample_values(dtype, 12).reshape(3, 4), sample_values(dtype, 20, 1).reshape(5, 4)
    got = ops.concat(a, b, np.zeros((0, 4), of), axis=0)
    assert got.dtype == of and got.tobytes() == np.concatenate([a, b]).tobytes()
    t = np.asfortranarray(a)
    assert ops.concat([a, t[:, ::-1]], axis=1).tobytes() == np.concatenate([a, a[:, ::-1]], 1).tobytes()
    for axis in (0, 1, 2, -1):
        assert ops.stack(a, t, axis=axis).tobytes() == np.ascontiguousarray(np.stack([a, a], axis)).tobytes()
    parts = ops.split(b, [1, 3])
    assert [p.tobytes() for p in parts] == [p.tobytes() for p in np.split(b, [1, 3])]


def turned(x: Array) -> Array:
    """The same values with the axes lying the other way round in memory."""
    return np.asfortranarray(x) if x.ndim > 1 else np.ascontiguousarray(x[::-1])[::-1] if x.ndim else x


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
            for change in (np.asarray, turned) if dtype == "f32" else (np.asarray,):
                got = getattr(ops, name)(change(x), change(indices.astype(NUMPY[index_dtype])), **attrs)
                assert got.dtype == x.dtype and got.shape == expected.shape
                assert got.tobytes() == np.ascontiguousarray(expected).tobytes()


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
        for change in (np.asarray, turned) if dtype == "f32" else (np.asarray,):
            given = change(x)
            got = ops.write_slice(given, change(src), at=tuple(at))
            assert got.tobytes() == expected.tobytes()
            assert np.array_equal(given.view(np.uint8) if given.flags.c_contiguous else given,
                                  x.view(np.uint8) if given.flags.c_contiguous else x), "the input was modified"


# ------------------------------------------------------------------------------------------------ refusals
@pytest.mark.parametrize("name", sorted(n for n, op in OPS.items() if op.kind != "leaf" and "uid" not in op.attrs))
def test_scalars_are_served_or_refused_in_words(name: str) -> None:
    """Whatever an op makes of arrays of rank 0, with the parameters of its samples: no error of Python's own."""
    op = OPS[name]
    for case in cases(name, op.dtypes()["cpu"][:1], ["contiguous"]):
        scalars = [a.reshape(-1)[:1].reshape(()) for a in case.arrays if a.size]
        try:
            alone(op, case.attrs)(*scalars)
        except fuelnumba.errors.FuelError as err:
            assert err.what


def test_integers_have_no_negative_powers() -> None:
    with pytest.raises(fuelnumba.errors.DTypeError, match=r"powi\(\): i64 has no negative powers, and n is -2"):
        ops.powi(np.arange(1, 4), -2)
