"""Parity cases of an op out of the op table: its samples, or operands made for its kind, in every dtype and layout."""

from __future__ import annotations

import functools
import inspect
import itertools
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..compiler import bindings
from ..core import dtypes as dt
from ..core.dtypes import DType, dtype_of
from ..core.errors import ArgumentError, DTypeError, FuelError
from ..core.ops import CPU, Aval, OpDef, broadcast_shapes
from ..kernels import BUILT_IN
from ..trace.promote import INTEGER_ROLES
from . import parity
from .values import LAYOUTS, Array, cast_values, edge_values, sample_values, seed_of, with_layout

ROWS, COLUMNS = 7, 13  # of the matrices that elementwise ops get in layouts

#: Layouts of the operands, one after the other, for ops of several: each kind beside each other kind at least once.
MIXED = ("transposed+contiguous", "contiguous+reversed", "broadcast+transposed", "stepped+broadcast", "reversed+stepped",
         "contiguous+broadcast", "odd+transposed", "scalar+reversed", "stepped+scalar")

#: Shapes that broadcast against each other.
OUTER = (((3, 1), (4,)), ((1,), (5, 1, 2)), ((), (2, 3)), ((0, 1), (1, 4)), ((2, 3, 4, 5), (3, 1, 5)),
         ((2, 1, 2, 1, 2), (1, 3, 1, 3, 1)))


@dataclass(frozen=True, eq=False)
class ParityCase:
    """One op on operands of one dtype and layout. `check()` runs it; `str(case)` names it, and is how to ask for it again."""

    op: OpDef
    dtype: DType
    layout: str  # one of LAYOUTS, or one per operand, joined by +
    label: str  # which operands and attributes
    make: Callable[[], Sequence[Array]]
    attrs: Mapping[str, Any]
    kernel: Any = None  # a kernel of the user's that must be the one that runs

    @property
    def id(self) -> str:
        return f"{self.op.name}-{self.dtype}-{self.layout}-{self.label}"

    def __str__(self) -> str:
        return self.id

    __repr__ = __str__

    @functools.cached_property
    def arrays(self) -> tuple[Array, ...]:
        """The operands."""
        return tuple(self.make())

    @property
    def aval(self) -> Aval:
        """Dtype and shape of the result, by the op's rule. Raises a FuelError where the op refuses these operands."""
        return result_of(self.op, self.arrays, self.attrs)

    @property
    def command(self) -> str:
        """A command that repeats this case and no other."""
        if self.kernel is None and self.op.name in BUILT_IN:
            return f"python -m fuelnumba.testing {shlex.quote(self.id)}"
        return parity.running_test() or parity.command(None, (), {}, ())

    def expected(self) -> Any:
        """The float64 reference's result."""
        if self.op.ref is None:
            raise ArgumentError(f"the op {self.op.name} has no reference", cure="declare one with ref=")
        with np.errstate(all="ignore"):
            return self.op.ref(*(parity.wide(a, self.op) for a in self.arrays),
                               **parity.canonical(self.op, self.arrays, self.attrs))

    def problem(self, got: Any, *, rtol: float | None = None, atol: float | None = None, zero_signs: bool = False,
                expected: Any = None) -> str | None:
        """What is wrong with a result of this case, in words; None when nothing is."""
        expected = self.expected() if expected is None else expected
        of = self.aval.dtype
        limits = parity.limits_of(self.op, self.arrays, self.attrs, expected, of, rtol, atol)
        return parity.problem_of(got, expected, of, limits, zero_signs)

    def message(self, problem: str, got: Any = None) -> str:
        return (f"{self.id}: {problem}\n{parity.described(self.arrays, self.attrs, got)}\n"
                f"run it again with: {self.command}")

    def check(self, *, rtol: float | None = None, atol: float | None = None, zero_signs: bool = False) -> None:
        """Run the op and compare with its reference, as `assert_parity` does; operands must come out unchanged, and a
        kernel that the case is for must have run. Raises AssertionError."""
        __tracebackhide__ = True
        before = [a.tobytes() for a in self.arrays]
        got, jitted = parity.run_op(self.op, self.arrays, self.attrs)
        problem = None
        if self.kernel is not None and not any(s.user and s.user.fn is self.kernel for s in jitted.plan.launches):
            ran = ", ".join(dict.fromkeys(s.name for s in jitted.plan.launches)) or "nothing"
            problem = f"the kernel {self.kernel.__name__} did not run, but {ran}"
        elif [a.tobytes() for a in self.arrays] != before:
            problem = "an operand was modified"
        problem = problem or self.problem(got, rtol=rtol, atol=atol, zero_signs=zero_signs)
        if problem is not None:
            raise AssertionError(self.message(problem, got))

    def register(self) -> Callable[[], None]:
        """Have the case's kernel serve its op for these dtypes, until the function that comes back is called."""
        if self.kernel is None:
            return lambda: None
        read = [a.dtype for k, a in enumerate(self.arrays) if k != self.op.destroys]
        key = (self.op.name, (*map(dtype_of, read), self.aval.dtype))
        bindings.register_kernel(*key, self.kernel)
        return lambda: bindings.unregister_kernel(*key)


