"""The values and layouts that parity cases are made of."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from fuelnumba.core import dtypes as dt
from fuelnumba.core.errors import ArgumentError
from fuelnumba.core.ops import OPS, elementwise, op
from fuelnumba.testing import LAYOUTS, SAME_VALUES, cases, edge_values, layout_of, sample_values, tolerance, ulp, with_layout
from fuelnumba.testing.values import cast_values, footprint, from_footprint


@pytest.mark.parametrize("d", dt.ALL, ids=str)
def test_edges_are_what_they_say(d: dt.DType) -> None:
    x = edge_values(d)
    assert x.dtype == d.numpy
    if d.is_float:
        x = x.astype(np.float64)
        assert np.isnan(x).sum() == 1 and np.isinf(x).sum() == 2 and (x == 0).sum() == 2 and np.signbit(x[x == 0]).sum() == 1
        info = ml_dtypes.finfo(d.numpy)
        assert {float(info.smallest_subnormal), float(info.max), -float(info.tiny)} <= set(x.tolist())
    elif d.is_integer:
        assert {np.iinfo(d.numpy).min, np.iinfo(d.numpy).max, 0, 1} <= set(x.tolist())


@pytest.mark.parametrize("d", dt.ALL, ids=str)
def test_samples_are_the_same_in_every_process(d: dt.DType) -> None:
    assert sample_values(d, (3, 4), 1).dtype == d.numpy and sample_values(d, (3, 4), 1).shape == (3, 4)
    assert sample_values(d, 99, 1).tobytes() == sample_values(d, 99, 1).tobytes() != sample_values(d, 99, 2).tobytes()


def test_tolerances() -> None:
    assert tolerance("f32") == tolerance(np.float32) == (1e-6, 2e-45)
    assert all(tolerance(d) == (0.0, 0.0) for d in dt.ALL if not d.is_float)
    assert [ulp(1.0, d) for d in ("f64", "f32", "f16", "bf16")] == [2.0**-52, 2.0**-23, 2.0**-10, 2.0**-7]
    assert ulp(0.0, "f16") == ulp(2.0**-20, "f16") == 2.0**-24 and ulp(1023.0, "f16") == 0.5


def test_layouts() -> None:
    """Strides in elements, of a matrix of 5 rows and 7 columns."""
    x = np.arange(35.0).reshape(5, 7)
    strides = {"contiguous": (7, 1), "transposed": (1, 5), "broadcast": (1, 0), "reversed": (-7, -1), "stepped": (42, 3), "odd": (9, 1),
               "empty": (7, 1), "scalar": ()}
    assert set(strides) == set(LAYOUTS)
    for layout, steps in strides.items():
        y = with_layout(x, layout)
        assert tuple(s // 8 for s in y.strides) == steps, layout
        assert not np.shares_memory(x, y)
        if layout in SAME_VALUES:
            assert np.array_equal(x, y)
    assert with_layout(x, "odd").ctypes.data % 16 == 8
    assert with_layout(x, "empty").shape == (0, 7) and with_layout(x, "scalar")[()] == 0
    assert np.array_equal(with_layout(x, "broadcast"), np.repeat(x[:, :1], 7, 1))
    assert layout_of(x) == "C-contiguous" and layout_of(with_layout(x, "reversed")) == "strides (-7, -1)"
    with pytest.raises(ArgumentError, match="no layout 'sideways'"):
        with_layout(x, "sideways")
    with pytest.raises(ArgumentError, match="no element"):
        with_layout(x[:0], "scalar")


@pytest.mark.parametrize("shape", [(), (4,), (5, 6), (2, 3, 4), (3, 0)], ids=str)
def test_layouts_of_any_rank_come_back_from_their_footprint(shape: tuple[int, ...]) -> None:
    x = np.arange(float(np.prod(shape))).reshape(shape)
    for layout in LAYOUTS:
        if layout == "scalar" and x.size == 0:
            continue
        y = with_layout(x, layout)
        elements, first = footprint(y)
        z = from_footprint(elements, first, y.shape, [s // 8 for s in y.strides])
        assert np.array_equal(y, z) and (z.strides == y.strides or y.size == 0)


def test_values_in_other_dtypes() -> None:
    a = np.array([-2.5, 0.0, 1.0, 3.0])
    assert cast_values(a, "bool").tolist() == [False, False, True, True]
    assert cast_values(a, "u8").tolist() == [254, 0, 1, 3] and cast_values(a, "i16").tolist() == [-2, 0, 1, 3]
    assert cast_values(a, "f8e8m0").astype(float).tolist() == [2.0, 0.5, 1.0, 2.0]
    assert cast_values(a, "bf16").astype(float).tolist() == a.tolist()


# ------------------------------------------------------------------------------------------------ cases
@pytest.fixture
def declared() -> object:
    before = set(OPS)
    yield
    for name in set(OPS) - before:
        del OPS[name]


@pytest.mark.usefixtures("declared")
def test_cases_of_a_new_op_need_no_samples() -> None:
    elementwise("twice_or_none", lambda condition, x: x * 2, domain="number")
    found = list(cases("twice_or_none", ["i16"], ["contiguous", "stepped", "scalar+transposed"]))
    assert [c.id for c in found] == ["twice_or_none-i16-contiguous-edges", *(f"twice_or_none-i16-contiguous-outer{k}" for k in range(6)),
                                     "twice_or_none-i16-stepped-values", "twice_or_none-i16-scalar+transposed-values"]
    assert [a.dtype for a in found[0].arrays] == [np.bool_, np.int16]
    assert [a.shape for a in found[-1].arrays] == [(7, 13), ()]
    np.testing.assert_array_equal(found[0].expected(), found[0].arrays[1] * 2)

    op("pick_axes", "reduce", "x", infer=OPS["sum"].infer, attrs=OPS["sum"].attrs, ref=OPS["sum"].ref, domain="sum",
       decompose=lambda build, xs, **attrs: build.op("sum", xs, **attrs))
    attrs = [c.attrs for c in cases("pick_axes", ["f32"], ["contiguous"])]
    assert {"axis": (0, -1), "keepdims": True} in attrs and {"axis": None, "keepdims": False} in attrs


@pytest.mark.usefixtures("declared")
def test_an_op_for_which_no_case_can_be_made_says_so() -> None:
    op("by_shape", "view", "x", infer=OPS["reshape"].infer, attrs=OPS["reshape"].attrs, view=OPS["reshape"].view, ref=OPS["reshape"].ref)
    with pytest.raises(ArgumentError, match="no value can be made for the parameter shape of by_shape"):
        list(cases("by_shape"))
    op("two_rows", "norm", "x weight", infer=OPS["rms_norm"].infer, domain="float", ref=OPS["rms_norm"].ref,
       decompose=lambda build, xs: xs[0])
    with pytest.raises(ArgumentError, match="two_rows refuses the operands that were made for it"):
        list(cases("two_rows"))


@pytest.mark.parametrize("name", sorted(n for n, o in OPS.items() if o.kind != "leaf" and "uid" not in o.attrs))
def test_every_op_has_cases_in_every_dtype_with_ids_of_their_own(name: str) -> None:
    for d in OPS[name].dtypes()["cpu"]:
        found = [c.id for c in cases(name, [d])]
        assert any("-contiguous-" in i for i in found) and any("-stepped-" in i for i in found)
        assert len(set(found)) == len(found)
