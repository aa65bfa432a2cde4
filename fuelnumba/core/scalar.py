"""Scalar primitives, one row each, and the expressions every elementwise op is written in.

A row says what the primitive means (`ref`, on NumPy values) and how a CPU kernel spells it for floats (`f`), integers
(`i`) and booleans (`b`). In a spelling, {0} {1} {2} are the operands, {c} the type of computation (f32, f64, i32, ...) and
{bits} its width. Function names in a spelling are those of `kernels/lang`, `kernels/half` and `kernels/vmath`.

An op such as silu is an ordinary Python function of expressions, `lambda x: x * sigmoid(x)`, evaluated once on symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Prim:
    name: str
    arity: int
    ref: Callable[..., Any]
    f: str | None = None
    i: str | None = None
    b: str | None = None
    out: str = "same"  # 'same' as the operands, or 'bool'
    weight: int = 1  # statements it becomes in a kernel, roughly: what compiling it costs
    keeps: bool = False  # of numbers that a narrow dtype holds, the result is one, too: nothing is to be rounded

    def spelling(self, kind: str) -> str | None:
        return {"f": self.f, "u": self.i, "i": self.i, "b": self.b}.get(kind)


def of_scipy(name: str) -> Callable[..., Any]:
    """A function of scipy.special, imported when first used: it would double the package's import time."""

    def ref(*xs: Any) -> Any:
        import scipy.special

        return getattr(scipy.special, name)(*xs)

    return ref


def _fn(name: str, ref: Callable[..., Any], weight: int = 20) -> Prim:
    """A function that exists as vector code per float type: exp_f32, exp_f64."""
    return Prim(name, 1, ref, f=f"{name}_{{c}}({{0}})", weight=weight)


def _compare(name: str, ref: Callable[..., Any], sign: str) -> Prim:
    text = f"({{0}} {sign} {{1}})"
    return Prim(name, 2, ref, f=text, i=text, b=text, out="bool")


