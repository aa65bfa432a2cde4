"""Reductions: sum mean prod max min any all over any axes, argmax argmin over one.

Two kernels serve the first seven. `reduce_rows` makes one output per work item; `reduce_columns` makes 256
or 1024 neighbouring outputs at once, for arrays reduced over outer axes. Both walk any layout: kept and reduced axes
are collapsed separately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fuelnumba.core import dtypes as dt
from fuelnumba.core.dims import Extent, product, same
from fuelnumba.core.dtypes import DType
from fuelnumba.core.errors import DTypeError, ShapeError
from fuelnumba.core.layout import collapse
from fuelnumba.core.ops import CPU, DOMAINS, Aval, Axes, Axis, Bool, Launch, OpDef, Operand, op
from fuelnumba.kernels.generic import T, U, Word, ceil_div, load, numbered, pad, store, upcast
from fuelnumba.kernels.lang import i32, i64, minimum, select, stack_i64

AXES = 4  # kept and reduced axes a kernel walks, each after collapsing
PARTS = 32  # of a reduction to few outputs, which threads share


ARG_COLUMNS = 256  # outputs per work item of `arg_columns`


def column_width(columns: Extent) -> int:
    """Outputs per work item of `reduce_columns`: a page of each row where that leaves items to share, since memory is read
    slowly in shorter pieces. Depends on the shape only, so results do not depend on the threads."""
    return 1024 if isinstance(columns, int) and columns >= 4096 else 256


class Rule(NamedTuple):
    """How one reduction goes: blocks of elements by `combine` in a narrow type, the blocks' results in a wide one. `init`
    is None where a block starts from its first element, so is not empty."""

    combine: str
    init: int | None
    ref: Callable[..., Any]
    domain: str
    doc: str
    mean: bool = False
    widen: bool = False  # f32 blocks add up in f64


RULES = {
    "sum": Rule("radd", 0, np.sum, "sum", "the sum; 0 of nothing", widen=True),
    "mean": Rule("radd", 0, np.mean, "division", "the mean; NaN of nothing", mean=True, widen=True),
    "prod": Rule("rmul", 1, np.prod, "sum", "the product; 1 of nothing", widen=True),
    "max": Rule("maximum", None, np.max, "any", "the largest; NaN if any is NaN"),
    "min": Rule("minimum", None, np.min, "any", "the smallest; NaN if any is NaN"),
    "any": Rule("maximum", 0, np.any, "truth", "True if any is true"),
    "all": Rule("minimum", 1, np.all, "truth", "True if all are true"),
}


# ---------------------------------------------------------------- how the axes lie
class Space(NamedTuple):
    """Kept and reduced axes of an array after collapsing: lengths and strides."""

    kept: tuple[Extent, ...]
    kept_strides: tuple[Extent, ...]
    reduced: tuple[Extent, ...]
    reduced_strides: tuple[Extent, ...]

    @property
    def has_unit_columns(self) -> bool:
        """Neighbouring outputs come from neighbouring elements, and reducing steps over more than one."""
        return bool(self.kept) and same(self.kept_strides[-1], 1) and not self.has_unit_rows

    @property
    def has_unit_rows(self) -> bool:
        return not self.reduced or same(self.reduced_strides[-1], 1)


def space(x: Operand, axes: tuple[int, ...]) -> Space:
    """How the axes to keep and those to reduce lie in x."""
    shape, strides = x.layout.shape, x.layout.strides
    # The order of reduced axes is free: the unit stride goes last. The sort is stable.
    order = sorted(axes, key=lambda a: same(strides[a], 1))
    kept = [a for a in range(len(shape)) if a not in axes]
    (kept_shape, (kept_strides,)), (reduced_shape, (reduced_strides,)) = (
        collapse(tuple(shape[a] for a in group), [tuple(strides[a] for a in group)])
        for group in (kept, order))
    return Space(kept_shape, kept_strides, reduced_shape, reduced_strides)


def reduced_axes(attrs: Mapping[str, Any]) -> tuple[int, ...]:
    axis = attrs["axis"]
    return (axis,) if isinstance(axis, int) else axis


def row_accepts(inputs: Sequence[Operand], attrs: Mapping[str, Any]) -> str | None:
    at = space(inputs[0], reduced_axes(attrs))
    if len(at.kept) > AXES or len(at.reduced) > AXES:
        return (f"its layout has {len(at.kept)} kept and {len(at.reduced)} reduced axes after collapsing, "
                f"more than {AXES} of one kind")
    return None


def is_split(at: Space, rule: Rule) -> bool:
    """Whether few outputs are made of so much that threads had better share each of them."""
    outputs, count = product(at.kept), product(at.reduced)
    if not isinstance(outputs, int) or outputs > 8 or len(at.kept) == AXES:
        return False
    return count >= 1 << 17 if isinstance(count, int) else rule.init is not None  # there is no extreme of an empty part


def column_accepts(inputs: Sequence[Operand], attrs: Mapping[str, Any]) -> str | None:
    if not space(inputs[0], reduced_axes(attrs)).has_unit_columns:
        return "neighbouring outputs do not come from neighbouring elements"
    return row_accepts(inputs, attrs)


def whole_columns(rule: Rule) -> Callable[..., str | None]:
    def accepts(inputs: Sequence[Operand], attrs: Mapping[str, Any]) -> str | None:
        reason = column_accepts(inputs, attrs)
        if reason is None and is_split(space(inputs[0], reduced_axes(attrs)), rule):
            reason = "few outputs are made of many elements, which threads had better share"
        return reason

    return accepts


def axis_args(at: Space) -> dict[str, Extent]:
    return {**numbered("n", pad(at.kept, AXES, 1)), **numbered("s", pad(at.kept_strides, AXES, 0)),
            **numbered("m", pad(at.reduced, AXES, 1)), **numbered("t", pad(at.reduced_strides, AXES, 0))}


def rule_bake(rule: Rule, dtype: DType, narrow: str) -> dict[str, Any]:
    wide_type = {"f": "f64", "u": "i64", "i": "i64"}[narrow[0]] if rule.widen else narrow
    return {"combine": rule.combine, "INIT": rule.init or 0, "FIRST": rule.init is None, "MEAN": rule.mean,
            "TRUTH": dtype is dt.bool_, "narrow": narrow, "wide": wide_type}


def block_of(at: Space) -> int:
    """Elements that a row adds up in the narrow type: many where a vector's lanes share them, fewer one after the other."""
    return 1024 if at.has_unit_rows else 32


