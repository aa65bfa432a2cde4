"""Arguments that cannot be traced: what they are, in words, and what to pass instead. And the arrays that can be."""

from __future__ import annotations

import decimal
import fractions
import numbers
from typing import Any

import numpy as np

from ..core import dtypes as dt
from ..core.dtypes import DType
from ..core.errors import DTypeError, InputArrayError

__all__ = ["check_array", "described", "instead"]

_INSTEAD = {
    "u": "cast it: x.astype(np.int64)",
    "f": "cast it: x.astype(np.float64)",
    "c": "pass its parts as two arrays: x.real and x.imag",
    "M": "pass its ticks: x.view(np.int64)",
    "m": "pass its ticks: x.view(np.int64)",
}


def described(value: Any) -> str:
    """`None`, or `a value of type torch.Tensor`."""
    if value is None:
        return "None"
    kind = type(value)
    module = "" if kind.__module__ in ("builtins", "__main__") else kind.__module__.partition(".")[0] + "."
    return f"a value of type {module}{kind.__qualname__}"


def instead(value: Any, otherwise: str) -> str:
    """What to pass in place of a value that is neither an array nor a Python number; `otherwise` when there is no saying."""
    if hasattr(value, "__cuda_array_interface__") and not hasattr(value, "__array__"):
        return "copy it to the host first, e.g. x.get() of CuPy"
    if hasattr(value, "detach") and hasattr(value, "numpy"):
        return "pass a NumPy array: x.numpy(force=True)"
    if hasattr(value, "toarray"):
        return "pass a dense array: x.toarray()"
    if hasattr(value, "__array__") or isinstance(value, (memoryview, bytearray)) or type(value).__module__ == "array":
        return "pass a NumPy array: np.asarray(x)"
    if isinstance(value, numbers.Complex) and not isinstance(value, numbers.Real):
        return "complex numbers are not supported: pass x.real and x.imag"
    if isinstance(value, (decimal.Decimal, fractions.Fraction)):
        return "pass a float: float(x)"
    if isinstance(value, (set, frozenset, range)) or hasattr(value, "__next__"):
        return "pass an array of its elements: np.array(list(x))"
    return otherwise


def check_array(array: np.ndarray[Any, Any]) -> DType:
    """The dtype of an array kernels can read. Raises InputArrayError or DTypeError."""
    if isinstance(array, np.ma.MaskedArray):
        raise InputArrayError("a masked array cannot be traced", cure="fill it first: x.filled(0), or pass x.data and x.mask")
    if isinstance(array, np.matrix):
        raise InputArrayError("a numpy.matrix cannot be traced", cure="pass a plain array: np.asarray(x)")
    known = dt.of_numpy(array.dtype)
    if known is None:
        given = array.dtype
        if given.names is not None:
            raise DTypeError(f"a structured array with the fields {', '.join(given.names)} cannot be traced",
                             cure=f"pass its fields as arrays: x[{given.names[0]!r}].copy()")
        if given.kind == "O":
            raise InputArrayError("an array of Python objects cannot be traced",
                                  cure="give it a numeric dtype, e.g. x.astype(np.float64)")
        if not given.isnative:
            raise InputArrayError(f"an array of dtype {given.str} is not in this machine's byte order",
                                  cure='convert it: x.astype(x.dtype.newbyteorder("="))')
        words = "strings" if given.kind in "SU" else given
        raise DTypeError(f"an array of {words} is not supported",
                         cure=_INSTEAD.get(given.kind, "the dtypes are " + ", ".join(dt.BY_NAME)))
    if not array.flags.aligned:
        raise InputArrayError("the array is not aligned: its elements do not start at multiples of their size",
                              cure="pass a copy: x.copy()")
    return known
