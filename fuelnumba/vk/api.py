"""The Vulkan loader through the `vulkan` package: its raw entry points, structs, and what they answer, as errors.

Of the package only `ffi`, `lib` and the constants are used. Its own wrappers lose the children of nested structs, have a
broken vkGetBufferDeviceAddress, and take thirty times as long as the entry points.
"""

from __future__ import annotations

import atexit
import os
import re
import threading
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

from ..core.errors import BackendError, DeviceLostError

INSTALL = "apt install libvulkan1 mesa-vulkan-drivers gives the loader and a software device; a GPU's driver brings its own"

try:
    import vulkan
except ModuleNotFoundError:
    raise BackendError('Vulkan needs the package "vulkan", which is not installed',
                       cure='pip install "fuelnumba[vulkan]"') from None
except OSError:
    raise BackendError("Vulkan's loader (libvulkan.so.1) is not on this machine", cure=INSTALL) from None

ffi, lib, NULL = vulkan.ffi, vulkan.lib, vulkan.ffi.NULL
VERSION = vulkan.VK_MAKE_VERSION(1, 2, 0)
LAYER = "VK_LAYER_KHRONOS_validation"
OUT_OF_MEMORY = (vulkan.VK_ERROR_OUT_OF_HOST_MEMORY, vulkan.VK_ERROR_OUT_OF_DEVICE_MEMORY)

messages: list[str] = []  # what the validation layer said, when FUELNUMBA_VULKAN_VALIDATION=1
devices: weakref.WeakSet[Any] = weakref.WeakSet()  # open ones: closed before the instance, and told of a fork
_kept: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


# ------------------------------------------------------------------------------------------------ structs and results
def new(kind: str, **fields: Any) -> Any:
    """A pointer to a new struct Vk<kind>, its sType set, which keeps what its fields point to alive."""
    made = ffi.new(f"Vk{kind}*", fields)
    type_number = _structure_type(kind)
    if type_number is not None:
        made.sType = type_number
    _kept[made] = tuple(fields.values())
    return made


@cache
def _structure_type(kind: str) -> int | None:
    """VkPhysicalDeviceVulkan12Features -> VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES"""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[a-z0-9])(?=[0-9])", "_", kind).upper()
    return getattr(vulkan, f"VK_STRUCTURE_TYPE_{words}", None)


def strings(names: list[str]) -> Any:
    """A `const char **`."""
    each = [ffi.new("char[]", n.encode()) for n in names]
    made = ffi.new("char*[]", each)
    _kept[made] = each
    return made


@cache
def _result_names() -> dict[int, str]:
    names: dict[int, str] = {}
    for name, value in vars(vulkan).items():
        if name.startswith(("VK_ERROR_", "VK_NOT_READY", "VK_TIMEOUT", "VK_INCOMPLETE")):
            names.setdefault(value, name)
    return names


def name_of(result: int) -> str:
    return _result_names().get(result, f"VkResult {result}")


def check(result: int, doing: str) -> None:
    """Raise what a VkResult means; `doing` says what was asked, with the names of node and device."""
    if result >= 0:
        return
    if result == vulkan.VK_ERROR_DEVICE_LOST:
        raise DeviceLostError(f"{doing}: the device was lost (VK_ERROR_DEVICE_LOST)",
                              cure="its memory is gone: open the device again and copy the arrays there again")
    raise BackendError(f"{doing}: {name_of(result)}", cure="`python -m fuelnumba doctor` tells what the device is and has")


def listed(call: Callable[..., int], *args: Any, kind: str) -> list[Any]:
    """The answer of an entry point that is asked for a count first and for the elements then."""
    count = ffi.new("uint32_t*")
    check(call(*args, count, NULL) or 0, f"listing {kind}")
    found = ffi.new(f"{kind}[]", count[0])
    check(call(*args, count, found) or 0, f"listing {kind}")
    return [found[k] for k in range(count[0])]


# ------------------------------------------------------------------------------------------------ the instance
def has_validation() -> bool:
    """Whether the validation layer is on this machine."""
    found = listed(lib.vkEnumerateInstanceLayerProperties, kind="VkLayerProperties")
    return any(ffi.string(layer.layerName).decode() == LAYER for layer in found)


