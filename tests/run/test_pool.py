"""The pool on tables made by hand: every item of a row runs once, whatever the threads, and an interrupt leaves nobody waiting."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fuelnumba.run import cpu

KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class Table:
    """Rows whose kernels are Python functions that count the items they get."""

    def __init__(self, totals: list[int], divided: bool = True) -> None:
        self.counts = [np.zeros(n, np.int64) for n in totals]
        self.lock = threading.Lock()
        self.late = False
        self.kernels = [KERNEL(self._count(k)) for k in range(len(totals))]
        self.words = np.zeros((len(totals), cpu.ROW), np.int64)
        for k, n in enumerate(totals):
            address = ctypes.cast(self.kernels[k], ctypes.c_void_p).value
            self.words[k, :5] = [address or 0, k, n, int(divided), int(k > 0)]

    def _count(self, k: int) -> Any:
        def kernel(args: int, lo: int, hi: int) -> None:
            with self.lock:
                self.counts[args][lo:hi] += 1
                self.late |= any((c == 0).any() for c in self.counts[:args])

        return kernel

    def run(self, pool: cpu.Pool) -> None:
        pool.run(self.words.ctypes.data, len(self.words), len(self.words) - 1, True)


@pytest.fixture(params=[1, 2, 3, 5])
def pool(request: pytest.FixtureRequest) -> Iterator[cpu.Pool]:
    made = cpu.Pool(request.param)
    yield made
    made.close()


def test_every_item_runs_once(pool: cpu.Pool) -> None:
    totals = [*range(1, 40), 64, 1000, 12_345]
    table = Table(totals)
    for times in (1, 2, 3):  # the counters are set back after each walk
        table.run(pool)
        for n, counts in zip(totals, table.counts):
            assert (counts == times).all(), f"{n} items by {pool.threads} threads ran {counts} times"
        assert not table.words[:, 5].any()


def test_rows_that_are_not_divided_run_once(pool: cpu.Pool) -> None:
    table = Table([1, 7, 100], divided=False)
    table.run(pool)
    assert all((c == 1).all() for c in table.counts)


def test_a_row_begins_when_the_one_before_is_done(pool: cpu.Pool) -> None:
    table = Table([50] * 20)
    table.run(pool)
    assert not table.late


class Interrupted(BaseException):
    pass


@pytest.mark.parametrize("moment", ["before any is called", "one is called", "all are called", "all are awake"])
def test_an_interrupt_before_the_walk_leaves_nobody_waiting(moment: str) -> None:
    pool = cpu.Pool(3)
    table = Table([100, 100])
    table.run(pool)
    call, walk = pool.call, pool.walk
    calls = 0

    def interrupted_call(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        last = calls == {"before any is called": 1, "one is called": 1, "all are called": 2}[moment]
        if last:
            pool.call = call
        state = None if moment == "before any is called" else call(*args)
        if last:
            raise Interrupted
        return state

    def interrupted_walk(*args: Any) -> None:
        pool.walk = walk
        raise Interrupted

    if moment == "all are awake":
        pool.walk = interrupted_walk
    else:
        pool.call = interrupted_call
    with pytest.raises(Interrupted):
        table.run(pool)
    assert all((c == 2).all() for c in table.counts), "the table was not walked to its end"
    table.run(pool)
    assert all((c == 3).all() for c in table.counts)
    pool.close()


def test_a_walk_that_ended_is_not_repeated() -> None:
    pool = cpu.Pool(2)
    table = Table([100])
    walk = pool.walk

    def interrupted_after(*args: Any) -> None:
        walk(*args)
        raise Interrupted

    pool.walk = interrupted_after
    with pytest.raises(Interrupted):
        table.run(pool)
    assert (table.counts[0] == 1).all()
    pool.close()


def test_a_worker_woken_too_often_sleeps_again() -> None:
    pool = cpu.Pool(2)
    table = Table([100])
    table.run(pool)
    for times in range(2, 30):
        cpu._release(pool.wake[0])
        table.run(pool)
        assert (table.counts[0] == times).all()
    pool.close()
