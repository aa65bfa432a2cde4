"""Single kernels against NumPy, f32, interleaved: row kernels, reductions, products.

    python benchmarks/kernels.py
"""

from __future__ import annotations

import machine
import numpy as np

import fuelnumba
from fuelnumba import ops


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rms_norm(x):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def layer_norm(x):
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5)


def main() -> None:
    print(machine.facts(), f"{fuelnumba.num_threads()} threads of ours", sep="\n")
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((4096, 1024), dtype=np.float32)
    square = rng.standard_normal((4096, 4096), dtype=np.float32)
    some, one, turned = square[:512].copy(), square[:1].copy(), square.T.copy()
    matmul = fuelnumba.jit(lambda a, b: a @ b)
    cases = {
        "softmax 4096 x 1024": (lambda: softmax(rows), lambda: ops.softmax(rows)),
        "rms_norm 4096 x 1024": (lambda: rms_norm(rows), lambda: ops.rms_norm(rows)),
        "layer_norm 4096 x 1024": (lambda: layer_norm(rows), lambda: ops.layer_norm(rows)),
        "sum, axis 0 of 4096 x 4096": (lambda: square.sum(0), lambda: ops.sum(square, axis=0)),
        "sum, axis 1": (lambda: square.sum(1), lambda: ops.sum(square, axis=1)),
        "argmax, axis 0": (lambda: square.argmax(0), lambda: ops.argmax(square, axis=0)),
        "argmax, axis 1": (lambda: square.argmax(1), lambda: ops.argmax(square, axis=1)),
        "[512, 4096] @ [4096, 4096]": (lambda: some @ square, lambda: matmul(some, square)),
        "[512, 4096] @ transposed": (lambda: some @ turned.T, lambda: matmul(some, turned.T)),
        "[1, 4096] @ [4096, 4096]": (lambda: one @ square, lambda: matmul(one, square)),
        "[1, 4096] @ transposed": (lambda: one @ turned.T, lambda: matmul(one, turned.T)),
    }
    for name, (theirs, ours) in cases.items():
        got = machine.interleave({"NumPy": theirs, "ours": ours}, rounds=9)
        a, b = got["NumPy"][0], got["ours"][0]
        print(f"  {name:28s} NumPy {a * 1e3:8.2f} ms   fuelnumba {b * 1e3:8.2f} ms   x{a / b:5.2f}")


if __name__ == "__main__":
    main()
