"""Tiny shaders over a block of 64-bit words, and stand-ins for entry points of the driver's."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fuelnumba.vk import api, spirv
from fuelnumba.vk.device import Device
from fuelnumba.vk.memory import Buffer

HEAD = """#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
layout(local_size_x = 64) in;
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Words { int64_t d[]; };
layout(push_constant) uniform Push { uint64_t block; int64_t total; };
void main() {
  int at = int(gl_GlobalInvocationID.x + gl_GlobalInvocationID.y * gl_NumWorkGroups.x * 64u);
  if (at >= total) return;
  Words W = Words(block);
"""
ADD_ONE = "W.d[at] = W.d[at] + 1L;"
DOUBLE = "W.d[at] = W.d[at] * 2L;"
# llvmpipe ends a shader's loops after 65535 rounds, all its loops together
SPIN_ROUNDS = 60000
SPIN = f"int64_t s = W.d[at]; for (int k = 0; k < {SPIN_ROUNDS}; k++) s = s * 3L + int64_t(k); W.d[at] = s;"


@cache
def code(body: str) -> bytes:
    return spirv.compile_glsl(f"{HEAD}{body}\n}}\n", "test")


def pipeline(device: Device, body: str) -> Any:
    return device.pipeline(body, code(body), "test")


def words(device: Device, values: Any) -> Buffer:
    """A buffer with 64-bit integers."""
    array = np.ascontiguousarray(values, np.int64)
    buffer = device.memory.take(array.nbytes)
    device.upload(buffer, 0, array)
    return buffer


def fetched(device: Device, buffer: Buffer, count: int) -> np.ndarray[Any, Any]:
    out = np.empty(count, np.int64)
    device.download(buffer, 0, out)
    return out


def launch(recorder: Any, device: Device, body: str, buffer: Buffer, count: int) -> None:
    """A shader over a whole buffer."""
    recorder.dispatch(pipeline(device, body), buffer.address, count, -(-count // 64), [(buffer, 0, 8 * count)],
                      [(buffer, 0, 8 * count)])


class Entry:
    """The driver's entry points, some of them replaced: `Entry(vkQueueSubmit=lambda *args: -4)`."""

    def __init__(self, **replaced: Callable[..., Any]) -> None:
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(api.lib, name)
