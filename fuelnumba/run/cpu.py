"""The CPU backend: a native walker over a table of launches, and the threads that walk it together.

A table row is eight 64-bit words: function, argument block, work items, 1 if threads divide the items, 1 if all threads
must meet before it, a counter. Every thread walks the whole table; an undivided row belongs to thread 0. So kernels run one
after another without Python, and a plan costs one native call.

Of a divided row, half the items are dealt out evenly beforehand, the same to the same thread each time, and the other half
in pieces to whoever is free: a thread that another program holds up does not hold up the rest. The row's counter says
how many pieces are taken; thread 0 sets it back when all threads are done with the table.

A worker waits for its next table in native code for a while (a wake-up through the system costs more than many plans) and
then sleeps on a lock. Its block of words says which: 0 waiting, 1 there is work, 2 asleep; then the table, its rows, the
meeting counter's value, and where the addresses of two functions stand that give the processor away.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import threading
from contextlib import suppress
from functools import cache
from typing import Any

from ..compiler import modcache

ROW = 8
SPINS = 400  # looks at a counter, about 20 us, before the processor is offered to others
PATIENCE = 600  # looks, about 100 us, before it is left idle: the system may then move a thread there that waits for another's
NAP = 20  # microseconds
PIECES = 4  # for each thread, of the half of a row's items that is not dealt out beforehand
ASLEEP = 2
LINGER = 4000  # looks, about 200 us, before a worker without work goes to sleep

WALKER = r"""
define internal void @fuel_meet(ptr %counter, i64 %want, ptr %give_way) {
entry:
  %before = atomicrmw add ptr %counter, i64 1 acq_rel
  br label %look
look:
  %n = phi i64 [0, %entry], [%n.next, %again]
  %seen = load atomic i64, ptr %counter acquire, align 8
  %all = icmp sge i64 %seen, %want
  br i1 %all, label %done, label %wait
wait:
  %n.next = add i64 %n, 1
  %some = icmp sgt i64 %n.next, SPINS
  br i1 %some, label %leave, label %again
leave:
  %many = icmp sgt i64 %n.next, PATIENCE
  %which = zext i1 %many to i64
  %p.way = getelementptr ptr, ptr %give_way, i64 %which
  %way = load ptr, ptr %p.way
  %ignored = call i32 %way(i32 NAP)
  br label %again
again:
  PAUSE
  br label %look
done:
  ret void
}

