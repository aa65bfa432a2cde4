"""The benchmarks' own parts, never timed: formulas agree at tiny sizes, failures are reported, documents are written. The
picture is left out, as matplotlib is not among the tests' packages."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuelnumba.models.generate import Statistics

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "benchmarks"))  # the scripts import each other by name

import engines  # noqa: E402
import machine  # noqa: E402
import report  # noqa: E402
import run  # noqa: E402
import starts  # noqa: E402
import workloads  # noqa: E402

OURS = [engines.BY_NAME["numpy"], engines.BY_NAME["fuelnumba"]]
LIMITS = machine.Limits(read=2e10, copy=1e10, sgemm=1e11)


# ------------------------------------------------------------------------------------------------ workloads
@pytest.mark.parametrize("workload", workloads.WORKLOADS, ids=lambda w: w.name)
def test_every_workload_is_right(workload: workloads.Workload) -> None:
    calls, row = run.prepare(workload, OURS, tiny=True)
    assert set(calls) == {"numpy", "fuelnumba"}, row
    assert all(e["error"] < 1e-6 for e in row["engines"].values())  # few numbers are added up here
    assert len(workload.shapes) == len(workload.tiny)
    for shape, tiny in zip(workload.shapes, workload.tiny):
        assert len(shape) == len(tiny)


def test_sizes_are_those_of_the_document() -> None:
    by = workloads.BY_NAME
    assert by["chain-10m"].shapes == ((10_000_000,),) and by["chain-1k"].shapes == ((1_000,),)
    assert by["matmul-rows"].shapes == ((512, 4096), (4096, 4096)) and by["matmul-rows"].flops == 2 * 512 * 4096**2
    assert by["ops-200"].shapes == ((16,), (16,))


def test_the_200_operations_are_200() -> None:
    counts: Counter[str] = Counter()

    class Counted:
        def count(self, name: str) -> Counted:
            counts[name] += 1
            return self

        def __add__(self, _: Any) -> Counted:
            return self.count("add")

        def __sub__(self, _: Any) -> Counted:
            return self.count("subtract")

        def __mul__(self, _: Any) -> Counted:
            return self.count("multiply")

    workloads.many_operations(lambda x: x.count("sin"), lambda x: x.count("tanh"))(Counted(), Counted())
    assert counts == {"add": 40, "subtract": 40, "multiply": 40, "sin": 40, "tanh": 40}
    assert counts.total() == workloads.OPERATIONS


@pytest.mark.parametrize("spoil, message", [
    (lambda x: x * np.float32(1.001), "differs by"),
    (lambda x: x.astype(np.float64), "computed in float64"),
    (lambda x: x[:-1], r"float32\[16\], not float32\[17\]"),
    (lambda x: np.where(x > 0, np.float32(np.nan), x), "differs by nan"),
])
def test_a_wrong_result_is_noticed(spoil: Any, message: str) -> None:
    workload = workloads.BY_NAME["chain-1k"]
    inputs = workload.inputs(tiny=True)
    result = workload.formulas["numpy"](np)(*inputs)
    assert workload.error_of(result, workload.exact(inputs)) < 1e-6
    with pytest.raises(ValueError, match=message):
        workload.error_of(spoil(result), workload.exact(inputs))


def test_long_sums_are_allowed_more() -> None:
    by = workloads.BY_NAME
    assert by["rms_norm"].allowed == 1e-5
    assert by["sum-0"].allowed == pytest.approx(4 * 2.0**-23 * 64) and by["sum-all"].allowed == pytest.approx(2.0**-9)


# ------------------------------------------------------------------------------------------------ engines
def test_engines_that_fail_do_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("no such\nluck")

    ours = OURS[1]
    candidates = [
        OURS[0], replace(ours, name="absent", packages=("no_such_package_at_all",)), replace(ours, name="failing", build=fail),
        replace(ours, name="wrong", fetch=lambda x: np.asarray(x) + 1), replace(ours, name="other", family="numexpr"),
        replace(ours, name="compiled", needs_compiler=True),
    ]
    monkeypatch.setenv("CXX", "no-such-compiler")
    calls, row = run.prepare(workloads.BY_NAME["softmax"], candidates, tiny=True)
    reasons = {name: e.get("missing") for name, e in row["engines"].items()}
    assert list(calls) == ["numpy"]
    assert reasons.pop("wrong").startswith("ValueError: wrong result: differs by")
    assert reasons == {"numpy": None, "absent": "not installed", "failing": "RuntimeError: no such luck", "other": "no formula",
                       "compiled": "not available: no compiler"}


def test_every_engine_has_formulas() -> None:
    for engine in engines.ENGINES:
        assert any(w.has(engine.family) for w in workloads.WORKLOADS), engine.name
    assert {f for w in workloads.WORKLOADS for f in w.formulas} <= {e.family for e in engines.ENGINES}


# ------------------------------------------------------------------------------------------------ measuring
def test_interleave_calls_in_turns() -> None:
    order: list[str] = []
    times = machine.interleave({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=2, inner=3)
    assert "".join(order) == "ab" + ("a" * 4 + "b" * 4) * 2  # a call of each before, and one before each sample
    assert all(t.rounds == 2 and 0 <= t.least <= t.median for t in times.values())


def test_limits() -> None:
    assert LIMITS.least_seconds(read=10**10, written=4, flops=0) == pytest.approx(0.5)
    assert LIMITS.least_seconds(read=10**10, written=10**10, flops=0) == pytest.approx(2.0)
    assert LIMITS.least_seconds(read=8, written=4, flops=10**11) == pytest.approx(1.0)
    measured = machine.measure_limits(megabytes=1)
    assert all(value > 0 for value in measured)


def test_first_call_in_a_child(tmp_path: Path) -> None:
    row = starts.run_child(OURS[0], "chain-1k", str(tmp_path))
    assert row.keys() == {"process", "imports", "first", "second"} and row["process"] > row["first"] > 0
    broken = replace(OURS[0], name="no-such-engine")
    with pytest.raises(RuntimeError, match="KeyError: 'no-such-engine'"):
        starts.run_child(broken, "chain-1k", str(tmp_path))


def test_the_statistics_of_generate_are_understood() -> None:
    printed = str(Statistics(prompt_tokens=5, generated_tokens=29, first_token_seconds=0.42, decode_seconds=0.5,
                             compile_seconds=0.4, kernels_compiled=1, kernels_loaded=14, compilations=2))
    assert starts.parse_statistics(f"Paris.\nIt lies on the Seine.\n{printed}\n") == {
        "tokens": 29, "first_token": 0.42, "tokens_per_second": 56.0, "compiling": 0.4, "kernels_compiled": 1}
    with pytest.raises(RuntimeError, match="generate printed no tokens, first_token"):
        starts.parse_statistics("Paris.\n")


# ------------------------------------------------------------------------------------------------ reports
def results(**ratios: float) -> report.Results:
    """As of a run in which NumPy took 8 ms everywhere, and fuelnumba so much less."""
    rows = []
    for w in workloads.WORKLOADS:
        ratio = ratios.get(w.name.replace("-", "_"), 12.0)
        engine_rows: dict[str, Any] = {"torch": {"missing": "not installed"}, "jax": {"missing": "ValueError: a | b"}}
        for name, r in (("numpy", 1.0), ("fuelnumba", ratio)):
            engine_rows[name] = {"error": 1e-7, "median": 8e-3 / r, "least": 7e-3 / r, "rounds": 9, "ratio": r, "share": 0.25 * r}
        rows.append({"name": w.name, "title": w.title, "read": 4 * 10**6, "written": 4 * 10**6, "flops": w.flops,
                     "least_seconds": 2e-3, "engines": engine_rows})
    first = {"function": "ops-200", "process": 1.5, "imports": 0.3, "first": 0.25, "second": 5e-5, "runs": 3}
    return {"machine": machine.describe(), "limits": LIMITS._asdict(), "quick": False, "workloads": rows,
            "first_calls": [{**first, "engine": "fuelnumba", "cache": "empty"},
                            {"function": "ops-200", "engine": "jax", "cache": "", "missing": "not installed"}],
            "generate": [{"cache": "filled", "tokens": 29, "first_token": 0.42, "tokens_per_second": 42.5, "compiling": 0.4,
                          "kernels_compiled": 0, "process": 5.1, "runs": 3}]}


def test_targets() -> None:
    assert [t["met"] for t in report.targets(results())] == [True] * 4
    missed = report.targets(results(sum_0=0.97, vector_rows=0.5, rms_norm=3.9, chain_10m=9.9, ops_200=4.9))
    assert [t["met"] for t in missed] == [False] * 4
    assert missed[0]["measured"] == "vector-rows 0.50, sum-0 0.97"
    assert missed[1]["measured"] == "softmax 12.00, rms_norm 3.90, layer_norm 12.00"
    few = {**results(), "workloads": []}
    assert [t["met"] for t in report.targets(few)] == [None] * 4


@pytest.mark.parametrize("seconds, text", [
    (4.567e-6, "4.57 us"), (9.9996e-6, "10.0 us"), (123.4e-6, "123 us"), (999.7e-6, "1.00 ms"), (0.01234, "12.3 ms"),
    (0.9996, "1.00 s"), (75.25, "75.2 s"),
])
def test_three_digits(seconds: float, text: str) -> None:
    assert report.seconds_text(seconds) == text


def test_printed_rows() -> None:
    row = results(softmax=6.25)["workloads"][3]
    printed = report.workload_text(row).splitlines()
    assert printed[1] == "softmax 4096 x 1024 (softmax): 8 MB, at the machine's limits 2.00 ms"
    assert printed[2:4] == ["  PyTorch        not installed", "  JAX            ValueError: a | b"]
    assert printed[5] == ("  fuelnumba      median  1.28 ms  least  1.12 ms  x   6.25  of the limit  156%  error 1e-07  "
                          "9 rounds")


def test_written_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_matplotlib(*_: Any) -> None:
        raise ImportError("matplotlib")

    monkeypatch.setattr(report, "write_picture", no_matplotlib)
    page = tmp_path / "docs" / "benchmarks.md"
    page.parent.mkdir()
    page.write_text((ROOT / "docs" / "benchmarks.md").read_text("utf-8"), "utf-8")
    data = results(softmax=6.25)
    written = report.write_all(data, tmp_path)
    assert written[1:] == [page] and json.loads(written[0].read_text("utf-8")) == data == report.read_json(written[0])
    text = page.read_text("utf-8")
    for line in ("| softmax 4096 x 1024 | 8.00 ms | **1.28 ms (6.25)** |", "| softmax 4096 x 1024 | 2.00 ms | 25% | 156% |",
                 "| ops-200 | fuelnumba | empty | 1.50 s | 300 ms | 250 ms | 50.0 us | 3 |",
                 "| ops-200 | JAX |  | not installed |  |  |  |  |",
                 "| filled | 420 ms | 42.5 tokens/s | 400 ms | 0 | 5.10 s |",
                 "| 4 x NumPy on softmax and norms | met | softmax 6.25, rms_norm 12.00, layer_norm 12.00 |"):
        assert line in text.splitlines(), text
    assert "- JAX: ValueError: a \\| b (chain-10m, " in text and "![" not in text and "Where the time goes" in text
    report.write_all(data, tmp_path)
    assert page.read_text("utf-8") == text
    assert "(benchmarks.png)" in report.markdown(data, "benchmarks.png")
    with pytest.raises(ValueError, match="has no <!-- benchmarks -->"):
        report.with_results("# Benchmarks\n", "")


# ------------------------------------------------------------------------------------------------ the command
def test_choosing_names() -> None:
    assert run.chosen("sum, chain-1k", run.NAMES, "benchmark") == ["chain-1k", "sum-0", "sum-1", "sum-all"]
    with pytest.raises(SystemExit, match="there is no benchmark 'sums': chain-10m"):
        run.chosen("sums", run.NAMES, "benchmark")


def test_a_workload_that_fails_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def measure(workload: workloads.Workload, *_: Any) -> Any:
        if workload.name == "sum-0":
            raise MemoryError("too much")
        return results()["workloads"][0]

    monkeypatch.setattr(run, "measure", measure)
    monkeypatch.setattr(machine, "measure_limits", lambda: LIMITS)
    found = run.run(["sum-0", "sum-1"], OURS, quick=True)
    assert len(found["workloads"]) == 1 and found["quick"]
    assert "sum over axis 0 of 4096 x 4096: MemoryError: too much" in capsys.readouterr().out


def test_an_earlier_run_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report.write_json(results(chain_10m=9.0), tmp_path / "a.json")
    assert run.main(["--from", str(tmp_path / "a.json"), "--json", str(tmp_path / "b.json")]) == 0
    assert "10 x NumPy on the chain of 10 M  NOT MET      chain-10m 9.00" in capsys.readouterr().out
    assert report.read_json(tmp_path / "a.json") == report.read_json(tmp_path / "b.json")
    with pytest.raises(SystemExit):
        run.main(["--quick", "--write"])


def test_the_command_shows_its_help() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "benchmarks" / "run.py"), "--help"], capture_output=True, encoding="utf-8")
    assert done.returncode == 0 and "--engines" in done.stdout, done.stderr
