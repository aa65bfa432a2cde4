"""The words of kernels as GLSL: a library of small functions, of which a shader carries those that it uses.

What a driver may approximate or reorder is spelt out: NaN is told by bits, f16 is rounded by hand, fmod is exact.
"""

from __future__ import annotations

import re
from functools import cache

#: type of the kernel language -> GLSL
TYPES = {"f32": "float", "f64": "double", "i64": "int64_t", "i32": "int", "i16": "int16_t", "i8": "int8_t", "u64": "uint64_t",
         "u32": "uint", "u16": "uint16_t", "u8": "uint8_t", "b1": "bool"}

#: the device's features that a type asks for
NEEDS = {"f64": "f64", "i8": "i8", "u8": "i8", "i16": "i16", "u16": "i16"}

_FLOATS = {"f32": ("float", "uint", "floatBitsToUint", "0x7fffffffu", "0x7f800000u", "0x80000000u", "uintBitsToFloat"),
           "f64": ("double", "uint64_t", "doubleBitsToUint64", "0x7fffffffffffffffUL", "0x7ff0000000000000UL",
                   "0x8000000000000000UL", "uint64BitsToDouble")}


def _for_float(t: str) -> dict[str, str]:
    real, _, bits, magnitude, infinite, sign, back = _FLOATS[t]
    return {
        f"is_nan_{t}": f"bool is_nan_{t}({real} x) {{ return ({bits}(x) & {magnitude}) > {infinite}; }}",
        f"maximum_{t}": f"""{real} maximum_{t}({real} a, {real} b) {{
  if (is_nan_{t}(a)) return a;
  if (is_nan_{t}(b)) return b;
  return a > b ? a : b > a ? b : {back}({bits}(a) & {bits}(b));
}}""",
        f"minimum_{t}": f"""{real} minimum_{t}({real} a, {real} b) {{
  if (is_nan_{t}(a)) return a;
  if (is_nan_{t}(b)) return b;
  return a < b ? a : b < a ? b : {back}({bits}(a) | {bits}(b));
}}""",
        f"copysign_{t}": f"{real} copysign_{t}({real} a, {real} b) {{ "
                         f"return {back}(({bits}(a) & {magnitude}) | ({bits}(b) & {sign})); }}",
        f"frem_{t}": _frem(t),
        f"fma_{t}": _fma(t),
    }


def _fma(t: str) -> str:
    """Rounded once. Vulkan lets a driver round twice, and the software one does: there, the product is made exact as p + e
    (Veltkamp's split), and the sum with c as s + t (Knuth's)."""
    real, _, bits, magnitude, infinite, _, _ = _FLOATS[t]
    split = "4097.0" if t == "f32" else "134217729.0lf"
    return f"""{real} fma_{t}({real} a, {real} b, {real} c) {{
  if (FUSED) return fma(a, b, c);
  precise {real} p = a * b, at = a * {split}, bt = b * {split};
  precise {real} ah = at - (at - a), bh = bt - (bt - b), al = a - ah, bl = b - bh;
  precise {real} e = al * bl - (((p - ah * bh) - al * bh) - ah * bl);
  precise {real} s = p + c, v = s - p, t = (p - (s - v)) + (c - v), exact = s + (t + e);
  return exact != 0 && ({bits}(exact) & {magnitude}) < {infinite} ? exact : s;
}}"""


def _frem(t: str) -> str:
    """C's fmod by long division of the mantissas, exact."""
    real, whole, bits, magnitude, infinite, sign, back = _FLOATS[t]
    digits, one = (23, "0x800000u") if t == "f32" else (52, "0x10000000000000UL")
    return f"""{real} frem_{t}({real} a, {real} b) {{
  {whole} x = {bits}(a) & {magnitude}, y = {bits}(b) & {magnitude}, s = {bits}(a) & {sign};
  if (y == 0 || x >= {infinite} || y > {infinite}) return {back}({infinite} | ({infinite} >> 1));
  if (x < y) return a;
  const {whole} one = {one};
  int ex = max(int(x >> {digits}), 1), ey = max(int(y >> {digits}), 1);
  {whole} mx = x < one ? x : (x & (one - 1)) | one, my = y < one ? y : (y & (one - 1)) | one;
  while (mx < one) {{ mx <<= 1; ex--; }}
  while (my < one) {{ my <<= 1; ey--; }}
  for (; ex > ey; ex--) {{
    if (mx >= my) mx -= my;
    mx <<= 1;
  }}
  if (mx >= my) mx -= my;
  if (mx == 0) return {back}(s);
  while (mx < one) {{ mx <<= 1; ey--; }}
  return {back}(s | (ey > 0 ? (mx & (one - 1)) | ({whole}(ey) << {digits}) : mx >> (1 - ey)));
}}"""


