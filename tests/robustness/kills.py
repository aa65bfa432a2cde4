"""Processes that are killed while they compile, and caches that are damaged in every other way.

    python -m tests.robustness.kills --kills 100

All processes share one cache folder. Each kill is followed by nothing: the next process finds what was left, locks included. After
the last, a process must run, with right results, and leave no damaged file.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fuelnumba.compiler import modcache

PROGRAM = """
import sys, numpy as np, fuelnumba as fn
print("ready", flush=True)

@fn.jit
def f(x, k):
    for _ in range(9):
        x = np.where(x > 0.5, np.tanh(x) * k, x + 0.25)
    return x, x.sum(axis=0), x @ x.T

for dtype in ("f4", "f8", "f2", "i4"):
    x = (np.arange(12).reshape(3, 4) % 5).astype(dtype)
    y = x.astype("f8")
    for _ in range(9):
        y = np.where(y > 0.5, np.tanh(y) * 0.5, y + 0.25)
    if dtype == "i4":
        x = x.astype("f8")
    got = f(x, 0.5)
    tolerance = 2e-2 if dtype == "f2" else 1e-5
    for a, b in zip(got, (y, y.sum(axis=0), y @ y.T)):
        assert np.allclose(a.astype("f8"), b, rtol=tolerance, atol=tolerance), (dtype, a, b)
s = fn.cache_stats()
print(s.compiled, s.loaded, s.replaced)
"""


def start(folder: Path, text: str = PROGRAM) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", text], env={**os.environ, "FUELNUMBA_CACHE_DIR": str(folder)},
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str], limit: int = 90) -> list[int]:
    """Kernels compiled, loaded, replaced. Raises AssertionError when the process failed or did not end."""
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError("it did not end: a lock was left behind?") from None
    assert process.returncode == 0, err[-3000:]
    return [int(n) for n in out.splitlines()[-1].split()]


def objects(folder: Path) -> list[Path]:
    return sorted(folder.rglob("k_*.o"))


def damage(folder: Path, r: random.Random) -> str:
    """Do something to the cache that a machine's crash, or a person, might do."""
    files = [p for p in folder.rglob("k_*") if p.is_file()]
    how = r.choice(("cut", "empty", "flip", "delete", "lock", "directory", "all"))
    if not files:
        return "nothing"
    path = r.choice([p for p in files if p.suffix == ".o"] or files)
    data = path.read_bytes()
    if how == "cut":
        path.write_bytes(data[: r.randrange(len(data) + 1)])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "flip" and data:
        at = r.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << r.randrange(8))]) + data[at + 1:])
    elif how == "delete":
        path.unlink()
    elif how == "lock":
        path.with_suffix(".lock").write_text("left behind")
    elif how == "directory":
        shutil.rmtree(path.parent)
    elif how == "all":
        shutil.rmtree(folder / "kernels")
    return how


def run(kills: int = 100, seed: int = 1, damaged: bool = True, longest: float = 2.5, budget: float = 1e9) -> str:
    """One line of figures. Raises AssertionError when the run after all that fails."""
    r = random.Random(seed)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        moments: dict[str, int] = {}
        done = 0
        for _ in range(kills):
            if time.perf_counter() - began > budget:
                break
            process = start(folder)
            assert process.stdout is not None
            process.stdout.readline()  # from here on it traces, then imports Numba, then compiles
            time.sleep(r.uniform(0.0, longest))
            before = objects(folder)
            over = process.poll() is not None
            process.kill()
            _, err = process.communicate()
            assert not over or process.returncode == 0, err[-3000:]
            what = "after it ended" if over else "while compiling" if started(folder) else "before compiling"
            moments[what] = moments.get(what, 0) + 1
            done += 1
            if damaged and r.random() < 0.5 and before:
                what = f"damage: {damage(folder, r)}"
                moments[what] = moments.get(what, 0) + 1
            elif over or len(before) > 6:  # so that there is something to compile
                modcache_clear(folder, r)
        first = finish(start(folder))
        again = finish(start(folder))
        assert again[0] == 0 and again[1] == sum(first[:2]), (first, again)
        assert all(modcache._read(p, modcache._parsed) is not None for p in objects(folder))
    return (f"kills {done} ({', '.join(f'{n} {what}' for what, n in sorted(moments.items()))}) | the next run: {first[0]} compiled, "
            f"{first[1]} loaded, {first[2]} replaced, right | then: {again[0]} compiled, {again[1]} loaded | {time.perf_counter() - began:.0f} s")


def started(folder: Path) -> bool:
    """Whether a kernel is being made: its text is there, its code is not."""
    return any(not p.with_suffix(".o").exists() for p in folder.rglob("k_*.py")) or bool(list(folder.rglob("*.tmp")))


def modcache_clear(folder: Path, r: random.Random) -> None:
    """Delete some kernels, as `fuelnumba cache` does for all."""
    for path in objects(folder):
        if r.random() < 0.7:
            path.unlink()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no more are begun")
    args = parser.parse_args()
    print(run(args.kills, args.seed, budget=args.budget))
    return 0


if __name__ == "__main__":
    sys.exit(main())
