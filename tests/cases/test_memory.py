"""Sources that overlap what they are written to, writes past the end, foreign byte order, arrays that share memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuelnumba as fn
from fuelnumba import ops

F32 = np.float32
PAST = (fn.errors.ShapeError, fn.errors.FuelIndexError)
DONATED = pytest.mark.parametrize("donate", [(), ("x",)], ids=["copied", "donated"])


# ------------------------------------------------------------------------------------------------ overlap
@DONATED
@pytest.mark.parametrize("shape", [(6,), (2, 3), (1024, 257), (100_003,)])
def test_a_part_is_moved_over_itself(donate: Any, shape: Any) -> None:
    """The copy of the source is left out, and the loop reads what it has just written. By one row down, and by one up."""
    n = shape[0]
    down = fn.jit(lambda x: ops.write_slice(x, x[:n - 1], 1), donate=donate)
    up = fn.jit(lambda x: ops.write_slice(x, x[1:], 0), donate=donate)
    for move, expected in ((down, lambda x: np.concatenate([x[:1], x[:-1]])), (up, lambda x: np.concatenate([x[1:], x[-1:]]))):
        for _ in range(2):  # the second call finds its kernels
            x = np.arange(np.prod(shape), dtype=F32).reshape(shape)
            wanted, before = expected(x), x.copy()
            np.testing.assert_array_equal(move(x), wanted)
            if not donate:
                np.testing.assert_array_equal(x, before)


@DONATED
@pytest.mark.parametrize("n", [6, 7, 1000, 65_537])
def test_a_reversed_view_is_added_in_place(donate: Any, n: int) -> None:
    """x[i] + x[n - 1 - i] is n + 1 for 1, 2, ..., n; read after it was written, the upper half would be larger."""
    def add(x: Any) -> Any:
        x += np.flip(x)
        return x

    def write(x: Any) -> Any:
        return ops.write_slice(x, x + x[::-1], 0)

    for fun in (add, write):
        got = fn.jit(fun, donate=donate if fun is write else ())(np.arange(1, n + 1, dtype=F32))
        assert (got == n + 1).all()


@DONATED
def test_a_transposed_view_is_written_onto_its_matrix(donate: Any) -> None:
    turn = fn.jit(lambda x: ops.write_slice(x, x.T, (0, 0)), donate=donate)
    x = np.arange(70 * 70, dtype=F32).reshape(70, 70)
    np.testing.assert_array_equal(turn(x.copy()), x.T)


@DONATED
def test_the_old_value_is_read_after_the_write(donate: Any) -> None:
    """Recorded later, the reader still sees what was there before."""
    both = fn.jit(lambda x: (ops.write_slice(x, np.full(2, 9.0, F32), 1), x * 2, x[1:3].sum()), donate=donate)
    new, double, total = both(np.arange(1, 6, dtype=F32))
    assert new.tolist() == [1, 9, 9, 4, 5] and double.tolist() == [2, 4, 6, 8, 10] and total == 5


def test_inputs_that_share_memory() -> None:
    x = np.arange(8, dtype=F32)
    f = fn.jit(lambda a, b: (a + b, ops.write_slice(a, b, 0)))
    total, written = f(x[:7], x[1:])
    assert total.tolist() == [1, 3, 5, 7, 9, 11, 13] and written.tolist() == [1, 2, 3, 4, 5, 6, 7] and x.tolist() == [*range(8)]
    with pytest.raises(fn.errors.DonationError):
        fn.jit(lambda a, b: ops.write_slice(a, b, 0), donate="a")(x[:7], x[1:])
    assert x.tolist() == [*range(8)]


# ------------------------------------------------------------------------------------------------ past the end
TRACED = fn.jit(lambda x, s, at: ops.write_slice(x, s, at))
GIVEN = fn.jit(lambda x, s, at: ops.write_slice(x, s, at), donate="x")


@pytest.mark.parametrize(("start", "count"), [(3, 2), (5, 2), (4, 1), (2, 3), (0, 5), (-1, 1), (-4, 2), (2**40, 1)])
def test_writes_past_the_end(start: int, count: int) -> None:
    """Unchecked, memory behind the array is overwritten; moved back to fit, older rows of a cache are."""
    source = np.full((count, 2), 99.0, F32)
    x = np.arange(8, dtype=F32).reshape(4, 2)
    for write in (ops.write_slice, fn.jit(lambda x, s, at: ops.write_slice(x, s, at), static_argnames="at")):
        with pytest.raises(PAST, match="start"):
            write(x, source, start)
    for at in (start, np.array(start, np.int64), *([np.array(start, np.int32)] if start < 2**31 else [])):
        for write in (TRACED, GIVEN):
            with pytest.raises(PAST, match="exceeds the bound" if count > 4 else "start"):
                write(x, source, at)
    np.testing.assert_array_equal(x, np.arange(8).reshape(4, 2))


def test_a_start_past_the_end_of_no_rows() -> None:
    with pytest.raises(PAST, match="start"):
        ops.write_slice(np.zeros((4, 2), F32), np.zeros((0, 2), F32), 5)


def test_writes_that_just_fit() -> None:
    x = np.arange(8, dtype=F32).reshape(4, 2)
    for start, count in [(2, 2), (0, 4), (4, 0), (0, 0), (3, 1)]:
        expected = x.copy()
        expected[start:start + count] = 99
        source = np.full((count, 2), 99.0, F32)
        np.testing.assert_array_equal(ops.write_slice(x, source, start), expected)
        np.testing.assert_array_equal(TRACED(x, source, np.array(start)), expected)
        np.testing.assert_array_equal(TRACED(x, source, start), expected)
    columns = fn.jit(lambda x, s, at: ops.write_slice(x, s, (0, at)))
    assert columns(x, np.full((4, 1), 7.0, F32), 1)[:, 1].tolist() == [7] * 4
    with pytest.raises(PAST, match="start"):
        columns(x, np.full((4, 1), 7.0, F32), 2)


# ------------------------------------------------------------------------------------------------ byte order
@pytest.mark.parametrize("code", [">f4", ">f8", ">f2", ">i4", ">i8", ">i2", ">u4"])
def test_foreign_byte_order_is_refused_by_name(code: str) -> None:
    """Read as it lies there, 1 becomes 4.6e-41, or 16777216."""
    x = np.array([1, 2, 3], code)
    w = np.ones(3, x.dtype.newbyteorder("="))
    captured = fn.jit(lambda w: w + x)
    for call in (lambda: ops.add(x, 1), lambda: fn.jit(lambda x: x + 1)(x), lambda: fn.jit(lambda x, w: np.maximum(w, x))(x, w),
                 lambda: captured(w), lambda: ops.matmul(x, w)):
        with pytest.raises(fn.errors.InputArrayError, match="byte order") as err:
            call()
        assert code in str(err.value)
    got = ops.add(x.astype(x.dtype.newbyteorder("=")), 1)
    assert got.tolist() == [2, 3, 4]


def test_foreign_indices() -> None:
    with pytest.raises(fn.errors.InputArrayError, match="byte order"):
        ops.take(np.arange(5.0), np.array([1, 2], ">i8"), axis=0)


@pytest.mark.parametrize(("dtype", "name"), [("u2", "uint16"), ("u8", "uint64"), ("c8", "complex64")])
def test_dtypes_that_are_not_there_are_named(dtype: str, name: str) -> None:
    with pytest.raises(fn.errors.DTypeError, match=name):
        fn.jit(lambda x: x)(np.zeros(3, dtype))
