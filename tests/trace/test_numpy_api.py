"""NumPy's functions on traced values give what NumPy gives on arrays: shapes, dtypes and values."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuelnumba.core.dims import SymEnv
from fuelnumba.core.errors import (
    ArgumentError,
    AxisError,
    DTypeError,
    FuelError,
    ShapeError,
    TracedMutationError,
    UnsupportedFunctionError,
)
from fuelnumba.core.ops import OPS
from fuelnumba.trace.interpret import interpret
from fuelnumba.trace.namespace import namespace
from fuelnumba.trace.numpy_api import FUNCTIONS, UFUNCS, covered, target_of
from fuelnumba.trace.tensor import Tensor, Trace

from .tracing import check, run, trace

F32 = np.linspace(-2, 3, 24, dtype=np.float32).reshape(2, 3, 4)
F64 = F32.astype(np.float64)
F16 = F32.astype(np.float16)
I32 = (np.arange(24, dtype=np.int32) * 7 % 11 - 5).reshape(2, 3, 4)
U8 = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
BOOL = I32 > 0
AXES = [None, 0, 1, -1, (0, 2), (-1, 0), ()]


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "max", "amax", "min", "amin", "any", "all", "var",
                                  "std", "ptp",
                                  "count_nonzero"])
def test_reductions(name: str, axis: Any, keepdims: bool) -> None:
    fn = getattr(np, name)
    for x in (F32, F64, F16, I32, BOOL):
        if name == "ptp" and x is BOOL:
            continue
        check(lambda x: fn(x, axis=axis, keepdims=keepdims), x, rtol=1e-4)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_argument_reductions(name: str, axis: Any) -> None:
    fn = getattr(np, name)
    check(lambda x: fn(x, axis=axis), I32)
    check(lambda x: fn(x, axis=axis, keepdims=True), F32)


@pytest.mark.parametrize("decimals", [-3, -2, -1, 0, 1, 2])
@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u4", "f2", "f4", "f8"])
def test_rounding_to_decimals(decimals: int, dtype: str) -> None:
    """Of integers by way of f64, and what is rounded past the end of the range wraps around."""
    x = np.arange(-128 if dtype[0] != "u" else 0, 256 if dtype == "u1" else 128, dtype=dtype)
    for f in (lambda x: np.round(x, decimals), lambda x: x.round(decimals), lambda x: np.around(x, decimals=decimals)):
        check(f, x)


@pytest.mark.parametrize("value", [0, 5, 15, 25, -25, 1249, -1250, 10**12 + 51])
def test_rounding_a_python_int(value: int) -> None:
    """Half to even, as Python's round(); it stays a Python int beside an array."""
    for decimals in (-1, -2, 0):
        got = run(lambda n: round(n, decimals) + np.zeros(1, np.int64), value)  # noqa: B023
        assert got[0] == round(value, decimals)
    assert run(lambda n, x: x + round(n, -1), 25, np.zeros(2, np.int8)).dtype == np.int8


@pytest.mark.parametrize("fn", [
    np.trace, lambda x: x.trace(1), lambda x: np.trace(x, 1), lambda x: np.trace(x, -1, 2, 0), lambda x: np.trace(x, axis1=-1, axis2=1, dtype=np.float32),
    np.diagonal, lambda x: np.diagonal(x, -1, 1, 2), lambda x: x.diagonal(3, 0, 2), lambda x: np.diagonal(x, -5),
    lambda x: np.linalg.diagonal(x, offset=2), lambda x: np.linalg.trace(x, offset=-1),
    lambda x: np.linalg.norm(x, 1, axis=(2, 0)), lambda x: np.linalg.norm(x, -1, axis=(0, 2), keepdims=True),
    lambda x: np.linalg.norm(x[1], np.inf), lambda x: np.linalg.norm(x[1], -np.inf), lambda x: np.linalg.norm(x, axis=(1, 0)),
    lambda x: np.linalg.norm(x, "fro", axis=(0, 1)), lambda x: np.linalg.norm(x, 0, axis=0), lambda x: np.linalg.norm(x, 3, axis=-1),
    lambda x: np.linalg.norm(x, 0.5, axis=1), lambda x: np.linalg.norm(x, -np.inf, axis=1), lambda x: np.linalg.norm(x[:0, 0], np.inf),
    lambda x: np.linalg.vector_norm(x, axis=(0, 2), ord=3, keepdims=True), lambda x: np.linalg.matrix_norm(x, ord=-np.inf),
    lambda x: np.linalg.outer(x[0, 0], x[1, :, 2]), lambda x: np.linalg.cross(x, x[::-1] + 1, axis=1),
    lambda x: np.linalg.cross(x[:, :, :3], x[0, 1, 1:]), lambda x: np.linalg.matmul(x, x.mT),
    lambda x: np.linalg.matrix_power(x[:, :, :3], 5), lambda x: np.linalg.matrix_power(x[:, :, :3], 0),
    lambda x: np.linalg.tensordot(x, x, axes=((0, 1), (0, 1))), lambda x: np.linalg.matrix_transpose(x),
    lambda x: np.vecdot(x, x[0], axis=-2), lambda x: np.linalg.vecdot(x[0], x, axis=-1),
])
def test_linear_algebra(fn: Callable[..., Any]) -> None:
    for x in (F32, F64, I32):
        check(fn, x, rtol=1e-4)


