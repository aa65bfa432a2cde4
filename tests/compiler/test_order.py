"""Writes are versions: every reader sees the version it was given, whatever is overwritten afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuelnumba import jit, ops
from fuelnumba.core.errors import FuelIndexError, ShapeError

f32 = np.float32


def arr(*values: float) -> np.ndarray:
    return np.array(values, f32)


def copies(jitted: Any) -> list[str]:
    """What explain() says is copied, without the places."""
    text = jitted.explain().split("copies, because a layout or a later write asks for them:\n")
    lines = text[1].split("refused kernels:")[0].splitlines() if len(text) == 2 else []
    return [re.sub(r"   #.*", "", line).strip() for line in lines]


def check(fn: Callable[..., Any], arrays: list[np.ndarray], expected: list[Any], donate: bool) -> Any:
    """fn's results; the arrays that are not donated stay as they are."""
    f = jit(donate="x" if donate else ())(fn)
    given = [a.copy() for a in arrays]
    got = f(*given)
    got = got if isinstance(got, (list, tuple)) else [got]
    assert len(got) == len(expected)
    for k, (g, e) in enumerate(zip(got, expected)):
        np.testing.assert_array_equal(g, e, err_msg=f"result {k}")
        assert not any(np.shares_memory(g, other) for other in got[:k] if other is not g), (
            "two results in one buffer"
        )
    for k, (now, before) in enumerate(zip(given, arrays)):
        if not (donate and k == 0):
            np.testing.assert_array_equal(now, before, err_msg=f"argument {k} was modified")
            assert not any(np.shares_memory(now, g) for g in got)
    return f


both = pytest.mark.parametrize("donate", [False, True], ids=["kept", "donated"])


# ------------------------------------------------------------ readers of an overwritten version
@both
def test_a_view_read_before_the_overwrite_keeps_its_values(donate: bool) -> None:
    def f(x: Any, a: Any, b: Any) -> Any:
        x = ops.write_slice(x, a, at=0)
        k = np.maximum(x[0:2].reshape(2, 1), 0)
        return k, ops.write_slice(x, b, at=0)

    made = check(f, [np.zeros(4, f32), arr(1, 2), arr(99, 98)], [[[1], [2]], [99, 98, 0, 0]], donate)
    assert copies(made) == ([] if donate else ["copy of input f32[4]"])


@both
def test_a_reader_recorded_after_the_overwrite_keeps_its_values(donate: bool) -> None:
    def f(x: Any, a: Any, b: Any) -> Any:
        x1 = ops.write_slice(x, a, at=0)
        y = ops.write_slice(x1, b, at=0)
        return np.maximum(x1[0:2].reshape(2, 1), 0), y

    made = check(f, [np.zeros(4, f32), arr(1, 2), arr(99, 98)], [[[1], [2]], [99, 98, 0, 0]], donate)
    assert copies(made) == ([] if donate else ["copy of input f32[4]"])


@both
def test_a_second_layer_written_from_an_overwritten_version(donate: bool) -> None:
    def f(x: Any, b1: Any, a: Any, b: Any) -> Any:
        x1 = ops.write_slice(x, a, at=0)
        y = ops.write_slice(x1, b, at=0)
        return ops.write_slice(b1, np.maximum(x1[0:2].reshape(2), 0), at=0), y

    zeros = np.zeros(4, f32)
    check(f, [zeros, zeros, arr(1, 2), arr(99, 98)], [[1, 2, 0, 0], [99, 98, 0, 0]], donate)


@both
def test_a_second_layer_written_straight_from_a_view(donate: bool) -> None:
    """The reader of the old version is itself a write into another buffer."""

    def f(x: Any, b1: Any, a: Any, b: Any) -> Any:
        x1 = ops.write_slice(x, a, at=0)
        y = ops.write_slice(x1, b, at=0)
        return ops.write_slice(b1, np.flip(x1[0:2]), at=2), y

    zeros = np.zeros(4, f32)
    check(f, [zeros, zeros, arr(1, 2), arr(99, 98)], [[0, 0, 2, 1], [99, 98, 0, 0]], donate)


