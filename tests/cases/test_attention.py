"""Attention: which key head a query head reads, the cap before the mask, unused cache rows, queries that see nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fuelnumba as fn
from fuelnumba import ops

F32 = np.float32
NAN, INF = math.nan, math.inf
FLOATS = pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16], ids=["f32", "f64", "f16"])


def rows(*values: Any, dtype: Any = F32) -> Any:
    """[1, 1, length, width] of a list of numbers or rows."""
    x = np.array(values, dtype)
    return x.reshape(1, 1, len(values), -1)


def close(got: Any, expected: Any, rtol: float = 1e-6) -> None:
    np.testing.assert_allclose(got.astype(np.float64).ravel(), np.ravel(expected), rtol=2e-3 if got.dtype == np.float16 else rtol)


def weighted(scores: Any, values: Any) -> Any:
    """softmax(scores) @ values, in float64."""
    e = np.exp(np.array(scores, np.float64) - max(scores))
    return e / e.sum() @ np.array(values, np.float64)


# ------------------------------------------------------------------------------------------------ grouped heads
@FLOATS
def test_neighbouring_query_heads_share_a_key_head(dtype: Any) -> None:
    """With one key the result is that key's value. Heads 0 and 1 read key head 0; modulo 2 it would be 0 and 2."""
    q, k = np.ones((1, 4, 1, 2), dtype), np.ones((1, 2, 1, 2), dtype)
    v = np.array([[[[1, 2]], [[30, 40]]]], dtype)
    for causal in (False, True):
        got = ops.attention(q, k, v, scale=1.0, causal=causal)
        assert got.tolist() == [[[[1, 2]], [[1, 2]], [[30, 40]], [[30, 40]]]]


def test_six_query_heads_on_three_and_on_one() -> None:
    q = np.ones((2, 6, 1, 4), F32)
    for heads in (6, 3, 2, 1):
        v = np.arange(2 * heads, dtype=F32).reshape(2, heads, 1, 1)
        got = ops.attention(q, np.ones((2, heads, 1, 4), F32), v, scale=1.0, causal=False)
        assert got[:, :, 0, 0].tolist() == [[b * heads + h // (6 // heads) for h in range(6)] for b in range(2)]
    with pytest.raises(fn.errors.ShapeError):
        ops.attention(q, np.ones((2, 4, 1, 4), F32), np.ones((2, 4, 1, 4), F32))


def test_products_of_grouped_heads() -> None:
    b = np.array([[[[5.0]], [[7.0]]]], F32)
    assert ops.matmul(np.ones((1, 4, 1, 1), F32), b).tolist() == [[[[5]], [[5]], [[7]], [[7]]]]
    a = np.arange(1, 7, dtype=F32).reshape(6, 1, 1)
    assert ops.matmul(a, np.array([10.0, 100.0, 1000.0], F32).reshape(3, 1, 1)).ravel().tolist() == [10, 20, 300, 400, 5000, 6000]


# ------------------------------------------------------------------------------------------------ soft cap
@FLOATS
def test_the_cap_comes_before_the_mask(dtype: Any) -> None:
    """Capped afterwards, a hidden key's -inf becomes -cap, and its value leaks into the result."""
    q, k = rows(3.0, -2.0, 4.0, dtype=dtype), rows(2.0, 5.0, -3.0, dtype=dtype)
    v = rows([1.0, 0.0], [10.0, -4.0], [100.0, 7.0], dtype=dtype)
    got = ops.attention(q, k, v, scale=1.0, causal=True, softcap=1.0)
    expected = [weighted([math.tanh(float(q[0, 0, i, 0]) * float(k[0, 0, j, 0])) for j in range(i + 1)], v[0, 0, :i + 1]) for i in range(3)]
    assert got[0, 0, 0].tolist() == [1, 0], "the first query sees the first key only"
    close(got, expected, 1e-5)
    np.testing.assert_allclose(expected, [[1, 0], [5.498490933744661, -1.9993293038865159], [11.489310778498236, -1.4295897056450686]])


def test_the_cap_holds_large_scores() -> None:
    """Scores of 3e30 become 30: both keys count alike."""
    close(ops.attention(rows(1e20), rows(3e10, 2e10), rows(1.0, 3.0), scale=1.0, causal=False, softcap=30.0), [2.0])


# ------------------------------------------------------------------------------------------------ unused rows of a cache
@FLOATS
def test_rows_past_the_length_are_not_read(dtype: Any) -> None:
    """A weight of 0 times NaN or infinity is NaN: hiding the score does not help."""
    q, k, v = rows(0.5, dtype=dtype), rows(1, 2, NAN, NAN, dtype=dtype), rows(10, 20, NAN, INF, dtype=dtype)
    close(ops.attention(q, k, v, np.array([2]), scale=1.0, causal=False), [10 + 10 / (1 + math.exp(-0.5))])
    close(ops.attention(q, k, v, np.array(2), scale=1.0, causal=True), [10 + 10 / (1 + math.exp(-0.5))])


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 100, 129])
def test_every_length_of_a_poisoned_buffer(length: int) -> None:
    """Keys are read in blocks; the last block ends where the length does."""
    k, v = np.full((1, 1, 130, 4), NAN, F32), np.full((1, 1, 130, 3), INF, F32)
    k[:, :, :length], v[:, :, :length] = 0, np.arange(length)[:, None]
    got = ops.attention(np.ones((1, 1, 1, 4), F32), k, v, np.array(length), causal=False)
    close(got, [(length - 1) / 2] * 3)


