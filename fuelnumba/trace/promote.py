"""Which dtype the operands of an op meet in. The rules are NumPy's (NEP 50), said once for all ops:

1. arrays and NumPy scalars are strong: their dtypes meet by the table `core.dtypes.PROMOTION`;
2. Python scalars, written or traced, are weak: they take the arrays' dtype unless their kind does not fit
   (bool < int < float), and a written int must lie in that dtype's range;
3. the op's *domain* may ask for another dtype: `exp` of integers is computed in floats, `divide` in f64.

A `condition` is brought to bool, `indices`, `start` and `length` stay integers; neither takes part in 1 to 3.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core import dtypes as dt
from ..core import ir
from ..core.dims import Dim
from ..core.dtypes import DType, promote, weak_result
from ..core.errors import ArgumentError, DTypeError
from ..core.ir import Node, canonical
from ..core.layout import Shape
from ..core.ops import OPS, OpDef
from ..core.source import Location

INTEGER_ROLES = ("indices", "start", "length")
INDEX_DTYPES = (dt.i64, dt.i32, dt.u32)
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_ORDER = "bif"
_KINDS = {"b": "bool", "i": "int", "f": "float"}

# Domain -> what a dtype becomes in it; dtypes not named stay. As NumPy's ufuncs have it.
_FLOAT = {dt.bool_: dt.f16, dt.u8: dt.f16, dt.i8: dt.f16, dt.i16: dt.f32,
          dt.u32: dt.f64, dt.i32: dt.f64, dt.i64: dt.f64}
CONVERSIONS: dict[str, dict[DType, DType]] = {
    "float": _FLOAT,
    "division": dict.fromkeys(_FLOAT, dt.f64),
    "sum": dict.fromkeys(_FLOAT, dt.i64),
    "truth": dict.fromkeys(dt.COMPUTABLE, dt.bool_),
}
_CURES = {
    "number": "cast it first, e.g. x.astype(np.int64); for booleans there are & | ^ ~",
    "int": "cast to an integer dtype first, e.g. x.astype(np.int64)",
    "bits": "cast to an integer dtype first, e.g. x.astype(np.int64)",
}


@dataclass(eq=False)
class Operand:
    """An argument of an op before promotion: a node, or a number written in the program."""

    name: str  # of the op's parameter
    node: Node | None = None
    value: Any = None
    weak: str | None = None  # kind of a Python scalar, written or traced

    @property
    def shape(self) -> Shape:
        return self.node.shape if self.node is not None else ()

    @property
    def dtype(self) -> DType:
        return self.node.dtype if self.node is not None else dt.WEAK_DTYPES[self.weak or "f"]

    @property
    def role(self) -> str:
        name = self.name.rstrip("?").lstrip("*")
        return name if name == "condition" else "index" if name in INTEGER_ROLES else "data"


@dataclass(frozen=True)
class Meeting:
    """What promotion decided: the data's dtype (None: each keeps its own), and if the result stays weak."""

    dtype: DType | None
    weak: bool


def meet(op: OpDef, operands: Sequence[Operand]) -> Meeting:
    """Raises DTypeError, PromotionError or ArgumentError, naming the op."""
    data = [o for o in operands if o.role == "data"]
    if op.domain == "mixed" or not data:
        return Meeting(None, False)
    strong = [o for o in data if o.weak is None]
    moves = op.kind == "memory" and len({o.dtype for o in data}) == 1
    for o in strong:
        if o.dtype.is_storage_only and op.kind == "memory" and not moves:
            functools.reduce(promote, (s.dtype for s in strong))  # raises PromotionError
        if o.dtype.is_storage_only and not moves:
            raise DTypeError(f"{op.name}() got {o.name}: {o.dtype}, which is for storage only",
                             cure="cast it first, e.g. x.astype('f32')")
    dtype = _meet_floats(data) if op.domain == "float" else _meet_all(data)
    dtype = CONVERSIONS.get(op.domain, {}).get(dtype, dtype)
    _check_domain(op, data, dtype)
    if op.name in COMPARISONS and dtype.is_integer and any(_overflows(o, dtype) or unknown_int(o) for o in data):
        dtype = dt.i64  # u8 < 300 is true, not an error
        for o in data:
            if _overflows(o, dtype):  # beyond i64, it compares as an infinity does
                o.value, dtype = float("inf") if o.value > 0 else -float("inf"), dt.f64
    for o in data:
        if op.domain != "truth" and _overflows(o, dtype):
            what = "length" if isinstance(o.value, Dim) else "Python int"
            raise ArgumentError(f"{op.name}(): the {what} {o.value} does not fit {dtype}",
                                cure=f"cast the array to a wider dtype, or give a value that fits {dtype}")
    only_weak = op.is_elementwise and all(o.weak is not None for o in operands)
    return Meeting(dtype, only_weak)


