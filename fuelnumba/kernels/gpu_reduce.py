"""Reductions by groups of threads, attached beside the CPU's kernels in `reduce`.

`group_rows` gives each output to a power of two of lanes, which read neighbouring elements; `group_columns` gives each lane
neighbouring outputs, with several slices of rows in a group. Few outputs of much are made in parts, then put together.
Lanes add up in the computation type (products of floats in f64, as on the CPU), and meet in a tree, so errors stay small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fuelnumba.core import dtypes as dt
from fuelnumba.core.dims import Extent, product, same
from fuelnumba.core.dtypes import DType
from fuelnumba.core.layout import contiguous
from fuelnumba.core.ops import DOMAINS, GPU, Aval, Launch, OpDef, Operand
from fuelnumba.kernels import gpu
from fuelnumba.kernels.cooperative import barrier, group_min, lane, load4
from fuelnumba.kernels.generic import U, Word, ceil_div, load, numbered, pad, store
from fuelnumba.kernels.lang import i64, minimum, select
from fuelnumba.kernels.reduce import AXES, REDUCTIONS, RULES, Rule, Space, argmax, argmin, reduced_axes, space

ACROSS = 32  # lanes side by side over neighbouring columns
JOINS = {"radd": "group_sum", "maximum": "group_max", "minimum": "group_min"}


# ---------------------------------------------------------------- kernels
def group_rows(x, out: U, n0: int, n1: int, n2: int, n3: int, s0: int, s1: int, s2: int, s3: int,  # type: ignore[valid-type]
               m3: int, t2: int, t3: int, count: int, whole: int, rows: int, parts: int, step: int,
               combine: Word, acc: Word, shared: Word, join: Word, GROUP: int, LANES: int, SHIFT: int, INIT: int,
               FIRST: bool, TREE: bool, MEAN: bool, TRUTH: bool, MANY: bool, ONE: bool, PARTS: bool, FOURS: bool, lo, hi):
    """A row by LANES lanes: kept axes n with strides s; `count` elements of a reduced axis with stride t3, or (not ONE) of two,
    the inner of length m3. With PARTS, a row is one of `parts` stretches of `step` elements."""
    if TREE:
        held = shared(GROUP)
    for item in range(lo, hi):
        row = item * (GROUP // LANES) + (lane() >> SHIFT)
        mine = lane() & (LANES - 1)
        total = acc(INIT)
        if row < rows:
            output = row
            start = i64(0)
            if PARTS:
                output = row // parts
                start = i64((row - output * parts) * step)
            base = output * s3
            if MANY:
                outer = output // n3
                middle = outer // n2
                base = output % n3 * s3 + outer % n2 * s2 + middle % n1 * s1 + middle // n1 * s0
            stop = minimum(start + step, count)
            if FIRST:
                total = acc(load(x, base))  # an extreme may meet it twice
            if FOURS:
                j = start + mine * 4
                second = total
                while j + LANES * 12 < stop:  # four loads under way at once
                    a0, a1, a2, a3 = load4(x, base + j)
                    b0, b1, b2, b3 = load4(x, base + j + LANES * 4)
                    c0, c1, c2, c3 = load4(x, base + j + LANES * 8)
                    d0, d1, d2, d3 = load4(x, base + j + LANES * 12)
                    total = combine(total, combine(combine(combine(a0, a1), combine(a2, a3)),
                                                   combine(combine(b0, b1), combine(b2, b3))))
                    second = combine(second, combine(combine(combine(c0, c1), combine(c2, c3)),
                                                     combine(combine(d0, d1), combine(d2, d3))))
                    j += LANES * 16
                while j < stop:
                    a0, a1, a2, a3 = load4(x, base + j)
                    total = combine(total, combine(combine(a0, a1), combine(a2, a3)))
                    j += LANES * 4
                total = combine(total, second)
            else:
                j = start + mine
                if ONE:
                    while j + LANES * 3 < stop:
                        a = acc(load(x, base + j * t3))
                        b = acc(load(x, base + (j + LANES) * t3))
                        c = acc(load(x, base + (j + LANES * 2) * t3))
                        d = acc(load(x, base + (j + LANES * 3) * t3))
                        total = combine(total, combine(combine(a, b), combine(c, d)))
                        j += LANES * 4
                    while j < stop:
                        total = combine(total, acc(load(x, base + j * t3)))
                        j += LANES
                else:
                    while j < stop:
                        r = j // m3
                        total = combine(total, acc(load(x, base + r * t2 + (j - r * m3) * t3)))
                        j += LANES
        if TREE:
            held[lane()] = total
            width = LANES // 2
            while width > 0:
                barrier()
                if mine < width:
                    held[lane()] = combine(held[lane()], held[lane() + width])
                width = width >> 1
            total = held[lane()]
        else:
            total = join(total)
        if (mine == 0) & (row < rows):
            if MEAN:
                total = total / acc(whole)
            if TRUTH:
                store(out, row, total != acc(0))
            else:
                store(out, row, U(total))


def group_columns(x, out: U, n0: int, n1: int, n2: int, n3: int, s0: int, s1: int, s2: int,  # type: ignore[valid-type]
                  m3: int, t2: int, t3: int, count: int, whole: int, blocks: int, parts: int, step: int,
                  combine: Word, acc: Word, shared: Word, GROUP: int, LANES: int, SHIFT: int, INIT: int, FIRST: bool,
                  MEAN: bool, TRUTH: bool, MANY: bool, ONE: bool, PARTS: bool, FOURS: bool, lo, hi):
    """LANES lanes side by side over neighbouring columns, one or four of them a lane; slices of the group take every other row.
    Axes as for `group_rows`; the last kept axis has stride 1."""
    held = shared(GROUP * 4)
    for item in range(lo, hi):
        rest = item // blocks
        block = item - rest * blocks
        outer = rest
        start = i64(0)
        if PARTS:
            outer = rest // parts
            start = i64((rest - outer * parts) * step)
        stop = minimum(start + step, count)
        part = lane() >> SHIFT
        column = block * LANES + (lane() & (LANES - 1))
        if FOURS:
            column = column * 4
        base = column
        if MANY:
            middle = outer // n2
            base = column + outer % n2 * s2 + middle % n1 * s1 + middle // n1 * s0
        a = acc(INIT)
        b = a
        c = a
        d = a
        if column < n3:
            r = start + part
            if FOURS:
                if FIRST:
                    a, b, c, d = load4(x, base)
                while r + GROUP // LANES * 3 < stop:
                    at = base + r * t3
                    a0, b0, c0, d0 = load4(x, at)
                    a1, b1, c1, d1 = load4(x, at + GROUP // LANES * t3)
                    a2, b2, c2, d2 = load4(x, at + GROUP // LANES * 2 * t3)
                    a3, b3, c3, d3 = load4(x, at + GROUP // LANES * 3 * t3)
                    a = combine(a, combine(combine(a0, a1), combine(a2, a3)))
                    b = combine(b, combine(combine(b0, b1), combine(b2, b3)))
                    c = combine(c, combine(combine(c0, c1), combine(c2, c3)))
                    d = combine(d, combine(combine(d0, d1), combine(d2, d3)))
                    r += GROUP // LANES * 4
                while r < stop:
                    a0, b0, c0, d0 = load4(x, base + r * t3)
                    a = combine(a, a0)
                    b = combine(b, b0)
                    c = combine(c, c0)
                    d = combine(d, d0)
                    r += GROUP // LANES
            else:
                if FIRST:
                    a = acc(load(x, base))
                if ONE:
                    while r + GROUP // LANES * 3 < stop:
                        at = base + r * t3
                        a0 = acc(load(x, at))
                        a1 = acc(load(x, at + GROUP // LANES * t3))
                        a2 = acc(load(x, at + GROUP // LANES * 2 * t3))
                        a3 = acc(load(x, at + GROUP // LANES * 3 * t3))
                        a = combine(a, combine(combine(a0, a1), combine(a2, a3)))
                        r += GROUP // LANES * 4
                    while r < stop:
                        a = combine(a, acc(load(x, base + r * t3)))
                        r += GROUP // LANES
                else:
                    while r < stop:
                        q = r // m3
                        a = combine(a, acc(load(x, base + q * t2 + (r - q * m3) * t3)))
                        r += GROUP // LANES
        held[lane()] = a
        if FOURS:
            held[GROUP + lane()] = b
            held[GROUP * 2 + lane()] = c
            held[GROUP * 3 + lane()] = d
        width = GROUP // LANES // 2
        while width > 0:
            barrier()
            if part < width:
                other = lane() + width * LANES
                held[lane()] = combine(held[lane()], held[other])
                if FOURS:
                    held[GROUP + lane()] = combine(held[GROUP + lane()], held[GROUP + other])
                    held[GROUP * 2 + lane()] = combine(held[GROUP * 2 + lane()], held[GROUP * 2 + other])
                    held[GROUP * 3 + lane()] = combine(held[GROUP * 3 + lane()], held[GROUP * 3 + other])
            width = width >> 1
        if (part == 0) & (column < n3):
            for k in range(4 if FOURS else 1):
                value = held[GROUP * k + lane()]
                if MEAN:
                    value = value / acc(whole)
                if TRUTH:
                    store(out, rest * n3 + column + k, value != acc(0))
                else:
                    store(out, rest * n3 + column + k, U(value))


def group_arg_rows(x, out: i64, n0: int, n1: int, n2: int, n3: int,  # type: ignore[valid-type]
                   s0: int, s1: int, s2: int, s3: int, m3: int, t3: int, combine: Word, join: Word, acc: Word,
                   GROUP: int, lo, hi):
    """The first place of the extreme of a row, or of its first NaN: each lane's own first, then the least of those."""
    for item in range(lo, hi):
        outer = item // n3
        middle = outer // n2
        base = item % n3 * s3 + outer % n2 * s2 + middle % n1 * s1 + middle // n1 * s0
        best = acc(load(x, base))
        place = i64(0)
        j = i64(lane())
        while j + GROUP * 3 < m3:
            a = acc(load(x, base + j * t3))
            b = acc(load(x, base + (j + GROUP) * t3))
            c = acc(load(x, base + (j + GROUP * 2) * t3))
            d = acc(load(x, base + (j + GROUP * 3) * t3))
            new = combine(best, a)
            place = select((best == best) & (new != best), j, place)  # a NaN that is there already stays
            best = new
            new = combine(best, b)
            place = select((best == best) & (new != best), j + GROUP, place)
            best = new
            new = combine(best, c)
            place = select((best == best) & (new != best), j + GROUP * 2, place)
            best = new
            new = combine(best, d)
            place = select((best == best) & (new != best), j + GROUP * 3, place)
            best = new
            j += GROUP * 4
        while j < m3:
            new = combine(best, acc(load(x, base + j * t3)))
            place = select((best == best) & (new != best), j, place)
            best = new
            j += GROUP
        top = join(best)
        first = group_min(select((best == top) | (best != best), place, m3))
        if lane() == 0:
            store(out, item, first)


