"""The kernel cache on disk, seen by fresh processes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from fuelnumba.compiler import modcache
from fuelnumba.core.errors import CacheError

PROGRAM = """
import os, sys
import numpy as np
import fuelnumba as fn

K = {k}

@fn.jit
def f(x):
    return np.exp(x) * K + x.sum()

@fn.jit
def g(x):
    return x.T @ x

x = np.arange(6, dtype=np.float32).reshape(2, 3) / 6
assert np.allclose(f(x), np.exp(x) * K + x.sum(), rtol=1e-5), f(x)
assert np.allclose(g(x), x.T @ x, rtol=1e-5)
s = fn.cache_stats()
print(s.compiled, s.loaded, s.replaced)
assert ("numba" in sys.modules) is bool(s.compiled)
"""


def start(folder: Path, text: str = PROGRAM.format(k=2.0), **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", text], env={**os.environ, "FUELNUMBA_CACHE_DIR": str(folder), **env},
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> list[int]:
    """What it printed: kernels compiled, loaded, replaced."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return [int(n) for n in out.split()]


def run(folder: Path, text: str = PROGRAM.format(k=2.0), **env: str) -> list[int]:
    return finish(start(folder, text, **env))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    compiled, loaded, replaced = run(folder)
    assert compiled >= 3 and (loaded, replaced) == (0, 0)
    _own[folder] = objects(folder)
    return folder


_own: dict[Path, list[Path]] = {}  # a filled folder's kernels of PROGRAM; other tests may add theirs


def objects(folder: Path) -> list[Path]:
    return _own.get(folder) or sorted(folder.rglob("k_*.o"))


def test_a_second_process_compiles_nothing(filled: Path) -> None:
    count = len(objects(filled))
    assert run(filled) == [0, count, 0]


def test_another_constant_is_another_result(filled: Path) -> None:
    """The kernels are shared, the numbers are not."""
    assert run(filled, PROGRAM.format(k=3.0))[0] == 0


def test_texts_can_be_read(filled: Path) -> None:
    for path in objects(filled):
        text = path.with_suffix(".py").read_text()
        assert text.startswith("# ") and "(args, lo, hi):" in text
    assert not list(filled.rglob("*.tmp"))


