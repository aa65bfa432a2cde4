"""Command buffers: copies and launches, with a barrier where one depends on another and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import vulkan

from ..core.errors import BackendError
from . import api
from .api import NULL, ffi, lib, new

if TYPE_CHECKING:
    from .device import Device
    from .memory import Buffer

COMPUTE, COPY = vulkan.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, vulkan.VK_PIPELINE_STAGE_TRANSFER_BIT
HOST = vulkan.VK_PIPELINE_STAGE_HOST_BIT
READ = vulkan.VK_ACCESS_SHADER_READ_BIT | vulkan.VK_ACCESS_TRANSFER_READ_BIT
WRITE = vulkan.VK_ACCESS_SHADER_WRITE_BIT | vulkan.VK_ACCESS_TRANSFER_WRITE_BIT
HOST_READ, HOST_WRITE = vulkan.VK_ACCESS_HOST_READ_BIT, vulkan.VK_ACCESS_HOST_WRITE_BIT

Place = tuple[Any, int, int]  # a storage's key, and the range of bytes


class Commands:
    """A recorded command buffer. It may be submitted again and again, but not while it is on its way."""

    def __init__(self, device: Device, handle: Any, dispatches: int, barriers: int) -> None:
        self.device, self.handle, self.dispatches, self.barriers = device, handle, dispatches, barriers
        device.count("commands", 1)

    def __del__(self) -> None:
        self.device.forget(self.handle)


class Recorder:
    """A command buffer in the making. It starts with a barrier for all that was submitted before."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.handle = device.command_buffer()
        self.dispatches = self.barriers = 0
        self._reads: dict[Any, list[tuple[int, int]]] = {}  # since the last barrier
        self._writes: dict[Any, list[tuple[int, int]]] = {}
        self._bound: Any = None
        self._push = ffi.new("uint64_t[2]")
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

    def _order(self, reads: Iterable[Place], writes: Iterable[Place]) -> None:
        """A barrier before what reads what was written, or writes what was read or written, since the last one."""
        reads, writes = list(reads), list(writes)
        if any(_meets(self._writes, p) for p in (*reads, *writes)) or any(_meets(self._reads, p) for p in writes):
            self.barrier()
        for table, places in ((self._reads, reads), (self._writes, writes)):
            for key, begin, end in places:
                table.setdefault(key, []).append((begin, end))

    def copy(self, src: Buffer, src_offset: int, dst: Buffer, dst_offset: int, nbytes: int) -> None:
        """Bytes from one buffer to another."""
        a, b = src.offset + src_offset, dst.offset + dst_offset
        self._order([(src.block, a, a + nbytes)], [(dst.block, b, b + nbytes)])
        lib.vkCmdCopyBuffer(self.handle, src.handle, dst.handle, 1,
                            ffi.new("VkBufferCopy*", {"srcOffset": a, "dstOffset": b, "size": nbytes}))

    def dispatch(self, pipeline: Any, block: int, total: int, groups: int, reads: Iterable[Place], writes: Iterable[Place]) -> None:
        """A launch of `groups` groups of threads. Raises BackendError for more than the device takes."""
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
        self._push[0], self._push[1] = block, total
        lib.vkCmdPushConstants(self.handle, self.device.layout, vulkan.VK_SHADER_STAGE_COMPUTE_BIT, 0, 16, self._push)
        lib.vkCmdDispatch(self.handle, across, down, 1)
        self.dispatches += 1

    def finish(self) -> Commands:
        """The commands; what they write can be read by the host when they are done."""
        self._memory.srcAccessMask, self._memory.dstAccessMask = WRITE, HOST_READ
        lib.vkCmdPipelineBarrier(self.handle, COMPUTE | COPY, HOST, 0, 1, self._memory, 0, NULL, 0, NULL)
        api.check(lib.vkEndCommandBuffer(self.handle), f"{self.device}: recording")
        return Commands(self.device, self.handle, self.dispatches, self.barriers)


def _meets(table: dict[Any, list[tuple[int, int]]], place: Place) -> bool:
    key, begin, end = place
    return any(begin < e and b < end for b, e in table.get(key, ()))
