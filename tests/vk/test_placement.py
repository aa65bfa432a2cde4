"""The CPU and Vulkan devices in one graph: values, what is copied and when, what falls back, and every refusal."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numba
import numpy as np
import pytest

import fuelnumba as fn
from fuelnumba.core.errors import ArgumentError, DonationError, FuelIndexError, NoBackendForOp, NoKernelError
from fuelnumba.core.ops import OPS
from fuelnumba.run.executor import Instance
from fuelnumba.vk import device as devices
from fuelnumba.vk import spirv
from fuelnumba.vk.device import Device
from tests.at_once import at_once

f32 = np.float32
X, Y = np.linspace(-1, 1, 6, dtype=f32), np.arange(6, dtype=f32)


@pytest.fixture
def vulkan() -> Any:
    return fn.device("vulkan")


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A second device, 'vulkan:1': another logical device of the same driver."""
    first = devices.list_devices()[0]
    monkeypatch.setattr(devices, "list_devices", lambda: [first, replace(first, index=1)])
    made = fn.device("vulkan:1")
    assert made.machine is not fn.device("vulkan").machine
    yield made
    made.close()
    assert not made.machine.live


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens on machines and between them, in order."""
    seen: list[str] = []

    def watch(owner: Any, name: str, word: str) -> None:
        whole = getattr(owner, name)

        def call(self: Any, *args: Any) -> Any:
            if word != "submit" or not args[2].startswith("a copy"):  # labels of staged copies
                seen.append(word)
            return whole(self, *args)

        monkeypatch.setattr(owner, name, call)

    watch(Device, "upload", "up")
    watch(Device, "download", "down")
    watch(Device, "submit", "submit")
    watch(Instance, "__call__", "cpu")
    return seen


def copies(f: Any) -> list[str]:
    return [str(s) for s in f.plan.steps if s not in f.plan.parts]


# ------------------------------------------------------------------------------------------------ values
def test_a_diamond(vulkan: Any, events: list[str]) -> None:
    @fn.jit
    def f(x, y):
        a = np.maximum(x, 0)
        left = fn.to_device(a, "cpu") + y
        right = a * 2 - y
        return fn.to_device(left, vulkan) * right, left, a

    a = np.maximum(X, 0)
    for _ in range(2):
        with vulkan:
            product, left, kept = f(X, Y)
        np.testing.assert_array_equal(left, a + Y)
        np.testing.assert_array_equal(np.asarray(product), (a + Y) * (a * 2 - Y))
        np.testing.assert_array_equal(np.asarray(kept), a)
    assert type(left) is np.ndarray and type(product) is type(kept) is fn.DeviceArray
    assert copies(f) == [
        "copy of x f32[6] from cpu to vulkan:0, 24 B", "copy of y f32[6] from cpu to vulkan:0, 24 B",
        "copy of the result of maximum f32[6] from vulkan:0 to cpu, 24 B",
        "copy of the result of add f32[6] from cpu to vulkan:0, 24 B"]
    assert [p.target.name for p in f.plan.parts] == ["vulkan:0", "cpu", "vulkan:0"]
    events.clear()
    with vulkan:
        f(X, Y)
    assert events == ["up", "up", "submit", "down", "cpu", "up", "submit"]


def test_there_and_back_is_no_copy(vulkan: Any) -> None:
    @fn.jit
    def f(x):
        return fn.to_device(fn.to_device(x + 1, "cpu"), vulkan) * 2

    given = fn.to_device(X, vulkan)
    np.testing.assert_array_equal(np.asarray(f(given)), (X + 1) * 2)
    assert len(f.plan.launches) == 1 and f.plan.backend == "vulkan"  # one device: a plan as ever


def test_a_program_on_the_cpu_with_a_part_on_a_device(vulkan: Any) -> None:
    @fn.jit
    def f(x, scale):
        """Views, numbers, captured arrays and what is made of numbers go where they are needed."""
        there = fn.to_device(x[::-1], vulkan) * scale + TABLE.astype(f32) + (scale * 2 + 1)
        return {"there": there, "here": x + scale, "back": fn.to_device(there.sum(), "cpu") - x}

    TABLE = np.arange(6, dtype=np.int16)
    wide = np.repeat(X, 2)[::2]  # with strides
    got = f(wide, 3.0)
    there = X[::-1] * f32(3) + TABLE.astype(f32) + f32(7)
    assert type(got["there"]) is fn.DeviceArray and type(got["here"]) is np.ndarray
    np.testing.assert_allclose(np.asarray(got["there"]), there, rtol=1e-6)
    np.testing.assert_array_equal(got["here"], X + f32(3))
    np.testing.assert_allclose(got["back"], there.sum() - X, rtol=1e-6)
    got = f(wide, 2.0)  # another number, the same plan
    np.testing.assert_array_equal(got["here"], X + f32(2))
    assert f.compilations == 1


def test_host_arrays_with_strides_on_the_cpu_of_a_device_program(vulkan: Any) -> None:
    @fn.jit
    def f(x, y):
        return fn.to_device(x, "cpu") - 1, x + y

    grid = np.arange(12, dtype=f32).reshape(3, 4).T
    with vulkan:
        here, there = f(grid, Y[0])
    np.testing.assert_array_equal(here, grid - 1)
    np.testing.assert_array_equal(np.asarray(there), grid + Y[0])


def test_results_are_never_arguments(vulkan: Any) -> None:
    @fn.jit
    def f(x):
        return fn.to_device(x, "cpu"), fn.to_device(x, vulkan), x

    with vulkan:
        here, there, same = f(X)
        assert type(here) is np.ndarray and here is not X and not np.shares_memory(here, X)
        for y in (here, there, same):
            np.testing.assert_array_equal(np.asarray(y), X)
    with fn.device("cpu"):
        assert type(f(X)[2]) is np.ndarray


def test_results_without_axes(vulkan: Any) -> None:
    """On the CPU they are what NumPy has: a scalar of a reduction, an array of `to_device`, as outside."""
    f = fn.jit(lambda x, k: (fn.to_device(x, "cpu").sum(), fn.to_device(x.sum(), "cpu"), x.sum(), k * 2))
    with vulkan:
        there, moved, kept, number = f(X + 2, 3)
    assert [type(v) for v in (there, moved, kept)] == [f32, np.ndarray, fn.DeviceArray] and moved.shape == ()
    np.testing.assert_allclose([there, moved, float(kept), float(number)], [12, 12, 12, 6])


def test_symbolic_lengths(vulkan: Any) -> None:
    @fn.jit
    def f(x, y):
        low = fn.to_device(np.concatenate([x, y]), "cpu")
        return fn.to_device(low[1:].sum(), vulkan) + x, low * 2

    for n in (3, 5, 8, 1):
        x, y = np.arange(n, dtype=f32), np.ones(4, f32)
        with vulkan:
            there, here = f(x, y)
        low = np.concatenate([x, y])
        np.testing.assert_array_equal(np.asarray(there), low[1:].sum() + x)
        np.testing.assert_array_equal(here, low * 2)
    assert f.compilations == 3  # for 3, for any length, for 1


def test_two_devices(vulkan: Any, other: Any) -> None:
    @fn.jit
    def f(w0, w1, x):
        h = np.maximum(w0 * x, 0)
        return fn.to_device(h, other) + w1 * x, h

    w0, w1 = fn.to_device(X, vulkan), fn.to_device(Y, other)
    for _ in range(2):
        y, h = f(w0, w1, X)
        assert y.device is other and h.device is vulkan
        np.testing.assert_array_equal(np.asarray(h), np.maximum(X * X, 0))
        np.testing.assert_allclose(np.asarray(y), X * X + Y * X, rtol=1e-6)
    assert [p.target.name for p in f.plan.parts] == ["vulkan:0", "vulkan:1", "vulkan:1"]  # w1 * x waits for nothing


@pytest.mark.parametrize("lacking", [None, "maximum"])
@pytest.mark.parametrize("seed", range(4))
def test_random_programs(vulkan: Any, other: Any, monkeypatch: pytest.MonkeyPatch, seed: int, lacking: str | None) -> None:
    """Integers, so that NumPy's answer is the only one; operands that lie apart are brought together."""
    def admit(target: Any, plan: Any) -> None:
        if any(n.op.name == lacking for s in plan.launches for n in s.nodes):
            raise NoBackendForOp(f"no {lacking} on {target.name}")

    monkeypatch.setattr(type(vulkan), "admit", admit)
    rng = random.Random(seed)
    places = ["cpu", "vulkan:0", "vulkan:1"]
    steps = [(rng.choice(["add", "subtract", "maximum"]), rng.randrange(99), rng.randrange(99), rng.choice(places))
             for _ in range(9)]
    kept = sorted(rng.sample(range(9), 3))

    def program(move: Any) -> Any:
        def run(*given: Any) -> Any:
            values = list(given)
            for name, i, j, place in steps:
                x, y = (move(values[k % len(values)], place) for k in (i, j))
                values.append(getattr(np, name)(x, y)[::-1] if i % 3 == 0 else getattr(np, name)(x, y))
            return [values[3 + k] for k in kept]
        return run

    given = [np.arange(5), np.arange(5) * 7 - 9, np.array([4, -4, 0, 1, 11])]
    mixed = fn.jit(fallback="cpu")(program(fn.to_device))
    expected = program(lambda v, place: v)(*given)
    for where in ("cpu", "vulkan"):
        with fn.device(where):
            got = mixed(*given)
        for k, g, e in zip(kept, got, expected):
            assert type(g) is (np.ndarray if steps[k][3] == "cpu" else fn.DeviceArray)
            np.testing.assert_array_equal(np.asarray(g), e)
        crossed = [(s.node, s.target) for s in mixed.plan.steps if s not in mixed.plan.parts]
        assert len(set(crossed)) == len(crossed)  # nothing goes to a machine twice


