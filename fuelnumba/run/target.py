"""Targets: the machines that plans run on, and which one calls use.

A target answers what depends on the machine: which kernels are bound there, how a plan becomes something that runs, what the
text of a kernel looks like there, how arrays come and go. The CPU is one; others live in rooms of their own, which are
imported when they are first asked for.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import numpy as np

from ..compiler import bindings
from ..compiler.codegen import Source
from ..compiler.plan import Plan
from ..core.errors import ArgumentError
from ..core.ops import CPU, shown
from ..core.tree import flatten_leaves, unflatten
from ..trace.apply import call
from ..trace.traced import current_trace
from .array import DeviceArray
from .bound import Bound
from .fits import Fits

ROOMS = {"vulkan": "fuelnumba.vk.target"}  # backend -> the module whose `open_target(which)` gives its targets


class Target(ABC):
    """A machine. `with target:` makes it the one that calls in this thread run on; such blocks nest."""

    name: str  # as shown, and as `device()` takes it: 'cpu', 'vulkan:0'
    backend: str  # its key in the binding table

    def bindings(self) -> bindings.Bindings:
        """What is bound on it now."""
        return bindings.current(self.backend)

    @abstractmethod
    def instance(self, plan: Plan, env: Mapping[str, int], scalars: Mapping[int, str], fits: Fits | None,
                 progress: Any) -> Bound:
        """A plan made ready for lengths: called with a function's leaves, it gives the results. Raises FuelErrors."""

    @abstractmethod
    def admit(self, plan: Plan) -> None:
        """Raises NoBackendForOp for a kernel that needs what this machine does not have."""

    @abstractmethod
    def text(self, source: Source, group: int) -> str:
        """The text of a kernel in this machine's language."""

    @abstractmethod
    def put(self, array: np.ndarray[Any, Any]) -> Any:
        """A copy of an array there."""

    def __enter__(self) -> Target:
        _chosen.set((*_chosen.get(), self))
        return self

    def __exit__(self, *exc: object) -> None:
        _chosen.set(_chosen.get()[:-1])

    def __repr__(self) -> str:
        return f"<device {self.name}>"

    def __reduce__(self) -> Any:
        return device, (self.name,)


class CpuTarget(Target):
    """This process: kernels are machine code, arrays are NumPy's."""

    name = backend = CPU

    def instance(self, plan: Plan, env: Mapping[str, int], scalars: Mapping[int, str], fits: Fits | None,
                 progress: Any) -> Bound:
        from .executor import Instance

        return Instance(plan, env, scalars, fits, progress)

    def admit(self, plan: Plan) -> None:
        """All is there."""

    def text(self, source: Source, group: int) -> str:
        return source.text()

    def put(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.array(array, order="C")


cpu = CpuTarget()
_chosen: ContextVar[tuple[Target, ...]] = ContextVar("fuelnumba_device", default=())


def chosen() -> Target | None:
    """The target of the innermost `with device(...)` around this call."""
    stack = _chosen.get()
    return stack[-1] if stack else None


def device(which: str | Target) -> Target:
    """A machine to run on: `with fuelnumba.device("vulkan"):` runs what is called inside there.

    which: "cpu"; "vulkan" (its first device), "vulkan:1" (by number), "vulkan:NAME" (part of its name) or "vulkan:cpu",
    "vulkan:discrete", "vulkan:integrated" (by kind); or what this function gave before. Raises ArgumentError for what is no
    device, and BackendError, which says what to install, when the backend is not there.
    """
    if isinstance(which, Target):
        return which
    if not isinstance(which, str):
        raise ArgumentError(f"a device is named by a string, not {shown(which)}", cure=f"one of: {', '.join((CPU, *ROOMS))}")
    backend, _, rest = which.partition(":")
    if which == CPU:
        return cpu
    if backend not in ROOMS:
        raise ArgumentError(f"there is no backend {shown(which if backend == CPU else backend)}",
                            cure=f"the backends are: {', '.join((CPU, *ROOMS))}")
    found: Target = importlib.import_module(ROOMS[backend]).open_target(rest)
    return found


def to_device(x: Any, which: str | Target) -> Any:
    """`x` on a device: DeviceArrays there, or NumPy arrays for "cpu"; what is there already stays as it is.

    In a jitted function, what is computed from the value runs there; it is copied when it lies elsewhere.

    x: an array, a number, a DeviceArray, or lists, tuples, dicts and dataclasses of these. which: as for `device`. Raises
    DTypeError and InputArrayError for what is no array of numbers, BackendError when there is no room.
    """
    target = device(which)
    leaves: list[Any] = []
    structure = flatten_leaves(x, leaves)
    if current_trace() is not None:
        return unflatten(structure, [call("to_device", leaf, device=target.name) for leaf in leaves])
    there: dict[int, Any] = {}  # an array that stands in several places goes over once
    for leaf in leaves:
        if id(leaf) not in there:
            there[id(leaf)] = moved(leaf, target)
    return unflatten(structure, [there[id(leaf)] for leaf in leaves])


def moved(leaf: Any, target: Target) -> Any:
    """An array on a machine: itself, or a copy when it lies on another one."""
    if isinstance(leaf, DeviceArray):
        return leaf if leaf.device is target else target.put(leaf.numpy())
    if target is cpu:
        return np.asarray(leaf)
    return target.put(leaf if isinstance(leaf, np.ndarray) else np.asarray(leaf))  # which refuses masked arrays
