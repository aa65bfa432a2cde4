"""Elementary functions that vectorise: straight-line polynomials, bit casts and `select`, for f32 and f64.

All are right over the whole range: subnormal arguments and results, signed zeros, infinities, NaN. Each is a
row of assignments and a return, so that it can be expanded into a kernel; other names come from `lang`.
Polynomials are our own minimax fits (`benchmarks/fit_polynomials.py`).

The ulp in a docstring bounds the largest error found in compiled code. f32: every 997th bit pattern (4.3 M
values) and every 29th of magnitude 1/32 to 128, against f64. f64: some thousand arguments, half spread over
all exponents and half over the interesting interval, against mpmath; rare, slightly larger errors may
exist.

Two habits keep the rounding in our hands although the compiler may contract `a * b + c`: what must be fused
says `fma`, a product that must be rounded by itself says `product`. Clamps are compared so that NaN falls
through.
"""
from __future__ import annotations

from fuelnumba.kernels.lang import (
    copysign,
    f32,
    f32_from_bits,
    f32_to_bits,
    f64,
    f64_from_bits,
    f64_to_bits,
    fabs,
    fma,
    i32,
    inv_half_pi,
    maximum,
    product,
    rint,
    select,
    sqrt,
    u32,
    u64,
)

__all__ = [
    "acos_f32",
    "acos_f64",
    "angle_f32",
    "asin_f32",
    "asin_f64",
    "asin_poly_f32",
    "asin_poly_f64",
    "atan2_f32",
    "atan2_f64",
    "atan_f32",
    "atan_f64",
    "atan_ratio_f32",
    "atan_ratio_f64",
    "circle_f32",
    "circle_f64",
    "cos_f32",
    "cos_f64",
    "cos_poly_f32",
    "cos_poly_f64",
    "cosh_f32",
    "cosh_f64",
    "erf_f32",
    "erf_f64",
    "erf_near_f32",
    "erf_near_f64",
    "erfc_f32",
    "erfc_f64",
    "exp2_f32",
    "exp2_f64",
    "exp_core_f32",
    "exp_core_f64",
    "exp_f32",
    "exp_f64",
    "exp_mid_f32",
    "exp_rest_f32",
    "exp_rest_f64",
    "exp_shift_f32",
    "exp_shift_f64",
    "expm1_core_f32",
    "expm1_core_f64",
    "expm1_f32",
    "expm1_f64",
    "log1p_f32",
    "log1p_f64",
    "log2_f32",
    "log2_f64",
    "log10_f32",
    "log10_f64",
    "log_exponent_f32",
    "log_exponent_f64",
    "log_f32",
    "log_f64",
    "log_fraction_f32",
    "log_fraction_f64",
    "log_mantissa_f64",
    "log_pair_high_f64",
    "log_pair_low_f64",
    "log_power_f64",
    "log_special_f32",
    "log_special_f64",
    "log_tail_f32",
    "log_tail_f64",
    "log_top_f32",
    "log_top_f64",
    "pow_f32",
    "pow_f64",
    "power_of_two_f64",
    "quadrant_f32",
    "ratio_f32",
    "ratio_f64",
    "scale_f32",
    "scale_f64",
    "sigmoid_f32",
    "sigmoid_f64",
    "sin_f32",
    "sin_f64",
    "sin_poly_f32",
    "sin_poly_f64",
    "sinh_f32",
    "sinh_f64",
    "sum_error",
    "tan_f32",
    "tan_f64",
    "tanh_f32",
    "tanh_f64",
    "turn_f32",
    "turn_high_f64",
    "turn_low_f64",
    "turn_mantissa_f64",
    "turn_near_f64",
    "turn_row_f64",
    "word_f32",
]


# ---------------------------------------------------------------- exponentials, f32
# exp(x) = 2**n * exp(r), r = x - n ln 2 in two steps. Adding 1.5 * 2**23 to x / ln 2 leaves n in the low
# bits.


def exp_shift_f32(x):
    """1.5 * 2**23 + n with n the whole number nearest to x / ln 2; |x| below 10**6."""
    return fma(x, f32(1.442695), f32(12582912.0))


def exp_rest_f32(x, n):
    """x - n ln 2."""
    return fma(n, f32(1.9046542e-09), fma(n, f32(-0.6931472), x))


def expm1_core_f32(r):
    """exp(r) - 1 for |r| up to ln(2)/2."""
    q = f32(0.0013839412)
    q = fma(q, r, f32(0.008369211))
    q = fma(q, r, f32(0.041668102))
    q = fma(q, r, f32(0.16666517))
    q = fma(q, r, f32(0.49999994))
    return fma(r * r, q, r)


def exp_core_f32(x, low, n):
    """exp(x + low - n ln 2) for the n nearest to x / ln 2; 1 + r is kept as a pair to save a rounding."""
    first = fma(n, f32(-0.6931472), x)
    second = fma(n, f32(1.9046542e-09), low)
    r = first + second
    high = f32(1) + first
    low = (f32(1) - high) + first
    q = f32(0.0013839412)
    q = fma(q, r, f32(0.008369211))
    q = fma(q, r, f32(0.041668102))
    q = fma(q, r, f32(0.16666517))
    q = fma(q, r, f32(0.49999994))
    return high + (low + fma(r * r, q, second))


def scale_f32(p, shift):
    """p * 2**n for n = shift - 1.5 * 2**23, in two steps to underflow gradually; |n| up to 250."""
    n = i32(u32(f32_to_bits(shift) - u32(0x4B400000)))
    half = i32(n >> i32(1))
    one = f32_from_bits(i32(i32(half + i32(127)) << i32(23)))
    two = f32_from_bits(i32(i32(i32(n - half) + i32(127)) << i32(23)))
    return (p * one) * two


def exp_mid_f32(x):
    """exp(x) where neither x nor the result is extreme: |x| up to 87."""
    shift = exp_shift_f32(x)
    power = f32_from_bits(u32(u32(f32_to_bits(shift) << u32(23)) + u32(0x3F800000)))
    return exp_core_f32(x, f32(0), shift - f32(12582912.0)) * power


def exp_f32(x):
    """exp. Max 0.78 ulp."""
    under = select(f32(89) < x, f32(89), x)
    c = select(f32(-104) > under, f32(-104), under)
    shift = exp_shift_f32(c)
    return scale_f32(exp_core_f32(c, f32(0), shift - f32(12582912.0)), shift)


def exp2_f32(x):
    """2**x. Max 0.85 ulp."""
    under = select(f32(129) < x, f32(129), x)
    c = select(f32(-151) > under, f32(-151), under)
    n = rint(c)
    r = c - n
    p = f32(0.00015823584)
    p = fma(p, r, f32(0.0013417893))
    p = fma(p, r, f32(0.009617071))
    p = fma(p, r, f32(0.055502724))
    p = fma(p, r, f32(0.24022655))
    p = fma(p, r, f32(0.69314724))
    return scale_f32(fma(p, r, f32(1)), n + f32(12582912.0))


def ratio_f32(a, al, b, bl):
    """(a + al) / (b + bl) of pairs, for b of ordinary size."""
    inverse = f32(1) / b
    q = product(a, inverse)
    return fma(fma(-q, b, a) + fma(-q, bl, al), inverse, q)