@pytest.mark.parametrize("fn", [
    lambda x: np.meshgrid(x[0, 0], x[0, :, 0], x[:, 0, 0], indexing="ij"), lambda x: np.meshgrid(x[0, 0], 2.0, x[:, 0, 0]),
    lambda x: np.meshgrid(x[0, 0], x[0, :, 0], sparse=True), lambda x: np.meshgrid(x[0, 0]), lambda x: np.unstack(x, axis=-2),
    lambda x: np.diff(x, prepend=0), lambda x: np.diff(x, 2, 1, append=x[:, :2]), lambda x: np.diff(x, 0, prepend=0),
    lambda x: np.fft.fftshift(x), lambda x: np.fft.ifftshift(x, axes=(1, -1)), lambda x: np.fft.fftshift(x, 2),
    lambda x: np.isin(x, [0.5, 3], invert=True), lambda x: np.isin(x, x[0]), lambda x: np.imag(x), lambda x: x.imag,
])
def test_more_arrangements(fn: Callable[..., Any]) -> None:
    check(fn, F32)


@pytest.mark.parametrize("fn", [
    lambda x: np.linalg.norm(x[0], 2), lambda x: np.linalg.norm(x[0], "nuc"), lambda x: np.linalg.matrix_norm(x, ord=2),
    lambda x: np.linalg.matrix_power(x[:, :, :3], -1),
])
def test_norms_that_need_singular_values_are_refused(fn: Callable[..., Any]) -> None:
    with pytest.raises(UnsupportedFunctionError, match=r"numpy\.linalg\.matrix_\w+ is not covered"):
        trace(fn, [F32])


