"""Calls that are refused, and the whole message of each: what happened, the marked expression, what to do."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numba
import numpy as np

import fuelnumba
from fuelnumba import jit, ops
from fuelnumba.core.ops import OPS
from fuelnumba.trace.apply import apply

F32 = np.float32
X, Y, V = np.ones((3, 4), F32), np.ones((4, 5), F32), np.ones(4, F32)
I, B = np.array([0, 2]), np.array([True, False, True])
LARGE = list(range(20_000))
KEPT: list[Any] = []


def j(fn: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    return lambda: jit(fn)(*arguments)


def several(fn: Callable[..., Any], shapes: list[tuple[int, ...]], last: tuple[int, ...]) -> Any:
    """Calls with equal shapes, then one with a row too few: lengths are symbols by then."""
    f = jit(fn)
    for shape in shapes:
        f(np.ones(shape, F32), np.ones(shape, F32))
    return f(np.ones(last, F32), np.ones((last[0] - 1, *last[1:]), F32))


@numba.njit
def my_exp(x, out):
    out[:] = x.no_such_attribute


def with_kernel(call: Callable[[], Any]) -> Any:
    fuelnumba.register_kernel("exp", ("f64", "f64"), my_exp)
    try:
        return call()
    finally:
        fuelnumba.unregister_kernel("exp", ("f64", "f64"))


# name: the call, and what it says
CASES: dict[str, tuple[Callable[[], Any], str]] = {
    # shapes
    "broadcast": (j(lambda x, y: x + y, X, np.ones((2, 4), F32)),
        "ShapeError: add() cannot broadcast shapes (3, 4) and (2, 4): axis -2 is 3 in one and 2 in another\n"
        "at x + y\n"
        "= lengths must be equal or 1; insert an axis with x[:, None] or reshape"),
    "broadcast ufunc": (j(lambda x, y: np.maximum(x, y), X, np.ones(3, F32)),
        "ShapeError: maximum() cannot broadcast shapes (3, 4) and (3,): axis -1 is 4 in one and 3 in another\n"
        "at np.maximum(x, y)\n"
        "= lengths must be equal or 1; insert an axis with x[:, None] or reshape"),
    "matmul batch": (j(lambda x, y: x @ y, np.ones((2, 3, 4), F32), np.ones((3, 4, 5), F32)),
        "ShapeError: matmul() cannot multiply (2, 3, 4) by (3, 4, 5): their batch shapes (2,) and (3,) do not "
        "broadcast\n"
        "at x @ y\n"
        "= lengths must be equal or 1; insert an axis with x[:, None] or reshape"),
    "reshape": (j(lambda x: x.reshape(5, -1), X),
        "ShapeError: cannot reshape (3, 4) to (5, -1): 12 elements do not divide by 5\n"
        "at x.reshape(5, -1)\n"
        "= the known lengths must divide the number of elements"),
    "reshape count": (j(lambda x: x.reshape(5, 2), X),
        "ShapeError: cannot reshape (3, 4) (12 elements) to (5, 2) (10 elements)\n"
        "at x.reshape(5, 2)\n"
        "= the numbers of elements must be equal; one length may be -1"),
    "reshape two": (j(lambda x: x.reshape(-1, -1), X),
        "ShapeError: cannot reshape (3, 4) to (-1, -1): one length may be -1, the others count\n"
        "at x.reshape(-1, -1)\n"
        "= leave one length open at most"),
    "concat": (j(lambda x, y: np.concatenate([x, y]), X, Y),
        "ShapeError: concat() got shapes (3, 4) and (4, 5): only axis 0 may differ\n"
        "at np.concatenate([x, y])\n"
        "= transpose, pad or cut the others to one shape, or name another axis"),
    "concat 0d": (j(lambda x: np.concatenate([x.sum(), x.sum()]), X),
        "ShapeError: concatenate() cannot join arrays without axes\n"
        "at np.concatenate([x.sum(), x.sum()])\n"
        "= use np.stack"),
    "stack": (j(lambda x, y: np.stack([x, y]), X, Y),
        "ShapeError: stack() got shapes (3, 4) and (4, 5): they must be equal\n"
        "at np.stack([x, y])\n"
        "= broadcast or cut them to one shape; concat joins arrays that differ along one axis"),
    "split": (j(lambda x: np.split(x, 2), X),
        "ShapeError: split() cannot cut axis 0 of length 3 into 2 equal parts\n"
        "at np.split(x, 2)\n"
        "= give the positions to cut at, or use np.array_split"),
    "squeeze": (j(lambda x: np.squeeze(x, 0), X),
        "ShapeError: cannot squeeze axis 0 of length 3: only axes of length 1 can go\n"
        "at np.squeeze(x, 0)\n"
        "= index the element you want, or reshape"),
    "broadcast_to": (j(lambda x: np.broadcast_to(x, (3, 5)), X),
        "ShapeError: cannot broadcast shape (3, 4) to (3, 5)\n"
        "at np.broadcast_to(x, (3, 5))\n"
        "= lengths must be equal or 1, counted from the last axis"),
    "einsum": (j(lambda x, y: np.einsum("ij,ij->i", x, y), X, Y),
        "ShapeError: einsum(): 'i' is 3 in one array and 4 in another\n"
        'at np.einsum("ij,ij->i", x, y)\n'
        "= one letter is one length"),
    "tensordot": (j(lambda x, y: np.tensordot(x, y, ((0,), (0,))), X, Y),
        "ShapeError: tensordot() cannot sum (3, 4) over axes (0,) with (4, 5) over axes (0,): the lengths differ\n"
        "at np.tensordot(x, y, ((0,), (0,)))\n"
        "= name axes of equal lengths, in the same order"),
    "attention": (lambda: ops.attention(X, X, X),
        "ShapeError: attention(): q is f32[3, 4], but needs the axes (batch, heads, length, width)\n"
        "at ops.attention(X, X, X)\n"
        "= insert the missing axes, e.g. x[None]"),
    "rms_norm": (lambda: ops.rms_norm(X, np.ones(3, F32)),
        "ShapeError: rms_norm(): weight has shape (3,), but the last axis of f32[3, 4] needs (4,)\n"
        "at ops.rms_norm(X, np.ones(3, F32))\n"
        "= give one element for each column"),
    "write_slice": (lambda: ops.write_slice(X, X, at=(1, 0)),
        "ShapeError: write_slice(): start 1 with length 3 leaves axis 0, whose bound is 3\n"
        "at ops.write_slice(X, X, at=(1, 0))\n"
        "= starts are not negative, and start + length must not pass the bound"),
    "unpack": (j(lambda x: np.where(x > 0, np.ones(5, F32), x), X),
        "ShapeError: where() cannot broadcast shapes (3, 4) and (5,) and (3, 4): axis -1 is 4 in one and 5 in another\n"
        "at np.where(x > 0, np.ones(5, F32), x)\n"
        "= lengths must be equal or 1; insert an axis with x[:, None] or reshape"),
    "symbolic": (lambda: several(lambda b, w: b + w, [(4, 3), (5, 3)], (7, 3)),
        "ShapeError: add() cannot broadcast shapes (b_0, 3) and (w_0, 3): axis -2 is b_0 in one and w_0 in "
        "another (b_0 is 7, w_0 is 6 in this call)\n"
        "at b + w\n"
        "= lengths must be equal or 1; insert an axis with x[:, None] or reshape"),
    # dtypes
    "bool sub": (j(lambda x: x - x, B),
        "DTypeError: subtract() is not defined for bool, bool\n"
        "at x - x\n"
        "= cast it first, e.g. x.astype(np.int64); for booleans there are & | ^ ~"),
    "bitand f": (j(lambda x: x & 1, X),
        "DTypeError: bitwise_and() is not defined for f32, int\n"
        "at x & 1\n"
        "= cast to an integer dtype first, e.g. x.astype(np.int64)"),
    "shift f": (j(lambda x: x << 1, X),
        "DTypeError: left_shift() is not defined for f32, int\n"
        "at x << 1\n"
        "= cast to an integer dtype first, e.g. x.astype(np.int64)"),
    "invert f": (j(lambda x: ~x, X),
        "DTypeError: bitwise_not() is not defined for f32\n"
        "at ~x\n"
        "= cast to an integer dtype first, e.g. x.astype(np.int64)"),
    "matmul bool": (j(lambda x: x @ x, np.ones((2, 2), bool)),
        "DTypeError: matmul() is not defined for bool, bool\n"
        "at x @ x\n"
        "= cast it first, e.g. x.astype(np.int64); for booleans there are & | ^ ~"),
    "astype": (j(lambda x: x.astype("c8"), X),
        "DTypeError: 'c8' is not a dtype of fuelnumba\n"
        'at x.astype("c8")\n'
        "= use one of bool, u8, i8, u32, i16, i32, i64, f16, bf16, f32, f64, f8e4m3, f8e5m2, f8e8m0"),
    "astype2": (j(lambda x: x.astype("float31"), X),
        "DTypeError: 'float31' is not a dtype of fuelnumba\n"
        'at x.astype("float31")\n'
        "= use one of bool, u8, i8, u32, i16, i32, i64, f16, bf16, f32, f64, f8e4m3, f8e5m2, f8e8m0"),
    "zeros dtype": (j(lambda x: x + np.zeros_like(x, dtype=np.uint64), X),
        "DTypeError: <class 'numpy.uint64'> is not a dtype of fuelnumba\n"
        "at np.zeros_like(x, dtype=np.uint64)\n"
        "= use one of bool, u8, i8, u32, i16, i32, i64, f16, bf16, f32, f64, f8e4m3, f8e5m2, f8e8m0"),
    "f8": (lambda: ops.add(np.ones(3, ml_dtypes.float8_e5m2), 1.0),
        "DTypeError: add() got x: f8e5m2, which is for storage only\n"
        "at ops.add(np.ones(3, ml_dtypes.float8_e5m2), 1.0)\n"
        "= cast it first, e.g. x.astype('f32')"),
    "powi": (j(lambda x: x**-1, np.arange(3)),
        "ArgumentError: Tensor(i64[3]) cannot be raised to -1: integers have no negative powers\n"
        "at x**-1\n"
        "= cast to floats first, or divide: 1 / x**n"),
    "powi op": (lambda: ops.powi(np.arange(3), -1),
        "DTypeError: powi(): i64 has no negative powers, and n is -1\n"
        "at ops.powi(np.arange(3), -1)\n"
        "= cast to floats first, e.g. x.astype(np.float64)"),
    "int range": (j(lambda x: x + 300, np.ones(3, np.uint8)),
        "ArgumentError: add(): the Python int 300 does not fit u8\n"
        "at x + 300\n"
        "= cast the array to a wider dtype, or give a value that fits u8"),
    "float idx": (j(lambda x, i: x[i], X, np.array([0.0, 1.0])),
        "DTypeError: an index must be integers, not f64\n"
        "at x[i]\n"
        "= cast it: i.astype(np.int64)"),
    "nan idx": (j(lambda x: x[np.nan], X),
        "DTypeError: an index must be integers, not nan\n"
        "at x[np.nan]\n"
        "= cast it: int(i)"),
    "nan take": (j(lambda x: np.take(x, np.nan, axis=0), X),
        "DTypeError: take(): indices must be integers, not float\n"
        "at np.take(x, np.nan, axis=0)\n"
        "= cast them first, e.g. indices.astype(np.int64)"),
    "nan array": (j(lambda x: np.take(x, np.array([np.nan]), axis=0), X),
        "DTypeError: take(): indices must be integers, not f64\n"
        "at np.take(x, np.array([np.nan]), axis=0)\n"
        "= cast them first, e.g. indices.astype(np.int64)"),
    "bool idx": (j(lambda x, m: x[m], X, B),
        "DTypeError: a boolean mask cannot index Tensor(f32[3, 4]): how many elements it selects is not known "
        "while tracing\n"
        "at x[m]\n"
        "= use np.where(mask, x, other), which keeps the shape"),
    "bool take": (j(lambda x, m: np.take(x, m, axis=0), X, B),
        "DTypeError: take(): indices must be integers, not bool\n"
        "at np.take(x, m, axis=0)\n"
        "= cast them first, e.g. indices.astype(np.int64)"),
    "bool emb": (lambda: ops.embedding(X, B),
        "DTypeError: embedding(): indices must be integers, not bool\n"
        "at ops.embedding(X, B)\n"
        "= cast them first, e.g. indices.astype(np.int64)"),
    "start float": (j(lambda x, s: ops.write_slice(x, x[:1], at=(s, 0)), X, 1.0),
        "DTypeError: write_slice(): the start on axis 0 must be an integer scalar, not Tensor(f64[], weak)\n"
        "at ops.write_slice(x, x[:1], at=(s, 0))\n"
        "= take an element of an integer array, e.g. at[0]"),
    "cond": (j(lambda x: np.where(x), X),
        "UnsupportedFunctionError: numpy.where(condition) alone has a length that is not known while tracing\n"
        "at np.where(x)\n"
        "= give both values: np.where(condition, x, y)"),
    "masked_fill": (lambda: ops.masked_fill(np.arange(3), B, 0.5),
        "ArgumentError: masked_fill(): value: i64 cannot hold 0.5\n"
        "at ops.masked_fill(np.arange(3), B, 0.5)\n"
        "= cast the array first, e.g. x.astype(np.float64)"),
    "masked_fill range": (lambda: ops.masked_fill(np.ones(3, np.uint8), B, 300),
        "ArgumentError: masked_fill(): value: u8 cannot hold 300\n"
        "at ops.masked_fill(np.ones(3, np.uint8), B, 300)\n"
        "= cast the array first, e.g. x.astype(np.float64)"),
    "big-endian": (j(lambda x: x + 1, np.ones(3, ">f4")),
        "InputArrayError: <lambda>(): x: an array of dtype >f4 is not in this machine's byte order\n"
        "at jit(fn)(*arguments)\n"
        '= convert it: x.astype(x.dtype.newbyteorder("="))'),
    "objects captured": (j(lambda x: x + np.array([1, None]), X),
        "InputArrayError: add(): y: an array of Python objects cannot be traced\n"
        "at x + np.array([1, None])\n"
        "= give it a numeric dtype, e.g. x.astype(np.float64)"),
    "promotion": (lambda: ops.concat(np.ones(3, ml_dtypes.float8_e5m2), V),
        "PromotionError: f8e5m2 and f32 have no common dtype\n"
        "at ops.concat(np.ones(3, ml_dtypes.float8_e5m2), V)\n"
        "= f8e5m2 is for storage only: cast it first, e.g. x.astype('f32')"),
    # axis
    "axis": (j(lambda x: x.sum(axis=2), X),
        "AxisError: sum(): axis 2 is out of range for an array of rank 2\n"
        "at x.sum(axis=2)\n"
        "= its axes are -2 to 1"),
    "axis neg": (j(lambda x: x.sum(axis=-3), X),
        "AxisError: sum(): axis -3 is out of range for an array of rank 2\n"
        "at x.sum(axis=-3)\n"
        "= its axes are -2 to 1"),
    "axis twice": (j(lambda x: x.sum(axis=(0, 0)), X),
        "AxisError: sum(): axes (0, 0) name an axis twice\n"
        "at x.sum(axis=(0, 0))\n"
        "= name each axis once; a negative one counts from the end"),
    "axis 0d": (j(lambda x: x.mean(axis=0), np.ones((), F32)),
        "AxisError: mean(): axis 0 is out of range for an array of rank 0\n"
        "at x.mean(axis=0)\n"
        "= it has no axes"),
    "axis float": (j(lambda x: x.sum(axis=1.0), X),
        "ArgumentError: sum(): axis must be an integer, not 1.0\n"
        "at x.sum(axis=1.0)\n"
        "= give an int, or where several axes are taken, a tuple of ints"),
    "axis none": (j(lambda x: ops.softmax(x, axis=None), X),
        "ArgumentError: softmax(): axis must be an integer, not None\n"
        "at ops.softmax(x, axis=None)\n"
        "= give an int, or where several axes are taken, a tuple of ints"),
    "axis ops": (lambda: ops.softmax(X, axis=5),
        "AxisError: softmax(): axis 5 is out of range for an array of rank 2\n"
        "at ops.softmax(X, axis=5)\n"
        "= its axes are -2 to 1"),
    "transpose": (j(lambda x: x.transpose(0, 0), X),
        "AxisError: permute(): axes (0, 0) do not name each of 2 axes once\n"
        "at x.transpose(0, 0)\n"
        "= name every axis once, e.g. (1, 0)"),
    "transpose2": (j(lambda x: x.transpose(0), X),
        "AxisError: permute(): axes (0,) do not name each of 2 axes once\n"
        "at x.transpose(0)\n"
        "= name every axis once, e.g. (1, 0)"),
    "swapaxes": (j(lambda x: x.swapaxes(0, 2), X),
        "AxisError: axis 2 is out of range for an array of rank 2\n"
        "at x.swapaxes(0, 2)\n"
        "= its axes are -2 to 1"),
    "moveaxis": (j(lambda x: np.moveaxis(x, 0, (0, 1)), X),
        "AxisError: moveaxis() cannot move axes (0,) to (0, 1)\n"
        "at np.moveaxis(x, 0, (0, 1))\n"
        "= name as many destinations as sources, each axis once"),
    "concat axis": (j(lambda x: np.concatenate([x, x], axis=2), X),
        "AxisError: concat(): axis 2 is out of range for an array of rank 2\n"
        "at np.concatenate([x, x], axis=2)\n"
        "= its axes are -2 to 1"),
    "take axis": (j(lambda x: np.take(x, 0, axis=2), X),
        "AxisError: take(): axis 2 is out of range for an array of rank 2\n"
        "at np.take(x, 0, axis=2)\n"
        "= its axes are -2 to 1"),
    "expand": (j(lambda x: np.expand_dims(x, 4), X),
        "AxisError: axis 4 is out of range for an array of rank 3\n"
        "at np.expand_dims(x, 4)\n"
        "= its axes are -3 to 2"),
    # rank
    "indices": (j(lambda x: x[0, 0, 0], X),
        "FuelIndexError: 3 indices for Tensor(f32[3, 4]) of rank 2\n"
        "at x[0, 0, 0]\n"
        "= drop the surplus ones, or insert an axis: x[..., None]"),
    "two arrays": (j(lambda x, i: x[i, i], X, I),
        "ArgumentError: only one array may index at a time\n"
        "at x[i, i]\n"
        "= index the flattened array, or use np.take_along_axis"),
    "ellipsis": (j(lambda x: x[..., ...], X),
        "FuelIndexError: an index may have only one ellipsis (...)\n"
        "at x[..., ...]\n"
        "= write : for the other axes"),
    "str index": (j(lambda x: x["a"], X),
        "ArgumentError: 'a' cannot be an index\n"
        'at x["a"]\n'
        "= index with ints, slices, ..., None or one array of integers"),
    "step0": (j(lambda x: x[::0], X),
        "FuelIndexError: a slice step must be a static int other than 0, not 0\n"
        "at x[::0]\n"
        "= give an int, such as 1 or -1"),
    "slice float": (j(lambda x: x[1.0:], X),
        "ArgumentError: a slice bound must be an integer or None, not 1.0\n"
        "at x[1.0:]\n"
        "= give an int, a length such as x.shape[0], or nothing"),
    "int oob": (j(lambda x: x[5], X),
        "FuelIndexError: index 5 is out of range for axis 0 of length 3\n"
        "at x[5]\n"
        "= indices go from -3 to 2"),
    "list idx": (j(lambda x: x[[[0, 1], [2]]], X),
        "ArgumentError: a list that is no regular array of numbers\n"
        "at x[[[0, 1], [2]]]\n"
        "= rows must be of one length, and every element a bool, int or float"),
    "embedding rank": (lambda: ops.embedding(V, I),
        "ShapeError: embedding() needs a table of rank 2, not f32[4]\n"
        "at ops.embedding(V, I)\n"
        "= use take(x, indices, axis=0) for other ranks"),
    "gather rank": (j(lambda x, i: np.take_along_axis(x, i, axis=0), X, I),
        "ShapeError: take_along_axis() got shapes (3, 4) and (2,): the ranks must be equal\n"
        "at np.take_along_axis(x, i, axis=0)\n"
        "= use np.take for indices that choose whole rows"),
    # arity
    "missing": (lambda: jit(lambda x, y: x)(X),
        "ArgumentError: <lambda>(): missing a required argument: 'y'\n"
        "at jit(lambda x, y: x)(X)\n"
        "= its signature is <lambda>(x, y)"),
    "too many": (lambda: jit(lambda x: x)(X, X),
        "ArgumentError: <lambda>(): too many positional arguments\n"
        "at jit(lambda x: x)(X, X)\n"
        "= its signature is <lambda>(x)"),
    "unknown": (lambda: jit(lambda x: x)(X, z=1),
        "ArgumentError: <lambda>(): got an unexpected keyword argument 'z'\n"
        "at jit(lambda x: x)(X, z=1)\n"
        "= its signature is <lambda>(x)"),
    "twice": (lambda: jit(lambda x: x)(X, x=1),
        "ArgumentError: <lambda>(): multiple values for argument 'x'\n"
        "at jit(lambda x: x)(X, x=1)\n"
        "= its signature is <lambda>(x)"),
    "ops missing": (lambda: ops.add(X),
        "ArgumentError: add(): missing a required argument: 'y'\n"
        "at ops.add(X)\n"
        "= its signature is add(x, y)"),
    "ops many": (lambda: ops.exp(X, X),
        "ArgumentError: exp(): too many positional arguments\n"
        "at ops.exp(X, X)\n"
        "= its signature is exp(x)"),
    "ops unknown": (lambda: ops.softmax(X, axs=0),
        "ArgumentError: softmax(): got an unexpected keyword argument 'axs'\n"
        "at ops.softmax(X, axs=0)\n"
        "= its signature is softmax(x, axis=-1)"),
    "ops no args": (lambda: ops.concat(),
        "ArgumentError: concat() takes at least 1 array (*xs), not 0\n"
        "at ops.concat()\n"
        "= parameters that are no arrays go by name"),
    "ops in trace": (j(lambda x: ops.add(x), X),
        "ArgumentError: add(): missing a required argument: 'y'\n"
        "at ops.add(x)\n"
        "= its signature is add(x, y)"),
    "ops noparam": (j(lambda x: ops.unsqueeze(x), X),
        "ArgumentError: unsqueeze(): missing a required argument: 'axis'\n"
        "at ops.unsqueeze(x)\n"
        "= its signature is unsqueeze(x, axis)"),
    "param kind": (lambda: ops.rms_norm(X, V, eps=np.ones(3)),
        "ArgumentError: rms_norm(): eps cannot be a value of type numpy.ndarray\n"
        "at ops.rms_norm(X, V, eps=np.ones(3))\n"
        "= a parameter is compiled in: pass a number, or a tuple of numbers"),
    "param str": (lambda: ops.rms_norm(X, V, eps="small"),
        "ArgumentError: rms_norm(): eps: expected a Python float, not 'small'\n"
        'at ops.rms_norm(X, V, eps="small")\n'
        "= a parameter is a number that is known while tracing, not an array"),
    "param traced": (j(lambda x, e: ops.rms_norm(x, V, eps=e), X, 1e-5),
        "ArgumentError: rms_norm(): eps: expected a Python float, not Tensor(f64[], weak)\n"
        "at ops.rms_norm(x, V, eps=e)\n"
        "= a parameter is a number that is known while tracing, not an array"),
    "powi n": (lambda: ops.powi(X, 2.5),
        "ArgumentError: powi(): n: expected a Python int, not 2.5\n"
        "at ops.powi(X, 2.5)\n"
        "= a parameter is a number that is known while tracing, not an array"),
    "static list": (lambda: jit(static_argnames="n")(lambda x, n: x)(X, [1]),
        "ArgumentError: <lambda>(): the static argument n of type list is not hashable\n"
        'at jit(static_argnames="n")(lambda x, n: x)(X, [1])\n'
        "= pass a tuple or a frozen dataclass"),
    "static arr": (lambda: jit(static_argnames="n")(lambda x, n: x)(X, X),
        "ArgumentError: <lambda>(): the static argument n of type ndarray is not hashable\n"
        'at jit(static_argnames="n")(lambda x, n: x)(X, X)\n'
        "= pass a tuple or a frozen dataclass"),
    "at two": (j(lambda x, s: ops.write_slice(x, x[:1, :1], at=(s, s)), X, 1),
        "ArgumentError: write_slice(): only one start may be a traced integer\n"
        "at ops.write_slice(x, x[:1, :1], at=(s, s))\n"
        "= write row by row, or make the other starts static"),
    "repeat arr": (j(lambda x, i: np.repeat(x, i, axis=0), X, np.array([1, 2, 3])),
        "ArgumentError: repeat(): repeats must be one static integer\n"
        "at np.repeat(x, i, axis=0)\n"
        "= for a number per element, use np.take(x, np.repeat(np.arange(n), repeats))"),
    "copy F": (j(lambda x: np.copy(x, order="F"), X),
        "UnsupportedFunctionError: numpy.copy is not covered with order=\n"
        'at np.copy(x, order="F")\n'
        "= leave it out: traced values have no layout, and results are C-contiguous"),
    "astype F": (j(lambda x: x.astype(F32, order="F"), X),
        "UnsupportedFunctionError: x.astype() is not covered with order=\n"
        'at x.astype(F32, order="F")\n'
        "= leave it out: traced values have no layout, and results are C-contiguous"),
    "reshape F": (j(lambda x: x.reshape(4, 3, order="F"), X),
        "UnsupportedFunctionError: numpy.reshape is not covered with order=\n"
        'at x.reshape(4, 3, order="F")\n'
        "= leave it out: traced values have no layout, and results are C-contiguous"),
    "zeros_like F": (j(lambda x: np.zeros_like(x, order="F"), X),
        "UnsupportedFunctionError: numpy.zeros_like is not covered with order=\n"
        'at np.zeros_like(x, order="F")\n'
        "= leave it out: traced values have no layout, and results are C-contiguous"),
    "sum where": (j(lambda x: np.sum(x, where=x > 0), X),
        "UnsupportedFunctionError: numpy.sum is not covered with where=\n"
        "at np.sum(x, where=x > 0)\n"
        "= leave it out, or write it with other functions, e.g. np.where for where="),
    "sum out": (j(lambda x: np.sum(x, out=np.ones(())), X),
        "TracedMutationError: numpy.sum(..., out=...) writes into an array while tracing\n"
        "at np.sum(x, out=np.ones(()))\n"
        "= use the value the function returns"),
    "ragged list": (j(lambda x: x + [[1, 2], [3]], X),
        "ArgumentError: add(): y is a list that is no regular array of numbers\n"
        "at x + [[1, 2], [3]]\n"
        "= rows must be of one length, and every element a bool, int or float"),
    "traced list": (j(lambda x: x + [x[0, 0], 1.0, 2.0, 3.0], X),
        "ArgumentError: add(): y is a list that holds traced values\n"
        "at x + [x[0, 0], 1.0, 2.0, 3.0]\n"
        "= make it one array first: np.stack([...])"),
    "str operand": (j(lambda x: x + "a", X),
        "ArgumentError: add(): y cannot be a value of type str\n"
        'at x + "a"\n'
        "= pass an array, a Python number, or a (nested) list of numbers"),
    "none operand": (j(lambda x: x + None, X),
        "ArgumentError: add(): y cannot be None\n"
        "at x + None\n"
        "= pass an array, a Python number, or a (nested) list of numbers"),
    "object result": (j(lambda x: "text", X),
        "ArgumentError: <lambda>() returned 'text', which does not depend on its arguments as an array\n"
        "at jit(fn)(*arguments)\n"
        "= return an array, or compute this outside"),
    "set result": (j(lambda x: {1, 2}, X),
        "ArgumentError: <lambda>() returned {1, 2}, which does not depend on its arguments as an array\n"
        "at jit(fn)(*arguments)\n"
        "= return an array, or compute this outside"),
    "np.zeros(n)": (j(lambda x, n: np.zeros(n) + x, V, 4),
        "TracedConversionError: use as an index or a size of Tensor(i64[], weak): its value is not known while "
        "tracing\n"
        "at np.zeros(n)\n"
        "= keep it an array, x.astype(...) or np.exp(x) for math.exp(x), or name the argument in static_argnames"),
    "np.arange(n)": (j(lambda x, n: np.arange(n) + x, V, 4),
        "TracedConversionError: use as a number of Tensor(i64[], weak): its value is not known while tracing\n"
        "at np.arange(n)\n"
        "= keep it an array, x.astype(...) or np.exp(x) for math.exp(x), or name the argument in static_argnames"),
    "np.asarray": (j(lambda x: np.asarray(x), X),
        "TracedToNumpyError: np.asarray() or other code outside fuelnumba needs the memory of Tensor(f32[3, 4]), which does "
        "not exist while tracing\n"
        "at np.asarray(x)\n"
        "= use NumPy functions and operators inside, and take the numbers from what the function returns; a number that chooses "
        "a shape belongs in static_argnames"),
    "memory": (lambda: ops.add(np.broadcast_to(F32(1), (10**7, 10**7)), 1),
        "BackendError: add() needs more memory than there is: Unable to allocate 364. TiB for an array with shape "
        "(400000000000064,) and data type uint8\n"
        "at ops.add(np.broadcast_to(F32(1), (10**7, 10**7)), 1)\n"
        "= use smaller arrays, or fewer of them at once"),
    "range": (j(lambda x, n: [x for _ in range(n)], V, 4),
        "TracedConversionError: use as an index or a size of Tensor(i64[], weak): its value is not known while "
        "tracing\n"
        "at range(n)\n"
        "= keep it an array, x.astype(...) or np.exp(x) for math.exp(x), or name the argument in static_argnames"),
    "np.concatenate(x)": (j(lambda x: np.concatenate(x), np.ones((2, 3, 4))),
        "TracedIterationError: iteration over Tensor(f64[2, 3, 4]): a loop over its elements would unroll the graph\n"
        "at np.concatenate(x)\n"
        "= use whole-array operations, or index: for i in range(len(x)): x[i]"),
    "np.stack(x)": (j(lambda x: np.stack(x), np.ones((2, 3, 4))),
        "TracedIterationError: iteration over Tensor(f64[2, 3, 4]): a loop over its elements would unroll the graph\n"
        "at np.stack(x)\n"
        "= use whole-array operations, or index: for i in range(len(x)): x[i]"),
    "for": (j(lambda x: [r * 2 for r in x], X),
        "TracedIterationError: iteration over Tensor(f32[3, 4]): a loop over its elements would unroll the graph\n"
        "at [r * 2 for r in x]\n"
        "= use whole-array operations, or index: for i in range(len(x)): x[i]"),
    "math": (j(lambda x: math.exp(x[0, 0]), X),
        "TracedConversionError: float() of Tensor(f32[]): its value is not known while tracing\n"
        "at math.exp(x[0, 0])\n"
        "= keep it an array, x.astype(...) or np.exp(x) for math.exp(x), or name the argument in static_argnames"),
    "format": (j(lambda x: f"{x:.2f}", X),
        "TracedConversionError: formatting of Tensor(f32[3, 4]) with '.2f': its value is not known while tracing\n"
        'at f"{x:.2f}"\n'
        "= print it without a format, or print what the function returns"),
    "in": (j(lambda x: 1 in x, X),
        "TracedBoolError: whether Tensor(f32[3, 4]) contains a value is not known while tracing\n"
        "at 1 in x\n"
        "= use (x == value).any(), which is a traced value itself"),
    "iadd slice": (j(lambda x: x.__setitem__(0, 1), X),
        "TracedMutationError: x[...] = value would write into Tensor(f32[3, 4]), which a graph cannot hold\n"
        "at x.__setitem__(0, 1)\n"
        "= make a new value: np.where(condition, a, b), np.concatenate([...]) or fuelnumba.ops.write_slice(x, "
        "src, at)"),
    "x.foo": (j(lambda x: x.foo, X),
        "UnsupportedAttributeError: Tensor(f32[3, 4]) has no attribute 'foo'\n"
        "at x.foo\n"
        "= write it with covered functions; docs/numpy.md lists all"),
    "x.summ": (j(lambda x: x.summ(), X),
        "UnsupportedAttributeError: Tensor(f32[3, 4]) has no attribute 'summ'\n"
        "at x.summ\n"
        "= near to it are: x.sum"),
    "x.sort": (j(lambda x: x.sort(), X),
        "TracedMutationError: .sort() would write into Tensor(f32[3, 4]), which a graph cannot hold\n"
        "at x.sort()\n"
        "= make a new value: np.where(condition, a, b), np.concatenate([...]) or fuelnumba.ops.write_slice(x, "
        "src, at)"),
    "x.choose": (j(lambda x: x.choose([x]), X),
        "UnsupportedFunctionError: Tensor(f32[3, 4]).choose() is not covered for traced values\n"
        "at x.choose([x])\n"
        "= use np.where, once for each case"),
    "x.ptp": (j(lambda x: x.ptp(), X),
        "UnsupportedAttributeError: Tensor(f32[3, 4]) has no attribute 'ptp'\n"
        "at x.ptp\n"
        "= use np.ptp(x)"),
    "x.flat": (j(lambda x: x.flat, X),
        "UnsupportedAttributeError: Tensor(f32[3, 4]).flat is not covered\n"
        "at x.flat\n"
        "= use x.ravel(), which is a view"),
    "setattr": (j(lambda x: setattr(x, "shape", (4, 3)), X),
        "TracedMutationError: x.shape = (4, 3) would change Tensor(f32[3, 4]) in place\n"
        'at setattr(x, "shape", (4, 3))\n'
        "= use x.reshape(...), which is a new value"),
    "len0": (j(lambda x: len(x), np.ones(())),
        "TracingError: len() of Tensor(f64[]), which has no axes\n"
        "at len(x)\n"
        "= use x.size, which is 1, or pass an array with an axis"),
    "not called": (lambda: jit(lambda x: x).plan,
        "FuelError: <lambda> has not been called yet\n"
        "at jit(lambda x: x).plan\n"
        "= call it once: a plan is made for actual arguments"),
    "donated twice": (lambda: jit(donate="x")(lambda x, y: x)(X, X),
        "DonationError: <lambda>(): x and y are the same memory, and one is donated\n"
        'at jit(donate="x")(lambda x, y: x)(X, X)\n'
        "= pass a copy of one of them"),
    "donated view": (lambda: jit(donate="x")(lambda x: x)(X.T),
        "DonationError: <lambda>(): the donated argument x is not C-contiguous\n"
        'at jit(donate="x")(lambda x: x)(X.T)\n'
        "= donate a writeable, C-contiguous array"),
    "donated number": (lambda: jit(donate="x")(lambda x: x)(2.0),
        "DonationError: <lambda>(): the donated argument x is not an array\n"
        'at jit(donate="x")(lambda x: x)(2.0)\n'
        "= donate a writeable, C-contiguous array"),
    "six axes": (lambda: ops.write_slice(np.zeros((3,) * 6), np.ones((2,) * 6), at=(0,) * 6),
        "NoKernelError: no kernel takes write_slice on (f64 -> f64) on cpu: write_slice_rows: the source has 6 "
        "axes, more than 5\n"
        "at ops.write_slice(np.zeros((3,) * 6), np.ones((2,) * 6), at=(0,) * 6)\n"
        "= change the operands as the reason says, or register_kernel one of your own"),
    "stale": (j(lambda x: x * LARGE[3], X),
        "StaleCaptureError: global LARGE holds more than 10000 values, too many to watch for changes\n"
        "at LARGE\n"
        "= pass it to the function as an argument"),
    "no trace": (lambda: apply(OPS["relu"], X),
        "TracingError: relu() needs a running trace\n"
        'at apply(OPS["relu"], X)\n'
        "= call it in a function decorated with fuelnumba.jit"),
    "leak": (j(lambda x: KEPT.append(x * 2), X),
        "LeakedTracerError: <lambda>() left Tensor(f32[3, 4]) in global KEPT[0]\n"
        "at x * 2\n"
        "= return the value instead: what a trace stores elsewhere is not computed"),
    "kernel": (lambda: with_kernel(lambda: ops.exp(np.zeros(3))),
        "CompileError: Numba does not compile my_exp, your kernel for exp: Unknown attribute 'no_such_attribute' "
        "of type array(float64, 1d, C)\n"
        "at ops.exp(np.zeros(3))\n"
        "= the whole of Numba's message is this error's __cause__"),
    "dims": (lambda: jit(dims={"x": ("n",)})(lambda x: x)(X),
        "ArgumentError: <lambda>(): dims names 1 axes of x, which has 2\n"
        'at jit(dims={"x": ("n",)})(lambda x: x)(X)\n'
        "= give one entry for each axis, None for those without a name"),
}