def expm1_f32(x):
    """exp(x) - 1, relatively accurate near 0. Max 1.5 ulp."""
    under = select(f32(89) < x, f32(89), x)
    c = select(f32(-30) > under, f32(-30), under)
    shift = exp_shift_f32(c)
    e = expm1_core_f32(exp_rest_f32(c, shift - f32(12582912.0)))
    # 2**(n - 1): n reaches 128
    power = f32_from_bits(u32(u32(f32_to_bits(shift) << u32(23)) + u32(0x3F000000)))
    y = fma(e, power, power - f32(0.5)) * f32(2)
    return select(fabs(x) < f32(1e-30), x, y)


def sigmoid_f32(x):
    """1 / (1 + exp(-x)), small values included. Max 1.55 ulp."""
    e = exp_f32(-fabs(x))
    s = f32(1) + e
    return ratio_f32(select(x < f32(0), e, f32(1)), f32(0), s, (f32(1) - s) + e)


def tanh_f32(x):
    """tanh. Max 1.35 ulp."""
    a = fabs(x)
    z = x * x
    p = f32(-0.0056356345)
    p = fma(p, z, f32(0.020578682))
    p = fma(p, z, f32(-0.053721797))
    p = fma(p, z, f32(0.13331236))
    p = fma(p, z, f32(-0.33333275))
    near = fma(a * z, p, a)
    c = select(f32(10) < a, f32(10), a)
    far = f32(1) - f32(2) / (exp_mid_f32(c + c) + f32(1))
    return copysign(select(a < f32(0.625), near, far), x)


def sinh_f32(x):
    """sinh. Max 1.6 ulp."""
    a = fabs(x)
    z = a * a
    p = f32(2.7839271e-06)
    p = fma(p, z, f32(0.00019842635))
    p = fma(p, z, f32(0.008333311))
    p = fma(p, z, f32(0.16666667))
    near = fma(a * z, p, a)
    # exp(a) / 2 overflows later than exp(a): halve the scale, not the result
    under = select(f32(91) < a, f32(91), a)
    shift = exp_shift_f32(under)
    up = scale_f32(exp_core_f32(under, f32(0), shift - f32(12582912.0)), shift - f32(1))
    return copysign(select(a < f32(1), near, up - f32(0.25) / up), x)


def cosh_f32(x):
    """cosh. Max 1.2 ulp."""
    a = fabs(x)
    under = select(f32(91) < a, f32(91), a)
    shift = exp_shift_f32(under)
    up = scale_f32(exp_core_f32(under, f32(0), shift - f32(12582912.0)), shift - f32(1))
    return up + f32(0.25) / up


# ---------------------------------------------------------------- logarithms, f32
# x = 2**e * (1 + f) with 1 + f in [2/3, 4/3); log(1 + f) = f + log_tail(f).


def log_top_f32(u):
    """Bits of a positive normal f32 less those of 2/3: the exponent e above bit 23."""
    return i32(u32(u - u32(0x3F2AAAAB)))


def log_tail_f32(f):
    """log(1 + f) - f for f in [-1/3, 1/3]."""
    p = f32(-0.12941901)
    p = fma(p, f, f32(0.13991708))
    p = fma(p, f, f32(-0.121736005))
    p = fma(p, f, f32(0.14004542))
    p = fma(p, f, f32(-0.16681185))
    p = fma(p, f, f32(0.20010474))
    p = fma(p, f, f32(-0.24999784))
    p = fma(p, f, f32(0.33333215))
    return (f * f) * fma(p, f, f32(-0.5))


def log_exponent_f32(x):
    """e of positive x, as f32; subnormals included."""
    tiny = x < f32(1.1754944e-38)
    u = f32_to_bits(select(tiny, x * f32(8388608.0), x))
    return f32(i32(log_top_f32(u) >> i32(23))) - select(tiny, f32(23), f32(0))


def log_fraction_f32(x):
    """f of positive x; subnormals included."""
    u = f32_to_bits(select(x < f32(1.1754944e-38), x * f32(8388608.0), x))
    return f32_from_bits(u32(u - u32(u32(log_top_f32(u)) & u32(0xFF800000)))) - f32(1)


def log_special_f32(x, y):
    """The logarithm y of x, put right for x = 0, negative, inf and NaN."""
    inf = f32_from_bits(u32(0x7F800000))
    bad = select(x == f32(0), -inf, f32_from_bits(u32(0x7FC00000)))
    return select(x < inf, select(x > f32(0), y, bad), x)


def log_f32(x):
    """The natural logarithm. Max 0.9 ulp."""
    e = log_exponent_f32(x)
    f = log_fraction_f32(x)
    y = f + fma(e, f32(-1.9046542e-09), log_tail_f32(f))
    return log_special_f32(x, fma(e, f32(0.6931472), y))


def log2_f32(x):
    """The logarithm to base 2. Max 1.55 ulp."""
    f = log_fraction_f32(x)
    y = fma(f, f32(1.442695), fma(f, f32(1.925963e-08), log_tail_f32(f) * f32(1.442695)))
    return log_special_f32(x, log_exponent_f32(x) + y)


def log10_f32(x):
    """The logarithm to base 10. Max 1.3 ulp."""
    e = log_exponent_f32(x)
    f = log_fraction_f32(x)
    y = fma(f, f32(0.4342945), fma(f, f32(-1.010305e-08), log_tail_f32(f) * f32(0.4342945)))
    return log_special_f32(x, fma(e, f32(0.30103), fma(e, f32(-1.4320989e-08), y)))


def log1p_f32(x):
    """log(1 + x), relatively accurate near 0. Max 1.65 ulp."""
    # 1 + x = u + c exactly; f = u / 2**e - 1 + c / 2**e
    u = f32(1) + x
    v = u - f32(1)
    c = (f32(1) - (u - v)) + (x - v)
    d = log_top_f32(f32_to_bits(u))
    top = u32(u32(d) & u32(0xFF800000))
    scale = select(x > f32(1e30), f32(0), f32_from_bits(u32(u32(0x3F800000) - top)))
    f = fma(c, scale, f32_from_bits(u32(f32_to_bits(u) - top)) - f32(1))
    e = f32(i32(d >> i32(23)))
    y = fma(e, f32(0.6931472), f + fma(e, f32(-1.9046542e-09), log_tail_f32(f)))
    inf = f32_from_bits(u32(0x7F800000))
    bad = select(x == f32(-1), -inf, f32_from_bits(u32(0x7FC00000)))
    return select(x < inf, select(x > f32(-1), select(x == f32(0), x, y), bad), x)


# ---------------------------------------------------------------- error function, f32


def erf_near_f32(x):
    """erf for |x| up to 0.92."""
    z = x * x
    p = f32(7.995296e-05)
    p = fma(p, z, f32(-0.00080495526))
    p = fma(p, z, f32(0.0051923944))
    p = fma(p, z, f32(-0.02685573))
    p = fma(p, z, f32(0.11283626))
    p = fma(p, z, f32(-0.3761263))
    p = fma(p, z, f32(0.12837917))
    return fma(x, p, x)


