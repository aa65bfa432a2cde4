"""Documents that do not lie: their tables come from the code, and what their examples print was printed by them.

    python -m fuelnumba.tools.docs README.md docs/*.md        # bring them up to date
    python -m fuelnumba.tools.docs --check README.md          # exit code 1 when one is not

A line `<!-- generated: NAME -->` is followed by the text that GENERATED[NAME] makes, up to `<!-- end -->`. The `python`
blocks of a document run in order, in one fresh process; a `text` block right after one holds what it printed. Kernel
names, times, folders and numbers of nodes differ from run to run and are not compared.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ..core import dtypes as dt
from ..core import errors
from ..core.ops import DOMAINS
from ..trace import numpy_api
from ..trace.promote import CONVERSIONS
from . import array_api, coverage

EXAMPLE = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n*```text\n(?P<output>.*?)^```$)?", re.M | re.S)
MARKED = re.compile(r"(?P<head><!-- generated: (?P<name>[\w-]+) -->\n).*?(?P<tail><!-- end -->)", re.S)
_VARIES = ((re.compile(r"k_[0-9a-f]{16}\b"), "k_0123456789abcdef"), (re.compile(r"\d+\.\d+( ?)(ms|s|us)\b"), r"1.0\1\2"),
           (re.compile(r"%\d+ = |\buid=\d+"), ""))
_SEPARATOR = "\0"

_RUNNER = """
import sys
space = {"__name__": "__main__"}
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        code = compile(file.read(), path, "exec")
    print(end="\\0", flush=True)
    exec(code, space)
"""


# ------------------------------------------------------------------------------------------------ tables
def promotion_table() -> str:
    """Two array dtypes and the one they meet in."""
    names = [d.name for d in dt.COMPUTABLE]
    lines = [f"| | {' | '.join(names)} |", "| --- |" + " --- |" * len(names)]
    for a in dt.COMPUTABLE:
        lines.append(f"| **{a}** | " + " | ".join(str(dt.PROMOTION[a, b]) for b in dt.COMPUTABLE) + " |")
    return "\n".join(lines)


def weak_table() -> str:
    """An array's dtype, and what it becomes beside a Python scalar."""
    lines = ["| array | bool | int | float |", "| --- | --- | --- | --- |"]
    for a in dt.COMPUTABLE:
        lines.append(f"| **{a}** | " + " | ".join(str(dt.weak_result(a, k)) for k in "bif") + " |")
    return "\n".join(lines)


def domain_table() -> str:
    """What ops ask of their dtype, after the operands met."""
    words = {"any": "computes in every dtype but the 8-bit floats", "number": "bool is refused", "float": "the floats",
             "int": "floats and bool are refused", "bits": "floats are refused",
             "mixed": "every dtype, each operand keeps its own",
             "truth": "bool", "division": "the floats", "sum": "the floats and i64"}
    lines = ["| domain | computes in | what becomes what | ops |", "| --- | --- | --- | --- |"]
    for domain in DOMAINS:
        names = [f"`{o.name}`" for o in coverage.operations() if o.domain == domain and not o.is_view]
        groups: dict[str, list[str]] = {}
        for source, target in CONVERSIONS.get(domain, {}).items():
            if source is not target:
                groups.setdefault(target.name, []).append(source.name)
        becomes = "; ".join(f"{' '.join(sources)} → {target}" for target, sources in groups.items())
        lines.append(f"| {domain} | {words[domain]} | {becomes} | {' '.join(names)} |")
    return "\n".join(lines)


def numpy_list() -> str:
    """The covered functions, by where they stand in NumPy."""
    never = {f"numpy.{n}" for n in ("copyto", "put", "place", "putmask", "put_along_axis", "fill_diagonal")}
    names = [n for n in numpy_api.covered() if n not in never]
    plain = [n.removeprefix("numpy.") for n in names]
    return f"{len(plain)} functions: " + " ".join(f"`{n}`" for n in plain)


def scipy_list() -> str:
    return " ".join(f"`{n}`" for n in numpy_api.covered_of_scipy())


