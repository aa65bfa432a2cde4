"""References that are independent of the op table: NumPy, SciPy, or a few lines by hand. The table's own are held against
them (test_references), so that a formula is not its own oracle. An op that is not here is checked against its own only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

Array = np.ndarray[Any, Any]
special = scipy.special


def of_floats(fn: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A rounding: integers and booleans are whole already."""
    return lambda x: fn(x) if x.dtype.kind == "f" else x


def power(x: Array, y: Array) -> Array:
    """Integers wrap, and a negative exponent rounds towards 0: only 1 and -1 have an inverse; 0 has none, and gives 0."""
    if x.dtype.kind == "f":
        return np.power(x, y)
    bits = 8 * x.itemsize

    def one(a: int, b: int) -> int:
        if b < 0:
            return {1: 1, -1: 1 if b % 2 == 0 else -1}.get(a, 0)
        low = pow(a, b, 1 << bits)
        return low - (1 << bits) if x.dtype.kind == "i" and low >> (bits - 1) else low

    pairs = zip(*(np.broadcast_arrays(x, y)[k].ravel().tolist() for k in (0, 1)))
    return np.array([one(a, b) for a, b in pairs], x.dtype).reshape(np.broadcast(x, y).shape)


def powi(x: Array, n: int) -> Array:
    out = np.ones_like(x)
    for _ in range(abs(n)):
        out = out * x
    return out if n >= 0 else 1 / out


def clamp(x: Array, min: Any = None, max: Any = None) -> Array:
    x = x if min is None else np.where(x < min, x.dtype.type(min), x)
    return x if max is None else np.where(x > max, x.dtype.type(max), x)


def left_shift(x: Array, y: Array) -> Array:
    """The low bits of x * 2**y; nothing is left past the width, nor for a negative y."""
    bits = 8 * x.itemsize
    inside = (y >= 0) & (y < bits)
    factor = np.where(inside, y, 0).astype(np.uint64)
    wrapped = (x.astype(np.int64).view(np.uint64) << factor).astype(np.uint64).view(np.int64).astype(x.dtype)
    return np.where(inside, wrapped, 0).astype(x.dtype)


def right_shift(x: Array, y: Array) -> Array:
    """floor(x / 2**y): -1 or 0 in the end."""
    bits = 8 * x.itemsize
    return (x.astype(np.int64) >> np.where((y >= 0) & (y < bits), y, 63).astype(np.int64)).astype(x.dtype)


def softmax(x: Array, axis: int = -1) -> Array:
    return special.softmax(x, axis) if x.shape[axis] else x


def log_softmax(x: Array, axis: int = -1) -> Array:
    return special.log_softmax(x, axis) if x.shape[axis] else x


def layer_norm(x: Array, weight: Any = 1.0, bias: Any = 0.0, eps: float = 1e-5) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * weight + bias


def rms_norm(x: Array, weight: Any = 1.0, eps: float = 1e-6) -> Array:
    return x / np.sqrt(np.square(x).sum(-1, keepdims=True) / x.shape[-1] + eps) * weight