def erf_f32(x):
    """The error function. Max 1.06 ulp."""
    a = fabs(x)
    # far from zero 1 - erfc(a), through the polynomial of log(erfc(a))
    c = select(f32(3.94) < a, f32(3.94), a)
    q = f32(-2.1167878e-05)
    q = fma(q, c, f32(0.000435274))
    q = fma(q, c, f32(-0.004174856))
    q = fma(q, c, f32(0.025129074))
    q = fma(q, c, f32(-0.10829452))
    q = fma(q, c, f32(-0.6333342))
    q = fma(q, c, f32(-1.129521))
    q = fma(q, c, f32(0.00017591119))
    far = f32(1) - exp_mid_f32(q)
    return select(a < f32(0.92), erf_near_f32(x), copysign(far, x))


def erfc_f32(x):
    """1 - erf(x), relatively accurate in the tail. Max 2.35 ulp."""
    # erfc(a) = exp(-a^2) * g(a) / (1 + 2 a), g smooth in (a - 2) / (a + 2); the square is kept exact
    a = fabs(x)
    c = select(f32(10.1) < a, f32(10.1), a)
    s = product(c, c)
    shift = exp_shift_f32(-s)
    power = exp_core_f32(-s, -fma(c, c, -s), shift - f32(12582912.0))
    t = (c - f32(2)) / (c + f32(2))
    g = f32(0.00016643498)
    g = fma(g, t, f32(0.00033134827))
    g = fma(g, t, f32(-0.00043095584))
    g = fma(g, t, f32(-0.0016065768))
    g = fma(g, t, f32(0.001219865))
    g = fma(g, t, f32(0.008785367))
    g = fma(g, t, f32(-0.008012015))
    g = fma(g, t, f32(-0.054231066))
    g = fma(g, t, f32(0.16404817))
    g = fma(g, t, f32(-0.16602968))
    g = fma(g, t, f32(-0.092763714))
    g = fma(g, t, f32(1.2769784))
    top = product(power, g)
    bottom = fma(c, f32(2), f32(1))
    quotient = ratio_f32(top, fma(power, g, -top), bottom, fma(c, f32(2), f32(1) - bottom))
    y = scale_f32(quotient, shift)
    return select(a < f32(0.5), f32(1) - erf_near_f32(x), select(x < f32(0), f32(2) - y, y))


# ---------------------------------------------------------------- trigonometry, f32
# |x| * 2/pi modulo 4 in fixed point: the 24 bits of x times a 96-bit window of 2/pi, chosen word by word
# with `select`. That serves every finite f32, and is the only path; below pi/4 nothing is reduced.


def word_f32(k, w0, w1, w2, w3, w4):
    """The word number k (0 to 4)."""
    low = select(k < i32(1), w0, select(k < i32(2), w1, w2))
    return select(k < i32(3), low, select(k < i32(4), w3, w4))


def turn_f32(x):
    """|x| * 2/pi modulo 4 in units of 2**-62, for finite |x| of at least pi/4."""
    u = u32(f32_to_bits(x) & u32(0x7FFFFFFF))
    m = u64(u32(u32(u & u32(0x7FFFFF)) | u32(0x800000)))
    t = i32(i32(u >> u32(23)) - i32(120))
    k = i32(t >> i32(5))
    s = u32(u32(t) & u32(31))
    back = u32(u32(31) - s)
    a = word_f32(k, u32(0), u32(0xA2F9836E), u32(0x4E441529), u32(0xFC2757D1), u32(0xF534DDC0))
    b = word_f32(k, u32(0xA2F9836E), u32(0x4E441529), u32(0xFC2757D1), u32(0xF534DDC0), u32(0xDB629599))
    c = word_f32(k, u32(0x4E441529), u32(0xFC2757D1), u32(0xF534DDC0), u32(0xDB629599), u32(0x3C439041))
    d = word_f32(k, u32(0xFC2757D1), u32(0xF534DDC0), u32(0xDB629599), u32(0x3C439041), u32(0xFE5163AB))
    high = u32(u32(a << s) | u32(u32(b >> u32(1)) >> back))
    mid = u32(u32(b << s) | u32(u32(c >> u32(1)) >> back))
    low = u32(u32(c << s) | u32(u32(d >> u32(1)) >> back))
    upper = u64(u64(m * u64(high)) << u64(32))
    return u64(u64(upper + u64(m * u64(mid))) + u64(u64(m * u64(low)) >> u64(32)))


def quadrant_f32(x):
    """The multiple of pi/2 nearest to |x|, modulo 4."""
    q = u32(u64(u64(turn_f32(x) + u64(0x2000000000000000)) >> u64(62)))
    return select(fabs(x) < f32(0.7853981), u32(0), q)


def angle_f32(x):
    """|x| less the nearest multiple of pi/2, as f64."""
    # shifting left by two drops the quadrant and leaves the signed rest
    rest = u64(turn_f32(x) << u64(2))
    high = i32(u32(u64(rest >> u64(32))))
    low = i32(u32(u64(u64(rest & u64(0xFFFFFFFF)) >> u64(1))))
    r = fma(f64(high), f64(4294967296.0), f64(low) * f64(2)) * f64(8.515303950216386e-20)
    return select(fabs(x) < f32(0.7853981), f64(fabs(x)), r)


def sin_poly_f32(r):
    """sin(r) for |r| up to pi/4."""
    z = r * r
    p = f32(-0.00019518805)
    p = fma(p, z, f32(0.008332192))
    p = fma(p, z, f32(-0.16666655))
    return fma(r * z, p, r)


def cos_poly_f32(r):
    """cos(r) for |r| up to pi/4."""
    z = r * r
    p = f32(2.4430661e-05)
    p = fma(p, z, f32(-0.0013887301))
    p = fma(p, z, f32(0.041666646))
    return fma(z * z, p, fma(z, f32(-0.5), f32(1)))


def circle_f32(x, turn):
    """sin(|x| + turn * pi/2), not yet right for inf and NaN."""
    r = f32(angle_f32(x))
    q = u32(quadrant_f32(x) + turn)
    y = select(u32(q & u32(1)) == u32(0), sin_poly_f32(r), cos_poly_f32(r))
    return f32_from_bits(u32(f32_to_bits(y) ^ u32(u32(q & u32(2)) << u32(30))))


def sin_f32(x):
    """sin, for every finite argument. Max 1.6 ulp."""
    y = circle_f32(x, u32(0))
    signed = f32_from_bits(u32(f32_to_bits(y) ^ u32(f32_to_bits(x) & u32(0x80000000))))
    return select(fabs(x) < f32_from_bits(u32(0x7F800000)), signed, x - x)


def cos_f32(x):
    """cos, for every finite argument. Max 1.6 ulp."""
    return select(fabs(x) < f32_from_bits(u32(0x7F800000)), circle_f32(x, u32(1)), x - x)


def tan_f32(x):
    """tan, for every finite argument. Max 1.7 ulp."""
    wide = angle_f32(x)
    r = f32(wide)
    # what the cut to f32 dropped, brought back to first order
    low = f32(wide - f64(r))
    z = r * r
    p = f32(0.004441935)
    p = fma(p, z, f32(-4.6372585e-05))
    p = fma(p, z, f32(0.010945665))
    p = fma(p, z, f32(0.021238575))
    p = fma(p, z, f32(0.054068655))
    p = fma(p, z, f32(0.13332583))
    p = fma(p, z, f32(0.33333352))
    t = r + fma(r * z, p, fma(low, r * r, low))
    odd = u32(quadrant_f32(x) & u32(1)) == u32(1)
    y = select(odd, f32(-1), t) / select(odd, t, f32(1))
    flip = u32(f32_to_bits(x) & u32(0x80000000))
    return select(fabs(x) < f32_from_bits(u32(0x7F800000)), f32_from_bits(u32(f32_to_bits(y) ^ flip)), x - x)