def test_pages_of_a_cache() -> None:
    """Five tokens on pages 2 and 0 of four; what is behind them is NaN, and the third entry of the table names no page."""
    pages_k, pages_v = np.full((4, 4, 1, 1), NAN, F32), np.full((4, 4, 1, 1), NAN, F32)
    pages_k[2, :, 0, 0], pages_v[2, :, 0, 0] = [1, 2, 3, 4], [10, 20, 30, 40]
    pages_k[0, 0], pages_v[0, 0] = 5, 50

    @fn.jit
    def paged(q: Any, pages_k: Any, pages_v: Any, table: Any, length: Any) -> Any:
        k, v = (np.transpose(np.reshape(p[table], (1, -1, 1, 1)), (0, 2, 1, 3)) for p in (pages_k, pages_v))
        return ops.attention(q, k, v, length, scale=1.0, causal=False)

    got = paged(np.full((1, 1, 1, 1), 0.5, F32), pages_k, pages_v, np.array([2, 0, -1], np.int32), np.array([5], np.int32))
    close(got, weighted([0.5 * n for n in range(1, 6)], [10 * n for n in range(1, 6)]))


# ------------------------------------------------------------------------------------------------ queries that see nothing
@FLOATS
def test_a_batch_row_without_keys_is_zero(dtype: Any) -> None:
    """The largest of no scores is -inf, and -inf - -inf is NaN, which may also spread to the next row."""
    q, k = np.ones((2, 1, 1, 1), dtype), np.ones((2, 1, 2, 1), dtype)
    v = np.array([3, 5, 7, 9], dtype).reshape(2, 1, 2, 1)
    close(ops.attention(q, k, v, np.array([0, 2]), scale=1.0, causal=False), [0, 8])
    close(ops.attention(q, k, v, np.array([1, 0]), scale=1.0, causal=False, softcap=2.0), [3, 0])


def test_more_queries_than_keys() -> None:
    """The last query sees all keys, so of three queries on two keys the first sees none."""
    q, k, v = np.zeros((1, 1, 3, 1), F32), np.zeros((1, 1, 2, 1), F32), rows(3.0, 5.0)
    close(ops.attention(q, k, v, scale=1.0, causal=True), [0, 3, 4])
    close(ops.attention(np.zeros((1, 1, 5, 1), F32), k, v, scale=1.0, causal=True), [0, 0, 0, 3, 4])


def test_no_keys_at_all() -> None:
    got = ops.attention(np.ones((1, 2, 3, 4), F32), np.ones((1, 2, 0, 4), F32), np.ones((1, 2, 0, 5), F32), causal=False)
    assert got.shape == (1, 2, 3, 5) and not got.any()


def test_causal_queries_over_a_buffer_by_hand() -> None:
    """Two queries, three of four rows valid: the first sees two keys, the second three."""
    q, k = rows([1, 0], [0, 1]), rows([1, 0], [0, 1], [1, 1], [NAN, NAN])
    v = rows([5, 6], [7, 8], [9, 10], [NAN, NAN])
    got = ops.attention(q, k, v, np.array(3), scale=1.0)
    e = math.e
    close(got, [[(5 * e + 7) / (e + 1), (6 * e + 8) / (e + 1)], [(5 + 16 * e) / (1 + 2 * e), (6 + 18 * e) / (1 + 2 * e)]])


@pytest.mark.parametrize("keys", [5, 64, 150])
def test_scores_far_apart(keys: int) -> None:
    """exp(1000) overflows unless the largest score is subtracted first, in whichever block it comes."""
    for at in {0, keys // 2, keys - 1}:
        k, v = np.full((1, 1, keys, 1), -1e4, F32), np.arange(keys, dtype=F32).reshape(1, 1, keys, 1)
        k[0, 0, at] = 1e3
        close(ops.attention(np.ones((1, 1, 1, 1), F32), k, v, scale=1.0, causal=False), [at])
