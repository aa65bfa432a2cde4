"""Choosing, opening, losing and closing devices; pipelines and what is kept of them."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fuelnumba as fn
from fuelnumba.core.errors import ArgumentError, BackendError, CompileError, DeviceLostError
from fuelnumba.vk import api
from fuelnumba.vk import device as module
from fuelnumba.vk.device import Device, list_devices, open_device
from tests.vk.shaders import ADD_ONE, DOUBLE, SPIN, Entry, code, fetched, launch, pipeline, words


def in_a_process(program: str, **environment: str) -> str:
    """What a program prints in a process of its own, with Vulkan of its own."""
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


OPEN = """
from fuelnumba.core.errors import FuelError
try:
    from fuelnumba.vk.device import open_device
    print(open_device())
except FuelError as err:
    print(type(err).__name__, err)
"""


# ------------------------------------------------------------------------------------------------ finding one
def test_what_is_told_of_a_device():
    info = list_devices()[0]
    assert info.index == 0 and info.kind == "cpu" and "llvmpipe" in info.name
    assert {"f64", "i8", "i16", "f16", "subgroup"} <= info.features and not info.missing
    assert info.max_groups[0] >= 65535 and info.max_group_size >= 256 and info.subgroup >= 4
    assert "rte32" in info.float_controls
    assert info.name in str(info) and info.api in str(info)


@pytest.mark.parametrize("selector", [None, 0, "cpu", "CPU", "llvm", "LLVMPIPE"])
def test_a_device_by_index_kind_or_name(selector):
    device = open_device(selector)
    assert device.info.index == 0 and open_device(0) is device


@pytest.mark.parametrize("selector", [1, -1, "discrete", "no such card"])
def test_an_unknown_device(selector):
    with pytest.raises(ArgumentError, match="no Vulkan device") as err:
        open_device(selector)
    assert "0: llvmpipe" in err.value.cure and "(cpu)" in err.value.cure


def test_a_device_that_lacks_what_is_needed(monkeypatch):
    lacking = replace(list_devices()[0], missing=("buffer device addresses", "64-bit integers"))
    monkeypatch.setattr(module, "list_devices", lambda: [lacking])
    monkeypatch.setattr(module, "_open", {})
    with pytest.raises(BackendError, match="has no buffer device addresses, 64-bit integers"):
        open_device()
    assert "cannot be used: no buffer device addresses" in str(lacking)


def test_features_are_needed_by_name(monkeypatch):
    monkeypatch.setitem(module.NEEDED, "sparseBinding", "sparse binding")  # a software device does not have it
    assert list_devices()[0].missing == ("sparse binding",)


def test_no_device_at_all(monkeypatch):
    monkeypatch.setattr(module, "list_devices", list)
    monkeypatch.setattr(module, "_open", {})
    with pytest.raises(BackendError, match="found no device") as err:
        open_device()
    assert "mesa-vulkan-drivers" in err.value.cure


def test_a_device_that_opens_halfway_leaves_nothing(monkeypatch):
    destroyed = []

    def destroy(handle, allocator):
        destroyed.append(handle)
        api.lib.vkDestroyDevice(handle, allocator)

    monkeypatch.setattr(module, "lib", Entry(vkCreatePipelineCache=lambda *args: -1, vkDestroyDevice=destroy))
    with pytest.raises(BackendError, match="making a PipelineCache: VK_ERROR_OUT_OF_HOST_MEMORY"):
        Device(list_devices()[0])
    assert len(destroyed) == 1


def test_no_driver(tmp_path):
    said = in_a_process(OPEN, VK_ICD_FILENAMES=str(tmp_path / "none.json"), VK_DRIVER_FILES=str(tmp_path / "none.json"),
                        FUELNUMBA_VULKAN_VALIDATION="0")
    assert said.startswith("BackendError Vulkan's loader found no d") and "apt install libvulkan1" in said


def test_no_package():
    said = in_a_process("import sys; sys.modules['vulkan'] = None\n" + OPEN)
    assert 'pip install "fuelnumba[vulkan]"' in said and said.startswith("BackendError")


def test_no_loader():
    said = in_a_process("""
