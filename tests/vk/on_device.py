"""Expressions in the words of kernels, over arrays on a Vulkan device: one thread an element."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuelnumba.compiler.codegen import Param, Source
from fuelnumba.core import dtypes as dt
from fuelnumba.vk import spirv
from fuelnumba.vk.device import Device
from fuelnumba.vk.glsl import LOCAL


def source(body: str, operands: dict[str, str], label: str = "test", **extra: str) -> Source:
    """A kernel of these statements. operands: pointers by name with their dtypes; extra: other parameters with their kind."""
    params = [Param(name, "pointer", dt.BY_NAME[t]) for name, t in operands.items()]
    params += [Param(name, kind) for name, kind in extra.items()]
    return Source(label, tuple(params), body, lambda: body)


def expression(text: str, dtypes: list[str], result: str) -> Source:
    """`out[i] = text`, a formula of x0, x1, ..."""
    loads = "".join(f"    x{k} = load_in(in{k}, i)\n" for k in range(len(dtypes)))
    names = {f"in{k}": t for k, t in enumerate(dtypes)} | {"out": result}
    return source(f"for i in range(lo, hi):\n{loads}    store_out(out, i, {text})\n", names, "expression")


def run(device: Device, kernel: Source, arrays: list[np.ndarray[Any, Any]], total: int, group: int = 0,
        values: list[Any] | None = None) -> list[np.ndarray[Any, Any]]:
    """Launch a kernel over these arrays, in the order of its pointers; gives what is in them afterwards. values: those of its
    other parameters, where 'status' stands for status words, which are then given last."""
    buffers, status = [], np.zeros(4, np.int64)
    for a in [*arrays, status]:
        buffers.append(device.memory.take(max(a.nbytes, 8)))
        if a.size:
            device.upload(buffers[-1], 0, np.ascontiguousarray(a))
    cells = device.memory.take(8 * len(arrays) or 8)
    device.upload(cells, 0, np.array([b.address for b in buffers[:-1]] or [0], np.int64))
    words = [w for k in range(len(arrays)) for w in (cells.address + 8 * k, 0)]
    for v in values or []:
        words.append(buffers[-1].address if v == "status" else
                     int(np.float64(v).view(np.int64)) if isinstance(v, float) else v)
    block = device.memory.take(8 * len(words))
    device.upload(block, 0, np.array(words, np.int64))
    code, needs = spirv.code(kernel, group)
    if "turns" in needs:
        device.need_turns()
    assert needs - {"turns"} <= device.features
    recorder = device.recorder()
    places = [(b, 0, b.nbytes) for b in buffers]
    recorder.dispatch(device.pipeline(spirv.key_of(kernel, group), code, kernel.label), block.address, total,
                      total if group else -(-total // LOCAL), places, places)
    device.wait(device.submit(recorder.finish(), [*buffers, cells, block]))
    out = []
    for a, b in zip([*arrays, status], buffers):
        out.append(np.empty(a.shape, a.dtype))
        if a.size:
            device.download(b, 0, out[-1])
    return out if "status" in (values or []) else out[:-1]


def value(device: Device, text: str, arrays: list[np.ndarray[Any, Any]], result: str) -> np.ndarray[Any, Any]:
    """The formula of x0, x1, ... over arrays of one shape."""
    kinds = [dt.of_numpy(a.dtype) for a in arrays]
    kernel = expression(text, [k.name for k in kinds if k is not None], result)
    out = np.zeros(arrays[0].shape, {d.name: d.numpy for d in dt.ALL}[result])
    return run(device, kernel, [*arrays, out], out.size)[-1]
