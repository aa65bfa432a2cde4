"""Ctrl-C while a function is traced, compiled and run: it ends there, leaves nothing half done, and the next call is right.

Each test runs a program in a process of its own, which writes a line `now` when it wants to be interrupted. Time limits are
there to end a process that hangs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fuelnumba.compiler import modcache

HEAD = """
import signal
import sys
import numpy as np
import fuelnumba as fn

signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell start with it ignored

def now():
    print("now", flush=True)
"""
LIMIT = 100  # seconds, for a whole program


def run(program: str, folder: Path, after: float = 0.05, threads: int = 2) -> tuple[list[str], int]:
    """What the program printed, and its exit code; it gets a SIGINT some time after each `now`."""
    path = folder / "program.py"
    path.write_text(HEAD + program, "utf-8")
    env = os.environ | {"FUELNUMBA_NUM_THREADS": str(threads), "PYTHONPATH": os.pathsep.join(sys.path)}
    errors = folder / "stderr"
    printed = []
    with errors.open("w") as sink, subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, stderr=sink, text=True,
                                                    env=env) as process:
        assert process.stdout is not None
        watch = threading.Timer(LIMIT, process.kill)
        watch.start()
        try:
            for line in process.stdout:
                printed.append(line.strip())
                if printed[-1] == "now":
                    time.sleep(after)
                    process.send_signal(signal.SIGINT)
            code = process.wait(LIMIT)
        finally:
            watch.cancel()
            process.kill()
    assert code in (0, -signal.SIGINT), errors.read_text()
    return printed, code


def test_while_tracing(tmp_path: Path) -> None:
    printed, code = run("""
from fuelnumba.trace.tensor import current_trace

@fn.jit
def endless(x, forever):
    if forever.ndim:
        now()
        while True:
            x = np.sin(x) + 1
    return x + 1

try:
    endless(np.ones(3), np.ones(2))
except KeyboardInterrupt:
    print("interrupted", current_trace(), endless.compilations)
print(endless(np.ones(3), np.ones(())).tolist())
""", tmp_path)
    assert printed == ["now", "interrupted None 0", "[2.0, 2.0, 2.0]"]
    assert code == 0


MANY = """
import os
os.environ["FUELNUMBA_CACHE_DIR"] = sys.argv[0] + ".cache"

@fn.jit
def many(x):  # each sum ends a region: so many kernels
    for k in range(8):
        for f in (np.exp, np.sin, np.log1p, np.tanh)[:1 + k % 4]:
            x = f(x) * (k + 1) + x
        for _ in range(k):
            x = np.abs(x) + 1
        x = x / x.sum()
    return x

"""


def test_while_compiling(tmp_path: Path) -> None:
    printed, code = run(MANY + """
def report(done, total, kernel):
    if done == 2:
        now()

fn.on_compile(report)
x = np.linspace(0.1, 1, 7)
try:
    many(x)
except KeyboardInterrupt:
    print("interrupted")
fn.on_compile(None)
early = fn.cache_stats().compiled
total = len(many(x)) and fn.cache_stats().compiled
print(2 <= early < total)
np.testing.assert_allclose(many(x), many.__wrapped__(x), rtol=1e-12)
""", tmp_path)
    assert printed == ["now", "interrupted", "True"]
    assert code == 0
    files = list((tmp_path / "program.py.cache").rglob("*"))
    assert not [f for f in files if f.suffix == ".tmp"]
    objects = [f for f in files if f.suffix == ".o"]
    assert len(objects) > 2
    assert all(modcache._read(f, modcache._parsed) is not None for f in objects), "a file is not whole"


def test_while_compiling_and_not_caught(tmp_path: Path) -> None:
    printed, code = run(MANY + """
fn.on_compile(lambda done, total, kernel: now() if done == 1 else None)
many(np.linspace(0.1, 1, 7))
print("not reached")
""", tmp_path)
    assert (printed, code) == (["now"], -signal.SIGINT)


RUNS = """
@fn.jit
def work(x, w):
    for _ in range(6):
        x = np.tanh(x @ w) + x.mean(axis=1, keepdims=True)
    return x

x, w = (np.random.default_rng(k).random((500, 500), np.float32) for k in (0, 1))
expected = work(x, w).copy()
"""


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_while_running(tmp_path: Path, threads: int) -> None:
    """Again and again, wherever the signal meets it."""
    printed, code = run(RUNS + """
for k in range(8):
    try:
        now()
        while True:
            work(x, w)
    except KeyboardInterrupt:
        print("interrupted")
    np.testing.assert_array_equal(work(x, w), expected)
""", tmp_path, after=0.037, threads=threads)
    assert printed == ["now", "interrupted"] * 8
    assert code == 0


def test_while_running_and_not_caught(tmp_path: Path) -> None:
    printed, code = run(RUNS + """
now()
while True:
    work(x, w)
""", tmp_path)
    assert (printed, code) == (["now"], -signal.SIGINT)
