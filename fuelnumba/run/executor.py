"""A plan for given lengths, and its calls.

An `Instance` is a plan with its symbols bound: table, argument blocks and arena, in as many `Frame`s as callers run it at
once. A call writes the addresses of its arrays into a frame, hands the table to the walker, and looks at the status word.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..compiler import modcache
from ..compiler.codegen import SLOTS
from ..compiler.plan import LaunchStep, Plan, Pointer, Storage
from ..core.dims import evaluate
from ..core.errors import ArgumentError, FuelIndexError
from . import cpu
from .fits import Fits
from .memory import Recycler, address, aligned_bytes, arrange

# In operations of a vectorised kernel, about 30 ps each: 6 us, several times a meeting of the threads; and 60 us for a plan,
# since threads that sleep take that long to wake
WORTH_DIVIDING = 200_000
WORTH_WAKING = 2_000_000
WORTH_RELEASING = 100_000  # 3 us: for less, letting go of the GIL and taking it again is not worth its time

FAULTS = {
    1: "index {0} is out of range for an axis of length {1}",
    2: "write_slice(): start {0} is out of range: it must lie in 0..{1} for the slice to fit; nothing was written",
    3: "length {0} is out of range: the buffer holds {1} rows",
}


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
        self.blocks = np.array(instance.template, np.int64) if instance.template else np.zeros(1, np.int64)
        base, block, status = self.bases.ctypes.data, self.blocks.ctypes.data, self.status.ctypes.data
        for at, storage in instance.pointer_slots:
            self.blocks[at] = base + 8 * storage
        for at in instance.status_slots:
            self.blocks[at] = status
        self.table = np.array(instance.rows, np.int64).reshape(-1, cpu.ROW)
        self.table[:, 1] = self.table[:, 1] * 8 + block
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


class Instance:
    """A plan for one set of lengths. Safe to call from several threads."""

    def __init__(self, plan: Plan, env: Mapping[str, int], scalars: Mapping[int, str], fits: Fits | None = None,
                 progress: Any = None) -> None:
        self.plan, self.fits = plan, fits
        self.scalars = dict(scalars)  # argument number -> kind 'b', 'i' or 'f' of a Python scalar
        self.lengths = env = dict(env)

        def number(x: Any) -> int:
            return evaluate(x, env)

        addresses = dict(zip((s.key for s in plan.sources), modcache.functions(plan.sources, progress)))
        self.temporaries = [s for s in plan.storages if s.kind == "temporary"]
        self.offsets, self.arena_size = arrange([number(s.nbytes) for s in self.temporaries],
                                                [(s.first, s.last) for s in self.temporaries])
        self.template: list[int] = []
        self.pointer_slots: list[tuple[int, int]] = []
        self.status_slots: list[int] = []
        self.rows: list[list[int]] = []
        self.segments: list[Segment] = []
        self.sites: list[LaunchStep] = []
        self.uses_blas = any(s.blas for s in plan.launches)
        pending: list[tuple[LaunchStep, int, int]] = []
        for step in plan.launches:
            total = number(step.total)
            if step.user is not None:
                self._segment(pending, addresses, number)
                pending = []
                self.segments.append(Segment(0, 0, 0, False, False, step))
            elif total > 0:
                pending.append((step, self._block(step, number), total))
        self._segment(pending, addresses, number)
        self.user_arrays = {
            id(s): [(p.storage.id, number(p.offset), tuple(map(number, la.shape)), tuple(map(number, la.strides)), d)
                    for p, la, d in s.arrays] for s in plan.launches if s.user is not None}
        self.slots = {k: at for at, k in enumerate(self.scalars)}
        self.inputs = [(s.id, s.index) for s in plan.storages if s.kind == "input"]
        self.donated = [(k, o.donated) for k, o in enumerate(plan.outputs) if o.donated is not None]
        self.outputs: list[tuple[int, Recycler, list[int]]] = []  # storage, its buffers, the numbers of the results in it
        for storage in dict.fromkeys(o.storage for o in plan.outputs if o.donated is None):
            inside = {k: o for k, o in enumerate(plan.outputs) if o.storage is storage}
            forms = [(tuple(map(number, o.shape)), o.dtype.numpy) for o in inside.values()]
            self.outputs.append((storage.id, Recycler(number(storage.nbytes), forms), list(inside)))
        self.blank = [None] * len(plan.outputs)
        self.forms = [(k, o.form) for k, o in enumerate(plan.outputs) if o.form != "array"]
        self.frames: list[Frame] = []
        self.alone = cpu.alone()

    def _block(self, step: LaunchStep, number: Any) -> int:
        """Append the launch's argument block to the template; returns where it starts."""
        start = len(self.template)
        site = len(self.sites)
        self.sites.append(step)
        assert step.source is not None
        for param, value in zip(step.source.params, step.args):
            at = len(self.template)
            if isinstance(value, Pointer):
                self.pointer_slots.append((at, value.storage.id))
                self.template += [0, number(value.offset)]
            elif value == "status":
                self.status_slots.append(at)
                self.template.append(0)
            elif value == "site":
                self.template.append(site)
            elif param.kind == "float":
                self.template.append(struct.unpack("<q", struct.pack("<d", float(_plain(value, number))))[0])
            else:
                self.template.append(int(_plain(value, number)))
            assert len(self.template) == at + SLOTS[param.kind]
        return start

    def _segment(self, launches: list[tuple[LaunchStep, int, int]], addresses: Mapping[str, int],
                 number: Any) -> None:
        """Append table rows for launches that follow one another without Python between."""
        if not launches:
            return
        first, meetings, work, whole = len(self.rows), 0, 0, 0
        unmet: list[tuple[LaunchStep, bool]] = []  # launches since the last meeting of the threads
        for step, block, total in launches:
            cost = total * max(1, number(step.cost))
            divided = cost >= WORTH_DIVIDING and total > 1
            # threads meet before a launch that depends on one of which another thread did a part
            meets = any((divided or was) and _depends(step, earlier) for earlier, was in unmet)
            if meets:
                unmet = []
                meetings += 1
            unmet.append((step, divided))
            assert step.source is not None
            self.rows.append([addresses[step.source.key], block, total, int(divided), int(meets), 0, 0, 0])
            work += cost if divided else 0
            whole += cost
        self.segments.append(Segment(first, len(self.rows) - first, meetings, work >= WORTH_WAKING, whole < WORTH_RELEASING))

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
                    bases[sid] = self._scalar(frame, k, arguments[k])
                else:
                    bases[sid] = address(arguments[k])
            results: list[Any] = self.blank.copy()
            for sid, recycler, places in self.outputs:
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
                self._fail(frame)
            for k, form in self.forms:
                results[k] = results[k].item() if form == "python" else results[k][()]
        except BaseException:
            frame.status[:] = 0  # what a kernel had reported is not the next call's
            raise
        finally:
            self.frames.append(frame)
        return results

    def _walk(self, frame: Frame) -> None:
        for table, rows, meetings, together, brief, user in frame.segments:
            if brief:
                self.alone(table, rows)
            elif user is None:
                cpu.pool().run(table, rows, meetings, together)
            else:
                self._call_user(frame, user)

    def _scalar(self, frame: Frame, k: int, value: Any) -> int:
        slot = self.slots[k]
        kind = self.scalars[k]
        if kind == "f":
            frame.float_view[slot] = value
        elif kind == "i":
            try:
                frame.int_view[slot] = value
            except ValueError:
                raise ArgumentError(f"the Python int {value} does not fit i64", cure="pass a float") from None
        else:
            frame.int_view[slot] = int(value)
        return frame.scalar_address + 8 * slot

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

    def _fail(self, frame: Frame) -> None:
        code, value, site, bound = (int(v) for v in frame.status[:4])
        where = self.sites[site].where
        text = FAULTS.get(code, "kernel fault {0} ({1})").format(value, bound)
        cure = {1: "check the indices", 2: "check the start against the buffer's length",
                3: "check the length against the buffer's"}.get(code)
        raise FuelIndexError(text, where=where, cure=cure)


def _plain(value: Any, number: Any) -> Any:
    return value if isinstance(value, float) else number(value)


def _depends(later: LaunchStep, earlier: LaunchStep) -> bool:
    """Read after write, write after read, write after write. Temporaries share an arena, so any two may be one."""
    def keys(storages: list[Storage]) -> set[int]:
        return {-1 if s.kind == "temporary" else s.id for s in storages}

    return bool(keys(later.reads + later.writes) & keys(earlier.writes) or keys(later.writes) & keys(earlier.reads))
