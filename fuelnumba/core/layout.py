"""Where an array's elements lie in its storage: shape, strides and offset in elements. Stride 0 repeats, a negative
stride walks backwards. All functions are pure and work on symbolic extents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .dims import Extent, divide_exact, product, same

Shape = tuple[Extent, ...]


@dataclass(frozen=True)
class Layout:
    shape: Shape
    strides: tuple[Extent, ...]
    offset: Extent = 0

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Extent:
        return product(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """Row-major without gaps, at any offset; axes of length 1 do not matter."""
        expected: Extent = 1
        for n, s in zip(reversed(self.shape), reversed(self.strides)):
            if isinstance(n, int) and n == 0:
                return True
            if same(n, 1):
                continue
            if not same(s, expected):
                return False
            expected = expected * n
        return True

    # -- views
    def permute(self, axes: Sequence[int]) -> Layout:
        return Layout(tuple(self.shape[a] for a in axes), tuple(self.strides[a] for a in axes), self.offset)

    def broadcast_to(self, shape: Shape) -> Layout:
        lead = len(shape) - self.rank
        strides: list[Extent] = [0] * lead
        for n, s in zip(self.shape, self.strides):
            strides.append(0 if same(n, 1) else s)  # a length equal to its target by a guard only keeps its stride
        return Layout(tuple(shape), tuple(strides), self.offset)

    def slice(self, axis: int, start: Extent, length: Extent, step: int = 1) -> Layout:
        s = self.strides[axis]
        return self._with_axis(axis, length, s * step, self.offset + s * start)

    def flip(self, axis: int) -> Layout:
        n, s = self.shape[axis], self.strides[axis]
        return self._with_axis(axis, n, -s, self.offset + s * (n - 1) if n != 0 else self.offset)

    def squeeze(self, axis: int) -> Layout:
        return Layout(self.shape[:axis] + self.shape[axis + 1:], self.strides[:axis] + self.strides[axis + 1:], self.offset)

    def unsqueeze(self, axis: int) -> Layout:
        return Layout(self.shape[:axis] + (1,) + self.shape[axis:], self.strides[:axis] + (0,) + self.strides[axis:],
                      self.offset)

    def reshape(self, shape: Shape) -> Layout | None:
        """The layout of the same elements under another shape, or None when that needs a copy."""
        if self.is_contiguous:
            return contiguous(shape, self.offset)
        old = [(n, s) for n, s in zip(self.shape, self.strides) if not same(n, 1)]
        strides: list[Extent] = []
        k = 0
        for n in shape:  # each new axis takes its extents from the front of what is left of the old ones
            if same(n, 1):
                strides.append(0)
                continue
            if k == len(old):
                return None
            on, os = old[k]
            if same(n, on):
                strides.append(os)
                k += 1
                continue
            inner = divide_exact(on, n)
            if inner is not None:  # split: (on) -> (n, inner)
                strides.append(os * inner)
                old[k] = (inner, os)
                continue
            merged, end = on, k + 1  # merge neighbours that lie one after the other
            stride = os
            while end < len(old) and not same(merged, n):
                mn, ms = old[end]
                if not same(stride, ms * mn):
                    return None
                merged, stride, end = merged * mn, ms, end + 1
            if not same(merged, n):
                return None
            strides.append(stride)
            k = end
        return Layout(tuple(shape), tuple(strides), self.offset) if k == len(old) else None

    def _with_axis(self, axis: int, n: Extent, s: Extent, offset: Extent) -> Layout:
        return Layout(self.shape[:axis] + (n,) + self.shape[axis + 1:],
                      self.strides[:axis] + (s,) + self.strides[axis + 1:], offset)


def contiguous(shape: Sequence[Extent], offset: Extent = 0) -> Layout:
    strides: list[Extent] = []
    step: Extent = 1
    for n in reversed(shape):
        strides.append(step)
        step = step * n
    return Layout(tuple(shape), tuple(reversed(strides)), offset)


def collapse(shape: Shape, operands: Sequence[tuple[Extent, ...]]) -> tuple[Shape, list[tuple[Extent, ...]]]:
    """Drop axes of length 1 and merge neighbouring axes that every operand walks as one.

    Returns the fewest-axes iteration space and each operand's strides in it.
    """
    axes: list[tuple[Extent, list[Extent]]] = []
    for k, n in enumerate(shape):
        if same(n, 1):
            continue
        strides = [op[k] for op in operands]
        if axes:
            pn, ps = axes[-1]
            if all(same(p, s * n) for p, s in zip(ps, strides)):
                axes[-1] = (pn * n, strides)
                continue
        axes.append((n, strides))
    out_shape = tuple(n for n, _ in axes)
    return out_shape, [tuple(s[j] for _, s in axes) for j in range(len(operands))]