# ------------------------------------------------------------------------------------------------ out of the table
def cases(op: Any, dtypes: Iterable[Any] | None = None, layouts: Iterable[str] | None = None, *,
          kernel: Any = None) -> Iterator[ParityCase]:
    """The parity cases of an op (its name, OpDef or function in `fuelnumba.ops`), by dtype, layout and operands.

    `dtypes` are those of its data (all it serves, if None), `layouts` some of LAYOUTS, or one for each operand, joined by
    '+', of which conditions and indices have the last (if None, all of LAYOUTS, and mixtures of them). Operands are the
    op's samples, in each dtype. An elementwise op gets edge values, every one with every other, and matrices of edge and
    ordinary values in layouts. Other ops without samples get arrays of shape (3, 5, 7), and parameters by their kind. A
    layout that the op refuses, as one of rank 0 for an axis, gives no case.

    Raises ArgumentError when the op does not exist, does not serve a dtype, or has a parameter that no value can be made
    for: then declare `samples=` beside it.
    """
    found = parity.as_op(op)
    if found is None:
        raise ArgumentError(f"{getattr(op, '__name__', op)} is not an op", cure="assert_parity compares functions")
    served = found.dtypes().get(CPU, [])
    wanted = [dtype_of(d) for d in (served if dtypes is None else dtypes)]
    for d in wanted:
        if d.name not in served:
            raise ArgumentError(f"{found.name} does not serve {d}", cure=f"it serves {' '.join(served) or 'no dtype'}")
    several = len(found.inputs) > 1 or found.inputs[0].startswith("*")
    chosen = (*LAYOUTS, *(MIXED if several else ())) if layouts is None else tuple(layouts)
    for name in itertools.chain.from_iterable(la.split("+") for la in chosen):
        if name not in LAYOUTS:
            raise ArgumentError(f"there is no layout {name!r}", cure="the layouts are: " + ", ".join(LAYOUTS))
    make = _elementwise if found.is_elementwise else _structured
    for d in wanted:
        for layout in chosen:
            yield from make(found, d, layout, kernel)


def case_of(name: str) -> ParityCase:
    """The case that an id names. Raises ArgumentError when there is none."""
    parts = name.split("-", 3)
    if len(parts) == 4:
        for case in cases(parts[0], [parts[1]], [parts[2]]):
            if case.id == name:
                return case
    raise ArgumentError(f"there is no case {name!r}", cure="python -m fuelnumba.testing --list OP lists an op's cases")


