"""Numba, set up for kernels: its own target context, so that what we choose for code generation stays out of the way of the
user's own `@njit` functions. Imports Numba: only while compiling."""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from numba.core import config as numba_config
from numba.core import types
from numba.core.ccallback import CFunc
from numba.core.compiler import Flags
from numba.core.cpu_options import FastMathOptions
from numba.core.errors import TypingError
from numba.core.registry import CPUTarget
from numba.extending import intrinsic

from ..kernels import intrinsics
from . import flatten

config: Any = numba_config
ENTRY = types.void(types.CPointer(types.int64), types.int64, types.int64)


def features() -> str:
    """The host's features; LLVM's preference for 256-bit vectors on AVX-512 processors is lifted. It dates from processors
    that slowed down for wide vectors; arithmetic-bound kernels run up to twice as fast without (docs/measured.md)."""
    found = llvm.get_host_cpu_features().flatten()
    return found + ",-prefer-256-bit" if platform.machine().lower() in ("x86_64", "amd64") and "+avx512vl" in found else found


@cache
def _target() -> CPUTarget:
    own = CPUTarget("cpu")
    before = config.CPU_NAME, config.CPU_FEATURES
    if before == (None, None):  # else the user has chosen
        config.CPU_NAME, config.CPU_FEATURES = llvm.get_host_cpu_name(), features()
    try:
        own.target_context.codegen()  # reads the settings once
    finally:
        config.CPU_NAME, config.CPU_FEATURES = before
    return own


@cache
def _kernel_class() -> type[CFunc]:
    return type("KernelFunction", (CFunc,), {"_targetdescr": _target()})


@cache
def namespace() -> dict[str, Any]:
    """The words of generated kernels."""
    import numpy as np

    words = {name: getattr(intrinsics, name) for name in intrinsics.__all__} | {"np": np}
    return words | {name: _function(name) for name in sorted(flatten.FUNCTIONS)}


def _function(name: str) -> Any:
    """An elementary function as a word: a call of code that is compiled when it is first needed, and that LLVM inlines."""
    kind = types.float32 if name.endswith("f32") else types.float64
    signature = kind(*[kind] * len(flatten.helpers()[name].args.args))

    @cache
    def compiled() -> Callable[..., Any]:
        space = namespace().copy()
        exec(compile(flatten.function_text(name), f"<{name}>", "exec"), space)
        made: Callable[..., Any] = space[name]
        return made

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        flags: Any = Flags()
        flags.error_model, flags.fastmath, flags.forceinline = "numpy", FastMathOptions({"contract"}), True
        made = context.compile_subroutine(builder, compiled(), sig, flags=flags)
        return context.call_internal(builder, made.fndesc, sig, args)

    def one(typingctx: Any, x: Any) -> Any:
        if x is not kind:
            raise TypingError(f"{name} does not take {x}")
        return signature, codegen

    def two(typingctx: Any, x: Any, y: Any) -> Any:
        if x is not kind or y is not kind:
            raise TypingError(f"{name} does not take ({x}, {y})")
        return signature, codegen

    define = one if len(signature.args) == 1 else two
    define.__name__ = name
    return intrinsic(define)


def compile_entry(fn: Callable[..., Any]) -> tuple[str, bytes]:
    """(symbol, object code) of a flat kernel function `fn(args, lo, hi)`."""
    made: Any = _kernel_class()(fn, (ENTRY.args, ENTRY.return_type), {}, {"error_model": "numpy", "fastmath": {"contract"}})
    made.compile()
    return made.native_name, made._library._get_compiled_object()
