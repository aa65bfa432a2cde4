"""Narrow floats, bit for bit against NumPy and ml_dtypes, compiled and un-jitted."""
import ml_dtypes
import numpy as np
import pytest

from fuelnumba.kernels import half, lang
from tests.kernels.compiled import helpers, is_straight_line, kernel

# signalling NaNs and overflows are part of the inputs
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

F8 = {
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e8m0": ml_dtypes.float8_e8m0fnu,
}
NARROW = {"bf16": (ml_dtypes.bfloat16, np.uint16), "f16": (np.float16, np.uint16)} | {
    n: (t, np.uint8) for n, t in F8.items()}


def twin(name):
    return getattr(half, name, None) or getattr(lang, name)


def same_bits(got, want, narrow):
    """Equal, where any NaN equals any other."""
    isnan = np.isnan(want.view(narrow).astype(np.float32))
    assert np.array_equal(np.isnan(got.view(narrow).astype(np.float32)), isnan)
    assert np.array_equal(got[~isnan], want[~isnan])


def boundaries(narrow, storage):
    """Every finite narrow value and midpoint of neighbours, with the floats around each, as f32 and f64."""
    codes = np.arange(np.iinfo(storage).max + 1, dtype=storage)
    values = codes.view(narrow).astype(np.float64)
    values = np.unique(values[np.isfinite(values)])
    middles = (values[1:] + values[:-1]) / 2
    top = values[-1] * np.array([1.0, 1.02, 1.0625, 1.125, 1.25, 1.5, 2, 4])
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, -1e-45, 3e38, -3e38, 1e-40, 448, 464, 465,
               61439.9, 61440]
    points = np.concatenate([values, middles, top, -top, special])
    short = points.astype(np.float32)
    up, down = np.float32(np.inf), np.float32(-np.inf)
    wide = [np.nextafter(points, -np.inf), points, np.nextafter(points, np.inf), [1e300, -1e300, 5e-324]]
    return np.concatenate([np.nextafter(short, down), short, np.nextafter(short, up)]), np.concatenate(wide)


@pytest.mark.parametrize("name", NARROW)
def test_up_every_pattern(name):
    narrow, storage = NARROW[name]
    codes = np.arange(np.iinfo(storage).max + 1, dtype=storage)
    want = codes.view(narrow).astype(np.float32)
    compiled = kernel(f"{name}_to_f32(x0)", (storage,), np.float32)(codes)
    for got in (compiled, twin(f"{name}_to_f32")(codes)):
        isnan = np.isnan(want)
        assert np.array_equal(np.isnan(got), isnan)
        assert np.array_equal(got.view(np.uint32)[~isnan], want.view(np.uint32)[~isnan])


@pytest.mark.parametrize("name", NARROW)
def test_down_from_f32(name):
    narrow, storage = NARROW[name]
    sample = np.arange(0, 1 << 32, 4001, dtype=np.uint32).view(np.float32)
    x = np.concatenate([sample, boundaries(narrow, storage)[0]])
    want = x.astype(narrow).view(storage)
    same_bits(kernel(f"f32_to_{name}(x0)", (np.float32,), storage)(x), want, narrow)
    same_bits(twin(f"f32_to_{name}")(x), want, narrow)


@pytest.mark.parametrize("name", NARROW)
def test_down_from_f64_rounds_once(name):
    narrow, storage = NARROW[name]
    rng = np.random.default_rng(1)
    spread = rng.standard_normal(20000) * 2.0 ** rng.integers(-160, 140, 20000)
    x = np.concatenate([boundaries(narrow, storage)[1], spread])
    want = rounded_once(x, name).astype(narrow).view(storage)
    same_bits(kernel(f"f64_to_{name}(x0)", (np.float64,), storage)(x), want, narrow)
    same_bits(twin(f"f64_to_{name}")(x), want, narrow)


# name: (bits of the significand, exponent of the least subnormal)
PLACES = {"bf16": (8, -133), "f16": (11, -24), "f8e4m3": (4, -9), "f8e5m2": (3, -16)}


def rounded_once(x, name):
    """The nearest value of the narrow type as f64, its last place scaled to one (exact) and rounded there.

    ml_dtypes is no reference from f64: it goes through f32 and so rounds twice.
    """
    a = np.abs(x)
    if name == "f8e8m0":
        fraction, exponent = np.frexp(a)
        power = np.ldexp(1.0, exponent - (fraction < 0.75))
        power = np.where(a < 2.0 ** -126, np.where(a > 2.0 ** -127, 2.0 ** -126, 2.0 ** -127), power)
        return np.where((x > 0) & np.isfinite(x), power, np.nan)
    digits, least = PLACES[name]
    last = np.maximum(np.frexp(np.where(np.isfinite(a), a, 0))[1] - digits, least)
    return np.copysign(np.where(np.isfinite(a), np.ldexp(np.rint(np.ldexp(a, -last)), last), a), x)


def test_open_case_7_bf16():
    bits = [0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x7F800001, 0x7FFFFFFF, 0xFF800001, 0x7F7FFFFF,
            0xFF7F7FFF, 0x00000001, 0x00018000, 0x80008001, 0x00000000, 0x80000000]
    want = [0x3F80, 0x3F82, 0x3F81, 0x3F80, 0x7FC0, 0x7FC0, 0xFFC0, 0x7F80, 0xFF7F, 0x0000, 0x0002,
            0x8001, 0x0000, 0x8000]
    x = np.array(bits, np.uint32).view(np.float32)
    assert kernel("f32_to_bf16(x0)", (np.float32,), np.uint16)(x).tolist() == want


def test_open_case_8_f8e4m3():
    inf = np.inf
    x = np.array([448, 464, 465, 1000, inf, -inf, np.nan, 2.0 ** -9, 2.0 ** -10, 2.0 ** -10 * 1.001, 17, 19,
                  -0.0, 0.0175, -464.5], np.float32)
    want = [0x7E, 0x7E, 0x7F, 0x7F, 0x7F, 0xFF, 0x7F, 0x01, 0x00, 0x01, 0x58, 0x5A, 0x80, 0x09, 0xFF]
    assert kernel("f32_to_f8e4m3(x0)", (np.float32,), np.uint8)(x).tolist() == want


@pytest.mark.parametrize("expression", ["f32_to_bf16(x0)", "f32_to_f16(x0 + x0)", "f64_to_f16(f64(x0))"])
def test_conversions_vectorise_without_a_library(expression):
    k = kernel(expression, (np.float32,), np.uint16)
    assert k.is_vector()
    assert not k.foreign()


@pytest.mark.parametrize("name", half.__all__)
def test_form(name):
    assert is_straight_line(helpers(half)[name])