def atan_ratio_f32(a, b):
    """atan(a / b) for a, b >= 0, at most one of them 0 or inf, no NaN; one division."""
    swap = a > b
    top = select(swap, b, a)
    bottom = select(swap, a, b)
    far = top > bottom * f32(0.41421356)
    t = select(far, top - bottom, top) / select(far, top + bottom, bottom)
    z = t * t
    p = f32(-0.060928605)
    p = fma(p, z, f32(0.1060021))
    p = fma(p, z, f32(-0.14244513))
    p = fma(p, z, f32(0.19998533))
    p = fma(p, z, f32(-0.33333316))
    near = fma(t * z, p, t)
    y = select(far, f32(0.7853982) + (near + f32(-2.1855694e-08)), near)
    return select(swap, f32(1.5707964) - (y - f32(-4.371139e-08)), y)


def atan_f32(x):
    """The inverse of tan. Max 2.15 ulp."""
    a = fabs(x)
    huge = f32(1e30)
    y = atan_ratio_f32(select(a < huge, a, huge), f32(1))
    return select(x == x, copysign(y, x), x)


def atan2_f32(y, x):
    """The angle of the point (x, y), in every quadrant, signed zeros and infinities as in C.

    Max 2.25 ulp.
    """
    inf = f32_from_bits(u32(0x7F800000))
    a = fabs(y)
    b = fabs(x)
    # inf / inf counts as 1 / 1 and 0 / 0 as 0 / 1; huge values shrink so that their sum stays finite
    both = (a == inf) & (b == inf)
    big = maximum(a, b) > f32(1e38)
    shrink = select(big, f32(0.25), f32(1))
    none = maximum(a, b) == f32(0)
    tall = select(both, f32(1), select(b == inf, f32(0), select(a == inf, f32(1), a * shrink)))
    wide = select(both | none, f32(1), select(b == inf, f32(1), select(a == inf, f32(0), b * shrink)))
    r = atan_ratio_f32(tall, wide)
    left = u32(f32_to_bits(x) & u32(0x80000000)) != u32(0)
    turned = select(left, f32(3.1415927) - (r - f32(-8.742278e-08)), r)
    return select((x == x) & (y == y), copysign(turned, y), x + y)


def asin_poly_f32(x):
    """asin(x) - x for |x| up to 1/2."""
    z = x * x
    p = f32(0.042204298)
    p = fma(p, z, f32(0.024156047))
    p = fma(p, z, f32(0.045475367))
    p = fma(p, z, f32(0.07495256))
    p = fma(p, z, f32(0.16666754))
    return x * z * p


def asin_f32(x):
    """The inverse of sin; NaN outside [-1, 1]. Max 0.78 ulp."""
    a = fabs(x)
    # beyond 1/2: pi/2 - 2 asin(r + rl), r + rl = sqrt((1 - a) / 2) as a pair
    z = f32(0.5) - f32(0.5) * a
    r = sqrt(z)
    rl = fma(-r, r, z) / (r + r + f32(1e-30))
    h = f32(1.5707964) - f32(2) * r
    hl = (f32(1.5707964) - h) - f32(2) * r
    far = h + (hl + (f32(-4.371139e-08) - f32(2) * (asin_poly_f32(r) + rl)))
    return copysign(select(a < f32(0.5), a + asin_poly_f32(a), far), x)


def acos_f32(x):
    """The inverse of cos; NaN outside [-1, 1]. Max 1.2 ulp."""
    a = fabs(x)
    near = a < f32(0.5)
    r = select(near, x, sqrt(f32(0.5) - f32(0.5) * a))
    s = r + asin_poly_f32(r)
    far = select(x < f32(0), f32(3.1415927) - (s + (s - f32(-8.742278e-08))), s + s)
    return select(near, f32(1.5707964) - (s - f32(-4.371139e-08)), far)


# ---------------------------------------------------------------- power


def log_top_f64(u):
    """Bits of a positive normal f64, rebased so that above bit 52 is e for 1 + f in [sqrt(1/2), sqrt(2))."""
    return u64(u64(u - u64(0x3FE6A09E667F3BCD)) + u64(0x3FF0000000000000))


def log_power_f64(u):
    """The exponent e of the f64 with bits u, as f64."""
    return f64(i32(u32(u64(log_top_f64(u) >> u64(52))))) - f64(1023)


def log_mantissa_f64(u):
    """1 + f of the f64 with bits u."""
    top = u64(log_top_f64(u) & u64(0xFFF0000000000000))
    return f64_from_bits(u64(u64(u - top) + u64(0x3FF0000000000000)))


def power_of_two_f64(n):
    """2**n for whole n in [-1022, 1023]."""
    shift = f64_to_bits(n + f64(6755399441055744.0))
    return f64_from_bits(u64(u64(shift << u64(52)) + u64(0x3FF0000000000000)))


def pow_f32(x, y):
    """x**y with IEEE's special cases, computed in f64. Max 0.55 ulp."""
    one = f32(1)
    inf = f32_from_bits(u32(0x7F800000))
    a = fabs(x)
    u = f64_to_bits(f64(a))
    m = log_mantissa_f64(u)
    s = (m - f64(1)) / (m + f64(1))
    z = s * s
    p = f64(0.1682061871125332)
    p = fma(p, z, f64(0.18123579991095096))
    p = fma(p, z, f64(0.22223373486989406))
    p = fma(p, z, f64(0.2857141710663113))
    p = fma(p, z, f64(0.40000000052399987))
    p = fma(p, z, f64(0.6666666666658699))
    ln = fma(s * z, p, s + s)
    log = fma(ln, f64(1.4426950408889634), log_power_f64(u))
    # zero, inf and NaN have no such logarithm
    ends = select(a == f32(0), f64(-inf), f64(a))
    t = f64(y) * select((a > f32(0)) & (a < inf), log, ends)
    under = select(f64(160) < t, f64(160), t)
    c = select(f64(-160) > under, f64(-160), under)
    n = rint(c)
    r = c - n
    q = f64(0.00015603941619842245)
    q = fma(q, r, f64(0.0013406611864493244))
    q = fma(q, r, f64(0.009617667179989534))
    q = fma(q, r, f64(0.055503105219088016))
    q = fma(q, r, f64(0.24022652795981234))
    q = fma(q, r, f64(0.6931472149631264))
    size = f32(fma(q, r, f64(1)) * power_of_two_f64(n))
    # the sign, for negative bases
    whole = rint(y) == y
    half = y * f32(0.5)
    odd = whole & (rint(half) != half)
    signed = select(odd, copysign(size, x), size)
    negative = select(whole | (a == inf) | (a == f32(0)), signed, f32_from_bits(u32(0x7FC00000)))
    value = select((x < f32(0)) | (x == f32(0)), negative, size)
    always = (x == one) | (y == f32(0)) | ((a == one) & (fabs(y) == inf))
    return select(always, one, select(y == y, value, y))


