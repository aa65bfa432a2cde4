"""Command buffers: copies and launches, with a barrier where one depends on another and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..core.errors import BackendError
from . import api
from .api import NULL, ffi, lib, new, vulkan

if TYPE_CHECKING:
    from .device import Device
    from .memory import Buffer

COMPUTE, COPY = vulkan.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, vulkan.VK_PIPELINE_STAGE_TRANSFER_BIT
HOST = vulkan.VK_PIPELINE_STAGE_HOST_BIT
READ = vulkan.VK_ACCESS_SHADER_READ_BIT | vulkan.VK_ACCESS_TRANSFER_READ_BIT
WRITE = vulkan.VK_ACCESS_SHADER_WRITE_BIT | vulkan.VK_ACCESS_TRANSFER_WRITE_BIT
HOST_READ, HOST_WRITE = vulkan.VK_ACCESS_HOST_READ_BIT, vulkan.VK_ACCESS_HOST_WRITE_BIT
MANY = 64  # ranges of one storage that are told apart between two barriers: each launch is compared with all of them

PUSH = 24  # bytes of push constants: the block, the work items, the table of turns

Place = tuple[Any, int, int]  # a storage's key, and the range of bytes


class Commands:
    """A recorded command buffer. It may be submitted again and again; `epoch` is the last time that it was."""

    def __init__(self, device: Device, handle: Any, dispatches: int, barriers: int) -> None:
        self.device, self.handle, self.dispatches, self.barriers = device, handle, dispatches, barriers
        self.epoch = 0

    def __del__(self) -> None:
        self.device.forgotten.append((self.epoch, self.handle))


class Recorder:
    """A command buffer in the making. It starts with a barrier for all that was submitted before.

    Launches name what they touch by keys of the caller's choice. Copies are told from one another by the memory that they
    touch: between a copy and a launch that have to do with each other, the caller puts a `barrier()`.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.handle: Any = device.command_buffer()
        self.dispatches = self.barriers = 0
        self._reads: dict[Any, set[tuple[int, int]]] = {}  # since the last barrier
        self._writes: dict[Any, set[tuple[int, int]]] = {}
        self._bound: Any = None
        self._push = ffi.new("uint64_t[3]")
        self._memory = new("MemoryBarrier")
        api.check(lib.vkBeginCommandBuffer(self.handle, new("CommandBufferBeginInfo")), f"{device}: recording")
        self.barrier(first=True)

    def barrier(self, first: bool = False) -> None:
        """What comes after it sees what was written before it."""
        self._memory.srcAccessMask = WRITE | (HOST_WRITE if first else 0)
        self._memory.dstAccessMask = READ | WRITE
        stages = COMPUTE | COPY
        lib.vkCmdPipelineBarrier(self.handle, stages | (HOST if first else 0), stages, 0, 1, self._memory, 0, NULL, 0, NULL)
        self._reads.clear()
        self._writes.clear()
        self.barriers += not first

    def _order(self, reads: Sequence[Place], writes: Sequence[Place]) -> None:
        """A barrier before what reads what was written, or writes what was read or written, since the last one."""
        if _meets(self._writes, reads) or _meets(self._writes, writes) or _meets(self._reads, writes):
            self.barrier()
        for table, places in ((self._reads, reads), (self._writes, writes)):
            for key, begin, end in places:
                table.setdefault(key, set()).add((begin, end))

    def copy(self, src: Buffer, src_offset: int, dst: Buffer, dst_offset: int, nbytes: int) -> None:
        """Bytes from one buffer to another."""
        a, b = src.offset + src_offset, dst.offset + dst_offset
        self._order([(src.block, a, a + nbytes)], [(dst.block, b, b + nbytes)])
        lib.vkCmdCopyBuffer(self.handle, src.handle, dst.handle, 1,
                            ffi.new("VkBufferCopy*", {"srcOffset": a, "dstOffset": b, "size": nbytes}))

    def dispatch(self, pipeline: Any, block: int, total: int, groups: int, reads: Sequence[Place],
                 writes: Sequence[Place]) -> None:
        """A launch of `groups` groups of threads. Raises BackendError for more than the device takes."""
        if not groups:
            return
        most_x, most_y = self.device.info.max_groups[:2]
        across = min(groups, most_x)
        down = -(-groups // across)
        if down > most_y:
            raise BackendError(f"a launch of {groups} groups is more than {self.device} takes ({most_x} by {most_y})",
                               cure="use smaller arrays")
        self._order(reads, writes)
        if pipeline is not self._bound:
            lib.vkCmdBindPipeline(self.handle, vulkan.VK_PIPELINE_BIND_POINT_COMPUTE, pipeline)
            self._bound = pipeline
        self._push[0], self._push[1], self._push[2] = block, total, self.device.turns_address
        lib.vkCmdPushConstants(self.handle, self.device.layout, vulkan.VK_SHADER_STAGE_COMPUTE_BIT, 0, PUSH, self._push)
        lib.vkCmdDispatch(self.handle, across, down, 1)
        self.dispatches += 1

    def finish(self) -> Commands:
        """The commands; what they write can be read by the host when they are done."""
        self._memory.srcAccessMask, self._memory.dstAccessMask = WRITE, HOST_READ
        lib.vkCmdPipelineBarrier(self.handle, COMPUTE | COPY, HOST, 0, 1, self._memory, 0, NULL, 0, NULL)
        api.check(lib.vkEndCommandBuffer(self.handle), f"{self.device}: recording")
        self._reads.clear()  # keys may be buffers, which it does not keep
        self._writes.clear()
        commands, self.handle = Commands(self.device, self.handle, self.dispatches, self.barriers), None
        return commands

    def __del__(self) -> None:
        if getattr(self, "handle", None) is not None:  # an error came between
            self.device.forgotten.append((0, self.handle))


def _meets(table: dict[Any, set[tuple[int, int]]], places: Sequence[Place]) -> bool:
    """Whether one of the places overlaps what is in the table, or there is too much in it to look through."""
    for key, begin, end in places:
        ranges = table.get(key, ())
        if len(ranges) == MANY:
            return True
        for b, e in ranges:
            if begin < e and b < end:
                return True
    return False
