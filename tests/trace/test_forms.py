"""What a result without axes is: a NumPy scalar, a 0-d array or a Python number, as with the same lines in NumPy."""

from __future__ import annotations

import json
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuelnumba import jit, ops

# x0 is a 0-d array, s a NumPy scalar, v a vector, one of length 1, m a matrix, i a 0-d array of integers, n and h Python numbers
COMPUTED = """x0 + 1 | -x0 | +x0 | abs(x0) | x0 ** 2 | x0 > 1 | x0 == s | divmod(x0, 2.0) | x0 * h | h * x0 | np.exp(x0) | np.hypot(x0, s) |
np.square(x0) | np.rint(x0) | np.positive(x0) | np.conjugate(x0) | np.conj(s) | x0.conj() | np.clip(x0, 0, 1) | x0.clip(0, 1) | np.round(x0) |
x0.round() | np.round(s, 1) | np.round(x0, -1) | np.where(x0 > 1, x0, s) | np.where(h > 1, h, s) | x0[...] + 1 | one.reshape(()) + 1 |
np.isin(x0, v) | np.add(x0, x0, dtype=np.float32) | s * s | s + v.sum()"""
REDUCED = """x0.sum() | np.sum(x0) | np.sum(x0, keepdims=True) | np.max(x0, keepdims=True) | np.mean(x0, keepdims=True) | x0.max() | np.add.reduce(v) |
v.sum() | np.sum(v, axis=0) | np.sum(v, axis=()) | np.sum(v, dtype=np.float32) | np.prod(v) | v.mean() | np.mean(v, keepdims=True) | np.var(v) |
np.std(x0) | np.std(x0, keepdims=True) | np.any(v) | np.all(x0) | (v > 1).all() | (v > 1).any() | np.argmax(v) | np.argmax(x0) |
np.argmax(x0, keepdims=True) | np.argmax(v, keepdims=True) | np.ptp(v) | np.count_nonzero(v) | np.count_nonzero(x0) | np.array_equal(v, v) |
np.trace(m) | np.linalg.trace(m) | np.linalg.norm(v) | np.linalg.norm(m, 1) | np.linalg.norm(x0) | np.linalg.matrix_norm(m) | v.max() - v.min() |
np.linalg.vector_norm(v) | np.linalg.vector_norm(v, ord=np.inf) | np.linalg.vector_norm(x0) | (v @ v) ** 0.5 | v.sum() * h | s.sum()"""
PRODUCTS = """v @ v | v.dot(v) | np.dot(v, v) | np.matmul(v, v) | np.inner(v, v) | np.vdot(v, v) | np.tensordot(v, v, 1) | np.dot(x0, x0) |
np.inner(x0, x0) | np.vecdot(v, v) | np.linalg.vecdot(v, v) | np.linalg.tensordot(v, v, axes=1) | np.einsum("i,i", v, v) | np.einsum("i,i->", v, v) |
np.einsum("i->", v) | np.einsum("->", x0) | np.linalg.matmul(m, m)[0, 0]"""
TAKEN = """v[0] | v[-1] | v[0, ...] | v[..., 0] | v[i] | v[i, ...] | v[..., i] | m[0][1] | m[0, 1] | m[0, i] | x0[()] | x0[...] | s[()] | s[...] |
np.take(v, 0) | np.take(v, i) | v.take(1) | np.unstack(v)[0] | v.sum()[...] | v.sum()[()] | np.diagonal(m)[0]"""
MOVED = """x0 | s | x0.T | s.T | np.transpose(s) | x0.reshape(()) | np.reshape(s, ()) | s.reshape(()) | one.reshape(()) | np.squeeze(one) | one.squeeze() |
np.squeeze(s) | s.squeeze() | x0.squeeze() | x0.copy() | s.copy() | np.copy(s) | np.copy(x0) | np.copy(v.sum()) | v.sum().copy() | v.sum().reshape(()) |
v.sum().T | np.flip(x0) | np.roll(x0, 1) | np.tile(x0, ()) | np.broadcast_to(s, ()) | np.broadcast_to(x0, ()) | np.broadcast_arrays(s, s)[0] |
np.moveaxis(x0, (), ()) | np.expand_dims(x0, ()) | np.zeros_like(s) | np.ones_like(x0) | np.full_like(s, 1) | x0.real | x0.imag | s.imag | np.real(s) |
np.imag(s) | x0.astype("f4") | s.astype("f4") | np.astype(x0, "f4") | v.sum().astype("f4") | np.zeros(()) | np.full((), 3.0) | s.ravel()"""
PYTHON = """n | h | n * 2 | h + n | h > 1 | n == 3 | -h | abs(h) | +n | n // 2 | divmod(n, 2) | h ** 2 | n & 1 | np.real(h) | np.imag(h) | np.exp(h) |
np.exp(h) * 2 | 2 * np.exp(h) | np.multiply(n, n) | np.positive(h) | h * s | np.sum(h) | np.round(h) | np.copy(n) | [n, (h, x0)]"""
TABLE = [e.strip() for part in (COMPUTED, REDUCED, PRODUCTS, TAKEN, MOVED, PYTHON) for e in part.replace("\n", " ").split(" | ")]

