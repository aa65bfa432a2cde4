"""The guards: each watches one thing and says how it differs from what it was.

How values are compared. Scalars, strings, dtypes and enum members by type and value (`1`, `True` and `1.0`
differ, as do `0.0` and `-0.0`; NaN equals itself). Containers and dataclasses by type and elements, in
order. Arrays by identity, shape, dtype, strides and contents: bytes up to 64 KiB, SHA-256 above; a live
array's contents are not compared. Functions by `__code__`, defaults and cells. Everything else by identity.
"""

from __future__ import annotations

import hashlib
import reprlib
import struct
import types
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter, is_
from typing import Any

import numpy as np

from .objects import MISSING, SCALARS, Missing, static

__all__ = ["Elements", "Guard", "Keys", "Memory", "Raw", "Slot", "all_same", "changed", "form", "strict"]

#: Arrays up to this size are compared byte by byte.
EXACT_BYTES = 64 * 1024

_FORM = ("dtype", "shape", "strides")
form = attrgetter(*_FORM)


@dataclass(frozen=True, slots=True)
class Slot:
    """A name in a namespace that must go on holding the same value. `via` reads it: dict.get or getattr."""

    path: str
    holder: Any
    name: str
    value: Any
    via: Callable[..., Any]

    def read(self) -> Any:
        try:
            return self.via(self.holder, self.name, MISSING)
        except Exception:  # an empty cell, or a property of the user's that fails
            return MISSING

    def difference(self, same: Callable[[Any, Any], bool]) -> str | None:
        now = self.read()
        if now is self.value or same(now, self.value):
            return None
        if self.name == "__code__":
            return f"{self.path} was redefined"
        if self.name in ("__defaults__", "__kwdefaults__"):
            return f"the defaults of {self.path} changed from {_show(self.value)} to {_show(now)}"
        if now is MISSING:
            return f"{self.path} was deleted"
        if self.value is MISSING:
            return f"{self.path} was defined as {_show(now)}"
        return changed(self.path, self.value, now)

    def describe(self) -> str | None:
        if self.name == "__code__":
            return f"the code of {self.path}"
        told_elsewhere = (types.FunctionType, np.ndarray, Missing)
        if self.name in ("__defaults__", "__kwdefaults__") or isinstance(self.value, told_elsewhere):
            return None
        return f"{self.path} = {_show(self.value)}"


@dataclass(frozen=True, slots=True)
class Elements:
    """A mutable container that must go on holding these elements."""

    path: str
    holder: Any
    keys: tuple | None  # of mappings
    values: tuple

    def intact(self) -> bool:
        """Nothing was put in, taken out or replaced: the cheap question."""
        holder = self.holder
        if len(holder) != len(self.values):
            return False
        if self.keys is None:
            return all(map(is_, holder, self.values))
        return all(map(is_, holder, self.keys)) and all(map(is_, holder.values(), self.values))

    def difference(self, same: Callable[[Any, Any], bool]) -> str | None:
        holder, path = self.holder, self.path
        if self.keys is not None:
            old = dict(zip(self.keys, self.values))
            for key in old.keys() - holder.keys():
                return f"{path}[{key!r}] was deleted"
            for key in holder.keys() - old.keys():
                return f"{path}[{key!r}] was added"
            for key, value in old.items():
                if holder[key] is not value and not same(holder[key], value):
                    return changed(f"{path}[{key!r}]", value, holder[key])
            return None if all_same(holder, self.keys, same) else f"the order of {path} changed"
        if isinstance(holder, (set, frozenset)):
            old_set = set(map(strict, self.values))
            for new in holder:
                if strict(new) not in old_set:
                    return f"{path} gained {_show(new)}"
            return f"{path} lost elements" if len(holder) != len(self.values) else None
        for i, (now, value) in enumerate(zip(holder, self.values)):
            if now is not value and not same(now, value):
                return changed(f"{path}[{i}]", value, now)
        if len(holder) != len(self.values):
            return f"{path} changed from {len(self.values)} to {len(holder)} elements"
        return None

    def describe(self) -> str | None:
        return None


class Memory:
    """An array that must go on looking the same and, unless adopted, holding the same bytes."""

    def __init__(self, path: str, array: np.ndarray) -> None:
        self.path = path
        self.array = array
        self.form = form(array)
        self.live = False
        self.bytes: Any = None

    def freeze(self) -> None:
        self.bytes = _fingerprint(self.array)

    def intact(self) -> bool:
        """Of the contents only: the form of all arrays is compared in one go."""
        return self.live or _fingerprint(self.array) == self.bytes

    def difference(self, same: Callable[[Any, Any], bool]) -> str | None:
        for what, now, old in zip(_FORM, form(self.array), self.form):
            if now != old:
                return f"the {what} of {self.path} changed from {old} to {now}"
        return None if self.intact() else f"the contents of {self.path} changed"

    def describe(self) -> str:
        return f"{self.path} = {_show(self.array)}, " + ("read live" if self.live else "contents compared")