def row_launch(rule: Rule) -> Callable[..., Launch]:
    def launch(inputs: Sequence[Operand], outputs: Sequence[Operand], attrs: Mapping[str, Any]) -> Launch:
        x = inputs[0]
        at = space(x, reduced_axes(attrs))
        # A product of f32 may pass f32's range on the way to a small result.
        narrow = "u8" if x.dtype is dt.bool_ else x.dtype.compute
        if rule.combine == "rmul" and x.dtype.is_float:
            narrow = "f64"
        bake = {**rule_bake(rule, x.dtype, narrow), "UNIT": at.has_unit_rows, "PARTS": False, "INNER": False,
                "BLOCK": block_of(at)}
        count = product(at.reduced)
        if not is_split(at, rule):
            bake["MANY"] = len(at.kept) > 1
            return Launch({**axis_args(at), "count": count, "length": 0}, product(at.kept), count + 4, bake)
        # Parts of the first reduced axis become a kept axis before the others; then the parts are put together.
        inner = len(at.reduced) == 1
        length = at.reduced[0]
        step = ceil_div(length, PARTS)
        parts = ceil_div(length, step) if isinstance(step, int) else PARTS
        kept, kept_strides = pad(at.kept, AXES - 1, 1), pad(at.kept_strides, AXES - 1, 0)
        reduced, reduced_strides = pad(at.reduced[1:], AXES - 1, 1), pad(at.reduced_strides[1:], AXES - 1, 0)
        first = (step, at.reduced_strides[0])
        split = Space((parts, *kept), (step * first[1], *kept_strides),
                      (*reduced, first[0]) if inner else (first[0], *reduced),
                      (*reduced_strides, first[1]) if inner else (first[1], *reduced_strides))
        wide = dt.BY_NAME[bake["wide"]] if rule.widen else x.dtype
        made = product(at.kept)
        together = Space((made,), (1,), (parts,), (made,))
        finish = Launch({**axis_args(together), "count": count, "length": 0}, made, parts + 4,
                        {**rule_bake(rule, wide, bake["wide"] if rule.widen else narrow), "UNIT": together.has_unit_rows,
                         "PARTS": False, "INNER": False, "MANY": False, "BLOCK": block_of(together)})
        return Launch({**axis_args(split), "count": count, "length": length}, parts * made, count // parts + 4,
                      {**bake, "MEAN": False, "MANY": True, "PARTS": True, "INNER": inner}, Aval((parts, made), wide), finish)

    return launch


