"""A graph evaluated node by node with the ops' float64 references: slow, simple, and the oracle of tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..core import dtypes as dt
from ..core import ir
from ..core.dims import Dim, Extent, evaluate
from ..core.dtypes import DType
from ..core.errors import ShapeError
from ..core.ir import Graph, Node

Array = np.ndarray[Any, Any]


def interpret(graph: Graph, arrays: Sequence[Any]) -> list[Array]:
    """The outputs for these input arrays. Symbolic lengths are read off the arrays."""
    arrays = [np.asarray(a, n.dtype.numpy) for a, n in zip(arrays, graph.inputs, strict=True)]
    env = bind(graph.inputs, arrays)
    values: dict[Node, Array] = dict(zip(graph.inputs, arrays))
    with np.errstate(all="ignore"):
        for node in graph.nodes():
            if node not in values:
                values[node] = evaluate_node(node, [values[i] for i in node.inputs], env)
    return [values[o] for o in graph.outputs]


def bind(inputs: Sequence[Node], arrays: Sequence[Array]) -> dict[str, int]:
    """The symbols' values: from axes that are a symbol, then every axis is checked."""
    env: dict[str, int] = {}
    for node, array in zip(inputs, arrays):
        if len(node.shape) != array.ndim:
            raise ShapeError(f"{node!r} got an array of shape {array.shape}")
        for n, length in zip(node.shape, array.shape):
            if isinstance(n, Dim) and [*n.terms.items()] == [((str(n),), 1)]:
                env.setdefault(str(n), length)
    for node, array in zip(inputs, arrays):
        if _static(node.shape, env) != array.shape:
            raise ShapeError(f"{node!r} got an array of shape {array.shape}")
    return env


def _static(value: Any, env: Mapping[str, int]) -> Any:
    """An attribute with its symbolic lengths worked out."""
    if isinstance(value, tuple):
        return tuple(_static(v, env) for v in value)
    return evaluate(value, env) if isinstance(value, Dim) else value


def evaluate_node(node: Node, inputs: Sequence[Array], env: Mapping[str, int]) -> Array:
    """What a node makes of its inputs. env: the lengths of the symbols."""
    shape: tuple[Extent, ...] = _static(node.shape, env)
    if node.op is ir.CONSTANT:
        return np.asarray(node.attr("captured").array)
    if node.op is ir.FULL:
        return np.full(shape, rounded(np.asarray(_static(node.attr("value"), env)), node.dtype))
    if node.op.ref is None:
        raise NotImplementedError(f"{node.op.name} has no reference")
    attrs = {k: _static(v, env) for k, v in node.attrs}
    wide = [x.astype(np.float64) if i.dtype.kind in "fs" else x for x, i in zip(inputs, node.inputs)]
    out = rounded(np.asarray(node.op.ref(*wide, **attrs)), node.dtype)
    if out.shape != shape:
        raise ShapeError(f"the reference of {node!r} gave shape {out.shape}, not {shape}", where=node.where)
    return out


def rounded(x: Array, dtype: DType) -> Array:
    """x in a dtype: floats become integers by truncation, saturating, NaN as 0."""
    if x.dtype.kind == "f" and dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        x = np.nan_to_num(np.trunc(x), nan=0.0, posinf=np.inf, neginf=-np.inf)
        low, high = x <= info.min, x >= info.max
        inside = np.where(low | high, 0, x).astype(np.int64)
        return np.where(low, info.min, np.where(high, info.max, inside)).astype(dtype.numpy)
    return x != 0 if dtype is dt.bool_ else x.astype(dtype.numpy)
