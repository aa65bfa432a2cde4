"""Arrays of unusual forms, as an argument of a jitted function, of an op, and captured: right, or refused in whole words."""

from __future__ import annotations

import array
import decimal
import fractions
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.sparse
from numpy.lib.stride_tricks import as_strided

from fuelnumba import errors, jit, ops

from .told import raised, told

F32 = np.float32
ONE = np.ones((), F32)


class Subclass(np.ndarray):
    pass


class WithArray:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.ones(3, F32)


class OnDevice:
    __cuda_array_interface__ = {"shape": (3,), "typestr": "<f4", "data": (0, False), "version": 3}


def read_only() -> Any:
    x = np.arange(3, dtype=F32)
    x.flags.writeable = False
    return x


def table() -> Any:
    return np.zeros(4, [("a", "u1"), ("b", "f4"), ("c", "f8")])  # 13 bytes each


def aligned_table() -> Any:
    t = np.zeros(4, np.dtype([("a", "u1"), ("b", "f4"), ("c", "f8")], align=True))
    t["b"] = np.arange(4)
    return t


def mapped(folder: Path) -> Any:
    x = np.memmap(folder / "x", F32, "w+", shape=(3,))
    x[:] = [1, 2, 3]
    return x


def jitted(x: Any) -> Any:
    return jit(lambda x: x + F32(1))(x)


def captured(x: Any) -> Any:
    return jit(lambda one: one + x)(ONE)


WAYS: dict[str, Callable[[Any], Any]] = {"argument": jitted, "op": lambda x: ops.add(x, ONE), "captured": captured}
way = pytest.mark.parametrize("way", WAYS)

RIGHT: dict[str, Callable[[Path], Any]] = {
    "read-only": lambda _: read_only(),
    "Fortran-ordered": lambda _: np.asfortranarray(np.arange(6, dtype=F32).reshape(2, 3)),
    "reversed": lambda _: np.arange(6, dtype=F32)[::-1],
    "reversed twice": lambda _: np.arange(12, dtype=F32).reshape(3, 4)[::-1, ::-2],
    "one element repeated": lambda _: as_strided(np.ones(1, F32), (3, 4), (0, 0)),
    "overlapping windows": lambda _: as_strided(np.arange(8, dtype=F32), (3, 4), (4, 4)),
    "a field of bytes": lambda _: table()["a"],
    "a field of an aligned table": lambda _: aligned_table()["b"],
    "a subclass": lambda _: np.ones(3, F32).view(Subclass),
    "memory-mapped": mapped,
    "a broadcast": lambda _: np.broadcast_to(np.arange(3, dtype=F32), (2, 3)),
    "no elements": lambda _: np.zeros((0, 3), F32),
    "no elements, reversed": lambda _: np.zeros((3, 0), F32)[::-1],
    "no axes": lambda _: np.array(2, F32),
    "a NumPy scalar": lambda _: F32(2),
    "intc": lambda _: np.arange(3, dtype=np.intc),
    "longlong": lambda _: np.arange(3, dtype=np.longlong),
    "a bool scalar": lambda _: np.bool_(True),
}


@way
@pytest.mark.parametrize("name", RIGHT)
def test_it_is_computed_with(name: str, way: str, tmp_path: Path) -> None:
    x = RIGHT[name](tmp_path)
    before = np.array(x)
    got = WAYS[way](x)
    expected = x + ONE
    assert type(got) is (np.ndarray if expected.shape else type(expected)) and got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(x, before)


