"""Batches of ops find a wrong op, name it alone, and give the command for its case."""

from __future__ import annotations

import numpy as np
import pytest

from fuelnumba.core.ops import OPS

from .batches import batches, elementwise, is_long, run, run_together
from .test_table import STRIDED

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, for infinities and NaN


def test_a_wrong_op_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPS["sign"], "ref", lambda x: np.sign(x) + (x == 33))
    monkeypatch.setattr(OPS["maximum"], "ref", lambda x, y: np.maximum(x, y) + (x == 33))
    found = (c for c in elementwise("i32", "stepped") if not is_long(c))
    said = sorted(m for batch in batches(found) for m in run(batch))
    assert [m.split(" values")[0] for m in said] == ["maximum-i32-stepped-values: 1 of 91", "sign-i32-stepped-values: 1 of 91"]
    assert said[1].splitlines()[1].endswith(": got 1, expected 2")
    assert said[1].splitlines()[-1] == "run it again with: python -m fuelnumba.testing sign-i32-stepped-values"


def test_a_wrong_op_is_named_with_its_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all layouts are computed at once."""
    monkeypatch.setattr(OPS["exp"], "ref", lambda x: np.exp(x) * (1 + 1e-3 * (np.ndim(x) > 0)))
    said = run_together("f32", STRIDED)
    assert {m.split(":")[0] for m in said} == {f"exp-f32-{layout}-values" for layout in STRIDED if layout != "scalar"}
    assert all(f"run it again with: python -m fuelnumba.testing {m.split(':')[0]}" in m for m in said)


@pytest.mark.parametrize("dtype", ["f32", "i16", "f8e5m2"])
def test_every_case_in_a_layout_is_in_a_batch(dtype: str) -> None:
    """None is lost between the ops that are long to compile and the others, and each stands once."""
    found = list(elementwise(dtype, "stepped"))
    long = [c for c in found if is_long(c)]
    batched = [c for group in (long, [c for c in found if not is_long(c)]) for batch in batches(iter(group)) for c in batch]
    names = {n for n, op in OPS.items() if op.is_elementwise and "uid" not in op.attrs and dtype in op.dtypes()["cpu"]}
    assert sorted(map(str, batched)) == sorted(map(str, found)) and len(set(map(str, found))) == len(found)
    assert {c.op.name for c in found} == names
