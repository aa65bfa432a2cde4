"""Where buffers lie: no two that are alive together share a byte, and no result that is held is written again."""

from __future__ import annotations

import sys
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuelnumba import jit
from fuelnumba.run import memory
from fuelnumba.run.memory import ALIGN, Recycler, aligned_bytes, arrange

Array = np.ndarray[Any, Any]


# --------------------------------------------------------------------------------------- the arena
lives = st.tuples(st.integers(0, 12), st.integers(0, 6)).map(lambda t: (t[0], t[0] + t[1]))
buffers = st.lists(st.tuples(st.sampled_from([0, 1, 63, 64, 65, 200, 1000, 4096]) | st.integers(0, 5000), lives), max_size=14)


@pytest.mark.parametrize("many", [250_000, -1_000], ids=["few lives", "many lives"])
@given(made=buffers)
def test_arrange(many: int, made: list[tuple[int, tuple[int, int]]]) -> None:
    sizes, when = [m[0] for m in made], [m[1] for m in made]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "MANY_LIVES", many)
        offsets, total = arrange(sizes, when)
    assert len(offsets) == len(sizes)
    for step in range(20):  # who is alive, byte by byte of the arena
        owner = np.zeros(total, np.int32)
        for size, (first, last), at in zip(sizes, when, offsets):
            if first <= step <= last:
                assert at % ALIGN == 0
                assert at + size <= total
                assert not owner[at:at + size].any()
                owner[at:at + size] = 1
    padded = [-(-max(s, 1) // ALIGN) * ALIGN for s in sizes]
    most = max((sum(p for p, (a, b) in zip(padded, when) if a <= step <= b) for step in range(20)), default=0)
    assert most <= total <= sum(padded)


def test_arrange_by_hand() -> None:
    assert arrange([], []) == ([], 0)
    assert arrange([100], [(0, 1)]) == ([0], 128)
    assert arrange([64, 64], [(0, 1), (1, 2)]) == ([0, 64], 128)  # the last reader of one writes the other
    assert arrange([64, 64], [(0, 1), (2, 3)]) == ([0, 0], 64)
    chain = arrange([640] * 10, [(k, k + 1) for k in range(10)])  # a chain takes turns with two
    assert chain == ([0, 640] * 5, 1280)
    assert arrange([64, 256, 64], [(0, 0), (1, 2), (2, 3)]) == ([0, 0, 256], 320)
    assert arrange([0, 0], [(0, 1), (0, 1)]) == ([0, 64], 128)


def test_arrange_of_buffers_that_live_long() -> None:
    n = 1000
    offsets, total = arrange([64] * n, [(k, n) for k in range(n)])
    assert sorted(offsets) == list(range(0, 64 * n, 64)) and total == 64 * n
    offsets, total = arrange([640, 64] * n, [(0, n), (n + 1, 2 * n)] * n)  # the later ones go where the first were
    assert total == 640 * n


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 100_000])
def test_aligned_bytes(n: int) -> None:
    raw, first = aligned_bytes(n)
    assert (raw.ctypes.data + first) % ALIGN == 0
    assert 0 <= first < ALIGN
    assert raw.nbytes - first >= n


# --------------------------------------------------------------------------------------- addresses
def arrays() -> dict[str, Array]:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    frozen = np.arange(3)
    frozen.flags.writeable = False
    return {"plain": x, "offset": x[1], "tail": x[1, 2, 3:], "reversed": x[::-1], "all reversed": x[::-1, ::-1, ::-1],
            "strided": x[:, ::2, 1::2], "transposed": x.T, "broadcast": np.broadcast_to(x[0, 0], (5, 4)),
            "one element": x[1, 1, 1:2], "0-d": np.array(3.0), "0-d view": x[1, 2, 3, ...], "no elements": np.empty((0, 3)),
            "empty slice": x[2:], "empty in the middle": x[:, 1:1], "read-only": frozen, "bf16": np.ones(3, ml_dtypes.bfloat16),
            "of bytes": np.frombuffer(b"0123456789", np.uint8)[3:], "bool": np.zeros(7, bool)}


@pytest.mark.parametrize("name", list(arrays()))
def test_address(name: str) -> None:
    x = arrays()[name]
    assert memory.address(x) == x.ctypes.data


