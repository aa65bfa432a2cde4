"""Device memory: places in blocks, what waits for the device, and what happens when there is no more."""

from __future__ import annotations

import gc
import threading
from itertools import pairwise

import numpy as np
import pytest

from fuelnumba.core.errors import BackendError
from fuelnumba.vk import device as device_module
from fuelnumba.vk import memory
from fuelnumba.vk.device import Device, list_devices
from tests.vk.shaders import ADD_ONE, SPIN, Entry, fetched, launch, words

MiB = 1 << 20


@pytest.fixture
def staged(monkeypatch):
    """A device whose memory the host does not see, as that of a graphics card."""
    made = Device(list_devices()[0])
    made.memory.is_shared = False
    monkeypatch.setattr(device_module, "STAGING", 1000)
    yield made
    made.close()
    assert not made.live


def test_buffers_are_aligned_and_apart(device):
    buffers = [device.memory.take(n) for n in (1, 255, 256, 257, 5000)]
    places = sorted((b.address, b.address + b.nbytes) for b in buffers)
    assert all(begin % 256 == 0 for begin, _ in places)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(places))
    assert device.live["DeviceMemory"] == 1  # all from one block
    assert device.memory.stats.used == 256 * (1 + 1 + 1 + 2 + 20)


def test_the_host_sees_shared_memory(device):
    assert device.memory.is_shared  # of a software device
    buffer = words(device, range(10))
    seen = np.frombuffer(buffer.host, np.int64, 10)
    np.testing.assert_array_equal(seen, np.arange(10))
    seen[3] = 100
    assert fetched(device, buffer, 10)[3] == 100


def test_a_view_keeps_its_buffer(device):
    seen = np.frombuffer(words(device, range(10)).host, np.int64, 10)
    gc.collect()
    others = [words(device, [-1] * 10) for _ in range(20)]
    np.testing.assert_array_equal(seen, np.arange(10))
    assert device.memory.stats.used == 21 * 256
    del seen, others
    assert device.memory.stats.used == 0


def test_the_smallest_place_that_is_large_enough_is_taken(device):
    take = device.memory.take
    small, wall, large, _end = take(1024), take(256), take(4096), take(256)
    places = small.address, large.address
    del small, large
    assert take(512).address == places[0]
    assert take(2048).address == places[1]
    assert wall.address not in places


def test_free_neighbours_are_joined(device):
    buffers = [device.memory.take(1024) for _ in range(8)]
    wall = device.memory.take(256)
    first = buffers[0].address
    for k in (1, 3, 5, 7, 0, 2, 6, 4):
        buffers[k] = None
    whole = device.memory.take(8 * 1024)
    assert whole.address == first < wall.address


def test_random_takes_and_frees_never_overlap(device, rng):
    held: list = []
    for _ in range(600):
        if held and rng.random() < 0.48:
            held.pop(int(rng.integers(len(held))))
        else:
            buffer = device.memory.take(int(rng.integers(1, 60_000)))
            np.frombuffer(buffer.host, np.uint8)[:] = len(held) % 251
            held.append(buffer)
            del buffer
    places = sorted((b.address, b.address + b.nbytes) for b in held)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(places))
    assert device.memory.stats.used == sum(b.nbytes for b in held)
    held.clear()
    assert device.memory.stats.used == 0
    assert all(block.is_empty for block in device.memory._blocks)


def test_a_large_buffer_gets_a_block_of_its_own(device):
    before = device.memory.take(100)
    large = device.memory.take(100 * MiB)
    assert large.nbytes == 100 * MiB and device.live["DeviceMemory"] == 2
    assert large.block is not before.block


def test_reuse_waits_for_the_device(device):
    buffer = words(device, np.zeros(64 * 200))
    address = buffer.address
    recorder = device.recorder()
    for _ in range(4):
        launch(recorder, device, SPIN, buffer, 64 * 200)
    epoch = device.submit(recorder.finish(), [buffer])
    del buffer
    assert not device.done(epoch)
    assert device.memory.stats.deferred == 1
    other = device.memory.take(8 * 64 * 200)
    assert other.address != address
    device.wait(epoch)
    assert device.memory.take(8 * 64 * 200).address == address
    assert device.memory.stats.deferred == 1


def test_out_of_memory_leaves_the_pool_intact(device):
    device.memory.cap = 8 * MiB
    held = [words(device, [k] * 1000) for k in range(5)]
    with pytest.raises(BackendError, match=r"no room for 9000000 bytes: 40960 are in use.*the cap is 8388608"):
        device.memory.take(9_000_000)
    assert [fetched(device, b, 1000).tolist() for b in held] == [[k] * 1000 for k in range(5)]
    assert device.memory.stats.used == 5 * 8192
    held.append(words(device, [7] * 1000))
    assert fetched(device, held[-1], 1000).tolist() == [7] * 1000


