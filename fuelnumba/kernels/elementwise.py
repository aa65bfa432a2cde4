"""The elementwise family. Each op is one formula of scalar primitives: kernels for it, alone or fused with its neighbours,
are generated (compiler/codegen). To add one, write one line here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core import dtypes as dt
from ..core.dtypes import DType
from ..core.errors import ArgumentError, DTypeError
from ..core.ir import canonical
from ..core.ops import Attr, Aval, Dtype, Int, Number, elementwise, op, same_shapes, shown
from ..core.scalar import (
    PRIMS,
    absolute,
    call,
    equal,
    erfc,
    exp,
    log1p,
    maximum,
    minimum,
    sigmoid,
    sqrt,
    tanh,
    where,
)

# ------------------------------------------------------------------------------- one primitive each: (op, primitive)
_UNARY = [
    # op          primitive  domain    what it is
    ("negative", "neg", "number", "-x"),
    ("absolute", "abs", "any", "|x|; the least signed integer stays itself"),
    ("sign", "sign", "number", "-1, 0 or 1; NaN stays NaN"),
    ("sqrt", "sqrt", "float", "square root"),
    ("exp", "exp", "float", "e to the power x"),
    ("exp2", "exp2", "float", "2 to the power x"),
    ("expm1", "expm1", "float", "exp(x) - 1, exact near 0"),
    ("log", "log", "float", "natural logarithm"),
    ("log2", "log2", "float", "logarithm to base 2"),
    ("log10", "log10", "float", "logarithm to base 10"),
    ("log1p", "log1p", "float", "log(1 + x), exact near 0"),
    ("sin", "sin", "float", "sine of x in radians"),
    ("cos", "cos", "float", "cosine of x in radians"),
    ("tan", "tan", "float", "tangent of x in radians"),
    ("tanh", "tanh", "float", "hyperbolic tangent"),
    ("sigmoid", "sigmoid", "float", "1 / (1 + exp(-x))"),
    ("erf", "erf", "float", "error function"),
    ("erfc", "erfc", "float", "1 - erf(x), exact in the tail"),
    ("floor", "floor", "any", "greatest integer not above x"),
    ("ceil", "ceil", "any", "least integer not below x"),
    ("trunc", "trunc", "any", "x without its fraction"),
    ("round", "round", "any", "nearest integer, halves to even"),
    ("bitwise_not", "not", "bits", "every bit inverted"),
]
_TESTS = [("isnan", "isnan"), ("isinf", "isinf"), ("isfinite", "isfinite")]
_BINARY = [
    ("add", "add", "any", "x + y; `or` for booleans"),
    ("subtract", "sub", "number", "x - y"),
    ("multiply", "mul", "any", "x * y; `and` for booleans"),
    ("divide", "div", "division", "x / y; integers give f64"),
    ("floor_divide", "floordiv", "number", "floor(x / y); an integer divided by 0 gives 0"),
    ("remainder", "rem", "number", "x - floor(x / y) * y: has the sign of y; an integer modulo 0 gives 0"),
    ("power", "pow", "number", "x to the power y; integers wrap, a negative integer exponent rounds towards 0"),
    ("maximum", "max", "any", "the greater; NaN if either is"),
    ("minimum", "min", "any", "the lesser; NaN if either is"),
    ("copysign", "copysign", "float", "|x| with the sign of y"),
    ("bitwise_and", "and", "bits", "bits set in both"),
    ("bitwise_or", "or", "bits", "bits set in either"),
    ("bitwise_xor", "xor", "bits", "bits set in one only"),
    ("left_shift", "shl", "int", "x * 2**y, wrapping; 0 for y past the width"),
    ("right_shift", "shr", "int", "floor(x / 2**y)"),
]
_COMPARE = [("equal", "eq"), ("not_equal", "ne"), ("less", "lt"), ("less_equal", "le"), ("greater", "gt"),
            ("greater_equal", "ge")]
_LOGICAL = [("logical_and", "and"), ("logical_or", "or"), ("logical_xor", "xor")]


def _unary(name: str, prim: str, ref: Any = None, **fields: Any) -> None:
    elementwise(name, lambda x: call(prim, x), ref=ref or PRIMS[prim].ref, **fields)


def _binary(name: str, prim: str, ref: Any = None, **fields: Any) -> None:
    elementwise(name, lambda x, y: call(prim, x, y), ref=ref or PRIMS[prim].ref, **fields)


def power_ref(x: Any, y: Any) -> Any:
    """NumPy refuses negative integer exponents: here they round towards 0, and 0 to a negative power is 0."""
    x, y = np.asarray(x), np.asarray(y)
    if x.dtype.kind not in "iu":
        return np.power(x, y)
    up = np.power(x, np.maximum(y, y.dtype.type(0)))
    below = np.where(x == 1, 1, np.where(x == -1, np.where(y % 2 == 0, 1, -1), 0))
    return np.where(y >= 0, up, below).astype(x.dtype)


def whole(of_floats: Any) -> Any:
    """A rounding's reference: integers are whole already, while NumPy may take them through float64."""
    return lambda x: of_floats(x) if np.asarray(x).dtype.kind == "f" else x


