"""Integers: every step wraps to its own width, the remainder has the divisor's sign, division and shifts have no undefined cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuelnumba as fn
from fuelnumba import ops

INTS = [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64]
SIGNED = [np.int8, np.int16, np.int32, np.int64]


def of(dtypes: list[Any]) -> Any:
    return pytest.mark.parametrize("dtype", dtypes, ids=lambda d: np.dtype(d).name)


def wrapped(values: list[int], dtype: Any) -> list[int]:
    """Python ints of any size as the dtype's, modulo 2**bits."""
    info = np.iinfo(dtype)
    return [(v - info.min) % 2**info.bits + info.min for v in values]


# ------------------------------------------------------------------------------------------------ wrapping between fused steps
@pytest.mark.parametrize("times", [1, 7, 40])
def test_u8_in_fused_code(times: int) -> None:
    """-6 or 400 lives on in a wider register, and the next comparison or cast sees it."""
    negated = fn.jit(lambda x: -x < 4)
    assert negated(np.array([6, 0, 250, 253] * times, np.uint8)).tolist() == [False, True, False, True] * times
    difference = fn.jit(lambda x, y: (x - y).astype(np.float32))
    assert difference(np.array([5, 200] * times, np.uint8), np.array([6, 100] * times, np.uint8)).tolist() == [255, 100] * times
    doubled = fn.jit(lambda x: x + x > 250)
    assert doubled(np.array([200, 126] * times, np.uint8)).tolist() == [False, True] * times


