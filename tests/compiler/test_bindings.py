"""A user's own kernels: which calls they serve, what plans show of them, and every refusal as it reads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
import pytest

from fuelnumba import jit, ops, register_kernel, unregister_kernel
from fuelnumba.compiler import bindings, plan
from fuelnumba.compiler.lower import Layouts, legalise
from fuelnumba.core import dtypes as dt
from fuelnumba.core import ir
from fuelnumba.core.errors import ArgumentError, NoKernelError
from fuelnumba.core.layout import contiguous
from fuelnumba.core.ops import OPS
from tests.at_once import at_once

f32 = np.float32


@pytest.fixture
def registered() -> Iterator[Callable[..., None]]:
    """register_kernel, undone at the end of the test."""
    before = bindings.current().user

    yield register_kernel

    for key in bindings.current().user.keys() - before.keys():
        unregister_kernel(key[0], key[1])


@numba.njit
def twice_tanh(x, out):
    for k in range(x.size):
        out.flat[k] = 2 * np.tanh(x.flat[k])


@numba.njit
def weighted(x, out, axis, keepdims):
    """Not a sum: the position's number times the value, so that it cannot be mistaken for ours."""
    out[:] = axis[0] * 1000 + keepdims * 100
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i] += j * x[i, j]


@numba.njit
def minus(x, y, out):
    for k in range(x.size):
        out.flat[k] = x.flat[k] - y.flat[k] + 1000


