"""What a function read from outside: constants that differ between closures, between processes, and in time; and threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fuelnumba as fn
from fuelnumba import ops

F32 = np.float32


def run(folder: Path, text: str, timeout: float = 150) -> str:
    """What a fresh process prints that keeps its kernels in this folder."""
    done = subprocess.run([sys.executable, "-c", text], env={**os.environ, "FUELNUMBA_CACHE_DIR": str(folder)}, capture_output=True,
                          text=True, timeout=timeout, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ------------------------------------------------------------------------------------------------ constants
def test_closures_of_one_code() -> None:
    """Keyed by the code alone, the second closure gets the first one's kernel."""
    def make(k: Any) -> Any:
        @fn.jit
        def scaled(x: Any) -> Any:
            return x * k + k

        return scaled

    x = np.array([1.0, -1.0], F32)
    two, three, half, table = make(2.0), make(3), make(np.float32(0.5)), make(np.array([10.0, 20.0], F32))
    for _ in range(2):
        assert two(x).tolist() == [4, 0] and three(x).tolist() == [6, 0]
        assert half(x).tolist() == [1, 0] and table(x).tolist() == [20, 0]


def test_constants_that_are_equal_and_yet_differ() -> None:
    """1 == 1.0 == True and 0.0 == -0.0, but not as factors of integers, or as divisors."""
    def make(k: Any) -> Any:
        return fn.jit(lambda x: x * k)

    x = np.array([3, 5], np.int32)
    results = [make(k)(x) for k in (1, 1.0, True, np.int64(1))]
    assert [r.dtype for r in results] == [(x * k).dtype for k in (1, 1.0, True, np.int64(1))]
    signs = [np.signbit(make(k)(np.ones(1, F32))[0]) for k in (0.0, -0.0, 0.0)]
    assert signs == [False, True, False]


CLOSURES = """
import sys
import numpy as np
import fuelnumba as fn

def make(k):
    @fn.jit
    def scaled(x):
        return np.exp(x * 0) * x * k
    return scaled

print(make({k})(np.array([1.0, -1.0], np.float32)).tolist(), fn.cache_stats().compiled)
"""


def test_closures_in_two_processes(tmp_path: Path) -> None:
    """The kernels of the first process are on disk when the second asks with another constant."""
    assert run(tmp_path, CLOSURES.format(k=2.0)).startswith("[2.0, -2.0] ")
    assert run(tmp_path, CLOSURES.format(k=3.0)) == "[3.0, -3.0] 0\n"
    assert run(tmp_path, CLOSURES.format(k="np.array([5.0, 7.0], np.float32)")).startswith("[5.0, -7.0] ")


MODULE = """
import numpy as np
import fuelnumba as fn

FACTOR = {factor}
AXIS = {axis}

@fn.jit
def f(x):
    return (x * FACTOR).sum(axis=AXIS)
"""


def test_a_module_that_is_edited_between_processes(tmp_path: Path) -> None:
    """Of a module-level number, and of one that decides which kernel is needed."""
    use = "import numpy as np, mine; print(mine.f(np.arange(6, dtype=np.float32).reshape(2, 3)).tolist())"
    for factor, axis, printed in [(2.0, 0, "[6.0, 10.0, 14.0]"), (3.0, 0, "[9.0, 15.0, 21.0]"), (3.0, 1, "[9.0, 36.0]"),
                                  (2.0, 0, "[6.0, 10.0, 14.0]")]:
        (tmp_path / "mine.py").write_text(MODULE.format(factor=factor, axis=axis))
        assert run(tmp_path, "import sys; sys.dont_write_bytecode = True; sys.path.insert(0, '.')\n" + use).strip() == printed


# ------------------------------------------------------------------------------------------------ arrays that change later
@pytest.mark.parametrize("size", [3, 1000, 100_000])
def test_a_captured_array_that_is_written_to(size: int) -> None:
    """Frozen when it was traced, it gives the old values for ever. Small ones are compared, large ones read anew."""
    w = np.arange(size, dtype=F32)
    f = fn.jit(lambda x: x * w)
    x = np.ones(size, F32)
    np.testing.assert_array_equal(f(x), np.arange(size))
    for value in (10.0, -1.0):
        w[:] = value
        np.testing.assert_array_equal(f(x), np.full(size, value))
    w[-1] = 7
    assert f(x)[-1] == 7 and f(x)[0] == -1


def test_a_captured_array_that_is_written_to_through_a_view_or_replaced() -> None:
    base = np.zeros((4, 2), F32)
    holder = {"w": base[:, 1]}
    f = fn.jit(lambda x: x + holder["w"])
    x = np.ones(4, F32)
    assert f(x).tolist() == [1] * 4
    base[2] = 5
    assert f(x).tolist() == [1, 1, 6, 1]
    holder["w"] = np.full(4, 3, F32)
    assert f(x).tolist() == [4] * 4


def test_an_array_that_decided_something_while_tracing() -> None:
    """Its numbers were used by Python, so that the graph itself depends on them."""
    order = np.array([1, 0])
    f = fn.jit(lambda x: np.transpose(x, [int(k) for k in order]) * float(order[0]))
    x = np.arange(6, dtype=F32).reshape(2, 3)
    assert f(x).tolist() == x.T.tolist()
    order[:] = [0, 1]
    assert f(x).shape == (2, 3) and not f(x).any()


# ------------------------------------------------------------------------------------------------ threads
THREADS = """
import threading
import numpy as np
import fuelnumba as fn

@fn.jit
def f(x):
    return (x * 2.0 + 1.0).sum()

@fn.jit
def g(x, y):
    return x @ y

start, faults, results = threading.Barrier(4), [], {}

def work(n):
    try:
        x = np.full((8 + n, 8), float(n), np.float32)
        start.wait(60)
        for r in range(5):
            results[n, r] = float(f(x)), float(g(x, x.T).sum())
    except BaseException as err:
        faults.append(repr(err))

threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(4)]
for t in threads: t.start()
for t in threads: t.join(120)
assert not faults, faults
for n in range(4):
    for r in range(5):
        assert results[n, r] == ((8 + n) * 8 * (2 * n + 1), 8 * (8 + n) ** 2 * n * n), (n, r, results[n, r])
print("right")
"""


def test_threads_that_trace_and_compile_at_the_same_time(tmp_path: Path) -> None:
    """Four threads, four shapes, in a process that may die or hang: with an empty cache, then with a full one."""
    for _ in range(2):
        assert run(tmp_path, THREADS) == "right\n"


def test_threads_do_not_share_a_half_made_trace() -> None:
    @fn.jit(static_argnames="k")
    def f(x: Any, k: int) -> Any:
        for _ in range(k):
            x = np.where(x > 0, x - 1, x + 1)
        return ops.sum(x) + k

    results: dict[int, list[float]] = {}
    start = threading.Barrier(6)

    def work(k: int) -> None:
        start.wait(60)
        results[k] = [float(f(np.zeros(8 + k, F32), k % 3)) for _ in range(4)]

    threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    # 0 becomes 1, then 0 again
    assert results == {k: [(8.0 + k) * (k % 3 == 1) + k % 3] * 4 for k in range(6)}
