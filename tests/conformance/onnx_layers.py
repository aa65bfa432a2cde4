"""ONNX nodes that are layers: products, norms, attention, quantisation, losses. See `onnx_nodes`."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from fuelnumba import ops

from .onnx_nodes import DTYPES, node, to_dtype


# ------------------------------------------------------------------------------------------------ products
@node("Gemm")
def gemm(a: Any, b: Any, c: Any = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0) -> Any:
    out = (a.T if transA else a) @ (b.T if transB else b)
    if alpha != 1:
        out = out * alpha
    if c is None:
        return out
    return out + (c if beta == 1 else c * beta)


@node("Einsum")
def einsum(*xs: Any, equation: str) -> Any:
    return np.einsum(equation, *xs)


@node("MatMulInteger")
def matmul_integer(a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    a, b = a.astype(np.int32), b.astype(np.int32)
    if a_zero is not None:
        zero = a_zero.astype(np.int32)
        a = a - (zero[:, None] if zero.ndim == 1 and zero.shape[0] > 1 else zero)
    if b_zero is not None:
        b = b - b_zero.astype(np.int32)
    return a @ b


# ------------------------------------------------------------------------------------------------ norms
@node("Softmax")
def softmax(x: Any, *, axis: int = -1) -> Any:
    return ops.softmax(x, axis=axis)


@node("LogSoftmax")
def log_softmax(x: Any, *, axis: int = -1) -> Any:
    return ops.log_softmax(x, axis=axis)


@node("LayerNormalization")
def layer_norm(x: Any, weight: Any, bias: Any = None, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Any:
    """Over the axes from `axis` on; also the mean and 1 / sqrt(var + eps) of each row."""
    axis = axis % x.ndim
    rows = np.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
    bias = None if bias is None else np.ravel(bias)
    y = ops.layer_norm(rows, np.ravel(weight), bias, eps=epsilon)
    over, wide = tuple(range(axis, x.ndim)), x.astype(DTYPES[stash_type])
    mean = np.mean(wide, axis=over, keepdims=True)
    deviation = np.sqrt(np.var(wide, axis=over, keepdims=True) + epsilon)
    return np.reshape(y, x.shape), mean, 1 / deviation


@node("RMSNormalization")
def rms_norm(x: Any, weight: Any, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Any:
    axis = axis % x.ndim
    rows = np.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
    return np.reshape(ops.rms_norm(rows, np.ravel(weight), eps=epsilon), x.shape)


def per_channel(v: Any, rank: int) -> Any:
    return np.reshape(v, (-1,) + (1,) * (rank - 2))


@node("InstanceNormalization")
def instance_norm(x: Any, scale: Any, bias: Any, *, epsilon: float = 1e-5) -> Any:
    rows = np.reshape(x, (*x.shape[:2], -1))
    return np.reshape(ops.layer_norm(rows, eps=epsilon), x.shape) * per_channel(scale, x.ndim) + per_channel(bias, x.ndim)


@node("GroupNormalization")
def group_norm(x: Any, scale: Any, bias: Any, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1) -> Any:
    rows = np.reshape(x, (x.shape[0], num_groups, -1))
    return np.reshape(ops.layer_norm(rows, eps=epsilon), x.shape) * per_channel(scale, x.ndim) + per_channel(bias, x.ndim)


@node("BatchNormalization")
def batch_norm(x: Any, scale: Any, bias: Any, mean: Any, var: Any, *, epsilon: float = 1e-5, momentum: float = 0.9,
               training_mode: int = 0) -> Any:
    scale, bias, mean, var = (per_channel(v, x.ndim) for v in (scale, bias, mean, var))
    return (x - mean) * (scale * ops.rsqrt(var + epsilon)) + bias


@node("LpNormalization")
def lp_normalization(x: Any, *, axis: int = -1, p: int = 2) -> Any:
    """A row of zeros stays as it is."""
    length = np.linalg.norm(x, ord=p, axis=axis, keepdims=True)
    return np.where(length == 0, np.zeros_like(x), x / length)


@node("MeanVarianceNormalization")
def mean_variance_norm(x: Any, *, axes: Any = (0, 2, 3)) -> Any:
    over = tuple(axes)
    return (x - np.mean(x, axis=over, keepdims=True)) / (np.std(x, axis=over, keepdims=True) + 1e-9)


@node("GlobalAveragePool")
def global_average_pool(x: Any) -> Any:
    return np.mean(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@node("GlobalMaxPool")
def global_max_pool(x: Any) -> Any:
    return np.max(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@node("Dropout")
def dropout(x: Any, ratio: Any = None, training: Any = None, *, seed: int = 0) -> Any:
    """Outside of training: x, and a mask of all kept elements."""
    return x, np.ones_like(x, dtype=np.bool_)


# ------------------------------------------------------------------------------------------------ attention
def heads(x: Any, count: int) -> Any:
    """[batch, length, heads * width] as [batch, heads, length, width]."""
    if x.ndim == 4:
        return x
    b, n, width = x.shape
    return np.transpose(np.reshape(x, (b, n, count, width // count)), (0, 2, 1, 3))


def joined(x: Any) -> Any:
    """Back from `heads`."""
    b, h, n, width = x.shape
    return np.reshape(np.transpose(x, (0, 2, 1, 3)), (b, n, h * width))


@node("RotaryEmbedding")
def rotary_embedding(x: Any, cos: Any, sin: Any, positions: Any = None, *, interleaved: int = 0, num_heads: int = 0,
                     rotary_embedding_dim: int = 0) -> Any:
    """The tables are per position, or, without positions, already per batch row and position."""
    y = heads(x, num_heads)
    width = rotary_embedding_dim or y.shape[-1]
    if positions is not None:
        cos, sin = np.take(cos, positions, axis=0), np.take(sin, positions, axis=0)
    turned = np.stack([ops.rope(y[b, :, :, :width], cos[b], sin[b], interleaved=bool(interleaved))
                       for b in range(y.shape[0])])
    if width < y.shape[-1]:
        turned = np.concatenate([turned, y[..., width:]], axis=-1)
    return turned if x.ndim == 4 else joined(turned)


@node("Attention")
def attention(q: Any, k: Any, v: Any, mask: Any = None, past_k: Any = None, past_v: Any = None, lengths: Any = None, *,
              is_causal: int = 0, kv_num_heads: int = 0, q_num_heads: int = 0, qk_matmul_output_mode: int = 0,
              scale: float | None = None, softcap: float = 0.0, softmax_precision: int | None = None,
              left_window_size: int = -1, right_window_size: int = -1, outputs: int) -> Any:
    """`ops.attention` where it says what is asked for; with a mask, a window or the scores as a result, the same in steps.

    ONNX counts causal positions from the first key that is not in the past; with `lengths`, the last query sees all keys
    that are valid.
    """
    rank = q.ndim
    q, k, v = heads(q, q_num_heads), heads(k, kv_num_heads), heads(v, kv_num_heads)
    past = 0
    if past_k is not None:
        past = past_k.shape[2]
        k, v = np.concatenate([past_k, k], axis=2), np.concatenate([past_v, v], axis=2)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    seen = past + q.shape[2]  # by the last query, when causal
    plain = mask is None and left_window_size < 0 and right_window_size < 0 and outputs <= 3
    if plain and not (is_causal and lengths is None and seen > k.shape[2]):
        if is_causal and lengths is None and seen != k.shape[2]:
            lengths = seen
        out = ops.attention(q, k, v, lengths, causal=bool(is_causal), scale=scale, softcap=softcap or None)
        shown = None
    else:
        visible = _visible(q.shape[2], k.shape[2], past, lengths, is_causal, left_window_size, right_window_size)
        out, shown = _in_steps(q, k, v, mask, visible, qk_matmul_output_mode, scale, softcap, softmax_precision)
    return (out if rank == 4 else joined(out)), k, v, shown


def _visible(queries: int, keys: int, past: int, lengths: Any, causal: int, left: int, right: int) -> Any:
    """Which keys each query sees, [queries, keys] or [batch, 1, queries, keys]; None when all."""
    row, column = np.arange(queries)[:, None], np.arange(keys)[None, :]
    parts = []
    last = row + past
    if lengths is not None:
        lengths = np.reshape(lengths, (-1, 1, 1, 1))
        last = lengths - queries + row
        parts.append(column < lengths)
    if causal:
        parts.append(column <= last)
    if left >= 0:
        parts.append(column >= last - left)
    if right >= 0:
        parts.append(column <= last + right)
    return functools.reduce(np.logical_and, parts) if parts else None


def _in_steps(q: Any, k: Any, v: Any, mask: Any, visible: Any, mode: int, scale: float, softcap: float,
              precision: int | None) -> tuple[Any, Any]:
    """The result, and what `mode` asks to see: the scores before (0, 1) or after (2) the mask, or the weights (3)."""
    dtype, group = q.dtype, q.shape[1] // k.shape[1]
    if group > 1:
        k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = (q * math.sqrt(scale)) @ np.swapaxes(k * math.sqrt(scale), -1, -2)
    if softcap:
        scores = np.tanh(scores / softcap) * softcap
    zero, never = np.zeros((), dtype), np.full((), -math.inf, dtype)
    bias = None
    if mask is not None:
        missing, allowed = k.shape[2] - mask.shape[-1], mask.dtype == np.bool_
        if missing > 0:
            ends = [(0, 0)] * (mask.ndim - 1) + [(0, missing)]
            mask = np.pad(mask, ends, constant_values=False if allowed else -math.inf)
        bias = np.where(mask, zero, never) if allowed else mask
    if visible is not None:
        bias = np.where(visible, zero if bias is None else bias, never)
    biased = scores if bias is None else scores + bias
    weights = ops.softmax(biased if precision is None else biased.astype(DTYPES[precision]))
    if bias is not None:  # a query that sees no key gets zeros
        weights = np.where(np.max(bias, axis=-1, keepdims=True) == -math.inf, np.zeros_like(weights), weights)
    weights = weights.astype(dtype)
    return weights @ v, (scores, scores, biased, weights)[mode]


# ------------------------------------------------------------------------------------------------ quantisation
def spread(scale: Any, x: Any, axis: int, block: int) -> Any:
    """Scales or zero points at the shape of x: one for all, one per index of an axis, or one per block of an axis."""
    if scale is None or scale.ndim == 0 or scale.shape == (1,):
        return None if scale is None else np.reshape(scale, ())
    if block:
        return np.repeat(scale, block, axis=axis)
    return np.reshape(scale, (-1,) + (1,) * (x.ndim - 1 - axis % x.ndim))


@node("DequantizeLinear")
def dequantize(x: Any, scale: Any, zero: Any = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0) -> Any:
    wide = x.astype(np.float32)
    if zero is not None:
        wide = wide - spread(zero, x, axis, block_size).astype(np.float32)
    out = wide * spread(scale, x, axis, block_size).astype(np.float32)
    return out.astype(DTYPES[output_dtype] if output_dtype else scale.dtype)


LIMITS = {np.uint8: (0.0, 255.0), np.int8: (-128.0, 127.0), np.int16: (-32768.0, 32767.0)}


@node("QuantizeLinear")
def quantize(x: Any, scale: Any, zero: Any = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0,
             precision: int = 0, saturate: int = 1) -> Any:
    dtype = zero.dtype.type if zero is not None else DTYPES[output_dtype or 2]
    out = x / spread(scale, x, axis, block_size)
    if dtype not in LIMITS:
        return to_dtype(out, dtype, saturate)
    out = np.round(out)
    if zero is not None:
        out = out + spread(zero, x, axis, block_size).astype(np.float32)
    return np.clip(out, *LIMITS[dtype]).astype(dtype)


@node("QLinearMatMul")
def quantised_matmul(a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, scale: Any, zero: Any) -> Any:
    out = matmul_integer(a, b, a_zero, b_zero).astype(np.float32) * (a_scale * b_scale / scale).astype(np.float32)
    return np.clip(np.round(out) + zero.astype(np.float32), *LIMITS[zero.dtype.type]).astype(zero.dtype)


@node("DynamicQuantizeLinear")
def dynamic_quantize(x: Any) -> Any:
    low, high = np.minimum(np.min(x), 0), np.maximum(np.max(x), 0)
    scale = (high - low) / 255
    zero = np.clip(np.round(-low / scale), 0, 255).astype(np.uint8)
    return quantize(x, scale, zero), scale, zero


# ------------------------------------------------------------------------------------------------ losses
@node("NegativeLogLikelihoodLoss")
def nll_loss(logs: Any, target: Any, weight: Any = None, *, ignore_index: int | None = None, reduction: str = "mean") -> Any:
    """-logs[target] along axis 1, times the weight of the class. An ignored target counts nothing."""
    kept = None if ignore_index is None else target != ignore_index
    label = target if kept is None else np.where(kept, target, np.zeros_like(target))
    losses = -np.squeeze(np.take_along_axis(logs, np.expand_dims(label, 1), axis=1), 1)
    share = np.ones_like(losses) if weight is None else np.take(weight, label, axis=0)
    if kept is not None:
        share = np.where(kept, share, np.zeros_like(share))
    losses = losses * share
    if reduction == "none":
        return losses
    return np.sum(losses) / np.sum(share) if reduction == "mean" else np.sum(losses)


@node("SoftmaxCrossEntropyLoss")
def cross_entropy(scores: Any, target: Any, weight: Any = None, *, ignore_index: int | None = None,
                  reduction: str = "mean") -> Any:
    logs = ops.log_softmax(scores, axis=1)
    return nll_loss(logs, target, weight, ignore_index=ignore_index, reduction=reduction), logs


