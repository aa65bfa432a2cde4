"""Where the coefficients of `fuelnumba/kernels/vmath.py` come from: weighted minimax fits (Remez, mpmath).

Each row names a function, what the polynomial has to equal, the weight that turns its error into a relative
error of the function, the number of coefficients and the interval. The first coefficients are rounded one
at a time and the rest refitted, so that rounding them costs little. Names as arguments print only those
rows. The coefficients of pow_f64 are simply 2/5, 2/7, ... (atanh's series, long enough).
"""
from __future__ import annotations

import sys
from collections.abc import Callable

import mpmath as mp
import numpy as np

mp.mp.dps = 50
Real = Callable[[mp.mpf], mp.mpf]


def solve_reference(f: Real, weight: Real, powers: list[int], points: list[mp.mpf]) -> list[mp.mpf]:
    """The coefficients (and the levelled error, last) whose weighted error alternates over the points."""
    rows = [[weight(x) * x ** p for p in powers] + [(-1) ** k] for k, x in enumerate(points)]
    return list(mp.lu_solve(mp.matrix(rows), mp.matrix([weight(x) * f(x) for x in points])))


def remez(f: Real, weight: Real, powers: list[int], lo: mp.mpf, hi: mp.mpf) -> tuple[list, mp.mpf]:
    """Coefficients of the powers of x with the least largest weighted error on [lo, hi], and that error."""
    n = len(powers) + 1
    middle, radius = (lo + hi) / 2, (hi - lo) / 2
    dense = [middle - radius * mp.cos(mp.pi * (k + mp.mpf(1) / 2) / (24 * n)) for k in range(24 * n)]
    values, weights = [f(x) for x in dense], [weight(x) for x in dense]
    # a little off the Chebyshev points: their middle one often has no weight
    points = [middle - radius * mp.cos(mp.pi * (k + mp.mpf("0.6")) / (n + mp.mpf("0.1"))) for k in range(n)]
    best, level = None, mp.inf
    for _ in range(12):
        *coefficients, _ = solve_reference(f, weight, powers, points)
        errors = [w * (v - sum(c * x ** p for c, p in zip(coefficients, powers)))
                  for x, v, w in zip(dense, values, weights)]
        worst = max(map(abs, errors))
        if worst < level:
            best, level = coefficients, worst
        # one extreme per run of equal sign, then the largest n in a row
        runs: list[int] = []
        for k, e in enumerate(errors):
            if runs and (errors[runs[-1]] > 0) == (e > 0):
                if abs(e) > abs(errors[runs[-1]]):
                    runs[-1] = k
            else:
                runs.append(k)
        if len(runs) < n:
            break
        while len(runs) > n:
            runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
        points = [dense[k] for k in runs]
        if worst < mp.mpf("1.02") * min(abs(errors[k]) for k in runs):
            break
    return best, level


def fit(f: Real, weight: Real, count: int, lo: float, hi: float, to: type, careful: int = 4) -> tuple:
    """`count` coefficients in the type `to`, lowest power first, and the largest weighted error left."""
    lo, hi = mp.mpf(lo), mp.mpf(hi)
    fixed: list[mp.mpf] = []
    for k in range(min(careful, count)):
        def left(x: mp.mpf) -> mp.mpf:
            return f(x) - sum(c * x ** p for p, c in enumerate(fixed))

        rest, _ = remez(left, weight, [*range(k, count)], lo, hi)
        fixed.append(mp.mpf(float(to(float(rest[0])))) if to is np.float32 else mp.mpf(float(rest[0])))
        tail = rest[1:]
    fixed += [mp.mpf(float(to(float(c)))) for c in tail]
    grid = [lo + (hi - lo) * k / 400 for k in range(401)]
    worst = max(abs(weight(x) * (f(x) - sum(c * x ** p for p, c in enumerate(fixed)))) for x in grid)
    return [to(float(c)) for c in fixed], worst


def log_tail(f: mp.mpf) -> mp.mpf:
    """(log(1 + f) - f + f^2/2) / f^3."""
    if abs(f) < mp.mpf("1e-6"):
        return mp.mpf(1) / 3 - f / 4 + f * f / 5
    return (mp.log1p(f) - f + f * f / 2) / f ** 3


def exp_tail(r: mp.mpf) -> mp.mpf:
    """(exp(r) - 1 - r) / r^2."""
    if abs(r) < mp.mpf("1e-8"):
        return mp.mpf(1) / 2 + r / 6 + r * r / 24
    return (mp.expm1(r) - r) / r ** 2


def exp2_tail(r: mp.mpf) -> mp.mpf:
    """(2^r - 1) / r."""
    return mp.expm1(r * mp.log(2)) / r if r else mp.log(2)


def atanh_tail(z: mp.mpf) -> mp.mpf:
    """With z = s^2: (log((1 + s) / (1 - s)) - 2 s) / s^3."""
    return sum(2 * z ** k / (2 * k + 3) for k in range(60))


