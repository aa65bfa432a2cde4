"""Narrow floats at the bit level: bf16, f16 and the 8-bit formats, as straight-line helpers for kernels.

Every conversion to a narrow type rounds once, to nearest even (f8e8m0 has no even: halves go up). From f64
the value is first cut to f32 by rounding to odd, which leaves the second rounding the only one. Storage:
u16 and u8. All is checked bit for bit against NumPy and ml_dtypes: every pattern of the narrow types, and
for the way down every boundary between neighbours with the next floats on both sides.
"""
from __future__ import annotations

from fuelnumba.kernels.lang import (
    f32,
    f32_from_bits,
    f32_to_bits,
    f32_to_f16,
    f64,
    fabs,
    i32,
    rint,
    select,
    u8,
    u16,
    u32,
)

__all__ = [
    "bf16_to_f32", "f8e4m3_to_f32", "f8e5m2_to_f32", "f8e8m0_to_f32", "f32_to_bf16", "f32_to_f8e4m3",
    "f32_to_f8e5m2", "f32_to_f8e8m0", "f64_to_bf16", "f64_to_f8e4m3", "f64_to_f8e5m2", "f64_to_f8e8m0",
    "f64_to_f16", "f64_to_f32_odd",
]


def f64_to_f32_odd(x):
    """`x` cut to f32; where inexact, the neighbour with an odd last bit (never inf for a finite `x`)."""
    near = f32(x)
    back = f64(near)
    bits = f32_to_bits(near)
    # the magnitude bits of the f32 next to x on the side of zero, made odd
    down = select(fabs(back) > fabs(x), u32(bits - u32(1)), bits)
    return f32_from_bits(select(back == x, bits, u32(down | u32(1))))


# ---------------------------------------------------------------- bf16 and f16


def bf16_to_f32(u):
    """The bf16 whose bits are the u16 `u`, as f32 (exact)."""
    return f32_from_bits(u32(u32(u) << u32(16)))


def f32_to_bf16(x):
    """The bits (u16) of the nearest bf16; a NaN stays one and becomes quiet."""
    u = f32_to_bits(x)
    high = u32(u >> u32(16))
    rounded = u32(u32(u + u32(u32(0x7FFF) + u32(high & u32(1)))) >> u32(16))
    return u16(select(x == x, rounded, u32((high & u32(0x8000)) | u32(0x7FC0))))


def f64_to_bf16(x):
    """The bits (u16) of the bf16 nearest to the f64 `x`, rounded once."""
    return f32_to_bf16(f64_to_f32_odd(x))


def f64_to_f16(x):
    """The bits (u16) of the f16 nearest to the f64 `x`, rounded once."""
    return f32_to_f16(f64_to_f32_odd(x))


# ---------------------------------------------------------------- 8 bits
# Down: above the least normal, add just under half of the last place and cut; below it, scale so that one
# is the least subnormal and round to a whole number, which then is the code.


def f8e4m3_to_f32(u):
    """The f8e4m3 (ml_dtypes float8_e4m3fn: no inf, 0x7F is NaN) with the bits `u` (u8), as f32 (exact)."""
    w = u32(u)
    low = u32(w & u32(0x7F))
    sign = u32(u32(w & u32(0x80)) << u32(24))
    normal = u32(u32(low << u32(20)) + u32(0x3C000000))
    tiny = f32_to_bits(f32(i32(low)) * f32(0.001953125))
    magnitude = select(low < u32(8), tiny, normal)
    return f32_from_bits(u32(sign | select(low == u32(0x7F), u32(0x7FC00000), magnitude)))


def f32_to_f8e4m3(x):
    """The bits (u8) of the nearest f8e4m3; above 464 and inf give NaN, as in ml_dtypes."""
    u = f32_to_bits(x)
    sign = u32(u32(u >> u32(24)) & u32(0x80))
    a = u32(u & u32(0x7FFFFFFF))
    is_tiny = a < u32(0x3C800000)
    carry = u32(u32(0x7FFFF) + u32(u32(a >> u32(20)) & u32(1)))
    normal = u32(u32(u32(u32(a + carry)) >> u32(20)) - u32(0x3C0))
    small = select(is_tiny, fabs(x), f32(0))
    tiny = u32(i32(rint(small * f32(512))))
    code = select(is_tiny, tiny, normal)
    return u8(u32(sign | select(code < u32(0x7F), code, u32(0x7F))))


def f64_to_f8e4m3(x):
    """The bits (u8) of the f8e4m3 nearest to the f64 `x`, rounded once."""
    return f32_to_f8e4m3(f64_to_f32_odd(x))


def f8e5m2_to_f32(u):
    """The f8e5m2 (with inf, as ml_dtypes float8_e5m2) whose bits are the u8 `u`, as f32 (exact)."""
    w = u32(u)
    low = u32(w & u32(0x7F))
    sign = u32(u32(w & u32(0x80)) << u32(24))
    normal = u32(u32(low << u32(21)) + u32(0x38000000))
    tiny = f32_to_bits(f32(i32(low)) * f32(1.52587890625e-05))
    magnitude = select(low < u32(4), tiny, normal)
    special = select(low == u32(0x7C), u32(0x7F800000), u32(0x7FC00000))
    return f32_from_bits(u32(sign | select(low < u32(0x7C), magnitude, special)))


def f32_to_f8e5m2(x):
    """The bits (u8) of the nearest f8e5m2; from 61440 on inf, NaN stays NaN."""
    u = f32_to_bits(x)
    sign = u32(u32(u >> u32(24)) & u32(0x80))
    a = u32(u & u32(0x7FFFFFFF))
    is_tiny = a < u32(0x38800000)
    carry = u32(u32(0xFFFFF) + u32(u32(a >> u32(21)) & u32(1)))
    normal = u32(u32(u32(u32(a + carry)) >> u32(21)) - u32(0x1C0))
    small = select(is_tiny, fabs(x), f32(0))
    tiny = u32(i32(rint(small * f32(65536))))
    code = select(is_tiny, tiny, normal)
    finite = select(code < u32(0x7C), code, u32(0x7C))
    return u8(u32(sign | select(x == x, finite, u32(0x7E))))


def f64_to_f8e5m2(x):
    """The bits (u8) of the f8e5m2 nearest to the f64 `x`, rounded once."""
    return f32_to_f8e5m2(f64_to_f32_odd(x))


def f8e8m0_to_f32(u):
    """The scale 2**(u - 127) of the u8 `u` (ml_dtypes float8_e8m0fnu: 0xFF is NaN), as f32 (exact)."""
    w = u32(u)
    power = select(w == u32(0), u32(0x400000), u32(w << u32(23)))
    return f32_from_bits(select(w == u32(0xFF), u32(0x7FC00000), power))


def f32_to_f8e8m0(x):
    """The code (u8) of the nearest power of two, 1.5 times a power going up; at most 2**127, else NaN.

    As ml_dtypes: zero, negative values, inf and NaN have no code and give 0xFF; positive values up to 2**-127
    give 0, and everything between that and 2**-126 (f32's subnormals) goes up to 1.
    """
    u = f32_to_bits(x)
    normal = u32(u32(u + u32(0x400000)) >> u32(23))
    tiny = select(u > u32(0x400000), u32(1), u32(0))
    code = select(u < u32(0x800000), tiny, normal)
    return u8(select(x > f32(0), code, u32(0xFF)))


def f64_to_f8e8m0(x):
    """The code (u8) of the power of two nearest to the f64 `x`, rounded once; else as `f32_to_f8e8m0`."""
    return f32_to_f8e8m0(f64_to_f32_odd(x))
