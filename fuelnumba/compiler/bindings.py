"""The binding table: which kernels serve an op for given dtypes on a backend. Our kernels come from the op definitions; a
user's own Numba functions are added by `register_kernel` and tried first."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.dtypes import DType, dtype_of
from ..core.errors import ArgumentError, CompileError, NoKernelError
from ..core.ir import Node
from ..core.ops import CPU, OPS, Kernel, Operand
from ..trace.traced import located


@dataclass(frozen=True, eq=False)
class UserKernel:
    """A Numba `@njit` function of a user's: called as `fn(*inputs, *outputs, **attributes in the op's order)` on arrays."""

    fn: Callable[..., Any]
    dtypes: tuple[DType, ...]
    backend: str

    @property
    def name(self) -> str:
        return getattr(self.fn, "__name__", "kernel")


_user: dict[tuple[str, tuple[DType, ...], str], UserKernel] = {}
_generation = itertools.count(1)
generation = 0  # plans made under another generation are made again


@located
def register_kernel(op: str, dtypes: Sequence[Any], fn: Callable[..., Any], *, backend: str = CPU) -> None:
    """Use `fn` for an op when its arrays have these dtypes (inputs, then output).

    `fn` is an ordinary Numba `@njit` function that gets C-contiguous arrays, inputs then outputs, then the op's attributes
    in the order of its declaration, and writes into the outputs; its return value is ignored. Half types and 8-bit floats
    arrive as their bits (uint16, uint8), which is how Numba can hold them. Raises ArgumentError for an unknown op or
    backend, or when the key is taken (`unregister_kernel` frees it).
    """
    global generation
    if op not in OPS:
        raise ArgumentError(f"there is no op {op!r}", cure="python -m fuelnumba ops lists them")
    if backend != CPU:
        raise ArgumentError(f"there is no backend {backend!r}", cure="the backends are: cpu")
    if not hasattr(fn, "py_func"):
        raise ArgumentError(f"{getattr(fn, '__name__', fn)!r} is not a Numba function", cure="decorate it with numba.njit")
    if OPS[op].is_view or OPS[op].kind == "leaf":
        raise ArgumentError(f"{op} moves no data and takes no kernel",
                            cure="register kernels for ops that compute: python -m fuelnumba ops lists them")
    key = (op, tuple(dtype_of(d) for d in dtypes), backend)
    least, most = OPS[op].arity()
    if not least + 1 <= len(key[1]) <= most + 1:
        raise ArgumentError(f"{op} has {least} inputs and one output; got {len(key[1])} dtypes",
                            cure="give the dtypes of the inputs, then that of the output")
    if key in _user:
        raise ArgumentError(f"{op} has a registered kernel for {_dtypes(key[1])} on {backend} already",
                            cure="unregister_kernel frees the key")
    _user[key] = UserKernel(_in_our_words(op, fn), key[1], backend)
    generation = next(_generation)


def _in_our_words(op: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose refusal by Numba is a CompileError; what it raises itself passes through."""
    @functools.wraps(fn)
    def call(*args: Any) -> Any:
        try:
            return fn(*args)
        except Exception as err:
            if not type(err).__module__.startswith("numba."):
                raise
            said = [line for line in str(err).splitlines() if line.strip()]
            reason = said[1] if len(said) > 1 and said[0].startswith("Failed in") else said[0] if said else type(err).__name__
            raise CompileError(f"Numba does not compile {getattr(fn, '__name__', 'the kernel')}, your kernel for {op}: {reason}",
                               cure="the whole of Numba's message is this error's __cause__") from err

    return call


@located
def unregister_kernel(op: str, dtypes: Sequence[Any], *, backend: str = CPU) -> None:
    """Remove a registered kernel. Raises ArgumentError when there is none under this key."""
    global generation
    key = (op, tuple(dtype_of(d) for d in dtypes), backend)
    if _user.pop(key, None) is None:
        raise ArgumentError(f"{op} has no registered kernel for {_dtypes(key[1])} on {backend}",
                            cure="give the dtypes it was registered with")
    generation = next(_generation)


def key_dtypes(node: Node) -> tuple[DType, ...]:
    """Inputs in order without the destroyed one, then the output."""
    inputs = [i.dtype for k, i in enumerate(node.inputs) if k != node.op.destroys]
    return (*inputs, node.dtype)


def user_kernel(node: Node, backend: str = CPU) -> UserKernel | None:
    return _user.get((node.op.name, key_dtypes(node), backend)) if _user else None


def kernels(node: Node, backend: str = CPU) -> list[Kernel]:
    """Our kernels for this op and these dtypes, best first."""
    dtypes = key_dtypes(node)
    return [k for k in node.op.kernels if k.backend == backend and k.match(dtypes) is not None]


def is_bound(node: Node, backend: str = CPU) -> bool:
    return bool(user_kernel(node, backend) or kernels(node, backend))


def choose(node: Node, inputs: Sequence[Operand], attrs: Mapping[str, Any],
           backend: str = CPU) -> tuple[Kernel | None, list[str]]:
    """The first kernel that accepts these operands, and why the ones before it refused."""
    refused: list[str] = []
    for k in kernels(node, backend):
        reason = None
        if not k.strided:
            loose = [n for n, i in zip(node.op.inputs, inputs) if not i.layout.is_contiguous]
            reason = f"{', '.join(loose)} not contiguous" if loose else None
        if reason is None and k.accepts is not None:
            reason = k.accepts(inputs, attrs)
        if reason is None:
            return k, refused
        refused.append(f"{k.name}: {reason}")
    return None, refused


def no_kernel(node: Node, refused: Sequence[str] = (), backend: str = CPU) -> NoKernelError:
    """The error for a node that nothing serves: what was asked, and what is bound nearby."""
    asked = f"{node.op.name} on ({_dtypes(key_dtypes(node))}) on {backend}"
    if refused:
        return NoKernelError(f"no kernel takes {asked}: {'; '.join(refused)}", where=node.where,
                             cure="change the operands as the reason says, or register_kernel one of your own")
    served = sorted({d.name for k in node.op.kernels for ds in k.types.values() for d in ds})
    nearby = f"{node.op.name} has kernels for {', '.join(served)}" if served else f"{node.op.name} has no kernels"
    return NoKernelError(f"no kernel for {asked}; {nearby}", where=node.where,
                         cure="cast the arrays first, e.g. x.astype('f32'), or register_kernel one of your own")


def _dtypes(dtypes: Sequence[DType]) -> str:
    return ", ".join(d.name for d in dtypes[:-1]) + f" -> {dtypes[-1].name}"