@pytest.mark.parametrize("fn", [
    lambda x: np.linalg.norm(x, 1), lambda x: np.linalg.outer(x, x), lambda x: np.linalg.cross(x, x), lambda x: np.diagonal(x, 0, 1, 1),
    lambda x: np.linalg.matrix_power(x, 2), lambda x: np.linalg.matrix_norm(x[0, 0]), lambda x: np.vecdot(x, 1.0),
    lambda x: np.vecdot(x, x[:, :, :3]), lambda x: np.meshgrid(x[0, 0], indexing="yx"), lambda x: np.diff(x, -1),
    lambda x: np.linalg.vector_norm(x, ord="fro"), lambda x: np.linalg.matrix_power(x[:, :, :3], 1.5),
])
def test_what_numpys_linalg_refuses(fn: Callable[..., Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        fn(F32)
    with pytest.raises((ShapeError, AxisError, ArgumentError)):
        trace(fn, [F32])


JUNK = ["a", 1.5, (1.5,), 1j, {}, np.ones(2), slice(None), int, b"x"]


@pytest.mark.parametrize("junk", JUNK, ids=repr)
@pytest.mark.parametrize("fn", [
    lambda x, v: np.sum(x, axis=v), lambda x, v: np.sum(x, keepdims=v), lambda x, v: np.argmax(x, axis=v), lambda x, v: np.flip(x, v),
    lambda x, v: np.tril(x, v), lambda x, v: np.triu(x, v), lambda x, v: np.linalg.diagonal(x, offset=v), lambda x, v: np.trace(x, v),
    lambda x, v: np.tensordot(x, x, v), lambda x, v: np.std(x, correction=v), lambda x, v: np.linalg.matrix_power(x[:, :, :3], v),
    lambda x, v: np.linalg.vector_norm(x, ord=v), lambda x, v: np.linalg.matrix_norm(x, ord=v), lambda x, v: np.diff(x, v),
    lambda x, v: np.roll(x, v, 0), lambda x, v: np.roll(x, 1, v), lambda x, v: np.concatenate([x, x], v),
    lambda x, v: np.take(x, [0], axis=v), lambda x, v: np.squeeze(x, v), lambda x, v: np.moveaxis(x, v, 0),
    lambda x, v: np.zeros_like(x, device=v), lambda x, v: np.zeros_like(x, order=v), lambda x, v: np.unstack(x, axis=v),
    lambda x, v: np.isin(x, [1], invert=v),
])
def test_static_arguments_of_a_wrong_kind(fn: Callable[..., Any], junk: Any) -> None:
    """Each is an error of ours that names the line, never one of NumPy's from within."""
    try:
        fn(F64, junk)
    except Exception:
        pass
    else:
        return  # NumPy takes it: a norm of order 1.5, say
    with pytest.raises(FuelError) as caught:
        trace(lambda x: fn(x, junk), [F32])
    assert caught.value.where is not None


@pytest.mark.parametrize("fn", [
    lambda x: np.roll(x, (1, 2)), lambda x: np.roll(x, (1, 2), 1), lambda x: np.roll(x, (1,), (0, 2)), lambda x: np.roll(x, [1, -1], [0, 0]),
    lambda x: np.roll(x, 5, ()), lambda x: np.tril(x, 99), lambda x: np.triu(x, -99),
])
def test_shifts_and_axes_broadcast(fn: Callable[..., Any]) -> None:
    check(fn, F32)


@pytest.mark.parametrize("fn", [
    lambda x: np.roll(x, (1, 2), (0, 1, 2)), lambda x: np.flip(x, (0, 0)), lambda x: np.tensordot(x, x, 4),
])
def test_axes_that_do_not_go_together(fn: Callable[..., Any]) -> None:
    with pytest.raises((ValueError, TypeError, IndexError)):
        fn(F32)
    with pytest.raises((ShapeError, AxisError, ArgumentError)):
        trace(fn, [F32])


@pytest.mark.parametrize("fn", [
    lambda x: np.sum(x, dtype=np.float64), lambda x: np.mean(x, axis=0, dtype=np.float64),
    lambda x: np.prod(x, 1, np.float64), lambda x: np.var(x, ddof=1),
    lambda x: np.std(x, 1, ddof=1, keepdims=True),
    lambda x: np.var(x, axis=(0, 1), correction=2), lambda x: np.add.reduce(x),
    lambda x: np.maximum.reduce(x, axis=1),
    lambda x: np.multiply.reduce(x, axis=None), lambda x: np.logical_or.reduce(x, axis=-1, keepdims=True),
    lambda x: np.add(x, 1, dtype=np.float64), lambda x: np.linalg.norm(x),
    lambda x: np.linalg.norm(x, axis=1),
    lambda x: np.linalg.norm(x[0], "fro"), lambda x: np.linalg.norm(x, ord=1, axis=-1),
    lambda x: np.linalg.norm(x, ord=np.inf, axis=0, keepdims=True),
])
def test_reductions_with_more_parameters(fn: Callable[..., Any]) -> None:
    check(fn, F32)
    check(fn, I32)


SHAPES: list[Callable[..., Any]] = [
    lambda x: np.reshape(x, (6, 4)), lambda x: np.reshape(x, -1), lambda x: x.reshape(3, -1, 2),
    lambda x: x.reshape((4, 6)), np.ravel, lambda x: x.flatten(), np.transpose,
    lambda x: np.transpose(x, (1, -1, 0)),
    lambda x: x.transpose(2, 0, 1), lambda x: x.transpose((0, 2, 1)), lambda x: x.transpose(), lambda x: x.T,
    lambda x: x.mT, lambda x: np.matrix_transpose(x), lambda x: np.swapaxes(x, 0, -1),
    lambda x: x.swapaxes(1, 2),
    lambda x: np.moveaxis(x, 0, -1), lambda x: np.moveaxis(x, (0, 1), (2, 0)),
    lambda x: np.expand_dims(x, (0, -1)),
    lambda x: np.expand_dims(x, 1), lambda x: np.squeeze(x[:, :1]),
    lambda x: np.squeeze(x[:1, :, :1], axis=(0, -1)),
    lambda x: x[:, None, :1].squeeze(1), lambda x: np.broadcast_to(x[:, :1], (5, 2, 3, 4)),
    lambda x: np.broadcast_arrays(x, x[0, :1]), lambda x: np.atleast_1d(x.sum(), x),
    lambda x: np.atleast_2d(x[0, 0]),
    lambda x: np.atleast_3d(x[0]), lambda x: np.atleast_3d(x[0, 0]), np.flip, lambda x: np.flip(x, 1),
    lambda x: np.flip(x, (0, -1)), np.fliplr, np.flipud, lambda x: np.roll(x, 3),
    lambda x: np.roll(x, -1, axis=1),
    lambda x: np.roll(x, (1, 2), axis=(0, 2)), np.copy, lambda x: x.copy(),
    lambda x: np.concatenate([x, x[:1]]), lambda x: np.concatenate((x, x), axis=-1),
    lambda x: np.concatenate([x, x[0]], axis=None),
    lambda x: np.concatenate([x, x.astype(np.float64)], axis=1),
    lambda x: np.stack([x, x + 1], axis=1), lambda x: np.stack((x, x), axis=-1),
    lambda x: np.vstack([x[0], x[1, :1]]),
    lambda x: np.vstack([x[0, 0], x[0, 1]]), lambda x: np.hstack([x, x]),
    lambda x: np.hstack([x[0, 0], x[1, 1]]),
    lambda x: np.dstack([x[0], x[1]]), lambda x: np.column_stack([x[0], x[0, :, 0]]),
    lambda x: np.split(x, 2),
    lambda x: np.split(x, [1, 3], axis=2), lambda x: np.split(x, [-1, 9], axis=1),
    lambda x: np.array_split(x, 3, axis=2),
    lambda x: np.hsplit(x, 3), lambda x: np.vsplit(x, 2), lambda x: np.dsplit(x, 2),
    lambda x: np.repeat(x, 3, axis=1),
    lambda x: np.repeat(x, 2), lambda x: x.repeat(2, 0), lambda x: np.tile(x, 2),
    lambda x: np.tile(x, (2, 1, 3)),
    lambda x: np.tile(x[0], (2, 2, 1)), lambda x: np.pad(x, 1), lambda x: np.pad(x, ((0, 1), (2, 0), (0, 0))),
    lambda x: np.pad(x, (1, 2), constant_values=3), np.diff, lambda x: np.diff(x, 2, axis=1),
    lambda x: np.take(x, [3, 0, -1]), lambda x: np.take(x, [[2, 0]], axis=1),
    lambda x: x.take(np.array([1, 1]), axis=-1),
    lambda x: np.take(x, 2, axis=1), lambda x: np.take_along_axis(x, np.array([[[0], [2], [1]]]), axis=2),
    lambda x: np.take_along_axis(x, np.array([1, 1, 0]), axis=None), lambda x: np.tril(x),
    lambda x: np.triu(x, 1),
    lambda x: np.tril(x, -1), lambda x: np.zeros_like(x), lambda x: np.ones_like(x, dtype=np.int32),
    lambda x: np.full_like(x, 2), lambda x: np.full_like(x, x.max(), shape=(2, 2)),
    lambda x: np.zeros_like(x, shape=(2,)),
    lambda x: np.zeros(3, x.dtype) + x[0, 0, 0], lambda x: np.ones((2, 1), like=x),
    lambda x: np.full((2,), 3, like=x),
]


def line(fn: Callable[..., Any]) -> str:
    """A test's name: where its function stands in this file."""
    return f"line{fn.__code__.co_firstlineno}" if hasattr(fn, "__code__") else fn.__name__


@pytest.mark.parametrize("fn", SHAPES, ids=line)
def test_moving_elements(fn: Callable[..., Any]) -> None:
    for x in (F32, I32):
        check(fn, x)


ELEMENTWISE: list[Callable[..., Any]] = [
    lambda x: np.where(x > 0, x, 0), lambda x: np.where(x, 1, x), lambda x: np.where(x[0] > 0, x, x[:, :1]),
    lambda x: np.clip(x, 0, 2), lambda x: np.clip(x, None, 1), lambda x: np.clip(x, min=-1),
    lambda x: x.clip(-1, 1),
    lambda x: np.clip(x, 0.5, 1.5), lambda x: np.clip(x, x[0], 2), lambda x: np.clip(x, x[0, 0, 0], None),
    lambda x: np.round(x), lambda x: np.round(x, 1), lambda x: x.round(2), lambda x: np.around(x, 1),
    lambda x: np.sign(x), lambda x: np.abs(x), lambda x: np.fabs(x * 1.0), lambda x: np.rint(x), lambda x: +x,
    lambda x: np.deg2rad(x), lambda x: np.rad2deg(x), lambda x: np.signbit(x), lambda x: np.float_power(x, 2),
    lambda x: np.divmod(x, 3), lambda x: divmod(x, 3), lambda x: np.isfinite(x / 0),
    lambda x: np.vecdot(x, x),
    lambda x: np.array_equal(x, x), lambda x: np.array_equal(x, x + 1), lambda x: np.astype(x, np.float64),
    lambda x: np.real(x), lambda x: np.exp2(x) + np.expm1(x) - np.log1p(np.abs(x)),
]


@pytest.mark.parametrize("fn", ELEMENTWISE, ids=line)
def test_elementwise_functions(fn: Callable[..., Any]) -> None:
    for x in (F32, F64, I32, F16):
        check(fn, x)


MATRICES = [((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 5)),
            ((2, 3, 4), (2, 4, 5)),
            ((2, 1, 3, 4), (5, 4, 2)), ((3, 4), (2, 4, 5)), ((4,), (2, 4, 5)), ((2, 3, 4), (4,)),
            ((1, 3, 4), (6, 4, 5)),
            ((0, 4), (4, 5)), ((3, 0), (0, 5))]


@pytest.mark.parametrize(("left", "right"), MATRICES)
def test_matmul(left: Any, right: Any) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(left).astype(np.float32), rng.standard_normal(right).astype(np.float32)
    check(np.matmul, a, b)
    check(lambda a, b: a @ b, a, b)
    check(lambda a, b: a @ b, a.astype(np.float64), b)


def test_matmul_shares_matrices_among_groups() -> None:
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 6, 5, 4)), rng.standard_normal((2, 3, 4, 7))
    got = run(lambda q, k: q @ k, q, k)
    np.testing.assert_allclose(got, q @ np.repeat(k, 2, axis=1))
    graph, _ = trace(lambda q, k: q @ k, [q, k])
    assert [n.op.name for n in graph.nodes()] == ["input", "reshape", "input", "unsqueeze", "broadcast_to",
                                                  "matmul",
                                                  "reshape"]