def column_launch(rule: Rule) -> Callable[..., Launch]:
    def launch(inputs: Sequence[Operand], outputs: Sequence[Operand], attrs: Mapping[str, Any]) -> Launch:
        x = inputs[0]
        at = space(x, reduced_axes(attrs))
        narrow = "i64" if not x.dtype.is_float else "f64" if rule.combine == "rmul" else x.dtype.compute
        width = column_width(at.kept[-1])
        bake = rule_bake(rule, x.dtype, narrow) | {"WIDTH": width}
        bake |= {"narrow_stack": f"stack_{narrow}", "wide_stack": f"stack_{bake['wide']}"}
        count, blocks = product(at.reduced), ceil_div(at.kept[-1], width)
        args = {**axis_args(at), "count": count, "blocks": blocks}
        return Launch(args, product(at.kept[:-1]) * blocks, (count + 4) * width, bake)

    return launch


# ---------------------------------------------------------------- kernels
def reduce_rows(x, out: U, n0: int, n1: int, n2: int, n3: int, s0: int, s1: int, s2: int, s3: int,  # type: ignore[valid-type]
                m0: int, m1: int, m2: int, m3: int, t0: int, t1: int, t2: int, t3: int, count: int, length: int,
                combine: Word, narrow: Word, wide: Word, INIT: bool, FIRST: bool, MEAN: bool, TRUTH: bool,
                MANY: bool, UNIT: bool, PARTS: bool, INNER: bool, BLOCK: int, lo, hi):
    """out[i] = the reduction of row i: kept axes n with strides s, reduced axes m with strides t. With PARTS, the first
    kept axis counts parts of a reduced one of that length, the innermost or the outermost; the last may be shorter."""
    for item in range(lo, hi):
        rows = m0
        columns = m3
        if PARTS:
            part_number = item // (n1 * n2 * n3)
            if INNER:
                columns = minimum(m3, length - part_number * m3)
            else:
                rows = minimum(m0, length - part_number * m0)
        base = item * s3
        if MANY:
            outer = item // n3
            middle = outer // n2
            base = item % n3 * s3 + outer % n2 * s2 + middle % n1 * s1 + middle // n1 * s0
        total = wide(INIT)
        if FIRST:
            total = wide(load(x, base))
        for r0 in range(rows):
            for r1 in range(m1):
                for r2 in range(m2):
                    row = base + r0 * t0 + r1 * t1 + r2 * t2
                    for first in range(0, columns, BLOCK):
                        stop = minimum(first + BLOCK, columns)
                        part = narrow(INIT)
                        if FIRST:
                            part = narrow(load(x, row + first * t3))
                        if UNIT:
                            for j in range(first, stop):
                                part = combine(part, narrow(load(x, row + j)))
                        else:
                            for j in range(first, stop):
                                part = combine(part, narrow(load(x, row + j * t3)))
                        total = combine(total, wide(part))
        if MEAN:
            total = total / wide(count)
        if TRUTH:
            store(out, item, total != wide(0))
        else:
            store(out, item, U(total))


def reduce_columns(x, out, n0: int, n1: int, n2: int, n3: int, s0: int, s1: int, s2: int, s3: int,
                   m0: int, m1: int, m2: int, m3: int, t0: int, t1: int, t2: int, t3: int, count: int,
                   blocks: int, combine: Word, narrow: Word, wide: Word, narrow_stack: Word, wide_stack: Word,
                   WIDTH: int, INIT: bool, FIRST: bool, MEAN: bool, TRUTH: bool, lo, hi):
    """As `reduce_rows`, WIDTH neighbouring outputs per work item; the last kept axis has stride 1."""
    part = narrow_stack(WIDTH)
    total = wide_stack(WIDTH)
    for item in range(lo, hi):
        outer = item // blocks
        column = item % blocks * WIDTH
        width = select(n3 - column < WIDTH, n3 - column, WIDTH)
        middle = outer // n2
        base = column + outer % n2 * s2 + middle % n1 * s1 + middle // n1 * s0
        for j in range(width):
            total[j] = wide(INIT)
            if FIRST:
                total[j] = wide(load(x, base + j))
        for r0 in range(m0):
            for r1 in range(m1):
                for r2 in range(m2):
                    slab = base + r0 * t0 + r1 * t1 + r2 * t2
                    for first in range(0, m3, 128):
                        stop = minimum(first + 128, m3)
                        for j in range(width):
                            part[j] = narrow(INIT)
                            if FIRST:
                                part[j] = narrow(load(x, slab + first * t3 + j))
                        r = first
                        while r + 4 <= stop:  # in the order of the rows, with a quarter of the loads and stores of `part`
                            a = slab + r * t3
                            b = a + t3
                            c = b + t3
                            d = c + t3
                            for j in range(width):
                                v = combine(part[j], narrow(load(x, a + j)))
                                v = combine(v, narrow(load(x, b + j)))
                                v = combine(v, narrow(load(x, c + j)))
                                part[j] = combine(v, narrow(load(x, d + j)))
                            r += 4
                        while r < stop:
                            a = slab + r * t3
                            for j in range(width):
                                part[j] = combine(part[j], narrow(load(x, a + j)))
                            r += 1
                        for j in range(width):
                            total[j] = combine(total[j], wide(part[j]))
        target = outer * n3 + column
        for j in range(width):
            value = total[j]
            if MEAN:
                value = value / wide(count)
            if TRUTH:
                store(out, target + j, value != wide(0))
            else:
                store(out, target + j, T(value))


