"""Generating text: a model loaded once, prompts run through it, and what that took."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import fuelnumba

from .gguf_file import LlamaConfig, ModelError, PromptTooLongError, load_weights, open_gguf
from .llama import KVCache, Params, position_params, prepare, step
from .sampling import Sampler
from .tokenizer import Tokenizer

Progress = Callable[[str, int, int], object]
"""What is going on, how much of it is done, of how much."""

LEAST_CAPACITY = 512


@dataclass(frozen=True)
class Statistics:
    """What a generation took. Compiling counts into the first token's time, but not into the speed."""

    prompt_tokens: int = 0
    generated_tokens: int = 0
    first_token_seconds: float = 0.0  # from the call on, the model being loaded
    decode_seconds: float = 0.0  # for all tokens but the first, without compiling
    compile_seconds: float = 0.0  # tracing, planning, and compiling kernels
    kernels_compiled: int = 0
    kernels_loaded: int = 0  # from the cache on disk
    compilations: int = 0  # of the step, in this process

    @property
    def tokens_per_second(self) -> float:
        return (self.generated_tokens - 1) / self.decode_seconds if self.decode_seconds else 0.0

    def __str__(self) -> str:
        kernels = f"{_count(self.kernels_compiled, 'kernel')} compiled, {self.kernels_loaded} from the cache"
        parts = (
            f"prompt: {_count(self.prompt_tokens, 'token')}",
            f"generated: {_count(self.generated_tokens, 'token')}",
            f"first token: {self.first_token_seconds:.2f} s",
            f"speed: {self.tokens_per_second:.1f} tokens/s",
            f"compiling: {self.compile_seconds:.2f} s"
            f" ({_count(self.compilations, 'compilation')} of the step; {kernels})",
        )
        return " | ".join(parts)


class TextGenerator:
    """A model ready to generate. One cache of keys and values serves all prompts; it grows on demand."""

    def __init__(
        self,
        config: LlamaConfig,
        params: Params,
        tokenizer: Tokenizer,
        name: str = "the model",
        rope_factors: np.ndarray[Any, Any] | None = None,
        device: str = "cpu",
    ) -> None:
        self.device = fuelnumba.device(device)
        params = fuelnumba.to_device(params, self.device)
        self.config, self.params, self.tokenizer, self.name = config, params, tokenizer, name
        self._rope_factors = rope_factors
        self.cache = KVCache.empty(config, 0)
        self.statistics = Statistics()
        self._traced_seconds = 0.0

    @classmethod
    def load(cls, path: str | os.PathLike[str], progress: Progress | None = None, device: str = "cpu") -> TextGenerator:
        """Open a GGUF file and unpack its weights, to the memory of a device. Raises ModelFileError, UnsupportedModelError,
        BackendError."""
        fuelnumba.device(device)  # when it is not there, that is said at once
        with open_gguf(path) as file:
            tokenizer = Tokenizer.from_gguf(file)
            report = None if progress is None else lambda done, total: progress("loading", done, total)
            weights = load_weights(file, report)
            factors = weights.get("rope_factors")
            return cls(file.config, prepare(file.config, weights, 0), tokenizer, file.name, factors, device)

    def encode(self, prompt: str, chat: bool = False) -> list[int]:
        """The prompt's tokens; with `chat`, as a user's message in the model's own template."""
        if not chat:
            return self.tokenizer.encode(prompt)
        text = self.tokenizer.apply_chat_template([{"role": "user", "content": prompt}])
        return self.tokenizer.encode(text, parse_special=True)

    def stream(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        sampler: Sampler | None = None,
        progress: Progress | None = None,
    ) -> Iterator[str]:
        """The text after the prompt, piece by piece; `statistics` goes along. Raises PromptTooLongError."""
        decoder = self.tokenizer.stream()
        for token in self.tokens(prompt, max_tokens, sampler, progress):
            if piece := decoder.push(token):
                yield piece
        if rest := decoder.flush():
            yield rest

    def tokens(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        sampler: Sampler | None = None,
        progress: Progress | None = None,
    ) -> Iterator[int]:
        """The tokens after the prompt's, without the one that ends the text. Raises PromptTooLongError."""
        start = time.perf_counter()
        self._reserve(len(prompt), max_tokens)
        sampler = sampler or Sampler()
        before = replace(fuelnumba.cache_stats())
        self._traced_seconds = first = compiling_first = decoding = 0.0

        def compiling() -> float:
            return self._traced_seconds + fuelnumba.cache_stats().seconds - before.seconds

        given, position = np.asarray(prompt, np.int64), 0
        for generated in range(max_tokens):
            logits = self._step(given, position, progress)
            position += len(given)
            try:
                token = sampler.pick(logits)
            except ValueError as err:
                raise ModelError(f"{self.name} gives no text: {err}") from None
            now, kernels = time.perf_counter(), fuelnumba.cache_stats()
            if not generated:
                first, compiling_first = now, compiling()
            ends = token in self.tokenizer.eos_ids
            if not ends:
                decoding = (now - first) - (compiling() - compiling_first)
            self.statistics = Statistics(
                prompt_tokens=len(prompt),
                generated_tokens=generated + (not ends),
                first_token_seconds=first - start,
                decode_seconds=decoding,
                compile_seconds=compiling(),
                kernels_compiled=kernels.compiled - before.compiled,
                kernels_loaded=kernels.loaded - before.loaded,
                compilations=step.compilations,
            )
            if ends:
                return
            yield token
            given = np.array([token], np.int64)

    def _reserve(self, prompt: int, more: int) -> None:
        """Have a cache that holds the prompt and what follows; in few sizes, as new ones are traced anew."""
        room, wanted = self.config.context_length, prompt + more
        if not prompt:
            raise ModelError("the prompt is empty")
        if wanted > room:
            asked = f" and {more} more are asked for" if prompt <= room else ""
            raise PromptTooLongError(
                f"the prompt has {_count(prompt, 'token')}{asked}, the context of {self.name} holds {room}"
            )
        if self.cache.capacity < wanted:
            capacity = min(room, max(LEAST_CAPACITY, 1 << (wanted - 1).bit_length()))
            positions = position_params(self.config, self._rope_factors, capacity)
            self.params |= fuelnumba.to_device(positions, self.device)
            self.cache = fuelnumba.to_device(KVCache.empty(self.config, capacity), self.device)

    def _step(
        self, tokens: np.ndarray[Any, Any], position: int, progress: Progress | None
    ) -> np.ndarray[Any, Any]:
        """Logits after the last token. What passes before kernels are asked for is tracing and planning."""
        start, traced, compilations = time.perf_counter(), 0.0, step.compilations

        def report(done: int, total: int, kernel: str) -> None:
            nonlocal traced
            traced = traced or time.perf_counter() - start
            if progress is not None:
                progress("compiling", done, total)

        fuelnumba.on_compile(report)
        try:
            logits, self.cache = step(self.params, self.cache, tokens, position, self.config)
        finally:
            fuelnumba.on_compile(None)
        if step.compilations > compilations:
            self._traced_seconds += traced
        return np.asarray(logits)


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"
