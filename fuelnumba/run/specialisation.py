"""One traced and planned form of a function, and which calls it serves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..compiler.plan import Plan
from ..core.dims import MIN_SYMBOL, Dim, Extent
from ..core.treecode import matcher
from ..trace import guards
from .arguments import Signature, leaf_tests
from .fits import Fits
from .target import Target

WORTH_WRITING = 16  # calls of one kind, after which code that tells them pays


@dataclass(eq=False)
class Specialisation:
    """One traced and planned form of a function, for a pattern of shapes."""

    key: Signature  # structure, static values, leaf kinds
    pattern: tuple[tuple[Extent, ...] | None, ...]  # per leaf: its shape, lengths that vary as Dims
    plan: Plan
    build: Callable[[Sequence[Any]], Any] | None  # what is returned, of the results; None: the only one
    guards: guards.GuardSet
    scalars: dict[int, str]
    fits: Fits | None  # of the Python ints among the arguments
    trace_seconds: float
    ready: Callable[..., Any]  # makes an instance of the plan: see Target.instance
    instances: dict[Signature, Any] = field(default_factory=dict)  # lengths -> the target's instance

    def stranger(self, static: Signature) -> str | None:
        """What differs in a static object that is equal to this one's and is another: equality need not ask for all that the
        function reads. None if nothing does."""
        for (name, _, old), (_, _, now) in zip(self.key[2], static):
            if now is not old and (difference := self.guards.unlike(now, old, name)) is not None:
                return difference
        return None

    def bind(self, shapes: Sequence[tuple[int, ...] | None]) -> dict[str, int] | None:
        """The symbols' values for these shapes, or None when they do not fit."""
        env: dict[str, int] = {}
        for pattern, shape in zip(self.pattern, shapes):
            if pattern is None or shape is None:
                continue
            for p, n in zip(pattern, shape):
                if isinstance(p, Dim):
                    name = str(p)
                    if n < MIN_SYMBOL or env.setdefault(name, n) != n:
                        return None
                elif p != n:
                    return None
        return env if all(g.check(env) for g in self.plan.graph.env.guards) else None

    def misfits(self, names: Sequence[str], shapes: Sequence[tuple[int, ...] | None]) -> list[str]:
        """What differs, in words; empty when these shapes fit."""
        env: dict[str, int] = {}
        found = []
        for name, pattern, shape in zip(names, self.pattern, shapes):
            for axis, (p, n) in enumerate(zip(pattern or (), shape or ())):
                if isinstance(p, Dim):
                    if n < MIN_SYMBOL:
                        found.append(f"axis {axis} of {name} has length {n}: lengths 0 and 1 are compiled for on their own")
                    elif env.setdefault(str(p), n) != n:
                        found.append(f"axis {axis} of {name} has length {n} where {p} is {env[str(p)]}")
                elif p != n:
                    found.append(f"axis {axis} of {name} has length {n}, not {p}")
        if found:
            return found
        return [f"the condition {g} no longer holds" for g in self.plan.graph.env.guards if not g.check(env)]

    def divided(self) -> set[int]:
        """The numbers of the launches that threads share, for the latest lengths."""
        if not self.instances:
            return set()
        divided = next(reversed(self.instances.values())).divided()
        return {k for k, step in enumerate(self.plan.launches) if id(step) in divided}


class Route:
    """Where a call of one kind goes. Calls that come again are told by code that is written for them."""

    __slots__ = ("chosen", "hits", "instance", "match", "special", "static")

    def __init__(self, special: Specialisation, instance: Any) -> None:
        self.special, self.instance = special, instance
        self.hits = 0
        self.match: Callable[[tuple[Any, ...]], list[Any] | None] | None = None
        self.static: Signature | None = None  # the entries of a call that `match` is for
        self.chosen: Target | None = None  # and what `with device(...)` chose there

    def taken(self, key: Signature, leaves: Sequence[Any], static: Signature, target: Target | None) -> bool:
        """Count a call; is there code that tells the next ones?"""
        self.hits += 1
        if self.hits == WORTH_WRITING:
            self.match, self.static = matcher(key[0], leaf_tests(key[1], leaves)), static
            self.chosen = target
        return self.match is not None