ALIGNED = "the array is not aligned: its elements do not start at multiples of their size\n= pass a copy: x.copy()"
REFUSED: dict[str, tuple[Callable[[], Any], type[errors.FuelError], str]] = {
    "big-endian f32": (lambda: np.arange(3, dtype=">f4"), errors.InputArrayError,
        'an array of dtype >f4 is not in this machine\'s byte order\n= convert it: x.astype(x.dtype.newbyteorder("="))'),
    "big-endian i64": (lambda: np.arange(3, dtype=">i8"), errors.InputArrayError,
        'an array of dtype >i8 is not in this machine\'s byte order\n= convert it: x.astype(x.dtype.newbyteorder("="))'),
    "one byte off": (lambda: np.frombuffer(b"\0" * 13, F32, 3, 1), errors.InputArrayError, ALIGNED),
    "a field of a packed table": (lambda: table()["b"], errors.InputArrayError, ALIGNED),
    "objects": (lambda: np.array([1, None]), errors.InputArrayError,
        "an array of Python objects cannot be traced\n= give it a numeric dtype, e.g. x.astype(np.float64)"),
    "masked": (lambda: np.ma.array([1.0, 2.0], mask=[0, 1]), errors.InputArrayError,
        "a masked array cannot be traced\n= fill it first: x.filled(0), or pass x.data and x.mask"),
    "matrix": (lambda: np.asmatrix(np.ones((2, 2))), errors.InputArrayError,
        "a numpy.matrix cannot be traced\n= pass a plain array: np.asarray(x)"),
    "strings": (lambda: np.array(["a"]), errors.DTypeError,
        "an array of strings is not supported\n= the dtypes are bool, u8, i8, u32, i16, i32, i64, f16, bf16, f32, f64, "
        "f8e4m3, f8e5m2, f8e8m0"),
    "dates": (lambda: np.array(["2020-01-01"], "M8[D]"), errors.DTypeError,
        "an array of datetime64[D] is not supported\n= pass its ticks: x.view(np.int64)"),
    "durations": (lambda: np.array([1], "m8[s]"), errors.DTypeError,
        "an array of timedelta64[s] is not supported\n= pass its ticks: x.view(np.int64)"),
    "complex": (lambda: np.ones(2, complex), errors.DTypeError,
        "an array of complex128 is not supported\n= pass its parts as two arrays: x.real and x.imag"),
    "u16": (lambda: np.ones(2, np.uint16), errors.DTypeError,
        "an array of uint16 is not supported\n= cast it: x.astype(np.int64)"),
    "u64": (lambda: np.ones(2, np.uint64), errors.DTypeError,
        "an array of uint64 is not supported\n= cast it: x.astype(np.int64)"),
    "a u64 scalar": (lambda: np.uint64(1), errors.DTypeError, "an array of uint64 is not supported\n= cast it: x.astype(np.int64)"),
    "structured": (table, errors.DTypeError,
        "a structured array with the fields a, b, c cannot be traced\n= pass its fields as arrays: x['a'].copy()"),
    "records": (lambda: table().view(np.recarray), errors.DTypeError,
        "a structured array with the fields a, b, c cannot be traced\n= pass its fields as arrays: x['a'].copy()"),
    "another 8-bit float": (lambda: np.ones(2, ml_dtypes.float8_e3m4), errors.DTypeError,
        "an array of float8_e3m4 is not supported\n= the dtypes are bool, u8, i8, u32, i16, i32, i64, f16, bf16, f32, f64, "
        "f8e4m3, f8e5m2, f8e8m0"),
}


@way
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_an_array_is_refused(name: str, way: str) -> None:
    make, kind, text = REFUSED[name]
    x = make()
    start = {"argument": "<lambda>(): x: ", "op": "add(): x: ", "captured": "add(): x: "}[way]
    before = x.tobytes()
    err = raised(lambda: WAYS[way](x))
    assert type(err) is kind and err.where is not None and err.where.file == __file__
    assert f"{err.what}\n= {err.cure}".removeprefix(start).removeprefix("add(): y: ") == text
    assert x.tobytes() == before


def test_long_doubles_are_refused() -> None:
    """Where they are not doubles."""
    if np.dtype(np.longdouble).itemsize > 8:
        text = told(lambda: jitted(np.ones(2, np.longdouble)), __file__)
        assert "is not supported\n" in text and text.endswith("= cast it: x.astype(np.float64)")


@pytest.mark.parametrize("first", [True, False])
def test_a_misaligned_array_is_refused_although_a_plan_would_fit(first: bool) -> None:
    f = jit(lambda x: x + 1)
    if not first:
        f(np.zeros(3, F32))
    for _ in range(2):
        assert told(lambda: f(np.frombuffer(b"\0" * 13, F32, 3, 1)), __file__).startswith("InputArrayError: <lambda>(): x: ")
    assert f(np.zeros(3, F32)).tolist() == [1, 1, 1]


