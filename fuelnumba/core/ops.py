"""`OpDef`: everything that is true of an op on every backend, said once.

An op has inputs (arrays) and attributes (static values). `infer` gives shape and dtype or raises; `ref` computes it on
float64 NumPy arrays; `expr` (elementwise ops) or kernels say how to run it; `view` (views) says how the layout changes.
Kernels are attached by the decorator `op.kernel(...)`, next to the declaration.
"""

from __future__ import annotations

import functools
import inspect
import operator
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

from . import dtypes as dt
from . import scalar
from .dims import Dim, Extent, product
from .dtypes import DType, dtype_of
from .errors import ArgumentError, AxisError, DTypeError, FuelError, ShapeError
from .layout import Layout, Shape
from .source import PACKAGE_DIR, user_location

CPU = "cpu"
#: Backend -> whose kernels serve it, best first: its own; those in cooperative words, for any device; the ones that the CPU has,
#: a work item a thread. BLAS is the CPU's alone.
BACKENDS = {CPU: (CPU,), "vulkan": ("vulkan", "gpu", CPU)}
GPU = "gpu"  # kernels for groups of threads, whichever backend runs them
LARGEST = 2**62  # the longest length, and the most bytes an array may have: strides and sizes fit 64 bits


class Origin(NamedTuple):
    """Who declares something: the file (of a script, a notebook or a console `__main__`, whichever cell it is), and the
    run of it, the code object of its import or cell."""

    file: str
    run: CodeType | None


class Aval(NamedTuple):
    """What is known of an array while tracing: its shape (ints and Dims) and dtype."""

    shape: Shape
    dtype: DType

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


# ------------------------------------------------------------------------------------------------ attributes
@dataclass(frozen=True)
class Attr:
    """A static parameter: `check(value, avals)` returns its canonical, hashable form or raises."""

    check: Callable[[Any, Sequence[Aval]], Any]
    default: Any = inspect.Parameter.empty
    kind: str = ""


def whole(value: Any, what: str, cure: str | None = None) -> int:
    """A static integer of any type. Raises ArgumentError, also when the value's own conversion fails, or passes 64 bits."""
    try:
        k = operator.index(value)
    except Exception as err:
        if isinstance(err, FuelError):  # a traced value says it better
            raise
        raise ArgumentError(f"{what} must be an integer, not {shown(value)}", cure=cure) from None
    if not -LARGEST <= k <= LARGEST:
        raise ArgumentError(f"{what} {shown(k)} is too large",
                            cure="a length or an axis is a number of at most 62 bits")
    return k


def shown(value: Any) -> str:
    """A value in an error message: short, whatever it is."""
    try:
        text = repr(value)
    except Exception:  # an integer of too many digits, or a class of the user's
        text = f"a value of type {type(value).__qualname__}"
    return text if len(text) <= 100 else f"{text[:97]}..."


def proper_call(name: str, signature: inspect.Signature) -> str:
    """The cure for a call that does not fit a signature: its names and defaults, without annotations."""
    bare = inspect.Signature([p.replace(annotation=p.empty) for p in signature.parameters.values()])
    return f"its signature is {name}{bare}"


def check_axis(axis: Any, rank: int) -> int:
    cure = "give an int, or where several axes are taken, a tuple of ints"
    if isinstance(axis, (bool, np.bool_)):
        raise ArgumentError(f"axis must be an integer, not {axis}", cure=cure)
    k = whole(axis, "axis", cure)
    if not -rank <= k < rank:
        raise AxisError(f"axis {k} is out of range for an array of rank {rank}",
                        cure=f"its axes are {-rank} to {rank - 1}" if rank else "it has no axes")
    return k % rank


def check_axes(axes: Any, rank: int) -> tuple[int, ...]:
    """None means all axes; otherwise a sorted tuple without repetition."""
    if axes is None:
        return tuple(range(rank))
    found = [check_axis(a, rank) for a in (axes if isinstance(axes, (tuple, list)) else (axes,))]
    if len(set(found)) != len(found):
        raise AxisError(f"axes {tuple(axes)} name an axis twice",
                        cure="name each axis once; a negative one counts from the end")
    return tuple(sorted(found))


