"""What a traced function reads from outside its arguments, and whether it is still what it was.

A trace bakes in what the function saw: globals, closure cells, attributes of `self`, defaults, the code of
helper functions. `collect` finds those reads in the bytecode just before a trace; `GuardSet.check` compares
them at every warm call and names what differs.

How reads are found. The code of the function, of the code nested in it, and of the user's functions it
refers to is scanned for chains `root.a.b`, the root being a global, a closure cell, an imported module or
`self`. Each step of a chain is guarded. What a chain ends in has left our sight (it may be called, stored,
iterated over), so it is guarded as a whole: containers and dataclasses deeply, functions by code, defaults
and their own reads, instances of user classes by those attributes whose names occur in any scanned code,
and their methods of such names are scanned too.

How values are compared. Scalars, strings, dtypes and enum members by type and value (`1`, `True` and `1.0`
differ, as do `0.0` and `-0.0`; NaN equals itself). Containers and dataclasses by type and elements, in
order. Arrays by identity, shape, dtype, strides and contents: bytes up to 64 KiB, SHA-256 above; `adopt`
drops the contents for arrays that a plan reads live. Functions by `__code__`, defaults and cells.
Everything else by identity.

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

import dis
import enum
import functools
import hashlib
import importlib.util
import os
import reprlib
import struct
import sys
import sysconfig
import types
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import repeat
from operator import attrgetter, eq, is_
from typing import Any

import numpy as np

from ..core.errors import StaleCaptureError
from ..core.source import PACKAGE, PACKAGE_DIR, Location

__all__ = ["GuardSet", "collect"]

#: Entries one captured name may hold, counted through all levels.
MAX_ENTRIES = 10_000
#: Objects that the search for leaked tracers looks at.
MAX_LOOKED_AT = 100_000
#: Arrays up to this size are compared byte by byte.
EXACT_BYTES = 64 * 1024

_PYTHON_SCALARS = (bool, int, float, complex, str, bytes, range, slice, type(None), type(...))
_SCALARS = (*_PYTHON_SCALARS, enum.Enum, np.generic, np.dtype)
_CONTAINERS = (list, tuple, dict, set, frozenset, deque, types.MappingProxyType)
_WHOLE = (*_SCALARS, *_CONTAINERS, np.ndarray)
_DESCRIPTORS = (types.FunctionType, staticmethod, classmethod, property, functools.cached_property)
_SHADOWED = (types.FunctionType, staticmethod, classmethod)  # an entry of the instance would win
_RECORDS = (types.SimpleNamespace, Namespace)


_form = attrgetter("dtype", "shape", "strides")


class _Missing:
    def __repr__(self) -> str:
        return "missing"


_MISSING: Any = _Missing()


# Reads in the bytecode ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chain:
    """A read `root.a.b`. `escapes`: the value at its end goes somewhere we do not follow."""

    kind: str  # "global", "deref", "self" or "import"
    root: str
    attrs: tuple[str, ...]
    escapes: bool
    where: Location


@dataclass(slots=True)
class Reads:
    """What one code object, without those nested in it, reads and writes outside its locals."""

    chains: list[Chain] = field(default_factory=list)
    stores: list[Chain] = field(default_factory=list)  # attrs end in the attribute that is written
    names: set[str] = field(default_factory=set)  # attribute names, and names that getattr may be given
    everything: bool = False  # the code uses vars() or the like


_DEREF = {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_ATTR = {"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"}
_STORE = {"STORE_GLOBAL": "global", "STORE_DEREF": "deref"}
_BY_NAME = {"getattr", "hasattr", "setattr", "attrgetter", "methodcaller"}


def scan(code: types.CodeType, self_name: str | None) -> Reads:
    """Find the chains of one code object. `self_name` is the local to follow as a root, if any."""
    reads = Reads()
    current: Chain | None = None
    copied: Chain | None = None
    consts: list[Any] = [0, None]
    by_name = False

    def start(kind: str, root: str, instruction: dis.Instruction) -> Chain:
        p = instruction.positions
        line = (p and p.lineno) or code.co_firstlineno
        end = (p and p.end_lineno) or line
        col, end_col = (p.col_offset, p.end_col_offset) if p else (None, None)
        return Chain(kind, root, (), True, Location(code.co_filename, line, end, col, end_col, code.co_name))

    def more(chain: Chain, attr: str, escapes: bool = True) -> Chain:
        return Chain(chain.kind, chain.root, (*chain.attrs, attr), escapes, chain.where)

    def passing(chain: Chain) -> Chain:
        return Chain(chain.kind, chain.root, chain.attrs, False, chain.where)

    for instruction in dis.get_instructions(code):
        op, arg = instruction.opname, instruction.argval
        if op in ("EXTENDED_ARG", "CACHE", "PUSH_NULL"):
            continue
        if op in _ATTR:
            reads.names.add(arg)
            by_name |= arg in _BY_NAME
            if current is not None:
                current = more(current, arg)
            continue
        if op == "IMPORT_FROM" and current is not None:
            reads.chains.append(more(current, arg))  # the module stays on the stack
            by_name |= arg in _BY_NAME
            continue
        if op in ("STORE_ATTR", "DELETE_ATTR"):
            target = current or copied
            if target is not None:
                reads.stores.append(more(target, arg, False))
            if current is not None:
                reads.chains.append(passing(current))
            current = copied = None
            continue
        if op == "COPY" and current is not None:  # the first half of `self.n += 1`
            reads.chains.append(passing(current))
            copied = current
            continue
        if current is not None:
            reads.chains.append(current)
            current = None
        if op in _GLOBAL:
            current = start("global", arg, instruction)
            by_name |= arg in _BY_NAME
            reads.everything |= arg in ("vars", "dir")
        elif op in _DEREF:
            current = start("deref", arg, instruction)
        elif op == "IMPORT_NAME":
            level = consts[0] if isinstance(consts[0], int) else 0
            # `import a.b` binds a, `from a.b import c` reads from a.b.
            name = arg if consts[1] or level else arg.partition(".")[0]
            current = start("import", "." * level + name, instruction)
        elif op in _STORE:
            reads.stores.append(start(_STORE[op], arg, instruction))
        elif op.startswith("LOAD_FAST"):
            loaded = arg[-1] if isinstance(arg, tuple) else arg
            if self_name is not None and loaded == self_name:
                current = start("self", loaded, instruction)
        elif op == "MATCH_CLASS":
            by_name = True
        elif op in ("LOAD_CONST", "LOAD_SMALL_INT"):
            consts = [consts[-1], arg]
    if current is not None:
        reads.chains.append(current)
    reads.everything |= "__dict__" in reads.names
    if by_name:
        reads.names |= _identifiers(code.co_consts)
    return reads


def _identifiers(consts: Any) -> set[str]:
    """Strings among the constants that can be attribute names."""
    found: set[str] = set()
    for const in consts:
        if isinstance(const, str) and const.isidentifier():
            found.add(const)
        elif isinstance(const, (tuple, frozenset)):
            found |= _identifiers(const)
    return found


# Guards ------------------------------------------------------------------------------------


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
            return self.via(self.holder, self.name, _MISSING)
        except Exception:  # an empty cell, or a property of the user's that fails
            return _MISSING

    def difference(self, same: Callable[[Any, Any], bool]) -> str | None:
        now = self.read()
        if now is self.value or same(now, self.value):
            return None
        if self.name == "__code__":
            return f"{self.path} was redefined"
        if self.name in ("__defaults__", "__kwdefaults__"):
            return f"the defaults of {self.path} changed from {_show(self.value)} to {_show(now)}"
        if now is _MISSING:
            return f"{self.path} was deleted"
        if self.value is _MISSING:
            return f"{self.path} was defined as {_show(now)}"
        return _changed(self.path, self.value, now)

    def describe(self) -> str | None:
        if self.name == "__code__":
            return f"the code of {self.path}"
        told_elsewhere = (types.FunctionType, np.ndarray, _Missing)
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
                    return _changed(f"{path}[{key!r}]", value, holder[key])
            return None if _all_same(holder, self.keys, same) else f"the order of {path} changed"
        if isinstance(holder, (set, frozenset)):
            old_set = set(map(_strict, self.values))
            for new in holder:
                if _strict(new) not in old_set:
                    return f"{path} gained {_show(new)}"
            return f"{path} lost elements" if len(holder) != len(self.values) else None
        for i, (now, value) in enumerate(zip(holder, self.values)):
            if now is not value and not same(now, value):
                return _changed(f"{path}[{i}]", value, now)
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
        self.dtype, self.shape, self.strides = array.dtype, array.shape, array.strides
        self.live = False
        self.bytes: Any = None

    def freeze(self) -> None:
        self.bytes = _fingerprint(self.array)

    def intact(self) -> bool:
        """Of the contents only: the form of all arrays is compared in one go."""
        return self.live or _fingerprint(self.array) == self.bytes

    def difference(self, same: Callable[[Any, Any], bool]) -> str | None:
        a, path = self.array, self.path
        for what, now, old in (
            ("dtype", a.dtype, self.dtype),
            ("shape", a.shape, self.shape),
            ("strides", a.strides, self.strides),
        ):
            if now != old:
                return f"the {what} of {path} changed from {old} to {now}"
        if self.intact():
            return None
        return f"the contents of {path} changed"

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
        return _static(self.cls, self.name) is self.value

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


class GuardSet:
    """The guards of one trace. `check` is safe from several threads."""

    def __init__(
        self, guards: list[Guard], shapes: dict[int, tuple], watched: list[tuple[str, Any, str]]
    ) -> None:
        self.guards = guards
        self._shapes = shapes  # id of a container or dataclass -> what it was made of
        self._watched = watched  # where a tracer may have been put: path, holder, attribute or ""
        slots = [g for g in guards if isinstance(g, Slot)]
        items = [g for g in slots if g.via is dict.get]
        attrs = [g for g in slots if g.via is not dict.get]
        # Columns, so that the warm check is two C loops and one over what can change inside.
        self._dicts, self._keys = [g.holder for g in items], [g.name for g in items]
        self._items = [g.value for g in items]
        self._holders, self._names = [g.holder for g in attrs], [g.name for g in attrs]
        self._attrs = [g.value for g in attrs]
        self._memories = {id(g.array): g for g in guards if isinstance(g, Memory)}
        self._arrays = [g.array for g in self._memories.values()]
        self._forms = [(g.dtype, g.shape, g.strides) for g in self._memories.values()]
        self._inner = [g.intact for g in guards if not isinstance(g, Slot)]

    def __len__(self) -> int:
        return len(self.guards)

    def check(self) -> str | None:
        """None, or a message naming the first thing that is no longer what it was."""
        missing = repeat(_MISSING)
        try:
            if (
                all(map(is_, map(dict.get, self._dicts, self._keys, missing), self._items))
                and all(map(is_, map(getattr, self._holders, self._names, missing), self._attrs))
                and all(map(eq, map(_form, self._arrays), self._forms))
                and all(intact() for intact in self._inner)
            ):
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

    def adopt(self, array: np.ndarray) -> bool:
        """The graph reads this array from its own memory at every run: do not compare its contents any more.

        True when it was guarded. Not to be called for an array whose values were also used while tracing.
        """
        guard = self._memories.get(id(array))
        if guard is None:
            return False
        guard.live = True
        self._inner = [intact for intact in self._inner if getattr(intact, "__self__", None) is not guard]
        return True

    def describe(self) -> list[str]:
        """One line for each guarded name, for `explain()`."""
        return list(dict.fromkeys(filter(None, (g.describe() for g in self.guards))))

    def leaked(self, is_tracer: Callable[[Any], bool]) -> list[str]:
        """Names outside the function that hold a tracer now."""
        out: list[str] = []
        seen: set[int] = set()
        stack: list[tuple[str, Any]] = []
        for path, holder, name in self._watched:
            stack.append((path, _peek(holder, name) if name else holder))
        for g in self.guards:
            if isinstance(g, Slot):
                stack.append((g.path, g.read()))
            elif isinstance(g, Elements):
                stack.append((g.path, g.holder))
        stack.reverse()
        while stack:
            path, value = stack.pop()
            if is_tracer(value):
                out.append(path)
            elif id(value) not in seen and len(seen) < MAX_LOOKED_AT:
                seen.add(id(value))
                stack += reversed(list(_inside(path, value)))
        return list(dict.fromkeys(out))

    def _same(self, now: Any, old: Any) -> bool:
        """Equality by value, `old` as it was when collected."""
        if now is old:
            return True
        if type(now) is not type(old):
            return False
        if isinstance(old, _SCALARS):
            return _strict(now) == _strict(old)
        if isinstance(old, types.FunctionType):
            return (
                now.__code__ is old.__code__
                and now.__globals__ is old.__globals__
                and self._same(now.__defaults__, old.__defaults__)
                and self._same(now.__kwdefaults__, old.__kwdefaults__)
                and _all_same(now.__closure__ or (), old.__closure__ or (), is_)
            )
        shape = self._shapes.get(id(old))
        if shape is None:
            return False
        _, keys, values = shape
        if isinstance(old, _CONTAINERS):
            if len(now) != len(values):
                return False
            if keys is None:
                if isinstance(now, (set, frozenset)):
                    return set(map(_strict, now)) == set(map(_strict, values))
                return _all_same(now, values, self._same)
            return _all_same(now, keys, self._same) and _all_same(now.values(), values, self._same)
        return all(self._same(getattr(now, k, _MISSING), v) for k, v in zip(keys, values))


# Collecting ------------------------------------------------------------------------------------


def collect(fn: Callable[..., Any], bound_self: Any = None, *, defaults: bool = True) -> GuardSet:
    """Guards for all that `fn` reads from outside its arguments; call it right before `fn` is traced.

    `bound_self` is the instance `fn` will get as first argument. `defaults=False` leaves out the defaults of
    `fn` itself, for a caller that treats them as arguments.
    """
    collector = _Collector(fn, bound_self, defaults)
    while collector.run():
        pass
    for guard in collector.guards:
        if isinstance(guard, Memory):
            guard.freeze()
    return GuardSet(collector.guards, collector.shapes, collector.watched)


class _Collector:
    """One walk from a function over all it can reach.

    Which attributes and methods matter depends on the names in all code, so the walk is repeated until it
    meets no new names and classes; only the last one's guards count.
    """

    def __init__(self, fn: Any, bound_self: Any, defaults: bool) -> None:
        self.root = fn
        self.bound_self = bound_self
        self.defaults = defaults
        self.names: set[str] = set()
        self.everything = False
        self.classes: dict[type, None] = {}
        self.scans: dict[tuple[int, str | None], tuple[types.CodeType, Reads]] = {}
        plain = _plain_function(fn)
        self.globals = plain.__globals__ if plain else {}
        package = (getattr(plain, "__module__", None) or "").partition(".")[0]
        self.package = "" if package in (PACKAGE, "", "__main__") else package

    def run(self) -> bool:
        """One walk. True when it has to be repeated."""
        before = (len(self.names), self.everything, len(self.classes))
        self.guards: list[Guard] = []
        self.shapes: dict[int, tuple] = {}
        self.watched: list[tuple[str, Any, str]] = []
        self.done: set[Any] = set()
        self.queue: deque[tuple[types.FunctionType, Any, str]] = deque()
        self.begin("", None)
        if self.bound_self is None:
            self.value(self.root, _name_of(self.root), True)
        else:
            self.wrapped(self.root, self.bound_self, _name_of(self.root))
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

    def add(self, guard: Guard, kind: str, *key: Any) -> None:
        if self.once(kind, *key):
            self.guards.append(guard)

    def member(self, path: str, cls: type, name: str, raw: Any) -> None:
        """Guard what a class holds under a name."""
        if isinstance(raw, types.FunctionType):
            self.slot(path, cls, name, raw)  # reading it from the class gives it back, which is cheaper
        elif self.once("raw", id(cls), name):
            self.guards.append(Raw(path, cls, name, raw))

    # Functions

    def follow(self, function: types.FunctionType, bound: Any, path: str) -> None:
        """Scan a user's function later. `bound` is its first argument where that is known."""
        if (
            not self.is_user_file(function.__code__.co_filename)
            and _plain_function(self.root) is not function
        ):
            return
        if self.once("function", id(function), id(bound) if bound is not None else None):
            self.queue.append((function, bound, path))

    def wrapped(self, obj: Any, bound: Any, path: str) -> bool:
        """Follow a callable in one of its many wrappers, with a known first argument. False if it is none."""
        if isinstance(obj, types.FunctionType):
            if _is_library_file(obj.__code__.co_filename) and _is_wrapper(obj):
                self.wrapped(_peek(obj, "__wrapped__"), bound, path)  # contextmanager, singledispatch
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
        elif _is_wrapper(obj):
            self.slot(f"{path}.__wrapped__", obj, "__wrapped__", obj.__wrapped__)
            self.wrapped(obj.__wrapped__, bound, path)
        else:
            return False
        return True

    def function(self, f: types.FunctionType, bound: Any, path: str) -> None:
        is_root = f is _plain_function(self.root)
        self.slot(path, f, "__code__", f.__code__)
        if self.defaults or not is_root:
            self.slot(path, f, "__defaults__", f.__defaults__)
            self.slot(path, f, "__kwdefaults__", f.__kwdefaults__)
            named = f.__code__.co_varnames[: f.__code__.co_argcount]
            values = f.__defaults__ or ()
            pairs = list(zip(named[len(named) - len(values) :], values)) + list(
                (f.__kwdefaults__ or {}).items()
            )
            for name, value in pairs:
                label = f"default {name} of {path}"
                self.begin(label, None)
                if f.__defaults__:
                    self.value(f.__defaults__, label, False)
                self.value(value, label, True)
        inner = getattr(f, "__wrapped__", None)
        if inner is not None:
            self.wrapped(inner, bound, path)
        env = dict(zip(f.__code__.co_freevars, f.__closure__ or ()))
        self.code(
            f, f.__code__, env, bound, path, f.__code__.co_varnames[0] if f.__code__.co_argcount else None
        )

    def code(
        self, f: Any, code: types.CodeType, env: dict[str, Any], bound: Any, path: str, first: str | None
    ) -> None:
        """`env` has the cells of the function by name, and under `first` the instance if captured."""
        if bound is None:
            first = None
        key = (id(code), first)
        if key not in self.scans:
            self.scans[key] = (code, scan(code, first))  # with the code object, so that its id stays its own
        reads = self.scans[key][1]
        self.names |= reads.names
        self.everything |= reads.everything
        inner = {name: cell for name, cell in env.items() if name not in code.co_cellvars}
        if first is not None and first in code.co_cellvars:
            inner[first] = _Self(bound)
        for chain in reads.chains:
            self.chain(f, chain, inner, bound, path)
        for chain in reads.stores:
            self.store(f, chain, inner, bound, path)
        for const in code.co_consts:
            if isinstance(const, types.CodeType):
                self.code(f, const, inner, bound, path, None)

    # Chains

    def start(self, f: Any, chain: Chain, env: dict[str, Any], bound: Any, path: str) -> tuple[str, Any]:
        """Path and value of a root, which gets its guard."""
        name = chain.root
        if chain.kind == "self":
            return name, bound
        if chain.kind == "import":
            try:
                full = importlib.util.resolve_name(name, f.__globals__.get("__package__"))
            except (ImportError, ValueError):
                full = name
            return full, sys.modules.get(full, _MISSING)
        if chain.kind == "deref":
            cell = env.get(name)
            if isinstance(cell, _Self):
                return name, cell.value
            if cell is None:
                return name, _MISSING
            label = f"closure {name}" if f is _plain_function(self.root) else f"closure {name} of {path}"
            value = _peek(cell, "cell_contents")
            self.slot(label, cell, "cell_contents", value)
            return label, value
        space = f.__globals__
        own = space is self.globals
        label = f"global {name}" if own else f"global {space.get('__name__')}.{name}"
        value = space.get(name, _MISSING)
        # A builtin is watched for being shadowed by a global.
        self.slot(label, space, name, value, dict.get)
        return label, f.__builtins__.get(name, _MISSING) if value is _MISSING else value

    def chain(self, f: Any, chain: Chain, env: dict[str, Any], bound: Any, path: str) -> None:
        label, value = self.start(f, chain, env, bound, path)
        self.begin(label, chain.where)
        for attr in chain.attrs:
            if value is _MISSING:
                return
            if isinstance(value, _WHOLE) and not hasattr(value, "_fields"):
                # Its guard covers all of it, unless a class of the user's adds attributes.
                if not self.is_user_class(type(value)):
                    break
                self.value(value, label, True)
            label, value = self.attribute(value, attr, label)
        if value is not _MISSING and chain.escapes:
            self.value(value, label, True)

    def store(self, f: Any, chain: Chain, env: dict[str, Any], bound: Any, path: str) -> None:
        """Remember where the function writes to, without guarding it."""
        if chain.kind == "global":
            if not chain.attrs:
                self.watched.append((f"global {chain.root}", f.__globals__, chain.root))
                return
        elif chain.kind == "deref" and not chain.attrs:
            cell = env.get(chain.root)
            if cell is not None and not isinstance(cell, _Self):
                self.watched.append((f"closure {chain.root}", cell, "cell_contents"))
            return
        label, value = self.start(f, chain, env, bound, path)
        for attr in chain.attrs[:-1]:
            value = _peek(value, attr)
            label = f"{label}.{attr}"
        if value is not _MISSING:
            self.watched.append((f"{label}.{chain.attrs[-1]}", value, chain.attrs[-1]))

    def attribute(self, holder: Any, attr: str, at: str) -> tuple[str, Any]:
        """Guard one step of a chain; the value is missing when the chain cannot be followed further."""
        path = f"{at}.{attr}"
        if isinstance(holder, types.ModuleType):
            value = _peek(holder, attr)
            quiet = not self.is_user_module(holder) and (
                _is_standard(holder) or not isinstance(value, (*_SCALARS, *_CONTAINERS, np.ndarray))
            )
            if not quiet:
                self.slot(path, holder, attr, value)
            elif not isinstance(value, (types.ModuleType, type)):
                return path, _MISSING
            return path, value
        cls = holder if isinstance(holder, type) else type(holder)
        raw = _static(cls, attr)
        own = {} if isinstance(holder, type) else getattr(holder, "__dict__", {})
        if attr in own and not isinstance(raw, property):
            value = own[attr]
            self.slot(path, holder, attr, value)
            return path, value
        if isinstance(raw, _DESCRIPTORS) or _is_wrapper(raw):
            if self.is_user_class(cls):
                self.member(path, cls, attr, raw)
                if (
                    not isinstance(holder, type)
                    and isinstance(raw, _SHADOWED)
                    and hasattr(holder, "__dict__")
                ):
                    self.slot(path, own, attr, _MISSING, dict.get)
                bound = cls if isinstance(raw, classmethod) else None if isinstance(holder, type) else holder
                self.wrapped(raw, bound, path)
                if not isinstance(raw, _DESCRIPTORS):
                    self.value(raw, path, True)
            else:
                self.value(holder, at, True)  # a library's method may use all of it
            return path, _MISSING
        if hasattr(type(raw), "__get__"):
            self.value(raw, path, True)  # a descriptor of the user's own
        value = _peek(holder, attr)
        if value is _MISSING or value is _peek(holder, attr) or isinstance(value, _SCALARS):
            self.slot(path, holder, attr, value)
        # Otherwise a fresh object at every read: nothing to hold on to.
        return path, value

    # Values as a whole

    def value(self, v: Any, path: str, deep: bool) -> None:
        """Guard the inside of a value; the place that holds it is guarded by the caller."""
        if isinstance(v, _SCALARS):
            return
        if isinstance(v, (*_CONTAINERS, np.ndarray)):
            if isinstance(v, np.ndarray):
                self.array(v, path)
            else:
                self.container(v, path, deep)
            if self.is_user_class(type(v)):
                self.instance(v, path)
        elif isinstance(v, types.ModuleType):
            if self.is_user_module(v) and self.once("module", id(v)):
                for name in sorted(self.names & vars(v).keys()) if not self.everything else list(vars(v)):
                    self.slot(f"{path}.{name}", v, name, vars(v)[name])
                    self.value(vars(v)[name], f"{path}.{name}", True)
        elif isinstance(v, type):
            if self.is_user_class(v):
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
        if isinstance(v, _RECORDS) or self.is_user_class(type(v)):
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
                if not isinstance(value, _SCALARS):
                    self.value(value, f"{path}[{key!r}]", True)

    def array(self, v: np.ndarray, path: str) -> None:
        if not self.once("array", id(v)):
            return
        self.guards.append(Memory(path, v))
        if v.dtype.hasobject and v.dtype.kind == "O":
            self.count(v.size)
            for value in v.flat:
                self.value(value, path, True)

    def instance(self, v: Any, path: str) -> None:
        if not self.once("instance", id(v)):
            return
        cls = type(v)
        if self.is_user_class(cls):
            self.classes.setdefault(cls)
        own = getattr(v, "__dict__", {})
        slots = {name for c in cls.__mro__ for name in _slots(c)}
        always = {f.name for f in fields(v)} if is_dataclass(v) else set()
        if self.everything or isinstance(v, _RECORDS):
            always |= own.keys()
        names = [n for n in (*own, *sorted(slots - own.keys())) if n in always or n in self.names]
        self.count(len(names))
        values = tuple(_peek(v, n) for n in names)
        if is_dataclass(v):
            self.shapes[id(v)] = (v, tuple(names), values)
        for name, value in zip(names, values):
            self.slot(f"{path}.{name}", v, name, value)
            self.value(value, f"{path}.{name}", True)
        if own or hasattr(v, "__dict__"):
            absent = None if self.everything or isinstance(v, _RECORDS) else self._absent(cls, own)
            self.add(Keys(path, v, absent, frozenset(own)), "keys", id(v))
        self.watched.append((path, v, ""))

    def _absent(self, cls: type, own: dict[str, Any]) -> frozenset[str]:
        """Names in the code that would mean something new on an instance; a cached property does not."""
        names = self.names - own.keys()
        return frozenset(n for n in names if not isinstance(_static(cls, n), functools.cached_property))

    def members(self, cls: type) -> None:
        """Methods and class variables that code with these names may reach through instances out of sight."""
        # A base class from a library may call any method, by names that we do not read.
        anything = self.everything or any(
            not self.is_user_class(c) and c.__module__.partition(".")[0] not in sys.stdlib_module_names
            for c in cls.__mro__
        )
        for c in cls.__mro__:
            if not self.is_user_class(c):
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
                    if isinstance(raw, _DESCRIPTORS) or _is_wrapper(raw) or hasattr(type(raw), "__get__"):
                        self.member(path, holder, name, raw)
                        self.wrapped(raw, None, path)
                    else:
                        self.slot(path, holder, name, _peek(holder, name))
                    self.value(raw, path, True)

    @staticmethod
    def seen_from(cls: type, c: type, name: str) -> type:
        """Where to guard a member of the base `c`: at `cls`, which may override it later, or has already."""
        return cls if _static(cls, name) is c.__dict__[name] else c

    # Whose code is it

    def is_user_file(self, file: str) -> bool:
        return not _is_library_file(file) or self._is_own(file)

    def _is_own(self, file: str) -> bool:
        """The installed package which the traced function belongs to counts as the user's."""
        if not self.package:
            return False
        origin = getattr(sys.modules.get(self.package), "__file__", None)
        if not origin or not _is_library_file(origin):
            return False
        if os.path.basename(origin).startswith("__init__."):
            return file.startswith(os.path.dirname(origin) + os.sep)
        return file == origin

    def is_user_module(self, module: types.ModuleType) -> bool:
        if module.__name__ in sys.builtin_module_names:
            return False
        file = getattr(module, "__file__", None)
        return file is None or self.is_user_file(file)

    def is_user_class(self, cls: type) -> bool:
        module = sys.modules.get(cls.__module__)
        if cls.__module__ == "builtins":
            return False
        return module is None or self.is_user_module(module)


