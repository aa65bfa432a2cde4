"""What a traced function reads from outside its arguments, and whether it is still what it was.

A trace bakes in what the function saw: globals, closure cells, attributes of `self`, defaults, the code of
helper functions. `collect` finds those reads just before a trace; `GuardSet.check` compares them at every
warm call and names what differs.

`reads` finds the reads in bytecode, `collector` follows them through objects, `watch` has the guards and how
they compare values, `objects` tells the user's code from that of libraries.

Limits, on purpose. Not seen are
- values reached through calls, `get_config().eps`, unless the call is of a user function (then what it
  reads is seen);
- attributes with computed names, `getattr(obj, "w" + i)`, and names used only inside libraries;
- state inside objects of libraries and of the standard library (`os.environ`, files, random generators),
  apart from attributes that the code names; constants of NumPy and the standard library, which are taken
  not to change;
- modules first imported while tracing, and functions fetched from `sys.modules` or `globals()` by computed
  names;
- memory behind other objects than NumPy arrays, and `obj.__class__ = Other`.
A guard set keeps what it watches alive.
"""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from operator import eq, is_
from typing import Any

import numpy as np

from .collector import Collector
from .objects import CONTAINERS, MISSING, SCALARS, is_library_class, peek
from .watch import Elements, Guard, Memory, Slot, all_same, changed, form, strict

__all__ = ["GuardSet", "collect", "holding"]

#: Objects that the search for leaked tracers looks at.
MAX_LOOKED_AT = 100_000


class GuardSet:
    """The guards of one trace. `check` is safe from several threads."""

    def __init__(
        self, guards: list[Guard], shapes: dict[int, tuple], watched: list[tuple[str, Any, str]], objects: dict[int, tuple]
    ) -> None:
        self.guards = guards
        self._shapes = shapes  # id of a container or dataclass -> what it was made of
        self._objects = objects  # id of an instance we look into -> itself, the attributes that count, their values, its Keys
        self._watched = watched  # where a tracer may have been put: path, holder, attribute or ""
        slots = [g for g in guards if isinstance(g, Slot)]
        items = [g for g in slots if g.via is dict.get]
        attrs = [g for g in slots if g.via is not dict.get]
        self._items, self._attrs = items, attrs
        self._memories = {id(g.array): g for g in guards if isinstance(g, Memory)}
        self._arrays = [g.array for g in self._memories.values()]
        self._forms = [g.form for g in self._memories.values()]
        self._inner = [g.intact for g in guards if not isinstance(g, Slot)]
        self._quick: Any = None  # made at the first check, and after a change

    def __len__(self) -> int:
        return len(self.guards)

    def check(self) -> str | None:
        """None, or a message naming the first thing that is no longer what it was."""
        try:
            if (self._quick or self._written_out())():
                return None
        except Exception:  # e.g. an empty cell: the slow way says which
            pass
        for guard in self.guards:
            try:
                difference = guard.difference(self._same)
            except Exception as err:
                difference = f"{guard.path} cannot be read any more ({type(err).__name__}: {err})"
            if difference is not None:
                return difference
        return None

    def _written_out(self) -> Callable[[], bool]:
        """The warm check as one expression, `get(d0, k0, M) is v0 and ...`: a few hundredths of a microsecond for each."""
        space: dict[str, Any] = {"M": MISSING, "get": dict.get}
        parts = []
        for k, g in enumerate(self._items):
            space |= {f"d{k}": g.holder, f"k{k}": g.name, f"v{k}": g.value}
            parts.append(f"get(d{k}, k{k}, M) is v{k}")
        for k, g in enumerate(self._attrs):
            space |= {f"h{k}": g.holder, f"n{k}": g.name, f"w{k}": g.value}
            parts.append(f"getattr(h{k}, n{k}, M) is w{k}")
        if self._arrays:
            space["arrays"] = lambda: all(map(eq, map(form, self._arrays), self._forms))
            parts.append("arrays()")
        inner = self._inner
        if inner:
            space["inner"] = inner[0] if len(inner) == 1 else lambda: all(intact() for intact in inner)
            parts.append("inner()")
        exec("def quick():\n    return " + (" and ".join(parts) or "True"), space)
        self._quick = space["quick"]
        return self._quick

    def adopt(self, array: np.ndarray) -> bool:
        """The graph reads this array from its own memory at every run: do not compare its contents any more.

        True when it was guarded. Not to be called for an array whose values were also used while tracing.
        """
        guard = self._memories.get(id(array))
        if guard is None:
            return False
        guard.live = True
        self._inner = [intact for intact in self._inner if intact != guard.intact]
        self._quick = None
        return True

    def describe(self) -> list[str]:
        """One line for each guarded name, for `explain()`."""
        return list(dict.fromkeys(filter(None, (g.describe() for g in self.guards))))

    def leaked(self, is_tracer: Callable[[Any], bool]) -> list[str]:
        """Names outside the function that hold a tracer now."""
        stack: list[tuple[str, Any]] = []
        for path, holder, name in self._watched:
            stack.append((path, peek(holder, name) if name else holder))
        for g in self.guards:
            if isinstance(g, Slot):
                stack.append((g.path, g.read()))
            elif isinstance(g, Elements):
                stack.append((g.path, g.holder))
        return holding(stack, is_tracer)

    def unlike(self, now: Any, old: Any, path: str, equal: bool = True) -> str | None:
        """What of all that was watched in `old` is otherwise in `now`, in words; None if nothing is.

        `equal` says that the two are equal by their classes' own word, which is enough where we do not look inside.
        """
        if now is old:
            return None
        if type(now) is type(old) and id(old) in self._objects:
            _, names, values, keys = self._objects[id(old)]
            for name, value in zip(names, values):
                difference = self.unlike(peek(now, name), value, f"{path}.{name}", False)
                if difference is not None:
                    return difference
            return None if keys is None else replace(keys, path=path, holder=now).difference(self._same)
        if type(now) is type(old) and isinstance(old, tuple) and len(now) == len(old):
            for k, (item, value) in enumerate(zip(now, old)):
                difference = self.unlike(item, value, f"{path}[{k}]", equal)
                if difference is not None:
                    return difference
            return None
        return None if equal or self._same(now, old) else changed(path, old, now)

    def _same(self, now: Any, old: Any) -> bool:
        """Equality by value, `old` as it was when collected."""
        if now is old:
            return True
        if type(now) is not type(old):
            return False
        if isinstance(old, SCALARS):
            return strict(now) == strict(old)
        if isinstance(old, types.FunctionType):
            return (
                now.__code__ is old.__code__
                and now.__globals__ is old.__globals__
                and self._same(now.__defaults__, old.__defaults__)
                and self._same(now.__kwdefaults__, old.__kwdefaults__)
                and all_same(now.__closure__ or (), old.__closure__ or (), is_)
            )
        shape = self._shapes.get(id(old))
        if shape is None:
            return False
        _, keys, values = shape
        if isinstance(old, CONTAINERS):
            if len(now) != len(values):
                return False
            if keys is None:
                if isinstance(now, (set, frozenset)):
                    return set(map(strict, now)) == set(map(strict, values))
                return all_same(now, values, self._same)
            return all_same(now, keys, self._same) and all_same(now.values(), values, self._same)
        return all(self._same(getattr(now, k, MISSING), v) for k, v in zip(keys, values))


def holding(values: list[tuple[str, Any]], is_tracer: Callable[[Any], bool]) -> list[str]:
    """Where in these values, given with their names, a tracer is."""
    out: list[str] = []
    seen: set[int] = set()
    stack = values[::-1]
    while stack:
        path, value = stack.pop()
        if is_tracer(value):
            out.append(path)
        elif id(value) not in seen and len(seen) < MAX_LOOKED_AT:
            seen.add(id(value))
            stack += reversed(list(_inside(path, value)))
    return list(dict.fromkeys(out))


def _inside(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Parts of a value in which a tracer can hide."""
    if isinstance(value, (dict, types.MappingProxyType)):
        for key, item in value.items():
            yield f"{path}[{key!r}]", item
    elif isinstance(value, (list, tuple, deque, set, frozenset)):
        for i, item in enumerate(value):
            yield f"{path}[{i}]", item
    elif isinstance(value, types.FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or ()):
            yield f"closure {name} of {path}", peek(cell, "cell_contents")
    elif isinstance(value, functools.partial):
        yield from _inside(path, (*value.args, *value.keywords.values()))
    elif not isinstance(value, (type, types.ModuleType)) and not is_library_class(type(value)):
        for name, item in getattr(value, "__dict__", {}).items():
            yield f"{path}.{name}", item


def collect(
    fn: Callable[..., Any], bound_self: Any = None, statics: Mapping[str, Any] | None = None, *, defaults: bool = True
) -> GuardSet:
    """Guards for all that `fn` reads from outside its arguments; call it right before `fn` is traced.

    `bound_self` is the instance `fn` will get as first argument, `statics` are other arguments that are objects of this very
    call, by name: what is read of them counts as read from outside. `defaults=False` leaves out the defaults of
    `fn` itself, for a caller that treats them as arguments.
    """
    collector = Collector(fn, bound_self, statics or {}, defaults)
    while collector.run():
        pass
    for guard in collector.guards:
        if isinstance(guard, Memory):
            guard.freeze()
    return GuardSet(collector.guards, collector.shapes, collector.watched, collector.objects)
