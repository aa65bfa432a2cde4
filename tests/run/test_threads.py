"""Threads: ours, that share a call's work, and the user's, that make calls at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg.cython_blas  # noqa: F401  (loads the library whose threads we count)
from threadpoolctl import ThreadpoolController

import fuelnumba
from fuelnumba import jit, ops
from fuelnumba.run import cpu, executor
from tests.at_once import at_once

Array = np.ndarray[Any, Any]
F32 = np.float32


@pytest.fixture
def everything_divided(threads_wake: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small work is shared as well: many meetings of the threads in little time."""
    monkeypatch.setattr(executor, "WORTH_DIVIDING", 1)


def bits(x: Any) -> list[bytes]:
    return [np.ascontiguousarray(a).tobytes() for a in (x if isinstance(x, tuple) else (x,))]


def draw(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(F32)


# --------------------------------------------------------------------------------------- results do not depend on threads
def attend(q: Array, k: Array, v: Array) -> Array:
    s = np.einsum("bhqd,bhkd->bhqk", q.astype(float), k.astype(float)) / np.sqrt(q.shape[-1])
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("bhqk,bhkd->bhqd", e / e.sum(-1, keepdims=True), v.astype(float))


def soft(x: Array) -> Array:
    e = np.exp(x.astype(float) - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Array, ...]]] = {
    "elementwise": (lambda x, y: np.exp(x) * y + np.sin(x), lambda x, y: np.exp(x) * y + np.sin(x),
                    (draw(1_000_003), draw(1_000_003))),
    "broadcast": (lambda x, y: np.tanh(x) * y + 1, lambda x, y: np.tanh(x) * y + 1, (draw(701, 1), draw(1, 997))),
    "rows": (lambda x: x.sum(axis=1), lambda x: x.sum(axis=1), (draw(1237, 1501),)),
    "columns": (lambda x: x.sum(axis=0), lambda x: x.sum(axis=0), (draw(1501, 1237),)),
    "everything": (lambda x: x.sum(), lambda x: x.sum(), (draw(1_500_007),)),
    "middle axis": (lambda x: x.max(axis=1), lambda x: x.max(axis=1), (draw(31, 257, 203),)),
    "argmax": (lambda x: x.argmax(axis=-1), lambda x: x.argmax(axis=-1), (draw(1009, 1501),)),
    "matmul": (lambda a, b: a @ b, lambda a, b: a @ b, (draw(601, 300), draw(300, 701))),
    "batched matmul": (lambda a, b: a @ b, lambda a, b: a @ b, (draw(7, 129, 200), draw(7, 200, 151))),
    "row by matrix": (lambda a, b: a @ b, lambda a, b: a @ b, (draw(1, 1503), draw(1503, 1601))),
    "row by transposed": (lambda a, b: a @ b.T, lambda a, b: a @ b.T, (draw(1, 1503), draw(1601, 1503))),
    "softmax": (lambda x: ops.softmax(x, axis=-1), soft, (draw(803, 1007),)),
    "attention": (lambda q, k, v: ops.attention(q, k, v, causal=False), attend, (draw(2, 6, 67, 64), draw(2, 6, 131, 64), draw(2, 6, 131, 64))),
}


@pytest.mark.usefixtures("threads_wake")
@pytest.mark.parametrize("name", list(CASES))
def test_bits_do_not_depend_on_the_number_of_threads(name: str) -> None:
    fn, reference, arrays = CASES[name]
    jitted = jit(fn)
    results = {}
    for n in (1, 2, 3, 5):
        fuelnumba.set_num_threads(n)
        results[n] = jitted(*arrays)
    instance = next(iter(jitted._last.instances.values()))
    if name != "everything":  # a sum of all elements is one work item
        assert any(s.together for s in instance.segments), "too small: the threads have no part in it"
        assert any(row[3] for row in instance.rows), "no row of the table is divided"
    np.testing.assert_allclose(results[1], reference(*(a.astype(float) for a in arrays)), rtol=2e-4, atol=2e-3)
    assert all(bits(r) == bits(results[1]) for r in results.values())


