"""Model files that are damaged or made to do harm.

    python -m tests.robustness.hostile_gguf --random 3000

A tiny valid file is changed in every field of its header, in what its metadata and tensors say, and at random. Each must load, or
be refused by one line that begins with its path; in less than a second; with little memory: `MEMORY` of Python's and
NumPy's beyond what the file and its weights take.
"""

from __future__ import annotations

import argparse
import collections
import resource
import struct
import sys
import tempfile
import time
import traceback
import tracemalloc
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import gguf
import numpy as np

from fuelnumba.models.generate import TextGenerator
from fuelnumba.models.gguf_file import ModelError
from tests.models.conftest import EMBD, byte_level_vocabulary, write_tiny

MEMORY = 50 << 20  # bytes that a bad file may cost, beyond its own size
SECONDS = 1.0
ADDRESS_SPACE = 1 << 30  # more than the process had before: a large reservation fails
HUGE = (0, 1, 2, 3, 7, 255, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 33, 1 << 40, 1 << 60, (1 << 63) - 1, 1 << 63, (1 << 64) - 8, (1 << 64) - 1)
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def sentencepiece(tokens: list[str], scores: list[float], types: list[int] | None = None) -> dict[str, Any]:
    """Tokenizer metadata of the other kind."""
    return {"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": None, "tokenizer.ggml.merges": None, "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": scores, "tokenizer.ggml.token_type": types or [2, 3, 3] + [1] * (len(tokens) - 3),
            "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.unknown_token_id": 0}


PIECES = ["<unk>", "<s>", "</s>", "a", "b", "c", "\u2581", "ab", "abc", "\u2581a"]


def fields(raw: bytes) -> Iterator[tuple[str, int, int]]:
    """(what, where, bytes) of every number in a header of ours."""
    at = 24
    yield from (("magic", 0, 4), ("version", 4, 4), ("tensors", 8, 8), ("entries", 16, 8))
    tensors, entries = struct.unpack_from("<QQ", raw, 8)

    def string(what: str) -> Iterator[tuple[str, int, int]]:
        nonlocal at
        yield f"length of {what}", at, 8
        at += 8 + struct.unpack_from("<Q", raw, at)[0]

    for k in range(entries):
        yield from string(f"key {k}")
        kind = struct.unpack_from("<I", raw, at)[0]
        yield f"type {k}", at, 4
        at += 4
        if kind == 9:
            inner, count = struct.unpack_from("<IQ", raw, at)
            yield f"inner type {k}", at, 4
            yield f"count {k}", at + 4, 8
            at += 12
            if inner == 8:
                for j in range(count):
                    if j in (0, count - 1):
                        yield from string(f"element {j} of {k}")
                    else:
                        at += 8 + struct.unpack_from("<Q", raw, at)[0]
            else:
                yield f"first of {k}", at, SIZES[inner]
                at += SIZES[inner] * count
        elif kind == 8:
            yield from string(f"value {k}")
        else:
            yield f"value {k}", at, SIZES[kind]
            at += SIZES[kind]
    for k in range(tensors):
        yield from string(f"name of tensor {k}")
        dims = struct.unpack_from("<I", raw, at)[0]
        yield f"dimensions of tensor {k}", at, 4
        at += 4
        for j in range(dims):
            yield f"dimension {j} of tensor {k}", at, 8
            at += 8
        yield f"type of tensor {k}", at, 4
        yield f"offset of tensor {k}", at + 4, 8
        at += 12


def by_field(raw: bytes) -> Iterator[tuple[str, bytes]]:
    """Every number of the header replaced by small, neighbouring and huge ones."""
    for what, at, size in fields(raw):
        old = int.from_bytes(raw[at:at + size], "little")
        for new in sorted({*HUGE, old + 1, max(old - 1, 0), old * 2, old + 32}):
            if new < 1 << 8 * size and new != old:
                yield f"{what}: {new} instead of {old}", raw[:at] + new.to_bytes(size, "little") + raw[at + size:]


