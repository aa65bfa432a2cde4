"""Arguments that cannot be: each is refused by an error of ours that says what is wrong, before anything is computed."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuelnumba as fn
from fuelnumba import errors, ops

X = np.ones((2, 3), np.float32)
U8 = np.ones(3, np.uint8)


class Bad:
    def __index__(self) -> int:
        raise RuntimeError("no index")

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


CASES: dict[str, tuple[Callable[[], Any], type[errors.FuelError], str]] = {
    "a class for an axis": (lambda: ops.flip(X, int), errors.ArgumentError, "flip(): axis must be an integer, not <class 'int'>"),
    "an axis that fails": (lambda: ops.flip(X, Bad()), errors.ArgumentError, "flip(): axis must be an integer, not a value of type Bad"),
    "a length of many digits": (lambda: ops.broadcast_to(X, (10**400,)), errors.ArgumentError, "a length 1000"),
    "a negative length": (lambda: ops.broadcast_to(X, (-1, 2, 3)), errors.ShapeError, "a length is negative"),
    "a negative length of a slice": (lambda: ops.slice(X, axis=0, start=1, length=-1), errors.ShapeError, "negative length -1"),
    "no arrays": (lambda: ops.stack(axis=0), errors.ArgumentError, "stack() takes at least 1 array"),
    "more than can be addressed": (lambda: ops.full(1, (2**40, 2**40), "f32"), errors.ShapeError, "too large for any memory"),
    "more than there is": (lambda: ops.add(np.broadcast_to(np.float32(1), (10**7, 10**7)), 1), errors.BackendError, "add() needs more memory"),
    "a flag that is none": (lambda: ops.sum(X, keepdims="yes"), errors.ArgumentError, "expected True or False, not 'yes'"),
    "a number that is a date": (lambda: ops.powi(X, np.timedelta64(3, "s")), errors.ArgumentError, "powi(): n: expected a Python int"),
    "a complex number": (lambda: ops.rms_norm(X, eps=np.complex64(1)), errors.ArgumentError, "rms_norm(): eps: expected a Python float"),
    "a float past its range": (lambda: ops.rms_norm(X, eps=10**400), errors.ArgumentError, "does not fit a float"),
    "a scale that is text": (lambda: ops.attention(*[X[None, None]] * 3, scale="x"), errors.ArgumentError, "attention(): scale: expected a Python float"),
    "a value past the dtype": (lambda: ops.masked_fill(U8, U8 > 0, value=300), errors.ArgumentError, "u8 cannot hold 300"),
    "a fraction among integers": (lambda: ops.clamp(U8, min=0.5), errors.ArgumentError, "0.5 is no bound for u8"),
    "text for a number": (lambda: ops.full("5", (2,), "i32"), errors.ArgumentError, "full(): the value cannot be a value of type str"),
    "axes that are a number": (lambda: ops.permute(X, axes=3), errors.ArgumentError, "axes must be a tuple of integers, not 3"),
    "an odd dtype": (lambda: ops.cast(X, object()), errors.DTypeError, "is not a dtype of fuelnumba"),
}


@pytest.mark.parametrize("name", CASES)
def test_ops(name: str) -> None:
    call, kind, text = CASES[name]
    with pytest.raises(errors.FuelError) as caught:
        call()
    assert type(caught.value) is kind and text in caught.value.what


NUMPY: dict[str, tuple[Callable[[Any], Any], type[errors.FuelError], str]] = {
    "parts without end": (lambda x: np.split(x[:0], 10**12), errors.ArgumentError, "the number of parts is 1000000000000, more than 10000"),
    "differences without end": (lambda x: np.diff(x, 10**12), errors.ArgumentError, "diff(): n is 1000000000000, more than 10000"),
    "an order that is a number": (lambda x: np.ravel(x, 10**30), errors.UnsupportedFunctionError, "with order="),
    "an axis that is an array": (lambda x: np.expand_dims(x, np.ones((2, 2))), errors.ArgumentError, "axis must be an integer"),
    "cuts that are nothing": (lambda x: np.vsplit(x, NotImplemented), errors.ArgumentError, "not iterable"),
    "too few axes": (lambda x: np.vsplit(x[0], 1), errors.ShapeError, "vsplit() needs more axes"),
    "out": (lambda x: np.outer(x, x, out=X), errors.TracedMutationError, "numpy.outer"),
    "an int past 64 bits": (lambda x: np.tensordot(x[0, 0], -(2**63) - 1, 0), errors.ArgumentError, "does not fit i64"),
    "widths that are none": (lambda x: np.pad(x, None), errors.ArgumentError, "a length must be an integer, not None"),
    "half a shift": (lambda x: np.roll(x, (1, 2.5), 0), errors.ArgumentError, "a length must be an integer, not 2.5"),
    "more shifts than axes": (lambda x: np.roll(x, (1, 2, 3), (0, 1)), errors.ShapeError, "roll() got 3 shifts for 2 axes"),
    "decimals of bools": (lambda x: np.round(x > 0, 1), errors.DTypeError, "not defined for bool"),
}


@pytest.mark.parametrize("name", NUMPY)
def test_numpy_functions(name: str) -> None:
    call, kind, text = NUMPY[name]
    with pytest.raises(errors.FuelError) as caught:
        fn.jit(call)(X)
    assert type(caught.value) is kind and text in caught.value.what
    assert caught.value.where is not None and caught.value.where.file == __file__


def test_functions_of_bools_have_numpys_dtypes() -> None:
    x = np.array([True, False])
    for f in (np.square, np.round):
        got, wanted = fn.jit(lambda b, f=f: f(b), static_argnames="f")(x, f), f(x)
        assert got.dtype == wanted.dtype and got.tolist() == wanted.tolist()


def test_static_values_are_not_kept_without_end() -> None:
    module = importlib.import_module("fuelnumba.jit")

    @fn.jit(static_argnames="k")
    def f(x: Any, k: int) -> Any:
        return x + float(k)

    x = np.ones(2, np.float32)
    for k in range(module.MAX_FAMILIES + 40):
        f(x, 0)  # in use throughout, so it stays
        assert f(x, k)[0] == k + 1
    assert len(f._specialisations) <= module.MAX_FAMILIES and len(f._seen) <= module.MAX_FAMILIES and len(f._fast) <= module.MAX_FAMILIES
    before = f.compilations
    assert f(x, 0)[0] == 1 and f(x, module.MAX_FAMILIES + 39)[0] == module.MAX_FAMILIES + 40
    assert f.compilations == before
    f(x, 1)  # long unused: traced again
    assert f.compilations == before + 1 and len(f.misses) <= module.MAX_FAMILIES


def test_shifts_and_axes_of_roll_broadcast() -> None:
    x = np.arange(12.0).reshape(3, 4)
    for shift, axis in (((1, 2), 0), (1, (0, 1)), ((1,), (1, 0)), ((2, -1), (0, 1))):
        rolled = fn.jit(lambda x, s, a: np.roll(x, s, a), static_argnames=("s", "a"))(x, shift, axis)
        np.testing.assert_array_equal(rolled, np.roll(x, shift, axis))
