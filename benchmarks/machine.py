"""What a measurement needs beside it: the machine's facts, its limits, and fair timing of several candidates in one process.

Import it before anything that computes: NumPy and others read their settings when they are imported.
"""

from __future__ import annotations

import gc
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from importlib import metadata
from typing import Any, NamedTuple

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

# every engine gets all cores (Numba's own variable is left alone: it is part of the keys of our kernel cache)
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMEXPR_MAX_THREADS",
           "FUELNUMBA_NUM_THREADS")
SETTINGS = {  # idle threads of one engine must not spin while the next is timed
    "OPENBLAS_THREAD_TIMEOUT": "20",
    "OMP_WAIT_POLICY": "PASSIVE",
    "KMP_BLOCKTIME": "0",
    "JAX_PLATFORMS": "cpu",
    "PYTENSOR_FLAGS": "floatX=float32",  # else its constants make float64 of everything
}

OUTSIDE = dict(os.environ)  # as it was before: what users have when they run a command

if "numpy" not in sys.modules:  # else it is too late for them, and this process has other things to do
    for _name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        os.environ.pop(_name, None)
    os.environ.update(dict.fromkeys(THREADS, str(CORES)))
    for _name, _value in SETTINGS.items():
        os.environ.setdefault(_name, _value)

import numpy as np  # noqa: E402

PACKAGES = ("numpy", "fuelnumba", "numba", "llvmlite", "scipy", "torch", "jax", "jaxlib", "pytensor", "onnx", "onnxruntime",
            "numexpr")


# ------------------------------------------------------------------------------------------------ facts
def describe() -> dict[str, Any]:
    """Date, commit, processor, caches, memory, compiler, load and versions."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "date": datetime.now().strftime("%Y-%m-%d %H:%M"),
        "commit": _commit(),
        "processor": _processor(),
        "cores": CORES,
        "caches": f"{_cache_bytes(2) / 1e6:.1f} MB second, {_cache_bytes(3) / 1e6:.1f} MB third level",
        "memory": f"{_memory_bytes() / 1e9:.0f} GB",
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "compiler": cpp_compiler() or "none",
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "versions": versions,
    }


def facts(description: dict[str, Any] | None = None) -> str:
    """The description, in a few lines."""
    d = description or describe()
    present = ", ".join(f"{n} {v}" for n, v in d["versions"].items() if v != "not installed")
    return (f"{d['date']}, commit {d['commit']}\n"
            f"{d['processor']}, {d['cores']} cores ({d['caches']} cache), {d['memory']} memory\n"
            f"{d['system']}, C++ compiler: {d['compiler']}, load {d['load']}\n{present}")


def _commit() -> str:
    """Of the checkout that these files lie in."""
    try:
        return subprocess.run(["git", "describe", "--always", "--dirty"], cwd=os.path.dirname(__file__), capture_output=True,
                              encoding="utf-8", check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def cpp_compiler() -> str | None:
    """The C++ compiler that torch.compile would call."""
    return shutil.which(os.environ.get("CXX") or "g++")


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as f:
            return next(line.split(":")[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _cache_bytes(level: int) -> int:
    try:
        with open(f"/sys/devices/system/cpu/cpu0/cache/index{level}/size") as f:
            text = f.read().strip()
    except OSError:
        return 0
    return int(text.rstrip("KM")) << {"K": 10, "M": 20}.get(text[-1], 0)


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0


# ------------------------------------------------------------------------------------------------ limits
class Limits(NamedTuple):
    """What the machine can do at best, with all cores: bytes/s read, bytes/s copied (read + written), f32 operations/s."""

    read: float
    copy: float
    sgemm: float

    def least_seconds(self, read: int, written: int, flops: int) -> float:
        """No kernel that has to move and compute that much is faster, unless its arrays lie in a cache."""
        bandwidth = self.read if written < read / 8 else self.copy
        return max((read + written) / bandwidth, flops / self.sgemm)

    def __str__(self) -> str:
        return (f"limits with {CORES} threads: read {self.read / 1e9:.1f} GB/s, copy {self.copy / 1e9:.1f} GB/s (read and "
                f"written), sgemm {self.sgemm / 1e9:.0f} GFLOP/s")


def measure_limits(megabytes: int = 0) -> Limits:
    """Best of several runs. The arrays are twice the last cache at least, as far as a quarter of the memory allows."""
    size = megabytes << 20 or min(max(256 << 20, 2 * _cache_bytes(3)), (_memory_bytes() or 8 << 30) // 8)
    source, target = np.ones(size // 4, np.float32), np.zeros(size // 4, np.float32)
    parts = list(zip(np.array_split(source, CORES), np.array_split(target, CORES)))
    rng = np.random.default_rng(0)
    n = 2048 if size > 64 << 20 else 256
    a, b = (rng.standard_normal((n, n), dtype=np.float32) for _ in "ab")
    with ThreadPoolExecutor(CORES) as pool:
        read = _best(lambda: list(pool.map(lambda p: p[0].max(), parts)))
        copy = min(_best(lambda: list(pool.map(lambda p: np.copyto(p[1], p[0]), parts))),
                   _best(lambda: list(pool.map(lambda p: np.negative(p[0], out=p[1]), parts))))  # with plain stores
    gemm = _best(lambda: a @ b)
    return Limits(source.nbytes / read, 2 * source.nbytes / copy, 2 * n**3 / gemm)


def _best(run: Callable[[], Any], repeats: int = 7) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


# ------------------------------------------------------------------------------------------------ timing
class Times(NamedTuple):
    """Seconds of one call, and how many samples they come from."""

    median: float
    least: float
    rounds: int


def interleave(candidates: Mapping[str, Callable[[], Any]], rounds: int = 15, inner: int = 0, seconds: float = 0.0,
               pause: float = 0.0) -> dict[str, Times]:
    """Candidates take turns, round by round, so that noise falls on all alike.

    A sample is `inner` calls (0: as many as take two milliseconds), after a pause in which the threads of the candidate
    before come to rest, and one call that is not timed, which wakes the candidate's own. There are `rounds` rounds, and more
    while `seconds` have not passed.
    """
    times: dict[str, list[float]] = {name: [] for name in candidates}
    calls = {}
    for name, run in candidates.items():
        run()
        calls[name] = inner or max(1, round(2e-3 / max(_sample(run, 1), 1e-7)))
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        end = time.perf_counter() + seconds
        done = 0
        while done < rounds or (time.perf_counter() < end and done < 10 * rounds):
            for name, run in candidates.items():
                time.sleep(pause)
                run()
                times[name].append(_sample(run, calls[name]))
            done += 1
    finally:
        if collecting:
            gc.enable()
    return {name: Times(statistics.median(t), min(t), len(t)) for name, t in times.items()}


def _sample(run: Callable[[], Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls
