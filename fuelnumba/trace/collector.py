"""The walk from a function over all it can reach, which puts up the guards.

The code of the function, of the code nested in it, and of the user's functions it refers to is scanned for
chains `root.a.b`. Each step of a chain is guarded. What a chain ends in has left our sight (it may be
called, stored, iterated over), so it is guarded as a whole: containers and dataclasses deeply, functions by
code, defaults and their own reads, instances of user classes by those attributes whose names occur in any
scanned code, and their methods of such names are scanned too.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from ..core.errors import StaleCaptureError
from ..core.source import PACKAGE, Location
from .objects import (
    MISSING,
    RECORDS,
    SCALARS,
    WHOLE,
    UserCode,
    is_library_file,
    is_standard,
    is_wrapper,
    name_of,
    peek,
    plain_function,
    static,
)
from .reads import Chain, Reads, scan
from .watch import Elements, Guard, Keys, Memory, Raw, Slot

__all__ = ["Collector"]

#: Entries one captured name may hold, counted through all levels.
MAX_ENTRIES = 10_000

_DESCRIPTORS = (types.FunctionType, staticmethod, classmethod, property, functools.cached_property)
_SHADOWED = (types.FunctionType, staticmethod, classmethod)  # an entry of the instance would win


@dataclass(frozen=True, slots=True)
class _Local:
    """An argument that is known, captured by nested code."""

    value: Any


class Collector:
    """One walk from a function over all it can reach.

    Which attributes and methods matter depends on the names in all code, so the walk is repeated until it
    meets no new names and classes; only the last one's guards count.
    """

    def __init__(self, fn: Any, bound_self: Any, statics: Mapping[str, Any], defaults: bool) -> None:
        self.root = fn
        self.bound_self = bound_self
        self.statics = statics
        self.defaults = defaults
        self.names: set[str] = set()
        self.everything = False
        self.classes: dict[type, None] = {}
        self.scans: dict[tuple[int, frozenset[str]], tuple[types.CodeType, Reads]] = {}
        self.plain = plain_function(fn)
        self.globals = self.plain.__globals__ if self.plain else {}
        self.user = UserCode(self.plain)

    def run(self) -> bool:
        """One walk. True when it has to be repeated."""
        before = (len(self.names), self.everything, len(self.classes))
        self.guards: list[Guard] = []
        self.shapes: dict[int, tuple] = {}
        self.objects: dict[int, tuple] = {}
        self.watched: list[tuple[str, Any, str]] = []
        self.done: set[Any] = set()
        self.queue: deque[tuple[types.FunctionType, Any, str]] = deque()
        self.begin("", None)
        if self.bound_self is None:
            self.value(self.root, name_of(self.root), True)
        else:
            self.wrapped(self.root, self.bound_self, name_of(self.root))
        for name, value in self.statics.items():
            self.begin(name, None)
            self.value(value, name, True)
        classes = 0
        while self.queue or classes < len(self.classes):
            while self.queue:
                self.function(*self.queue.popleft())
            for cls in list(self.classes)[classes:]:
                classes += 1
                self.members(cls)
        return before != (len(self.names), self.everything, len(self.classes))

    def begin(self, path: str, where: Location | None) -> None:
        """A new captured name: its entries are counted afresh."""
        self.entries, self.origin, self.where = 0, path, where

    def once(self, *key: Any) -> bool:
        if key in self.done:
            return False
        self.done.add(key)
        return True

    # Adding guards

    def slot(self, path: str, holder: Any, name: str, value: Any, via: Callable[..., Any] = getattr) -> None:
        if self.once("slot", id(holder), name, via):
            self.guards.append(Slot(path, holder, name, value, via))

    def member(self, path: str, cls: type, name: str, raw: Any) -> None:
        """Guard what a class holds under a name."""
        if isinstance(raw, types.FunctionType):
            self.slot(path, cls, name, raw)  # reading it from the class gives it back, which is cheaper
        elif self.once("raw", id(cls), name):
            self.guards.append(Raw(path, cls, name, raw))

    # Functions

    def follow(self, function: types.FunctionType, bound: Any, path: str) -> None:
        """Scan a user's function later. `bound` is its first argument where that is known."""
        wanted = function is self.plain or self.user.has_file(function.__code__.co_filename)
        if wanted and self.once("function", id(function), id(bound) if bound is not None else None):
            self.queue.append((function, bound, path))

    def wrapped(self, obj: Any, bound: Any, path: str) -> None:
        """Follow a callable in one of its many wrappers, with its first argument where that is known."""
        if isinstance(obj, types.FunctionType):
            if is_library_file(obj.__code__.co_filename) and is_wrapper(obj):
                self.wrapped(peek(obj, "__wrapped__"), bound, path)  # contextmanager, singledispatch
            self.follow(obj, bound, path)
        elif isinstance(obj, types.MethodType):
            self.wrapped(obj.__func__, obj.__self__, path)
        elif isinstance(obj, (staticmethod, classmethod)):
            self.wrapped(obj.__func__, bound if isinstance(obj, classmethod) else None, path)
        elif isinstance(obj, property):
            for part in (obj.fget, obj.fset):
                self.wrapped(part, bound, path)
        elif isinstance(obj, functools.cached_property):
            self.wrapped(obj.func, bound, path)
        elif is_wrapper(obj):
            self.slot(f"{path}.__wrapped__", obj, "__wrapped__", obj.__wrapped__)
            self.wrapped(obj.__wrapped__, bound, path)

    def function(self, f: types.FunctionType, bound: Any, path: str) -> None:
        self.slot(path, f, "__code__", f.__code__)
        if self.defaults or f is not self.plain:
            self.slot(path, f, "__defaults__", f.__defaults__)
            self.slot(path, f, "__kwdefaults__", f.__kwdefaults__)
            named = f.__code__.co_varnames[: f.__code__.co_argcount]
            values = f.__defaults__ or ()
            by_position = zip(named[len(named) - len(values) :], values)
            for name, value in (*by_position, *(f.__kwdefaults__ or {}).items()):
                label = f"default {name} of {path}"
                self.begin(label, None)
                if f.__defaults__:
                    self.value(f.__defaults__, label, False)
                self.value(value, label, True)
        inner = getattr(f, "__wrapped__", None)
        if inner is not None:
            self.wrapped(inner, bound, path)
        env = dict(zip(f.__code__.co_freevars, f.__closure__ or ()))
        known = dict(self.statics) if f is self.plain else {}
        if bound is not None and f.__code__.co_argcount:
            known[f.__code__.co_varnames[0]] = bound
        self.code(f, f.__code__, env, known, path)

    def code(
        self, f: Any, code: types.CodeType, env: dict[str, Any], known: dict[str, Any], path: str
    ) -> None:
        """`env` has the cells of the function by name, `known` the locals whose values are known."""
        key = (id(code), frozenset(known))
        if key not in self.scans:
            self.scans[key] = (code, scan(code, known.keys()))  # with the code object, so that its id stays its own
        reads = self.scans[key][1]
        self.names |= reads.names
        self.everything |= reads.everything
        inner = {name: cell for name, cell in env.items() if name not in code.co_cellvars}
        inner |= {name: _Local(value) for name, value in known.items() if name in code.co_cellvars}
        for chain in reads.chains:
            self.chain(f, chain, inner, known, path)
        for chain in reads.stores:
            self.store(f, chain, inner, known, path)
        for const in code.co_consts:
            if isinstance(const, types.CodeType):
                self.code(f, const, inner, {}, path)

    # Chains

    def start(self, f: Any, chain: Chain, env: dict[str, Any], known: dict[str, Any], path: str) -> tuple[str, Any]:
        """Path and value of a root, which gets its guard."""
        name = chain.root
        if chain.kind == "local":
            return name, known[name]
        if chain.kind == "import":
            try:
                full = importlib.util.resolve_name(name, f.__globals__.get("__package__"))
            except (ImportError, ValueError):
                full = name
            return full, sys.modules.get(full, MISSING)
        if chain.kind == "deref":
            cell = env.get(name)
            if isinstance(cell, _Local):
                return name, cell.value
            if cell is None:
                return name, MISSING
            label = f"closure {name}" if f is self.plain else f"closure {name} of {path}"
            value = peek(cell, "cell_contents")
            self.slot(label, cell, "cell_contents", value)
            return label, value
        space = f.__globals__
        own = space is self.globals
        label = f"global {name}" if own else f"global {space.get('__name__')}.{name}"
        value = space.get(name, MISSING)
        # A builtin is watched for being shadowed by a global.
        self.slot(label, space, name, value, dict.get)
        return label, f.__builtins__.get(name, MISSING) if value is MISSING else value

    def chain(self, f: Any, chain: Chain, env: dict[str, Any], known: dict[str, Any], path: str) -> None:
        label, value = self.start(f, chain, env, known, path)
        self.begin(label, chain.where)
        for attr in chain.attrs:
            if value is MISSING:
                return
            if isinstance(value, WHOLE) and not hasattr(value, "_fields"):
                # Its guard covers all of it, unless a class of the user's adds attributes.
                if not self.user.has_class(type(value)):
                    break
                self.value(value, label, True)
            label, value = self.attribute(value, attr, label)
        if value is not MISSING and chain.escapes:
            self.value(value, label, True)

    def store(self, f: Any, chain: Chain, env: dict[str, Any], known: dict[str, Any], path: str) -> None:
        """Remember where the function writes to, without guarding it."""
        if chain.kind == "global":
            if not chain.attrs:
                self.watched.append((f"global {chain.root}", f.__globals__, chain.root))
                return
        elif chain.kind == "deref" and not chain.attrs:
            cell = env.get(chain.root)
            if cell is not None and not isinstance(cell, _Local):
                self.watched.append((f"closure {chain.root}", cell, "cell_contents"))
            return
        label, value = self.start(f, chain, env, known, path)
        for attr in chain.attrs[:-1]:
            value = peek(value, attr)
            label = f"{label}.{attr}"
        if value is not MISSING:
            self.watched.append((f"{label}.{chain.attrs[-1]}", value, chain.attrs[-1]))

    def attribute(self, holder: Any, attr: str, at: str) -> tuple[str, Any]:
        """Guard one step of a chain; the value is missing when the chain cannot be followed further."""
        path = f"{at}.{attr}"
        if isinstance(holder, types.ModuleType):
            value = peek(holder, attr)
            if self.user.has_module(holder) or (isinstance(value, WHOLE) and not is_standard(holder)):
                self.slot(path, holder, attr, value)
            elif not isinstance(value, (types.ModuleType, type)):
                return path, MISSING
            return path, value
        cls = holder if isinstance(holder, type) else type(holder)
        raw = static(cls, attr)
        own = {} if isinstance(holder, type) else getattr(holder, "__dict__", {})
        if attr in own and not isinstance(raw, property):
            value = own[attr]
            self.slot(path, holder, attr, value)
            return path, value
        if isinstance(raw, _DESCRIPTORS) or is_wrapper(raw):
            if self.user.has_class(cls):
                self.member(path, cls, attr, raw)
                instance = None if isinstance(holder, type) else holder
                if instance is not None and isinstance(raw, _SHADOWED) and hasattr(holder, "__dict__"):
                    self.slot(path, own, attr, MISSING, dict.get)
                bound = cls if isinstance(raw, classmethod) else instance
                self.wrapped(raw, bound, path)
                if not isinstance(raw, _DESCRIPTORS):
                    self.value(raw, path, True)
            else:
                self.value(holder, at, True)  # a library's method may use all of it
            return path, MISSING
        if hasattr(type(raw), "__get__"):
            self.value(raw, path, True)  # a descriptor of the user's own
        value = peek(holder, attr)
        if value is MISSING or value is peek(holder, attr) or isinstance(value, SCALARS):
            self.slot(path, holder, attr, value)
        # Otherwise a fresh object at every read: nothing to hold on to.
        return path, value

    # Values as a whole

    def value(self, v: Any, path: str, deep: bool) -> None:
        """Guard the inside of a value; the place that holds it is guarded by the caller."""
        if isinstance(v, SCALARS):
            return
        if isinstance(v, WHOLE):
            if isinstance(v, np.ndarray):
                self.array(v, path)
            else:
                self.container(v, path, deep)
            if self.user.has_class(type(v)):
                self.instance(v, path)
        elif isinstance(v, types.ModuleType):
            if self.user.has_module(v) and self.once("module", id(v)):
                for name in sorted(self.names & vars(v).keys()) if not self.everything else list(vars(v)):
                    self.slot(f"{path}.{name}", v, name, vars(v)[name])
                    self.value(vars(v)[name], f"{path}.{name}", True)
        elif isinstance(v, type):
            if self.user.has_class(v):
                self.classes.setdefault(v)
        elif isinstance(v, functools.partial):
            if self.once("partial", id(v)):
                self.slot(f"{path}.func", v, "func", v.func)
                self.slot(f"{path}.args", v, "args", v.args)
                self.value(v.func, f"{path}.func", True)
                self.value(v.args, f"{path}.args", True)
                self.value(v.keywords, f"{path}.keywords", True)
        else:
            self.wrapped(v, None, path)
            if self.is_transparent(v):
                self.instance(v, path)

    def is_transparent(self, v: Any) -> bool:
        """Do we look into this instance? Not into those of libraries, our own tensors included."""
        if isinstance(v, RECORDS) or self.user.has_class(type(v)):
            return True
        return is_dataclass(v) and type(v).__module__.partition(".")[0] != PACKAGE

    def count(self, n: int) -> None:
        self.entries += n
        if self.entries > MAX_ENTRIES:
            raise StaleCaptureError(
                f"{self.origin} holds more than {MAX_ENTRIES} values, too many to watch for changes",
                where=self.where,
                cure="pass it to the function as an argument",
            )

    def container(self, v: Any, path: str, deep: bool) -> None:
        if not self.once("container", id(v)):
            return
        self.count(len(v))
        keys = tuple(v) if isinstance(v, (dict, types.MappingProxyType)) else None
        values = tuple(v) if keys is None else tuple(v.values())
        self.shapes[id(v)] = (v, keys, values)
        if not isinstance(v, (tuple, frozenset)):
            self.guards.append(Elements(path, v, keys, values))
        if deep:
            labels = range(len(values)) if keys is None else keys
            for key, value in zip(labels, values):
                if not isinstance(value, SCALARS):
                    self.value(value, f"{path}[{key!r}]", True)

    def array(self, v: np.ndarray, path: str) -> None:
        if not self.once("array", id(v)):
            return
        self.guards.append(Memory(path, v))
        if v.dtype.kind == "O":
            self.count(v.size)
            for value in v.flat:
                self.value(value, path, True)

    def instance(self, v: Any, path: str) -> None:
        if not self.once("instance", id(v)):
            return
        cls = type(v)
        if self.user.has_class(cls):
            self.classes.setdefault(cls)
        own = getattr(v, "__dict__", {})
        slots = {name for c in cls.__mro__ for name in _slots(c)}
        always = {f.name for f in fields(v)} if is_dataclass(v) else set()
        if self.everything or isinstance(v, RECORDS):
            always |= own.keys()
        names = [n for n in (*own, *sorted(slots - own.keys())) if n in always or n in self.names]
        self.count(len(names))
        values = tuple(peek(v, n) for n in names)
        if is_dataclass(v):
            self.shapes[id(v)] = (v, tuple(names), values)
        for name, value in zip(names, values):
            self.slot(f"{path}.{name}", v, name, value)
            self.value(value, f"{path}.{name}", True)
        keys = None
        if hasattr(v, "__dict__"):
            absent = None if self.everything or isinstance(v, RECORDS) else self._absent(cls, own)
            keys = Keys(path, v, absent, frozenset(own))
            self.guards.append(keys)
        self.objects[id(v)] = (v, names, values, keys)
        self.watched.append((path, v, ""))

    def _absent(self, cls: type, own: dict[str, Any]) -> frozenset[str]:
        """Names in the code that would mean something new on an instance; a cached property does not."""
        names = self.names - own.keys()
        return frozenset(n for n in names if not isinstance(static(cls, n), functools.cached_property))

    def members(self, cls: type) -> None:
        """Methods and class variables that code with these names may reach through instances out of sight."""
        # A base class from a library may call any method, by names that we do not read.
        anything = self.everything or any(
            not self.user.has_class(c) and c.__module__.partition(".")[0] not in sys.stdlib_module_names
            for c in cls.__mro__
        )
        for c in cls.__mro__:
            if not self.user.has_class(c):
                continue
            for name, raw in list(vars(c).items()):
                path = f"{c.__qualname__}.{name}"
                if name.startswith("__") and name.endswith("__"):
                    # Called without being named; those that dataclasses write read nothing.
                    if isinstance(raw, types.FunctionType) and raw.__code__.co_filename != "<string>":
                        self.member(path, self.seen_from(cls, c, name), name, raw)
                        self.follow(raw, None, path)
                elif anything or name in self.names:
                    if isinstance(raw, (types.MemberDescriptorType, types.GetSetDescriptorType)):
                        continue
                    self.begin(path, None)
                    holder = self.seen_from(cls, c, name)
                    if hasattr(type(raw), "__get__") or is_wrapper(raw):
                        self.member(path, holder, name, raw)
                        self.wrapped(raw, None, path)
                    else:
                        self.slot(path, holder, name, peek(holder, name))
                    self.value(raw, path, True)

    @staticmethod
    def seen_from(cls: type, c: type, name: str) -> type:
        """Where to guard a member of the base `c`: at `cls`, which may override it later, or has already."""
        return cls if static(cls, name) is c.__dict__[name] else c


def _slots(cls: type) -> Iterator[str]:
    for name, raw in vars(cls).items():
        if isinstance(raw, types.MemberDescriptorType) and not name.startswith("__"):
            yield name
