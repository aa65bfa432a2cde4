"""What a measurement needs beside it: the machine's facts, and fair timing of several candidates in one process."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

for _name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(_name, None)
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")  # idle BLAS threads stop spinning soon

import numpy as np  # noqa: E402  (reads the environment when it is imported)


def facts() -> str:
    """Processor, cores, versions and copy bandwidth, in a few lines."""
    model = platform.processor()
    try:
        with open("/proc/cpuinfo") as f:
            model = next(line.split(":")[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = ", ".join(f"{n} {metadata.version(n)}" for n in ("numba", "llvmlite", "numpy", "scipy"))
    return (f"{model}, {cores} cores, Python {sys.version.split()[0]}, {versions}\n"
            f"copy bandwidth {copy_bandwidth():.1f} GB/s (NumPy, one thread, read and written)")


def copy_bandwidth(megabytes: int = 160) -> float:
    a = np.ones(megabytes * 1_000_000 // 8)
    b = np.empty_like(a)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        np.copyto(b, a)
        times.append(time.perf_counter() - start)
    return 2 * a.nbytes / min(times) / 1e9


def interleave(candidates: Mapping[str, Callable[[], Any]], rounds: int = 15, inner: int = 1) -> dict[str, tuple[float, float]]:
    """name -> (median, least) seconds of one call; candidates take turns, so that noise falls on all alike."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for run in candidates.values():
        run()
    for _ in range(rounds):
        for name, run in candidates.items():
            start = time.perf_counter()
            for _ in range(inner):
                run()
            times[name].append((time.perf_counter() - start) / inner)
    return {name: (statistics.median(t), min(t)) for name, t in times.items()}


def table(title: str, results: Mapping[str, tuple[float, float]], baseline: str, extra: Mapping[str, str] | None = None) -> str:
    base = results[baseline][0]
    lines = [title]
    for name, (median, least) in results.items():
        unit, scale = ("ms", 1e3) if base > 1e-4 else ("us", 1e6)
        note = (extra or {}).get(name, "")
        lines.append(f"  {name:14s} median {median * scale:9.3f} {unit}  least {least * scale:9.3f} {unit}  "
                     f"x{base / median:6.2f}  {note}".rstrip())
    return "\n".join(lines)
