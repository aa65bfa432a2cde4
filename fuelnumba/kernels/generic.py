"""The words of kernels that depend on a dtype, for NumPy: memory access, types by variable, vector functions.

Kernels import them so that they also run un-jitted; the renderer replaces every one. A kernel's parameters
are, in order: pointers to the inputs and outputs, numbers (`int`, `float`), what `Launch.bake` writes into
the source (`bool` flags, whose branches are folded, and `Word`s, names put in place of the parameter),
`status` and `site` if it may fault, and `lo, hi`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuelnumba.core.dims import Extent, product
from fuelnumba.core.dtypes import DType, of_numpy

__all__ = [
    "I", "T", "U", "W", "Word", "ceil_div", "copy_element", "cos", "erf", "exp", "load", "log", "numbered", "pad",
    "sigmoid", "sin", "store", "tanh", "upcast",
]

I = Any  # annotation of a pointer to indices
Word = Callable[..., Any]  # annotation of a baked name


# ---------------------------------------------------------------- memory
def load(p: Any, i: Any) -> Any:
    """Element `i` in its computation type: half types come out as f32."""
    return T(p[i])


def store(p: Any, i: Any, v: Any) -> None:
    """Element `i` becomes `v`, rounded to the dtype behind `p`."""
    p[i] = v


def copy_element(to: Any, i: Any, src: Any, j: Any) -> None:
    """Element `i` of `to` becomes element `j` of `src`, bit by bit."""
    to[i] = src[j]


# ---------------------------------------------------------------- types
def T(x: Any) -> Any:
    """The computation type of type variable T: f32 for the half types, otherwise the type itself."""
    dtype = of_numpy(x.dtype) if isinstance(x, np.generic) else None
    return np.float32(x) if dtype is not None and dtype.compute == "f32" else x


def U(x: Any) -> Any:
    """The computation type of type variable U, that of a result whose dtype is not the operands'."""
    return x


def W(x: Any) -> Any:
    """The wide type of T: f64 for floats, i64 for integers."""
    return np.int64(x) if np.asarray(x).dtype.kind in "iub" else np.float64(x)


# ---------------------------------------------------------------- vector functions (compiled: kernels/vmath)
exp, log, tanh, sin, cos = np.exp, np.log, np.tanh, np.sin, np.cos


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    import scipy.special

    return scipy.special.expit(x)


def erf(x: Any) -> Any:
    """The error function."""
    import scipy.special

    return scipy.special.erf(x)


# ---------------------------------------------------------------- for launch functions and references
def pad(values: Sequence[Extent], count: int, filler: int) -> tuple[Extent, ...]:
    """`count` values: fillers, then `values`."""
    return (filler,) * (count - len(values)) + tuple(values)


def numbered(prefix: str, values: Sequence[Extent]) -> dict[str, Extent]:
    """Parameters n0, n1, ... for a tuple of values."""
    return {f"{prefix}{k}": v for k, v in enumerate(values)}


def ceil_div(a: Extent, b: int) -> Extent:
    return (a + (b - 1)) // b


def upcast(x: Any) -> Any:
    """A reference's input: floats of any width as float64, everything else as it is."""
    x = np.asarray(x)
    dtype: DType | None = of_numpy(x.dtype)
    return x.astype(np.float64) if dtype is not None and dtype.kind in "fs" else x


def split_at(shape: Sequence[Extent], axis: int) -> tuple[Extent, Extent, Extent]:
    """The elements before, on and after an axis."""
    return product(shape[:axis]), shape[axis], product(shape[axis + 1:])
