"""The float64 references of the op table against independent ones, on the very operands that the parity cases have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuelnumba.core.ops import CPU, OPS
from fuelnumba.testing import cases
from fuelnumba.testing.parity import canonical, wide
from fuelnumba.testing.values import in_dtype

from .references import LOOSE, REFERENCES

PUBLIC = sorted(n for n, op in OPS.items() if op.kind != "leaf" and "uid" not in op.attrs)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, for infinities and NaN


@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n in PUBLIC if n in REFERENCES and n != "cast"
                                             for d in OPS[n].dtypes()[CPU]])
def test_reference(name: str, dtype: str) -> None:
    op = OPS[name]
    found = list(cases(name, [dtype], ["contiguous", "transposed"]))
    assert found
    for case in found:
        operands = [wide(a, op) for a in case.arrays]
        attrs = canonical(op, case.arrays, case.attrs)
        with np.errstate(all="ignore"):
            own, other = np.asarray(case.expected()), np.asarray(REFERENCES[name](*operands, **attrs))
        assert own.shape == other.shape, case
        of = case.aval.dtype
        if of.kind in "fs":
            near = LOOSE.get(name, 1e-14)
            sums = op.kind in ("reduce", "matmul", "norm", "attention")
            term = np.abs(other[np.isfinite(other)]).max(initial=0.0) if sums else 0.0
            np.testing.assert_allclose(own, other, rtol=near, atol=1e-323 + near * term, err_msg=str(case))
        else:
            np.testing.assert_array_equal(in_dtype(of, own), in_dtype(of, other), err_msg=str(case))


def test_independent_references_are_of_ops_that_exist() -> None:
    assert set(REFERENCES) <= set(PUBLIC)


def test_ops_that_have_no_reference_but_their_own(record_property: Any) -> None:
    """Says which they are (`pytest -s`, or the report of --junit-xml); `cast` has test_cast."""
    alone = [n for n in PUBLIC if n not in REFERENCES and n != "cast"]
    record_property("ops checked against their own reference only", ", ".join(alone))
    print(f"ops checked against their own reference only: {', '.join(alone) or 'none'}")
    assert all(OPS[n].ref is not None for n in alone)


#: Formulas whose zeros are those of a rounding or a cancellation, not of IEEE arithmetic on their argument.
SIGN_OF_ZERO_IS_FREE = {"gelu_tanh", "step", "relu"}


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_signs_of_zero(dtype: str) -> None:
    """-0.0 keeps its sign through every op of one operand that has an independent reference."""
    for name in PUBLIC:
        op = OPS[name]
        alone = op.is_elementwise and len(op.inputs) == 1 and not op.attrs and dtype in op.dtypes()[CPU]
        if alone and name in REFERENCES and name not in SIGN_OF_ZERO_IS_FREE:
            case = next(iter(cases(name, [dtype], ["contiguous"])))
            case.check(zero_signs=True)
            with np.errstate(all="ignore"):
                other = np.asarray(REFERENCES[name](*(wide(a, op) for a in case.arrays)))
            own = np.asarray(case.expected())
            zero = (own == 0) & (other == 0)
            np.testing.assert_array_equal(np.signbit(own[zero]), np.signbit(other[zero]), err_msg=name)
