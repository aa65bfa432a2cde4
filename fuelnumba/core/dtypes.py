"""Element types: the dtypes, how each is stored, what it is computed in, and how two of them promote."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from .errors import DTypeError, PromotionError


@dataclass(frozen=True, eq=False)
class DType:
    """One element type. Instances are unique: compare with `is`.

    `storage` is the integer or float type a kernel's pointer has; `compute` the type arithmetic is done in (half types
    are computed in f32); `kind` is the NumPy kind letter ('b', 'u', 'i', 'f') or 's' for scale/storage-only floats.
    `like` is what the type is called in NumPy or, where NumPy has none, in ml_dtypes.
    """

    name: str
    like: str
    storage: str
    compute: str
    kind: str
    bits: int

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype. ml_dtypes is imported when one of its types is first asked for: that may take half a second."""
        return np.dtype(getattr(np if hasattr(np, self.like) else importlib.import_module("ml_dtypes"), self.like))

    @property
    def itemsize(self) -> int:
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        return self.kind in "ui"

    @property
    def is_storage_only(self) -> bool:
        """True for the 8-bit floats: they can be cast, moved and indexed, but not computed with."""
        return self.kind == "s"

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype_of, (self.name,)


#                  name      NumPy's name       storage compute kind bits
bool_ = DType("bool", "bool_", "u8", "b1", "b", 8)
u8 = DType("u8", "uint8", "u8", "u8", "u", 8)
i8 = DType("i8", "int8", "i8", "i8", "i", 8)
u32 = DType("u32", "uint32", "u32", "u32", "u", 32)
i16 = DType("i16", "int16", "i16", "i16", "i", 16)
i32 = DType("i32", "int32", "i32", "i32", "i", 32)
i64 = DType("i64", "int64", "i64", "i64", "i", 64)
f16 = DType("f16", "float16", "u16", "f32", "f", 16)
bf16 = DType("bf16", "bfloat16", "u16", "f32", "f", 16)
f32 = DType("f32", "float32", "f32", "f32", "f", 32)
f64 = DType("f64", "float64", "f64", "f64", "f", 64)
f8e4m3 = DType("f8e4m3", "float8_e4m3fn", "u8", "f32", "s", 8)
f8e5m2 = DType("f8e5m2", "float8_e5m2", "u8", "f32", "s", 8)
f8e8m0 = DType("f8e8m0", "float8_e8m0fnu", "u8", "f32", "s", 8)

ALL = (bool_, u8, i8, u32, i16, i32, i64, f16, bf16, f32, f64, f8e4m3, f8e5m2, f8e8m0)
FLOATS = (f32, f64, f16, bf16)
INTS = (u8, i8, u32, i16, i32, i64)
NUMBERS = FLOATS + INTS
COMPUTABLE = NUMBERS + (bool_,)

BY_NAME = {d.name: d for d in ALL}
_BY_LIKE = {d.like: d for d in ALL}
_BY_NUMPY: dict[Any, DType] = {d.numpy: d for d in ALL if hasattr(np, d.like)}


@cache
def _of_ml_dtypes() -> dict[Any, DType]:
    return {d.numpy: d for d in ALL if d.numpy not in _BY_NUMPY}


def of_numpy(dtype: np.dtype[Any]) -> DType | None:
    """The DType of a native-order NumPy dtype, or None when it is not one of ours."""
    known = _BY_NUMPY.get(dtype)
    if known is None and "ml_dtypes" in sys.modules:  # there is no dtype of it before
        return _of_ml_dtypes().get(dtype)
    return known


def dtype_of(spec: Any) -> DType:
    """A DType from a DType, its name ('bf16'), or anything `np.dtype` takes. Raises DTypeError naming the choices."""
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, str):
        known = BY_NAME.get(spec) or _BY_LIKE.get(spec)
        if known is not None:
            return known
    if spec is bool or spec is int or spec is float:
        return {bool: bool_, int: i64, float: f64}[spec]
    try:
        known = of_numpy(np.dtype(spec))
    except (TypeError, ValueError, SyntaxError):  # NumPy reads some strings as Python
        known = None
    if known is None:
        raise DTypeError(f"{spec!r} is not a dtype of fuelnumba", cure="use one of " + ", ".join(BY_NAME))
    return known


def _promotion_table() -> dict[tuple[DType, DType], DType]:
    """NumPy's own table where NumPy has both dtypes; bf16 behaves as f16 does, and bf16 with f16 gives f32."""
    table: dict[tuple[DType, DType], DType] = {}
    for a in COMPUTABLE:
        for b in COMPUTABLE:
            if a is b:
                out = a
            elif bf16 in (a, b):
                other = b if a is bf16 else a
                if other is f16:
                    out = f32
                elif other.is_float:
                    out = other
                else:
                    like = _BY_NUMPY[np.promote_types(np.float16, other.numpy)]
                    out = bf16 if like is f16 else like
            else:
                out = _BY_NUMPY[np.promote_types(a.numpy, b.numpy)]
            table[a, b] = out
    return table


PROMOTION = _promotion_table()


def promote(a: DType, b: DType) -> DType:
    """The dtype two array dtypes meet in (docs/promotion.md). 8-bit floats meet nothing but themselves."""
    if a is b:
        return a
    out = PROMOTION.get((a, b))
    if out is None:
        narrow = a if a.is_storage_only else b
        raise PromotionError(f"{a} and {b} have no common dtype",
                             cure=f"{narrow} is for storage only: cast it first, e.g. x.astype('f32')")
    return out


def weak_result(array: DType, scalar_kind: str) -> DType:
    """The dtype of an array combined with a Python scalar of kind 'b', 'i' or 'f': the array's own, except that the
    scalar's *kind* must fit (an int beside bool gives i64, a float beside integers gives f64, as in NumPy)."""
    if scalar_kind == "f" and not array.is_float:
        return f64
    if scalar_kind == "i" and array.kind == "b":
        return i64
    return array


WEAK_DTYPES = {"b": bool_, "i": i64, "f": f64}
