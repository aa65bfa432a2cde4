"""Calls on a Vulkan device: what stays there and how it comes back, DeviceArrays, calls that overlap, and every refusal."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fuelnumba as fn
from fuelnumba.core.errors import (
    ArgumentError,
    BackendError,
    CompileError,
    DTypeError,
    FuelError,
    FuelIndexError,
    InputArrayError,
    NoBackendForOp,
)
from fuelnumba.vk import device as devices
from fuelnumba.vk import spirv
from fuelnumba.vk.device import Device
from fuelnumba.vk.target import MOST_FRAMES
from tests.vk.shaders import Entry

f32 = np.float32
X = np.linspace(-2, 3, 6, dtype=f32)
MiB = 1 << 20


@pytest.fixture
def vulkan() -> Any:
    return fn.device("vulkan")


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what comes back to the host."""
    seen: list[int] = []
    whole = Device.download

    def download(self: Device, buffer: Any, offset: int, array: Any) -> None:
        seen.append(array.nbytes)
        whole(self, buffer, offset, array)

    monkeypatch.setattr(Device, "download", download)
    return seen


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A second device, 'vulkan:1': another logical device of the same driver."""
    first = devices.list_devices()[0]
    monkeypatch.setattr(devices, "list_devices", lambda: [first, replace(first, index=1)])
    made = fn.device("vulkan:1")
    yield made
    made.close()
    assert not made.machine.live


def there(x: Any) -> Any:
    return fn.to_device(x, "vulkan")


# ------------------------------------------------------------------------------------------------ staying there, coming back
def test_results_stay_until_asked_for(vulkan: Any, downloads: list[int]) -> None:
    @fn.jit
    def step(state):
        return {"x": state["x"] * 2, "n": state["n"] + 1}

    state: Any = {"x": there(X), "n": there(np.int64(0))}
    for _ in range(5):
        state = step(state)
    assert not downloads and state["x"].shape == (6,) and state["x"].dtype == f32 and len(state["x"]) == 6
    assert state["x"].nbytes == 24 and state["x"].ndim == 1 and state["x"].size == 6 and state["x"].itemsize == 4
    state["x"].wait()
    assert not downloads
    np.testing.assert_array_equal(np.asarray(state["x"]), X * 32)
    assert downloads == [24]
    assert int(state["n"]) == 5 and downloads == [24, 8]


def test_all_ways_back() -> None:
    x, one = there(X), there(X)[5]
    np.testing.assert_array_equal(np.asarray(x), X)
    np.testing.assert_array_equal(np.array(x, np.float64), X.astype(np.float64))
    np.testing.assert_array_equal(np.from_dlpack(x), X)
    np.testing.assert_array_equal(x.numpy(), X)
    np.testing.assert_array_equal(fn.to_device(x, "cpu"), X)
    assert x.tolist() == X.tolist() and x.item(2) == X.item(2) and one.item() == 3.0
    assert float(one) == 3.0 and int(one) == 3 and bool(one) and not there(np.float64(0)) and f"{one:.2f} {one}" == \
        "3.00 DeviceArray(3., dtype=float32, device='vulkan:0')"
    assert [10, 20, 30][there(np.int64(2))] == 30
    assert repr(there(np.arange(3))) == "DeviceArray([0, 1, 2], dtype=int64, device='vulkan:0')"
    first, *_ = x
    assert float(first) == -2 and 3 in x and 4 not in x
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(x, copy=False)
    with pytest.raises(ValueError, match="truth value"):
        bool(x)
    with pytest.raises(TypeError, match="without axes"):
        len(one)
    with pytest.raises(TypeError):
        [10][one]  # a float


def test_copies(vulkan: Any) -> None:
    x = there(X)
    for made in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), copy.copy(x), copy.deepcopy({"a": [x]})["a"][0]):
        assert made is not x and made.device is vulkan and made.buffer is not x.buffer
        np.testing.assert_array_equal(np.asarray(made), X)


def test_trees_to_and_from_a_device(vulkan: Any) -> None:
    tree = {"w": [X, X.reshape(2, 3).T], "b": (np.float32(2), 3, True, None), "again": X}
    moved = fn.to_device(tree, vulkan)
    assert moved["w"][0] is moved["again"] and moved["b"][3] is None
    assert fn.to_device(moved, "vulkan:0")["w"][1] is moved["w"][1]
    back = fn.to_device(moved, "cpu")
    np.testing.assert_array_equal(back["w"][1], X.reshape(2, 3).T)
    assert type(back["w"][1]) is np.ndarray and back["b"][0] == 2 and back["b"][1] == 3


@pytest.mark.parametrize("dtype", list(fn.dtypes.BY_NAME) if hasattr(fn.dtypes, "BY_NAME") else ["f32"])
def test_every_dtype_goes_over_and_back(dtype: str) -> None:
    x = np.arange(5).astype(fn.dtypes.BY_NAME[dtype].numpy)
    back = there(x).numpy()
    assert back.dtype == x.dtype and back.tobytes() == x.tobytes()


@pytest.mark.parametrize(("given", "kind"), [
    (np.ones(3, complex), DTypeError), ("abc", DTypeError), (np.array([{}]), InputArrayError),
    (np.ones(3, ">f4"), InputArrayError), (np.ma.masked_array(X), InputArrayError)])
def test_what_is_no_array_of_numbers(given: Any, kind: Any) -> None:
    with pytest.raises(kind):
        there(given)


# ------------------------------------------------------------------------------------------------ computing with arrays there
@pytest.mark.parametrize("compute", [
    lambda x, y: x + y, lambda x, y: 2 - x, lambda x, y: x @ y, lambda x, y: X @ y, lambda x, y: -abs(x) ** 2, lambda x, y: x < y,
    lambda x, y: (x > 0) & ~(y > 0), lambda x, y: x // 2 + x % 2, lambda x, y: X * x, lambda x, y: np.float32(3) / (y + 4),
    lambda x, y: np.exp(x), lambda x, y: np.where(x > 0, x, y), lambda x, y: np.concatenate([x, y, X]), lambda x, y: np.add.reduce(x),
    lambda x, y: np.stack([x, y], 1), lambda x, y: np.clip(x, -1, 1), lambda x, y: x[::-1][1:4], lambda x, y: x[..., None] * y,
    lambda x, y: x[-1], lambda x, y: x[np.array([0, -1, 2])], lambda x, y: x[None, 2:], lambda x, y: x.reshape(2, 3).T,
    lambda x, y: x.sum(), lambda x, y: x.reshape(3, 2).max(axis=1, keepdims=True), lambda x, y: x.astype(np.int16), lambda x, y: x.T,
    lambda x, y: x.mean() * y, lambda x, y: x.argmax(), lambda x, y: np.outer(x, y), lambda x, y: x == y, lambda x, y: np.zeros_like(x),
])
def test_operators_functions_and_methods(compute: Any) -> None:
    y = np.roll(X, 2)
    got, expected = compute(there(X), there(y)), compute(X, y)
    assert type(got) is fn.DeviceArray and got.dtype == expected.dtype and got.shape == expected.shape
    np.testing.assert_allclose(np.asarray(got), expected, rtol=2e-6)


def test_indices_on_the_device() -> None:
    np.testing.assert_array_equal(np.asarray(there(X)[there(np.array([4, 1]))]), X[[4, 1]])


def test_what_cannot_be_done_with_them() -> None:
    x = there(X)
    with pytest.raises(ArgumentError, match="cannot be written to"):
        x[0] = 1
    with pytest.raises(ArgumentError, match="out= cannot be given"):
        np.add(x, 1, out=x)
    host = X.copy()
    with pytest.raises(ArgumentError, match="out= cannot be given"):
        host += x
    with pytest.raises(AttributeError, match="has no attribute 'strides'"):
        x.strides  # noqa: B018
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)
    with pytest.raises(DTypeError, match="boolean mask"):
        x[x > 0]
    with pytest.raises(FuelError, match=r"\.sort\(\) would write"):
        x.sort()
    np.testing.assert_array_equal(np.asarray(x), X)


# ------------------------------------------------------------------------------------------------ captured
def test_a_captured_device_array(vulkan: Any, downloads: list[int]) -> None:
    weights = there(X)
    f = fn.jit(lambda x: (x * weights + np.maximum(weights, 0), weights.sum() - x, np.add(weights[1:], x[1:]), weights[0]))
    for given in (X, there(X)):  # of a host array, too: it runs where the weights are
        got = f(given)
        assert all(y.device is vulkan for y in got) and not downloads
        expected = (X * X + np.maximum(X, 0), X.sum() - X, X[1:] + X[1:], X[0])
        for y, e in zip(got, expected):
            np.testing.assert_allclose(np.asarray(y), e, rtol=1e-6, atol=1e-6)
        downloads.clear()
    weights = there(X * 2)
    np.testing.assert_allclose(np.asarray(f(X)[1]), (X * 2).sum() - X, rtol=1e-6)
    with vulkan:
        np.testing.assert_allclose(np.asarray(f(X)[1]), (X * 2).sum() - X, rtol=1e-6)


def test_a_captured_device_array_elsewhere(vulkan: Any, other: Any) -> None:
    weights = there(X.reshape(2, 3).T)
    f = fn.jit(lambda x, where: fn.to_device(weights, where) * x, static_argnames="where")
    for where in ("cpu", "vulkan:1"):
        for _ in range(2):
            np.testing.assert_array_equal(np.asarray(f(f32(2), where)), X.reshape(2, 3).T * 2)
    there_1 = fn.to_device(X, other)
    with pytest.raises(ArgumentError, match=r"multiply\(\): .* vulkan:") as caught:
        fn.jit(lambda x: x * weights[:, 0])(fn.to_device(X[:3], other))
    assert "vulkan:0" in caught.value.what and "vulkan:1" in caught.value.what
    np.testing.assert_array_equal(np.asarray(there_1), X)


# ------------------------------------------------------------------------------------------------ calls that overlap
def test_results_that_are_held_are_never_overwritten(vulkan: Any) -> None:
    """More calls on their way than an instance has frames for, and temporaries that all of them share."""
    @fn.jit
    def f(x, k):
        zero = x - x
        for _ in range(12):  # so that a call takes longer than calling does
            zero = np.sin(zero)
        return (np.exp(zero) + k + x)[::-1], (x - k)[:300]

    values = np.arange(100_000) % 100
    x = there(values.astype(f32))
    held = [(k, f(x, k)) for k in range(4 * MOST_FRAMES)]
    (instance,) = f._last.instances.values()
    assert len(instance.frames) == MOST_FRAMES
    for k, (total, difference) in held:
        np.testing.assert_array_equal(np.asarray(total), (1 + k + values)[::-1])
        np.testing.assert_array_equal(np.asarray(difference), values[:300] - k)
    assert len({id(a.buffer) for _, pair in held for a in pair}) == 2 * len(held)


def test_several_threads_call_one_function(vulkan: Any) -> None:
    f = fn.jit(lambda x, k: (np.exp(x - x) * k + x).sum() + x)
    wrong: list[Any] = []

    def work(number: int) -> None:
        try:
            with fn.device("vulkan"):
                x: Any = np.arange(64, dtype=f32) + number
                for k in range(12):
                    got = f(x if k % 2 else there(x), float(k))
                    np.testing.assert_array_equal(np.asarray(got), (x + k).sum() + x)
        except BaseException as err:
            wrong.append(err)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_one_device_for_threads_that_open_it_at_once(vulkan: Any) -> None:
    vulkan.close()
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(fn.device("vulkan"))) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(map(id, found))) == 1 and found[0] is not vulkan


def test_plans_side_by_side(vulkan: Any) -> None:
    """Two functions, and two lengths of one, replayed in turn."""
    f, g = fn.jit(lambda x: (x * 2).sum() + x), fn.jit(lambda x: x - x.max())
    a, b = np.arange(7, dtype=f32), np.arange(9, dtype=f32)
    with vulkan:
        got = [(f(a), f(b), g(a), g(f(a))) for _ in range(3)]
    for fa, fb, ga, gfa in got:
        np.testing.assert_array_equal(np.asarray(fa), (a * 2).sum() + a)
        np.testing.assert_array_equal(np.asarray(fb), (b * 2).sum() + b)
        np.testing.assert_array_equal(np.asarray(ga), a - 6)
        np.testing.assert_array_equal(np.asarray(gfa), a - 6)


def test_buffers_of_calls_on_their_way_are_deferred(vulkan: Any) -> None:
    memory = vulkan.machine.memory
    f = fn.jit(lambda x: np.exp(np.sin(x)).sum() + x)
    x = there(np.ones(2_000_000, f32))
    for _ in range(2 * MOST_FRAMES):
        f(x)
    vulkan.machine.drain()
    gc.collect()
    used, before = memory.stats.used, memory.stats.deferred
    for _ in range(3):
        f(x)  # whose results nobody holds
    assert memory.stats.deferred > before
    vulkan.machine.drain()
    assert memory.stats.used == used and not memory._deferred


# ------------------------------------------------------------------------------------------------ faults
def rows(table, at):
    return np.take(table, at, axis=0) + 1


def test_an_index_fault(vulkan: Any) -> None:
    f = fn.jit(rows)
    table, used = there(np.arange(8, dtype=f32).reshape(4, 2)), 0
    for _ in range(2 * MOST_FRAMES):
        with pytest.raises(FuelIndexError, match="index 7 is out of range for an axis of length 4") as caught:
            f(table, np.array([0, 7]))
        assert caught.value.where.line == rows.__code__.co_firstlineno + 1
        del caught
        np.testing.assert_array_equal(np.asarray(f(table, np.array([3, 0]))), [[7, 8], [1, 2]])
        vulkan.machine.drain()
        gc.collect()
        used = used or vulkan.machine.memory.stats.used
    assert vulkan.machine.memory.stats.used == used
    (instance,) = f._last.instances.values()
    assert len(instance.frames) <= MOST_FRAMES


def test_an_index_fault_outside_of_functions() -> None:
    """The line of this call, not that of the first one of its kind."""
    x = there(X)
    np.testing.assert_array_equal(np.asarray(x[np.array([1, 2])]), X[[1, 2]])
    with pytest.raises(FuelIndexError, match="index 99 is out of range") as caught:
        x[np.array([1, 99])]
    assert "[1, 99]" in str(caught.value)


def test_no_room_in_the_middle_of_a_call(vulkan: Any) -> None:
    """The arguments have room, the second result does not."""
    vulkan.close()  # so that no memory is kept
    vulkan = fn.device("vulkan")
    memory = vulkan.machine.memory
    f = fn.jit(lambda x: (x + 1, x * 2))
    x = np.ones(10 * MiB, f32)
    with vulkan:
        f(X)
        gc.collect()
        vulkan.machine.drain()
        used = 0
        memory.cap = memory.stats.reserved + 100 * MiB
        try:
            for attempt in range(3):
                with pytest.raises(BackendError, match=r"<lambda>\(\): vulkan:0 \(llvmpipe.*\) has no room for 41943040 bytes") as caught:
                    f(x)
                assert "cap is" in caught.value.what and caught.value.where is not None
                del caught
                gc.collect()
                used = used if attempt else memory.stats.used  # the first one made the plan ready for this length
                assert memory.stats.used == used < MiB
                np.testing.assert_array_equal(np.asarray(f(X)[1]), X * 2)  # what is smaller has room
                gc.collect()
        finally:
            memory.cap = None
        np.testing.assert_array_equal(np.asarray(f(x)[0]), 2)


def test_no_room_for_an_array(vulkan: Any) -> None:
    memory = vulkan.machine.memory
    memory.cap = memory.stats.reserved
    try:
        with pytest.raises(BackendError, match=r"vulkan:0 .* has no room for 400000000 bytes") as caught:
            there(np.broadcast_to(f32(1), 100_000_000))
        assert "drop results" in caught.value.cure
    finally:
        memory.cap = None
    np.testing.assert_array_equal(np.asarray(there(X) + 1), X + 1)


def test_a_buffer_past_the_devices_limit(vulkan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = vulkan.machine
    with monkeypatch.context() as patch:
        patch.setattr(machine, "info", replace(machine.info, max_buffer=MiB))
        with vulkan, pytest.raises(BackendError, match=r"large\(\): vulkan:0 .* has no room for 4000000 bytes in one piece"):
            fn.jit(large)(X)
    np.testing.assert_array_equal(np.asarray(there(X) + 2), X + 2)


def large(x):
    return np.broadcast_to(x[:1], (1000, 1000)) + 1


def test_more_groups_than_the_device_takes(vulkan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, f = vulkan.machine, fn.jit(large)
    with vulkan:
        with monkeypatch.context() as patch:
            patch.setattr(machine, "info", replace(machine.info, max_groups=(8, 4, 1)))
            with pytest.raises(BackendError, match=r"large\(\): add: a launch of 3907 groups is more than vulkan:0 .* takes"):
                f(X)
        np.testing.assert_array_equal(np.asarray(f(X)), np.full((1000, 1000), -1))


def test_a_shader_that_the_driver_refuses(vulkan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f = fn.jit(lambda x: np.tanh(x) * 41.25 + x)
    with vulkan:
        with monkeypatch.context() as patch:
            patch.setattr(devices, "lib", Entry(vkCreateComputePipelines=lambda *args: -1000012000))
            with pytest.raises(CompileError, match=r"vulkan:0 .* does not take the shader of kernel .*VK_ERROR_INVALID_SHADER") as caught:
                f(X)
        assert "np.tanh(x) * 41.25" in str(caught.value)
        np.testing.assert_allclose(np.asarray(f(X)), np.tanh(X) * f32(41.25) + X, rtol=1e-5)


def test_a_dtype_that_the_device_lacks(vulkan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f = fn.jit(lambda x: x.astype(np.float64) + 1)
    with vulkan:
        with monkeypatch.context() as patch:
            patch.setattr(vulkan.machine, "features", vulkan.machine.features - {"f64"})
            with pytest.raises(NoBackendForOp, match=r"on vulkan:0: .* needs f64, which llvmpipe") as caught:
                f(X)
            assert "x.astype(np.float64)" in str(caught.value) and "cast to a dtype that it has" in caught.value.cure
        np.testing.assert_array_equal(np.asarray(f(X)), X.astype(np.float64) + 1)


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-4], lambda data: data[:90] + b"\xff" + data[91:], lambda data: b"x"])
def test_a_damaged_shader_in_the_cache_is_made_again(vulkan: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, damage: Any) -> None:
    monkeypatch.setenv("FUELNUMBA_CACHE_DIR", str(tmp_path))

    def run() -> None:
        monkeypatch.setattr(spirv, "_codes", {})
        with vulkan:
            np.testing.assert_array_equal(np.asarray(fn.jit(lambda x: x * 77 + 1)(X)), X * 77 + 1)

    run()
    (file,) = tmp_path.rglob("v_*.spv")
    data = file.read_bytes()
    file.write_bytes(damage(data))
    run()
    assert file.read_bytes() == data


# ------------------------------------------------------------------------------------------------ choosing and closing
@pytest.mark.parametrize(("which", "what"), [
    ("vulkan:7", "there is no Vulkan device 7"), ("vulkan:-1", "there is no Vulkan device '-1'"), ("vulkan:²", "no Vulkan device '²'"),
    ("vulkan:discrete", "there is no Vulkan device 'discrete'"), ("vulkan:GeForce", "there is no Vulkan device 'GeForce'"),
    ("cuda", "there is no backend 'cuda'"), ("", "there is no backend ''"), ("cpu:1", "there is no backend 'cpu:1'"),
    (0, "named by a string, not 0"),
    (None, "named by a string, not None"),
])
def test_no_such_device(which: Any, what: str) -> None:
    for ask in (fn.device, lambda w: fn.to_device(X, w)):
        with pytest.raises(ArgumentError, match=what) as caught:
            ask(which)
        assert "llvmpipe" in caught.value.cure or "cpu, vulkan" in caught.value.cure


def test_no_such_device_inside_of_a_function(vulkan: Any) -> None:
    with vulkan, pytest.raises(ArgumentError, match="there is no Vulkan device 7"):
        fn.jit(lambda x: fn.to_device(x, "vulkan:7"))(X)


def test_arguments_on_two_devices(vulkan: Any, other: Any) -> None:
    x, y = there(X), fn.to_device(X, other)
    for compute in (lambda: x + y, lambda: np.concatenate([x, y]), lambda: fn.jit(lambda a, b: a * b)(x, y), lambda: x[y.astype(np.int64)]):
        with pytest.raises(ArgumentError, match=r"\(\): .* vulkan:0, .* on vulkan:1") as caught:
            compute()
        assert "fuelnumba.to_device" in caught.value.cure
    np.testing.assert_array_equal(np.asarray(x + fn.to_device(y, vulkan)), X + X)


def test_a_closed_device(vulkan: Any) -> None:
    f, table = fn.jit(lambda x: x * 2 + TABLE), there(X)
    g = fn.jit(lambda x: x + table)
    x = there(X)
    y = f(x)
    g(X)
    vulkan.close()
    for use in (lambda: np.asarray(y), lambda: f(x), lambda: x + 1, lambda: float(y[0]), x.wait, x.tolist, lambda: g(X), lambda: fn.to_device(x, "cpu"),
                lambda: pickle.dumps(x), lambda: vulkan.put(X)):
        with pytest.raises(BackendError, match=r"vulkan:0 \(llvmpipe.*\) was closed") as caught:
            use()
        assert "open it again" in caught.value.cure
    assert "was closed" in repr(x) and "(6,)" in repr(x)
    with vulkan, pytest.raises(BackendError, match="was closed"):
        f(X)
    again = fn.device("vulkan")
    assert again is not vulkan
    with again:
        np.testing.assert_array_equal(np.asarray(f(X)), X * 2 + TABLE)
        for use in (lambda: f(x), lambda: x + there(X), lambda: there(X) + x):
            with pytest.raises(BackendError, match="was closed"):
                use()
    np.testing.assert_array_equal(np.asarray(there(X) + 1), X + 1)


TABLE = np.arange(6, dtype=f32)
