"""SciPy's ufuncs on traced values: the numbers and dtypes that SciPy gives, or an error that names the function."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.special as special

from fuelnumba import jit
from fuelnumba.core.errors import FuelError, UnsupportedFunctionError
from fuelnumba.trace.numpy_api import covered_of_scipy

from .tracing import run

UFUNCS = {n: u for n, u in vars(special).items() if isinstance(u, np.ufunc)}
DTYPES = ["float32", "float64", "float16", ml_dtypes.bfloat16, "int8", "uint8", "int16", "int32", "int64", "uint32", "bool"]
X = np.array([0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 2.0, 5.0, 30.0, -0.0, -0.5, -1.0, -3.0, -15.0, -40.0, np.inf, -np.inf, np.nan])


def values(dtype: Any) -> Any:
    return X.astype(dtype) if np.dtype(dtype).kind not in "iub" else np.arange(6).astype(dtype)


def test_what_is_covered() -> None:
    assert {"expit", "ndtr", "log_ndtr", "logit", "erf", "erfc", "xlogy", "xlog1py", "entr", "rel_entr", "log_expit", "exp10",
            "exp2", "expm1", "log1p", "huber"} <= set(covered_of_scipy())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", covered_of_scipy())
def test_values_and_dtypes_are_scipys(name: str, dtype: Any) -> None:
    f = UFUNCS[name]
    x = values(dtype)
    if f.nin == 1:
        calls = [((x,), lambda x: f(x))]
    else:
        calls = [((x, x[::-1].copy()), lambda x, y: f(x, y)), ((x,), lambda x: f(x, 2.0)), ((x,), lambda x: f(3, x)),
                 ((x, np.float32(0.5) + np.arange(len(x), dtype=np.float32)), lambda x, y: f(x, y))]
    for args, g in calls:
        with np.errstate(all="ignore"):
            wanted = g(*args)
        got = run(g, *args)
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, rtol=1e-12 if wanted.dtype == np.float64 else 2e-6)


@pytest.mark.parametrize("name", covered_of_scipy())
def test_compiled_values_are_scipys(name: str) -> None:
    """Of f64, to 1e-12: SciPy's own tails are off by the rounding of x / sqrt(2), raised to its square."""
    f = UFUNCS[name]
    rng = np.random.default_rng(0)
    x = np.concatenate([X, rng.standard_normal(500) * 4, rng.random(500)])
    args = [x] if f.nin == 1 else [x, rng.permutation(x)]
    with np.errstate(all="ignore"):
        wanted = f(*args)
    np.testing.assert_allclose(jit((lambda x: f(x)) if f.nin == 1 else (lambda x, y: f(x, y)))(*args), wanted, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("name", sorted(set(UFUNCS) - set(covered_of_scipy())))
def test_the_others_are_refused_by_their_name(name: str) -> None:
    f = UFUNCS[name]
    with pytest.raises(UnsupportedFunctionError) as caught:
        run(lambda x: f(*(x,) * f.nin), np.ones(3))
    assert f"scipy.special.{f.__name__} is not covered" in str(caught.value)
    assert "numpy." not in str(caught.value)
    assert "compute it outside" in str(caught.value) and "expit" in str(caught.value)


def test_other_ways_of_a_ufunc_are_refused_by_its_name() -> None:
    for f in (lambda x: special.xlogy.outer(x, x), lambda x: special.expit(x, out=np.zeros(3))):
        with pytest.raises(FuelError, match=r"scipy\.special\."):
            run(f, np.ones(3))


def test_a_ufunc_of_the_users_is_no_op_of_ours() -> None:
    """Not even when it has the name of one."""
    mine = np.frompyfunc(lambda v: v + 1, 1, 1)
    with pytest.raises(UnsupportedFunctionError, match=r"vectorized.*is not covered"):
        run(lambda x: mine(x), np.ones(3))