PRODUCTS: list[tuple[Callable[..., Any], Any, Any]] = [
    (np.dot, (3, 4), (4, 2)), (np.dot, (4,), (4,)), (np.dot, (2, 3, 4), (5, 4, 2)), (np.dot, (), (3,)),
    (np.dot, (2, 3, 4), (4,)), (lambda a, b: a.dot(b), (3, 4), (4,)), (np.inner, (3, 4), (2, 4)),
    (np.inner, (4,), (4,)),
    (np.outer, (3,), (4,)), (np.outer, (2, 2), (3,)), (np.vdot, (2, 3), (3, 2)),
    (np.tensordot, (2, 3, 4), (3, 4, 5)),
    (lambda a, b: np.tensordot(a, b, 1), (2, 3), (3, 4)),
    (lambda a, b: np.tensordot(a, b, ((0, 2), (1, 0))), (2, 3, 4), (4, 2)),
    (lambda a, b: np.tensordot(a, b, axes=(1, 0)), (2, 3), (3, 4)),
    (lambda a, b: np.tensordot(a, b, 0), (2,), (3,)),
    (lambda a, b: np.einsum("ij,jk->ik", a, b), (2, 3), (3, 4)),
    (lambda a, b: np.einsum("bij,bjk->bik", a, b), (2, 3, 4), (2, 4, 5)),
    (lambda a, b: np.einsum("bqhd,bkhd->bhqk", a, b), (2, 3, 2, 4), (2, 5, 2, 4)),
    (lambda a, b: np.einsum("ij,ij", a, b), (2, 3), (2, 3)),
    (lambda a, b: np.einsum("ij,k->kij", a, b), (2, 3), (4,)),
    (lambda a, b: np.einsum("ijk,k->j", a, b), (2, 3, 4), (4,)),
    (lambda a, b: np.einsum("ij->j", a), (2, 3), ()), (lambda a, b: np.einsum("ij->ji", a), (2, 3), ()),
    (lambda a, b: np.einsum("ij,j,ij->i", a, b, a, optimize=True), (2, 3), (3,)),
    (lambda a, b: np.einsum("ba", a), (2, 3), ()),
]


