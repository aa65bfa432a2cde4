"""The pytest plugin as its users meet it: each test here runs pytest on files of its own, in another process."""

from __future__ import annotations

import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from fuelnumba.tools.docs import CHANGES_OUTPUT

pytest_plugins = ["pytester"]

MINE = """
    import numba, numpy as np, pytest

    @numba.njit
    def my_silu(x, out):
        for k in range(x.size):
            v = x.flat[k]
            out.flat[k] = v / (1 + np.exp(-v))

    @numba.njit
    def wrong_silu(x, out):
        for k in range(x.size):
            v = x.flat[k]
            out.flat[k] = v / (1 + np.exp(-v)) + (v == 17.25)
"""


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What pytest prints depends on these."""
    for name in CHANGES_OUTPUT:
        monkeypatch.delenv(name, raising=False)


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-q", "--strict-markers", "-p", "no:cacheprovider", *args)


def test_a_kernel_that_agrees(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=MINE + """
    from fuelnumba.compiler import bindings

    @pytest.mark.parity(op="silu", kernel=my_silu, dtypes=("f32", "f64"))
    def test_my_silu(parity_case):
        assert bindings.current().user
        parity_case.check()

    def test_kernels_are_registered_for_the_test_only():
        assert not bindings.current().user
    """)
    result = run(pytester, "-vv")
    result.assert_outcomes(passed=2 * 8 + 1)
    result.stdout.fnmatch_lines(["*::test_my_silu[[]silu-f32-contiguous-edges[]] PASSED*",
                                 "*::test_my_silu[[]silu-f64-scalar-values[]] PASSED*"])


@pytest.mark.parametrize("ci", ["", "true"], ids=["by hand", "in CI"])
def test_a_kernel_that_is_wrong(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ci: str) -> None:
    """What is printed, and that the printed command repeats this case and no other. In CI the summary is not shortened."""
    if ci:
        monkeypatch.setenv("CI", ci)
    pytester.makepyfile(test_mine=MINE + """
    @pytest.mark.parity(op="silu", kernel=wrong_silu, dtypes=["f32"], layouts=["contiguous", "stepped", "scalar"])
    def test_wrong(parity_case):
        parity_case.check()
    """)
    result = run(pytester)
    result.assert_outcomes(failed=2, passed=1)
    message = ["*silu-f32-stepped-values: 1 of 91 values differ", "*first at (?, *): got 18.25, expected 17.25 (5.243e+05 ulp)",
               "*operand 0: f32[[]7, 13[]], strides (78, 3)", "*result: f32[[]7, 13[]]",
               "*run it again with: python -m pytest 'test_mine.py::test_wrong[[]silu-f32-stepped-values[]]'"]
    result.stdout.fnmatch_lines(message)
    commands = list(dict.fromkeys(line.split("with: ")[1] for line in result.outlines if "run it again with: " in line))
    assert len(commands) == 2
    python, *rest = shlex.split(commands[1])
    assert python == "python"
    again = pytester.run(sys.executable, *rest)
    again.assert_outcomes(failed=1)
    again.stdout.fnmatch_lines(message)
    first, second = dict.fromkeys(line.split("first at")[1] for line in result.outlines if "first at" in line)
    assert {line.split("first at")[1] for line in again.outlines if "first at" in line} == {second} != {first}


def test_a_kernel_that_does_not_run(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=MINE + """
    import fuelnumba as fn

    @pytest.mark.parity("silu", kernel=my_silu, dtypes=["f64"], layouts=["contiguous"])
    def test_it(parity_case):
        fn.unregister_kernel("silu", ("f64", "f64"))
        try:
            parity_case.check()
        finally:
            fn.register_kernel("silu", ("f64", "f64"), my_silu)
    """)
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([r".*silu-f64-contiguous-edges: the kernel my_silu did not run, but k_[0-9a-f]{16}$"])


def test_ops_of_the_users_own(pytester: pytest.Pytester) -> None:
    """Declared by a formula, and with a kernel; without samples, and with a parameter that is an axis."""
    pytester.makepyfile(test_mine="""
    import numpy as np, pytest
    import fuelnumba as fn
    from fuelnumba.core import dtypes as dt
    from fuelnumba.core.dims import product
    from fuelnumba.core.ops import CPU, Axis, Launch
    from fuelnumba.core.scalar import maximum, minimum
    from fuelnumba.kernels.generic import T, load, store
    from fuelnumba.kernels.lang import f64

    fn.elementwise("hard_swish", lambda x: x * minimum(maximum(x + 3, 0), 6) / 6)
    running_sum = fn.define_op("running_sum", "reduce", "x", infer=lambda x, axis: x, attrs={"axis": Axis(-1)}, last_axis="axis",
                               domain="float", ref=lambda x, axis: np.cumsum(x, axis))

    def rows_launch(inputs, outputs, attrs):
        cols = inputs[0].shape[-1]
        return Launch({"cols": cols}, total=product(inputs[0].shape[:-1]), cost=4 * cols)

    @running_sum.kernel(CPU, dt.FLOATS, launch=rows_launch)
    def running_sum_rows(x, out, cols: int, lo, hi):
        for row in range(lo, hi):
            total = f64(0.0)
            for j in range(cols):
                total = total + f64(load(x, row * cols + j))
                store(out, row * cols + j, T(total))

    fn.elementwise("half", lambda x: x * 0.5, ref=lambda x: x * 0.25)

    @pytest.mark.parity(op="hard_swish", dtypes=["f32"])
    def test_hard_swish(parity_case):
        parity_case.check()

    @pytest.mark.parity(op="running_sum", dtypes=["f16", "f32"], layouts=["contiguous", "transposed", "empty", "scalar"])
    def test_running_sum(parity_case):
        parity_case.check()

    @pytest.mark.parity(op="half", dtypes=["f32"], layouts=["scalar"])
    def test_half(parity_case):
        parity_case.check()
    """)
    result = run(pytester, "-vv")
    result.assert_outcomes(passed=8 + 2 * (2 + 2 + 2), failed=1)
    result.stdout.fnmatch_lines(["*::test_running_sum[[]running_sum-f16-transposed-1[]] PASSED*",
                                 "*run it again with: python -m pytest 'test_mine.py::test_half[[]half-f32-scalar-values[]]'"])


def test_bad_use_is_told_in_a_line(pytester: pytest.Pytester) -> None:
    bad = {
        "op": ('"silly"', "case", "there is no op 'silly'; python -m fuelnumba ops lists them"),
        "dtype": ('"silu", dtypes=["i32"]', "case", "silu does not serve i32; it serves f16 bf16 f32 f64"),
        "layout": ('"silu", layouts=["diagonal"]', "case",
                   "there is no layout 'diagonal'; the layouts are: contiguous, transposed, broadcast, reversed, stepped, odd, empty, scalar"),
        "kernel": ('"silu", kernel=len', "case", "'len' is not a Numba function; decorate it with numba.njit"),
        "word": ('"silu", dtype="f32"', "case", "got an unexpected keyword argument 'dtype'; the marker is parity(op, kernel=None, "
                 "dtypes=None, layouts=None)"),
        "none": ("", "case", "missing a required argument: 'op'; the marker is parity(op, kernel=None, dtypes=None, layouts=None)"),
        "fixture": ('"silu"', "", "a test with the marker parity takes the argument parity_case"),
    }
    for name, (marker, argument, _) in bad.items():
        argument = argument and "parity_case"
        pytester.makepyfile(**{f"test_{name}": f"import pytest\n\n@pytest.mark.parity({marker})\ndef test_it({argument}):\n    pass\n"})
    pytester.makepyfile(test_unmarked="def test_it(parity_case):\n    pass\n")
    result = run(pytester, "--continue-on-collection-errors")
    result.assert_outcomes(errors=len(bad) + 1)
    for name, (_, _, said) in bad.items():
        assert f"test_{name}.py::test_it: {said}" in result.outlines
    assert "E   Failed: the fixture parity_case needs the marker: @pytest.mark.parity(op=...)" in [
        line.replace("      ", "   ") if line.startswith("E") else line for line in result.outlines] or any(
        line.endswith("the fixture parity_case needs the marker: @pytest.mark.parity(op=...)") for line in result.outlines)
    assert "Traceback" not in result.stdout.str()


def test_pytest_starts_without_fuelnumba(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_plain="""
    import sys

    def test_it(pytestconfig):
        assert any(line.startswith("parity(") for line in pytestconfig.getini("markers"))
        assert "pytest_fuelnumba" in sys.modules and "fuelnumba" not in sys.modules and "numpy" not in sys.modules
    """)
    run(pytester).assert_outcomes(passed=1)


def test_with_xdist(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=MINE + """
    @pytest.mark.parity(op="silu", kernel=my_silu, dtypes=["f32"], layouts=["contiguous", "odd", "empty"])
    def test_my_silu(parity_case):
        parity_case.check()
    """)
    run(pytester, "-n", "2").assert_outcomes(passed=3)


def test_the_entry_point() -> None:
    project = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text("utf-8"))
    assert project["project"]["entry-points"]["pytest11"] == {"fuelnumba": "pytest_fuelnumba"}
    assert "pytest_fuelnumba" in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
