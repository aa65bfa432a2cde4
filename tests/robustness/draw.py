"""Random arrays in every layout, and values that make no sense."""

from __future__ import annotations

import decimal
import fractions
import math
from random import Random
from typing import Any

import numpy as np

from tests.parity.agree import ALL, EIGHT_BIT, INTS, NUMPY

LAYOUTS = ("contiguous", "contiguous", "transposed", "reversed", "stepped", "broadcast")
LENGTHS = (0, 1, 1, 2, 2, 3, 4, 5, 7, 8)


def shape(r: Random, rank: int, limit: int = 4000) -> tuple[int, ...]:
    found = [r.choice(LENGTHS) for _ in range(rank)]
    if rank == 1 and r.random() < 0.3:
        found = [r.randint(9, 2100)]
    while math.prod(found) > limit:
        found[r.randrange(rank)] = 1
    return tuple(found)


def values(r: Random, dtype: str, count: int) -> np.ndarray[Any, Any]:
    """Ordinary numbers: floats around 0, small integers and now and then one from the whole range."""
    g = np.random.default_rng(r.getrandbits(32))
    of = np.dtype(NUMPY[dtype])
    if dtype == "bool":
        return g.random(count) < 0.5
    if dtype in INTS:
        info = np.iinfo(of)
        x = g.integers(max(info.min, -20), min(info.max, 20), count, np.int64)
        if r.random() < 0.2:
            x = np.where(g.random(count) < 0.1, g.integers(info.min, info.max, count, np.int64, endpoint=True), x)
        return x.astype(of)
    if dtype == "f8e8m0":
        return np.exp2(g.integers(-4, 4, count)).astype(of)
    return (g.standard_normal(count) * 2).astype(of)


def arranged(r: Random, x: np.ndarray[Any, Any], layout: str) -> np.ndarray[Any, Any]:
    """The values of x (for 'broadcast', some of them) in another layout."""
    if x.ndim == 0 or layout == "contiguous":
        return x
    if layout == "transposed":
        return np.asfortranarray(x)
    if layout == "reversed":
        turned = (slice(None, None, -1),) * x.ndim
        return x[turned].copy()[turned]
    if layout == "stepped":
        wide = np.zeros((*x.shape[:-1], x.shape[-1] * 2), x.dtype)
        wide[..., ::2] = x
        return wide[..., ::2]
    k = r.randrange(x.ndim)
    return np.broadcast_to(x.take([0], k) if x.shape[k] else x, x.shape)


def array(r: Random, dtype: str, of: tuple[int, ...], layout: str = "contiguous") -> np.ndarray[Any, Any]:
    return arranged(r, values(r, dtype, math.prod(of)).reshape(of), layout)


class Odd:
    """An object that nothing knows."""

    def __repr__(self) -> str:
        return "Odd()"


class Bad:
    """An object whose every conversion fails."""

    def __index__(self) -> int:
        raise RuntimeError("no index")

    def __float__(self) -> float:
        raise RuntimeError("no float")

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no equality")

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return "Bad()"


def absurd(r: Random) -> Any:
    """A value for a parameter that expects something else, or too much of it."""
    return r.choice((
        lambda: None, lambda: True, lambda: False, lambda: -1, lambda: 0, lambda: 1, lambda: 7, lambda: 99, lambda: -99,
        lambda: 2**31, lambda: 2**63, lambda: -(2**63) - 1, lambda: 10**12, lambda: 10**30, lambda: -(10**30), lambda: 10**400,
        lambda: 0.5, lambda: -0.0, lambda: 1e308, lambda: float("nan"), lambda: float("inf"), lambda: float("-inf"), lambda: 1j,
        lambda: "axis", lambda: "", lambda: "f32", lambda: "u16", lambda: "f8e4m3", lambda: "i8", lambda: b"bytes",
        lambda: (), list, lambda: (0,), lambda: (0, 0), lambda: (0, 1), lambda: [1, -1], lambda: (-1, -1), lambda: (1.5,),
        lambda: (10**12,), lambda: (2**40, 2**40), lambda: (10**30, 2), lambda: [[0], [1]], lambda: (None,), lambda: ("a", "b"),
        lambda: (2, -3), lambda: (0, 10**12), lambda: tuple(range(70)), lambda: (1,) * 40, dict, lambda: {"axis": 0}, lambda: {1, 2},
        lambda: Odd(), lambda: Bad(), lambda: (Bad(),), lambda: Odd, lambda: int, lambda: len, lambda: slice(None), lambda: Ellipsis,
        lambda: np.array([0, 1]), lambda: np.array(0), lambda: np.array([0.5]), lambda: np.int64(1), lambda: np.int8(-1),
        lambda: np.float32(0.5), lambda: np.float64("nan"), lambda: np.bool_(True), lambda: np.dtype("f4"), lambda: np.dtype("c8"),
        lambda: np.float16, lambda: range(3), lambda: iter((0, 1)), lambda: fractions.Fraction(1, 2), lambda: decimal.Decimal(1),
        lambda: bytearray(b"x"), lambda: memoryview(b"x"), lambda: np.str_("x"), lambda: np.datetime64("2020-01-01"), lambda: [0, [1]],
    ))()