def error_list() -> str:
    """Every error class: its place in the tree, cause, cure, and an example that raises it."""
    out = []
    for name in sorted(errors.__all__, key=lambda n: (_depth(getattr(errors, n)), n)):
        kind = getattr(errors, name)
        text, _, example = (inspect.getdoc(kind) or "").partition("\n\n    ")
        bases = ", ".join(f"`{b.__name__}`" for b in kind.__bases__)
        code = "\n".join(line.removeprefix("    ") for line in example.splitlines())
        out.append(f"### {name}\n\nA kind of {bases}.\n\n{text}\n\n```python\n{code}\n```\n\n```text\n```\n")
    return "\n".join(out).rstrip("\n")


def _depth(kind: type) -> int:
    return sum(1 for k in kind.__mro__ if issubclass(k, errors.FuelError))


GENERATED: dict[str, Callable[[], str]] = {
    "promotion": promotion_table, "weak-scalars": weak_table, "domains": domain_table, "numpy": numpy_list,
    "scipy": scipy_list,
    "errors": error_list, "coverage": coverage.markdown, "array-api": array_api.markdown,
    "array-api-departures": array_api.departures, "array-api-numpy": array_api.numpy_departures,
}


def with_tables(text: str) -> str:
    """The document with its generated parts made anew. Examples in them that have not changed keep what they printed."""
    printed = {m["code"]: m[0] for m in EXAMPLE.finditer(text)}

    def table(match: re.Match[str]) -> str:
        made = EXAMPLE.sub(lambda m: printed.get(m["code"], m[0]), GENERATED[match["name"]]())
        return f"{match['head']}\n{made}\n\n{match['tail']}"

    return MARKED.sub(table, text)


# ------------------------------------------------------------------------------------------------ examples
#: Variables by which pytest and others print more, less or in colour. CI is one: pytest does not shorten its summary then.
CHANGES_OUTPUT = {"CI", "BUILD_NUMBER", "COLUMNS", "FORCE_COLOR", "NO_COLOR", "PY_COLORS", "PYTEST_ADDOPTS"}


def run_examples(text: str) -> list[str]:
    """What each `python` block of a document prints. Raises RuntimeError with the traceback when one fails."""
    codes = [m["code"] for m in EXAMPLE.finditer(text)]
    if not codes:
        return []
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for k, code in enumerate(codes):
            path = Path(folder, str(k), "example.py")
            path.parent.mkdir()
            path.write_text(code, "utf-8")
            paths.append(str(path))
        done = subprocess.run([sys.executable, "-c", _RUNNER, *paths], capture_output=True, encoding="utf-8", cwd=folder,
                              env={k: v for k, v in os.environ.items() if k not in CHANGES_OUTPUT})
        if done.returncode:
            raise RuntimeError(done.stderr)
        printed = done.stdout.split(_SEPARATOR)[1:]
        return [re.sub(rf"{re.escape(folder)}/\d+/", "/home/me/", p) for p in printed]


def with_outputs(text: str) -> str:
    """The document with the output of its examples as it is now, where it differs in more than what always varies."""
    printed = iter(run_examples(text))

    def fill(match: re.Match[str]) -> str:
        new = next(printed)
        if match["output"] is None or comparable(new) == comparable(match["output"]):
            return match[0]
        return f"```python\n{match['code']}```\n\n```text\n{new.rstrip()}\n```"

    return EXAMPLE.sub(fill, text)


def comparable(output: str) -> str:
    """An output without what differs from run to run."""
    for pattern, stand_in in _VARIES:
        output = pattern.sub(stand_in, output)
    return "\n".join(line.rstrip() for line in output.strip().splitlines())


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuelnumba.tools.docs", description="Bring documents up to date.")
    parser.add_argument("documents", nargs="+", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when a document is out of date")
    args = parser.parse_args(argv)
    stale = 0
    for path in args.documents:
        old = path.read_text("utf-8")
        new = with_outputs(with_tables(old))
        if new != old:
            stale = 1
            print(f"{path}: {'is out of date' if args.check else 'updated'}")
            if not args.check:
                path.write_text(new, "utf-8")
    return stale if args.check else 0


if __name__ == "__main__":
    sys.exit(main())
