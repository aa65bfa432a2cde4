"""The words kernels are written in, for NumPy: every name of `intrinsics`, same meaning, without Numba.

Kernel helpers import from here, so they run un-jitted on NumPy scalars and elementwise on arrays; a compiled
kernel gets the same names from `intrinsics`. Pointers are arrays.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

__all__ = [
    "at_f32", "at_f64", "ceil", "copysign", "f16_to_f32", "f32", "f32_from_bits", "f32_to_bits", "f32_to_f16", "f64",
    "f64_arg", "f64_from_bits", "f64_to_bits", "fabs", "fault", "floor", "fma", "frem", "gemm_f32", "gemm_f64", "i8",
    "i16", "i32", "i64", "int_floordiv", "int_mod", "int_pow", "inv_half_pi", "load_in", "maximum", "minimum",
    "product", "ptr_f32", "ptr_f64", "ptr_i8", "ptr_i16", "ptr_i32", "ptr_i64", "ptr_u8", "ptr_u16", "ptr_u32",
    "ptr_u64", "radd", "raw_f32", "raw_f64", "raw_i8", "raw_i16", "raw_i32", "raw_i64", "raw_u8", "raw_u16", "raw_u32",
    "raw_u64", "rfma", "rint", "rmul", "sat_i8", "sat_i16", "sat_i32", "sat_i64", "sat_u8", "sat_u32", "select",
    "sqrt", "stack_f32", "stack_f64", "stack_i64", "store_nth", "store_out", "trunc", "u8", "u16", "u32", "u64",
    "wrap_add", "wrap_mul", "wrap_sub",
]

# Conversions. A float out of an integer's range has no meaning, as in compiled code (`sat_*` are safe).
f32, f64 = np.float32, np.float64
i8, i16, i32, i64 = np.int8, np.int16, np.int32, np.int64
u8, u16, u32, u64 = np.uint8, np.uint16, np.uint32, np.uint64


# ---------------------------------------------------------------- bits


def _view(x: Any, to: type) -> Any:
    x = np.asarray(x)
    return x.view(to)[()] if x.ndim == 0 else np.ascontiguousarray(x).view(to)


def f32_from_bits(u: Any) -> Any:
    """The f32 whose bits are the u32 (or i32) `u`."""
    return _view(u, f32)


def f64_from_bits(u: Any) -> Any:
    """The f64 whose bits are the u64 (or i64) `u`."""
    return _view(u, f64)


def f32_to_bits(x: Any) -> Any:
    """The bits of an f32 as u32."""
    return _view(x, u32)


def f64_to_bits(x: Any) -> Any:
    """The bits of an f64 as u64."""
    return _view(x, u64)


def f16_to_f32(u: Any) -> Any:
    """The f16 whose bits are the u16 `u`, as f32."""
    return f32(_view(u, np.float16))


def f32_to_f16(x: Any) -> Any:
    """The bits (u16) of `x` rounded to the nearest f16, ties to even."""
    with np.errstate(all="ignore"):
        return _view(np.float16(x), u16)


# ---------------------------------------------------------------- arithmetic


def _quiet(f: Callable) -> Callable:
    return np.errstate(all="ignore")(f)


def select(cond: Any, a: Any, b: Any) -> Any:
    """`a` where `cond` holds, else `b`; both are evaluated."""
    return np.where(cond, a, b)[()]


def floor(x: Any) -> Any:
    """The next whole number below."""
    return np.floor(x)


def ceil(x: Any) -> Any:
    """The next whole number above."""
    return np.ceil(x)


def trunc(x: Any) -> Any:
    """The whole part, towards zero."""
    return np.trunc(x)


def rint(x: Any) -> Any:
    """The nearest whole number, ties to even."""
    return np.rint(x)


@_quiet
def sqrt(x: Any) -> Any:
    """The square root."""
    return np.sqrt(x)


def fabs(x: Any) -> Any:
    """The magnitude of a float."""
    return np.fabs(x)


def copysign(a: Any, b: Any) -> Any:
    """`a` with the sign of `b`."""
    return np.copysign(a, b)


def _two_sum(a: Any, b: Any) -> Any:
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@_quiet
def fma(a: Any, b: Any, c: Any) -> Any:
    """`a * b + c`, nearly always rounded once: f32 through f64, f64 through pairs (which may overflow)."""
    if np.result_type(a, b, c) == np.float32:
        return f32(f64(a) * f64(b) + f64(c))
    a, b, c = f64(a), f64(b), f64(c)
    # Veltkamp's split makes the product exact as p + e
    p = a * b
    at, bt = a * 134217729.0, b * 134217729.0
    ah, bh = at - (at - a), bt - (bt - b)
    al, bl = a - ah, b - bh
    e = al * bl - (((p - ah * bh) - al * bh) - ah * bl)
    s, t = _two_sum(p, c)
    exact = s + (t + e)
    return np.where(np.isfinite(exact) & (exact != 0), exact, p + c)[()]


def _extreme(a: Any, b: Any, best: np.ufunc) -> Any:
    result = best(a, b)
    if np.result_type(a, b).kind != "f":
        return result
    # NumPy leaves the order of -0 and +0 open
    negative = np.signbit(a) & np.signbit(b) if best is np.maximum else np.signbit(a) | np.signbit(b)
    zero = np.where(negative, result.dtype.type(-0.0), result.dtype.type(0.0))
    return np.where((result == 0) & (a == b), zero, result)[()]


def maximum(a: Any, b: Any) -> Any:
    """The larger; NaN wins, and -0 < +0."""
    return _extreme(a, b, np.maximum)


def minimum(a: Any, b: Any) -> Any:
    """The smaller; NaN wins, and -0 < +0."""
    return _extreme(a, b, np.minimum)


@_quiet
def product(a: Any, b: Any) -> Any:
    """`a * b` rounded by itself, never contracted with a following sum."""
    return np.multiply(a, b)


@_quiet
def radd(a: Any, b: Any) -> Any:
    """`a + b` as part of a sum whose order is free."""
    return np.add(a, b)


@_quiet
def rmul(a: Any, b: Any) -> Any:
    """`a * b` as part of a product whose order is free."""
    return np.multiply(a, b)


@_quiet
def rfma(a: Any, b: Any, acc: Any) -> Any:
    """`acc + a * b` as part of a sum whose order is free."""
    return np.add(acc, np.multiply(a, b))


@_quiet
def wrap_add(a: Any, b: Any) -> Any:
    """Integer `a + b` in the operands' type, wrapping."""
    return np.add(a, b)


