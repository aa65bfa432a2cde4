"""Random calls of `fuelnumba.ops`, valid and not, with what the valid ones must give.

A valid call is drawn from a bounded set of variants (op, dtypes, layouts, rank), since each needs kernels of its own; shapes,
values and parameters are free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

import fuelnumba
from fuelnumba import ops
from fuelnumba.core.ops import OPS
from tests.parity.agree import ALL, FLOATS, INTS, NUMPY, agree

from . import draw

NAMES = tuple(n for n in ops.__all__)
#          relative and absolute error: inputs are of the order of 1, results of up to some thousand terms
TOLERANCE = {"f32": (2e-5, 2e-5), "f64": (1e-11, 1e-11), "f16": (4e-3, 4e-3), "bf16": (3e-2, 3e-2)}
BF16 = np.dtype(NUMPY["bf16"])
BOOL_OUT = {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "isnan", "isinf", "isfinite", "logical_and",
            "logical_or", "logical_xor", "logical_not", "any", "all"}
SHIFTS = ("left_shift", "right_shift")
NATIVE = ("floor_divide", "remainder")  # compared in the dtype itself
NAME_OF = {np.dtype(v): k for k, v in NUMPY.items()}


@dataclass
class Call:
    """One call: `expected()` gives what it must return, or is None where only the kind of outcome is looked at."""

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    expected: Callable[[], Any] | None = None
    valid: bool = False

    def __str__(self) -> str:
        parts = [draw.described(a) for a in self.args] + [f"{k}={draw.described(v)}" for k, v in self.kwargs.items()]
        return f"{self.name}({', '.join(parts)})"


def wide(x: Any) -> Any:
    return x if x.dtype.kind in "iub" else x.astype(np.float64)


# ------------------------------------------------------------------------------------------------ what an elementwise op computes in
def meeting(name: str, operands: list[Any]) -> np.dtype[Any]:
    """The dtype that elementwise operands (arrays and Python numbers) meet in: NumPy's own, where it knows the dtypes."""
    dtypes = [a.dtype if isinstance(a, np.ndarray) else type(a) for a in operands]
    native = all(d is int or d is float or d is bool or d != BF16 for d in dtypes)
    strong = {d for d in dtypes if isinstance(d, np.dtype)}
    if not native:
        assert strong == {BF16}  # this is how they are drawn
        return BF16
    ufunc = getattr(np, name, None)
    if OPS[name].domain == "truth":
        return np.dtype(bool)
    if isinstance(ufunc, np.ufunc) and name != "reciprocal":  # of integers: docs/numpy.md
        given = [np.dtype(bool) if d is bool else d for d in dtypes]
        return ufunc.resolve_dtypes((*given, *[None] * ufunc.nout))[0]
    like = np.zeros((), dtypes[0]) if len(dtypes) == 1 else np.add(*(np.zeros((), d) if isinstance(d, np.dtype) else d(1) for d in dtypes))
    return np.exp.resolve_dtypes((like.dtype, None))[0] if OPS[name].domain == "float" else like.dtype