import builtins, sys
plain = builtins.__import__
def without(name, *rest, **options):
    if name == "vulkan":
        raise OSError("Cannot find Vulkan SDK version")  # as the package says it
    return plain(name, *rest, **options)
builtins.__import__ = without
""" + OPEN)
    assert said.startswith("BackendError Vulkan's loader (libvulkan.so.1) is not on this machine") and "apt install" in said


def test_no_validation_layer(tmp_path):
    said = in_a_process(OPEN, VK_LAYER_PATH=str(tmp_path), FUELNUMBA_VULKAN_VALIDATION="1")
    assert said.startswith("BackendError FUELNUMBA_VULKAN_VALIDATION=1") and "vulkan-validationlayers" in said


def test_two_software_devices(tmp_path):
    """The same driver twice, by two manifests."""
    plain, second = Path("/usr/share/vulkan/icd.d/lvp_icd.x86_64.json"), tmp_path / "second.json"
    second.write_text(plain.read_text())
    said = in_a_process("""
import numpy as np
from fuelnumba.vk.device import list_devices, open_device
a, b = open_device(0), open_device(1)
assert a is not b and [d.index for d in list_devices()] == [0, 1]
for device in (a, b):
    buffer = device.memory.take(80)
    device.upload(buffer, 0, np.arange(10.0) + device.info.index)
    out = np.empty(10)
    device.download(buffer, 0, out)
    assert (out == np.arange(10.0) + device.info.index).all()