def pow_f64(x, y):
    """x**y with IEEE's special cases. Max 1.0 ulp."""
    one = f64(1)
    inf = f64_from_bits(u64(0x7FF0000000000000))
    a = fabs(x)
    tiny = a < f64(2.2250738585072014e-308)
    u = f64_to_bits(select(tiny, a * f64(18014398509481984.0), a))
    e = log_power_f64(u) - select(tiny, f64(54), f64(0))
    m = log_mantissa_f64(u)
    # s + sl = (m - 1) / (m + 1) as a pair
    f = m - one
    d = m + one
    dl = m - (d - one)
    s = f / d
    sl = fma(-s, dl, fma(-s, d, f)) / d
    # z + zl = s^2; log(m) = 2 s + s * z * (2/3 + z * p)
    z = product(s, s)
    zl = fma(s + s, sl, fma(s, s, -z))
    p = f64(0.09523809523809523)
    p = fma(p, z, f64(0.10526315789473684))
    p = fma(p, z, f64(0.11764705882352941))
    p = fma(p, z, f64(0.13333333333333333))
    p = fma(p, z, f64(0.15384615384615385))
    p = fma(p, z, f64(0.18181818181818182))
    p = fma(p, z, f64(0.2222222222222222))
    p = fma(p, z, f64(0.2857142857142857))
    p = fma(p, z, f64(0.39999999999999999))
    pz = product(p, z)
    c = f64(0.6666666666666666) + pz
    cl = (pz - (c - f64(0.6666666666666666))) + (fma(p, z, -pz) + f64(3.700743415417188e-17))
    w = product(z, c)
    wl = fma(z, c, -w) + fma(z, cl, zl * c)
    k = product(s, w)
    kl = fma(s, w, -k) + fma(s, wl, sl * w)
    h = s + s
    ln = h + k
    lnl = (k - (ln - h)) + (fma(f64(2), sl, kl))
    # to base 2, times y, as pairs
    b = product(ln, f64(1.4426950408889634))
    bt = fma(ln, f64(2.0355273740931033e-17), lnl * f64(1.4426950408889634))
    bl = fma(ln, f64(1.4426950408889634), -b) + bt
    g = e + b
    gl = ((e - g) + b) + bl
    log = g + gl
    logl = gl - (log - g)
    ends = select(a == f64(0), -inf, a)
    normal = (a > f64(0)) & (a < inf)
    hi = select(normal, log, ends)
    t = product(y, hi)
    tl = fma(y, log, -t) + y * logl
    fits = fabs(t) < f64(1100)
    under = select(f64(1100) < t, f64(1100), t)
    v = select(f64(-1100) > under, f64(-1100), under)
    n = rint(v)
    r = (v - n) + select(fits & normal, tl, f64(0))
    q = f64(2.867745388402064e-11)
    q = fma(q, r, f64(4.473589979102495e-10))
    q = fma(q, r, f64(7.052982911018906e-09))
    q = fma(q, r, f64(1.0177930546144408e-07))
    q = fma(q, r, f64(1.3215491255509818e-06))
    q = fma(q, r, f64(1.5252734170675989e-05))
    q = fma(q, r, f64(0.00015403530388955868))
    q = fma(q, r, f64(0.001333355814603029))
    q = fma(q, r, f64(0.009618129107630212))
    q = fma(q, r, f64(0.05550410866482339))
    q = fma(q, r, f64(0.2402265069591007))
    q = fma(q, r, f64(0.6931471805599453))
    size = scale_f64(fma(q, r, one), n + f64(6755399441055744.0))
    whole = rint(y) == y
    half = y * f64(0.5)
    odd = whole & (rint(half) != half)
    signed = select(odd, copysign(size, x), size)
    negative = select(whole | (a == inf) | (a == f64(0)), signed, f64_from_bits(u64(0x7FF8000000000000)))
    value = select((x < f64(0)) | (x == f64(0)), negative, size)
    always = (x == one) | (y == f64(0)) | ((a == one) & (fabs(y) == inf))
    return select(always, one, select(y == y, value, y))


# ---------------------------------------------------------------- exponentials, f64


def exp_shift_f64(x):
    """1.5 * 2**52 + n with n the whole number nearest to x / ln 2."""
    return fma(x, f64(1.4426950408889634), f64(6755399441055744.0))


def exp_rest_f64(x, n):
    """x - n ln 2."""
    return fma(n, f64(-2.3190468138462996e-17), fma(n, f64(-0.6931471805599453), x))


def expm1_core_f64(r):
    """exp(r) - 1 for |r| up to ln(2)/2."""
    q = f64(2.5021125075823213e-08)
    q = fma(q, r, f64(2.7630723628209257e-07))
    q = fma(q, r, f64(2.755752627621755e-06))
    q = fma(q, r, f64(2.4801491783707922e-05))
    q = fma(q, r, f64(0.00019841269565328248))
    q = fma(q, r, f64(0.0013888888944854003))
    q = fma(q, r, f64(0.008333333333471736))
    q = fma(q, r, f64(0.04166666666652579))
    q = fma(q, r, f64(0.1666666666666644))
    q = fma(q, r, f64(0.5000000000000011))
    return fma(r * r, q, r)


def exp_core_f64(x, low, n):
    """exp(x + low - n ln 2) for the n nearest to x / ln 2; 1 + r is kept as a pair to save a rounding."""
    first = fma(n, f64(-0.6931471805599453), x)
    second = fma(n, f64(-2.3190468138462996e-17), low)
    r = first + second
    high = f64(1) + first
    low = (f64(1) - high) + first
    q = f64(2.5021125075823213e-08)
    q = fma(q, r, f64(2.7630723628209257e-07))
    q = fma(q, r, f64(2.755752627621755e-06))
    q = fma(q, r, f64(2.4801491783707922e-05))
    q = fma(q, r, f64(0.00019841269565328248))
    q = fma(q, r, f64(0.0013888888944854003))
    q = fma(q, r, f64(0.008333333333471736))
    q = fma(q, r, f64(0.04166666666652579))
    q = fma(q, r, f64(0.1666666666666644))
    q = fma(q, r, f64(0.5000000000000011))
    return high + (low + fma(r * r, q, second))


def scale_f64(p, shift):
    """p * 2**n for n = shift - 1.5 * 2**52, in two steps to underflow gradually; |n| up to 2,000."""
    n = i32(u32(f64_to_bits(shift)))
    half = i32(n >> i32(1))
    one = f64_from_bits(u64(u64(u32(half + i32(1023))) << u64(52)))
    two = f64_from_bits(u64(u64(u32(i32(n - half) + i32(1023))) << u64(52)))
    return (p * one) * two


def exp_f64(x):
    """exp. Max 0.75 ulp."""
    under = select(f64(710) < x, f64(710), x)
    c = select(f64(-746) > under, f64(-746), under)
    shift = exp_shift_f64(c)
    return scale_f64(exp_core_f64(c, f64(0), shift - f64(6755399441055744.0)), shift)


def exp2_f64(x):
    """2**x. Max 0.8 ulp."""
    under = select(f64(1025) < x, f64(1025), x)
    c = select(f64(-1076) > under, f64(-1076), under)
    n = rint(c)
    r = c - n
    p = f64(2.867745388402064e-11)
    p = fma(p, r, f64(4.473589979102495e-10))
    p = fma(p, r, f64(7.052982911018906e-09))
    p = fma(p, r, f64(1.0177930546144408e-07))
    p = fma(p, r, f64(1.3215491255509818e-06))
    p = fma(p, r, f64(1.5252734170675989e-05))
    p = fma(p, r, f64(0.00015403530388955868))
    p = fma(p, r, f64(0.001333355814603029))
    p = fma(p, r, f64(0.009618129107630212))
    p = fma(p, r, f64(0.05550410866482339))
    p = fma(p, r, f64(0.2402265069591007))
    p = fma(p, r, f64(0.6931471805599453))
    return scale_f64(fma(p, r, f64(1)), n + f64(6755399441055744.0))