def elementwise(r: Random, v: Random, name: str) -> Call:
    op = OPS[name]
    known = op.dtypes()["cpu"]
    roles = [n.rstrip("?") for n in op.inputs]
    if name == "cast":
        dtype, layout = v.choice(ALL), v.choice(draw.LAYOUTS)
        target = v.choice([t for t in ALL if t not in ("f8e8m0",)])
        x = draw.array(r, dtype, draw.shape(r, v.randrange(4)), layout)
        cast = x.astype(np.float64)
        if target in INTS and dtype not in INTS:
            info = np.iinfo(NUMPY[target])
            cast = np.clip(np.trunc(cast), max(info.min, -2**53), min(info.max, 2**53))
        plain = x if dtype in INTS and target in INTS else cast
        return Call(name, ops.cast, (x, target), expected=lambda: plain.astype(NUMPY[target]) if target != "bool" else cast != 0, valid=True)
    dtype = v.choice(known if v.random() < 0.8 or op.domain != "float" else ("bool", *INTS))
    if op.domain in ("number", "int") and dtype == "bool":
        dtype = "i32"
    rank = v.choice((0, 1, 1, 2, 2, 3, 4, 6))
    layout = v.choice(draw.LAYOUTS)
    second = v.choice((dtype, dtype, dtype, "f32", "i64", "scalar")) if len(roles) > 1 and op.domain not in ("int", "bits", "truth") else dtype
    if dtype == "bf16" and second != "scalar" or second not in known and second != "scalar":
        second = dtype
    of = draw.shape(r, rank)
    operands: list[Any] = []
    for k, role in enumerate(roles):
        mine = of
        if k and r.random() < 0.4:  # broadcast
            mine = tuple(1 if r.random() < 0.3 else n for n in of)[r.randint(0, rank):]
        if role == "condition":
            operands.append(draw.array(r, v.choice(("bool", "i32")), mine))
        elif k == len(roles) - 1 and second == "scalar" and name not in ("masked_fill",):
            operands.append(r.choice((2.5, -1.0) if dtype in FLOATS else (2, 3, True) if dtype != "bool" else (True, False)))
        else:
            x = draw.array(r, second if k and second != "scalar" and role != "x" else dtype, mine, layout if k == 0 else "contiguous")
            operands.append(np.asarray(np.abs(x) % x.dtype.type(5)) if name in SHIFTS and k else x)
    attrs: dict[str, Any] = {}
    if name == "clamp":
        low = r.choice((None, 0, 1, -0.5)) if dtype in FLOATS else r.choice((None, 0, 1))
        attrs = {"min": low, "max": r.choice((None, 3, 7))}
    elif name == "powi":
        attrs = {"n": r.choice((0, 1, 2, 3, 5))}
    elif name == "masked_fill":
        attrs = {"value": r.choice((0, 1, 7)) if dtype != "bool" else 0}
        if dtype == "bool":
            operands[0] = draw.array(r, "u8", operands[0].shape)
    if name == "masked_fill":
        operands[1] = draw.array(r, "bool", operands[0].shape)

    def expected() -> Any:
        data = [a for a, role in zip(operands, roles) if role != "condition"]
        compute = meeting(name, data)
        arrays = []
        for a, role in zip(operands, roles):
            a = np.asarray(a)
            arrays.append(a != 0 if role == "condition" else a != 0 if op.domain == "truth" else a.astype(compute))
        result = np.dtype(bool) if name in BOOL_OUT else compute
        if name == "power" and compute.kind in "iu":
            out = int_power(*arrays)
        elif name in NATIVE:
            small = compute.itemsize <= 2 and compute.kind not in "iu"
            out = op.ref(*(a.astype(np.float32) if small else a for a in arrays))  # type: ignore[misc]
        elif name in ("min", "max"):
            raise AssertionError
        else:
            out = op.ref(*(wide(a) for a in np.broadcast_arrays(*arrays)), **attrs)  # type: ignore[misc]
        out = np.asarray(out)
        return np.broadcast_to(out, np.broadcast_shapes(*(np.shape(a) for a in operands))).astype(result)

    return Call(name, getattr(ops, name), tuple(operands), attrs, expected, True)


def int_power(x: Any, y: Any) -> Any:
    up = np.power(x, np.maximum(y, y.dtype.type(0)))
    odd = np.where(y % 2 == 0, 1, x)
    return np.where(y >= 0, up, np.where(np.abs(x) == 1, odd, 0)).astype(x.dtype)


# ------------------------------------------------------------------------------------------------ the other kinds
def reduce_(r: Random, v: Random, name: str) -> Call:
    arg = name.startswith("arg")
    dtype, layout, rank = v.choice((*FLOATS, *INTS, "bool")), v.choice(draw.LAYOUTS), v.choice((1, 1, 2, 2, 3, 4))
    x = draw.array(r, dtype, draw.shape(r, rank), layout)
    axis: Any = r.randrange(-rank, rank)
    if not arg:
        some = tuple(k - rank * r.randint(0, 1) for k in range(rank) if r.random() < 0.5)
        axis = r.choice((None, axis, some))
    keepdims = r.random() < 0.5
    if name in ("max", "min", "argmax", "argmin"):
        x = x if x.size else draw.array(r, dtype, tuple(max(n, 1) for n in x.shape), layout)
    if name == "prod" and dtype in FLOATS:
        x = (np.sign(x.astype(np.float32)) + 0.01 * x.astype(np.float32)).astype(x.dtype)
    result = "i64" if arg else "bool" if name in BOOL_OUT else dtype
    if dtype not in FLOATS and name in ("sum", "prod"):
        result = "i64"
    if dtype not in FLOATS and name == "mean":
        result = "f64"

    def expected() -> Any:
        given = x.astype(np.int64) if result == "i64" and not arg else wide(x)
        return np.asarray(getattr(np, name)(given, axis=axis, keepdims=keepdims)).astype(NUMPY[result])

    return Call(name, getattr(ops, name), (x,), {"axis": axis, "keepdims": keepdims}, expected, True)


