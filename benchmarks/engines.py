"""What is measured against what: each engine turns a workload's formula and inputs into a call without arguments.

An engine that is not here, or has no formula for a workload, raises Unavailable with the reason.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import machine
import numpy as np
from workloads import Array, Workload

Call = Callable[[], Any]


class Unavailable(Exception):
    """Why an engine is not measured: one phrase, for the table."""


@dataclass(frozen=True)
class Engine:
    """`family` names the formulas it runs, `load` imports it and gives their namespace, `build` makes the call, `fetch` an
    array of what that returns. `kept` are the variables that name the folder in which it keeps what it compiled ("{}")."""

    name: str
    title: str
    family: str
    packages: tuple[str, ...]
    load: Callable[[], Any]
    build: Callable[[Any, Callable[..., Any], Sequence[Array]], Call]
    fetch: Callable[[Any], Any] = np.asarray
    kept: Mapping[str, str] = field(default_factory=dict)
    needs_compiler: bool = False

    def check(self) -> None:
        """Raises Unavailable unless everything is installed."""
        for package in self.packages:
            if importlib.util.find_spec(package) is None:
                raise Unavailable("not installed")
        if self.needs_compiler and machine.cpp_compiler() is None:
            raise Unavailable("not available: no compiler")

    def prepare(self, workload: Workload, inputs: Sequence[Array]) -> Call:
        """The call, not yet made once. Raises Unavailable, and whatever the engine does."""
        self.check()
        if not workload.has(self.family):
            raise Unavailable("no formula")
        space = self.load()
        return self.build(space, workload.function(self.family, space), inputs)


# ------------------------------------------------------------------------------------------------ NumPy and fuelnumba
def build_plain(_: Any, function: Callable[..., Any], inputs: Sequence[Array]) -> Call:
    return lambda: function(*inputs)


def load_fuelnumba() -> Any:
    import fuelnumba
    return fuelnumba


def build_fuelnumba(fuelnumba: Any, function: Callable[..., Any], inputs: Sequence[Array]) -> Call:
    jitted = fuelnumba.jit(function)
    return lambda: jitted(*inputs)


# ------------------------------------------------------------------------------------------------ PyTorch
@cache
def load_torch() -> Any:
    import torch
    torch.set_num_threads(machine.CORES)
    torch.inference_mode().__enter__()  # for the rest of the process: entering it at each call would be timed
    return torch


def build_torch(torch: Any, function: Callable[..., Any], inputs: Sequence[Array]) -> Call:
    return build_plain(torch, function, [torch.from_numpy(x) for x in inputs])


def build_torch_compile(torch: Any, function: Callable[..., Any], inputs: Sequence[Array]) -> Call:
    torch.compiler.reset()
    return build_torch(torch, torch.compile(function, fullgraph=True, dynamic=False), inputs)


# ------------------------------------------------------------------------------------------------ JAX
@cache
def load_jax() -> Any:
    import jax
    return jax


def build_jax(jax: Any, function: Callable[..., Any], inputs: Sequence[Array]) -> Call:
    jitted, wait = jax.jit(function), jax.block_until_ready
    arrays = [jax.device_put(x) for x in inputs]
    return lambda: wait(jitted(*arrays))


# ------------------------------------------------------------------------------------------------ PyTensor
@cache
def load_pytensor() -> Any:
    import pytensor.tensor as pt
    return pt


def build_pytensor(pt: Any, function: Callable[..., Any], inputs: Sequence[Array]) -> Call:
    import pytensor
    variables = [pt.tensor(dtype=str(x.dtype), shape=x.shape) for x in inputs]
    compiled = pytensor.function(variables, function(*variables), mode="NUMBA")
    compiled.trust_input = True  # arguments are what they should be: its checks are not timed
    return build_plain(pt, compiled, inputs)


# ------------------------------------------------------------------------------------------------ onnxruntime
class OnnxValue:
    """A named value of a model in the making; operators add nodes to it."""

    def __init__(self, ops: OnnxOps, name: str, shape: tuple[int, ...] = ()) -> None:
        self.ops, self.name, self.shape = ops, name, shape  # the shape is known of inputs only

    def __add__(self, other: Any) -> OnnxValue:
        return self.ops.Add(self, other)

    def __sub__(self, other: Any) -> OnnxValue:
        return self.ops.Sub(self, other)

    def __mul__(self, other: Any) -> OnnxValue:
        return self.ops.Mul(self, other)


class OnnxOps:
    """`ops.Softmax(x, axis=-1)` adds that node and gives its output; Python floats become f32 constants."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def __getattr__(self, op_type: str) -> Callable[..., OnnxValue]:
        from onnx import helper

        def node(*inputs: Any, **attributes: Any) -> OnnxValue:
            names = [(i if isinstance(i, OnnxValue) else self.constant(np.float32(i))).name for i in inputs]
            out = OnnxValue(self, f"v{len(self.nodes)}")
            self.nodes.append(helper.make_node(op_type, names, [out.name], **attributes))
            return out

        return node

    def constant(self, value: Any) -> OnnxValue:
        from onnx import numpy_helper
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return OnnxValue(self, name)

    def ones(self, n: int) -> OnnxValue:
        return self.constant(np.ones(n, np.float32))

    def int64(self, values: Sequence[int]) -> OnnxValue:
        return self.constant(np.asarray(values, np.int64))


