"""Floored division of floats, as straight-line helpers (the form is described in vmath)."""

from __future__ import annotations

from fuelnumba.kernels.lang import copysign, f32, f64, floor, frem, rint, select


def rem_f32(a, b):
    """a - floor(a / b) * b, exactly rounded, with the sign of b; NaN for b = 0 or infinite a."""
    r = frem(a, b)
    shifted = select((r < f32(0)) != (b < f32(0)), r + b, r)
    return select(r == f32(0), copysign(f32(0), b), shifted)


def rem_f64(a, b):
    """As rem_f32, in f64."""
    r = frem(a, b)
    shifted = select((r < f64(0)) != (b < f64(0)), r + b, r)
    return select(r == f64(0), copysign(f64(0), b), shifted)


def floordiv_f32(a, b):
    """floor(a / b), from the exact remainder; a / b itself for b = 0."""
    r = frem(a, b)
    q = (a - r) / b
    q = select((r != f32(0)) & ((r < f32(0)) != (b < f32(0))), q - f32(1), q)
    whole = rint(q)
    down = select(q - floor(q) > f32(0.5), floor(q) + f32(1), floor(q))
    snapped = select(q == f32(0), copysign(f32(0), a / b), select(whole == q, q, down))
    return select(b == f32(0), a / b, snapped)


def floordiv_f64(a, b):
    """As floordiv_f32, in f64."""
    r = frem(a, b)
    q = (a - r) / b
    q = select((r != f64(0)) & ((r < f64(0)) != (b < f64(0))), q - f64(1), q)
    whole = rint(q)
    down = select(q - floor(q) > f64(0.5), floor(q) + f64(1), floor(q))
    snapped = select(q == f64(0), copysign(f64(0), a / b), select(whole == q, q, down))
    return select(b == f64(0), a / b, snapped)
