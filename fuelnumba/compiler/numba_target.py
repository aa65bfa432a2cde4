"""Numba, set up for kernels: a target of our own, so that what we choose stays out of the way of the user's own `@njit`
functions, and that knows of numbers, pointers and loops only. Numba's target for the CPU also loads its arrays, strings, lists,
random numbers and SciPy before it compiles anything, and links its reference counting into everything. Imports Numba: only
while compiling."""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

import llvmlite.binding as llvm
import numba
from numba.core import config as numba_config
from numba.core import fastmathpass, types
from numba.core.ccallback import CFunc
from numba.core.compiler import CompilerBase, Flags
from numba.core.compiler_machinery import PassManager
from numba.core.cpu import CPUContext
from numba.core.cpu_options import FastMathOptions
from numba.core.errors import TypingError
from numba.core.registry import CPUTarget
from numba.core.target_extension import CPU, dispatcher_registry, jit_registry, target_override, target_registry
from numba.core.typed_passes import (
    AnnotateTypes,
    IRLegalization,
    NativeLowering,
    NoPythonBackend,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.typing import Context, templates
from numba.core.untyped_passes import FixupArgs, IRProcessing, ReconstructSSA, TranslateByteCode
from numba.extending import intrinsic

from ..kernels import intrinsics
from . import flatten

config: Any = numba_config
ENTRY = types.void(types.CPointer(types.int64), types.int64, types.int64)
NAME = "fuelnumba"  # of our target in Numba's tables
PASSES = (TranslateByteCode, FixupArgs, IRProcessing, ReconstructSSA, NopythonTypeInference, PreLowerStripPhis, IRLegalization,
          AnnotateTypes, NativeLowering, NoPythonBackend)


def features() -> str:
    """The host's features; LLVM's preference for 256-bit vectors on AVX-512 processors is lifted. It dates from processors
    that slowed down for wide vectors; arithmetic-bound kernels run up to twice as fast without (docs/measured.md)."""
    found = llvm.get_host_cpu_features().flatten()
    return found + ",-prefer-256-bit" if platform.machine().lower() in ("x86_64", "amd64") and "+avx512vl" in found else found


class _Pipeline(CompilerBase):
    """The passes that a flat kernel needs: it has no closures, and no calls to inline."""

    def define_pipelines(self) -> list[PassManager]:
        passes = PassManager("kernel")
        for p in PASSES:
            passes.add_pass(p, p.__name__)
        passes.finalize()
        return [passes]


class _Typing(Context):
    """What types the words of a kernel have."""

    def load_additional_registries(self) -> None:
        """None: for arrays, files, lists."""

    def install_registry(self, registry: Any) -> None:
        """Without what `numba.extending.overload_method` and the like define: making these registers code in a table that
        the user's functions share, for which this context would answer."""
        loader = self._registries.setdefault(registry, templates.RegistryLoader(registry))
        for t in loader.new_registrations("functions"):
            self.insert_function(t(self))
        for t in loader.new_registrations("attributes"):
            if not issubclass(t, templates._OverloadAttributeTemplate):
                self.insert_attributes(t(self))
        for value, kind in loader.new_registrations("globals"):
            known = self._lookup_global(value)
            if known is None:
                self.insert_global(value, kind)
            else:  # an operator, defined for one kind of operand after the other
                self._remove_global(value)
                self._insert_global(value, known.augment(kind) or known)


class _Lowering(CPUContext):
    """How they become LLVM's code."""

    def load_additional_registries(self) -> None:
        from numba.core import optional  # noqa: F401
        from numba.cpython import builtins, iterators, numbers, rangeobj, tupleobj  # noqa: F401

    def post_lowering(self, mod: Any, library: Any) -> None:
        if self.fastmath:
            fastmathpass.rewrite_module(mod, self.fastmath)


class _Kernels(CPU):
    """Our target, for Numba."""


class _Target(CPUTarget):
    @cached_property
    def _toplevel_typing_context(self) -> Context:
        return _Typing()

    @cached_property
    def _toplevel_target_context(self) -> CPUContext:
        return _Lowering(self.typing_context, NAME)


@cache
def _target() -> CPUTarget:
    target_registry[NAME] = _Kernels
    own = _Target(NAME)
    jit_registry[_Kernels] = numba.jit  # asked for by definitions that then say that they are for other types
    dispatcher_registry[_Kernels] = type("Dispatcher", (), {"targetdescr": own})
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

    @cache
    def library() -> Any:
        flags: Any = Flags()
        flags.error_model, flags.fastmath, flags.forceinline = "numpy", FastMathOptions({"contract"}), True
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        types_of, code_of = _target().typing_context, _target().target_context
        compiler: Any = _Pipeline(types_of, code_of, code_of.codegen().create_library(name), signature.args,
                                  signature.return_type, flags, {})
        return compiler.compile_extra(compiled())

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        made = library()
        context.active_code_library.add_linking_library(made.library)
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
    pipeline: Any = _Pipeline
    made: Any = _kernel_class()(fn, (ENTRY.args, ENTRY.return_type), {},
                                {"error_model": "numpy", "fastmath": {"contract"}, "_nrt": False}, pipeline)
    with target_override(NAME):
        made.compile()
    return made.native_name, made._library._get_compiled_object()