def _saturate(to: str, of: str) -> str:
    bits, signed = int(to[1:]), to[0] == "i"
    low, over = (-2.0 ** (bits - 1), 2.0 ** (bits - 1)) if signed else (0.0, 2.0 ** bits)
    least = f"{int(low)}" if bits < 64 else "(-9223372036854775807L - 1L)"
    most = f"{int(over) - 1}" + ("L" if bits == 64 else "u" if to == "u32" else "")
    suffix = "lf" if of == "f64" else ""
    g, real = TYPES[to], TYPES[of]
    return f"""{g} sat_{to}_{of}({real} x) {{
  if (is_nan_{of}(x)) return {g}(0);
  if (x <= {low!r}{suffix}) return {g}({least});
  if (x >= {over!r}{suffix}) return {g}({most});
  return {g}({'int' if bits < 32 else g}(x));
}}"""


def _integers(t: str) -> dict[str, str]:
    """Division and powers, in 32 bits where these hold the type."""
    g, signed, bits = TYPES[t], t[0] == "i", int(t[1:])
    work = ("int" if bits < 64 else "int64_t") if signed else "uint" if bits < 64 else "uint64_t"
    least = "0x80000000" if bits < 64 else "0x8000000000000000L"
    safe = f"y == 0 || (x == {least} && y == -1) ? 1 : y" if signed else "y == 0 ? 1 : y"  # least / -1 wraps to least
    down = "\n  if (r != 0 && (r ^ d) < 0) { q -= 1; r += d; }" if signed else ""
    times = f"{work}(b) < 0 ? -{work}(b) : {work}(b)" if signed else f"{work}(b)"
    none = f"b < 0 && a != 1 && a != -1 ? {g}(0) : " if signed else ""  # what 1 / a**-b truncates to
    count = "uint" if bits < 64 else "uint64_t"
    return {
        f"divide_{t}": f"""void divide_{t}({work} x, {work} y, out {work} q, out {work} r) {{  // floored; 0 where y is 0
  {work} d = {safe};
  q = x / d; r = x - q * d;{down}
  if (y == 0) {{ q = 0; r = 0; }}
}}""",
        f"int_floordiv_{t}": f"{g} int_floordiv_{t}({g} a, {g} b) {{ {work} q, r; divide_{t}({work}(a), {work}(b), q, r); "
                             f"return {g}(q); }}",
        f"int_mod_{t}": f"{g} int_mod_{t}({g} a, {g} b) {{ {work} q, r; divide_{t}({work}(a), {work}(b), q, r); "
                        f"return {g}(r); }}",
        f"int_pow_{t}": f"""{g} int_pow_{t}({g} a, {g} b) {{
  {work} p = 1, x = {work}(a);
  for ({count} n = {count}({times}); n != 0; n >>= 1) {{
    if ((n & 1) != 0) p *= x;
    x *= x;
  }}
  return {none}{g}(p);
}}""",
        f"maximum_{t}": f"{g} maximum_{t}({g} a, {g} b) {{ return a > b ? a : b; }}",
        f"minimum_{t}": f"{g} minimum_{t}({g} a, {g} b) {{ return a < b ? a : b; }}",
    }


def _group(t: str) -> dict[str, str]:
    """Reductions over the threads of a group: subgroups first, then what they made, in its order. Not every device has
    subgroups of i64: for these the group, whose size is a power of two, meets in a tree."""
    g = TYPES[t]
    if t == "i64":
        joins = {"sum": "a + b", "max": "maximum_i64(a, b)", "min": "minimum_i64(a, b)"}
        return {"scratch_i64": "shared int64_t scratch_i64[gl_WorkGroupSize.x];"} | {
            f"group_{name}_i64": f"""int64_t group_{name}_i64(int64_t x) {{
  uint k = gl_LocalInvocationID.x;
  barrier();
  scratch_i64[k] = x;
  for (uint n = gl_WorkGroupSize.x / 2; n > 0; n /= 2) {{
    memoryBarrierShared(); barrier();
    if (k < n) {{ int64_t a = scratch_i64[k], b = scratch_i64[k + n]; scratch_i64[k] = {join}; }}
  }}
  memoryBarrierShared(); barrier();
  return scratch_i64[0];
}}""" for name, join in joins.items()}
    out = {f"scratch_{t}": f"shared {g} scratch_{t}[256];"}
    for name, first, join in (("sum", "subgroupAdd(x)", "s += scratch_{t}[k];"),
                              ("max", "subgroupMax(x)", "s = maximum_{t}(s, scratch_{t}[k]);"),
                              ("min", "subgroupMin(x)", "s = minimum_{t}(s, scratch_{t}[k]);")):
        nan = ""
        if t[0] == "f" and name != "sum":  # what subgroupMax makes of a NaN is the driver's choice
            *_, infinite, _, back = _FLOATS[t]
            nan = f"\n  if (subgroupAny(is_nan_{t}(x))) s = {back}({infinite} | ({infinite} >> 1));"
        out[f"group_{name}_{t}"] = f"""{g} group_{name}_{t}({g} x) {{
  {g} s = {first};{nan}
  if (gl_NumSubgroups == 1) return s;
  barrier();
  if (subgroupElect()) scratch_{t}[gl_SubgroupID] = s;
  memoryBarrierShared(); barrier();
  s = scratch_{t}[0];
  for (uint k = 1; k < gl_NumSubgroups; k++) {join.format(t=t)}
  return s;
}}"""
    return out


