"""Vulkan devices as targets, and plans on them.

An instance's launches are recorded once, into a command buffer that begins by copying the call's words (base cells, scalars,
a clear status) from host memory to the device. So every call after the first is a replay: it writes addresses into the words
and submits. Calls do not wait for the device, unless a kernel may report a fault. The device runs submissions one after
another; temporaries are therefore shared by all calls of an instance.
"""

from __future__ import annotations

import threading
import weakref
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..compiler import bindings
from ..compiler.bindings import FALL_BACK, asked_of
from ..compiler.codegen import Source
from ..compiler.plan import LaunchStep, Plan, Storage
from ..core.errors import BackendError, CompileError, NoBackendForOp
from ..run.array import DeviceArray
from ..run.bound import Bound
from ..run.fits import Fits
from ..run.target import Target
from . import spirv
from .device import FEATURES, Device, open_device
from .glsl import LOCAL

STATUS_WORDS = 8
MOST_FRAMES = 4  # calls of one instance that may be on their way at once; another one waits for the first of them

OPTIONAL = frozenset((*FEATURES, "subgroup"))  # what kernels may need and a device may lack

_targets: dict[str, VulkanTarget] = {}  # by name, closed ones too
_opening = threading.Lock()


def open_target(which: str) -> VulkanTarget:
    """The target of a device: by number, kind or name; '' for the first. Raises ArgumentError, BackendError."""
    device = open_device(int(which) if which.isdecimal() else which or None)
    with _opening:
        made = VulkanTarget(device)
        found = _targets.get(made.name)
        if found is not None and found.machine is device:
            return found
        if found is not None:
            bindings.changed(f"{made.name} was opened anew")  # graphs name it, and their plans hold the closed one
        _targets[made.name] = made
        return made