@both
def test_two_buffers_each_read_by_the_write_into_the_other(donate: bool) -> None:
    """Either order overwrites what the other still needs: one of them must be copied."""

    def f(x: Any, y: Any) -> Any:
        return ops.write_slice(x, y[0:2], at=1), ops.write_slice(y, x[0:2], at=1)

    g = jit(donate=("x", "y") if donate else ())(f)
    x, y = arr(1, 2, 3), arr(7, 8, 9)
    got = g(x, y)
    np.testing.assert_array_equal(got, [[1, 7, 8], [7, 1, 2]])
    assert (got[0] is x) is donate and (got[1] is y) is donate or len(copies(g)) > 0
    if not donate:
        np.testing.assert_array_equal([x, y], [[1, 2, 3], [7, 8, 9]])


@both
def test_a_reader_that_needs_the_write_as_well_gets_the_old_values(donate: bool) -> None:
    def f(x: Any, a: Any) -> Any:
        y = ops.write_slice(x, a, at=1)
        return y - x

    made = check(f, [arr(1, 2, 3), arr(7, 8)], [[0, 5, 5]], donate)
    assert copies(made) == ["copy of input f32[3]"]
    assert " copy -> f32[3], 3 work items" in str(made.plan)


@both
def test_a_reader_through_a_view_that_needs_the_write_as_well(donate: bool) -> None:
    def f(x: Any, a: Any) -> Any:
        y = ops.write_slice(x, a, at=(1, 0))
        return y - x.T

    made = check(f, [np.arange(4, dtype=f32).reshape(2, 2), arr(7, 8)[None]], [[[0, -1], [6, 5]]], donate)
    assert copies(made) == ["copy of input f32[2, 2]"]


@both
def test_a_part_of_the_reader_that_can_run_first_does(donate: bool) -> None:
    """x * 10 is not held back by the sum that needs the write: no copy."""
    made = check(
        lambda x, a: ops.write_slice(x, a, at=1) + x * 10, [arr(1, 2, 3), arr(7, 8)], [[11, 27, 38]], donate
    )
    assert copies(made) == ([] if donate else ["copy of input f32[3]"])


@both
def test_a_reduction_of_the_old_version_is_written_into_the_new_one(donate: bool) -> None:
    def f(x: Any) -> Any:
        return ops.write_slice(x, x.sum(axis=0, keepdims=True), at=1)

    made = check(f, [arr(1, 2, 3)], [[1, 6, 3]], donate)
    assert copies(made) == ([] if donate else ["copy of input f32[3]"])


@both
def test_two_writes_onto_one_version_are_independent(donate: bool) -> None:
    def f(x: Any, a: Any, b: Any) -> Any:
        return ops.write_slice(x, a, at=0), ops.write_slice(x, b, at=1)

    check(f, [arr(1, 2, 3), arr(8), arr(9)], [[8, 2, 3], [1, 9, 3]], donate)


@both
def test_three_writes_onto_one_version_and_the_version_itself(donate: bool) -> None:
    def f(x: Any, a: Any) -> Any:
        x = ops.write_slice(x, a, at=0)
        return x, *(ops.write_slice(x, a * k, at=k) for k in (1, 2, 3))

    check(f, [arr(1, 2, 3, 4), arr(9)], [[9, 2, 3, 4], [9, 9, 3, 4], [9, 2, 18, 4], [9, 2, 3, 27]], donate)


@both
def test_the_old_version_is_a_result(donate: bool) -> None:
    def f(x: Any, a: Any) -> Any:
        y = ops.write_slice(x, a, at=0)
        z = ops.write_slice(y, a * 2, at=1)
        return y, z, x

    check(f, [arr(1, 2, 3), arr(9)], [[9, 2, 3], [9, 18, 3], [1, 2, 3]], donate)