def arg_rows(x, out: i64, n0: int, n1: int, n2: int, n3: int,  # type: ignore[valid-type]
             s0: int, s1: int, s2: int, s3: int,
             m3: int, t3: int, combine: Word, UNIT: bool, lo, hi):
    """out[i] = the first place of the extreme of row i, or of its first NaN.

    The extreme of each block of 1024 first; then the place, in the first block that holds the row's extreme. Both loops
    look at every element, so that they vectorise.
    """
    for item in range(lo, hi):
        outer = item // n3
        middle = outer // n2
        base = item % n3 * s3 + outer % n2 * s2 + middle % n1 * s1 + middle // n1 * s0
        best = load(x, base)
        block = 0
        for first in range(0, m3, 1024):
            stop = minimum(first + 1024, m3)
            part = load(x, base + first * t3)
            if UNIT:
                for j in range(first, stop):
                    part = combine(part, load(x, base + j))
            else:
                for j in range(first, stop):
                    part = combine(part, load(x, base + j * t3))
            if best == best and combine(best, part) != best:
                best = part
                block = first
        place = i32(1024)  # within the block, in few bits: more of them fit into a vector
        start = base + block * t3
        for j in range(minimum(1024, m3 - block)):
            if UNIT:
                value = load(x, start + j)
            else:
                value = load(x, start + j * t3)
            place = minimum(place, select((value == best) | (value != value), i32(j), i32(1024)))
        store(out, item, block + i64(place))


def arg_columns(x, out: i64, n0: int, n1: int, n2: int, n3: int,  # type: ignore[valid-type]
                s0: int, s1: int, s2: int, s3: int,
                m3: int, t3: int, blocks: int, combine: Word, narrow: Word, stack: Word, lo, hi):
    """As `arg_rows`, 256 neighbouring outputs per work item; the last kept axis has stride 1."""
    best = stack(256)
    place = stack_i64(256)
    for item in range(lo, hi):
        outer = item // blocks
        column = item % blocks * 256
        width = select(n3 - column < 256, n3 - column, 256)
        middle = outer // n2
        base = column + outer % n2 * s2 + middle % n1 * s1 + middle // n1 * s0
        for j in range(width):
            best[j] = narrow(load(x, base + j))
            place[j] = i64(0)
        for r in range(1, m3):
            row = base + r * t3
            for j in range(width):
                old = best[j]
                new = combine(old, narrow(load(x, row + j)))
                # a NaN that is there already stays: nothing is better
                place[j] = select((old == old) & (new != old), i64(r), place[j])
                best[j] = new
        target = outer * n3 + column
        for j in range(width):
            store(out, target + j, place[j])


def arg_args(x: Operand, axis: int) -> tuple[Space, dict[str, Extent]]:
    at = space(x, (axis,))
    args = {k: v for k, v in axis_args(at).items() if k[0] in "ns"}
    return at, args | {"m3": x.layout.shape[axis], "t3": x.layout.strides[axis]}


def arg_row_launch(combine: str) -> Callable[..., Launch]:
    def launch(inputs: Sequence[Operand], outputs: Sequence[Operand], attrs: Mapping[str, Any]) -> Launch:
        at, args = arg_args(inputs[0], attrs["axis"])
        return Launch(args, product(at.kept), args["m3"] + 200,
                      {"combine": combine, "UNIT": same(args["t3"], 1)})

    return launch


def arg_column_launch(combine: str) -> Callable[..., Launch]:
    def launch(inputs: Sequence[Operand], outputs: Sequence[Operand], attrs: Mapping[str, Any]) -> Launch:
        at, args = arg_args(inputs[0], attrs["axis"])
        narrow = inputs[0].dtype.compute if inputs[0].dtype.is_float else "i64"
        bake = {"combine": combine, "narrow": narrow, "stack": f"stack_{narrow}"}
        blocks = ceil_div(at.kept[-1], ARG_COLUMNS)
        args["blocks"] = blocks
        return Launch(args, product(at.kept[:-1]) * blocks, args["m3"] * ARG_COLUMNS * 2, bake)

    return launch