def ratio_f64(a, al, b, bl):
    """(a + al) / (b + bl) of pairs, for b of ordinary size."""
    inverse = f64(1) / b
    q = product(a, inverse)
    return fma(fma(-q, b, a) + fma(-q, bl, al), inverse, q)


def expm1_f64(x):
    """exp(x) - 1, relatively accurate near 0. Max 1.4 ulp."""
    under = select(f64(710) < x, f64(710), x)
    c = select(f64(-60) > under, f64(-60), under)
    shift = exp_shift_f64(c)
    e = expm1_core_f64(exp_rest_f64(c, shift - f64(6755399441055744.0)))
    # 2**(n - 1): n reaches 1024
    power = f64_from_bits(u64(u64(f64_to_bits(shift) << u64(52)) + u64(0x3FE0000000000000)))
    y = fma(e, power, power - f64(0.5)) * f64(2)
    return select(fabs(x) < f64(1e-300), x, y)


def sigmoid_f64(x):
    """1 / (1 + exp(-x)), small values included. Max 1.5 ulp."""
    e = exp_f64(-fabs(x))
    s = f64(1) + e
    return ratio_f64(select(x < f64(0), e, f64(1)), f64(0), s, (f64(1) - s) + e)


def tanh_f64(x):
    """tanh, as m / (m + 2) with m = expm1(2 |x|). Max 2.6 ulp."""
    a = fabs(x)
    c = select(f64(25) < a, f64(25), a)
    m = expm1_f64(c + c)
    return select(a < f64(1e-300), x, copysign(m / (m + f64(2)), x))


def sinh_f64(x):
    """sinh. Max 1.4 ulp."""
    a = fabs(x)
    z = a * a
    p = f64(6.2642236753908735e-15)
    p = fma(p, z, f64(7.510967119104975e-13))
    p = fma(p, z, f64(1.6061227977087645e-10))
    p = fma(p, z, f64(2.5052090215935255e-08))
    p = fma(p, z, f64(2.755731930708218e-06))
    p = fma(p, z, f64(0.00019841269841066556))
    p = fma(p, z, f64(0.00833333333333357))
    p = fma(p, z, f64(0.16666666666666666))
    near = fma(a * z, p, a)
    # exp(a) / 2 overflows later than exp(a): halve the scale, not the result
    under = select(f64(712) < a, f64(712), a)
    shift = exp_shift_f64(under)
    up = scale_f64(exp_core_f64(under, f64(0), shift - f64(6755399441055744.0)), shift - f64(1))
    return copysign(select(a < f64(1), near, up - f64(0.25) / up), x)


def cosh_f64(x):
    """cosh. Max 1.1 ulp."""
    a = fabs(x)
    under = select(f64(712) < a, f64(712), a)
    shift = exp_shift_f64(under)
    up = scale_f64(exp_core_f64(under, f64(0), shift - f64(6755399441055744.0)), shift - f64(1))
    return up + f64(0.25) / up


# ---------------------------------------------------------------- logarithms, f64


def log_exponent_f64(x):
    """e of positive x = 2**e * (1 + f); subnormals included."""
    tiny = x < f64(2.2250738585072014e-308)
    u = f64_to_bits(select(tiny, x * f64(18014398509481984.0), x))
    return log_power_f64(u) - select(tiny, f64(54), f64(0))


def log_fraction_f64(x):
    """f of positive x; subnormals included."""
    tiny = x < f64(2.2250738585072014e-308)
    return log_mantissa_f64(f64_to_bits(select(tiny, x * f64(18014398509481984.0), x))) - f64(1)


def log_tail_f64(f):
    """log(1 + f) - f + f^2 / 2 for 1 + f in [sqrt(1/2), sqrt(2)]."""
    s = f / (f + f64(2))
    z = s * s
    p = f64(0.14797478945058085)
    p = fma(p, z, f64(0.15313896049299167))
    p = fma(p, z, f64(0.1818357045811721))
    p = fma(p, z, f64(0.2222219845293624))
    p = fma(p, z, f64(0.28571428743580757))
    p = fma(p, z, f64(0.39999999999409325))
    p = fma(p, z, f64(0.6666666666666735))
    return s * fma(z, p, f64(0.5) * f * f)


def log_special_f64(x, y):
    """The logarithm y of x, put right for x = 0, negative, inf and NaN."""
    inf = f64_from_bits(u64(0x7FF0000000000000))
    bad = select(x == f64(0), -inf, f64_from_bits(u64(0x7FF8000000000000)))
    return select(x < inf, select(x > f64(0), y, bad), x)


def log_f64(x):
    """The natural logarithm. Max 0.8 ulp."""
    e = log_exponent_f64(x)
    f = log_fraction_f64(x)
    square = f64(0.5) * f * f
    y = f - (square - fma(e, f64(2.3190468138462996e-17), log_tail_f64(f)))
    return log_special_f64(x, fma(e, f64(0.6931471805599453), y))


def log_pair_high_f64(f):
    """The leading part of log(1 + f): f - f^2 / 2."""
    return fma(f64(-0.5) * f, f, f)


def log_pair_low_f64(f):
    """What log(1 + f) has beyond the leading part."""
    high = log_pair_high_f64(f)
    return fma(f64(-0.5) * f, f, f - high) + log_tail_f64(f)


def log2_f64(x):
    """The logarithm to base 2. Max 0.6 ulp."""
    e = log_exponent_f64(x)
    f = log_fraction_f64(x)
    high = log_pair_high_f64(f)
    low = fma(high, f64(2.0355273740931033e-17), log_pair_low_f64(f) * f64(1.4426950408889634))
    y = fma(high, f64(1.4426950408889634), e)
    rest = fma(high, f64(1.4426950408889634), e - y)
    return log_special_f64(x, y + (rest + low))


def log10_f64(x):
    """The logarithm to base 10. Max 0.65 ulp."""
    e = log_exponent_f64(x)
    f = log_fraction_f64(x)
    high = log_pair_high_f64(f)
    low = fma(high, f64(1.098319650216765e-17), log_pair_low_f64(f) * f64(0.4342944819032518))
    # e * log10(2) = big + small as a pair
    big = product(e, f64(0.3010299956639812))
    small = fma(e, f64(-2.8037281277851704e-18), fma(e, f64(0.3010299956639812), -big))
    y = fma(high, f64(0.4342944819032518), big)
    rest = fma(high, f64(0.4342944819032518), big - y)
    return log_special_f64(x, y + (rest + (low + small)))


