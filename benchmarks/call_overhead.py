"""What a warm call costs beside its kernels: a whole call on small arrays, and each further kernel in it.

    python benchmarks/call_overhead.py
"""

from __future__ import annotations

import subprocess
import sys

import machine
import numpy as np

import fuelnumba


def towers(kernels: int):
    """A function of that many tiny kernels: softmax does not fuse with its neighbours."""
    def run(x):
        for _ in range(kernels):
            x = fuelnumba.ops.softmax(x)
        return x

    return fuelnumba.jit(run)


def main() -> None:
    print(machine.facts())
    x = np.ones(16, np.float32)
    sizes = (1, 2, 50, 200)
    functions = {n: towers(n) for n in sizes}
    results = machine.interleave({str(n): lambda f=f: f(x) for n, f in functions.items()}, rounds=200, inner=20)
    for n in sizes:
        print(f"  {n:4d} kernels: median {results[str(n)][0] * 1e6:8.2f} us, least {results[str(n)][1] * 1e6:8.2f} us")
    alone = results["1"][0]
    each = (results["200"][0] - alone) / 199
    print(f"  each further kernel (softmax of 16 elements included): {each * 1e9:.0f} ns")
    for count in (1, 3, 10):
        arrays = [np.ones(16, np.float32) for _ in range(count)]
        add = fuelnumba.jit(lambda *xs: sum(xs[1:], xs[0]))
        got = machine.interleave({"call": lambda f=add, a=arrays: f(*a)}, rounds=200, inner=50)["call"]
        print(f"  one kernel, {count:2d} arguments: median {got[0] * 1e6:6.2f} us, least {got[1] * 1e6:6.2f} us")
    code = "import time; t = time.perf_counter(); import fuelnumba; print(time.perf_counter() - t)"
    times = sorted(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(7))
    print(f"  import fuelnumba: median {times[3] * 1e3:.0f} ms, least {times[0] * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