@pytest.mark.usefixtures("threads_wake")
def test_writes_in_place() -> None:
    def step(cache: Any, x: Any, at: int) -> Any:
        for k in range(6):
            cache = ops.write_slice(cache, x * (k + 1.0), (at, 0)) if k % 2 == 0 else ops.write_slice(
                cache, np.exp(x[::-1]) + cache[100:100 + x.shape[0]], (2500, 0))
        return cache, cache.sum(axis=0), cache[2500:2503] * 2

    def reference(cache: Array, x: Array, at: int) -> Any:
        cache = cache.copy()
        for k in range(6):
            if k % 2 == 0:
                cache[at:at + len(x)] = x * F32(k + 1.0)
            else:
                cache[2500:2500 + len(x)] = np.exp(x[::-1]) + cache[100:100 + len(x)]
        return cache, cache.sum(axis=0), cache[2500:2503] * 2

    jitted = jit(step, donate="cache", static_argnames="at")
    x = draw(2000, 300)
    results = {}
    for n in (1, 2, 3, 5):
        fuelnumba.set_num_threads(n)
        for _ in range(2):
            results[n] = jitted(np.zeros((5000, 300), F32), x, 50)
    for got, wanted in zip(results[1], reference(np.zeros((5000, 300), F32), x, 50)):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-3)
    assert all(bits(r) == bits(results[1]) for r in results.values())


def chain(big: Any, small: Any) -> Any:
    """Each large op reads what a small one wrote and the other way round, through views that keep them apart."""
    for k in range(40):
        if k % 2 == 0:
            small = small + big.sum(axis=0)[:16] * 1e-3
        else:
            row = np.concatenate([small] * 16)
            big = big[::-1] * 0.5 + row
    return big, small


def chain_reference(big: Array, small: Array) -> Any:
    big, small = big.astype(float), small.astype(float)
    return chain(big, small)


@pytest.mark.usefixtures("threads_wake")
def test_a_chain_of_dependent_kernels() -> None:
    big, small = draw(997, 256), draw(16)
    jitted = jit(chain)
    results = []
    for n in (1, 2, 3, 5):
        fuelnumba.set_num_threads(n)
        results += [jitted(big, small) for _ in range(1 if n == 1 else 25)]
    meetings = [s.meetings for s in next(iter(jitted._last.instances.values())).segments]
    assert sum(meetings) >= 20
    for got, wanted in zip(results[0], chain_reference(big, small)):
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)
    assert all(bits(r) == bits(results[0]) for r in results)


@pytest.mark.usefixtures("everything_divided")
def test_a_chain_where_every_kernel_is_shared() -> None:
    """Tiny kernels, each divided: a missing meeting, or a counter that runs wild, shows soon."""
    big, small = draw(37, 256), draw(16)
    jitted = jit(chain)
    fuelnumba.set_num_threads(1)
    one = bits(jitted(big, small))
    for n in (2, 3, 4):
        fuelnumba.set_num_threads(n)
        for _ in range(60):
            assert bits(jitted(big, small)) == one


@pytest.mark.usefixtures("everything_divided")
def test_faults_in_shared_kernels_are_reported() -> None:
    jitted = jit(lambda table, i: np.take(table, i, axis=0) * 2)
    table, good = draw(50, 8), np.arange(40) % 50
    bad = good.copy()
    bad[[3, 37]] = 50
    for n in (1, 2, 3):
        fuelnumba.set_num_threads(n)
        for _ in range(10):
            np.testing.assert_array_equal(jitted(table, good), table[good] * 2)
            with pytest.raises(fuelnumba.errors.FuelIndexError) as caught:
                jitted(table, bad)
            assert caught.value.what == "index 50 is out of range for an axis of length 50"


# --------------------------------------------------------------------------------------- the user's threads
def many(x: Any, w: Any) -> Any:
    h = np.maximum(x @ w, 0) + x
    return ops.softmax(h, axis=-1), h.sum(axis=0)