@pytest.mark.parametrize(("fn", "left", "right"), PRODUCTS)
def test_products(fn: Callable[..., Any], left: Any, right: Any) -> None:
    rng = np.random.default_rng(0)
    check(fn, rng.standard_normal(left).astype(np.float32), rng.standard_normal(right).astype(np.float32),
          rtol=1e-4)


def test_about_shapes_and_dtypes() -> None:
    def f(x: Any) -> Any:
        assert (np.ndim(x), np.shape(x), np.size(x), np.size(x, 1)) == (3, (2, 3, 4), 24, 3)
        assert (x.ndim, x.shape, x.size, x.itemsize, x.nbytes, len(x)) == (3, (2, 3, 4), 24, 4, 96, 2)
        assert np.result_type(x, np.float64) == np.float64
        assert np.result_type(x, 1.0) == np.float32
        assert np.isrealobj(x)
        assert not np.iscomplexobj(x)
        assert x.dtype == np.float32
        return x

    run(f, F32)


# ---------------------------------------------------------------------------------------- symbolic lengths
def symbolic(fn: Callable[..., Any], shape: Any, *lengths: int) -> Any:
    """Trace with the first axis symbolic, then run at several lengths against NumPy."""
    env = SymEnv()
    n = env.symbol("n", lengths[0])
    x = np.ones((lengths[0], *shape), np.float32)
    graph, out = trace(fn, [x], [(n, *shape)], Trace(env=env))
    for length in lengths:
        x = np.random.default_rng(length).standard_normal((length, *shape)).astype(np.float32)
        assert all(g.check({"n": length}) for g in env.guards), env.guards
        np.testing.assert_allclose(interpret(graph, [x])[0], fn(x), rtol=1e-5, atol=1e-6)
    return env, out