@dataclass(frozen=True, slots=True)
class Raw:
    """A descriptor in a class, which reading would bind, that must stay the same."""

    path: str
    cls: type
    name: str
    value: Any

    def intact(self) -> bool:
        return static(self.cls, self.name) is self.value

    def difference(self, same: Callable[[Any, Any], bool]) -> str | None:
        return None if self.intact() else f"{self.path} was redefined"

    def describe(self) -> str | None:
        return None


@dataclass(frozen=True, slots=True)
class Keys:
    """An instance that must not gain attributes which the code names."""

    path: str
    holder: Any
    names: frozenset[str] | None  # the absent ones that count; None: all
    have: frozenset[str]

    def intact(self) -> bool:
        own = vars(self.holder)
        return self.have.issuperset(own) if self.names is None else self.names.isdisjoint(own)

    def difference(self, same: Callable[[Any, Any], bool]) -> str | None:
        own = vars(self.holder)
        for name in own:
            if name not in self.have if self.names is None else name in self.names:
                return f"{self.path}.{name} was defined as {_show(own[name])}"
        return None

    def describe(self) -> str | None:
        return None


Guard = Slot | Elements | Memory | Raw | Keys


# Comparing ------------------------------------------------------------------------------------


def strict(v: Any) -> Any:
    """A key, equal for scalars of the same type and value; signed zeros differ and NaN equals itself."""
    if isinstance(v, float):
        return type(v), struct.pack("d", v) if v == v else "nan"
    if isinstance(v, complex):
        return type(v), strict(v.real), strict(v.imag)
    if isinstance(v, np.generic):
        return type(v), v.dtype, v.tobytes()
    if isinstance(v, slice):
        return slice, strict(v.start), strict(v.stop), strict(v.step)
    if isinstance(v, (tuple, frozenset)):
        return type(v), tuple(map(strict, v)) if isinstance(v, tuple) else frozenset(map(strict, v))
    return (type(v), v) if isinstance(v, SCALARS) else (type(v), id(v))


def all_same(now: Any, old: Any, same: Callable[[Any, Any], bool]) -> bool:
    return len(now) == len(old) and all(map(same, now, old))


def _fingerprint(a: np.ndarray) -> Any:
    """The contents of an array: its bytes, or their hash when there are many."""
    if a.dtype.hasobject:
        return [_Same(v) for v in a.flat] if a.dtype.kind == "O" else repr(a)
    if isinstance(a, np.ma.MaskedArray):
        return _fingerprint(np.ma.getdata(a)), _fingerprint(np.ma.getmaskarray(a))
    if 0 in a.strides:  # a broadcast axis repeats itself
        a = a[tuple(slice(1) if s == 0 else slice(None) for s in a.strides)]
    if a.nbytes <= EXACT_BYTES:
        return a.tobytes()
    view = np.ascontiguousarray(a).view(np.ndarray).reshape(-1).view(np.uint8)
    return hashlib.sha256(view.data, usedforsecurity=False).digest()


class _Same:
    """Equal when it is the same object, or the same scalar."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and (
            self.value is other.value or strict(self.value) == strict(other.value)
        )

    __hash__ = None  # type: ignore[assignment]


# Messages ------------------------------------------------------------------------------------


_repr = reprlib.Repr()
_repr.maxother = _repr.maxstring = _repr.maxlong = 60


def _show(v: Any) -> str:
    """A short name for a value in a message."""
    if v is MISSING:
        return "nothing"
    if isinstance(v, np.ndarray):
        return f"a {v.dtype}{list(v.shape)} array"
    if isinstance(v, types.FunctionType):
        return f"function {v.__qualname__.rpartition('<locals>.')[2]}"
    if isinstance(v, type):
        return f"class {v.__qualname__}"
    if isinstance(v, types.ModuleType):
        return f"module {v.__name__}"
    if type(v).__repr__ is object.__repr__ or callable(v):
        return f"a {type(v).__name__} object"
    return _repr.repr(v)


def changed(path: str, old: Any, new: Any) -> str:
    if isinstance(old, (types.FunctionType, type)) and type(old) is type(new):
        return f"{path} was redefined"
    a, b = _show(old), _show(new)
    return f"{path} changed from {a} to {b}" if a != b else f"{path} is another object than before: {b}"
