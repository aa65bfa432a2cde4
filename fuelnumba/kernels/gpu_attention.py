"""Attention by groups of threads, attached beside the CPU's kernel in `attention`.

A group has a block of queries of one head. It walks over the keys in tiles of as many as it has threads: a lane scores one key
for all queries of the block; then lanes stand side by side over the columns of v, in slices that take every other key. For
few queries, the keys are divided among several groups, whose results `join_attention` puts together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fuelnumba.core import dtypes as dt
from fuelnumba.core.ops import GPU, Aval, Launch, Operand
from fuelnumba.kernels import gpu
from fuelnumba.kernels.attention import attention, attention_accepts, attention_launch
from fuelnumba.kernels.cooperative import barrier, group_max, group_sum, lane, load4, unroll
from fuelnumba.kernels.generic import I, T, U, Word, ceil_div, exp, load, store, tanh
from fuelnumba.kernels.index import INDEX_TYPES
from fuelnumba.kernels.lang import i64, maximum, minimum, rfma, select

WIDEST = 256  # elements of a row of q, k or v
QUERIES = 8  # of a block


def group_attention(q, k, v, length: I, out: U, heads: int, group: int, queries: int, keys: int,  # type: ignore[valid-type]
                    depth: int, width: int, qb: int, qh: int, qs: int, kb: int, kh: int, ks: int, vb: int, vh: int, vs: int,
                    lb: int, scale: float, softcap: float, blocks: int, parts: int, stack: Word, shared: Word,
                    CAUSAL: bool, HAS_LENGTH: bool, SOFTCAP: bool, PARTS: bool, FOURS: bool, QUERIES: int, DEPTH: int,
                    LANES: int, SHIFT: int, COLUMNS: int, GROUP: int, status, site, lo, hi):
    """As `attention_rows`. With PARTS, a row of out is the largest score, the sum of exp(score - largest), and that of
    exp(score - largest) * v, over one of `parts` stretches of the keys that the last query sees."""
    asked = shared(QUERIES * DEPTH)
    scores = shared(QUERIES * GROUP)
    dot = stack(QUERIES)
    high = stack(QUERIES)
    total = stack(QUERIES)
    sums = stack(QUERIES * COLUMNS)
    for item in range(lo, hi):
        rest = item // parts
        part = item - rest * parts
        first_query = rest % blocks * QUERIES
        rest = rest // blocks
        head = rest % heads
        batch = rest // heads
        visible = i64(keys)
        if HAS_LENGTH:
            given = i64(load(length, batch * lb))
            visible = given
            if (given < 0) | (given > keys):
                visible = i64(0)
                if (lane() == 0) & (status[0] == 0):
                    status[0] = 3
                    status[1] = given
                    status[2] = site
                    status[3] = keys
        # query number s of the block sees the keys below limit + s, the last query all that is valid
        limit = visible
        end = visible
        if CAUSAL:
            limit = visible - queries + first_query + 1
            end = minimum(visible, limit + QUERIES - 1)
        step = maximum((end + parts - 1) // parts, 1) if PARTS else maximum(end, 1)
        start = part * step
        stop = minimum(start + step, end)
        q_row = batch * qb + head * qh + first_query * qs
        k_head = batch * kb + head // group * kh
        v_head = batch * vb + head // group * vh
        for e in range(lane(), QUERIES * DEPTH, GROUP):
            asked[e] = load(q, q_row + minimum(e // DEPTH, queries - 1 - first_query) * qs + e % DEPTH)
        for s in unroll(QUERIES):
            high[s] = T(-3.0e38)
            total[s] = T(0.0)
        for s in unroll(QUERIES * COLUMNS):
            sums[s] = T(0.0)
        barrier()
        for first in range(start, stop, GROUP):
            key = first + lane()
            for s in unroll(QUERIES):
                dot[s] = T(0.0)
            if key < stop:
                k_row = k_head + key * ks
                if FOURS:
                    for d in range(0, DEPTH, 4):
                        a0, a1, a2, a3 = load4(k, k_row + d)
                        for s in unroll(QUERIES):
                            dot[s] = rfma(a3, asked[s * DEPTH + d + 3], rfma(a2, asked[s * DEPTH + d + 2], rfma(
                                a1, asked[s * DEPTH + d + 1], rfma(a0, asked[s * DEPTH + d], dot[s]))))
                else:
                    for d in range(DEPTH):
                        a0 = load(k, k_row + d)
                        for s in unroll(QUERIES):
                            dot[s] = rfma(a0, asked[s * DEPTH + d], dot[s])
            for s in unroll(QUERIES):
                score = dot[s] * T(scale)
                if SOFTCAP:
                    score = T(softcap) * tanh(score / T(softcap))
                sees = key < stop
                if CAUSAL:
                    sees = key < minimum(stop, limit + s)
                top = group_max(select(sees, score, high[s]))
                shrink = exp(high[s] - top)
                e = select(sees, exp(score - top), T(0.0))
                scores[s * GROUP + lane()] = e
                high[s] = top
                total[s] = total[s] * shrink + e
                for c in unroll(COLUMNS):
                    sums[s * COLUMNS + c] = sums[s * COLUMNS + c] * shrink
            barrier()
            for j in range(lane() >> SHIFT, minimum(GROUP, stop - first), GROUP // LANES):
                v_row = v_head + (first + j) * vs
                for c in unroll(COLUMNS):
                    x = load(v, v_row + minimum((lane() & (LANES - 1)) + c * LANES, width - 1))
                    for s in unroll(QUERIES):
                        p = scores[s * GROUP + j]
                        # what a query does not see may be anything
                        sums[s * COLUMNS + c] = select(p != T(0.0), rfma(p, x, sums[s * COLUMNS + c]), sums[s * COLUMNS + c])
            barrier()
        for s in unroll(QUERIES):
            whole = group_sum(total[s])
            row = (batch * heads + head) * queries + first_query + s
            target = row * width
            norm = T(0.0)
            if PARTS:
                target = (row * parts + part) * (width + 2) + 2
                norm = T(1.0)
                if (lane() == 0) & (first_query + s < queries):
                    store(out, target - 2, high[s])
                    store(out, target - 1, whole)
            else:
                if minimum(stop, limit + s if CAUSAL else stop) > 0:
                    norm = T(1.0) / whole
            for c in unroll(COLUMNS):
                scores[lane()] = sums[s * COLUMNS + c]
                barrier()
                column = lane() + c * LANES
                if (lane() < LANES) & (column < width) & (first_query + s < queries):
                    sum_of = scores[lane()]
                    for j in range(1, GROUP // LANES):
                        sum_of = sum_of + scores[lane() + j * LANES]
                    store(out, target + column, sum_of * norm)
                barrier()


def join_attention(x: U, out, width: int, parts: int, lo, hi):  # type: ignore[valid-type]
    """One element of the result from its row's parts, each relative to its own largest score."""
    for item in range(lo, hi):
        row = item // width
        column = item - row * width + 2
        top = T(-3.0e38)
        for p in range(parts):
            at = (row * parts + p) * (width + 2)
            top = maximum(top, load(x, at))
        total = T(0.0)
        value = T(0.0)
        for p in range(parts):
            at = (row * parts + p) * (width + 2)
            grow = exp(load(x, at) - top)
            total = total + load(x, at + 1) * grow
            value = value + load(x, at + column) * grow
        if total != T(0.0):
            value = value / total
        store(out, item, value)


