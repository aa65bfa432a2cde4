"""Compiled kernels, in memory and on disk.

A kernel's key is the hash of what determines its machine code: its source, the files that kernels are rendered with, the
versions of Numba and llvmlite, and the processor. Under that key the cache folder holds `k_<key>.py`, the flat text one can
read, and `k_<key>.o`, a checked header and the object code, which llvmlite loads without Numba. A file that is damaged or
half-written is noticed by its checksum and made again; two processes that want the same kernel wait for one another.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock  # not where it is needed: hooks at forks of modules that it imports must be older than ours
from platformdirs import user_cache_dir

from ..core.errors import CacheError, CompileError
from .codegen import Source

Found = TypeVar("Found")

KEPT = (".o", ".py", ".spv", ".comp")  # object code and shaders, with their texts
FORMAT = b"fuelnumba-object-1\n"
RENDERERS = ("compiler/flatten.py", "compiler/codegen.py", "compiler/numba_target.py", "kernels/half.py", "kernels/arith.py",
             "kernels/vmath.py", "kernels/intrinsics.py", "core/scalar.py", "core/dtypes.py")


@dataclass
class Stats:
    """What the cache did in this process."""

    compiled: int = 0
    loaded: int = 0
    replaced: int = 0  # damaged files made again
    seconds: float = 0.0


stats = Stats()
_functions: dict[str, int] = {}
_lock = threading.RLock()
_engine: Any = None


def _after_fork() -> None:
    """Python 3.11's cached_property has a lock, one for all instances; a child must not find it held."""
    if hasattr(Source.__dict__["key"], "lock"):
        Source.__dict__["key"].lock = threading.RLock()
    _lock.release()


if hasattr(os, "register_at_fork"):
    # A fork waits for a compilation in another thread: Numba and LLVM have locks of their own, which a child would find held
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork)


def folder() -> Path:
    """The cache folder: $FUELNUMBA_CACHE_DIR, or the user's cache directory. Created private to the user."""
    path = Path(os.environ.get("FUELNUMBA_CACHE_DIR") or user_cache_dir("fuelnumba", appauthor=False)) / "kernels"
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as err:
        raise CacheError(f"cannot make the cache folder {path}: {err.strerror}",
                         cure="set FUELNUMBA_CACHE_DIR to a folder you may write to") from None
    if path.is_symlink():
        raise CacheError(f"the cache folder {path} is a symbolic link, which may lead to a folder of others",
                         cure="remove the link, or set FUELNUMBA_CACHE_DIR to the folder that it leads to")
    if hasattr(os, "getuid"):
        info = path.stat()
        if info.st_uid != os.getuid() or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise CacheError(f"the cache folder {path} can be written to by others, who could put code into it",
                             cure="chmod 700 it, or set FUELNUMBA_CACHE_DIR to a folder of your own")
    return path


@cache
def environment() -> str:
    """The part of every key that is the same for all kernels of a process."""
    import llvmlite
    import llvmlite.binding as llvm

    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for name in RENDERERS:
        digest.update((package / name).read_bytes())
    settings = sorted((k, v) for k, v in os.environ.items() if k.startswith("NUMBA_"))
    features = llvm.get_host_cpu_features().flatten()
    digest.update(repr((metadata.version("numba"), llvmlite.__version__, llvm.get_host_cpu_name(), features,
                        settings)).encode())
    return digest.hexdigest()


def key_of(source: Source) -> str:
    return hashlib.sha256((source.key + environment()).encode()).hexdigest()[:32]


def functions(sources: Sequence[Source], progress: Any = None) -> list[int]:
    """The addresses of the kernels' machine code, compiled if need be. `progress(done, total, label)` is told of each."""
    out = []
    for k, source in enumerate(sources):
        if progress is not None:
            progress(k, len(sources), source.label)
        out.append(function(source))
    if progress is not None:
        progress(len(sources), len(sources), "")
    return out


def function(source: Source) -> int:
    """The address of one kernel's machine code: `void (int64_t *args, int64_t lo, int64_t hi)`."""
    address = _functions.get(source.key)
    if address is not None:
        return address
    with _lock:
        address = _functions.get(source.key)
        if address is None:
            address = _functions[source.key] = _obtain(source)
    return address


def _obtain(source: Source) -> int:
    key = key_of(source)
    path = folder() / key[:2] / f"k_{key}.o"
    start, before = time.perf_counter(), stats.compiled

    def make() -> bytes:
        symbol, code = compile_object(source, path.with_suffix(".py"))
        header = json.dumps({"symbol": symbol, "size": len(code), "sha256": hashlib.sha256(code).hexdigest()})
        return FORMAT + header.encode() + b"\n" + code

    found = obtain(path, _parsed, make)
    if stats.compiled > before:
        stats.seconds += time.perf_counter() - start
    return load_object(*found)


