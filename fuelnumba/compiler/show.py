"""Plans and decisions in words and pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from ..core import ir
from ..core.dims import Dim, Extent, product
from ..core.drawing import text
from ..core.fold import stretches
from ..core.ir import Node
from ..core.picture import Group, count, details, draw, graph_html, preformatted, scrolling
from ..core.printer import LONG, again
from . import fuse
from .plan import LaunchStep, Plan, Storage

LINES, MOST_LINES = 40, 600  # of a part of an explanation in a notebook: a longer one is closed at first; is cut
LEAST = 8  # lines that folding a repeat must spare
SAME_BYTES = {"broadcast_to", "reshape", "permute", "unsqueeze", "squeeze", "flip"}  # views that show no part of their input


# ------------------------------------------------------------------------------------------------ words
def format_plan(plan: Plan, folded: bool | None = None) -> str:
    """One line per launch: kernel, what it computes, work items, and the user's line. folded: whether of equal groups of
    lines that follow one another the first alone is shown; None: where there are many."""
    lines = [f"plan of {plan.graph.name}: {size_in_words(plan)}"]
    lines += numbered(launch_lines(plan), folded)
    kinds = [s.kind for s in plan.storages]
    lines.append("  buffers: " + ", ".join(f"{kinds.count(k)} {k}" for k in dict.fromkeys(kinds)))
    return "\n".join(lines)


def size_in_words(plan: Plan) -> str:
    kernels = len(plan.sources) + len({s.user for s in plan.launches if s.user is not None})
    return f"{count(len(plan.launches), 'launch')} of {count(kernels, 'kernel')}"


def numbered(launches: Sequence[str], folded: bool | None) -> list[str]:
    """The lines of the launches with their numbers, those that repeat left out."""
    lines: list[str] = []
    k = 0
    for start, group, times in stretches(launches, LEAST) if folded or (folded is None and len(launches) > LINES) else []:
        lines += [f"  {n:3d}  {launches[n]}" for n in range(k, start + group)]
        k = start + group * times
        lines.append(f"  ...  {again(times - 1, group, 'launch', 'launches')}, {start + group} to {k - 1}")
    lines += [f"  {n:3d}  {launches[n]}" for n in range(k, len(launches))]
    return lines + ["  (plan.format(folded=False) lists every launch)"] * (len(lines) < len(launches))


def launch_lines(plan: Plan, threaded: Collection[int] = (), more: bool = False) -> list[str]:
    """What there is to say of the launches; `more`: with the bytes they move and, of the numbers in `threaded`, that threads
    share them."""
    lines = []
    for k, step in enumerate(plan.launches):
        parts = [f"{step.label} -> {step.nodes[-1].aval}"]
        parts += [f"{len(step.nodes)} ops fused"] * (len(step.nodes) > 1)
        parts.append(count(step.total, "work item"))
        if more:
            read = _total(step.reads) if _finishes(plan, k) else _read(step)
            written = _total(step.writes) if _finishes(plan, k + 1) else _written(step)
            parts += [f"reads {bytes_in_words(read)}", f"writes {bytes_in_words(written)}"]
            parts += ["divided among threads"] * (k in threaded)
        lines.append(f"{_name(step):20s} {', '.join(parts)}" + (f"   # {step.where}" if step.where else ""))
    return lines


def _name(step: LaunchStep) -> str:
    return step.name + (" (BLAS)" if step.blas else " (yours)" if step.user else "")


# ------------------------------------------------------------------------------------------------ bytes
def bytes_in_words(n: Extent) -> str:
    if isinstance(n, Dim):
        return f"{n} B"
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n >= 10 * size:
            return f"{n / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{n} B"


def _finishes(plan: Plan, k: int) -> bool:
    """Whether a launch puts together the parts that the one before made of the same op."""
    return 0 < k < len(plan.launches) and plan.launches[k].nodes == plan.launches[k - 1].nodes


def _total(storages: Sequence[Storage]) -> Extent:
    total: Extent = 0
    for s in storages:
        total = total + s.nbytes
    return total


def _shown(n: Node) -> Extent:
    """The bytes of memory that a node's value lies in."""
    while n.op.is_view and n.op.name in SAME_BYTES:
        n = n.inputs[0]
    return product(n.shape) * n.dtype.itemsize


