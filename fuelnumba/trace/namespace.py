"""`fuelnumba.ops` out of the op table: one function per op, with signature and documentation."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..core.dims import same
from ..core.errors import ArgumentError, DTypeError, FuelError
from ..core.ops import OPS, Attr, Axis, Dtype, OpDef, ShapeAttr, proper_call
from . import apply as ap
from . import arrange, contract
from .apply import apply, as_tensor, call
from .documentation import documentation_of, inputs_of, signature_of
from .traced import RAW, Traced, current_trace, located, refused

Eager = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
_eager: list[Eager] = []


def set_eager(run: Eager) -> None:
    """How functions of the namespace run outside a trace: `run(function, args, kwargs)`."""
    _eager[:] = [run]


def namespace() -> dict[str, Callable[..., Any]]:
    """name -> public function, for every op that is no leaf and for the front doors below."""
    made = {name: public(op) for name, op in OPS.items() if op.is_public}
    for name, fn in FRONT_DOORS.items():
        op = _AT_THE_DOOR.get(name) or OPS[name]
        made[name] = _published(fn, op, signature_of(op, inspect.signature(fn)))
    return dict(sorted(made.items()))


def public(op: OpDef) -> Callable[..., Any]:
    """The function of one op: its arrays, then its parameters, by position or name."""
    signature = signature_of(op)
    inputs = inputs_of(op)

    def function(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs).arguments
        arrays: list[Any] = []
        for name, declared in zip(inputs, op.inputs):
            value = bound.pop(name, None)
            if declared.startswith("*"):
                arrays += value or ()
            elif value is not None or not declared.endswith("?"):
                arrays.append(value)
            elif any(bound.get(later) is not None for later in inputs[inputs.index(name) + 1:]):
                later = next(n for n in inputs[inputs.index(name) + 1:] if bound.get(n) is not None)
                raise ArgumentError(f"{op.name}() got {later} without {name}",
                                    cure=f"pass {name} too")
        return apply(op, *arrays, **bound)

    return _published(function, op, signature)


def _published(fn: Callable[..., Any], op: OpDef, signature: inspect.Signature) -> Callable[..., Any]:
    """The function as users see it: runs on arrays too, and says what is wrong with a call."""
    name = op.name

    @located
    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            if current_trace() is None and _eager and not any(isinstance(a, Traced) for a in args):
                return _eager[0](function, args, kwargs)  # which looks at the arguments itself
            try:
                signature.bind(*args, **kwargs)
            except TypeError as err:
                problem = str(err)
            else:
                return fn(*args, **kwargs)
        except FuelError:
            raise
        except RAW as err:
            raise refused(name, err) from err
        raise ArgumentError(f"{name}(): {problem}", cure=proper_call(name, signature))

    function.__name__ = function.__qualname__ = name
    function.__module__ = "fuelnumba.ops"
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__doc__ = documentation_of(op, signature)
    return function


# -------------------------------------------------------------------------------------- ops with a front door
def _arrays(xs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arrays of `concat(a, b)` as of `concat([a, b])`."""
    return tuple(xs[0]) if len(xs) == 1 and isinstance(xs[0], (list, tuple)) else xs


def concat(*xs: Any, axis: Any = 0) -> Any:
    return arrange.concatenate(_arrays(xs), axis)


def stack(*xs: Any, axis: int = 0) -> Any:
    return arrange.stack(_arrays(xs), axis)


def split(x: Any, parts: Any, axis: int = 0) -> list[Any]:
    return arrange.split(x, parts, axis)


def reshape(x: Any, shape: Any) -> Any:
    return ap.reshape(x, shape)


def broadcast_to(x: Any, shape: Any) -> Any:
    return ap.broadcast_to(x, shape)


def full(value: Any, shape: Any, dtype: Any) -> Any:
    return ap.full(value, shape, dtype)


def cast(x: Any, dtype: Any) -> Any:
    return ap.cast(x, dtype)


def squeeze(x: Any, axis: Any = None) -> Any:
    return arrange.squeeze(x, axis)


def matmul(a: Any, b: Any) -> Any:
    return contract.matmul(a, b)


def write_slice(x: Any, src: Any, at: Any = 0) -> Any:
    x = as_tensor(x)
    src = ap.cast_to_fit(src, x.node.dtype, "write_slice")
    while src.ndim < x.ndim:
        src = call("unsqueeze", src, axis=0)
    starts = list(at) if isinstance(at, (tuple, list)) else [at] + [0] * (x.ndim - 1)
    traced = [k for k, v in enumerate(starts) if isinstance(v, Traced)]
    if len(traced) > 1:
        raise ArgumentError("write_slice(): only one start may be a traced integer",
                            cure="write row by row, or make the other starts static")
    if not traced:
        return call("write_slice", x, src, at=tuple(starts))
    axis = traced[0]
    start, starts[axis] = starts[axis], 0
    if start.ndim != 0 or not start.node.dtype.is_integer:
        raise DTypeError(f"write_slice(): the start on axis {axis} must be an integer scalar, not {start!r}",
                         cure="take an element of an integer array, e.g. at[0]")
    return call("write_slice", x, src, start, at=tuple(starts), axis=axis)


def rope(x: Any, cos: Any, sin: Any, interleaved: Any = False) -> Any:
    x, tables = as_tensor(x), [as_tensor(cos), as_tensor(sin)]
    for k, a in enumerate(tables):
        # kernels ask whether lengths are one and the same: two symbols that are equal here get one name
        for width in (x.shape[-1], x.shape[-1] // 2) if x.ndim > 1 and a.ndim == 2 else ():
            if a.shape[-1] == width and not same(a.shape[-1], width):
                tables[k] = call("broadcast_to", a, shape=(a.shape[0], width))
    return call("rope", x, *tables, interleaved=interleaved)


FRONT_DOORS: dict[str, Callable[..., Any]] = {
    "broadcast_to": broadcast_to, "cast": cast, "concat": concat, "full": full, "matmul": matmul, "reshape": reshape,
    "rope": rope, "split": split, "squeeze": squeeze, "stack": stack, "write_slice": write_slice,
}

# What there is to say of front doors that take something else than the op behind them, or have none.
_DOOR: dict[str, Any] = {"kind": "leaf", "inputs": ("x",), "infer": lambda *_: None, "domain": "mixed"}
_AT_THE_DOOR = {o.name: o for o in (
    OpDef("split", **_DOOR, attrs={"parts": Attr(lambda v, _: v, kind="parts"), "axis": Axis(0)}, gives="list",
          args={"parts": "how many equal parts, or the positions to cut at"}, shapes="x's, with the length of a part on the axis",
          raises={"ShapeError": "the axis does not divide into so many parts"}, like="numpy.split, torch.tensor_split",
          doc="parts of an axis, as views"),
    OpDef("full", **_DOOR | {"inputs": ("value",)}, attrs={"shape": ShapeAttr(), "dtype": Dtype()}, gives="the given one",
          args={"value": "a number, or an array that broadcasts to the shape", "shape": "the lengths of the result"},
          shapes="the given one", like="numpy.full, torch.full", doc="a number repeated to a shape",
          raises={"DTypeError": "there is no such dtype", "ShapeError": "a length is negative"}),
    replace(OPS["squeeze"], attrs={"axis": Attr(lambda v, _: v, None, "axes")}),
    replace(OPS["write_slice"], inputs=("x", "src"), attrs={"at": Attr(lambda v, _: v, 0, "starts")}),
)}