# ------------------------------------------------------------------------------------------------ order
def test_a_device_works_while_the_cpu_does(vulkan: Any, events: list[str]) -> None:
    @fn.jit
    def f(x, y):
        here = fn.to_device(y, "cpu") * 3  # does not depend on the device
        there = x + 1
        return here + fn.to_device(there, "cpu")

    x = fn.to_device(X, vulkan)
    f(x, Y)
    events.clear()
    np.testing.assert_array_equal(f(x, Y), Y * 3 + (X + 1))
    assert events == ["submit", "cpu", "down", "cpu"]


def test_a_copy_waits_for_its_own_producer(vulkan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was submitted later, and is not needed, is not waited for."""
    @fn.jit
    def f(x, y):
        first = x + 1
        later = fn.to_device(fn.to_device(y, "cpu") * 2, vulkan) + 1
        return fn.to_device(first, "cpu"), later

    x = fn.to_device(X, vulkan)
    f(x, Y)
    waited: list[int] = []
    whole = Device.wait
    monkeypatch.setattr(Device, "wait", lambda self, epoch: waited.append(epoch) or whole(self, epoch))
    here, later = f(x, Y)
    assert later.buffer.epoch not in waited
    np.testing.assert_array_equal(here, X + 1)
    np.testing.assert_array_equal(np.asarray(later), Y * 2 + 1)


def test_from_several_threads(vulkan: Any) -> None:
    f = fn.jit(lambda x, k: fn.to_device(x * k, "cpu") + 1)
    x = fn.to_device(X, vulkan)
    f(x, 1.0)

    def work(k: int) -> None:
        for _ in range(20):
            np.testing.assert_array_equal(f(x, float(k)), X * f32(k) + 1)

    at_once(4, work)


def test_compiling_is_told_of_as_one(vulkan: Any) -> None:
    told: list[tuple[int, int]] = []
    fn.on_compile(lambda done, total, label: told.append((done, total)))
    try:
        fn.jit(lambda x: fn.to_device(np.tanh(x) * 3, vulkan) - fn.to_device(x.sum(), vulkan))(X)
    finally:
        fn.on_compile(None)
    assert told == sorted(told) and told[-1] == (3, 3) and {total for _, total in told} == {3}


# ------------------------------------------------------------------------------------------------ fallback
@numba.njit
def numba_running(x, out):
    total = np.float32(0)
    for k in range(x.size):
        total += x[k]
        out[k] = total


@pytest.fixture
def running() -> Iterator[None]:
    """An op with a kernel for the CPU only."""
    fn.define_op("running_total", "norm", "x", infer=lambda x: x, domain="float", ref=np.cumsum)
    fn.register_kernel("running_total", ("f32", "f32"), numba_running)
    yield
    fn.unregister_kernel("running_total", ("f32", "f32"))
    del OPS["running_total"]
    vars(fn.ops).pop("running_total", None)


def total_of_doubled(x):
    return fn.ops.running_total(x * 2) + x


def test_what_a_device_lacks_is_refused(vulkan: Any, running: None, events: list[str]) -> None:
    with vulkan, pytest.raises(NoBackendForOp) as caught:
        fn.jit(total_of_doubled)(X)
    assert isinstance(caught.value, NoKernelError) and not events
    assert caught.value.what == "no kernel for running_total on (f32 -> f32) on vulkan; running_total has no kernels there"
    assert caught.value.cure.endswith('or allow it to run on the CPU: jit(fallback="cpu")')
    assert caught.value.where.line == total_of_doubled.__code__.co_firstlineno + 1


def test_what_a_device_lacks_falls_back(vulkan: Any, running: None) -> None:
    f = fn.jit(fallback="cpu")(total_of_doubled)
    for _ in range(2):
        with vulkan:
            y = f(X)
        assert y.device is vulkan  # the rest ran there
        np.testing.assert_allclose(np.asarray(y), np.cumsum(X * 2) + X, rtol=1e-5, atol=1e-6)
    assert [p.target.name for p in f.plan.parts] == ["vulkan:0", "cpu", "vulkan:0"]
    said = f.explain()
    assert "run on the CPU, because their device has no kernel for them:\n  running_total f32[6]: no kernel for" in said
    assert "may run on the CPU (fallback)" in said
    with fn.device("cpu"):
        np.testing.assert_allclose(f(X), np.cumsum(X * 2) + X, rtol=1e-5, atol=1e-6)
    assert "because their device" not in f.explain()


def test_a_result_that_fell_back_lies_on_its_device(vulkan: Any, running: None) -> None:
    f = fn.jit(fallback="cpu")(lambda x: fn.ops.running_total(x))
    with vulkan:
        y = f(X)
    assert y.device is vulkan
    np.testing.assert_allclose(np.asarray(y), np.cumsum(X), rtol=1e-5, atol=1e-6)


def wide_and_narrow(x):
    return x * 2, (x.astype(np.float64) + 1).sum()


def test_a_feature_that_a_device_lacks(vulkan: Any, monkeypatch: pytest.MonkeyPatch, events: list[str]) -> None:
    monkeypatch.setattr(vulkan.machine, "features", vulkan.machine.features - {"f64"})
    with vulkan, pytest.raises(NoBackendForOp) as caught:
        fn.jit(wide_and_narrow)(X)
    assert not events and "needs f64, which llvmpipe" in str(caught.value) and 'fallback="cpu"' in str(caught.value)
    f = fn.jit(fallback="cpu")(wide_and_narrow)
    with vulkan:
        doubled, total = f(X)
    np.testing.assert_array_equal(np.asarray(doubled), X * 2)
    np.testing.assert_allclose(float(total), (X.astype(np.float64) + 1).sum())
    shaders = [spirv.shader(s.source, s.group) for p in f.plan.parts if p.target is vulkan for s in p.plan.launches]
    assert shaders and not any("f64" in s.needs for s in shaders)


def test_what_nothing_serves(vulkan: Any) -> None:
    @fn.jit(fallback="cpu")
    def f(x):
        return fn.ops.write_slice(np.zeros((3,) * 6, f32), x, at=(0,) * 6)

    with vulkan, pytest.raises(NoKernelError, match="the source has 6"):
        f(np.ones((2,) * 6, f32))


def test_a_pickle_keeps_the_fallback() -> None:
    assert pickle.loads(pickle.dumps(fn.jit(fallback="cpu")(wide_and_narrow))).fallback == "cpu"


def test_an_unknown_fallback() -> None:
    with pytest.raises(ArgumentError, match="fallback cannot be 'gpu'"):
        fn.jit(fallback="gpu")(wide_and_narrow)


# ------------------------------------------------------------------------------------------------ refusals
def apart(x, y):
    return fn.to_device(x, "cpu") + y * 2


def test_operands_on_two_machines(vulkan: Any) -> None:
    with vulkan, pytest.raises(ArgumentError) as caught:
        fn.jit(apart)(X, Y)
    assert caught.value.what == "add(): x is on cpu, the result of multiply on vulkan:0"
    assert caught.value.where.line == apart.__code__.co_firstlineno + 1
    assert caught.value.cure == "bring one to the other: fuelnumba.to_device(x, 'vulkan:0')"


def test_arguments_on_two_devices(vulkan: Any, other: Any) -> None:
    x, y = fn.to_device(X, vulkan), fn.to_device(Y, other)
    with pytest.raises(ArgumentError, match=r"subtract\(\): x is on vulkan:0, y on vulkan:1"):
        fn.jit(lambda x, y: x - y)(x, y)
    with pytest.raises(ArgumentError, match=r"y lies on vulkan:1, what device\(...\) chose is vulkan:0"), vulkan:
        fn.jit(lambda x, y: x - y)(x, y)


def rows(table, at, there):
    part = np.take(fn.to_device(table, there), at, axis=0)
    return fn.to_device(part, "cpu") + 1, part


@pytest.mark.parametrize("there", ["cpu", "vulkan"])
def test_an_index_fault_in_a_part(vulkan: Any, there: str) -> None:
    f = fn.jit(static_argnames="there")(rows)
    table = np.arange(8, dtype=f32).reshape(4, 2)
    home = vulkan if there == "cpu" else fn.device("cpu")
    with home:
        with pytest.raises(FuelIndexError, match="index 7 is out of range for an axis of length 4") as caught:
            f(table, np.array([0, 7]), there)
        assert caught.value.where.line == rows.__code__.co_firstlineno + 1
        got, _ = f(table, np.array([3, 0]), there)  # it can be called again
    np.testing.assert_array_equal(got, table[[3, 0]] + 1)


def test_a_device_that_may_report_a_fault_is_asked_at_the_end(vulkan: Any, events: list[str]) -> None:
    @fn.jit
    def f(table, at, x):
        there = np.take(table, at, axis=0)
        return there, fn.to_device(x, "cpu") * 2, np.take(fn.to_device(x, "cpu"), fn.to_device(at, "cpu"))

    table, at = (fn.to_device(a, vulkan) for a in (X, np.array([5, 0])))
    f(table, at, Y)
    events.clear()
    there, here, both = f(table, at, Y)
    assert events == ["submit", "down", "cpu"]
    np.testing.assert_array_equal(np.asarray(there), X[[5, 0]])
    np.testing.assert_array_equal(here, Y * 2)
    np.testing.assert_array_equal(both, Y[[5, 0]])
    with pytest.raises(FuelIndexError, match="index 6 is out of range") as caught:  # in both parts: the first one tells
        f(table, fn.to_device(np.array([6, 0]), vulkan), Y)
    assert caught.value.where.line == f.__wrapped__.__code__.co_firstlineno + 2


def test_an_int_that_does_not_fit(vulkan: Any) -> None:
    f = fn.jit(lambda x, k: (x + k, fn.to_device(x, "cpu") - k))
    x = np.arange(3, dtype=np.int8)
    with vulkan:
        there, here = f(x, 5)
        with pytest.raises(ArgumentError, match="300 does not fit i8"):
            f(x, 300)
    np.testing.assert_array_equal(np.asarray(there), x + np.int8(5))
    np.testing.assert_array_equal(here, x - np.int8(5))


def test_donated_arguments(vulkan: Any) -> None:
    @fn.jit(donate="cache")
    def put(cache, row):
        scaled = fn.to_device(fn.to_device(row, "cpu") * 2, vulkan)
        return fn.ops.write_slice(cache, scaled, at=(1, 0)), fn.to_device(scaled, "cpu")

    cache = fn.to_device(np.zeros((3, 2), f32), vulkan)
    new, scaled = put(cache, np.ones((1, 2), f32))
    assert new is cache
    np.testing.assert_array_equal(np.asarray(new), [[0, 0], [2, 2], [0, 0]])
    np.testing.assert_array_equal(scaled, [[2, 2]])

    @fn.jit(donate="cache")
    def twice(cache, row):
        return fn.ops.write_slice(cache, row, at=(1, 0)), fn.to_device(cache, "cpu").sum()

    with pytest.raises(DonationError, match=r"the donated argument cache is used in parts of twice\(\) that run one after another"):
        twice(cache, np.ones((1, 2), f32))


# ------------------------------------------------------------------------------------------------ looking inside
def test_the_plan_tells_parts_and_copies(vulkan: Any) -> None:
    f = fn.jit(lambda x: fn.to_device(x + 1, "cpu") * 2)
    with vulkan:
        f(X)
    head, *lines = [line.split("  #")[0].strip() for line in str(f.plan).splitlines()]
    assert head.endswith("2 parts, copies between machines: 2, 2 launches of 2 kernels")
    assert lines[:2] == ["copy of x f32[6] from cpu to vulkan:0, 24 B", "on vulkan:0: launch 0"]
    assert lines[3:5] == ["copy of the result of add f32[6] from vulkan:0 to cpu, 24 B", "on cpu: launch 1"]
    assert "#version" in f.plan.source(0) and "def " in f.plan.source(1)
    assert f.plan.source(f.plan.launches[1].nodes[0]) == f.plan.source(1)
    with pytest.raises(ArgumentError, match="no kernel for 2"):
        f.plan.source(2)
    assert "parts and copies:" in f.explain() and "ops.to_device(" in str(f.graph)
    assert "<svg" in f._repr_html_()


def test_a_device_that_is_opened_anew(vulkan: Any, other: Any) -> None:
    f = fn.jit(lambda x: fn.to_device(x, "vulkan:1") + 1)
    np.testing.assert_array_equal(np.asarray(f(X)), X + 1)
    other.close()
    again = fn.device("vulkan:1")
    try:
        np.testing.assert_array_equal(np.asarray(f(X)), X + 1)
        assert f.misses == ["vulkan:1 was opened anew"]
    finally:
        again.close()
