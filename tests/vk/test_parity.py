"""The whole op table on the first Vulkan device: every op, dtype and sample against its float64 reference, as on the CPU. Arrays
go there contiguous, so that the layouts of the CPU's matrix make no difference here; views are in `test_programs`."""

from __future__ import annotations

import numpy as np
import pytest

import fuelnumba as fn
from fuelnumba.core.ops import OPS
from fuelnumba.testing import cases
from fuelnumba.testing.parity import run_op

TABLE = [(op.name, dtype) for op in OPS.values() if op.kind != "leaf" and "uid" not in op.attrs
         for dtype in op.dtypes().get("cpu", ())]


@pytest.mark.parametrize(("name", "dtype"), TABLE, ids=lambda v: v)
def test_every_sample(name: str, dtype: str) -> None:
    wrong, run = [], 0
    for case in cases(name, [dtype], ["contiguous"]):
        before = [a.tobytes() for a in case.arrays]
        with fn.device("vulkan"):
            got, jitted = run_op(case.op, case.arrays, case.attrs)
        run += 1
        problem = case.problem(np.asarray(got))
        if problem is not None:
            wrong.append(f"{case.id}: {problem}")
        assert jitted.plan.backend == "vulkan" and [a.tobytes() for a in case.arrays] == before
    assert run and not wrong, "\n".join(wrong)