def load_onnxruntime() -> Any:
    import onnx
    import onnxruntime  # noqa: F401
    assert onnx
    return OnnxOps()


def build_onnxruntime(ops: OnnxOps, function: Callable[..., Any], inputs: Sequence[Array]) -> Call:
    import onnxruntime
    from onnx import TensorProto, helper

    names = [f"x{k}" for k in range(len(inputs))]
    result = function(*(OnnxValue(ops, name, x.shape) for name, x in zip(names, inputs)))
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name, x in zip(names, inputs)]
    out = helper.make_empty_tensor_value_info(result.name)  # its type is inferred
    graph = helper.make_graph(ops.nodes, "workload", infos, [out], initializer=ops.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = machine.CORES
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {name: onnxruntime.OrtValue.ortvalue_from_numpy(x) for name, x in zip(names, inputs)}
    wanted = [result.name]
    return lambda: session.run_with_ort_values(wanted, feed)[0]


# ------------------------------------------------------------------------------------------------ numexpr
@cache
def load_numexpr() -> Any:
    import numexpr
    numexpr.set_num_threads(machine.CORES)
    return numexpr


# ------------------------------------------------------------------------------------------------ the list
def fetch_method(result: Any) -> Any:
    return result.numpy()


ENGINES = [
    Engine("numpy", "NumPy", "numpy", (), lambda: np, build_plain),
    Engine("fuelnumba", "fuelnumba", "fuelnumba", ("fuelnumba",), load_fuelnumba, build_fuelnumba,
           kept={"FUELNUMBA_CACHE_DIR": "{}"}),
    Engine("torch", "PyTorch", "torch", ("torch",), load_torch, build_torch, fetch_method),
    Engine("torch.compile", "torch.compile", "torch", ("torch",), load_torch, build_torch_compile, fetch_method,
           kept={"TORCHINDUCTOR_CACHE_DIR": "{}"}, needs_compiler=True),
    Engine("jax", "JAX", "jax", ("jax",), load_jax, build_jax,
           kept={"JAX_COMPILATION_CACHE_DIR": "{}", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                 "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}),
    Engine("pytensor", "PyTensor", "pytensor", ("pytensor",), load_pytensor, build_pytensor,
           kept={"PYTENSOR_FLAGS": "floatX=float32,base_compiledir={}", "NUMBA_CACHE_DIR": "{}"}),
    Engine("onnxruntime", "onnxruntime", "onnx", ("onnx", "onnxruntime"), load_onnxruntime, build_onnxruntime, fetch_method),
    Engine("numexpr", "numexpr", "numexpr", ("numexpr",), load_numexpr, build_plain),
]
BY_NAME = {e.name: e for e in ENGINES}
