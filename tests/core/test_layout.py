"""Layouts against NumPy's strides."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuelnumba.core.dims import SymEnv, same, same_shape
from fuelnumba.core.layout import Layout, collapse, contiguous

lengths = st.integers(0, 4)
shapes = st.lists(lengths, max_size=4).map(tuple)


def view(layout: Layout, storage: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The elements a layout shows, by NumPy."""
    if 0 in layout.shape:
        return np.zeros(layout.shape, storage.dtype)
    strides = tuple(s * storage.itemsize for s in layout.strides)
    return np.lib.stride_tricks.as_strided(storage[layout.offset:], layout.shape, strides)


@st.composite
def walked(draw: st.DrawFn) -> tuple[Layout, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A layout after some views, its storage, and what NumPy shows after the same views."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple))
    storage = np.arange(int(np.prod(shape)))
    layout, array = contiguous(shape), storage.reshape(shape)
    for _ in range(draw(st.integers(0, 4))):
        rank = layout.rank
        kind = draw(st.sampled_from(["permute", "flip", "slice", "broadcast", "unsqueeze", "squeeze"]))
        axis = draw(st.integers(0, rank - 1)) if rank else 0
        if kind == "permute":
            axes = draw(st.permutations(range(rank)))
            layout, array = layout.permute(axes), array.transpose(axes)
        elif kind == "flip" and rank:
            layout, array = layout.flip(axis), np.flip(array, axis)
        elif kind == "slice" and rank:
            n = array.shape[axis]
            step = draw(st.sampled_from([1, 2, -1, -2]))
            start = draw(st.integers(0, n - 1))
            most = len(range(start, n if step > 0 else -1, step))
            length = draw(st.integers(1, most))
            layout = layout.slice(axis, start, length, step)
            array = array[(slice(None),) * axis + (np.arange(length) * step + start,)]
        elif kind == "broadcast" and rank < 4:
            target = (draw(st.integers(1, 3)), *(draw(st.integers(1, 3)) if n == 1 else n for n in array.shape))
            layout, array = layout.broadcast_to(target), np.broadcast_to(array, target)
        elif kind == "unsqueeze" and rank < 4:
            layout, array = layout.unsqueeze(axis), np.expand_dims(array, axis)
        elif kind == "squeeze" and rank and array.shape[axis] == 1:
            layout, array = layout.squeeze(axis), np.squeeze(array, axis)
    return layout, storage, array


@given(walked())
def test_views(made: tuple[Layout, Any, Any]) -> None:
    layout, storage, array = made
    assert layout.shape == array.shape and layout.size == array.size
    np.testing.assert_array_equal(view(layout, storage), array)


@given(walked())
def test_contiguous_is_what_numpy_calls_so(made: tuple[Layout, Any, Any]) -> None:
    layout, storage, _ = made
    assert layout.is_contiguous == bool(view(layout, storage).flags.c_contiguous)


@given(walked(), st.data())
def test_reshape(made: tuple[Layout, Any, Any], data: st.DataObject) -> None:
    """A view shows NumPy's elements; None only where NumPy would copy too, or lengths regroup in a way we leave to a copy."""
    layout, storage, array = made
    rest, target = array.size, []
    while rest > 1 and len(target) < 3:
        n = data.draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0]))
        target.append(n)
        rest //= n
    target = (*target, rest)
    found = layout.reshape(target)
    if found is not None:
        assert found.shape == target
        np.testing.assert_array_equal(view(found, storage), array.reshape(target))
    if layout.is_contiguous:
        assert found is not None


