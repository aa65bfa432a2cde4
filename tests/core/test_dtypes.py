"""The dtypes, their NumPy sides, and how two of them promote."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fuelnumba
from fuelnumba.core import dtypes as dt
from fuelnumba.core.errors import DTypeError, PromotionError

#        name      bits kind  NumPy
TABLE = [
    ("bool", 8, "b", np.bool_), ("u8", 8, "u", np.uint8), ("i8", 8, "i", np.int8), ("u32", 32, "u", np.uint32),
    ("i16", 16, "i", np.int16), ("i32", 32, "i", np.int32), ("i64", 64, "i", np.int64), ("f16", 16, "f", np.float16),
    ("bf16", 16, "f", ml_dtypes.bfloat16), ("f32", 32, "f", np.float32), ("f64", 64, "f", np.float64),
    ("f8e4m3", 8, "s", ml_dtypes.float8_e4m3fn), ("f8e5m2", 8, "s", ml_dtypes.float8_e5m2), ("f8e8m0", 8, "s", ml_dtypes.float8_e8m0fnu),
]


@pytest.mark.parametrize(("name", "bits", "kind", "numpy"), TABLE)
def test_dtype(name: str, bits: int, kind: str, numpy: type) -> None:
    d = dt.dtype_of(name)
    assert (d.name, d.bits, d.kind, d.numpy, d.itemsize) == (name, bits, kind, np.dtype(numpy), np.dtype(numpy).itemsize)
    assert dt.dtype_of(numpy) is dt.dtype_of(np.dtype(numpy)) is dt.dtype_of(d) is dt.of_numpy(np.dtype(numpy)) is d
    assert pickle.loads(pickle.dumps(d)) is copy.deepcopy(d) is d and repr(d) == name
    assert (d.is_float, d.is_integer, d.is_storage_only) == (kind == "f", kind in "ui", kind == "s")


def test_all_are_in_the_table() -> None:
    assert [d.name for d in dt.ALL] == [name for name, *_ in TABLE]


@pytest.mark.parametrize(("spec", "name"), [("float32", "f32"), ("f4", "f32"), ("<f4", "f32"), ("bfloat16", "bf16"), ("half", "f16"),
                                            (float, "f64"), (int, "i64"), (bool, "bool"), ("uint8", "u8"), (np.int64, "i64")])
def test_spellings(spec: object, name: str) -> None:
    assert dt.dtype_of(spec).name == name


@pytest.mark.parametrize("spec", ["f99", complex, "c8", np.uint64, "u2", ">f4", object, "S3", 7, None.__class__])
def test_what_is_no_dtype(spec: object) -> None:
    with pytest.raises(DTypeError, match="is not a dtype of fuelnumba"):
        dt.dtype_of(spec)


def test_promotion_is_numpys() -> None:
    for a, b in itertools.product(dt.COMPUTABLE, repeat=2):
        out = dt.promote(a, b)
        assert out is dt.promote(b, a)
        if dt.bf16 not in (a, b):
            assert out.numpy == np.promote_types(a.numpy, b.numpy), f"{a} {b}"


@pytest.mark.parametrize(("other", "out"), [("bool", "bf16"), ("u8", "bf16"), ("i8", "bf16"), ("i16", "f32"), ("i32", "f64"),
                                            ("u32", "f64"), ("i64", "f64"), ("f16", "f32"), ("f32", "f32"), ("f64", "f64")])
def test_promotion_of_bf16(other: str, out: str) -> None:
    assert dt.promote(dt.bf16, dt.dtype_of(other)).name == out


def test_promotion_is_associative_enough() -> None:
    """Three array dtypes meet in a dtype that holds what each pair meets in."""
    for a, b, c in itertools.product(dt.FLOATS, repeat=3):
        assert dt.promote(dt.promote(a, b), c) is dt.promote(a, dt.promote(b, c))


def test_8_bit_floats_meet_nothing() -> None:
    assert dt.promote(dt.f8e4m3, dt.f8e4m3) is dt.f8e4m3
    for other in (dt.f32, dt.f8e5m2, dt.bool_):
        with pytest.raises(PromotionError) as caught:
            dt.promote(dt.f8e4m3, other)
        assert str(caught.value) == (f"f8e4m3 and {other} have no common dtype\n"
                                     "   = f8e4m3 is for storage only: cast it first, e.g. x.astype('f32')")


@pytest.mark.parametrize("array", dt.COMPUTABLE, ids=str)
def test_python_scalars_do_not_widen(array: dt.DType) -> None:
    """As NumPy 2 has it: the kind of the scalar counts, not its size."""
    for kind, value in (("b", True), ("i", 1), ("f", 1.0)):
        found = dt.weak_result(array, kind)
        if array is dt.bf16:
            assert found is dt.bf16
        else:
            assert found.numpy == (np.zeros(2, array.numpy) * value).dtype if array.kind != "b" or kind != "b" else found is dt.bool_


# --------------------------------------------------------------------------------------- messages, and 8-bit floats
CHOICES = "bool, u8, i8, u32, i16, i32, i64, f16, bf16, f32, f64, f8e4m3, f8e5m2, f8e8m0"
NARROW = [dt.f8e4m3, dt.f8e5m2, dt.f8e8m0]


@pytest.mark.parametrize("spec", [
    "f33", "", "uint16", ">f4", np.dtype(">i2"), np.uint64, complex, 3, (1, 2), "datetime64[s]", np.dtype([("a", "f4")]),
    "(2,f4", "i4,,", {"names": ["a"]}], ids=repr)  # NumPy has other errors than TypeError for the last three
def test_the_message_for_what_is_no_dtype(spec: Any) -> None:
    with pytest.raises(DTypeError) as caught:
        dt.dtype_of(spec)
    assert str(caught.value) == f"{spec!r} is not a dtype of fuelnumba\n   = use one of {CHOICES}"


def test_our_names_come_first() -> None:
    """NumPy's i8 and u8 have eight bytes, ours eight bits."""
    assert (dt.dtype_of("i8"), dt.dtype_of("u8"), dt.dtype_of("f8"), dt.dtype_of("i4")) == (dt.i8, dt.u8, dt.f64, dt.i32)
    assert dt.of_numpy(np.dtype(">f4")) is dt.of_numpy(np.dtype("u2")) is dt.of_numpy(np.dtype("O")) is None