_FIELDS: dict[str, dict[str, Any]] = {
    **{_name: {"ref": whole(_fn)} for _name, _fn in
       [("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc), ("round", np.rint)]},
    "power": {"ref": power_ref}, "floor_divide": {"own_width": True}, "remainder": {"own_width": True},
    **{_name: {"args": {"x": "angles in radians"}} for _name in ("sin", "cos", "tan")},
    "sigmoid": {"like": "scipy.special.expit, torch.sigmoid"},
    "erf": {"like": "scipy.special.erf, torch.erf"}, "erfc": {"like": "scipy.special.erfc, torch.erfc"},
}
_FIELDS["round"]["like"] = "numpy.rint, torch.round"


for _name, _prim, _domain, _doc in _UNARY:
    _unary(_name, _prim, domain=_domain, doc=_doc, **_FIELDS.get(_name, {}))
for _name, _prim in _TESTS:
    _unary(_name, _prim, domain="any", out="bool", doc=f"{_name[2:]}, as booleans")
for _name, _prim, _domain, _doc in _BINARY:
    _binary(_name, _prim, domain=_domain, doc=_doc, **_FIELDS.get(_name, {}))
for _name, _prim in _COMPARE:
    _binary(_name, _prim, domain="any", out="bool",
            doc=f"x {PRIMS[_prim].f.split()[1]} y as booleans; false when either is NaN" if _prim != "ne"  # type: ignore[union-attr]
            else "x != y as booleans; true when either is NaN")
for _name, _prim in _LOGICAL:
    _binary(_name, _prim, domain="truth", doc=f"logical {_name[8:]} of truth values")
_unary("logical_not", "not", domain="truth", doc="logical negation of truth values")

# ------------------------------------------------------------------------------- formulas
elementwise("square", lambda x: x * x, domain="any", doc="x * x")
elementwise("reciprocal", lambda x: 1 / x, domain="float", doc="1 / x")
elementwise("rsqrt", lambda x: 1 / sqrt(x), like="torch.rsqrt", doc="1 / sqrt(x)")
elementwise("silu", lambda x: x * sigmoid(x), like="torch.nn.functional.silu", doc="x * sigmoid(x)")
elementwise("relu", lambda x: maximum(x, 0), domain="number", like="torch.relu", doc="max(x, 0)")
elementwise("step", lambda x: where(x > 0, 1, 0), domain="number", like="numpy.heaviside(x, 0)", doc="1 where x > 0, else 0")
elementwise("gelu", lambda x: 0.5 * x * erfc(x * -0.7071067811865476), like="torch.nn.functional.gelu",
            tolerance={"f64": 1e-12},  # the rounding of x / sqrt(2) is raised to its square
            doc="x * Phi(x), exact also in the negative tail")
# (1 + tanh(u)) / 2 is sigmoid(2 * u), which stays exact where tanh(u) rounds to -1
elementwise("gelu_tanh", lambda x: x * sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x)),
            tolerance={"f32": 1e-5, "f64": 1e-12},  # the rounding of u is raised to its exponential
            like='torch.nn.functional.gelu(approximate="tanh")', doc="gelu by the tanh approximation")
elementwise("softplus", lambda x: maximum(x, 0) + log1p(exp(-absolute(x))), like="torch.nn.functional.softplus",
            doc="log(1 + exp(x)) without overflow")


def _hypot(a: Any, b: Any) -> Any:
    longer = maximum(a, b)
    ratio = minimum(a, b) / longer  # at most 1: its square does not overflow
    length = where(equal(longer, 0), longer, longer * sqrt(1 + ratio * ratio))
    return where(call("isinf", a), a, where(call("isinf", b), b, length))


elementwise("hypot", lambda x, y: _hypot(absolute(x), absolute(y)), ref=np.hypot,
            doc="sqrt(x**2 + y**2) without overflow; infinite if either is")
elementwise("mish", lambda x: x * tanh(maximum(x, 0) + log1p(exp(-absolute(x)))), ref=lambda x: x * np.tanh(np.logaddexp(0, x)),
            like="torch.nn.functional.mish", doc="x * tanh(softplus(x))")
elementwise("logaddexp", lambda x, y: where(equal(x, y), x + 0.6931471805599453, maximum(x, y) + log1p(exp(-absolute(x - y)))),
            ref=np.logaddexp, tolerance={"absolute": 1},  # near 0 its terms cancel
            doc="log(exp(x) + exp(y)) without overflow")
elementwise("where", lambda condition, x, y: where(condition, x, y), domain="any", ref=np.where,
            like="numpy.where, torch.where", args={"condition": "true where x is taken: booleans, or numbers other than 0"},
            doc="x where condition holds, else y")


# ------------------------------------------------------------------------------- with static parameters
# These are other ops in disguise; the compiler writes them out, and their scalars reach the kernel as run-time values.
def _same_as_x(*avals: Aval, **attrs: Any) -> Aval:
    return Aval(same_shapes("an elementwise op", avals), avals[0].dtype)


def _bounds(dtype: DType, low: float | None, high: float | None) -> tuple[Any, Any]:
    """The bounds of a clamp in its dtype; None where every number of the dtype is within. Raises ArgumentError."""
    if not dtype.is_integer:
        return tuple(None if v is None else canonical(v, dtype) for v in (low, high))  # type: ignore[return-value]
    for v in (low, high):
        if isinstance(v, float) and not (v.is_integer() or abs(v) == float("inf")):
            raise ArgumentError(f"clamp(): {v} is no bound for {dtype}", cure="give an integer, or cast the array to floats")
    info = np.iinfo(dtype.numpy)
    return (None if low is None or low <= info.min else _fitting(low, dtype),
            None if high is None or high >= info.max else _fitting(high, dtype))


def _fitting(v: float, dtype: DType) -> Any:
    if abs(v) == float("inf"):
        raise ArgumentError(f"clamp(): no {dtype} is within a bound of {v}",
                            cure="give a bound that the dtype reaches")
    return canonical(int(v), dtype)


def _clamp_aval(x: Aval, min: float | None, max: float | None) -> Aval:
    _bounds(x.dtype, min, max)
    return x


def _clamp(build: Any, inputs: Any, *, min: float | None, max: float | None) -> Any:
    x, = inputs
    min, max = _bounds(x.dtype, min, max)
    if min is not None:
        x = build.op("maximum", (x, build.full_like(x, min)))
    return x if max is None else build.op("minimum", (x, build.full_like(x, max)))


def _infer_powi(x: Aval, *, n: int) -> Aval:
    if n < 0 and not x.dtype.is_float:
        raise DTypeError(f"powi(): {x.dtype} has no negative powers, and n is {n}",
                         cure="cast to floats first, e.g. x.astype(np.float64)")
    return x


def _check_fill(v: Any, avals: Sequence[Aval]) -> Any:
    """The value, which must be one that the array can hold."""
    dtype = avals[0].dtype
    if dtype.kind == "b" and isinstance(v, (bool, np.bool_)):
        return bool(v)
    number = Number().check(v, avals)
    if dtype.is_float:
        return number
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max)
    if not (low <= number <= high and number == int(number)):
        raise ArgumentError(f"{dtype} cannot hold {shown(v)}", cure="cast the array first, e.g. x.astype(np.float64)")
    return bool(number) if dtype.kind == "b" else int(number)


