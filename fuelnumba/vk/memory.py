"""Device memory: large blocks of the driver's, cut into buffers, and given out again once the device is done with them."""

from __future__ import annotations

import gc
import weakref
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import vulkan

from ..core.errors import BackendError
from . import api
from .api import NULL, ffi, lib, new

if TYPE_CHECKING:
    from .device import Device

ALIGN = 256
BLOCK = 64 << 20
KEPT = 256 << 20  # of blocks that hold nothing; more goes back to the driver

LOCAL, VISIBLE, COHERENT, CACHED = (vulkan.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, vulkan.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT,
                                    vulkan.VK_MEMORY_PROPERTY_HOST_COHERENT_BIT, vulkan.VK_MEMORY_PROPERTY_HOST_CACHED_BIT)
DEVICE_ADDRESS, ALLOCATE_FOR_ADDRESS = 0x20000, 2  # flags of Vulkan 1.2, which the package has no names for
USAGE = (vulkan.VK_BUFFER_USAGE_TRANSFER_SRC_BIT | vulkan.VK_BUFFER_USAGE_TRANSFER_DST_BIT
         | vulkan.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | DEVICE_ADDRESS)


@dataclass
class Stats:
    """Bytes: `reserved` from the driver, `used` by buffers, and the most of each; how many buffers waited for the device
    before their place was free."""

    reserved: int = 0
    used: int = 0
    peak_reserved: int = 0
    peak_used: int = 0
    deferred: int = 0


class Block:
    """One allocation of the driver's, with a VkBuffer over all of it."""

    def __init__(self, device: Device, size: int, kind: int, mapped: bool) -> None:
        self.size, self.mapped = size, mapped
        handle, memory = ffi.new("VkBuffer*"), ffi.new("VkDeviceMemory*")
        api.check(lib.vkCreateBuffer(device.handle, new("BufferCreateInfo", size=size, usage=USAGE), NULL, handle),
                  f"{device}: a buffer of {size} bytes")
        self.handle = handle[0]
        flags = new("MemoryAllocateFlagsInfo", flags=ALLOCATE_FOR_ADDRESS)
        needs = ffi.new("VkMemoryRequirements*")
        lib.vkGetBufferMemoryRequirements(device.handle, self.handle, needs)
        info = new("MemoryAllocateInfo", pNext=flags, allocationSize=needs.size, memoryTypeIndex=kind)
        result = lib.vkAllocateMemory(device.handle, info, NULL, memory)
        if result < 0:
            lib.vkDestroyBuffer(device.handle, self.handle, NULL)
            if result in api.OUT_OF_MEMORY:
                raise MemoryError
            api.check(result, f"{device}: memory of {size} bytes")
        self.memory = memory[0]
        device.count("buffer", 1)
        device.count("memory", 1)
        api.check(lib.vkBindBufferMemory(device.handle, self.handle, self.memory, 0), f"{device}: binding memory")
        self.address = lib.vkGetBufferDeviceAddress(device.handle, new("BufferDeviceAddressInfo", buffer=self.handle))
        self.host: Any = None
        if mapped:
            place = ffi.new("void**")
            api.check(lib.vkMapMemory(device.handle, self.memory, 0, size, 0, place), f"{device}: mapping memory")
            self.host = memoryview(ffi.buffer(place[0], size)).cast("B")
        self.free: list[tuple[int, int]] = [(0, size)]  # (offset, bytes), by offset

    def take(self, at: int, nbytes: int) -> int:
        """The offset of a place in free range number `at`."""
        offset, size = self.free[at]
        if size == nbytes:
            del self.free[at]
        else:
            self.free[at] = (offset + nbytes, size - nbytes)
        return offset

    def give(self, offset: int, nbytes: int) -> None:
        """A place back, joined with its free neighbours."""
        insort(self.free, (offset, nbytes))
        k = self.free.index((offset, nbytes))
        if k + 1 < len(self.free) and offset + nbytes == self.free[k + 1][0]:
            nbytes += self.free.pop(k + 1)[1]
            self.free[k] = (offset, nbytes)
        if k and sum(self.free[k - 1]) == offset:
            before, size = self.free[k - 1]
            self.free[k - 1:k + 1] = [(before, size + nbytes)]

    def destroy(self, device: Device) -> None:
        if self.host is not None:
            lib.vkUnmapMemory(device.handle, self.memory)
        lib.vkDestroyBuffer(device.handle, self.handle, NULL)
        lib.vkFreeMemory(device.handle, self.memory, NULL)
        device.count("buffer", -1)
        device.count("memory", -1)


class Buffer:
    """A place in device memory. It goes back when nobody refers to it any more, and is given out again once the device is
    done with `epoch`, the last submission that uses it."""

    __slots__ = ("__weakref__", "_device", "address", "block", "epoch", "nbytes", "offset")

    def __init__(self, device: Device, block: Block, offset: int, nbytes: int) -> None:
        self._device, self.block, self.offset, self.nbytes = device, block, offset, nbytes
        self.address = block.address + offset
        self.epoch = 0

    @property
    def handle(self) -> Any:
        return self.block.handle

    @property
    def host(self) -> memoryview | None:
        """The same memory as the host sees it; None where it cannot."""
        return None if self.block.host is None else self.block.host[self.offset:self.offset + self.nbytes]

    def wait(self) -> None:
        """Until the device is done with it."""
        self._device.wait(self.epoch)

    def __del__(self) -> None:
        self._device.memory.release(self.block, self.offset, self.nbytes, self.epoch)


