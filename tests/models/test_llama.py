"""The traced model against the float64 reference, and how often it is traced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fuelnumba
from fuelnumba.models.generate import TextGenerator
from fuelnumba.models.gguf_file import GGUFFile, LlamaConfig, PromptTooLongError, load_weights, open_gguf
from fuelnumba.models.llama import KVCache, Params, prepare, rope_tables, step
from fuelnumba.models.sampling import Sampler
from fuelnumba.models.tokenizer import Tokenizer
from tests.models.conftest import write_tiny
from tests.models.reference_llama import DATA, N_GREEDY, PROMPTS, forward

Model = tuple[LlamaConfig, Params]


@pytest.fixture(scope="module")
def smollm2_params(smollm2_file: GGUFFile) -> Params:
    return prepare(smollm2_file.config, load_weights(smollm2_file))


@pytest.fixture(scope="module")
def generator(smollm2_file: GGUFFile, smollm2_params: Params, smollm2_tokenizer: Tokenizer) -> TextGenerator:
    return TextGenerator(smollm2_file.config, smollm2_params, smollm2_tokenizer, "SmolLM2")


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    with np.load(DATA) as data:
        return dict(data)


@pytest.fixture
def tiny_path(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    write_tiny(path)
    return path


# ----- The real model ----------------------------------------------------------------------------------


@pytest.mark.model
@pytest.mark.parametrize("prompt", PROMPTS)
def test_prompts_give_the_reference_logits(
    generator: TextGenerator, reference: dict[str, Any], prompt: str
) -> None:
    ids = reference[f"{prompt}/ids"].astype(np.int64)
    config = generator.config
    logits, _ = step(generator.params, KVCache.empty(config, 512), ids, 0, config, every=True)
    assert logits.shape == (len(ids), config.vocab_size)
    assert logits.dtype == np.float32
    assert logits.argmax(axis=1).tolist() == reference[f"{prompt}/best"].tolist()
    worst = np.abs(logits[:, reference["probe_ids"]] - reference[f"{prompt}/probes"]).max(axis=1)
    assert (worst <= 1e-3 * reference[f"{prompt}/range"]).all()
    best = np.abs(logits.max(axis=1) - reference[f"{prompt}/best_logit"])
    assert (best <= 1e-3 * reference[f"{prompt}/range"]).all()


@pytest.mark.model
@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_tokens_are_the_references(
    generator: TextGenerator, reference: dict[str, Any], prompt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generator.tokenizer, "eos_ids", frozenset())  # the reference goes on after an end
    found = list(generator.tokens(reference[f"{prompt}/ids"].tolist(), N_GREEDY))
    assert found == reference[f"{prompt}/greedy"].tolist()


@pytest.mark.model
def test_generating_compiles_twice_whatever_the_lengths(
    generator: TextGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generator.tokenizer, "eos_ids", frozenset())
    step.clear()
    for prompt, tokens in (("The capital of France is", 48), ("Once upon a time there was", 8), ("Why", 4)):
        ids = generator.encode(prompt)
        assert len(list(generator.tokens(ids, tokens))) == tokens
        statistics = generator.statistics
        assert (statistics.prompt_tokens, statistics.generated_tokens) == (len(ids), tokens)
        assert statistics.compilations == step.compilations == 2
        assert statistics.first_token_seconds > 0
        assert statistics.tokens_per_second > 0
    assert statistics.compile_seconds == statistics.kernels_compiled == statistics.kernels_loaded == 0


@pytest.mark.model
def test_no_weight_and_no_cache_is_copied(generator: TextGenerator) -> None:
    """At run time: a prompt's attention is laid out anew for the next product, and that is all."""
    config = generator.config
    for tokens, copied in (([1], set()), ([1, 2, 3], {(3, config.n_heads, config.head_dim)})):
        step(generator.params, KVCache.empty(config, 512), np.array(tokens), 0, config)
        nodes = [n for launch in step.plan.launches for n in launch.nodes]
        copies = [n for n in nodes if n.op.name in ("contiguous", "copy")]
        assert {tuple(3 if str(e) == "T" else e for e in n.shape) for n in copies} == copied
        written = [launch for launch in step.plan.launches if launch.label.startswith("write_slice")]
        assert len(written) == 2 * config.n_layers
        assert {s.kind for launch in written for s in launch.writes} == {"input"}


# ----- Small models -------------------------------------------------------------------------------------


def load(path: Path) -> tuple[LlamaConfig, dict[str, Any], Params]:
    with open_gguf(path) as file:
        return file.config, load_weights(file), prepare(file.config, load_weights(file))


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "half of each head turned": {"metadata": {"llama.rope.dimension_count": 4}},
    "frequency factors": {"tensors": {"rope_freqs.weight": np.linspace(1, 3, 4, dtype=np.float32)}},
    "as many key heads": {
        "metadata": {"llama.attention.head_count_kv": 4},
        "tensors": {f"blk.0.attn_{n}.weight": np.eye(32, dtype=np.float32)[::-1].copy() for n in "kv"},
    },
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_small_models_give_the_reference_logits(tmp_path: Path, variant: str) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny(path, **VARIANTS[variant])
    config, weights, params = load(path)
    ids = np.arange(11, dtype=np.int64) * 7 % config.vocab_size
    expected = forward(config, weights, ids)
    scale = np.ptp(expected)
    every, _ = step(params, KVCache.empty(config, 16), ids, 0, config, every=True)
    np.testing.assert_allclose(every, expected, rtol=0, atol=1e-5 * scale)
    last, _ = step(params, KVCache.empty(config, 16), ids, 0, config)
    np.testing.assert_allclose(last, expected[-1], rtol=0, atol=1e-5 * scale)


