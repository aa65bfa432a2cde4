"""NumPy's functions on traced values: which are covered, and how each is said in ops.

A ufunc is the elementwise op of its name, or what `UFUNCS` says; `REDUCE` maps their `.reduce`, and `FUNCTIONS` other
functions to implementations with NumPy's signature. What is in none of them is an `UnsupportedFunctionError` naming the
nearest covered one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from ..core import dims
from ..core import dtypes as dt
from ..core.errors import (
    ArgumentError,
    DTypeError,
    FuelError,
    TracedMutationError,
    UnsupportedFunctionError,
)
from ..core.ops import OPS, check_axis, check_bool, shown, whole
from . import arrange as ar
from . import contract, linalg
from .apply import as_tensor, call, cast, reshape
from .instead import nearest
from .linalg import as_float, widened
from .traced import RAW, Traced, check_numpys, fail, form_of, in_form, located, refuse, refused


# -------------------------------------------------------------------------------- ufuncs that are not one op
def rint(x: Any) -> Any:
    """Rounded to even; integers become floats, as np.rint has it (np.round keeps them)."""
    return call("round", as_float(x))


def positive(x: Any) -> Any:
    """+x, which is x."""
    x = as_tensor(x)
    if x.node.dtype is dt.bool_:
        fail(DTypeError, "positive() is not defined for bool", "cast it first, e.g. x.astype(np.int64)")
    return x


def power(x: Any, y: Any) -> Any:
    """x**y; a small static exponent becomes products, 0.5 a square root."""
    if isinstance(x, Traced) and isinstance(y, (int, float)) and not isinstance(y, (bool, np.generic)):
        if x.dtype.kind == "b":
            x = cast(x, dt.i64)
        if isinstance(y, int) and y < 0 and x.node.dtype.is_integer:
            fail(ArgumentError, f"{x!r} cannot be raised to {y}: integers have no negative powers",
                 "cast to floats first, or divide: 1 / x**n")
        if isinstance(y, int) or x.node.dtype.is_float:
            if y == 2:
                return call("square", x)
            if isinstance(y, int) and 3 <= y <= 8:
                return call("powi", x, n=y)
            if y == 0.5:
                return call("sqrt", x)
    return call("power", x, y)


def square(x: Any) -> Any:
    """x * x; of bools in i8, as in NumPy."""
    x = as_tensor(x)
    return call("square", cast(x, dt.i8) if x.node.dtype is dt.bool_ else x)


def divmod_(x: Any, y: Any) -> tuple[Any, Any]:
    return call("floor_divide", x, y), call("remainder", x, y)


def float_power(x: Any, y: Any) -> Any:
    return call("power", as_tensor(x, dt.f64), as_tensor(y, dt.f64))


def _scaled(factor: float) -> Callable[[Any], Any]:
    def scaled(x: Any) -> Any:
        x = as_float(x)
        return cast(call("multiply", widened(x), factor), x.dtype)

    return scaled


# name -> what it is in ops, where it is not the op of the same name: a name, or a function of the operands
_UFUNC_TABLE: dict[str, str | Callable[..., Any]] = {
    "square": square, "power": power, "invert": "bitwise_not", "fabs": lambda x: call("absolute", as_float(x)), "rint": rint,
    "positive": positive,
    "conjugate": as_tensor, "divmod": divmod_, "float_power": float_power, "matmul": contract.matmul,
    "vecdot": linalg.vecdot,
    "deg2rad": _scaled(np.pi / 180), "radians": _scaled(np.pi / 180),
    "rad2deg": _scaled(180 / np.pi), "degrees": _scaled(180 / np.pi),
    "signbit": lambda x: call("less", call("copysign", 1.0, x), 0),
}
UFUNCS: dict[np.ufunc, str | Callable[..., Any]] = {getattr(np, n): f for n, f in _UFUNC_TABLE.items()}


SCIPY = "scipy.special"
# scipy.special's ufuncs whose op has another name
_SCIPY_TABLE = {"expit": "sigmoid"}


def home_of(ufunc: np.ufunc) -> str | None:
    """The module that a ufunc belongs to: 'numpy', 'scipy.special', or None for one of the user's."""
    for module in ("numpy", SCIPY):
        if getattr(sys.modules.get(module), ufunc.__name__, None) is ufunc:
            return module
    return None


