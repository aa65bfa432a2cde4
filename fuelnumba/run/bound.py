"""A plan with its symbols bound to lengths: what is the same on every target. Argument blocks, where temporaries lie, the
shapes of the results; a target's own instances (`run.executor` for the CPU) add frames, a table and calls."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..compiler.codegen import SLOTS
from ..compiler.plan import LaunchStep, Plan, Pointer
from ..core.dims import Extent, evaluate
from ..core.errors import ArgumentError, FuelIndexError
from .fits import Fits
from .memory import arrange

FAULTS = {
    1: ("index {0} is out of range for an axis of length {1}", "check the indices"),
    2: ("write_slice(): start {0} is out of range: it must lie in 0..{1} for the slice to fit; nothing was written",
        "check the start against the buffer's length"),
    3: ("length {0} is out of range: the buffer holds {1} rows", "check the length against the buffer's"),
}


class Bound(ABC):
    """A plan for one set of lengths, before a machine has seen it."""

    @abstractmethod
    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        """Run on arrays and Python scalars, in the order of the graph's inputs. Raises FuelErrors."""

    @abstractmethod
    def begin(self, arguments: Sequence[Any]) -> tuple[list[Any], Callable[[], None] | None]:
        """As a call, which need not be over: the results, and what is still to be called before they are handed out, which
        waits and raises FuelIndexError for what a kernel met. None: nothing."""

    def __init__(self, plan: Plan, env: Mapping[str, int], scalars: Mapping[int, str], fits: Fits | None = None) -> None:
        self.plan, self.fits = plan, fits
        self.scalars = dict(scalars)  # argument number -> kind 'b', 'i' or 'f' of a Python scalar
        self.lengths = dict(env)
        self.temporaries = [s for s in plan.storages if s.kind == "temporary"]
        self.offsets, self.arena_size = arrange([self.number(s.nbytes) for s in self.temporaries],
                                                [(s.first, s.last) for s in self.temporaries])
        self.template: list[int] = []
        self.pointer_slots: list[tuple[int, int]] = []  # where the address of a storage's base cell goes
        self.status_slots: list[int] = []
        self.sites: list[LaunchStep] = []
        self.slots = {k: at for at, k in enumerate(self.scalars)}
        self.inputs = [(s.id, s.index) for s in plan.storages if s.kind == "input"]
        self.outputs = [(o.storage.id, tuple(map(self.number, o.shape)), o.dtype.numpy, o.donated) for o in plan.outputs]

    def number(self, x: Extent) -> int:
        return evaluate(x, self.lengths)

    def block(self, step: LaunchStep) -> int:
        """Append the launch's argument block to the template; returns where it starts."""
        start = len(self.template)
        site = len(self.sites)
        self.sites.append(step)
        assert step.source is not None
        for param, value in zip(step.source.params, step.args):
            at = len(self.template)
            if isinstance(value, Pointer):
                self.pointer_slots.append((at, value.storage.id))
                self.template += [0, self.number(value.offset)]
            elif value == "status":
                self.status_slots.append(at)
                self.template.append(0)
            elif value == "site":
                self.template.append(site)
            elif param.kind == "float":
                self.template.append(struct.unpack("<q", struct.pack("<d", float(_plain(value, self.number))))[0])
            else:
                self.template.append(int(_plain(value, self.number)))
            assert len(self.template) == at + SLOTS[param.kind]
        return start

    def blocks(self, bases: int, status: int) -> np.ndarray[Any, Any]:
        """The argument blocks of all launches, for base cells and status words at these addresses."""
        words = np.array(self.template or [0], np.int64)
        for at, storage in self.pointer_slots:
            words[at] = bases + 8 * storage
        for at in self.status_slots:
            words[at] = status
        return words

    def divided(self) -> set[int]:
        """The ids of the launches that threads share."""
        return set()

    def write_scalar(self, floats: Any, ints: Any, k: int, value: Any) -> int:
        """Put the Python scalar of argument `k` into its word (two views of one memory); returns which."""
        slot = self.slots[k]
        kind = self.scalars[k]
        if kind == "f":
            floats[slot] = value
        elif kind == "i":
            try:
                ints[slot] = value
            except (ValueError, OverflowError):
                raise ArgumentError(f"the Python int {value} does not fit i64", cure="pass a float") from None
        else:
            ints[slot] = int(value)
        return slot

    def fault(self, words: Sequence[int]) -> FuelIndexError:
        """What the status words say that a kernel met."""
        code, value, site, bound = (int(v) for v in words[:4])
        text, cure = FAULTS.get(code, (f"kernel fault {value} ({bound})", None))
        return FuelIndexError(text.format(value, bound), where=self.sites[site].where, cure=cure)


def _plain(value: Any, number: Callable[[Extent], int]) -> Any:
    return value if isinstance(value, float) else number(value)


class Unmet:
    """What launches have read and written since the threads met last: those that were divided among them, and all."""

    def __init__(self) -> None:
        self.read: dict[bool, set[int]] = {True: set(), False: set()}
        self.written: dict[bool, set[int]] = {True: set(), False: set()}

    def calls_for_meeting(self, step: LaunchStep, divided: bool) -> bool:
        """Whether a launch depends on one of which another thread than its own did a part: read after write, write after read
        or write after write."""
        reads, writes = _touched(step)
        others = not divided  # an undivided one is the caller's, as others of its kind are
        return not (self.written[others].isdisjoint(reads | writes) and self.read[others].isdisjoint(writes))

    def add(self, step: LaunchStep, divided: bool) -> None:
        reads, writes = _touched(step)
        for of in {divided, False}:
            self.read[of] |= reads
            self.written[of] |= writes


def _touched(step: LaunchStep) -> tuple[set[int], set[int]]:
    """The storages that a launch reads and writes. Temporaries share an arena, so any two may be one."""
    reads, writes = ({-1 if s.kind == "temporary" else s.id for s in storages} for storages in (step.reads, step.writes))
    return reads, writes
