"""The op table as records, as Markdown and for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import ops  # noqa: F401  (declares all ops)
from ..core import dtypes as dt
from ..core.ops import BACKENDS, OPS, OpDef
from ..trace.documentation import counterpart

if TYPE_CHECKING:
    from rich.table import Table

_KINDS = ("elementwise", "view", "reduce", "matmul", "index", "norm", "attention", "memory")
_GROUPS = {
    "floats": [d.name for d in dt.ALL if d.is_float],
    "ints": [d.name for d in dt.ALL if d.is_integer],
    "bool": ["bool"],
    "f8": [d.name for d in dt.ALL if d.is_storage_only],
}
LEGEND = "; ".join(f"{group}: {' '.join(names)}" for group, names in _GROUPS.items() if group != "bool") + "; all: all of these"


def operations() -> list[OpDef]:
    """The ops a user can call, by kind, then by name."""
    found = [o for o in OPS.values() if o.is_public]
    return sorted(found, key=lambda o: ((*_KINDS, o.kind).index(o.kind), o.name))


def records() -> list[dict[str, Any]]:
    """One record per op; `dtypes` maps each backend to the dtypes the op's first array may have there, and `like`
    names what does the same elsewhere, in NumPy, SciPy or PyTorch."""
    return [{"name": o.name, "like": counterpart(o), "kind": o.kind, "dtypes": o.dtypes(), "doc": o.doc}
            for o in operations()]


def grouped(names: Sequence[str]) -> str:
    """['f16', 'bf16', 'f32', 'f64', 'bool'] -> 'floats bool'."""
    if len(names) == len(dt.ALL):
        return "all"
    left, out = list(names), []
    for group, members in _GROUPS.items():
        if members and set(members) <= set(left):
            out.append(group)
            left = [n for n in left if n not in members]
    return " ".join(out + left)


def markdown() -> str:
    """A table per kind of op."""
    lines = []
    for kind in dict.fromkeys(o.kind for o in operations()):
        lines += [f"**{kind}**", "", f"| op | {' | '.join(BACKENDS)} | like | what it is |",
                  f"| --- | {'--- | ' * len(BACKENDS)}--- | --- |"]
        for o in operations():
            if o.kind == kind:
                served = [grouped(o.dtypes().get(b, [])) for b in BACKENDS]
                doc = o.doc.replace("|", "\\|").replace("*", "\\*")
                lines.append(f"| `{o.name}` | {' | '.join(served)} | {counterpart(o)} | {doc} |")
        lines.append("")
    return "\n".join([*lines, LEGEND])


def table() -> Table:
    """For the terminal."""
    from rich.markup import escape
    from rich.table import Table

    out = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("name", "kind", *BACKENDS):
        out.add_column(heading, no_wrap=True)
    out.add_column("doc", ratio=1)
    for o in operations():
        served = [grouped(o.dtypes().get(b, [])) for b in BACKENDS]
        out.add_row(o.name, o.kind, *served, escape(o.doc))
    return out
