"""Reductions of much to few values, and vectors by large matrices: made in parts that threads share, then put together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuelnumba as fn
from fuelnumba import ops

Array = np.ndarray[Any, Any]


pytestmark = pytest.mark.usefixtures("threads_wake")

#        shape, axes: one axis; one of few columns; outer and inner; two axes that do not lie together; a prime length
CASES = [((1_500_007,), None), ((600_001, 3), 0), ((2, 300_001), 1), ((4, 500, 701), (1, 2)), ((131, 5, 1777), (0, 2)), ((1000, 1001), None)]
LAYOUTS = {"contiguous": lambda x: x, "transposed": lambda x: np.asfortranarray(x), "reversed": lambda x: x[::-1].copy()[::-1]}


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i4", "?"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("shape", "axis"), CASES, ids=str)
def test_values(shape: tuple[int, ...], axis: Any, layout: str, dtype: str) -> None:
    x = LAYOUTS[layout]((np.random.default_rng(0).standard_normal(shape) * 3).astype(dtype))
    wide = x.astype(np.float64) if x.dtype.kind == "f" else x
    for name in ("sum", "mean", "max", "min", "any", "all"):
        expected = np.asarray(getattr(np, name)(wide, axis=axis))
        fn.set_num_threads(1)
        alone = getattr(ops, name)(x, axis=axis)
        fn.set_num_threads(3)
        assert getattr(ops, name)(x, axis=axis).tobytes() == alone.tobytes(), f"{name} depends on the number of threads"
        # blocks of 1024 are added in f32: their error grows with the sum of the absolute values
        slack = 0.0 if name not in ("sum", "mean") or dtype in "i4?" else 1e-8 * float(np.abs(wide).mean())
        slack *= wide.size if name == "sum" else 1
        half = 1e-3 if dtype == "f2" else 1e-6
        np.testing.assert_allclose(alone.astype(np.float64), expected.astype(np.float64), rtol=half, atol=slack, err_msg=name)


@pytest.mark.parametrize("place", [0, 1, 46_875, 700_000, 1_499_999, 1_500_006])
def test_a_nan_in_any_part_decides(place: int) -> None:
    x = np.ones(1_500_007, np.float32)
    x[place] = np.nan
    assert np.isnan(ops.max(x)) and np.isnan(ops.min(x)) and np.isnan(ops.sum(x))
    x[place] = 5
    assert ops.max(x) == 5 and ops.sum(x) == 1_500_011


def test_a_product_passes_f32s_range_between() -> None:
    x = np.ones(200_000, np.float32)
    x[[5, 6, 100_000, 199_999]] = 1e30, 1e30, 1e-30, 1e-30
    np.testing.assert_allclose(ops.prod(x), 1.0, rtol=1e-6)


def test_lengths_that_vary() -> None:
    """One plan for all lengths: parts may be empty."""
    total = fn.jit(dims={"x": ("n",)})(lambda x: (x.sum(), x.mean()))
    for n in (5, 2, 31, 32, 33, 64, 1000, 300_007, 40):
        x = np.random.default_rng(n).standard_normal(n)
        got = total(x)
        np.testing.assert_allclose(got, (x.sum(), x.mean()), rtol=1e-12, atol=1e-10)
    assert total.compilations == 1


def test_small_ones_are_one_launch() -> None:
    f = fn.jit(lambda x: x.sum())
    assert f(np.ones(1000, np.float32)) == 1000 and len(f.plan.launches) == 1
    assert f.clear() is None and f(np.ones(1 << 17, np.float32)) == 1 << 17
    assert [s.label for s in f.plan.launches] == ["reduce_rows in parts", "reduce_rows"]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("batch", "k", "n"), [((), 1503, 1601), ((), 67, 5000), ((), 4096, 1024), ((3,), 301, 1100), ((2, 2), 130, 2100)], ids=str)
def test_a_row_by_a_large_matrix(batch: tuple[int, ...], k: int, n: int, dtype: str) -> None:
    r = np.random.default_rng(0)
    a, b = r.standard_normal((*batch, 1, k)).astype(dtype), r.standard_normal((*batch, k, n)).astype(dtype)
    f = fn.jit(lambda a, b: a @ b)
    fn.set_num_threads(1)
    alone = f(a, b)
    assert [s.label for s in f.plan.launches] == ["gemv_columns in parts", "add_parts"]
    fn.set_num_threads(3)
    assert f(a, b).tobytes() == alone.tobytes()
    wide = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(alone, wide, rtol=0, atol=(3e-6 if dtype == "f4" else 1e-14) * np.sqrt(k) * 8)


@pytest.mark.parametrize("stored", ["by rows", "by columns"])
def test_a_row_by_a_matrix_of_any_size(stored: str) -> None:
    """Eight rows are read at a time; what is left over, one by one."""
    r = np.random.default_rng(1)
    f = fn.jit(dims={"a": (None, "k"), "b": ("k", "n")} if stored == "by rows" else {"a": (None, "k"), "b": ("n", "k")})(
        (lambda a, b: a @ b) if stored == "by rows" else (lambda a, b: a @ b.T))
    for k in (*range(2, 20), 31, 64):
        for n in (*range(2, 20), 23, 40, 257):
            a = r.integers(-9, 9, (1, k)).astype(np.float32)
            b = r.integers(-9, 9, (k, n) if stored == "by rows" else (n, k)).astype(np.float32)
            np.testing.assert_array_equal(f(a, b), a @ (b if stored == "by rows" else b.T))
    assert "gemv" in f.plan.launches[0].label and f.compilations == 1
