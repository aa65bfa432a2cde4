"""Normalisations by groups of threads, a group to a row, attached beside the CPU's kernels in `norm`.

A row that fits is HELD: each lane has ITEMS times four of its elements in registers, fours of neighbours where they lie aligned,
so that memory is read once. Lanes past the end read the last elements again, so that loads need no test. Longer rows are read
anew for each step. Sums are made in the computation type: a lane has few terms, and lanes meet in a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fuelnumba.core import dtypes as dt
from fuelnumba.core.dims import product
from fuelnumba.core.ops import GPU, Launch, Operand
from fuelnumba.kernels import gpu
from fuelnumba.kernels.cooperative import group_max, group_sum, lane, load4, store4, unroll
from fuelnumba.kernels.generic import T, Word, exp, load, log, store
from fuelnumba.kernels.lang import maximum, minimum, radd, select, sqrt
from fuelnumba.kernels.norm import layer_norm, log_softmax, rms_norm, softmax

ITEMS = 16  # most fours of a lane that stay in registers
LEAST = 32  # threads of a group at least: a device runs so many in step


# ---------------------------------------------------------------- kernels
def group_softmax(x, out, cols: int, stack: Word, LOG: bool, HELD: bool, ITEMS: int, FOURS: bool, GROUP: int, lo, hi):
    """exp(x - max) / sum, or (LOG) its logarithm."""
    if HELD:
        held = stack(ITEMS * 4)
    for row in range(lo, hi):
        base = row * cols
        high = load(x, base)
        total = T(0.0)
        if HELD:
            for i in unroll(ITEMS):
                if FOURS:
                    a, b, c, d = load4(x, base + minimum((lane() + i * GROUP) * 4, cols - 4))
                    held[i * 4] = a
                    held[i * 4 + 1] = b
                    held[i * 4 + 2] = c
                    held[i * 4 + 3] = d
                else:
                    for k in unroll(4):
                        held[i * 4 + k] = load(x, base + minimum(lane() + (i * 4 + k) * GROUP, cols - 1))
            for n in unroll(ITEMS * 4):
                high = maximum(high, held[n])
            high = group_max(high)
            for n in unroll(ITEMS * 4):
                e = exp(held[n] - high)
                if LOG:
                    held[n] = held[n] - high
                else:
                    held[n] = e
                if FOURS:
                    total = radd(total, select((lane() + n // 4 * GROUP) * 4 < cols, e, T(0.0)))
                else:
                    total = radd(total, select(lane() + n * GROUP < cols, e, T(0.0)))
        else:
            for j in range(lane(), cols, GROUP):
                high = maximum(high, load(x, base + j))
            high = group_max(high)
            for first in range(0, cols, GROUP * 64):
                part = T(0.0)
                for j in range(first + lane(), minimum(first + GROUP * 64, cols), GROUP):
                    part = radd(part, exp(load(x, base + j) - high))
                total = total + part
        total = group_sum(total)
        shift = T(0.0)
        scale = T(1.0)
        if LOG:
            shift = log(total)
        else:
            scale = T(1.0) / total
        if HELD:
            for i in unroll(ITEMS):
                if FOURS:
                    if (lane() + i * GROUP) * 4 < cols:
                        store4(out, base + (lane() + i * GROUP) * 4, held[i * 4] * scale - shift, held[i * 4 + 1] * scale - shift,
                               held[i * 4 + 2] * scale - shift, held[i * 4 + 3] * scale - shift)
                else:
                    for k in unroll(4):
                        if lane() + (i * 4 + k) * GROUP < cols:
                            store(out, base + lane() + (i * 4 + k) * GROUP, held[i * 4 + k] * scale - shift)
        else:
            for j in range(lane(), cols, GROUP):
                v = load(x, base + j) - high
                if LOG:
                    store(out, base + j, v - shift)
                else:
                    store(out, base + j, exp(v) * scale)


def group_layer_norm(x, weight, bias, out, cols: int, eps: float, stack: Word, HAS_WEIGHT: bool, HAS_BIAS: bool, HELD: bool,
                     ITEMS: int, FOURS: bool, GROUP: int, lo, hi):
    """(x - mean) / sqrt(var + eps) * weight + bias. The mean first, then the deviations from it."""
    if HELD:
        held = stack(ITEMS * 4)
    for row in range(lo, hi):
        base = row * cols
        size = T(cols)
        mean = T(0.0)
        rest = T(0.0)
        squares = T(0.0)
        if HELD:
            for i in unroll(ITEMS):
                if FOURS:
                    a, b, c, d = load4(x, base + minimum((lane() + i * GROUP) * 4, cols - 4))
                    held[i * 4] = a
                    held[i * 4 + 1] = b
                    held[i * 4 + 2] = c
                    held[i * 4 + 3] = d
                else:
                    for k in unroll(4):
                        held[i * 4 + k] = load(x, base + minimum(lane() + (i * 4 + k) * GROUP, cols - 1))
            for n in unroll(ITEMS * 4):
                if FOURS:
                    mean = radd(mean, select((lane() + n // 4 * GROUP) * 4 < cols, held[n], T(0.0)))
                else:
                    mean = radd(mean, select(lane() + n * GROUP < cols, held[n], T(0.0)))
            mean = group_sum(mean) / size
            for n in unroll(ITEMS * 4):
                held[n] = held[n] - mean
                v = held[n]
                if FOURS:
                    v = select((lane() + n // 4 * GROUP) * 4 < cols, v, T(0.0))
                else:
                    v = select(lane() + n * GROUP < cols, v, T(0.0))
                rest = radd(rest, v)
                squares = radd(squares, v * v)
        else:
            for first in range(0, cols, GROUP * 64):
                part = T(0.0)
                for j in range(first + lane(), minimum(first + GROUP * 64, cols), GROUP):
                    part = radd(part, load(x, base + j))
                mean = mean + part
            mean = group_sum(mean) / size
            for first in range(0, cols, GROUP * 64):
                part = T(0.0)
                square = T(0.0)
                for j in range(first + lane(), minimum(first + GROUP * 64, cols), GROUP):
                    v = load(x, base + j) - mean
                    part = radd(part, v)
                    square = radd(square, v * v)
                rest = rest + part
                squares = squares + square
        squares = group_sum(squares) / size
        # what rounding the mean left over: tiny, so that the difference of squares cannot cancel
        rest = group_sum(rest) / size
        squares = maximum(squares - rest * rest, T(0.0))
        scale = T(1.0) / sqrt(squares + T(eps))
        if HELD:
            for i in unroll(ITEMS):
                for n in unroll(i * 4, i * 4 + 4):
                    held[n] = (held[n] - rest) * scale
                if FOURS:
                    j = (lane() + i * GROUP) * 4
                    if j < cols:
                        if HAS_WEIGHT:
                            a, b, c, d = load4(weight, j)
                            held[i * 4] = held[i * 4] * a
                            held[i * 4 + 1] = held[i * 4 + 1] * b
                            held[i * 4 + 2] = held[i * 4 + 2] * c
                            held[i * 4 + 3] = held[i * 4 + 3] * d
                        if HAS_BIAS:
                            a, b, c, d = load4(bias, j)
                            held[i * 4] = held[i * 4] + a
                            held[i * 4 + 1] = held[i * 4 + 1] + b
                            held[i * 4 + 2] = held[i * 4 + 2] + c
                            held[i * 4 + 3] = held[i * 4 + 3] + d
                        store4(out, base + j, held[i * 4], held[i * 4 + 1], held[i * 4 + 2], held[i * 4 + 3])
                else:
                    for k in unroll(4):
                        j = lane() + (i * 4 + k) * GROUP
                        if j < cols:
                            y = held[i * 4 + k]
                            if HAS_WEIGHT:
                                y = y * load(weight, j)
                            if HAS_BIAS:
                                y = y + load(bias, j)
                            store(out, base + j, y)
        else:
            for j in range(lane(), cols, GROUP):
                y = (load(x, base + j) - mean - rest) * scale
                if HAS_WEIGHT:
                    y = y * load(weight, j)
                if HAS_BIAS:
                    y = y + load(bias, j)
                store(out, base + j, y)


def group_rms_norm(x, weight, out, cols: int, eps: float, stack: Word, HAS_WEIGHT: bool, HELD: bool, ITEMS: int,
                   FOURS: bool, GROUP: int, lo, hi):
    """x / sqrt(mean(x**2) + eps) * weight."""
    if HELD:
        held = stack(ITEMS * 4)
    for row in range(lo, hi):
        base = row * cols
        squares = T(0.0)
        if HELD:
            for i in unroll(ITEMS):
                if FOURS:
                    a, b, c, d = load4(x, base + minimum((lane() + i * GROUP) * 4, cols - 4))
                    held[i * 4] = a
                    held[i * 4 + 1] = b
                    held[i * 4 + 2] = c
                    held[i * 4 + 3] = d
                else:
                    for k in unroll(4):
                        held[i * 4 + k] = load(x, base + minimum(lane() + (i * 4 + k) * GROUP, cols - 1))
            for n in unroll(ITEMS * 4):
                v = held[n]
                if FOURS:
                    v = select((lane() + n // 4 * GROUP) * 4 < cols, v, T(0.0))
                else:
                    v = select(lane() + n * GROUP < cols, v, T(0.0))
                squares = radd(squares, v * v)
        else:
            for first in range(0, cols, GROUP * 64):
                square = T(0.0)
                for j in range(first + lane(), minimum(first + GROUP * 64, cols), GROUP):
                    v = load(x, base + j)
                    square = radd(square, v * v)
                squares = squares + square
        squares = group_sum(squares) / T(cols)
        scale = T(1.0) / sqrt(squares + T(eps))
        if HELD:
            for i in unroll(ITEMS):
                for n in unroll(i * 4, i * 4 + 4):
                    held[n] = held[n] * scale
                if FOURS:
                    j = (lane() + i * GROUP) * 4
                    if j < cols:
                        if HAS_WEIGHT:
                            a, b, c, d = load4(weight, j)
                            held[i * 4] = held[i * 4] * a
                            held[i * 4 + 1] = held[i * 4 + 1] * b
                            held[i * 4 + 2] = held[i * 4 + 2] * c
                            held[i * 4 + 3] = held[i * 4 + 3] * d
                        store4(out, base + j, held[i * 4], held[i * 4 + 1], held[i * 4 + 2], held[i * 4 + 3])
                else:
                    for k in unroll(4):
                        j = lane() + (i * 4 + k) * GROUP
                        if j < cols:
                            y = held[i * 4 + k]
                            if HAS_WEIGHT:
                                y = y * load(weight, j)
                            store(out, base + j, y)
        else:
            for j in range(lane(), cols, GROUP):
                y = load(x, base + j) * scale
                if HAS_WEIGHT:
                    y = y * load(weight, j)
                store(out, base + j, y)


# ---------------------------------------------------------------- launching
def row_launch(**flags: bool) -> Callable[..., Launch]:
    """A group for each row of x, of as many threads as a row has fours."""

    def launch(inputs: Sequence[Operand], outputs: Sequence[Operand], attrs: Mapping[str, Any]) -> Launch:
        x = inputs[0]
        cols = x.shape[-1]
        fours = all(gpu.in_fours(operand, cols) for operand in inputs)
        size = max(gpu.power_of_two(cols if isinstance(cols, int) and not fours else cols // 4, gpu.GROUP),
                   min(LEAST, gpu.GROUP))
        items = -(-cols // (size * 4)) if isinstance(cols, int) else ITEMS + 1
        bake: dict[str, Any] = {"stack": f"stack_{x.dtype.compute}", "HELD": items <= ITEMS,
                                "ITEMS": min(items, ITEMS), "FOURS": fours and items <= ITEMS, "GROUP": size,
                                "HAS_WEIGHT": len(inputs) > 1, "HAS_BIAS": len(inputs) > 2, **flags}
        args = {"cols": cols} | {k: v for k, v in attrs.items() if k == "eps"}
        rows = product(x.shape[:-1])
        return Launch(args, 0 if isinstance(cols, int) and cols == 0 else rows, cols * 8, bake, group=size)

    return launch


softmax.kernel(GPU, dt.FLOATS, launch=row_launch(LOG=False))(group_softmax)
log_softmax.kernel(GPU, dt.FLOATS, launch=row_launch(LOG=True))(group_softmax)
layer_norm.kernel(GPU, dt.FLOATS, launch=row_launch())(group_layer_norm)
rms_norm.kernel(GPU, dt.FLOATS, launch=row_launch())(group_rms_norm)
