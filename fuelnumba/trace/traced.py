"""A trace in progress, and what every traced value is: a node, and whether it is a weak Python scalar.

`Tensor` adds operators and NumPy's protocols on top (trace/tensor.py); everything below works on this base.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, NoReturn, TypeVar

import numpy as np

from ..core import dims
from ..core.dims import Extent, SymEnv
from ..core.dtypes import DType
from ..core.errors import (
    ArgumentError,
    DTypeError,
    FuelError,
    FuelIndexError,
    LeakedTracerError,
    ShapeError,
    TracedMutationError,
    TracingError,
    UnsupportedFunctionError,
)
from ..core.ir import Node
from ..core.layout import Shape
from ..core.source import Location, is_library_file, locate, user_location

F = TypeVar("F", bound=Callable[..., Any])


class Narrowing(NamedTuple):
    """A weak int that is not known yet was brought to a dtype narrower than its own, by an op at a line of the user's."""

    node: Node
    dtype: DType
    op: str
    where: Location | None


@dataclass(eq=False)
class Trace:
    """One run of a user's function on traced values."""

    env: SymEnv = field(default_factory=SymEnv)
    name: str = "graph"
    on_capture: Callable[[np.ndarray[Any, Any]], None] | None = None  # told of every array read from outside
    captured: dict[int, Node] = field(default_factory=dict)  # id of an array -> its constant, which keeps it
    narrowings: list[Narrowing] = field(default_factory=list)
    active: bool = False
    refused: FuelError | None = None  # the latest error that a traced value raised on being looked into

    def wrap(self, node: Node, weak: str | None = None, where: Location | None = None, form: str | None = None) -> Any:
        """The traced value of a node."""
        return Traced.final(node, weak, self, where, form)


class _Stack(threading.local):
    def __init__(self) -> None:
        self.traces: list[Trace] = []


_running = _Stack()


def current_trace() -> Trace | None:
    """The innermost trace running in this thread."""
    return _running.traces[-1] if _running.traces else None


@contextmanager
def tracing_into(trace: Trace) -> Iterator[Trace]:
    """Ops inside the block are recorded into `trace`; afterwards its values are dead."""
    before, trace.active = trace.active, True
    _running.traces.append(trace)
    try:
        with dims.tracing(trace.env):
            yield trace
    except (FuelError, TypeError, ValueError) as err:
        if isinstance(err, FuelError):
            if err.where is not None:
                raise
            raise placed(err, _raised_at(err)) from err.__cause__
        # NumPy wraps what float(x) raises in `array[0] = x`, and puts its own words over it in np.zeros(x); the user wants
        # to see the error inside. It was raised by the same expression; what the user raises is another one.
        inside = err.__cause__ if isinstance(err.__cause__, FuelError) else trace.refused
        if inside is not None and inside.where == _raised_at(err):
            raise inside from None
        raise
    finally:
        _running.traces.pop()
        trace.active, trace.refused = before, None


def _raised_at(err: Exception) -> Location | None:
    """The user's line that an exception left first."""
    tb, found = err.__traceback__, None
    while tb is not None:
        code = tb.tb_frame.f_code
        if not is_library_file(code.co_filename):
            found = locate(code, tb.tb_lasti)
        tb = tb.tb_next
    return found