# ---------------------------------------------------------------- launching
def group_launch(inputs: Sequence[Operand], outputs: Sequence[Operand], attrs: Mapping[str, Any]) -> Launch:
    plain = attention_launch(inputs, outputs, attrs)
    q, k, v, *_ = inputs
    batch, heads, queries, depth = q.shape
    keys, width = v.shape[2:]
    assert isinstance(depth, int) and isinstance(width, int)
    compute = q.dtype.compute
    block = gpu.power_of_two(queries, 2 if compute == "f64" else QUERIES)
    size = max(gpu.power_of_two(keys, gpu.GROUP), min(gpu.GROUP, 64))
    lanes = gpu.power_of_two(width, size)
    blocks = ceil_div(queries, block)
    parts = gpu.parts_of(keys, batch * heads * blocks, gpu.GROUP)
    args = {**plain.args, "blocks": blocks, "parts": parts}
    bake = {**plain.bake, "shared": f"shared_{compute}", "PARTS": parts > 1,
            "FOURS": gpu.in_fours(k, depth, *k.layout.strides[:3]), "QUERIES": block, "DEPTH": depth, "LANES": lanes,
            "SHIFT": gpu.shift(lanes), "COLUMNS": -(-width // lanes), "GROUP": size}
    total = batch * heads * blocks * parts
    if parts == 1:
        return Launch(args, total, plain.cost, bake, group=size)
    rows = batch * heads * queries
    last = Launch({"width": width, "parts": parts}, rows * width, parts * 8)
    scratch = Aval((rows, parts, width + 2), dt.BY_NAME[compute])
    return Launch(args, total, plain.cost, bake, scratch, last, "join_attention", size)


def accepts(inputs: Sequence[Operand], attrs: Mapping[str, Any]) -> str | None:
    for name, operand in zip("qv", (inputs[0], inputs[2])):
        width = operand.shape[-1]
        if not isinstance(width, int) or not 1 <= width <= WIDEST:
            return f"the rows of {name} have {width} elements, not a known number from 1 to {WIDEST}"
    return attention_accepts(inputs, attrs)


attention.kernel(GPU, {"T": dt.FLOATS, "I": INDEX_TYPES, "U": dt.FLOATS}, launch=group_launch, strided=True,
                 accepts=accepts)(group_attention)
attention.kernel(GPU, {"T": dt.FLOATS, "U": (dt.f32, dt.f64)}, launch=group_launch)(join_attention)  # never chosen for the op
