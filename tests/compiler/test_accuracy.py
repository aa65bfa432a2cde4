"""Fused results are as near to the exact ones as those of the same ops one by one.

A region skips roundings: a product goes into a sum unrounded (contraction). So the bound of its error is that of the ops one by
one, or less. Half types are rounded after every op (test_rounding). Errors themselves may by chance be larger: ops one by one
have errors that cancel, as in x*x - x*x, which is 0 without contraction and the product's rounding error with it. Therefore
errors are counted in ulp of the largest number on the way to an element, over thousands of elements. A mean must not be greater
(beyond 2 %, which is chance); a maximum, one element's fate, not by more than a tenth and a quarter of an ulp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuelnumba import jit, ops
from fuelnumba.compiler import fuse
from fuelnumba.core.dtypes import dtype_of

from .programs import BINARY, UNARY

Array = np.ndarray[Any, Any]
SIZE = 5003
MEAN, MAXIMUM = (1.02, 0.002), (1.1, 0.25)  # times the error of the ops one by one, and so many ulp


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x)) if isinstance(x, np.ndarray) else ops.sigmoid(x)


# each gives everything on the way; the last is the result
CHAINS: dict[str, Callable[..., list[Any]]] = {
    "gelu": lambda x, y, z: [c := x * x * x, h := x + 0.044715 * c, t := np.tanh(0.79788456 * h), 0.5 * x * (1 + t)],
    "horner": lambda x, y, z: [a := x * 0.125 + 0.5, b := a * x - 1.75, c := b * x + 3.0, d := c * x - 0.3, d * x + 1.0],
    "gated": lambda x, y, z: [g := x * sigmoid(x), g * y + z],
    "difference of products": lambda x, y, z: [a := x * y, b := z * x, a - b],
    "cancelling square": lambda x, y, z: [a := x * x, b := x + y * 0.001, c := b * b, a - c],
    "distance": lambda x, y, z: [a := x * x, b := y * y, c := z * z, np.sqrt(a + b + c)],
    "rotation": lambda x, y, z: [c := np.cos(z), s := np.sin(z), a := x * c, b := y * s, a - b],
    "logistic loss": lambda x, y, z: [a := np.abs(x), e := np.exp(-a), p := np.log1p(e), np.maximum(x, 0) - x * y + p],
    "interpolation": lambda x, y, z: [t := sigmoid(z), a := x * t, b := y * (1 - t), a + b],
}


def random_chain(seed: int) -> Callable[..., list[Any]]:
    """Twelve steps, each of late values; none that jumps."""
    r = np.random.default_rng(seed)
    unary = [n for n in UNARY if n not in ("softmax", "layer_norm", "square", "sigmoid", "silu")]
    binary = [n for n in BINARY if n not in ("where", "less")]
    steps: list[tuple[str, tuple[int, ...]]] = []
    for k in range(12):
        late = [max(0, 2 + k - int(r.geometric(0.4))) for _ in range(2)]
        name = str(r.choice(unary if r.random() < 0.4 else binary))
        steps.append((name, tuple(late[:1] if name in unary else late)))

    def run(x: Any, y: Any, z: Any) -> list[Any]:
        values = [x, y, z]
        for name, at in steps:
            made = {**UNARY, **BINARY}[name][0](*(values[k] for k in at))
            values.append(np.clip(made, -30, 30) if name in ("mul", "hypot") else made)
        return values

    return run


def errors(chain: Callable[..., list[Any]], dtype: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """(mean, maximum) of the error in ulp, fused and op by op."""
    d = dtype_of(dtype)
    r = np.random.default_rng(7)
    xs = [(r.standard_normal(SIZE) * 2).astype(d.numpy) for _ in range(3)]
    exact = chain(*(x.astype(np.longdouble) for x in xs))
    largest = np.max([np.abs(v) for v in (*(x.astype(np.longdouble) for x in xs), *exact)], axis=0)
    info = ml_dtypes.finfo(d.numpy)
    ulp = np.exp2(np.floor(np.log2(np.maximum(largest, float(info.tiny))))) * float(info.eps)

    def measured() -> tuple[float, float]:
        f = jit(lambda *xs: chain(*xs)[-1])
        got = f(*xs).astype(np.longdouble)
        regions.append(len(f.plan.launches))
        off = np.abs(got - exact[-1]) / ulp
        assert np.isfinite(off).all()
        return float(off.mean()), float(off.max())

    regions: list[int] = []
    fused = measured()
    with monkeypatch.context() as patch:
        patch.setattr(fuse, "MAX_WEIGHT", 0)
        alone = measured()
    assert regions[0] == 1 < regions[1]
    return [fused, alone]


def check(chain: Callable[..., list[Any]], dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fused, alone = errors(chain, dtype, monkeypatch)
    said = f"mean and maximum in ulp: {fused} fused, {alone} op by op"
    assert fused[0] <= alone[0] * MEAN[0] + MEAN[1], said
    assert fused[1] <= alone[1] * MAXIMUM[0] + MAXIMUM[1], said


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("name", CHAINS)
def test_chain(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(CHAINS[name], dtype, monkeypatch)


@pytest.mark.parametrize("dtype", ["f64", "bf16"])
@pytest.mark.parametrize("name", ["gelu", "cancelling square", "rotation"])
def test_chain_in_other_dtypes(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(CHAINS[name], dtype, monkeypatch)


@pytest.mark.parametrize("seed", range(12))
def test_random_chain(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check(random_chain(seed), ("f32", "f16", "f64", "bf16")[seed % 4], monkeypatch)


@pytest.mark.parametrize("name", ["softmax", "layer norm"])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_rows(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains around sums; in ulp of the row's largest result."""
    def softmax(x: Any) -> Any:
        e = np.exp(x - x.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    def layer_norm(x: Any) -> Any:
        d = x - x.mean(axis=-1, keepdims=True)
        return d / np.sqrt((d * d).mean(axis=-1, keepdims=True) + 1e-5)

    fn = {"softmax": softmax, "layer norm": layer_norm}[name]
    d = dtype_of(dtype)
    x = (np.random.default_rng(3).standard_normal((61, 83)) * 2).astype(d.numpy)
    exact = fn(x.astype(np.longdouble))
    ulp = np.abs(exact).max(-1, keepdims=True) * float(ml_dtypes.finfo(d.numpy).eps)
    off = []
    for weight in (fuse.MAX_WEIGHT, 0):
        monkeypatch.setattr(fuse, "MAX_WEIGHT", weight)
        off.append(np.abs(jit(lambda x: fn(x))(x).astype(np.longdouble) - exact) / ulp)
    fused, alone = off
    assert fused.mean() <= alone.mean() * MEAN[0] + MEAN[1] and fused.max() <= alone.max() * MAXIMUM[0] + MAXIMUM[1]
