"""The words of kernels for groups, as the interpreter gives them, and what the renderer makes of them."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from fuelnumba.compiler import flatten
from fuelnumba.core import dtypes as dt
from fuelnumba.core.errors import CompileError
from fuelnumba.kernels import cooperative
from fuelnumba.kernels.cooperative import (
    GroupError,
    barrier,
    group_max,
    group_min,
    group_sum,
    lane,
    load4,
    run_group,
    shared_f32,
    shared_i64,
    store4,
    unroll,
)
from fuelnumba.kernels.generic import load, store

ORDERS = [range(8), range(8)[::-1]]


@pytest.mark.parametrize("order", ORDERS, ids=["forward", "backward"])
def test_threads_see_what_others_wrote_before_the_barrier(order):
    out = np.zeros(8, np.int64)

    def kernel():
        held = shared_i64(8)
        held[lane()] = lane() * 10
        barrier()
        out[lane()] = held[7 - lane()]

    run_group(kernel, 8, order)
    np.testing.assert_array_equal(out, np.arange(8)[::-1] * 10)


@pytest.mark.parametrize("order", ORDERS, ids=["forward", "backward"])
def test_every_thread_gets_what_the_group_combines(order):
    x = np.array([3, -1, 4, 1, -5, 9, 2, 6], np.float32)
    sums, high, low, whole = np.zeros((4, 8), np.float32)

    def kernel():
        sums[lane()] = group_sum(x[lane()])
        high[lane()] = group_max(x[lane()])
        low[lane()] = group_min(x[lane()])
        whole[lane()] = group_sum(lane())

    run_group(kernel, 8, order)
    for got, want in ((sums, 19), (high, 9), (low, -5), (whole, 28)):
        np.testing.assert_array_equal(got, np.full(8, want, np.float32))


def test_nan_is_the_extreme_of_a_group():
    x = np.array([1, np.nan, 3, 4], np.float32)
    got = []
    run_group(lambda: got.append((group_max(x[lane()]), group_min(x[lane()]))), 4)
    assert np.isnan(got).all()


def test_a_missing_barrier_shows_in_another_order():
    def results(order):
        out = np.zeros(4, np.int64)

        def kernel():
            held = shared_i64(4)
            held[lane()] = lane()
            out[lane()] = held[(lane() + 1) % 4]

        run_group(kernel, 4, order)
        return out.tolist()

    assert results(range(4)) != results(range(4)[::-1])


def test_threads_that_do_not_meet_are_an_error():
    def kernel():
        if lane() < 2:
            barrier()

    with pytest.raises(GroupError, match=r"thread 0 is at barrier\(\), thread 2 at the end of the kernel"):
        run_group(kernel, 4)

    def mixed():
        if lane() == 1:
            group_sum(1.0)
        else:
            barrier()

    with pytest.raises(GroupError, match=r"thread 0 is at barrier\(\), thread 1 at group_sum\(\)"):
        run_group(mixed, 2)


def test_what_a_thread_raises_is_raised():
    def kernel():
        barrier()
        if lane() == 3:
            raise ValueError("in thread 3")
        barrier()

    with pytest.raises(ValueError, match="in thread 3"):
        run_group(kernel, 4)


def test_a_thread_that_never_comes(monkeypatch):
    monkeypatch.setattr(cooperative, "TIMEOUT", 0.1)
    going = [True]

    def kernel():
        while lane() == 1 and going[0]:
            pass

    try:
        with pytest.raises(GroupError, match="thread 1 of the group computed for 0 s without meeting the others"):
            run_group(kernel, 2)
    finally:
        going[0] = False


def test_shared_arrays_are_the_same_for_all_threads():
    def kernel():
        shared_f32(4 if lane() == 0 else 5)

    with pytest.raises(GroupError, match="share arrays of different kinds or lengths"):
        run_group(kernel, 2)


def test_words_outside_of_a_group():
    with pytest.raises(GroupError, match="outside of a group"):
        lane()


def test_four_neighbours():
    x = np.arange(12, dtype=np.float16)
    assert load4(x, 4) == (4, 5, 6, 7)
    assert load4(x, 4)[0].dtype == np.float32
    store4(x, 8, 1, 2, 3, 4)
    np.testing.assert_array_equal(x[8:], [1, 2, 3, 4])
    with pytest.raises(GroupError, match="start at a multiple of 4, not at 2"):
        load4(x, 2)


# ------------------------------------------------------------ what the renderer makes of them
def four(x, out, N: int, lo, hi):
    held = shared_f32(N * 4)
    for item in range(lo, hi):
        a, b, c, d = load4(x, item * 4)
        held[lane()] = a
        barrier()
        for i in unroll(2):
            for j in unroll(1, N):
                store(out, i * 8 + j, load(x, item + i * 2 + j) + held[i * 4 + j])
        store4(out, item * 4, a, b, c, group_sum(d))


def rendered(dtype: dt.DType, n: int = 3) -> str:
    node = flatten.parse_kernel(four)
    body = flatten.specialise(node, {"x": dtype, "out": dtype}, {"T": dtype}, {"N": n})
    return ast.unparse(ast.fix_missing_locations(ast.Module(body, [])))


def test_loops_are_written_out():
    assert rendered(dt.f32, 2) == """\
held = shared_f32(8)
for item in range(lo, hi):
    a, b, c, d = load4(x, item * 4)
    held[lane()] = a
    barrier()
    out[1] = x[item + 0 + 1] + held[1]
    out[9] = x[item + 2 + 1] + held[5]
    store4(out, item * 4, a, b, c, group_sum(d))"""


def test_half_types_are_converted():
    text = rendered(dt.f16)
    assert "four1_0, four1_1, four1_2, four1_3 = load4(x, item * 4)\n    a = f16_to_f32(four1_0)" in text
    assert "store4(out, item * 4, f32_to_f16(a), f32_to_f16(b), f32_to_f16(c), f32_to_f16(group_sum(d)))" in text
    flat = flatten.flatten_text(f"def k(x, out, lo, hi):\n    {rendered(dt.bf16).replace(chr(10), chr(10) + '    ')}\n")
    assert "bf16_to_f32" not in flat and "load4(x, item * 4)" in flat


def test_bounds_of_unrolled_loops_are_known():
    def open_ended(x, lo, hi):
        for i in unroll(hi):
            x[i] = 0

    with pytest.raises(CompileError, match=r"unroll\(hi\): the bounds of a loop that is written out must be literals"):
        flatten.specialise(flatten.parse_kernel(open_ended), {}, {}, {})
