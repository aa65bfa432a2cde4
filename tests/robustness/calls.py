"""Random calls of ops and of NumPy functions on traced values, valid and not, made in child processes.

    python -m tests.robustness.calls --count 100000      # the figure
    python -m tests.robustness.calls --seed 1 --only 4711  # one call again, with its traceback

A call must give the right result or raise a FuelError. Everything else is a fault: another error, a wrong value, dtype or shape,
a valid call that is refused, a hang, a crash of the process.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from fuelnumba.core.errors import FuelError, NoKernelError

from . import numpy_calls, op_calls
from .draw import described

HANG = 60  # seconds without progress
MEMORY = 12 << 30  # bytes of address space for a child
PIECE = 1000  # calls per child
NUMPY_SHARE = 0.3


@dataclass
class Figures:
    calls: int = 0
    valid: int = 0  # with a result that was checked
    refused: collections.Counter[str] = field(default_factory=collections.Counter)
    faults: list[tuple[int, str, str]] = field(default_factory=list)  # number, call, what was wrong
    crashes: int = 0
    compiled: int = 0
    most_mb: int = 0  # resident, of any child
    seconds: float = 0.0

    def __str__(self) -> str:
        refused = ", ".join(f"{n} {name}" for name, n in self.refused.most_common())
        return (f"calls {self.calls} | results checked {self.valid} | refused {sum(self.refused.values())} ({refused}) | "
                f"faults {len(self.faults) - self.crashes} | crashes {self.crashes} | kernels compiled {self.compiled} | "
                f"at most {self.most_mb} MB | {self.seconds:.0f} s")


def draw_call(seed: int, k: int, variants: int, names: tuple[str, ...] = ()) -> Any:
    """Call number k: the same for the same seed, in whatever process."""
    r = Random(f"{seed} {k}")
    of_numpy = r.random() < NUMPY_SHARE and not names
    module = numpy_calls if of_numpy else op_calls
    name, variant = r.choice(names or module.NAMES), r.randrange(variants)
    return module, module.make(r, name, variant)


def _ours(file: str) -> bool:
    return os.sep + "fuelnumba" + os.sep in file


def outcome(module: Any, call: Any) -> tuple[str, str]:
    """('valid', ''), ('refused', class) or ('fault', what)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with np.errstate(all="ignore"):
                result = call.fn(*call.args, **call.kwargs)
        except FuelError as err:
            str(err)  # which may not fail either
            if isinstance(err, NoKernelError) or not call.valid:
                return "refused", type(err).__name__
            return "fault", f"valid, but refused: {err.what}"
        except BaseException as err:
            where = traceback.extract_tb(err.__traceback__)[-1]
            if module is numpy_calls and not _ours(where.filename) and isinstance(call.expected(), type(err)):
                return "refused", "NumPy itself"  # before it asked us
            return "fault", f"{type(err).__name__}: {' '.join(str(err).split())[:150]} ({os.path.basename(where.filename)}:{where.lineno})"
        try:
            with np.errstate(all="ignore"):
                module.check(call, result)
        except AssertionError as err:
            return "fault", f"wrong: {str(err).splitlines()[0]}"
        except Exception as err:
            return "fault", f"no reference: {type(err).__name__}: {err} {traceback.format_exc()}"
    return "valid", ""


def child(seed: int, start: int, stop: int, variants: int, progress: str, names: tuple[str, ...]) -> None:
    """Make the calls from `start` to `stop`; one line of JSON per fault, and one of sums at the end."""
    import fuelnumba

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    faulthandler.enable()
    sums: collections.Counter[str] = collections.Counter()
    with open(progress, "r+b", buffering=0) as place:
        for k in range(start, stop):
            place.seek(0)
            place.write(b"%12d" % k)
            faulthandler.dump_traceback_later(HANG, exit=True)
            module, call = draw_call(seed, k, variants, names)
            kind, what = outcome(module, call)
            sums[kind if kind != "refused" else f"refused {what}"] += 1
            if kind == "fault":
                print(json.dumps(["fault", k, str(call), what]), flush=True)
    faulthandler.cancel_dump_traceback_later()
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(["sums", sums, fuelnumba.cache_stats().compiled, used]), flush=True)


def figures(count: int, seed: int = 1, start: int = 0, variants: int = 3, names: tuple[str, ...] = (), log: Any = None) -> Figures:
    """Make calls number start to start + count - 1 in child processes."""
    found, began, k, stop = Figures(), time.perf_counter(), start, start + count
    with tempfile.NamedTemporaryFile() as progress:
        while k < stop:
            end = min(k + PIECE, stop)
            command = [sys.executable, "-m", "tests.robustness.calls", "--child", progress.name, "--seed", str(seed), "--start", str(k),
                       "--count", str(end - k), "--variants", str(variants), "--names", ",".join(names)]
            with open(progress.name, "wb") as place:
                place.write(b"%12d" % k)
            done = subprocess.run(command, capture_output=True, text=True)
            rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
            for row in rows:
                if row[0] == "fault":
                    found.faults.append((row[1], row[2], row[3]))
                else:
                    for kind, n in row[1].items():
                        if kind == "valid":
                            found.valid += n
                        elif kind.startswith("refused "):
                            found.refused[kind[8:]] += n
                    found.compiled, found.most_mb = found.compiled + row[2], max(found.most_mb, row[3])
            if done.returncode == 0 and rows and rows[-1][0] == "sums":
                found.calls, k = found.calls + end - k, end
            else:
                progress.seek(0)
                at = int(progress.read())
                found.faults.append((at, str(draw_call(seed, at, variants, names)[1]), f"crash, {done.returncode}: {done.stderr[-2500:]}"))
                found.crashes, found.calls, k = found.crashes + 1, found.calls + at + 1 - k, at + 1
            if log is not None:
                print(f"{k}: {len(found.faults)} faults, {time.perf_counter() - began:.0f} s", file=log, flush=True)
    found.seconds = time.perf_counter() - began
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--count", type=int, default=100_000)
    add("--seed", type=int, default=1)
    add("--start", type=int, default=0)
    add("--variants", type=int, default=3, help="kernels: (dtypes, layout, rank) per op")
    add("--names", default="", help="only these ops, separated by commas")
    add("--only", type=int, metavar="K", help="make call K in this process")
    add("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    names = tuple(filter(None, args.names.split(",")))
    if args.child:
        child(args.seed, args.start, args.start + args.count, args.variants, args.child, names)
        return 0
    if args.only is not None:
        module, call = draw_call(args.seed, args.only, args.variants, names)
        print(call, flush=True)
        print(*outcome(module, call))
        result = call.fn(*call.args, **call.kwargs)
        print(described(result))
        return 0
    found = figures(args.count, args.seed, args.start, args.variants, names, sys.stderr)
    for k, call_, what in found.faults:
        print(f"{k}: {call_}\n    {what}")
    print(found)
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