def odd_tail(f: Real, third: str) -> Real:
    """With z = x^2: (f(x) - x) / x^3; `third` is its value at zero."""
    def g(z: mp.mpf) -> mp.mpf:
        x = mp.sqrt(z)
        return mp.mpf(mp.mpmathify(third)) if x < mp.mpf("1e-10") else (f(x) - x) / x ** 3
    return g


def cos_tail(z: mp.mpf) -> mp.mpf:
    """With z = x^2: (cos(x) - 1 + z/2) / z^2."""
    return mp.mpf(1) / 24 if z < mp.mpf("1e-9") else (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z ** 2


def erfcx(x: mp.mpf) -> mp.mpf:
    """exp(x^2) * erfc(x)."""
    return mp.exp(x * x) * mp.erfc(x)


def erfc_mapped(k: mp.mpf) -> Real:
    """(1 + 2 x) * erfcx(x) as a function of q = (x - k) / (x + k)."""
    def g(q: mp.mpf) -> mp.mpf:
        x = k * (1 + q) / (1 - q)
        return (1 + 2 * x) * erfcx(x)
    return g


def erf_head(z: mp.mpf) -> mp.mpf:
    """With z = x^2: erf(x) / x - 1."""
    x = mp.sqrt(z)
    return 2 / mp.sqrt(mp.pi) - 1 if x < mp.mpf("1e-12") else mp.erf(x) / x - 1


LN2H, QP = 0.34660, 0.6169  # ln(2)/2 and (pi/4)^2, with a little room
S, D = np.float32, np.float64
ONE = mp.mpf(1)
# name: (function, weight, number of coefficients, interval, type)
FITS: dict[str, tuple] = {
    "exp_f32": (exp_tail, lambda r: r * r / mp.exp(r), 5, -LN2H, LN2H, S),
    "exp_f64": (exp_tail, lambda r: r * r / mp.exp(r), 10, -LN2H, LN2H, D),
    "exp2_f32": (exp2_tail, lambda r: r / mp.power(2, r), 6, -0.5, 0.5, S),
    "exp2_f64": (exp2_tail, lambda r: r / mp.power(2, r), 12, -0.5, 0.5, D),
    "exp2_short": (exp2_tail, lambda r: r / mp.power(2, r), 6, -0.5, 0.5, D),
    "log_f32": (log_tail, lambda f: f ** 3 / (mp.log1p(f) if f else ONE), 8, -0.33334, 0.33334, S),
    "log_f64": (atanh_tail, lambda z: z, 7, 0, 0.02945, D),
    "log_short": (atanh_tail, lambda z: z, 6, 0, 0.02945, D),
    "tanh_f32": (odd_tail(mp.tanh, "-1/3"), lambda z: z, 5, 0, 0.4, S),
    "sinh_f32": (odd_tail(mp.sinh, "1/6"), lambda z: z, 4, 0, 1, S),
    "sinh_f64": (odd_tail(mp.sinh, "1/6"), lambda z: z, 8, 0, 1, D),
    "erf_f32": (erf_head, lambda z: 1 / (1 + erf_head(z)), 7, 0, 0.86, S),
    "erf_f64": (erf_head, lambda z: 1 / (1 + erf_head(z)), 12, 0, 0.77, D),
    "log_erfc_f32": (lambda x: mp.log(mp.erfc(x)), mp.erfc, 8, 0.92, 3.95, S),
    "erfc_f32": (erfc_mapped(mp.mpf(2)), lambda q: ONE, 12, -1, (10.1 - 2) / 12.1, S),
    "erfc_f64": (erfc_mapped(mp.mpf(3.5)), lambda q: ONE, 23, -1, (27.3 - 3.5) / 30.8, D),
    "sin_f32": (odd_tail(mp.sin, "-1/6"), lambda z: z, 3, 0, QP, S),
    "sin_f64": (odd_tail(mp.sin, "-1/6"), lambda z: z, 6, 0, QP, D),
    "cos_f32": (cos_tail, lambda z: z * z, 3, 0, QP, S),
    "cos_f64": (cos_tail, lambda z: z * z, 6, 0, QP, D),
    "tan_f32": (odd_tail(mp.tan, "1/3"), lambda z: z, 7, 0, QP, S),
    "atan_f32": (odd_tail(mp.atan, "-1/3"), lambda z: z, 5, 0, 0.17158, S),
    "atan_f64": (odd_tail(mp.atan, "-1/3"), lambda z: z, 12, 0, 0.17158, D),
    "asin_f32": (odd_tail(mp.asin, "1/6"), lambda z: z, 5, 0, 0.25, S),
    "asin_f64": (odd_tail(mp.asin, "1/6"), lambda z: z, 12, 0, 0.25, D),
}


def main(names: list[str]) -> None:
    """Print the coefficients of the named fits, or of all."""
    for name in names or FITS:
        f, weight, count, lo, hi, to = FITS[name]
        coefficients, worst = fit(f, weight, count, lo, hi, to)
        print(f"{name}: error 2**{float(mp.log(worst, 2)):.1f}")
        print("   ", ", ".join(repr(float(str(c))) for c in coefficients))


if __name__ == "__main__":
    main(sys.argv[1:])
