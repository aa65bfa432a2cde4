"""Kernels printed as GLSL: the text, what it needs of a device, and that every word means there what it means for NumPy."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

import fuelnumba as fn
from fuelnumba.core.ops import OPS
from fuelnumba.kernels import lang
from fuelnumba.kernels.matmul import gemm_panels
from fuelnumba.testing.shaders import kernels
from fuelnumba.vk import glsl, spirv
from fuelnumba.vk.device import Device

from .on_device import expression, run, source, value

NUMPY = {"i8": np.int8, "u8": np.uint8, "i16": np.int16, "i32": np.int32, "u32": np.uint32, "i64": np.int64, "f32": np.float32,
         "f64": np.float64}
BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def edges(t: str) -> np.ndarray[Any, Any]:
    kind = np.dtype(NUMPY[t])
    if kind.kind == "f":
        info = np.finfo(kind)
        least = info.smallest_subnormal
        return np.array([0.0, -0.0, least, -3 * least, info.tiny, 0.5, 1.5, 2.5, -2.5, 7.0, 1e30, -127.9, 256.5, 3e9, -1e19, info.max,
                         np.inf, -np.inf, np.nan], kind)
    info = np.iinfo(kind)
    values = {0, 1, 2, 7, 77, info.max - 1, info.max, info.min, info.min + 1} | ({-1, -2, -7} if info.min else set())
    return np.array(sorted(values), kind)


def pairs(t: str) -> list[np.ndarray[Any, Any]]:
    return [a.ravel().copy() for a in np.meshgrid(edges(t), edges(t))]


def same(got: np.ndarray[Any, Any], want: Any) -> None:
    """Bit for bit; NaNs are one."""
    want = np.asarray(want).astype(got.dtype)
    if got.dtype.kind == "f":
        got, want = (np.where(np.isnan(a), np.array(np.nan, a.dtype), a) for a in (got, want))
    bits = BITS[got.itemsize]
    np.testing.assert_array_equal(got.view(bits), want.view(bits))


# ------------------------------------------------------------------------------------------------ the text
TEXT = """void main() {
  int64_t lo = int64_t(gl_GlobalInvocationID.x) + int64_t(gl_GlobalInvocationID.y) * int64_t(gl_NumWorkGroups.x * 256u);
  if (lo >= total) return;
  int64_t hi = lo + 1L;
  P_i64 A = P_i64(block);
  uint64_t in0_;
  uint64_t out_;
  int64_t i_;
  precise float x0_;
  in0_ = uint64_t(P_i64(uint64_t(A.d[0])).d[0] + A.d[1]);
  out_ = uint64_t(P_i64(uint64_t(A.d[2])).d[0] + A.d[3]);
  i_ = lo;
  x0_ = P_f32(in0_ + uint64_t(i_) * 4UL).d[0];
  precise float s1 = ((x0_ * 2.5) + 1.0);
  P_f32(out_ + uint64_t(i_) * 4UL).d[0] = s1;
}
"""


def test_a_whole_text() -> None:
    text, needs = glsl.shader(expression("x0 * f32(2.5) + f32(1)", ["f32"], "f32"))
    assert text.startswith("#version 460\n") and text.endswith(TEXT)
    assert needs == set()


@pytest.mark.parametrize(("body", "word"), [
    ("gemm_f32(1, 0, 0, 1, 1, 1, x, 1, x, 1, x, 1)", "gemm_f32()"),
    ("v = spell(x[0])", "spell()"),
    ("v = [1, 2]", "the expression [1, 2]"),
    ("del x", "the statement del x"),
    ("for v in (1, 2):\n    pass", "the loop over (1, 2)"),
    ("k = i64(3)\nv = stack_f32(k)", "k where a literal is needed"),
])
def test_what_has_no_glsl_is_refused_by_name(body: str, word: str) -> None:
    with pytest.raises(fn.errors.CompileError, match="kernel odd cannot be a shader") as told:
        glsl.shader(source(body, {"x": "f32"}, "odd"))
    assert word in str(told.value) and "fuelnumba.kernels.lang" in str(told.value)


def test_kernels_that_call_blas_are_not_bound_there() -> None:
    assert gemm_panels.__name__ not in {s.label for _, s, _ in kernels(["matmul"])}


def test_names_stay_out_of_the_way_of_glsl(device: Device) -> None:
    names = ["out_", "half", "input", "buffer", "sample", "vec3", "gl_NumWorkGroups", "texture", "main", "block", "total", "A", "P_i64",
             "float", "precise", "lo_", "int64_t", "exp", "max", "fault", "wide"]
    steps = "".join(f"    {n} = x0 + f32({k})\n    x0 = {n}\n" for k, n in enumerate(names))
    kernel = source(f"for i in range(lo, hi):\n    x0 = load_in(a, i)\n{steps}    store_out(result, i, x0)\n",
                    {"a": "f32", "result": "f32"})
    x = np.arange(5, dtype=np.float32)
    same(run(device, kernel, [x, np.zeros_like(x)], 5)[1], x + sum(range(len(names))))


# ------------------------------------------------------------------------------------------------ what it becomes
SAMPLED = ("add", "cast", "exp", "sin", "floor_divide", "softmax", "sum", "argmax", "take", "attention", "matmul")
CAPABILITIES = {10: "f64", 22: "i16", 4433: "i16", 39: "i8", 4448: "i8", 61: "subgroup", 62: "subgroup", 63: "subgroup"}
SUMS = {129: "OpFAdd", 131: "OpFSub"}


def instructions(code: bytes) -> list[tuple[int, tuple[int, ...]]]:
    words, out, at = struct.unpack(f"={len(code) // 4}I", code), [], 5
    while at < len(words):
        count = words[at] >> 16
        out.append((words[at] & 0xffff, words[at + 1:at + count]))
        at += count
    return out


@pytest.mark.parametrize("op", SAMPLED)
def test_needs_are_those_of_the_code_and_no_sum_swallows_a_product(op: str) -> None:
    for _, kernel, group in kernels([op]):
        text, needs = glsl.shader(kernel, group)
        listed = instructions(spirv.compile_glsl(text, op))
        asked = {CAPABILITIES[args[0]] for which, args in listed if which == 17 and args[0] in CAPABILITIES}
        assert needs - {"turns"} == asked, (kernel.label, text)
        if group or not OPS[op].is_elementwise:  # the elementary functions rest on it
            continue
        alone = {args[0] for which, args in listed if which == 71 and args[1] == 42}  # OpDecorate, NoContraction
        fused = [SUMS[which] for which, args in listed if which in SUMS and args[1] not in alone]
        assert not fused, (kernel.label, fused, text)


def test_a_float_parameter_that_is_read_as_f32_needs_no_f64(device: Device) -> None:
    kernel = source("for i in range(lo, hi):\n    store_out(out, i, f32(a))\n", {"out": "f32"}, a="float")
    assert "f64" not in spirv.shader(kernel, 0).needs
    numbers = [0.1, -0.1, 1 + 2**-24, 1 + 3 * 2**-24, 1e-45, 7e-46, 7.1e-46, -1e-40, 1.1754943e-38, 3.4028235e38, 3.4028236e38, 1e300,
               1e-300, float("inf"), -0.0]
    for x in numbers:
        same(run(device, kernel, [np.zeros(1, np.float32)], 1, values=[x])[0], np.array([x]).astype(np.float32))
    assert np.isnan(run(device, kernel, [np.zeros(1, np.float32)], 1, values=[float("nan")])[0][0])


# ------------------------------------------------------------------------------------------------ the words, against NumPy
UNARY = [(w, t) for w in ("floor", "ceil", "trunc", "rint", "sqrt", "fabs") for t in ("f32", "f64")]
UNARY += [(f"sat_{to}", t) for to in ("i8", "i16", "i32", "i64", "u8", "u32") for t in ("f32", "f64")]


@pytest.mark.parametrize(("word", "t"), UNARY)
def test_words_of_one_number(device: Device, word: str, t: str) -> None:
    result = word[4:] if word.startswith("sat_") else t
    same(value(device, f"{word}(x0)", [edges(t)], result), getattr(lang, word)(edges(t)))


BINARY = [(w, t) for w in ("maximum", "minimum", "copysign", "radd", "rmul", "product", "frem") for t in ("f32", "f64")]
BINARY += [(w, t) for w in ("maximum", "minimum", "wrap_add", "wrap_sub", "wrap_mul", "int_floordiv", "int_mod", "int_pow")
           for t in ("i8", "u8", "i16", "i32", "u32", "i64")]


@pytest.mark.parametrize(("word", "t"), BINARY)
def test_words_of_two_numbers(device: Device, word: str, t: str) -> None:
    a, b = pairs(t)
    if word == "int_pow":  # of which NumPy cannot take the magnitude
        keep = (b > np.iinfo(b.dtype).min) | (b == 0)
        a, b = a[keep], b[keep]
    same(value(device, f"{word}(x0, x1)", [a, b], t), getattr(lang, word)(a, b))


@pytest.mark.parametrize("t", ["f32", "f64"])
def test_fma_is_rounded_once(device: Device, rng: np.random.Generator, t: str) -> None:
    a, b = rng.standard_normal((2, 4000)).astype(NUMPY[t])
    c = -(a * b) * rng.choice(np.array([1, 1, 0.75, 1e-9], NUMPY[t]), 4000)
    same(value(device, "fma(x0, x1, x2)", [a, b, c], t), lang.fma(a, b, c))
    assert (value(device, "fma(x0, x1, x2)", [a, b, -(a * b)], t) != 0).any()


def test_f16_is_rounded_to_nearest_even(device: Device) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    same(value(device, "f16_to_f32(x0)", [every], "f32"), every.astype(np.float32))
    finite = every[np.isfinite(every)].astype(np.float32)
    middle = np.sort(finite)[:-1] + np.diff(np.sort(finite)) / 2
    for x in (finite, middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf)),
              np.array([65519, 65520, 1e9, np.inf, -np.inf, np.nan, 1e-40], np.float32)):
        same(value(device, "f32_to_f16(x0)", [x], "f16").view(np.float16), x.astype(np.float16))


def test_bits(device: Device) -> None:
    for t, to in (("f32", "u32"),):
        x = edges(t)[:-1]
        same(value(device, f"{t}_to_bits(x0)", [x], to), x.view(to.replace("u", "uint")))
        same(value(device, f"{t}_from_bits({t}_to_bits(x0))", [x], t), x)
    x = edges("f64")[:-1]
    same(value(device, "i64(f64_to_bits(x0))", [x], "i64"), x.view(np.int64))
    same(value(device, "f64_from_bits(x0)", [x.view(np.int64)], "f64"), x)


def test_turns(device: Device) -> None:
    rows = np.arange(1024, dtype=np.int32)
    for part in range(4):
        same(value(device, f"inv_half_pi(x0, {part})", [rows], "f64"), lang.inv_half_pi_table(part))


@pytest.mark.parametrize("t", ["i8", "i16", "i32", "u8", "u32"])
def test_a_widened_integer_compares_with_a_literal(device: Device, t: str) -> None:
    """As Mesa 22.3 does not, for i32."""
    x = edges(t)
    for sign, ufunc in (("<", np.less), ("<=", np.less_equal), (">", np.greater), ("==", np.equal), ("!=", np.not_equal)):
        for literal in (-2**40, -2, -1, 0, 1, 77, 2**40):
            same(value(device, f"u8(i64(x0) {sign} i64({literal}))", [x], "bool"), ufunc(x.astype(np.int64), literal))


def test_not_a_number_and_infinity(device: Device) -> None:
    for t in ("f32", "f64"):
        x = edges(t)
        same(value(device, "u8(x0 != x0)", [x], "bool"), np.isnan(x))
        same(value(device, f"u8(fabs(x0) < {t}(np.inf))", [x], "bool"), np.isfinite(x))
        same(value(device, f"select(x0 > {t}(0), {t}(np.nan), {t}(-np.inf))", [x], t), np.where(x > 0, np.nan, -np.inf))


# ------------------------------------------------------------------------------------------------ control, groups, faults
def test_loops_and_arrays_of_a_thread(device: Device) -> None:
    kernel = source("""
