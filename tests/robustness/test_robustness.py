"""A small part of each figure, with a fixed seed. The modules beside this one make the whole of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from . import calls, hostile_gguf, kills

# few kernels, of each kind of op one; calls that are refused compile nothing
NAMES = ("add", "exp", "where", "clamp", "cast", "sum", "argmax", "softmax", "matmul", "take", "write_slice", "concat", "reshape", "slice",
         "full", "rope", "attention", "squeeze", "stack", "split", "powi")


def module(name: str, *words: str) -> str:
    """What a module prints, run in a process of its own: it ends, and nothing of it stays here."""
    done = subprocess.run([sys.executable, "-m", f"tests.robustness.{name}", *words], capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_random_calls_of_ops() -> None:
    found = calls.figures(600, seed=2, variants=1, names=NAMES)
    assert found.faults == [] and found.calls == 600
    assert found.valid > 200 and sum(found.refused.values()) > 100


@pytest.mark.filterwarnings("ignore")  # NumPy's, of the odd arguments
def test_random_calls_of_numpy_functions() -> None:
    faults = []
    for k in range(600):
        drawn, call = calls.draw_call(5, k, 1)
        if drawn is not calls.numpy_calls:
            continue
        kind, what = calls.outcome(drawn, call)
        if kind == "fault":
            faults.append((k, str(call), what))
    assert faults == []


def test_threads() -> None:
    assert "| wrong 0 |" in module("threads", "--threads", "16", "--rounds", "6")


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no fork")
def test_forks() -> None:
    assert "| failed 0 |" in module("forks", "--forks", "6", "--filled")


def test_kills() -> None:
    assert "right" in kills.run(4, seed=3, longest=2.5)


def test_hostile_model_files() -> None:
    faults: list[str] = []
    line = hostile_gguf.run(120, every=30, seed=4, faults=faults)
    assert faults == [], line
