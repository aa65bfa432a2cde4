"""`assert_parity`: what it runs, what it accepts, what a failure says, and that the printed command repeats it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fuelnumba
from fuelnumba import errors, jit, ops
from fuelnumba.core.ops import OPS
from fuelnumba.testing import assert_parity, cases, ulp, with_layout
from fuelnumba.testing.__main__ import main

X = np.linspace(-3, 3, 35, dtype=np.float32).reshape(5, 7)


def message(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        assert_parity(*args, **kwargs)
    return str(caught.value)


# ------------------------------------------------------------------------------------------------ what it runs
def test_ops_by_name_by_definition_and_by_function() -> None:
    for op in ("softmax", OPS["softmax"], ops.softmax):
        assert_parity(op, X, axis=0)
    assert_parity("add", X, 2.5)
    assert_parity(ops.concat, X, X[:2], axis=0)
    assert_parity("cast", X, dtype="i8")
    for dtype in ("f16", "bf16", "f64"):
        assert_parity("exp", X, dtype=dtype)
    assert_parity("mean", np.arange(6, dtype=np.int8))  # computed in floats
    assert_parity("write_slice", np.zeros((4, 3)), np.ones((2, 3)), np.array(1), at=(1, 0), axis=0)


def test_functions() -> None:
    def f(x: Any, y: Any, *, power: int = 2) -> Any:
        return np.tanh(x) * y**power, (x + y).sum(axis=0)

    assert_parity(f, X, X.T.copy().T)
    assert_parity(f, X, X, power=3)
    assert_parity(jit(lambda x: {"a": x * 2, "b": -x}), X)
    assert_parity(lambda x: np.maximum(x, 0), X, dtype="f16")
    assert_parity(lambda x: x * 3, X.astype(ml_dtypes.bfloat16))


def test_a_reference_of_ones_own() -> None:
    assert_parity("negative", X, reference=lambda x: 0 - x)
    assert_parity("negative", X, reference=-X.astype(float))
    assert_parity("exp", X, reference=np.exp(X.astype(float)) * 1.01, rtol=0.02)
    assert "35 of 35 values differ" in message("exp", X, reference=np.exp(X.astype(float)) * 1.01)
    assert_parity("negative", X * 0, reference=X.astype(float) * 0)
    assert "35 of 35 values differ" in message("negative", X * 0, reference=X.astype(float) * 0, zero_signs=True)


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_an_error_of_a_few_ulp_is_found(dtype: str) -> None:
    """Beyond the tolerance by little, in one value; and what is within it passes."""
    of = fuelnumba.dtypes.dtype_of(dtype).numpy
    x = np.ones(9, of)
    wrong = np.ones(9)
    ulps = {"f32": 20, "f64": 60, "f16": 2, "bf16": 2}[dtype]
    wrong[4] += ulps * ulp(1.0, dtype)
    said = message("contiguous", x, reference=wrong)
    assert "contiguous: 1 of 9 values differ\n  first at (4,): got 1" in said and f"({ulps} ulp)" in said
    wrong[4] = 1 + ulp(1.0, dtype) * (4 if ulps > 2 else 0.9)
    assert_parity("contiguous", x, reference=wrong)


def test_nan_and_infinity() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1], np.float32)
    assert_parity("contiguous", x, reference=x)
    assert "first at (0,): got nan, expected 0.0\n" in message("contiguous", x, reference=np.array([0, np.inf, -np.inf, 1]))
    assert "first at (3,): got 1.0, expected nan\n" in message("contiguous", x, reference=np.array([np.nan, np.inf, -np.inf, np.nan]))
    assert "first at (1,): got inf, expected -inf\n" in message("contiguous", x, reference=np.array([np.nan, -np.inf, -np.inf, 1]))
    assert "first at (3,): got 1.0, expected inf\n" in message("contiguous", x, reference=np.array([np.nan, np.inf, -np.inf, np.inf]))
    assert "first at (1,): got inf, expected 1.0\n" in message("contiguous", x, reference=np.array([np.nan, 1, -np.inf, 1]))
    most = np.array([np.finfo(np.float32).max] * 2, np.float32)  # what rounds to the greatest number may be an infinity
    assert_parity("contiguous", most, reference=np.array([np.inf, float(most[0]) * (1 - 5e-7)]))


def test_integers_are_exact_and_dtype_and_shape_are_checked() -> None:
    x = np.array([2**62 + 1, 5], np.int64)
    said = message("contiguous", x, reference=np.array([2**62, 5]))
    assert "1 of 2 values differ\n  first at (0,): got 4611686018427387905, expected 4611686018427387904" in said
    assert "the result has shape (2,) instead of (1, 2)" in message("contiguous", x, reference=x[None])
    assert "the result has dtype f32 instead of f64" in message(lambda y: other_dtype(y), X)


def other_dtype(y: Any) -> Any:
    """f64 of an array, f32 of a traced value."""
    return y.astype(np.float64) if isinstance(y, np.ndarray) else y


# ------------------------------------------------------------------------------------------------ what it says
def test_the_message() -> None:
    y = with_layout(X, "stepped")
    wrong = X.astype(float) + 1.0
    wrong[3, 2] = 7
    said = message("add", y, 1.0, reference=wrong).splitlines()
    assert said[0] == "add: 1 of 35 values differ"
    assert said[1].startswith("  first at (3, 2): got 2.0588236, expected 7.0 (1.036e+07 ulp)")
    assert said[2:5] == ["  operand 0: f32[5, 7], strides (42, 3)", "  operand 1: 1.0", "  result: f32[5, 7]"]
    assert said[5] == ("run it again with: python -m pytest 'tests/testing/test_assert_parity.py::test_the_message'".replace("'", ""))
    assert "  parameters: axis=1, keepdims=True\n" in message("sum", X, axis=1, keepdims=True, reference=np.zeros((5, 1)))


def test_bad_use() -> None:
    for call, said in [((lambda: assert_parity("silly", X)), "there is no op 'silly'"),
                       ((lambda: assert_parity(3, X)), "3 is neither an op nor a function"),
                       ((lambda: list(cases("exp", ["i32"]))), "exp does not serve i32"),
                       ((lambda: list(cases("exp", layouts=["x"]))), "there is no layout 'x'"),
                       ((lambda: list(cases(lambda x: x))), "<lambda> is not an op")]:
        with pytest.raises(errors.ArgumentError, match=re.escape(said)):
            call()


# ------------------------------------------------------------------------------------------------ the printed command
def test_a_case_outside_of_pytest_is_repeated_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    """The operands come back with their strides; the file is read by another process as well."""
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(OPS["exp"], "ref", lambda x: np.exp(x) * (1 + 0.1 * (x > 0.2)))
    for array in (with_layout(X, "stepped"), with_layout(X, "reversed"), with_layout(X, "broadcast")[::-1], X[3:4, 6],
                  np.array(0.3, ml_dtypes.bfloat16)):
        said = message("exp", array)
        path = re.search(r"run it again with: python -m fuelnumba.testing (\S+\.npz)$", said)
        assert path is not None
        assert main([path[1]]) == 1
        assert capsys.readouterr().out.splitlines()[:-1] == said.splitlines()[:-1]
        assert array.flags.c_contiguous or "strides" in said
    done = subprocess.run([sys.executable, "-m", "fuelnumba.testing", path[1]], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{path[1]}: agrees\n", "")  # with the op's own reference


def test_a_case_of_the_table_is_repeated_by_its_id(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    case = next(c for c in cases("exp", ["f32"], ["stepped"]))
    assert case.command == "python -m fuelnumba.testing exp-f32-stepped-values"
    assert main([case.id]) == 0
    assert capsys.readouterr().out == "exp-f32-stepped-values: agrees\n"
    monkeypatch.setattr(OPS["exp"], "ref", lambda x: np.exp(x) * (1 + 1e-5))
    with pytest.raises(AssertionError) as caught:
        case.check()
    assert main([case.id]) == 1
    assert capsys.readouterr().out == f"{caught.value}\n"
    assert f"run it again with: {case.command}" in str(caught.value)
    assert main(["exp-f32-stepped-nothing"]) == 1
    assert "there is no case 'exp-f32-stepped-nothing'" in capsys.readouterr().out
    assert main(["--list", "exp"]) == 0
    assert "exp-bf16-transposed-values" in capsys.readouterr().out.splitlines()
