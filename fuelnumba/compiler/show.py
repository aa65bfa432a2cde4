"""Plans and decisions in words."""

from __future__ import annotations

from ..core.dims import Dim
from .plan import LaunchStep, Plan


def format_plan(plan: Plan) -> str:
    """One line per launch: kernel, what it computes, work items, and the user's line."""
    lines = [f"plan of {plan.graph.name}: {len(plan.launches)} launches of {len(plan.sources)} kernels"]
    for k, step in enumerate(plan.launches):
        lines.append(f"  {k:3d}  {_line(step)}")
    kinds = [s.kind for s in plan.storages]
    lines.append("  buffers: " + ", ".join(f"{kinds.count(k)} {k}" for k in dict.fromkeys(kinds)))
    return "\n".join(lines)


def _line(step: LaunchStep) -> str:
    result = step.nodes[-1].aval
    what = f"{step.label} -> {result}"
    if len(step.nodes) > 1:
        what += f", {len(step.nodes)} ops fused"
    name = f"{step.name}" + (" (BLAS)" if step.blas else " (yours)" if step.user else "")
    items = step.total if not isinstance(step.total, Dim) else f"{step.total}"
    where = f"   # {step.where}" if step.where else ""
    return f"{name:20s} {what}, {items} work items{where}"


def explain(plan: Plan) -> str:
    """What was bound, fused, copied and refused."""
    traced = len([n for n in plan.graph.nodes() if n.op.kind != "leaf"])
    lines = [f"{traced} ops traced, {len(plan.launches)} launches:"]
    lines += [f"  {_line(s)}" for s in plan.launches]
    copies = [s for s in plan.launches if any(n.op.name in ("contiguous", "copy") for n in s.nodes)]
    if copies:
        lines.append("copies, because a layout or a later write asks for them:")
        lines += [f"  {n.op.name} of {n.inputs[0].op.name} {n.aval}" + (f"   # {n.where}" if n.where else "")
                  for s in copies for n in s.nodes if n.op.name in ("contiguous", "copy")]
    refused = [s for s in plan.launches if s.note and s.user is None]
    if refused:
        lines.append("refused kernels:")
        lines += [f"  for {s.label}: {s.note}" for s in refused]
    return "\n".join(lines)
