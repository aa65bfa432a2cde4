"""The command line: `python -m fuelnumba generate | doctor | ops | cache`.

An error that a user can meet is one line on stderr and exit code 2. What only one command needs is imported when it runs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence

from . import __version__
from .core.errors import FuelError
from .models import cli_generate


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code. Wrong usage ends in argparse's SystemExit."""
    parser, commands = _parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help()
        return 0
    try:
        return commands[args.command](args)
    except FuelError as err:
        print("fuelnumba: " + " ".join(f"{err.what}{f' ({err.cure})' if err.cure else ''}".split()), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader has enough; Python would complain once more when it flushes stdout at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> tuple[argparse.ArgumentParser, dict[str, Callable[[argparse.Namespace], int]]]:
    parser = argparse.ArgumentParser(prog="fuelnumba", description="NumPy functions as fused, compiled kernels.")
    parser.add_argument("--version", action="version", version=f"fuelnumba {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    cli_generate.add_parser(commands)
    commands.add_parser("doctor", help="what is installed, and whether it works",
                        description="Looks at everything fuelnumba needs. The exit code is 1 when something is broken.")
    ops = commands.add_parser("ops", help="the operations, with the dtypes each backend has kernels for",
                              description="The operations, with the dtypes each backend has kernels for.")
    form = ops.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="a list of records: name, like, kind, dtypes, doc")
    form.add_argument("--markdown", action="store_true", help="a table in Markdown")
    cache = commands.add_parser("cache", help="the compiled kernels on disk", description="The compiled kernels on disk.")
    cache.add_argument("action", nargs="?", choices=("info", "list", "clear"), default="info",
                       help="where it is and how large; each kernel; delete all (default: info)")
    return parser, {"generate": cli_generate.run, "doctor": _doctor, "ops": _ops, "cache": _cache}


def _doctor(args: argparse.Namespace) -> int:
    from .tools.doctor import examine

    worst = 0
    for finding in examine():
        print(finding)
        worst = max(worst, finding.is_broken)
    return worst


def _ops(args: argparse.Namespace) -> int:
    from .tools import coverage

    if args.json:
        print(json.dumps(coverage.records(), indent=1))
    elif args.markdown:
        print(coverage.markdown())
    else:
        from rich.console import Console

        console = Console()
        if not console.is_terminal:  # a pipe has no width to fit into
            console = Console(width=200)
        console.print(coverage.table())
        console.print(coverage.LEGEND)
    return 0


def _cache(args: argparse.Namespace) -> int:
    from .compiler import modcache
    from .tools.disk import kernels, readable

    if args.action == "clear":
        count = modcache.clear()
        print(f"{count} kernel{'s' * (count != 1)} deleted from {modcache.folder()}")
        return 0
    found = kernels()
    if args.action == "list":
        for k in found:
            print(f"{k.key}  {readable(k.nbytes):>9s}  {k.made:%Y-%m-%d %H:%M}  {k.label}")
        return 0
    print(f"folder   {modcache.folder()}\nkernels  {len(found)}\nbytes    {sum(k.nbytes for k in found)}")
    return 0
