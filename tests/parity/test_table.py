"""Every op of the table in every dtype it serves and every layout, against its float64 reference. Nothing here names an op:
cases come from the declarations (fuelnumba.testing.cases). Whether the references are right is asked in test_references."""

from __future__ import annotations

import pytest

from fuelnumba.core import dtypes as dt
from fuelnumba.core.ops import CPU, OPS
from fuelnumba.testing import LAYOUTS, MIXED, cases
from fuelnumba.testing.cases import OUTER

from .batches import batches, elementwise, is_long, run, run_together

OF_ARRAYS = sorted(n for n, op in OPS.items() if op.kind != "leaf" and "uid" not in op.attrs)
STRUCTURED = [n for n in OF_ARRAYS if not OPS[n].is_elementwise]
STRIDED = [la for la in LAYOUTS if la not in ("contiguous", "empty")]
DTYPES = [d.name for d in dt.ALL]


def share(dtype: str) -> slice:
    """What of the mixtures of layouts and of the shapes that broadcast a dtype gets: f32 and i32 all, others a third each."""
    return slice(None) if dtype in ("f32", "i32") else slice(DTYPES.index(dtype) % 3, None, 3)


def mixed(dtype: str) -> tuple[str, ...]:
    return MIXED[share(dtype)]


pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, for infinities and NaN


def served(names: list[str]) -> list[tuple[str, str]]:
    return [(n, d) for n in names for d in OPS[n].dtypes()[CPU]]


def all_agree(found: list[str]) -> None:
    if found:
        pytest.fail(f"{len(found)} cases\n" + "\n\n".join(found), pytrace=False)


def problems(name: str, dtype: str, layouts: list[str], leave_out: str = "none") -> list[str]:
    out = []
    for case in cases(name, [dtype], layouts):
        if case.label.startswith(leave_out):
            continue
        try:
            case.check()
        except AssertionError as err:
            out.append(str(err))
    return out


@pytest.mark.parametrize(("name", "dtype"), served(OF_ARRAYS))
def test_contiguous(name: str, dtype: str) -> None:
    """Alone: edge values with each other, samples, and arrays without elements."""
    all_agree(problems(name, dtype, ["contiguous", "empty"], leave_out="outer"))


@pytest.mark.parametrize(("dtype", "layout"), [(d, la) for d in DTYPES for la in ("contiguous", *STRIDED, *mixed(d))])
def test_elementwise(dtype: str, layout: str) -> None:
    """Operands in a layout, layouts beside each other, and for 'contiguous' shapes that broadcast."""
    outer = tuple(f"outer{k}" for k in range(len(OUTER))[share(dtype)])
    found = (c for c in elementwise(dtype, layout) if not is_long(c) and (layout != "contiguous" or c.label.startswith(outer)))
    all_agree([said for batch in batches(found) for said in run(batch)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_long_elementwise(dtype: str) -> None:
    all_agree(run_together(dtype, STRIDED))


@pytest.mark.parametrize(("name", "dtype"), served(STRUCTURED))
def test_layouts(name: str, dtype: str) -> None:
    several = len(OPS[name].inputs) > 1 or OPS[name].inputs[0].startswith("*")
    all_agree(problems(name, dtype, [*STRIDED, *(mixed(dtype) if several else ())]))