define void @fuel_walk(ptr %table, i64 %rows, i64 %tid, i64 %threads, ptr %counter, i64 %base, ptr %give_way) {
entry:
  %many = icmp sgt i64 %threads, 1
  br label %row
row:
  %i = phi i64 [0, %entry], [%next, %advance]
  %met = phi i64 [%base, %entry], [%met.after, %advance]
  %end = icmp sge i64 %i, %rows
  br i1 %end, label %finish, label %look
look:
  %at = mul i64 %i, ROWWORDS
  %p.function = getelementptr i64, ptr %table, i64 %at
  %function = load ptr, ptr %p.function
  %p.args = getelementptr i64, ptr %p.function, i64 1
  %args = load ptr, ptr %p.args
  %p.total = getelementptr i64, ptr %p.function, i64 2
  %total = load i64, ptr %p.total
  %p.divided = getelementptr i64, ptr %p.function, i64 3
  %divided.word = load i64, ptr %p.divided
  %p.meets = getelementptr i64, ptr %p.function, i64 4
  %meets.word = load i64, ptr %p.meets
  %wanted = icmp ne i64 %divided.word, 0
  %divided = and i1 %wanted, %many
  %meets = icmp ne i64 %meets.word, 0
  %must = and i1 %meets, %many
  br i1 %must, label %meet, label %work
meet:
  %want = add i64 %met, %threads
  call void @fuel_meet(ptr %counter, i64 %want, ptr %give_way)
  br label %work
work:
  %met.after = phi i64 [%met, %look], [%want, %meet]
  %first = icmp eq i64 %tid, 0
  br i1 %divided, label %share, label %whole
whole:
  br i1 %first, label %all.items, label %advance
all.items:
  call void %function(ptr %args, i64 0, i64 %total)
  br label %advance
share:
  %half = lshr i64 %total, 1
  %x = mul i64 %half, %tid
  %lo = udiv i64 %x, %threads
  %t1 = add i64 %tid, 1
  %y = mul i64 %half, %t1
  %hi = udiv i64 %y, %threads
  %rest = sub i64 %total, %half
  %pieces = mul i64 %threads, PIECES
  %even = udiv i64 %rest, %pieces
  %piece = add i64 %even, 1
  %p.counter = getelementptr i64, ptr %p.function, i64 5
  %some = icmp ult i64 %lo, %hi
  br i1 %some, label %own, label %claim
own:
  call void %function(ptr %args, i64 %lo, i64 %hi)
  br label %claim
claim:
  %taken = atomicrmw add ptr %p.counter, i64 1 monotonic
  %passed = mul i64 %taken, %piece
  %from = add i64 %half, %passed
  %left = icmp ult i64 %from, %total
  br i1 %left, label %take, label %advance
take:
  %end.piece = add i64 %from, %piece
  %inside = icmp ult i64 %end.piece, %total
  %to = select i1 %inside, i64 %end.piece, i64 %total
  call void %function(ptr %args, i64 %from, i64 %to)
  br label %claim
advance:
  %next = add i64 %i, 1
  br label %row
finish:
  br i1 %many, label %tidy, label %done
tidy:
  %last = add i64 %met, %threads
  call void @fuel_meet(ptr %counter, i64 %last, ptr %give_way)
  %zeroth = icmp eq i64 %tid, 0
  br i1 %zeroth, label %reset, label %done
reset:
  %k = phi i64 [0, %tidy], [%k.next, %reset.row]
  %none = icmp sge i64 %k, %rows
  br i1 %none, label %done, label %reset.row
reset.row:
  %k.at = mul i64 %k, ROWWORDS
  %p.row = getelementptr i64, ptr %table, i64 %k.at
  %p.taken = getelementptr i64, ptr %p.row, i64 5
  store i64 0, ptr %p.taken
  %k.next = add i64 %k, 1
  br label %reset
done:
  ret void
}

define void @fuel_alone(ptr %table, i64 %rows) {
  call void @fuel_walk(ptr %table, i64 %rows, i64 0, i64 1, ptr null, i64 0, ptr null)
  ret void
}

define void @fuel_serve(ptr %block, i64 %tid, i64 %threads, ptr %meet) {
entry:
  %p.table = getelementptr i64, ptr %block, i64 1
  %p.rows = getelementptr i64, ptr %block, i64 2
  %p.base = getelementptr i64, ptr %block, i64 3
  %p.way = getelementptr i64, ptr %block, i64 4
  br label %listen
listen:
  br label %look
look:
  %n = phi i64 [0, %listen], [%n.next, %wait]
  %state = load atomic i64, ptr %block acquire, align 8
  %called = icmp eq i64 %state, 1
  br i1 %called, label %go, label %patience
patience:
  %n.next = add i64 %n, 1
  %tired = icmp sgt i64 %n.next, LINGER
  br i1 %tired, label %sleep, label %wait
wait:
  PAUSE
  br label %look
sleep:
  %pair = cmpxchg ptr %block, i64 0, i64 2 acq_rel acquire
  %found = extractvalue { i64, i1 } %pair, 0
  %asleep = icmp ne i64 %found, 1
  br i1 %asleep, label %done, label %listen
go:
  store atomic i64 0, ptr %block release, align 8
  %table = load ptr, ptr %p.table
  %rows = load i64, ptr %p.rows
  %base = load i64, ptr %p.base
  %way = load ptr, ptr %p.way
  call void @fuel_walk(ptr %table, i64 %rows, i64 %tid, i64 %threads, ptr %meet, i64 %base, ptr %way)
  br label %listen
done:
  ret void
}