def Axis(default: Any = inspect.Parameter.empty) -> Attr:
    return Attr(lambda v, avals: check_axis(v, avals[0].rank), default, "axis")


def Axes(default: Any = None) -> Attr:
    return Attr(lambda v, avals: check_axes(v, avals[0].rank), default, "axes")


def check_number(kind: type, v: Any) -> Any:
    known = (int, np.integer) if kind is int else (int, float, np.integer, np.floating)
    if isinstance(v, (bool, np.bool_, np.timedelta64)) or not isinstance(v, known):
        raise ArgumentError(f"expected a Python {kind.__name__}, not {shown(v)}",
                            cure="a parameter is a number that is known while tracing, not an array")
    try:
        return kind(v)
    except OverflowError:
        raise ArgumentError(f"{shown(v)} does not fit a float",
                            cure="give a smaller number") from None


def Float(default: Any = inspect.Parameter.empty, *, optional: bool = False) -> Attr:
    return Attr(lambda v, _: None if v is None and optional else check_number(float, v), default, "float")


def Number(default: Any = inspect.Parameter.empty) -> Attr:
    """A Python number kept as it is (int or float), or None where that is the default."""
    def check(v: Any, avals: Sequence[Aval]) -> Any:
        if v is None and default is None:
            return None
        return check_number(int if isinstance(v, (int, np.integer)) and not isinstance(v, (bool, np.bool_)) else float, v)

    return Attr(check, default, "number")


def Int(default: Any = inspect.Parameter.empty) -> Attr:
    return Attr(lambda v, _: whole(check_number(int, v), "a parameter"), default, "int")


def Bool(default: Any = inspect.Parameter.empty) -> Attr:
    return Attr(lambda v, _: check_bool(v), default, "bool")


def check_bool(v: Any) -> bool:
    """A flag: a bool, or an integer as NumPy takes it."""
    if not isinstance(v, (bool, np.bool_, int, np.integer)):
        raise ArgumentError(f"expected True or False, not {shown(v)}",
                            cure="a flag is known while tracing")
    return bool(v)


def Dtype(default: Any = inspect.Parameter.empty) -> Attr:
    return Attr(lambda v, _: dtype_of(v), default, "dtype")


def check_extent(v: Any) -> Extent:
    if isinstance(v, Dim):
        return v
    return whole(v, "a length", "give an int, or a length of a traced value, such as x.shape[0]")


def check_shape(v: Any) -> Shape:
    if isinstance(v, (tuple, list)):
        return tuple(check_extent(n) for n in v)
    return (check_extent(v),)


def ShapeAttr(default: Any = inspect.Parameter.empty) -> Attr:
    return Attr(lambda v, _: check_shape(v), default, "shape")


# ------------------------------------------------------------------------------------------------ kernels
class Operand(NamedTuple):
    """An array as a kernel sees it when it is launched."""

    layout: Layout
    dtype: DType

    @property
    def shape(self) -> Shape:
        return self.layout.shape


@dataclass(frozen=True)
class Launch:
    """How a kernel is called for given operands: the values of its extra parameters by name, the number of work items
    that `lo, hi` divide among threads, and the operations per item (for deciding on threads). `bake` are parameters
    written into the source as literals. With `finish`, there are two launches: the first into `scratch`, an array that lives
    no longer; the second from there into the output, by the same kernel or by the one named `finish_with`. `group` is the
    number of threads that do a work item together, 0 where one does it; the kernel has it as its baked parameter GROUP."""

    args: Mapping[str, Any]
    total: Extent
    cost: Extent = 1
    bake: Mapping[str, Any] = field(default_factory=dict)
    scratch: Aval | None = None
    finish: Launch | None = None
    finish_with: str = ""
    group: int = 0