class Instance:
    """The process's connection with the loader; there is one."""

    def __init__(self) -> None:
        self.validates = os.environ.get("FUELNUMBA_VULKAN_VALIDATION") == "1"
        if self.validates and not has_validation():
            raise BackendError(f"FUELNUMBA_VULKAN_VALIDATION=1, and the layer {LAYER} is not on this machine",
                               cure="apt install vulkan-validationlayers, or unset the variable")
        version = ffi.new("uint32_t*")
        check(lib.vkEnumerateInstanceVersion(version), "asking the loader's version")
        if version[0] < VERSION:
            raise BackendError(f"Vulkan's loader is of version {version_text(version[0])}, and 1.2 is needed", cure=INSTALL)
        layers, extensions, following = [], [], NULL
        if self.validates:
            layers, extensions = [LAYER], [vulkan.VK_EXT_DEBUG_UTILS_EXTENSION_NAME]
            following = new("DebugUtilsMessengerCreateInfoEXT",
                            messageSeverity=vulkan.VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT
                            | vulkan.VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
                            messageType=vulkan.VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT
                            | vulkan.VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT,
                            pfnUserCallback=_heard)
        application = new("ApplicationInfo", pApplicationName=ffi.new("char[]", b"fuelnumba"), apiVersion=VERSION)
        handle = ffi.new("VkInstance*")
        result = lib.vkCreateInstance(
            new("InstanceCreateInfo", pNext=following, pApplicationInfo=application,
                enabledLayerCount=len(layers), ppEnabledLayerNames=strings(layers),
                enabledExtensionCount=len(extensions), ppEnabledExtensionNames=strings(extensions)), NULL, handle)
        if result == vulkan.VK_ERROR_INCOMPATIBLE_DRIVER:
            raise BackendError("Vulkan's loader found no driver", cure=INSTALL)
        check(result, "making a Vulkan instance")
        self.handle = handle[0]
        self.messenger = NULL
        if self.validates:
            messenger = ffi.new("VkDebugUtilsMessengerEXT*")
            check(self._extension("vkCreateDebugUtilsMessengerEXT")(self.handle, following, NULL, messenger),
                  "listening to the validation layer")
            self.messenger = messenger[0]

    def _extension(self, name: str) -> Any:
        return ffi.cast(f"PFN_{name}", lib.vkGetInstanceProcAddr(self.handle, name.encode()))

    def physical_devices(self) -> list[Any]:
        return listed(lib.vkEnumeratePhysicalDevices, self.handle, kind="VkPhysicalDevice")

    def close(self) -> None:
        if self.messenger != NULL:
            self._extension("vkDestroyDebugUtilsMessengerEXT")(self.handle, self.messenger, NULL)
        lib.vkDestroyInstance(self.handle, NULL)


@ffi.callback("PFN_vkDebugUtilsMessengerCallbackEXT")
def _heard(severity: int, kinds: int, data: Any, user: Any) -> int:
    messages.append(ffi.string(data.pMessage).decode(errors="replace"))
    return 0  # do not abort the call


_instance: Instance | None = None
_forked = False


def instance() -> Instance:
    """The instance, made at the first call."""
    global _instance
    if _forked:
        raise forked_error()
    if _instance is None:
        _instance = Instance()
        atexit.register(_close_instance)
    return _instance


def is_forked() -> bool:
    """Whether this process was forked from one that uses Vulkan."""
    return _forked


def forked_error() -> BackendError:
    return BackendError("this process was forked from one that uses Vulkan, whose devices do not survive that",
                        cure='start it with multiprocessing.get_context("spawn"), or use Vulkan only after the fork')


def _close_instance() -> None:
    if _instance is not None and not _forked:
        for device in list(devices):
            device.close()
        _instance.close()


def _after_fork() -> None:
    global _forked
    _forked = _instance is not None
    for device in list(devices):
        device.lock = threading.RLock()  # another thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def version_text(number: int) -> str:
    return f"{number >> 22 & 0x7f}.{number >> 12 & 0x3ff}.{number & 0xfff}"
