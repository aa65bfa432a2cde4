"""The chain y = a*x + b; gelu_tanh(y)*sigmoid(y) + x on 10 M and 1 k elements of f32, against NumPy in one run.

    python benchmarks/chain.py
"""

from __future__ import annotations

import machine
import numpy as np

import fuelnumba

A, B = np.float32(1.5), np.float32(0.25)


def chain(x):
    y = x * A + B
    gelu = 0.5 * y * (1 + np.tanh(0.7978845608 * (y + 0.044715 * (y * y * y))))
    return gelu * (1 / (1 + np.exp(-y))) + x


def main() -> None:
    print(machine.facts(), f"{fuelnumba.num_threads()} threads of ours", sep="\n")
    jitted = fuelnumba.jit(chain)
    for n, rounds, inner in ((10_000_000, 15, 1), (1_000, 200, 20)):
        x = np.random.default_rng(0).standard_normal(n, dtype=np.float32)
        exact = chain(x.astype(np.float64))
        error = np.max(np.abs(jitted(x) - exact) / (np.abs(exact) + 1e-3))
        results = machine.interleave({"NumPy": lambda x=x: chain(x), "fuelnumba": lambda x=x: jitted(x)}, rounds, inner)
        bytes_moved = 2 * x.nbytes / results["fuelnumba"][0] / 1e9
        print(machine.table(f"chain, {n} elements of f32 (relative error {error:.1e})", results, "NumPy",
                            {"fuelnumba": f"{bytes_moved:.1f} GB/s"}))


if __name__ == "__main__":
    main()