def group_arg_columns(x, out: i64, n0: int, n1: int, n2: int, n3: int,  # type: ignore[valid-type]
                      s0: int, s1: int, s2: int, s3: int, m3: int, t3: int, blocks: int, combine: Word, acc: Word,
                      shared: Word, shared_places: Word, GROUP: int, LANES: int, SHIFT: int, lo, hi):
    """As `group_arg_rows` for LANES neighbouring columns at once; the last kept axis has stride 1."""
    held = shared(GROUP)
    places = shared_places(GROUP)
    for item in range(lo, hi):
        outer = item // blocks
        column = (item - outer * blocks) * LANES + (lane() & (LANES - 1))
        part = lane() >> SHIFT
        middle = outer // n2
        base = column + outer % n2 * s2 + middle % n1 * s1 + middle // n1 * s0
        place = i64(0)
        best = acc(0)
        if column < n3:
            best = acc(load(x, base))
            for r in range(part, m3, GROUP // LANES):
                new = combine(best, acc(load(x, base + r * t3)))
                place = select((best == best) & (new != best), i64(r), place)
                best = new
        held[lane()] = best
        places[lane()] = place
        barrier()
        if (part == 0) & (column < n3):
            for k in range(1, GROUP // LANES):
                other = held[lane() + k * LANES]
                there = places[lane() + k * LANES]
                new = combine(best, other)
                better = (best == best) & (new != best)
                equal = (other == best) | ((other != other) & (best != best))
                place = select(better | (equal & (there < place)), there, place)
                best = new
            store(out, outer * n3 + column, place)


# ---------------------------------------------------------------- launching
def accumulator(rule: Rule, dtype: DType) -> str:
    """The type that lanes combine in."""
    if rule.combine == "rmul" and dtype.is_float:
        return "f64"
    return compared(dtype)


def compared(dtype: DType) -> str:
    """The type of a dtype's numbers that the words for groups take."""
    if dtype.is_float:
        return dtype.compute
    return "i64" if dtype in (dt.i64, dt.u32) else "i32"


def between(rule: Rule, dtype: DType) -> DType:
    """The dtype of parts: what they were added up in; an extreme is one of the elements."""
    return dt.BY_NAME[accumulator(rule, dtype)] if rule.widen else dtype


def accepts_rows(inputs: Sequence[Operand], attrs: Mapping[str, Any]) -> str | None:
    at = space(inputs[0], reduced_axes(attrs))
    if len(at.kept) > AXES or len(at.reduced) > 2:
        return (f"its layout has {len(at.kept)} kept and {len(at.reduced)} reduced axes after collapsing, "
                f"more than {AXES} and 2")
    return None


def accepts_columns(inputs: Sequence[Operand], attrs: Mapping[str, Any]) -> str | None:
    if not space(inputs[0], reduced_axes(attrs)).has_unit_columns:
        return "neighbouring outputs do not come from neighbouring elements"
    return accepts_rows(inputs, attrs)


def _axes(at: Space) -> dict[str, Extent]:
    _, m3 = pad(at.reduced, 2, 1)
    t2, t3 = pad(at.reduced_strides, 2, 0)
    return {**numbered("n", pad(at.kept, AXES, 1)), **numbered("s", pad(at.kept_strides, AXES, 0)),
            "m3": m3, "t2": t2, "t3": t3}


def _bake(rule: Rule, x: Operand, at: Space) -> dict[str, Any]:
    acc = accumulator(rule, x.dtype)
    return {"combine": rule.combine, "acc": acc, "shared": f"shared_{acc}", "GROUP": gpu.GROUP, "INIT": rule.init or 0,
            "FIRST": rule.init is None, "MEAN": rule.mean, "TRUTH": x.dtype is dt.bool_, "ONE": len(at.reduced) <= 1,
            "MANY": len(at.kept) > 1}


def _parts(count: Extent, groups: Extent, least: int) -> tuple[int, Extent]:
    """Into how many parts the elements of an output are divided, and how many each has, a multiple of four."""
    parts = gpu.parts_of(count, groups, least)
    if parts == 1:
        return 1, count
    step = ceil_div(count, parts * 4) * 4
    return (-(-count // step) if isinstance(count, int) and isinstance(step, int) else parts), step


def rows_of(rule: Rule, x: Operand, axes: tuple[int, ...], whole: Extent, may_split: bool = True) -> Launch:
    at = space(x, axes)
    count, outputs = product(at.reduced), product(at.kept)
    bake = _bake(rule, x, at)
    parts, step = _parts(count, outputs, 16 * gpu.GROUP) if may_split else (1, count)
    # a lane's four lie together: rows start and end at fours, and so do parts
    fours = (len(at.reduced) == 1 and same(at.reduced_strides[0], 1) and bake["acc"] == x.dtype.compute
             and gpu.in_fours(x, count, *at.kept_strides))
    lanes = gpu.row_lanes(step, outputs, 16 if fours else 4)
    bake |= {"LANES": lanes, "SHIFT": gpu.shift(lanes), "FOURS": fours, "PARTS": parts > 1,
             "TREE": lanes < gpu.GROUP or rule.combine not in JOINS, "join": JOINS.get(rule.combine, "group_sum")}
    rows = outputs * parts
    args = {**_axes(at), "count": count, "whole": whole, "rows": rows, "parts": parts, "step": step}
    launch = Launch(args, ceil_div(rows, gpu.GROUP // lanes), step, bake, group=gpu.GROUP)
    if parts == 1:
        return launch
    scratch = Aval((outputs, parts), between(rule, x.dtype))
    last = rows_of(rule, Operand(contiguous(scratch.shape), scratch.dtype), (1,), whole, may_split=False)
    return Launch(args, launch.total, step, bake | {"MEAN": False}, scratch, last, group=gpu.GROUP)


def columns_of(rule: Rule, x: Operand, axes: tuple[int, ...], whole: Extent, may_split: bool = True) -> Launch:
    at = space(x, axes)
    count, outer, columns = product(at.reduced), product(at.kept[:-1]), at.kept[-1]
    bake = _bake(rule, x, at)
    fours = (len(at.reduced) == 1 and bake["acc"] == x.dtype.compute
             and gpu.in_fours(x, columns, *at.kept_strides[:-1], at.reduced_strides[0]))
    across = columns // 4 if fours else columns
    lanes = gpu.power_of_two(across, min(ACROSS, gpu.GROUP))
    blocks = ceil_div(across, lanes)
    parts, step = _parts(count, outer * blocks, 16 * (gpu.GROUP // lanes)) if may_split else (1, count)
    bake |= {"LANES": lanes, "SHIFT": gpu.shift(lanes), "FOURS": fours, "PARTS": parts > 1}
    args = {**_axes(at), "count": count, "whole": whole, "blocks": blocks, "parts": parts, "step": step}
    del args["s3"]
    launch = Launch(args, outer * parts * blocks, step * lanes, bake, group=gpu.GROUP)
    if parts == 1:
        return launch
    scratch = Aval((outer, parts, columns), between(rule, x.dtype))
    last = columns_of(rule, Operand(contiguous(scratch.shape), scratch.dtype), (1,), whole, may_split=False)
    return Launch(args, launch.total, launch.cost, bake | {"MEAN": False}, scratch, last, group=gpu.GROUP)


def launcher(made: Callable[..., Launch], rule: Rule) -> Callable[..., Launch]:
    def launch(inputs: Sequence[Operand], outputs: Sequence[Operand], attrs: Mapping[str, Any]) -> Launch:
        x, axes = inputs[0], reduced_axes(attrs)
        return made(rule, x, axes, product(space(x, axes).reduced))

    return launch


def _arg_args(x: Operand, axis: int) -> tuple[Space, dict[str, Extent]]:
    at = space(x, (axis,))
    args = {k: v for k, v in _axes(at).items() if k[0] in "ns"}
    return at, args | {"m3": x.layout.shape[axis], "t3": x.layout.strides[axis]}


def arg_rows_launch(combine: str) -> Callable[..., Launch]:
    def launch(inputs: Sequence[Operand], outputs: Sequence[Operand], attrs: Mapping[str, Any]) -> Launch:
        at, args = _arg_args(inputs[0], attrs["axis"])
        bake = {"combine": combine, "join": JOINS[combine], "acc": compared(inputs[0].dtype), "GROUP": gpu.GROUP}
        return Launch(args, product(at.kept), args["m3"], bake, group=gpu.GROUP)

    return launch


def arg_columns_launch(combine: str) -> Callable[..., Launch]:
    def launch(inputs: Sequence[Operand], outputs: Sequence[Operand], attrs: Mapping[str, Any]) -> Launch:
        at, args = _arg_args(inputs[0], attrs["axis"])
        acc = compared(inputs[0].dtype)
        lanes = gpu.power_of_two(at.kept[-1], min(ACROSS, gpu.GROUP))
        args["blocks"] = ceil_div(at.kept[-1], lanes)
        bake = {"combine": combine, "acc": acc, "shared": f"shared_{acc}", "shared_places": "shared_i64",
                "GROUP": gpu.GROUP, "LANES": lanes, "SHIFT": gpu.shift(lanes)}
        return Launch(args, product(at.kept[:-1]) * args["blocks"], args["m3"] * lanes, bake, group=gpu.GROUP)

    return launch


def attach(op: OpDef, rule: Rule) -> None:
    types = {"T": DOMAINS[rule.domain], "U": DOMAINS[rule.domain]}
    op.kernel(GPU, types, launch=launcher(columns_of, rule), strided=True, accepts=accepts_columns)(group_columns)
    op.kernel(GPU, types, launch=launcher(rows_of, rule), strided=True, accepts=accepts_rows)(group_rows)


for name, declared in REDUCTIONS.items():
    attach(declared, RULES[name])
for extreme, better in ((argmax, "maximum"), (argmin, "minimum")):
    extreme.kernel(GPU, DOMAINS["any"], launch=arg_columns_launch(better), strided=True,
                   accepts=accepts_columns)(group_arg_columns)
    extreme.kernel(GPU, DOMAINS["any"], launch=arg_rows_launch(better), strided=True, accepts=accepts_rows)(group_arg_rows)
