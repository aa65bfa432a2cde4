"""Shaders compiled in this process, kept on disk, and carried by a wheel."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fuelnumba as fn
from fuelnumba.compiler import modcache
from fuelnumba.compiler.codegen import Source
from fuelnumba.testing import shaders
from fuelnumba.vk import glsl, spirv
from fuelnumba.vk.device import Device

from .on_device import expression, run

VALIDATOR = Path(sys.executable).with_name("spirv-val")


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """An empty cache folder, no wheel, and nothing in memory."""
    monkeypatch.setenv("FUELNUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(spirv, "READY", tmp_path / "shaders")
    monkeypatch.setattr(spirv, "_codes", {})
    monkeypatch.setattr(spirv, "_shaders", {})
    forget()
    yield
    forget()


def forget() -> None:
    spirv._codes.clear()
    spirv._manifest.cache_clear()
    spirv._block.cache_clear()


def kernel(number: int = 0) -> Source:
    return expression(f"x0 * f32(3) + f32({number})", ["f32"], "f32")


def files(source: Source, group: int = 0) -> tuple[Path, Path]:
    """(the text, the code) in the cache folder."""
    key = spirv.key_of(source, group)
    path = modcache.folder() / key[:2] / f"v_{key}.comp"
    return path, path.with_suffix(".spv")


def validate(code: bytes, folder: Path) -> None:
    path = folder / "code.spv"
    path.write_bytes(code)
    said = subprocess.run([VALIDATOR, "--target-env", "vulkan1.2", "--scalar-block-layout", path], capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr


# ------------------------------------------------------------------------------------------------ the cache
def test_text_and_code_are_kept_and_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    code, needs = spirv.code(kernel(), 0)
    text, compiled = files(kernel())
    assert text.read_text() == glsl.shader(kernel()).text and compiled.read_bytes().endswith(code) and needs == set()
    assert {text, compiled} == {p for p, _ in modcache.files()}
    forget()
    monkeypatch.setattr(spirv, "compile_glsl", None)
    assert spirv.code(kernel(), 0) == (code, needs)
    assert modcache.clear() == 1


@pytest.mark.parametrize("damage", [b"", b"fuelnumba-spirv-1\n", b"\xff" * 3000, None])
def test_a_damaged_file_is_made_again(damage: bytes | None) -> None:
    code, _ = spirv.code(kernel(), 0)
    path = files(kernel())[1]
    whole = path.read_bytes()
    path.write_bytes(whole[:-4] if damage is None else damage)
    forget()
    before = modcache.stats.replaced
    assert spirv.code(kernel(), 0)[0] == code
    assert path.read_bytes() == whole and modcache.stats.replaced == before + 1


def test_keys_tell_kernels_and_groups_apart() -> None:
    keys = {spirv.key_of(kernel(a), group) for a in (0, 1) for group in (0, 64, 256)}
    assert len(keys) == 6


def test_threads_get_one_code() -> None:
    start, got = threading.Barrier(8), []

    def ask(number: int) -> None:
        start.wait()
        got.append(spirv.code(kernel(number % 2), 0)[0])

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(got) == 8 and len(set(got)) == 2


# ------------------------------------------------------------------------------------------------ the compiler
def test_a_text_that_does_not_compile_names_kernel_and_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glsl, "shader", lambda source, group=0: glsl.Shader("#version 460\nvoid main() { x = 1; }\n", frozenset()))
    with pytest.raises(fn.errors.CompileError, match=r"expression does not compile: .*undeclared identifier") as told:
        spirv.code(kernel(), 0)
    assert str(files(kernel())[0]) in str(told.value) and files(kernel())[0].exists() and not files(kernel())[1].exists()


def test_without_the_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    spirv._glslang.cache_clear()
    monkeypatch.setattr(spirv, "library_folder", lambda: None)
    with pytest.raises(spirv.CompilerMissing, match=r"pip install fuelnumba\[vulkan\]"):
        spirv.code(kernel(), 0)
    monkeypatch.undo()
    spirv._glslang.cache_clear()


def test_code_is_valid_with_and_without_names(tmp_path: Path, device: Device) -> None:
    x = np.linspace(0, 1, 300, dtype=np.float32)
    for _, source, group in [*shaders.kernels(["softmax", "take", "tanh"])][::4]:
        code = spirv.code(source, group)[0]
        validate(code, tmp_path)
        bare = spirv.without_names(code)
        assert len(bare) < len(code) * 0.9 and b"main" in bare
        validate(bare, tmp_path)
    code, needs = spirv.code(kernel(), 0)
    spirv._codes[spirv.key_of(kernel(), 0)] = spirv.without_names(code), needs
    np.testing.assert_array_equal(run(device, kernel(), [x, x], 300)[1], x * np.float32(3))


# ------------------------------------------------------------------------------------------------ the wheel
@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Shaders of few ops, as a wheel has them."""
    chosen = [*shaders.kernels(["sqrt", "softmax"])]
    monkeypatch.setattr(shaders, "kernels", lambda ops=None: chosen)
    assert shaders.make(spirv.READY) == len(chosen) > shaders.BLOCK // 4
    forget()
    return spirv.READY


def test_ready_shaders_need_no_compiler(made: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(spirv, "compile_glsl", None)
    for _, source, group in shaders.kernels():
        code, needs = spirv.code(source, group)
        assert needs == glsl.shader(source, group).needs
    validate(code, tmp_path)
    assert not modcache.files()


def test_what_is_damaged_in_a_wheel_is_compiled(made: Path) -> None:
    codes = made / spirv.CODES
    whole, (_, source, group) = codes.read_bytes(), shaders.kernels()[0]
    for damaged in (whole[:100], whole[:200] + b"\0" * 50 + whole[250:], b""):
        codes.write_bytes(damaged)
        forget()
        modcache.clear()
        assert spirv.code(source, group)[0].startswith(spirv.MAGIC)
        assert len(modcache.files()) == 2
    (made / spirv.MANIFEST).write_text('{"a": 1')
    forget()
    assert spirv._ready(spirv.key_of(source, group)) is None
    (made / spirv.MANIFEST).write_text(json.dumps({spirv.key_of(source, group): 1}))
    forget()
    assert spirv._ready(spirv.key_of(source, group)) is None


def test_check_tells_what_does_not_fit(made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                       tmp_path: Path) -> None:
    assert shaders.main(["--check", str(made)]) == 0
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        for name in (spirv.MANIFEST, spirv.CODES):
            file.write(made / name, f"fuelnumba/vk/shaders/{name}")
    assert shaders.main(["--check", str(wheel)]) == 0
    chosen = shaders.kernels()
    manifest = json.loads((made / spirv.MANIFEST).read_text())
    other, gone, damaged = [key for key, _, _ in chosen[:3]]
    manifest[other]["text"] = "0"
    manifest["unknown"] = manifest.pop(gone)
    manifest[damaged]["begin"] += 4
    (made / spirv.MANIFEST).write_text(json.dumps(manifest))
    capsys.readouterr()
    assert shaders.main(["--check", str(made)]) == 1
    said = capsys.readouterr().out
    for label, what in zip([s.label for _, s, _ in chosen[:3]], ["the shader was made of another text", "there is no shader",
                                                               "the code is damaged"]):
        assert f"{label}: {what}" in said
    assert "no kernel has this shader" in said and len(said.splitlines()) == 4
    shutil.rmtree(made)
    assert shaders.check(made) == [f"there are no shaders in {made}"]
