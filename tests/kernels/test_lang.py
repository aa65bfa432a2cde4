"""`lang` and `intrinsics` are the same words with the same meaning."""
import inspect
import re

import numpy as np
import pytest
from numba import cfunc, types

from fuelnumba.kernels import intrinsics, lang
from tests.kernels.compiled import kernel, namespace

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

FLOATS = np.array([0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e9, -1e9, 3e9, -3e9, 1e19,
                   -1e19, 127.9, 128.0, 255.9,
                   256.0, -128.9, -129.0, 32767.5, 4294967295.0, 4294967296.0, 2147483520.0, np.inf,
                   -np.inf, np.nan, -0.9])
NUMPY = {"i8": np.int8, "u8": np.uint8, "i16": np.int16, "i32": np.int32, "u32": np.uint32, "i64": np.int64,
         "f32": np.float32, "f64": np.float64, "u16": np.uint16, "u64": np.uint64}


def arity(word):
    if isinstance(word, type):
        return 1
    if hasattr(word, "_defn"):
        return len(inspect.signature(word._defn).parameters) - 1
    return len(inspect.signature(word).parameters)


def entry(source):
    """Compile a kernel entry from source."""
    ns = dict(namespace())
    exec(source, ns)
    signature = types.void(types.CPointer(types.int64), types.int64, types.int64)
    return cfunc(signature, error_model="numpy", fastmath={"contract"})(ns["entry"])


def run(compiled, args, lo, hi):
    compiled.ctypes(args.ctypes.data_as(compiled.ctypes.argtypes[0]), lo, hi)


def pairs(values):
    return [a.ravel().copy() for a in np.meshgrid(values, values)]


def test_same_names_and_arities():
    assert lang.__all__ == intrinsics.__all__
    assert {n: arity(getattr(lang, n)) for n in lang.__all__} == {
        n: arity(getattr(intrinsics, n)) for n in intrinsics.__all__}


def same(got, want):
    assert got.dtype == want.dtype
    assert np.array_equal(got, want, equal_nan=got.dtype.kind == "f")
    if got.dtype.kind == "f":
        keep = ~np.isnan(want)
        assert np.array_equal(np.signbit(got[keep]), np.signbit(want[keep]))


@pytest.mark.parametrize("t", ["f32", "f64"])
@pytest.mark.parametrize("word", ["floor", "ceil", "trunc", "rint", "sqrt", "fabs"])
def test_unary(word, t):
    x = FLOATS.astype(NUMPY[t])
    same(kernel(f"{word}(x0)", (NUMPY[t],), NUMPY[t])(x), getattr(lang, word)(x))


@pytest.mark.parametrize("t", ["f32", "f64"])
@pytest.mark.parametrize("word", ["maximum", "minimum", "copysign", "radd", "rmul", "product"])
def test_binary_float(word, t):
    a, b = pairs(FLOATS.astype(NUMPY[t]))
    same(kernel(f"{word}(x0, x1)", (NUMPY[t],) * 2, NUMPY[t])(a, b), getattr(lang, word)(a, b))


@pytest.mark.parametrize("t", ["i8", "u8", "i32", "u32", "i64", "u64"])
@pytest.mark.parametrize("word", ["maximum", "minimum", "wrap_add", "wrap_sub", "wrap_mul", "radd", "rmul"])
def test_binary_integer(word, t):
    info = np.iinfo(NUMPY[t])
    a, b = pairs(np.array([info.min, info.min + 1, 0, 1, 2, 77, info.max - 1, info.max], NUMPY[t]))
    same(kernel(f"{word}(x0, x1)", (NUMPY[t],) * 2, NUMPY[t])(a, b), getattr(lang, word)(a, b))


@pytest.mark.parametrize("t", ["f32", "f64"])
@pytest.mark.parametrize("to", ["i8", "i16", "i32", "i64", "u8", "u32"])
def test_saturating(to, t):
    x = np.resize(FLOATS.astype(NUMPY[t]), 64)
    k = kernel(f"sat_{to}(x0)", (NUMPY[t],), NUMPY[to])
    same(k(x), getattr(lang, f"sat_{to}")(x))
    assert k.is_vector()


