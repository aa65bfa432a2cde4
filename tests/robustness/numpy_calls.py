"""Random calls of NumPy's functions on traced values, valid and not; NumPy itself says what they must give."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

import fuelnumba
from fuelnumba.trace import numpy_api
from tests.parity.agree import FLOATS, INTS

from . import draw
from .op_calls import TOLERANCE, Call
from .op_calls import check as check_value

DTYPES = ("f32", "f32", "f64", "f16", "i32", "i64", "u8", "i8", "i16", "u32", "bool")  # NumPy's own
Make = Callable[[Random, Any], tuple[tuple[Any, ...], dict[str, Any]]]


def axis(r: Random, x: Any) -> Any:
    return r.randrange(-x.ndim, x.ndim) if x.ndim else 0


def axes(r: Random, x: Any) -> Any:
    return r.choice((None, None, axis(r, x), tuple(k for k in range(x.ndim) if r.random() < 0.5)))


def _reduce(r: Random, x: Any) -> Any:
    return (x,), {"axis": axes(r, x), "keepdims": r.random() < 0.4}


def _arg(r: Random, x: Any) -> Any:
    return (x,), {"axis": r.choice((None, axis(r, x) if x.ndim else None))}


def _pair(r: Random, x: Any) -> Any:
    return (x, draw.values(r, "f32", x.size).reshape(x.shape).astype(x.dtype)), {}


def _alone(r: Random, x: Any) -> Any:
    return (x,), {}


def _axis(r: Random, x: Any) -> Any:
    return (x, axis(r, x)), {}


def _several(r: Random, x: Any) -> Any:
    return ([x, x, x],), {"axis": axis(r, x)}


def _lists(r: Random, x: Any) -> Any:
    return ([x, x],), {}


def _permutation(r: Random, x: Any) -> Any:
    order = list(range(x.ndim))
    r.shuffle(order)
    return (x, order), {}


TABLE: dict[str, Make] = {
    **dict.fromkeys(("sum", "prod", "mean", "max", "min", "any", "all", "var", "std", "ptp", "count_nonzero"), _reduce),
    **dict.fromkeys(("argmax", "argmin"), _arg),
    **dict.fromkeys(("where",), lambda r, x: ((x > 0, x, r.choice((x, 1))), {})),
    "clip": lambda r, x: ((x, r.choice((0, 1)), r.choice((2, 3))), {}),
    "round": lambda r, x: ((x, r.choice((0, 0, 1, 2))), {}),
    **dict.fromkeys(("array_equal", "outer", "vdot"), _pair),
    "dot": lambda r, x: ((x, np.swapaxes(x, -1, -2) if x.ndim > 1 else x), {}),
    "inner": lambda r, x: ((x, x), {}),
    "tensordot": lambda r, x: ((x, x.T, r.choice((0, 1, x.ndim))), {}),
    "einsum": lambda r, x: ((r.choice(("...i,...i->...", "...i->...", "...ij->...ji", "...ij,...jk->...ik", "ij,jk", "i,i", "ii")), *[x] * r.choice((1, 2))), {}),
    "reshape": lambda r, x: ((x, r.choice(((-1,), x.shape[::-1], (1, *x.shape), (x.size, 1), (2, -1)))), {}),
    **dict.fromkeys(("ravel", "matrix_transpose", "squeeze", "atleast_1d", "atleast_2d", "atleast_3d", "fliplr", "flipud", "copy",
                     "zeros_like", "ones_like", "ndim", "shape", "size", "real"), _alone),
    "transpose": _permutation, "permute_dims": _permutation,
    "swapaxes": lambda r, x: ((x, axis(r, x), axis(r, x)), {}), "moveaxis": lambda r, x: ((x, axis(r, x), axis(r, x)), {}),
    "expand_dims": _axis, "flip": _axis, "roll": lambda r, x: ((x, r.randint(-9, 9), r.choice((None, axis(r, x)))), {}),
    "broadcast_to": lambda r, x: ((x, (r.choice((1, 3)), *x.shape)), {}), "broadcast_arrays": lambda r, x: ((x, x[..., :1]) if x.ndim else (x, x), {}),
    "concatenate": _several, "stack": _several, **dict.fromkeys(("vstack", "hstack", "dstack", "column_stack"), _lists),
    "split": lambda r, x: ((x, r.choice((1, 2, [1], [1, 3])), axis(r, x)), {}), "array_split": lambda r, x: ((x, r.choice((1, 2, 3, [2])), axis(r, x)), {}),
    **dict.fromkeys(("hsplit", "vsplit", "dsplit"), lambda r, x: ((x, r.choice((1, 2, [1]))), {})),
    "repeat": lambda r, x: ((x, r.randint(0, 3), r.choice((None, axis(r, x)))), {}), "tile": lambda r, x: ((x, r.choice((2, (2, 1), (1, 0), ()))), {}),
    "pad": lambda r, x: ((x, r.choice((0, 1, (1, 2)))), {}), "diff": lambda r, x: ((x, r.randint(0, 2), axis(r, x)), {}),
    "take": lambda r, x: ((x, np.array([0, 1, -1]), r.choice((None, axis(r, x)))), {}),
    "take_along_axis": lambda r, x: ((x, np.zeros(x.shape, np.int64), axis(r, x)), {}),
    **dict.fromkeys(("tril", "triu"), lambda r, x: ((x, r.randint(-3, 3)), {})),
    "full_like": lambda r, x: ((x, 1), {}),
    "linalg.norm": lambda r, x: ((x, r.choice((None, 1, 2, np.inf)), axis(r, x)), {}),
    **dict.fromkeys(("add", "subtract", "multiply", "maximum", "minimum", "equal", "less", "greater_equal", "logical_and", "bitwise_xor"), _pair),
    "divide": _pair, "power": lambda r, x: ((x, r.choice((0, 1, 2, 3, 0.5))), {}),
    **dict.fromkeys(("negative", "absolute", "sign", "exp", "tanh", "floor", "rint", "sqrt", "isnan", "logical_not", "square", "invert"), _alone),
    "getitem": lambda r, x: ((x, key(r, x)), {}), "astype": lambda r, x: ((x, r.choice(("f4", "int64", "f2", "?"))), {}),
}
NAMES = tuple(TABLE)


def key(r: Random, x: Any) -> Any:
    """An index: what `x[...]` may hold."""
    def item() -> Any:
        return r.choice((0, -1, r.randint(-9, 9), slice(None), slice(r.randint(-9, 9), r.randint(-9, 9), r.choice((1, 2, -1, -3))), None, ...,
                         np.array([0, -1]), [0, 1]))
    return tuple(item() for _ in range(r.randint(0, x.ndim + 1))) if r.random() < 0.7 else item()


def function(name: str) -> Callable[..., Any]:
    if name == "getitem":
        return lambda x, k: x[k]
    return np.linalg.norm if name == "linalg.norm" else getattr(np, name)


def make(r: Random, name: str, variant: int) -> Call:
    v = Random(f"numpy {name} {variant}")
    dtype, rank = v.choice(DTYPES), v.choice((0, 1, 1, 2, 2, 3, 4))
    if name in ("sqrt", "power"):
        dtype = v.choice(("f32", "f64"))
    x = draw.array(r, dtype, draw.shape(r, rank, 600), v.choice(draw.LAYOUTS))
    if name in ("prod",) and dtype in FLOATS or name in ("sqrt", "power"):
        x = np.abs(x) % x.dtype.type(2)
    args, kwargs = TABLE[name](r, x)
    fn = function(name)
    plain = Call(f"np.{name}", fn, tuple(args), kwargs)
    if r.random() < 0.35:  # something wrong with one of them
        args, kwargs = list(args), dict(kwargs)
        how = r.random()
        if how < 0.25 and kwargs:
            kwargs[r.choice(sorted(kwargs))] = draw.absurd(r)
        elif how < 0.35:
            kwargs[r.choice(("axis", "dtype", "out", "where", "order", "nonsense", "keepdims", "initial"))] = draw.absurd(r)
        elif how < 0.75 and len(args) > 1:
            args[r.randrange(1, len(args))] = r.choice((draw.absurd, lambda r: draw.absurd_array(r, (2, 3))))(r)
        elif how < 0.85:
            args = args[:-1]
        else:
            args.append(draw.absurd(r))
        plain = Call(f"np.{name}", fn, tuple(args), kwargs)
    return traced(plain, x, dtype)


def traced(plain: Call, x: Any, dtype: str) -> Call:
    """The call in a jitted function of its arrays; other arguments are part of the function."""
    arrays: list[Any] = []

    def lift(a: Any) -> Any:
        """Arrays like x become arguments: a place for each."""
        if type(a) is np.ndarray and a.dtype == x.dtype:
            arrays.append(a)
            return _Place(len(arrays) - 1)
        return [lift(b) for b in a] if type(a) is list and a and all(type(b) is np.ndarray for b in a) else a

    places = [lift(a) for a in plain.args]
    jitted = fuelnumba.jit(lambda *xs: plain.fn(*(fill(p, xs) for p in places), **plain.kwargs))

    def run(*args: Any, **kwargs: Any) -> Any:
        return jitted(*arrays)

    def expected() -> Any:
        try:
            with np.errstate(all="ignore"):
                return plain.fn(*plain.args, **plain.kwargs)
        except Exception as err:
            return err

    return Call(plain.name, run, plain.args, plain.kwargs, expected)


class _Place(int):
    """Which of the arrays stands here."""


def fill(p: Any, xs: Any) -> Any:
    return xs[p] if isinstance(p, _Place) else [fill(q, xs) for q in p] if isinstance(p, list) and p and isinstance(p[0], _Place) else p


def check(call: Call, result: Any) -> None:
    assert call.expected is not None
    compare(call, result, call.expected())


def compare(call: Call, result: Any, expected: Any) -> None:
    """As NumPy has it: values, and dtypes where NumPy's is one of ours."""
    if isinstance(expected, Exception):
        wider = "complex", "a_max", "'numpy.bool' object", "tuple_iterator", "'list' object", "int() argument must be"  # clip(x, 0) is clear; where=None is taken as not given
        if isinstance(expected, (MemoryError, OverflowError)) or any(w in str(expected) for w in wider):
            return
        if isinstance(expected, IndexError) and isinstance(result, np.ndarray) and result.size == 0:
            return  # nothing is taken, so no index is looked at
        raise AssertionError(f"NumPy raises {type(expected).__name__}: {expected}; we gave {draw.described(result)}")
    if isinstance(expected, (list, tuple)):
        assert isinstance(result, (list, tuple)) and len(result) == len(expected), f"gave {result!r}, not {expected!r}"
        for got, wanted in zip(result, expected):
            compare(call, got, wanted)
        return
    if not isinstance(result, (np.ndarray, np.generic)):
        assert result == expected, f"gave {result!r}, not {expected!r}"
        return
    expected = np.asarray(expected)
    if expected.dtype == np.uint64:  # sums of unsigned integers are i64 here (docs/numpy.md)
        expected = expected.astype(np.int64)
    if expected.dtype.kind not in "biuf" or expected.dtype in (np.uint16, np.longdouble):
        return
    check_value(Call(call.name, call.fn, (), {}, lambda: expected), result)


assert set(TOLERANCE) and set(INTS) and numpy_api.covered()
