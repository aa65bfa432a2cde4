"""Lengths of traced values in NumPy functions that are not traced: what works at the first length works at the next."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuelnumba as fn

F32 = np.float32
USES: dict[str, Callable[[Any], Any]] = {
    "arange": lambda x: x * np.arange(x.shape[0]),
    "arange of len": lambda x: x * np.arange(1, len(x) + 1, dtype=F32),
    "arange of size": lambda x: x * np.arange(x.size)[::-1],
    "arange by steps": lambda x: x[:2] + np.arange(0, x.shape[0] * 2, x.shape[0]),
    "positions as indices": lambda x: np.take(x, np.arange(x.shape[0])[::-1], axis=0) + x[np.arange(x.shape[0] - 1)].sum(),
    "causal mask": lambda x: np.where(np.arange(x.shape[0])[:, None] >= np.arange(x.shape[0]), x, -1),
    "tri": lambda x: x @ np.tri(x.shape[0], dtype=F32) + np.eye(x.shape[0], dtype=F32).sum(),
    "array": lambda x: x[:2] * np.array([x.shape[0], 2]),
    "asarray": lambda x: x * np.asarray(x.shape[0], F32),
    "full": lambda x: x * np.full(1, x.shape[0]),
    "linspace": lambda x: x * np.linspace(0, 1, x.shape[0], dtype=F32),
    "prod": lambda x: x / np.prod(x.shape),
    "cumsum": lambda x: x * np.cumsum(x.shape)[-1],
    "sqrt": lambda x: x / np.sqrt(x.shape[0]) + x / math.sqrt(x.shape[0]),
    "scalar": lambda x: x * F32(x.shape[0]) + np.int8(x.shape[0]),
    "ufunc": lambda x: x * np.maximum(x.shape[0], 4) + np.multiply(x.shape[0], 2.0) - np.power(2, x.shape[0]),
    "array times length": lambda x: x[:2] * (np.array([1, 2], F32) * x.shape[0]),
    "index list": lambda x: np.take(x, [x.shape[0] - 1, 0], axis=0),
    "ones and zeros": lambda x: x * np.ones(x.shape, F32) + np.zeros(x.shape[0], F32),
    "repeat and tile": lambda x: x * np.repeat(F32(2), x.shape[0]) * np.tile(F32(2), x.shape[0]),
    "pad": lambda x: np.pad(x, (0, x.shape[0])) + np.pad(x, ((x.shape[0] - 1, 1),)),
    "reshape": lambda x: np.reshape(np.stack([x, x]), (np.prod(x.shape) * 2,)),
}


@pytest.mark.parametrize("name", USES)
def test_the_second_length_gives_what_numpy_gives(name: str) -> None:
    """The first call has numbers. Later ones have symbols, of which `np.arange` made an array of objects, and `np.prod` a
    Python number where there had been a NumPy one, so that the result had another dtype."""
    f = fn.jit(USES[name])
    for n in (3, 4, 7, 5, 2, 1, 3):
        x = np.linspace(1, 2, n, dtype=F32)
        expected, got = USES[name](x), f(x)
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_a_matrix_of_symbolic_lengths() -> None:
    @fn.jit(dims={"q": ("m", "d"), "k": ("n", "d")})
    def scores(q: Any, k: Any) -> Any:
        m, n = len(q), len(k)
        seen = np.arange(m)[:, None] + (n - m) >= np.arange(n)
        return np.where(seen, q @ k.T / np.sqrt(q.shape[1]), -np.inf)

    for m, n, d in [(3, 5, 4), (2, 2, 4), (4, 6, 9), (3, 5, 4)]:
        q, k = np.ones((m, d), F32), np.ones((n, d), F32)
        np.testing.assert_allclose(scores(q, k), np.where(np.tri(m, n, n - m) > 0, math.sqrt(d), -np.inf), rtol=1e-6)


def test_pads_as_long_as_the_array_stay_symbolic() -> None:
    f = fn.jit(lambda x: np.pad(x, ((x.shape[0], 0), (0, 0))))
    for n in range(2, 9):
        assert f(np.ones((n, 2), F32)).shape == (2 * n, 2)
    assert f.compilations == 2


@pytest.mark.parametrize("widths", [((1, 2), (3, 4), (5, 6)), (1, 2, 3), ((1, 2, 3),), ((1,), (1, 2, 3)), ()])
def test_pad_widths_that_do_not_fit(widths: Any) -> None:
    with pytest.raises(fn.errors.ShapeError, match="two widths for each of 2 axes"):
        fn.jit(lambda x: np.pad(x, widths))(np.ones((2, 3), F32))


@pytest.mark.parametrize("widths", [2, (1, 2), ((1, 2),), ((1,), (3,)), ((0, 1), (2, 0)), np.array([[1, 2], [0, 3]]), (3,)])
def test_pad_widths_of_every_form(widths: Any) -> None:
    x = np.arange(6, dtype=F32).reshape(2, 3)
    np.testing.assert_array_equal(fn.jit(lambda x: np.pad(x, widths))(x), np.pad(x, widths))


NUMBERS: dict[str, Callable[[Any], Any]] = {
    "divmod": lambda n: divmod(n, 3)[0] * 10 + divmod(n, 3)[1] + divmod(20, n)[1],
    "bits": lambda n: (n & 5) + (n | 8) * 100 + (n ^ 3) * 7 + (9 & n) + ~n,
    "shifts": lambda n: (n >> 1) + (n << 2) * 3 + (1 << n) + (1000 >> n) + (n << n),
    "signs": lambda n: abs(-n) + +n + abs(3 - n),
    "rounding": lambda n: round(n) + round(n, -1) + math.floor(n) + math.ceil(n) + math.trunc(n),
    "text": lambda n: len(f"{n:04d}") + int(f"{n:>3}"),
    "methods": lambda n: n.bit_length() + n.real + n.imag + n.numerator + n.denominator + n.conjugate(),
    "powers": lambda n: n**2 + 2**n + n**-1,
    "choice": lambda n: max(n, 4) + min(n, 5) + sum([n, 2]) + (2 if n in (4, 5) else 3) + len([0] * n) + sorted([n, 4])[0],
    "math": lambda n: math.gcd(n, 4) + math.log2(n) + 1 / n + math.prod([n, 3]),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_length_is_a_number_at_every_length(name: str) -> None:
    """What an int can do, a symbolic length can; it is pinned where the result is no polynomial of it."""
    f = fn.jit(lambda x: x * float(NUMBERS[name](x.shape[0])))
    for n in (3, 4, 5, 9, 12, 4):
        np.testing.assert_allclose(f(np.ones(n, F32)), np.full(n, NUMBERS[name](n)), rtol=1e-6)


def test_polynomials_of_a_length_stay_symbolic() -> None:
    f = fn.jit(lambda x: np.pad(x, (0, (x.shape[0] << 1) + divmod(x.shape[0], 2)[0] + (x.shape[0] >> 1) + round(+x.shape[0]))))
    for n in (3, 4, 5, 9, 12, 4):
        assert f(np.ones(n, F32)).shape == (n + 2 * n + n // 2 + n // 2 + n,)
    assert f.compilations == 2


@functools.cache
def cached_root(n: int) -> float:
    return math.sqrt(n)


@functools.lru_cache(maxsize=8)
def cached_table(n: int, width: int) -> Any:
    return np.arange(n * width, dtype=F32).reshape(n, width)


KEYS: dict[str, Callable[[Any], Any]] = {
    "dict": lambda x: x * {3: 1, 4: 2, 5: 30}.get(x.shape[0], 7),
    "set": lambda x: x * (2 if x.shape[0] in {4, 9} else 3) + len({x.shape[0], 4, 5}),
    "cache": lambda x: x * cached_root(x.shape[0]) + cached_root(x.shape[0] // 2),
    "table": lambda x: x[:, None] + cached_table(x.shape[0], 2) + cached_table(len(x), 2),
    "own dict": lambda x: x * {x.shape[0]: 5.0, 1: 2.0}[x.shape[0]],
    "tuples": lambda x: x * {(3,): 1, (4,): 2}.get(x.shape, 7),
}


@pytest.mark.parametrize("name", KEYS)
def test_a_length_as_a_key(name: str) -> None:
    """Hashed as a symbol, 4 is not found under 4, and a cache gives for 5 what it found for 4: wrong numbers, no error."""
    f, other = fn.jit(KEYS[name]), fn.jit(lambda y: KEYS[name](y))
    for n in (3, 4, 5, 9, 4, 3, 6):
        x = np.linspace(1, 2, n, dtype=F32)
        np.testing.assert_allclose(f(x), KEYS[name](x), rtol=1e-6)
        np.testing.assert_allclose(other(x), KEYS[name](x), rtol=1e-6)


def test_groups_of_matrices_of_lengths_that_vary() -> None:
    """Four matrices of a share two of b, whether the lengths are numbers or symbols by now."""
    product = fn.jit(lambda a, b: a @ b)
    for heads, groups in ((4, 4), (6, 6), (4, 2), (6, 3), (8, 2), (3, 3)):
        a = np.arange(heads * 6, dtype=np.float32).reshape(1, heads, 2, 3)
        b = np.arange(groups * 12, dtype=np.float32).reshape(1, groups, 3, 4)
        assert product(a, b).tolist() == (a @ np.repeat(b, heads // groups, 1)).tolist()
