"""Each documented departure from the array API standard, and from NumPy where the standard leaves a choice, still is one.

An example is a function of a namespace and arrays. It runs on the oracle's arrays and jitted; what comes out must be what is
written here, and must differ from what the oracle gives.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import array_api_strict as strict
import numpy as np
import pytest

import fuelnumba as fn
from fuelnumba.core import errors
from fuelnumba.tools import array_api

from .array_api import unwrapped
from .departures import MET

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

F32 = np.array([[1, 2], [3, 4]], np.float32)
INTS = np.array([1, 2, 3], np.int32)
U8 = np.array([200, 100], np.uint8)
BOOLS = np.array([True, False])
ONE = np.array(1.0, np.float32)


@dataclass(frozen=True)
class Example:
    """`run(namespace, *arrays)`; `here` is our result or error, `there` the oracle's."""

    run: Callable[..., Any]
    arrays: tuple[Any, ...]
    here: Any
    there: Any


def assigned(xp: Any, x: Any) -> Any:
    x[0, 0] = 7
    return x


def added(xp: Any, x: Any, y: Any) -> Any:
    other = x
    x += y
    return other


def widened(xp: Any, x: Any, y: Any) -> Any:
    x += y
    return x


def a(values: Any, dtype: Any) -> np.ndarray[Any, Any]:
    return np.array(values, dtype)


EXAMPLES: dict[str, list[Example]] = {
    "unsigned sums": [
        Example(lambda xp, x: xp.sum(x), (U8,), a(300, np.int64), a(300, np.uint64)),
        Example(lambda xp, x: xp.prod(x), (U8,), a(20000, np.int64), a(20000, np.uint64)),
        Example(lambda xp, x: xp.linalg.trace(x), (U8.reshape(1, 2),), a(200, np.int64), a(200, np.uint64)),
    ],
    "dtypes": [
        Example(lambda xp, x, name=name: xp.astype(x, getattr(xp, name)), (INTS,), errors.DTypeError, a([1, 2, 3], name))
        for name in ("uint16", "uint64")
    ] + [
        Example(lambda xp, x: x + xp.zeros(3, dtype=xp.complex64), (a([1], np.float32),), errors.DTypeError,
                a([1, 1, 1], np.complex64)),
        Example(lambda xp, x: x * 1j, (ONE,), errors.ArgumentError, a(1j, np.complex64)),
    ],
    "can_cast": [Example(lambda xp, x: xp.where(xp.asarray(xp.can_cast(x, xp.float64)), x, -x) if xp is strict else
                         x if xp.can_cast(x, xp.float64) else -x, (INTS,), INTS, -INTS)],
    "numbers of arrays": [
        Example(lambda xp, x, of=of: x if of(x) else -x, (x,), error, x)
        for of, x, error in ((bool, ONE, errors.TracedBoolError), (float, ONE, errors.TracedConversionError),
                             (int, a(1, np.int32), errors.TracedConversionError),
                             (operator.index, a(1, np.int32), errors.TracedConversionError))
    ],
    "assignment": [Example(assigned, (F32,), errors.TracedMutationError, a([[7, 2], [3, 4]], np.float32))],
    "in place": [
        Example(added, (INTS, INTS), INTS, 2 * INTS),
        Example(widened, (ONE, a(2.0, np.float64)), a(3.0, np.float32), TypeError),
    ],
    "masks": [Example(lambda xp, x: x[x > 1], (INTS,), errors.DTypeError, a([2, 3], np.int32))],
    "several index arrays": [Example(lambda xp, x, i: x[i, i], (F32, a([0, 1], np.int64)), errors.ArgumentError, a([1, 4], np.float32))],
    "memory": [
        Example(lambda xp, x: xp.asarray(x), (INTS,), errors.TracedToNumpyError, INTS),
        Example(lambda xp, x: xp.from_dlpack(x), (INTS,), errors.TracedToNumpyError, INTS),
    ],
    "copy": [Example(lambda xp, x: xp.reshape(x.T, (4,), copy=False), (F32,), a([1, 3, 2, 4], np.float32), AttributeError)],
    "repeats": [Example(lambda xp, x: xp.repeat(x, xp.asarray([1, 0, 2])), (INTS,), errors.ArgumentError, a([1, 3, 3], np.int32))],
    "static sizes": [
        Example(lambda xp, n, make=make: make(xp, n), (3,), error, there) for make, error, there in (
            (lambda xp, n: xp.arange(n), errors.TracedConversionError, np.arange(3)),
            (lambda xp, n: xp.eye(n), errors.TracedConversionError, np.eye(3)),
            (lambda xp, n: xp.linspace(0.0, 1.0, n), errors.TracedConversionError, np.linspace(0, 1, 3)),
            (lambda xp, n: xp.zeros(n), errors.TracedConversionError, np.zeros(3)))
    ],
    "groups": [Example(lambda xp, x, y: xp.matmul(x, y), (np.ones((4, 1, 2)), np.ones((2, 2, 1))), np.full((4, 1, 1), 2.0),
                       ValueError)],
    "capabilities": [Example(lambda xp, x: x if x.__array_namespace__() is np else -x, (INTS,), INTS, -INTS)],
    # NumPy's
    "arithmetic of bools": [
        Example(lambda xp, x, of=of: of(x, x), (BOOLS,), errors.DTypeError, a(there, np.int8)) for of, there in (
            (operator.floordiv, [1, 0]), (operator.mod, [0, 0]), (operator.pow, [1, 1]), (operator.lshift, [2, 0]),
            (operator.rshift, [0, 0]))
    ],
    "squares of bools": [Example(lambda xp, x: x**2, (BOOLS,), a([1, 0], np.int64), a([1, 0], np.int8))],
    "products of bools": [
        Example(lambda xp, x: x @ x, (BOOLS,), errors.DTypeError, a(True, bool)),
        Example(lambda xp, x: xp.tensordot(x, x, 1), (BOOLS,), errors.DTypeError, a(True, bool)),
        Example(lambda xp, x: xp.linalg.matrix_power(x, 2), (np.eye(2, dtype=bool),), errors.DTypeError, np.eye(2, dtype=bool)),
    ],
    "bools stay": [Example(lambda xp, x: xp.conj(x), (BOOLS,), BOOLS, a([1, 0], np.int8))],
    "reciprocal": [Example(lambda xp, x: xp.reciprocal(x), (a([1, 2], np.int16),), a([1, 0.5], np.float32), a([1, 0], np.int16))],
    "negative powers": [
        Example(lambda xp, x, y: x**y, (a([2, 1, -1], np.int32), a([-1, -1, -3], np.int32)), a([0, 1, -1], np.int32), ValueError),
        Example(lambda xp, x: x**-1, (INTS,), errors.ArgumentError, ValueError),
    ],
}
CASES = [(name, k) for name, examples in EXAMPLES.items() for k in range(len(examples))]
OPEN = {d.name for d in array_api.FROM_NUMPY}  # NumPy is the oracle of these