def target_of(ufunc: np.ufunc) -> str | Callable[..., Any] | None:
    """What a ufunc is in ops: what the tables say, else the elementwise op of its name and number of operands."""
    found = UFUNCS.get(ufunc)
    if found is None and isinstance(ufunc, np.ufunc) and home_of(ufunc) is not None:
        op = OPS.get(_SCIPY_TABLE.get(ufunc.__name__, ufunc.__name__))
        found = op.name if op is not None and op.is_elementwise and len(op.inputs) == ufunc.nin and ufunc.nout == 1 else None
    return found


def in_loop_of(ufunc: np.ufunc, inputs: Sequence[Any]) -> list[Any]:
    """The operands in the dtypes of the loop that a ufunc of SciPy's has for theirs: f64 as a rule, f32 for f32."""
    given = [as_tensor(x) for x in inputs]
    kinds = [{"i": int, "f": float}.get(x.weak, x.dtype) for x in given]
    loop = ufunc.resolve_dtypes((*kinds, *(None,) * ufunc.nout))
    return [as_tensor(x, dtype) for x, dtype in zip(given, loop)]


REDUCE: dict[np.ufunc, str] = {
    np.add: "sum", np.multiply: "prod", np.maximum: "max", np.minimum: "min",
    np.logical_and: "all", np.logical_or: "any",
}


@located
def call_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What `Tensor.__array_ufunc__` does."""
    home = home_of(ufunc)
    name = f"{home}.{ufunc.__name__}" if home else ufunc.__name__
    if kwargs.pop("out", None) is not None:
        raise TracedMutationError(f"{name}(..., out=...) writes into an array while tracing",
                                  cure="use the value the function returns")
    dtype, casting = check_numpys(kwargs.pop("dtype", None)), kwargs.pop("casting", None)
    kwargs.pop("subok", None)
    refuse(name, order=kwargs.pop("order", None))
    if method == "reduce" and ufunc in REDUCE:
        refuse(f"{name}.reduce", initial=kwargs.pop("initial", None), where=kwargs.pop("where", True))
        axis = kwargs.pop("axis", inputs[1] if len(inputs) > 1 else 0)
        keepdims = kwargs.pop("keepdims", False)
        return reduction(REDUCE[ufunc])(inputs[0], axis=axis, dtype=dtype, keepdims=keepdims)
    target = target_of(ufunc)
    if method != "__call__" or target is None:
        unsupported(name if method == "__call__" else f"{name}.{method}")
    own = {"axis": kwargs.pop("axis")} if target is linalg.vecdot and "axis" in kwargs else {}
    refuse(name, where=kwargs.pop("where", True), **kwargs)
    if casting in ("no", "equiv"):
        refuse(name, casting=casting)
    try:
        if dtype is not None:
            inputs = tuple(ar.converted(ufunc.__name__, x, dtype, casting) for x in inputs)
        elif home == SCIPY:
            inputs = tuple(in_loop_of(ufunc, inputs))
        return in_form(call(target, *inputs) if isinstance(target, str) else target(*inputs, **own), "scalar")
    except FuelError:
        raise
    except RAW as err:
        raise refused(name, err) from err


# ---------------------------------------------------------------------------------------- reductions
_NOT_GIVEN = np._NoValue


def reduction(op: str) -> Callable[..., Any]:
    """np.sum and its like: any axes; `dtype=` is what is computed in."""

    def reduce(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False,
               initial: Any = _NOT_GIVEN, where: Any = True) -> Any:
        refuse(f"numpy.{op}", out=out, initial=initial, where=where)
        x = as_tensor(a, check_numpys(dtype))
        result = call(op, x, axis=axis if op == "mean" else _axes(x, axis), keepdims=_given(keepdims))
        return result if dtype is None else cast(result, dtype)

    return reduce


def extremum(op: str) -> Callable[..., Any]:
    """np.max and its like, whose signature has no dtype."""

    def reduce(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = _NOT_GIVEN,
               where: Any = True) -> Any:
        refuse(f"numpy.{op}", out=out, initial=initial, where=where)
        x = as_tensor(a)
        return call(op, x, axis=_axes(x, axis), keepdims=_given(keepdims))

    return reduce


def arg_extremum(op: str) -> Callable[..., Any]:
    def reduce(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
        refuse(f"numpy.{op}", out=out)
        x, keep = as_tensor(a), _given(keepdims)
        line, along = ar.in_line(x, axis)
        if line is x:
            return call(op, x, axis=along, keepdims=keep)
        flat = call(op, line, axis=0)
        return reshape(flat, (1,) * x.ndim) if keep else flat

    return reduce


def _axes(x: Any, axis: Any) -> Any:
    """The axes that a ufunc of NumPy's reduces: it takes 0 and -1 where there are none."""
    return () if ar.has_none(x, axis) else axis


