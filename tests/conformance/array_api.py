"""The array API standard as a table: its functions, read off array_api_strict, and generated calls of them.

A `Call` is a function of the standard with arguments in the standard's form. It runs on NumPy, on array_api_strict, and
through `fn.jit`; the first two are the oracles.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import array_api_strict as strict
import numpy as np
from hypothesis import strategies as st

import fuelnumba as fn
from fuelnumba.core.errors import FuelError
from fuelnumba.tools import array_api
from tests.parity.agree import NUMPY, agree

DTYPES = ("bool", "u8", "i8", "u32", "i16", "i32", "i64", "f32", "f64")  # those that the standard has and we have
NAME_OF = {np.dtype(NUMPY[d]): d for d in (*DTYPES, "f16")}  # f16: what NumPy makes of float functions of i8
_KEPT = ("get_array_api_strict_flags", "set_array_api_strict_flags", "reset_array_api_strict_flags", "__array_namespace_info__")


def in_standard() -> list[str]:
    """The functions of the standard and its extensions."""
    plain = [n for n in strict.__all__ if inspect.isfunction(getattr(strict, n)) and n not in _KEPT]
    return sorted([*plain, *(f"linalg.{n}" for n in strict.linalg.__all__), *(f"fft.{n}" for n in strict.fft.__all__)])


def find(space: Any, name: str) -> Any:
    """The function of a namespace; `operator.add` and its like are Python's."""
    room, _, last = name.rpartition(".")
    return getattr(operator if room == "operator" else getattr(space, room) if room else space, last)


COVERED = [n for n in in_standard() if array_api.is_covered(n)]



# ------------------------------------------------------------------------------------------------ a call
@dataclass(frozen=True)
class Hole:
    """Stands for an array in the arguments of a call."""

    k: int


@dataclass(frozen=True)
class Call:
    """`name(*args, **kwargs)`, where Holes are `arrays` and np.dtypes are dtypes."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    arrays: tuple[np.ndarray[Any, Any], ...] = ()

    def __repr__(self) -> str:
        given = [*map(self._shown, self.args), *(f"{k}={self._shown(v)}" for k, v in self.kwargs.items())]
        return f"{self.name}({', '.join(given)})"

    def _shown(self, v: Any) -> str:
        if isinstance(v, Hole):
            a = self.arrays[v.k]
            return f"{NAME_OF.get(a.dtype, a.dtype)}{list(a.shape)}"
        if isinstance(v, (tuple, list)):
            return f"[{', '.join(map(self._shown, v))}]"
        return str(v)

    def on(self, space: Any, arrays: Sequence[Any]) -> Any:
        """The call in a namespace, with these arrays in the holes."""

        def filled(v: Any) -> Any:
            if isinstance(v, Hole):
                return arrays[v.k]
            if isinstance(v, (tuple, list)):
                return type(v)(map(filled, v))
            return strict_dtype(v) if space is strict and isinstance(v, np.dtype) else v

        return find(space, self.name)(*map(filled, self.args), **{k: filled(v) for k, v in self.kwargs.items()})


def strict_dtype(dtype: np.dtype[Any]) -> Any:
    return getattr(strict, "bool" if dtype == np.bool_ else dtype.name)


def unwrapped(result: Any) -> Any:
    """A result of strict in NumPy's terms."""
    if isinstance(result, (tuple, list)):
        return [unwrapped(r) for r in result]
    if hasattr(result, "_np_dtype"):
        return result._np_dtype
    return np.asarray(result._array) if isinstance(result, strict._array_object.Array) else result


AT_FAULT = ("isin",)  # array_api_strict 2.6.1 takes no notice of `invert`


class Refused(Exception):
    """An oracle's or our refusal of a call."""


def by_strict(call: Call) -> Any:
    if call.name in AT_FAULT:
        raise Refused("strict is at fault")
    try:
        with np.errstate(all="ignore"):
            return unwrapped(call.on(strict, [strict.asarray(a) for a in call.arrays]))
    except Exception as err:
        raise Refused(f"{type(err).__name__}: {err}") from None


