"""Child processes made at awkward moments: while other threads run kernels, trace and compile.

    python -m tests.robustness.forks --forks 100

A child uses functions that were jitted before the fork, with shapes known and new, and compiles kernels of its own; all must
end with right results. The same by `multiprocessing`: fork and spawn, a pool of four.
"""

from __future__ import annotations

import argparse
import faulthandler
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import fuelnumba as fn

Array = np.ndarray[Any, Any]
CHILD = 60  # seconds that a child may take


@fn.jit
def known(x: Any) -> Any:
    return np.tanh(x) + x.sum(axis=0)


@fn.jit
def product(x: Any) -> Any:
    return x @ x.T


def fresh(k: int) -> Callable[[Any], Any]:
    """A function whose kernel nobody has: its number of operations is part of its text."""
    def body(x: Any) -> Any:
        for _ in range(k % 40 + 1):
            x = np.where(x > 0.5, x * 0.5, x + 0.25)
        return x

    return body


def use(k: int) -> None:
    """What a child does. Raises when a result is wrong."""
    x = np.random.default_rng(k).random((4 + k % 3, 5), np.float32)
    np.testing.assert_allclose(known(x), np.tanh(x) + x.sum(axis=0), rtol=1e-5)
    np.testing.assert_allclose(product(x), x @ x.T, rtol=1e-5)
    big = np.ones((1000 + k, 900), np.float32)
    np.testing.assert_allclose(known(big)[0], np.tanh(1) + len(big), rtol=1e-4)
    if k % 5 == 0:  # compiles, with Numba, in the child
        np.testing.assert_allclose(fn.jit(fresh(k % 8))(x), fresh(k % 8)(x), rtol=1e-5)
    np.testing.assert_allclose(fn.ops.softmax(x).sum(axis=1), 1, rtol=1e-5)


def use_and_tell(k: int) -> str:
    try:
        use(k)
    except BaseException:
        return traceback.format_exc()
    return ""


def forked(k: int) -> str:
    """Fork now, use the package there: what went wrong, or nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of forks beside threads: that is what this is about
        pid = os.fork()
    if pid == 0:
        faulthandler.register(signal.SIGALRM, chain=True)  # dump_traceback_later would wait for its thread in the parent
        signal.alarm(CHILD)
        what = use_and_tell(k)
        if what:
            print(what, file=sys.stderr, flush=True)
        os._exit(3 if what else 0)
    status = os.waitpid(pid, 0)[1]
    return "" if status == 0 else f"child {k} ended with {os.waitstatus_to_exitcode(status)}"


def run(forks: int = 100, seed: int = 1, limit: int = 170, pools: bool = True) -> str:
    """One line of figures. Raises AssertionError when a child failed."""
    faulthandler.dump_traceback_later(limit, exit=True)
    r = random.Random(seed)
    stop, failed = threading.Event(), []
    x = np.random.default_rng(0).random((1500, 900), np.float32)
    known(x)
    product(x[:300])
    made = [0, 0]

    def compute() -> None:
        while not stop.is_set():
            known(x)
            product(x[:300])
            made[0] += 1

    def compile_() -> None:
        k = 0
        while not stop.is_set() and k < 10 * forks:
            body = fresh(k)
            fn.jit(lambda y: body(y) * 0.5)(x[: 5 + k % 7])  # traced anew each time, compiled for the first forty  # noqa: B023
            k += 1
            made[1] += 1
            stop.wait(0.002)

    threads = [threading.Thread(target=compute), threading.Thread(target=compute), threading.Thread(target=compile_)]
    began = time.perf_counter()
    for t in threads:
        t.start()
    for k in range(forks):
        time.sleep(r.random() * 0.05)
        what = forked(k)
        if what:
            failed.append(what)
    pooled = 0
    for method in ("fork", "spawn") if pools else ():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with multiprocessing.get_context(method).Pool(4) as pool:
                found = pool.map(use_and_tell, range(12))
        failed += [f"{method}: {what}" for what in found if what]
        pooled += len(found)
    stop.set()
    for t in threads:
        t.join()
    faulthandler.cancel_dump_traceback_later()
    assert not failed, "\n".join(failed)
    return (f"forks {forks} | failed 0 | in pools of 4 by fork and spawn {pooled} | meanwhile {made[0]} calls and {made[1]} traces in "
            f"three threads | {time.perf_counter() - began:.0f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forks", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-pools", action="store_true", help="forks only")
    parser.add_argument("--filled", action="store_true", help="use the kernel cache there is, instead of an empty one")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if not args.filled:
            os.environ["FUELNUMBA_CACHE_DIR"] = folder
        print(run(args.forks, args.seed, pools=not args.no_pools))
    return 0


if __name__ == "__main__":
    sys.exit(main())
