"""Tracing, planning and binding a long program takes calls of Python in proportion to its length.

What is counted are the calls of functions, Python's and C's, not time. From one length to the next of three they grow by the
same number; one comparison of every two steps would make that number grow.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuelnumba import jit, ops

STEPS = 46  # 23 terms fill a region of additions: what is left over is the same at every multiple
X = np.linspace(0.5, 1, 4)
W = np.eye(4) * 0.5


def turned(x: Any, n: int) -> Any:
    for _ in range(n):
        x = np.concatenate([x[1:], x[:1]]) * 0.5
    return x


def multiplied(x: Any, n: int) -> Any:
    for _ in range(n):
        x = x @ W
    return x


def written_in_turn(x: Any, n: int) -> Any:
    """Every write reads what it writes into."""
    for k in range(n):
        x = ops.write_slice(x, x[:1], (k % 4,))
    return x


def written_beside(x: Any, n: int) -> Any:
    """Writes into an argument, which is to be kept."""
    return [ops.write_slice(x, x[:1], (k % 4,)) * (k + 1.0) for k in range(n)]


def written_and_read_late(x: Any, n: int) -> Any:
    y, old = x * 2, []
    for k in range(n):
        old.append(y)
        y = ops.write_slice(y, x[:1] * float(k), (k % 4,))
    return [v.sum() for v in old]


def alive_to_the_end(x: Any, n: int) -> Any:
    values = [(x + float(k)) @ W for k in range(n)]
    for v in reversed(values):
        x = (x + v) @ W
    return x


def beside_a_chain(x: Any, n: int) -> Any:
    """A region that needs the arguments only, and one that needs all before it, meet at every step."""
    h = x
    for k in range(n):
        h = h @ W
        beside = x * float(k + 1)
        h = h + (beside + h).max()
    return h


def summed(x: Any, n: int) -> Any:
    h, total = x, x
    for _ in range(n):
        h = h @ W
        total = total + h
    return total


def many_results(x: Any, n: int) -> Any:
    return [x[k % 4:] * float(k) for k in range(n)]


def stacked(x: Any, n: int) -> Any:
    return np.stack([x * float(k) for k in range(n)])


def calls_of(fn: Callable[[Any, int], Any], n: int) -> int:
    """Function calls of a first call."""
    f = jit(static_argnames="n")(fn)
    count = 0

    def seen(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.collect()
    gc.disable()
    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        f(X, n)
    finally:
        sys.setprofile(before)
        gc.enable()
    return count


@pytest.mark.parametrize("fn", [
    turned, multiplied, written_in_turn, written_beside, written_and_read_late, alive_to_the_end, beside_a_chain, summed,
    many_results, stacked], ids=lambda f: f.__name__)
def test_calls_grow_as_the_program_does(fn: Callable[[Any, int], Any]) -> None:
    jit(static_argnames="n")(fn)(X, STEPS)  # its kernels are there from now on
    one, two, three = (calls_of(fn, STEPS * k) for k in (1, 2, 3))
    assert three - two <= 1.005 * (two - one), f"{one}, {two}, {three} calls"