def _meet_all(data: Sequence[Operand]) -> DType:
    strong = [o.dtype for o in data if o.weak is None]
    if not strong:
        return dt.WEAK_DTYPES[max((o.weak or "b" for o in data), key=_ORDER.index)]
    dtype = functools.reduce(promote, strong)
    for o in data:
        if o.weak is not None:
            dtype = weak_result(dtype, o.weak)
    return dtype


def _meet_floats(data: Sequence[Operand]) -> DType:
    """As NumPy's float-only ufuncs: strong operands become floats one by one; i8 and u8 meet in f16."""
    strong = [o.dtype for o in data if o.weak is None]
    kinds = {o.weak for o in data}
    if not strong or (all(d in _FLOAT for d in strong) and "f" in kinds):
        return dt.f64
    if all(d is dt.bool_ for d in strong) and "i" in kinds:
        return dt.f64
    return functools.reduce(promote, [_FLOAT.get(d, d) for d in strong])


def _check_domain(op: OpDef, data: Sequence[Operand], dtype: DType) -> None:
    allowed = {"number": dt.NUMBERS, "int": dt.INTS, "bits": dt.INTS + (dt.bool_,)}.get(op.domain)
    if allowed is None or dtype in allowed:
        return
    given = ", ".join(_KINDS[o.weak] if o.weak else str(o.dtype) for o in data)
    raise DTypeError(f"{op.name}() is not defined for {given}", cure=_CURES[op.domain])


def unknown_int(o: Operand) -> bool:
    """A Python int that is an argument, or computed from one."""
    return o.weak == "i" and o.node is not None


def _overflows(o: Operand, dtype: DType) -> bool:
    """Of an int that is known, or a length, of which the answer is remembered as a guard."""
    if o.node is not None or o.weak != "i" or not dtype.is_integer or (isinstance(o.value, Dim) and dtype is dt.i64):
        return False
    info = np.iinfo(dtype.numpy)
    return not info.min <= o.value <= info.max


# ---------------------------------------------------------------------------------------- casts, made visible
def full(value: Any, shape: Shape, dtype: DType, where: Location | None = None) -> Node:
    return ir.full_node(canonical(value, dtype), shape, dtype, where)


def cast(node: Node, dtype: DType, where: Location | None = None) -> Node:
    """The node in another dtype, through a visible `cast`; a written scalar is converted on the spot."""
    if node.dtype is dtype:
        return node
    exact = dtype.is_float or node.dtype.kind == "b" or (dtype is dt.i64 and node.dtype.is_integer)
    if node.op is ir.FULL and exact:
        return full(node.attr("value"), node.shape, dtype, where)
    return ir.make(OPS["cast"], (node,), {"dtype": dtype}, where)


def truth(node: Node, where: Location | None = None) -> Node:
    """x != 0, unless it is boolean already."""
    if node.dtype is dt.bool_:
        return node
    if node.dtype.is_storage_only:
        raise DTypeError(f"{node.dtype} is for storage only and has no truth value",
                         cure="cast it first, e.g. x.astype('f32')")
    return ir.make(OPS["not_equal"], (node, full(0, node.shape, node.dtype, where)), {}, where)


def settle(op: OpDef, o: Operand, meeting: Meeting, where: Location | None) -> Node:
    """The operand as a node of the dtype that was decided."""
    role = o.role
    if role == "index":
        if not (o.dtype.is_integer and o.weak in (None, "i")):
            given = _KINDS[o.weak] if o.weak else o.dtype
            raise DTypeError(f"{op.name}(): {o.name} must be integers, not {given}",
                             cure="cast them first, e.g. indices.astype(np.int64)")
        if o.node is None:
            return full(o.value, (), dt.i64, where)
        return o.node if o.dtype in INDEX_DTYPES else cast(o.node, dt.i64, where)
    if role == "condition":
        return truth(o.node, where) if o.node is not None else full(o.value, (), dt.bool_, where)
    dtype = meeting.dtype or o.dtype
    if o.node is None:
        return full(o.value, (), dtype, where)
    return truth(o.node, where) if dtype is dt.bool_ and op.domain == "truth" else cast(o.node, dtype, where)
