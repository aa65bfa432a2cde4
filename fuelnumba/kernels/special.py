"""Functions of scipy.special that are formulas of the scalar primitives; SciPy's ufuncs of these names become them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.ops import elementwise
from ..core.scalar import (
    Expr,
    absolute,
    call,
    equal,
    erfc,
    exp,
    expm1,
    log,
    log1p,
    maximum,
    minimum,
    of_scipy,
    where,
)

INF, NAN = float("inf"), float("nan")
ROOT_HALF, ROOT_HALF_REST = 0.7071067690849304, 1.210161710447897e-08  # sqrt(1/2): an f32, and what it lacks
LOG_ROOT_TAU = 0.9189385332046727


def is_nan(*xs: Expr) -> Expr:
    found = call("isnan", xs[0])
    for x in xs[1:]:
        found = where(found, found, call("isnan", x))
    return found


def both(a: Expr, b: Expr) -> Expr:
    return where(a, b, a)


def over_root(x: Expr) -> Expr:
    return call("fma", x, ROOT_HALF, x * ROOT_HALF_REST)


def normal_tail(x: Expr) -> Expr:
    """The probability of more than x: erfc(x / sqrt(2)) / 2. Where it is small, the rounding of the quotient would be raised to
    its square: erfc is corrected for it, to first order."""
    t = over_root(x)
    lost = call("fma", x, ROOT_HALF, -t) + x * ROOT_HALF_REST
    return 0.5 * erfc(t) * where(both(t > 0, t < 40), 1 - 2 * t * lost, 1)


def log_normal(x: Expr) -> Expr:
    """log of `normal_tail(-x)`: far out, by its asymptotic series in 1 / x**2."""
    u: Expr = 1 / (x * x)
    series: Any = 1
    for k in range(21, 0, -2):
        series = 1 - k * u * series
    far = log(series) - log(-x) - LOG_ROOT_TAU - 0.5 * x * x
    near = log(0.5 * erfc(over_root(-x)))
    return where(x < -12.5, where(call("isinf", x), x, far), where(x < 0, near, log1p(-normal_tail(x))))


def logit(x: Expr) -> Expr:
    s = 2 * x - 1
    return where(absolute(s) < 0.5, log1p(s) - log1p(-s), log(x / (1 - x)))


def exprel(x: Expr) -> Expr:
    half = exp(0.5 * x)  # exp(x) may be too large where a part of it is not
    return where(equal(x, 0), 1, where(x > 50, where(x < INF, half / x * half, x), expm1(x) / x))


def times_log(x: Expr, value: Expr, y: Expr) -> Expr:
    """x * value, and 0 where x is 0, whatever the logarithm of y."""
    return where(both(equal(x, 0), call("eq", y, y)), 0, x * value)


def relative_entropy(x: Expr, y: Expr) -> Expr:
    ratio = x / y
    near = x * log1p((x - y) / y)
    far = x * where(both(ratio > 0, ratio < INF), log(ratio), log(x) - log(y))
    inside = where(both(ratio > 0.5, ratio < 2), near, far)
    outside = where(both(equal(x, 0), where(y > 0, y > 0, equal(y, 0))), 0, INF)
    return where(is_nan(x, y), NAN, where(both(x > 0, y > 0), inside, outside))


def huber(delta: Expr, r: Expr) -> Expr:
    a = absolute(r)
    return where(is_nan(delta), delta, where(delta < 0, INF, where(a > delta, delta * (a - 0.5 * delta), 0.5 * r * r)))


def declare(name: str, formula: Callable[..., Expr], doc: str, **fields: Any) -> None:
    elementwise(name, formula, ref=of_scipy(name), doc=doc, **fields)


declare("ndtr", lambda x: normal_tail(-x), "the normal distribution: the probability of at most x", tolerance={"f64": 1e-12})
declare("log_ndtr", log_normal, "log of the normal distribution, exact in the tail", tolerance={"f64": 1e-12})
declare("logit", logit, "log(x / (1 - x))")
declare("log_expit", lambda x: minimum(x, 0) - log1p(exp(-absolute(x))), "log(sigmoid(x)) without overflow")
declare("exp10", lambda x: call("pow", 10, x), "10 to the power x")
declare("exprel", lambda x: exprel(x), "(exp(x) - 1) / x, exact near 0")
declare("entr", lambda x: where(x > 0, -x * log(maximum(x, 0)), where(equal(x, 0), 0, where(x < 0, -INF, x))),
        "-x * log(x); 0 at 0, -inf below")
declare("rel_entr", relative_entropy, "x * log(x / y); 0 for x = 0, inf outside")
declare("xlogy", lambda x, y: times_log(x, log(y), y), "x * log(y); 0 for x = 0")
declare("xlog1py", lambda x, y: times_log(x, log1p(y), y), "x * log(1 + y); 0 for x = 0")
declare("huber", huber, "r**2 / 2, and linear for |r| > delta")