def test_address_of_a_mapped_file(tmp_path: Any) -> None:
    np.arange(100, dtype=np.int16).tofile(tmp_path / "x.bin")
    x = np.memmap(tmp_path / "x.bin", np.int16, "r", offset=20)
    assert memory.address(x) == x.ctypes.data
    assert memory.address(np.asarray(x)[5:]) == x.ctypes.data + 10


# --------------------------------------------------------------------------------------- results
def result(recycler: Recycler) -> Array:
    """As a call makes its result: taken, referred to, put back."""
    pair = recycler.take()
    out = np.ndarray((recycler.nbytes,), np.uint8, *pair)
    recycler.put(pair)
    return out


def test_dropped_buffers_come_back() -> None:
    recycler = Recycler(100)
    at = set()
    for _ in range(10):
        x = result(recycler)
        at.add(x.ctypes.data)
        assert x.ctypes.data % ALIGN == 0
        del x
    assert len(at) == 1


def test_held_buffers_do_not() -> None:
    recycler = Recycler(1000)
    held = [result(recycler) for _ in range(20)]
    for k, x in enumerate(held):
        x[:] = k
    assert [set(x.tolist()) for x in held] == [{k} for k in range(20)]
    assert len(recycler.buffers) <= Recycler.KEEP


@pytest.mark.parametrize("hold", [
    lambda x: x[10:20], lambda x: x.reshape(10, 10).T, memoryview, lambda x: x.view(np.uint16)[3:],
    lambda x: x[5, ...], lambda x: np.frombuffer(x, np.uint8), lambda x: iter(x), lambda x: x.ctypes, lambda x: x.flat,
], ids=["slice", "transposed", "memoryview", "other dtype", "0-d", "frombuffer", "iterator", "ctypes", "flat"])
def test_whoever_refers_to_a_result_holds_it(hold: Any) -> None:
    recycler = Recycler(100)
    x = result(recycler)
    at = x.ctypes.data
    holder = hold(x)
    del x
    assert at not in [result(recycler).ctypes.data for _ in range(5)]
    del holder
    assert at in [result(recycler).ctypes.data for _ in range(5)]


def test_two_takers_do_not_share() -> None:
    recycler = Recycler(100)
    result(recycler)
    one, two = recycler.take(), recycler.take()
    assert one[0] is not two[0]
    recycler.put(one)
    recycler.put(two)
    three, four = recycler.take(), recycler.take()
    assert three[0] is not four[0]


def test_putting_back_while_others_take() -> None:
    """Between looking at the number of buffers and dropping one, other threads may take them all."""
    class Emptied(list[Any]):
        def __len__(self) -> int:
            n = super().__len__()
            self.clear()
            return n

    recycler = Recycler(100)
    recycler.buffers = Emptied([aligned_bytes(100), aligned_bytes(100)])
    recycler.put(aligned_bytes(100))


def test_threads_do_not_share() -> None:
    recycler = Recycler(256)
    wrong: list[Any] = []

    def work(mark: int) -> None:
        try:
            for _ in range(1500):
                a = result(recycler)
                b = result(recycler)
                a[:], b[:] = mark, mark + 100
                if not ((a == mark).all() and (b == mark + 100).all()):
                    wrong.append(mark)
        except Exception as err:
            wrong.append(err)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(before)
    assert wrong == []


def test_results_of_calls() -> None:
    f = jit(lambda x: (x + 1, x * 2))
    x = np.arange(1000, dtype=np.float32)
    held = [f(x + k) for k in range(8)]
    for k, (a, b) in enumerate(held):
        np.testing.assert_array_equal(a, x + k + 1)
        np.testing.assert_array_equal(b, (x + k) * 2)
    tail = f(x)[0][-3:]
    for _ in range(5):
        f(x + 7)
    assert tail.tolist() == [998, 999, 1000]
    y = f(x)[0]
    np.testing.assert_array_equal(f(y)[0], x + 2)  # its own former result as its input
    np.testing.assert_array_equal(y, x + 1)
    del held, tail
    places = set()
    for _ in range(10):
        a, b = f(x)
        places |= {a.ctypes.data, b.ctypes.data}
        assert a.flags.writeable and a.ctypes.data % ALIGN == 0
        del a, b
    assert len(places) <= 2 * (Recycler.KEEP + 1)
