"""What a graph cannot hold: each has an error class of its own, whose message is compared whole."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuelnumba.core.errors import (
    FuelError,
    LeakedTracerError,
    TracedBoolError,
    TracedConversionError,
    TracedIterationError,
    TracedMutationError,
    TracedToNumpyError,
    TracingError,
    UnsupportedFunctionError,
)
from fuelnumba.core.ops import OPS
from fuelnumba.trace.apply import apply
from fuelnumba.trace.namespace import namespace

from .tracing import run, trace

X = np.ones((3, 4), np.float32)


def message(fn: Callable[..., Any], *arrays: Any) -> tuple[str, int]:
    """The message, and the number of the first line of `fn`."""
    with pytest.raises(FuelError) as caught:
        trace(fn, arrays or [X])
    return f"{type(caught.value).__name__}: {caught.value}", inspect.getsourcelines(fn)[1]


def test_bool() -> None:
    def f(x):
        if x.sum() > 0:
            return x
        return -x

    text, line = message(f)
    gap = " " * len(str(line + 1))
    assert text == f"""\
TracedBoolError: the truth of Tensor(bool[]) is not known while tracing
{gap}--> {__file__}:{line + 1}, in f
{gap} |
{line + 1} |         if x.sum() > 0:
{gap} |            ^^^^^^^^^^^
{gap} = use np.where(condition, a, b) and & | ~, or name the argument in static_argnames"""


def test_conversion() -> None:
    def f(x):
        return x * float(x[0, 0])

    text, line = message(f)
    gap = " " * len(str(line + 1))
    assert text == f"""\
TracedConversionError: float() of Tensor(f32[]): its value is not known while tracing
{gap}--> {__file__}:{line + 1}, in f
{gap} |
{line + 1} |         return x * float(x[0, 0])
{gap} |                    ^^^^^^^^^^^^^^
{gap} = keep it an array, x.astype(...) or np.exp(x) for math.exp(x), or name the argument in \
static_argnames"""


def test_mutation() -> None:
    def f(x):
        x[0] = 1
        return x

    text, line = message(f)
    gap = " " * len(str(line + 1))
    assert text == f"""\
TracedMutationError: x[...] = value would write into Tensor(f32[3, 4]), which a graph cannot hold
{gap}--> {__file__}:{line + 1}, in f
{gap} |
{line + 1} |         x[0] = 1
{gap} |         ^^^^
{gap} = make a new value: np.where(condition, a, b), np.concatenate([...]) or \
fuelnumba.ops.write_slice(x, src, at)"""


def test_shapes() -> None:
    def f(x):
        return (x + 1) @ x

    text, line = message(f)
    gap = " " * len(str(line + 1))
    assert text == f"""\
ShapeError: matmul() cannot multiply (3, 4) by (3, 4): 4 columns meet 3 rows
{gap}--> {__file__}:{line + 1}, in f
{gap} |
{line + 1} |         return (x + 1) @ x
{gap} |                ^^^^^^^^^^^
{gap} = the last axis of the first must be as long as the last but one of the second: transpose one"""


def test_uncovered_function() -> None:
    def f(x):
        return np.cumprod(x)

    text, line = message(f)
    gap = " " * len(str(line + 1))
    assert text.startswith(f"""\
