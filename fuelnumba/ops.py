"""Every op as a function: `fuelnumba.ops.softmax(x, axis=-1)` on arrays, or on traced values inside a jitted function."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from . import kernels  # noqa: F401  (declares the ops)
from .core.errors import FuelIndexError
from .core.ops import OPS, OpDef, on_change
from .core.source import user_location
from .jit import Jitted
from .trace.namespace import namespace, public, set_eager

_STATIC = {"axis", "axes", "shape", "dtype", "at", "parts", "keepdims", "eps", "scale", "causal", "softcap", "interleaved",
           "start", "length", "step", "n", "min", "max", "value"}
_ARRAYS = {("attention", "length"), ("write_slice", "start")}


_made: dict[str, OpDef] = {}  # what `__getattr__` made functions of


class _Eager(Jitted[Any, Any]):
    """An op called on arrays: its own small jitted function, with parameters static."""

    def _as_static(self, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value


@cache
def _jitted(fn: Callable[..., Any]) -> _Eager:
    import inspect

    static = _STATIC | set(OPS[fn.__name__].attrs if fn.__name__ in OPS else ())
    names = [p for p in inspect.signature(fn).parameters if p in static and (fn.__name__, p) not in _ARRAYS]
    return _Eager(fn, static_argnames=names)


def _run(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return _jitted(fn)(*args, **kwargs)
    except FuelIndexError as err:  # the plan remembers the line of its first caller
        error = FuelIndexError(err.what, where=user_location(), cure=err.cure)
    raise error


def __getattr__(name: str) -> Callable[..., Any]:
    """An op that was declared after this module was loaded."""
    op = OPS.get(name)
    if op is None or op.kind == "leaf":
        raise AttributeError(f"there is no op {name!r}; python -m fuelnumba ops lists them")
    made: Callable[..., Any] = public(op)
    globals()[name], _made[name] = made, op
    return made


def _forget(_: str) -> None:
    """Functions of ops that were declared anew are made again when they are asked for."""
    for name, op in _made.items():
        if OPS.get(name) is not op:
            globals().pop(name, None)


set_eager(_run)
on_change.append(_forget)
globals().update(namespace())
__all__ = list(namespace())
