"""A function's parameters, and what a call gives them: values to trace, values that are compiled in, defaults that are left out.

The values to trace stand in the order of the parameters that are not static. A default that the call leaves out is a constant,
as in Python: None holds its place, and its entry among the static ones is part of the key. Defaults that hold arrays are
arguments like others.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..core import ir
from ..core.errors import ArgumentError
from ..core.ops import proper_call, shown
from ..core.tree import LEAF, TreeDef, flatten
from .arguments import Signature, equal_statics

OWNER = "<self>"  # stands for a parameter's name in the entry of the object, or the class, whose method is called
DEVICE = "<device>"  # likewise, of what `with device(...)` chose
HIDDEN = (OWNER, DEVICE)

Bound = tuple[tuple[Any, ...], Signature]
_P = inspect.Parameter


class Omitted:
    """The default of a parameter that a call left out. There is one for each parameter, compared as an object."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Parameters:
    """What the parameters of a function are, and which of them are static, donated, or have lengths with names."""

    def __init__(self, fn: Callable[..., Any], name: str, static_argnames: Iterable[str] | str,
                 static_argnums: Iterable[int] | int, donate: Iterable[str] | str,
                 dims: Mapping[str, Sequence[str | None]] | None, as_static: Callable[[str, Any], Any]) -> None:
        self.name, self.as_static = name, as_static
        self.signature = _signature(fn)
        self.positional = [p.name for p in self.signature.parameters.values()
                           if p.kind in (_P.POSITIONAL_ONLY, _P.POSITIONAL_OR_KEYWORD)]
        named = self._names("static_argnames", static_argnames)
        self.static = tuple(dict.fromkeys((*named, *self._numbered(static_argnums))))
        self.donate = self._names("donate", donate)
        self.dims = {k: tuple(v) for k, v in (dims or {}).items()}
        self._names("dims", self.dims)
        both = set(self.static) & set(self.donate)
        if both:
            raise ArgumentError(f"{min(both)} cannot be static and donated",
                                cure="a static argument is a value in the program, a donated one an array")
        params = self.signature.parameters
        self.names = [n for n in params if n not in self.static]
        self.plain = not any(p.kind in (_P.VAR_POSITIONAL, _P.VAR_KEYWORD, _P.POSITIONAL_ONLY) for p in params.values())
        self.variadic = not self.static and [p.kind for p in params.values()] == [_P.VAR_POSITIONAL]
        self.missing: dict[str, Any] = {n: () if p.kind is p.VAR_POSITIONAL else {} if p.kind is p.VAR_KEYWORD else p.default
                                        for n, p in params.items()}
        self.omitted = {n: (n, left, left) for n in self.names
                        if n not in self.donate and _is_constant(self.missing[n]) for left in [Omitted(self.missing[n])]}
        # by how many positional arguments there are, where those and defaults are all: what the defaults add
        self.completed: dict[int, Bound] = {}
        if not self.static and not any(p.kind in (_P.VAR_POSITIONAL, _P.VAR_KEYWORD) for p in params.values()):
            for count in range(len(self.positional), -1, -1):
                if any(self.missing[n] is _P.empty for n in self.names[count:]):
                    break
                self.completed[count] = self._split({}, count)

    def _names(self, what: str, names: Iterable[str] | str) -> tuple[str, ...]:
        names = (names,) if isinstance(names, str) else tuple(names)
        for n in names:
            if n not in self.signature.parameters:
                raise ArgumentError(f"{what} names {n!r}, which {self.name}{self.signature} does not have",
                                    cure="name parameters of the function")
        return names

    def _numbered(self, numbers: Iterable[int] | int) -> list[str]:
        """The parameters that static_argnums means; negative numbers count from the last one that goes by position."""
        count, out = len(self.positional), []
        for k in (numbers,) if isinstance(numbers, (int, np.integer)) else tuple(numbers):
            if not isinstance(k, (int, np.integer)) or isinstance(k, bool) or not -count <= k < count:
                raise ArgumentError(f"static_argnums has {k!r}, and {self.name}{self.signature} takes {count} arguments by "
                                    "position", cure="count the parameters from 0, or name them in static_argnames")
            out.append(self.positional[k])
        return out

    # -------------------------------------------------------------------------------------- a call
    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bound:
        """The values to trace, and the static entries: name, what is compared, value. Raises ArgumentError."""
        given = self.quick(args, kwargs)
        if given is None:
            try:
                given = self.signature.bind(*args, **kwargs).arguments
            except TypeError as err:
                raise ArgumentError(f"{self.name}(): {err}", cure=proper_call(self.name, self.signature)) from None
        return self._split(given, 0)

    def quick(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
        """As `Signature.bind`, in a fifth of its time; None for a call that is wrong or not so plain."""
        if not self.plain or len(args) > len(self.positional):
            return None
        given = dict(zip(self.positional, args))
        if not given.keys().isdisjoint(kwargs) or not self.missing.keys() >= kwargs.keys():
            return None
        given.update(kwargs)
        return given if all(n in given or d is not _P.empty for n, d in self.missing.items()) else None

    def _split(self, given: Mapping[str, Any], first: int) -> Bound:
        """The arguments by their kinds, those to trace from number `first` on."""
        static = [self._static(n, given[n] if n in given else self.missing[n]) for n in self.static]
        values = []
        for n in self.names[first:]:
            if n in given:
                values.append(given[n])
            elif n in self.omitted:
                values.append(None)
                static.append(self.omitted[n])
            else:
                values.append(self.missing[n])
        return tuple(values), tuple(static)

    def _static(self, name: str, value: Any) -> tuple[str, Any, Any]:
        value = self.as_static(name, value)
        try:
            hash(value)
        except Exception:  # not only TypeError: np.timedelta64(3) has a ValueError
            raise ArgumentError(f"{self.name}(): the static argument {name} of type {type(value).__name__} is not hashable",
                                cure="pass a tuple or a frozen dataclass") from None
        return name, (type(value), ir.freeze_value(value)), value  # 0.0 and -0.0, (1,) and (1.0,) differ

    def watched(self, static: Signature) -> dict[str, Any]:
        """The static values, and the defaults left out, by the parameters' names."""
        return {n: v.value if isinstance(v, Omitted) else v for n, _, v in static if n not in HIDDEN}

    def call(self, fn: Callable[..., Any], values: Sequence[Any], static: Signature) -> Any:
        """Call a function with values in the parameters' places; what was left out is left out."""
        given = dict(zip(self.names, values)) | {n: v for n, _, v in static if n not in HIDDEN}
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        by_name = False  # after one that is left out
        for name, p in self.signature.parameters.items():
            value = given[name]
            left_out = isinstance(value, Omitted) or (value is None and p.default is None)
            if left_out and p.kind is p.POSITIONAL_ONLY:
                args.append(p.default)  # later ones have no names to go by
            elif left_out:
                by_name = True
            elif p.kind is p.VAR_POSITIONAL:
                args += value
            elif p.kind is p.VAR_KEYWORD:
                kwargs |= value
            elif p.kind is p.KEYWORD_ONLY or by_name:
                kwargs[name] = value
            else:
                args.append(value)
        return fn(*args, **kwargs)

    # -------------------------------------------------------------------------------------- in words
    def leaf_names(self, structure: Any) -> list[str]:
        """`params["layers"][3].wq` for each leaf."""
        children = structure[2] if len(structure) == 3 else [LEAF] * structure[1]
        return [path for name, child in zip(self.names, children) for path in TreeDef(child).paths(name)]

    def statics_in_words(self, static: Signature) -> list[str]:
        return [f"{n} = {shown(v.value)} (left out)" if isinstance(v, Omitted) else f"{n} = {shown(v)} (static)"
                for n, _, v in static if n not in HIDDEN]

    def static_differences(self, static: Signature, other: Signature) -> list[str]:
        """What differs between the static entries of two calls."""
        now, before = ({n: (key, v) for n, key, v in entries} for entries in (static, other))
        out = [f"{n} is given, not left out" for n in before.keys() - now.keys() if n not in HIDDEN]
        if now.get(DEVICE) != before.get(DEVICE):
            names = [e[DEVICE][0].name if DEVICE in e else "not chosen" for e in (now, before)]
            out.append(f"the device is {names[0]}, not {names[1]}")
        for n, (key, v) in now.items():
            old_key, old = before.get(n, (None, None))
            if n == OWNER and old_key is not None and old is not v:
                first = self.positional[0]
                out.append(f"{first} is another object of {key.__name__}" if old_key is key else
                           f"{first} is an object of {key.__name__}, not of {old_key.__name__}")
            elif n not in HIDDEN and old_key is None:
                out.append(f"{n} is left out, not given")
            elif n not in HIDDEN and not equal_statics(old_key, key):
                out.append(f"the static argument {n} is {shown(v)}, not {shown(old)}")
        return out


def _signature(fn: Callable[..., Any]) -> inspect.Signature:
    """A function written in C may not tell its own: then it takes what is given."""
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):
        return inspect.Signature([_P("args", _P.VAR_POSITIONAL), _P("kwargs", _P.VAR_KEYWORD)])


def _is_constant(default: Any) -> bool:
    """Does a default, left out by a call, stay what it is? None does anyway."""
    return default is not _P.empty and default is not None and not any(isinstance(v, np.ndarray) for v in flatten(default)[0])
