"""One traced and planned form of a function, and which calls it serves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..compiler.plan import Plan
from ..core.dims import MIN_SYMBOL, Dim, Extent
from ..core.tree import TreeDef
from ..trace import guards
from .arguments import Signature
from .fits import Fits


@dataclass(eq=False)
class Specialisation:
    """One traced and planned form of a function, for a pattern of shapes."""

    key: Signature  # structure, static values, leaf kinds
    pattern: tuple[tuple[Extent, ...] | None, ...]  # per leaf: its shape, lengths that vary as Dims
    plan: Plan
    out_tree: TreeDef
    out_constants: list[tuple[int, Any]]  # results that are no arrays: position, value
    guards: guards.GuardSet
    scalars: dict[int, str]
    fits: Fits | None  # of the Python ints among the arguments
    trace_seconds: float
    ready: Callable[..., Any]  # makes an instance of the plan: see Target.instance
    instances: dict[Signature, Any] = field(default_factory=dict)  # lengths -> the target's instance

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