def test_a_prompt_at_once_and_token_by_token_agree(tiny_path: Path) -> None:
    config, _, params = load(tiny_path)
    ids = np.array([5, 9, 200, 7, 7, 31, 2])
    at_once = KVCache.empty(config, 16)
    expected, at_once = step(params, at_once, ids, 0, config)
    for split in ([1] * 7, [3, 1, 3], [1, 6]):
        cache, position = KVCache.empty(config, 16), 0
        for n in split:
            logits, cache = step(params, cache, ids[position : position + n], position, config)
            position += n
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(cache.k, at_once.k, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(cache.v, at_once.v, rtol=1e-4, atol=1e-5)


def test_the_cache_is_written_in_place_and_nothing_else(tiny_path: Path) -> None:
    config, _, params = load(tiny_path)
    before = {name: array.copy() for name, array in params["layers"][0].items()}
    cache = KVCache.empty(config, 16)
    k, v = cache.k, cache.v
    ids = np.array([3, 4])
    logits, after = step(params, cache, ids, 5, config)
    assert (after.k is k, after.v is v) == (True, True)
    rows = np.abs(k).sum(axis=(0, 1, 3)).nonzero()[0]
    assert rows.tolist() == [5, 6]
    kept = logits.copy()
    step(params, after, ids + 1, 7, config)
    np.testing.assert_array_equal(logits, kept)
    for name, array in params["layers"][0].items():
        np.testing.assert_array_equal(array, before[name])
    assert ids.tolist() == [3, 4]


def test_positions_may_be_arrays_and_past_the_end_is_an_error(tiny_path: Path) -> None:
    config, _, params = load(tiny_path)
    cache = KVCache.empty(config, 16)
    one, _ = step(params, cache, np.array([3]), 5, config)
    other, _ = step(params, cache, np.array([3]), np.array(5), config)
    np.testing.assert_array_equal(one, other)
    with pytest.raises(fuelnumba.errors.FuelIndexError):
        step(params, cache, np.array([3]), 16, config)
    with pytest.raises(fuelnumba.errors.FuelIndexError):
        step(params, cache, np.array([config.vocab_size]), 0, config)


def test_rope_tables(tiny_path: Path) -> None:
    config, _, _ = load(tiny_path)
    cos, sin = rope_tables(config)
    assert cos.shape == sin.shape == (config.context_length, config.rope_dim // 2)
    assert cos.dtype == sin.dtype == np.float32
    assert cos[0].tolist() == [1] * 4
    np.testing.assert_allclose(sin[3, 1], np.sin(3 * 10000 ** (-2 / 8)), rtol=1e-6)


# ----- The generator ------------------------------------------------------------------------------------


def test_generation_ends_at_an_end_token_or_when_enough(tiny_path: Path) -> None:
    generator = TextGenerator.load(tiny_path)
    ids = generator.encode("abc ab")
    tokens = list(generator.tokens(ids, 20))
    assert len(tokens) <= 20
    assert list(generator.tokens(ids, 20)) == tokens
    assert "".join(generator.stream(ids, 20)) == generator.tokenizer.decode(tokens)
    generator.tokenizer.eos_ids = frozenset({tokens[3]})
    first = tokens.index(tokens[3])
    assert list(generator.tokens(ids, 20)) == tokens[:first]
    assert generator.statistics.generated_tokens == first
    generator.tokenizer.eos_ids = frozenset()
    assert len(list(generator.tokens(ids, 3, Sampler(1.0, seed=1)))) == 3


def test_the_context_is_never_left(tiny_path: Path) -> None:
    generator = TextGenerator.load(tiny_path)
    generator.tokenizer.eos_ids = frozenset()
    ids = [5] * 60
    assert len(list(generator.tokens(ids, 4))) == 4
    assert generator.cache.capacity == generator.config.context_length == 64
    for prompt, more, message in (
        (60, 5, "the prompt has 60 tokens and 5 more are asked for, the context of tiny holds 64"),
        (65, 1, "the prompt has 65 tokens, the context of tiny holds 64"),
    ):
        with pytest.raises(PromptTooLongError) as caught:
            list(generator.tokens([5] * prompt, more))
        assert str(caught.value) == message


def test_loading_reports_progress(tiny_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    generator = TextGenerator.load(tiny_path, lambda *report: seen.append(report))
    assert {what for what, _, _ in seen} == {"loading"}
    assert seen[-1][1] == seen[-1][2] > 0
    seen.clear()
    step.clear()
    list(generator.tokens([5, 6, 7], 2, progress=lambda *report: seen.append(report)))
    assert {what for what, _, _ in seen} == {"compiling"}
