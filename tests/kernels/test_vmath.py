"""The elementary functions: every stated ulp holds in compiled code, and the un-jitted twins agree."""
import re

import mpmath as mp
import numpy as np
import pytest
from scipy import special

from fuelnumba.kernels import vmath
from tests.kernels.compiled import helpers, is_straight_line, kernel

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

# name: reference in f64, in mpmath, range of magnitudes for f64, interval sampled evenly
FUNCTIONS = {
    "exp": (np.exp, mp.exp, (1e-18, 745.1), (-10, 10)),
    "exp2": (np.exp2, lambda x: mp.power(2, x), (1e-18, 1074.9), (-10, 10)),
    "expm1": (np.expm1, mp.expm1, (1e-300, 709.7), (-2, 2)),
    "log": (np.log, mp.log, (5e-324, 1.7e308), (0.3, 3)),
    "log2": (np.log2, lambda x: mp.log(x) / mp.log(2), (5e-324, 1.7e308), (0.3, 3)),
    "log10": (np.log10, mp.log10, (5e-324, 1.7e308), (0.3, 3)),
    "log1p": (np.log1p, mp.log1p, (1e-300, 1.7e308), (-0.9, 3)),
    "tanh": (np.tanh, mp.tanh, (1e-300, 30), (-2, 2)),
    "sigmoid": (special.expit, lambda x: 1 / (1 + mp.exp(-x)), (1e-18, 744), (-10, 10)),
    "erf": (special.erf, mp.erf, (1e-300, 7), (-3, 3)),
    "erfc": (special.erfc, mp.erfc, (1e-18, 27.2), (-3, 10)),
    "sin": (np.sin, mp.sin, (1e-300, 1.7e308), (-10, 10)),
    "cos": (np.cos, mp.cos, (1e-10, 1.7e308), (-10, 10)),
    "tan": (np.tan, mp.tan, (1e-300, 1.7e308), (-10, 10)),
    "sinh": (np.sinh, mp.sinh, (1e-300, 710.4), (-4, 4)),
    "cosh": (np.cosh, mp.cosh, (1e-10, 710.4), (-4, 4)),
    "asin": (np.arcsin, mp.asin, (1e-300, 1), (-1, 1)),
    "acos": (np.arccos, mp.acos, (1e-18, 1), (-1, 1)),
    "atan": (np.arctan, mp.atan, (1e-300, 1e300), (-4, 4)),
}
POSITIVE = {"log", "log2", "log10", "log1p"}
ENDS = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38,
        -3.4028235e38, 88.722839, 88.72284, -87.33655, -103.97208, -103.97209, 0.625, 0.92, 0.5, -0.5,
        2.0, -2.0]
PAIRS = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-40,
         -1e-40, 2.5, 16777217.0, 1e38, -7.0]


def stated(name):
    """The bound in a function's docstring."""
    return float(re.search(r"Max ([\d.]+) ulp", getattr(vmath, name).__doc__).group(1))


def ulps(got, reference):
    """Error of f32 `got` in ulp against f64; what has no measure must be equal, sign included."""
    right = reference.astype(np.float32)
    place = np.spacing(np.minimum(np.abs(right), np.finfo(np.float32).max)).astype(np.float64)
    error = np.abs(got.astype(np.float64) - reference) / place
    equal = (got == right) | (np.isnan(got) & np.isnan(right))
    error = np.where(np.isfinite(right) & np.isfinite(got), error, np.where(equal, 0, np.inf))
    # a result that just rounds to inf may be the largest finite number, and the other way round
    edge = np.isinf(got) ^ np.isinf(right)
    near = np.abs(np.where(np.isinf(got), reference, got)) > 3.4028234e38
    error = np.where(edge & near, 1, error)
    return np.where((right == 0) & (got == 0) & (np.signbit(right) != np.signbit(got)), np.inf, error)