def at_random(raw: bytes, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    r = Random(seed)
    header = raw.index(b"output_norm.weight") + 60
    for k in range(count):
        new, how = bytearray(raw), r.choice(("flip", "flip", "bytes", "cut", "cut header", "insert", "delete", "double", "data"))
        at = r.randrange(header)
        n = r.choice((1, 4, 8, 50, 500))
        if how == "flip":
            for _ in range(r.randint(1, 8)):
                new[r.randrange(header)] ^= 1 << r.randrange(8)
        elif how == "bytes":
            new[at:at + 8] = r.choice((b"\xff" * 8, bytes(8), r.randbytes(8), b"\x7f" + b"\xff" * 7))
        elif how == "cut":
            del new[r.randrange(len(new)):]
        elif how == "cut header":
            del new[at:]
        elif how == "insert":
            new[at:at] = r.randbytes(n)
        elif how == "delete":
            del new[at:at + n]
        elif how == "double":
            new[at:at] = new[at:at + n]
        else:
            for _ in range(r.randint(1, 50)):
                new[r.randrange(header, len(new))] = r.randrange(256)
        yield f"random {k}: {how}", bytes(new)


def by_meaning(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Files that are sound as files, and say something that cannot be."""
    def made(what: str, metadata: dict[str, Any] | None = None, tensors: dict[str, Any] | None = None) -> tuple[str, bytes]:
        path = folder / "made.gguf"
        write_tiny(path, metadata=metadata, tensors=tensors)
        return what, path.read_bytes()

    known = {
        "llama.block_count": (0, 2, 1 << 31, "x"), "llama.context_length": (0, 1 << 24, (1 << 24) + 1, 0xFFFFFFFF, 1.5, None),
        "llama.embedding_length": (0, 33, 1 << 30, None), "llama.feed_forward_length": (0, 1 << 31, None),
        "llama.attention.head_count": (0, 3, 5, 32, 64, 1 << 31, None, [4]), "llama.attention.head_count_kv": (0, 3, 5, 1 << 31, [2]),
        "llama.attention.layer_norm_rms_epsilon": (0.0, -1.0, float("nan"), float("inf"), 1e30, None, "x"),
        "llama.rope.freq_base": (0.0, -1.0, float("nan"), float("inf"), 1e-38, 3e38, 1e-6, "x"), "llama.rope.dimension_count": (0, 1, 7, 10, 1 << 31),
        "llama.vocab_size": (0, 1, 1 << 31), "general.alignment": (0, 3, 1, 1 << 31), "general.name": (7, "\x1b[2J", "x" * 5000),
        "tokenizer.ggml.model": ("bert", 3, "", None), "tokenizer.ggml.pre": ("unheard", 3), "tokenizer.ggml.add_bos_token": ("no", 2),
        "tokenizer.ggml.eos_token_id": (1 << 31, 260, True, "x"), "tokenizer.ggml.bos_token_id": (1 << 31, "x"),
        "tokenizer.ggml.token_type": ([1], ["x"], [99] * 260, None, 3), "tokenizer.ggml.merges": (["ab"], ["a b c"], [" "], ["a b"] * 1000, ["xx yy"], [1], None, "a b",
                                                                                               ["a b", "b a", "ab a"]),
        "tokenizer.chat_template": ("{{ 1/0 }}", 3, "{% for"), "llama.rope.scaling.type": (3, "yarn"), "llama.expert_count": (8, "x"),
    }
    for key, values in known.items():
        for value in values:
            yield made(f"{key} = {str(value)[:40]}", {key: value})
    byte_level = byte_level_vocabulary("a b", "ab c")["tokenizer.ggml.tokens"]
    for what, tokens in {"no tokens": None, "empty tokens": [""] * 260, "one token many times": ["a"] * 260, "numbers": list(range(260)),
                         "a token too many": [*byte_level, "zz"], "few": byte_level[:5], "a long one": [*byte_level[:-1], "ab" * 150_000]}.items():
        yield made(f"vocabulary: {what}", {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": None},
                   {"token_embd.weight": np.zeros((260, EMBD), np.float32)})
    spm = {"sound": (PIECES, [0.0] * 10), "cyclic scores": (PIECES, [0.0, 0.0, 0.0, -1.0, -1.0, -1.0, -1.0, float("inf"), float("-inf"), float("nan")]),
           "few scores": (PIECES, [0.0]), "a long piece": ([*PIECES[:-1], "a" * 60_000], [0.0] * 10), "empty pieces": ([""] * 10, [0.0] * 10),
           "one piece many times": (["a"] * 10, [0.0] * 10)}
    for what, (tokens, scores) in spm.items():
        yield made(f"sentencepiece: {what}", sentencepiece(tokens, scores))
    bad = np.full((32, 32), np.nan, np.float32)
    yield made("weights that are no numbers", None, {"blk.0.attn_q.weight": bad})
    for what, factors in {"zero": 0.0, "nan": np.nan, "negative": -1.0, "infinite": np.inf}.items():
        yield made(f"rope factors: {what}", None, {"rope_freqs.weight": np.full(4, factors, np.float32)})
    yield made("scalars for tensors", None, {"output_norm.weight": np.zeros((1, 1), np.float32)})
    many = {f"blk.{k}.attn_q.weight": np.zeros((32, 32), np.float32) for k in range(1, 200)}
    yield made("many surplus tensors", None, many)
    yield overlapping(folder)
    yield nested()


def overlapping(folder: Path) -> tuple[str, bytes]:
    """All layers of a model in the same bytes: a small file that unpacks to much."""
    layers, embd, ff = 50, 256, 256
    shapes = {"attn_norm": (embd,), "attn_q": (embd, embd), "attn_k": (embd, embd), "attn_v": (embd, embd), "attn_output": (embd, embd),
              "ffn_norm": (embd,), "ffn_gate": (ff, embd), "ffn_up": (ff, embd), "ffn_down": (embd, ff)}
    path = folder / "overlap.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in {"block_count": layers, "context_length": 64, "embedding_length": embd, "feed_forward_length": ff,
                       "attention.head_count": 4}.items():
        writer.add_uint32(f"llama.{key}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    for key, value in byte_level_vocabulary("a b").items():
        if isinstance(value, list):
            writer.add_array(key, value)
        else:
            (writer.add_string if isinstance(value, str) else writer.add_uint32)(key, value)
    infos = [("token_embd", (259, embd)), ("output_norm", (embd,)), *((f"blk.{k}.{n}", s) for k in range(layers) for n, s in shapes.items())]
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    raw = bytearray(path.read_bytes())
    raw[8:16] = struct.pack("<Q", len(infos))
    for name, shape in infos:
        text = f"{name}.weight".encode()
        raw += struct.pack("<Q", len(text)) + text + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape)) + struct.pack("<IQ", 0, 0)
    raw += bytes(-len(raw) % 32) + bytes(259 * embd * 4)
    return "overlapping tensors", bytes(raw)


def nested() -> tuple[str, bytes]:
    """Arrays of arrays, ten thousand deep."""
    key = b"deep"
    entry = struct.pack("<Q", len(key)) + key + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 10_000 + struct.pack("<IQI", 4, 1, 7)
    return "nested arrays", b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + entry


# ------------------------------------------------------------------------------------------------ what happens with them
def attempt(path: Path, size: int, limit: float = 60.0) -> tuple[str, str, float, int]:
    """('loaded' or 'refused' or 'fault', what was said, seconds, bytes beyond the file and its weights)."""
    tracemalloc.start()
    start = time.perf_counter()
    weights = 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = TextGenerator.load(path)
            model.encode("abc <eos> \u00e4")
        weights = 4 * sum(4 * int(np.prod(s)) for s in (model.config.vocab_size * model.config.n_embd, model.config.n_layers * 12 * model.config.n_embd
                                                       * max(model.config.n_embd, model.config.n_ff)))
        kind, said = "loaded", ""
    except ModelError as err:
        kind, said = "refused", str(err)
        if "\n" in said or not said.startswith(f"{path}: ") or not said.isprintable() or len(said) > 600:
            kind = "fault"
    except BaseException as err:
        kind, said = "fault", "".join(traceback.format_exception(err))[-600:]
    seconds = time.perf_counter() - start
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    beyond = used - size - weights
    if kind != "fault" and (beyond > MEMORY or seconds > limit):
        kind, said = "fault", f"{seconds:.2f} s, {beyond >> 20} MB: {said}"
    return kind, said.removeprefix(f"{path}: "), seconds, beyond


def run(random: int = 3000, every: int = 1, seed: int = 1, faults: list[str] | None = None, limit: float = 60.0) -> str:
    """One line of figures; what went wrong is put into `faults`. `every` takes only each so many changed fields; more than
    `limit` seconds for one file are a fault."""
    began = time.perf_counter()
    counts: collections.Counter[str] = collections.Counter()
    slowest, most = 0.0, 0
    messages: set[str] = set()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        good = [folder / "gpt2.gguf", folder / "llama.gguf"]
        write_tiny(good[0])
        write_tiny(good[1], metadata=sentencepiece(PIECES, [0.0] * 10))
        raws = [p.read_bytes() for p in good]
        for path in good:
            assert attempt(path, path.stat().st_size)[0] == "loaded", attempt(path, 0)
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESS_SPACE, hard))
        try:
            files = [*by_meaning(folder)]
            for raw in raws:
                files += [*by_field(raw)][seed % every::every]
                files += at_random(raw, random // 2, seed)
            path = folder / "hostile.gguf"
            for what, raw in files:
                path.write_bytes(raw)
                kind, said, seconds, beyond = attempt(path, len(raw), limit)
                counts[kind] += 1
                slowest, most = max(slowest, seconds), max(most, beyond)
                if kind == "refused":
                    messages.add("".join(c for c in said if not c.isdigit()))
                elif kind == "fault" and faults is not None:
                    faults.append(f"{what}: {said}")
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    return (f"files {sum(counts.values())} | refused {counts['refused']} with {len(messages)} kinds of message | loaded {counts['loaded']} | "
            f"faults {counts['fault']} | at most {most / 2**20:.1f} MB beyond the file, {slowest:.2f} s | {time.perf_counter() - began:.0f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", type=int, default=3000)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    faults: list[str] = []
    line = run(args.random, args.every, args.seed, faults, SECONDS)
    for fault in faults:
        print(fault)
    print(line)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