def _given(keepdims: Any) -> bool:
    return False if keepdims is _NOT_GIVEN else check_bool(keepdims)


def var(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: Any = False,
        *, where: Any = True, mean: Any = _NOT_GIVEN, correction: Any = _NOT_GIVEN) -> Any:
    """The mean squared distance from the mean; half types are computed in f32."""
    refuse("numpy.var", out=out, where=where, mean=mean)
    x = as_float(as_tensor(a, check_numpys(dtype)), "division")
    return cast(_variance(widened(x), axis, ddof if correction is _NOT_GIVEN else correction, keepdims), x.dtype)


def _variance(x: Any, axis: Any, ddof: Any, keepdims: Any) -> Any:
    if not isinstance(ddof, (int, float, np.number)):
        raise ArgumentError(f"var(): correction (ddof) must be a number, not {shown(ddof)}", cure="give an int or a float")
    axes = OPS["mean"].attrs["axis"].check(axis, [x.node.aval])
    distance = call("subtract", x, call("mean", x, axis=axes, keepdims=True))
    squares = call("square", distance)
    if ddof == 0:
        return call("mean", squares, axis=axes, keepdims=_given(keepdims))
    count: Any = 1
    for k in axes:
        count = count * x.shape[k]
    left = count - ddof
    if isinstance(left, (int, float)):
        left = max(left, 0)
    return call("divide", call("sum", squares, axis=axes, keepdims=_given(keepdims)), left)


def std(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: Any = False,
        *, where: Any = True, mean: Any = _NOT_GIVEN, correction: Any = _NOT_GIVEN) -> Any:
    """The root of `var`, which need not fit a half type itself."""
    refuse("numpy.std", out=out, where=where, mean=mean)
    x = as_float(as_tensor(a, check_numpys(dtype)), "division")
    ddof = ddof if correction is _NOT_GIVEN else correction
    return cast(call("sqrt", _variance(widened(x), axis, ddof, keepdims)), x.dtype)


def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    refuse("numpy.ptp", out=out)
    return call("subtract", *(extremum(op)(a, axis, keepdims=keepdims) for op in ("max", "min")))


def count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    return reduction("sum")(call("not_equal", a, 0), axis, keepdims=keepdims)


# -------------------------------------------------------------------------------- elementwise functions
def where_(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None or y is None:
        raise UnsupportedFunctionError("numpy.where(condition) alone has a length that is not known while "
                                       "tracing", cure="give both values: np.where(condition, x, y)")
    return call("where", condition, x, y)


def clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None, max: Any = None,
         **refused: Any) -> Any:
    refuse("numpy.clip", out=out, **refused)
    low = min if a_min is None or a_min is _NOT_GIVEN else a_min
    high = max if a_max is None or a_max is _NOT_GIVEN else a_max
    a = as_tensor(a)
    if a.node.dtype.is_integer and a.weak is None:  # written ints beyond the dtype bound nothing
        info = np.iinfo(a.dtype)
        low = None if type(low) is int and low <= info.min else low
        high = None if type(high) is int and high >= info.max else high
        if getattr(low, "weak", None) == "i":
            low = call("maximum", low, info.min)
        if getattr(high, "weak", None) == "i":
            high = call("minimum", high, info.max)
    plain = all(v is None or type(v) in (int, float) for v in (low, high))
    if plain and a.node.dtype.is_float and a.weak is None:
        return call("clamp", a, min=low, max=high)
    if low is not None:
        a = call("maximum", a, low)
    return a if high is None else call("minimum", a, high)


def round_(a: Any, decimals: int = 0, out: Any = None) -> Any:
    refuse("numpy.round", out=out)
    a = as_tensor(a)
    decimals = whole(decimals, "decimals")
    if a.node.dtype.kind == "b":
        if decimals:
            fail(DTypeError, "numpy.round() to decimals is not defined for bool", "cast it first, e.g. x.astype(np.float32)")
        return rint(a)
    if decimals == 0 or (decimals > 0 and not a.node.dtype.is_float):
        return call("round", a)
    scale = 10.0 ** abs(decimals)
    there, back = ("multiply", "divide") if decimals > 0 else ("divide", "multiply")
    rounded = call(back, call("round", call(there, a, scale)), scale)
    if a.node.dtype.is_float:
        return rounded
    whole_ = cast(cast(rounded, dt.i64), a.node.dtype)  # what is rounded past the end of the range wraps around, as in NumPy
    return whole_ if a.weak is None else a.origin.wrap(whole_.node, a.weak, a.where)


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    refuse("numpy.array_equal", equal_nan=equal_nan or None)
    a1, a2 = as_tensor(a1), as_tensor(a2)
    if a1.shape != a2.shape:
        return False
    return call("all", call("equal", a1, a2))