def test_what_the_device_works_with_is_waited_for_before_giving_up(device):
    device.memory.cap = 3 * MiB
    buffer = words(device, np.zeros(2 * MiB // 8))
    recorder = device.recorder()
    launch(recorder, device, SPIN, buffer, 64)
    device.submit(recorder.finish(), [buffer])
    del buffer
    assert device.memory.take(2 * MiB).nbytes == 2 * MiB


def test_garbage_is_collected_before_giving_up(device):
    device.memory.cap = 3 * MiB
    cycle = [words(device, np.zeros(2 * MiB // 8))]
    cycle.append(cycle)
    del cycle
    gc.disable()
    try:
        assert device.memory.take(2 * MiB).nbytes == 2 * MiB
    finally:
        gc.enable()


def test_the_driver_has_no_more_memory(device, monkeypatch):
    held = words(device, [1, 2, 3])
    with monkeypatch.context() as patch:
        patch.setattr(memory, "lib", Entry(vkAllocateMemory=lambda *args: -2))
        with pytest.raises(BackendError, match=r"no room for 104857600 bytes: 256 are in use"):
            device.memory.take(100 * MiB)
    assert fetched(device, held, 3).tolist() == [1, 2, 3]
    assert device.live["Buffer"] == device.live["DeviceMemory"] == 1
    assert device.memory.take(100 * MiB).nbytes == 100 * MiB


def test_a_block_that_cannot_be_mapped_is_given_back(device, monkeypatch):
    monkeypatch.setattr(memory, "lib", Entry(vkMapMemory=lambda *args: -5))
    with pytest.raises(BackendError, match="VK_ERROR_MEMORY_MAP_FAILED"):
        device.memory.take(100)
    assert device.live["Buffer"] == device.live["DeviceMemory"] == 0


def test_more_than_one_piece_of_memory_may_be(device):
    with pytest.raises(BackendError, match=rf"in one piece: it takes {device.info.max_buffer}"):
        device.memory.take(1 << 50)


def test_empty_blocks_go_back_to_the_driver(device):
    device.memory.most = 1 << 30
    held = [device.memory.take(100 * MiB) for _ in range(5)]
    assert device.memory.stats.reserved > 500 * MiB
    del held
    device.drain()
    stats = device.memory.stats
    assert stats.reserved <= max(memory.KEPT, device.memory.most // 8) and stats.used == 0 and stats.peak_used == 500 * MiB


def test_copies_in_pieces(staged, rng):
    array = rng.integers(0, 256, 123_457, dtype=np.uint8)
    buffer = staged.memory.take(array.nbytes + 100)
    assert buffer.host is None
    staged.upload(buffer, 100, array)
    out = np.empty_like(array)
    staged.download(buffer, 100, out)
    np.testing.assert_array_equal(out, array)
    part = np.empty(777, np.uint8)
    staged.download(buffer, 100 + 5000, part)
    np.testing.assert_array_equal(part, array[5000:5777])
    assert staged.memory.stats.used <= buffer.nbytes + 2 * 1024  # the staging is small, whatever the array


@pytest.mark.parametrize("offset", [-8, 1, 256])
def test_a_copy_stays_within_its_buffer(device, staged, offset):
    for d in (device, staged):
        buffer = d.memory.take(256)
        for copy in (d.upload, d.download):
            with pytest.raises(BackendError, match=f"256 bytes at {offset} do not lie within a buffer of 256"):
                copy(buffer, offset, np.zeros(32))


def test_launches_between_copies_in_pieces(staged):
    buffer = words(staged, np.arange(5000))
    recorder = staged.recorder()
    launch(recorder, staged, ADD_ONE, buffer, 5000)
    staged.submit(recorder.finish(), [buffer])
    np.testing.assert_array_equal(fetched(staged, buffer, 5000), np.arange(1, 5001))
    staged.upload(buffer, 0, np.arange(10, dtype=np.int64) - 10)
    np.testing.assert_array_equal(fetched(staged, buffer, 12), [*range(-10, 0), 11, 12])


def test_a_gigabyte_goes_over_and_comes_back():
    device = Device(list_devices()[0])
    device.memory.is_shared = False  # staged, and 1 GiB of the device beside the host's
    try:
        array = np.arange(1 << 27, dtype=np.int64)
        buffer = device.memory.take(array.nbytes)
        device.upload(buffer, 0, array)
        array[:] = 0
        device.download(buffer, 0, array)
        assert array[0] == 0 and array[-1] == (1 << 27) - 1
        assert (np.diff(array[:: 1 << 10]) == 1 << 10).all()
        del buffer
    finally:
        device.close()


def test_threads_take_and_free_at_once(device):
    def work(k: int) -> None:
        rng = np.random.default_rng(k)
        held: list = []
        for step in range(200):
            buffer = device.memory.take(int(rng.integers(8, 20_000)))
            seen = np.frombuffer(buffer.host, np.int64, 1)
            seen[0] = k * 1000 + step
            held.append((buffer, int(seen[0])))
            if len(held) > 10:
                old, value = held.pop(int(rng.integers(len(held))))
                if int(np.frombuffer(old.host, np.int64, 1)[0]) != value:
                    wrong.append((k, step))

    wrong: list = []
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert device.memory.stats.used == 0


def test_garbage_found_in_the_middle_of_a_take(device):
    """The collector runs whenever objects are made, so also while free places are being looked at."""
    gc.set_threshold(1)
    try:
        for k in range(300):
            cycle = [device.memory.take(256 + 256 * (k % 7))]
            cycle.append(cycle)
    finally:
        gc.set_threshold(700, 10, 10)
    del cycle
    gc.collect()
    assert device.memory.stats.used == 0
    assert all(block.is_empty for block in device.memory._blocks)