@pytest.mark.parametrize("narrow", NARROW, ids=str)
def test_the_message_for_8_bit_floats(narrow: dt.DType) -> None:
    assert dt.promote(narrow, narrow) is narrow
    for other in (*dt.COMPUTABLE, *(d for d in NARROW if d is not narrow)):
        for a, b in ((narrow, other), (other, narrow)):
            with pytest.raises(PromotionError) as caught:
                dt.promote(a, b)
            first = narrow if other in dt.COMPUTABLE else a
            assert str(caught.value) == (f"{a} and {b} have no common dtype\n"
                                         f"   = {first} is for storage only: cast it first, e.g. x.astype('f32')")


@pytest.mark.parametrize("narrow", NARROW, ids=str)
def test_8_bit_floats_are_moved_and_cast_but_not_computed_with(narrow: dt.DType) -> None:
    x = np.array([1.0, 2.0, 4.0]).astype(narrow.numpy)
    for fn in (lambda x: x + 1.0, lambda x: x + 1, lambda x: x * np.float32(2), np.exp, lambda x: x.sum()):
        with pytest.raises((DTypeError, PromotionError)) as caught:
            fuelnumba.jit(lambda x, fn=fn: fn(x), static_argnames="fn")(x)
        assert narrow.name in caught.value.what
    assert fuelnumba.jit(lambda x: x[::-1])(x).astype(float).tolist() == [4, 2, 1]
    assert fuelnumba.jit(lambda x: x.astype("f32") + 1)(x).tolist() == [2, 3, 5]
