"""Recording, submitting, replaying, and where barriers are put."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from fuelnumba.core.errors import BackendError
from fuelnumba.vk import device as device_module
from fuelnumba.vk.device import Device
from tests.vk.shaders import ADD_ONE, DOUBLE, SPIN, SPIN_ROUNDS, fetched, launch, pipeline, words


def test_dependent_launches_see_each_other(device):
    buffer = words(device, range(1000))
    recorder = device.recorder()
    for body in (ADD_ONE, DOUBLE, ADD_ONE, DOUBLE):
        launch(recorder, device, body, buffer, 1000)
    commands = recorder.finish()
    assert (commands.dispatches, commands.barriers) == (4, 3)
    device.wait(device.submit(commands, [buffer]))
    np.testing.assert_array_equal(fetched(device, buffer, 1000), ((np.arange(1000) + 1) * 2 + 1) * 2)


def test_replays_run_one_after_another(device):
    buffer = words(device, range(300))
    recorder = device.recorder()
    launch(recorder, device, DOUBLE, buffer, 300)
    launch(recorder, device, ADD_ONE, buffer, 300)
    commands = recorder.finish()
    epochs = [device.submit(commands, [buffer]) for _ in range(5)]
    assert epochs == sorted(set(epochs)) and buffer.epoch == epochs[-1]
    device.wait(epochs[-1])
    assert all(map(device.done, epochs))
    expected = np.arange(300)
    for _ in range(5):
        expected = expected * 2 + 1
    np.testing.assert_array_equal(fetched(device, buffer, 300), expected)


def test_a_submission_sees_earlier_ones_without_a_wait(device):
    buffer = words(device, np.zeros(500))
    for _ in range(20):
        recorder = device.recorder()
        launch(recorder, device, ADD_ONE, buffer, 500)
        device.submit(recorder.finish(), [buffer])
    np.testing.assert_array_equal(fetched(device, buffer, 500), np.full(500, 20))


@pytest.mark.parametrize("launches, barriers", [
    ([([], ["a"]), (["a"], ["b"])], 1),  # read after write
    ([(["a"], ["b"]), ([], ["a"])], 1),  # write after read
    ([([], ["a"]), ([], ["a"])], 1),  # write after write
    ([(["a"], ["b"]), (["a"], ["c"])], 0),  # both only read
    ([([], ["a"]), ([], ["b"]), ([], ["c"])], 0),  # independent
    ([([], ["a"]), ([], ["b"]), (["a"], ["c"]), (["b"], ["d"])], 1),  # one barrier is for all that came before it
    ([([], ["a"]), (["a"], ["b"]), (["b"], ["c"]), (["c"], ["d"])], 3),  # a chain
])
def test_a_barrier_where_a_launch_depends_on_another(device, launches, barriers):
    buffers = {name: words(device, [0] * 8) for name in "abcd"}
    recorder = device.recorder()
    for reads, writes in launches:
        recorder.dispatch(pipeline(device, ADD_ONE), buffers[writes[0]].address, 8, 1, [(r, 0, 64) for r in reads],
                          [(w, 0, 64) for w in writes])
    assert recorder.finish().barriers == barriers


@pytest.mark.parametrize("second, barriers", [((0, 64), 1), ((63, 128), 1), ((64, 128), 0)])
def test_ranges_of_one_storage_are_told_apart(device, second, barriers):
    buffer = words(device, [0] * 16)
    recorder = device.recorder()
    recorder.dispatch(pipeline(device, ADD_ONE), buffer.address, 8, 1, [], [("arena", 0, 64)])
    recorder.dispatch(pipeline(device, ADD_ONE), buffer.address + 64, 8, 1, [], [("arena", *second)])
    assert recorder.finish().barriers == barriers
    # recorded but never submitted: nothing ran
    assert fetched(device, buffer, 16).tolist() == [0] * 16


def test_many_parts_of_one_storage(device):
    """A barrier now and then is cheaper than comparing each launch with a thousand others."""
    buffer = words(device, np.zeros(8 * 1000))
    recorder = device.recorder()
    for k in range(1000):
        recorder.dispatch(pipeline(device, ADD_ONE), buffer.address + 64 * k, 8, 1, [("weights", 0, 8)],
                          [("result", 64 * k, 64 * (k + 1))])
    commands = recorder.finish()
    assert commands.barriers == 1000 // 64
    device.submit(commands, [buffer])
    np.testing.assert_array_equal(fetched(device, buffer, 8 * 1000), np.ones(8 * 1000))


def test_copies_between_buffers(device):
    a, b, c = words(device, range(100)), words(device, np.zeros(100)), words(device, np.zeros(100))
    recorder = device.recorder()
    recorder.copy(a, 80, b, 0, 320)
    recorder.copy(b, 8, c, 16, 80)  # reads what was just written
    recorder.copy(a, 0, c, 400, 80)  # has to do with neither
    commands = recorder.finish()
    assert commands.barriers == 1
    device.wait(device.submit(commands, [a, b, c]))
    expected = np.zeros(100, np.int64)
    expected[2:12], expected[50:60] = np.arange(11, 21), np.arange(10)
    np.testing.assert_array_equal(fetched(device, c, 100), expected)
    np.testing.assert_array_equal(fetched(device, b, 40), np.arange(10, 50))


def test_groups_beyond_what_one_axis_takes(device):
    most = device.info.max_groups[0]
    count = 64 * (most + 10)
    buffer = words(device, np.arange(count))
    recorder = device.recorder()
    launch(recorder, device, ADD_ONE, buffer, count)
    device.submit(recorder.finish(), [buffer])
    np.testing.assert_array_equal(fetched(device, buffer, count), np.arange(1, count + 1))


def test_more_groups_than_the_device_takes(device):
    buffer = words(device, [1])
    recorder = device.recorder()
    most = device.info.max_groups[0] * device.info.max_groups[1]
    with pytest.raises(BackendError, match=f"{most + 1} groups"):
        recorder.dispatch(pipeline(device, ADD_ONE), buffer.address, 1, most + 1, [], [(buffer, 0, 8)])
    launch(recorder, device, ADD_ONE, buffer, 1)  # the recorder is as before
    device.submit(recorder.finish(), [buffer])
    assert fetched(device, buffer, 1).tolist() == [2]


def test_no_groups_no_launch(device):
    recorder = device.recorder()
    recorder.dispatch(pipeline(device, ADD_ONE), 0, 0, 0, [], [])
    assert recorder.finish().dispatches == 0


def test_command_buffers_are_used_again(device):
    buffer = words(device, [0] * 64)
    for _ in range(50):
        recorder = device.recorder()
        launch(recorder, device, ADD_ONE, buffer, 64)
        device.wait(device.submit(recorder.finish(), [buffer]))
        abandoned = device.recorder()  # as when an error comes between
        launch(abandoned, device, ADD_ONE, buffer, 64)
        del recorder, abandoned
    gc.collect()
    assert device.live["CommandBuffer"] <= 4
    assert fetched(device, buffer, 64).tolist() == [50] * 64


def test_commands_dropped_on_their_way_run_to_the_end(device):
    buffer = words(device, np.arange(64))
    for _ in range(4):
        recorder = device.recorder()
        launch(recorder, device, SPIN, buffer, 64)
        device.submit(recorder.finish(), [buffer])
        del recorder
        device.recorder().finish()  # takes a command buffer that is free, not one that runs
    expected = np.arange(64, dtype=np.uint64)
    for _ in range(4):
        for k in range(SPIN_ROUNDS):
            expected = expected * np.uint64(3) + np.uint64(k)
    np.testing.assert_array_equal(fetched(device, buffer, 64), expected.view(np.int64))


def test_two_devices_side_by_side(device):
    other = Device(device_module.list_devices()[0])
    try:
        buffers = [words(d, np.arange(100)) for d in (device, other)]
        for body, d, buffer in zip((ADD_ONE, DOUBLE), (device, other), buffers):
            recorder = d.recorder()
            launch(recorder, d, body, buffer, 100)
            d.submit(recorder.finish(), [buffer])
        np.testing.assert_array_equal(fetched(device, buffers[0], 100), np.arange(100) + 1)
        np.testing.assert_array_equal(fetched(other, buffers[1], 100), np.arange(100) * 2)
    finally:
        other.close()
    assert not other.live
    assert fetched(device, buffers[0], 1).tolist() == [1]  # the first is untouched by the second's end
