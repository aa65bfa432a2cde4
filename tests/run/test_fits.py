"""Python ints that are arguments, beside arrays of narrower integers: NumPy's results, or an error where NumPy has one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuelnumba import jit, ops
from fuelnumba.core.errors import ArgumentError

DTYPES = (np.int8, np.uint8, np.int16, np.int32, np.uint32)
BINARY = (np.add, np.subtract, np.multiply, np.floor_divide, np.remainder, np.maximum, np.bitwise_and, np.bitwise_xor)
COMPARISONS = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)


def compare(ours: Callable[..., Any], theirs: Callable[..., Any], *args: Any) -> bool:
    """Whether the call is refused, as it is by NumPy; otherwise the results agree."""
    with np.errstate(all="ignore"):
        try:
            wanted = theirs(*args)
        except OverflowError:
            with pytest.raises(ArgumentError, match="does not fit"):
                ours(*args)
            return True
    got = ours(*args)
    assert got.dtype == np.asarray(wanted).dtype
    np.testing.assert_array_equal(got, wanted)
    return False


def applied(ufunc: np.ufunc, swapped: bool = False) -> Callable[..., Any]:
    return lambda x, n: ufunc(n, x) if swapped else ufunc(x, n)


@pytest.mark.parametrize("dtype", DTYPES)
def test_as_in_numpy(dtype: Any) -> None:
    """For ints at both ends of each range and beyond; the plan is the same for all of them."""
    info = np.iinfo(dtype)
    x = np.array([info.min, 3, info.max], dtype)
    values = [1, info.min, info.max, info.min - 1, info.max + 1, -(2**40), 2**40]
    functions: list[Any] = [applied(u) for u in BINARY + COMPARISONS]
    functions += [applied(u, swapped=True) for u in (np.subtract, np.less, np.greater_equal)]
    functions += [lambda x, n: np.clip(x, None, n), lambda x, n: np.clip(x, n, None)]
    refused = 0
    for f in functions:
        jitted = jit(f)
        refused += sum([compare(jitted, f, x, n) for n in values])
        assert jitted.compilations == 1
    assert refused == 4 * (len(BINARY) + 1) + 2 * 2


def test_where_and_stack() -> None:
    """Where NumPy wraps around, or makes an array of the number first."""
    x = np.array([1, 5], np.int8)
    for f in (lambda x, n: np.where(x > 3, x, n), lambda x, n: np.stack([x[0], n])):
        jitted = jit(f)
        np.testing.assert_array_equal(jitted(x, 127), f(x, 127))
        with pytest.raises(ArgumentError, match=r"n: the Python int 128 does not fit i8"):
            jitted(x, 128)


@pytest.mark.parametrize("n", [0, 126, 127, -130, -128, 2**62])
def test_computed_from_an_argument(n: int) -> None:
    x = np.array([-1, 0, 100], np.int8)
    y = jit(lambda x, n, m: x + (2 * n - m))
    compare(y, lambda x, n, m: x + (2 * n - m), x, n, n - 1)
    z = jit(lambda x, n: (x < n + 1) + x * (n % 3))
    compare(z, lambda x, n: (x < n + 1) + x * (n % 3), x, n)


def test_computed_from_an_argument_and_a_length() -> None:
    x = np.array([-1, 0, 100], np.int8)
    f = jit(lambda x, y, n: x + (n + y.shape[0]), dims={"y": ("N",)})
    np.testing.assert_array_equal(f(x, np.zeros(20), 7), x + np.int8(27))
    np.testing.assert_array_equal(f(x, np.zeros(30), 97), x + np.int8(127))
    with pytest.raises(ArgumentError, match=r"^<lambda>\(\): 128, computed from Python numbers, does not fit i8 in add\(\)"):
        f(x, np.zeros(31), 97)
    assert f.compilations == 1


def test_a_length_must_fit() -> None:
    """A length that fits is no ground to compile again; one that does not is refused when it comes."""
    x = np.array([-1, 0, 100], np.int8)
    f = jit(lambda x, y: x // y.shape[0], dims={"y": ("N",)})
    for n in (20, 30, 127):
        np.testing.assert_array_equal(f(x, np.zeros(n)), x // np.int8(n))
    assert f.compilations == 1
    with pytest.raises(ArgumentError, match=r"floor_divide\(\): the length N does not fit i8"):
        f(x, np.zeros(128))
    less = jit(lambda x, y: x < y.shape[0], dims={"y": ("N",)})
    for n in (20, 100, 101, 300):
        np.testing.assert_array_equal(less(x, np.zeros(n)), x < n)


def test_what_is_written_must_fit() -> None:
    """Into part of an array, or repeated to a shape; nothing is written when it does not."""
    x = np.arange(4, dtype=np.uint8)
    write = jit(lambda x, n: ops.write_slice(x, n, at=2), donate="x")
    with pytest.raises(ArgumentError, match=r"n: the Python int 256 does not fit u8 in write_slice"):
        write(x, 256)
    np.testing.assert_array_equal(x, [0, 1, 2, 3])
    np.testing.assert_array_equal(write(x, 255), [0, 1, 255, 3])
    with pytest.raises(ArgumentError, match="the Python int -1 does not fit u8"):
        ops.write_slice(x, -1, at=2)
    with pytest.raises(ArgumentError, match="the Python int 300 does not fit u8"):
        jit(lambda x: ops.write_slice(x, 300, at=2))(x)
    fill = jit(lambda x, n: ops.full(n, (2,), "u8") + x[:2])
    np.testing.assert_array_equal(fill(x, 4), [4, 5])
    with pytest.raises(ArgumentError, match=r"n: the Python int 300 does not fit u8 in full"):
        fill(x, 300)


def test_casts_wrap_around() -> None:
    """What is cast on purpose is not looked at, nor what meets floats, 64-bit integers or bools."""
    x = np.arange(3, dtype=np.int8)
    np.testing.assert_array_equal(jit(lambda x, n: (x.astype(np.int64) * n).astype(np.int8))(x, 300), [0, 44, 88])
    np.testing.assert_array_equal(jit(lambda x, n: ops.cast(n, "i8") + x)(x, 300), [44, 45, 46])
    for dtype in (np.int64, np.float32, np.bool_):
        y = np.ones(2, dtype)
        np.testing.assert_array_equal(jit(lambda y, n: y * n)(y, 2**33), y * 2**33)


def test_messages() -> None:
    """Whole: the argument, the line in the function, the caller's line. For an op called on arrays there is only the latter."""
    x = np.ones(2, np.int8)

    def shifted(x: Any, start: dict[str, int]) -> Any:
        return x + start["n"]

    with pytest.raises(ArgumentError) as caught:
        jit(shifted)(x, {"n": 128})
    line = shifted.__code__.co_firstlineno + 1
    assert caught.value.what == f'shifted(): start["n"]: the Python int 128 does not fit i8 in add() ({__file__}:{line})'
    assert caught.value.cure == "cast the array to a wider dtype, or pass a value that fits i8"
    assert caught.value.where is not None and caught.value.where.line == line + 3
    ops.add(x, 3)
    with pytest.raises(ArgumentError) as caught:
        ops.add(x, -129)
    assert caught.value.what == "add(): y: the Python int -129 does not fit i8 in add()"
    assert caught.value.where is not None and re.search(r"ops.add\(x, -129\)", str(caught.value))
