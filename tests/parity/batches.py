"""Many elementwise ops in one kernel. A kernel for one op, dtype and layout takes a quarter of a second to compile, and there
are thousands of them; here ops that get the same operands become the outputs of one jitted function, so that its single
region reads the operands in their layout and computes all of the ops.

The text of a region is the text of its loads, which a layout decides, followed by that of its ops, which a layout does not
touch: what goes wrong for an op alone in a layout goes wrong here as well. Ops alone are run on contiguous arrays. Functions
that are long to compile are computed once for all layouts, of values that are chosen among operands in each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fuelnumba import jit, ops
from fuelnumba.compiler.fuse import MAX_WEIGHT
from fuelnumba.core import scalar
from fuelnumba.core.ops import OPS, broadcast_shapes
from fuelnumba.testing import ParityCase, cases
from fuelnumba.testing.cases import slots
from fuelnumba.testing.values import in_dtype
from fuelnumba.trace.apply import apply

LONG = 15  # weight from which an op of one operand is computed once for all layouts


def weight_of(case: ParityCase) -> int:
    """At least what the op weighs in a region."""
    return scalar.weight(case.op.expr) if case.op.expr is not None else 12


def is_long(case: ParityCase) -> bool:
    return len(case.op.inputs) == 1 and weight_of(case) >= LONG


def elementwise(dtype: str, layout: str) -> Iterator[ParityCase]:
    """Cases whose operands depend on the dtype, the layout and their slots alone."""
    for op in OPS.values():
        if not op.is_elementwise or "uid" in op.attrs or dtype not in op.dtypes()["cpu"]:
            continue
        if "+" not in layout or len(op.inputs) > 1:
            yield from (c for c in cases(op, [dtype], [layout]) if c.label.startswith(("values", "outer")))


def batches(found: Iterator[ParityCase]) -> Iterator[list[ParityCase]]:
    """Cases whose operands are the same, in groups as large as one region may be."""
    groups: dict[str, list[ParityCase]] = {}
    for case in found:
        groups.setdefault(case.label.split(",")[0], []).append(case)
    for group in groups.values():
        batch: list[ParityCase] = []
        weight = 0
        for case in group:
            more = weight_of(case)
            if batch and weight + more > MAX_WEIGHT - 50:
                yield batch
                batch, weight = [], 0
            batch.append(case)
            weight += more
        yield batch


def run(batch: list[ParityCase]) -> list[str]:
    """What is wrong with each case of a batch, in words. Raises AssertionError when it is more than one region."""
    operands = {slot: a for case in batch for slot, a in zip(slots(case.op), case.arrays)}
    where = {slot: k for k, slot in enumerate(operands)}
    arrays = list(operands.values())
    shape = broadcast_shapes("batch", [a.shape for a in arrays])

    @jit
    def all_of_them(*xs: Any) -> Any:
        # `contiguous` reads each operand where it lies; being read by all ops, it makes one region of them
        ys = [ops.contiguous(np.broadcast_to(x, shape)) for x in xs]
        return [apply(case.op, *(ys[where[slot]] for slot in slots(case.op)), **case.attrs) for case in batch]

    before = [a.tobytes() for a in arrays]
    results = all_of_them(*arrays)
    assert [a.tobytes() for a in arrays] == before, f"an operand of {batch[0]} was modified"
    _one_region(all_of_them)
    return [said for case, got in zip(batch, results) if (said := _said(case, got)) is not None]


def run_together(dtype: str, layouts: list[str]) -> list[str]:
    """As `run`, for the ops that are long to compile, in all of the layouts at once."""
    by_layout = [[c for c in elementwise(dtype, la) if is_long(c)] for la in layouts]
    if not by_layout[0]:
        return []
    arrays = [group[0].arrays[0] for group in by_layout]
    shape = arrays[0].shape
    choice = np.random.default_rng(0).integers(len(layouts), size=shape)
    out = []
    for batch in batches(iter(by_layout[0])):
        jitted = _chosen(batch, shape)
        results = jitted(choice, arrays)
        _one_region(jitted)
        for k, group in enumerate(by_layout):
            same = {(c.op, c.label): c for c in group}
            for case, got in zip(batch, results):
                mine = same[case.op, case.label]
                expected = in_dtype(mine.aval.dtype, mine.expected())
                if expected.ndim == 0:
                    expected = np.broadcast_to(expected, shape)
                said = _said(mine, np.where(choice == k, got, expected), whole=expected)
                out += [said] if said is not None else []
    return out


def _chosen(batch: list[ParityCase], shape: tuple[int, ...]) -> Any:
    """All ops of a batch on elements of several arrays: `which` says of which."""
    @jit
    def all_of_them(which: Any, xs: Any) -> Any:
        y = np.broadcast_to(xs[0], shape)
        for k, x in enumerate(xs[1:]):
            y = np.where(which == k + 1, np.broadcast_to(x, shape), y)
        return [apply(case.op, y, **case.attrs) for case in batch]

    return all_of_them


def _one_region(fn: Any) -> None:
    for step in fn.plan.launches:
        assert all(r.kind == "input" for r in step.reads), f"{step.label} reads a copy: the batch is too large for one region"


def _said(case: ParityCase, got: Any, whole: Any = None) -> str | None:
    problem = case.problem(got, expected=whole)
    if problem is None:
        return None
    try:
        case.check()
    except AssertionError:
        return case.message(problem, got)
    return case.message(problem + "\n  (in a region with other ops; alone it agrees)", got)