@_quiet
def wrap_sub(a: Any, b: Any) -> Any:
    """Integer `a - b` in the operands' type, wrapping."""
    return np.subtract(a, b)


@_quiet
def wrap_mul(a: Any, b: Any) -> Any:
    """Integer `a * b` in the operands' type, wrapping."""
    return np.multiply(a, b)


def _saturate(x: Any, to: type) -> Any:
    info = np.iinfo(to)
    x = np.asarray(x, np.float64)
    low, high = x <= info.min, x >= info.max
    inside: Any = np.where(low | high | np.isnan(x), 0.0, x).astype(to)
    return np.where(low, to(info.min), np.where(high, to(info.max), inside))[()]


def sat_i8(x: Any) -> Any:
    """Float to i8: towards zero, clamped to the range, NaN to 0."""
    return _saturate(x, i8)


def sat_i16(x: Any) -> Any:
    """Float to i16: towards zero, clamped to the range, NaN to 0."""
    return _saturate(x, i16)


def sat_i32(x: Any) -> Any:
    """Float to i32: towards zero, clamped to the range, NaN to 0."""
    return _saturate(x, i32)


def sat_i64(x: Any) -> Any:
    """Float to i64: towards zero, clamped to the range, NaN to 0."""
    return _saturate(x, i64)


def sat_u8(x: Any) -> Any:
    """Float to u8: towards zero, clamped to the range, NaN to 0."""
    return _saturate(x, u8)


def sat_u32(x: Any) -> Any:
    """Float to u32: towards zero, clamped to the range, NaN to 0."""
    return _saturate(x, u32)


# ---------------------------------------------------------------- tables


@cache
def inv_half_pi_table(k: int) -> np.ndarray:
    """Column `k` behind `inv_half_pi`: 1,024 f64."""
    # fixed point with 1,400 bits of 2/pi, and 52 more below for the scale
    bits = 1400
    scaled = (2 << (2 * bits)) // _pi_scaled(bits)
    column = np.empty(1024)
    for e in range(1024):
        rest = (scaled << e) & ((1 << (bits + 54)) - 1)
        for _ in range(k + 1):
            drop = max(rest.bit_length() - 53, 0)
            head = (rest >> drop) << drop
            rest -= head
        column[e] = head / (1 << (bits + 52))
    return column