def imag(val: Any) -> Any:
    x = as_tensor(val)
    return in_form(ar.zeros_like(x), form_of(x))


def astype(x: Any, dtype: Any, /, *, copy: Any = True, device: Any = None) -> Any:
    refuse("numpy.astype", device=device)
    return cast(x, dtype)


def isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None) -> Any:
    """Compares each with each, so that the memory it takes is the product of the two sizes in bytes."""
    x, wanted = as_tensor(element), reshape(test_elements, (-1,))
    found = call("any", call("equal", call("unsqueeze", x, axis=x.ndim), wanted), axis=-1)
    return call("logical_not", found) if check_bool(invert) else found


# -------------------------------------------------------------------------------- about shapes and dtypes
def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """The dtype NumPy computes in."""
    weak = {"b": False, "i": 0, "f": 0.0}

    def stand_in(a: Any) -> Any:
        if isinstance(a, Traced):
            return a.dtype if a.weak is None else weak[a.weak]
        return a

    return np.result_type(*map(stand_in, arrays_and_dtypes))


def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    return bool(np.can_cast(from_.dtype if isinstance(from_, Traced) else from_, to, casting))


def size(a: Any, axis: Any = None) -> Any:
    if axis is None:
        return a.size
    return dims.product(a.shape[check_axis(k, a.ndim)] for k in (axis if isinstance(axis, tuple) else (axis,)))


WRITE_CURE = ("make a new value: np.where(condition, a, b), np.concatenate([...]) or "
              "fuelnumba.ops.write_slice(x, src, at)")


def writes(name: str) -> Callable[..., Any]:
    cure = WRITE_CURE
    if name == "copyto":  # NumPy asks nobody before it fills an array
        cure += "; for np.full with a value of the program: fuelnumba.ops.full(value, shape, dtype)"

    def refuse_write(*args: Any, **kwargs: Any) -> Any:
        fail(TracedMutationError, f"numpy.{name} writes into an array, which a graph cannot hold", cure)

    return refuse_write


FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    # reductions
    np.sum: reduction("sum"), np.prod: reduction("prod"), np.mean: reduction("mean"),
    np.max: extremum("max"), np.amax: extremum("max"), np.min: extremum("min"), np.amin: extremum("min"),
    np.any: extremum("any"), np.all: extremum("all"),
    np.argmax: arg_extremum("argmax"), np.argmin: arg_extremum("argmin"),
    np.var: var, np.std: std, np.ptp: ptp, np.count_nonzero: count_nonzero,
    # elementwise
    np.where: where_, np.clip: clip, np.round: round_, np.around: round_, np.array_equal: array_equal,
    np.astype: astype, np.real: as_tensor, np.imag: imag, np.isin: isin,
    # products
    np.dot: contract.dot, np.inner: contract.inner, np.outer: contract.outer, np.vdot: contract.vdot,
    np.tensordot: contract.tensordot, np.einsum: contract.einsum,
    np.linalg.matmul: lambda x1, x2, /: contract.matmul(x1, x2), np.linalg.vecdot: linalg.vecdot,
    np.linalg.tensordot: lambda x1, x2, /, *, axes=2: contract.tensordot(x1, x2, axes),
    np.linalg.outer: linalg.outer, np.linalg.cross: linalg.cross, np.linalg.matrix_power: linalg.matrix_power,
    # matrices
    np.diagonal: linalg.diagonal, np.linalg.diagonal: linalg.matrix_diagonal,
    np.trace: linalg.trace, np.linalg.trace: linalg.matrix_trace,
    np.linalg.norm: linalg.norm, np.linalg.vector_norm: linalg.vector_norm, np.linalg.matrix_norm: linalg.matrix_norm,
    # axes and order
    np.reshape: ar.reshape, np.ravel: ar.ravel, np.transpose: ar.transpose, np.permute_dims: ar.transpose,
    np.matrix_transpose: ar.matrix_transpose, np.linalg.matrix_transpose: ar.matrix_transpose, np.swapaxes: ar.swapaxes,
    np.moveaxis: ar.moveaxis, np.expand_dims: ar.expand_dims, np.squeeze: ar.squeeze,
    np.broadcast_to: ar.broadcast_to, np.broadcast_arrays: ar.broadcast_arrays,
    np.atleast_1d: ar.atleast(1), np.atleast_2d: ar.atleast(2), np.atleast_3d: ar.atleast(3),
    np.flip: ar.flip, np.fliplr: lambda m: ar.flip(m, 1), np.flipud: lambda m: ar.flip(m, 0),
    np.roll: ar.roll, np.fft.fftshift: ar.centred(back=False), np.fft.ifftshift: ar.centred(back=True),
    np.copy: ar.copy, np.meshgrid: ar.meshgrid,
    # joining and cutting
    np.concatenate: ar.concatenate, np.stack: ar.stack, np.vstack: ar.vstack, np.hstack: ar.hstack,
    np.dstack: ar.dstack, np.column_stack: ar.column_stack, np.split: ar.split,
    np.array_split: ar.array_split, np.hsplit: ar.split_along(1), np.vsplit: ar.split_along(0),
    np.dsplit: ar.split_along(2), np.repeat: ar.repeat, np.tile: ar.tile, np.pad: ar.pad, np.diff: ar.diff,
    **({np.unstack: ar.unstack} if hasattr(np, "unstack") else {}),  # from NumPy 2.1 on
    # indexing
    np.take: ar.take, np.take_along_axis: ar.take_along_axis,
    np.tril: ar.triangle("tril"), np.triu: ar.triangle("triu"),
    # new arrays
    np.zeros_like: ar.zeros_like, np.ones_like: ar.filled_like("ones_like", 1),
    np.empty_like: ar.filled_like("empty_like", 0),
    np.full_like: ar.full_like, np.zeros: ar.zeros, np.ones: ar.ones, np.empty: ar.zeros, np.full: ar.full,
    # about
    np.ndim: lambda a: a.ndim, np.shape: lambda a: a.shape, np.size: size, np.result_type: result_type,
    np.can_cast: can_cast,
    np.iscomplexobj: lambda x: False, np.isrealobj: lambda x: True,
    # never
    **{getattr(np, n): writes(n) for n in (
        "copyto", "put", "place", "putmask", "put_along_axis", "fill_diagonal")},
}