def by_numpy(call: Call) -> Any:
    try:
        with np.errstate(all="ignore"):
            return unwrapped(call.on(np, call.arrays))
    except Exception as err:
        raise Refused(f"{type(err).__name__}: {err}") from None


def expected(call: Call) -> Any:
    """What the standard says; where it says nothing (strict refuses), what NumPy does. Raises Refused if both refuse."""
    try:
        return by_strict(call)
    except Refused:
        return by_numpy(call)


def ours(call: Call, jitted: Any = None) -> Any:
    """What the call gives in a jitted function. Raises Refused for a FuelError."""
    plain: list[Any] = []

    def body(*arrays: Any) -> Any:
        plain.clear()
        result = call.on(np, arrays)
        if isinstance(result, (bool, np.dtype)):  # no arrays, which a jitted function returns
            plain.append(result)
            return arrays[0]
        return result

    try:
        result = (jitted or fn.jit(body))(*call.arrays)
    except FuelError as err:
        raise Refused(f"{type(err).__name__}: {err.what}") from None
    return plain[0] if plain else unwrapped(result)


# ------------------------------------------------------------------------------------------------ choices
class First:
    """Takes the first of every choice: the plainest call."""

    def of(self, *options: Any) -> Any:
        return options[0]


class Full(First):
    """Gives every parameter: those that may go either way by position, or by name."""

    def __init__(self, by_name: bool) -> None:
        self.by_name = by_name

    def of(self, *options: Any) -> Any:
        if options == (True, False):
            return not self.by_name
        return options[-1] if options == (False, True) else options[0]


class Long(First):
    """As First, with axes of another length."""

    def __init__(self, length: int) -> None:
        self.length = length

    def of(self, *options: Any) -> Any:
        return self.length if options == LENGTHS else options[0]