GIVEN = {"x0": np.array(2.5), "s": np.float64(2.5), "v": np.array([1.0, 2.0]), "one": np.array([1.0]),
         "m": np.array([[1.0, 2.0], [3.0, 4.0]]), "i": np.array(1), "n": 3, "h": 2.5}


def form(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value), [form(v) for v in value]
    return type(value), getattr(value, "dtype", None), getattr(value, "shape", None)


def same(got: Any, expected: Any) -> None:
    assert form(got) == form(expected)
    for a, b in zip(got, expected) if isinstance(expected, (tuple, list)) else [(got, expected)]:
        if isinstance(b, (tuple, list)):
            same(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("expression", TABLE)
def test_a_result_is_what_it_is_in_numpy(expression: str) -> None:
    f = eval(f"lambda {', '.join(GIVEN)}: {expression}", {"np": np})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = f(**GIVEN)
    jitted = jit(f)
    for _ in range(20):  # told by their key, and then by code
        same(jitted(**GIVEN), expected)
        same(jitted(*GIVEN.values()), expected)


def test_what_is_written_in_place_keeps_its_form() -> None:
    def f(x: Any, s: Any, n: Any) -> Any:
        y, t = x.reshape(()), s
        y += 1
        t += 1
        n += 1
        return y, t, n

    args = (np.array([2.5]), np.float32(2.5), 3)
    expected = f(args[0].copy(), *args[1:])
    same(jit(f)(*args), expected)


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8, np.int64, np.float16, np.float32, ml_dtypes.bfloat16,
                                   ml_dtypes.float8_e4m3fn])
def test_scalars_of_every_dtype(dtype: Any) -> None:
    x = np.array([1, 0, 1]).astype(dtype)
    got = jit(lambda x: (x[0], x[1:2].reshape(())))(x)
    assert type(got[0]) is type(x[0]) and got[0] == x[0]
    assert type(got[1]) is np.ndarray and got[1].shape == () and got[1].dtype == x.dtype
    scalar = jit(lambda s: s)(x[0])
    assert type(scalar) is type(x[0]) and scalar == x[0]


def test_scalars_do_what_scalars_do() -> None:
    total = jit(lambda x: x.sum())(np.arange(4.0))
    assert {total: 1}[6.0] == 1 and json.dumps(total) == "6.0" and f"{total!r}" == "np.float64(6.0)"
    f = jit(lambda x, t: x * t)
    assert f(np.arange(3.0), total).tolist() == [0, 6, 12] and f(np.arange(3.0), total).tolist() == [0, 6, 12]
    assert f.compilations == 1
    f(np.arange(3.0), np.array(6.0))
    assert f.misses == ["t is float64 of rank 0, not a NumPy scalar of float64"]


def test_scalars_that_are_kept_are_not_overwritten() -> None:
    f = jit(lambda x: (x.sum(), x.max()))
    kept = [f(np.full(3, float(k))) for k in range(50)]
    assert kept == [(3.0 * k, float(k)) for k in range(50)]


def test_a_donated_buffer_stays_the_array_it_is() -> None:
    x = np.array([2.5])
    f = jit(lambda x: ops.write_slice(x, x * 2, 0), donate="x")
    assert f(x) is x and x[0] == 5


def test_ops_follow_the_same_rule() -> None:
    v, x0, s = GIVEN["v"], GIVEN["x0"], GIVEN["s"]
    for got in (ops.sum(v), ops.max(v), ops.exp(x0), ops.exp(s), ops.add(s, 1.0), ops.exp(2.0), ops.matmul(v, v), ops.take(v, 1, axis=0)):
        assert type(got) is np.float64
    for got in (ops.reshape(GIVEN["one"], ()), ops.squeeze(GIVEN["one"]), ops.full(2.0, (), np.float64), ops.where(x0 > 1, x0, s)):
        assert type(got) is np.ndarray and got.shape == ()