class Traced:
    """A value that is not known yet: its node tells shape and dtype.

    `weak` is None for arrays and 'b', 'i' or 'f' for a traced Python scalar, which never widens an array. `form` says what a
    value without axes is in NumPy where its op does not: see `form_of`.
    """

    __slots__ = ("form", "node", "origin", "weak", "where")
    final: ClassVar[type[Traced]]

    def __init__(self, node: Node, weak: str | None, trace: Trace, where: Location | None = None,
                 form: str | None = None) -> None:
        self.node = node
        self.form = form
        self.weak = weak
        self.origin = trace
        self.where = where

    def __init_subclass__(cls) -> None:
        Traced.final = cls

    @property
    def shape(self) -> Shape:
        return self.node.shape

    @shape.setter
    def shape(self, value: Any) -> NoReturn:
        fail(TracedMutationError, f"x.shape = {value} would change {self!r} in place", "use x.reshape(...), which is a new value")

    @property
    def ndim(self) -> int:
        return len(self.node.shape)

    @property
    def size(self) -> Extent:
        return dims.product(self.node.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.node.dtype.numpy

    @dtype.setter
    def dtype(self, value: Any) -> NoReturn:
        fail(TracedMutationError, f"x.dtype = {value!r} would change {self!r} in place", "use x.astype(...), a new value")

    @property
    def itemsize(self) -> int:
        return self.node.dtype.itemsize

    @property
    def nbytes(self) -> Extent:
        return self.size * self.itemsize

    def __repr__(self) -> str:
        return f"Tensor({self.node.aval}{', weak' if self.weak else ''})"


Traced.final = Traced

_ARRAYS = ("where", "copy", "contiguous", "write_slice", "to_device")  # ops that give arrays, with and without axes


def form_of(x: Traced) -> str:
    """What the value is with NumPy: an "array", a "scalar" of NumPy's, or a "python" number.

    Without axes, what is computed, reduced or taken out of an array is a scalar; what is moved, made or given is an array.
    """
    return "array" if x.shape else x.form or _form_by_op(x.node)


def _form_by_op(node: Node) -> str:
    while node.op.name == "cast":
        node = node.inputs[0]
    return "array" if node.op.is_view or node.op.kind == "leaf" or node.op.name in _ARRAYS else "scalar"


def in_form(x: Any, form: str) -> Any:
    """The same value, and where it has no axes, in that form; each one of a tuple."""
    if isinstance(x, (tuple, list)):
        return type(x)(in_form(v, form) for v in x)
    if not isinstance(x, Traced) or x.shape or x.form == form:
        return x
    return x.origin.wrap(x.node, x.weak, x.where, form)


def check_alive(x: Traced) -> None:
    """Raises LeakedTracerError when the trace that made `x` is not running in this thread."""
    if not x.origin.active or x.origin not in _running.traces:
        made = f", made at {x.where.file}:{x.where.line}," if x.where else ""
        state = "has ended" if not x.origin.active else "runs in another thread"
        fail(LeakedTracerError, f"{x!r}{made} is used, but the trace of {x.origin.name}() {state}",
             "return it from the traced function and use the array that comes out, "
             "instead of keeping it in a global, an attribute or a container")


def running_trace(doing: str, args: Iterable[Any]) -> Trace:
    """The trace to record into. Raises TracingError when there is none."""
    trace = current_trace()
    if trace is None:
        for a in args:
            if isinstance(a, Traced):
                check_alive(a)
        fail(TracingError, f"{doing} needs a running trace",
             "call it in a function decorated with fuelnumba.jit")
    return trace


def fail(kind: type[FuelError], what: str, cure: str | None = None) -> NoReturn:
    """Raise an error that points at the user's line."""
    raise placed(kind(what, cure=cure))


def placed(err: FuelError, where: Location | None = None) -> FuelError:
    """The error with the user's line, and with what the symbols in its shapes are in this call."""
    trace, what = current_trace(), err.what
    if trace is not None and isinstance(err, (ShapeError, FuelIndexError)):
        hints = trace.env.hints
        named = [n for n in dict.fromkeys(re.findall(r"\w+", what)) if n in hints]
        if named:
            what += f" ({', '.join(f'{n} is {hints[n]}' for n in named)} in this call)"
    return type(err)(what, where=where or user_location(), cure=err.cure)


def refuse(function: str, **given: Any) -> None:
    """Raise an error for the first parameter of a NumPy function that was really given: it is not covered."""
    for name, value in given.items():
        if value is np._NoValue or (value is None and name != "where"):  # where=None is where=False
            continue
        usual = {"order": ("C", "K", "A"), "device": ("cpu",)}.get(name, ())
        if (name == "where" and value is True) or (isinstance(value, str) and value in usual):
            continue
        if name == "out":
            fail(TracedMutationError, f"{function}(..., out=...) writes into an array while tracing",
                 "use the value the function returns")
        cure = ("leave it out: traced values have no layout, and results are C-contiguous" if name == "order" else
                "leave it out, or write it with other functions, e.g. np.where for where=")
        fail(UnsupportedFunctionError, f"{function} is not covered with {name}=", cure)


def check_numpys(dtype: Any) -> Any:
    """A dtype given to a NumPy function. Raises DTypeError for the two names that mean another one in `fuelnumba.ops`."""
    if isinstance(dtype, str) and dtype in ("i8", "u8"):
        sign = {"i8": "int", "u8": "uint"}[dtype]
        fail(DTypeError, f"{dtype!r} is {sign}64 in NumPy and {sign}8 in fuelnumba.ops", f"write np.{sign}8 or np.{sign}64")
    return dtype


RAW = (TypeError, ValueError, OverflowError, IndexError, AttributeError, ZeroDivisionError)


def refused(name: str, err: Exception) -> FuelError:
    """The error for what Python or NumPy raised inside the function `name`: arguments that it cannot be called with."""
    if isinstance(err, FuelError):
        return err
    if isinstance(err.__cause__, FuelError):  # NumPy wraps what float(x) raises
        return err.__cause__
    return ArgumentError(f"{name}(): {' '.join(str(err).split()) or type(err).__name__}",
                         cure="see NumPy's documentation of it for its parameters")


def located(fn: F) -> F:
    """Decorator: errors that leave `fn` without a place get the user's line."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except FuelError as err:
            if err.where is not None:
                raise
            error, cause = placed(err), err.__cause__
        raise error from cause

    return call  # type: ignore[return-value]