def absurd_array(r: Random, like: tuple[int, ...]) -> Any:
    """Something in an array's place: of a dtype, a layout or a kind that is not supported, or no array at all."""
    count = math.prod(like)
    plain = np.arange(count, dtype=np.float64).reshape(like)

    def misaligned() -> Any:
        raw = np.zeros(count * 4 + 1, np.uint8)
        return raw[1:].view(np.float32).reshape(like)

    def odd_strides() -> Any:
        return np.zeros(max(count, 1), np.dtype([("a", np.int8), ("b", np.float32)], align=False))["b"][:count].reshape(like)

    return r.choice((
        lambda: plain.astype(np.complex64), lambda: plain.astype(np.uint16), lambda: plain.astype(np.uint64), lambda: plain.astype(object),
        lambda: plain.astype("S4"), lambda: plain.astype("U3"), lambda: plain.astype("M8[s]"), lambda: plain.astype(">f4"),
        lambda: plain.astype(np.longdouble), misaligned, odd_strides, lambda: np.zeros(like, [("a", "f4"), ("b", "i4")]),
        lambda: np.ma.masked_array(plain, plain > 1), lambda: np.matrix([[1.0, 2.0]]), lambda: np.rec.array(np.zeros(2, [("a", "f4")])),
        lambda: plain.tolist(), lambda: [[1, 2], [3]], lambda: [None, 1.0], lambda: ["a"], list, lambda: [[]], lambda: [np.ones(2), 1.0],
        lambda: [2**70], lambda: (1, 2.5), lambda: {"x": plain}, lambda: {1.0}, lambda: None, lambda: "text", lambda: b"bytes", lambda: 10**30, lambda: -(2**63) - 1,
        lambda: 300, lambda: -1, lambda: 2.5, lambda: float("nan"), lambda: float("inf"), lambda: True, lambda: 1j, lambda: np.float32(2), lambda: np.int8(3),
        lambda: np.uint64(2**63), lambda: np.complex128(1j), lambda: np.bool_(True), lambda: Odd(), lambda: Bad(), lambda: [Bad()],
        lambda: Odd, lambda: len, lambda: slice(2), lambda: Ellipsis, lambda: NotImplemented, lambda: range(4), lambda: (v for v in (1, 2)), lambda: memoryview(b"ab"),
        lambda: np.zeros(like, NUMPY[r.choice(EIGHT_BIT)]), lambda: np.zeros(like, NUMPY[r.choice(ALL)]), lambda: np.zeros((1,) * 40),
        lambda: np.broadcast_to(np.float32(1), (300, 300)), lambda: np.zeros((0, 10**9), np.float32), lambda: np.zeros((3, 0, 2)),
        lambda: np.array(1.0), lambda: np.array(None), lambda: np.full(like, np.nan, np.float32), lambda: np.zeros((2, 3, 4, 5, 6, 7), np.int8),
        lambda: np.int64([2**62]), lambda: plain.astype(np.float32).view(np.recarray), lambda: fractions.Fraction(1, 3), lambda: np.void(b"abc"),
    ))()


def described(v: Any) -> str:
    """A value in short."""
    if isinstance(v, np.ndarray):
        strides = "" if v.flags.c_contiguous else f", strides {v.strides}"
        return f"{type(v).__name__ if type(v) is not np.ndarray else ''}<{v.dtype}{list(v.shape)}{strides}>"
    if isinstance(v, (list, tuple)) and len(v) < 80:
        inner = ", ".join(map(described, v))
        return f"[{inner}]" if isinstance(v, list) else f"({inner}{',' if len(v) == 1 else ''})"
    text = str(v) if isinstance(v, int) and abs(v) < 10**40 else f"<int of {v.bit_length()} bits>" if isinstance(v, int) else repr(v)
    return text if len(text) < 200 else text[:200] + "..."
