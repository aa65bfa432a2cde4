"""What is measured. A workload has inputs and, for each family of engines, a formula: a function of the family's namespace
(`numpy`, `torch`, `jax`, ...) that gives the function to be compiled and timed. Each is written as users of that library
would: with its own softmax where it has one. fuelnumba compiles NumPy's formula unless it has another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Formula = Callable[[Any], Callable[..., Any]]


@dataclass(frozen=True)
class Workload:
    """`shapes` of the inputs, standard normal f32; `tiny` ones for tests. `terms` is how many numbers are added up into one,
    `flops` what a product has to compute."""

    name: str
    title: str
    shapes: tuple[tuple[int, ...], ...]
    tiny: tuple[tuple[int, ...], ...]
    formulas: dict[str, Formula] = field(repr=False)
    terms: int = 1
    flops: int = 0

    @property
    def allowed(self) -> float:
        """The largest difference from float64 NumPy, relative to the results' root mean square. The error of an f32 sum of
        numbers of both signs, added one after the other, is about eps * sqrt(terms) of that; four times as much is right."""
        return max(1e-5, 4 * float(np.finfo(np.float32).eps) * self.terms**0.5)

    def function(self, family: str, space: Any) -> Callable[..., Any]:
        """The function for a family of engines that has one."""
        if family == "fuelnumba" and family not in self.formulas:
            return self.formulas["numpy"](np)
        return self.formulas[family](space)

    def has(self, family: str) -> bool:
        return family in self.formulas or family == "fuelnumba"

    def inputs(self, tiny: bool = False) -> list[Array]:
        rng = np.random.default_rng(7)
        return [rng.standard_normal(shape, dtype=np.float32) for shape in (self.tiny if tiny else self.shapes)]

    def exact(self, inputs: Sequence[Array]) -> Array:
        """The result in float64; places stay integers."""
        return np.asarray(self.formulas["numpy"](np)(*(x.astype(np.float64) for x in inputs)))

    def error_of(self, result: Array, exact: Array) -> float:
        """Largest relative difference. Raises ValueError when shape, kind or values are wrong."""
        wanted = exact.dtype if exact.dtype.kind == "i" else np.dtype(np.float32)
        if result.shape != exact.shape or result.dtype.kind != wanted.kind:
            raise ValueError(f"wrong result: {result.dtype}{list(result.shape)}, not {wanted}{list(exact.shape)}")
        if wanted.kind == "f" and result.dtype != wanted:
            raise ValueError(f"wrong result: computed in {result.dtype}, not f32")
        difference = np.abs(result.astype(exact.dtype) - exact)
        if wanted.kind == "i":
            error, allowed = float(np.max(difference)), 0.0
        else:
            error, allowed = float(np.max(difference) / np.sqrt(np.mean(exact * exact))), self.allowed
        if not error <= allowed:
            raise ValueError(f"wrong result: differs by {error:.1e}, where {allowed:.1e} is allowed")
        return error


# ------------------------------------------------------------------------------------------------ elementwise chain
A, B = 1.5, 0.25
ROOT, CUBE = 0.7978845608, 0.044715  # of gelu's tanh approximation
CHAIN_CONSTANTS = {"a": A, "b": B, "half": 0.5, "one": 1.0, "root": ROOT, "cube": CUBE}


def chain_numpy(np):
    def chain(x):
        y = x * A + B
        gelu = 0.5 * y * (1 + np.tanh(ROOT * (y + CUBE * (y * y * y))))
        return gelu * (1 / (1 + np.exp(-y))) + x
    return chain


def chain_torch(torch):
    gelu = torch.nn.functional.gelu

    def chain(x):
        y = x * A + B
        return gelu(y, approximate="tanh") * torch.sigmoid(y) + x
    return chain


def chain_jax(jax):
    def chain(x):
        y = x * A + B
        return jax.nn.gelu(y, approximate=True) * jax.nn.sigmoid(y) + x
    return chain


def chain_pytensor(pt):
    def chain(x):
        y = x * A + B
        return 0.5 * y * (1 + pt.tanh(ROOT * (y + CUBE * (y * y * y)))) * pt.sigmoid(y) + x
    return chain


def chain_onnx(op):
    def chain(x):
        y = x * A + B
        return op.Gelu(y, approximate="tanh") * op.Sigmoid(y) + x
    return chain


def chain_numexpr(numexpr):
    # constants would be doubles, and so the whole; as f32 variables they are not
    gelu = "half * y * (one + tanh(root * (y + cube * (y * y * y))))".replace("y", "(x * a + b)")
    text = f"{gelu} / (one + exp(-(x * a + b))) + x"
    constants = {k: np.float32(v) for k, v in CHAIN_CONSTANTS.items()}
    return lambda x: numexpr.evaluate(text, local_dict={"x": x, **constants})


CHAIN = {"numpy": chain_numpy, "torch": chain_torch, "jax": chain_jax, "pytensor": chain_pytensor, "onnx": chain_onnx,
         "numexpr": chain_numexpr}


# ------------------------------------------------------------------------------------------------ 200 operations
OPERATIONS = 200


def many_operations(sin, tanh):
    """The same 200 elementwise operations for every engine: 20 rounds of ten, of which four are sines and tangents."""
    def many(x, w):
        y = x
        for k in range(OPERATIONS // 10):
            a = y * w + (0.5 - 0.05 * k)
            b = sin(a) * tanh(x - y)
            y = sin(tanh(b + w) - y)
        return y
    return many


MANY = {
    "numpy": lambda np: many_operations(np.sin, np.tanh),
    "torch": lambda torch: many_operations(torch.sin, torch.tanh),
    "jax": lambda jax: many_operations(jax.numpy.sin, jax.numpy.tanh),
    "pytensor": lambda pt: many_operations(pt.sin, pt.tanh),
    "onnx": lambda op: many_operations(op.Sin, op.Tanh),
}


# ------------------------------------------------------------------------------------------------ rows
RMS_EPS, LAYER_EPS = 1e-6, 1e-5


def softmax_numpy(np):
    def softmax(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)
    return softmax


def softmax_pytensor(pt):
    from pytensor.tensor.special import softmax
    return lambda x: softmax(x, axis=-1)


SOFTMAX = {
    "numpy": softmax_numpy,
    "fuelnumba": lambda fn: lambda x: fn.ops.softmax(x),
    "torch": lambda torch: lambda x: torch.softmax(x, -1),
    "jax": lambda jax: lambda x: jax.nn.softmax(x, axis=-1),
    "pytensor": softmax_pytensor,
    "onnx": lambda op: lambda x: op.Softmax(x, axis=-1),
}


def rms_norm(sqrt, mean):
    return lambda x: x / sqrt(mean(x * x) + RMS_EPS)


RMS_NORM = {
    "numpy": lambda np: rms_norm(np.sqrt, lambda x: np.mean(x, axis=-1, keepdims=True)),
    "fuelnumba": lambda fn: lambda x: fn.ops.rms_norm(x, eps=RMS_EPS),
    "torch": lambda torch: lambda x: torch.nn.functional.rms_norm(x, x.shape[-1:], eps=RMS_EPS),
    "jax": lambda jax: rms_norm(jax.numpy.sqrt, lambda x: jax.numpy.mean(x, axis=-1, keepdims=True)),
    "pytensor": lambda pt: rms_norm(pt.sqrt, lambda x: pt.mean(x, axis=-1, keepdims=True)),
    "onnx": lambda op: lambda x: op.RMSNormalization(x, op.ones(x.shape[-1]), axis=-1, epsilon=RMS_EPS),
}


def layer_norm(sqrt, mean):
    def norm(x):
        d = x - mean(x)
        return d / sqrt(mean(d * d) + LAYER_EPS)
    return norm


LAYER_NORM = {
    "numpy": lambda np: layer_norm(np.sqrt, lambda x: np.mean(x, axis=-1, keepdims=True)),
    "fuelnumba": lambda fn: lambda x: fn.ops.layer_norm(x, eps=LAYER_EPS),
    "torch": lambda torch: lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:], eps=LAYER_EPS),
    "jax": lambda jax: layer_norm(jax.numpy.sqrt, lambda x: jax.numpy.mean(x, axis=-1, keepdims=True)),
    "pytensor": lambda pt: layer_norm(pt.sqrt, lambda x: pt.mean(x, axis=-1, keepdims=True)),
    "onnx": lambda op: lambda x: op.LayerNormalization(x, op.ones(x.shape[-1]), axis=-1, epsilon=LAYER_EPS),
}


# ------------------------------------------------------------------------------------------------ reductions and products
def sums(axis):
    axes = () if axis is None else ([axis],)
    return {
        "numpy": lambda np: lambda x: np.sum(x, axis=axis),
        "torch": lambda torch: lambda x: torch.sum(x) if axis is None else torch.sum(x, axis),
        "jax": lambda jax: lambda x: jax.numpy.sum(x, axis=axis),
        "pytensor": lambda pt: lambda x: pt.sum(x, axis=axis),
        "onnx": lambda op: lambda x: op.ReduceSum(x, *map(op.int64, axes), keepdims=0),
    }


def places(axis):
    return {
        "numpy": lambda np: lambda x: np.argmax(x, axis=axis),
        "torch": lambda torch: lambda x: torch.argmax(x, axis),
        "jax": lambda jax: lambda x: jax.numpy.argmax(x, axis=axis),
        "pytensor": lambda pt: lambda x: pt.argmax(x, axis=axis),
        "onnx": lambda op: lambda x: op.ArgMax(x, axis=axis, keepdims=0),
    }


def product(a, b):
    return a @ b


def product_transposed(a, b):
    return a @ b.T


MATMUL = {name: lambda _: product for name in ("numpy", "torch", "jax", "pytensor")}
MATMUL_TRANSPOSED = {name: lambda _: product_transposed for name in MATMUL}
MATMUL["onnx"] = lambda op: op.MatMul
MATMUL_TRANSPOSED["onnx"] = lambda op: lambda a, b: op.Gemm(a, b, transB=1)


# ------------------------------------------------------------------------------------------------ the list
def _elementwise(name, title, n, formulas, tiny=17, count=1, **rest):
    return Workload(name, title, ((n,),) * count, ((tiny,),) * count, formulas, **rest)


def _rows(name, formulas, **rest):
    return Workload(name, f"{name} 4096 x 1024", ((4096, 1024),), ((5, 24),), formulas, **rest)


def _square(name, title, formulas, **rest):
    return Workload(name, f"{title} of 4096 x 4096", ((4096, 4096),), ((12, 20),), formulas, **rest)


def _product(name, m, title, formulas):
    return Workload(name, f"[{m}, 4096] @ [4096, 4096] {title}", ((m, 4096), (4096, 4096)), ((min(m, 3), 16), (16, 16)),
                    formulas, terms=4096, flops=2 * m * 4096 * 4096)


WORKLOADS = [
    _elementwise("chain-10m", "chain, 10 M elements", 10_000_000, CHAIN),
    _elementwise("chain-1k", "chain, 1 k elements", 1_000, CHAIN),
    _elementwise("ops-200", "200 ops on [16]", 16, MANY, tiny=16, count=2),
    _rows("softmax", SOFTMAX, terms=1024),
    _rows("rms_norm", RMS_NORM),
    _rows("layer_norm", LAYER_NORM),
    _square("sum-0", "sum over axis 0", sums(0), terms=4096),
    _square("sum-1", "sum over axis 1", sums(1), terms=4096),
    _square("sum-all", "sum", sums(None), terms=4096 * 4096),
    _square("argmax-0", "argmax over axis 0", places(0)),
    _square("argmax-1", "argmax over axis 1", places(1)),
    _product("matmul-rows", 512, "row-major", MATMUL),
    _product("matmul-transposed", 512, "transposed", MATMUL_TRANSPOSED),
    _product("vector-rows", 1, "row-major", MATMUL),
    _product("vector-transposed", 1, "transposed", MATMUL_TRANSPOSED),
]
BY_NAME = {w.name: w for w in WORKLOADS}