class VulkanTarget(Target):
    """A Vulkan device."""

    backend = "vulkan"

    def __init__(self, device: Device) -> None:
        self.machine = device
        self.name = f"vulkan:{device.info.index}"
        self._constants: dict[int, _Constant] = {}

    def __repr__(self) -> str:
        return f"<device {self.name}: {self.machine.info.name}>"

    def close(self) -> None:
        """Give everything back to the driver. Arrays on the device can no longer be read."""
        self._constants.clear()
        self.machine.close()

    def instance(self, plan: Plan, env: Mapping[str, int], scalars: Mapping[int, str], fits: Fits | None,
                 progress: Any) -> VulkanInstance:
        return VulkanInstance(self, plan, env, scalars, fits, progress)

    def admit(self, plan: Plan) -> None:
        machine = self.machine
        if machine.features >= OPTIONAL:  # most have all: no need to print the kernels for this
            return
        for step in plan.launches:
            assert step.source is not None
            missing = spirv.shader(step.source, step.group).needs & OPTIONAL - machine.features
            if missing:
                raise NoBackendForOp(f"no kernel for {asked_of(step.nodes[-1])} on {self.name}: {step.label} needs "
                                     f"{', '.join(sorted(missing))}, which {machine.info.name} does not have", where=step.where,
                                     cure=f"cast to a dtype that it has, run it on another device, or {FALL_BACK}")

    def text(self, source: Source, group: int) -> str:
        return spirv.shader(source, group).text

    # -------------------------------------------------------------------------------------- arrays
    def put(self, array: np.ndarray[Any, Any]) -> DeviceArray:
        from ..trace.foreign import check_array

        check_array(array)
        return self.array(self.upload(array), array.shape, array.dtype)

    def array(self, buffer: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceArray:
        return DeviceArray(self, buffer, shape, dtype, self.fetch)

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        """A new buffer with an array's elements in C order."""
        buffer = self.machine.memory.take(max(array.nbytes, 1))
        if array.size:
            self.machine.upload(buffer, 0, np.ascontiguousarray(array))
        return buffer

    def fetch(self, buffer: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        out = np.empty(shape, dtype)
        if out.size:
            self.machine.download(buffer, 0, out)
        return out

    def constant(self, array: Any) -> Any:
        """The buffer of a captured array. A writeable one is compared by its checksum, so that a write into it shows."""
        if isinstance(array, DeviceArray):
            return array.buffer
        found = self._constants.get(id(array))
        if found is None or found.array() is not array:
            found = self._constants[id(array)] = _Constant(array, self._constants)
        if found.buffer is None or found.is_changed(array):
            found.buffer = self.upload(array)
        return found.buffer


class _Constant:
    """A captured array on the device."""

    def __init__(self, array: np.ndarray[Any, Any], table: dict[int, _Constant]) -> None:
        key = id(array)
        self.array = weakref.ref(array, lambda _: table.pop(key, None))
        self.buffer: Any = None
        self.sum = self._checksum(array)

    @staticmethod
    def _checksum(array: np.ndarray[Any, Any]) -> int:
        return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    def is_changed(self, array: np.ndarray[Any, Any]) -> bool:
        base: Any = array
        while isinstance(base, np.ndarray):
            if base.flags.writeable:
                break
            base = base.base
        else:
            return False  # nobody can write to it
        before, self.sum = self.sum, self._checksum(array)
        return self.sum != before


class _Frame:
    """A call's words in host memory, and the commands that copy them over and run the plan."""

    def __init__(self, instance: VulkanInstance) -> None:
        machine = instance.target.machine
        self.words = machine.memory.take(8 * instance.word_count, host=True)
        assert self.words.host is not None
        self.ints = np.frombuffer(self.words.host, np.int64, instance.word_count)
        self.floats = self.ints.view(np.float64)
        self.ints[:] = 0
        for sid, address in instance.fixed:
            self.ints[sid] = address
        self.commands = instance.record(self)
        self.epoch = 0

    def status(self) -> list[int]:
        return [int(v) for v in self.ints[-STATUS_WORDS:]]


class VulkanInstance(Bound):
    """A plan for one set of lengths on a Vulkan device. Safe to call from several threads: they take turns."""

    def __init__(self, target: VulkanTarget, plan: Plan, env: Mapping[str, int], scalars: Mapping[int, str],
                 fits: Fits | None, progress: Any) -> None:
        super().__init__(plan, env, scalars, fits)
        self.target = target
        machine = target.machine
        self.launches: list[tuple[LaunchStep, int, int, int]] = []  # step, pipeline, where its block starts, work items
        for k, step in enumerate(plan.launches):
            if progress is not None:
                progress(k, len(plan.launches), step.label)
            total = self.number(step.total)
            if total > 0:
                self.launches.append((step, self._pipeline(step), self.block(step), total))
        if progress is not None:
            progress(len(plan.launches), len(plan.launches), "")
        # the words of a call: base cells, Python scalars, status; then, on the device only, the argument blocks
        self.first_scalar = len(plan.storages)
        self.first_status = self.first_scalar + len(self.scalars)
        self.word_count = self.first_status + STATUS_WORDS
        self.cells = machine.memory.take(8 * (self.word_count + len(self.template) + 1))
        self.blocks_at = self.cells.address + 8 * self.word_count
        blocks = self.blocks(self.cells.address, self.cells.address + 8 * self.first_status)
        machine.upload(self.cells, 8 * self.word_count, blocks)
        self.arena = machine.memory.take(max(self.arena_size, 1))
        self.fixed = [(s.id, self.arena.address + at) for s, at in zip(self.temporaries, self.offsets)]
        self.places = {s.id: ("arena", at, at + max(self.number(s.nbytes), 1)) for s, at in zip(self.temporaries, self.offsets)}
        self.constants = [s for s in plan.storages if s.array is not None]
        self.sizes = {o.storage.id: max(self.number(o.storage.nbytes), 1) for o in plan.outputs}
        self.may_fail = bool(self.status_slots)
        self.frames: list[_Frame] = []

    def _pipeline(self, step: LaunchStep) -> int:
        source = step.source
        assert source is not None
        code, needs = spirv.code(source, step.group)
        machine = self.target.machine
        if "turns" in needs:
            machine.need_turns()
        try:
            return machine.pipeline(spirv.key_of(source, step.group), code, step.label)
        except CompileError as err:
            raise CompileError(err.what, where=step.where, cure=err.cure) from None

    def record(self, frame: _Frame) -> Any:
        recorder = self.target.machine.recorder()
        words = 8 * self.word_count
        recorder.copy(frame.words, 0, self.cells, 0, words)
        recorder.barrier()
        for step, pipeline, block, total in self.launches:
            groups = total if step.group else -(-total // LOCAL)
            writes = list(map(self._place, step.writes))
            if any(a in ("status",) for a in step.args):
                writes.append(("status", 0, 8 * STATUS_WORDS))
            try:
                recorder.dispatch(pipeline, self.blocks_at + 8 * block, total, groups, list(map(self._place, step.reads)), writes)
            except BackendError as err:
                raise BackendError(f"{step.label}: {err.what}", where=step.where, cure=err.cure) from None
        if self.may_fail:
            recorder.barrier()
            recorder.copy(self.cells, 8 * self.first_status, frame.words, 8 * self.first_status, 8 * STATUS_WORDS)
        return recorder.finish()

    def _place(self, storage: Storage) -> tuple[Any, int, int]:
        """What a launch touches, for the recorder: temporaries share one buffer."""
        return self.places.get(storage.id) or (storage.id, 0, 1)

    # ------------------------------------------------------------------------------------------- a call
    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        """Run on arrays and Python scalars, in the order of the graph's inputs; gives DeviceArrays. Raises FuelErrors."""
        results, finish = self.begin(arguments)
        if finish is not None:
            finish()
        return results

    def begin(self, arguments: Sequence[Any]) -> tuple[list[Any], Callable[[], None] | None]:
        if self.fits is not None:
            self.fits.check(arguments, self.lengths)
        target, machine = self.target, self.target.machine
        with machine.lock:
            machine.check_open()  # the memory that frames are written to is gone with it
            frame = self._frame()
            ints, held = frame.ints, []
            given: dict[int, Any] = {}
            try:
                for sid, k in self.inputs:
                    if k in self.scalars:
                        slot = self.write_scalar(frame.floats[self.first_scalar:], ints[self.first_scalar:], k, arguments[k])
                        ints[sid] = self.cells.address + 8 * (self.first_scalar + slot)
                    else:
                        array = arguments[k]
                        given[k] = array if type(array) is DeviceArray else target.put(array)
                        held.append(given[k].buffer)
                        ints[sid] = given[k].buffer.address
                for s in self.constants:
                    buffer = target.constant(s.array)
                    held.append(buffer)
                    ints[s.id] = buffer.address
                made: dict[int, Any] = {}
                results: list[Any] = []
                for sid, shape, dtype, donated in self.outputs:
                    if donated is not None:
                        results.append(given[donated])
                        continue
                    if sid not in made:
                        made[sid] = machine.memory.take(self.sizes[sid])
                        held.append(made[sid])
                        ints[sid] = made[sid].address
                    results.append(target.array(made[sid], shape, dtype))
                ints[self.first_status:] = 0
                frame.epoch = machine.submit(frame.commands, [self.cells, self.arena, frame.words, *held], self.plan.graph.name)
            except BaseException:
                self.frames.append(frame)
                raise
            if self.may_fail:
                return results, partial(self._finish, frame)
            self.frames.append(frame)
        return results, None

    def _finish(self, frame: _Frame) -> None:
        """Raises FuelIndexError for what a kernel met in a call. Until then the frame is no other call's."""
        self.target.machine.wait(frame.epoch)
        status = frame.status()
        self.frames.append(frame)
        if status[0]:
            raise self.fault(status)

    def _frame(self) -> _Frame:
        """One whose commands are not on their way."""
        machine = self.target.machine
        if self.frames and machine.done(self.frames[0].epoch):
            return self.frames.pop(0)
        if len(self.frames) < MOST_FRAMES:
            return _Frame(self)
        machine.wait(self.frames[0].epoch)
        return self.frames.pop(0)
