"""Comparison by dtype, for tests that have their own expectation."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuelnumba.core import dtypes as dt
from fuelnumba.core.dtypes import dtype_of
from fuelnumba.testing import tolerance
from fuelnumba.testing.parity import problem_of

NUMPY = {d.name: d.numpy for d in dt.ALL}
FLOATS, INTS = (tuple(d.name for d in group) for group in (dt.FLOATS, dt.INTS))
EIGHT_BIT = tuple(d.name for d in dt.ALL if d.is_storage_only)
NUMBERS, ALL = FLOATS + INTS, tuple(NUMPY)
ANY = (*NUMBERS, "bool")


def agree(got: Any, expected: Any, dtype: str, *, rtol: float | None = None, atol: float | None = None) -> None:
    """`got` has the dtype and shape, and the values of `expected` (any float width) once rounded to the dtype."""
    d = dtype_of(dtype)
    usual = tolerance(d)
    problem = problem_of(got, expected, d, (usual[0] if rtol is None else rtol, usual[1] if atol is None else atol))
    assert problem is None, problem


def wide(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Floats in float64; integers and booleans as they are."""
    return x if x.dtype.kind in "iub" else x.astype(np.float64)
