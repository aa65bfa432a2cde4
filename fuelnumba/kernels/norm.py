"""Normalisations over the last axis: softmax, log_softmax, layer_norm, rms_norm. One row per work item.

Sums go as in `reduce`: blocks of 1024 in the computation type, the blocks' sums in f64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fuelnumba.core import dtypes as dt
from fuelnumba.core.dims import product
from fuelnumba.core.errors import AxisError, DTypeError, ShapeError
from fuelnumba.core.ops import CPU, Aval, Axis, Float, Launch, Operand, fmt, op
from fuelnumba.kernels.generic import T, exp, load, log, store, upcast
from fuelnumba.kernels.lang import f64, maximum, radd, select, sqrt


# ---------------------------------------------------------------- kernels
def softmax_rows(x, out, cols: int, FULL: bool, lo, hi):
    """exp(x - max) / sum. Where out cannot hold the exponentials (not FULL) they are made twice."""
    for row in range(lo, hi):
        base = row * cols
        if cols > 0:
            high = load(x, base)
            for j in range(cols):
                high = maximum(high, load(x, base + j))
            total = f64(0.0)
            for first in range(0, cols, 1024):
                stop = select(first + 1024 < cols, first + 1024, cols)
                part = T(0.0)
                for j in range(first, stop):
                    e = exp(load(x, base + j) - high)
                    if FULL:
                        store(out, base + j, e)
                    part = radd(part, e)
                total = total + f64(part)
            scale = T(f64(1.0) / total)
            if FULL:
                for j in range(cols):
                    store(out, base + j, load(out, base + j) * scale)
            else:
                for j in range(cols):
                    store(out, base + j, exp(load(x, base + j) - high) * scale)


def log_softmax_rows(x, out, cols: int, lo, hi):
    """(x - max) - log(sum(exp(x - max)))."""
    for row in range(lo, hi):
        base = row * cols
        if cols > 0:
            high = load(x, base)
            for j in range(cols):
                high = maximum(high, load(x, base + j))
            total = f64(0.0)
            for first in range(0, cols, 1024):
                stop = select(first + 1024 < cols, first + 1024, cols)
                part = T(0.0)
                for j in range(first, stop):
                    part = radd(part, exp(load(x, base + j) - high))
                total = total + f64(part)
            shift = log(T(total))
            for j in range(cols):
                store(out, base + j, (load(x, base + j) - high) - shift)


def layer_norm_rows(x, weight, bias, out, cols: int, eps: float, HAS_WEIGHT: bool, HAS_BIAS: bool, lo, hi):
    """(x - mean) / sqrt(var + eps), then * weight + bias. The mean first, then the deviations from it."""
    for row in range(lo, hi):
        base = row * cols
        total = f64(0.0)
        for first in range(0, cols, 1024):
            stop = select(first + 1024 < cols, first + 1024, cols)
            part = T(0.0)
            for j in range(first, stop):
                part = radd(part, load(x, base + j))
            total = total + f64(part)
        mean = T(total / f64(cols))
        total = f64(0.0)
        squares = f64(0.0)
        for first in range(0, cols, 1024):
            stop = select(first + 1024 < cols, first + 1024, cols)
            part = T(0.0)
            square = T(0.0)
            for j in range(first, stop):
                d = load(x, base + j) - mean
                part = radd(part, d)
                square = radd(square, d * d)
            total = total + f64(part)
            squares = squares + f64(square)
        # what rounding the mean to T left over: tiny, so that the difference of squares cannot cancel
        rest = total / f64(cols)
        scale = T(f64(1.0) / sqrt(maximum(squares / f64(cols) - rest * rest, f64(0.0)) + f64(eps)))
        shift = T(rest)
        for j in range(cols):
            y = (load(x, base + j) - mean - shift) * scale
            if HAS_WEIGHT:
                y = y * load(weight, j)
            if HAS_BIAS:
                y = y + load(bias, j)
            store(out, base + j, y)


def rms_norm_rows(x, weight, out, cols: int, eps: float, HAS_WEIGHT: bool, lo, hi):
    """x / sqrt(mean(x**2) + eps), then * weight."""
    for row in range(lo, hi):
        base = row * cols
        squares = f64(0.0)
        for first in range(0, cols, 1024):
            stop = select(first + 1024 < cols, first + 1024, cols)
            part = T(0.0)
            for j in range(first, stop):
                v = load(x, base + j)
                part = radd(part, v * v)
            squares = squares + f64(part)
        scale = T(f64(1.0) / sqrt(squares / f64(cols) + f64(eps)))
        for j in range(cols):
            y = load(x, base + j) * scale
            if HAS_WEIGHT:
                y = y * load(weight, j)
            store(out, base + j, y)


def row_launch(cost: int) -> Callable[..., Launch]:
    """Work items are the rows of x; the flags say which optional inputs there are."""

    def launch(inputs: Sequence[Operand], outputs: Sequence[Operand], attrs: Mapping[str, Any]) -> Launch:
        x = inputs[0]
        cols = x.shape[-1]
        args = {"cols": cols} | {k: v for k, v in attrs.items() if k == "eps"}
        flags = {"FULL": x.dtype.bits >= 32, "HAS_WEIGHT": len(inputs) > 1, "HAS_BIAS": len(inputs) > 2}
        return Launch(args, product(x.shape[:-1]), cols * cost, flags)

    return launch


# ---------------------------------------------------------------- declarations
_WEIGHT = {"weight": "a factor for each column, (x.shape[-1],); None: 1", "eps": "what is added under the root"}
_BIAS = {"bias": "what is added in each column, (x.shape[-1],); None: 0"}
_NO_ROW = {"ShapeError": "weight or bias has another shape than (x.shape[-1],)", "AxisError": "x has no axis"}


def infer_row_op(name: str) -> Callable[..., Aval]:
    """Shape and dtype of x. Raises AxisError for a scalar, ShapeError where weight or bias is no row."""

    def infer(x: Aval, *affine: Aval, **attrs: Any) -> Aval:
        if x.rank == 0:
            raise AxisError(f"{name}() needs an array of at least one axis, not a scalar",
                            cure="pass an array of rank 1 or more, e.g. x[None]")
        if x.dtype not in dt.FLOATS:
            raise DTypeError(f"{name}() is not defined for {x.dtype}",
                             cure="cast it first, e.g. x.astype('f32')")
        for label, a in zip(("weight", "bias"), affine):
            if a.shape != x.shape[-1:]:
                raise ShapeError(f"{name}(): {label} has shape {fmt(a.shape)}, but the last axis of {x} "
                                 f"needs {fmt(x.shape[-1:])}",
                                 cure="give one element for each column")
            if a.dtype is not x.dtype:
                raise DTypeError(f"{name}(): {label} is {a.dtype}, x is {x.dtype}",
                                 cure=f"cast it: {label}.astype(x.dtype)")
        return x

    return infer


def softmax_ref(x: Any, *, axis: int) -> Any:
    x = upcast(x)
    if x.shape[axis] == 0:
        return x
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


def log_softmax_ref(x: Any, *, axis: int) -> Any:
    x = upcast(x)
    if x.shape[axis] == 0:
        return x
    x = x - np.max(x, axis=axis, keepdims=True)
    return x - np.log(np.sum(np.exp(x), axis=axis, keepdims=True))


def layer_norm_ref(x: Any, weight: Any = None, bias: Any = None, *, eps: float) -> Any:
    x = upcast(x)
    if x.shape[-1] == 0:
        return x
    d = x - np.mean(x, axis=-1, keepdims=True)
    d = d - np.mean(d, axis=-1, keepdims=True)  # what rounding the mean left over: of equal numbers it would be all there is
    y = d / np.sqrt(np.mean(d * d, axis=-1, keepdims=True) + eps)
    y = y if weight is None else y * upcast(weight)
    return y if bias is None else y + upcast(bias)


def rms_norm_ref(x: Any, weight: Any = None, *, eps: float) -> Any:
    x = upcast(x)
    if x.shape[-1] == 0:
        return x
    y = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
    return y if weight is None else y * upcast(weight)


def _rows() -> np.ndarray[Any, Any]:
    return np.sin(np.arange(3 * 5 * 7, dtype=np.float64)).reshape(3, 5, 7) * 3


def softmax_samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    yield (_rows(),), {}
    yield (_rows(),), {"axis": 1}
    yield (np.cos(np.arange(2 * 1029.0)).reshape(2, 1029),), {"axis": -1}
    yield (np.ones((3, 1)),), {}


def affine_samples(most: int) -> Callable[[], Iterator[tuple[tuple[Any, ...], dict[str, Any]]]]:
    def samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        affine = (np.linspace(0.5, 2.0, 7), np.linspace(-1.0, 1.0, 7))
        for count in range(most + 1):
            yield (_rows(), *affine[:count]), {}
        yield (np.cos(np.arange(2 * 1029.0)).reshape(2, 1029),), {"eps": 1e-3}

    return samples


softmax = op("softmax", "norm", "x", infer=infer_row_op("softmax"), attrs={"axis": Axis(-1)},
             last_axis="axis", ref=softmax_ref, domain="float", samples=softmax_samples,
             like="scipy.special.softmax, torch.softmax", shapes="x's",
             doc="exp(x - max) / sum along an axis; a row of -inf only gives NaN")
log_softmax = op("log_softmax", "norm", "x", infer=infer_row_op("log_softmax"), attrs={"axis": Axis(-1)},
                 last_axis="axis", ref=log_softmax_ref, domain="float", samples=softmax_samples,
                 like="scipy.special.log_softmax, torch.log_softmax", shapes="x's",
                 doc="log(softmax(x)) along an axis, without leaving the logarithm")
layer_norm = op("layer_norm", "norm", "x weight? bias?", infer=infer_row_op("layer_norm"),
                attrs={"eps": Float(1e-5)}, ref=layer_norm_ref, domain="float", samples=affine_samples(2),
                like="torch.nn.functional.layer_norm", args=_WEIGHT | _BIAS, shapes="x's", raises=_NO_ROW,
                doc="(x - mean) / sqrt(var + eps) * weight + bias over the last axis")
rms_norm = op("rms_norm", "norm", "x weight?", infer=infer_row_op("rms_norm"), attrs={"eps": Float(1e-6)},
              ref=rms_norm_ref, domain="float", samples=affine_samples(1),
              like="torch.nn.functional.rms_norm", args=_WEIGHT, shapes="x's", raises=_NO_ROW,
              doc="x / sqrt(mean(x**2) + eps) * weight over the last axis")

softmax.kernel(CPU, dt.FLOATS, launch=row_launch(24))(softmax_rows)
log_softmax.kernel(CPU, dt.FLOATS, launch=row_launch(24))(log_softmax_rows)
layer_norm.kernel(CPU, dt.FLOATS, launch=row_launch(8))(layer_norm_rows)
rms_norm.kernel(CPU, dt.FLOATS, launch=row_launch(4))(rms_norm_rows)