# annotations of parameters that are values: numbers, then what `Launch.bake` writes into the source
NOT_POINTERS = frozenset({"int", "float", "bool", "Word"})


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel written as a Python function: pointers to inputs, then outputs, then extra parameters, then `lo, hi`.

    `types` maps type variables ('T', 'I') to the dtypes they may take; a pointer parameter is annotated with its variable
    or dtype name, and stands for 'T' when it is not. `strided` inputs may have any layout; others are contiguous.
    `accepts` returns None, or the reason why these operands are refused.
    """

    fn: Callable[..., Any]
    backend: str
    types: Mapping[str, tuple[DType, ...]]
    launch: Callable[[Sequence[Operand], Sequence[Operand], Mapping[str, Any]], Launch]
    strided: bool = False
    accepts: Callable[[Sequence[Operand], Mapping[str, Any]], str | None] | None = None
    blas: bool = False
    optional: frozenset[str] = frozenset()  # parameters that an input of the op need not be there for
    origin: Origin | None = None

    @property
    def name(self) -> str:
        return self.fn.__name__

    def serves(self, backend: str) -> bool:
        """Whether it runs on a backend: a key of BACKENDS."""
        return self.backend in BACKENDS[backend] and (backend == CPU or not self.blas)

    def operands(self, count: int) -> dict[str, str]:
        """Pointer parameters for `count` operands: name -> type variable or dtype name. Optional inputs that are not
        given have no parameter; a baked flag keeps the kernel from naming them."""
        return _operands(self, count)

    def pointers(self, count: int) -> list[str]:
        """The type variable or dtype name of each of the first `count` parameters."""
        return list(self.operands(count).values())

    def match(self, dtypes: Sequence[DType]) -> dict[str, DType] | None:
        """The type variables for these operand dtypes (inputs, then outputs), or None if the kernel does not serve them."""
        bound: dict[str, DType] = {}
        for var, d in zip(self.pointers(len(dtypes)), dtypes):
            allowed = self.types.get(var)
            if allowed is None:
                if dt.BY_NAME.get(var) is not d:
                    return None
            elif d not in allowed or bound.setdefault(var, d) is not d:
                return None
        return bound


@functools.cache  # a plan asks for the same kernel hundreds of times
def _operands(kernel: Kernel, count: int) -> dict[str, str]:
    params = list(inspect.signature(kernel.fn).parameters.values())
    if kernel.optional:
        annotations = [str(p.annotation) for p in params]
        surplus = next(k for k, a in enumerate(annotations) if a in NOT_POINTERS) - count
        absent = [p.name for p in params if p.name in kernel.optional][-surplus:] if surplus > 0 else []
        params = [p for p in params if p.name not in absent]
    return {p.name: "T" if p.annotation is p.empty else str(p.annotation).strip("'\"") for p in params[:count]}


# ------------------------------------------------------------------------------------------------ ops
@dataclass(eq=False)
class OpDef:
    """An op, declared once. See the module docstring; fields left at their default do not apply to this kind of op."""

    name: str
    kind: str  # 'elementwise' 'view' 'reduce' 'matmul' 'movement' 'index' 'norm' 'attention' 'memory' 'leaf'
    inputs: tuple[str, ...]  # names; 'w?' may be left out, '*xs' takes any number
    infer: Callable[..., Aval]
    attrs: dict[str, Attr] = field(default_factory=dict)
    ref: Callable[..., Any] | None = None
    expr: scalar.Expr | None = None
    domain: str = "any"  # which dtypes the arrays are brought to, see DOMAINS
    view: Callable[..., Layout | None] | None = None
    destroys: int | None = None  # the input whose storage the op overwrites; its kernels do not get it as an input
    last_axis: str = ""  # this attribute is an axis the kernels want last: the tracer permutes
    decompose: Callable[..., Any] | None = None  # (builder, input nodes, **attrs) -> node: the op in terms of others
    # operands in float64 (indices as integers) and attributes; an elementwise op may leave the operands out: ()
    samples: Callable[[], Iterable[tuple[tuple[Any, ...], dict[str, Any]]]] | None = None
    # relative error by dtype, where `testing.tolerance` is too strict; 'absolute': in ulp of 1, where the result cancels
    tolerance: Mapping[str, float] = field(default_factory=dict)
    own_width: bool = False  # the result jumps where a quotient rounds: the reference is computed in the dtype's own width
    doc: str = ""
    # what `help(fuelnumba.ops.NAME)` says beside `doc` and what follows from the fields above (trace/documentation.py)
    args: Mapping[str, str] = field(default_factory=dict)  # what an array or a parameter is
    shapes: str = ""  # the shape of the result
    gives: str = ""  # its dtype
    raises: Mapping[str, str] = field(default_factory=dict)  # error class -> when
    like: str = ""  # what does the same elsewhere, where it is not NumPy's ufunc of this name
    kernels: list[Kernel] = field(default_factory=list)
    origin: Origin | None = None

    @property
    def is_elementwise(self) -> bool:
        return self.kind == "elementwise"

    @property
    def is_view(self) -> bool:
        return self.view is not None

    @property
    def is_public(self) -> bool:
        """Whether users can call it: not what the compiler alone records."""
        return self.kind != "leaf" and "uid" not in self.attrs

    @functools.cached_property
    def weight(self) -> int:
        """Of an elementwise op: the statements it becomes in a kernel, roughly."""
        return scalar.weight(self.expr) if self.expr is not None else 2

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def arity(self) -> tuple[int, float]:
        least = sum(1 for n in self.inputs if not n.endswith("?"))
        return least, float("inf") if any(n.startswith("*") for n in self.inputs) else len(self.inputs)

    def check_attrs(self, avals: Sequence[Aval], given: Mapping[str, Any]) -> dict[str, Any]:
        """Canonical attributes, defaults filled in. Raises ArgumentError for a missing or unknown one."""
        unknown = [k for k in given if k not in self.attrs]
        if unknown:
            raise ArgumentError(f"{self.name}() has no parameter {unknown[0]!r}",
                                cure="it takes " + (", ".join(self.attrs) or "none"))
        out = {}
        for name, attr in self.attrs.items():
            value = given.get(name, attr.default)
            if value is inspect.Parameter.empty:
                raise ArgumentError(f"{self.name}() needs the parameter {name!r}",
                                    cure="pass it by name")
            try:
                out[name] = attr.check(value, avals)
            except (ArgumentError, AxisError, DTypeError) as err:
                which = "" if err.what.startswith(("axis", "axes")) else f"{name}: "  # they say it themselves
                raise type(err)(f"{self.name}(): {which}{err.what}", cure=err.cure) from None
        return out

    def kernel(self, backend: str, types: Any, *, launch: Callable[..., Launch], strided: bool = False,
               accepts: Callable[..., str | None] | None = None, blas: bool = False) -> Callable[[Any], Any]:
        """Decorator: attach a kernel for a backend. `types` is a tuple of dtypes for 'T', or a mapping of variables.

        A kernel that an earlier run of the same file attached under this name is replaced (a cell that is run again).
        Raises ArgumentError when the name is taken, or when the function's parameters do not end with lo, hi.
        """
        table = dict(types) if isinstance(types, Mapping) else {"T": tuple(types)}

        def attach(fn: Callable[..., Any]) -> Callable[..., Any]:
            params = list(inspect.signature(fn).parameters)
            if params[-2:] != ["lo", "hi"]:
                raise ArgumentError(f"kernel {fn.__name__} of {self.name} must end with the parameters lo, hi",
                                    where=user_location(), cure="they are the range of work items that one call computes")
            optional = frozenset(n[:-1] for n in self.inputs if n.endswith("?"))
            made = Kernel(fn, backend, table, launch, strided, accepts, blas, optional, _origin())
            same = [k for k, old in enumerate(self.kernels) if old.name == made.name and old.backend == backend]
            if not same:
                self.kernels.append(made)
                return fn
            _check_again(self.kernels[same[0]].origin, made.origin, f"a kernel {fn.__name__} of {self.name}", "the function")
            self.kernels[same[0]] = made
            _changed(f"the kernel {fn.__name__} of {self.name} was attached anew")
            return fn

        return attach

    def dtypes(self) -> dict[str, list[str]]:
        """Backend -> names of the dtypes its first array may have."""
        if self.is_view or self.kind == "leaf":
            everywhere = set(dt.ALL)
        elif self.is_elementwise or self.decompose is not None:  # a composite moves anything or computes in its domain
            everywhere = set(dt.ALL if self.kind == "memory" else DOMAINS[self.domain])
        else:
            everywhere = set()
        out = {b: set(everywhere) for b in BACKENDS}
        for k in self.kernels:
            for b, served in out.items():
                if k.serves(b):
                    served.update(k.types.get("T") or next(iter(k.types.values())))
        out = {b: served for b, served in out.items() if served}
        return {b: [d.name for d in dt.ALL if d in served] for b, served in out.items()}


DOMAINS: dict[str, tuple[DType, ...]] = {
    "any": dt.COMPUTABLE, "number": dt.NUMBERS, "float": dt.FLOATS, "int": dt.INTS, "bits": dt.INTS + (dt.bool_,),
    "mixed": dt.ALL, "truth": (dt.bool_,), "division": dt.FLOATS, "sum": dt.FLOATS + (dt.i64,),
}

OPS: dict[str, OpDef] = {}


#: Called with a reason when an op or a kernel takes the place of an earlier one: what was made from that is no longer right.
on_change: list[Callable[[str], None]] = []


def _changed(reason: str) -> None:
    for heard in on_change:
        heard(reason)


def _origin() -> Origin:
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    file = "__main__" if frame.f_globals.get("__name__") == "__main__" else frame.f_code.co_filename
    run: FrameType | None = frame
    while run is not None and not run.f_code.co_name.startswith(("<module", "<cell")):
        run = run.f_back
    return Origin(file, run.f_code if run else None)


def _check_again(old: Origin | None, new: Origin | None, what: str, thing: str) -> None:
    """A file that is run again may declare again what it declared. Raises ArgumentError when it does so in one run, or
    when the name is that of another file."""
    if old is None or new is None:
        return
    if old.file != new.file:
        place = "among fuelnumba's own" if old.file.startswith(PACKAGE_DIR) else f"from {old.file}"
        raise ArgumentError(f"there is {what} already, {place}", where=user_location(), cure=f"give {thing} another name")
    if old.run is not None and old.run is new.run:
        raise ArgumentError(f"{what} is declared twice", where=user_location(), cure=f"give {thing} another name")


def op(name: str, kind: str, inputs: str, **fields: Any) -> OpDef:
    """Declare an op: `inputs` is a string of names ('x w? *rest').

    An op that an earlier run of the same file declared is replaced, as when a notebook's cell is run again or a module is
    reloaded, and what was traced with it is traced anew. Raises ArgumentError when the name is taken, or the declaration
    contradicts itself.
    """
    origin = _origin()
    old = OPS.get(name)
    if old is not None:
        _check_again(old.origin, origin, f"an op {name}", "the op")
    made = OpDef(name, kind, tuple(inputs.split()), **fields, origin=origin)
    if made.expr is not None:
        used = _args_used(made.expr)
        if used and max(used) >= len(made.inputs):
            raise ArgumentError(f"op {name}: its expression uses operand {max(used)} of {len(made.inputs)}",
                                where=user_location())
        if _holds_truth(made.expr):
            raise ArgumentError(f"op {name}: its formula compares with == or !=, which Python answers at once",
                                where=user_location(), cure="write equal(x, y), from fuelnumba.core.scalar")
    OPS[name] = made
    if old is not None:
        _changed(f"the op {name} was declared anew")
    return made


def _holds_truth(e: scalar.Expr) -> bool:
    return isinstance(e.value, bool) or any(map(_holds_truth, e.args))


def _args_used(e: scalar.Expr) -> set[int]:
    if e.op == "arg":
        return {int(e.value or 0)}
    return set().union(*(_args_used(a) for a in e.args)) if e.args else set()


def elementwise(name: str, formula: Callable[..., scalar.Expr], *, domain: str = "float", out: str = "same",
                ref: Callable[..., Any] | None = None, doc: str = "", **fields: Any) -> OpDef:
    """Declare an elementwise op by its formula, e.g. `elementwise("silu", lambda x: x * sigmoid(x))`.

    `domain` says which dtypes it computes in (arrays of others are cast first, as NumPy does); `out` is 'same' or 'bool'.
    Shapes broadcast. An operand called `condition` is boolean; one called `indices` an integer. The reference, unless
    given, is the formula on float64 NumPy values.
    """
    names = list(inspect.signature(formula).parameters)
    expr = formula(*(scalar.arg(k) for k in range(len(names))))

    def infer(*avals: Aval) -> Aval:
        shape = same_shapes(name, avals)
        data = [a.dtype for a, n in zip(avals, names) if n != "condition"]
        if data[0] not in DOMAINS[domain]:
            raise DTypeError(f"{name}() is not defined for {data[0]}")
        if any(d is not data[0] for d in data):
            raise DTypeError(f"{name}() got mixed dtypes {', '.join(map(str, data))}")
        return Aval(shape, dt.bool_ if out == "bool" else data[0])

    if ref is None:
        def ref(*arrays: Any) -> Any:
            return scalar.evaluate(expr, arrays)

    if out == "bool":
        fields.setdefault("gives", "bool")
    return op(name, "elementwise", " ".join(names), infer=infer, expr=expr, domain=domain, ref=ref, doc=doc, **fields)


# ------------------------------------------------------------------------------------------------ shape rules
def same_shapes(name: str, avals: Sequence[Aval]) -> Shape:
    """All shapes must be equal here: broadcasting is made visible before (`broadcast_to` nodes)."""
    shape = avals[0].shape
    for a in avals[1:]:
        if a.shape != shape:
            raise ShapeError(f"{name}() got shapes {fmt(shape)} and {fmt(a.shape)}")
    return shape


def broadcast_shapes(name: str, shapes: Sequence[Shape]) -> Shape:
    """NumPy's rule on symbolic extents. Raises ShapeError naming all shapes and the axis."""
    rank = max((len(s) for s in shapes), default=0)
    out: list[Extent] = []
    for k in range(rank):
        n: Extent = 1
        for s in shapes:
            j = k - (rank - len(s))
            if j < 0 or s[j] == 1:
                continue
            if n == 1:
                n = s[j]
            elif n != s[j]:
                raise ShapeError(f"{name}() cannot broadcast shapes {' and '.join(map(fmt, shapes))}: "
                                 f"axis {k - rank} is {n} in one and {s[j]} in another",
                                 cure="lengths must be equal or 1; insert an axis with x[:, None] or reshape")
        out.append(n)
    return tuple(out)


def fmt(shape: Shape) -> str:
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


def numel(shape: Shape) -> Extent:
    return product(shape)


def check_size(name: str, a: Aval) -> Aval:
    """`a`, when its elements can be addressed; symbolic lengths are looked at when they are known. Raises ShapeError."""
    total = a.dtype.itemsize
    for n in a.shape:
        if isinstance(n, int):
            if n < 0:
                raise ShapeError(f"{name}() cannot give an array of shape {fmt(a.shape)}: a length is negative",
                                 cure="give lengths of 0 or more; only reshape takes -1")
            total *= max(n, 1)
    if total > LARGEST:
        raise ShapeError(f"{name}() cannot give an array of shape {fmt(a.shape)}: it would be too large for any memory",
                         cure="check the lengths, which are multiplied")
    return a
