"""Where the Python array API standard (2025.12) and fuelnumba meet: what is offered, and the reasoned departures.

The names are the standard's; `tests/conformance/test_array_api.py` compares them with array-api-strict, and
exercises every departure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..trace import numpy_api

VERSION = "2025.12"

_FUNCTIONS = """
abs acos acosh add all any arange argmax argmin argsort asarray asin asinh astype atan atan2 atanh bitwise_and
bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor broadcast_arrays broadcast_shapes
broadcast_to can_cast ceil clip concat conj copysign cos cosh count_nonzero cumulative_prod cumulative_sum diff divide
empty empty_like equal exp expand_dims expm1 eye finfo flip floor floor_divide from_dlpack full full_like greater
greater_equal hypot iinfo imag isdtype isfinite isin isinf isnan less less_equal linspace log log10 log1p log2
logaddexp logical_and logical_not logical_or logical_xor matmul matrix_transpose max maximum mean meshgrid min minimum
moveaxis multiply negative nextafter nonzero not_equal ones ones_like permute_dims positive pow prod real reciprocal
remainder repeat reshape result_type roll round searchsorted sign signbit sin sinh sort sqrt square squeeze stack std
subtract sum take take_along_axis tan tanh tensordot tile tril triu trunc unique_all unique_counts unique_inverse
unique_values unstack var vecdot where zeros zeros_like
"""
_LINALG = """
cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank matrix_transpose outer pinv
qr slogdet solve svd svdvals tensordot trace vecdot vector_norm
"""
_FFT = "fft fftfreq fftn fftshift hfft ifft ifftn ifftshift ihfft irfft irfftn rfft rfftfreq rfftn"
NAMES = (*_FUNCTIONS.split(), *(f"linalg.{n}" for n in _LINALG.split()), *(f"fft.{n}" for n in _FFT.split()))

# These take no arrays, so NumPy's own run while tracing, and what they make is a constant of the graph.
ORDINARY = ("arange", "asarray", "broadcast_shapes", "eye", "finfo", "from_dlpack", "iinfo", "isdtype", "linspace")
# Why a function is not offered, where that is not the want of a kernel.
REASONS = {
    "the shape of the result depends on the data": (
        "nonzero", "unique_all", "unique_counts", "unique_inverse", "unique_values"),
    "its result is complex, and complex numbers are not supported": (
        "fft.fft", "fft.fftn", "fft.hfft", "fft.ifft", "fft.ifftn", "fft.ihfft", "fft.irfft", "fft.irfftn", "fft.rfft",
        "fft.rfftn"),
}
NO_KERNEL = "there is no kernel for it yet"


@dataclass(frozen=True)
class Departure:
    """One rule of the standard (or, where it leaves a choice, of NumPy) that is not followed."""

    name: str  # what the tests call it
    where: str
    rule: str
    here: str
    why: str


DEPARTURES: tuple[Departure, ...] = ()


def is_covered(name: str) -> bool:
    """Whether NumPy has a function of this name that works on traced values."""
    value: Any = np
    for part in name.split("."):
        value = getattr(value, part, None)
    return value in numpy_api.UFUNCS or value in numpy_api.FUNCTIONS


def offered() -> list[str]:
    return [n for n in NAMES if is_covered(n)]


def missing() -> dict[str, list[str]]:
    """Reason -> the functions that are not offered for it."""
    known = {n: reason for reason, names in REASONS.items() for n in names}
    out: dict[str, list[str]] = {}
    for n in NAMES:
        if not is_covered(n) and n not in ORDINARY:
            out.setdefault(known.get(n, NO_KERNEL), []).append(n)
    return out
