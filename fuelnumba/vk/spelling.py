"""Types, names and literals of the kernel language, as GLSL spells them."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .words import TYPES

ON_LITERALS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod}


class Value(NamedTuple):
    """The text of an expression and its type: a key of TYPES, a literal's I or F; '*f32' for a pointer, '[f32' for an
    array of the thread's or the group's."""

    text: str
    type: str


class Unprintable(Exception):
    """Says what has no GLSL."""


def named(name: str) -> str:
    """A variable, out of the way of GLSL's words."""
    return name if name in ("lo", "hi") else f"v{name}_" if name.startswith("gl") else f"{name}_"


def join(a: str | None, b: str) -> str:
    """The type of what may have either, or of an operation on both."""
    if a is None or a == b:
        return b
    if a[0] in "*[" or b[0] in "*[":
        raise Unprintable(f"a variable is a pointer or an array of {a.lstrip('*[')} and of {b.lstrip('*[')}")
    if a in "IF" or b in "IF":
        literal, other = (a, b) if a in "IF" else (b, a)
        if other in "IF":
            return "F" if "F" in (literal, other) else "I"
        if literal == "F":
            return other if other[0] == "f" else "f64"
        return "i64" if other == "b1" else other
    if "b1" in (a, b):
        return b if a == "b1" else a
    (narrow, few), (wide, many) = sorted(((t[0], int(t[1:])) for t in (a, b)), key=lambda t: (t[0] == "f", t[1]))
    if wide == "f":
        return f"f{many if narrow == 'f' or few < 32 else 64}"
    return f"{wide}{many}" if narrow == wide or (wide == "i" and many > few) else f"i{min(2 * many, 64)}"


def called(n: ast.Call) -> str:
    return n.func.id if isinstance(n.func, ast.Name) else ""


def number(n: ast.expr) -> float | int | None:
    """The value of an expression of literals; None for any other."""
    if isinstance(n, ast.Constant):
        return n.value if isinstance(n.value, (int, float)) else None
    if isinstance(n, ast.Attribute):
        return float(n.attr) if n.attr in ("inf", "nan") else None
    if isinstance(n, ast.UnaryOp) and isinstance(n.op, ast.USub):
        of = number(n.operand)
        return None if of is None else -of
    if isinstance(n, ast.BinOp) and type(n.op) in ON_LITERALS:
        a, b = number(n.left), number(n.right)
        return None if a is None or b is None else ON_LITERALS[type(n.op)](a, b)
    return None


def real(value: float, t: str) -> str:
    """A float literal of a type."""
    if t == "f32":
        with np.errstate(all="ignore"):
            v = np.float32(value)
        if not np.isfinite(v):
            return f"uintBitsToFloat({hex(int(v.view(np.uint32)))}u)"
        return f"{float(v)!r}" if v else ("-0.0" if np.signbit(v) else "0.0")
    if not np.isfinite(value):
        return f"uint64BitsToDouble({hex(int(np.float64(value).view(np.uint64)))}UL)"
    return f"{float(value)!r}lf"


def whole(value: int, t: str) -> str:
    if t in ("i64", "I"):
        return f"{value}L" if value > -(2**63) else "(-9223372036854775807L - 1L)"
    if t == "u64":
        return f"{value & (2**64 - 1)}UL"
    if t == "u32":
        return f"{value & (2**32 - 1)}u"
    return f"{value}" if t == "i32" and value > -(2**31) else f"{TYPES[t]}({value})"