@both
def test_a_view_of_the_old_version_is_a_result(donate: bool) -> None:
    def f(x: Any, a: Any) -> Any:
        y = ops.write_slice(x, a, at=0)
        z = ops.write_slice(y, a * 2, at=1)
        return y[::-1], z, x[1:], z.reshape(3, 1)

    check(f, [arr(1, 2, 3), arr(9)], [[3, 2, 9], [9, 18, 3], [2, 3], [[9], [18], [3]]], donate)


@both
def test_one_result_twice(donate: bool) -> None:
    """As in NumPy, both are the same array."""

    @jit(donate="x" if donate else ())
    def f(x: Any, a: Any) -> Any:
        y = ops.write_slice(x, a, at=0)
        return y, y

    x = arr(1, 2)
    one, two = f(x, arr(9))
    np.testing.assert_array_equal([one, two], [[9, 2], [9, 2]])
    assert np.shares_memory(one, two) and np.shares_memory(one, x) is donate


@both
def test_the_source_is_computed_from_both_versions(donate: bool) -> None:
    def f(x: Any, a: Any) -> Any:
        y = ops.write_slice(x, a, at=0)
        return ops.write_slice(y, (y + x)[0:2], at=1)

    check(f, [arr(1, 2, 3), arr(9)], [[9, 10, 4]], donate)


# ------------------------------------------------------------ source and destination overlap
@both
@pytest.mark.parametrize("n", [6, 20_000])
def test_a_source_that_overlaps_its_destination_is_read_first(n: int, donate: bool) -> None:
    x = np.arange(n, dtype=f32)
    check(lambda x: ops.write_slice(x, x[0:-1], at=1), [x], [np.concatenate([[0], np.arange(n - 1)])], donate)
    check(
        lambda x: ops.write_slice(x, x[1:], at=0), [x], [np.concatenate([np.arange(1, n), [n - 1]])], donate
    )
    check(lambda x: ops.write_slice(x, np.flip(x), at=0), [x], [np.arange(n)[::-1]], donate)


@both
@pytest.mark.parametrize("n", [3, 150])
def test_a_matrix_is_transposed_onto_itself(n: int, donate: bool) -> None:
    x = np.arange(n * n, dtype=f32).reshape(n, n)
    check(lambda x: ops.write_slice(x, x.T, at=(0, 0)), [x], [x.T], donate)


@both
def test_an_overlapping_source_from_the_version_before(donate: bool) -> None:
    def f(x: Any, a: Any) -> Any:
        y = ops.write_slice(x, a, at=0)
        return ops.write_slice(y, x[0:2], at=1)

    check(f, [arr(1, 2, 3), arr(9)], [[9, 1, 2]], donate)


@both
def test_a_buffer_is_written_onto_itself_whole(donate: bool) -> None:
    check(lambda x: ops.write_slice(x, x, at=0), [arr(1, 2, 3)], [[1, 2, 3]], donate)


# ------------------------------------------------------------ donation
def test_a_cache_written_in_place_is_the_donated_array_itself() -> None:
    @jit(donate="cache", dims={"cache": (None, None)})
    def step(cache: Any, row: Any, position: Any) -> Any:
        cache = ops.write_slice(cache, row, at=(position, 0))
        return cache, cache.sum(axis=1)

    cache = np.zeros((4, 2), f32)
    for k in range(4):
        now, sums = step(cache, np.full((1, 2), k + 1, f32), k)
        assert now is cache
        np.testing.assert_array_equal(sums, [2.0 * (j + 1) if j <= k else 0 for j in range(4)])
    assert step.compilations == 1 and copies(step) == []


def test_every_leaf_of_a_donated_container_is_written_in_place() -> None:
    @jit(donate="caches")
    def step(caches: Any, row: Any) -> Any:
        return [ops.write_slice(c, row * (k + 1), at=1) for k, c in enumerate(caches)]

    caches = [np.zeros(3, f32) for _ in range(3)]
    now = step(caches, arr(5, 6))
    assert all(a is b for a, b in zip(now, caches))
    np.testing.assert_array_equal(caches, [[0, 5, 6], [0, 10, 12], [0, 15, 18]])
    assert copies(step) == []


