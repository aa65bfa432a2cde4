"""Attention (causal or full, grouped heads, over a buffer with a run-time length) and rotary positions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fuelnumba.core import dtypes as dt
from fuelnumba.core.dims import Extent, product, same
from fuelnumba.core.errors import ArgumentError, DTypeError, ShapeError
from fuelnumba.core.layout import collapse
from fuelnumba.core.ops import CPU, Attr, Aval, Bool, Float, Launch, Operand, check_number, fmt, op
from fuelnumba.kernels.generic import I, T, Word, exp, load, numbered, pad, store, tanh, upcast
from fuelnumba.kernels.index import INDEX_TYPES
from fuelnumba.kernels.lang import f64, fault, i64, maximum, radd, rfma, select


# ---------------------------------------------------------------- attention
def attention_rows(q, k, v, length: I, out, heads: int, group: int, queries: int, keys: int, depth: int,
                   width: int,
                   qb: int, qh: int, qs: int, kb: int, kh: int, ks: int, vb: int, vh: int, vs: int, lb: int,
                   scale: float, softcap: float, stack: Word, CAUSAL: bool, HAS_LENGTH: bool, SOFTCAP: bool,
                   status, site, lo, hi):
    """One query of one head per work item, by online softmax over blocks of 64 keys: `high` is the largest
    score so far, `total` the sum of exp(score - high), `sums` that of exp(score - high) * v. Rows wider than
    256 go 256 columns at a time. Keys that are not visible are not read. q, k, v have strides for batch, head
    and row; their rows are contiguous.
    """
    scores = stack(64)
    sums = stack(256)
    for item in range(lo, hi):
        query = item % queries
        rest = item // queries
        head = rest % heads
        batch = rest // heads
        visible = i64(keys)
        if HAS_LENGTH:
            given = i64(load(length, batch * lb))
            visible = given
            if given < 0 or given > keys:
                visible = i64(0)
                fault(status, 3, given, site, keys)
        if CAUSAL:
            # bottom right: the last query sees all that is valid
            last = visible - queries + query + 1
            visible = select(last < visible, last, visible)
        q_row = batch * qb + head * qh + query * qs
        k_head = batch * kb + head // group * kh
        v_head = batch * vb + head // group * vh
        for column in range(0, width, 256):
            span = select(width - column < 256, width - column, 256)
            for d in range(span):
                sums[d] = T(0.0)
            high = T(0.0)
            total = f64(0.0)
            for first in range(0, visible, 64):
                count = select(visible - first < 64, visible - first, 64)
                for j in range(count):
                    k_row = k_head + (first + j) * ks
                    dot = T(0.0)
                    for d in range(depth):
                        dot = rfma(load(q, q_row + d), load(k, k_row + d), dot)
                    scores[j] = dot * T(scale)
                if SOFTCAP:
                    for j in range(count):
                        scores[j] = T(softcap) * tanh(scores[j] / T(softcap))
                top = scores[0]
                for j in range(count):
                    top = maximum(top, scores[j])
                if first > 0:
                    top = maximum(top, high)
                    shrink = exp(high - top)
                    total = total * f64(shrink)
                    for d in range(span):
                        sums[d] = sums[d] * shrink
                high = top
                part = T(0.0)
                for j in range(count):
                    e = exp(scores[j] - top)
                    scores[j] = e
                    part = radd(part, e)
                total = total + f64(part)
                pairs = count - count % 2
                for j in range(0, pairs, 2):
                    p0 = scores[j]
                    p1 = scores[j + 1]
                    v0 = v_head + (first + j) * vs + column
                    v1 = v0 + vs
                    for d in range(span):
                        sums[d] = rfma(p1, load(v, v1 + d), rfma(p0, load(v, v0 + d), sums[d]))
                if pairs < count:
                    p0 = scores[pairs]
                    v0 = v_head + (first + pairs) * vs + column
                    for d in range(span):
                        sums[d] = rfma(p0, load(v, v0 + d), sums[d])
            norm = T(0.0)
            if visible > 0:
                norm = T(f64(1.0) / total)
            target = item * width + column
            for d in range(span):
                store(out, target + d, sums[d] * norm)


def attention_launch(inputs: Sequence[Operand], outputs: Sequence[Operand],
                     attrs: Mapping[str, Any]) -> Launch:
    q, k, v, *length = inputs
    batch, heads, queries, depth = q.shape
    keys, width = v.shape[2], v.shape[3]
    args: dict[str, Any] = {"heads": heads, "group": heads // k.shape[1], "queries": queries, "keys": keys,
                            "depth": depth, "width": width,
                            "scale": attrs["scale"], "softcap": attrs["softcap"] or 0.0}
    for name, operand in zip("qkv", (q, k, v)):
        args |= dict(zip((f"{name}b", f"{name}h", f"{name}s"), operand.layout.strides))
    args["lb"] = length[0].layout.strides[0] if length and length[0].layout.rank else 0
    stack = "stack_f64" if q.dtype is dt.f64 else "stack_f32"
    bake = {"stack": stack, "CAUSAL": attrs["causal"], "HAS_LENGTH": bool(length),
            "SOFTCAP": attrs["softcap"] is not None}
    return Launch(args, batch * heads * queries, keys * (depth + width) * 2 + 64, bake)


def attention_accepts(inputs: Sequence[Operand], attrs: Mapping[str, Any]) -> str | None:
    for name, operand in zip("qkv", inputs):
        if not same(operand.layout.strides[-1], 1) and not same(operand.shape[-1], 1):
            return f"the rows of {name} are not contiguous"
    return None


def infer_attention(q: Aval, k: Aval, v: Aval, length: Aval | None = None, **attrs: Any) -> Aval:
    """[B, Hq, Sq, Dv]. Raises ShapeError naming the operands that do not fit."""
    for name, a in zip("qkv", (q, k, v)):
        if a.rank != 4:
            raise ShapeError(f"attention(): {name} is {a}, but needs the axes (batch, heads, length, width)",
                             cure="insert the missing axes, e.g. x[None]")
        if a.dtype not in dt.FLOATS or a.dtype is not q.dtype:
            raise DTypeError(f"attention(): {name} is {a.dtype} and q is {q.dtype}: one float dtype is "
                             f"needed",
                             cure="cast them to one of f32, f64, f16, bf16")
    if k.shape[0] != q.shape[0] or v.shape[:3] != k.shape[:3] or k.shape[3] != q.shape[3]:
        raise ShapeError(f"attention() got q {fmt(q.shape)}, k {fmt(k.shape)}, v {fmt(v.shape)}: batches, "
                         f"k's and v's heads and lengths, and q's and k's widths must agree",
                         cure="transpose to (batch, heads, length, width)")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1] != 0:
        raise ShapeError(f"attention(): {q.shape[1]} query heads do not divide among {k.shape[1]} key heads",
                         cure="the number of query heads must be a multiple of that of key heads")
    if length is not None and (length.dtype not in INDEX_TYPES or length.shape not in ((), q.shape[:1])):
        raise ArgumentError(f"attention(): length is {length}, but must be an integer scalar or one "
                            f"for each batch",
                            cure="pass an int, or int64 lengths of shape (batch,)")
    return Aval((*q.shape[:3], v.shape[3]), q.dtype)


def attention_ref(q: Any, k: Any, v: Any, length: Any = None, *, scale: float, causal: bool,
                  softcap: float | None) -> Any:
    q, k, v = upcast(q), upcast(k), upcast(v)
    (batch, heads, queries, _), keys = q.shape, k.shape[2]
    lengths = np.broadcast_to(keys if length is None else np.asarray(length).astype(np.int64), batch)
    if np.any((lengths < 0) | (lengths > keys)):
        raise IndexError(f"length {lengths} is out of range for {keys} keys")
    out = np.zeros((batch, heads, queries, v.shape[3]))
    for b, h, i in np.ndindex(batch, heads, queries):
        n = int(lengths[b]) - (queries - 1 - i if causal else 0)
        if n > 0:
            group = h // (heads // k.shape[1])
            s = k[b, group, :n] @ q[b, h, i] * scale
            s = s if softcap is None else softcap * np.tanh(s / softcap)
            e = np.exp(s - s.max())
            out[b, h, i] = e @ v[b, group, :n] / e.sum()
    return out


def _wave(*shape: int) -> np.ndarray[Any, Any]:
    return np.sin(np.arange(math.prod(shape)) * 0.7 + len(shape) + shape[-1]).reshape(shape)


def attention_samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    q, k, v = _wave(2, 4, 3, 5), _wave(2, 2, 7, 5), _wave(2, 2, 7, 6)
    yield (q, k, v), {}
    yield (q, k, v), {"causal": False, "scale": 1.0}
    yield (q, k, v, np.array(4)), {}
    yield (q, k, v, np.array([2, 7])), {"softcap": 2.0}
    yield (_wave(1, 2, 1, 9), _wave(1, 1, 131, 9), _wave(1, 1, 131, 3), np.array([130])), {}


def _check_scale(v: Any, avals: Sequence[Aval]) -> float:
    width = float(avals[0].shape[-1]) if avals[0].shape else 1.0  # a scalar is refused by the shape rule
    return check_number(float, v) if v is not None else 1.0 / math.sqrt(max(width, 1.0))


attention = op("attention", "attention", "q k v length?", infer=infer_attention, ref=attention_ref,
               domain="float", samples=attention_samples,
               like="torch.nn.functional.scaled_dot_product_attention",
               args={"q": "queries, (batch, heads, queries, width)", "k": "keys, (batch, key heads, keys, width)",
                     "v": "values, (batch, key heads, keys, value width)",
                     "length": "how many keys are valid: an integer, or one for each batch; None: all",
                     "scale": "a factor of q @ k.T; None: 1 / sqrt(width)",
                     "causal": "whether a query sees no keys after its own place",
                     "softcap": "keeps scores s within this bound, softcap * tanh(s / softcap); None: no bound"},
               shapes="(batch, heads, queries, value width)",
               raises={"ShapeError": "q, k and v do not fit one another, or have not four axes",
                       "FuelIndexError": "length is more than the keys there are, or negative"},
               attrs={"scale": Attr(_check_scale, None, "float"), "causal": Bool(True),
                      "softcap": Float(None, optional=True)},
               doc="softmax(q @ k.T * scale) @ v for each head, query head h on key head h // (Hq / Hkv). "
                   "`length` keys are valid; when causal, query i sees keys <= length - Sq + i. A query that "
                   "sees nothing gives zeros.")
attention.kernel(CPU, {"T": dt.FLOATS, "I": INDEX_TYPES}, launch=attention_launch, strided=True,
                 accepts=attention_accepts)(attention_rows)


# ---------------------------------------------------------------- rope
ROPE_AXES = 3  # leading axes before (length, width), after collapsing


def rope_rows(x, cos, sin, out, n1: int, n2: int, s0: int, s1: int, s2: int, rows: int, half: int,
              row_stride: int, cos_stride: int, sin_stride: int, INTERLEAVED: bool, PAIRED: bool, lo, hi):
    """Turn each pair (a, b) of a row by its angle: (a*cos - b*sin, b*cos + a*sin). Pairs are (j, j + half),
    or neighbours when INTERLEAVED. PAIRED tables hold one entry per element of the row, others one per
    pair."""
    for item in range(lo, hi):
        row = item % rows
        lead = item // rows
        c2 = lead % n2
        lead = lead // n2
        source = lead // n1 * s0 + lead % n1 * s1 + c2 * s2 + row * row_stride
        target = item * half * 2
        c = row * cos_stride
        s = row * sin_stride
        if INTERLEAVED:
            for j in range(half):
                a = load(x, source + 2 * j)
                b = load(x, source + 2 * j + 1)
                if PAIRED:
                    store(out, target + 2 * j, a * load(cos, c + 2 * j) - b * load(sin, s + 2 * j))
                    at = 2 * j + 1
                    store(out, target + at, b * load(cos, c + at) + a * load(sin, s + at))
                else:
                    store(out, target + 2 * j, a * load(cos, c + j) - b * load(sin, s + j))
                    store(out, target + 2 * j + 1, b * load(cos, c + j) + a * load(sin, s + j))
        else:
            for j in range(half):
                a = load(x, source + j)
                b = load(x, source + half + j)
                if PAIRED:
                    store(out, target + j, a * load(cos, c + j) - b * load(sin, s + j))
                    store(out, target + half + j, b * load(cos, c + half + j) + a * load(sin, s + half + j))
                else:
                    store(out, target + j, a * load(cos, c + j) - b * load(sin, s + j))
                    store(out, target + half + j, b * load(cos, c + j) + a * load(sin, s + j))


def _leading(x: Operand) -> tuple[tuple[Extent, ...], tuple[Extent, ...]]:
    shape, (strides,) = collapse(x.layout.shape[:-2], [x.layout.strides[:-2]])
    return shape, strides


def rope_launch(inputs: Sequence[Operand], outputs: Sequence[Operand], attrs: Mapping[str, Any]) -> Launch:
    x, cos, sin = inputs
    lead, strides = _leading(x)
    rows, width = x.shape[-2:]
    n = numbered("n", pad(lead, ROPE_AXES, 1))
    args = {"n1": n["n1"], "n2": n["n2"], **numbered("s", pad(strides, ROPE_AXES, 0)), "rows": rows,
            "half": width // 2, "row_stride": x.layout.strides[-2], "cos_stride": cos.layout.strides[0],
            "sin_stride": sin.layout.strides[0]}
    bake = {"INTERLEAVED": attrs["interleaved"], "PAIRED": same(cos.shape[-1], width)}
    return Launch(args, product(lead) * rows, width * 3, bake)


def rope_accepts(inputs: Sequence[Operand], attrs: Mapping[str, Any]) -> str | None:
    for name, operand in zip(("x", "cos", "sin"), inputs):
        if not same(operand.layout.strides[-1], 1) and not same(operand.shape[-1], 1):
            return f"the rows of {name} are not contiguous"
    lead, _ = _leading(inputs[0])
    if len(lead) > ROPE_AXES:
        return f"x has {len(lead)} leading axes after collapsing, more than {ROPE_AXES}"
    return None


def infer_rope(x: Aval, cos: Aval, sin: Aval, *, interleaved: bool) -> Aval:
    """x's shape and dtype. Raises ShapeError for an odd width or tables of another shape."""
    if x.rank < 2:
        raise ShapeError(f"rope() needs an array of rank 2 or more (..., length, width), not {x}",
                         cure="insert axes in front: x[None]")
    rows, width = x.shape[-2:]
    if width % 2 != 0:
        raise ShapeError(f"rope() turns pairs: the width {width} of {x} is odd",
                         cure="pad the last axis to an even width")
    for name, a in (("cos", cos), ("sin", sin)):
        if a.shape not in ((rows, width), (rows, width // 2)) or a.shape != cos.shape:
            raise ShapeError(f"rope(): {name} has shape {fmt(a.shape)}, but {x} needs "
                             f"{fmt((rows, width))} or {fmt((rows, width // 2))} for both tables",
                             cure="give one row of cos and sin per position")
        if a.dtype is not x.dtype:
            raise DTypeError(f"rope(): {name} is {a.dtype}, x is {x.dtype}",
                             cure="cast the tables: cos.astype(x.dtype)")
    if x.dtype not in dt.FLOATS:
        raise DTypeError(f"rope() is not defined for {x.dtype}",
                         cure="cast it first, e.g. x.astype('f32')")
    return x


def rope_ref(x: Any, cos: Any, sin: Any, *, interleaved: bool) -> Any:
    x, cos, sin = upcast(x), upcast(cos), upcast(sin)
    half = x.shape[-1] // 2
    a, b = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, half), slice(half, None))
    ca, cb, sa, sb = cos, cos, sin, sin
    if cos.shape[-1] == x.shape[-1]:
        ca, cb, sa, sb = cos[:, a], cos[:, b], sin[:, a], sin[:, b]
    out = np.empty_like(x)
    out[..., a] = x[..., a] * ca - x[..., b] * sa
    out[..., b] = x[..., b] * cb + x[..., a] * sb
    return out


def rope_samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    for interleaved in (False, True):
        for width in (6, 3):
            angle = np.arange(5 * width).reshape(5, width) * 0.3
            yield (_wave(2, 3, 5, 6), np.cos(angle), np.sin(angle)), {"interleaved": interleaved}


rope = op("rope", "attention", "x cos sin", infer=infer_rope, attrs={"interleaved": Bool(False)},
          ref=rope_ref, domain="float", samples=rope_samples,
          like="apply_rotary_pos_emb of Transformers",
          args={"x": "(..., length, width)", "cos": "the cosines, (length, width) or (length, width / 2)",
                "sin": "the sines, of the same shape", "interleaved": "whether pairs are neighbours"},
          shapes="x's", raises={"ShapeError": "the width is odd, or cos and sin do not fit x"},
          doc="pairs of the last axis turned by the angles whose cos and sin are given, [length, width] or "
              "[length, width / 2]; pairs are (j, j + width/2), or neighbours when interleaved")
rope.kernel(CPU, dt.FLOATS, launch=rope_launch, strided=True, accepts=rope_accepts)(rope_rows)