define i64 @fuel_call(ptr %block, i64 %table, i64 %rows, i64 %base, i64 %way) {
  %p.table = getelementptr i64, ptr %block, i64 1
  %p.rows = getelementptr i64, ptr %block, i64 2
  %p.base = getelementptr i64, ptr %block, i64 3
  %p.way = getelementptr i64, ptr %block, i64 4
  store i64 %table, ptr %p.table
  store i64 %rows, ptr %p.rows
  store i64 %base, ptr %p.base
  store i64 %way, ptr %p.way
  %before = atomicrmw xchg ptr %block, i64 1 acq_rel
  ret i64 %before
}
"""


def _source() -> str:
    pause = "call void @llvm.x86.sse2.pause()" if platform.machine().lower() in ("x86_64", "amd64") else ""
    text = WALKER.replace("PAUSE", pause)
    numbers = {"ROWWORDS": ROW, "PIECES": PIECES, "SPINS": SPINS, "LINGER": LINGER, "PATIENCE": PATIENCE, "NAP": NAP}
    for name, number in numbers.items():
        text = text.replace(name, str(number))
    return text


@cache
def _addresses() -> list[int]:
    return modcache.load_ir(_source(), ("fuel_walk", "fuel_serve", "fuel_call", "fuel_alone"))


@cache
def alone() -> Any:
    """alone(table, rows): the caller walks by itself, and keeps the GIL. For what takes a few microseconds."""
    return ctypes.PYFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(_addresses()[3])


@cache
def _native() -> tuple[Any, Any, Any]:
    """walk(table, rows, thread, threads, meeting counter, its value now, ways to give way); serve(block, thread, threads,
    meeting counter); call(block, table, rows, meeting value, ways to give way) -> the worker's state before."""
    word, addresses = ctypes.c_int64, _addresses()
    walk = ctypes.CFUNCTYPE(None, *[word] * 7)(addresses[0])
    serve = ctypes.CFUNCTYPE(None, *[word] * 4)(addresses[1])
    call = ctypes.PYFUNCTYPE(word, *[word] * 5)(addresses[2])  # a few stores: not worth letting go of the GIL
    return walk, serve, call


@cache
def _give_way() -> Any:
    """The addresses of the system calls that let another thread run, and that leave the processor idle for a moment."""
    if sys.platform == "win32":
        calls = [ctypes.windll.kernel32.SwitchToThread] * 2  # type: ignore[attr-defined]
    else:
        calls = [ctypes.CDLL(None).sched_yield, ctypes.CDLL(None).usleep]
    return (ctypes.c_int64 * 2)(*[ctypes.cast(f, ctypes.c_void_p).value or 0 for f in calls])