@pytest.mark.parametrize(("layout", "shape", "strides"), [
    (contiguous((6, 4)), (2, 3, 4), (12, 4, 1)),
    (contiguous((2, 3, 4)), (6, 4), (4, 1)),
    (Layout((6, 4), (1, 6)), (2, 3, 4), (3, 1, 6)),  # split
    (Layout((2, 3, 4), (3, 1, 6)), (6, 4), (1, 6)),  # merge
    (Layout((4,), (0,)), (2, 2), (0, 0)),
    (Layout((6,), (-1,), 5), (3, 2), (-2, -1)),
    (Layout((2, 3), (1, 2)), (6,), None),
    (Layout((3, 1, 2), (2, 0, 1)), (6,), (1,)),
    (Layout((4, 2), (4, 1)), (2, 2, 2), (8, 4, 1)),
    (Layout((4, 2), (4, 1)), (8,), None),
])
def test_reshape_strides(layout: Layout, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> None:
    found = layout.reshape(shape)
    assert (found is None) if strides is None else found is not None and found.strides == strides


@given(walked(), walked())
def test_collapse(one: tuple[Layout, Any, Any], two: tuple[Layout, Any, Any]) -> None:
    """Fewer axes, the same elements in the same order for every operand."""
    layout, storage, array = one
    other = contiguous(layout.shape)
    shape, (a, b) = collapse(layout.shape, [layout.strides, other.strides])
    assert len(shape) <= layout.rank and 1 not in shape
    np.testing.assert_array_equal(view(Layout(shape, a, layout.offset), storage).ravel(), array.ravel())
    flat = np.arange(array.size)
    np.testing.assert_array_equal(view(Layout(shape, b), flat).ravel(), flat)


def test_collapse_of_what_lies_together() -> None:
    assert collapse((2, 3, 4), [(12, 4, 1)]) == ((24,), [(1,)])
    assert collapse((2, 3, 4), [(12, 4, 1), (0, 0, 0)]) == ((24,), [(1,), (0,)])
    assert collapse((2, 3, 4), [(12, 4, 1), (12, 4, 0)]) == ((6, 4), [(4, 1), (4, 0)])
    assert collapse((2, 3), [(3, 1), (1, 2)]) == ((2, 3), [(3, 1), (1, 2)])
    assert collapse((1, 1), [(5, 7)]) == ((), [()])
    assert collapse((2, 1, 3), [(3, 99, 1)]) == ((6,), [(1,)])


@given(shapes)
def test_empty_and_symbolic(shape: tuple[int, ...]) -> None:
    assert contiguous(shape).is_contiguous
    assert contiguous(shape).size == int(np.prod(shape))
    n = SymEnv().symbol("n", 7)
    layout = contiguous((n, *shape))
    assert layout.is_contiguous and layout.strides[0] == int(np.prod(shape)) if 0 not in shape else layout.is_contiguous


def test_symbolic_reshape() -> None:
    env = SymEnv()
    n, m = env.symbol("n", 6), env.symbol("m", 4)
    assert contiguous((n, m)).reshape((n * m,)) == contiguous((n * m,))
    turned = contiguous((n, m, 4)).permute((1, 0, 2))
    assert turned.reshape((m, n * 4)) == Layout((m, n * 4), (4, 1)) or turned.reshape((m, n * 4)) is None
    split = turned.reshape((m, n, 2, 2))
    assert split is not None and [str(s) for s in split.strides] == ["4", "4*m", "2", "1"]


# --------------------------------------------------------------------------------------- axes without elements, Python's slices
@st.composite
def sliced(draw: st.DrawFn) -> tuple[Layout, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """As `walked`, in the middle of its storage, with axes of any length and slices as Python has them."""
    shape = draw(shapes)
    storage = np.arange(int(np.prod(shape)) + 3)
    layout, array = contiguous(shape, 3), storage[3:].reshape(shape)
    for _ in range(draw(st.integers(0, 4)) if shape else 0):
        axis = draw(st.integers(0, array.ndim - 1))
        n = array.shape[axis]
        kind = draw(st.sampled_from(["slice", "slice", "flip", "permute"]))
        if kind == "slice":
            bound = st.none() | st.integers(-n - 1, n + 1)
            s = slice(draw(bound), draw(bound), draw(st.sampled_from([1, 2, 3, -1, -2, -3])))
            places = range(n)[s]
            layout = layout.slice(axis, places.start, len(places), places.step)
            array = array[(slice(None),) * axis + (s,)]
        elif kind == "flip":
            layout, array = layout.flip(axis), np.flip(array, axis)
        else:
            axes = draw(st.permutations(range(array.ndim)))
            layout, array = layout.permute(axes), array.transpose(axes)
    return layout, storage, array


@given(sliced())
def test_slices_and_empty_axes(made: tuple[Layout, Any, Any]) -> None:
    layout, storage, array = made
    assert (layout.shape, layout.rank, layout.size) == (array.shape, array.ndim, array.size)
    np.testing.assert_array_equal(view(layout, storage), array)
    if array.size:
        assert [s for s, n in zip(layout.strides, layout.shape) if n > 1] == [
            s // array.itemsize for s, n in zip(array.strides, array.shape) if n > 1]
        start = array.__array_interface__["data"][0] - storage.__array_interface__["data"][0]
        assert layout.offset == start // array.itemsize


@given(sliced() | walked(), st.data())
def test_reshape_is_a_view_only_where_numpy_has_one(made: tuple[Layout, Any, Any], data: st.DataObject) -> None:
    layout, storage, array = made
    shape = list(array.shape)
    for _ in range(data.draw(st.integers(1, 3))):  # split and join in place
        k = data.draw(st.integers(0, max(len(shape) - 1, 0)))
        if k + 1 < len(shape) and data.draw(st.booleans()):
            shape[k:k + 2] = [shape[k] * shape[k + 1]]
        elif k < len(shape) and shape[k]:
            d = data.draw(st.sampled_from([d for d in range(1, shape[k] + 1) if shape[k] % d == 0]))
            shape[k:k + 1] = [d, shape[k] // d]
    found = layout.reshape(tuple(shape))
    theirs = array.reshape(shape)
    if found is not None:
        np.testing.assert_array_equal(view(found, storage), theirs)
        assert array.size == 0 or np.may_share_memory(theirs, array)
    joined = [k for k in range(array.ndim - 1) if array.size]
    for k in joined:
        merged = (*array.shape[:k], array.shape[k] * array.shape[k + 1], *array.shape[k + 2:])
        assert (layout.reshape(merged) is not None) == np.may_share_memory(array.reshape(merged), array)


@given(shapes, st.lists(st.lists(st.integers(-3, 13), min_size=4, max_size=4), max_size=3), st.booleans())
def test_collapse_walks_the_same_places(shape: tuple[int, ...], many: list[list[int]], plain: bool) -> None:
    operands = [tuple(s[:len(shape)]) for s in many] if not plain else [contiguous(shape).strides, (0,) * len(shape)]
    small, out = collapse(shape, operands)
    assert len(out) == len(operands) and 1 not in small
    for before, after in zip(operands, out):
        walks = [[sum(i * s for i, s in zip(at, strides)) for at in itertools.product(*map(range, lengths))]
                 for lengths, strides in ((shape, before), (small, after))]
        assert walks[0] == walks[1]
    for k in range(len(small) - 1):  # nothing is left to merge
        assert any(s[k] != s[k + 1] * small[k + 1] for s in out)


def test_symbolic_views() -> None:
    env = SymEnv()
    n, m = env.symbol("n", 6), env.symbol("m", 4)
    x = contiguous((n, m, 3), 5)
    assert same_shape(x.strides, (3 * m, 3, 1)) and x.is_contiguous and same(x.size, 3 * n * m)
    turned, flipped, part = x.permute((1, 0, 2)), x.flip(0), x.slice(1, m - 2, 2, -1)
    assert same_shape(turned.strides, (3, 3 * m, 1)) and not turned.is_contiguous
    assert same_shape(flipped.strides, (-3 * m, 3, 1)) and same(flipped.offset, 5 + 3 * m * (n - 1))
    assert same_shape(part.shape, (n, 2, 3)) and same_shape(part.strides, (3 * m, -3, 1)) and same(part.offset, 3 * m - 1)
    assert same_shape(contiguous((1, n)).broadcast_to((m, 7, n)).strides, (0, 0, 1))
    rows = contiguous((n, 8)).slice(1, 0, 4)
    assert rows.reshape((4 * n,)) is None
    assert contiguous((n, m)).permute((1, 0)).reshape((m, 3, n // 3)) is None
    shape, (a, b) = collapse(x.shape, [x.strides, contiguous((m, 3)).broadcast_to(x.shape).strides])
    assert same_shape(shape, (n, 3 * m)) and same_shape(a, (3 * m, 1)) and same_shape(b, (0, 1))
    shape, _ = collapse((n, m), [(4, 1)])  # m is 4 by its hint only
    assert same_shape(shape, (n, m))
    assert env.guards == []