FIXED = {
    "wide": """int64_t wide(int x) {  // no conversion: Mesa 22.3 fails to compare one with a constant
  return packInt2x32(ivec2(x, x >> 31));
}""",
    "quotient": """int64_t quotient(int64_t a, int64_t b) {  // of numbers that are not negative
  return ((a | b) >> 32) == 0 ? int64_t(uint(a) / uint(b)) : a / b;
}""",
    "rest": """int64_t rest(int64_t a, int64_t b) {
  return ((a | b) >> 32) == 0 ? int64_t(uint(a) % uint(b)) : a % b;
}""",
    "f32_to_f16": """uint16_t f32_to_f16(float x) {  // to nearest even, as packHalf2x16 need not be
  uint u = floatBitsToUint(x), s = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return uint16_t(s | 0x7e00u | ((a >> 13) & 0x1ffu));
  if (a >= 0x477ff000u) return uint16_t(s | 0x7c00u);
  if (a < 0x38800000u) {
    precise float m = uintBitsToFloat(a) * 16777216.0;
    return uint16_t(s | uint(roundEven(m)));
  }
  uint r = a - 0x38000000u;
  return uint16_t(s | ((r + 0xfffu + ((r >> 13) & 1u)) >> 13));
}""",
    "f16_to_f32": """float f16_to_f32(uint16_t h) {
  uint u = uint(h), s = (u & 0x8000u) << 16, a = u & 0x7fffu;
  if (a >= 0x7c00u) return uintBitsToFloat(s | 0x7f800000u | ((a & 0x3ffu) << 13));
  if (a < 0x400u) return uintBitsToFloat(s | floatBitsToUint(float(a) * 5.9604644775390625e-8));
  return uintBitsToFloat(s | ((a << 13) + 0x38000000u));
}""",
    "f32_of_f64": """float f32_of_f64(uint64_t u) {  // to nearest even, without f64 arithmetic
  uint s = uint(u >> 32) & 0x80000000u;
  uint64_t a = u & 0x7fffffffffffffffUL;
  if (a > 0x7ff0000000000000UL) return uintBitsToFloat(s | 0x7fc00000u);
  if (a >= 0x47effffff0000000UL) return uintBitsToFloat(s | 0x7f800000u);
  if (a < 0x3810000000000000UL) {
    int shift = 926 - int(a >> 52);
    if (shift > 54) return uintBitsToFloat(s);
    uint64_t m = (a & 0xfffffffffffffUL) | 0x10000000000000UL, half_ = 1UL << (shift - 1);
    uint64_t r = (m + half_ - 1UL + ((m >> shift) & 1UL)) >> shift;
    return uintBitsToFloat(s | uint(r));
  }
  uint64_t r = a - 0x3800000000000000UL;
  return uintBitsToFloat(s | uint((r + 0xfffffffUL + ((r >> 29) & 1UL)) >> 29));
}""",
    "fault": """void fault(uint64_t status, int64_t code, int64_t value, int64_t site, int64_t bound) {  // the first one stays
  P_u32 word = P_u32(status);
  if (atomicCompSwap(word.d[0], 0u, uint(code)) == 0u) {
    P_i64 words = P_i64(status);
    words.d[1] = value; words.d[2] = site; words.d[3] = bound;
  }
}""",
    "barrier_all": "void barrier_all() { memoryBarrierBuffer(); memoryBarrierShared(); barrier(); }",
}


@cache
def library() -> dict[str, str]:
    """Name -> text of every helper function."""
    out: dict[str, str] = dict(FIXED)
    for t in ("f32", "f64"):
        out |= _for_float(t)
        for to in ("i8", "i16", "i32", "i64", "u8", "u32"):
            out[f"sat_{to}_{t}"] = _saturate(to, t)
    for t in ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"):
        out |= _integers(t)
    for t in ("f32", "f64", "i32", "i64"):
        out |= _group(t)
    return out


@cache
def _uses(name: str) -> tuple[str, ...]:
    """The helpers that a helper calls."""
    found = re.findall(r"\b[a-z]\w*\b", library()[name])
    return tuple(dict.fromkeys(w for w in found if w in library() and w != name))


def with_helpers(used: list[str]) -> list[str]:
    """The texts of these helpers, what they call before them."""
    order: dict[str, None] = {}

    def add(name: str) -> None:
        for other in _uses(name):
            add(other)
        order.setdefault(name)

    for name in used:
        add(name)
    return [library()[n] for n in order]