def norm(r: Random, v: Random, name: str) -> Call:
    dtype, layout, rank = v.choice(FLOATS), v.choice(draw.LAYOUTS), v.choice((1, 2, 2, 3, 4))
    x = draw.array(r, dtype, draw.shape(r, rank), layout)
    args, attrs = [x], {}
    if name.endswith("softmax"):
        attrs = {"axis": r.randrange(-rank, rank)}
    else:
        args += [draw.array(r, dtype, x.shape[-1:]) for _ in range(v.randint(0, 2 if name == "layer_norm" else 1))]
        attrs = {"eps": r.choice((1e-5, 1e-3))}

    def expected() -> Any:
        canonical = {k: a % rank if k == "axis" else a for k, a in attrs.items()}
        return np.asarray(OPS[name].ref(*(wide(a) for a in args), **canonical)).astype(x.dtype)  # type: ignore[misc]

    return Call(name, getattr(ops, name), tuple(args), attrs, expected, True)


def view(r: Random, v: Random, name: str) -> Call:
    dtype, layout, rank = v.choice(ALL), v.choice(draw.LAYOUTS), v.choice((1, 2, 3))
    x = draw.array(r, dtype, draw.shape(r, rank), layout)
    attrs: dict[str, Any] = {}
    if name == "permute":
        axes = list(range(rank))
        r.shuffle(axes)
        attrs, result = {"axes": tuple(axes)}, np.transpose(x, axes)
    elif name == "broadcast_to":
        lead = tuple(r.choice((1, 2, 3)) for _ in range(r.randint(0, 2)))
        shape = lead + tuple(r.choice((1, 3)) if n == 1 else n for n in x.shape)
        attrs, result = {"shape": shape}, np.broadcast_to(x, shape)
    elif name == "slice":
        axis = r.randrange(rank)
        n = x.shape[axis]
        start, step = r.randrange(max(n, 1)), r.choice((1, 1, 2, -1, -2))
        most = 0 if not n else (n - start + step - 1) // step if step > 0 else start // -step + 1
        length = r.randint(0, most)
        attrs = {"axis": axis, "start": start, "length": length, "step": step}
        result = np.take(x, [start + k * step for k in range(length)], axis)
    elif name == "flip":
        attrs = {"axis": r.randrange(-rank, rank)}
        result = np.flip(x, attrs["axis"])
    elif name == "squeeze":
        at = r.randint(0, rank)
        x = np.expand_dims(x, at)
        attrs, result = {"axis": at}, x.squeeze(at)
    elif name == "unsqueeze":
        attrs = {"axis": r.randrange(-rank - 1, rank + 1)}
        result = np.expand_dims(x, attrs["axis"])
    else:
        assert name == "reshape"
        shape = r.choice(((-1,), (1, -1), (*x.shape[1:], x.shape[0]), (x.size, 1), (*x.shape, 1)))
        if x.size == 0:
            shape = (x.size, 3)
        attrs, result = {"shape": shape}, x.reshape(shape)
    return Call(name, getattr(ops, name), (x,), attrs, lambda: result, True)


def index(r: Random, v: Random, name: str) -> Call:
    dtype, kind, rank = v.choice(ALL), v.choice(("i64", "i32", "u32", "u8", "i16")), 2 if name == "embedding" else v.choice((1, 2, 3))
    x = draw.array(r, dtype, tuple(max(n, 1) for n in draw.shape(r, rank)), v.choice(draw.LAYOUTS))
    axis = 0 if name == "embedding" else r.randrange(rank)
    n = x.shape[axis]
    if name == "gather":
        shape = (*x.shape[:axis], r.choice((0, 1, 4)), *x.shape[axis + 1:])
    else:
        shape = draw.shape(r, 1 if name == "index_select" else r.randint(0, 2), 50)
    g = np.random.default_rng(r.getrandbits(32))
    indices = g.integers(0 if kind[0] == "u" else -n, n, shape).astype(NUMPY[kind])
    attrs = {} if name == "embedding" else {"axis": axis - rank * r.randint(0, 1)}
    if r.random() < 0.1 and indices.size and n + 100 <= np.iinfo(NUMPY[kind]).max:  # out of range: a FuelIndexError
        indices.reshape(-1)[r.randrange(indices.size)] = n if kind[0] == "u" else r.choice((n, -n - 1, n + 100))
        return Call(name, getattr(ops, name), (x, indices), attrs, lambda: fuelnumba.errors.FuelIndexError)
    pick = np.take_along_axis if name == "gather" else np.take
    return Call(name, getattr(ops, name), (x, indices), attrs, lambda: pick(x, indices.astype(np.int64), axis=axis), True)


