"""Every op as a function: `fuelnumba.ops.softmax(x, axis=-1)` on arrays, or on traced values inside a jitted function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from . import kernels  # noqa: F401  (declares the ops)
from .core.errors import ArgumentError, FuelIndexError
from .core.ops import OPS, OpDef, on_change
from .core.source import user_location
from .jit import Jitted
from .trace.apply import array_of, not_an_array
from .trace.foreign import described
from .trace.namespace import namespace, public, set_eager

_STATIC = {"axis", "axes", "shape", "dtype", "at", "parts", "keepdims", "eps", "scale", "causal", "softcap", "interleaved",
           "start", "length", "step", "n", "min", "max", "value"}
_ARRAYS = {("attention", "length"), ("write_slice", "start")}

_PLAIN = {np.ndarray, bool, int, float, type(None)}  # taken as they are


_made: dict[str, OpDef] = {}  # what `__getattr__` made functions of


class _Eager(Jitted[Any, Any]):
    """An op called on arrays: its own small jitted function, with parameters static."""

    def _as_static(self, name: str, value: Any) -> Any:
        return value if type(value) in _PLAIN and type(value) is not np.ndarray else _parameter(self.name, name, value)

    def with_arrays(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call, lists in the place of arrays made arrays. Raises ArgumentError for what is no array."""
        given = self.parameters.quick(args, kwargs)
        if given is not None:
            return (), {n: v if n in self.parameters.static else _array(self.name, n, v) for n, v in given.items()}
        if self.parameters.plain:  # a wrong call, of which binding will tell
            return args, kwargs
        if len(args) == 1 and isinstance(args[0], (list, tuple)):  # concat([a, b])
            return ([_array(self.name, "xs", v) for v in args[0]],), kwargs
        return tuple(_array(self.name, "xs", v) for v in args), kwargs


@cache
def _jitted(fn: Callable[..., Any]) -> _Eager:
    static = _STATIC | set(OPS[fn.__name__].attrs if fn.__name__ in OPS else ())
    names = [p for p in inspect.signature(fn).parameters if p in static and (fn.__name__, p) not in _ARRAYS]
    return _Eager(fn, static_argnames=names)


def _run(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    jitted = _jitted(fn)
    arrays = kwargs.keys() - jitted.parameters.static if kwargs else ()
    if not (_PLAIN.issuperset(map(type, args)) and _PLAIN.issuperset([type(kwargs[n]) for n in arrays])):
        args, kwargs = jitted.with_arrays(args, kwargs)
    try:
        return jitted(*args, **kwargs)
    except FuelIndexError as err:  # the plan remembers the line of its first caller
        error = FuelIndexError(err.what, where=user_location(), cure=err.cure)
    raise error


def _parameter(op: str, name: str, value: Any) -> Any:
    """A parameter, which is compiled in: lists become tuples, arrays without axes their numbers."""
    if isinstance(value, (list, tuple)):
        return tuple(_parameter(op, name, v) for v in value)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return value.item()
    try:
        hash(value)
    except TypeError:
        raise ArgumentError(f"{op}(): {name} cannot be {described(value)}",
                            cure="a parameter is compiled in: pass a number, or a tuple of numbers") from None
    return value


def _array(op: str, name: str, value: Any) -> Any:
    """An argument as a jitted function takes it: a list stands for the array of its numbers."""
    if value is None or isinstance(value, (np.ndarray, np.generic, bool, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return array_of(op, name, value)
    raise not_an_array(op, name, value)


def __getattr__(name: str) -> Callable[..., Any]:
    """An op that was declared after this module was loaded."""
    op = OPS.get(name)
    if op is None or not op.is_public:
        raise AttributeError(f"there is no op {name!r}; python -m fuelnumba ops lists them")
    made: Callable[..., Any] = public(op)
    globals()[name], _made[name] = made, op
    return made


def _forget(_: str) -> None:
    """Functions of ops that were declared anew are made again when they are asked for."""
    for name, op in _made.items():
        if OPS.get(name) is not op:
            globals().pop(name, None)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name, op in OPS.items() if op.is_public)})


set_eager(_run)
on_change.append(_forget)
globals().update(namespace())
__all__ = list(namespace())