held = stack_i64(8)
for item in range(lo, hi):
    n = i64(load_in(a, item))
    total = 0
    for j in range(n):
        held[j] = j * j
    for j in range(n - 1, -1, -2):
        total += held[j]
    k = n
    while k > 3 and total > 0:
        k -= 1
        if k % 2 == 0:
            total = total - 1
        else:
            pass
    store_out(out, item, total if k != 3 else -total)
""", {"a": "i32", "out": "i64"})

    def expected(n: int) -> int:
        total, k = sum(j * j for j in range(n - 1, -1, -2)), n
        while k > 3 and total > 0:
            k -= 1
            total -= k % 2 == 0
        return total if k != 3 else -total

    a = np.arange(9, dtype=np.int32)
    same(run(device, kernel, [a, np.zeros(9, np.int64)], 9)[1], [expected(n) for n in range(9)])


@pytest.mark.parametrize("group", [8, 32, 256])
@pytest.mark.parametrize("t", ["f32", "f64", "i32", "i64"])
def test_a_group_adds_up_and_compares(device: Device, rng: np.random.Generator, t: str, group: int) -> None:
    kernel = source(f"""
held = shared_{t}({group})
for item in range(lo, hi):
    k = lane()
    held[k] = load_in(x, item * {group} + k)
    barrier()
    mine = held[{group - 1} - k]
    barrier()
    total = group_sum(mine)
    high = group_max(mine)
    low = group_min(mine)
    again = group_sum(mine + mine)
    if k == 0:
        out[item * 4] = total
        out[item * 4 + 1] = high
        out[item * 4 + 2] = low
        out[item * 4 + 3] = again