def _read(step: LaunchStep) -> Extent:
    """The bytes that a launch reads, each operand counted once; of a table, as many as are taken from it."""
    last = step.nodes[-1]
    total: Extent = 0
    for i in dict.fromkeys(i for n in step.nodes for k, i in enumerate(n.inputs) if k != n.op.destroys):
        if i in step.nodes or i.op is ir.FULL:
            continue
        table = last.op.name in ("take", "embedding") and i is last.inputs[0]
        total = total + (product(last.shape) * i.dtype.itemsize if table else _shown(i))
    return total


def _written(step: LaunchStep) -> Extent:
    last = step.nodes[-1]
    if last.op.destroys is not None:  # a part of what lies there already
        return _shown(next(i for k, i in enumerate(last.inputs) if k != last.op.destroys))
    if not last.op.is_elementwise:
        return product(last.shape) * last.dtype.itemsize
    return _total(step.writes)


# ------------------------------------------------------------------------------------------------ decisions
def decisions(plan: Plan, threaded: Collection[int] = (), folded: bool | None = None) -> list[tuple[str, list[str]]]:
    """What was bound, fused, copied and refused: headings, each with its lines. threaded: numbers of the launches that
    threads share; folded: as for `format_plan`."""
    traced = len([n for n in plan.graph.nodes() if n.op.kind != "leaf"])
    out = [(f"{count(traced, 'op')} traced, {count(len(plan.launches), 'launch')}:",
            numbered(launch_lines(plan, threaded, True), folded))]
    out += plan.notes
    apart = _apart(plan)
    if apart:
        out.append(("not fused with what they read:", [f"  {line}" for line in apart]))
    copies = Counter(f"{n.op.name} of {n.inputs[0].op.name} {n.aval}" + (f"   # {n.where}" if n.where else "")
                     for s in plan.launches for n in s.nodes if n.op.name in ("contiguous", "copy"))
    if copies:
        out.append(("copies, because a layout or a later write asks for them:", _counted(copies)))
    refused = Counter(f"for {s.label}: {s.note}" for k, s in enumerate(plan.launches)
                      if s.note and s.user is None and not _finishes(plan, k))
    if refused:
        out.append(("refused kernels:", _counted(refused)))
    return out


def _counted(lines: Counter[str]) -> list[str]:
    return [f"  {line}" + (f" ({n} times)" if n > 1 else "") for line, n in lines.items()]


def _apart(plan: Plan) -> list[str]:
    """Why regions of elementwise ops that read one another are launches of their own."""
    home = {n: k for k, s in enumerate(plan.launches) for n in s.nodes}
    reads = [{home[b] for n in s.nodes for i in n.inputs if (b := i.base) in home} - {k}
             for k, s in enumerate(plan.launches)]
    reached: list[int] = []  # launches that each one needs, itself included, as bits: of thousands, sets would fill memory
    for k, direct in enumerate(reads):
        bits = 1 << k
        for d in direct:
            bits |= reached[d]
        reached.append(bits)
    pairs: dict[str, list[str]] = {}
    for k, step in enumerate(plan.launches):
        for p in sorted(reads[k]):
            if _is_region(step) and _is_region(plan.launches[p]):
                between = next((plan.launches[d].label for d in sorted(reads[k] - {p}) if reached[d] >> p & 1), None)
                pairs.setdefault(_why_apart(plan.launches[p], step, between), []).append(f"{k} and {p}")
    return [f"{those[0]}: {why}" + (f" ({len(those) - 1} more of this kind)" if len(those) > 1 else "")
            for why, those in pairs.items()]


def _is_region(step: LaunchStep) -> bool:
    return step.user is None and step.nodes[0].op.is_elementwise