b.close()
print(a, b, b.is_open, dict(b.live))
""", VK_ICD_FILENAMES=f"{plain}:{second}")
    assert said.startswith("vulkan:0 (llvmpipe") and "vulkan:1 (llvmpipe" in said and said.endswith("False {}\n")


# ------------------------------------------------------------------------------------------------ results of the driver
@pytest.mark.parametrize("result, name", [(-8, "VK_ERROR_FEATURE_NOT_PRESENT"), (-1, "VK_ERROR_OUT_OF_HOST_MEMORY"),
                                          (-123456, "VkResult -123456")])
def test_a_failure_is_told_by_its_name(result, name):
    with pytest.raises(BackendError, match=f"asking the device: {name}"):
        api.check(result, "asking the device")


def test_validation_messages_are_collected(device):
    api.lib.vkCmdDispatch(device.command_buffer(), 1, 1, 1)  # of a command buffer that is not being recorded
    assert any("vkCmdDispatch" in m for m in api.messages)
    api.messages.clear()  # they would fail this test


# ------------------------------------------------------------------------------------------------ waiting
def test_epochs_are_finished_in_order(device):
    buffer = words(device, np.zeros(64 * 200))
    recorder = device.recorder()
    launch(recorder, device, SPIN, buffer, 64 * 200)
    commands = recorder.finish()
    first = device.submit(commands, [buffer])
    assert not device.done(first)
    second = device.submit(commands, [buffer])
    assert device.done(first) and not device.done(second)  # the same commands: one run at a time
    device.drain()
    assert device.done(second) and second == first + 1


def test_several_threads_submit(device):
    buffers = [words(device, np.zeros(64)) for _ in range(4)]

    def work(buffer):
        for _ in range(50):
            with device.lock:
                recorder = device.recorder()
                launch(recorder, device, ADD_ONE, buffer, 64)
                epoch = device.submit(recorder.finish(), [buffer])
            device.wait(epoch)

    threads = [threading.Thread(target=work, args=(b,)) for b in buffers]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for b in buffers:
        assert fetched(device, b, 64).tolist() == [50] * 64


# ------------------------------------------------------------------------------------------------ loss
def test_a_lost_device_names_what_ran(device, monkeypatch):
    buffer = words(device, np.zeros(64 * 200))
    recorder = device.recorder()
    launch(recorder, device, SPIN, buffer, 64 * 200)
    running = recorder.finish()
    device.submit(running, [buffer], "softmax")
    recorder = device.recorder()
    launch(recorder, device, ADD_ONE, buffer, 64)
    after = recorder.finish()
    device.submit(after, [buffer], "the next one")
    with monkeypatch.context() as patch:
        patch.setattr(module, "lib", Entry(vkWaitSemaphores=lambda *args: -4, vkGetSemaphoreCounterValue=lambda *args: 0))
        with pytest.raises(DeviceLostError, match=r"vulkan:0 .* was lost while it ran softmax"):
            device.drain()
    for later in (device.drain, device.recorder, lambda: device.submit(after), lambda: device.memory.take(8),
                  lambda: fetched(device, buffer, 1), lambda: device.upload(buffer, 0, np.zeros(1))):
        with pytest.raises(DeviceLostError, match="while it ran softmax") as err:
            later()
    assert "open it again" in err.value.cure
    api.lib.vkDeviceWaitIdle(device.handle)  # it only seems lost: it must not be taken down while it runs


def test_loss_at_submission(device, monkeypatch):
    buffer = words(device, [1])
    recorder = device.recorder()
    launch(recorder, device, ADD_ONE, buffer, 1)
    commands = recorder.finish()
    monkeypatch.setattr(module, "lib", Entry(vkQueueSubmit=lambda *args: -4))
    with pytest.raises(DeviceLostError, match="while it ran matmul"):
        device.submit(commands, [buffer], "matmul")


def test_a_lost_device_is_opened_anew():
    first = open_device()
    first.lost = "softmax"
    second = open_device()
    assert second is not first and not first.live
    assert fetched(second, words(second, [5]), 1).tolist() == [5]
    with pytest.raises(DeviceLostError, match="softmax"):
        first.drain()


def test_a_refused_submission_changes_nothing(device, monkeypatch):
    buffer = words(device, [1])
    recorder = device.recorder()
    launch(recorder, device, ADD_ONE, buffer, 1)
    commands = recorder.finish()
    with monkeypatch.context() as patch:
        patch.setattr(module, "lib", Entry(vkQueueSubmit=lambda *args: -2))
        with pytest.raises(BackendError, match="running matmul: VK_ERROR_OUT_OF_DEVICE_MEMORY"):
            device.submit(commands, [buffer], "matmul")
    device.submit(commands, [buffer], "matmul")
    assert fetched(device, buffer, 1).tolist() == [2]


# ------------------------------------------------------------------------------------------------ closing
def test_nothing_is_left_after_close():
    device = Device(list_devices()[0])
    buffer = words(device, np.arange(100))
    recorder = device.recorder()
    launch(recorder, device, ADD_ONE, buffer, 100)
    commands = recorder.finish()
    device.submit(commands, [buffer])
    held = [buffer, commands, device.recorder()]
    assert {"Device", "Buffer", "DeviceMemory", "Pipeline", "CommandBuffer"} <= device.live.keys()
    device.close()
    assert not device.live
    device.close()  # again, nothing happens
    for later in (device.drain, device.recorder, lambda: device.submit(held[1]), lambda: device.memory.take(8),
                  lambda: fetched(device, held[0], 1), lambda: held[0].host, lambda: device.pipeline("k", code(DOUBLE), "k")):
        with pytest.raises(BackendError, match=r"vulkan:0 .* was closed") as err:
            later()
    assert "open it again" in err.value.cure
    held.clear()
    del buffer, commands, recorder
    gc.collect()
    assert not device.live


def test_a_device_that_nobody_refers_to(monkeypatch):
    destroyed = []

    def destroy(handle, allocator):
        destroyed.append(handle)
        api.lib.vkDestroyDevice(handle, allocator)

    monkeypatch.setattr(module, "lib", Entry(vkDestroyDevice=destroy))
    device = Device(list_devices()[0])
    device.memory.is_shared = False
    buffer = words(device, np.arange(100))  # by staging memory, which refers to the device
    recorder = device.recorder()
    launch(recorder, device, ADD_ONE, buffer, 100)
    device.submit(recorder.finish(), [buffer])
    del device, recorder
    gc.collect()
    assert not destroyed  # the buffer has need of it
    del buffer
    gc.collect()
    assert len(destroyed) == 1


def test_a_closed_device_is_opened_anew():
    first = open_device()
    first.close()
    second = open_device()
    assert second is not first and second.is_open and open_device("cpu") is second


def test_arrays_and_functions_of_a_closed_device():
    @fn.jit
    def double(x):
        return x * 2 + 1

    with fn.device("vulkan"):
        x = double(np.arange(4.0))
    open_device().close()
    with pytest.raises(BackendError, match="was closed"):
        np.asarray(x)
    with fn.device("vulkan"):
        np.testing.assert_array_equal(double(np.arange(4.0)), [1, 3, 5, 7])


def test_open_devices_at_the_end_of_a_process():
    said = in_a_process("""
