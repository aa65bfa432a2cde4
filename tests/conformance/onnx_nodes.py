"""ONNX node types as NumPy and fuelnumba calls on traced values: what an importer of ONNX graphs would record.

`NODES[op_type]` takes a node's inputs by position (None for one that is left out) and its attributes by name. `STATIC` names
the positions that must be known while tracing, such as the target of Reshape; they come as NumPy arrays. Where all inputs of
a node are NumPy arrays, NumPy computes it on the spot: the shape arithmetic of a graph stays static. ONNX has no promotion,
so every result is brought back to the dtype of the node's first input.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from fuelnumba import ops

Node = Callable[..., Any]

NODES: dict[str, Node] = {}
STATIC: dict[str, tuple[int, ...]] = {}

#: TensorProto.DataType -> the dtypes of fuelnumba
DTYPES = {1: np.float32, 2: np.uint8, 3: np.int8, 5: np.int16, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16,
          11: np.float64, 12: np.uint32, 16: ml_dtypes.bfloat16, 17: ml_dtypes.float8_e4m3fn, 19: ml_dtypes.float8_e5m2,
          24: ml_dtypes.float8_e8m0fnu}


def node(*names: str, static: tuple[int, ...] = ()) -> Callable[[Node], Node]:
    """Decorator: this function is the ONNX op of these names."""
    def attach(fn: Node) -> Node:
        for name in names:
            assert name not in NODES, f"{name} is mapped twice"
            NODES[name] = fn
            if static:
                STATIC[name] = static
        return fn

    return attach


def known(x: Any) -> bool:
    """x is a NumPy value, not a traced one."""
    return isinstance(x, (np.ndarray, np.generic))


def ints(x: Any) -> tuple[int, ...]:
    """A static input as a tuple of Python ints."""
    assert known(x) or isinstance(x, (list, tuple)), f"{x!r} must be known while tracing"
    return tuple(int(v) for v in np.ravel(x))


def is_float(x: Any) -> bool:
    return x.dtype not in (np.bool_, np.uint8, np.int8, np.uint32, np.int16, np.int32, np.int64)


# ------------------------------------------------------------------------------------------------ one call each
NODES.update({
    "Abs": np.abs, "Add": np.add, "And": np.logical_and, "BitwiseAnd": np.bitwise_and, "BitwiseNot": np.invert,
    "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor, "Ceil": np.ceil, "Cos": np.cos, "Equal": np.equal, "Erf": ops.erf,
    "Exp": np.exp, "Floor": np.floor, "Greater": np.greater, "GreaterOrEqual": np.greater_equal, "IsNaN": np.isnan,
    "Less": np.less, "LessOrEqual": np.less_equal, "Log": np.log, "MatMul": np.matmul, "Mul": np.multiply, "Neg": np.negative,
    "Not": np.logical_not, "Or": np.logical_or, "Reciprocal": np.reciprocal, "Relu": ops.relu, "Round": np.round,
    "Sigmoid": ops.sigmoid, "Sign": np.sign, "Sin": np.sin, "Softplus": ops.softplus, "Sqrt": np.sqrt, "Sub": np.subtract,
    "Tan": np.tan, "Tanh": np.tanh, "Where": np.where, "Xor": np.logical_xor,
})


# ------------------------------------------------------------------------------------------------ arithmetic
@node("Div")
def div(x: Any, y: Any) -> Any:
    """Integers round towards zero."""
    if is_float(x):
        return x / y
    inexact = (x % y != 0) & ((x < 0) != (y < 0))
    return x // y + inexact.astype(x.dtype)


@node("Mod")
def mod(x: Any, y: Any, *, fmod: int = 0) -> Any:
    """With fmod the result has the sign of x, otherwise that of y."""
    if not fmod:
        return np.remainder(x, y)
    if is_float(x):
        return np.copysign(np.abs(x) % np.abs(y), x)
    return np.where(x < 0, -(-x % np.abs(y)), x % np.abs(y))


@node("Pow")
def pow_(x: Any, y: Any) -> Any:
    return np.power(x, y).astype(x.dtype)


@node("BitShift")
def bit_shift(x: Any, y: Any, *, direction: str) -> Any:
    return np.left_shift(x, y) if direction == "LEFT" else np.right_shift(x, y)


@node("Max")
def max_(*xs: Any) -> Any:
    return functools.reduce(np.maximum, xs)


@node("Min")
def min_(*xs: Any) -> Any:
    return functools.reduce(np.minimum, xs)


@node("Sum")
def sum_(*xs: Any) -> Any:
    return functools.reduce(np.add, xs)


@node("Mean")
def mean(*xs: Any) -> Any:
    return sum_(*xs) / len(xs)


@node("Clip")
def clip(x: Any, low: Any = None, high: Any = None) -> Any:
    return np.clip(x, low, high)


@node("IsInf")
def is_inf(x: Any, *, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    wanted = np.isinf(x)
    if not detect_negative:
        wanted = wanted & (x > 0)
    return wanted if detect_positive else wanted & (x < 0)


@node("Sinh")
def sinh(x: Any) -> Any:
    e = np.expm1(x)
    return (e + e / (e + 1)) * 0.5


@node("Cosh")
def cosh(x: Any) -> Any:
    return (np.exp(x) + np.exp(-x)) * 0.5


# ------------------------------------------------------------------------------------------------ activations
@node("Gelu")
def gelu(x: Any, *, approximate: str = "none") -> Any:
    return ops.gelu_tanh(x) if approximate == "tanh" else ops.gelu(x)


@node("Swish")
def swish(x: Any, *, alpha: float = 1.0) -> Any:
    return ops.silu(x) if alpha == 1 else x * ops.sigmoid(x * alpha)


@node("SwiGLU")
def swiglu(a: Any, b: Any, *, alpha: float = 1.0) -> Any:
    return swish(a, alpha=alpha) * b


@node("LeakyRelu")
def leaky_relu(x: Any, *, alpha: float = 0.01) -> Any:
    return np.where(x < 0, x * alpha, x)


@node("PRelu")
def prelu(x: Any, slope: Any) -> Any:
    return np.where(x < 0, x * slope, x)


@node("Elu")
def elu(x: Any, *, alpha: float = 1.0) -> Any:
    return np.where(x < 0, np.expm1(x) * alpha, x)


@node("Celu")
def celu(x: Any, *, alpha: float = 1.0) -> Any:
    return np.maximum(x, 0) + np.minimum(np.expm1(x / alpha) * alpha, 0)


@node("Selu")
def selu(x: Any, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Any:
    return np.where(x > 0, x, np.expm1(x) * alpha) * gamma


@node("HardSigmoid")
def hard_sigmoid(x: Any, *, alpha: float = 0.2, beta: float = 0.5) -> Any:
    return np.clip(x * alpha + beta, 0, 1)


@node("HardSwish")
def hard_swish(x: Any) -> Any:
    return x * np.clip(x / 6 + 0.5, 0, 1)


@node("Mish")
def mish(x: Any) -> Any:
    return x * np.tanh(ops.softplus(x))


@node("Softsign")
def softsign(x: Any) -> Any:
    return x / (np.abs(x) + 1)


@node("Shrink")
def shrink(x: Any, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    return np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, np.zeros_like(x)))


@node("ThresholdedRelu")
def thresholded_relu(x: Any, *, alpha: float = 1.0) -> Any:
    return np.where(x > alpha, x, np.zeros_like(x))


# ------------------------------------------------------------------------------------------------ casts
LARGEST = {ml_dtypes.float8_e4m3fn: 448.0, ml_dtypes.float8_e5m2: 57344.0}


@node("Cast")
def cast(x: Any, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    return to_dtype(x, DTYPES[to], saturate)


@node("CastLike")
def cast_like(x: Any, like: Any, *, saturate: int = 1, round_mode: str = "up") -> Any:
    return to_dtype(x, like.dtype.type, saturate)


def to_dtype(x: Any, dtype: Any, saturate: int = 1) -> Any:
    """`astype`; to the 8-bit floats, ONNX holds values at the ends unless told otherwise."""
    largest = LARGEST.get(dtype)
    if saturate and largest is not None and x.dtype != dtype:
        x = np.clip(x, -largest, largest)
    return x.astype(dtype)


# ------------------------------------------------------------------------------------------------ reductions
Reduce = Callable[[Any, Any, bool], Any]


def reduction(name: str) -> Callable[[Reduce], Reduce]:
    """Decorator: fn(x, axis, keepdims) is this ONNX reduction. The axes are an input, in old models an attribute."""
    def attach(fn: Reduce) -> Reduce:
        @node(name, static=(1,))
        def reduce(x: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
            axis = None if axes is None or len(ints(axes)) == 0 else ints(axes)
            if axis is None and noop_with_empty_axes:
                axis = ()
            return fn(x, axis, bool(keepdims)).astype(x.dtype)

        return fn

    return attach


def reduced_to_nothing(x: Any, axis: Any) -> bool:
    return any(x.shape[k] == 0 for k in (range(x.ndim) if axis is None else axis))


def instead(x: Any, axis: Any, keepdims: bool, value: float) -> Any:
    """The maximum or minimum of no elements: NumPy has none, in ONNX it is the value that every other one beats."""
    if x.dtype == np.bool_:
        return np.any(x, axis=axis, keepdims=keepdims) | (value > 0)
    return np.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype) + value


@reduction("ReduceSum")
def reduce_sum(x: Any, axis: Any, keepdims: bool) -> Any:
    return np.sum(x, axis=axis, keepdims=keepdims)


@reduction("ReduceMean")
def reduce_mean(x: Any, axis: Any, keepdims: bool) -> Any:
    return np.mean(x, axis=axis, keepdims=keepdims)


@reduction("ReduceProd")
def reduce_prod(x: Any, axis: Any, keepdims: bool) -> Any:
    return np.prod(x, axis=axis, keepdims=keepdims)


@reduction("ReduceMax")
def reduce_max(x: Any, axis: Any, keepdims: bool) -> Any:
    if reduced_to_nothing(x, axis):
        return instead(x, axis, keepdims, -np.inf)
    return np.max(x, axis=axis, keepdims=keepdims)


@reduction("ReduceMin")
def reduce_min(x: Any, axis: Any, keepdims: bool) -> Any:
    if reduced_to_nothing(x, axis):
        return instead(x, axis, keepdims, np.inf)
    return np.min(x, axis=axis, keepdims=keepdims)


@reduction("ReduceL1")
def reduce_l1(x: Any, axis: Any, keepdims: bool) -> Any:
    return np.sum(np.abs(x), axis=axis, keepdims=keepdims)


@reduction("ReduceL2")
def reduce_l2(x: Any, axis: Any, keepdims: bool) -> Any:
    return np.sqrt(np.sum(np.square(x), axis=axis, keepdims=keepdims))


@reduction("ReduceSumSquare")
def reduce_sum_square(x: Any, axis: Any, keepdims: bool) -> Any:
    return np.sum(np.square(x), axis=axis, keepdims=keepdims)


@reduction("ReduceLogSum")
def reduce_log_sum(x: Any, axis: Any, keepdims: bool) -> Any:
    return np.log(np.sum(x, axis=axis, keepdims=keepdims))


@reduction("ReduceLogSumExp")
def reduce_log_sum_exp(x: Any, axis: Any, keepdims: bool) -> Any:
    if reduced_to_nothing(x, axis):
        return np.log(np.sum(x, axis=axis, keepdims=keepdims))
    high = np.max(x, axis=axis, keepdims=True)
    high = np.where(np.isfinite(high), high, np.zeros_like(high))
    out = np.log(np.sum(np.exp(x - high), axis=axis, keepdims=True)) + high
    return out if keepdims else np.squeeze(out, tuple(range(x.ndim)) if axis is None else axis)


def arg_extremum(x: Any, find: Any, axis: int, keepdims: int, last: int) -> Any:
    if not last:
        return find(x, axis=axis, keepdims=bool(keepdims))
    return x.shape[axis] - 1 - find(np.flip(x, axis), axis=axis, keepdims=bool(keepdims))


@node("ArgMax")
def arg_max(x: Any, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
    return arg_extremum(x, np.argmax, axis, keepdims, select_last_index)


@node("ArgMin")
def arg_min(x: Any, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
    return arg_extremum(x, np.argmin, axis, keepdims, select_last_index)


# ------------------------------------------------------------------------------------------------ by index
@node("Gather")
def gather(x: Any, indices: Any, *, axis: int = 0) -> Any:
    return np.take(x, indices, axis=axis)


@node("GatherElements")
def gather_elements(x: Any, indices: Any, *, axis: int = 0) -> Any:
    return np.take_along_axis(x, indices, axis=axis)


@node("GatherND")
def gather_nd(x: Any, indices: Any, *, batch_dims: int = 0) -> Any:
    """The last axis of `indices` names a place on the axes after the batch: one index into these, made flat."""
    depth = indices.shape[-1]
    batch, lengths = x.shape[:batch_dims], x.shape[batch_dims:batch_dims + depth]
    flat: Any = 0
    for k, n in enumerate(lengths):
        at = indices[..., k]
        flat = flat * n + np.where(at < 0, at + n, at)
    if batch_dims:
        count = math.prod(batch)
        first = np.arange(count).reshape(batch + (1,) * (flat.ndim - batch_dims))
        flat = flat + first * math.prod(lengths)
    rows = np.reshape(x, (-1, *x.shape[batch_dims + depth:]))
    return np.take(rows, flat, axis=0)


@node("OneHot", static=(1,))
def one_hot(indices: Any, depth: Any, values: Any, *, axis: int = -1) -> Any:
    n = int(np.ravel(depth)[0])
    axis = axis % (indices.ndim + 1)
    places = np.arange(n).reshape((-1,) + (1,) * (indices.ndim - axis))
    at = np.expand_dims(indices.astype(np.int64), axis)
    return np.where((np.where(at < 0, at + n, at)) == places, values[1], values[0])


@node("Hardmax")
def hardmax(x: Any, *, axis: int = -1) -> Any:
    axis = axis % x.ndim
    places = np.arange(x.shape[axis]).reshape((-1,) + (1,) * (x.ndim - 1 - axis))
    return (np.argmax(x, axis=axis, keepdims=True) == places).astype(x.dtype)


@node("TensorScatter")
def tensor_scatter(cache: Any, update: Any, start: Any = None, *, axis: int = -2, mode: str = "linear") -> Any:
    """Each batch row of a cache gets its update from its own start on; a circular one goes on at the beginning."""
    axis = axis % cache.ndim - 1
    length, count = cache.shape[axis + 1], update.shape[axis + 1]
    rows = []
    for b in range(cache.shape[0]):
        row, at = cache[b], 0 if start is None else start[b]
        for k in range(count) if mode == "circular" else (slice(None),):
            piece = update[b] if isinstance(k, slice) else np.take(update[b], [k], axis=axis)
            begins = at if isinstance(k, slice) else (at + k) % length
            row = ops.write_slice(row, piece, tuple(begins if j == axis else 0 for j in range(row.ndim)))
        rows.append(row)
    return np.stack(rows)


# ------------------------------------------------------------------------------------------------ movement
@node("Identity")
def identity(x: Any) -> Any:
    return x


@node("Concat")
def concat(*xs: Any, axis: int) -> Any:
    return np.concatenate(xs, axis=axis)


@node("Split", static=(1,))
def split(x: Any, lengths: Any = None, *, axis: int = 0, num_outputs: int = 0, outputs: int) -> Any:
    n = x.shape[axis]
    if lengths is None:  # the last is shorter when n is no multiple
        each = -(-n // outputs)
        cuts = [min(each * k, n) for k in range(1, outputs)]
    else:
        cuts = np.cumsum(ints(lengths))[:-1].tolist()
    return tuple(np.split(x, cuts, axis=axis))


@node("Slice", static=(1, 2, 3, 4))
def slice_(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    first, last = ints(starts), ints(ends)
    axes = range(len(first)) if axes is None else ints(axes)
    steps = (1,) * len(first) if steps is None else ints(steps)
    key = [slice(None)] * x.ndim
    for k, start, stop, step in zip(axes, first, last, steps):
        # an end far below zero means: down to the first element
        key[k] = slice(start, None if step < 0 and stop < -x.shape[k] else stop, step)
    return x[tuple(key)]


@node("Transpose")
def transpose(x: Any, *, perm: Any = None) -> Any:
    return np.transpose(x, perm)


@node("Reshape", static=(1,))
def reshape(x: Any, shape: Any, *, allowzero: int = 0) -> Any:
    target = ints(shape)
    if not allowzero:
        target = tuple(x.shape[k] if n == 0 else n for k, n in enumerate(target))
    return np.reshape(x, target)


@node("Flatten")
def flatten(x: Any, *, axis: int = 1) -> Any:
    axis = axis + x.ndim if axis < 0 else axis
    return np.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@node("Expand", static=(1,))
def expand(x: Any, shape: Any) -> Any:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, ints(shape)))


@node("Squeeze", static=(1,))
def squeeze(x: Any, axes: Any = None) -> Any:
    return np.squeeze(x, None if axes is None else ints(axes))


@node("Unsqueeze", static=(1,))
def unsqueeze(x: Any, axes: Any) -> Any:
    return np.expand_dims(x, ints(axes))


@node("Tile", static=(1,))
def tile(x: Any, repeats: Any) -> Any:
    return np.tile(x, ints(repeats))


@node("Pad", static=(1, 2, 3))
def pad(x: Any, pads: Any, value: Any = None, axes: Any = None, *, mode: str = "constant") -> Any:
    widths = [(0, 0)] * x.ndim
    axes = range(x.ndim) if axes is None else ints(axes)
    for k, before, after in zip(axes, ints(pads)[:len(axes)], ints(pads)[len(axes):]):
        widths[k] = (before, after)
    if mode == "constant":
        return np.pad(x, widths, constant_values=0 if value is None else np.ravel(value)[0].item())
    for k, ends in enumerate(widths):
        if any(ends):
            x = np.take(x, np.pad(np.arange(x.shape[k]), ends, mode=mode), axis=k)
    return x


@node("CenterCropPad", static=(1,))
def center_crop_pad(x: Any, shape: Any, *, axes: Any = None) -> Any:
    for k, n in zip(range(x.ndim) if axes is None else axes, ints(shape)):
        k, more = k % x.ndim, n - x.shape[k]
        if more < 0:
            x = x[(slice(None),) * k + (slice(-more // 2, -more // 2 + n),)]
        elif more > 0:
            x = np.pad(x, [(more // 2, more - more // 2) if j == k else (0, 0) for j in range(x.ndim)])
    return x


@node("Trilu", static=(1,))
def trilu(x: Any, k: Any = None, *, upper: int = 1) -> Any:
    offset = 0 if k is None else ints(k)[0]
    return np.triu(x, offset) if upper else np.tril(x, offset)


@node("DepthToSpace")
def depth_to_space(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    b, c, h, w = x.shape
    n, left = blocksize, c // blocksize**2
    if mode == "DCR":
        x = np.transpose(np.reshape(x, (b, n, n, left, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        x = np.transpose(np.reshape(x, (b, left, n, n, h, w)), (0, 1, 4, 2, 5, 3))
    return np.reshape(x, (b, left, h * n, w * n))


@node("SpaceToDepth")
def space_to_depth(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    b, c, h, w = x.shape
    n = blocksize
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return np.reshape(np.transpose(np.reshape(x, (b, c, h // n, n, w // n, n)), order), (b, c * n * n, h // n, w // n))


# ------------------------------------------------------------------------------------------------ about shapes, and constants
@node("Shape")
def shape_(x: Any, *, start: int = 0, end: int | None = None) -> Any:
    return np.array(x.shape[start:end], np.int64)


@node("Size")
def size(x: Any) -> Any:
    return np.array(math.prod(x.shape), np.int64)


@node("Constant")
def constant(*, value: Any = None, value_float: Any = None, value_floats: Any = None, value_int: Any = None,
             value_ints: Any = None) -> Any:
    if value is not None:
        return value
    if value_int is not None or value_ints is not None:
        return np.array(value_ints if value_int is None else value_int, np.int64)
    return np.array(value_floats if value_float is None else value_float, np.float32)


@node("ConstantOfShape", static=(0,))
def constant_of_shape(shape: Any, *, value: Any = None) -> Any:
    one = np.zeros(1, np.float32) if value is None else value
    return np.full(ints(shape), one[0], one.dtype)


@node("EyeLike")
def eye_like(x: Any, *, dtype: int | None = None, k: int = 0) -> Any:
    return np.eye(*x.shape, k=k, dtype=x.dtype if dtype is None else DTYPES[dtype])


@node("Range", static=(0, 1, 2))
def range_(start: Any, limit: Any, delta: Any) -> Any:
    first, last, step = (v.item() for v in (start, limit, delta))
    count = max(math.ceil((last - first) / step), 0)
    return (np.arange(count) * step + first).astype(start.dtype)