_SAME = "{0}"
PRIMS: dict[str, Prim] = {p.name: p for p in (
    # arithmetic: integers keep their width at every step
    Prim("add", 2, np.add, "({0} + {1})", "wrap_add({0}, {1})", "({0} | {1})"),
    Prim("sub", 2, np.subtract, "({0} - {1})", "wrap_sub({0}, {1})"),
    Prim("mul", 2, np.multiply, "({0} * {1})", "wrap_mul({0}, {1})", "({0} & {1})"),
    Prim("div", 2, np.true_divide, "({0} / {1})"),
    Prim("floordiv", 2, np.floor_divide, "floordiv_{c}({0}, {1})", "int_floordiv({0}, {1})"),
    Prim("rem", 2, np.remainder, "rem_{c}({0}, {1})", "int_mod({0}, {1})"),
    Prim("neg", 1, np.negative, "(-{0})", "wrap_sub({c}(0), {0})", keeps=True),
    Prim("abs", 1, np.abs, "fabs({0})", "maximum({0}, wrap_sub({c}(0), {0}))", _SAME, keeps=True),
    Prim("sign", 1, np.sign, "select({0} > {c}(0), {c}(1), select({0} < {c}(0), {c}(-1), select({0} == {c}(0), {c}(0), {0})))",
         "select({0} > {c}(0), {c}(1), select({0} < {c}(0), {c}(-1), {c}(0)))", keeps=True),
    Prim("max", 2, np.maximum, "maximum({0}, {1})", "maximum({0}, {1})", "({0} | {1})", keeps=True),
    Prim("min", 2, np.minimum, "minimum({0}, {1})", "minimum({0}, {1})", "({0} & {1})", keeps=True),
    Prim("fma", 3, lambda a, b, c: a * b + c, "fma({0}, {1}, {2})"),
    Prim("sqrt", 1, np.sqrt, "sqrt({0})"),
    Prim("pow", 2, np.power, "pow_{c}({0}, {1})", "int_pow({0}, {1})", weight=60),
    Prim("copysign", 2, np.copysign, "copysign({0}, {1})", keeps=True),
    # transcendental: vector code in kernels/vmath
    _fn("exp", np.exp), _fn("exp2", np.exp2), _fn("expm1", np.expm1),
    _fn("log", np.log), _fn("log2", np.log2), _fn("log10", np.log10), _fn("log1p", np.log1p),
    _fn("sin", np.sin, 70), _fn("cos", np.cos, 70), _fn("tan", np.tan, 90), _fn("tanh", np.tanh),
    _fn("sigmoid", of_scipy("expit")), _fn("erf", of_scipy("erf")), _fn("erfc", of_scipy("erfc")),
    # rounding: to nearest is to even
    Prim("floor", 1, np.floor, "floor({0})", _SAME, _SAME, keeps=True),
    Prim("ceil", 1, np.ceil, "ceil({0})", _SAME, _SAME, keeps=True),
    Prim("trunc", 1, np.trunc, "trunc({0})", _SAME, _SAME, keeps=True),
    Prim("round", 1, np.rint, "rint({0})", _SAME, _SAME, keeps=True),
    # comparison, following IEEE for NaN
    _compare("eq", np.equal, "=="), _compare("ne", np.not_equal, "!="), _compare("lt", np.less, "<"),
    _compare("le", np.less_equal, "<="), _compare("gt", np.greater, ">"), _compare("ge", np.greater_equal, ">="),
    Prim("isnan", 1, np.isnan, "({0} != {0})", "({0} != {0})", "({0} != {0})", out="bool"),
    Prim("isinf", 1, np.isinf, "(fabs({0}) == {c}(np.inf))", "({0} != {0})", "({0} != {0})", out="bool"),
    Prim("isfinite", 1, np.isfinite, "(fabs({0}) < {c}(np.inf))", "({0} == {0})", "({0} == {0})", out="bool"),
    # logic and bits
    Prim("and", 2, np.bitwise_and, None, "{c}({0} & {1})", "({0} & {1})"),
    Prim("or", 2, np.bitwise_or, None, "{c}({0} | {1})", "({0} | {1})"),
    Prim("xor", 2, np.bitwise_xor, None, "{c}({0} ^ {1})", "({0} != {1})"),
    Prim("not", 1, np.invert, None, "{c}(~{0})", "({0} == False)"),
    Prim("shl", 2, np.left_shift, None,
         "{c}(select((i64({1}) >= i64(0)) & (i64({1}) < i64({bits})), i64({0}) << (i64({1}) & i64(63)), i64(0)))"),
    Prim("shr", 2, np.right_shift, None,
         "{c}(i64({0}) >> select((i64({1}) >= i64(0)) & (i64({1}) < i64({bits})), i64({1}), i64(63)))"),
    # choice: the condition is boolean, the operands have the op's dtype
    Prim("where", 3, np.where, "select({0}, {1}, {2})", "select({0}, {1}, {2})", "select({0}, {1}, {2})", keeps=True),
)}


# ------------------------------------------------------------------------------------------------- expressions
@dataclass(frozen=True)
class Expr:
    """An expression of primitives: `op` is a primitive's name, 'arg' (value: its position) or 'lit' (value: a number)."""

    op: str
    args: tuple[Expr, ...] = ()
    value: float | int | None = None

    def __add__(self, o: Any) -> Expr:
        return call("add", self, o)

    def __radd__(self, o: Any) -> Expr:
        return call("add", o, self)

    def __sub__(self, o: Any) -> Expr:
        return call("sub", self, o)

    def __rsub__(self, o: Any) -> Expr:
        return call("sub", o, self)

    def __mul__(self, o: Any) -> Expr:
        return call("mul", self, o)

    def __rmul__(self, o: Any) -> Expr:
        return call("mul", o, self)

    def __truediv__(self, o: Any) -> Expr:
        return call("div", self, o)

    def __rtruediv__(self, o: Any) -> Expr:
        return call("div", o, self)

    def __neg__(self) -> Expr:
        return call("neg", self)

    def __lt__(self, o: Any) -> Expr:
        return call("lt", self, o)

    def __gt__(self, o: Any) -> Expr:
        return call("gt", self, o)

    def __le__(self, o: Any) -> Expr:
        return call("le", self, o)

    def __ge__(self, o: Any) -> Expr:
        return call("ge", self, o)