def _pi_scaled(bits: int) -> int:
    """pi * 2**bits, truncated, by Machin's formula."""
    guard = bits + 32
    one = 1 << guard

    def arctan_inverse(n: int) -> int:
        power = total = one // n
        k, sign = 3, -1
        while power:
            power //= n * n
            total += sign * (power // k)
            k, sign = k + 2, -sign
        return total

    return (4 * (4 * arctan_inverse(5) - arctan_inverse(239))) >> 32


def inv_half_pi(e: Any, k: int) -> Any:
    """Part `k` (0 to 3) of 2**(e - 52) * 2/pi modulo 4 for 0 <= e < 1024, cut to 53 bits each."""
    return inv_half_pi_table(k)[e]


# ---------------------------------------------------------------- pointers


class _Memory:
    """Memory at an address, as NumPy's array interface wants it; its length is unknown."""
    def __init__(self, address: int, dtype: np.dtype) -> None:
        self.__array_interface__ = {"version": 3, "data": (address, False), "typestr": dtype.str,
                                    "shape": (1 << 40,)}


def _behind(base: Any, offset: int, to: type) -> np.ndarray:
    if isinstance(base, np.ndarray):
        return base.reshape(-1).view(np.uint8)[int(offset):].view(to)
    return np.asarray(_Memory(int(base) + int(offset), np.dtype(to)))


def _pointer(args: Any, k: Any, to: type) -> np.ndarray:
    """`args[k]` is an array or the address of a cell with its address, `args[k + 1]` a byte offset."""
    base = args[k]
    if not isinstance(base, np.ndarray):
        base = _behind(base, 0, i64)[0]
    return _behind(base, args[k + 1], to)


def ptr_i8(args: Any, k: Any) -> np.ndarray:
    """Pointer to i8 in slots `k` (base cell) and `k + 1` (byte offset)."""
    return _pointer(args, k, i8)


def ptr_u8(args: Any, k: Any) -> np.ndarray:
    """Pointer to u8 in slots `k` (base cell) and `k + 1` (byte offset)."""
    return _pointer(args, k, u8)


def ptr_i16(args: Any, k: Any) -> np.ndarray:
    """Pointer to i16 in slots `k` (base cell) and `k + 1` (byte offset)."""
    return _pointer(args, k, i16)


def ptr_u16(args: Any, k: Any) -> np.ndarray:
    """Pointer to u16 in slots `k` (base cell) and `k + 1` (byte offset)."""
    return _pointer(args, k, u16)


def ptr_i32(args: Any, k: Any) -> np.ndarray:
    """Pointer to i32 in slots `k` (base cell) and `k + 1` (byte offset)."""
    return _pointer(args, k, i32)


def ptr_u32(args: Any, k: Any) -> np.ndarray:
    """Pointer to u32 in slots `k` (base cell) and `k + 1` (byte offset)."""
    return _pointer(args, k, u32)


def ptr_i64(args: Any, k: Any) -> np.ndarray:
    """Pointer to i64 in slots `k` (base cell) and `k + 1` (byte offset)."""
    return _pointer(args, k, i64)


def ptr_u64(args: Any, k: Any) -> np.ndarray:
    """Pointer to u64 in slots `k` (base cell) and `k + 1` (byte offset)."""
    return _pointer(args, k, u64)


def ptr_f32(args: Any, k: Any) -> np.ndarray:
    """Pointer to f32 in slots `k` (base cell) and `k + 1` (byte offset)."""
    return _pointer(args, k, f32)


def ptr_f64(args: Any, k: Any) -> np.ndarray:
    """Pointer to f64 in slots `k` (base cell) and `k + 1` (byte offset)."""
    return _pointer(args, k, f64)


def raw_i8(address: Any) -> np.ndarray:
    """Pointer to i8 at an address (or over an array)."""
    return _behind(address, 0, i8)


def raw_u8(address: Any) -> np.ndarray:
    """Pointer to u8 at an address (or over an array)."""
    return _behind(address, 0, u8)


def raw_i16(address: Any) -> np.ndarray:
    """Pointer to i16 at an address (or over an array)."""
    return _behind(address, 0, i16)


def raw_u16(address: Any) -> np.ndarray:
    """Pointer to u16 at an address (or over an array)."""
    return _behind(address, 0, u16)


def raw_i32(address: Any) -> np.ndarray:
    """Pointer to i32 at an address (or over an array)."""
    return _behind(address, 0, i32)


def raw_u32(address: Any) -> np.ndarray:
    """Pointer to u32 at an address (or over an array)."""
    return _behind(address, 0, u32)


def raw_i64(address: Any) -> np.ndarray:
    """Pointer to i64 at an address (or over an array)."""
    return _behind(address, 0, i64)


def raw_u64(address: Any) -> np.ndarray:
    """Pointer to u64 at an address (or over an array)."""
    return _behind(address, 0, u64)


def raw_f32(address: Any) -> np.ndarray:
    """Pointer to f32 at an address (or over an array)."""
    return _behind(address, 0, f32)


def raw_f64(address: Any) -> np.ndarray:
    """Pointer to f64 at an address (or over an array)."""
    return _behind(address, 0, f64)


def f64_arg(args: Any, k: Any) -> Any:
    """Slot `k` of the argument table read as a double."""
    value = args[k]
    return f64(value) if isinstance(value, float) else f64_from_bits(i64(value))


def stack_f32(n: int) -> np.ndarray:
    """Scratch memory of `n` f32; compiled, `n` is a literal and the contents are undefined."""
    return np.full(n, np.nan, f32)


def stack_f64(n: int) -> np.ndarray:
    """Scratch memory of `n` f64; compiled, `n` is a literal and the contents are undefined."""
    return np.full(n, np.nan)


def stack_i64(n: int) -> np.ndarray:
    """Scratch memory of `n` i64; compiled, `n` is a literal and the contents are undefined."""
    return np.full(n, np.iinfo(i64).min)


def load_in(p: Any, i: Any) -> Any:
    """`p[i]`, promised not to lie in anything the kernel writes by `store_out` or `store_nth`."""
    return p[i]


def store_out(p: Any, i: Any, v: Any) -> None:
    """`p[i] = v`, where nothing read by `load_in` can be touched; outputs may overlap one another."""
    p[i] = v


def store_nth(p: Any, i: Any, v: Any, k: int) -> None:
    """`p[i] = v` for output number `k` (literal, below 32): also promised not to meet the other outputs."""
    p[i] = v


def fault(status: Any, code: Any, value: Any, site: Any, bound: Any) -> None:
    """Report what went wrong in the status words. The first report stays."""
    if status[0] == 0:
        for k, word in enumerate((code, value, site, bound)):
            status[k] = word


# ---------------------------------------------------------------- division and powers, defined for every operand


@_quiet
def frem(a: Any, b: Any) -> Any:
    """The remainder of a / b with the sign of a, exact (C's fmod)."""
    return np.fmod(a, b)


@_quiet
def int_floordiv(a: Any, b: Any) -> Any:
    """floor(a / b) on integers; 0 for b = 0."""
    return np.where(b == 0, a - a, np.floor_divide(a, np.where(b == 0, 1, b).astype(np.asarray(b).dtype)))[()]


@_quiet
def int_mod(a: Any, b: Any) -> Any:
    """a - floor(a / b) * b on integers; 0 for b = 0."""
    return np.where(b == 0, a - a, np.remainder(a, np.where(b == 0, 1, b).astype(np.asarray(b).dtype)))[()]


@_quiet
def int_pow(a: Any, b: Any) -> Any:
    """a**b on integers, wrapping; for negative b what 1 / a**-b truncates to, and 0 for a = 0."""
    kind = np.asarray(a).dtype
    b = np.asarray(b)
    whole = np.power(a, np.abs(b).astype(kind))
    return np.where((b < 0) & (np.abs(a) != 1), np.zeros((), kind), whole)[()]


# ---------------------------------------------------------------- BLAS


def _gemm(address: Any, ta: int, tb: int, m: int, n: int, k: int, a: Any, lda: int, b: Any, ldb: int, c: Any, ldc: int) -> None:
    """c = op(a) @ op(b), column-major: op transposes where t* is 1; `address` is not needed here."""
    def matrix(x: Any, rows: int, columns: int, ld: int) -> Any:
        return np.lib.stride_tricks.as_strided(x, (rows, columns), (x.itemsize, ld * x.itemsize))

    left = matrix(a, k, m, lda).T if ta else matrix(a, m, k, lda)
    right = matrix(b, n, k, ldb).T if tb else matrix(b, k, n, ldb)
    matrix(c, m, n, ldc)[...] = left @ right


def _at(p: Any, i: int) -> Any:
    """The pointer `i` elements further on."""
    return p[i:]


gemm_f32 = gemm_f64 = _gemm
at_f32 = at_f64 = _at