def _powi(build: Any, inputs: Any, *, n: int) -> Any:
    """x**n by repeated squaring, of half types in f32; x**0 is 1 everywhere, as in NumPy."""
    x, = inputs
    if n == 0:
        return build.full_like(x, 1)
    if x.dtype.is_float and x.dtype.bits == 16:
        return build.op("cast", (_powi(build, (build.op("cast", (x,), dtype=dt.f32),), n=n),), dtype=x.dtype)
    square, out, k = x, None, abs(n)
    while k:
        if k & 1:
            out = square if out is None else build.op("multiply", (out, square))
        k >>= 1
        if k:
            square = build.op("square", (square,))
    return out if n > 0 else build.op("reciprocal", (out,))


op("clamp", "elementwise", "x", infer=_clamp_aval, domain="number", decompose=_clamp, like="numpy.clip, torch.clamp",
   args={"min": "the least value, or None for no bound", "max": "the greatest value, or None for no bound"},
   raises={"ArgumentError": "a bound of integers is no whole number"},
   attrs={"min": Number(None), "max": Number(None)},
   samples=lambda: [((), {"min": 1, "max": 100}), ((), {"max": 3}), ((), {"min": 2}), ((), {})],
   doc="x held between min and max; either may be None",
   ref=lambda x, min, max: np.clip(x, min, max) if (min, max) != (None, None) else x)
