"""What a fresh process takes, with an empty cache of compiled code and with the one that it left: `first_calls` of the engines,
and `generate`. Each is a child process; this file is also the child that makes a first call:

    python benchmarks/starts.py ENGINE WORKLOAD          # prints one line of JSON
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import machine  # settings, before NumPy
from engines import BY_NAME as ENGINE
from engines import Engine, Unavailable
from workloads import BY_NAME as WORKLOAD

LONG = 15.0  # seconds: an engine whose first calls took longer is not asked again
FUNCTIONS = ("chain-1k", "ops-200")
CACHES = ("empty", "filled")
PROMPT = "The capital of France is"
TOKENS = 32
PRINTED = {  # of what `generate` prints: name of the result, pattern
    "tokens": r"generated: (\d+) tokens?",
    "first_token": r"first token: ([\d.]+) s",
    "tokens_per_second": r"speed: ([\d.]+) tokens/s",
    "compiling": r"compiling: ([\d.]+) s",
    "kernels_compiled": r"(\d+) kernels? compiled",
}
Row = dict[str, Any]


# ------------------------------------------------------------------------------------------------ first calls
def child(engine: Engine, name: str) -> Row:
    """In a fresh process: seconds for importing the engine, for the first call (building, compiling, running), and for the
    second; and the clock at the first result."""
    workload = WORKLOAD[name]
    inputs = workload.inputs()
    start = time.perf_counter()
    engine.load()
    loaded = time.perf_counter()
    call = engine.prepare(workload, inputs)
    result = call()
    first, clock = time.perf_counter(), time.time()
    call()
    second = time.perf_counter()
    workload.error_of(engine.fetch(result), workload.exact(inputs))
    return {"imports": loaded - start, "first": first - loaded, "second": second - first, "clock": clock}


def run_child(engine: Engine, name: str, folder: str, seconds: float = 180.0) -> Row:
    """A first call in a child process whose caches lie in `folder`. Raises RuntimeError with the child's last line."""
    kept = {k: v.format(folder) for k, v in engine.kept.items()}
    start = time.time()
    done = _finished([sys.executable, __file__, engine.name, name], kept, seconds)
    try:
        row: Row = json.loads(done.splitlines()[-1])
    except (ValueError, IndexError):
        raise RuntimeError(f"the child printed {done[-100:]!r}") from None
    return {"process": row.pop("clock") - start, **row}


def first_calls(engines: Sequence[Engine], repeats: int = 3) -> Iterator[Row]:
    """Rows of medians: function, engine, cache ('empty', 'filled', or 'none' for engines that keep nothing), seconds; or a
    reason under `missing`. The engines take turns; the slow ones have fewer."""
    for name in FUNCTIONS:
        runs: dict[tuple[str, str], list[Row]] = {}
        missing: dict[str, str] = {}
        spent = dict.fromkeys((e.name for e in engines), 0.0)
        for _ in range(repeats):
            for engine in engines:
                if engine.name in missing or spent[engine.name] > LONG or not WORKLOAD[name].has(engine.family):
                    continue
                try:
                    engine.check()
                    with tempfile.TemporaryDirectory() as folder:
                        for cache in CACHES if engine.kept else ("none",):
                            row = run_child(engine, name, folder)
                            spent[engine.name] += row["process"]
                            runs.setdefault((engine.name, cache), []).append(row)
                except (Unavailable, RuntimeError) as err:
                    missing[engine.name] = str(err)
        for (engine_name, cache), rows in runs.items():
            if engine_name not in missing:
                medians = {k: statistics.median(r[k] for r in rows) for k in rows[0]}
                yield {"function": name, "engine": engine_name, "cache": cache, **medians, "runs": len(rows)}
        for engine_name, reason in missing.items():
            yield {"function": name, "engine": engine_name, "cache": "", "missing": reason}


# ------------------------------------------------------------------------------------------------ generate
def generate(repeats: int = 3) -> Iterator[Row]:
    """Rows of medians of what `python -m fuelnumba generate` prints and of its whole time, for both caches."""
    runs: dict[str, list[Row]] = {cache: [] for cache in CACHES}
    command = [sys.executable, "-m", "fuelnumba", "generate", PROMPT, "--max-tokens", str(TOKENS)]
    try:
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as folder:
                for cache in CACHES:
                    start = time.time()
                    printed = _finished(command, {"FUELNUMBA_CACHE_DIR": folder}, 180.0)
                    runs[cache].append({**parse_statistics(printed), "process": time.time() - start})
    except RuntimeError as err:
        yield {"cache": "", "missing": str(err)}
        return
    for cache, rows in runs.items():
        yield {"cache": cache, **{k: statistics.median(r[k] for r in rows) for k in rows[0]}, "runs": repeats}


def parse_statistics(printed: str) -> Row:
    """The numbers of the last line of `generate`. Raises RuntimeError when it has none."""
    last = printed.strip().rpartition("\n")[2]
    found = {name: re.search(pattern, last) for name, pattern in PRINTED.items()}
    if lacking := [name for name, match in found.items() if match is None]:
        raise RuntimeError(f"generate printed no {', '.join(lacking)}: {last}")
    return {name: float(match[1]) for name, match in found.items() if match}


def _finished(command: Sequence[str], variables: dict[str, str], seconds: float) -> str:
    """What a child prints, started in the environment that this process found. Raises RuntimeError with its last line of
    stderr when it fails or takes too long."""
    try:
        done = subprocess.run(command, env={**machine.OUTSIDE, **variables}, capture_output=True, encoding="utf-8",
                              timeout=seconds)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"took more than {seconds:.0f} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise RuntimeError(lines[-1][:200])
    return done.stdout


if __name__ == "__main__":
    print(json.dumps(child(ENGINE[sys.argv[1]], sys.argv[2])))
