"""Vulkan devices: what there is, and one that is open: its queue, its pipelines, its memory.

The queue runs submissions one after another; a timeline semaphore counts them, and the number of one is its epoch.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..compiler import modcache
from ..core.errors import ArgumentError, BackendError, CacheError, CompileError, DeviceLostError
from ..kernels.lang import inv_half_pi_table
from . import api
from .api import NULL, ffi, lib, new, vulkan
from .memory import Buffer, Memory
from .record import PUSH, Commands, Recorder

KINDS = {vulkan.VK_PHYSICAL_DEVICE_TYPE_CPU: "cpu", vulkan.VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: "discrete",
         vulkan.VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: "integrated", vulkan.VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: "virtual"}
SPIRV_MAGIC, FUNCTION_END = 0x07230203, 56
STAGING = 8 << 20  # bytes that go over at a time
PATIENCE = 10**9  # nanoseconds between two looks whether Ctrl-C was pressed

#: our name of a feature -> the names of Vulkan's flags that it takes
FEATURES = {"f64": ("shaderFloat64",), "i8": ("shaderInt8", "storageBuffer8BitAccess"),
            "i16": ("shaderInt16", "storageBuffer16BitAccess"), "f16": ("shaderFloat16", "storageBuffer16BitAccess")}
#: our name of a promise about floats -> the property of Vulkan that gives it
FLOAT_CONTROLS = {f"{ours}{bits}": f"{theirs}Float{bits}" for bits in (16, 32, 64) for ours, theirs in (
    ("nan", "shaderSignedZeroInfNanPreserve"), ("denorm", "shaderDenormPreserve"), ("rte", "shaderRoundingModeRTE"))}
NEEDED = {"bufferDeviceAddress": "buffer device addresses", "shaderInt64": "64-bit integers",
          "scalarBlockLayout": "scalar block layout", "timelineSemaphore": "timeline semaphores"}


@dataclass(frozen=True)
class Info:
    """A device of this machine. `features` are the names that kernels ask for; sizes are in bytes."""

    index: int
    name: str
    kind: str  # 'cpu' 'discrete' 'integrated' 'virtual' 'other'
    api: str
    driver: str
    features: frozenset[str]
    missing: tuple[str, ...]  # of the features that fuelnumba cannot do without
    memory_bytes: int
    max_groups: tuple[int, int, int]
    max_group_size: int
    max_shared: int
    max_buffer: int
    subgroup: int
    float_controls: frozenset[str]  # what shaders may ask for: 'nan32' kept, 'denorm32' kept, 'rte32' rounding to even, ...
    cache_id: str
    physical: Any = field(repr=False)
    memory: Any = field(repr=False)
    flags: frozenset[str] = field(repr=False)

    def __str__(self) -> str:
        return (f"{self.index}: {self.name} ({self.kind}), Vulkan {self.api}, driver {self.driver}, "
                f"{self.memory_bytes / 2**30:.1f} GiB in buffers of up to {self.max_buffer / 2**30:.1f} GiB, groups of up to "
                f"{self.max_group_size} threads with {self.max_shared >> 10} KiB, subgroups of {self.subgroup}; "
                f"{' '.join(sorted(self.features))}"
                + (f"; cannot be used: no {', '.join(self.missing)}" if self.missing else ""))


def list_devices() -> list[Info]:
    """All devices that the loader knows. Raises BackendError, which says what to install."""
    return [_probe(k, p) for k, p in enumerate(api.instance().physical_devices())]


def _probe(index: int, physical: Any) -> Info:
    driver = new("PhysicalDeviceDriverProperties")
    floats = new("PhysicalDeviceFloatControlsProperties", pNext=driver)
    subgroup = new("PhysicalDeviceSubgroupProperties", pNext=floats)
    maintenance = new("PhysicalDeviceMaintenance3Properties", pNext=subgroup)
    properties = new("PhysicalDeviceProperties2", pNext=maintenance)
    lib.vkGetPhysicalDeviceProperties2(physical, properties)
    p = properties.properties
    chain = _feature_chain()
    lib.vkGetPhysicalDeviceFeatures2(physical, chain[0])
    flags = frozenset(name for s in _feature_structs(chain) for name in dir(s)
                      if name not in ("sType", "pNext") and getattr(s, name))
    has = {ours for ours, theirs in FEATURES.items() if flags.issuperset(theirs)}
    wanted = vulkan.VK_SUBGROUP_FEATURE_ARITHMETIC_BIT | vulkan.VK_SUBGROUP_FEATURE_VOTE_BIT
    if subgroup.supportedOperations & wanted == wanted and subgroup.supportedStages & vulkan.VK_SHADER_STAGE_COMPUTE_BIT:
        has.add("subgroup")
    memory = ffi.new("VkPhysicalDeviceMemoryProperties*")
    lib.vkGetPhysicalDeviceMemoryProperties(physical, memory)
    limits = p.limits
    missing = tuple(words for flag, words in NEEDED.items() if flag not in flags)
    if p.apiVersion < api.VERSION:
        missing = ("Vulkan 1.2", *missing)
    uuid = bytes(p.pipelineCacheUUID).hex()
    return Info(
        index, ffi.string(p.deviceName).decode(), KINDS.get(p.deviceType, "other"), api.version_text(p.apiVersion),
        f"{ffi.string(driver.driverName).decode()} {ffi.string(driver.driverInfo).decode()}".strip(), frozenset(has), missing,
        max((memory.memoryHeaps[k].size for k in range(memory.memoryHeapCount) if memory.memoryHeaps[k].flags & 1), default=0),
        tuple(limits.maxComputeWorkGroupCount), limits.maxComputeWorkGroupInvocations, limits.maxComputeSharedMemorySize,
        maintenance.maxMemoryAllocationSize, subgroup.subgroupSize,
        frozenset(ours for ours, theirs in FLOAT_CONTROLS.items() if getattr(floats, theirs)), f"{uuid}-{p.driverVersion}",
        physical, memory, flags)


def _feature_chain() -> list[Any]:
    """VkPhysicalDeviceFeatures2 with the features of 1.1 and 1.2 behind it."""
    v12 = new("PhysicalDeviceVulkan12Features")
    v11 = new("PhysicalDeviceVulkan11Features", pNext=v12)
    return [new("PhysicalDeviceFeatures2", pNext=v11), v11, v12]


def _feature_structs(chain: Sequence[Any]) -> list[Any]:
    return [chain[0].features, chain[1], chain[2]]


_open: dict[int | str | None, Device] = {}  # by number, and by what else they were asked for
_opening = threading.Lock()


def open_device(selector: int | str | None = None) -> Device:
    """A device: by number, by kind or part of its name; None for the first that can be used. There is one `Device` for each.
    Raises ArgumentError, which lists what there is, and BackendError for a device that lacks what is needed."""
    api.instance()  # says in a forked process, where the lock may be held for ever, that there is none
    with _opening:
        device = _open.get(selector)
        if device is None or device.lost is not None:
            chosen = _choose(list_devices(), selector)
            device = _open.get(chosen.index)
            if device is not None and device.lost is not None:
                device.close()
                device = None
            if device is None:
                device = Device(chosen)
            _open[chosen.index] = _open[selector] = device
        return device


def _choose(found: list[Info], selector: int | str | None) -> Info:
    there = "; ".join(f"{d.index}: {d.name} ({d.kind})" for d in found)
    if not found:
        raise BackendError("Vulkan's loader found no device", cure=api.INSTALL)
    if selector is None:
        fitting = [d for d in found if not d.missing] or found
    elif isinstance(selector, int):
        fitting = [d for d in found if d.index == selector]
    else:
        fitting = ([d for d in found if d.kind == selector.lower()]
                   or [d for d in found if selector.lower() in d.name.lower()])
    if not fitting:
        raise ArgumentError(f"there is no Vulkan device {selector!r}", cure=f"there are: {there}")
    if fitting[0].missing:
        raise BackendError(f"the Vulkan device {fitting[0].name} has no {', '.join(fitting[0].missing)}",
                           cure="update its driver, or choose another device")
    return fitting[0]


class Device:
    """An open device. Its lock is held by whoever records, submits or takes memory."""

    def __init__(self, info: Info) -> None:
        self.info, self.features = info, info.features
        self.lock = threading.RLock()
        self.is_open = False
        self.lost: str | None = None
        self._objects: dict[tuple[str, Any], None] = {}  # the driver's, in the order of their making
        family = self._queue_family()
        chain = _feature_chain()
        wanted = {*NEEDED, "storagePushConstant8", *(f for fs in FEATURES.values() for f in fs)} & info.flags
        for struct in _feature_structs(chain):
            for name in wanted:
                if hasattr(struct, name):
                    setattr(struct, name, 1)
        priority = ffi.new("float[1]", [1.0])
        queues = new("DeviceQueueCreateInfo", queueFamilyIndex=family, queueCount=1, pQueuePriorities=priority)
        handle = ffi.new("VkDevice*")
        api.check(lib.vkCreateDevice(info.physical, new("DeviceCreateInfo", pNext=chain[0], queueCreateInfoCount=1,
                                                        pQueueCreateInfos=queues), NULL, handle), f"opening {info.name}")
        self.handle = handle[0]
        self.is_open = True
        self.keep("Device", self.handle)
        try:
            self._set_up(family)
        except Exception:
            self._destroy_all()
            raise
        api.devices.add(self)

    def _set_up(self, family: int) -> None:
        queue = ffi.new("VkQueue*")
        lib.vkGetDeviceQueue(self.handle, family, 0, queue)
        self.queue = queue[0]
        kind = new("SemaphoreTypeCreateInfo", semaphoreType=vulkan.VK_SEMAPHORE_TYPE_TIMELINE)
        self.semaphore = self.create("Semaphore", new("SemaphoreCreateInfo", pNext=kind))
        flags = vulkan.VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT
        self.pool = self.create("CommandPool", new("CommandPoolCreateInfo", flags=flags, queueFamilyIndex=family))
        push = new("PushConstantRange", stageFlags=vulkan.VK_SHADER_STAGE_COMPUTE_BIT, offset=0, size=PUSH)
        self.layout = self.create("PipelineLayout", new("PipelineLayoutCreateInfo", pushConstantRangeCount=1,
                                                         pPushConstantRanges=push))
        self.submitted = self._finished = 0  # epochs
        self._labels: dict[int, str] = {}  # of submissions on their way
        self._spare: list[Any] = []  # command buffers to be used again
        self.forgotten: deque[tuple[int, Any]] = deque()  # command buffers that nobody refers to, with their epochs
        self._pipelines: dict[str, Any] = {}
        self._cache, self._cache_size = self._pipeline_cache()
        self._staging: list[Buffer] = []
        self._turns: Buffer | None = None
        self.turns_address = 0
        self.memory = Memory(self)

    def __str__(self) -> str:
        return f"vulkan:{self.info.index} ({self.info.name})"

    __repr__ = __str__

    def _queue_family(self) -> int:
        count = ffi.new("uint32_t*")
        lib.vkGetPhysicalDeviceQueueFamilyProperties(self.info.physical, count, NULL)
        found = ffi.new("VkQueueFamilyProperties[]", count[0])
        lib.vkGetPhysicalDeviceQueueFamilyProperties(self.info.physical, count, found)
        fitting = [k for k in range(count[0]) if found[k].queueFlags & vulkan.VK_QUEUE_COMPUTE_BIT]
        if not fitting:
            raise BackendError(f"{self.info.name} cannot compute", cure="choose another device")
        return fitting[0]

    @property
    def live(self) -> Counter[str]:
        """The objects of the driver's that are alive, counted by kind."""
        return Counter(kind for kind, _ in self._objects)

    def create(self, kind: str, info: Any) -> Any:
        """A new object of the driver's, vkCreate<kind>."""
        made = ffi.new(f"Vk{kind}*")
        api.check(getattr(lib, f"vkCreate{kind}")(self.handle, info, NULL, made), f"{self}: making a {kind}")
        return self.keep(kind, made[0])

    def keep(self, kind: str, handle: Any) -> Any:
        """An object of the driver's, which is destroyed with the device at the latest."""
        self._objects[kind, handle] = None
        return handle

    def destroy(self, kind: str, handle: Any) -> None:
        if kind == "Device":
            lib.vkDestroyDevice(handle, NULL)
        elif kind == "DeviceMemory":
            lib.vkFreeMemory(self.handle, handle, NULL)
        elif kind != "CommandBuffer":  # which go with their pool
            getattr(lib, f"vkDestroy{kind}")(self.handle, handle, NULL)
        del self._objects[kind, handle]

    def _destroy_all(self) -> None:
        """The youngest first, so that none is destroyed before what was made of it."""
        self.is_open = False
        for kind, handle in list(reversed(self._objects)):
            self.destroy(kind, handle)

    def check_open(self) -> None:
        if api.is_forked():
            raise api.forked_error()
        if self.lost is not None:
            raise DeviceLostError(f"{self} was lost while it ran {self.lost}",
                                  cure="open it again: fuelnumba.device(...), and copy the arrays there again")
        if not self.is_open:
            raise BackendError(f"{self} was closed, and what lay there is gone",
                               cure="open it again: fuelnumba.device(...), and copy the arrays there again")

    # -------------------------------------------------------------------------------------- submitting and waiting
    def recorder(self) -> Recorder:
        return Recorder(self)

    def command_buffer(self) -> Any:
        """A command buffer that is not in use."""
        self.check_open()
        self._reclaim()
        if self._spare:
            handle = self._spare.pop()
            api.check(lib.vkResetCommandBuffer(handle, 0), f"{self}: a command buffer")
            return handle
        made = ffi.new("VkCommandBuffer[1]")
        info = new("CommandBufferAllocateInfo", commandPool=self.pool, level=vulkan.VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                   commandBufferCount=1)
        api.check(lib.vkAllocateCommandBuffers(self.handle, info, made), f"{self}: a command buffer")
        return self.keep("CommandBuffer", made[0])

    def _reclaim(self) -> None:
        """Take back the command buffers that nobody refers to and the device is done with."""
        for _ in range(len(self.forgotten)):
            epoch, handle = self.forgotten.popleft()
            if self.done(epoch):
                self._spare.append(handle)
            else:
                self.forgotten.append((epoch, handle))

    def submit(self, commands: Commands, retain: Sequence[Buffer] = (), label: str = "") -> int:
        """Hand commands to the device; returns their epoch. `retain`: the buffers they use. Commands that are on their way
        already are waited for."""
        with self.lock:
            self.check_open()
            self.wait(commands.epoch)
            epoch = self.submitted + 1
            value = ffi.new("uint64_t[1]", [epoch])
            timeline = new("TimelineSemaphoreSubmitInfo", signalSemaphoreValueCount=1, pSignalSemaphoreValues=value)
            handles, semaphores = ffi.new("VkCommandBuffer[1]", [commands.handle]), ffi.new("VkSemaphore[1]", [self.semaphore])
            info = new("SubmitInfo", pNext=timeline, commandBufferCount=1, pCommandBuffers=handles, signalSemaphoreCount=1,
                       pSignalSemaphores=semaphores)
            self._checked(lib.vkQueueSubmit(self.queue, 1, info, NULL), label)
            self.submitted = commands.epoch = epoch
            self._labels[epoch] = label
            for buffer in retain:
                buffer.epoch = epoch
            if epoch % 64 == 0:
                self._settle()
            return epoch

    def _checked(self, result: int, label: str) -> None:
        """Raise what a result means. The queue runs in order: of a lost device, the first unfinished submission is named."""
        if result == vulkan.VK_ERROR_DEVICE_LOST:
            running = [name for epoch, name in sorted(self._labels.items()) if epoch > self._finished]
            self.lost = next(iter(running), label) or "a copy"
            self.check_open()
        api.check(result, f"{self}, running {label or 'a copy'}")

    def finished(self) -> int:
        """The epoch up to which the device is done."""
        if self._finished < self.submitted and self.is_open and self.lost is None:
            value = ffi.new("uint64_t*")
            self._checked(lib.vkGetSemaphoreCounterValue(self.handle, self.semaphore, value), "")
            self._finished = max(self._finished, value[0])
        return self._finished

    def done(self, epoch: int) -> bool:
        """Whether the device has finished a submission."""
        return epoch <= self._finished or epoch <= self.finished()

    def wait(self, epoch: int) -> None:
        """Until a submission is finished. Raises DeviceLostError naming what ran."""
        self.check_open()
        if self.done(epoch):
            return
        value, semaphores = ffi.new("uint64_t[1]", [epoch]), ffi.new("VkSemaphore[1]", [self.semaphore])
        info = new("SemaphoreWaitInfo", semaphoreCount=1, pSemaphores=semaphores, pValues=value)
        while True:
            result = lib.vkWaitSemaphores(self.handle, info, PATIENCE)
            if result != vulkan.VK_TIMEOUT:
                break
        self._checked(result, self._labels.get(epoch, ""))
        self._finished = max(self._finished, epoch)

    def drain(self) -> None:
        """Until everything submitted is finished; what waited for that comes back."""
        self.wait(self.submitted)
        with self.lock:
            self._settle()

    def _settle(self) -> None:
        self._labels = {e: label for e, label in self._labels.items() if not self.done(e)}
        self._reclaim()
        self.memory.collect()

    # -------------------------------------------------------------------------------------- copying
    def upload(self, buffer: Buffer, offset: int, array: np.ndarray[Any, Any]) -> None:
        """Copy a C-contiguous array into a buffer."""
        data = _bytes_of(array, buffer, offset)
        host = buffer.host
        if host is not None:
            self.wait(buffer.epoch)
            host[offset:offset + data.size] = data.data
            return
        with self.lock:
            for k, at in enumerate(range(0, data.size, STAGING)):
                piece = data[at:at + STAGING]
                staging = self._stage(k)
                self.wait(staging.epoch)
                assert staging.host is not None
                staging.host[:piece.size] = piece.data
                recorder = self.recorder()
                recorder.copy(staging, 0, buffer, offset + at, piece.size)
                self.submit(recorder.finish(), [staging, buffer], "a copy to the device")

    def download(self, buffer: Buffer, offset: int, array: np.ndarray[Any, Any]) -> None:
        """Copy from a buffer into a C-contiguous array, once it is computed."""
        data = _bytes_of(array, buffer, offset)
        host = buffer.host
        if host is not None:
            self.wait(buffer.epoch)
            data[:] = np.frombuffer(host[offset:offset + data.size], np.uint8)
            return
        with self.lock:
            waiting: list[tuple[Buffer, int, int]] = []

            def take(staging: Buffer, at: int, size: int) -> None:
                self.wait(staging.epoch)
                assert staging.host is not None
                data[at:at + size] = np.frombuffer(staging.host[:size], np.uint8)

            for k, at in enumerate(range(0, data.size, STAGING)):
                if len(waiting) == 2:
                    take(*waiting.pop(0))
                size = min(STAGING, data.size - at)
                staging = self._stage(k)
                self.wait(staging.epoch)
                recorder = self.recorder()
                recorder.copy(buffer, offset + at, staging, 0, size)
                self.submit(recorder.finish(), [staging, buffer], "a copy from the device")
                waiting.append((staging, at, size))
            for piece in waiting:
                take(*piece)

    def need_turns(self) -> None:
        """Bring the table behind the word `inv_half_pi` there. As a constant in a shader, drivers take minutes over it."""
        with self.lock:
            if self._turns is None:
                table = np.concatenate([inv_half_pi_table(k) for k in range(4)])
                self._turns = self.memory.take(table.nbytes)
                self.upload(self._turns, 0, table)
                self.turns_address = self._turns.address

    def _stage(self, k: int) -> Buffer:
        """One of two buffers that the host sees."""
        if not self._staging:
            self._staging = [self.memory.take(STAGING, host=True) for _ in range(2)]
        return self._staging[k % 2]

    # -------------------------------------------------------------------------------------- pipelines
    def pipeline(self, key: str, code: bytes, label: str) -> Any:
        """A shader ready to run. Raises CompileError when the driver refuses it."""
        with self.lock:
            self.check_open()
            found = self._pipelines.get(key)
            if found is None:
                found = self._pipelines[key] = self._new_pipeline(code, label)
            return found

    def _new_pipeline(self, code: bytes, label: str) -> Any:
        if not _is_whole(code):
            raise CompileError(f"the shader of kernel {label} for {self} is damaged: {len(code)} bytes that are no SPIR-V",
                               cure="`python -m fuelnumba cache clear` makes the shaders anew")
        module, made = ffi.new("VkShaderModule*"), ffi.new("VkPipeline[1]")
        words = ffi.cast("uint32_t*", ffi.from_buffer(code))
        info = new("ShaderModuleCreateInfo", codeSize=len(code), pCode=words)
        result = lib.vkCreateShaderModule(self.handle, info, NULL, module)
        if result >= 0:
            self.keep("ShaderModule", module[0])
            name = ffi.new("char[]", b"main")
            # software devices round fma() twice, which Vulkan allows; processors of graphics cards have it
            fused, entry = ffi.new("uint32_t[1]", [self.info.kind != "cpu"]), new("SpecializationMapEntry", size=4)
            special = new("SpecializationInfo", mapEntryCount=1, pMapEntries=entry, dataSize=4, pData=fused)
            stage = new("PipelineShaderStageCreateInfo", stage=vulkan.VK_SHADER_STAGE_COMPUTE_BIT, module=module[0], pName=name,
                        pSpecializationInfo=special)
            create = new("ComputePipelineCreateInfo", stage=stage[0], layout=self.layout, basePipelineIndex=-1)
            result = lib.vkCreateComputePipelines(self.handle, self._cache, 1, create, NULL, made)
            self.destroy("ShaderModule", module[0])
        if result in api.OUT_OF_MEMORY or result == vulkan.VK_ERROR_DEVICE_LOST:
            self._checked(result, label)
        if result < 0:
            raise CompileError(f"{self} does not take the shader of kernel {label}: {api.name_of(result)}",
                               cure="update the driver; `python -m fuelnumba cache clear` makes the shaders anew")
        return self.keep("Pipeline", made[0])

    def _cache_file(self) -> Path:
        return modcache.folder() / f"vulkan-{self.info.cache_id}.pipelines"

    def _pipeline_cache(self) -> tuple[Any, int]:
        """The driver's cache of pipelines, with what an earlier process kept; a damaged file is as none."""
        data = b""
        with suppress(OSError):
            digest, _, data = self._cache_file().read_bytes().partition(b"\n")
            if hashlib.sha256(data).hexdigest().encode() != digest:
                data = b""
        info = new("PipelineCacheCreateInfo", initialDataSize=len(data), pInitialData=ffi.from_buffer(data))
        return self.create("PipelineCache", info), len(data)

    def _keep_pipelines(self) -> None:
        size = ffi.new("size_t*")
        if lib.vkGetPipelineCacheData(self.handle, self._cache, size, NULL) < 0 or size[0] <= self._cache_size:
            return
        data = ffi.new("char[]", size[0])
        if lib.vkGetPipelineCacheData(self.handle, self._cache, size, data) == 0:
            kept = bytes(ffi.buffer(data, size[0]))
            modcache.replace(self._cache_file(), hashlib.sha256(kept).hexdigest().encode() + b"\n" + kept)

    # -------------------------------------------------------------------------------------- the end
    def close(self) -> None:
        """Give everything back to the driver. Does nothing when it is closed."""
        with self.lock:
            if not self.is_open or api.is_forked():
                return
            with suppress(DeviceLostError):  # which leaves nothing to wait for
                self.drain()
                with suppress(OSError, CacheError):  # a cache that cannot be kept is made again
                    self._keep_pipelines()
            self._destroy_all()
            self._pipelines.clear()
            self._staging.clear()
            self._turns = None
            self.memory.forget()
            api.devices.discard(self)
            for selector in [s for s, device in list(_open.items()) if device is self]:
                del _open[selector]

    def __del__(self) -> None:
        self.close()


def _is_whole(code: bytes) -> bool:
    """Whether it is SPIR-V, instruction after instruction to the end of a function: drivers do not look."""
    if len(code) < 20 or len(code) % 4:
        return False
    words = np.frombuffer(code, np.uint32).tolist()
    at = 5 if words[0] == SPIRV_MAGIC else len(words)
    last = count = 0
    while at < len(words):
        last, count = words[at] & 0xffff, words[at] >> 16
        at += count or len(words)
    return at == len(words) and last == FUNCTION_END


def _bytes_of(array: np.ndarray[Any, Any], buffer: Buffer, offset: int) -> np.ndarray[Any, Any]:
    """The bytes of a C-contiguous array, which are copied from or to that place of a buffer."""
    if offset < 0 or offset + array.nbytes > buffer.nbytes:
        raise BackendError(f"{array.nbytes} bytes at {offset} do not lie within a buffer of {buffer.nbytes}",
                           cure="take a larger buffer")
    return array.reshape(-1).view(np.uint8)