def log1p_f64(x):
    """log(1 + x), relatively accurate near 0. Max 0.8 ulp."""
    u = f64(1) + x
    v = u - f64(1)
    c = (f64(1) - (u - v)) + (x - v)
    bits = f64_to_bits(u)
    e = log_power_f64(bits)
    scale = select(x > f64(1e300), f64(0), power_of_two_f64(-e))
    f = fma(c, scale, log_mantissa_f64(bits) - f64(1))
    square = f64(0.5) * f * f
    y = f - (square - fma(e, f64(2.3190468138462996e-17), log_tail_f64(f)))
    inf = f64_from_bits(u64(0x7FF0000000000000))
    bad = select(x == f64(-1), -inf, f64_from_bits(u64(0x7FF8000000000000)))
    value = select(x == f64(0), x, fma(e, f64(0.6931471805599453), y))
    return select(x < inf, select(x > f64(-1), value, bad), x)


# ---------------------------------------------------------------- error function, f64


def erf_near_f64(x):
    """erf for |x| up to 0.87."""
    z = x * x
    p = f64(-1.1623918350054052e-09)
    p = fma(p, z, f64(1.5351736488167398e-08))
    p = fma(p, z, f64(-1.6508919697670186e-07))
    p = fma(p, z, f64(1.6478691515468791e-06))
    p = fma(p, z, f64(-1.492675739059364e-05))
    p = fma(p, z, f64(0.00012055378766265203))
    p = fma(p, z, f64(-0.0008548328211205868))
    p = fma(p, z, f64(0.005223977644360397))
    p = fma(p, z, f64(-0.02686617064689261))
    p = fma(p, z, f64(0.11283791670964065))
    p = fma(p, z, f64(-0.37612638903183976))
    p = fma(p, z, f64(0.1283791670955126))
    return fma(x, p, x)


def erf_f64(x):
    """The error function. Max 0.9 ulp."""
    a = fabs(x)
    return select(a < f64(0.87), erf_near_f64(x), copysign(f64(1) - erfc_f64(a), x))


def erfc_f64(x):
    """1 - erf(x), relatively accurate in the tail. Max 1.9 ulp."""
    # as erfc_f32, with g smooth in (a - 3.5) / (a + 3.5)
    a = fabs(x)
    c = select(f64(27.3) < a, f64(27.3), a)
    s = product(c, c)
    shift = exp_shift_f64(-s)
    power = exp_core_f64(-s, -fma(c, c, -s), shift - f64(6755399441055744.0))
    t = (c - f64(3.5)) / (c + f64(3.5))
    g = f64(3.3754838407406217e-09)
    g = fma(g, t, f64(1.272976118220598e-08))
    g = fma(g, t, f64(-9.48854855287526e-09))
    g = fma(g, t, f64(-1.0047305369072786e-07))
    g = fma(g, t, f64(4.622197837422927e-09))
    g = fma(g, t, f64(6.10416029908136e-07))
    g = fma(g, t, f64(-5.265226201407721e-08))
    g = fma(g, t, f64(-3.82233474671523e-06))
    g = fma(g, t, f64(2.331508455643811e-06))
    g = fma(g, t, f64(2.4264739577847677e-05))
    g = fma(g, t, f64(-4.278287106178732e-05))
    g = fma(g, t, f64(-0.00012151358422960264))
    g = fma(g, t, f64(0.0005643844537589153))
    g = fma(g, t, f64(-0.0003022676520306649))
    g = fma(g, t, f64(-0.004215019897659769))
    g = fma(g, t, f64(0.019099330915734777))
    g = fma(g, t, f64(-0.04882332582998273))
    g = fma(g, t, f64(0.08798315382663484))
    g = fma(g, t, f64(-0.11508959816005192))
    g = fma(g, t, f64(0.09751909515320345))
    g = fma(g, t, f64(-0.010555596332221426))
    g = fma(g, t, f64(-0.1400091801376189))
    g = fma(g, t, f64(1.2423492448711544))
    top = product(power, g)
    bottom = fma(c, f64(2), f64(1))
    quotient = ratio_f64(top, fma(power, g, -top), bottom, fma(c, f64(2), f64(1) - bottom))
    y = scale_f64(quotient, shift)
    return select(a < f64(0.5), f64(1) - erf_near_f64(x), select(x < f64(0), f64(2) - y, y))


# ---------------------------------------------------------------- trigonometry, f64
# |x| = m * 2**(e - 52) with a whole m; a table holds 2**(e - 52) * 2/pi modulo 4 for every e, in four
# parts. Products and sums are kept exact as pairs, so one path serves every finite argument; below pi/4
# nothing is reduced.


def sum_error(a, b, s):
    """What s = a + b lost to rounding (any float type)."""
    t = s - a
    return (a - (s - t)) + (b - t)


def turn_row_f64(x):
    """e of |x| as a row of the table: 0 below 1, and kept inside it for inf and NaN."""
    e = i32(i32(u32(u64(f64_to_bits(fabs(x)) >> u64(52)))) - i32(1023))
    low = select(e < i32(0), i32(0), e)
    return select(low > i32(1023), i32(1023), low)


def turn_mantissa_f64(x, row):
    """m of |x|."""
    shift = u64(u64(u32(i32(52) - row)) << u64(52))
    return f64_from_bits(u64(f64_to_bits(fabs(x)) + shift))


def turn_near_f64(m, row):
    """m times the first two parts, modulo 4, rounded."""
    p = product(m, inv_half_pi(row, 0))
    f = p - f64(4) * rint(f64(0.25) * p)
    return (f + fma(m, inv_half_pi(row, 0), -p)) + product(m, inv_half_pi(row, 1))


def turn_high_f64(m, row, n):
    """m times the table, less the whole number n: the leading part."""
    p = product(m, inv_half_pi(row, 0))
    f = p - f64(4) * rint(f64(0.25) * p)
    e = fma(m, inv_half_pi(row, 0), -p)
    g = f + e
    q = product(m, inv_half_pi(row, 1))
    a = (g + q) - n
    b = a + sum_error(f, e, g)
    c = b + sum_error(g, q, g + q)
    d = c + fma(m, inv_half_pi(row, 1), -q)
    return d + product(m, inv_half_pi(row, 2))


def turn_low_f64(m, row, n):
    """What `turn_high_f64` lost."""
    p = product(m, inv_half_pi(row, 0))
    f = p - f64(4) * rint(f64(0.25) * p)
    e = fma(m, inv_half_pi(row, 0), -p)
    g = f + e
    q = product(m, inv_half_pi(row, 1))
    a = (g + q) - n
    b = a + sum_error(f, e, g)
    c = b + sum_error(g, q, g + q)
    d = c + fma(m, inv_half_pi(row, 1), -q)
    k = product(m, inv_half_pi(row, 2))
    lost = (sum_error(a, sum_error(f, e, g), b) + sum_error(b, sum_error(g, q, g + q), c)) + (
        sum_error(c, fma(m, inv_half_pi(row, 1), -q), d) + sum_error(d, k, d + k))
    return lost + fma(m, inv_half_pi(row, 3), fma(m, inv_half_pi(row, 2), -k))


def sin_poly_f64(r, low):
    """sin(r + low) for |r| up to pi/4 and a tiny `low`."""
    z = r * r
    p = f64(1.5896897858402496e-10)
    p = fma(p, z, f64(-2.5050760066950364e-08))
    p = fma(p, z, f64(2.7557313706044912e-06))
    p = fma(p, z, f64(-0.00019841269829855602))
    p = fma(p, z, f64(0.008333333333322488))
    p = fma(p, z, f64(-0.16666666666666632))
    return r + fma(r * z, p, fma(f64(-0.5) * z, low, low))


