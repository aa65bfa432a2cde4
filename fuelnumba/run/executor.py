"""A plan for given lengths on the CPU, and its calls.

An `Instance` is a bound plan with a table of launches and an arena, in as many `Frame`s as callers run it at once. A call
writes the addresses of its arrays into a frame, hands the table to the walker, and looks at the status word.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..compiler import modcache
from ..compiler.plan import LaunchStep, Plan
from . import cpu
from .bound import Bound, Unmet
from .fits import Fits
from .memory import Recycler, address, aligned_bytes

# In operations of a vectorised kernel, about 30 ps each: 6 us, several times a meeting of the threads; and 60 us for a plan,
# since threads that sleep take that long to wake
WORTH_DIVIDING = 200_000
WORTH_WAKING = 2_000_000
WORTH_RELEASING = 100_000  # 3 us: for less, letting go of the GIL and taking it again is not worth its time


class Frame:
    """The memory of one call in progress. The addresses in its blocks are fixed; `bases` are set by each call."""

    def __init__(self, instance: Instance) -> None:
        plan = instance.plan
        self.bases = np.zeros(max(len(plan.storages), 1), np.int64)
        self.status = np.zeros(8, np.int64)
        self.scalars = np.zeros(max(len(instance.scalars), 1), np.float64)
        self.arena, first = aligned_bytes(instance.arena_size)
        start = self.arena.ctypes.data + first
        for s, offset in zip(instance.temporaries, instance.offsets):
            self.bases[s.id] = start + offset
        for s in plan.storages:
            if s.array is not None:
                self.bases[s.id] = s.array.ctypes.data
        self.blocks = instance.blocks(self.bases.ctypes.data, self.status.ctypes.data)
        self.table = np.array(instance.rows, np.int64).reshape(-1, cpu.ROW)
        self.table[:, 1] = self.table[:, 1] * 8 + self.blocks.ctypes.data
        self.base_view = self.bases.data
        self.float_view = self.scalars.data
        self.int_view = self.scalars.view(np.int64).data
        self.status_view = self.status.data
        self.scalar_address = self.scalars.ctypes.data
        start = self.table.ctypes.data
        self.segments = [(start + s.first * 8 * cpu.ROW, s.rows, s.meetings, s.together, s.brief, s.user)
                         for s in instance.segments]


class Segment(NamedTuple):
    """Table rows that run without Python between them, or one call of a user's Numba function."""

    first: int
    rows: int
    meetings: int  # rows before which the threads meet
    together: bool  # worth waking the threads for
    brief: bool  # not worth letting go of the GIL
    user: LaunchStep | None = None