class Drawn(First):
    """Hypothesis chooses, and shrinks towards the first."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw

    def of(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))


Shape = tuple[int, ...]
LENGTHS = (2, 3, 1, 0)


def a_shape(c: First, least: int = 0, most: int = 3) -> Shape:
    rank = c.of(*sorted(range(least, most + 1), key=lambda r: abs(r - 2)))
    return tuple(c.of(*LENGTHS) for _ in range(rank))


def with_shape(shape: Shape, dtype: str, scale: int = 1) -> np.ndarray[Any, Any]:
    """Small numbers in an order that shows what moved; `scale` makes another array of it."""
    values = np.array([1, -2, 3, 0, 5, 2, -4, 7, -1, 6, 4]) * scale
    values = np.abs(values) if dtype.startswith("u") else values / 2 if dtype.startswith("f") else values
    return np.resize(values, shape).astype(NUMPY[dtype])


# ------------------------------------------------------------------------------------------------ arguments by parameter
def an_axis(c: First, rank: int) -> int:
    return c.of(*range(-rank, rank)) if rank else c.of(0, -1)


def axes_of(p: inspect.Parameter) -> Callable[[First, Shape], Any]:
    """None, an int or a tuple, as far as the standard has them for this function."""
    text = str(p.annotation)

    def choose(c: First, shape: Shape) -> Any:
        kinds = ["int"] * bool(shape) + ["tuple"] * ("tuple" in text) + ["None"] * ("None" in text)
        kind = c.of(*kinds) if kinds else "int"
        if kind == "None":
            return None
        if kind == "int":
            return an_axis(c, len(shape))
        left, found = list(range(len(shape))), []
        while left and c.of(True, False):
            found.append(left.pop(left.index(c.of(*left))))
        return tuple(k - len(shape) if c.of(False, True) else k for k in found)

    return choose


OPTIONS: dict[str, Callable[[First, Shape], Any]] = {
    "keepdims": lambda c, s: c.of(True, False),
    "correction": lambda c, s: c.of(1, 0, 2, 0.5),
    "dtype": lambda c, s: np.dtype(np.float64),
    "k": lambda c, s: c.of(0, 1, -1, 3, -3),
    "n": lambda c, s: c.of(1, 2, 0),
    "offset": lambda c, s: c.of(0, 1, -1, 3, -3),
    "device": lambda c, s: None,
    "copy": lambda c, s: c.of(True, None),
    "invert": lambda c, s: c.of(True, False),
    "indexing": lambda c, s: c.of("ij", "xy"),
}
# Functions whose arguments go together: (choices, dtypes) -> arguments by parameter, a `*parameter` as a tuple.
Given = dict[str, Any]
TOGETHER: dict[str, Callable[[First, Sequence[str]], Given]] = {}


def together(*names: str) -> Callable[[Any], Any]:
    def note(fn: Any) -> Any:
        TOGETHER.update(dict.fromkeys(names, fn))
        return fn

    return note


def arrays_like(c: First, dtypes: Sequence[str]) -> tuple[np.ndarray[Any, Any], ...]:
    """Arrays that broadcast: each lacks some leading axes of a common shape, and has length 1 in others."""
    shape = a_shape(c)
    out = []
    for k, d in enumerate(dtypes):
        own = shape[c.of(0, *range(1, len(shape) + 1)):]
        out.append(with_shape(tuple(c.of(n, 1) for n in own), d, k + 1))
    return tuple(out)


@together("where")
def _where(c: First, dtypes: Sequence[str]) -> Given:
    condition, x1, x2 = arrays_like(c, ("bool", *dtypes))
    return {"condition": condition, "x1": x1, "x2": x2}


@together("clip")
def _clip(c: First, dtypes: Sequence[str]) -> Given:
    x = with_shape(a_shape(c), dtypes[0])
    bounds = {"min": c.of(1, None), "max": c.of(2, None)}
    if c.of(False, True):
        bounds["min"] = with_shape(x.shape[c.of(0, *range(1, x.ndim + 1)):], dtypes[0])
    return {"x": x, **bounds}


@together("astype")
def _astype(c: First, dtypes: Sequence[str]) -> Given:
    return {"x": with_shape(a_shape(c), dtypes[0]), "dtype": np.dtype(np.float64)}


@together("can_cast")
def _can_cast(c: First, dtypes: Sequence[str]) -> Given:
    return {"from_": with_shape(a_shape(c), dtypes[0]), "to": np.dtype(np.float32)}


@together("full_like")
def _full_like(c: First, dtypes: Sequence[str]) -> Given:
    return {"x": with_shape(a_shape(c), dtypes[0]), "fill_value": 1}


@together("empty", "ones", "zeros", "full")
def _new(c: First, dtypes: Sequence[str]) -> Given:
    return {"shape": c.of(a_shape(c), 3), "fill_value": c.of(2.5, 2, True), "dtype": c.of(np.dtype(NUMPY[dtypes[0]]), None)}


@together("reshape")
def _reshape(c: First, dtypes: Sequence[str]) -> Given:
    x = with_shape(a_shape(c), dtypes[0])
    lengths = [x.shape[k] for k in range(x.ndim)]
    while len(lengths) > 1 and c.of(True, False):
        lengths[-2:] = [lengths[-2] * lengths[-1]]
    if lengths and 0 not in lengths and c.of(False, True):
        lengths[c.of(*range(len(lengths)))] = -1
    return {"x": x, "shape": tuple(lengths)}


@together("broadcast_to")
def _broadcast_to(c: First, dtypes: Sequence[str]) -> Given:
    x, = arrays_like(c, dtypes[:1])
    return {"x": x, "shape": (*(2,) * c.of(1, 0), *(c.of(3, 1, 0) if n == 1 else n for n in x.shape))}


@together("broadcast_arrays", "result_type")
def _many(c: First, dtypes: Sequence[str]) -> Given:
    return {"arrays": arrays_like(c, (*dtypes, *dtypes[:c.of(0, 1)]))}


@together("meshgrid")
def _meshgrid(c: First, dtypes: Sequence[str]) -> Given:
    return {"arrays": tuple(with_shape((c.of(*LENGTHS),), d) for d in (*dtypes, *dtypes)[:c.of(2, 3, 1)])}


@together("concat", "stack")
def _concat(c: First, dtypes: Sequence[str]) -> Given:
    shape = a_shape(c, 1, 2)
    return {"arrays": c.of(list, tuple)(with_shape(shape, d, k + 1) for k, d in enumerate(dtypes))}


@together("expand_dims")
def _expand_dims(c: First, dtypes: Sequence[str]) -> Given:
    x = with_shape(a_shape(c, 0, 2), dtypes[0])
    return {"x": x, "axis": an_axis(c, x.ndim + 1)}


@together("squeeze")
def _squeeze(c: First, dtypes: Sequence[str]) -> Given:
    shape = tuple(c.of(1, 2) for _ in a_shape(c, 1))
    ones = [k - c.of(0, len(shape)) for k, n in enumerate(shape) if n == 1]
    return {"x": with_shape(shape, dtypes[0]), "axis": c.of(tuple(ones), *ones)}


@together("permute_dims")
def _permute_dims(c: First, dtypes: Sequence[str]) -> Given:
    x, axes = with_shape(a_shape(c), dtypes[0]), []
    while len(axes) < x.ndim:
        axes.append(c.of(*(k for k in range(x.ndim) if k not in axes)))
    return {"x": x, "axes": tuple(axes)}


@together("moveaxis")
def _moveaxis(c: First, dtypes: Sequence[str]) -> Given:
    x = with_shape(a_shape(c, 1), dtypes[0])
    source, destination = an_axis(c, x.ndim), an_axis(c, x.ndim)
    two = x.ndim > 1 and c.of(False, True)
    return {"x": x, "source": (0, -1) if two else source, "destination": (-1, 0) if two else destination}


@together("roll")
def _roll(c: First, dtypes: Sequence[str]) -> Given:
    x = with_shape(a_shape(c), dtypes[0])
    two = x.ndim > 1 and c.of(False, True)
    axis = (0, -1) if two else c.of(None, *range(-x.ndim, x.ndim))
    return {"x": x, "shift": (c.of(1, -2), 2) if two else c.of(1, -1, 0, 4, -7), "axis": axis}


@together("tile")
def _tile(c: First, dtypes: Sequence[str]) -> Given:
    return {"x": with_shape(a_shape(c, 0, 2), dtypes[0]), "repetitions": tuple(c.of(2, 1, 0) for _ in a_shape(c, 0, 3))}


@together("repeat")
def _repeat(c: First, dtypes: Sequence[str]) -> Given:
    x = with_shape(a_shape(c), dtypes[0])
    return {"x": x, "repeats": c.of(2, 1, 0), "axis": c.of(None, *range(-x.ndim, x.ndim))}


@together("take")
def _take(c: First, dtypes: Sequence[str]) -> Given:
    x = with_shape(tuple(c.of(2, 3, 1) for _ in a_shape(c, 1)), dtypes[0])
    axis = an_axis(c, x.ndim)
    indices = np.array([c.of(0, x.shape[axis] - 1) for _ in range(c.of(2, 1, 0, 3))], np.int64)
    return {"x": x, "indices": indices, "axis": axis}


@together("take_along_axis")
def _take_along_axis(c: First, dtypes: Sequence[str]) -> Given:
    x = with_shape(tuple(c.of(2, 3, 1) for _ in a_shape(c, 1)), dtypes[0])
    axis = an_axis(c, x.ndim)
    shape = list(x.shape)
    shape[axis] = c.of(2, 1, 0, 3)
    return {"x": x, "indices": np.resize([0, x.shape[axis] - 1], shape).astype(np.int64), "axis": axis}


@together("matmul", "linalg.matmul")
def _matmul(c: First, dtypes: Sequence[str]) -> Given:
    m, k, n, batch = c.of(*LENGTHS), c.of(*LENGTHS), c.of(2, 1, 3, 0), c.of((), (2,))
    left, right = c.of((*batch, m, k), (k,)), c.of((*batch, k, n), (k, n), (1, k, n), (k,))
    return {"x1": with_shape(left, dtypes[0]), "x2": with_shape(right, dtypes[-1], 2)}


@together("vecdot", "linalg.vecdot")
def _vecdot(c: First, dtypes: Sequence[str]) -> Given:
    shape = a_shape(c, 1)
    axis = -1 - c.of(*range(len(shape)))
    other = tuple(n if k == axis % len(shape) else c.of(n, 1) for k, n in enumerate(shape))
    return {"x1": with_shape(shape, dtypes[0]), "x2": with_shape(other, dtypes[-1], 2), "axis": axis}


@together("tensordot", "linalg.tensordot")
def _tensordot(c: First, dtypes: Sequence[str]) -> Given:
    shape, axes = a_shape(c, 2, 2), c.of(1, 0, 2, ((0,), (1,)), ((-1, 0), (0, 1)))
    other = shape[::-1] if axes != 2 else shape
    if axes == ((0,), (1,)):
        other = (3, shape[0])
    return {"x1": with_shape(shape, dtypes[0]), "x2": with_shape(other, dtypes[-1], 2), "axes": axes}


@together("linalg.outer")
def _outer(c: First, dtypes: Sequence[str]) -> Given:
    return {"x1": with_shape((c.of(*LENGTHS),), dtypes[0]), "x2": with_shape((c.of(*LENGTHS),), dtypes[-1], 2)}


@together("linalg.cross")
def _cross(c: First, dtypes: Sequence[str]) -> Given:
    shape = list(a_shape(c, 1))
    axis = -1 - c.of(*range(len(shape)))
    shape[axis] = 3
    return {"x1": with_shape(tuple(shape), dtypes[0]), "x2": with_shape(tuple(shape), dtypes[-1], 2), "axis": axis}


@together("diff")
def _diff(c: First, dtypes: Sequence[str]) -> Given:
    x = with_shape(a_shape(c, 1), dtypes[0])
    axis = an_axis(c, x.ndim)

    def end() -> Any:
        shape = list(x.shape)
        shape[axis] = c.of(1, 2, 0)
        return with_shape(tuple(shape), dtypes[0], 2)

    return {"x": x, "axis": axis, "n": c.of(1, 2, 0, 3), "prepend": end() if c.of(False, True) else None,
            "append": end() if c.of(False, True) else None}


@together("bitwise_left_shift", "bitwise_right_shift", "pow", *(f"operator.{i}{n}" for i in ("", "i") for n in ("lshift", "rshift", "pow")))
def _not_negative(c: First, dtypes: Sequence[str]) -> Given:
    x1, x2 = arrays_like(c, dtypes)
    return {"x1": x1, "x2": np.asarray(np.abs(x2))}


@together("linalg.matrix_power")
def _matrix_power(c: First, dtypes: Sequence[str]) -> Given:
    n = c.of(2, 1, 3, 0)
    return {"x": with_shape((*a_shape(c, 0, 1), n, n), dtypes[0]), "n": c.of(2, 0, 1, 3, 5)}


LEAST_RANK = dict.fromkeys(("matrix_transpose", "linalg.matrix_transpose", "tril", "triu", "linalg.diagonal", "linalg.trace",
                            "linalg.matrix_norm"), 2) | dict.fromkeys(("unstack", "fft.fftshift", "fft.ifftshift"), 1)
OPTIONS |= {"axes": lambda c, s: tuple(range(len(s)))[c.of(0, *range(1, len(s))):] if s else (), "ord": lambda c, s: c.of(1, 2, float("inf"), 0, -float("inf"), 3, 0.5)}
ORDERS = {"linalg.matrix_norm": lambda c, s: c.of("fro", 1, -1, float("inf"), -float("inf"))}


# ------------------------------------------------------------------------------------------------ building a call
OPERATORS = [f"operator.{n}" for n in (
    "abs", "neg", "pos", "invert", "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor",
    "lshift", "rshift", "eq", "ne", "lt", "le", "gt", "ge")]
IN_PLACE = [f"operator.{n}" for n in (
    "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift", "irshift")]
_ONE = ("abs", "neg", "pos", "invert")


@functools.cache
def parameters(name: str) -> tuple[inspect.Parameter, ...]:
    P = inspect.Parameter
    if name.startswith("operator."):
        names = ("x",) if name.partition(".")[2] in _ONE else ("x1", "x2")
        return tuple(P(n, P.POSITIONAL_ONLY, annotation="Array" if len(names) == 1 else "complex | Array") for n in names)
    return tuple(inspect.signature(find(strict, name)).parameters.values())


@functools.cache
def array_count(name: str) -> int:
    """How many arrays of data a call takes, each with a dtype of its own."""
    if name in ("concat", "stack", "broadcast_arrays", "meshgrid", "result_type"):
        return 2
    return sum(p.name in ("x1", "x2") for p in parameters(name)) or 1


def choices(name: str, p: inspect.Parameter) -> Callable[[First, Shape], Any]:
    if p.name == "axis":
        return axes_of(p)
    if p.name not in OPTIONS:
        raise LookupError(f"{name} takes {p}: say in OPTIONS or TOGETHER what that may be")
    return ORDERS.get(name, OPTIONS[p.name]) if p.name == "ord" else OPTIONS[p.name]


def build(name: str, c: First, dtypes: Sequence[str]) -> Call:
    """A call in the standard's form: what is positional-only goes by position, what is keyword-only by name, and what may
    be either is a choice. Parameters with a default may stay away."""
    make = TOGETHER.get("matmul" if name == "operator.matmul" else name)
    params = parameters(name)
    if make is not None:
        given = make(c, dtypes)
    elif array_count(name) == 2:
        given = dict(zip(("x1", "x2"), arrays_like(c, dtypes)))
    else:
        given = {"x": with_shape(a_shape(c, LEAST_RANK.get(name, 0)), dtypes[0])}
    shape = next((v.shape for v in given.values() if isinstance(v, np.ndarray)), ())
    if name in ("concat", "stack"):
        shape = given["arrays"][0].shape + (0,) * (name == "stack")
    arrays: list[Any] = []

    def held(v: Any) -> Any:
        if isinstance(v, np.ndarray):
            arrays.append(v)
            return Hole(len(arrays) - 1)
        return type(v)(map(held, v)) if isinstance(v, (list, tuple)) else v

    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for p in params:
        if p.name in given:
            value = given[p.name]
            if value is None and p.default is None and c.of(True, False):
                continue
        elif p.kind is p.VAR_POSITIONAL:
            value = given["arrays"]
        elif p.default is p.empty or c.of(False, True):
            value = choices(name, p)(c, shape)
        else:
            continue
        if p.kind is p.VAR_POSITIONAL:
            args += map(held, value)
        elif p.kind is p.POSITIONAL_ONLY or (p.kind is p.POSITIONAL_OR_KEYWORD and not kwargs and c.of(True, False)):
            args.append(held(value))
        else:
            kwargs[p.name] = held(value)
    return Call(name, tuple(args), kwargs, tuple(arrays))


# ------------------------------------------------------------------------------------------------ comparison
def outcome(run: Callable[[Call], Any], call: Call) -> Any:
    """The result, or the Refused."""
    try:
        return run(call)
    except Refused as err:
        return err


def difference(got: Any, want: Any, *, values: bool = True) -> str | None:
    """What differs between two outcomes, or None. Values of `empty` are whatever they are: they are not compared."""
    if isinstance(got, Refused) or isinstance(want, Refused):
        return None if isinstance(got, Refused) and isinstance(want, Refused) else f"got {got!r}, expected {want!r}"
    if isinstance(want, list):
        if not isinstance(got, list) or len(got) != len(want):
            return f"got {got!r}, expected {want!r}"
        return next((d for d in map(difference, got, want) if d), None)
    if not isinstance(want, (np.ndarray, np.generic)):
        return None if got == want else f"got {got!r}, expected {want!r}"
    want = np.asarray(want)
    if want.dtype not in NAME_OF:
        return f"got {got!r}, expected {want!r}" if not isinstance(got, np.ndarray) or got.dtype != want.dtype else None
    if not values:
        want = got if isinstance(got, np.ndarray) and (got.dtype, got.shape) == (want.dtype, want.shape) else want
    try:
        agree(got, want, NAME_OF[want.dtype])
    except AssertionError as err:
        return str(err).partition("\nrun it")[0]
    return None
