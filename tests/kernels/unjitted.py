"""Runs an op's kernel as the Python function it is: on NumPy memory, every access checked against its bounds.

The work items are handed out in uneven pieces and in reverse, so that a result that depends on the split
shows. A kernel for groups runs by groups of few threads, in two orders of its threads, so that a missing barrier
shows.
"""

from __future__ import annotations

import inspect
from functools import partial
from itertools import pairwise
from types import FunctionType
from typing import Any

import numpy as np

from fuelnumba.core import dtypes as dt
from fuelnumba.core.layout import Layout
from fuelnumba.core.ops import CPU, Aval, Kernel, Launch, OpDef, Operand
from fuelnumba.kernels import cooperative, lang

POISON = {"f": np.nan, "V": np.nan, "i": 77, "u": 77, "b": True}


class Pointer:
    """Memory as a kernel sees it: index 0 is the array's first element, whatever its strides."""

    def __init__(self, array: np.ndarray, writable: bool = False) -> None:
        self.array, self.writable = array, writable
        low, high = np.lib.array_utils.byte_bounds(array)
        self.origin = (array.__array_interface__["data"][0] - low) // array.itemsize
        self.count = (high - low) // array.itemsize if array.size else 0
        base = np.ndarray(0, array.dtype)
        if self.count:  # the whole stretch of memory the array lies in, as one axis
            corner = array[(..., *(slice(None, None, -1 if s < 0 else 1) for s in array.strides))]
            bits = corner.view(f"u{array.itemsize}")  # as_strided does not take f8e5m2
            base = np.lib.stride_tricks.as_strided(bits, (self.count,), (array.itemsize,)).view(array.dtype)
        self.flat = base

    def _at(self, i: Any) -> int:
        at = int(i) + self.origin
        if not 0 <= at < self.count:
            raise AssertionError(f"access {i} leaves the array of shape {self.array.shape}, "
                                 f"strides {self.array.strides}")
        return at

    def __getitem__(self, i: Any) -> Any:
        return self.flat[self._at(i)]

    def __setitem__(self, i: Any, v: Any) -> None:
        assert self.writable, "the kernel writes to an input"
        self.flat[self._at(i)] = v