def arg(position: int) -> Expr:
    return Expr("arg", value=position)


def lit(value: float) -> Expr:
    return Expr("lit", value=value)


def call(name: str, *args: Any) -> Expr:
    """A primitive applied to expressions and numbers."""
    prim = PRIMS[name]
    if len(args) != prim.arity:
        raise TypeError(f"{name} takes {prim.arity} operands, not {len(args)}")
    return Expr(name, tuple(a if isinstance(a, Expr) else lit(a) for a in args))


def _primitive(name: str) -> Callable[..., Expr]:
    def build(*args: Any) -> Expr:
        return call(name, *args)

    build.__name__ = name
    return build


sqrt, exp, exp2, expm1, log, log1p = (_primitive(n) for n in ("sqrt", "exp", "exp2", "expm1", "log", "log1p"))
sin, cos, tanh, sigmoid, erf, erfc = (_primitive(n) for n in ("sin", "cos", "tanh", "sigmoid", "erf", "erfc"))
absolute, maximum, minimum, where, equal = (_primitive(n) for n in ("abs", "max", "min", "where", "eq"))


def evaluate(expr: Expr, args: Sequence[Any]) -> Any:
    """The expression on NumPy values, by the primitives' `ref` column."""
    if expr.op == "arg":
        return args[int(expr.value or 0)]
    if expr.op == "lit":
        return expr.value
    return PRIMS[expr.op].ref(*(evaluate(a, args) for a in expr.args))


# An operand's type is a computation type ('f32', 'i16', 'b1', ...); kinds are the letters f, i, u, b.
def kind_of(compute: str) -> str:
    return compute[0]


def spell(expr: Expr, args: Sequence[tuple[str, str]], compute: str, emit: Callable[[str], str]) -> tuple[str, str]:
    """Kernel text of the expression: every step goes through `emit(text) -> name`.

    `args` and the result are pairs (name, computation type); literals have the type `compute`.
    """
    if expr.op == "arg":
        return args[int(expr.value or 0)]
    if expr.op == "lit":
        return literal(expr.value, compute), compute
    parts = [spell(a, args, compute, emit) for a in expr.args]
    prim = PRIMS[expr.op]
    of = parts[-1][1]
    text = prim.spelling(kind_of(of))
    if text is None:
        raise TypeError(f"the primitive {prim.name} is not defined for {of}")
    if prim.name == "abs" and kind_of(of) == "u":
        text = _SAME
    bits = "8" if of == "b1" else of[1:]
    name = emit(text.format(*(p[0] for p in parts), c=of, bits=bits))
    return name, "b1" if prim.out == "bool" else of


def weight(expr: Expr) -> int:
    """Statements of kernel text, roughly."""
    return (PRIMS[expr.op].weight if expr.op in PRIMS else 0) + sum(map(weight, expr.args))


def keeps(expr: Expr) -> bool:
    """Whether a narrow float dtype that holds the operands' values holds the result as well."""
    if expr.op == "lit":
        return expr.value in (-1, 0, 1)
    if expr.op == "arg" or PRIMS[expr.op].out == "bool":
        return True
    return PRIMS[expr.op].keeps and all(map(keeps, expr.args))


def literal(value: Any, compute: str) -> str:
    """A typed constant of kernel text; infinities and NaN are spelt through NumPy."""
    if compute == "b1":
        return repr(bool(value))
    if kind_of(compute) in "iu":
        return f"{compute}({int(value)})"
    v = float(value)
    if v != v:
        return f"{compute}(np.nan)"
    if v in (float("inf"), float("-inf")):
        return f"{compute}({'-' if v < 0 else ''}np.inf)"
    return f"{compute}({v!r})"
