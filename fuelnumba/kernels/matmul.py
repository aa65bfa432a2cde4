"""Matrix multiplication: BLAS for f32 and f64 matrices, our own loops for a single row (they read the weights once, at the
speed of memory) and for integers; half types are multiplied in f32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from ..core import dtypes as dt
from ..core.dims import Extent, same
from ..core.errors import DTypeError, ShapeError
from ..core.layout import Shape, collapse
from ..core.ops import CPU, Aval, Launch, Operand, fmt, op
from .generic import T, Word, load, store
from .lang import maximum, minimum, rfma, wrap_add, wrap_mul

PANEL_M = 512  # rows of a work item of a product; panels depend on shapes only, so results do not depend on threads
GEMV_ROWS, GEMV_COLUMNS, GEMV_PARTS = 16, 256, 8
MAX_BATCH = 2


def _infer(a: Aval, b: Aval) -> Aval:
    if a.rank < 2 or a.rank != b.rank:
        raise ShapeError(f"matmul() takes arrays of the same rank, at least 2, not {fmt(a.shape)} and {fmt(b.shape)}")
    if a.shape[-1] != b.shape[-2]:
        raise ShapeError(f"matmul() cannot multiply {fmt(a.shape)} by {fmt(b.shape)}: "
                         f"{a.shape[-1]} columns meet {b.shape[-2]} rows")
    if a.shape[:-2] != b.shape[:-2]:
        raise ShapeError(f"matmul() got batch shapes {fmt(a.shape[:-2])} and {fmt(b.shape[:-2])}")
    if a.dtype is not b.dtype:
        raise DTypeError(f"matmul() got mixed dtypes {a.dtype} and {b.dtype}")
    return Aval(a.shape[:-1] + (b.shape[-1],), a.dtype)


def _in_f32(build: Any, inputs: Any) -> Any:
    """Half types: the products and the sum in f32, rounded once."""
    wide = build.op("matmul", [build.op("cast", (x,), dtype=dt.f32) for x in inputs])
    return build.op("cast", (wide,), dtype=inputs[0].dtype)


def _samples() -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    r = np.random.default_rng(0)
    sizes = [((3, 4), (4, 5)), ((1, 7), (7, 33)), ((2, 3, 5), (2, 5, 4)), ((2, 0), (0, 3)), ((1, 1), (1, 1)),
             ((17, 65), (65, 31))]
    return [((r.integers(-4, 5, a).astype(float), r.integers(-4, 5, b).astype(float)), {}) for a, b in sizes]


matmul = op("matmul", "matmul", "a b", infer=_infer, domain="number", ref=np.matmul, decompose=_in_f32, samples=_samples,
            like="numpy.matmul, torch.matmul", args={"a": "(..., M, K) or (K,)", "b": "(..., K, N) or (K,)"},
            shapes="(..., M, N), the batch axes broadcast; without M or N where a or b has one axis",
            raises={"ShapeError": "the columns of a are not the rows of b, or the batch axes do not broadcast"},
            doc="a[..., M, K] @ b[..., K, N] -> [..., M, N]; batch axes broadcast, and a batch length of "
            "a may be a multiple of b's (grouped heads). Sums in f32 for half types; integers wrap")


# ------------------------------------------------------------------------------------------------ launching
def _batch(a: Operand, b: Operand) -> tuple[Shape, list[tuple[Extent, ...]]]:
    shape, strides = collapse(a.shape[:-2], [a.layout.strides[:-2], b.layout.strides[:-2]])
    pad = MAX_BATCH - len(shape)
    return (1,) * pad + shape, [(0,) * pad + s for s in strides]


def batch_args(a: Operand, b: Operand) -> dict[str, Extent]:
    (b0, b1), ((a_s0, a_s1), (b_s0, b_s1)) = _batch(a, b)
    return {"batch0": b0, "batch1": b1, "a_s0": a_s0, "a_s1": a_s1, "b_s0": b_s0, "b_s1": b_s1}


def batch_refusal(inputs: Sequence[Operand]) -> str | None:
    a, b = inputs
    shape, _ = collapse(a.shape[:-2], [a.layout.strides[:-2], b.layout.strides[:-2]])
    return f"batch axes {fmt(shape)} cannot be walked as {MAX_BATCH}" if len(shape) > MAX_BATCH else None


def is_unit(x: Operand, axis: int) -> bool:
    """Neighbours along an axis are neighbours in memory."""
    return same(x.layout.strides[axis], 1) or same(x.shape[axis], 1)


def _ceil_div(a: Extent, b: int) -> Extent:
    return (a + (b - 1)) // b


def _accepts_gemm(inputs: Sequence[Operand], attrs: Mapping[str, Any]) -> str | None:
    for name, x in zip("ab", inputs):
        if same(x.shape[-1], 0) or same(x.shape[-2], 0):
            continue
        if not (is_unit(x, -1) or is_unit(x, -2)):
            return f"BLAS needs rows or columns of {name} that lie together in memory"
        _, leading = _matrix(x)
        if leading < x.shape[-1 if is_unit(x, -1) else -2]:  # repeated, reversed, or overlapping like a sliding window
            return f"BLAS cannot walk the strides of {name}"
    return batch_refusal(inputs)


def _matrix(x: Operand) -> tuple[int, Extent]:
    """(1 when stored column by column, leading stride)."""
    rows, columns = x.layout.strides[-2:]
    if same(x.shape[-1], 0) or same(x.shape[-2], 0):
        return 0, x.shape[-1]  # nothing is read
    if is_unit(x, -1):
        return 0, x.shape[-1] if same(x.shape[-2], 1) else rows
    return 1, x.shape[-2] if same(x.shape[-1], 1) else columns


def _panel_width(n: Extent) -> int:
    """Columns of a work item: about eight items across, wide enough for BLAS to be at its best (measured)."""
    return min(max(-(-n // 256) * 32, 64), 1024) if isinstance(n, int) else 256


def _launch_gemm(inputs: Sequence[Operand], outputs: Sequence[Operand], attrs: Mapping[str, Any]) -> Launch:
    a, b = inputs
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    ta, lda = _matrix(a)
    tb, ldb = _matrix(b)
    args = batch_args(a, b) | {"m": m, "n": n, "k": k, "lda": lda, "ldb": ldb, "gemm": blas_address(a.dtype.name)}
    width = _panel_width(n)
    total = args["batch0"] * args["batch1"] * _ceil_div(m, PANEL_M) * _ceil_div(n, width)
    rows = min(m, PANEL_M) if isinstance(m, int) else 32
    bake = {"TA": ta, "TB": tb, "call": f"gemm_{a.dtype}", "at": f"at_{a.dtype}", "PM": PANEL_M}
    return Launch(args | {"pn": width}, total, rows * width * k * 2 // 5, bake)


@cache
def blas_address(dtype: str) -> int:
    """The C address of sgemm or dgemm, from the pointers SciPy publishes for Cython."""
    import ctypes

    from scipy.linalg import cython_blas

    capsule = cython_blas.__pyx_capi__["sgemm" if dtype == "f32" else "dgemm"]
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(pointer(capsule, name(capsule)))


def _is_row(inputs: Sequence[Operand]) -> str | None:
    a, _ = inputs
    if not same(a.shape[-2], 1):
        return "the left matrix has more than one row"
    return None if is_unit(a, -1) else "the elements of the row do not lie together in memory"


def accepts_gemv_rows(inputs: Sequence[Operand], attrs: Mapping[str, Any]) -> str | None:
    return _is_row(inputs) or (None if is_unit(inputs[1], -2) else "b is not stored column by column") or batch_refusal(inputs)


def accepts_gemv_columns(inputs: Sequence[Operand], attrs: Mapping[str, Any]) -> str | None:
    return _is_row(inputs) or (None if is_unit(inputs[1], -1) else "b is not stored row by row") or batch_refusal(inputs)


def _launch_gemv_rows(inputs: Sequence[Operand], outputs: Sequence[Operand], attrs: Mapping[str, Any]) -> Launch:
    a, b = inputs
    k, n = b.shape[-2:]
    args = batch_args(a, b) | {"n": n, "k": k, "ld": b.layout.strides[-1]}
    total = args["batch0"] * args["batch1"] * _ceil_div(n, GEMV_ROWS)
    return Launch(args, total, GEMV_ROWS * k * 3, {"BLOCK": GEMV_ROWS})  # bound by memory


def _launch_gemv_columns(inputs: Sequence[Operand], outputs: Sequence[Operand], attrs: Mapping[str, Any]) -> Launch:
    """A large matrix is divided by its rows, since memory is read fastest in long pieces; the parts are added at the end."""
    a, b = inputs
    k, n = b.shape[-2:]
    args = batch_args(a, b) | {"n": n, "k": k, "ld": b.layout.strides[-2]}
    batch = args["batch0"] * args["batch1"]
    large = isinstance(k, int) and isinstance(n, int) and n >= 1024 and k >= 64 and k * n >= 1 << 18
    block, parts = (4096, GEMV_PARTS) if large else (GEMV_COLUMNS, 1)
    total = batch * parts * _ceil_div(n, block)
    bake = {"BLOCK": block, "stack": f"stack_{a.dtype}"}
    args |= {"parts": parts, "depth": _ceil_div(k, parts)}
    if not large:
        return Launch(args, total, block * k * 3, bake)
    last = Launch({"n": n, "parts": parts}, batch * _ceil_div(n, GEMV_COLUMNS), GEMV_COLUMNS * parts * 3, {"BLOCK": GEMV_COLUMNS})
    return Launch(args, total, min(block, n) * (k // parts) * 3, bake, Aval((batch, parts, n), a.dtype), last, "add_parts")


def _launch_loops(inputs: Sequence[Operand], outputs: Sequence[Operand], attrs: Mapping[str, Any]) -> Launch:
    a, b = inputs
    (m, k), n = a.shape[-2:], b.shape[-1]
    args = batch_args(a, b) | {"m": m, "n": n, "k": k}
    for name, x in (("a", a), ("b", b)):
        args |= {f"{name}_row": x.layout.strides[-2], f"{name}_column": x.layout.strides[-1]}
    return Launch(args, args["batch0"] * args["batch1"] * m, n * k)


# ------------------------------------------------------------------------------------------------ kernels
# Tried in this order: the first that accepts the operands is used.
@matmul.kernel(CPU, (dt.f32, dt.f64), launch=_launch_gemv_rows, strided=True, accepts=accepts_gemv_rows)
def gemv_rows(a, b, out, batch0: int, batch1: int, a_s0: int, a_s1: int, b_s0: int, b_s1: int, n: int, k: int, ld: int,
              BLOCK: int, lo, hi):
    """out[j] = sum of a * row j of b's transpose: eight rows at a time, each read once. Memory is read faster in
    eight streams than in four."""
    blocks = (n + BLOCK - 1) // BLOCK
    for item in range(lo, hi):
        batch = item // blocks
        first = (item - batch * blocks) * BLOCK
        end = minimum(first + BLOCK, n)
        a0 = batch // batch1 * a_s0 + batch % batch1 * a_s1
        b0 = batch // batch1 * b_s0 + batch % batch1 * b_s1
        o0 = batch * n
        j = first
        while j + 8 <= end:
            p0 = b0 + j * ld
            p1 = p0 + ld
            p2 = p1 + ld
            p3 = p2 + ld
            p4 = p3 + ld
            p5 = p4 + ld
            p6 = p5 + ld
            p7 = p6 + ld
            s0 = T(0)
            s1 = T(0)
            s2 = T(0)
            s3 = T(0)
            s4 = T(0)
            s5 = T(0)
            s6 = T(0)
            s7 = T(0)
            for i in range(k):
                x = load(a, a0 + i)
                s0 = rfma(x, load(b, p0 + i), s0)
                s1 = rfma(x, load(b, p1 + i), s1)
                s2 = rfma(x, load(b, p2 + i), s2)
                s3 = rfma(x, load(b, p3 + i), s3)
                s4 = rfma(x, load(b, p4 + i), s4)
                s5 = rfma(x, load(b, p5 + i), s5)
                s6 = rfma(x, load(b, p6 + i), s6)
                s7 = rfma(x, load(b, p7 + i), s7)
            store(out, o0 + j, s0)
            store(out, o0 + j + 1, s1)
            store(out, o0 + j + 2, s2)
            store(out, o0 + j + 3, s3)
            store(out, o0 + j + 4, s4)
            store(out, o0 + j + 5, s5)
            store(out, o0 + j + 6, s6)
            store(out, o0 + j + 7, s7)
            j += 8
        while j < end:
            p = b0 + j * ld
            s0 = T(0)
            for i in range(k):
                s0 = rfma(load(a, a0 + i), load(b, p + i), s0)
            store(out, o0 + j, s0)
            j += 1


@matmul.kernel(CPU, (dt.f32, dt.f64), launch=_launch_gemv_columns, strided=True, accepts=accepts_gemv_columns)
def gemv_columns(a, b, out, batch0: int, batch1: int, a_s0: int, a_s1: int, b_s0: int, b_s1: int, n: int, k: int, ld: int,
                 parts: int, depth: int, BLOCK: int, stack: Word, lo, hi):
    """out = sum over i of a[i] * row i of b, for blocks of neighbouring columns; eight rows of b at a time. Each of `parts`
    takes `depth` of the rows and has its own row of out."""
    total = stack(BLOCK)
    blocks = (n + BLOCK - 1) // BLOCK
    for item in range(lo, hi):
        row = item // blocks
        first = (item - row * blocks) * BLOCK
        width = minimum(BLOCK, n - first)
        batch = row // parts
        i = (row - batch * parts) * depth
        end = minimum(i + depth, k)
        a0 = batch // batch1 * a_s0 + batch % batch1 * a_s1
        b0 = batch // batch1 * b_s0 + batch % batch1 * b_s1 + first
        o0 = row * n + first
        for j in range(width):
            total[j] = T(0)
        while i + 8 <= end:
            p0 = b0 + i * ld
            p1 = p0 + ld
            p2 = p1 + ld
            p3 = p2 + ld
            p4 = p3 + ld
            p5 = p4 + ld
            p6 = p5 + ld
            p7 = p6 + ld
            x0 = load(a, a0 + i)
            x1 = load(a, a0 + i + 1)
            x2 = load(a, a0 + i + 2)
            x3 = load(a, a0 + i + 3)
            x4 = load(a, a0 + i + 4)
            x5 = load(a, a0 + i + 5)
            x6 = load(a, a0 + i + 6)
            x7 = load(a, a0 + i + 7)
            for j in range(width):
                v = rfma(x0, load(b, p0 + j), total[j])
                v = rfma(x1, load(b, p1 + j), v)
                v = rfma(x2, load(b, p2 + j), v)
                v = rfma(x3, load(b, p3 + j), v)
                v = rfma(x4, load(b, p4 + j), v)
                v = rfma(x5, load(b, p5 + j), v)
                v = rfma(x6, load(b, p6 + j), v)
                total[j] = rfma(x7, load(b, p7 + j), v)
            i += 8
        while i < end:
            p = b0 + i * ld
            x0 = load(a, a0 + i)
            for j in range(width):
                total[j] = rfma(x0, load(b, p + j), total[j])
            i += 1
        for j in range(width):
            store(out, o0 + j, total[j])


@matmul.kernel(CPU, (dt.f32, dt.f64), launch=_launch_gemv_columns)  # of one array: never chosen for a product
def add_parts(x, out, n: int, parts: int, BLOCK: int, lo, hi):
    """out[row] = the sum of `parts` rows of x, in their order: what `gemv_columns` ends with."""
    blocks = (n + BLOCK - 1) // BLOCK
    for item in range(lo, hi):
        row = item // blocks
        first = (item - row * blocks) * BLOCK
        for j in range(first, minimum(first + BLOCK, n)):
            total = T(0)
            for p in range(parts):
                total = total + load(x, (row * parts + p) * n + j)
            store(out, row * n + j, total)


@matmul.kernel(CPU, (dt.f32, dt.f64), launch=_launch_gemm, strided=True, accepts=_accepts_gemm, blas=True)
def gemm_panels(a, b, out, gemm: int, batch0: int, batch1: int, a_s0: int, a_s1: int, b_s0: int, b_s1: int, m: int, n: int,
                k: int, lda: int, ldb: int, pn: int, PM: int, TA: bool, TB: bool, call: Word, at: Word, lo, hi):
    """One BLAS call per panel of the result. BLAS is column-major: it is asked for out.T = b.T @ a.T."""
    across = (n + pn - 1) // pn
    down = (m + PM - 1) // PM
    for item in range(lo, hi):
        batch = item // (across * down)
        rest = item - batch * (across * down)
        i = rest // across * PM
        j = rest % across * pn
        a0 = batch // batch1 * a_s0 + batch % batch1 * a_s1
        b0 = batch // batch1 * b_s0 + batch % batch1 * b_s1
        if TA:
            a0 = a0 + i
        else:
            a0 = a0 + i * lda
        if TB:
            b0 = b0 + j * ldb
        else:
            b0 = b0 + j
        call(gemm, TB, TA, minimum(pn, n - j), minimum(PM, m - i), k, at(b, b0), maximum(ldb, 1), at(a, a0), maximum(lda, 1),
             at(out, batch * m * n + i * n + j), maximum(n, 1))


@matmul.kernel(CPU, dt.INTS, launch=_launch_loops, strided=True, accepts=lambda inputs, attrs: batch_refusal(inputs))
def matmul_loops(a, b, out, batch0: int, batch1: int, a_s0: int, a_s1: int, b_s0: int, b_s1: int, m: int, n: int, k: int,
                 a_row: int, a_column: int, b_row: int, b_column: int, lo, hi):
    """One row of the result at a time, in the integers' own width."""
    for item in range(lo, hi):
        batch = item // m
        a0 = batch // batch1 * a_s0 + batch % batch1 * a_s1 + (item - batch * m) * a_row
        b0 = batch // batch1 * b_s0 + batch % batch1 * b_s1
        o0 = item * n
        for j in range(n):
            store(out, o0 + j, T(0))
        for i in range(k):
            x = load(a, a0 + i * a_column)
            p = b0 + i * b_row
            for j in range(n):
                store(out, o0 + j, wrap_add(load(out, o0 + j), wrap_mul(x, load(b, p + j * b_column))))