@pytest.mark.parametrize("damage", [
    lambda b: b"", lambda b: b[: len(b) // 2], lambda b: b[:-1], lambda b: b[:-40] + bytes([b[-40] ^ 1]) + b[-39:],
    lambda b: b"something else" + b, lambda b: b.replace(b"fuelnumba-object-1", b"fuelnumba-object-0"),
    lambda b: b.split(b"\n", 2)[0] + b"\n{}\n" + b.split(b"\n", 2)[2], lambda b: b.split(b"\n", 2)[0] + b"\n[1]\n" + b.split(b"\n", 2)[2],
    lambda b: b.split(b"\n", 2)[0] + b"\n" + b"\xff" * 10,
], ids=["empty", "half", "short by one", "one bit", "foreign", "other format", "no header", "odd header", "garbage"])
def test_damaged_files_are_made_again(filled: Path, damage) -> None:
    path = objects(filled)[0]
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    count = len(objects(filled))
    assert run(filled) == [1, count - 1, 1]
    assert modcache._read(path, modcache._parsed) is not None
    assert run(filled) == [0, count, 0]


def test_leftovers_of_a_process_that_died(filled: Path) -> None:
    path = objects(filled)[0]
    left = path.with_name(f"{path.name}.1.2.tmp")
    left.write_bytes(b"half")
    path.with_suffix(".lock").touch()
    assert run(filled)[0] == 0
    left.unlink()


def test_two_processes_fill_one_cache(tmp_path: Path) -> None:
    both = [finish(p) for p in [start(tmp_path), start(tmp_path), start(tmp_path)]]
    count = len(objects(tmp_path))
    assert sum(compiled for compiled, _, _ in both) == count  # each kernel once
    assert all(compiled + loaded == count for compiled, loaded, _ in both)
    assert run(tmp_path) == [0, count, 0]


OWN_KERNEL = """
import numpy as np
import fuelnumba as fn
from fuelnumba.core.scalar import call

fn.elementwise("mine", lambda x: x * {factor} + 1)
assert fn.ops is not None
f = fn.jit(lambda x: fn.Tensor.__mul__(apply(x), 1.0))
from fuelnumba.core.ops import OPS
from fuelnumba.trace.apply import apply as record
def apply(x):
    return record(OPS["mine"], x)
assert f(np.ones(3, np.float32)).tolist() == [{factor} + 1] * 3
s = fn.cache_stats()
print(s.compiled, s.loaded, s.replaced)
"""


def test_an_edited_kernel_never_gets_the_old_one(tmp_path: Path) -> None:
    assert run(tmp_path, OWN_KERNEL.format(factor=2)) == [1, 0, 0]
    assert run(tmp_path, OWN_KERNEL.format(factor=3)) == [1, 0, 0]
    assert run(tmp_path, OWN_KERNEL.format(factor=2)) == [0, 1, 0]


def test_settings_of_numba_are_part_of_the_key(filled: Path) -> None:
    assert run(filled, NUMBA_OPT="1")[1] == 0


def test_the_text_and_the_files_it_is_rendered_with_are_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    from fuelnumba.compiler.codegen import Param, Source
    from fuelnumba.core import dtypes as dt

    def source(identity: str, name: str = "x", dtype: dt.DType = dt.f32, label: str = "k") -> str:
        return modcache.key_of(Source(label, (Param(name, "pointer", dtype),), identity, lambda: identity))

    keys = [source("a"), source("b"), source("a", "y"), source("a", dtype=dt.f64), source("a", label="l")]
    assert len(set(keys)) == 5 and source("a") == keys[0]
    package = Path(modcache.__file__).parent.parent
    assert all((package / name).is_file() for name in modcache.RENDERERS)
    monkeypatch.setattr(modcache, "environment", lambda: "other")
    assert source("a") != keys[0]


# ------------------------------------------------------------------------------------------------ the folder
def test_the_folder_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUELNUMBA_CACHE_DIR", str(tmp_path / "new" / "cache"))
    path = modcache.folder()
    assert path == tmp_path / "new" / "cache" / "kernels" and stat.S_IMODE(path.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    monkeypatch.setenv("FUELNUMBA_CACHE_DIR", str(tmp_path))
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels").chmod(mode)
    with pytest.raises(CacheError) as caught:
        modcache.folder()
    assert str(caught.value) == (f"the cache folder {tmp_path}/kernels can be written to by others, who could put code into it\n"
                                 "   = chmod 700 it, or set FUELNUMBA_CACHE_DIR to a folder of your own")


def test_a_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FUELNUMBA_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(CacheError) as caught:
        modcache.folder()
    assert str(caught.value) == (f"cannot make the cache folder {tmp_path}/file/kernels: Not a directory\n"
                                 "   = set FUELNUMBA_CACHE_DIR to a folder you may write to")


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    """/proc refuses new files, also to the super-user, whom permissions do not stop."""
    text = PROGRAM.format(k=2.0).replace("assert np.allclose(f(x)", "try:\n    f(x)\nexcept fn.errors.CacheError as err:\n    print(err)\n"
                                         "    sys.exit(0)\nassert np.allclose(f(x)")
    process = start(Path("/proc/self"), text)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out.startswith("cannot make the cache folder /proc/self/kernels: ") and "set FUELNUMBA_CACHE_DIR" in out


@pytest.mark.parametrize("failing", ["mkdir", "write_bytes"])
def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    """Whatever goes wrong while writing is said clearly, and names the folder."""
    from fuelnumba.compiler.codegen import Param, Source
    from fuelnumba.core import dtypes as dt

    monkeypatch.setenv("FUELNUMBA_CACHE_DIR", str(tmp_path))
    modcache.folder()

    def full(self: Path, *args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device", str(self))

    if failing == "write_bytes":
        monkeypatch.setattr(Path, failing, full)
    else:
        monkeypatch.setattr(Path, "mkdir", lambda self, **kw: full(self) if len(self.name) == 2 else None)
    body = "for i in range(lo, hi):\n    store_out(x, i, f32(1))"
    with pytest.raises(CacheError) as caught:
        modcache.function(Source("full", (Param("x", "pointer", dt.f32),), f"{body} # {failing}", lambda: body))
    assert str(tmp_path) in str(caught.value) and "No space left on device" in str(caught.value)


def test_listing_and_clearing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUELNUMBA_CACHE_DIR", str(tmp_path))
    folder = modcache.folder() / "ab"
    folder.mkdir()
    (folder / "k_1.o").write_bytes(b"12345")
    (folder / "k_1.py").write_bytes(b"123")
    assert [(p.name, n) for p, n in modcache.files()] == [("k_1.o", 5), ("k_1.py", 3)]
    assert modcache.clear() == 1 and modcache.files() == []


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUELNUMBA_CACHE_DIR", str(tmp_path))
    modcache.folder()
    monkeypatch.setattr(os, "getuid", lambda: (tmp_path / "kernels").stat().st_uid + 1)
    with pytest.raises(CacheError) as caught:
        modcache.folder()
    assert str(caught.value) == (f"the cache folder {tmp_path}/kernels can be written to by others, who could put code into it\n"
                                 "   = chmod 700 it, or set FUELNUMBA_CACHE_DIR to a folder of your own")


def test_clearing_leaves_nothing_and_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, _, _ = run(tmp_path)
    monkeypatch.setenv("FUELNUMBA_CACHE_DIR", str(tmp_path))
    names = [p.name for p, _ in modcache.files()]
    assert len(names) == 2 * compiled and len({n.split(".")[0] for n in names}) == compiled
    assert all(size == p.stat().st_size for p, size in modcache.files())
    assert modcache.clear() == compiled
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
    assert run(tmp_path) == [compiled, 0, 0]


# --------------------------------------------------------------------------------------- written kernels
OWN_OP = """
    import numpy as np

    import fuelnumba as fn
    from fuelnumba.core.dtypes import FLOATS
    from fuelnumba.core.ops import Launch
    from fuelnumba.kernels.generic import T, load, store

    plus = fn.define_op("plus_test", "test", "x", infer=lambda x: x, ref=lambda x: x)


    @plus.kernel("cpu", FLOATS, launch=lambda ins, out, attrs: Launch({{}}, ins[0].layout.size, 1, {{"TWICE": {twice}}}))
    def plus_kernel(x, out, TWICE: bool, lo, hi):
        for i in range(lo, hi):
            if TWICE:
                store(out, i, load(x, i) + T({add}) * T(2.0))
            else:
                store(out, i, load(x, i) + T({add}))
"""
USE_OP = """
import numpy as np, own_op
import fuelnumba as fn
print(*fn.ops.plus_test(np.arange(3, dtype=np.float32)).astype(int), *(vars(fn.cache_stats())[k] for k in ("compiled", "loaded")))
"""


def test_an_edited_module_never_gets_an_old_kernel(tmp_path: Path) -> None:
    """Each process finds another text of the same kernel of the same op, or another flag baked into it."""
    def edit(add: float, twice: bool) -> list[int]:
        path = tmp_path / "own_op.py"
        path.write_text(textwrap.dedent(OWN_OP.format(add=add, twice=twice)))
        return run(tmp_path / "cache", USE_OP, PYTHONPATH=str(tmp_path), PYTHONDONTWRITEBYTECODE="1")

    assert edit(1.0, False) == [1, 2, 3, 1, 0]
    assert edit(5.0, False) == [5, 6, 7, 1, 0]
    assert edit(5.0, True) == [10, 11, 12, 1, 0]
    assert edit(1.0, False) == [1, 2, 3, 0, 1]
    assert len(objects(tmp_path)) == 3


def own_kernel(x, out, FLAG: bool, lo, hi) -> None:
    for i in range(lo, hi):
        out[i] = x[i]


def test_what_is_baked_is_part_of_the_key() -> None:
    from fuelnumba.compiler.codegen import kernel_source
    from fuelnumba.core import dtypes as dt
    from fuelnumba.core.ops import Kernel

    kernel = Kernel(own_kernel, "cpu", {"T": (dt.f32, dt.f64)}, lambda *a: None)  # type: ignore[arg-type, return-value]
    sources = [kernel_source(kernel, d, bake) for d in ((dt.f32, dt.f32), (dt.f64, dt.f64))
               for bake in ({"FLAG": False}, {"FLAG": True}, {"FLAG": 2}, {"FLAG": "stack_f32"})]
    assert len({modcache.key_of(s) for s in sources}) == 8
    assert modcache.key_of(kernel_source(kernel, (dt.f32, dt.f32), {"FLAG": True})) == modcache.key_of(sources[1])


# --------------------------------------------------------------------------------------- damage, seen from inside
def test_no_damaged_byte_of_a_file_goes_unnoticed(filled: Path, tmp_path: Path) -> None:
    """Every byte of the header, and some of the code: the file is refused, or read as what it was."""
    path = objects(filled)[0]
    whole, copy = path.read_bytes(), tmp_path / "k.o"
    right = modcache._read(path, modcache._parsed)
    assert right is not None
    start_of_code = len(whole) - len(right[1])
    for at in [*range(start_of_code), *range(start_of_code, len(whole), 997), len(whole) - 1]:
        for flip in (1, 32, 128):
            copy.write_bytes(whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1:])
            assert modcache._read(copy, modcache._parsed) in (None, right), (at, flip)
    for size in [*range(start_of_code + 1), len(whole) - 1]:
        copy.write_bytes(whole[:size])
        assert modcache._read(copy, modcache._parsed) is None
    copy.write_bytes(whole + b"x")
    assert modcache._read(copy, modcache._parsed) is None
    assert modcache._read(tmp_path / "missing", modcache._parsed) is None
    assert modcache._read(tmp_path, modcache._parsed) is None


def test_a_process_that_is_killed_while_it_compiles(tmp_path: Path) -> None:
    compiled, _, _ = run(tmp_path / "whole")
    for k in range(2):  # when the first text is there, and when the first object is
        folder = tmp_path / str(k)
        process = start(folder)
        limit = time.monotonic() + 60
        while not list(folder.rglob("*.o" if k else "k_*.py")) and time.monotonic() < limit and process.poll() is None:
            time.sleep(0.002)
        process.kill()
        process.communicate()
        there = len(objects(folder))
        made, loaded, replaced = run(folder)
        assert (made + loaded, replaced) == (compiled, 0) and loaded >= min(there, compiled)
        assert run(folder) == [0, compiled, 0]


def test_processes_leave_no_half_written_files(tmp_path: Path) -> None:
    for counts in [finish(p) for p in [start(tmp_path), start(tmp_path)]]:
        assert counts[2] == 0
    assert list(tmp_path.rglob("*.tmp")) == []
    assert all(modcache._read(p, modcache._parsed) is not None for p in objects(tmp_path))
    assert all(stat.S_IMODE(p.stat().st_mode) == 0o700 for p in (tmp_path / "kernels").rglob("*") if p.is_dir())


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "kernels").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv("FUELNUMBA_CACHE_DIR", str(tmp_path))
    with pytest.raises(CacheError) as caught:
        modcache.folder()
    assert str(caught.value) == (f"the cache folder {tmp_path}/kernels is a symbolic link, which may lead to a folder of others\n"
                                 "   = remove the link, or set FUELNUMBA_CACHE_DIR to the folder that it leads to")


FULL = """
import resource
import numpy as np
import fuelnumba as fn
add = fn.jit(lambda x: x + 1.25)
before = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (700, before[1]))  # the text of a kernel fits, its code does not
try:
    add(np.ones(3))
except fn.errors.CacheError as err:
    assert "File too large" in str(err) and "make room there" in str(err), err
else:
    raise AssertionError("the disk was not full")
resource.setrlimit(resource.RLIMIT_FSIZE, before)
assert add(np.ones(3)).tolist() == [2.25] * 3
s = fn.cache_stats()
print(s.compiled, s.loaded, s.replaced)
"""


def test_a_disk_that_is_full_and_then_is_not(tmp_path: Path) -> None:
    assert run(tmp_path, FULL) == [1, 0, 0]
    assert list(tmp_path.rglob("*.tmp")) == []
    assert all(modcache._read(p, modcache._parsed) is not None for p in objects(tmp_path))


VANISHING = """
import os, shutil, threading
import numpy as np
import fuelnumba as fn
from fuelnumba.compiler import modcache
place, stop, times = modcache.folder(), threading.Event(), []

def remove():
    while not stop.is_set():
        shutil.rmtree(place, ignore_errors=True)
        times.append(1)
        stop.wait(0.01)

thread = threading.Thread(target=remove)
thread.start()
f = fn.jit(lambda x: (np.exp(x) + x.sum(), x * 2, x @ x))
x = np.arange(4.0)
try:
    results = f(x)
except fn.errors.CacheError:  # when the folder went four times in a row
    results = None
stop.set()
thread.join()
assert times
results = results or f(x)
assert np.allclose(results[0], np.exp(x) + 6) and results[1].tolist() == [0, 2, 4, 6] and results[2] == 14
s = fn.cache_stats()
print(s.compiled, s.loaded, s.replaced)
"""


def test_a_folder_that_is_deleted_while_it_is_used(tmp_path: Path) -> None:
    assert run(tmp_path, VANISHING)[2] == 0