import numpy as np, atexit
atexit.register(lambda: print(len(api.messages), dict(device.live)))  # runs last
from fuelnumba.vk import api
from fuelnumba.vk.device import open_device
device = open_device()
buffer = device.memory.take(80)
device.upload(buffer, 0, np.arange(10.0))
""")
    assert said == "0 {}\n"


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_is_told(device):
    buffer = words(device, [1, 2, 3])
    commands = device.recorder().finish()
    context = multiprocessing.get_context("fork")
    said = context.SimpleQueue()

    def child():
        nonlocal buffer
        for k, use in enumerate((lambda: device.memory.take(8), lambda: device.submit(commands), device.drain, open_device,
                                 lambda: fetched(device, buffer, 3), device.close)):
            try:
                use()
                said.put(f"{k} nothing")
            except BackendError as err:
                said.put(f"{k} {err}")
        buffer = None  # goes nowhere

    process = context.Process(target=child)
    process.start()
    process.join(60)
    assert process.exitcode == 0
    answers = [said.get() for _ in range(6)]
    assert all("forked" in a and "spawn" in a for a in answers[:5]) and answers[5] == "5 nothing"
    assert fetched(device, buffer, 3).tolist() == [1, 2, 3]


# ------------------------------------------------------------------------------------------------ pipelines
def test_a_pipeline_is_made_once(device):
    assert pipeline(device, ADD_ONE) is pipeline(device, ADD_ONE)
    assert device.live["Pipeline"] == 1 and "ShaderModule" not in device.live


@pytest.mark.parametrize("damaged", [b"", b"\x03\x02#\x07", code(ADD_ONE)[:-1], code(ADD_ONE)[:-4],
                                     code(ADD_ONE)[:-8] + bytes(8), code(ADD_ONE) + bytes(4), b"\0\0\0\0" + code(ADD_ONE)[4:]])
def test_a_damaged_shader(device, damaged):
    with pytest.raises(CompileError, match=r"shader of kernel softmax for vulkan:0 .* is damaged"):
        device.pipeline("k", damaged, "softmax")
    assert device.pipeline("k", code(ADD_ONE), "softmax")


@pytest.mark.parametrize("entry", ["vkCreateShaderModule", "vkCreateComputePipelines"])
def test_a_shader_that_the_driver_refuses(device, monkeypatch, entry):
    with monkeypatch.context() as patch:
        patch.setattr(module, "lib", Entry(**{entry: lambda *args: -1000012000}))
        with pytest.raises(CompileError, match=r"vulkan:0 \(llvmpipe.*\) does not take the shader of kernel softmax: "
                                               "VK_ERROR_INVALID_SHADER_NV"):
            device.pipeline("k", code(ADD_ONE), "softmax")
    assert "ShaderModule" not in device.live
    assert device.pipeline("k", code(ADD_ONE), "softmax")


def test_no_memory_for_a_pipeline_is_no_fault_of_the_shader(device, monkeypatch):
    monkeypatch.setattr(module, "lib", Entry(vkCreateComputePipelines=lambda *args: -2))
    with pytest.raises(BackendError, match="running softmax: VK_ERROR_OUT_OF_DEVICE_MEMORY"):
        device.pipeline("k", code(ADD_ONE), "softmax")


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-1], lambda data: data[:70] + b"\xff" + data[71:],
                                    lambda data: b"x" * 1000])
def test_the_pipeline_cache_on_disk(tmp_path, monkeypatch, damage):
    monkeypatch.setenv("FUELNUMBA_CACHE_DIR", str(tmp_path))

    def run() -> Device:
        device = Device(list_devices()[0])
        buffer = words(device, [20])
        recorder = device.recorder()
        launch(recorder, device, DOUBLE, buffer, 1)
        device.submit(recorder.finish(), [buffer])
        assert fetched(device, buffer, 1).tolist() == [40]
        device.close()
        return device

    file = run()._cache_file()
    data = file.read_bytes()
    file.write_bytes(damage(data))
    run()
    assert file.read_bytes() == data  # made again
