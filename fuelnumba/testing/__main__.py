"""Run parity cases by their ids, or again what a failing comparison wrote into a file.

    python -m fuelnumba.testing 'exp-f32-transposed-0'
    python -m fuelnumba.testing /tmp/fuelnumba-exp-k3j2.npz
    python -m fuelnumba.testing --list exp
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..core.errors import FuelError
from . import parity
from .cases import case_of, cases


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuelnumba.testing", description="Run parity cases by their ids.")
    parser.add_argument("names", nargs="+", metavar="CASE", help="an id, or a file that a failing comparison wrote")
    parser.add_argument("--list", action="store_true", help="the names are ops: list their cases")
    args = parser.parse_args(argv)
    failed = 0
    for name in args.names:
        try:
            if args.list:
                print("\n".join(map(str, cases(name))))
            elif name.endswith(".npz"):
                parity.repeat(name)
                print(f"{name}: agrees")
            else:
                case_of(name).check()
                print(f"{name}: agrees")
        except (AssertionError, FuelError, OSError) as err:
            failed = 1
            print(err)
    return failed


if __name__ == "__main__":
    sys.exit(main())