def attention(q: Array, k: Array, v: Array, length: Any = None, scale: Any = None, causal: bool = True,
              softcap: Any = None) -> Array:
    """All scores at once, then the mask as -inf, where `attention_ref` walks queries and keys."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    s = np.einsum("bhqd,bhkd->bhqk", q, k) * (1 / np.sqrt(q.shape[-1]) if scale is None else scale)
    s = s if softcap is None else np.tanh(s / softcap) * softcap
    queries, keys = s.shape[-2:]
    n = np.broadcast_to(keys if length is None else length, q.shape[0])[:, None, None, None]
    last = n - queries + np.arange(queries)[:, None] if causal else n - 1
    p = special.softmax(np.where(np.arange(keys) <= last, s, -np.inf), -1)
    return np.einsum("bhqk,bhkd->bhqd", np.nan_to_num(p), v)


def rope(x: Array, cos: Array, sin: Array, interleaved: bool = False) -> Array:
    """As products of complex numbers."""
    width = x.shape[-1]
    if cos.shape[-1] == width:  # one entry per element: those of a pair may differ, and turn each its own element
        half = (np.arange(0, width, 2), np.arange(1, width, 2)) if interleaved else (np.arange(width // 2),
                                                                                     np.arange(width // 2, width))
        other = np.empty(width, int)
        other[half[0]], other[half[1]] = half[1], half[0]
        sign = np.ones(width)
        sign[half[0]] = -1
        return x * cos + x[..., other] * sign * sin
    z = x.reshape(*x.shape[:-1], -1, 2) if interleaved else np.moveaxis(x.reshape(*x.shape[:-1], 2, -1), -2, -1)
    turned = (z[..., 0] + 1j * z[..., 1]) * (cos + 1j * sin)
    pair = np.stack([turned.real, turned.imag], -1)
    return pair.reshape(x.shape) if interleaved else np.moveaxis(pair, -1, -2).reshape(x.shape)


def write_slice(x: Array, src: Array, start: Any = None, at: Any = None, axis: Any = None) -> Array:
    """Element by element."""
    out = x.copy()
    for index in np.ndindex(src.shape):
        where = [i + a for i, a in zip(index, at)]
        if axis is not None:
            where[axis] += int(start)
        out[tuple(where)] = src[index]
    return out


def slice_(x: Array, axis: int, start: int = 0, length: int = 1, step: int = 1) -> Array:
    return np.moveaxis(np.array([np.moveaxis(x, axis, 0)[start + k * step] for k in range(length)]).reshape(
        length, *np.moveaxis(x, axis, 0).shape[1:]), 0, axis)


def reduction(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, axis=None, keepdims=False: fn(x, axis=axis, keepdims=keepdims)


REFERENCES: dict[str, Callable[..., Any]] = {
    # one operand
    "negative": np.negative, "absolute": np.absolute, "sign": np.sign, "sqrt": np.sqrt, "exp": np.exp, "exp2": np.exp2,
    "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "tanh": np.tanh, "sigmoid": special.expit, "erf": special.erf, "erfc": special.erfc,
    "floor": of_floats(np.floor), "ceil": of_floats(np.ceil), "trunc": of_floats(np.trunc), "round": of_floats(np.rint),
    "bitwise_not": np.invert, "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite, "logical_not": np.logical_not,
    "square": lambda x: x & x if x.dtype.kind == "b" else np.square(x), "reciprocal": np.reciprocal,
    "rsqrt": lambda x: np.sqrt(x)**-1, "silu": lambda x: x * special.expit(x), "relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "step": lambda x: (x > 0).astype(x.dtype), "gelu": lambda x: x * special.ndtr(x),
    "gelu_tanh": lambda x: x * special.expit(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)),
    "softplus": lambda x: np.logaddexp(0, x), "contiguous": np.ascontiguousarray, "powi": powi, "clamp": clamp,
    # two and three
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "floor_divide": np.floor_divide,
    "remainder": np.remainder, "power": power, "maximum": np.maximum, "minimum": np.minimum, "copysign": np.copysign,
    "left_shift": left_shift, "right_shift": right_shift, "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor, "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal,
    "greater": np.greater, "greater_equal": np.greater_equal, "logical_and": np.logical_and, "logical_or": np.logical_or,
    "logical_xor": np.logical_xor, "where": lambda c, x, y: np.choose(c, [y, x]),
    "masked_fill": lambda x, c, value: np.choose(c, [x, np.asarray(value).astype(x.dtype)]),
    # sums, norms, products
    "sum": reduction(np.sum), "prod": reduction(np.prod), "mean": reduction(np.mean), "max": reduction(np.max),
    "min": reduction(np.min), "any": reduction(np.any), "all": reduction(np.all), "argmax": reduction(np.argmax),
    "argmin": reduction(np.argmin), "softmax": softmax, "log_softmax": log_softmax, "layer_norm": layer_norm, "rms_norm": rms_norm,
    "matmul": lambda a, b: np.einsum("...mk,...kn->...mn", a, b), "attention": attention, "rope": rope,
    # memory
    "gather": lambda x, i, axis: np.take_along_axis(x, i, axis), "take": lambda x, i, axis: np.take(x, i, axis),
    "index_select": lambda x, i, axis: np.take(x, i, axis), "embedding": lambda x, i: x[i], "write_slice": write_slice,
    "concat": lambda *xs, axis=0: np.concatenate(xs, axis), "stack": lambda *xs, axis=0: np.stack(xs, axis),
    "permute": lambda x, axes: np.moveaxis(x, axes, range(x.ndim)), "broadcast_to": lambda x, shape: x + np.zeros(shape, x.dtype),
    "flip": lambda x, axis: np.take(x, np.arange(x.shape[axis])[::-1], axis), "slice": slice_,
    "squeeze": lambda x, axis: np.take(x, 0, axis), "unsqueeze": lambda x, axis: np.stack([x], axis),
    "reshape": lambda x, shape: np.array(x.ravel().tolist(), x.dtype).reshape(shape),
}

#: Relative error between two ways to compute the same in float64, where it is more than 1e-14 (of the greatest term).
LOOSE = {"gelu": 1e-12, "gelu_tanh": 1e-12, "softmax": 1e-13, "log_softmax": 1e-13, "layer_norm": 1e-13, "rms_norm": 1e-13, "attention": 1e-12, "powi": 1e-13}
