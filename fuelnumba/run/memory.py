"""Where buffers lie: the arena of a plan's temporaries, and results that are reused once nobody holds them."""

from __future__ import annotations

import ctypes
import sys
from bisect import bisect_left, insort
from collections.abc import Sequence
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any

import numpy as np

ALIGN = 64


MANY_LIVES = 250_000  # steps that buffers are alive for, summed up: about 0.1 s of looking for the best places


def arrange(sizes: Sequence[int], lives: Sequence[tuple[int, int]]) -> tuple[list[int], int]:
    """Offsets of buffers so that those alive at the same time do not overlap, and the bytes needed.

    `lives` are (first, last) step numbers. Largest first, each at the lowest free place; where very many are alive for long, in
    the order of their lives, each at a place that is large enough.
    """
    padded = [-(-max(n, 1) // ALIGN) * ALIGN for n in sizes]
    if sum(last - first + 1 for first, last in lives) > MANY_LIVES + 64 * len(sizes):
        return _in_turn(padded, lives)
    offsets = [0] * len(sizes)
    alive: dict[int, list[int]] = {}  # step -> the buffers placed so far that are alive then
    top = 0
    for k in sorted(range(len(sizes)), key=lambda k: (-sizes[k], lives[k])):
        first, last = lives[k]
        others = {j for step in range(first, last + 1) for j in alive.get(step, ())}
        at = 0
        for low, high in sorted((offsets[j], offsets[j] + padded[j]) for j in others):
            if at + padded[k] <= low:
                break
            at = max(at, high)
        offsets[k] = at
        for step in range(first, last + 1):
            alive.setdefault(step, []).append(k)
        top = max(top, at + padded[k])
    return offsets, top


def _in_turn(sizes: Sequence[int], lives: Sequence[tuple[int, int]]) -> tuple[list[int], int]:
    """As `arrange`, in time that grows as the number of buffers does: each takes the least place that was left and suffices."""
    offsets = [0] * len(sizes)
    free: list[tuple[int, int]] = []  # size and offset of places, sorted
    taken: list[tuple[int, int, int]] = []  # a heap of last step, size and offset
    top = 0
    for k in sorted(range(len(sizes)), key=lives.__getitem__):
        first, last = lives[k]
        while taken and taken[0][0] < first:
            insort(free, heappop(taken)[1:])
        found = bisect_left(free, (sizes[k], 0))
        size, offsets[k] = free.pop(found) if found < len(free) else (sizes[k], top)
        top = max(top, offsets[k] + size)
        heappush(taken, (last, size, offsets[k]))
    return offsets, top


def aligned_bytes(nbytes: int) -> tuple[np.ndarray[Any, Any], int]:
    """(a byte buffer, the offset in it of an address that is a multiple of 64)."""
    raw = np.empty(nbytes + ALIGN, np.uint8)
    return raw, -raw.ctypes.data % ALIGN


def address(array: np.ndarray[Any, Any]) -> int:
    """The address of an array's first element."""
    return array.ctypes.data


_words = (ctypes.c_int64 * (1 << 59)).from_address(0)  # the process's memory: nothing is read until it is indexed


def _fast_address(array: np.ndarray[Any, Any]) -> int:
    """As `address`, from the array object itself: its data pointer follows CPython's object header (NumPy's C API fixes
    this). Several times faster than `.ctypes.data`."""
    return _words[(id(array) + 16) >> 3]


_probe = np.arange(3)[1:]
_usual = sys.implementation.name == "cpython" and sys.getsizeof(object()) == 16 and sys.maxsize > 2**32
if _usual and _fast_address(_probe) == address(_probe):
    address = _fast_address


class Recycler:
    """Buffers for the results in one storage. A buffer is handed out again once no array refers to it: a result that a caller
    holds is never overwritten, and a loop that drops its results does not pay for fresh pages each time.

    A buffer is bytes and the offset of the first that counts; where the shapes and dtypes of the results are given, also its
    address and an array for each. A view of such an array is a result, several times faster to make than an array."""

    KEEP = 2

    def __init__(self, nbytes: int, forms: Sequence[tuple[tuple[int, ...], Any]] = ()) -> None:
        self.nbytes, self.forms = nbytes, forms
        self.free = 2 + len(forms)  # references to the bytes of a free buffer: the tuple's, getrefcount's own, the arrays'
        self.buffers: list[tuple[Any, ...]] = []

    def take(self) -> tuple[Any, ...]:
        """A buffer that is the caller's alone until `put` back, which may be done once a result refers to it."""
        for _ in range(len(self.buffers)):
            try:
                pair = self.buffers.pop(0)  # atomic: no two callers examine the same buffer
            except IndexError:
                break
            if sys.getrefcount(pair[0]) == self.free:
                return pair
            self.buffers.append(pair)
        raw, first = aligned_bytes(self.nbytes)
        if not self.forms:
            return raw, first
        return raw, first, raw.ctypes.data + first, [np.ndarray(shape, dtype, raw, first) for shape, dtype in self.forms]

    def put(self, pair: tuple[Any, ...]) -> None:
        self.buffers.append(pair)
        if len(self.buffers) > self.KEEP:
            with suppress(IndexError):  # takers in other threads may have emptied it since
                self.buffers.pop(0)