class Memory:
    """The memory of a device. `cap`: bytes that may be reserved, None for all there is."""

    def __init__(self, device: Device) -> None:
        self.stats = Stats()
        self.cap: int | None = None
        self._device: Callable[[], Device | None] = weakref.ref(device)
        self._blocks: list[Block] = []
        self._deferred: list[tuple[Block, int, int, int]] = []
        found = device.info.memory
        self._types = [t.propertyFlags for t in found.memoryTypes[0:found.memoryTypeCount]]
        self._heaps = [(found.memoryHeaps[t.heapIndex].size, found.memoryHeaps[t.heapIndex].flags & 1)
                       for t in found.memoryTypes[0:found.memoryTypeCount]]
        self.most = max((size for size, local in self._heaps if local), default=0)
        shared = LOCAL | VISIBLE | COHERENT
        all_local = [k for k, flags in enumerate(self._types) if flags & LOCAL and self._heaps[k][0] == self.most]
        self._device_type = next((k for k in all_local if self._types[k] & shared == shared), None)
        self.is_shared = self._device_type is not None and all(local for _, local in self._heaps)
        if not self.is_shared:  # a window into a card's memory is slow to read: staging is faster
            self._device_type = next(k for k in all_local)
        self._host_type = self._best(VISIBLE | COHERENT | CACHED, VISIBLE | COHERENT)

    def _best(self, *wanted: int) -> int:
        for flags in wanted:
            for k, has in enumerate(self._types):
                if has & flags == flags:
                    return k
        raise BackendError("the device has no memory that the host can see", cure="update its driver")

    def take(self, nbytes: int, host: bool = False) -> Buffer:
        """A buffer; with `host`, in memory that the host sees. Raises BackendError when there is not enough; what was taken
        before stays as it is."""
        device = self._device()
        if device is None:
            raise BackendError("the device is closed", cure="open it again: fuelnumba.device(...)")
        size = -(-max(nbytes, 1) // ALIGN) * ALIGN
        with device.lock:
            device.check_open()
            mapped = host or self.is_shared
            found = self._find(size, mapped) or self._after_collecting(device, size, mapped)
            if found is None:
                raise BackendError(
                    f"{device} has no room for {nbytes} bytes: {self.stats.used} are in use, {self.stats.reserved} reserved"
                    + (f", and the cap is {self.cap}" if self.cap is not None else f" of {self.most}"),
                    cure="drop results that are no longer needed, or use smaller arrays")
            block, at = found
            offset = block.take(at, size)
            self.stats.used += size
            self.stats.peak_used = max(self.stats.peak_used, self.stats.used)
            return Buffer(device, block, offset, size)

    def _find(self, size: int, mapped: bool) -> tuple[Block, int] | None:
        """The smallest free place that is large enough, or a new block."""
        best: tuple[int, Block, int] | None = None
        for block in self._blocks:
            if block.mapped == mapped:
                for k, (_, free) in enumerate(block.free):
                    if free >= size and (best is None or free < best[0]):
                        best = (free, block, k)
        if best is not None:
            return best[1], best[2]
        for wanted in dict.fromkeys((max(BLOCK, size), size)):
            block = self._new(wanted, mapped)
            if block is not None:
                return block, 0
        return None

    def _new(self, size: int, mapped: bool) -> Block | None:
        device = self._device()
        assert device is not None
        if self.cap is not None and self.stats.reserved + size > self.cap:
            return None
        kind = self._device_type if self.is_shared or not mapped else self._host_type
        if size > min(device.info.max_buffer, self._heaps[kind or 0][0]):
            return None
        try:
            block = Block(device, size, kind or 0, mapped)
        except MemoryError:
            return None
        self._blocks.append(block)
        self.stats.reserved += size
        self.stats.peak_reserved = max(self.stats.peak_reserved, self.stats.reserved)
        return block

    def _after_collecting(self, device: Device, size: int, mapped: bool) -> tuple[Block, int] | None:
        """As `_find`, once everything that nobody needs has come back: garbage, and what the device still works with."""
        gc.collect()
        device.drain()
        self.collect()
        self._trim(0)
        return self._find(size, mapped)

    def release(self, block: Block, offset: int, nbytes: int, epoch: int) -> None:
        """A buffer's place, which the device may still use."""
        device = self._device()
        if device is None or not device.is_open:
            return
        with device.lock:
            self.stats.used -= nbytes
            if device.done(epoch):
                block.give(offset, nbytes)
            else:
                self._deferred.append((block, offset, nbytes, epoch))
                self.stats.deferred += 1

    def collect(self) -> None:
        """Take back what the device is done with."""
        device = self._device()
        assert device is not None
        left = []
        for block, offset, nbytes, epoch in self._deferred:
            if device.done(epoch):
                block.give(offset, nbytes)
            else:
                left.append((block, offset, nbytes, epoch))
        self._deferred = left
        self._trim(KEPT)

    def _trim(self, kept: int) -> None:
        """Give empty blocks back to the driver, but for so many bytes."""
        device = self._device()
        assert device is not None
        for block in [b for b in self._blocks if b.free == [(0, b.size)]]:
            kept -= block.size
            if kept < 0:
                self._blocks.remove(block)
                self.stats.reserved -= block.size
                block.destroy(device)

    def close(self, device: Device) -> None:
        for block in self._blocks:
            block.destroy(device)
        self._blocks, self._deferred = [], []
        self.stats.reserved = self.stats.used = 0
