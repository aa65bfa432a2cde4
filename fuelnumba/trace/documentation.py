"""What `help(fuelnumba.ops.NAME)` says: signature and text, out of the op's declaration."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.dtypes import DType
from ..core.ops import OpDef
from .tensor import Tensor

P = inspect.Parameter


class Alias:
    """A union under a short name, as which a signature shows it. (`type` statements, which do the same, need Python 3.12.)"""

    def __init__(self, name: str, value: Any) -> None:
        self.__name__, self.__value__ = name, value

    def __repr__(self) -> str:
        return self.__name__

    def __or__(self, other: None) -> Alias:
        return Alias(f"{self} | {other}", self.__value__ | other)


Array = Alias("Array", np.ndarray | Tensor)
ArrayLike = Alias("ArrayLike", np.ndarray | np.generic | Tensor | bool | int | float | Sequence[Any])
DTypeLike = Alias("DTypeLike", DType | np.dtype | type | str)
Starts = Alias("int | Tensor | tuple[int | Tensor, ...]", int | Tensor | tuple[int | Tensor, ...])
Parts = Alias("int | Sequence[int]", int | Sequence[int])
Arrays = Alias("list[Array]", list[np.ndarray] | list[Tensor])

ANNOTATIONS: dict[str, Any] = {  # of a parameter, by its `Attr.kind`
    "axis": int, "axes": int | tuple[int, ...], "permutation": tuple[int, ...], "shape": int | tuple[int, ...],
    "starts": Starts, "parts": Parts, "dtype": DTypeLike, "bool": bool, "int": int, "float": float,
    "number": int | float, "device": str,
}
_PARAMETERS = {  # by kind, unless the declaration says it
    "axis": "an axis of {x}; a negative one counts from the end", "axes": "an axis, or several as a tuple; None: all",
    "dtype": "a dtype of fuelnumba.dtypes, its name, such as 'f32', or NumPy's",
    "device": "its name: 'cpu', 'vulkan' or 'vulkan:1', as for `fuelnumba.device`",
}
_KEEPDIMS = "whether the axes that are reduced stay, with length 1"
_ARRAYS = {  # by domain
    "any": "numbers or booleans", "number": "numbers", "float": "floats; numbers of other dtypes become floats",
    "int": "integers", "bits": "integers or booleans", "mixed": "any dtype", "division": "numbers or booleans",
    "sum": "numbers or booleans", "truth": "truth values: booleans, or numbers other than 0",
}
_GIVES = {
    "float": "{meet}, or a float where that is none", "division": "{meet}, or f64 where that is no float",
    "sum": "{meet}, or i64 where that is no float", "truth": "bool", "mixed": "that of {x}",
}
_REFUSED = {"number": "booleans or 8-bit floats", "int": "floats or booleans", "bits": "floats"}
_NOT_AN_ARRAY = "an argument is no array of numbers, or a parameter is of the wrong type"


# ------------------------------------------------------------------------------------------------ signatures
def inputs_of(op: OpDef) -> list[str]:
    """The names of its arrays."""
    return [n.rstrip("?").lstrip("*") for n in op.inputs]


def signature_of(op: OpDef, front: inspect.Signature | None = None) -> inspect.Signature:
    """The signature of an op's function, or of the front door before it, with annotations out of the declaration."""
    params = list(front.parameters.values()) if front is not None else _declared(op)
    return inspect.Signature([p.replace(annotation=_annotation(op, p)) for p in params],
                             return_annotation=Arrays if op.gives == "list" else Array)


def _declared(op: OpDef) -> list[inspect.Parameter]:
    params: list[inspect.Parameter] = []
    for name in op.inputs:
        if name.startswith("*"):
            params.append(P(name[1:], P.VAR_POSITIONAL))
        else:
            default = None if name.endswith("?") else P.empty
            params.append(P(name.rstrip("?"), P.POSITIONAL_OR_KEYWORD, default=default))
    kind: Any = P.POSITIONAL_OR_KEYWORD
    for name, attr in op.attrs.items():
        last = params[-1] if params else None
        if last is not None and (last.kind is P.VAR_POSITIONAL or (attr.default is P.empty
                                                                   and last.default is not P.empty)):
            kind = P.KEYWORD_ONLY
        params.append(P(name, kind, default=attr.default))
    return params


def _annotation(op: OpDef, p: inspect.Parameter) -> Any:
    found = ArrayLike if p.name in inputs_of(op) else ANNOTATIONS.get(op.attrs[p.name].kind, P.empty)
    return found | None if p.default is None and found is not P.empty else found


