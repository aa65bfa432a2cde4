"""Our target beside Numba's own: neither gets in the other's way, and ours loads what it needs and no more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

OURS = """
import numpy as np
import fuelnumba as fn
from fuelnumba import ops

x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6)

def ours():
    np.testing.assert_allclose(fn.jit(lambda x: np.tanh(x) * 2 + np.sin(x))(x), np.tanh(x) * 2 + np.sin(x), rtol=1e-5)
    np.testing.assert_allclose(ops.softmax(x, axis=1).sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(fn.jit(lambda x: x @ x.T)(x), x @ x.T, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(fn.jit(lambda x: x.astype(np.float16).argmax(axis=1) // 2)(x), [2] * 4)
    np.testing.assert_array_equal(fn.jit(lambda x, i: np.take(x, i, axis=0))(x, np.array([3, 0])), x[[3, 0]])
"""
THEIRS = """
import numba

@numba.njit
def many(x):
    names = {"a": 1.0}
    names["b"] = float(len(str(x.size)))
    kept = [v for v in x.ravel() if v > 0]
    kept.sort()
    chosen = set([1, 2, 2])
    words = " ".join(["one", "two"]).upper().split()
    return (sum(kept) + names["b"] + len(chosen) + len(words) + x.T.sum(axis=0).mean() + np.where(x > 0, x, 0.0).max()
            + x.reshape(-1)[0] + bool(kept))

@numba.njit
def typed():
    found = numba.typed.List([3, 1, 2])
    found.append(7)
    return sorted(found)[-1] + min(found)

@numba.vectorize
def double(v):
    return v * 2

def theirs():
    a = x.astype(np.float64)
    assert abs(many(a) - many.py_func(a)) < 1e-9
    assert typed() == 8 and double(a).sum() == (a * 2).sum()
"""


def run(text: str, cache: Path) -> str:
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=170,
                          env={"PATH": "", "FUELNUMBA_CACHE_DIR": str(cache), "NUMBA_CACHE_DIR": str(cache)})
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("calls", ["ours(); theirs(); ours()", "theirs(); ours(); theirs()"], ids=["ours first", "theirs first"])
def test_both_in_one_process(calls: str, tmp_path: Path) -> None:
    run(OURS + THEIRS + calls, tmp_path)


def test_a_users_kernel_of_numba_arrays(tmp_path: Path) -> None:
    """Compiled by Numba's own target in the middle of a call of ours."""
    run(OURS + """
import numba

@numba.njit
def mine(x, out):
    kept = [v for v in x.ravel()]
    out[:] = np.tanh(np.array(kept).reshape(x.shape)) + 1

fn.register_kernel("tanh", ("f32", "f32"), mine)
np.testing.assert_allclose(fn.jit(lambda x: np.tanh(x * 2) * 3)(x), (np.tanh(x * 2) + 1) * 3, rtol=1e-5)
""", tmp_path)


def test_what_is_loaded_to_compile(tmp_path: Path) -> None:
    """The first call waits for it: no arrays, no linear algebra, no random numbers."""
    loaded = run(OURS + """
import sys
fn.jit(lambda x: np.tanh(x) * 2 + np.sin(x))(x)
print(fn.cache_stats().compiled, *sys.modules)
""", tmp_path).split()
    assert int(loaded[0]) == 1
    assert {"numba"} < set(loaded)
    assert not {"scipy.linalg", "numba.np.arraymath", "numba.np.linalg", "numba.cpython.randomimpl"} & set(loaded)
