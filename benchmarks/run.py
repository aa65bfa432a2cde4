"""All benchmarks, with one command:

    python benchmarks/run.py                                     # everything that is installed, about 8 minutes
    python benchmarks/run.py --quick --only chain,softmax --engines numpy,fuelnumba,torch
    python benchmarks/run.py --write                             # and put the results into docs/benchmarks.md

A name of --only stands for all that begin with it: `sum` for sum-0, sum-1 and sum-all. NumPy always runs: results are checked
against its float64 before they are timed, and times are compared with its f32.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import machine
import report
import starts
from engines import ENGINES, Engine, Unavailable
from workloads import WORKLOADS, Workload

STARTS = ("first-call", "generate")
NAMES = (*(w.name for w in WORKLOADS), *STARTS)
PAUSE = 2e-3  # seconds between two engines
ROUNDS, SECONDS = 9, 4.0
QUICK_ROUNDS, QUICK_SECONDS = 3, 0.5


def prepare(workload: Workload, engines: Sequence[Engine], tiny: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """The calls that gave a right result, and a row for each engine: its error, or why it is missing."""
    inputs = workload.inputs(tiny)
    exact = workload.exact(inputs)
    calls: dict[str, Any] = {}
    rows: dict[str, Any] = {}
    for engine in engines:
        try:
            call = engine.prepare(workload, inputs)
            rows[engine.name] = {"error": workload.error_of(engine.fetch(call()), exact)}
            calls[engine.name] = call
        except Unavailable as err:
            rows[engine.name] = {"missing": str(err)}
        except Exception as err:  # one engine that fails must not end the run
            rows[engine.name] = {"missing": reason(err)}
    read = sum(x.nbytes for x in inputs)
    written = exact.nbytes if exact.dtype.kind == "i" else exact.size * 4
    return calls, {"name": workload.name, "title": workload.title, "read": read, "written": written, "flops": workload.flops,
                   "engines": rows}


def reason(err: Exception) -> str:
    """One line, not too long."""
    return f"{type(err).__name__}: {' '.join(str(err).split())}"[:200]


def measure(workload: Workload, engines: Sequence[Engine], limits: machine.Limits, rounds: int, seconds: float) -> dict[str, Any]:
    """The row of one workload: median and least seconds, ratio to NumPy, and the share of the machine's limit."""
    calls, row = prepare(workload, engines)
    times = machine.interleave(calls, rounds, seconds=seconds, pause=PAUSE)
    row["least_seconds"] = limits.least_seconds(row["read"], row["written"], row["flops"])
    for name, t in times.items():
        row["engines"][name] |= {"median": t.median, "least": t.least, "rounds": t.rounds,
                                 "ratio": times["numpy"].median / t.median, "share": row["least_seconds"] / t.median}
    return row


def run(only: Sequence[str], engines: Sequence[Engine], quick: bool) -> dict[str, Any]:
    """Measure and print as it goes; everything, as written to the JSON file."""
    description = machine.describe()
    print(machine.facts(description), report.thread_text(machine.CORES), sep="\n", flush=True)
    if (description["load"] or 0) > machine.CORES / 4:
        print(f"other work is running (load {description['load']}): these numbers will say little")
    limits = machine.measure_limits()
    print(limits, flush=True)
    results: dict[str, Any] = {"machine": description, "limits": limits._asdict(), "quick": quick, "workloads": [],
                               "first_calls": [], "generate": []}
    for workload in WORKLOADS:
        if workload.name in only:
            try:
                row = measure(workload, engines, limits, *((QUICK_ROUNDS, QUICK_SECONDS) if quick else (ROUNDS, SECONDS)))
            except Exception as err:  # while it was timed: the other workloads can still be measured
                print(f"\n{workload.title}: {reason(err)}", flush=True)
                continue
            results["workloads"].append(row)
            print(report.workload_text(row), flush=True)
    if "first-call" in only:
        print("\nfirst call in a fresh process", flush=True)
        for row in starts.first_calls(engines, 1 if quick else 3):
            results["first_calls"].append(row)
            print(report.first_call_text(row), flush=True)
    if "generate" in only:
        print(f"\ngenerate {starts.PROMPT!r}, at most {starts.TOKENS} tokens", flush=True)
        for row in starts.generate(1 if quick else 3):
            results["generate"].append(row)
            print(report.generate_text(row), flush=True)
    results["machine"]["load_after"] = machine.describe()["load"]
    return results


def chosen(text: str, names: Sequence[str], what: str) -> list[str]:
    """Those of `names` that a list with commas stands for. Raises SystemExit for one that stands for nothing."""
    wanted = [w.strip() for w in text.split(",") if w.strip()]
    for w in wanted:
        if not any(n == w or n.startswith(w + "-") for n in names):
            raise SystemExit(f"there is no {what} {w!r}: {', '.join(names)}")
    return [n for n in names if any(n == w or n.startswith(w + "-") for w in wanted)]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--only", default=",".join(NAMES), metavar="NAMES", help=f"of {', '.join(NAMES)}")
    add("--engines", default=",".join(e.name for e in ENGINES), metavar="NAMES", help=f"of {', '.join(e.name for e in ENGINES)}")
    add("--quick", action="store_true", help="few rounds: does everything work?")
    add("--json", type=Path, metavar="PATH", help="write the results there, too")
    add("--from", type=Path, dest="source", metavar="PATH", help="measure nothing, take the results of an earlier run")
    add("--write", action="store_true", help="results to benchmarks/results/, table and picture to docs/ (of a whole run only)")
    args = parser.parse_args(argv)
    only = chosen(args.only, NAMES, "benchmark")
    wanted = {"numpy", *chosen(args.engines, [e.name for e in ENGINES], "engine")}
    partial = args.quick or len(only) < len(NAMES) or len(wanted) < len(ENGINES)
    if args.write and partial and not args.source:
        parser.error("--write is for a whole run: without --only, --engines and --quick")
    if args.source:
        results = report.read_json(args.source)
    else:
        results = run(only, [e for e in ENGINES if e.name in wanted], args.quick)
    print("\ntargets", *(f"  {line}" for line in report.target_lines(results)), sep="\n")
    if args.json:
        report.write_json(results, args.json)
    if args.write:
        for path in report.write_all(results, Path(__file__).parent.parent):
            print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