@pytest.mark.parametrize("fn", [
    lambda x: x.reshape(-1), lambda x: x.reshape(x.shape[0], 2, -1), lambda x: x.reshape(-1, 2),
    lambda x: x[::-1], lambda x: x[-1], lambda x: x[0] + x[1],
    lambda x: x - x.mean(axis=0), lambda x: x / x.shape[0], lambda x: x.var(axis=0, ddof=1),
    lambda x: x @ x.T,
    lambda x: np.concatenate([x, x[:1]]), lambda x: np.tile(x, (2, 1)), lambda x: np.repeat(x, 3, axis=0),
    lambda x: np.zeros_like(x) + x, lambda x: np.flip(x, 0).T, lambda x: x[:, None] * x[None],
    lambda x: np.pad(x, 1),
    lambda x: np.roll(x, 1, axis=0), lambda x: x[:, [1, 0]], lambda x: x[x.shape[0] - 1], lambda x: x.sum(),
    lambda x: np.einsum("ni,mi->nm", x, x), lambda x: np.argmax(x, axis=0),
])
def test_symbolic_lengths_without_guards(fn: Callable[..., Any]) -> None:
    env, _ = symbolic(fn, (4,), 5, 2, 9)
    assert env.guards == []


def test_symbolic_lengths_with_guards() -> None:
    env, out = symbolic(lambda x: x.reshape(2, -1), (3,), 4, 6)
    assert str(env.guards[0]) == "(3*n % 2) == 0"
    assert not env.guards[0].check({"n": 5})
    assert str(out.shape[1]) == "(3*n // 2)"
    env, _ = symbolic(lambda x: x[1:] - x[:-1], (3,), 5, 3, 9)
    assert [str(g) for g in env.guards] == ["n - 1 != 1"]  # a length of 1 would broadcast
    symbolic(lambda x: x[::2] + 1, (3,), 5, 9, 4)
    symbolic(lambda x: np.split(x, 2)[1], (3,), 6, 4)
    env, _ = symbolic(lambda x: x[:4], (3,), 5, 9)
    assert not env.guards[0].check({"n": 3})


