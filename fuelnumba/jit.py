"""`jit`: a NumPy function, traced once per kind of arguments, then run from its plan.

The key of a plan is explicit: the structure of the arguments, each leaf's dtype, shape and layout, static values, and what
the function read from outside (guards). A length that was seen to vary becomes a symbol: plans then serve every length.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
import types
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

import numpy as np

from .compiler import bindings, modcache
from .compiler.plan import Plan
from .core import dtypes as dt
from .core import ir
from .core.dims import MIN_SYMBOL, Extent, Guard, SymEnv
from .core.errors import ArgumentError, BackendError, CompileError, DonationError, FuelError, LeakedTracerError
from .core.ir import Graph, Node
from .core.layout import Layout, contiguous
from .core.ops import shown
from .core.source import locate, user_location
from .core.tree import LEAF, TreeDef, flatten_leaves, unflatten
from .core.treecode import builder
from .run.arguments import SCALAR, Signature, identifier, kind_in_words, leaf_signature, overlap, strided
from .run.array import DeviceArray
from .run.binding import DEVICE, OWNER, Parameters
from .run.fits import Fits
from .run.placement import Call, planned, starts_on
from .run.specialisation import Route, Specialisation
from .run.target import Target, chosen, cpu
from .trace import guards
from .trace.apply import as_tensor
from .trace.foreign import check_array, described, instead
from .trace.tensor import Tensor, Trace, current_trace, tracing_into
from .trace.traced import form_of, located

if TYPE_CHECKING:
    from .compiler.show import Explanation

P = ParamSpec("P")
R = TypeVar("R")

MAX_FAMILIES = 256  # kinds of arguments and static values a function keeps plans for; those longest unused go first
MAX_INSTANCES = 64  # plans made concrete for particular lengths; the oldest goes first
ADOPT_FROM = 64 * 1024  # bytes: smaller captured arrays are compared by content at every call


_jitted: weakref.WeakSet[Jitted[..., Any]] = weakref.WeakSet()


def _after_fork() -> None:
    """Whichever threads were tracing are not there in a forked child: their locks are nobody's."""
    for function in list(_jitted):
        function._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Jitted(Generic[P, R]):
    """A jitted function. Call it like the function; `graph`, `plan` and `explain()` show what runs."""

    @located
    def __init__(self, fn: Callable[P, R], static_argnames: Iterable[str] | str = (), donate: Iterable[str] | str = (),
                 dims: Mapping[str, Sequence[str | None]] | None = None, static_argnums: Iterable[int] | int = (),
                 fallback: str | None = None) -> None:
        if isinstance(fn, (staticmethod, classmethod)):
            raise ArgumentError(f"jit goes under @{type(fn).__name__}, next to the function",
                                cure=f"write @{type(fn).__name__} above @jit")
        if not callable(fn):
            raise ArgumentError(f"jit takes a function, not {fn!r}",
                                cure="decorate a function, or pass one")
        functools.update_wrapper(self, fn)
        self.__wrapped__ = fn
        self.name = getattr(fn, "__name__", type(fn).__name__)
        if fallback not in (None, cpu.name):
            raise ArgumentError(f"fallback cannot be {shown(fallback)}", cure='leave it out, or give "cpu"')
        self.fallback = fallback
        self.parameters = Parameters(fn, self.name, static_argnames, static_argnums, donate, dims, self._as_static)
        self.signature, self.donate = self.parameters.signature, self.parameters.donate
        self._completed, self._variadic = self.parameters.completed, self.parameters.variadic
        self._is_method = self.parameters.positional[:1] in (["self"], ["cls"])
        self._lock = threading.RLock()
        _jitted.add(self)
        self._fast: dict[Signature, Route] = {}
        self._latest: Route | None = None  # of calls that are told by code
        self._specialisations: dict[Signature, list[Specialisation]] = {}
        self._seen: dict[Signature, list[tuple[Any, ...]]] = {}
        self._donated_leaves: dict[Any, frozenset[int]] = {}
        self._last: Specialisation | None = None
        self._misses: list[str] = []
        self.compilations = 0  # traces made so far

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        self._is_method = True
        return types.MethodType(self, instance)

    def __reduce__(self) -> Any:
        """By name where the name leads here, as for any function; else by the function and what was asked of it."""
        if _found_by_name(self):
            return self.__qualname__  # type: ignore[attr-defined]
        p = self.parameters
        return type(self), (self.__wrapped__, p.static, p.donate, p.dims, (), self.fallback)

    def __repr__(self) -> str:
        return f"<jitted {self.name}{self.signature}, {self.compilations} compilation{'s' * (self.compilations != 1)}>"

    def _repr_html_(self) -> str:
        from .compiler.show import jitted_html

        called = self._last is not None
        return jitted_html(repr(self)[1:-1], self.explain() if called else None, self.plan if called else None)

    # -------------------------------------------------------------------------------------- calling
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if current_trace() is not None:
            return self.__wrapped__(*args, **kwargs)  # a jitted function inside another is part of it
        completed = None if kwargs else self._completed.get(len(args))
        if completed is not None:
            values, static = args + completed[0], completed[1]
        elif not kwargs and self._variadic:
            values, static = (args,), ()
        else:
            values, static = self._bind(args, kwargs)
        route, leaves, target = self._latest, None, chosen()
        if (route is not None and route.match is not None and route.static is static and route.chosen is target
                and route.special.plan.generation == bindings.generation and route.special.guards.check() is None):
            leaves = route.match(values)
        if route is None or leaves is None:
            route, leaves = self._route(values, static, target)
        self._last = special = route.special
        try:
            results = route.instance(leaves)
        except MemoryError as err:
            raise _no_memory(self.name, err) from None
        except (ArgumentError, BackendError, CompileError) as err:  # an int that does not fit, no room, a kernel of the user's
            raise self._of_call(err, special.key[0], leaves) from err.__cause__
        return results[0] if special.build is None else special.build(results)

    def _route(self, values: tuple[Any, ...], static: Signature, target: Target | None) -> tuple[Route, list[Any]]:
        """Where a call goes, and its leaves. target: what `with device(...)` chose."""
        entries = static if target is None else (*static, (DEVICE, target, target))
        leaves: list[Any] = []
        structure = flatten_leaves(values, leaves)
        signatures = tuple([leaf_signature(leaf) for leaf in leaves])
        key = (structure, signatures, entries)
        if None in signatures or self.donate:
            key = self._prepare(values, leaves, structure, signatures, entries)
        route = self._fast.get(key)
        if (route is None or route.special.plan.generation != bindings.generation or route.special.guards.check() is not None
                or (static and route.special.stranger(entries) is not None)):
            route = self._find(key, values, leaves)
        if not self.donate and route.taken(key, leaves, static, target):
            self._latest = route
        return route, leaves

    @located
    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], Signature]:
        return self.parameters.bind(args, kwargs)

    def _as_static(self, name: str, value: Any) -> Any:
        return value

    def _leaf_names(self, structure: Any) -> list[str]:
        return self.parameters.leaf_names(structure)

    def _is_owner(self, leaf: Any) -> bool:
        """Is the first argument the object or the class whose method this is? classmethod tells nobody whose it is."""
        if not self._is_method and isinstance(leaf, type):
            members = [v for c in leaf.__mro__ for v in vars(c).values()]
            self._is_method = any(isinstance(v, classmethod) and v.__func__ is self for v in members)
        return self._is_method

    @located
    def _prepare(self, values: tuple[Any, ...], leaves: list[Any], structure: Any, signatures: tuple[Any, ...],
                 static: Signature) -> Signature:
        """The key of a call with unusual leaves (an object as `self`, NumPy scalars) or donated arguments."""
        names = None
        scalars: list[int] = []
        for k, s in enumerate(signatures):
            if s is not None:
                continue
            leaf = leaves[k]
            if isinstance(leaf, np.generic):
                leaves[k] = np.asarray(leaf)
                scalars.append(k)
            elif isinstance(leaf, np.ndarray) and not isinstance(leaf, (np.ma.MaskedArray, np.matrix)):
                leaves[k] = np.asarray(leaf)
            elif k == 0 and values and leaf is values[0] and self._is_owner(leaf):
                static = (*static, (OWNER, type(leaf), id(leaf)))
                continue
            else:
                names = names or self._leaf_names(structure)
                if isinstance(leaf, np.ndarray):
                    self._dtype(names[k], leaf)
                raise ArgumentError(f"{self.name}(): {names[k]} is {described(leaf)}, neither an array nor a Python number",
                                    cure=instead(leaf, "a string or an object that chooses what is computed belongs in "
                                                       "static_argnames"))
        signatures = tuple(s or (("object",) if not isinstance(leaf, np.ndarray) else
                                 (leaf.dtype, (), SCALAR) if k in scalars else leaf_signature(leaf))
                           for k, (s, leaf) in enumerate(zip(signatures, leaves)))
        if self.donate:
            self._check_donated(leaves, structure)
        return structure, signatures, static

    def _dtype(self, name: str, array: np.ndarray[Any, Any] | DeviceArray) -> dt.DType:
        """The dtype of an argument. Raises InputArrayError or DTypeError, naming it."""
        try:
            return dt.dtype_of(array.dtype) if isinstance(array, DeviceArray) else check_array(array)
        except FuelError as err:
            raise type(err)(f"{self.name}(): {name}: {err.what}", cure=err.cure) from None

    def _of_call(self, err: FuelError, structure: Any, leaves: list[Any]) -> FuelError:
        """The error of a run, with the caller's line and the name of the int that does not fit."""
        names = [n for n, leaf in zip(self._leaf_names(structure), leaves) if type(leaf) is int and f"int {leaf} " in err.what]
        what = f"{self.name}(): {names[0]}: {err.what}" if names else f"{self.name}(): {err.what}"
        return type(err)(err.what if isinstance(err, CompileError) else what, where=err.where or user_location(), cure=err.cure)

    def _donated(self, structure: Any) -> frozenset[int]:
        """The positions of the leaves of donated arguments."""
        found = self._donated_leaves.get(structure)
        if found is None:
            found = self._donated_leaves[structure] = frozenset(
                k for k, n in enumerate(self._leaf_names(structure))
                if any(n == r or n.startswith((r + "[", r + ".")) for r in self.donate))
        return found

    def _check_donated(self, leaves: list[Any], structure: Any) -> None:
        donated = self._donated(structure)
        other = overlap(leaves, donated)
        if other is not None:
            names = self._leaf_names(structure)
            raise DonationError(f"{self.name}(): {names[other[0]]} and {names[other[1]]} are the same memory, and one is donated",
                                cure="pass a copy of one of them")
        for k in donated:
            leaf = leaves[k]
            if type(leaf) is DeviceArray:
                continue
            reason = ("is not an array" if type(leaf) is not np.ndarray else
                      "is read-only" if not leaf.flags.writeable else
                      "is not C-contiguous" if not leaf.flags.c_contiguous else None)
            if reason:
                raise DonationError(f"{self.name}(): the donated argument {self._leaf_names(structure)[k]} {reason}",
                                    cure="donate a writeable, C-contiguous array")

    # -------------------------------------------------------------------------------------- finding and making plans
    @located
    def _find(self, key: Signature, values: tuple[Any, ...], leaves: list[Any]) -> Route:
        structure, signatures, static = key
        shapes = tuple(s[1] if len(s) == 3 else None for s in signatures)
        kinds = tuple((s[0], len(s[1]), s[2]) if len(s) == 3 else s for s in signatures)
        family = (structure, kinds, static)
        with self._lock:
            known = self._specialisations[family] = self._specialisations.pop(family, [])  # now the latest
            self._forget_oldest()
            names = self._leaf_names(structure)
            reasons: list[list[str]] = []  # for each plan there was, all that differs
            for special in list(known):
                if special.plan.generation != bindings.generation:
                    known.remove(special)
                    reasons.append([bindings.change_since(special.plan.generation), *special.misfits(names, shapes)])
                    continue
                changed = special.guards.check()
                if changed is not None:
                    known.remove(special)
                    self._keep({k: v for k, v in self._fast.items() if v.special is not special})
                    reasons.append([changed, *special.misfits(names, shapes)])
                    continue
                other = special.stranger(static)
                env = special.bind(shapes) if other is None else None
                if env is not None:
                    return self._instance(key, special, env)
                reasons.append([*([other] if other is not None else ()), *special.misfits(names, shapes)])
            reason = None
            if self.compilations:  # the nearest plan's reason; of equally near ones, the latest's
                reason = min(reasons, key=len)[0] if reasons else self._family_difference(family)
            try:
                special = self._specialise(family, values, leaves, signatures, shapes)
            except BaseException:
                if not known:  # arguments that were refused are not kept
                    del self._specialisations[family]
                    self._seen.pop(family, None)
                raise
            known.insert(0, special)
            del known[MAX_INSTANCES:]  # of static objects that are equal and still differ, there may be any number
            if reason is not None:
                self._misses.append(reason)
                del self._misses[:-MAX_FAMILIES]
            env = special.bind(shapes)
            assert env is not None
            return self._instance(key, special, env)

    def _forget_oldest(self) -> None:
        """Keep memory bounded where static values never end. Which families are in use shows as they are found anew."""
        if len(self._specialisations) <= MAX_FAMILIES:
            return
        for family in list(self._specialisations)[:MAX_FAMILIES // 4]:
            del self._specialisations[family]
            self._seen.pop(family, None)
        self._keep({})

    def _keep(self, routes: dict[Signature, Route]) -> None:
        self._fast, self._latest = routes, None

    def _family_difference(self, family: Signature) -> str:
        """What sets this family of calls apart from the nearest one there is, in words."""
        others = [f for f in reversed(self._specialisations) if f is not family and self._specialisations[f]]
        found = [d for d in (self._differences(family, other) for other in others) if d]
        return min(found, key=len)[0] if found else "nothing fits any more"

    def _differences(self, family: Signature, other: Signature) -> list[str]:
        """In words; a leaf whose dtype and layout differ is there twice."""
        (structure, kinds, static), (old_structure, old_kinds, old_static) = family, other
        out = self.parameters.static_differences(static, old_static)
        if {n for n, *_ in static} != {n for n, *_ in old_static}:
            return out  # the values stand elsewhere
        if structure != old_structure:
            return [*out, f"the arguments have the structure {TreeDef(structure)}, not {TreeDef(old_structure)}"]
        for name, new, old in zip(self._leaf_names(structure), kinds, old_kinds):
            count = sum(a != b for a, b in zip(new, old)) if len(new) == len(old) else 1
            out += [f"{name} is {kind_in_words(new)}, not {kind_in_words(old)}"] * count
        return out

    def _instance(self, key: Signature, special: Specialisation, env: dict[str, int]) -> Route:
        bound = tuple(sorted(env.items()))
        instance = special.instances.get(bound)
        if instance is None:
            try:
                instance = special.ready(special.plan, env, special.scalars, special.fits, _progress.report)
            except (MemoryError, OverflowError) as err:  # of 64-bit sizes and strides
                raise _no_memory(self.name, err) from None
            except BackendError as err:
                raise type(err)(f"{self.name}(): {err.what}", where=err.where, cure=err.cure) from None
            if len(special.instances) >= MAX_INSTANCES:
                oldest = special.instances.pop(next(iter(special.instances)))
                self._keep({k: v for k, v in self._fast.items() if v.instance is not oldest})
            special.instances[bound] = instance
        route = self._fast[key] = Route(special, instance)
        return route

    def _pattern(self, family: Signature, shapes: tuple[Any, ...], env: SymEnv) -> tuple[Any, ...]:
        """The shape of each leaf: lengths that an earlier call had otherwise, or that `dims` names, become symbols."""
        names = self._leaf_names(family[0])
        seen = self._seen.setdefault(family, [])
        used: dict[str, int] = {}
        pattern: list[tuple[Extent, ...] | None] = []
        for k, shape in enumerate(shapes):
            if shape is None:
                pattern.append(None)
                continue
            given = self.parameters.dims.get(names[k])
            if given is not None and len(given) != len(shape):
                raise ArgumentError(f"{self.name}(): dims names {len(given)} axes of {names[k]}, which has {len(shape)}",
                                    cure="give one entry for each axis, None for those without a name")
            row: list[Extent] = []
            for axis, n in enumerate(shape):
                name = given[axis] if given else None
                if name is not None:
                    if used.setdefault(name, n) != n:
                        raise ArgumentError(f"{self.name}(): dims says that {name} is one length, but it is {used[name]} and, "
                                            f"on axis {axis} of {names[k]}, {n}",
                                            cure="give lengths that may differ names of their own")
                elif any(old[k][axis] != n and old[k][axis] >= MIN_SYMBOL for old in seen):
                    name = f"{identifier(names[k])}_{axis}"
                row.append(env.symbol(name, n) if name is not None and n >= MIN_SYMBOL else n)
            pattern.append(tuple(row))
        if shapes not in seen:
            seen.append(shapes)
            del seen[:-8]
        return tuple(pattern)

    def _specialise(self, family: Signature, values: tuple[Any, ...], leaves: list[Any], signatures: tuple[Any, ...],
                    shapes: tuple[Any, ...]) -> Specialisation:
        structure, _, static = family
        start = time.perf_counter()
        asked = next((v for n, _, v in static if n == DEVICE), None)
        target = starts_on(leaves, asked, lambda k: (self.name, self._leaf_names(structure)[k]))
        bound = target.bindings()  # before the trace: an op may be declared anew while it runs
        env = SymEnv()
        pattern = self._pattern(family, shapes, env)
        names = self._leaf_names(structure)
        owner = values[0] if any(n == OWNER for n, *_ in static) else None
        statics = self.parameters.watched(static)
        watch = guards.collect(self.__wrapped__, owner, statics, defaults=False)

        def captured(array: np.ndarray[Any, Any]) -> None:
            if array.nbytes > ADOPT_FROM:
                watch.adopt(array)

        trace = Trace(env=env, name=self.name, on_capture=captured)
        inputs: list[Node] = []
        layouts: dict[Node, Layout] = {}
        traced: list[Any] = []
        scalars: dict[int, str] = {}
        positions: list[int] = []
        lies: dict[Node, Target] = {}
        for k, (leaf, name, shape) in enumerate(zip(leaves, names, pattern)):
            if shape is None:
                kind = signatures[k][0]
                if kind == "object":
                    traced.append(leaf)
                    continue
                node = ir.input_node(name, (), dt.WEAK_DTYPES[kind])
                scalars[len(inputs)] = kind
                traced.append(Tensor(node, kind, trace, None, "python"))
            else:
                node = ir.input_node(name, shape, self._dtype(name, leaf))
                dense = target is not cpu or leaf.flags.c_contiguous  # what is sent to a device is contiguous there
                layouts[node] = contiguous(shape) if dense else strided(leaf, shape, self.name, name)
                if type(leaf) is DeviceArray:
                    lies[node] = leaf.device
                traced.append(Tensor(node, None, trace, None, "scalar" if signatures[k][2] == SCALAR else None))
            inputs.append(node)
            positions.append(k)
        with tracing_into(trace):
            result = self.parameters.call(self.__wrapped__, unflatten(structure, traced), static)
            out_leaves: list[Any] = []
            out_structure = flatten_leaves(result, out_leaves)
            outputs: list[Node] = []
            forms: list[str] = []
            constants: list[tuple[int, Any]] = []
            for k, leaf in enumerate(out_leaves):
                if isinstance(leaf, (Tensor, np.ndarray)):
                    out = as_tensor(leaf)
                    outputs.append(out.node)
                    forms.append(form_of(out))
                else:
                    constants.append((k, leaf))
        kept: list[Tensor] = []

        def is_ours(value: Any) -> bool:
            if isinstance(value, Tensor) and value.origin is trace:
                kept.append(value)
                return True
            return False

        code = getattr(self.__wrapped__, "__code__", None)
        paths = TreeDef(out_structure).paths("its result") if constants else []
        for k, v in constants:
            if isinstance(v, (Iterator, Awaitable)):
                raise ArgumentError(f"{self.name}() returned {described(v)}: {paths[k]} can be used only once",
                                    cure="return a list or a tuple")
        for leaks, cure in (
                (guards.holding([(paths[k], v) for k, v in constants], is_ours),
                 "return arrays in lists, tuples, dicts or dataclasses"),
                (watch.leaked(is_ours), "return the value instead: what a trace stores elsewhere is not computed")):
            if leaks:
                raise LeakedTracerError(f"{self.name}() left {kept[0]!r} in {leaks[0]}", cure=cure,
                                        where=kept[0].where or (locate(code, 0) if code is not None else None))
        donated = self._donated(structure) if self.donate else frozenset()
        graph = Graph(inputs, outputs, self.name, env, frozenset(positions.index(k) for k in donated))
        places = dict(zip(inputs, positions))
        plan, ready = planned(graph, Call(target, bound, lies, {inputs[k]: kind for k, kind in scalars.items()}, layouts, places,
                                          self.fallback is not None))
        for made, form in zip(plan.outputs, forms):
            made.form = form
        watch.check()  # makes ready what later calls need
        scalars = {positions[k]: kind for k, kind in scalars.items()}
        self.compilations += 1
        fits = Fits(trace.narrowings, places, self.__wrapped__) if trace.narrowings else None
        build = None if out_structure == LEAF and not constants else builder(out_structure, dict(constants))
        return Specialisation(family, pattern, plan, build, watch, scalars, fits, time.perf_counter() - start, ready)

    # -------------------------------------------------------------------------------------- looking inside
    def _need(self) -> Specialisation:
        if self._last is None:
            raise FuelError(f"{self.name} has not been called yet", where=user_location(),
                            cure="call it once: a plan is made for actual arguments")
        return self._last

    @property
    def graph(self) -> Graph:
        """The traced graph of the latest call; prints as a Python program."""
        return self._need().plan.graph

    @property
    def plan(self) -> Plan:
        """What the latest call ran: launches, kernels, memory."""
        return self._need().plan

    @property
    def guards(self) -> list[Guard]:
        """The conditions on symbolic lengths under which the latest call's plan holds."""
        return list(self._need().plan.graph.env.guards)

    @property
    def misses(self) -> list[str]:
        """For each compilation after the first (the latest 256), what differed from the plans there were."""
        return list(self._misses)

    def explain(self, folded: bool | None = None) -> Explanation:
        """What the latest call ran and why: key, guards, copies, kernels, and what made earlier calls compile anew. A str.
        folded: as for `plan.format`."""
        from .compiler.show import Explanation, count, decisions

        s = self._need()
        title = (f"{self.name}: {count(self.compilations, 'compilation')}, {count(len(s.instances), 'set')} of lengths, "
                 f"traced and planned in {s.trace_seconds * 1e3:.1f} ms")
        inputs = {n.attr("name"): n for n in s.plan.graph.inputs}
        arguments = [f"  {name}: " + (str(inputs[name].aval) if name in inputs else "an object, by identity")
                     for name in self._leaf_names(s.key[0])]
        arguments += [f"  {line}" for line in self.parameters.statics_in_words(s.key[2])]
        arguments += ["  what a device has no kernel for may run on the CPU (fallback)"] * (self.fallback is not None)
        watched = s.guards.describe() + [f"length condition: {g}" for g in s.plan.graph.env.guards]
        sections = [("arguments:", arguments), ("compiled anew because:", [f"  {m}" for m in self._misses]),
                    ("guards:", [f"  {g}" for g in watched])]
        return Explanation(title, [p for p in sections if p[1]] + decisions(s.plan, s.divided(), folded))

    def clear(self) -> None:
        """Forget all plans. Kernels stay in the cache."""
        with self._lock:
            self._keep({})
            self._specialisations.clear()
            self._seen.clear()
            self._misses.clear()
            self._last, self.compilations = None, 0


def _found_by_name(function: Jitted[..., Any]) -> bool:
    """Does the name of its module lead to the jitted function itself, so that another process finds it there? Cloudpickle
    takes functions of __main__ to processes with another one."""
    if getattr(function, "__module__", "") == "__main__" and "cloudpickle" in sys._getframe(2).f_globals.get("__name__", ""):
        return False
    found: Any = sys.modules.get(getattr(function, "__module__", ""))
    for part in getattr(function, "__qualname__", "<locals>").split("."):
        found = getattr(found, part, None)
    return found is function


def _no_memory(name: str, err: Exception) -> BackendError:
    return BackendError(f"{name}() needs more memory than there is: {str(err) or type(err).__name__}",
                        cure="use smaller arrays, or fewer of them at once")


class _Progress(threading.local):
    """Who wants to hear of kernels being compiled."""

    report: Callable[[int, int, str], None] | None = None


_progress = _Progress()


def on_compile(report: Callable[[int, int, str], None] | None) -> None:
    """Have `report(done, total, kernel)` called for each kernel that calls in this thread need, while they compile."""
    _progress.report = report


@overload
def jit(fn: Callable[P, R]) -> Jitted[P, R]: ...
@overload
def jit(*, static_argnames: Iterable[str] | str = ..., static_argnums: Iterable[int] | int = ...,
        donate: Iterable[str] | str = ..., dims: Mapping[str, Sequence[str | None]] | None = ...,
        fallback: str | None = ...) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...
def jit(fn: Any = None, *, static_argnames: Iterable[str] | str = (), static_argnums: Iterable[int] | int = (),
        donate: Iterable[str] | str = (), dims: Mapping[str, Sequence[str | None]] | None = None,
        fallback: str | None = None) -> Any:
    """Compile a NumPy function: `@jit`, or `@jit(static_argnames=..., donate=..., dims=..., fallback=...)`.

    Arguments are arrays and Python numbers, nested in lists, tuples, dicts and dataclasses; results are arrays and NumPy scalars,
    as NumPy has them, in the same kinds of containers. Inputs are never modified, except donated ones. A default that a call
    leaves out stays the Python value it is, so that with `def f(x, n=3)`, `range(n)` works in `f(x)`; in `f(x, 3)` n is an
    argument like others. Defaults that hold arrays are arguments in either case.

    static_argnames: parameters whose (hashable) values are compiled in; each new value compiles anew, and so does an object
        whose attributes that the function reads have changed.
    static_argnums: the same by position, a number or several; -1 is the last parameter.
    donate: parameters whose arrays may be overwritten, so that results can be written in place; a result that is such a
        buffer's next version is returned as the same array object. After a FuelIndexError they keep what was written before.
    dims: names for axis lengths that vary, e.g. `{"x": ("n", None)}`; without it, a length becomes symbolic when a second
        one is seen. One name is one length.
    fallback: "cpu" lets the CPU run what a device has no kernel for, with copies there and back that `explain()` lists; without
        it, that is a NoBackendForOp.
    """
    if fn is None:
        return lambda f: Jitted(f, static_argnames, donate, dims, static_argnums, fallback)
    return Jitted(fn, static_argnames, donate, dims, static_argnums, fallback)


def cache_stats() -> modcache.Stats:
    """Kernels compiled and loaded from the cache by this process."""
    return modcache.stats