def result_of(op: OpDef, arrays: Sequence[Array], attrs: Mapping[str, Any]) -> Aval:
    """Dtype and shape of an op's result by its own rule. Raises what the rule raises."""
    avals = []
    for a in arrays:
        d = dt.of_numpy(a.dtype)
        assert d is not None
        avals.append(Aval(a.shape, d))
    if op.is_elementwise:
        shape = broadcast_shapes(op.name, [a.shape for a in avals])
        avals = [Aval(shape, a.dtype) for a in avals]
    return op.infer(*avals, **op.check_attrs(avals, attrs))


def _accepted(case: ParityCase) -> bool:
    try:
        case.aval  # noqa: B018
    except DTypeError:
        if case.layout == "contiguous" and not case.attrs:
            raise
        return False
    except FuelError:
        return False
    return True


def role(name: str) -> str:
    """What an input holds: 'condition' (booleans), 'index' (integers) or 'data' (the dtype in question)."""
    name = name.rstrip("?").lstrip("*")
    return name if name == "condition" else "index" if name in INTEGER_ROLES else "data"


def _roles(op: OpDef, count: int) -> list[str]:
    roles = [role(n) for n in op.inputs]
    return (roles + roles[-1:] * count)[:count]


# ------------------------------------------------------------------------------------------------ elementwise ops
def _elementwise(op: OpDef, d: DType, layout: str, kernel: Any) -> Iterator[ParityCase]:
    samples = list(op.samples()) if op.samples is not None else [((), attrs) for attrs in _attributes(op)]
    for k, (given, attrs) in enumerate(samples):
        said = ",".join(f"{name}={value}" for name, value in attrs.items()) or ("0" if len(samples) == 1 else str(k))
        made: list[tuple[str, Callable[[], Sequence[Array]]]]
        if layout == "contiguous":
            made = [(f"edges,{said}", functools.partial(_edges, op, d))]
            made += [(f"outer{j},{said}", functools.partial(_outer, op, d, shapes)) for j, shapes in enumerate(OUTER)
                     if len(op.inputs) > 1]
            if given:
                made.append((f"sample{k},{said}", functools.partial(_cast, op, d, given)))
        else:
            made = [(f"values,{said}", functools.partial(_matrices, op, d, layout))]
        for label, make in made:
            case = ParityCase(op, d, layout, label.removesuffix(",0"), make, attrs, kernel)
            if _accepted(case):
                yield case


def _edges(op: OpDef, d: DType) -> list[Array]:
    """Every edge value with every other, then ordinary values."""
    e = edge_values(d)
    data = [r for r in _roles(op, len(op.inputs)) if r == "data"]
    if len(data) == 1:
        columns = [e]
    elif len(data) == 2:
        columns = [np.repeat(e, len(e)), np.tile(e, len(e))]
    else:
        columns = [np.random.default_rng(k).permutation(np.tile(e, len(e))) for k in range(len(data))]
    ready = iter([np.concatenate([c, sample_values(d, 70, k)]) for k, c in enumerate(columns)])
    size = len(columns[0]) + 70 if columns else 70
    return [_role_values(r, size) if r != "data" else next(ready) for r in _roles(op, len(op.inputs))]


def _role_values(which: str, size: int) -> Array:
    return np.arange(size) % 3 == 0 if which == "condition" else np.arange(size) % 5


def slots(op: OpDef, count: int | None = None) -> list[tuple[str, int]]:
    """What each operand holds, and the how-many-th of its kind it is. Operands in layouts depend on this alone: those of
    two ops are the same."""
    roles = _roles(op, len(op.inputs) if count is None else count)
    return [(r, roles[:k].count(r)) for k, r in enumerate(roles)]


def _for_slot(of_slots: Sequence[Any], which: str, k: int) -> Any:
    """Of what is given per data operand: the k-th; for a condition or an index, the last."""
    return of_slots[k % len(of_slots)] if which == "data" else of_slots[-1]