# ---------------------------------------------------------------------------------------- what is refused
@pytest.mark.parametrize(("fn", "error", "message"), [
    (lambda x: np.kron(x, x), UnsupportedFunctionError, "numpy.kron is not covered for traced values"),
    (lambda x: np.arctan2(x, x), UnsupportedFunctionError, "numpy.arctan2 is not covered for traced values"),
    (lambda x: np.add.accumulate(x), UnsupportedFunctionError,
     "numpy.add.accumulate is not covered for traced values"),
    (lambda x: np.linalg.svd(x), UnsupportedFunctionError,
     "numpy.linalg.svd is not covered for traced values"),
    (lambda x: np.sum(x, where=x > 0), UnsupportedFunctionError, "numpy.sum is not covered with where="),
    (lambda x: np.array_equal(x, x, equal_nan=True), UnsupportedFunctionError,
     "numpy.array_equal is not covered with equal_nan="),
    (lambda x: np.max(x, initial=0), UnsupportedFunctionError, "numpy.max is not covered with initial="),
    (lambda x: np.exp(x, where=[True]), UnsupportedFunctionError, "numpy.exp is not covered with where="),
    (lambda x: np.reshape(x, -1, order="F"), UnsupportedFunctionError,
     "numpy.reshape is not covered with order="),
    (lambda x: np.take(x, [0], mode="wrap"), UnsupportedFunctionError,
     "numpy.take is not covered with mode="),
    (lambda x: np.pad(x, 1, mode="edge"), UnsupportedFunctionError, "numpy.pad is not covered with mode="),
    (lambda x: np.where(x), UnsupportedFunctionError,
     "numpy.where(condition) alone has a length that is not known while tracing"),
    (lambda x: np.einsum("ii->i", x[0, :, :3]), UnsupportedFunctionError,
     "numpy.einsum is not covered for a repeated letter, as in 'ii'"),
    (lambda x: np.sum(x, out=np.zeros(3)), TracedMutationError,
     "numpy.sum(..., out=...) writes into an array while tracing"),
    (lambda x: np.add(x, x, out=np.zeros(3)), TracedMutationError,
     "numpy.add(..., out=...) writes into an array while tracing"),
    (lambda x: np.copyto(np.zeros((2, 3, 4)), x), TracedMutationError,
     "numpy.copyto writes into an array, which a graph cannot hold"),
    (lambda x: np.reshape(x, (5, -1)), ShapeError,
     "cannot reshape (2, 3, 4) to (5, -1): 24 elements do not divide by 5"),
    (lambda x: x.reshape(5, 5), ShapeError, "cannot reshape (2, 3, 4) (24 elements) to (5, 5) (25 elements)"),
    (lambda x: x.reshape(-1, -1), ShapeError,
     "cannot reshape (2, 3, 4) to (-1, -1): one length may be -1, the others count"),
    (lambda x: x @ x, ShapeError,
     "matmul() cannot multiply (2, 3, 4) by (2, 3, 4): 4 columns meet 3 rows"),
    (lambda x: x @ np.ones((3, 4, 5), np.float32), ShapeError,
     "matmul() cannot multiply (2, 3, 4) by (3, 4, 5): their batch shapes (2,) and (3,) do not broadcast"),
    (lambda x: x + x[:, :2], ShapeError,
     "add() cannot broadcast shapes (2, 3, 4) and (2, 2, 4): axis -2 is 3 in one and 2 in another"),
    (lambda x: np.split(x, 2, axis=1), ShapeError,
     "split() cannot cut axis 1 of length 3 into 2 equal parts"),
    (lambda x: x.sum(axis=3), AxisError, "sum(): axis 3 is out of range for an array of rank 3"),
    (lambda x: np.swapaxes(x, 0, 5), AxisError, "axis 5 is out of range for an array of rank 3"),
    (lambda x: x + "1", ArgumentError, "add(): y cannot be a value of type str"),
    (lambda x: x + None, ArgumentError, "add(): y cannot be None"),
    (lambda x: x * 1j, ArgumentError, "multiply(): y cannot be a value of type complex"),
    (lambda x: x + [x, 1], ArgumentError, "add(): y is a list that holds traced values"),
    (lambda x: x + [[1], [1, 2]], ArgumentError, "add(): y is a list that is no regular array of numbers"),
    (lambda x: np.full_like(x, 1, shap=3), TypeError, None),
])
def test_what_is_refused(fn: Callable[..., Any], error: type[Exception], message: str | None) -> None:
    with pytest.raises(error) as caught:
        trace(fn, [F32])
    if message is not None:
        assert caught.value.what == message  # type: ignore[attr-defined]
        assert caught.value.where.file == __file__  # type: ignore[attr-defined]


def test_the_nearest_covered_function_is_named() -> None:
    with pytest.raises(UnsupportedFunctionError) as caught:
        trace(lambda x: np.nansum(x), [F32])
    assert "np.sum" in (caught.value.cure or "")


def test_every_covered_name_exists_in_numpy() -> None:
    for name in covered():
        value: Any = np
        for part in name.split(".")[1:]:
            value = getattr(value, part)
        assert value in FUNCTIONS or target_of(value) is not None


def test_every_ufunc_target_is_an_op() -> None:
    assert {t for t in UFUNCS.values() if isinstance(t, str)} <= set(OPS)


# ---------------------------------------------------------------------------------------- fuelnumba.ops
def test_namespace_has_every_op_with_signature_and_doc() -> None:
    ops = namespace()
    assert set(ops) >= {n for n, op in OPS.items() if op.kind != "leaf" and "uid" not in op.attrs} | {"split", "matmul"}
    for name, fn in ops.items():
        assert fn.__name__ == name
        assert fn.__module__ == "fuelnumba.ops"
        assert fn.__doc__ is not None
        assert len(fn.__doc__) > 5, name
    import inspect

    assert str(inspect.signature(ops["softmax"])) == "(x: ArrayLike, axis: int = -1) -> Array"
    assert str(inspect.signature(ops["layer_norm"])) == ("(x: ArrayLike, weight: ArrayLike | None = None, "
                                                         "bias: ArrayLike | None = None, eps: float = 1e-05) -> Array")
    assert str(inspect.signature(ops["concat"])) == "(*xs: ArrayLike, axis: int = 0) -> Array"
    assert "Dtypes of x on cpu: f32 f64" in re.sub(r"f16 bf16 ", "", ops["exp"].__doc__ or "")