def memory(r: Random, v: Random, name: str) -> Call:
    dtype, layout, rank = v.choice(ALL), v.choice(draw.LAYOUTS), v.choice((1, 2, 3))
    shape = draw.shape(r, rank)
    x = draw.array(r, dtype, shape, layout)
    if name == "write_slice":
        size = tuple(r.randint(0, n) for n in shape)
        src = draw.array(r, dtype, size, v.choice(draw.LAYOUTS))
        at = tuple(r.randint(0, n - m) for n, m in zip(shape, size))
        out = x.copy()
        out[tuple(slice(a, a + n) for a, n in zip(at, size))] = src
        return Call(name, ops.write_slice, (x, src), {"at": at}, lambda: out, True)
    count = v.randint(1, 3)
    if name == "stack":
        axis = r.randrange(-rank - 1, rank + 1)
        xs = [draw.array(r, dtype, shape, layout) for _ in range(count)]
        return Call(name, ops.stack, tuple(xs), {"axis": axis}, lambda: np.stack(xs, axis), True)
    axis = r.randrange(-rank, rank)
    k = axis % rank
    if name == "concat":
        xs = [draw.array(r, dtype, (*shape[:k], r.choice((0, 1, 3)), *shape[k + 1:]), layout) for _ in range(count)]
        return Call(name, ops.concat, tuple(xs), {"axis": axis}, lambda: np.concatenate(xs, axis), True)
    assert name == "split"
    cuts = sorted(r.randint(0, 9) for _ in range(r.randint(1, 3)))
    return Call(name, ops.split, (x, cuts), {"axis": axis}, lambda: np.split(x, cuts, axis), True)


def matmul(r: Random, v: Random, name: str) -> Call:
    dtype, ranks = v.choice((*FLOATS, *INTS)), v.choice(((2, 2), (1, 2), (2, 1), (1, 1), (3, 3), (3, 2)))
    n, m, k = (r.choice((0, 1, 2, 3, 5, 17)) for _ in range(3))
    batch = (r.choice((1, 2, 3)),)
    a = draw.array(r, dtype, ((*batch, n, k) if ranks[0] == 3 else (n, k) if ranks[0] == 2 else (k,)), v.choice(draw.LAYOUTS))
    b = draw.array(r, dtype, ((*batch, k, m) if ranks[1] == 3 else (k, m) if ranks[1] == 2 else (k,)), v.choice(draw.LAYOUTS))
    return Call(name, ops.matmul, (a, b), {}, lambda: np.asarray(np.matmul(wide(a), wide(b))).astype(a.dtype), True)


def attention(r: Random, v: Random, name: str) -> Call:
    dtype, layout = v.choice(FLOATS), v.choice(("contiguous", "contiguous", "stepped"))
    batch, heads, group, n, keys, depth, width = (r.choice((1, 1, 2, 3)) for _ in range(7))
    keys = r.choice((0, 1, 5, 70))
    q = draw.array(r, dtype, (batch, heads * group, n, depth), layout)
    k, w = draw.array(r, dtype, (batch, heads, keys, depth), layout), draw.array(r, dtype, (batch, heads, keys, width), layout)
    length = v.choice((None, None, "one", "each"))
    args = [q, k, w]
    if length:
        args.append(np.array(r.randint(0, keys)) if length == "one" else np.array([r.randint(0, keys) for _ in range(batch)], np.int32))
    attrs = {"causal": v.random() < 0.5, "scale": r.choice((None, 0.5, 1.0)), "softcap": v.choice((None, None, 2.0))}
    full = {**attrs, "scale": attrs["scale"] if attrs["scale"] is not None else depth**-0.5}
    return Call(name, ops.attention, tuple(args), attrs,
                lambda: OPS[name].ref(*map(wide, args), **full).astype(q.dtype), True)  # type: ignore[misc]