class _Vanished(CacheError):
    """The folder was there, and is not any more."""


def obtain(path: Path, parse: Callable[[bytes], Found | None], make: Callable[[], bytes]) -> Found:
    """What `parse` reads from a file of the cache; `make` gives its contents when it is missing or not whole. Processes that
    want the same file wait for one another."""
    for _ in range(3):
        try:
            return _obtain_once(path, parse, make)
        except _Vanished:  # someone deletes the cache while we use it
            continue
    return _obtain_once(path, parse, make)


def _obtain_once(path: Path, parse: Callable[[bytes], Found | None], make: Callable[[], bytes]) -> Found:
    found = _read(path, parse)
    if found is None:
        try:
            folder()
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with FileLock(path.with_suffix(".lock")):
                found = _read(path, parse)  # another process may have made it while we waited
                if found is None:
                    if path.exists():
                        stats.replaced += 1
                    data = make()
                    replace(path, data)
                    stats.compiled += 1
                    made = parse(data)
                    assert made is not None
                    return made
        except OSError as err:
            kind = _Vanished if isinstance(err, FileNotFoundError) else CacheError
            raise kind(f"cannot write to the cache folder {path.parent}: {err.strerror or err}",
                       cure="make room there, or set FUELNUMBA_CACHE_DIR to another folder") from err
    stats.loaded += 1
    return found


def _read(path: Path, parse: Callable[[bytes], Found | None]) -> Found | None:
    try:
        return parse(path.read_bytes())
    except OSError:
        return None


def _parsed(data: bytes) -> tuple[str, bytes] | None:
    """(symbol, object code) of a cache file, or None when it is not whole."""
    if not data.startswith(FORMAT):
        return None
    try:
        header, code = data[len(FORMAT):].split(b"\n", 1)
        about = json.loads(header)
        symbol = str(about["symbol"])
        if (hashlib.sha256(code).hexdigest() == about["sha256"] and len(code) == about["size"]
                and symbol.encode() + b"\0" in code):  # the checksum is not that of the header
            return symbol, code
    except (ValueError, KeyError, TypeError):
        pass
    return None


def replace(path: Path, data: bytes) -> None:
    """Put a file in the place of another at once."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)  # half of a file on a full disk
        raise


def compile_object(source: Source, module_path: Path) -> tuple[str, bytes]:
    """Compile a kernel with Numba: (symbol, object code). The flat text is left at `module_path` for people to read."""
    text = source.text()
    about = f"# {source.label}: {', '.join(f'{p.name}: {p.dtype or p.kind}' for p in source.params)}\n"
    replace(module_path, (about + text).encode())
    from .numba_target import compile_entry, namespace

    names = dict(namespace())
    exec(compile(about + text, str(module_path), "exec"), names)
    try:
        return compile_entry(names[source.name])
    except Exception as err:
        reason = str(err).strip().splitlines()
        raise CompileError(f"kernel {source.label} does not compile: {reason[-1] if reason else type(err).__name__}",
                           cure=f"its text is in {module_path}") from err


# ------------------------------------------------------------------------------------------------ loading
def _jit_engine() -> Any:
    global _engine
    if _engine is None:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3)
        _engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    return _engine


def load_object(symbol: str, code: bytes) -> int:
    """Link object code into this process: the address of `symbol`."""
    import llvmlite.binding as llvm

    with _lock:
        engine = _jit_engine()
        engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(code))
        engine.finalize_object()
        address = engine.get_function_address(symbol)
    if not address:
        raise CacheError(f"object code has no symbol {symbol}")
    return int(address)


def load_ir(text: str, symbols: Sequence[str]) -> list[int]:
    """Compile LLVM assembly and link it into this process: the addresses of its functions."""
    import llvmlite.binding as llvm

    with _lock:
        engine = _jit_engine()
        module = llvm.parse_assembly(text)
        module.verify()
        engine.add_module(module)
        engine.finalize_object()
        return [int(engine.get_function_address(s)) for s in symbols]


def files() -> list[tuple[Path, int]]:
    """The cache's files with their sizes in bytes."""
    return [(p, p.stat().st_size) for p in sorted(folder().rglob("[kv]_*")) if p.suffix in KEPT]


def clear() -> int:
    """Delete all cached kernels; returns how many object files and shaders there were."""
    count = 0
    for path in folder().rglob("[kv]_*"):
        count += path.suffix in (".o", ".spv")
        path.unlink(missing_ok=True)
    return count