""", {"x": t, "out": t})
    x = rng.integers(-50, 50, (70, group)).astype(NUMPY[t])
    if t[0] == "f":
        x[3, 5] = np.nan
        x[4], x[4, 2] = -0.0, 0.0
    got = run(device, kernel, [x, np.zeros((70, 4), NUMPY[t])], 70, group)[1]
    same(got, np.stack([x.sum(1, dtype=x.dtype), lang.maximum(x.max(1), x.max(1)), x.min(1), 2 * x.sum(1, dtype=x.dtype)], 1))


def test_four_neighbours(device: Device) -> None:
    for t, numpy in (("f32", np.float32), ("f16", np.float16)):
        kernel = source("for i in range(lo, hi):\n    a, b, c, d = load4(x, i * 4)\n    store4(out, i * 4, d, c, b, a)\n",
                        {"x": t, "out": t})
        x = np.arange(40).astype(numpy)
        same(run(device, kernel, [x, np.zeros_like(x)], 10)[1], x.reshape(10, 4)[:, ::-1].reshape(-1))


def test_one_of_many_faults_stays_whole(device: Device) -> None:
    kernel = source("for i in range(lo, hi):\n    if i % 3 == 2:\n        fault(status, 7, i, site, i * 10)\n    out[i] = i\n",
                    {"out": "i64"}, status="status", site="site")
    out, status = run(device, kernel, [np.zeros(100_000, np.int64)], 100_000, values=["status", 5])
    code, where, site, bound = status.tolist()
    assert (code, site, bound) == (7, 5, 10 * where) and where % 3 == 2
    assert (out == np.arange(100_000)).all()


def test_more_groups_than_one_dimension_holds(device: Device) -> None:
    total = 65535 * glsl.LOCAL + 1000
    kernel = source("for i in range(lo, hi):\n    out[i] = u8(i % 251)\n", {"out": "u8"})
    same(run(device, kernel, [np.zeros(total, np.uint8)], total)[0], np.arange(total) % 251)


def test_every_op_of_the_table_is_printed() -> None:
    ops = [name for name in ("conv2d", "gelu", "erf", "gather", "write_slice", "layer_norm", "rope", "remainder") if name in OPS]
    labels = {source.label for _, source, _ in kernels(ops)}
    assert {"gather_rows", "write_slice_rows", "gelu", "remainder"} <= labels