def test_namespace_functions() -> None:
    ops = namespace()
    x = F32[0]
    np.testing.assert_allclose(run(lambda x: ops["softmax"](x, axis=0), x).sum(axis=0), np.ones(4), rtol=1e-6)
    np.testing.assert_allclose(run(lambda x: ops["layer_norm"](x, weight=np.ones(4, np.float32)), x).mean(),
                               0, atol=1e-6)
    np.testing.assert_allclose(run(lambda x: ops["concat"](x, x, axis=1), x), np.concatenate([x, x], 1))
    np.testing.assert_allclose(run(lambda x: ops["concat"]([x, x]), x), np.concatenate([x, x]))
    np.testing.assert_allclose(run(lambda x: ops["stack"](x, x, axis=-1), x), np.stack([x, x], -1))
    assert [p.shape for p in run(lambda x: ops["split"](x, 2, axis=1), x)] == [(3, 2), (3, 2)]
    np.testing.assert_allclose(run(lambda x: ops["masked_fill"](x, x > 0, value=9.0), x),
                               np.where(x > 0, 9, x))
    np.testing.assert_allclose(run(lambda x: ops["cast"](x, "f64"), x), x)
    np.testing.assert_allclose(run(lambda x: ops["clamp"](x, 0, 1), x), np.clip(x, 0, 1))
    np.testing.assert_allclose(run(lambda x: ops["slice"](x, 1, 1, 2, 2), x), x[:, 1::2])


def test_write_slice() -> None:
    write = namespace()["write_slice"]
    cache, new = np.zeros((5, 3), np.float32), np.ones((2, 3), np.float64)

    def expected(at: int) -> Any:
        out = cache.copy()
        out[at:at + 2] = 1
        return out

    np.testing.assert_array_equal(run(lambda c, x: write(c, x, (3, 0)), cache, new), expected(3))
    np.testing.assert_array_equal(run(lambda c, x: write(c, x, 1), cache, new), expected(1))
    np.testing.assert_array_equal(run(lambda c, x, i: write(c, x, i), cache, new, 2), expected(2))
    np.testing.assert_array_equal(run(lambda c, x, i: write(c, x, (i, 0)), cache, new, np.array(2, np.int8)),
                                  expected(2))
    np.testing.assert_array_equal(run(lambda c, i: write(c, 1.0, (0, i)), cache, 1)[0], [0, 1, 0])
    with pytest.raises(ArgumentError, match="only one start may be a traced integer"):
        trace(lambda c, x, i: write(c, x, (i, i)), [cache, new, 2])


@pytest.mark.parametrize(("fn", "message"), [
    (lambda ops, x: ops["add"](x), "add(): missing a required argument: 'y'"),
    (lambda ops, x: ops["softmax"](x, axes=1), "softmax(): got an unexpected keyword argument 'axes'"),
    (lambda ops, x: ops["layer_norm"](x, None, x[0]), "layer_norm() got bias without weight"),
    (lambda ops, x: ops["powi"](x, 1.5), "powi(): n: expected a Python int, not 1.5"),
])
def test_namespace_says_what_is_wrong_with_a_call(fn: Callable[..., Any], message: str) -> None:
    ops = namespace()
    with pytest.raises(ArgumentError) as caught:
        trace(lambda x: fn(ops, x), [F32])
    assert caught.value.what == message


def test_last_axis_ops_are_permuted_visibly() -> None:
    ops = namespace()
    graph, _ = trace(lambda x: ops["softmax"](x, axis=0), [F32])
    assert [n.op.name for n in graph.nodes()] == ["input", "permute", "softmax", "permute"]
    assert isinstance(trace(lambda x: ops["softmax"](x), [F32])[1], Tensor)


@pytest.mark.parametrize("name", ["i8", "u8"])
@pytest.mark.parametrize("fn", [
    lambda x, d: x.astype(d), lambda x, d: np.astype(x, d), lambda x, d: np.zeros_like(x, d), lambda x, d: np.zeros_like(x, dtype=d),
    lambda x, d: np.sum(x, dtype=d), lambda x, d: x.sum(dtype=d), lambda x, d: x.mean(dtype=d), lambda x, d: np.var(x, dtype=d),
    lambda x, d: np.add(x, x, dtype=d), lambda x, d: np.full(2, 1, d, like=x), lambda x, d: np.concatenate([x, x], dtype=d),
])
def test_names_that_are_another_dtype_in_numpy(fn: Callable[..., Any], name: str) -> None:
    with pytest.raises(DTypeError, match=f"'{name}' is u?int64 in NumPy and u?int8 in fuelnumba.ops"):
        trace(lambda x: fn(x, name), [F32])
