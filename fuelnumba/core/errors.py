"""Every error a user can meet: one tree, each class with its cause, its cure and an example.

All constructors read `SomeError(what, *, where=None, cure=None)`. `what` says what happened, with shapes and
dtypes; `where` is the user's line; `cure` says what to do. `str(error)` puts the three together:

    bool() of a traced value
      --> /home/me/model.py:12, in f
       |
    12 |     if x > 0:
       |        ^^^^^
       = use np.where(cond, a, b)

Where a built-in exception has the same meaning, the class inherits it too: `except ValueError` keeps working.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .source import Location

__all__ = [
    "ArgumentError",
    "AxisError",
    "BackendError",
    "CacheError",
    "CompileError",
    "DTypeError",
    "DonationError",
    "FuelError",
    "FuelIndexError",
    "GraphError",
    "InputArrayError",
    "LeakedTracerError",
    "NoKernelError",
    "PromotionError",
    "ShapeError",
    "StaleCaptureError",
    "TracedBoolError",
    "TracedConversionError",
    "TracedIterationError",
    "TracedMutationError",
    "TracedToNumpyError",
    "TracingError",
    "UnsupportedFunctionError",
]


class FuelError(Exception):
    """Base of all errors of fuelnumba.

    **Cause**: see the subclass. **Cure**: see the subclass, or the line after `=` in the message.

        try: block(x, w)
        except fn.errors.FuelError as err: print(err.what, err.where, err.cure)
    """

    def __init__(self, what: str, *, where: Location | None = None, cure: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.cure = cure

    def __str__(self) -> str:
        parts = [self.what]
        width = 2
        if self.where is not None:
            parts.append(self.where.render())
            width = self.where.gutter
        if self.cure:
            # Lines after the first stand under the text of the first, not under the sign.
            parts.append(f"{' ' * width} = " + self.cure.replace("\n", "\n" + " " * (width + 3)))
        return "\n".join(parts)


# Values that do not fit -------------------------------------------------------------------------------------


class ShapeError(FuelError, ValueError):
    """**Cause**: the shapes of the operands do not fit the operation.
    **Cure**: reshape, transpose or broadcast one of them; the message has both shapes.

        np.ones((2, 3)) @ np.ones((4, 5))
    """


class DTypeError(FuelError, TypeError):
    """**Cause**: the operation is not defined for this dtype, or the dtype is none of ours.
    **Cure**: cast with `x.astype(...)` first.

        -x  # x: bool
    """


class AxisError(FuelError, ValueError, IndexError):
    """**Cause**: an axis lies outside the rank of the array, or is named twice.
    **Cure**: use an axis from `-x.ndim` to `x.ndim - 1`, each one once.

        x.sum(axis=2)  # x: f32[3, 4]
    """


class ArgumentError(FuelError, TypeError):
    """**Cause**: wrong number of arguments, an argument of a type that cannot be traced, or a bad attribute.
    **Cure**: pass arrays, Python scalars, or lists, tuples, dicts, dataclasses of them; mark others static.

        block(x, open("weights.bin"))
    """


class PromotionError(FuelError, TypeError):
    """**Cause**: two array dtypes have no common dtype in the promotion table.
    **Cure**: cast one of them, so that the choice is visible.

        fn.dtypes.promote(fn.dtypes.f8e4m3, fn.dtypes.f32)
    """


class InputArrayError(FuelError, ValueError):
    """**Cause**: an array at the call boundary has a form kernels cannot read: big-endian, misaligned, object
    dtype, masked.
    **Cure**: convert it before the call, for example `x.astype(x.dtype.newbyteorder("="))`.

        block(np.zeros(3, ">f4"))
    """


class FuelIndexError(FuelError, IndexError):
    """**Cause**: an index held by an array was out of range when the kernel ran.
    **Cure**: correct or clip the indices; the message names the operation and the length of the axis.

        np.take(table, [0, 7], axis=0)  # table: f32[5, 8]
    """


class DonationError(FuelError):
    """**Cause**: a donated argument cannot be written to: read-only, overlapping another, or used after it
    was given away.
    **Cure**: do not donate it, or pass a copy.

        jit(step, donate="state")(state, state)
    """


# Python meets a traced value --------------------------------------------------------------------------------


class TracingError(FuelError, TypeError):
    """**Cause**: the function did something with a traced value that a graph cannot hold.
    **Cure**: see the subclasses. A traced value has a shape and a dtype, but no numbers yet.

        @fn.jit
        def f(x): return float(x)
    """


class TracedBoolError(TracingError):
    """**Cause**: `if`, `while`, `and`, `or`, `not` or `assert` on a traced value.
    **Cure**: `np.where(cond, a, b)`, `&` `|` `~`, or a static argument.

        if x.sum() > 0: ...
    """


class TracedConversionError(TracingError):
    """**Cause**: `int()`, `float()`, `complex()` or use as an index or a size, on a traced value.
    **Cure**: keep it an array (`x.astype(...)`), or make the argument static.

        range(int(n))
    """


class TracedIterationError(TracingError):
    """**Cause**: iteration over, or unpacking of, a traced value.
    **Cure**: use whole-array operations, or index with static positions: `for i in range(len(x)): x[i]`.

        for row in x: ...
    """


class TracedMutationError(TracingError):
    """**Cause**: an in-place NumPy write into a traced value. (`x += 1` is fine: it rebinds the name.)
    **Cure**: `np.where`, `np.concatenate`, or `fn.ops.write_slice`, which give a new value.

        x[0] = 1
    """


class TracedToNumpyError(TracingError):
    """**Cause**: code outside fuelnumba wants a traced value's memory: `np.asarray`, `__array__`, C code.
    **Cure**: stay within the covered NumPy functions, or call that code outside the jitted function.

        scipy.linalg.expm(x)
    """


class UnsupportedFunctionError(TracingError):
    """**Cause**: this NumPy function is not covered. The message names it and the nearest covered ones.
    **Cure**: write it with covered functions; `python -m fuelnumba ops` lists them.

        np.kron(x, y)
    """


class LeakedTracerError(TracingError):
    """**Cause**: a traced value outlived its trace, in a global, a closure, an attribute or a container.
    **Cure**: return it from the function instead.

        def f(x): CACHE["x"] = x
    """


class StaleCaptureError(TracingError):
    """**Cause**: the function reads something outside its arguments that is too large to watch for changes.
    **Cure**: pass it as an argument.

        TABLE = list(range(1_000_000))
        @fn.jit
        def f(x): return x * TABLE[3]
    """


# From graph to machine --------------------------------------------------------------------------------------


class GraphError(FuelError):
    """**Cause**: a graph broke a rule of the verifier. When fuelnumba built it, this is a bug in a pass.
    **Cure**: report it with the printed graph.

        add(f32[2], f32[3])
    """


class NoKernelError(FuelError, NotImplementedError):
    """**Cause**: no kernel is bound for this operation with these dtypes on this backend. The message tells
    what is bound nearby and why it refused.
    **Cure**: cast to a bound dtype, or run on a backend that has it.

        fn.ops.write_slice(x, src, at)  # src has six axes longer than 1
    """


class CompileError(FuelError):
    """**Cause**: Numba refused a kernel.
    **Cure**: report it with the kernel's file, named in the message; for your own, see the compiler's words.

        a user kernel that calls a function Numba does not know
    """


class CacheError(FuelError):
    """**Cause**: the kernel cache on disk cannot be read or written.
    **Cure**: free space or permissions there, or another folder; see `python -m fuelnumba cache`.

        a read-only home folder
    """


class BackendError(FuelError):
    """**Cause**: a backend or device is missing, ran out of memory, or reported a failure.
    **Cure**: `python -m fuelnumba doctor` tells what was found.

        fn.ops.add(np.broadcast_to(np.float32(1), (10**7, 10**7)), 1)
    """
