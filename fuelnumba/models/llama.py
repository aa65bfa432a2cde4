"""The Llama forward pass: ordinary NumPy, traced.

`step` takes tokens [T] and where in the text they stand, and gives the logits after the last one. A program
that generates text traces it twice: for prompts of any length (T is symbolic), and for single tokens.
Neither the position nor the length of the text is part of what is compiled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import fuelnumba
from fuelnumba import ops

from .gguf_file import LlamaConfig, rope_frequencies

Array = np.ndarray[Any, Any]
Params = dict[str, Any]


@dataclass
class KVCache:
    """Keys and values so far, [layers, key heads, capacity, head_dim]; `step` writes into them."""

    k: Array
    v: Array

    @classmethod
    def empty(cls, config: LlamaConfig, capacity: int) -> KVCache:
        shape = (config.n_layers, config.n_kv_heads, capacity, config.head_dim)
        return cls(np.zeros(shape, np.float32), np.zeros(shape, np.float32))

    @property
    def capacity(self) -> int:
        """How many tokens fit."""
        return int(self.k.shape[2])


def rope_tables(
    config: LlamaConfig, factors: Array | None = None, positions: int | None = None
) -> tuple[Array, Array]:
    """Cosines and sines of the angles of so many positions (default: the context's), float32
    [positions, rope_dim / 2] each."""
    rows = np.arange(config.context_length if positions is None else positions)
    angles = rows[:, None] * rope_frequencies(config, factors)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def position_params(config: LlamaConfig, factors: Array | None, positions: int | None = None) -> Params:
    """What `step` takes for so many positions: they need not be all that a file says its context holds."""
    cos, sin = rope_tables(config, factors, positions)
    return {"cos": cos, "sin": sin, "positions": np.arange(len(cos))}


def prepare(config: LlamaConfig, weights: dict[str, Any], positions: int | None = None) -> Params:
    """What `step` takes, from what `load_weights` gives: matrices that multiply the same rows become one.

    `weights` is emptied on the way, so that no more than one layer is in memory twice. `positions` may be
    fewer than the context's: `position_params` gives more.
    """
    params = position_params(config, weights.get("rope_factors"), positions)
    layers = []
    for w in weights.pop("layers"):
        w["wqkv"] = np.concatenate([w.pop("wq"), w.pop("wk"), w.pop("wv")])
        w["w_gate_up"] = np.concatenate([w.pop("w_gate"), w.pop("w_up")])
        layers.append(w)
    params["layers"] = layers
    return params | {name: weights.pop(name) for name in ("token_embd", "output_norm", "output")}


@fuelnumba.jit(static_argnames=("config", "every"), donate="cache", dims={"tokens": ("T",)})
def step(
    params: Params, cache: KVCache, tokens: Any, position: Any, config: LlamaConfig, every: bool = False
) -> Any:
    """Logits [V] after the last of `tokens` (or [T, V], after `every` one), and the cache with these added.

    `position` is the number of tokens before these.
    """
    n = tokens.shape[0]
    rows = position + params["positions"][:n]
    turns = np.take(params["cos"], rows, axis=0), np.take(params["sin"], rows, axis=0)
    x = ops.embedding(params["token_embd"], tokens)
    for layer, w in enumerate(params["layers"]):
        h = ops.rms_norm(x, w["attn_norm"], eps=config.eps)
        mixed, cache = attend(config, cache, layer, h @ w["wqkv"].T, turns, position)
        x = x + mixed @ w["wo"].T
        h = ops.rms_norm(x, w["ffn_norm"], eps=config.eps) @ w["w_gate_up"].T
        gate, up = h[:, : config.n_ff], h[:, config.n_ff :]
        x = x + (ops.silu(gate) * up) @ w["w_down"].T
    if not every:
        x = x[-1:]
    logits = ops.rms_norm(x, params["output_norm"], eps=config.eps) @ params["output"].T
    return (logits if every else logits[0]), cache


def attend(
    config: LlamaConfig, cache: KVCache, layer: int, qkv: Any, turns: Any, position: Any
) -> tuple[Any, KVCache]:
    """Write this layer's new keys and values into the cache, and mix all values so far by softmax(q . k)."""
    n = qkv.shape[0]
    heads = qkv.reshape(n, -1, config.head_dim).transpose(1, 0, 2)  # q, k and v heads, one after the other
    qk, v = np.split(heads, [config.n_heads + config.n_kv_heads])
    q, k = np.split(rotate(config, qk, turns), [config.n_heads])
    at = (layer, 0, position, 0)
    keys, values = ops.write_slice(cache.k, k, at=at), ops.write_slice(cache.v, v, at=at)
    mixed = ops.attention(q[None], keys[layer][None], values[layer][None], position + n)
    return mixed[0].transpose(1, 0, 2).reshape(n, -1), KVCache(keys, values)


def rotate(config: LlamaConfig, x: Any, turns: Any) -> Any:
    """Rotary positions: neighbours among the first rope_dim columns of x [heads, T, head_dim] are turned."""
    turned = ops.rope(x[..., : config.rope_dim], *turns, interleaved=True)
    if config.rope_dim == config.head_dim:
        return turned
    return np.concatenate([turned, x[..., config.rope_dim :]], axis=-1)