def message(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    with pytest.raises(ArgumentError) as caught:
        fn(*args, **kwargs)
    assert caught.value.where is not None and caught.value.where.file == __file__
    return str(ArgumentError(caught.value.what, cure=caught.value.cure))


# ------------------------------------------------------------ being called
def test_a_registered_kernel_is_called_and_shown(registered: Any) -> None:
    f = jit(lambda x: np.tanh(x))
    x = np.linspace(-1, 1, 6, dtype=f32).reshape(2, 3)
    np.testing.assert_allclose(f(x), np.tanh(x), rtol=1e-6)
    registered("tanh", ("f32", "f32"), twice_tanh)
    np.testing.assert_allclose(f(x), 2 * np.tanh(x), rtol=1e-6)
    assert (
        str(f.plan).splitlines()[1].split("   # ")[0]
        == "    0  twice_tanh (yours)   tanh -> f32[2, 3], 1 work item"
    )
    assert f.misses == ["kernels were registered or removed"]
    unregister_kernel("tanh", ("f32", "f32"))
    np.testing.assert_allclose(f(x), np.tanh(x), rtol=1e-6)
    assert "yours" not in str(f.plan) and f.compilations == 3


def test_other_dtypes_keep_our_kernels(registered: Any) -> None:
    registered("tanh", (np.float32, dt.f32), twice_tanh)
    x = np.linspace(-1, 1, 5)
    np.testing.assert_allclose(ops.tanh(x), np.tanh(x), rtol=1e-12)
    np.testing.assert_allclose(ops.tanh(x.astype(f32)), 2 * np.tanh(x), rtol=1e-6)


def test_it_is_not_fused_and_its_neighbours_are(registered: Any) -> None:
    registered("tanh", ("f32", "f32"), twice_tanh)
    f = jit(lambda x: np.exp(np.tanh(x * 2 + 1) * 3 - 1))
    x = np.linspace(-1, 1, 7, dtype=f32)
    np.testing.assert_allclose(f(x), np.exp(2 * np.tanh(x * 2 + 1) * 3 - 1), rtol=1e-5)
    assert [s.label for s in f.plan.launches] == ["multiply_add", "tanh", "multiply_subtract_exp"]
    assert [s.user is not None for s in f.plan.launches] == [False, True, False]


def test_it_gets_contiguous_arrays(registered: Any) -> None:
    registered("subtract", ("f32", "f32", "f32"), minus)
    x = np.arange(6, dtype=f32).reshape(2, 3)
    f = jit(lambda x, y: x.T - y)
    y = np.ones(2, f32)
    np.testing.assert_array_equal(f(x, y), x.T - y + 1000)
    np.testing.assert_array_equal(jit(lambda x: x[::-1, ::2] - 1)(x), x[::-1, ::2] - 1 + 1000)
    assert [s.label for s in f.plan.launches] == ["contiguous", "contiguous", "subtract"]


def test_attributes_come_in_the_order_of_the_declaration(registered: Any) -> None:
    registered("sum", ("f32", "f32"), weighted)
    x = np.arange(6, dtype=f32).reshape(2, 3)
    np.testing.assert_array_equal(jit(lambda x: x.sum(axis=1))(x), [1000 + 1 + 4, 1000 + 4 + 10])


def test_other_lengths_need_no_other_plan(registered: Any) -> None:
    registered("tanh", ("f32", "f32"), twice_tanh)
    f = jit(lambda x: np.tanh(x) + 1)
    for n in (4, 7, 9):
        x = np.linspace(-1, 1, n, dtype=f32)
        np.testing.assert_allclose(f(x), 2 * np.tanh(x) + 1, rtol=1e-6)
    assert f.compilations == 2


def test_half_types_arrive_as_their_bits(registered: Any) -> None:
    @numba.njit
    def negate_bits(x, out):
        for k in range(x.size):
            out[k] = x[k] ^ np.uint16(0x8000)

    registered("negative", ("f16", "f16"), negate_bits)
    x = np.array([1.5, -2.0, 0.0], np.float16)
    got = ops.negative(x)
    assert got.tolist() == [-1.5, 2.0, 0.0] and np.signbit(got[2])
    assert {str(s[0].dtype) for s in negate_bits.signatures} == {"uint16"}


def test_registering_while_another_thread_calls(registered: Any) -> None:
    f = jit(lambda x: np.tanh(x))
    x = np.linspace(-1, 1, 5, dtype=f32)
    one, two = np.tanh(x), 2 * np.tanh(x)
    stop, wrong = threading.Event(), []

    def call() -> None:
        while not stop.is_set():
            got = f(x)
            if not (np.allclose(got, one) or np.allclose(got, two)):
                wrong.append(got)

    f(x)
    thread = threading.Thread(target=call)
    thread.start()
    for _ in range(10):
        register_kernel("tanh", ("f32", "f32"), twice_tanh)
        np.testing.assert_allclose(f(x), two, rtol=1e-6)
        unregister_kernel("tanh", ("f32", "f32"))
        np.testing.assert_allclose(f(x), one, rtol=1e-6)
    stop.set()
    thread.join()
    assert not wrong


# ------------------------------------------------------------ refusals
def test_messages(registered: Any) -> None:
    two = ("f32", "f32")
    assert message(register_kernel, "tanhh", two, twice_tanh) == (
        "there is no op 'tanhh'\n   = python -m fuelnumba ops lists them"
    )
    assert message(register_kernel, "tanh", two, twice_tanh, backend="cuda") == (
        "there is no backend 'cuda'\n   = the backends are: cpu, vulkan"
    )
    assert message(register_kernel, "tanh", two, np.tanh) == (
        "'tanh' is not a Numba function\n   = decorate it with numba.njit"
    )
    for name in ("permute", "full"):
        assert message(register_kernel, name, two, twice_tanh) == (
            f"{name} moves no data and takes no kernel\n   = register kernels for ops that compute: python -m fuelnumba ops lists them"
        )
    for dtypes in (("f32", "f32", "f32"), ("f32",)):
        assert message(register_kernel, "tanh", dtypes, twice_tanh) == (
            f"tanh has 1 inputs and one output; got {len(dtypes)} dtypes\n   = give the dtypes of the inputs, then that of the output"
        )
    registered("tanh", two, twice_tanh)
    assert message(register_kernel, "tanh", two, minus) == (
        "tanh has a registered kernel for f32 -> f32 on cpu already\n   = unregister_kernel frees the key"
    )
    unregister_kernel("tanh", two)
    assert message(unregister_kernel, "tanh", two) == (
        "tanh has no registered kernel for f32 -> f32 on cpu\n   = give the dtypes it was registered with"
    )
    assert message(unregister_kernel, "add", ("f32", "f32", "f32")) == (
        "add has no registered kernel for f32, f32 -> f32 on cpu\n   = give the dtypes it was registered with"
    )


@pytest.mark.parametrize("change", ["register", "unregister"])
@pytest.mark.parametrize("after", ["lower", "legalise", "order_writes", "fuse", "call"])
def test_a_change_while_a_plan_is_made(registered: Any, monkeypatch: pytest.MonkeyPatch, after: str, change: str) -> None:
    """All of a plan comes from what was bound when its trace began, whichever pass another thread interrupts; then it is made
    anew. (The passes once looked for themselves: fused for none, planned for one, the region's result was never written.)"""
    key = ("tanh", ("f32", "f32"))
    x = np.linspace(-1, 1, 6, dtype=f32).reshape(2, 3)
    if change == "unregister":
        registered(*key, twice_tanh)
    f = jit(lambda x: np.tanh(x + 1) * 3 + x.sum(axis=0))
    place = f.parameters if after == "call" else plan
    run = getattr(place, after)

    def interrupted(*args: Any) -> Any:
        result = run(*args)
        monkeypatch.undo()
        if change == "register":
            registered(*key, twice_tanh)
        else:
            unregister_kernel(*key)
        return result

    monkeypatch.setattr(place, after, interrupted)
    factors = (1, 2) if change == "register" else (2, 1)
    for calls, factor in enumerate(factors, start=1):
        np.testing.assert_allclose(f(x), factor * np.tanh(x + 1) * 3 + x.sum(axis=0), rtol=1e-5)
        assert ("yours" in str(f.plan)) is (factor == 2) and f.compilations == calls
    assert f.misses == ["kernels were registered or removed"]


def test_two_threads_register_different_functions(registered: Any) -> None:
    """One is told that the other's is there: neither is lost without a word."""
    before, refused = bindings.current().user, []

    def register(k: int) -> None:
        try:
            registered("tanh", ("f32", "f32"), (twice_tanh, weighted)[k])
        except ArgumentError:
            refused.append(k)

    at_once(2, register)
    assert len(refused) == 1 and len(bindings.current().user) == len(before) + 1


def test_a_refused_registration_changes_nothing() -> None:
    before = bindings.generation, bindings.current().user
    for args in (
        ("tanhh", ("f32", "f32"), twice_tanh),
        ("tanh", ("f32", "f33"), twice_tanh),
        ("tanh", ("f32",), twice_tanh),
    ):
        with pytest.raises(Exception, match=r"."):
            register_kernel(*args)
    assert (bindings.generation, bindings.current().user) == before


def _unbound(name: str, *dtypes: dt.DType, **attrs: Any) -> str:
    inputs = [ir.input_node("x", (2, 2), d) for d in dtypes]
    node = ir.intern(OPS[name], tuple(inputs), attrs, (2, 2), dtypes[0])
    layouts = Layouts({i: contiguous(i.shape) for i in inputs})
    with pytest.raises(NoKernelError) as caught:
        legalise(ir.Graph(inputs, [node]), layouts, bindings.current())
    return str(caught.value)


def test_no_kernel_error() -> None:
    cure = "\n   = cast the arrays first, e.g. x.astype('f32'), or register_kernel one of your own"
    assert _unbound("softmax", dt.f8e4m3, axis=1) == (
        "no kernel for softmax on (f8e4m3 -> f8e4m3) on cpu; softmax has kernels for bf16, f16, f32, f64"
        + cure
    )
    served = sorted({d.name for k in bindings.current().of(OPS["matmul"]) for d in k.types["T"]})
    assert _unbound("matmul", dt.f8e4m3, dt.f8e4m3) == (
        "no kernel for matmul on (f8e4m3, f8e4m3 -> f8e4m3) on cpu; "
        f"matmul has kernels for {', '.join(served)}"
        + cure
    )