def test_two_results_do_not_share_a_donated_buffer() -> None:
    @jit(donate="x")
    def f(x: Any, a: Any) -> Any:
        return ops.write_slice(x, a, at=0), ops.write_slice(x, a, at=1)

    x = arr(1, 2, 3)
    one, two = f(x, arr(9))
    assert not np.shares_memory(one, two)
    np.testing.assert_array_equal([one, two], [[9, 2, 3], [1, 9, 3]])


def test_a_captured_array_is_not_written_to() -> None:
    table = arr(1, 2, 3)
    f = jit(lambda a: ops.write_slice(table, a, at=1))
    np.testing.assert_array_equal(f(arr(9)), [1, 9, 3])
    np.testing.assert_array_equal(f(arr(8)), [1, 8, 3])
    np.testing.assert_array_equal(table, [1, 2, 3])


@both
def test_a_donated_array_that_is_only_read(donate: bool) -> None:
    check(lambda x, a: (x + a, x * a), [arr(1, 2), arr(3, 4)], [[4, 6], [3, 8]], donate)


def test_a_strided_argument_is_not_modified() -> None:
    base = np.arange(12, dtype=f32).reshape(3, 4)
    f = jit(lambda x, a: ops.write_slice(x, a, at=(0, 0)))
    for x in (base.T, base[::2], base[:, ::-1], base[:, 1:3]):
        before = base.copy()
        expected = x.copy()
        expected[0, 0] = 99
        np.testing.assert_array_equal(f(x, arr(99)[None]), expected)
        np.testing.assert_array_equal(base, before)


def test_a_constant_buffer_is_fresh_at_every_call() -> None:
    f = jit(lambda a: ops.write_slice(np.zeros(3, f32), a, at=1))
    one = f(arr(9))
    two = f(arr(8))
    np.testing.assert_array_equal([one, two], [[0, 9, 0], [0, 8, 0]])


def test_a_write_into_a_reshaped_donated_buffer_has_the_new_shape() -> None:
    """A donated array keeps its shape, so it cannot be a result of another one."""

    @jit(donate="x")
    def f(x: Any, a: Any) -> Any:
        return ops.write_slice(x.reshape(2, 3), a, at=(0, 1))

    x = np.arange(6, dtype=f32).reshape(3, 2)
    got = f(x, arr(8, 9)[None])
    np.testing.assert_array_equal(got, [[0, 8, 9], [3, 4, 5]])


def test_a_write_into_a_reshaped_donated_buffer_and_back_is_in_place() -> None:
    @jit(donate="x")
    def f(x: Any, a: Any) -> Any:
        return ops.write_slice(x.reshape(-1), a, at=2).reshape(3, 2)

    x = np.arange(6, dtype=f32).reshape(3, 2)
    assert f(x, arr(8, 9, 7)) is x and copies(f) == []
    np.testing.assert_array_equal(x, [[0, 1], [8, 9], [7, 5]])


# ------------------------------------------------------------ past the end
def test_a_static_write_past_the_end_is_refused_before_anything_is_written() -> None:
    @jit(donate="x")
    def f(x: Any, a: Any) -> Any:
        x = ops.write_slice(x, a, at=0)
        return ops.write_slice(x, a, at=3)

    x = arr(1, 2, 3, 4)
    with pytest.raises(ShapeError) as caught:
        f(x, arr(8, 9))
    assert caught.value.what == "write_slice(): start 3 with length 2 leaves axis 0, whose bound is 4"
    np.testing.assert_array_equal(x, [1, 2, 3, 4])