def default_threads() -> int:
    """$FUELNUMBA_NUM_THREADS, or the processors this process may use."""
    wanted = os.environ.get("FUELNUMBA_NUM_THREADS", "")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Pool:
    """Threads that walk a table together with the caller. Only one caller at a time has them; another one walks alone,
    which gives the same numbers."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.busy = threading.Lock()
        self.meet = (ctypes.c_int64 * 16)()
        self.address = ctypes.addressof(self.meet)
        self.base = 0
        self.blocks = [(ctypes.c_int64 * 16)(0, 0, 0, -1) for _ in range(threads - 1)]
        self.wake = [threading.Lock() for _ in range(threads - 1)]
        self.walk, self.serve, self.call = _native()
        self.give_way = ctypes.addressof(_give_way())
        self.workers: list[threading.Thread] = []
        self.started = self.closed = False

    def close(self) -> None:
        """Let the threads end; a caller that still has the pool walks alone."""
        with self.busy:
            self.closed = True
            for lock in self.wake:
                _release(lock)

    def _start(self) -> None:
        for k, (block, lock) in enumerate(zip(self.blocks, self.wake)):
            if k == len(self.workers):
                self.workers.append(threading.Thread(target=self._serve, args=(k + 1, ctypes.addressof(block), lock),
                                                     name=f"fuelnumba-{k + 1}", daemon=True))
            if self.workers[k].ident is None:  # it may have one, if Ctrl-C came while they were started
                lock.acquire(blocking=False)
                self.workers[k].start()
        self.started = True

    def _serve(self, tid: int, block: int, wake: threading.Lock) -> None:
        while not self.closed:
            self.serve(block, tid, self.threads, self.address)
            wake.acquire()

    def run(self, table: int, rows: int, meetings: int, together: bool) -> None:
        """Walk the table. `meetings` is the number of its rows before which all threads meet."""
        if together and self.threads > 1 and self.busy.acquire(blocking=False):
            try:
                if self.closed:
                    return self.walk(table, rows, 0, 1, self.address, 0, 0)
                if not self.started:
                    self._start()
                base = self.base
                self.base = base + (meetings + 1) * self.threads
                try:
                    self._summon(table, rows, base)
                    self.walk(table, rows, 0, self.threads, self.address, base, self.give_way)
                except BaseException:  # Ctrl-C between two of these calls: workers that were called wait for this thread
                    if self.meet[0] < self.base:
                        self._summon(table, rows, base, once_more=True)
                        self.walk(table, rows, 0, self.threads, self.address, base, self.give_way)
                    raise
            finally:
                self.busy.release()
        else:
            self.walk(table, rows, 0, 1, self.address, 0, 0)

    def _summon(self, table: int, rows: int, base: int, once_more: bool = False) -> None:
        """Call each worker that was not called for this table yet, and wake those that sleep."""
        for block, lock in zip(self.blocks, self.wake):
            asleep = once_more
            if block[3] != base:
                asleep |= self.call(ctypes.addressof(block), table, rows, base, self.give_way) == ASLEEP
            if asleep:
                _release(lock)


def _release(lock: threading.Lock) -> None:
    """A worker that is woken once too often looks about and sleeps again."""
    with suppress(RuntimeError):
        lock.release()


_pool: Pool | None = None
_pool_lock = threading.Lock()


def pool() -> Pool:
    global _pool
    if _pool is None:
        with _pool_lock:
            if _pool is None:
                _pool = Pool(default_threads())
    return _pool


def num_threads() -> int:
    return pool().threads


def set_num_threads(n: int) -> None:
    """How many threads kernels may use, the caller's included. Results do not depend on it."""
    global _pool
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise ValueError(f"the number of threads must be a positive int, not {n!r}")
    with _pool_lock:
        before, _pool = _pool, Pool(n)
    if before is not None:
        before.close()


def _after_fork() -> None:
    """A forked child has none of its parent's threads: none of ours, and none inside a call."""
    global _pool, _pool_lock
    _pool_lock = threading.Lock()
    _pool = Pool(_pool.threads) if _pool is not None else None
    single_threaded_blas.leave_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# ------------------------------------------------------------------------------------------------ BLAS
class SingleThreadedBlas:
    """While inside, SciPy's BLAS uses one thread: our own threads each call it for their panels. Entering is counted, so
    that callers in several threads do not undo one another."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.libraries: list[Any] | None = None
        self.before: list[int] = []

    def _find(self) -> list[Any]:
        import scipy.linalg.cython_blas  # noqa: F401  (loads the library we call)
        from threadpoolctl import ThreadpoolController

        found = ThreadpoolController().select(user_api="blas").lib_controllers
        return [c for c in found if "scipy" in os.path.basename(os.path.dirname(c.filepath))] or list(found)

    def __enter__(self) -> None:
        with self.lock:
            if self.inside == 0:
                if self.libraries is None:
                    self.libraries = self._find()
                self.before = [c.get_num_threads() or 1 for c in self.libraries]
                for c in self.libraries:
                    _set_blas_threads(c, 1)
            self.inside += 1

    def __exit__(self, *exc: object) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                self._restore()

    def _restore(self) -> None:
        for c, n in zip(self.libraries or (), self.before):
            _set_blas_threads(c, n)

    def leave_all(self) -> None:
        """In a forked child: the threads that were inside are not there."""
        self.lock = threading.Lock()
        if self.inside:
            self.inside = 0
            self._restore()


def _set_blas_threads(library: Any, n: int) -> None:
    """threadpoolctl 3.8 ignores, without a word, what any thread wishes but the first that set a number. Who counts is
    settled here, so whoever comes last takes over."""
    clear = getattr(library, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)
    library.set_num_threads(n)
    if clear is not None:
        clear(force=True)


single_threaded_blas = SingleThreadedBlas()
