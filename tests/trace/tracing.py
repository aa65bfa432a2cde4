"""Trace a function on arrays, verify the graph, and evaluate it with the ops' references."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fuelnumba.kernels
from fuelnumba.core import dims, ir
from fuelnumba.core import dtypes as dt
from fuelnumba.trace.interpret import interpret
from fuelnumba.trace.tensor import Tensor, Trace, tracing_into

for _module in pkgutil.iter_modules(fuelnumba.kernels.__path__):
    importlib.import_module(f"fuelnumba.kernels.{_module.name}")


def trace(fn: Callable[..., Any], arrays: Sequence[Any], shapes: Sequence[Any] | None = None,
          trace: Trace | None = None) -> tuple[ir.Graph, Any]:
    """The verified graph of `fn` on arrays and weak Python scalars, and what `fn` returned."""
    trace = trace or Trace(name=getattr(fn, "__name__", "f"))
    nodes, values = [], []
    with tracing_into(trace):
        for k, a in enumerate(arrays):
            weak = {bool: "b", int: "i", float: "f"}.get(type(a))
            dtype = dt.WEAK_DTYPES[weak] if weak else dt.dtype_of(a.dtype)
            shape = shapes[k] if shapes is not None else np.shape(a)
            nodes.append(ir.input_node(f"x{k}", shape, dtype))
            values.append(trace.wrap(nodes[-1], weak))
        result = fn(*values)
    outputs = [r.node for r in flat(result)]
    graph = ir.Graph(nodes, outputs, trace.name, trace.env)
    with dims.tracing(trace.env):
        ir.verify(graph)
    return graph, result


def flat(result: Any) -> list[Tensor]:
    return [t for r in result for t in flat(r)] if isinstance(result, (list, tuple)) else [result]


def run(fn: Callable[..., Any], *arrays: Any) -> Any:
    """What the traced function computes: an array, or a list of them."""
    graph, result = trace(fn, arrays)
    out = interpret(graph, arrays)
    return out if isinstance(result, (list, tuple)) else out[0]


def check(fn: Callable[..., Any], *arrays: Any, rtol: float = 1e-5) -> None:
    """The traced function gives what NumPy gives: shapes, dtypes and values."""
    with np.errstate(all="ignore"):
        expected = fn(*arrays)
    got = run(fn, *arrays)
    if not isinstance(expected, (list, tuple)):
        expected, got = [expected], [got]
    assert len(expected) == len(got)
    for e, g in zip(expected, got):
        e = np.asarray(e)
        assert g.dtype == e.dtype, f"{g.dtype} instead of {e.dtype}"
        assert g.shape == e.shape, f"{g.shape} instead of {e.shape}"
        narrow = e.dtype.kind == "f" and e.dtype.itemsize == 2
        np.testing.assert_allclose(g, e, rtol=2e-3 if narrow else rtol, atol=1e-3 if narrow else 1e-6)