@pytest.mark.parametrize("start", [3, -1, 2**40, -(2**40)])
def test_a_write_past_the_end_at_run_time_leaves_the_buffer_as_it_was(start: int) -> None:
    @jit(donate="x")
    def f(x: Any, a: Any, start: Any) -> Any:
        return ops.write_slice(x, a, at=(start,))

    x = arr(1, 2, 3, 4)
    assert f(x, arr(8, 9), 2) is x
    np.testing.assert_array_equal(x, [1, 2, 8, 9])
    with pytest.raises(FuelIndexError):
        f(x, arr(5, 6), start)
    np.testing.assert_array_equal(x, [1, 2, 8, 9])
    f(x, arr(5, 6), 0)
    np.testing.assert_array_equal(x, [5, 6, 8, 9])


def _writer(at: int) -> Callable[..., Any]:
    return lambda x, a: ops.write_slice(x, a, at=at)


@both
def test_a_source_of_length_zero_changes_nothing(donate: bool) -> None:
    for at in (0, 2, 3):
        check(_writer(at), [arr(1, 2, 3), arr()], [[1, 2, 3]], donate)
    check(lambda x, a: ops.write_slice(x, a, at=0), [arr(), arr()], [[]], donate)
    check(
        lambda x, a: ops.write_slice(x, a, at=(1, 0)),
        [np.ones((2, 3), f32), np.ones((0, 3), f32)],
        [np.ones((2, 3))],
        donate,
    )


# ------------------------------------------------------------ long chains
def test_thirty_versions_with_readers_between_need_no_copies() -> None:
    @jit(donate="x")
    def f(x: Any, a: Any) -> Any:
        seen = []
        for k in range(30):
            x = ops.write_slice(x, a + k, at=k)
            seen.append(x[k : k + 2].sum())
        return x, seen

    x, a = np.zeros(31, f32), arr(1, 2)
    expected, sums = np.zeros(31, f32), []
    for k in range(30):
        expected[k : k + 2] = a + k
        sums.append(expected[k : k + 2].sum())
    got, seen = f(x, a)
    assert got is x and copies(f) == []
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(seen, sums)


def test_thirty_versions_whose_readers_are_recorded_last() -> None:
    """Each reader could run right after its version, though it was written down at the end."""

    @jit(donate="x")
    def f(x: Any, a: Any) -> Any:
        versions = []
        for k in range(30):
            x = ops.write_slice(x, a + k, at=k)
            versions.append(x)
        return x, [v.sum() for v in versions]

    x, a = np.zeros(31, f32), arr(1, 2)
    expected, sums = np.zeros(31, f32), []
    for k in range(30):
        expected[k : k + 2] = a + k
        sums.append(expected.sum())
    got, seen = f(x, a)
    assert got is x and copies(f) == []
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(seen, sums)


def test_each_version_written_from_the_one_before() -> None:
    """The source of a write is computed from the buffer it goes into: in place, without a copy."""

    @jit(donate="x")
    def f(x: Any) -> Any:
        for k in range(10):
            x = ops.write_slice(x, x[k : k + 1] * 2 + 1, at=k + 1)
        return x

    x = np.zeros(11, f32)
    assert f(x) is x
    np.testing.assert_array_equal(x, 2.0 ** np.arange(11) - 1)
    assert copies(f) == []


@both
def test_writes_of_another_length_agree(donate: bool) -> None:
    @jit(donate="x" if donate else ())
    def f(x: Any, a: Any) -> Any:
        y = ops.write_slice(x, a, at=1)
        return y, np.flip(x) + 1, ops.write_slice(y, y[2:], at=0)

    for n in (5, 8, 13):
        x, a = np.arange(n, dtype=f32), -np.arange(2, dtype=f32) - 1
        y = x.copy()
        y[1:3] = a
        z = y.copy()
        z[: n - 2] = y[2:].copy()
        before = x.copy()
        got = f(x, a)
        for g, e in zip(got, (y, before[::-1] + 1, z)):
            np.testing.assert_array_equal(g, e)
        if not donate:
            np.testing.assert_array_equal(x, before)
    assert f.compilations == 2