op("powi", "elementwise", "x", infer=_infer_powi, domain="number", decompose=_powi, like="numpy.power",
   args={"n": "the exponent"}, raises={"DTypeError": "n is negative and x holds integers"},
   attrs={"n": Int()}, samples=lambda: [((), {"n": n}) for n in (0, 1, 2, 3, 5, -1, -3)],
   ref=lambda x, n: np.power(x, n), doc="x to the power of a static integer n, by multiplication")
op("masked_fill", "elementwise", "x condition", infer=_same_as_x, domain="any", like="torch.masked_fill",
   args={"condition": "true where x is replaced: booleans, or numbers other than 0", "value": "the number to put there"},
   raises={"ArgumentError": "the dtype of x cannot hold the value"},
   attrs={"value": Attr(_check_fill, kind="number")}, samples=lambda: [((), {"value": 1}), ((), {"value": 0})],
   ref=lambda x, condition, value: np.where(condition, value, x),
   decompose=lambda build, xs, *, value: build.op("where", (xs[1], build.full_like(xs[0], value), xs[0])),
   doc="x with `value` where condition holds")


# ------------------------------------------------------------------------------- conversion
op("cast", "elementwise", "x", infer=lambda x, dtype: Aval(x.shape, dtype), attrs={"dtype": Dtype()}, domain="mixed",
   samples=lambda: [((), {"dtype": d.name}) for d in dt.ALL], ref=lambda x, dtype: x,
   like="numpy.ndarray.astype, torch.Tensor.to", gives="the given dtype", raises={"DTypeError": "there is no such dtype"},
   doc="x in another dtype. To integers: truncates towards zero, saturates at the ends, NaN gives 0. To narrower floats: "
       "rounds to nearest even; f8e4m3 has no infinity, so what overflows becomes NaN")
