"""Matrix multiplication by groups of threads, attached beside the CPU's kernels in `matmul`.

`group_tiles` makes a tile of the result in registers, from slices of both matrices in shared arrays; half types are widened on
the way there, and summed in f32. A single row times a matrix is bound by memory, and has two kernels of its own.
`matmul_each` gives each element of the result to a thread, for integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fuelnumba.core import dtypes as dt
from fuelnumba.core.dims import Extent
from fuelnumba.core.ops import GPU, Aval, Launch, Operand
from fuelnumba.kernels import gpu
from fuelnumba.kernels.cooperative import barrier, lane, load4, unroll
from fuelnumba.kernels.generic import T, U, Word, ceil_div, load, store
from fuelnumba.kernels.lang import i64, minimum, rfma, select, wrap_add, wrap_mul
from fuelnumba.kernels.matmul import accepts_gemv_columns, accepts_gemv_rows, batch_args, batch_refusal, is_unit, matmul

ACROSS = 32  # lanes side by side over neighbouring columns
TILES = 132  # as many tiles keep a large device busy


# ---------------------------------------------------------------- kernels
def group_gemv_rows(a, b, out, batch0: int, batch1: int, a_s0: int, a_s1: int, b_s0: int, b_s1: int, n: int, k: int, ld: int,
                    rows: int, shared: Word, GROUP: int, LANES: int, SHIFT: int, FOURS: bool, lo, hi):
    """out[j] = sum of a * row j of b's transpose, each by LANES lanes, which read neighbouring elements."""
    held = shared(GROUP)
    for item in range(lo, hi):
        row = item * (GROUP // LANES) + (lane() >> SHIFT)
        mine = lane() & (LANES - 1)
        total = T(0)
        if row < rows:
            batch = row // n
            p = batch // batch1 * a_s0 + batch % batch1 * a_s1
            q = batch // batch1 * b_s0 + batch % batch1 * b_s1 + (row - batch * n) * ld
            second = T(0)
            if FOURS:
                i = i64(mine * 4)
                while i + LANES * 4 < k:  # four loads under way at once
                    a0, a1, a2, a3 = load4(a, p + i)
                    b0, b1, b2, b3 = load4(b, q + i)
                    c0, c1, c2, c3 = load4(a, p + i + LANES * 4)
                    d0, d1, d2, d3 = load4(b, q + i + LANES * 4)
                    total = rfma(a3, b3, rfma(a2, b2, rfma(a1, b1, rfma(a0, b0, total))))
                    second = rfma(c3, d3, rfma(c2, d2, rfma(c1, d1, rfma(c0, d0, second))))
                    i += LANES * 8
                if i < k:
                    a0, a1, a2, a3 = load4(a, p + i)
                    b0, b1, b2, b3 = load4(b, q + i)
                    total = rfma(a3, b3, rfma(a2, b2, rfma(a1, b1, rfma(a0, b0, total))))
            else:
                i = i64(mine)
                while i + LANES < k:
                    a0 = load(a, p + i)
                    b0 = load(b, q + i)
                    a1 = load(a, p + i + LANES)
                    b1 = load(b, q + i + LANES)
                    total = rfma(a0, b0, total)
                    second = rfma(a1, b1, second)
                    i += LANES * 2
                if i < k:
                    total = rfma(load(a, p + i), load(b, q + i), total)
            total = total + second
        held[lane()] = total
        width = LANES // 2
        while width > 0:
            barrier()
            if mine < width:
                held[lane()] = held[lane()] + held[lane() + width]
            width = width >> 1
        if (mine == 0) & (row < rows):
            store(out, row, held[lane()])


def group_gemv_columns(a, b, out: U, batch0: int, batch1: int, a_s0: int, a_s1: int, b_s0: int,  # type: ignore[valid-type]
                       b_s1: int, n: int, k: int, ld: int, blocks: int, parts: int, depth: int, shared: Word, GROUP: int,
                       LANES: int, SHIFT: int, FOURS: bool, lo, hi):
    """out = sum over i of a[i] * row i of b: LANES lanes side by side, one or four columns each; slices of the group take every
    other row. Each of `parts` takes `depth` of the rows and has its own row of out."""
    held = shared(GROUP * 4)
    for item in range(lo, hi):
        row = item // blocks
        batch = row // parts
        part = lane() >> SHIFT
        column = (item - row * blocks) * LANES + (lane() & (LANES - 1))
        if FOURS:
            column = column * 4
        i = (row - batch * parts) * depth + part
        stop = minimum(i - part + depth, k)
        p = batch // batch1 * a_s0 + batch % batch1 * a_s1
        q = batch // batch1 * b_s0 + batch % batch1 * b_s1 + column
        s0 = T(0)
        s1 = T(0)
        s2 = T(0)
        s3 = T(0)
        if column < n:
            if FOURS:
                while i + GROUP // LANES * 3 < stop:
                    x0 = load(a, p + i)
                    x1 = load(a, p + i + GROUP // LANES)
                    x2 = load(a, p + i + GROUP // LANES * 2)
                    x3 = load(a, p + i + GROUP // LANES * 3)
                    a0, b0, c0, d0 = load4(b, q + i * ld)
                    a1, b1, c1, d1 = load4(b, q + (i + GROUP // LANES) * ld)
                    a2, b2, c2, d2 = load4(b, q + (i + GROUP // LANES * 2) * ld)
                    a3, b3, c3, d3 = load4(b, q + (i + GROUP // LANES * 3) * ld)
                    s0 = rfma(x3, a3, rfma(x2, a2, rfma(x1, a1, rfma(x0, a0, s0))))
                    s1 = rfma(x3, b3, rfma(x2, b2, rfma(x1, b1, rfma(x0, b0, s1))))
                    s2 = rfma(x3, c3, rfma(x2, c2, rfma(x1, c1, rfma(x0, c0, s2))))
                    s3 = rfma(x3, d3, rfma(x2, d2, rfma(x1, d1, rfma(x0, d0, s3))))
                    i += GROUP // LANES * 4
                while i < stop:
                    x0 = load(a, p + i)
                    a0, b0, c0, d0 = load4(b, q + i * ld)
                    s0 = rfma(x0, a0, s0)
                    s1 = rfma(x0, b0, s1)
                    s2 = rfma(x0, c0, s2)
                    s3 = rfma(x0, d0, s3)
                    i += GROUP // LANES
            else:
                while i < stop:
                    s0 = rfma(load(a, p + i), load(b, q + i * ld), s0)
                    i += GROUP // LANES
        held[lane()] = s0
        if FOURS:
            held[GROUP + lane()] = s1
            held[GROUP * 2 + lane()] = s2
            held[GROUP * 3 + lane()] = s3
        width = GROUP // LANES // 2
        while width > 0:
            barrier()
            if part < width:
                for c in unroll(4 if FOURS else 1):
                    held[GROUP * c + lane()] = held[GROUP * c + lane()] + held[GROUP * c + lane() + width * LANES]
            width = width >> 1
        if (part == 0) & (column < n):
            for c in unroll(4 if FOURS else 1):
                store(out, row * n + column + c, held[GROUP * c + lane()])


def add_parts_each(x: U, out, n: int, parts: int, lo, hi):  # type: ignore[valid-type]
    """out[row] = the sum of `parts` rows of x, in their order, a thread to an element."""
    for item in range(lo, hi):
        row = item // n
        p = row * parts * n + (item - row * n)
        total = load(x, p)
        for i in range(1, parts):
            total = total + load(x, p + i * n)
        store(out, item, total)


def group_tiles(a, b, out, batch0: int, batch1: int, a_s0: int, a_s1: int, b_s0: int, b_s1: int, m: int, n: int, k: int,
                a_row: int, a_column: int, b_row: int, b_column: int, down: int, across: int,
                stack: Word, shared: Word, place: Word, GROUP: int, SIDE: int, SHIFT: int, TM: int, TN: int, M_SHIFT: int,
                N_SHIFT: int, A_BY_ROWS: bool, B_BY_ROWS: bool, lo, hi):
    """SIDE * SIDE threads make SIDE * TM rows of SIDE * TN elements, TM * TN each: those SIDE apart, so that neighbours store
    to neighbours. Slices of 8 of the sum go from registers into two shared buffers by turns: while one is multiplied, the
    next is on its way. Places past the edge are read at the edge, and not stored; past the end of the sum, zeros are added.
    """
    left = shared(16 * (SIDE * TM + 4))  # 4 more, so that lanes that store along k meet in no bank
    right = shared(16 * (SIDE * TN + 4))
    next_a = stack(SIDE * TM * 8 // GROUP)
    next_b = stack(SIDE * TN * 8 // GROUP)
    x = stack(TM)
    y = stack(TN)
    acc = stack(TM * TN)
    for item in range(lo, hi):
        batch = item // (down * across)
        rest = item - batch * (down * across)
        row0 = rest // across * (SIDE * TM)
        column0 = rest % across * (SIDE * TN)
        a0 = batch // batch1 * a_s0 + batch % batch1 * a_s1
        b0 = batch // batch1 * b_s0 + batch % batch1 * b_s1
        ty = lane() >> SHIFT
        tx = lane() & (SIDE - 1)
        for i in unroll(TM * TN):
            acc[i] = T(0)
        steps = (k + 7) >> 3
        for t in range(steps + minimum(steps, 1)):
            half = (t & 1) * 8
            for r in unroll(SIDE * TM * 8 // GROUP):
                e = lane() + r * GROUP
                if A_BY_ROWS:
                    i = e >> 3
                    d = e & 7
                else:
                    i = e & (SIDE * TM - 1)
                    d = e >> M_SHIFT
                at = place(minimum(row0 + i, m - 1)) * place(a_row) + place(minimum(t * 8 + d, k - 1)) * place(a_column)
                next_a[r] = select(t * 8 + d < k, load(a, a0 + at), T(0))
            for r in unroll(SIDE * TN * 8 // GROUP):
                e = lane() + r * GROUP
                if B_BY_ROWS:
                    j = e & (SIDE * TN - 1)
                    d = e >> N_SHIFT
                else:
                    j = e >> 3
                    d = e & 7
                at = place(minimum(t * 8 + d, k - 1)) * place(b_row) + place(minimum(column0 + j, n - 1)) * place(b_column)
                next_b[r] = select(t * 8 + d < k, load(b, b0 + at), T(0))
            if t > 0:
                for d in range(8):
                    p = (8 - half + d) * (SIDE * TM + 4) + ty
                    q = (8 - half + d) * (SIDE * TN + 4) + tx
                    for i in unroll(TM):
                        x[i] = left[p + i * SIDE]
                    for j in unroll(TN):
                        y[j] = right[q + j * SIDE]
                    for i in unroll(TM):
                        for j in unroll(TN):
                            acc[i * TN + j] = rfma(x[i], y[j], acc[i * TN + j])
            for r in unroll(SIDE * TM * 8 // GROUP):
                e = lane() + r * GROUP
                if A_BY_ROWS:
                    left[(half + (e & 7)) * (SIDE * TM + 4) + (e >> 3)] = next_a[r]
                else:
                    left[(half + (e >> M_SHIFT)) * (SIDE * TM + 4) + (e & (SIDE * TM - 1))] = next_a[r]
            for r in unroll(SIDE * TN * 8 // GROUP):
                e = lane() + r * GROUP
                if B_BY_ROWS:
                    right[(half + (e >> N_SHIFT)) * (SIDE * TN + 4) + (e & (SIDE * TN - 1))] = next_b[r]
                else:
                    right[(half + (e & 7)) * (SIDE * TN + 4) + (e >> 3)] = next_b[r]
            barrier()
        for i in unroll(TM):
            row = row0 + ty + i * SIDE
            if row < m:
                for j in unroll(TN):
                    column = column0 + tx + j * SIDE
                    if column < n:
                        store(out, (batch * m + row) * n + column, acc[i * TN + j])


def matmul_each(a, b, out, batch0: int, batch1: int, a_s0: int, a_s1: int, b_s0: int, b_s1: int, m: int, n: int, k: int,
                a_row: int, a_column: int, b_row: int, b_column: int, WHOLE: bool, lo, hi):
    """One element of the result; integers in their own width."""
    for item in range(lo, hi):
        line = item // n
        batch = line // m
        p = batch // batch1 * a_s0 + batch % batch1 * a_s1 + (line - batch * m) * a_row
        q = batch // batch1 * b_s0 + batch % batch1 * b_s1 + (item - line * n) * b_column
        total = T(0)
        for i in range(k):
            if WHOLE:
                total = wrap_add(total, wrap_mul(load(a, p + i * a_column), load(b, q + i * b_row)))
            else:
                total = rfma(load(a, p + i * a_column), load(b, q + i * b_row), total)
        store(out, item, total)


# ---------------------------------------------------------------- launching
def launch_gemv_rows(inputs: Sequence[Operand], outputs: Sequence[Operand], attrs: Mapping[str, Any]) -> Launch:
    a, b = inputs
    k, n = b.shape[-2:]
    args = batch_args(a, b) | {"n": n, "k": k, "ld": b.layout.strides[-1]}
    args["rows"] = args["batch0"] * args["batch1"] * n
    fours = gpu.in_fours(a, k, args["a_s0"], args["a_s1"]) and gpu.in_fours(b, args["ld"], args["b_s0"], args["b_s1"])
    lanes = gpu.row_lanes(k, args["rows"], 16 if fours else 4)
    bake = {"shared": f"shared_{a.dtype.compute}", "GROUP": gpu.GROUP, "LANES": lanes, "SHIFT": gpu.shift(lanes), "FOURS": fours}
    return Launch(args, ceil_div(args["rows"], gpu.GROUP // lanes), k * (gpu.GROUP // lanes), bake, group=gpu.GROUP)


def launch_gemv_columns(inputs: Sequence[Operand], outputs: Sequence[Operand], attrs: Mapping[str, Any]) -> Launch:
    a, b = inputs
    k, n = b.shape[-2:]
    args = batch_args(a, b) | {"n": n, "k": k, "ld": b.layout.strides[-2]}
    batch = args["batch0"] * args["batch1"]
    fours = gpu.in_fours(b, n, args["ld"], args["b_s0"], args["b_s1"])
    across = n // 4 if fours else n
    lanes = gpu.power_of_two(across, min(ACROSS, gpu.GROUP))
    args["blocks"] = ceil_div(across, lanes)
    parts = gpu.parts_of(k, batch * args["blocks"], 8 * (gpu.GROUP // lanes))
    args |= {"parts": parts, "depth": ceil_div(k, parts)}
    bake = {"shared": f"shared_{a.dtype.compute}", "GROUP": gpu.GROUP, "LANES": lanes, "SHIFT": gpu.shift(lanes), "FOURS": fours}
    total = batch * parts * args["blocks"]
    if parts == 1:
        return Launch(args, total, k * lanes, bake, group=gpu.GROUP)
    last = Launch({"n": n, "parts": parts}, batch * n, parts)
    scratch = Aval((batch, parts, n), dt.BY_NAME[a.dtype.compute])
    return Launch(args, total, k * lanes, bake, scratch, last, "add_parts_each", gpu.GROUP)


def _strides(a: Operand, b: Operand) -> dict[str, Extent]:
    return {f"{name}_{way}": x.layout.strides[axis] for name, x in (("a", a), ("b", b))
            for way, axis in (("row", -2), ("column", -1))}


def launch_tiles(inputs: Sequence[Operand], outputs: Sequence[Operand], attrs: Mapping[str, Any]) -> Launch:
    a, b = inputs
    (m, k), n = a.shape[-2:], b.shape[-1]
    args = batch_args(a, b) | {"m": m, "n": n, "k": k} | _strides(a, b)
    batch = args["batch0"] * args["batch1"]
    side = 1 << (gpu.shift(gpu.GROUP) // 2)
    tm, tn = tile(m, n, batch, side, 4 if a.dtype is dt.f64 else 8)
    args |= {"down": ceil_div(m, side * tm), "across": ceil_div(n, side * tn)}
    bake = {"stack": f"stack_{a.dtype.compute}", "shared": f"shared_{a.dtype.compute}",
            "place": "i32" if _is_near(a) and _is_near(b) else "i64", "GROUP": side * side, "SIDE": side,
            "SHIFT": gpu.shift(side), "TM": tm, "TN": tn, "M_SHIFT": gpu.shift(side * tm), "N_SHIFT": gpu.shift(side * tn),
            "A_BY_ROWS": is_unit(a, -1), "B_BY_ROWS": is_unit(b, -1)}
    return Launch(args, batch * args["down"] * args["across"], k * (side * tm), bake, group=side * side)


def tile(m: Extent, n: Extent, batch: Extent, side: int, most: int) -> tuple[int, int]:
    """Rows and columns of a thread: many, which save memory's time, unless too few tiles are left for the device."""
    if not (isinstance(m, int) and isinstance(n, int)):
        return min(4, most), min(4, most)
    tm, tn = (min(max(gpu.power_of_two(-(-length // side), most), 2), most) for length in (m, n))
    known = batch if isinstance(batch, int) else 1
    while tm * tn > 4 and known * -(-m // (side * tm)) * -(-n // (side * tn)) < TILES:
        tm, tn = (tm // 2, tn) if tm >= tn else (tm, tn // 2)
    return tm, tn


def _is_near(x: Operand) -> bool:
    """Whether places within a matrix of x fit 32 bits."""
    spans = [(n - 1) * abs(s) for n, s in zip(x.shape[-2:], x.layout.strides[-2:]) if isinstance(n, int) and isinstance(s, int)]
    return len(spans) == 2 and sum(spans) < 1 << 31


def launch_each(inputs: Sequence[Operand], outputs: Sequence[Operand], attrs: Mapping[str, Any]) -> Launch:
    a, b = inputs
    (m, k), n = a.shape[-2:], b.shape[-1]
    args = batch_args(a, b) | {"m": m, "n": n, "k": k} | _strides(a, b)
    return Launch(args, args["batch0"] * args["batch1"] * m * n, k, {"WHOLE": a.dtype.is_integer})


def accepts_any(inputs: Sequence[Operand], attrs: Mapping[str, Any]) -> str | None:
    return batch_refusal(inputs)


# Tried in this order: the first that accepts the operands is used.
WIDE = (dt.f32, dt.f64)
matmul.kernel(GPU, dt.FLOATS, launch=launch_gemv_rows, strided=True, accepts=accepts_gemv_rows)(group_gemv_rows)
matmul.kernel(GPU, {"T": dt.FLOATS, "U": dt.FLOATS}, launch=launch_gemv_columns, strided=True,
              accepts=accepts_gemv_columns)(group_gemv_columns)
matmul.kernel(GPU, dt.FLOATS, launch=launch_tiles, strided=True, accepts=accepts_any)(group_tiles)
matmul.kernel(GPU, dt.INTS, launch=launch_each, strided=True, accepts=accepts_any)(matmul_each)
matmul.kernel(GPU, {"T": dt.FLOATS, "U": WIDE}, launch=launch_each)(add_parts_each)  # of one array: never chosen for a product
