"""Where the Python array API standard (2025.12) and fuelnumba meet: what is offered, and the reasoned departures.

The names are the standard's; `tests/conformance/test_array_api.py` compares them with array-api-strict, and
exercises every departure.
"""

from __future__ import annotations

from collections.abc import Iterable
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
ORDINARY = ("arange", "asarray", "broadcast_shapes", "eye", "finfo", "from_dlpack", "iinfo", "isdtype", "linspace",
            "fft.fftfreq", "fft.rfftfreq")
# Why a function is not offered, where that is not the want of a kernel.
REASONS = {
    "the shape of the result depends on the data": (
        "nonzero", "unique_all", "unique_counts", "unique_inverse", "unique_values"),
    "complex numbers are not supported": (
        "fft.fft", "fft.fftn", "fft.hfft", "fft.ifft", "fft.ifftn", "fft.ihfft", "fft.irfft", "fft.irfftn", "fft.rfft",
        "fft.rfftn"),
}
NO_KERNEL = "there is no kernel for it yet"


@dataclass(frozen=True)
class Departure:
    """A rule that is not followed; `name` is what the tests call it."""

    name: str
    where: str
    rule: str
    here: str
    why: str


FROM_STANDARD = tuple(Departure(*fields) for fields in (
    ("unsigned sums", "`sum` `prod` `linalg.trace`", "of unsigned integers, `uint64` by default", "`i64`", "there is no `u64`"),
    ("dtypes", "the dtypes", "`uint16`, `uint64`, `complex64` and `complex128` exist", "DTypeError",
     "there are no kernels for them"),
    ("can_cast", "`can_cast`", "False from integers to floats", "NumPy's answer, by its rule 'safe'", "it is NumPy's function"),
    ("numbers of arrays", "`bool(x)` `int(x)` `float(x)` `operator.index(x)`", "the number in an array without axes",
     "an error that names the way out", "the number is not known while tracing"),
    ("assignment", "`x[key] = value`", "writes into x", "TracedMutationError",
     "a graph holds values; `ops.write_slice` makes a new one"),
    ("in place", "`x += y` and its like", "change the array, whatever names it has, and keep its dtype",
     "give the name a new array of the same shape and dtype, cast to it as NumPy casts; other names keep the old one. A NumPy "
     "scalar may change its dtype", "a graph holds values"),
    ("masks", "`x[mask]`", "the elements where a boolean array is True", "DTypeError", "the length depends on the data"),
    ("several index arrays", "`x[i, j]`", "integer arrays as several of the indices", "ArgumentError",
     "one array is a `take`; for more there is no kernel"),
    ("memory", "`asarray(x)` `from_dlpack(x)`", "give an array", "TracedToNumpyError", "a traced value has no memory"),
    ("copy", "`reshape` `astype`", "`copy=False` is an error where a copy is needed", "`copy` has no effect",
     "values do not change, so a copy cannot be told from a view"),
    ("repeats", "`repeat`", "`repeats` may be an array", "a static int only", "the length depends on the data"),
    ("static sizes", "`arange` `eye` `linspace` `zeros`", "take Python numbers",
     "written ones, not those that are arguments of the jitted function",
     "shapes are static; name the argument in static_argnames"),
    ("groups", "`matmul` `@`", "batch shapes that do not broadcast are an error",
     "also allowed where a length of the first is a multiple of that of the second", "grouped attention is written so"),
    ("capabilities", "`x.__array_namespace__()`", "tells what the library of x can do",
     "is NumPy's namespace, which has masks and shapes that depend on data", "NumPy's functions are how traced values are used"),
))
# What the standard leaves open, and NumPy does otherwise.
FROM_NUMPY = tuple(Departure(*fields) for fields in (
    ("arithmetic of bools", "`floor_divide` `remainder` `pow` and shifts of two bools", "`int8`", "DTypeError",
     "seldom meant; a cast says what is"),
    ("squares of bools", "`x**2` of bools", "`int8`", "`i64`", "as bools and ints meet in all other operators"),
    ("products of bools", "`matmul` `tensordot` `linalg.matrix_power` of bools", "`or` of `and`", "DTypeError",
     "there is no kernel"),
    ("bools stay", "`conj` of bools", "`int8`", "`bool`", "the values are the same"),
    ("reciprocal", "`reciprocal` of integers", "integers, 0 beyond 1", "floats", "0 is no reciprocal"),
    ("negative powers", "`pow` of integers", "a negative exponent is a ValueError",
     "in an array, the power rounded towards 0; written out, ArgumentError",
     "what an array holds is not known while tracing, and kernels raise nothing"),
))


def is_covered(name: str) -> bool:
    """Whether NumPy has a function of this name that works on traced values."""
    value: Any = np
    for part in name.split("."):
        value = getattr(value, part, None)
    return value in numpy_api.FUNCTIONS or isinstance(value, np.ufunc) and numpy_api.target_of(value) is not None


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


def _table(departures: Iterable[Departure], rule: str) -> str:
    rows = (f"| {d.where} | {d.rule} | {d.here} | {d.why} |" for d in departures)
    return "\n".join([f"| where | {rule} | fuelnumba | why |", "| --- | --- | --- | --- |", *rows])


def markdown() -> str:
    """What is offered and what is not, for docs/array-api.md."""
    groups: dict[str, list[str]] = {}
    for n in offered():
        groups.setdefault(n.rpartition(".")[0], []).append(n)
    lines = [f"Of {len(NAMES)} functions {len(offered())} work on traced values, {len(ORDINARY)} are NumPy's own.", ""]
    for room, names in groups.items():
        lines += [f"**{room or 'main namespace'}** ({len(names)}): " + " ".join(f"`{n}`" for n in names), ""]
    lines += [f"**NumPy's own** ({len(ORDINARY)}): " + " ".join(f"`{n}`" for n in ORDINARY), "", "Not offered:", ""]
    return "\n".join([*lines, *(f"- {reason}: " + " ".join(f"`{n}`" for n in names) for reason, names in missing().items())])


def departures() -> str:
    return _table(FROM_STANDARD, f"the standard ({VERSION})")


def numpy_departures() -> str:
    return _table(FROM_NUMPY, "NumPy")
