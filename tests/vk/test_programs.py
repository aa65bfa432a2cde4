"""Random programs on the Vulkan device against NumPy. Their values are small integers (see `tests.compiler.test_random_programs`),
so every answer is exact; views, donation and lengths that vary are in them, and what they lack is written out below."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fuelnumba as fn
from fuelnumba import ops
from tests.compiler.programs import Maker, integer_program
from tests.compiler.test_random_programs import Program, write

f32 = np.float32


@pytest.fixture(autouse=True)
def vulkan() -> Iterator[Any]:
    with fn.device("vulkan") as target:
        yield target


def run(seed: int, symbolic: bool) -> None:
    """Every instance, the first twice; results are looked at after all calls, when later ones could have overwritten them."""
    program = Program(seed, symbolic)
    f = fn.jit(donate=program.donated)(program.function(write=lambda x, source, at: ops.write_slice(x, source, at=at)))
    numpy, calls = program.function(write=write), []
    for k, instance in enumerate([*program.instances, program.instances[0]]):
        given: list[Any] = [np.array(a) if isinstance(a, np.ndarray) else a for a in instance]
        there = [fn.to_device(a, "vulkan") if isinstance(a, np.ndarray) and (k + j) % 2 else a for j, a in enumerate(given)]
        calls.append((f(*there), [np.array(e) for e in numpy(*instance)], instance, given, there))
    for got, expected, instance, given, there in calls:
        for k, g, e in zip(program.outputs, got, expected):
            assert type(g) is fn.DeviceArray and g.dtype == e.dtype and g.shape == e.shape, f"v{k}\n{program}"
            np.testing.assert_array_equal(np.asarray(g), e, f"v{k}\n{program}")
        for k, before in enumerate(instance[:-1]):
            np.testing.assert_array_equal(given[k], before)  # host arrays were copied there, donated ones too
            if f"v{k}" not in program.donated:
                np.testing.assert_array_equal(np.asarray(there[k]), before)


@pytest.mark.parametrize("seed", [*range(40, 52)])
def test_program(seed: int) -> None:
    run(seed, symbolic=False)


@pytest.mark.parametrize("seed", [*range(1100, 1108)])
def test_program_of_varying_length(seed: int) -> None:
    run(seed, symbolic=True)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("seed", range(2000, 2008))
def test_integer_program(seed: int) -> None:
    """Integers of all widths, which wrap around."""
    program = integer_program(seed)
    got = fn.jit(lambda *xs: program.run(xs, "traced"))(*program.inputs)
    for g, e in zip(got, program.run(program.inputs, "numpy")):
        assert g.dtype == np.asarray(e).dtype
        np.testing.assert_array_equal(np.asarray(g), e, str(program))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("seed", range(3000, 3010))
def test_float_program(seed: int) -> None:
    program = Maker(seed).make()
    got = fn.jit(lambda *xs: program.run(xs, "traced"))(*program.inputs)
    for g, e in zip(got, program.run(program.inputs, "numpy")):
        np.testing.assert_allclose(np.asarray(g), e, 1e-9, 1e-9, err_msg=str(program))


@pytest.mark.parametrize("seed", range(4000, 4004))
def test_float_program_of_varying_length(seed: int) -> None:
    program = Maker(seed, length=7, dtype=f32).make()
    f = fn.jit(lambda *xs: program.run(xs, "traced"))
    for n in (7, 11, 29):
        xs = [np.random.default_rng([seed, n]).standard_normal((n, *x.shape[1:])) for x in program.inputs]
        for g, e in zip(f(*xs), program.run(xs, "numpy")):
            np.testing.assert_allclose(np.asarray(g), e, 1e-9, 1e-9, err_msg=str(program))
    assert f.compilations <= 2


# ------------------------------------------------------------------------------------------------ what the programs lack
def check(function: Any, *arguments: Any) -> Any:
    """A function on the device against itself on NumPy arrays; the jitted function."""
    f = fn.jit(function)
    same(f(*arguments), function(*arguments))
    return f


def same(got: Any, expected: Any) -> None:
    if isinstance(expected, (tuple, list)):
        assert type(got) is type(expected) and len(got) == len(expected)
        for g, e in zip(got, expected):
            same(g, e)
        return
    expected = np.asarray(expected)
    assert type(got) is fn.DeviceArray and got.shape == expected.shape and got.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(got), expected)


GRID = np.arange(60, dtype=f32).reshape(3, 4, 5)


@pytest.mark.parametrize("view", [
    lambda x: x[::-1, 1:, ::2], lambda x: x.T, lambda x: x.transpose(1, 2, 0)[:, ::-2], lambda x: x[1], lambda x: x[..., -1],
    lambda x: np.broadcast_to(x[:, :1], x.shape), lambda x: x.reshape(12, 5)[3:9].T, lambda x: x.swapaxes(0, 2).reshape(-1),
    lambda x: x[:, None, 2:2], lambda x: np.moveaxis(x, 0, -1)[1:, ::-1], lambda x: x[2, 3, 4], lambda x: x.reshape(5, 4, 3)[::2].T,
])
def test_views(view: Any) -> None:
    """As arguments (on the host they have strides), inside, and as results by themselves."""
    check(lambda x: (view(x), view(x) * 2 + 1, view(x).sum()), GRID)
    check(lambda x: x + 1, view(GRID))
    captured = view(GRID)
    check(lambda s: captured + s, f32(2))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4), ()])
def test_arrays_without_elements_and_without_axes(shape: tuple[int, ...]) -> None:
    x = np.full(shape, 3, f32)
    check(lambda x: (x + 1, x.sum(), x.reshape(-1), np.concatenate([x.reshape(-1), x.reshape(-1)]), x.T, x > 2), x)
    check(lambda x: x, x)
    check(lambda x: x.astype(np.int16), fn.to_device(x, "cpu"))
    if x.ndim:
        check(lambda x: ops.write_slice(np.ones_like(x), x, at=(0,) * x.ndim) if isinstance(x, fn.Tensor) else x, x)


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int8, np.int16, np.int32, np.uint32, np.int64, np.float16, f32,
                                   np.float64])
@pytest.mark.parametrize("number", [True, 3, -2.5])
def test_python_scalars(dtype: Any, number: Any) -> None:
    """One plan for all values of a kind."""
    x = np.arange(4).astype(dtype)
    f = check(lambda x, s: (x + s, s * x, s, np.where(x > s, x, s)), x, number)
    for other in {True: [False], 3: [0, 7], -2.5: [0.0, 1e3]}[number]:
        same(f(x, other), f.__wrapped__(x, other))
    assert f.compilations == 1


def test_numbers_only() -> None:
    check(lambda a, b: (np.add(a, b), np.arange(3) * a, a > b), 3, 2.5)
    check(lambda: (np.ones(3), np.zeros((2, 0)), np.arange(4)[::-1]))


def test_lengths() -> None:
    """The first is compiled for itself, the second and all others share a plan."""
    f = fn.jit(lambda x, y: (np.concatenate([x[1:], y])[::-1], (x * 2).sum(), x[:, None] * y, x[-3:]))
    for n, m in ((5, 4), (8, 4), (13, 9), (6, 7), (300, 2), (5, 4)):
        x, y = np.arange(n, dtype=f32), np.arange(m, dtype=f32) - 2
        same(f(x, y), f.__wrapped__(x, y))
    assert f.compilations == 3


def test_the_same_output_twice() -> None:
    f = check(lambda x: (x + 1, x + 1, x, x[::-1], [x + 1]), GRID)
    assert [s.label for s in f.plan.launches].count("add") == 1  # equal results are computed once


def test_donation() -> None:
    @fn.jit(donate="cache")
    def put(cache, row, k):
        return ops.write_slice(cache, row, at=(k, 0)), cache[0] + 1

    expected = np.zeros((5, 3), f32)
    cache = fn.to_device(expected, "vulkan")
    for k in (3, 0, 4, 0):
        row = np.full((1, 3), k + 1, f32)
        before = expected[0] + 1
        expected[k] = row
        new, first = put(cache, row, k)
        assert new is cache
        np.testing.assert_array_equal(np.asarray(first), before)
    np.testing.assert_array_equal(np.asarray(cache), expected)
    with pytest.raises(fn.errors.DonationError, match="cache and row are the same memory"):
        put(cache, cache, 0)
    host = np.zeros((5, 3), f32)
    new, _ = put(host, np.ones((1, 3), f32), 1)  # goes over, and is not changed here
    np.testing.assert_array_equal(np.asarray(new)[1], 1)
    np.testing.assert_array_equal(host, 0)


# ------------------------------------------------------------------------------------------------ captured arrays
@pytest.mark.parametrize("make", [
    lambda: np.arange(6, dtype=f32), lambda: np.arange(12.0).reshape(3, 4).T, lambda: np.arange(12, dtype=np.int16)[::-3],
    lambda: np.arange(40_000.0).reshape(200, 200), lambda: np.arange(40_000.0).reshape(200, 200)[::-1].T, lambda: np.array(5),
    lambda: np.zeros((0, 2)), lambda: np.asfortranarray(np.arange(6.0).reshape(2, 3)),
], ids=["flat", "transposed", "steps", "large", "large with strides", "without axes", "empty", "fortran"])
def test_a_captured_array_that_changes(make: Any) -> None:
    table = make()

    def function(x):
        return table * 2 + x

    f = fn.jit(function)
    for k in range(3):
        same(f(f32(k)), function(f32(k)))
        table[...] += 1
        same(f(f32(k)), function(f32(k)))


def test_a_captured_view_whose_base_changes() -> None:
    base = np.arange(20_000.0)
    view = base[::2]
    view.flags.writeable = False
    f = fn.jit(lambda x: view + x)
    for k in range(3):
        same(f(1.0), view + 1.0)
        base += k


def test_a_captured_array_that_is_replaced() -> None:
    table = np.arange(3.0)
    f = fn.jit(lambda x: table + x)
    same(f(1.0), table + 1.0)
    table = np.arange(4.0) * 3
    same(f(1.0), table + 1.0)
