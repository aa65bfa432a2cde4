"""Conversions between all dtypes, and copies that keep every bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuelnumba
from fuelnumba.testing import LAYOUTS, edge_values, sample_values, with_layout
from fuelnumba.trace.interpret import rounded

from .agree import ALL, EIGHT_BIT, FLOATS, INTS, NUMPY

Array = np.ndarray[Any, Any]
ops = fuelnumba.ops
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, for infinities and NaN


@pytest.mark.parametrize("source", ALL)
@pytest.mark.parametrize("target", ALL)
def test_cast(source: str, target: str) -> None:
    """ml_dtypes and NumPy, where they define the result; floats to integers saturate and NaN gives 0."""
    of = np.dtype(NUMPY[target])
    if source in EIGHT_BIT:
        x = np.arange(256, dtype=np.uint8).view(NUMPY[source])
    else:
        x = np.concatenate([edge_values(source), sample_values(source, 70)])
    got = ops.cast(x, target)
    assert got.dtype == of and got.shape == x.shape
    if target in INTS and source in FLOATS + EIGHT_BIT:
        expected = rounded(x.astype(np.float64), fuelnumba.dtypes.dtype_of(target))
    elif target in INTS:
        expected = x.astype(of)  # integers keep their low bits
    elif target == "bool":
        expected = x.astype(np.float64) != 0
    elif source in INTS and target in (*EIGHT_BIT, "bf16", "f16"):
        expected = x.astype(np.float64).astype(of)  # rounded once, from the exact integer
        if source == "i64":
            expected = x.astype(np.longdouble).astype(np.float64).astype(of)
    elif source in EIGHT_BIT and target in EIGHT_BIT and "f8e8m0" in (source, target):
        expected = x.astype(np.float32).astype(of)  # ml_dtypes has no direct way; f32 holds every value of the source
    elif target == "f8e8m0" and source == "f64":
        expected = np.where(x > 0, np.maximum(x, 2.0**-140), x).astype(of)  # ml_dtypes loses what f32 cannot hold
    else:
        expected = x.astype(of)
    if target in FLOATS + EIGHT_BIT:
        g, e = got.astype(np.float64), expected.astype(np.float64)
        wrong = ~((np.isnan(g) & np.isnan(e)) | (got.view(f"u{of.itemsize}") == expected.view(f"u{of.itemsize}")))
    else:
        wrong = got != expected
    k = int(np.argmax(wrong))
    assert not wrong.any(), f"{int(wrong.sum())} differ; {x[k]!r} gave {got[k]!r}, not {expected[k]!r}" 


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_copy_of_layout(dtype: str, layout: str) -> None:
    """Every dtype in every layout, all bits kept."""
    x = with_layout(sample_values(dtype, (7, 13)), layout)
    got = ops.contiguous(x)
    assert got.dtype == x.dtype and got.shape == x.shape and got.flags.c_contiguous and not np.shares_memory(got, x)
    assert np.ascontiguousarray(x).tobytes() == got.tobytes()
