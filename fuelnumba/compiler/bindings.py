"""The binding table: which kernels serve an op for given dtypes on a backend. Our kernels come from the op definitions; a
user's own Numba functions are added by `register_kernel` and tried first.

A plan is made with one `Bindings`, what is bound at one moment: kernels may be registered in another thread meanwhile, and
the passes must agree on what serves a node.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.dtypes import DType, dtype_of
from ..core.errors import ArgumentError, CompileError, NoBackendForOp, NoKernelError
from ..core.ir import Node
from ..core.ops import BACKENDS, CPU, OPS, Kernel, OpDef, Operand, on_change
from ..trace.traced import located


@dataclass(frozen=True, eq=False)
class UserKernel:
    """A Numba `@njit` function of a user's: called as `fn(*inputs, *outputs, **attributes in the op's order)` on arrays."""

    fn: Callable[..., Any]
    dtypes: tuple[DType, ...]
    backend: str
    op: str

    @property
    def name(self) -> str:
        return getattr(self.fn, "__name__", "kernel")

    def __call__(self, *args: Any) -> None:
        """Run it. Numba's refusal is a CompileError; what the function raises itself passes through."""
        try:
            self.fn(*args)
        except Exception as err:
            if not type(err).__module__.startswith("numba."):
                raise
            said = [line for line in str(err).splitlines() if line.strip()]
            reason = said[1] if len(said) > 1 and said[0].startswith("Failed in") else said[0] if said else type(err).__name__
            raise CompileError(f"Numba does not compile {self.name}, your kernel for {self.op}: {reason}",
                               cure="the whole of Numba's message is this error's __cause__") from err


Key = tuple[str, tuple[DType, ...], str]

_user: dict[Key, UserKernel] = {}  # never changed: another takes its place
_changes: list[str] = []  # why plans were no longer right
_lock = threading.RLock()
generation = 0  # how many changes there were: plans made under another number are made again


def changed(reason: str) -> None:
    """Plans made until now are not right any more, for a reason that `misses` will tell."""
    global generation
    with _lock:
        _changes.append(reason)
        generation = len(_changes)


on_change.append(changed)


def change_since(made_under: int) -> str:
    """The latest change since a generation, in words."""
    return _changes[-1] if made_under < generation else ""


@dataclass(frozen=True, eq=False)
class Bindings:
    """What is bound at one moment, on one backend."""

    user: Mapping[Key, UserKernel]
    generation: int
    backend: str = CPU
    _ours: dict[OpDef, list[Kernel]] = field(default_factory=dict)  # as first looked at

    def user_kernel(self, node: Node) -> UserKernel | None:
        return self.user.get((node.op.name, key_dtypes(node), self.backend)) if self.user else None

    def of(self, op: OpDef) -> list[Kernel]:
        """Our kernels for an op, best first."""
        if op not in self._ours:
            places = BACKENDS[self.backend]
            served = [k for k in op.kernels if k.serves(self.backend)]
            self._ours[op] = sorted(served, key=lambda k: places.index(k.backend))
        return self._ours[op]

    def kernels(self, node: Node) -> list[Kernel]:
        """Those of them that serve these dtypes."""
        dtypes = key_dtypes(node)
        return [k for k in self.of(node.op) if k.match(dtypes) is not None]

    def is_bound(self, node: Node) -> bool:
        return bool(self.user_kernel(node) or self.kernels(node))

    def is_fusible(self, node: Node) -> bool:
        """Whether code is generated for the node: an elementwise op, unless a user's kernel serves it."""
        return node.op.is_elementwise and self.user_kernel(node) is None

    def choose(self, node: Node, inputs: Sequence[Operand], attrs: Mapping[str, Any]) -> tuple[Kernel | None, list[str]]:
        """The first kernel that accepts these operands, and why the ones before it refused."""
        refused: list[str] = []
        for k in self.kernels(node):
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

    def no_kernel(self, node: Node, refused: Sequence[str] = ()) -> NoKernelError:
        """The error for a node that nothing serves: what was asked, and what is bound nearby."""
        kind = NoKernelError if self.backend == CPU else NoBackendForOp
        asked = f"{asked_of(node)} on {self.backend}"
        host = current()  # which has no more to offer where kernels of its own were tried
        more = host.user_kernel(node) or not set(host.kernels(node)) <= set(self.kernels(node))
        here = f", or {FALL_BACK}" if self.backend != CPU and more else ""
        if refused:
            return kind(f"no kernel takes {asked}: {'; '.join(refused)}", where=node.where,
                        cure=f"change the operands as the reason says, or register_kernel one of your own{here}")
        served = sorted({d.name for k in self.of(node.op) for ds in k.types.values() for d in ds})
        nearby = f"{node.op.name} has kernels for {', '.join(served)}" if served else f"{node.op.name} has no kernels"
        nearby += " there" if self.backend != CPU else ""
        cure = ("cast the arrays first, e.g. x.astype('f32'), or register_kernel one of your own" if served else
                "attach one with the op's decorator kernel(...), anew if the op was declared anew")
        return kind(f"no kernel for {asked}; {nearby}", where=node.where, cure=cure + here)


def current(backend: str = CPU) -> Bindings:
    with _lock:
        return Bindings(_user, generation, backend)


@located
def register_kernel(op: str, dtypes: Sequence[Any], fn: Callable[..., Any], *, backend: str = CPU) -> None:
    """Use `fn` for an op when its arrays have these dtypes (inputs, then output).

    `fn` is an ordinary Numba `@njit` function that gets C-contiguous arrays, inputs then outputs, then the op's attributes
    in the order of its declaration, and writes into the outputs; its return value is ignored. Half types and 8-bit floats
    arrive as their bits (uint16, uint8), which is how Numba can hold them. The same function can be registered again, also
    after its definition was run again. Raises ArgumentError for an unknown op or backend, or when the key is taken by
    another function (`unregister_kernel` frees it).
    """
    global _user
    if op not in OPS:
        raise ArgumentError(f"there is no op {op!r}", cure="python -m fuelnumba ops lists them")
    if backend not in BACKENDS:
        raise ArgumentError(f"there is no backend {backend!r}", cure=f"the backends are: {', '.join(BACKENDS)}")
    if backend != CPU:
        raise ArgumentError(f"a Numba function does not run on {backend}",
                            cure=f"attach a kernel in the words of fuelnumba.kernels.lang: op.kernel({backend!r}, ...)")
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
    with _lock:
        if key in _user and _place(_user[key].fn) != _place(fn):
            raise ArgumentError(f"{op} has a registered kernel for {_dtypes(key[1])} on {backend} already",
                                cure="unregister_kernel frees the key")
        _user = {**_user, key: UserKernel(fn, key[1], backend, op)}
        changed("kernels were registered or removed")


def _place(fn: Any) -> tuple[str, str]:
    """Where a function is defined: the same for a cell that is run again."""
    return fn.py_func.__module__, fn.py_func.__qualname__


@located
def unregister_kernel(op: str, dtypes: Sequence[Any], *, backend: str = CPU) -> None:
    """Remove a registered kernel. Raises ArgumentError when there is none under this key."""
    global _user
    key = (op, tuple(dtype_of(d) for d in dtypes), backend)
    with _lock:
        if key not in _user:
            raise ArgumentError(f"{op} has no registered kernel for {_dtypes(key[1])} on {backend}",
                                cure="give the dtypes it was registered with")
        _user = {k: kernel for k, kernel in _user.items() if k != key}
        changed("kernels were registered or removed")


def key_dtypes(node: Node) -> tuple[DType, ...]:
    """Inputs in order without the destroyed one, then the output."""
    inputs = [i.dtype for k, i in enumerate(node.inputs) if k != node.op.destroys]
    return (*inputs, node.dtype)


FALL_BACK = 'allow it to run on the CPU: jit(fallback="cpu")'


def asked_of(node: Node) -> str:
    return f"{node.op.name} on ({_dtypes(key_dtypes(node))})"


def _dtypes(dtypes: Sequence[DType]) -> str:
    return ", ".join(d.name for d in dtypes[:-1]) + f" -> {dtypes[-1].name}"