def rope(r: Random, v: Random, name: str) -> Call:
    dtype, lead = v.choice(FLOATS), v.choice(((), (2,), (2, 3)))
    rows, half = r.choice((0, 1, 3, 5)), r.choice((0, 1, 2, 4))
    x = draw.array(r, dtype, (*lead, rows, half * 2), v.choice(("contiguous", "transposed", "stepped")))
    width = half * v.choice((1, 2))
    tables = [draw.array(r, dtype, (rows, width)) for _ in range(2)]
    attrs = {"interleaved": v.random() < 0.5}
    return Call(name, ops.rope, (x, *tables), attrs,
                lambda: OPS[name].ref(wide(x), *map(wide, tables), **attrs).astype(x.dtype), True)  # type: ignore[misc]


def full(r: Random, v: Random, name: str) -> Call:
    dtype = v.choice(ALL)
    shape, value = draw.shape(r, v.choice((0, 1, 2, 3))), 1 if dtype in INTS or dtype == "bool" else r.choice((0.5, 2.0, 1))
    return Call(name, ops.full, (value, shape, dtype), {}, lambda: np.full(shape, value).astype(NUMPY[dtype]), True)


KINDS: dict[str, Callable[[Random, Random, str], Call]] = {
    "elementwise": elementwise, "reduce": reduce_, "norm": norm, "view": view, "index": index, "memory": memory, "matmul": matmul}
OWN = {"attention": attention, "rope": rope, "full": full, "split": memory}


# ------------------------------------------------------------------------------------------------ calls that are wrong
def spoiled(r: Random, call: Call) -> Call:
    """The call with one or two things wrong, or at least strange."""
    args, kwargs = list(call.args), dict(call.kwargs)
    for _ in range(r.choice((1, 1, 1, 2))):
        how = r.random()
        if how < 0.1 and args:
            del args[r.randrange(len(args))]
        elif how < 0.2:
            args.insert(r.randint(0, len(args)), r.choice((draw.absurd, lambda r: draw.absurd_array(r, (2, 3))))(r))
        elif how < 0.25:
            kwargs[r.choice(("axes", "axis", "dtype", "out", "where", "keepdims", "nonsense", "x", "shape"))] = draw.absurd(r)
        elif how < 0.55 and kwargs:
            kwargs[r.choice(sorted(kwargs))] = draw.absurd(r)
        elif how < 0.6 and kwargs:
            del kwargs[r.choice(sorted(kwargs))]
        elif how < 0.75 and any(isinstance(a, np.ndarray) for a in args):  # another shape or dtype
            k = r.choice([k for k, a in enumerate(args) if isinstance(a, np.ndarray)])
            args[k] = draw.array(r, r.choice(("f32", "f32", "i64", NAME_OF.get(args[k].dtype, "f32"))), draw.shape(r, r.randrange(5), 600))
        elif args:
            k = r.randrange(len(args))
            args[k] = draw.absurd_array(r, np.shape(args[k]) if isinstance(args[k], np.ndarray) and args[k].size < 2000 else (2,))
    return Call(call.name, call.fn, tuple(args), kwargs)


def make(r: Random, name: str, variant: int) -> Call:
    """A call of an op; the variant decides on what kernels depend on."""
    op = OPS.get(name)
    maker = OWN.get(name) or KINDS[op.kind if op is not None else "full"]
    call = maker(r, Random(f"{name} {variant}"), name)
    return spoiled(r, call) if r.random() < 0.45 else call


def check(call: Call, result: Any) -> None:
    """Raises AssertionError when the result is not what it must be."""
    expected = call.expected() if call.expected is not None else None
    if call.expected is None:
        for a in result if isinstance(result, list) else [result]:
            assert isinstance(a, (np.ndarray, np.generic)) and a.dtype in NAME_OF, f"gave {type(a).__name__}"
        return
    assert not isinstance(expected, type), f"no error; {expected.__name__} was expected"
    if isinstance(expected, list):
        assert isinstance(result, list) and len(result) == len(expected), "another number of parts"
        for got, wanted in zip(result, expected):
            check(Call(call.name, call.fn, (), {}, lambda wanted=wanted: wanted), got)
        return
    dtype = NAME_OF[expected.dtype]
    rtol, atol = TOLERANCE.get(dtype, (0.0, 0.0))
    agree(result, expected, dtype, rtol=rtol, atol=atol)
