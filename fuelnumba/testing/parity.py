"""`assert_parity`: what runs against a reference in float64, with a message that says where they part and how to see it again."""

from __future__ import annotations

import functools
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ..core import dtypes as dt
from ..core.dtypes import DType, dtype_of
from ..core.errors import ArgumentError
from ..core.ir import freeze_value
from ..core.ops import OPS, OpDef
from ..jit import Jitted
from ..kernels import BUILT_IN
from ..trace.apply import apply
from .values import Array, cast_values, footprint, from_footprint, in_dtype, layout_of, tolerance

# Kinds of op whose results are sums. Their error is one of the terms, not of the result, which may be near 0.
# A sum of equal terms, one after the other, drifts: by up to terms / 8 ulp, as measured; blocks of 1024 meet in f64.
_SUMS = ("reduce", "matmul")
_BLOCK = 1024
_ROWS = ("norm", "attention")
_ROW_FACTOR = {"f32": 10.0, "f64": 10.0, "f16": 2.0, "bf16": 2.0}


def assert_parity(op: Any, *arrays: Any, reference: Any = None, rtol: float | None = None, atol: float | None = None,
                  dtype: Any = None, zero_signs: bool = False, **attrs: Any) -> None:
    """Run an op or a function on arrays, and compare with its reference in float64.

    `op` is an op's name, its OpDef or its function in `fuelnumba.ops`, or a NumPy function, jitted or not. The reference is
    the op's own (`OpDef.ref`), or the function itself on float64 arrays, unless `reference` gives another: a function of
    the same arguments, or the expected array. `attrs` are the op's parameters, or keyword arguments of the function, which
    are static. Floating-point arrays are brought to `dtype` first, when it is given (if the op has a parameter called
    dtype, it is that parameter).

    Values agree when |got - expected| <= atol + rtol * |expected|, or both are NaN; zeros of different sign agree unless
    `zero_signs`. The result must have the dtype and the shape that the op's rule or the function gives. Tolerances are
    those of `tolerance(dtype)`, wider where an op's declaration or kind asks for it. Raises AssertionError.
    """
    __tracebackhide__ = True
    found = as_op(op)
    if found is not None and "dtype" in found.attrs and dtype is not None:
        attrs, dtype = {**attrs, "dtype": dtype}, None
    if dtype is not None:
        d = dtype_of(dtype)
        arrays = tuple(cast_values(a, d) if _is_float(a) else a for a in arrays)
    if found is not None:
        got, jitted = run_op(found, arrays, attrs)
        ref, name = reference if reference is not None else _op_reference(found), found.name
        dtypes: list[DType | None] = [jitted.graph.outputs[0].dtype]
    else:
        jitted = op if isinstance(op, Jitted) else Jitted(op, static_argnames=tuple(attrs))
        ref, name = reference if reference is not None else jitted.__wrapped__, jitted.name
        got = jitted(*arrays, **attrs)
        dtypes = _numpy_dtypes(jitted.__wrapped__, arrays, attrs)
    if reference is not None and not callable(reference):
        expected: Any = reference
    else:
        expected = _evaluate(ref, arrays, found, attrs if found is None else canonical(found, arrays, attrs))
    results, wanted = _leaves(got), _leaves(expected)
    again = functools.partial(command, None if reference is not None else found, arrays, attrs, (rtol, atol, zero_signs))
    if len(results) != len(wanted):
        raise AssertionError(f"{name}: {len(results)} results instead of {len(wanted)}\nrun it again with: {again()}")
    for k, (g, e) in enumerate(zip(results, wanted)):
        label = name if len(results) == 1 else f"{name}, result {k}"
        of = dtypes[k] if k < len(dtypes) else None
        limits = limits_of(found, arrays, attrs, e, of, rtol, atol)
        check(label, arrays, attrs, g, e, of, limits, zero_signs, again)


def as_op(op: Any) -> OpDef | None:
    """The OpDef that a name, a function of `fuelnumba.ops` or an OpDef stands for; None for other functions. Raises
    ArgumentError for an unknown name."""
    if isinstance(op, OpDef):
        return op
    if isinstance(op, str):
        if op not in OPS or OPS[op].kind == "leaf":
            raise ArgumentError(f"there is no op {op!r}", cure="python -m fuelnumba ops lists them")
        return OPS[op]
    if not callable(op):
        raise ArgumentError(f"{op!r} is neither an op nor a function")
    return OPS.get(op.__name__) if getattr(op, "__module__", "") == "fuelnumba.ops" else None