def operand(array: np.ndarray) -> Operand:
    dtype = dt.of_numpy(array.dtype)
    assert dtype is not None, array.dtype
    return Operand(Layout(array.shape, tuple(s // array.itemsize for s in array.strides)), dtype)


def prepare(op: OpDef, arrays: tuple, attrs: dict) -> tuple[list[Operand], Aval, dict[str, Any]]:
    """Operands, what the op infers, and its canonical attributes."""
    operands = [operand(a) for a in arrays]
    avals = [Aval(o.shape, o.dtype) for o in operands]
    canonical = op.check_attrs(avals, attrs)
    return operands, op.infer(*avals, **canonical), canonical


def words(kernel: Kernel, variables: dict[str, dt.DType]) -> dict[str, Any]:
    """What the generic words of a kernel mean for these dtypes."""
    compute = variables["T"].compute if "T" in variables else "f32"
    return {"T": np.bool_ if compute == "b1" else getattr(lang, compute),
            "W": np.float64 if compute[0] == "f" else np.int64}


def run(op: OpDef, *arrays: np.ndarray, kernel: str | None = None, expect_fault: bool = False, backend: str = CPU,
        **attrs: Any) -> Any:
    """The op's result by its kernel of that name, or by the backend's first that accepts the operands.

    With `expect_fault`, the pair (result, status); otherwise a fault is an assertion.
    """
    operands, out_aval, canonical = prepare(op, arrays, attrs)
    if op.destroys is None:
        out = empty(out_aval)
    else:
        out = np.array(arrays[op.destroys])
        arrays = arrays[:op.destroys] + arrays[op.destroys + 1:]
        operands = operands[:op.destroys] + operands[op.destroys + 1:]
    outputs = [operand(out)]
    chosen = choose(op, operands, outputs, canonical, kernel, backend)
    if not chosen.strided:
        arrays = tuple(map(np.ascontiguousarray, arrays))
        operands = [operand(a) for a in arrays]
    launch = chosen.launch(operands, outputs, canonical)
    status = np.zeros(4, np.int64)
    if launch.finish is not None:
        assert launch.scratch is not None
        between = empty(launch.scratch)
        carry_out(chosen, launch, [*arrays, between], status)
        last = next(k for k in op.kernels if k.name == (launch.finish_with or chosen.name))
        carry_out(last, launch.finish, [between, out], status)
    else:
        carry_out(chosen, launch, [*arrays, out], status)
    if expect_fault:
        return out, status
    assert status[0] == 0, status
    return out


def empty(a: Aval) -> np.ndarray:
    return np.full(a.shape, POISON[a.dtype.numpy.kind], a.dtype.numpy)


def carry_out(kernel: Kernel, launch: Launch, arrays: list[np.ndarray], status: np.ndarray) -> None:
    """One launch, whose last array is the output. A kernel for groups is run in both orders of its threads, which must
    give the same bits."""
    *inputs, out = arrays
    variables = kernel.match([operand(a).dtype for a in arrays])
    assert variables is not None, kernel.name
    named: dict[str, Any] = {"status": status, "site": 5, **launch.args}
    for name, value in launch.bake.items():
        word = getattr(lang, value, getattr(cooperative, value, None)) if isinstance(value, str) else value
        assert word is not None, value
        named[name] = word
    pointers = [Pointer(a) for a in inputs] + [Pointer(out, writable=True)]
    named |= dict(zip(kernel.operands(len(pointers)), pointers))
    parameters = list(inspect.signature(kernel.fn).parameters)
    for name, value in launch.args.items():
        assert name in parameters, f"{kernel.name} has no parameter {name}"
        assert isinstance(value, (int, float)), f"{name} = {value!r}"
    values = [named.get(name) for name in parameters[:-2]]
    fn = FunctionType(kernel.fn.__code__, {**kernel.fn.__globals__, **words(kernel, variables)})
    with np.errstate(all="ignore"):
        if launch.group:
            assert launch.bake["GROUP"] == launch.group
            group_items(fn, values, launch, range(launch.group))
            first = out.copy()
            group_items(fn, values, launch, range(launch.group)[::-1])
            assert first.tobytes() == out.tobytes(), f"{kernel.name} depends on the order of its threads"
        else:
            for lo, hi in pieces(int(launch.total)):
                fn(*values, np.int64(lo), np.int64(hi))


def group_items(fn: Any, values: list[Any], launch: Launch, order: range) -> None:
    for item in reversed(range(int(launch.total))):
        call = partial(fn, *values, np.int64(item), np.int64(item + 1))
        cooperative.run_group(call, launch.group, order)


def choose(op: OpDef, operands: list[Operand], outputs: list[Operand], attrs: dict, name: str | None,
           backend: str = CPU) -> Kernel:
    """The backend's kernel of that name, or the first that accepts the operands; on a GPU, the CPU's after its own."""
    refused = []
    for k in sorted(op.kernels, key=lambda k: k.backend != backend):
        if k.backend in (backend, CPU) and (name is None or k.name == name):
            variables = k.match([o.dtype for o in [*operands, *outputs]])
            reason = "dtypes" if variables is None else k.accepts and k.accepts(operands, attrs)
            if reason is None:
                return k
            refused.append(f"{k.name}: {reason}")
    raise AssertionError(f"no kernel of {op.name}: {refused}")


def pieces(total: int) -> list[tuple[int, int]]:
    """Ranges that cover 0..total once, of odd sizes, last first, with an empty one among them."""
    cuts = sorted({0, total, *(c for c in (1, 2, 5, total // 2, total - 1) if 0 < c < total)})
    return [(0, 0), *reversed(list(pairwise(cuts)))]


def message(error: type[Exception], op: OpDef, *arrays: np.ndarray, **attrs: Any) -> str:
    """The whole message with which the op refuses these operands."""
    try:
        prepare(op, arrays, attrs)
    except error as err:
        return str(err)
    raise AssertionError(f"{op.name} took them")


def refer(op: OpDef, *arrays: np.ndarray, **attrs: Any) -> Any:
    """The op's float64 reference."""
    return op.ref(*arrays, **prepare(op, arrays, attrs)[2])


def layouts(x: np.ndarray) -> dict[str, np.ndarray]:
    """The same values under different strides."""
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    wide[..., ::2] = x
    return {
        "contiguous": np.ascontiguousarray(x),
        "column major": np.asfortranarray(x),
        "reversed": np.ascontiguousarray(x[::-1])[::-1],
        "reversed rows": np.ascontiguousarray(x[..., ::-1])[..., ::-1],
        "every other": wide[..., ::2],
        "rotated axes": np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 0, -1)), -1, 0),
    }
