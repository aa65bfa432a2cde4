"""Threads that call the same and different jitted functions at once, from their very first calls on.

    python -m tests.robustness.threads --threads 16 --rounds 200

Everything is checked: results, donated buffers, that it ends. Meanwhile the number of threads changes, and kernels are registered
and removed.
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

import fuelnumba as fn
from fuelnumba import ops

Array = np.ndarray[Any, Any]


@numba.njit
def own_tanh(x: Any, out: Any) -> None:
    for i in range(x.size):
        out.flat[i] = np.tanh(x.flat[i])


def shared(x: Any, y: Any) -> Any:
    return np.tanh(x) * y + x.sum(axis=0), x.max(axis=1)


def update(cache: Any, x: Any, at: Any) -> Any:
    return ops.write_slice(cache, x * 2.0, at=(at, 0))


def different(k: int) -> Callable[[Any], Any]:
    """A function of this thread alone."""
    return lambda x: np.exp(x * 0.1) * float(k) + (x @ x.T).sum()


def run(threads: int = 16, rounds: int = 200, limit: int = 150) -> str:
    """One line of figures. Raises AssertionError when a result was wrong or a thread did not end in time."""
    faulthandler.dump_traceback_later(limit, exit=True)
    before = fn.num_threads()
    both, write = fn.jit(shared), fn.jit(update, donate="cache")
    gate, stop = threading.Barrier(threads + 1), threading.Event()
    errors: list[str] = []
    calls = [0] * threads
    changes = 0

    def work(k: int) -> None:
        g = np.random.default_rng(k)
        own = fn.jit(different(k))
        cache = np.zeros((64, 8), np.float32)
        wanted = cache.copy()
        gate.wait()
        for i in range(rounds):
            rows = int(g.integers(1, 40)) if i else 5
            x, y = g.standard_normal((rows, 7), np.float32), g.standard_normal((rows, 7), np.float32)
            if i % 5 == 4:
                x, y = (g.standard_normal((1200, 700), np.float32) for _ in range(2))
            got = both(x, y)
            np.testing.assert_allclose(got[0], np.tanh(x) * y + x.sum(axis=0), rtol=2e-4, atol=2e-4)
            np.testing.assert_array_equal(got[1], x.max(axis=1))
            x = x[:40]
            np.testing.assert_allclose(own(x), np.exp(x * 0.1) * k + (x.astype(float) @ x.T.astype(float)).sum(), rtol=1e-3, atol=1e-2)
            src, at = g.standard_normal((3, 8), np.float32), int(g.integers(0, 62))
            out = write(cache, src, at)
            assert out is cache, "the donated buffer was not used"
            wanted[at:at + 3] = src * 2
            np.testing.assert_array_equal(cache, wanted)
            np.testing.assert_allclose(ops.softmax(x, axis=i % 2).sum(axis=i % 2), 1, rtol=1e-4)
            calls[k] += 4

    def guarded(k: int) -> None:
        try:
            work(k)
        except BaseException:
            errors.append(f"thread {k}: {traceback.format_exc()}")
            gate.abort()

    def disturb() -> None:
        nonlocal changes
        registered = False
        while not stop.is_set():
            fn.set_num_threads(1 + changes % 5)
            if changes % 10 == 0:
                if registered:
                    fn.unregister_kernel("tanh", ("f32", "f32"))
                else:
                    fn.register_kernel("tanh", ("f32", "f32"), own_tanh)
                registered = not registered
            changes += 1
            stop.wait(0.02)
        if registered:
            fn.unregister_kernel("tanh", ("f32", "f32"))

    own_tanh(np.ones(2, np.float32), np.ones(2, np.float32))
    workers = [threading.Thread(target=guarded, args=(k,)) for k in range(threads)]
    other = threading.Thread(target=disturb)
    began = time.perf_counter()
    for t in workers:
        t.start()
    gate.wait()
    other.start()
    for t in workers:
        t.join()
    stop.set()
    other.join()
    faulthandler.cancel_dump_traceback_later()
    fn.set_num_threads(before)
    assert not errors, "\n".join(errors)
    stats = fn.cache_stats()
    return (f"threads {threads} | calls {sum(calls)} | wrong 0 | changes of the number of threads {changes}, of kernels {changes // 10 + 1} | "
            f"compilations {both.compilations} of the shared function | kernels compiled {stats.compiled}, loaded {stats.loaded} | "
            f"{time.perf_counter() - began:.0f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=200)
    args = parser.parse_args()
    print(run(args.threads, args.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