UnsupportedFunctionError: numpy.cumprod is not covered for traced values
{gap}--> {__file__}:{line + 1}, in f
{gap} |
{line + 1} |         return np.cumprod(x)
{gap} |                ^^^^^^^^^^^^^
{gap} = near to it are covered: """)


OUTSIDE = "{} needs the memory of Tensor(f32[3, 4]), which does not exist while tracing"
FORBIDDEN: list[tuple[type[TracingError], Callable[..., Any], str]] = [
    (TracedBoolError, lambda x: x and 1, "the truth of Tensor(f32[3, 4]) is not known while tracing"),
    (TracedBoolError, lambda x: not x, "the truth of Tensor(f32[3, 4]) is not known while tracing"),
    (TracedBoolError, lambda x: 1 if x.any() else 2,
     "the truth of Tensor(bool[]) is not known while tracing"),
    (TracedBoolError, lambda x: 0 < x < 1, "the truth of Tensor(bool[3, 4]) is not known while tracing"),
    (TracedBoolError, lambda x: max(x[0, 0], 0), "the truth of Tensor(bool[]) is not known while tracing"),
    (TracedBoolError, lambda x: x in [1, 2], "the truth of Tensor(bool[3, 4]) is not known while tracing"),
    (TracedBoolError, lambda x: 1 in x,
     "whether Tensor(f32[3, 4]) contains a value is not known while tracing"),
    (TracedConversionError, lambda x: int(x),
     "int() of Tensor(f32[3, 4]): its value is not known while tracing"),
    (TracedConversionError, lambda x: complex(x),
     "complex() of Tensor(f32[3, 4]): its value is not known while tracing"),
    (TracedConversionError, lambda x: math.exp(x),
     "float() of Tensor(f32[3, 4]): its value is not known while tracing"),
    (TracedConversionError, lambda x: range(x.sum()),
     "use as an index or a size of Tensor(f32[]): its value is not known while tracing"),
    (TracedConversionError, lambda x: [1, 2][x[0, 0]],
     "use as an index or a size of Tensor(f32[]): its value is not known while tracing"),
    (TracedConversionError, lambda x: x.item(),
     ".item() of Tensor(f32[3, 4]): its value is not known while tracing"),
    (TracedConversionError, lambda x: x.tolist(),
     ".tolist() of Tensor(f32[3, 4]): its value is not known while tracing"),
    (TracedConversionError, lambda x: f"{x:.2f}",
     "formatting of Tensor(f32[3, 4]) with '.2f': its value is not known while tracing"),
    (TracedIterationError, lambda x: [row + 1 for row in x],
     "iteration over Tensor(f32[3, 4]): a loop over its elements would unroll the graph"),
    (TracedIterationError, lambda x: sum(x),
     "iteration over Tensor(f32[3, 4]): a loop over its elements would unroll the graph"),
    (TracedIterationError, lambda x: (lambda a, b, c: a)(*x),
     "iteration over Tensor(f32[3, 4]): a loop over its elements would unroll the graph"),
    (TracedIterationError, lambda x: zip(x, x),
     "iteration over Tensor(f32[3, 4]): a loop over its elements would unroll the graph"),
    (TracedMutationError, lambda x: x.sort(),
     ".sort() would write into Tensor(f32[3, 4]), which a graph cannot hold"),
    (TracedMutationError, lambda x: x.fill(0),
     ".fill() would write into Tensor(f32[3, 4]), which a graph cannot hold"),
    (TracedMutationError, lambda x: np.exp(x, out=np.ones((3, 4), np.float32)),
     "numpy.exp(..., out=...) writes into an array while tracing"),
    (TracedMutationError, lambda x: np.put(np.ones(3), [0], x),
     "numpy.put writes into an array, which a graph cannot hold"),
    (TracedToNumpyError, lambda x: np.asarray(x),
     OUTSIDE.format("np.asarray() or other code outside fuelnumba")),
    (TracedToNumpyError, lambda x: np.array([x, x]),
     OUTSIDE.format("np.asarray() or other code outside fuelnumba")),
    (TracedToNumpyError, lambda x: np.float32(x),
     OUTSIDE.format("np.asarray() or other code outside fuelnumba")),
    (TracedConversionError, lambda x: np.ones(3).__setitem__(0, x),
     "float() of Tensor(f32[3, 4]): its value is not known while tracing"),
    (TracedToNumpyError, lambda x: np.ones(3).__setitem__(slice(None), x),
     OUTSIDE.format("np.asarray() or other code outside fuelnumba")),
    (TracedToNumpyError, lambda x: np.from_dlpack(x),
     OUTSIDE.format("DLPack")),
    (TracedToNumpyError, lambda x: pickle.dumps(x),
     OUTSIDE.format("pickling")),
    (TracedToNumpyError, lambda x: x.tobytes(),
     OUTSIDE.format(".tobytes()")),
    (UnsupportedFunctionError, lambda x: x.cumsum(),
     "Tensor(f32[3, 4]).cumsum() is not covered for traced values"),
]


@pytest.mark.parametrize(("kind", "fn", "what"), FORBIDDEN,
                         ids=lambda v: v.__name__ if isinstance(v, type) else "")
def test_forbidden_acts(kind: type[FuelError], fn: Callable[..., Any], what: str) -> None:
    with pytest.raises(kind) as caught:
        trace(fn, [X])
    assert type(caught.value) is kind
    assert caught.value.what == what
    assert caught.value.cure
    assert caught.value.where is not None
    assert caught.value.where.file == __file__
    assert caught.value.where.function == "<lambda>"


def test_copies_are_the_value_itself() -> None:
    def f(x: Any) -> Any:
        assert copy.copy(x) is x
        assert copy.deepcopy([x])[0] is x
        return x

    trace(f, [X])


def test_an_attribute_that_does_not_exist() -> None:
    with pytest.raises(AttributeError, match="strides"):
        trace(lambda x: x.strides, [X])
    trace(lambda x: x if not hasattr(x, "__array_interface__") else None, [X])


# ---------------------------------------------------------------------------------------- leaks
KEPT: list[Any] = []


def test_a_leaked_value() -> None:
    def f(x):
        KEPT.append(np.exp(x))
        return x

    trace(f, [X])
    made = inspect.getsourcelines(f)[1] + 1
    leaked = KEPT.pop()
    uses: list[Callable[[], Any]] = [
        lambda: leaked + 1, lambda: np.exp(leaked), lambda: bool(leaked), lambda: np.asarray(leaked),
        lambda: leaked[0],
        lambda: leaked.sum(), lambda: namespace()["relu"](leaked), lambda: np.sum(leaked),
        lambda: leaked.reshape(-1),
        lambda: trace(lambda x: x + leaked, [X]),
    ]
    for use in uses:
        with pytest.raises(LeakedTracerError) as caught:
            use()
        assert caught.value.what == (f"Tensor(f32[3, 4]), made at {__file__}:{made}, is used, "
                                     "but the trace of f() has ended")
        assert caught.value.where is not None
        assert caught.value.where.line >= inspect.getsourcelines(test_a_leaked_value)[1]
    assert repr(leaked) == "Tensor(f32[3, 4])"


def test_a_value_in_another_thread() -> None:
    found: list[Any] = []

    def use(x: Any) -> None:
        try:
            x + 1
        except LeakedTracerError as err:
            found.append(err.what)

    def f(x: Any) -> Any:
        thread = threading.Thread(target=use, args=(x,))
        thread.start()
        thread.join()
        return x

    trace(f, [X])
    assert found == ["Tensor(f32[3, 4]) is used, but the trace of f() runs in another thread"]


def test_no_trace_is_running() -> None:
    with pytest.raises(TracingError) as caught:
        apply(OPS["relu"], X)
    assert caught.value.what == "relu() needs a running trace"


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16, np.int64, np.int32, np.int8, np.uint8, np.bool_])
@pytest.mark.parametrize("value", [np.arange(3.0), np.array(2.0), np.arange(3, dtype=np.int8), 3, 2.5, True], ids=repr)
def test_numpys_scalar_types_of_a_traced_value_name_astype(kind: Any, value: Any) -> None:
    """np.float32(x) is C code that wants numbers; the cure gives what NumPy gives."""
    name = np.dtype(kind).name
    for made in (lambda x: kind(x), lambda x: np.array(x, kind), lambda x: np.asarray(x, kind)):
        with pytest.raises((TracedToNumpyError, TracedConversionError)) as caught:
            run(lambda x: made(x), value)  # noqa: B023
        assert f"write x.astype(np.{name}) for np.{name}(x)" in str(caught.value) and caught.value.where is not None
    got = run(lambda x: x.astype(kind), value)
    assert got.dtype == kind
    np.testing.assert_array_equal(got, np.asarray(value).astype(kind))
