"""Matrix products by groups, un-jitted, against float64 NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from fuelnumba.core import dtypes as dt
from fuelnumba.core.dims import Dim
from fuelnumba.core.layout import contiguous
from fuelnumba.core.ops import GPU, Operand
from fuelnumba.kernels import gpu_matmul
from fuelnumba.kernels.matmul import matmul

from . import unjitted
from .unjitted import layouts

RTOL = {"f32": 2e-6, "f64": 1e-14, "f16": 1e-3, "bf16": 8e-3}

pytestmark = pytest.mark.usefixtures("group")


def wave(*shape: int) -> np.ndarray:
    return np.sin(np.arange(np.prod(shape)) * 1.7).reshape(shape)


def check(a, b, kernel=None):
    got = unjitted.run(matmul, a, b, backend=GPU, kernel=kernel)
    want = np.matmul(a.astype(np.float64), b.astype(np.float64))
    assert got.dtype == a.dtype and got.shape == want.shape
    rtol = RTOL[dt.of_numpy(a.dtype).name]
    np.testing.assert_allclose(got.astype(np.float64), want, rtol, rtol * 8)


@pytest.mark.parametrize("dtype", dt.FLOATS, ids=str)
@pytest.mark.parametrize("m, k, n", [(1, 1, 1), (2, 8, 3), (5, 7, 9), (16, 8, 4), (17, 17, 19), (3, 40, 2)])
def test_tiles_of_all_sizes(dtype, m, k, n):
    a, b = wave(m, k).astype(dtype.numpy), wave(k, n).astype(dtype.numpy)
    check(a, b, "group_tiles")


@pytest.mark.parametrize("tm, tn", [(2, 2), (4, 2), (2, 8), (8, 8)])
def test_tiles_of_a_thread(monkeypatch, tm, tn):
    monkeypatch.setattr(gpu_matmul, "tile", lambda *known: (tm, tn))
    check(wave(19, 9).astype(np.float32), wave(9, 21).astype(np.float32), "group_tiles")


def test_layouts_of_both_sides():
    a, b = wave(2, 5, 6).astype(np.float32), wave(2, 6, 7).astype(np.float32)
    for left in layouts(a).values():
        check(left, b)
    for right in layouts(b).values():
        check(a, right)
    check(np.ascontiguousarray(a.transpose(0, 2, 1)).transpose(0, 2, 1), np.ascontiguousarray(b.transpose(0, 2, 1)).transpose(0, 2, 1))
    check(np.broadcast_to(a[:1], (3, 5, 6)), np.broadcast_to(b[0], (3, 6, 7)))


@pytest.mark.parametrize("dtype", dt.FLOATS, ids=str)
@pytest.mark.parametrize("k, n", [(1, 1), (4, 8), (7, 3), (64, 5), (64, 12), (600, 2), (200, 16), (33, 40), (500, 64)])
def test_a_row_times_a_matrix(dtype, k, n):
    a, b = wave(1, k).astype(dtype.numpy), wave(k, n).astype(dtype.numpy)
    check(a, b, "group_gemv_columns")
    check(a, np.ascontiguousarray(b.T).T, "group_gemv_rows")


def test_batches_of_rows():
    a, b = wave(3, 1, 24).astype(np.float32), wave(3, 24, 8).astype(np.float32)
    check(a, b, "group_gemv_columns")
    check(a, np.ascontiguousarray(b.transpose(0, 2, 1)).transpose(0, 2, 1), "group_gemv_rows")


def test_nothing_to_multiply():
    for m, k, n in ((0, 3, 2), (2, 0, 3), (1, 0, 3), (2, 3, 0), (1, 3, 0)):
        check(np.zeros((m, k), np.float32), np.zeros((k, n), np.float32))


@pytest.mark.parametrize("dtype", dt.INTS, ids=str)
def test_integers_wrap(dtype):
    r = np.random.default_rng(0)
    info = np.iinfo(dtype.numpy)
    a, b = (r.integers(info.min, info.max, shape, dtype.numpy) for shape in ((3, 9), (9, 5)))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(unjitted.run(matmul, a, b, backend=GPU), a @ b)


def test_infinities_stay_in_their_rows_and_columns():
    a, b = np.ones((5, 9), np.float32), np.ones((9, 7), np.float32)
    a[4, 8] = np.inf  # the last row and column, which places past the edge read
    b[8, 6] = 2
    want = np.full((5, 7), 9.0)
    want[:, 6] = 10
    want[4] = np.inf
    np.testing.assert_array_equal(unjitted.run(matmul, a, b, backend=GPU), want)


def test_sizes_of_tiles():
    assert gpu_matmul.tile(4096, 4096, 1, 16, 8) == (8, 8)
    assert gpu_matmul.tile(4096, 4096, 1, 16, 4) == (4, 4)
    assert gpu_matmul.tile(512, 512, 1, 16, 8) == (2, 2)
    assert gpu_matmul.tile(8, 49152, 1, 16, 8) == (2, 8)
    assert gpu_matmul.tile(64, 64, 500, 16, 8) == (4, 4)
    assert gpu_matmul.tile(Dim({("n",): 1}), 64, 1, 16, 8) == (4, 4)


def test_symbolic_lengths():
    n = Dim({("n",): 1})
    row, matrix = Operand(contiguous((1, n)), dt.f32), Operand(contiguous((n, 64)), dt.f32)
    launch = gpu_matmul.launch_gemv_columns([row, matrix], [], {})
    assert launch.finish is not None and launch.bake["FOURS"]
    assert gpu_matmul.launch_tiles([Operand(contiguous((n, n)), dt.f32)] * 2, [], {}).bake["place"] == "i64"
