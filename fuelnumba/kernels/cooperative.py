"""The words of kernels whose work item is done by a group of threads, for Python.

On a device the threads of a group run at once, share arrays and meet at barriers. Here `run_group` runs one after the
other, each from one meeting to the next, so that a kernel can be tested and debugged without a device. The order of the
threads is the caller's choice: a kernel that lacks a barrier gives other results in another order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import numpy as np

from .generic import load, store
from .lang import maximum, minimum, radd

__all__ = [
    "barrier", "group_max", "group_min", "group_sum", "lane", "load4", "run_group", "shared_f32", "shared_f64",
    "shared_i32", "shared_i64", "store4", "unroll",
]

TIMEOUT = 60.0  # seconds that a thread may compute between two meetings
END = "the end of the kernel"

unroll = range  # `for i in unroll(n)`: compiled, the body is written out for each i; n is a literal then


class GroupError(Exception):
    """A group's threads do not do the same: they meet at different words, or one of them fails or never arrives."""


class _Stopped(BaseException):
    """Ends a thread whose group has failed; not an Exception, so that no kernel catches it."""


class _Thread:
    """One of a group's threads: it runs while it holds the turn."""

    def __init__(self, group: _Group, number: int) -> None:
        self.group, self.number = group, number
        self.turn = threading.Semaphore(0)
        self.at: Any = None  # the word it waits at
        self.value: Any = None  # what it brings there, then what it gets
        self.arrays = 0  # how many shared arrays it has asked for
        self.error: BaseException | None = None

    def meet(self, word: str, value: Any = None) -> Any:
        """Wait until all threads are at this word."""
        self.at, self.value = word, value
        self.group.back.release()
        self.turn.acquire()
        if self.group.stopped:
            raise _Stopped
        return self.value


class _Group:
    def __init__(self, size: int) -> None:
        self.back = threading.Semaphore(0)
        self.stopped = False
        self.threads = [_Thread(self, k) for k in range(size)]
        self.shared: list[np.ndarray] = []

    def run(self, call: Callable[[], Any], order: Iterable[int]) -> None:
        running = [threading.Thread(target=self._body, args=(t, call), daemon=True) for t in self.threads]
        for r in running:
            r.start()
        order = list(order)
        try:
            while any(t.at != END for t in self.threads):
                for k in order:
                    self._step(self.threads[k])
                self._together()
        finally:
            self.stopped = True
            for t in self.threads:
                t.turn.release()

    def _step(self, t: _Thread) -> None:
        t.turn.release()
        if not self.back.acquire(timeout=TIMEOUT):
            raise GroupError(f"thread {t.number} of the group computed for {TIMEOUT:.0f} s without meeting the others")
        if t.error is not None:
            raise t.error

    def _together(self) -> None:
        """What happens at the word where all threads are."""
        first = self.threads[0]
        other = next((t for t in self.threads if t.at != first.at), None)
        if other is not None:
            raise GroupError(f"the group's threads do not meet: thread {first.number} is at {first.at}, "
                             f"thread {other.number} at {other.at}")
        combine = COMBINED.get(first.at)
        if combine is not None:
            result = reduce(combine, [t.value for t in self.threads])
            for t in self.threads:
                t.value = result

    def _body(self, t: _Thread, call: Callable[[], Any]) -> None:
        t.turn.acquire()
        if self.stopped:
            return
        _local.thread = t
        try:
            with np.errstate(all="ignore"):
                call()
        except _Stopped:
            return
        except BaseException as err:
            t.error = err
        t.at = END
        self.back.release()


_local = threading.local()


def run_group(call: Callable[[], Any], size: int, order: Iterable[int] | None = None) -> None:
    """Run `call` by `size` threads, in which the words of this file mean the group. They take turns in that order of
    their numbers. Raises what one of them raises, or GroupError."""
    _Group(size).run(call, range(size) if order is None else order)


def _thread() -> _Thread:
    found: _Thread | None = getattr(_local, "thread", None)
    if found is None:
        raise GroupError("a word of kernels for groups, outside of a group: run_group makes one")
    return found


# ---------------------------------------------------------------- the words
def lane() -> Any:
    """This thread's number in its group."""
    return np.int64(_thread().number)


def barrier() -> None:
    """All threads of the group meet: what they wrote before, to shared arrays and to memory, is seen after."""
    _thread().meet("barrier()")


def group_sum(x: Any) -> Any:
    """The sum over the group's threads, which meet here; every one gets it."""
    return _thread().meet("group_sum()", x)


def group_max(x: Any) -> Any:
    """The largest over the group's threads, which meet here; NaN wins."""
    return _thread().meet("group_max()", x)


def group_min(x: Any) -> Any:
    """The smallest over the group's threads, which meet here; NaN wins."""
    return _thread().meet("group_min()", x)


COMBINED: dict[str, Callable[[Any, Any], Any]] = {"group_sum()": radd, "group_max()": maximum, "group_min()": minimum}


def _shared(n: int, dtype: Any, filler: Any) -> np.ndarray:
    t = _thread()
    arrays, number = t.group.shared, t.arrays
    t.arrays += 1
    if number == len(arrays):
        arrays.append(np.full(n, filler, dtype))
    if arrays[number].shape != (n,) or arrays[number].dtype != dtype:
        raise GroupError("the group's threads share arrays of different kinds or lengths")
    return arrays[number]


def shared_f32(n: int) -> np.ndarray:
    """`n` f32 that the group shares; compiled, `n` is a literal and the contents are undefined."""
    return _shared(n, np.float32, np.nan)


def shared_f64(n: int) -> np.ndarray:
    """`n` f64 that the group shares; compiled, `n` is a literal and the contents are undefined."""
    return _shared(n, np.float64, np.nan)


def shared_i32(n: int) -> np.ndarray:
    """`n` i32 that the group shares; compiled, `n` is a literal and the contents are undefined."""
    return _shared(n, np.int32, np.iinfo(np.int32).min)


def shared_i64(n: int) -> np.ndarray:
    """`n` i64 that the group shares; compiled, `n` is a literal and the contents are undefined."""
    return _shared(n, np.int64, np.iinfo(np.int64).min)


def _four(i: Any) -> range:
    if i % 4 != 0:
        raise GroupError(f"four neighbours start at a multiple of 4, not at {i}")
    return range(int(i), int(i) + 4)


def load4(p: Any, i: Any) -> tuple[Any, ...]:
    """The elements i to i + 3 in their computation type, in one access: i is a multiple of 4, and p is aligned to four
    elements, which are f32 or 16 bits."""
    return tuple(load(p, k) for k in _four(i))


def store4(p: Any, i: Any, a: Any, b: Any, c: Any, d: Any) -> None:
    """The elements i to i + 3 become a, b, c, d, as for `load4`."""
    for k, v in zip(_four(i), (a, b, c, d)):
        store(p, k, v)
