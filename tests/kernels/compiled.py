"""Runs kernel helpers compiled: each jitted and inlined over the intrinsics, in a flat loop."""
from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from numba import cfunc, njit, types

from fuelnumba.kernels import half, intrinsics, vmath

POINTER = {np.dtype(t): f"ptr_{n}" for t, n in (
    (np.float32, "f32"), (np.float64, "f64"), (np.int8, "i8"), (np.uint8, "u8"), (np.int16, "i16"),
    (np.uint16, "u16"), (np.int32, "i32"), (np.uint32, "u32"), (np.int64, "i64"), (np.uint64, "u64"))}


@cache
def namespace() -> dict[str, Any]:
    """The intrinsics, and all helpers rebuilt over them."""
    ns: dict[str, Any] = {n: getattr(intrinsics, n) for n in intrinsics.__all__}
    for module in (half, vmath):
        for name, function in helpers(module).items():
            bare = FunctionType(function.__code__, ns, name)
            ns[name] = njit(inline="always", error_model="numpy", fastmath={"contract"})(bare)
    return ns


def helpers(module: ModuleType) -> dict[str, FunctionType]:
    """The helper functions a module defines, in order."""
    own = {n: f for n, f in vars(module).items() if inspect.isfunction(f)}
    return {n: f for n, f in own.items() if f.__module__ == module.__name__}


class Kernel:
    """`out[i] = expression` over arrays, compiled the way fuelnumba compiles."""
    def __init__(self, expression: str, inputs: tuple, output: Any) -> None:
        names = [f"x{k}" for k in range(len(inputs))]
        lines = ["def entry(args, lo, hi):"]
        for k, t in enumerate((*inputs, output)):
            lines += [f"    {(*names, 'out')[k]}p = {POINTER[np.dtype(t)]}(args, {2 * k})"]
        lines += ["    for i in range(lo, hi):"]
        lines += [f"        {n} = load_in({n}p, i)" for n in names]
        lines += [f"        store_out(outp, i, {expression})"]
        ns = dict(namespace())
        exec("\n".join(lines), ns)
        signature = types.void(types.CPointer(types.int64), types.int64, types.int64)
        self.output = np.dtype(output)
        self.cfunc = cfunc(signature, error_model="numpy", fastmath={"contract"})(ns["entry"])

    def __call__(self, *arrays: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        arrays = tuple(map(np.ascontiguousarray, arrays))
        out = np.empty(arrays[0].shape, self.output) if out is None else out
        cells = np.array([a.ctypes.data for a in (*arrays, out)], np.int64)
        args = np.zeros(2 * len(cells), np.int64)
        args[::2] = cells.ctypes.data + 8 * np.arange(len(cells))
        self.cfunc.ctypes(args.ctypes.data_as(self.cfunc.ctypes.argtypes[0]), 0, out.size)
        return out

    @property
    def asm(self) -> str:
        return self.cfunc._library.get_asm_str()

    def is_vector(self) -> bool:
        """Whether whole vector registers (256 bits or more on x86, any NEON lane form on ARM) are used."""
        return bool(re.search(r"%[yz]mm|\bv\d+\.(4s|2d|8h|16b)", self.asm))

    def foreign(self) -> set[str]:
        """Symbols of other libraries the code refers to."""
        return foreign_symbols(self.cfunc)


def foreign_symbols(compiled: Any) -> set[str]:
    """Names the assembly mentions as call or address operands that are not the function's own."""
    asm = compiled._library.get_asm_str()
    named = set(re.findall(r"(?:call\w*|jmp)\s+([A-Za-z_][\w@.]*)", asm))
    named |= set(re.findall(r"movabsq\s+\$([A-Za-z_]\w*)", asm))
    return {n for n in named if not n.startswith(("_ZN", ".L", "fuel_"))}


@cache
def kernel(expression: str, inputs: tuple, output: Any) -> Kernel:
    """A `Kernel`, compiled once per process."""
    return Kernel(expression, inputs, output)


def is_straight_line(function: FunctionType) -> bool:
    """Whether a helper is a docstring, assignments to plain names and one return."""
    body = ast.parse(inspect.getsource(function)).body[0].body
    body = body[1:] if ast.get_docstring(ast.parse(inspect.getsource(function)).body[0]) else body
    plain = all(isinstance(s, ast.Assign) and len(s.targets) == 1 and isinstance(s.targets[0], ast.Name)
                for s in body[:-1])
    banned = (ast.IfExp, ast.Tuple, ast.Lambda, ast.BoolOp)
    found = any(isinstance(n, banned) for s in body for n in ast.walk(s))
    return plain and isinstance(body[-1], ast.Return) and not found