@pytest.mark.parametrize("t", ["f32", "f64"])
def test_fma_rounds_once(t):
    kind = NUMPY[t]
    # (1 + e)(1 - e) - 1 = -e^2, which two roundings lose
    e = np.finfo(kind).eps
    a, b, c = (np.array([v], kind) for v in (1 + e, 1 - e, -1))
    got = kernel("fma(x0, x1, x2)", (kind,) * 3, kind)(a, b, c)
    assert got[0] == lang.fma(a, b, c)[0] == -kind(e) * kind(e)
    # and the twin in general
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(2000).astype(kind) for _ in range(3))
    got = kernel("fma(x0, x1, x2)", (kind,) * 3, kind)(a, b, c)
    assert np.all(np.abs(got - lang.fma(a, b, c)) <= np.spacing(np.abs(got)))


def test_product_survives_contraction():
    e = np.float64(2.0 ** -30)
    a = np.array([1 + e])
    got = kernel("product(x0, x0) - (f64(1) + f64(2) * x1)", (np.float64,) * 2, np.float64)(a, np.array([e]))
    assert got[0] == 0
    fused = kernel("fma(x0, x0, -(f64(1) + f64(2) * x1))", (np.float64,) * 2, np.float64)(a, np.array([e]))
    assert fused[0] == e * e


@pytest.mark.parametrize("expression, t, to", [
    ("f32_from_bits(x0)", "u32", "f32"), ("f32_from_bits(i32(x0))", "u32", "f32"),
    ("f32_to_bits(x0)", "f32", "u32"), ("f64_from_bits(x0)", "u64", "f64"), ("f64_to_bits(x0)", "f64", "u64"),
    ("select(x0 > f32(0), x0, f32(7))", "f32", "f32")])
def test_bits_and_select(expression, t, to):
    x = (FLOATS.astype(NUMPY[t]) if t[0] == "f" else np.arange(0, 1 << 31, 1 << 22).astype(NUMPY[t]))
    words = {n: getattr(lang, n) for n in lang.__all__}
    same(kernel(expression, (NUMPY[t],), NUMPY[to])(x), eval(expression, words | {"x0": x}))


def test_words_take_scalars():
    assert lang.select(True, np.float32(1), np.float32(2)) == 1
    assert lang.f32_from_bits(np.uint32(0x3F800000)) == np.float32(1)
    assert isinstance(lang.fma(np.float32(2), np.float32(3), np.float32(4)), np.float32)
    assert lang.wrap_add(np.uint8(255), np.uint8(2)) == 1


def test_inv_half_pi():
    import mpmath as mp

    rows = np.array([0, 1, 52, 53, 300, 1023], np.int32)
    parts = [kernel(f"inv_half_pi(x0, {k})", (np.int32,), np.float64)(rows) for k in range(4)]
    for k, part in enumerate(parts):
        same(part, lang.inv_half_pi(rows, k))
    with mp.workprec(2000):
        for j, e in enumerate(rows):
            exact = mp.fmod(mp.mpf(2) ** (int(e) - 52) * 2 / mp.pi, 4)
            assert abs(sum(mp.mpf(float(p[j])) for p in parts) - exact) < exact * mp.mpf(2) ** -200