class TorchLike:
    """What we look at in a tensor of PyTorch, which the tests do without."""

    __module__, __qualname__ = "torch", "Tensor"

    def detach(self) -> TorchLike:
        return self

    def numpy(self, force: bool = False) -> Any:
        return np.ones(3)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return np.ones(3)


OBJECTS: dict[str, tuple[Callable[[], Any], str, str]] = {
    "a string": (lambda: "a", "a value of type str", ""),
    "bytes": (lambda: b"a", "a value of type bytes", ""),
    "a slice": (lambda: slice(3), "a value of type slice", ""),
    "a function": (lambda: len, "a value of type builtin_function_or_method", ""),
    "a complex number": (lambda: 1j, "a value of type complex", "complex numbers are not supported: pass x.real and x.imag"),
    "a set": (lambda: {1, 2}, "a value of type set", "pass an array of its elements: np.array(list(x))"),
    "a range": (lambda: range(3), "a value of type range", "pass an array of its elements: np.array(list(x))"),
    "a generator": (lambda: (k for k in range(3)), "a value of type generator", "pass an array of its elements: np.array(list(x))"),
    "a Decimal": (lambda: decimal.Decimal(1), "a value of type decimal.Decimal", "pass a float: float(x)"),
    "a Fraction": (lambda: fractions.Fraction(1, 2), "a value of type fractions.Fraction", "pass a float: float(x)"),
    "a torch tensor": (TorchLike, "a value of type torch.Tensor", "pass a NumPy array: x.numpy(force=True)"),
    "an object with __array__": (WithArray, "a value of type tests.WithArray", "pass a NumPy array: np.asarray(x)"),
    "an array.array": (lambda: array.array("f", [1, 2]), "a value of type array.array", "pass a NumPy array: np.asarray(x)"),
    "a memoryview": (lambda: memoryview(b"abcd"), "a value of type memoryview", "pass a NumPy array: np.asarray(x)"),
    "an array on a device": (OnDevice, "a value of type tests.OnDevice", "copy it to the host first, e.g. x.get() of CuPy"),
    "a sparse array": (lambda: scipy.sparse.eye_array(3).tocsr(), "a value of type scipy.csr_array", "pass a dense array: x.toarray()"),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_is_refused(name: str) -> None:
    make, described, cure = OBJECTS[name]
    x = make()
    assert told(lambda: jitted(x), __file__) == (
        f"ArgumentError: <lambda>(): x is {described}, neither an array nor a Python number\nat jit(lambda x: x + F32(1))(x)\n= "
        + (cure or "a string or an object that chooses what is computed belongs in static_argnames"))
    assert told(lambda: ops.add(x, ONE), __file__) == (
        f"ArgumentError: add(): x cannot be {described}\nat ops.add(x, ONE)\n= "
        + (cure or "pass an array, a Python number, or a (nested) list of numbers"))


def test_none_and_lists() -> None:
    assert told(lambda: ops.add(None, ONE), __file__) == (
        "ArgumentError: add(): x cannot be None\nat ops.add(None, ONE)\n= pass an array, a Python number, or a (nested) list of numbers")
    assert ops.add([[1, 2], [3, 4]], 1).tolist() == [[2, 3], [4, 5]]
    assert ops.add((1.5, 2), np.ones(2)).tolist() == [2.5, 3]
    assert ops.concat([[1, 2], [3]]).tolist() == ops.concat([1, 2], [3]).tolist() == [1, 2, 3]
    assert told(lambda: ops.add([1, "a"], ONE), __file__).startswith(
        "ArgumentError: add(): x is a list that is no regular array of numbers\n")
    with pytest.raises(TypeError, match="can only concatenate list"):  # lists are containers to a jitted function
        jit(lambda x: x + 1)([1.0, 2.0])


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**200])
def test_python_ints_beyond_i64(value: int) -> None:
    f = jit(lambda x, n: x + n)
    assert told(lambda: f(np.ones(2), value), __file__) == (
        f"ArgumentError: <lambda>(): n: the Python int {value} does not fit i64\nat f(np.ones(2), value)\n= pass a float")
    assert f(np.ones(2), 3).tolist() == [4, 4]
    assert told(lambda: jit(lambda x: x + value)(np.arange(2)), __file__) == (
        f"ArgumentError: add(): the Python int {value} does not fit i64\nat x + value\n"
        "= cast the array to a wider dtype, or give a value that fits i64")


