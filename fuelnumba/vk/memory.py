"""Device memory: large blocks of the driver's, cut into buffers, and given out again once the device is done with them."""

from __future__ import annotations

import ctypes
import gc
from bisect import insort
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.errors import BackendError
from . import api
from .api import NULL, ffi, lib, new, vulkan

if TYPE_CHECKING:
    from .device import Device

ALIGN = 256
BLOCK = 64 << 20
KEPT = 256 << 20  # of blocks that hold nothing; more, and more than an eighth of the memory, goes back to the driver

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
        self.handle = self.memory = NULL
        self.host = 0  # where the host sees it
        try:
            self._allocate(device, kind)
        except Exception:
            self.destroy(device)
            raise
        self._start = -self.address % ALIGN
        self.free: list[tuple[int, int]] = self._all()  # (offset, bytes), by offset

    def _allocate(self, device: Device, kind: int) -> None:
        self.handle = device.create("Buffer", new("BufferCreateInfo", size=self.size, usage=USAGE))
        needs = ffi.new("VkMemoryRequirements*")
        lib.vkGetBufferMemoryRequirements(device.handle, self.handle, needs)
        flags = new("MemoryAllocateFlagsInfo", flags=ALLOCATE_FOR_ADDRESS)
        info = new("MemoryAllocateInfo", pNext=flags, allocationSize=needs.size, memoryTypeIndex=kind)
        memory = ffi.new("VkDeviceMemory*")
        result = lib.vkAllocateMemory(device.handle, info, NULL, memory)
        if result in api.OUT_OF_MEMORY:
            raise MemoryError
        api.check(result, f"{device}: memory of {self.size} bytes")
        self.memory = device.keep("DeviceMemory", memory[0])
        api.check(lib.vkBindBufferMemory(device.handle, self.handle, self.memory, 0), f"{device}: binding memory")
        self.address = int(lib.vkGetBufferDeviceAddress(device.handle, new("BufferDeviceAddressInfo", buffer=self.handle)))
        if self.mapped:
            place = ffi.new("void**")
            api.check(lib.vkMapMemory(device.handle, self.memory, 0, self.size, 0, place), f"{device}: mapping memory")
            self.host = int(ffi.cast("uintptr_t", place[0]))

    def _all(self) -> list[tuple[int, int]]:
        return [(self._start, self.size - self._start)]

    @property
    def is_empty(self) -> bool:
        return self.free == self._all()

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
        """Also of one that was not made to the end; unmaps it."""
        if self.handle != NULL:
            device.destroy("Buffer", self.handle)
        if self.memory != NULL:
            device.destroy("DeviceMemory", self.memory)


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
        """The same memory as the host sees it; None where it cannot. What is made of it (arrays, too) keeps the buffer, but
        must not be touched once the device is closed."""
        if not self.block.mapped:
            return None
        self._device.check_open()
        seen = (ctypes.c_char * self.nbytes).from_address(self.block.host + self.offset)
        seen.owner = self  # type: ignore[attr-defined]
        return memoryview(seen).cast("B")

    def wait(self) -> None:
        """Until the device is done with it."""
        self._device.wait(self.epoch)

    def __del__(self) -> None:
        self._device.memory.returned.append((self.block, self.offset, self.nbytes, self.epoch))


class Memory:
    """The memory of a device. `cap`: bytes that may be reserved, None for all there is."""

    def __init__(self, device: Device) -> None:
        self._stats = Stats()
        self.cap: int | None = None
        # Buffers that nobody refers to. Garbage collection may find them at any time, also while the lists below are being
        # changed: so it only appends here
        self.returned: deque[tuple[Block, int, int, int]] = deque()
        self._device = device
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

    @property
    def stats(self) -> Stats:
        if self._device.is_open:
            self.collect()
        return self._stats

    def take(self, nbytes: int, host: bool = False) -> Buffer:
        """A buffer; with `host`, in memory that the host sees. Raises BackendError when there is not enough; what was taken
        before stays as it is."""
        device = self._device
        size = -(-max(nbytes, 1) // ALIGN) * ALIGN
        with device.lock:
            device.check_open()
            if size > device.info.max_buffer - ALIGN:
                raise BackendError(f"{device} has no room for {nbytes} bytes in one piece: it takes {device.info.max_buffer}",
                                   cure="use smaller arrays")
            mapped = host or self.is_shared
            self.collect()
            found = self._find(size, mapped) or self._after_cleaning(device, size, mapped)
            if found is None:
                stats = self._stats
                raise BackendError(
                    f"{device} has no room for {nbytes} bytes: {stats.used} are in use, {stats.reserved} reserved"
                    + (f", and the cap is {self.cap}" if self.cap is not None else f" of {self.most}"),
                    cure="drop results that are no longer needed, or use smaller arrays")
            block, at = found
            offset = block.take(at, size)
            self._stats.used += size
            self._stats.peak_used = max(self._stats.peak_used, self._stats.used)
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
        for wanted in dict.fromkeys((max(BLOCK, size + ALIGN), size + ALIGN)):
            made = self._new(wanted, mapped)
            if made is not None:
                return made, 0
        return None

    def _new(self, size: int, mapped: bool) -> Block | None:
        device = self._device
        if self.cap is not None and self._stats.reserved + size > self.cap:
            return None
        kind = self._device_type if self.is_shared or not mapped else self._host_type
        if size > min(device.info.max_buffer, self._heaps[kind or 0][0]):
            return None
        try:
            block = Block(device, size, kind or 0, mapped)
        except MemoryError:
            return None
        self._blocks.append(block)
        self._stats.reserved += size
        self._stats.peak_reserved = max(self._stats.peak_reserved, self._stats.reserved)
        return block

    def _after_cleaning(self, device: Device, size: int, mapped: bool) -> tuple[Block, int] | None:
        """As `_find`, once everything that nobody needs has come back: garbage, and what the device still works with."""
        gc.collect()
        device.drain()
        self._trim(device, 0)
        return self._find(size, mapped)

    def collect(self) -> None:
        """Take back what nobody refers to and the device is done with."""
        device = self._device
        with device.lock:
            waiting = len(self._deferred)
            while self.returned:
                place = self.returned.popleft()
                self._stats.used -= place[2]
                self._deferred.append(place)
            finished = device.finished() if self._deferred else 0
            left = []
            for k, (block, offset, nbytes, epoch) in enumerate(self._deferred):
                if epoch <= finished:
                    block.give(offset, nbytes)
                else:
                    left.append((block, offset, nbytes, epoch))
                    self._stats.deferred += k >= waiting
            self._deferred = left
            self._trim(device, max(KEPT, self.most // 8))

    def _trim(self, device: Device, kept: int) -> None:
        """Give empty blocks back to the driver, but for so many bytes."""
        for block in [b for b in self._blocks if b.is_empty]:
            kept -= block.size
            if kept < 0:
                self._blocks.remove(block)
                self._stats.reserved -= block.size
                block.destroy(device)

    def forget(self) -> None:
        """At the end: the blocks went with the device."""
        self._blocks, self._deferred = [], []
        self.returned.clear()
        self._stats.reserved = self._stats.used = 0