def ulp(got, reference):
    """Error of one f64 in ulp against mpmath."""
    right = float(reference)
    if np.isinf(right) or np.isnan(got):
        return 0.0 if right == got else np.inf
    return float(abs(mp.mpf(float(got)) - reference) / mp.mpf(float(np.spacing(abs(right)))))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_f32_everywhere(name):
    patterns = np.arange(0, 1 << 32, 997, dtype=np.uint32).view(np.float32)
    even = np.concatenate([np.linspace(-12, 12, 300_001), ENDS]).astype(np.float32)
    x = np.concatenate([patterns, even])
    got = kernel(f"{name}_f32(x0)", (np.float32,), np.float32)(x)
    error = ulps(got, FUNCTIONS[name][0](x.astype(np.float64)))
    worst = np.argmax(error)
    assert error[worst] <= stated(f"{name}_f32"), (x[worst], got[worst])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_f64_against_mpmath(name):
    _, exact, (least, most), interval = FUNCTIONS[name]
    rng = np.random.default_rng(len(name))
    x = np.exp(rng.uniform(np.log(least), np.log(most), 500))
    x = np.concatenate([x if name in POSITIVE else x * rng.choice([-1, 1], 500), rng.uniform(*interval, 700)])
    if name in ("sin", "cos", "tan"):
        # the argument nearest to a multiple of pi/2 of all, and other hard ones
        hard = [6381956970095103 * 2.0 ** 797, 1e22, np.pi / 2, np.pi, np.pi * 1e5, 2.0 ** 30 * np.pi]
        x = np.concatenate([x, hard])
    got = kernel(f"{name}_f64(x0)", (np.float64,), np.float64)(x)
    errors = []
    for g, v in zip(got, x):
        with mp.workprec(1400 if name in ("sin", "cos", "tan") and abs(v) > 1e5 else 180):
            errors.append(ulp(g, exact(mp.mpf(float(v)))))
    worst = int(np.argmax(errors))
    assert errors[worst] <= stated(f"{name}_f64"), (x[worst], got[worst])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_f64_ends_as_numpy(name):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 5e-324, -5e-324, 1e-310, 1.5, -1.5,
                  800.0, -800.0])
    got = kernel(f"{name}_f64(x0)", (np.float64,), np.float64)(x)
    want = FUNCTIONS[name][0](x)
    np.testing.assert_allclose(got, want, rtol=1e-15, atol=0)
    zero = want == 0
    assert np.array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("name", ["pow", "atan2"])
def test_f32_of_two(name):
    reference = {"pow": np.power, "atan2": np.arctan2}[name]
    rng = np.random.default_rng(2)
    ends = [a.ravel() for a in np.meshgrid(np.array(PAIRS, np.float32), np.array(PAIRS, np.float32))]
    x = np.concatenate([rng.integers(0, 1 << 32, 300_000, dtype=np.uint32).view(np.float32),
                        np.exp(rng.uniform(-20, 20, 300_000)).astype(np.float32), ends[0]])
    y = np.concatenate([(rng.standard_normal(300_000) * 10).astype(np.float32),
                        rng.uniform(-6, 6, 300_000).astype(np.float32), ends[1]])
    got = kernel(f"{name}_f32(x0, x1)", (np.float32, np.float32), np.float32)(x, y)
    error = ulps(got, reference(x.astype(np.float64), y.astype(np.float64)))
    worst = np.argmax(error)
    assert error[worst] <= stated(f"{name}_f32"), (x[worst], y[worst], got[worst])


@pytest.mark.parametrize("name", ["pow", "atan2"])
def test_f64_of_two(name):
    exact = {"pow": mp.power, "atan2": mp.atan2}[name]
    rng = np.random.default_rng(3)
    x = np.concatenate([np.exp(rng.uniform(-740, 709, 600)), np.exp(rng.uniform(-3, 3, 600)),
                        1 + rng.uniform(-1e-3, 1e-3, 600)])
    y = np.concatenate([rng.uniform(-1, 1, 600), rng.uniform(-240, 240, 600), rng.uniform(-7e5, 7e5, 600)])
    k = kernel(f"{name}_f64(x0, x1)", (np.float64, np.float64), np.float64)
    got = k(x, y)
    with mp.workprec(220):
        errors = [ulp(g, exact(mp.mpf(float(a)), mp.mpf(float(b)))) for g, a, b in zip(got, x, y)]
    assert max(errors) <= stated(f"{name}_f64")
    a, b = (v.ravel() for v in np.meshgrid(PAIRS, PAIRS))
    want = {"pow": np.power, "atan2": np.arctan2}[name](a, b)
    got = k(a, b)
    np.testing.assert_allclose(got, want, rtol=5e-16, atol=0)
    assert np.array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


@pytest.mark.parametrize("t", ["f32", "f64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_twin_agrees(name, t):
    kind = np.float32 if t == "f32" else np.float64
    spread = np.geomspace(1e-30, 1e30, 400)
    x = np.concatenate([spread, -spread, np.linspace(-9, 9, 801), ENDS])
    x = x.astype(kind)
    compiled = kernel(f"{name}_{t}(x0)", (kind,), kind)(x)
    twin = getattr(vmath, f"{name}_{t}")(x)
    assert twin.dtype == kind
    assert np.array_equal(np.isnan(twin), np.isnan(compiled))
    same = (twin == compiled) | np.isnan(twin)
    assert np.all(same | (np.abs(twin - compiled) <= 2 * np.spacing(np.abs(compiled))))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vector_code_without_a_library(name):
    for t in (np.float32, np.float64):
        k = kernel(f"{name}_f{8 * np.dtype(t).itemsize}(x0)", (t,), t)
        assert k.is_vector()
        assert not k.foreign()


@pytest.mark.parametrize("name", vmath.__all__)
def test_form(name):
    assert is_straight_line(helpers(vmath)[name])