# ------------------------------------------------------------------------------------------------ no elements
EMPTY: dict[str, Callable[[Any], Any]] = {
    "elementwise": lambda x: np.exp(x) + x * 2,
    "views": lambda x: (x.T, x.reshape(-1), x[None], x[..., :0], x[::-1], np.broadcast_to(x, (2, *x.shape))),
    "sums": lambda x: (x.sum(), x.sum(axis=0), x.prod(axis=-1), x.sum(axis=(0, 1), keepdims=True)),
    "truths": lambda x: ((x > 0).any(), (x > 0).all(axis=0)),
    "products": lambda x: (x @ x.T, x.T @ x, x @ np.ones(x.shape[-1]), np.einsum("ij,kj->ik", x, x)),
    "joins": lambda x: (np.concatenate([x, x]), np.stack([x, x]), np.concatenate([x, np.ones((2, x.shape[1]))])),
    "where": lambda x: np.where(x > 0, x, 0.5),
    "cumulative shapes": lambda x: (np.pad(x, 1), np.tile(x, (2, 1)), np.repeat(x, 2, axis=0), np.roll(x, 1, axis=1)),
    "casts": lambda x: x.astype(np.float32),
    "take of nothing": lambda x: np.take(x, np.zeros((0,), np.int64), axis=1),
}


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("name", EMPTY)
def test_arrays_without_elements(name: str, shape: tuple[int, int]) -> None:
    x = np.zeros(shape)
    got, expected = jit(EMPTY[name])(x), EMPTY[name](x)
    for g, e in zip(got, expected, strict=True) if isinstance(expected, tuple) else [(got, expected)]:
        assert g.dtype == np.asarray(e).dtype
        np.testing.assert_array_equal(g, e)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)], ids=str)
def test_ops_on_arrays_without_elements(shape: tuple[int, int]) -> None:
    x = np.zeros(shape)
    for op in (ops.softmax, ops.rms_norm, ops.layer_norm):
        assert op(x).shape == shape
    assert ops.write_slice(np.ones((4, 3)), np.zeros((0, 3)), at=(4, 0)).tolist() == np.ones((4, 3)).tolist()
    assert ops.embedding(np.ones((5, 2)), np.zeros((0,), np.int64)).shape == (0, 2)


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_extrema_of_nothing(name: str) -> None:
    err = raised(lambda: jit(lambda x: getattr(x, name)(axis=0))(np.zeros((0, 3))))
    assert isinstance(err, errors.ShapeError) and "zero-size array to reduction operation" in err.what
    assert err.where is not None and err.where.text().strip().startswith("err = raised(lambda")


# ------------------------------------------------------------------------------------------------ nothing is touched
def test_donated_buffers_are_untouched_when_an_error_comes_before_the_run() -> None:
    @jit(donate="cache")
    def put(cache, row, at):
        return ops.write_slice(cache, row, at=(at, 0))

    cache, row = np.zeros((4, 2)), np.ones((1, 2))
    for call in (lambda: put(cache, row.astype(">f8"), 0), lambda: put(cache, np.ones((5, 2)), 0), lambda: put(cache, row, 1.5),
                 lambda: put(cache, row, "a"), lambda: put(cache, cache[:1], 0), lambda: put(cache, row, 2**70)):
        raised(call)
        assert not cache.any() and row.all()
    frozen = cache.copy()
    frozen.flags.writeable = False
    assert told(lambda: put(frozen, row, 0), __file__) == (
        "DonationError: put(): the donated argument cache is read-only\nat put(frozen, row, 0)\n"
        "= donate a writeable, C-contiguous array")
    assert put(cache, row, 1) is cache and cache[1].all() and not cache[[0, 2, 3]].any()