# what a result without axes is, where the op that made it does not tell
FORMS: dict[Callable[..., Any], str] = {
    **dict.fromkeys((np.flip, np.inner, np.einsum, np.linalg.norm, np.linalg.matrix_norm), "scalar"),
    **dict.fromkeys((np.copy, np.broadcast_to, np.broadcast_arrays, np.roll, np.tile, np.isin), "array"),
    np.array_equal: "python",
}


def _formed(fn: Callable[..., Any], result: Any) -> Any:
    """The result of a NumPy function; a Python number that it hands through has become an array."""
    passed = isinstance(result, Traced) and result.form == "python" and fn not in (np.real, np.imag)
    return in_form(result, FORMS.get(fn, "array")) if passed or fn in FORMS else result


def _name(fn: Callable[..., Any]) -> str:
    module = (getattr(fn, "__module__", None) or "numpy").partition("._")[0]
    return f"{module}.{fn.__name__}"


_NUMPYS = [u for u in vars(np).values() if isinstance(u, np.ufunc)]
_FUNCTION_NAMES = {_name(f) for f in FUNCTIONS}


def covered() -> list[str]:
    """Names of the NumPy functions that work on traced values."""
    return sorted({f"numpy.{u.__name__}" for u in _NUMPYS if target_of(u) is not None} | _FUNCTION_NAMES)


def covered_of_scipy() -> list[str]:
    """Names of the functions of scipy.special that work on traced values. Imports SciPy."""
    import scipy.special

    return sorted(n for n, u in vars(scipy.special).items() if isinstance(u, np.ufunc) and target_of(u) is not None)


def unsupported(name: str) -> NoReturn:
    module = name.rpartition(".")[0]
    if module == SCIPY:
        cure = f"compute it outside, and pass the result. Of {SCIPY} are covered: {', '.join(covered_of_scipy())}"
    elif module:
        cure = nearest(name, covered())
    else:
        cure = "write it with NumPy's functions, or declare it: fuelnumba.elementwise"
    fail(UnsupportedFunctionError, f"{name} is not covered for traced values", cure)


@located
def call_function(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What `Tensor.__array_function__` does."""
    implementation = FUNCTIONS.get(fn)
    if implementation is None:
        unsupported(_name(fn))
    for given in (*args, *kwargs.values()):
        check_numpys(given)
    try:
        return _formed(fn, implementation(*args, **kwargs))
    except FuelError:
        raise
    except RAW as err:
        raise refused(_name(fn), err) from err