def _outer(op: OpDef, d: DType, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    out = []
    for which, k in slots(op):
        shape = _for_slot(shapes, which, k)
        size = int(np.prod(shape))
        out.append((sample_values(d, size, k) if which == "data" else _role_values(which, size)).reshape(shape))
    return out


def _matrices(op: OpDef, d: DType, layout: str) -> list[Array]:
    """Edge values and ordinary ones in no order, one matrix for each operand."""
    out = []
    for which, k in slots(op):
        if which == "data":
            e = edge_values(d)
            values = np.concatenate([e, sample_values(d, max(0, ROWS * COLUMNS - len(e)), k)])[:ROWS * COLUMNS]
            values = np.random.default_rng(seed_of(d.name, layout, k)).permutation(values)
        else:
            values = _role_values(which, ROWS * COLUMNS)
        out.append(with_layout(values.reshape(ROWS, COLUMNS), _for_slot(layout.split("+"), which, k)))
    return out


# ------------------------------------------------------------------------------------------------ the others
def _structured(op: OpDef, d: DType, layout: str, kernel: Any) -> Iterator[ParityCase]:
    if op.samples is not None:
        samples = [(tuple(arrays), attrs) for arrays, attrs in op.samples()]
    else:
        shape = (3, 5, 7)
        arrays = tuple(np.arange(105).reshape(shape) % 5 if r == "index" else np.sin(np.arange(105.0)).reshape(shape) * 3
                       for r in _roles(op, len(op.inputs)))
        samples = [(arrays, attrs) for attrs in _attributes(op)]
    any_case = False
    for k, (given, attrs) in enumerate(samples):
        for which in ("all", "first"):
            case = ParityCase(op, d, layout, str(k), functools.partial(_laid_out, op, d, given, layout, which), attrs, kernel)
            if _accepted(case):
                any_case = True
                yield case
                break
    if not any_case and layout == "contiguous":
        raise ArgumentError(f"{op.name} refuses the operands that were made for it", cure="declare samples= beside the op")


def _cast(op: OpDef, d: DType, given: Sequence[Any]) -> list[Array]:
    """Sample operands: data in the dtype; conditions as booleans and indices as integers."""
    out = []
    for r, a in zip(_roles(op, len(given)), given):
        a = np.asarray(a)
        out.append(cast_values(a, d) if r == "data" else a.astype(np.bool_) if r == "condition" else a)
    return out


def _laid_out(op: OpDef, d: DType, given: Sequence[Any], layout: str, which: str) -> list[Array]:
    """The operands in a layout; where all of them cannot be empty or of rank 0 together, only the first."""
    names, arrays = layout.split("+"), _cast(op, d, given)
    out = []
    for k, (slot, a) in enumerate(zip(slots(op, len(arrays)), arrays)):
        name = _for_slot(names, *slot)
        keep = (which == "first" and k > 0 and name in ("empty", "scalar")) or (name == "scalar" and a.size == 0)
        out.append(a if keep else with_layout(a, name))
    return out


def _attributes(op: OpDef) -> list[dict[str, Any]]:
    """Parameters for an op without samples: axes first, last and all; defaults; a number where there is none."""
    choices: dict[str, list[Any]] = {}
    for name, attr in op.attrs.items():
        needed = attr.default is inspect.Parameter.empty
        by_kind: dict[str, list[Any]] = {"axis": [0, -1], "axes": [None, 0, (0, -1)], "bool": [False, True], "dtype": ["f32"],
                                         "float": [0.5], "number": [2], "int": [2]}
        if attr.kind in ("axis", "axes", "bool"):
            choices[name] = by_kind[attr.kind]
        elif needed and attr.kind not in by_kind:
            raise ArgumentError(f"no value can be made for the parameter {name} of {op.name}",
                                cure="declare samples= beside the op")
        elif needed:
            choices[name] = by_kind[attr.kind]
    return [dict(zip(choices, values)) for values in itertools.product(*choices.values())]