def check_many(f: Any, k: int, rows: int = 64) -> None:
    x, w = draw(rows, 48) + F32(k), draw(48, 48)
    h = np.maximum(x.astype(float) @ w, 0) + x
    p, total = f(x, w)
    np.testing.assert_allclose(p, soft(h), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(total, h.sum(axis=0), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_threads_call_one_function(warm: bool) -> None:
    f = jit(many)
    if warm:
        check_many(f, 0)
    at_once(8, lambda k: [check_many(f, k + i) for i in range(10)] and None)
    assert f.compilations == 1


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_threads_call_different_functions(warm: bool) -> None:
    fs = [jit(lambda x, w, s=s: tuple(r * s for r in many(x, w))) for s in (1.0, 2.0, 3.0, 4.0)]
    plain = jit(many)
    if warm:
        for f in fs:
            f(draw(64, 48), draw(48, 48))

    def work(k: int) -> None:
        for i in range(6):
            s = (k + i) % 4
            x, w = draw(64, 48) + F32(k), draw(48, 48)
            for got, one in zip(fs[s](x, w), plain(x, w)):
                np.testing.assert_allclose(got, one * F32(s + 1), rtol=1e-5)

    at_once(8, work)


def test_threads_call_with_different_lengths() -> None:
    f = jit(many)
    at_once(8, lambda k: [check_many(f, k, 3 + (k * 5 + i) % 11) for i in range(8)] and None)
    assert f.compilations <= 3


def test_threads_with_large_calls() -> None:
    """One of them has our threads; the others do their work alone."""
    fuelnumba.set_num_threads(3)
    f = jit(lambda x: np.exp(x) * np.sin(x) + x)
    x = draw(1_000_003)
    fuelnumba.set_num_threads(3)
    expected = bits(f(x))

    def work(k: int) -> None:
        for _ in range(4):
            assert bits(f(x)) == expected

    at_once(6, work)


def test_the_number_of_threads_changes_while_others_call() -> None:
    f = jit(chain)
    big, small = draw(997, 256), draw(16)
    expected = bits(f(big, small))

    def work(k: int) -> None:
        for i in range(8):
            if k == 0:
                fuelnumba.set_num_threads(1 + i % 4)
            assert bits(f(big, small)) == expected

    at_once(4, work)


def test_a_fault_in_one_thread_is_its_own() -> None:
    f = jit(lambda table, i: np.take(table, i, axis=0))
    table = draw(50, 8)

    def work(k: int) -> None:
        i = np.arange(10) + k * 5 + (40 if k % 2 else 0)
        for _ in range(30):
            if k % 2:
                with pytest.raises(fuelnumba.errors.FuelIndexError, match=r"index \d+ is out of range"):
                    f(table, i)
            else:
                np.testing.assert_array_equal(f(table, i), table[i])

    at_once(8, work)


# --------------------------------------------------------------------------------------- setting
@pytest.mark.parametrize("n", [0, -1, 2.0, "2", None, True], ids=repr)
def test_a_number_of_threads_that_is_none(n: Any) -> None:
    before = fuelnumba.num_threads()
    with pytest.raises(ValueError) as caught:
        fuelnumba.set_num_threads(n)
    assert str(caught.value) == f"the number of threads must be a positive int, not {n!r}"
    assert fuelnumba.num_threads() == before


def test_the_number_of_threads() -> None:
    for n in (1, 4, 2):
        fuelnumba.set_num_threads(n)
        assert fuelnumba.num_threads() == n


@pytest.mark.parametrize(("value", "wanted"), [("3", 3), ("1", 1), ("0", None), ("many", None), ("", None), ("-2", None)])
def test_the_number_of_threads_by_environment(value: str, wanted: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUELNUMBA_NUM_THREADS", value)
    default = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert cpu.default_threads() == (wanted or default)


def test_threads_of_former_numbers_end() -> None:
    f = jit(lambda x: np.exp(x) * np.sin(x) + x)
    x = draw(1_000_003)
    f(x)
    for _ in range(6):
        fuelnumba.set_num_threads(3)
        f(x)
    fuelnumba.set_num_threads(1)
    for t in threading.enumerate():
        if t.name.startswith("fuelnumba-"):
            t.join(10)
    assert not [t for t in threading.enumerate() if t.name.startswith("fuelnumba-")]


# --------------------------------------------------------------------------------------- BLAS
def blas_threads() -> dict[str, int]:
    return {c.filepath: c.get_num_threads() for c in ThreadpoolController().select(user_api="blas").lib_controllers}


def test_blas_threads_are_as_before() -> None:
    before = blas_threads()
    assert before
    scipys = [c for c in ThreadpoolController().select(user_api="blas").lib_controllers if "scipy" in c.filepath.split(os.sep)[-2]]
    try:
        for c in scipys:
            c.set_num_threads(2)
        expected = blas_threads()
        f = jit(lambda a, b: a @ b)
        a, b = draw(300, 200), draw(200, 300)
        for n in (1, 2):
            fuelnumba.set_num_threads(n)
            f(a, b)
            assert blas_threads() == expected
        at_once(6, lambda k: [f(a, b) for _ in range(10)] and None)
        assert blas_threads() == expected
        assert cpu.single_threaded_blas.inside == 0
    finally:
        for c in scipys:
            c.set_num_threads(before[c.filepath])
    assert blas_threads() == before


def test_one_blas_thread_inside() -> None:
    ours = cpu.single_threaded_blas
    with ours:
        assert ours.libraries
        assert all(c.get_num_threads() == 1 for c in ours.libraries)
        with ours:
            pass
        assert all(c.get_num_threads() == 1 for c in ours.libraries)  # still inside the first
    with pytest.raises(KeyError), ours:
        raise KeyError
    assert ours.inside == 0


# --------------------------------------------------------------------------------------- fork
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")


def in_a_child(work: Callable[[], None]) -> None:
    """Run `work` in a forked child: it must come to its end there. Python 3.12 warns when a process with threads forks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    timer = threading.Timer(60, os.kill, (pid, 9))
    timer.start()
    _, status = os.waitpid(pid, 0)
    timer.cancel()
    timer.join()
    assert os.waitstatus_to_exitcode(status) == 0


@needs_fork
def test_fork_after_use() -> None:
    fuelnumba.set_num_threads(3)
    small, large, product = jit(lambda x: x * 2 + 1), jit(lambda x: np.exp(x) * np.sin(x) + x), jit(lambda a, b: a @ b)
    x, big, a = np.arange(5, dtype=F32), draw(1_000_003), draw(300, 300)
    expected = bits(large(big)), bits(product(a, a))
    small(x)

    def child() -> None:
        assert small(x).tolist() == [1, 3, 5, 7, 9]
        assert fuelnumba.num_threads() == 3
        for _ in range(3):
            assert (bits(large(big)), bits(product(a, a))) == expected
        assert sum(t.name.startswith("fuelnumba-") for t in threading.enumerate()) == 2
        assert jit(lambda x: x * 2 + 1)(x).tolist() == [1, 3, 5, 7, 9]

    for _ in range(2):
        in_a_child(child)
        assert bits(large(big)) == expected[0]


@needs_fork
def test_fork_while_another_thread_multiplies() -> None:
    ours = cpu.single_threaded_blas
    f = jit(lambda a, b: a @ b)
    a = draw(300, 300)
    expected = bits(f(a, a))
    assert ours.libraries
    before = [c.get_num_threads() for c in ours.libraries]

    def child() -> None:
        assert bits(f(a, a)) == expected
        assert ours.inside == 0
        assert [c.get_num_threads() for c in ours.libraries or ()] == before

    with ours:  # as another thread would be
        in_a_child(child)
    with ours.lock:
        in_a_child(child)


def test_exit_with_threads_running() -> None:
    """Threads that wait or work do not keep the interpreter from ending."""
    program = ("import numpy as np, threading, fuelnumba\n"
               "fuelnumba.set_num_threads(3)\n"
               "f = fuelnumba.jit(lambda x: np.exp(x) * np.sin(x) + x)\n"
               "x = np.ones(1_000_003, np.float32)\n"
               "f(x)\n"
               "def forever():\n"
               "    while True: f(x)\n"
               "threading.Thread(target=forever, daemon=True).start()\n"
               "f(x)\n"
               "print('done')\n")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


# --------------------------------------------------------------------------------------- BLAS and who calls it
def test_blas_is_single_threaded_whichever_thread_asks() -> None:
    """threadpoolctl 3.8 does nothing for any but the first thread that set a number: two of ours waited for one another's BLAS."""
    library = ThreadpoolController().select(user_api="blas").lib_controllers
    seen: list[list[int]] = []

    def look() -> None:
        with cpu.single_threaded_blas:
            seen.append([c.get_num_threads() for c in cpu.single_threaded_blas.libraries or ()])

    assert library
    look()
    for _ in range(2):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    look()
    assert seen and all(n == [1] * len(n) and n for n in seen)