@of(INTS)
def test_every_step_of_fused_code_wraps(dtype: Any) -> None:
    """The exact values are Python's; after each step they are brought to the dtype's range."""
    info = np.iinfo(dtype)
    a = [info.max, info.max - 1, info.min, info.min + 1, 100, 3, info.max // 2 + 1]
    b = [2, info.max, 1, info.max, 100, 7, 2]

    @fn.jit
    def f(x: Any, y: Any) -> Any:
        total, product, less = x + y, x * y, x - y
        return (total, product, less, total > x, (product // 3).astype(np.int64), less.astype(np.float64), (total + product) % 5,
                np.square(total), np.maximum(total, less), total & product, total.astype(np.int64) << 1)

    total, product, less = (wrapped([op(x, y) for x, y in zip(a, b)], dtype) for op in
                            (lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x - y))
    both = wrapped([t + p for t, p in zip(total, product)], dtype)
    expected = (total, product, less, [t > x for t, x in zip(total, a)], [p // 3 for p in product], [float(v) for v in less],
                [v % 5 for v in both], wrapped([t * t for t in total], dtype), [max(t, v) for t, v in zip(total, less)],
                [t & p for t, p in zip(total, product)], wrapped([t * 2 for t in total], np.int64))
    for times in (1, 9):
        results = f(np.array(a * times, dtype), np.array(b * times, dtype))
        for got, wanted in zip(results, expected, strict=True):
            assert got.tolist() == wanted * times


@of(SIGNED)
def test_the_least_number_is_its_own_negative(dtype: Any) -> None:
    least = np.iinfo(dtype).min
    x = np.array([least, least + 1, -1, 0, 5] * 5, dtype)
    negative = np.array([least, -(least + 1), 1, 0, -5] * 5, dtype)
    assert ops.negative(x).tolist() == negative.tolist()
    assert ops.absolute(x).tolist() == np.array([least, -(least + 1), 1, 0, 5] * 5, dtype).tolist()
    assert fn.jit(lambda x: -x < 0)(x).tolist() == (negative < 0).tolist()


# ------------------------------------------------------------------------------------------------ remainder and division
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("times", [1, 2, 9])
def test_float_remainder_has_the_sign_of_the_divisor(dtype: Any, times: int) -> None:
    """C's fmod has the sign of the dividend; vectors and the rest after them may differ."""
    x = np.array([-7, 7, -7, 7, 5, -5, -0.5, 2.0**-10, 6] * times, dtype)
    y = np.array([3, -3, -3, 3, -5, 5, 2, -1, 4] * times, dtype)
    known = [2, -2, -1, 1, 0, 0, 1.5, -1 + 2.0**-10, 2] * times
    assert ops.remainder(x, y).tolist() == known
    assert ops.floor_divide(x, y).tolist() == [-3, -3, 2, 2, -1, -1, -1, -1, 1] * times
    quotient, rest = fn.jit(lambda x, y: divmod(x, y))(x, y)
    assert rest.tolist() == known and (quotient * y + rest).tolist() == x.tolist()


@pytest.mark.parametrize("n", [*range(1, 20), 33, 100])
def test_equal_lanes_give_equal_remainders(n: int) -> None:
    assert ops.remainder(np.full(n, -7, np.float32), np.full(n, 3, np.float32)).tolist() == [2.0] * n


def test_float_remainder_at_the_edges() -> None:
    """As Python and NumPy have it: x itself, or the divisor's infinity; NaN for inf % y and x % 0."""
    inf, nan = np.inf, np.nan
    x = np.array([1, -1, 1, inf, -inf, 1, nan, 0, 1e10, -1e10], np.float32)
    y = np.array([inf, inf, -inf, 2, 2, 0, 1, 5, 3, 3], np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(ops.remainder(x, y), np.remainder(x, y))
    assert np.signbit(ops.remainder(np.array([-6, 6, -0.0], np.float32), np.array([3, -3, -3], np.float32))).tolist() == [False, True, True]


@of(INTS)
def test_integer_division_and_remainder(dtype: Any) -> None:
    """Rounded down like Python's. The least number divided by -1 wraps to itself; division by 0 gives 0. Both stop a C program."""
    info = np.iinfo(dtype)
    a = [7, 7, 0, 100, info.max, info.max, info.min, info.min, 5, 0]
    b = [3, 2, 5, 7, info.max, 1, 1, info.max, 0, 0]
    if info.min < 0:
        a += [-7, 7, -7, 0, info.min, info.min, info.min, info.max, -1]
        b += [3, -3, -3, -5, -1, info.max, info.min, -1, info.min]
    quotient = wrapped([x // y if y else 0 for x, y in zip(a, b)], dtype)
    rest = [x % y if y else 0 for x, y in zip(a, b)]
    for times in (1, 5):
        x, y = np.array(a * times, dtype), np.array(b * times, dtype)
        assert ops.floor_divide(x, y).tolist() == quotient * times
        assert ops.remainder(x, y).tolist() == rest * times
        fused = fn.jit(lambda x, y: (x // y * y + x % y - x) + (y == 0) * x)
        assert not fused(x, y).any()


def test_i8_remainders_by_hand() -> None:
    x, y = np.array([-7, 7, -7, 7, 0, -128], np.int8), np.array([3, -3, -3, 3, -5, 127], np.int8)
    assert ops.remainder(x, y).tolist() == [2, -2, -1, 1, 0, 126]


# ------------------------------------------------------------------------------------------------ shifts and powers
@of(INTS)
def test_shifts_past_the_width(dtype: Any) -> None:
    """A processor takes the count modulo 32 or 64. Here bits that leave are gone: 0, or the sign repeated."""
    info = np.iinfo(dtype)
    counts = [0, 1, info.bits - 2, info.bits - 1, info.bits, info.bits + 1, 64, 100]
    for value in [info.max, 1, 5, info.min, *([-1, -8] if info.min < 0 else [])]:
        x, n = np.full(8, value, dtype), np.array(counts, dtype)
        assert ops.left_shift(x, n).tolist() == wrapped([value << k for k in counts], dtype)
        assert ops.right_shift(x, n).tolist() == [value >> k for k in counts]
        shifted = fn.jit(lambda x, n: (x << n) + (x >> n))
        assert shifted(x, n).tolist() == wrapped([(value << k) + (value >> k) for k in counts], dtype)


@of(SIGNED)
def test_negative_shift_counts_count_as_too_large(dtype: Any) -> None:
    x, n = np.array([-8, 4, -1, 8], dtype), np.array([-1, -8, -100, -128], dtype)
    assert ops.left_shift(x, n).tolist() == [0, 0, 0, 0]
    assert ops.right_shift(x, n).tolist() == [-1, 0, -1, 0]


@of(INTS)
def test_integer_powers_wrap(dtype: Any) -> None:
    base, exponent = [2, 3, 0, 0, 1, 7, 2], [7, 5, 0, 3, 100, 2, 65]
    assert ops.power(np.array(base, dtype), np.array(exponent, dtype)).tolist() == wrapped([b**e for b, e in zip(base, exponent)], dtype)
    x = np.array(base, dtype)
    for n in (0, 1, 2, 3, 5, 9):
        assert ops.powi(x, n=n).tolist() == wrapped([b**n for b in base], dtype)


def test_float_powers_at_zero() -> None:
    """x**0 is 1 everywhere, at 0 and NaN too; x**1 is x."""
    x = np.array([0.0, -0.0, 1.0, -2.0, np.inf, np.nan] * 3, np.float32)
    assert (ops.power(x, np.zeros_like(x)) == 1).all() and (ops.powi(x, n=0) == 1).all() and (fn.jit(lambda x: x**0)(x) == 1).all()
    for same in (ops.powi(x, n=1), ops.power(x, np.ones_like(x)), fn.jit(lambda x: x**1)(x)):
        np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(ops.powi(x, n=2), np.array([0, 0, 1, 4, np.inf, np.nan] * 3, np.float32))
    np.testing.assert_array_equal(ops.power(x[:4], np.float32(3)), np.array([0, 0, 1, -8], np.float32))


# ------------------------------------------------------------------------------------------------ sums
def test_sums_of_narrow_integers_do_not_wrap() -> None:
    """They are made in i64, as NumPy does; asked for in the narrow dtype, they wrap."""
    x = np.full((3, 1000), 100, np.uint8)
    assert ops.sum(x, axis=1).tolist() == [100_000] * 3 and ops.sum(x, axis=0).tolist() == [300] * 1000
    assert fn.jit(lambda x: np.sum(x, axis=1, dtype=np.uint8))(x).tolist() == [100_000 % 256] * 3
    assert float(ops.mean(x)) == 100 and int(ops.sum(np.ones(70_000, bool))) == 70_000
    assert int(ops.prod(np.array([100, 100, 100], np.int8))) == 1_000_000


def test_i64_beyond_what_floats_hold() -> None:
    big = 2**53 + 1
    x = np.array([big, -big, 1, 2**62], np.int64)
    assert (x - 1).tolist() == ops.subtract(x, 1).tolist()
    assert ops.max(x[:3]) == big and ops.sum(x[:3]) == 1 and ops.maximum(x, big).tolist() == [big, big, big, 2**62]
    assert ops.equal(x, big - 1).tolist() == [False] * 4
    assert ops.argmax(np.array([big - 1, big, big - 1]), axis=0) == 1