@pytest.mark.parametrize("t", ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32", "f64"])
def test_pointers(t):
    source = (f"def entry(args, lo, hi):\n    p = ptr_{t}(args, 0)\n    q = raw_{t}(args[2])\n"
              "    for i in range(lo, hi):\n        q[i] = p[i]\n")
    data, out = np.arange(20).astype(NUMPY[t]), np.zeros(20, NUMPY[t])
    cell = np.array([data.ctypes.data])
    args = np.array([cell.ctypes.data, 3 * data.itemsize, out.ctypes.data])
    run(entry(source), args, 2, 10)
    assert out[2:10].tolist() == list(range(5, 13))
    assert out[:2].tolist() == [0, 0]
    # the twins follow the same addresses, and take arrays too
    python = {n: getattr(lang, n) for n in lang.__all__}
    exec(source, python)
    for table in (args, [data, 3 * data.itemsize, out]):
        out[:] = 0
        python["entry"](table, 2, 10)
        assert out[2:10].tolist() == list(range(5, 13))


def test_f64_arg_and_stack():
    source = ("def entry(args, lo, hi):\n    p = ptr_f64(args, 0)\n    a = stack_f64(8)\n"
              "    b = stack_i64(8)\n    c = stack_f32(8)\n    for i in range(lo, hi):\n"
              "        a[i] = f64_arg(args, 2)\n        b[i] = i\n        c[i] = f32(i)\n"
              "    for i in range(lo, hi):\n        p[i] = a[i] + f64(b[i]) + f64(c[i])\n")
    out = np.zeros(8)
    cell = np.array([out.ctypes.data])
    args = np.array([cell.ctypes.data, 0, np.array([2.5]).view(np.int64)[0]])
    run(entry(source), args, 0, 8)
    assert out.tolist() == [2.5 + 2 * i for i in range(8)]
    python = {n: getattr(lang, n) for n in lang.__all__}
    exec(source, python)
    for table in (args, [out, 0, 2.5]):
        out[:] = 0
        python["entry"](table, 0, 8)
        assert out.tolist() == [2.5 + 2 * i for i in range(8)]


def many(store):
    """24 inputs, 3 outputs."""
    lines = ["def entry(args, lo, hi):"]
    values = [f"v{k}" for k in range(24)]
    lines += [f"    a{k} = ptr_f32(args, {2 * k})" for k in range(24)]
    lines += [f"    o{k} = ptr_f32(args, {48 + 2 * k})" for k in range(3)]
    lines += ["    for i in range(lo, hi):"] + [f"        v{k} = load_in(a{k}, i)" for k in range(24)]
    lines += ["        s = " + " + ".join(values), "        t = " + " * ".join(values)]
    lines += [f"        {store.format(k)}" for k in range(3)]
    return "\n".join(lines)


@pytest.mark.parametrize("store", [
    "store_out(o{0}, i, s * t + f32({0}))", "store_nth(o{0}, i, s * t + f32({0}), {0})"])
def test_many_pointers_vectorise(store):
    compiled = entry(many(store))
    assert re.search(r"%[yz]mm|\bv\d+\.4s", compiled._library.get_asm_str())
    data = np.random.default_rng(0).uniform(0.9, 1.1, (27, 100)).astype(np.float32)
    cells = np.array([row.ctypes.data for row in data])
    args = np.zeros(54, np.int64)
    args[::2] = cells.ctypes.data + 8 * np.arange(27)
    run(compiled, args, 0, 100)
    want = data[:24].sum(0) * data[:24].prod(0)
    for k in range(3):
        np.testing.assert_allclose(data[24 + k], want + k, rtol=1e-5)


@pytest.mark.parametrize("t", ["f32", "f64", "i32"])
def test_sums_vectorise(t):
    source = (f"def entry(args, lo, hi):\n    a = ptr_{t}(args, 0)\n    b = ptr_{t}(args, 2)\n"
              f"    o = ptr_{t}(args, 4)\n    s = {t}(0)\n    q = {t}(0)\n    for i in range(lo, hi):\n"
              "        s = radd(s, a[i])\n"
              "        q = rfma(a[i], b[i], q)\n    o[0] = s\n    o[1] = q\n")
    compiled = entry(source)
    assert re.search(r"%[yz]mm|\bv\d+\.(4s|2d)", compiled._library.get_asm_str())
    count = np.arange(1000).astype(NUMPY[t])
    a, b, out = count % 7, count % 5, np.zeros(2, NUMPY[t])
    cells = np.array([v.ctypes.data for v in (a, b, out)])
    args = np.zeros(6, np.int64)
    args[::2] = cells.ctypes.data + 8 * np.arange(3)
    run(compiled, args, 0, 1000)
    assert out.tolist() == [a.sum(), (a * b).sum()]


FAULTS = """
def entry(args, lo, hi):
    status = raw_i64(args[0])
    for i in range(lo, hi):
        fault(status, i32(7), i, u8(200), i * 2)
"""


def test_the_first_fault_stays():
    status = np.zeros(6, np.int64)
    args = np.array([status.ctypes.data], np.int64)
    compiled = entry(FAULTS)
    run(compiled, args, 11, 20)
    run(compiled, args, 0, 5)
    assert status.tolist() == [7, 11, 200, 22, 0, 0]
    plain = np.zeros(6, np.int64)
    for i in (11, 12, 0):
        lang.fault(plain, 7, i, 200, i * 2)
    assert plain.tolist() == status.tolist()