@dataclass(frozen=True, slots=True)
class _Self:
    """The first argument, captured by nested code."""

    value: Any


# Small questions ------------------------------------------------------------------------------------


@functools.cache
def _is_library_file(file: str) -> bool:
    """Is this file of the standard library, an installed distribution, or fuelnumba apart from its models?"""
    if file.startswith("<frozen "):
        return True
    if file.startswith("<"):
        return False
    path = os.path.abspath(file)
    parts = path.split(os.sep)
    if "site-packages" in parts or "dist-packages" in parts:
        return True
    if path.startswith(PACKAGE_DIR + os.sep):
        return not path.startswith(os.path.join(PACKAGE_DIR, "models") + os.sep)
    return path.startswith(_standard_places())


@functools.cache
def _standard_places() -> tuple[str, ...]:
    paths = [sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib")]
    return tuple({p + os.sep for path in paths for p in (path, os.path.realpath(path))})


def _is_standard(module: types.ModuleType) -> bool:
    """NumPy, fuelnumba and the standard library, whose names are taken not to change."""
    name = module.__name__.partition(".")[0]
    return name in ("numpy", PACKAGE) or name in sys.stdlib_module_names


def _plain_function(fn: Any) -> types.FunctionType | None:
    """The Python function inside wrappers, partials and methods."""
    for _ in range(100):
        if isinstance(fn, types.FunctionType):
            return fn
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif isinstance(fn, (types.MethodType, staticmethod, classmethod)):
            fn = fn.__func__
        elif _is_wrapper(fn):
            fn = fn.__wrapped__
        else:
            return None
    return None


def _is_wrapper(obj: Any) -> bool:
    """Jitted functions, `functools.lru_cache` and their like."""
    return obj is not _MISSING and not isinstance(obj, type) and callable(_peek(obj, "__wrapped__"))


def _name_of(fn: Any) -> str:
    plain = _plain_function(fn)
    return plain.__qualname__.rpartition("<locals>.")[2] if plain else type(fn).__name__


def _static(cls: type, name: str) -> Any:
    """What the class holds under a name, unbound."""
    for c in cls.__mro__:
        if name in c.__dict__:
            return c.__dict__[name]
    return _MISSING


def _slots(cls: type) -> Iterator[str]:
    for name, raw in vars(cls).items():
        if isinstance(raw, types.MemberDescriptorType) and not name.startswith("__"):
            yield name


def _peek(holder: Any, name: str) -> Any:
    if isinstance(holder, dict):
        return holder.get(name, _MISSING)
    try:
        return getattr(holder, name, _MISSING)
    except Exception:  # an empty cell; a property that does not work outside its use
        return _MISSING


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
            yield f"closure {name} of {path}", _peek(cell, "cell_contents")
    elif isinstance(value, functools.partial):
        yield from _inside(path, (*value.args, *value.keywords.values()))
    elif not isinstance(value, (type, types.ModuleType)) and not _is_library_class(type(value)):
        for name, item in getattr(value, "__dict__", {}).items():
            yield f"{path}.{name}", item


def _is_library_class(cls: type) -> bool:
    if cls in _RECORDS:
        return False
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return cls.__module__ == "builtins" or (file is not None and _is_library_file(file))


def _strict(v: Any) -> Any:
    """A key, equal for scalars of the same type and value; signed zeros differ and NaN equals itself."""
    if isinstance(v, float):
        return type(v), struct.pack("d", v) if v == v else "nan"
    if isinstance(v, complex):
        return type(v), _strict(v.real), _strict(v.imag)
    if isinstance(v, np.generic):
        return type(v), v.dtype, v.tobytes()
    if isinstance(v, slice):
        return slice, _strict(v.start), _strict(v.stop), _strict(v.step)
    if isinstance(v, (tuple, frozenset)):
        return type(v), tuple(map(_strict, v)) if isinstance(v, tuple) else frozenset(map(_strict, v))
    return (type(v), v) if isinstance(v, _SCALARS) else (type(v), id(v))


def _all_same(now: Any, old: Any, same: Callable[[Any, Any], bool]) -> bool:
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
            self.value is other.value or _strict(self.value) == _strict(other.value)
        )

    __hash__ = None  # type: ignore[assignment]


_repr = reprlib.Repr()
_repr.maxother = _repr.maxstring = _repr.maxlong = 60


def _show(v: Any) -> str:
    """A short name for a value in a message."""
    if v is _MISSING:
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


def _changed(path: str, old: Any, new: Any) -> str:
    if isinstance(old, (types.FunctionType, type)) and type(old) is type(new):
        return f"{path} was redefined"
    a, b = _show(old), _show(new)
    return f"{path} changed from {a} to {b}" if a != b else f"{path} is another object than before: {b}"
