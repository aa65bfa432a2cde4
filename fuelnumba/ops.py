"""Every op as a function: `fuelnumba.ops.softmax(x, axis=-1)` on arrays, or on traced values inside a jitted function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from . import kernels  # noqa: F401  (declares the ops)
from .core.errors import ArgumentError, FuelIndexError
from .core.ops import OPS
from .core.source import user_location
from .jit import Jitted
from .trace.apply import array_of, not_an_array
from .trace.foreign import described
from .trace.namespace import namespace, public, set_eager

_STATIC = {"axis", "axes", "shape", "dtype", "at", "parts", "keepdims", "eps", "scale", "causal", "softcap", "interleaved",
           "start", "length", "step", "n", "min", "max", "value"}
_ARRAYS = {("attention", "length"), ("write_slice", "start")}


@cache
def _jitted(fn: Callable[..., Any]) -> Jitted[..., Any]:
    static = _STATIC | set(OPS[fn.__name__].attrs if fn.__name__ in OPS else ())
    names = [p for p in inspect.signature(fn).parameters if p in static and (fn.__name__, p) not in _ARRAYS]
    return Jitted(fn, static_argnames=names)


def _run(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An op called on arrays: its own small jitted function, with parameters static."""
    jitted = _jitted(fn)
    bound = jitted.signature.bind(*args, **kwargs)
    for name, value in bound.arguments.items():
        if name in jitted.static:
            bound.arguments[name] = _parameter(fn.__name__, name, value)
        elif jitted.signature.parameters[name].kind is not inspect.Parameter.VAR_POSITIONAL:
            bound.arguments[name] = _array(fn.__name__, name, value)
        elif len(value) == 1 and isinstance(value[0], (list, tuple)):  # concat([a, b])
            bound.arguments[name] = ([_array(fn.__name__, name, v) for v in value[0]],)
        else:
            bound.arguments[name] = tuple(_array(fn.__name__, name, v) for v in value)
    try:
        return jitted(*bound.args, **bound.kwargs)
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
    if op is None or op.kind == "leaf":
        raise AttributeError(f"there is no op {name!r}; python -m fuelnumba ops lists them")
    made: Callable[..., Any] = public(op)
    globals()[name] = made
    return made


set_eager(_run)
globals().update(namespace())
__all__ = list(namespace())
