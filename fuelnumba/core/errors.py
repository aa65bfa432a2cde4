"""Every error a user can meet: one tree, each class with its cause, its cure and an example, a program that raises it.

All constructors read `SomeError(what, *, where=None, cure=None)`. `what` says what happened, with shapes and
dtypes; `where` is the user's line; `cure` says what to do. `str(error)` puts the three together:

    bool() of a traced value
      --> /home/me/model.py:12, in f
       |
    12 |     if x > 0:
       |        ^^^^^
       = use np.where(cond, a, b)

Where a built-in exception has the same meaning, the class inherits it too: `except ValueError` keeps working.
docs/errors.md is made of these docstrings, with what the examples print.
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
    "DeviceLostError",
    "DonationError",
    "FuelError",
    "FuelIndexError",
    "GraphError",
    "InputArrayError",
    "LeakedTracerError",
    "NoBackendForOp",
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
    "UnsupportedAttributeError",
    "UnsupportedFunctionError",
]


class FuelError(Exception):
    """Base of all errors of fuelnumba.

    **Cause**: see the subclass. **Cure**: see the subclass, or the line after `=` in the message.

        import numpy as np
        import fuelnumba as fn

        @fn.jit
        def halves(x):
            return x.reshape(2, -1)

        try:
            halves(np.ones(5))
        except fn.errors.FuelError as err:
            print(err.what, err.where, err.cure, sep=" | ")
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

        import numpy as np
        import fuelnumba as fn

        @fn.jit
        def project(x, w):
            return x @ w

        try:
            project(np.ones((2, 3)), np.ones((4, 5)))
        except fn.errors.ShapeError as err:
            print(err)
    """


class DTypeError(FuelError, TypeError):
    """**Cause**: the operation is not defined for this dtype, or the dtype is none of ours.
    **Cure**: cast with `x.astype(...)` first.

        import numpy as np
        import fuelnumba as fn

        @fn.jit
        def lookup(table, at):
            return table[at * 2]

        try:
            lookup(np.ones((5, 8)), np.array([0.0, 1.0]))
        except fn.errors.DTypeError as err:
            print(err)
    """


class AxisError(FuelError, ValueError, IndexError):
    """**Cause**: an axis lies outside the rank of the array, or is named twice.
    **Cure**: use an axis from `-x.ndim` to `x.ndim - 1`, each one once.

        import numpy as np
        import fuelnumba as fn

        @fn.jit
        def total(x):
            return x.sum(axis=2)

        try:
            total(np.ones((3, 4)))
        except fn.errors.AxisError as err:
            print(err)
    """


class ArgumentError(FuelError, TypeError):
    """**Cause**: wrong number of arguments, an argument of a type that cannot be traced, or a parameter that makes no sense.
    **Cure**: pass arrays, Python scalars, or lists, tuples, dicts, dataclasses of them; mark others static.

        import numpy as np
        import fuelnumba as fn

        @fn.jit
        def scale(x, mode):
            return x * 2 if mode == "up" else x / 2

        try:
            scale(np.ones(3), "up")
        except fn.errors.ArgumentError as err:
            print(err)
    """


class PromotionError(FuelError, TypeError):
    """**Cause**: arrays that are to be joined have no common dtype: the 8-bit floats meet nothing but themselves.
    **Cure**: cast one of them, so that the choice is visible.

        import numpy as np
        from ml_dtypes import float8_e5m2

        import fuelnumba as fn

        try:
            fn.ops.concat(np.ones(3, float8_e5m2), np.ones(3, np.float32))
        except fn.errors.PromotionError as err:
            print(err)
    """


class InputArrayError(FuelError, ValueError):
    """**Cause**: an argument or a captured array has a form kernels cannot read: big-endian, misaligned, object
    dtype, masked, `np.matrix`.
    **Cure**: convert it before the call; the message says how.

        import numpy as np
        import fuelnumba as fn

        @fn.jit
        def double(x):
            return x * 2

        try:
            double(np.ones(3, ">f4"))
        except fn.errors.InputArrayError as err:
            print(err)
    """


class FuelIndexError(FuelError, IndexError):
    """**Cause**: an index was out of range: one written in the program, or one held by an array when the kernel ran.
    **Cure**: correct or clip the indices; the message has the index and the length of the axis.

    The slice that the index belongs to is not written, and there is no result. The function can be called again. A donated
    argument keeps what earlier launches of the same call wrote into it.

        import numpy as np
        import fuelnumba as fn

        @fn.jit
        def rows(table, at):
            return np.take(table, at, axis=0) * 2

        try:
            rows(np.ones((5, 8)), np.array([0, 7]))
        except fn.errors.FuelIndexError as err:
            print(err)
    """


class DonationError(FuelError):
    """**Cause**: a donated argument cannot be written to: it is read-only, not C-contiguous, or shares memory with another.
    **Cure**: do not donate it, or pass a copy.

        import numpy as np
        import fuelnumba as fn

        @fn.jit(donate="cache")
        def put(cache, row):
            return fn.ops.write_slice(cache, row, at=(0, 0))

        cache = np.zeros((4, 2))

        try:
            put(cache, cache[1:2])
        except fn.errors.DonationError as err:
            print(err)
    """


# Python meets a traced value --------------------------------------------------------------------------------


class TracingError(FuelError, TypeError):
    """**Cause**: the function did something with a traced value that a graph cannot hold (see the subclasses), or an op was
    to be recorded where nothing is traced.
    **Cure**: see the subclasses. A traced value has a shape and a dtype, but no numbers yet.

        import numpy as np
        import fuelnumba as fn
        from fuelnumba.core.ops import OPS
        from fuelnumba.trace.apply import apply

        try:
            apply(OPS["relu"], np.ones(3))
        except fn.errors.TracingError as err:
            print(err)
    """


class TracedBoolError(TracingError):
    """**Cause**: `if`, `while`, `and`, `or`, `not` or `assert` on a traced value.
    **Cure**: `np.where(cond, a, b)`, `&` `|` `~`, or a static argument.

        import numpy as np
        import fuelnumba as fn

        @fn.jit
        def sign(x):
            if x.sum() > 0:
                return x
            return -x

        try:
            sign(np.ones(3))
        except fn.errors.TracedBoolError as err:
            print(err)
    """


class TracedConversionError(TracingError):
    """**Cause**: `int()`, `float()`, `complex()` or use as an index or a size, on a traced value.
    **Cure**: keep it an array (`x.astype(...)`), or make the argument static.

        import numpy as np
        import fuelnumba as fn

        @fn.jit
        def first(x, n):
            return x[:n]

        try:
            first(np.ones(3), 2)
        except fn.errors.TracedConversionError as err:
            print(err)
    """


class TracedIterationError(TracingError):
    """**Cause**: iteration over, or unpacking of, a traced value.
    **Cure**: use whole-array operations, or index with static positions: `for i in range(len(x)): x[i]`.

        import numpy as np
        import fuelnumba as fn

        @fn.jit
        def total(x):
            return sum(row * 2 for row in x)

        try:
            total(np.ones((3, 4)))
        except fn.errors.TracedIterationError as err:
            print(err)
    """


class TracedMutationError(TracingError):
    """**Cause**: an in-place NumPy write into a traced value. (`x += 1` is fine: it rebinds the name.)
    **Cure**: `np.where`, `np.concatenate`, or `fn.ops.write_slice`, which give a new value.

        import numpy as np
        import fuelnumba as fn

        @fn.jit
        def clear_first(x):
            x[0] = 0
            return x

        try:
            clear_first(np.ones(3))
        except fn.errors.TracedMutationError as err:
            print(err)
    """


class TracedToNumpyError(TracingError):
    """**Cause**: code outside fuelnumba wants a traced value's memory: `np.asarray`, `__array__`, C code.
    **Cure**: stay within the covered NumPy functions, or call that code outside the jitted function.

        import numpy as np
        import scipy.linalg

        import fuelnumba as fn

        @fn.jit
        def evolve(x):
            return scipy.linalg.expm(x) @ x

        try:
            evolve(np.ones((3, 3)))
        except fn.errors.TracedToNumpyError as err:
            print(err)
    """


class UnsupportedFunctionError(TracingError):
    """**Cause**: this NumPy function is not covered. The message names it and the nearest covered ones.
    **Cure**: write it with covered functions; [numpy.md](numpy.md) lists them.

        import numpy as np
        import fuelnumba as fn

        @fn.jit
        def blocks(x, y):
            return np.kron(x, y)

        try:
            blocks(np.ones((2, 2)), np.ones((3, 3)))
        except fn.errors.UnsupportedFunctionError as err:
            print(err)
    """


class UnsupportedAttributeError(UnsupportedFunctionError, AttributeError):
    """**Cause**: a traced value has no attribute or method of this name.
    **Cure**: the message names the nearest there are.

        import numpy as np
        import fuelnumba as fn

        @fn.jit
        def steps(x):
            return x * x.strides[0]

        try:
            steps(np.ones(3))
        except fn.errors.UnsupportedAttributeError as err:
            print(err)
    """


class LeakedTracerError(TracingError):
    """**Cause**: a traced value outlived its trace, in a global, a closure, an attribute or a container.
    **Cure**: return it from the function instead.

        import numpy as np
        import fuelnumba as fn

        seen = {}

        @fn.jit
        def remember(x):
            seen["latest"] = x * 2
            return x

        try:
            remember(np.ones(3))
        except fn.errors.LeakedTracerError as err:
            print(err)
    """


class StaleCaptureError(TracingError):
    """**Cause**: the function reads something outside its arguments that is too large to watch for changes.
    **Cure**: pass it as an argument.

        import numpy as np
        import fuelnumba as fn

        table = list(range(100_000))

        @fn.jit
        def scaled(x):
            return x * table[3]

        try:
            scaled(np.ones(3))
        except fn.errors.StaleCaptureError as err:
            print(err)
    """


# From graph to machine --------------------------------------------------------------------------------------


class GraphError(FuelError):
    """**Cause**: a graph broke a rule of the verifier. When fuelnumba built it, this is a bug in a pass.
    **Cure**: report it with the printed graph.

        import numpy as np
        import fuelnumba as fn
        from fuelnumba.core import ir

        @fn.jit
        def grow(x):
            return np.exp(x)

        grow(np.ones(3))
        broken = ir.Graph([], grow.graph.outputs)  # without its input

        try:
            ir.verify(broken)
        except fn.errors.GraphError as err:
            print(err)
    """


class NoKernelError(FuelError, NotImplementedError):
    """**Cause**: no kernel is bound for this operation with these dtypes on this backend. The message tells
    what is bound nearby and why it refused.
    **Cure**: cast to a bound dtype, or run on a backend that has it.

        import numpy as np
        import fuelnumba as fn

        x = np.ones((2,) * 6)  # six axes longer than 1

        try:
            fn.ops.write_slice(np.zeros((3,) * 6), x, at=(0,) * 6)
        except fn.errors.NoKernelError as err:
            print(err)
    """


class NoBackendForOp(NoKernelError):
    """**Cause**: a device has no kernel for this operation with these dtypes, or lacks what its kernel needs (f64, say). The
    message tells what is bound nearby. Nothing of the call has run.
    **Cure**: cast to a dtype that the device has; bring the operands elsewhere with `fuelnumba.to_device`; or allow all
    such operations to run on the CPU: `jit(fallback="cpu")`.

        import numpy as np
        import fuelnumba as fn

        x = np.ones((2,) * 6, np.float32)  # six axes longer than 1

        with fn.device("vulkan"):
            try:
                fn.ops.write_slice(np.zeros((3,) * 6, np.float32), x, at=(0,) * 6)
            except fn.errors.NoBackendForOp as err:
                print(err)
    """


class CompileError(FuelError):
    """**Cause**: Numba refused a kernel: one that you registered, or one of ours.
    **Cure**: of yours, see Numba's words in the message and the error's `__cause__`; of ours, report it with the kernel's
    file, which the message names.

        import numba
        import numpy as np
        import fuelnumba as fn

        @numba.njit
        def my_exp(x, out):
            out[:] = x.no_such_attribute

        fn.register_kernel("exp", ("f64", "f64"), my_exp)

        try:
            fn.ops.exp(np.zeros(3))
        except fn.errors.CompileError as err:
            print(err)
        finally:
            fn.unregister_kernel("exp", ("f64", "f64"))
    """


class CacheError(FuelError):
    """**Cause**: the kernel cache on disk cannot be read or written.
    **Cure**: free space or permissions there, or another folder; see `python -m fuelnumba cache`.

        import os
        import pathlib

        import numpy as np
        import fuelnumba as fn

        before = os.environ.get("FUELNUMBA_CACHE_DIR")
        pathlib.Path("a-file").touch()
        os.environ["FUELNUMBA_CACHE_DIR"] = "a-file"
        try:
            fn.ops.log1p(np.ones(3))
        except fn.errors.CacheError as err:
            print(err)
        finally:
            os.environ.pop("FUELNUMBA_CACHE_DIR")
            if before is not None:
                os.environ["FUELNUMBA_CACHE_DIR"] = before
    """


class BackendError(FuelError):
    """**Cause**: a backend or device is missing, ran out of memory, or reported a failure.
    **Cure**: `python -m fuelnumba doctor` tells what was found.

        import numpy as np
        import fuelnumba as fn

        try:
            fn.ops.add(np.broadcast_to(np.float32(1), (10**7, 10**7)), 1)
        except fn.errors.BackendError as err:
            print(err)
    """


class DeviceLostError(BackendError):
    """**Cause**: the driver gave up a device: a kernel ran for too long, or the device was reset or taken away. The message
    names the launch that was under way.
    **Cure**: open the device again; what its memory held is gone.

        import fuelnumba as fn
        from fuelnumba.vk import api

        try:
            api.check(-4, "waiting for softmax on llvmpipe")  # as if the driver had answered that
        except fn.errors.DeviceLostError as err:
            print(err)
    """