class Instance(Bound):
    """A plan for one set of lengths on the CPU. Safe to call from several threads."""

    def __init__(self, plan: Plan, env: Mapping[str, int], scalars: Mapping[int, str], fits: Fits | None = None,
                 progress: Any = None) -> None:
        super().__init__(plan, env, scalars, fits)
        number = self.number
        addresses = dict(zip((s.key for s in plan.sources), modcache.functions(plan.sources, progress)))
        self.rows: list[list[int]] = []
        self.segments: list[Segment] = []
        self.uses_blas = any(s.blas for s in plan.launches)
        pending: list[tuple[LaunchStep, int, int]] = []
        for step in plan.launches:
            total = number(step.total)
            if step.user is not None:
                self._segment(pending, addresses)
                pending = []
                self.segments.append(Segment(0, 0, 0, False, False, step))
            elif total > 0:
                pending.append((step, self.block(step), total))
        self._segment(pending, addresses)
        self.user_arrays = {
            id(s): [(p.storage.id, number(p.offset), tuple(map(number, la.shape)), tuple(map(number, la.strides)), d)
                    for p, la, d in s.arrays] for s in plan.launches if s.user is not None}
        self.donated = [(k, o.donated) for k, o in enumerate(plan.outputs) if o.donated is not None]
        self.buffers: list[tuple[int, Recycler, list[int]]] = []  # storage, its buffers, the numbers of the results in it
        for storage in dict.fromkeys(o.storage for o in plan.outputs if o.donated is None):
            inside = {k: o for k, o in enumerate(plan.outputs) if o.storage is storage}
            forms = [(tuple(map(number, o.shape)), o.dtype.numpy) for o in inside.values()]
            self.buffers.append((storage.id, Recycler(number(storage.nbytes), forms), list(inside)))
        self.blank = [None] * len(plan.outputs)
        self.forms = [(k, o.form) for k, o in enumerate(plan.outputs) if o.form != "array"]
        self.frames: list[Frame] = []
        self.alone = cpu.alone()

    def _segment(self, launches: list[tuple[LaunchStep, int, int]], addresses: Mapping[str, int]) -> None:
        """Append table rows for launches that follow one another without Python between."""
        if not launches:
            return
        first, meetings, work, whole = len(self.rows), 0, 0, 0
        unmet = Unmet()
        for step, block, total in launches:
            cost = total * max(1, self.number(step.cost))
            divided = cost >= WORTH_DIVIDING and total > 1
            meets = unmet.calls_for_meeting(step, divided)
            if meets:
                unmet = Unmet()
                meetings += 1
            unmet.add(step, divided)
            assert step.source is not None
            self.rows.append([addresses[step.source.key], block, total, int(divided), int(meets), 0, 0, 0])
            work += cost if divided else 0
            whole += cost
        self.segments.append(Segment(first, len(self.rows) - first, meetings, work >= WORTH_WAKING, whole < WORTH_RELEASING))

    def divided(self) -> set[int]:
        return {id(step) for step, row in zip(self.sites, self.rows) if row[3]}

    # ------------------------------------------------------------------------------------------- a call
    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        """Run on arrays and Python scalars, in the order of the graph's inputs. Raises FuelIndexError, ArgumentError."""
        if self.fits is not None:
            self.fits.check(arguments, self.lengths)
        try:
            frame = self.frames.pop()
        except IndexError:
            frame = Frame(self)
        bases = frame.base_view
        scalars = self.scalars
        try:
            for sid, k in self.inputs:
                if k in scalars:
                    slot = self.write_scalar(frame.float_view, frame.int_view, k, arguments[k])
                    bases[sid] = frame.scalar_address + 8 * slot
                else:
                    bases[sid] = address(arguments[k])
            results: list[Any] = self.blank.copy()
            for sid, recycler, places in self.buffers:
                buffer = recycler.take()
                bases[sid] = buffer[2]
                for place, array in zip(places, buffer[3]):
                    results[place] = array[...]
                recycler.put(buffer)
            for place, donated in self.donated:
                results[place] = arguments[donated]
            if self.uses_blas:
                with cpu.single_threaded_blas:
                    self._walk(frame)
            else:
                self._walk(frame)
            if frame.status_view[0]:
                raise self.fault(frame.status_view)
            for k, form in self.forms:
                results[k] = results[k].item() if form == "python" else results[k][()]
        except BaseException:
            frame.status[:] = 0  # what a kernel had reported is not the next call's
            raise
        finally:
            self.frames.append(frame)
        return results

    def begin(self, arguments: Sequence[Any]) -> tuple[list[Any], Callable[[], None] | None]:
        return self(arguments), None

    def _walk(self, frame: Frame) -> None:
        for table, rows, meetings, together, brief, user in frame.segments:
            if brief:
                self.alone(table, rows)
            elif user is None:
                cpu.pool().run(table, rows, meetings, together)
            else:
                self._call_user(frame, user)

    def _call_user(self, frame: Frame, step: LaunchStep) -> None:
        """A user's Numba function on arrays over the plan's buffers."""
        arrays = []
        for sid, offset, shape, strides, dtype in self.user_arrays[id(step)]:
            bits = np.dtype(f"u{dtype.itemsize}") if dtype.name in ("f16", "bf16") or dtype.is_storage_only else dtype.numpy
            size = max(int(np.prod(shape)), 1) * dtype.itemsize
            raw: Any = (ctypes.c_char * size).from_address(int(frame.bases[sid]) + offset)
            arrays.append(np.ndarray(shape, bits, raw, 0, tuple(s * dtype.itemsize for s in strides)))
        assert step.user is not None
        step.user(*arrays, *step.args)