# ------------------------------------------------------------------------------------------------ running
def run_op(op: OpDef, arrays: Sequence[Any], attrs: Mapping[str, Any]) -> tuple[Any, Jitted[..., Any]]:
    """(the result of an op alone on arrays, the jitted function that made it)."""
    key = (op, tuple(sorted((k, freeze_value(v)) for k, v in attrs.items())))
    jitted = _alone.get(key)
    if jitted is None:
        jitted = _alone[key] = alone(op, attrs)
    return jitted(*arrays), jitted


_alone: dict[Any, Jitted[..., Any]] = {}


def alone(op: OpDef, attrs: Mapping[str, Any]) -> Jitted[..., Any]:
    """A jitted function of one op."""
    def run(*arrays: Any) -> Any:
        return apply(op, *arrays, **attrs)

    run.__name__ = op.name
    return Jitted(run)


def canonical(op: OpDef, arrays: Sequence[Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes as the op's reference takes them: defaults filled in, axes counted from the front."""
    from ..core.ops import Aval

    avals = [Aval(np.shape(a), dt.of_numpy(np.asarray(a).dtype) or dt.f64) for a in arrays]
    return op.check_attrs(avals, attrs)


def _evaluate(ref: Callable[..., Any], arrays: Sequence[Any], op: OpDef | None, attrs: Mapping[str, Any]) -> Any:
    with np.errstate(all="ignore"):
        return ref(*(wide(a, op) for a in arrays), **attrs)


def wide(a: Any, op: OpDef | None = None) -> Any:
    """An array as a reference gets it: floats in float64 (f32, for an op whose result jumps where its own type rounds);
    integers as they are, unless the op computes in floats."""
    if isinstance(a, (bool, int, float)):
        return a
    a = np.asarray(a)
    d = dt.of_numpy(a.dtype)
    to_float = op is not None and op.domain in ("float", "division")
    if d is None or (d.kind not in "fs" and not to_float):
        return a
    own = op is not None and op.own_width
    return a.astype(np.float32 if own and d.compute == "f32" else np.float64)


def _op_reference(op: OpDef) -> Callable[..., Any]:
    if op.ref is None:
        raise ArgumentError(f"the op {op.name} has no reference", cure="declare one with ref=, or pass reference=")
    return op.ref


def _numpy_dtypes(fn: Callable[..., Any], arrays: Sequence[Any], attrs: Mapping[str, Any]) -> list[DType | None]:
    """The dtypes that a NumPy function gives for these very arrays; none where NumPy has no such function."""
    try:
        with np.errstate(all="ignore"):
            return [dt.of_numpy(np.asarray(r).dtype) for r in _leaves(fn(*arrays, **attrs))]
    except TypeError:
        return []


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [leaf for k in value for leaf in _leaves(value[k])]
    if isinstance(value, (tuple, list)):
        return [leaf for v in value for leaf in _leaves(v)]
    return [value]


def _is_float(a: Any) -> bool:
    d = dt.of_numpy(a.dtype) if isinstance(a, (np.ndarray, np.generic)) else None
    return d is not None and d.kind in "fs"


# ------------------------------------------------------------------------------------------------ tolerances
def limits_of(op: OpDef | None, arrays: Sequence[Any], attrs: Mapping[str, Any], expected: Any, dtype: DType | None,
              rtol: float | None, atol: float | None) -> tuple[float, Any]:
    """(relative, absolute) error allowed: `tolerance(dtype)`, what the op's declaration says, and for sums and norms an
    absolute error in proportion to their terms."""
    d = dtype or dt.of_numpy(np.asarray(expected).dtype) or dt.f64
    r, a = tolerance(d)
    most: Any = a
    if op is not None and d.is_float:
        eps = float(ml_dtypes.finfo(dt.BY_NAME[d.compute].numpy).eps)
        asked = op.tolerance.get(d.name, r)
        r, most = asked, a * max(asked / r, 1.0)
        most = most + op.tolerance.get("absolute", 0.0) * eps
        if op.kind in _SUMS and op.ref is not None:
            sizes = _evaluate(op.ref, [np.abs(wide(x, op)) if _is_float(x) else x for x in arrays], op,
                              canonical(op, arrays, attrs))
            terms = min(max((np.size(x) for x in arrays), default=1) / max(np.size(sizes), 1), _BLOCK)
            most = most + max(4.0, terms / 8) * eps * np.nan_to_num(np.asarray(sizes, np.float64), posinf=0.0)
        if op.kind in _ROWS:
            r = r * _ROW_FACTOR[d.name]
            finite = np.abs(np.nan_to_num(np.asarray(expected, np.float64), posinf=0.0, neginf=0.0))
            most = most + 16 * eps * finite.max(initial=0.0)
    return (r if rtol is None else rtol), (most if atol is None else atol)


# ------------------------------------------------------------------------------------------------ comparing
@dataclass(frozen=True)
class Differences:
    """Which values of a result are wrong."""

    wrong: Array
    got: Array
    expected: Array  # in the dtype of the result
    dtype: DType

    def first(self) -> str:
        """The first wrong value: its index, what it is and what it should be, and how many ulp lie between."""
        at = tuple(int(k[0]) for k in np.nonzero(np.atleast_1d(self.wrong)))
        g, e = np.atleast_1d(self.got)[at], np.atleast_1d(self.expected)[at]
        far = ""
        if self.dtype.kind in "fs" and np.isfinite(float(g)) and np.isfinite(float(e)):
            far = f" ({abs(float(g) - float(e)) / ulp(float(e), self.dtype):.4g} ulp)"
        return f"first at {at if self.got.ndim else ()}: got {g!s}, expected {e!s}{far}"


def ulp(value: float, dtype: Any) -> float:
    """The distance of neighbouring numbers of a float dtype around a value."""
    info = ml_dtypes.finfo(dtype_of(dtype).numpy)
    least = float(info.smallest_subnormal)
    if value == 0 or not np.isfinite(value):
        return least
    return max(2.0 ** np.floor(np.log2(abs(value))) * float(info.eps), least)


def differences(got: Array, expected: Any, dtype: DType, limits: tuple[float, Any] = (0.0, 0.0),
                zero_signs: bool = False) -> Differences | None:
    """Where `got`, of a dtype, is not `expected` (of any width), or None. Exact for integers and booleans."""
    e = in_dtype(dtype, expected)
    if dtype.kind not in "fs":
        wrong = np.asarray(got != e)
        return Differences(wrong, got, e, dtype) if wrong.any() else None
    rtol, atol = limits
    g, x = got.astype(np.float64), e.astype(np.float64)
    with np.errstate(all="ignore"):
        same = (np.isnan(g) & np.isnan(x)) | (g == x) | (np.isfinite(x) & (np.abs(g - x) <= atol + rtol * np.abs(x)))
        most = float(ml_dtypes.finfo(dtype.numpy).max)  # an infinity stands for what rounds to the greatest number, and back
        same |= np.isfinite(x) & (np.abs(x) >= most * (1 - rtol)) & (g == np.copysign(np.inf, x))
        same |= np.isinf(x) & (np.abs(g) >= most * (1 - rtol)) & (np.sign(g) == np.sign(x))
        if zero_signs:
            same &= ~((g == 0) & (x == 0) & (np.signbit(g) != np.signbit(x)))
    wrong = np.asarray(~same)
    return Differences(wrong, got, e, dtype) if wrong.any() else None


def check(name: str, arrays: Sequence[Any], attrs: Mapping[str, Any], got: Any, expected: Any, dtype: DType | None,
          limits: tuple[float, Any], zero_signs: bool, again: Callable[[], str]) -> None:
    """Raises AssertionError when a result is not what is expected."""
    __tracebackhide__ = True
    problem = problem_of(got, expected, dtype, limits, zero_signs)
    if problem is not None:
        raise AssertionError(f"{name}: {problem}\n{described(arrays, attrs, got)}\nrun it again with: {again()}")


def problem_of(got: Any, expected: Any, dtype: DType | None, limits: tuple[float, Any], zero_signs: bool = False) -> str | None:
    """What is wrong with a result, in words; None when nothing is."""
    if not isinstance(got, (np.ndarray, np.generic)):
        return f"the result is a {type(got).__name__}, not an array"
    expected = np.asarray(expected)
    if dtype is not None and got.dtype != dtype.numpy:
        return f"the result has dtype {dt.of_numpy(got.dtype) or got.dtype} instead of {dtype}"
    if got.shape != expected.shape:
        return f"the result has shape {got.shape} instead of {expected.shape}"
    of = dtype or dt.of_numpy(got.dtype)
    assert of is not None
    found = differences(np.asarray(got), expected, of, limits, zero_signs)
    if found is None:
        return None
    count = int(found.wrong.sum())
    return f"{count} of {got.size} values differ\n  {found.first()}"


def described(arrays: Sequence[Any], attrs: Mapping[str, Any], got: Any) -> str:
    """The operands of a case in words: dtypes, shapes, layouts, attributes."""
    lines = []
    for k, a in enumerate(arrays):
        if isinstance(a, np.ndarray):
            lines.append(f"  operand {k}: {dt.of_numpy(a.dtype) or a.dtype}{list(a.shape)}, {layout_of(a)}")
        else:
            lines.append(f"  operand {k}: {a!r}")
    if isinstance(got, (np.ndarray, np.generic)):
        lines.append(f"  result: {dt.of_numpy(got.dtype) or got.dtype}{list(got.shape)}")
    if attrs:
        lines.append("  parameters: " + ", ".join(f"{k}={v!r}" for k, v in attrs.items()))
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------------ repeating a case
def command(op: OpDef | None, arrays: Sequence[Any], attrs: Mapping[str, Any], how: tuple[Any, ...]) -> str:
    """A command that repeats a comparison: the test that runs, or the op on a copy of its operands in a file, or, for a
    function outside of a test, the program."""
    test = running_test()
    if test is not None:
        return test
    if op is None or op.name not in BUILT_IN:
        return " ".join(["python", *map(_quoted, sys.orig_argv[1:])])
    return f"python -m fuelnumba.testing {shlex.quote(str(_save(op, arrays, attrs, how)))}"


def _quoted(word: str) -> str:
    """A word of a shell's command, on one line."""
    if "\n" not in word:
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"$'{escaped}'"


def running_test() -> str | None:
    """The command that runs the present test again, when pytest runs one."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rsplit(" (", 1)[0]
    return f"python -m pytest {shlex.quote(test)}" if test else None


def _save(op: OpDef, arrays: Sequence[Any], attrs: Mapping[str, Any], how: tuple[Any, ...]) -> Path:
    held: dict[str, Array] = {}
    told: list[Any] = []
    for k, a in enumerate(arrays):
        if isinstance(a, (bool, int, float)):
            told.append(a)
            continue
        a = np.asarray(a)
        elements, first = footprint(a)
        held[f"a{k}"] = elements.view(np.uint8)
        told.append([str(dt.of_numpy(a.dtype)), first, a.shape, [s // a.itemsize for s in a.strides]])
    said = json.dumps([op.name, told, {k: str(v) if isinstance(v, DType) else v for k, v in attrs.items()}, how], default=str)
    handle, name = tempfile.mkstemp(prefix=f"fuelnumba-{op.name}-", suffix=".npz")
    with os.fdopen(handle, "wb") as file:
        np.savez(file, said=np.array(said), **held)  # type: ignore[arg-type]
    return Path(name)


def repeat(path: str) -> None:
    """Compare again what `command` wrote into a file. Raises AssertionError as then."""
    with np.load(path) as held:
        name, told, attrs, (rtol, atol, zero_signs) = json.loads(str(held["said"]))
        arrays = []
        for k, what in enumerate(told):
            if isinstance(what, list):
                of, first, shape, steps = what
                arrays.append(from_footprint(held[f"a{k}"].view(dtype_of(of).numpy), first, shape, steps))
            else:
                arrays.append(what)
    attrs = {k: tuple(v) if isinstance(v, list) else v for k, v in attrs.items()}
    assert_parity(name, *arrays, rtol=rtol, atol=atol, zero_signs=zero_signs, **attrs)