# ---------------------------------------------------------------- declarations
def reduced_shape(x: Aval, axes: tuple[int, ...], keepdims: bool) -> tuple[Extent, ...]:
    return tuple(1 if a in axes else n for a, n in enumerate(x.shape) if keepdims or a not in axes)


def check_domain(name: str, domain: str, x: Aval) -> None:
    if x.dtype not in DOMAINS[domain]:
        raise DTypeError(f"{name}() is not defined for {x.dtype}")


def refuse_empty(name: str, x: Aval, axes: tuple[int, ...]) -> None:
    for a in axes:
        if isinstance(x.shape[a], int) and x.shape[a] == 0:
            raise ShapeError(f"zero-size array to reduction operation {name} which has no identity: "
                             f"axis {a} of {x} has length 0",
                             cure="reduce over axes that hold something, or concatenate a first value")


def samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    a = np.sin(np.arange(3 * 5 * 7, dtype=np.float64)).reshape(3, 5, 7) * 2
    yield (a,), {}
    yield (a,), {"axis": 0}
    yield (a,), {"axis": (0, 2), "keepdims": True}
    yield (a[0],), {"axis": -1}
    yield (np.cos(np.arange(2100.0)).reshape(2, 1050),), {"axis": 1}
    yield (np.cos(np.arange(1300.0)).reshape(5, 260),), {"axis": 0}
    yield (np.array(1.5),), {}


def declare(name: str, rule: Rule) -> OpDef:
    def infer(x: Aval, *, axis: tuple[int, ...], keepdims: bool) -> Aval:
        check_domain(name, rule.domain, x)
        if rule.init is None:
            refuse_empty(name, x, axis)
        return Aval(reduced_shape(x, axis, keepdims), x.dtype)

    def ref(x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
        if isinstance(x, np.ndarray) and x.size == 0 and rule.mean:
            return np.full(np.sum(x, axis=axis, keepdims=keepdims).shape, np.nan)
        return rule.ref(upcast(x), axis=axis, keepdims=keepdims)

    made = op(name, "reduce", "x", infer=infer, attrs={"axis": Axes(None), "keepdims": Bool(False)}, ref=ref,
              domain=rule.domain, samples=samples, like=f"numpy.{name}, torch.{'a' * (name in ('max', 'min'))}{name}",
              raises={} if rule.init is not None else {"ShapeError": "an axis that is reduced has length 0"},
              doc=rule.doc + " over the axes")
    # The first kernel that accepts the operands is taken.
    types = DOMAINS[rule.domain]
    made.kernel(CPU, types, launch=column_launch(rule), strided=True, accepts=whole_columns(rule))(reduce_columns)
    made.kernel(CPU, {"T": types, "U": types}, launch=row_launch(rule), strided=True, accepts=row_accepts)(reduce_rows)
    return made


def declare_arg(name: str, combine: str) -> OpDef:
    def infer(x: Aval, *, axis: int, keepdims: bool) -> Aval:
        check_domain(name, "any", x)
        refuse_empty(name, x, (axis,))
        return Aval(reduced_shape(x, (axis,), keepdims), dt.i64)

    def ref(x: Any, *, axis: int, keepdims: bool) -> Any:
        return getattr(np, name)(upcast(x), axis=axis, keepdims=keepdims)

    def arg_samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        a = np.round(np.sin(np.arange(3 * 5 * 7, dtype=np.float64)) * 4).reshape(3, 5, 7)
        for axis in (0, 1, -1):
            yield (a,), {"axis": axis, "keepdims": axis == 1}

    made = op(name, "reduce", "x", infer=infer, attrs={"axis": Axis(), "keepdims": Bool(False)}, ref=ref,
              domain="any", samples=arg_samples, like=f"numpy.{name}, torch.{name}", gives="i64",
              raises={"ShapeError": "the axis has length 0"},
              doc=f"the first place of the {combine} along an axis; the first NaN if there is one")
    types = DOMAINS["any"]
    made.kernel(CPU, types, launch=arg_column_launch(combine), strided=True,
                accepts=column_accepts)(arg_columns)
    made.kernel(CPU, types, launch=arg_row_launch(combine), strided=True, accepts=row_accepts)(arg_rows)
    return made


REDUCTIONS = {name: declare(name, rule) for name, rule in RULES.items()}
argmax = declare_arg("argmax", "maximum")
argmin = declare_arg("argmin", "minimum")