def cos_poly_f64(r, low):
    """cos(r + low) for |r| up to pi/4 and a tiny `low`."""
    z = product(r, r)
    p = f64(-1.1359934594232045e-11)
    p = fma(p, z, f64(2.08757292846198e-09))
    p = fma(p, z, f64(-2.7557314401037943e-07))
    p = fma(p, z, f64(2.4801587289671533e-05))
    p = fma(p, z, f64(-0.0013888888888874474))
    p = fma(p, z, f64(0.0416666666666666))
    # 1 - z/2 as a pair
    h = f64(0.5) * z
    w = f64(1) - h
    return w + (((f64(1) - w) - h) + fma(z * z, p, -r * low))


def circle_f64(x, turn):
    """sin(|x| + turn * pi/2), not yet right for inf and NaN."""
    row = turn_row_f64(x)
    m = turn_mantissa_f64(x, row)
    n = rint(turn_near_f64(m, row))
    high = turn_high_f64(m, row, n)
    low = turn_low_f64(m, row, n)
    # renormalised, then times pi/2 as a pair
    h = high + low
    rest = low - (h - high)
    r = product(h, f64(1.5707963267948966))
    rt = fma(h, f64(6.123233995736766e-17), rest * f64(1.5707963267948966))
    rl = fma(h, f64(1.5707963267948966), -r) + rt
    small = fabs(x) < f64(0.7853981633974483)
    angle = select(small, fabs(x), r)
    tail = select(small, f64(0), rl)
    q = u64(turn + select(small, u64(0), u64(f64_to_bits(n + f64(6755399441055744.0)) & u64(3))))
    y = select(u64(q & u64(1)) == u64(0), sin_poly_f64(angle, tail), cos_poly_f64(angle, tail))
    return f64_from_bits(u64(f64_to_bits(y) ^ u64(u64(q & u64(2)) << u64(62))))


def sin_f64(x):
    """sin, for every finite argument. Max 0.8 ulp."""
    y = circle_f64(x, u64(0))
    signed = f64_from_bits(u64(f64_to_bits(y) ^ u64(f64_to_bits(x) & u64(0x8000000000000000))))
    return select(fabs(x) < f64_from_bits(u64(0x7FF0000000000000)), signed, x - x)


def cos_f64(x):
    """cos, for every finite argument. Max 0.8 ulp."""
    return select(fabs(x) < f64_from_bits(u64(0x7FF0000000000000)), circle_f64(x, u64(1)), x - x)


def tan_f64(x):
    """tan, for every finite argument. Max 1.9 ulp."""
    return sin_f64(x) / cos_f64(x)


def atan_ratio_f64(a, b):
    """atan(a / b) for a, b >= 0, at most one of them 0 or inf, no NaN; one division."""
    swap = a > b
    top = select(swap, b, a)
    bottom = select(swap, a, b)
    far = top > bottom * f64(0.41421356)
    t = select(far, top - bottom, top) / select(far, top + bottom, bottom)
    z = t * t
    p = f64(0.014890889650900031)
    p = fma(p, z, f64(-0.033172554309572326))
    p = fma(p, z, f64(0.04490479957500961))
    p = fma(p, z, f64(-0.05215164718703865))
    p = fma(p, z, f64(0.05876514499172633))
    p = fma(p, z, f64(-0.06666174536919793))
    p = fma(p, z, f64(0.07692279194351019))
    p = fma(p, z, f64(-0.09090907985679625))
    p = fma(p, z, f64(0.11111111083743033))
    p = fma(p, z, f64(-0.14285714285316384))
    p = fma(p, z, f64(0.19999999999997095))
    p = fma(p, z, f64(-0.33333333333333326))
    near = fma(t * z, p, t)
    y = select(far, f64(0.7853981633974483) + (near + f64(3.061616997868383e-17)), near)
    return select(swap, f64(1.5707963267948966) - (y - f64(6.123233995736766e-17)), y)


def atan_f64(x):
    """The inverse of tan. Max 2.1 ulp."""
    a = fabs(x)
    huge = f64(1e300)
    y = atan_ratio_f64(select(a < huge, a, huge), f64(1))
    return select(x == x, copysign(y, x), x)


def atan2_f64(y, x):
    """The angle of the point (x, y), in every quadrant, signed zeros and infinities as in C.

    Max 2.4 ulp.
    """
    inf = f64_from_bits(u64(0x7FF0000000000000))
    a = fabs(y)
    b = fabs(x)
    # inf / inf counts as 1 / 1 and 0 / 0 as 0 / 1; huge values shrink so that their sum stays finite
    both = (a == inf) & (b == inf)
    big = maximum(a, b) > f64(1e308)
    shrink = select(big, f64(0.25), f64(1))
    none = maximum(a, b) == f64(0)
    tall = select(both, f64(1), select(b == inf, f64(0), select(a == inf, f64(1), a * shrink)))
    wide = select(both | none, f64(1), select(b == inf, f64(1), select(a == inf, f64(0), b * shrink)))
    r = atan_ratio_f64(tall, wide)
    left = u64(f64_to_bits(x) & u64(0x8000000000000000)) != u64(0)
    turned = select(left, f64(3.141592653589793) - (r - f64(1.2246467991473532e-16)), r)
    return select((x == x) & (y == y), copysign(turned, y), x + y)


def asin_poly_f64(x):
    """asin(x) - x for |x| up to 1/2."""
    z = x * x
    p = f64(0.031966492078690734)
    p = fma(p, z, f64(-0.016304900461403617))
    p = fma(p, z, f64(0.019580705838645646))
    p = fma(p, z, f64(0.006508406343653034))
    p = fma(p, z, f64(0.01217383597986207))
    p = fma(p, z, f64(0.013884515173333348))
    p = fma(p, z, f64(0.01735977937314242))
    p = fma(p, z, f64(0.02237175298822309))
    p = fma(p, z, f64(0.030381959352871083))
    p = fma(p, z, f64(0.044642856822981566))
    p = fma(p, z, f64(0.07500000000343611))
    p = fma(p, z, f64(0.1666666666666538))
    return x * z * p


def asin_f64(x):
    """The inverse of sin; NaN outside [-1, 1]. Max 0.8 ulp."""
    a = fabs(x)
    # beyond 1/2: pi/2 - 2 asin(r + rl), r + rl = sqrt((1 - a) / 2) as a pair
    z = f64(0.5) - f64(0.5) * a
    r = sqrt(z)
    rl = fma(-r, r, z) / (r + r + f64(1e-300))
    h = f64(1.5707963267948966) - f64(2) * r
    hl = (f64(1.5707963267948966) - h) - f64(2) * r
    far = h + (hl + (f64(6.123233995736766e-17) - f64(2) * (asin_poly_f64(r) + rl)))
    return copysign(select(a < f64(0.5), a + asin_poly_f64(a), far), x)


def acos_f64(x):
    """The inverse of cos; NaN outside [-1, 1]. Max 1.2 ulp."""
    a = fabs(x)
    near = a < f64(0.5)
    r = select(near, x, sqrt(f64(0.5) - f64(0.5) * a))
    s = r + asin_poly_f64(r)
    far = select(x < f64(0), f64(3.141592653589793) - (s + (s - f64(1.2246467991473532e-16))), s + s)
    return select(near, f64(1.5707963267948966) - (s - f64(6.123233995736766e-17)), far)