def outcome(run: Callable[..., Any], *arrays: Any) -> Any:
    try:
        return run(*arrays)
    except Exception as err:
        return err


def same(got: Any, want: Any) -> bool:
    if isinstance(want, type):
        return isinstance(got, want)
    return not isinstance(got, Exception) and got.dtype == want.dtype and np.array_equal(got, want)


@pytest.mark.parametrize(("name", "k"), CASES)
def test_the_departure_is_what_is_written(name: str, k: int) -> None:
    e = EXAMPLES[name][k]
    if name in OPEN:
        there = outcome(lambda: np.asarray(e.run(np, *(np.copy(x) if isinstance(x, np.ndarray) else x for x in e.arrays))))
    else:
        arrays = [strict.asarray(x.copy()) if isinstance(x, np.ndarray) else x for x in e.arrays]
        there = outcome(lambda: unwrapped(e.run(strict, *arrays)))
    assert same(there, e.there), f"the oracle gives {there!r}, not {e.there!r}"
    here = outcome(fn.jit(lambda *arrays: e.run(np, *arrays)), *e.arrays)
    assert same(here, e.here), f"it gives {here!r}, not {e.here!r}"
    if not (isinstance(e.here, type) and isinstance(e.there, type)):
        assert not same(here, e.there), "it does not depart any more: take it out of fuelnumba/tools/array_api.py"


def test_every_departure_has_an_example() -> None:
    documented = [d.name for d in (*array_api.FROM_STANDARD, *array_api.FROM_NUMPY)]
    assert sorted(EXAMPLES) == sorted(documented)
    assert set(MET) <= set(documented)