def _why_apart(earlier: LaunchStep, step: LaunchStep, between: str | None) -> str:
    a, b = earlier.nodes[-1], step.nodes[-1]
    if str(a.aval.shape) != str(b.aval.shape):
        return f"their shapes differ: {b.aval} and {a.aval}"
    made = set(earlier.nodes)
    if any(i.op.is_view and i.base in made for n in step.nodes for i in n.inputs):
        return "one reads the other's elements in another order"
    if between is not None:
        return f"{between} runs between them"
    both = [*earlier.nodes, *step.nodes]
    if fuse._weight(both) > fuse.MAX_WEIGHT or len(fuse._reads(both)) >= fuse.MAX_POINTERS:
        return "together they would be too large for one kernel"
    return "a write in place, or other launches, keep them apart"


class Explanation(str):
    """A text that notebooks show with headings: a line, then sections of a heading and lines."""

    head: str
    sections: list[tuple[str, list[str]]]

    def __new__(cls, head: str, sections: Sequence[tuple[str, list[str]]]) -> Explanation:
        self = super().__new__(cls, "\n".join([head, *(line for title, lines in sections for line in (title, *lines))]))
        self.head, self.sections = head, list(sections)
        return self

    def __repr__(self) -> str:
        return str(self)

    def __getnewargs__(self) -> tuple[str, list[tuple[str, list[str]]]]:  # type: ignore[override]
        return self.head, self.sections

    def _repr_html_(self) -> str:
        parts = [f"<div><b>{text(self.head)}</b></div>"]
        for title, lines in self.sections:
            shown = lines[:MOST_LINES]
            shown += [f"  and {count(len(lines) - len(shown), 'more line')}: print(f.explain())"] * (len(lines) > len(shown))
            parts.append(details(title.rstrip(":"), preformatted("\n".join(line[2:] for line in shown)), len(lines) <= LINES))
        return f"<div>{''.join(parts)}</div>"


# ------------------------------------------------------------------------------------------------ pictures
def plan_svg(plan: Plan, folded: bool | None = None) -> str:
    """The lowered graph; the ops of one kernel in one frame, with the number of their launch."""
    groups = [Group((s.name, s.label), k, f"launch {k}: {_name(s)} {s.label}", s.nodes) for k, s in enumerate(plan.launches)]
    return draw(plan.lowered, folded, groups, _in_launch_order(plan))


def _in_launch_order(plan: Plan) -> list[Node]:
    """The lowered nodes, those of a launch one after the other, leaves and views right before the launch that reads them."""
    order: dict[Node, None] = {}
    computed = {n for s in plan.launches for n in s.nodes}

    def reach(roots: Sequence[Node]) -> None:
        stack = [n for n in reversed(roots) if n not in order]
        while stack:
            n = stack[-1]
            missing = [i for i in n.inputs if i not in order and i not in computed]
            if missing:
                stack += reversed(missing)
            else:
                stack.pop()
                order.setdefault(n)

    for s in plan.launches:
        inside = set(s.nodes)
        reach([i for n in s.nodes for i in n.inputs if i not in inside and i not in computed])
        order.update(dict.fromkeys(s.nodes))
    reach([o for o in plan.lowered.outputs if o not in computed])
    return list(order)


def plan_html(plan: Plan) -> str:
    """The picture, and below it the list of launches."""
    lines = format_plan(plan)
    table = (details("as a list", preformatted(lines)) if len(lines) <= LONG else
             f"<p>As a list it has {len(plan.launches)} lines: <code>print(f.plan)</code>.</p>")
    head = f"<div>plan of <b>{text(plan.graph.name)}</b>: {text(size_in_words(plan))}</div>"
    return f"<div>{head}{scrolling(plan_svg(plan))}{table}</div>"


def jitted_html(title: str, explanation: Explanation | None, plan: Plan | None) -> str:
    """A jitted function: what it is and, once it was called, the stations of its latest call."""
    head = f"<div><code>{text(title)}</code></div>"
    if plan is None or explanation is None:
        return f"<div>{head}<p>It has not been called yet.</p></div>"
    stations = [("graph", graph_html(plan.graph)), ("plan", plan_html(plan)), ("explanation", explanation._repr_html_())]
    return f"<div>{head}{''.join(details(name, body) for name, body in stations)}</div>"
