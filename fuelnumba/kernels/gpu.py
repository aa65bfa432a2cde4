"""What the kernels for groups of threads agree on: sizes of groups, and when four neighbours can be read at once."""

from __future__ import annotations

from fuelnumba.core import dtypes as dt
from fuelnumba.core.dims import Extent, divide_exact
from fuelnumba.core.ops import Operand

GROUP = 256  # threads of a group; tests of the interpreter take fewer
FILL = 1024  # groups that keep a large device busy
FOURS = (dt.f32, dt.f16, dt.bf16)  # what `load4` takes


def power_of_two(n: Extent, most: int) -> int:
    """The least power of two that is not below n, at most `most`, which is one; `most` for what is not known."""
    if not isinstance(n, int) or n >= most:
        return most
    return 1 << max(n - 1, 0).bit_length()


def shift(n: int) -> int:
    """The exponent of a power of two."""
    return n.bit_length() - 1


def in_fours(x: Operand, *steps: Extent) -> bool:
    """Whether x can be read by `load4` at multiples of these steps: base addresses are aligned, so its offset and they must be
    multiples of four."""
    return x.dtype in FOURS and all(divide_exact(n, 4) is not None for n in (x.layout.offset, *steps))


def parts_of(count: Extent, groups: Extent, least: int) -> int:
    """Into how many parts work for too few groups is divided, each of `least` steps or more; 1 where it is not. Of what is not
    known, as many as for much."""
    if not isinstance(groups, int) or groups >= FILL // 2 or groups == 0:
        return 1
    wanted = FILL // groups
    return max(min(wanted, count // least), 1) if isinstance(count, int) else min(wanted, 64)


def row_lanes(count: Extent, rows: Extent, each: int) -> int:
    """Lanes of a row: each with some elements, more lanes where the rows are few."""
    lanes = power_of_two((count + (each - 1)) // each, GROUP)
    while isinstance(rows, int) and lanes < GROUP and rows * lanes < FILL * 64 and lanes * 2 <= count:
        lanes *= 2
    return lanes