# ------------------------------------------------------------------------------------------------ text
def counterpart(op: OpDef) -> str:
    """What does the same in NumPy, SciPy or PyTorch; empty where there is no such thing."""
    return op.like or (f"numpy.{op.name}" if isinstance(getattr(np, op.name, None), np.ufunc) else "")


def documentation_of(op: OpDef, signature: inspect.Signature) -> str:
    """A docstring in NumPy's form."""
    x = next((n for n in inputs_of(op) if n != "condition"), "x")
    lines = [*_sentence(op.doc), "", "Parameters", "----------"]
    for p in signature.parameters.values():
        shown = "" if p.annotation is P.empty else inspect.formatannotation(p.annotation)
        default = "" if p.default is P.empty or p.default is None else f"{', ' if shown else ''}default {p.default!r}"
        name = f"*{p.name}" if p.kind is P.VAR_POSITIONAL else p.name
        lines += [f"{name} : {shown}{default}".rstrip(" :"), *_sentence(_says(op, p.name, x), "    ")]
    lines += ["", "Returns", "-------", inspect.formatannotation(signature.return_annotation),
              *_sentence(f"Shape: {_shape(op, x)}", "    "), *_sentence(f"Dtype: {_dtype(op, x)}", "    ")]
    lines += ["", "Raises", "------"]
    for error, when in _raises(op, x).items():
        lines += [error, *_sentence(f"When {when}", "    ")]
    lines += ["", "Notes", "-----"]
    lines += _sentence(f"Like {counterpart(op)}") if counterpart(op) else []
    for backend, names in op.dtypes().items():
        lines += _sentence(f"Dtypes of {x} on {backend}: {' '.join(names)}")
    return "\n".join(lines)


def _sentence(text: str, indent: str = "") -> list[str]:
    """Lines of it, with a full stop; a word at its beginning, but no formula, gets a capital letter."""
    first = text.split(" ")[0].rstrip(",;")
    if first.isalpha() and (len(first) > 1 or first == "a"):
        text = text[0].upper() + text[1:]
    line = f"{indent}{text.rstrip('.')}."
    return [line] if len(line) <= 100 else textwrap.wrap(line, 100, subsequent_indent=indent)  # which takes its time


def _says(op: OpDef, name: str, x: str) -> str:
    text = op.args.get(name)
    if text is None and name in inputs_of(op):
        text = _ARRAYS[op.domain]
    if text is None:
        text = _KEEPDIMS if name == "keepdims" else _PARAMETERS.get(op.attrs[name].kind, "see above").format(x=x)
    return text


def _shape(op: OpDef, x: str) -> str:
    if op.shapes:
        return op.shapes
    if op.kind == "reduce" and "keepdims" in op.attrs:
        return "x's without the axes that are reduced; with keepdims, they stay with length 1"
    if op.is_elementwise:
        return f"{x}'s" if len(op.inputs) == 1 else "that of the arrays, broadcast against one another"
    return "what the declaration of the op says"


def _dtype(op: OpDef, x: str) -> str:
    if op.gives and op.gives != "list":
        return op.gives
    meet = "that of x" if len(op.inputs) == 1 and not op.inputs[0].startswith("*") else "that in which the arrays meet"
    return _GIVES.get(op.domain, meet).format(x=x, meet=meet)


def _raises(op: OpDef, x: str) -> dict[str, str]:
    """Error class -> when, the alternatives joined by `or`."""
    found: dict[str, list[str]] = {"ArgumentError": [_NOT_AN_ARRAY]}
    if op.domain != "mixed" and op.kind != "memory":  # which moves 8-bit floats too
        found["DTypeError"] = [f"{x if len(op.inputs) == 1 else 'an array'} has {_REFUSED.get(op.domain, '8-bit floats')}"]
    if {a.kind for a in op.attrs.values()} & {"axis", "axes", "permutation"}:
        found["AxisError"] = ["an axis is out of range"]
        if any(a.kind != "axis" and "ax" in a.kind for a in op.attrs.values()):
            found["AxisError"] += ["named twice"]
    if op.is_elementwise and len(op.inputs) > 1:
        found["ShapeError"] = ["the shapes do not broadcast"]
    if op.kind == "index":
        found["FuelIndexError"] = ["an index is out of range"]
    for error, when in op.raises.items():
        found.setdefault(error, []).append(when)
    return {error: ", or ".join(when) for error, when in found.items()}
