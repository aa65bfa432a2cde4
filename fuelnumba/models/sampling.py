"""Choosing the next token from the logits."""

from __future__ import annotations

import math

import numpy as np


class Sampler:
    """Picks token ids: the best one at temperature 0, otherwise at random.

    In this order: logits are divided by `temperature`, all but the `top_k` best are dropped (0: none), then
    all but the fewest best whose probabilities add up to `top_p` (1.0: none). Equal logits rank by token id.
    The same `seed` gives the same choices; None draws a fresh one.
    """

    def __init__(
        self, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, seed: int | None = None
    ) -> None:
        if not (isinstance(temperature, int | float) and 0 <= temperature < math.inf):
            raise ValueError(f"temperature must be a finite number from 0 on, got {temperature!r}")
        if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 0:
            raise ValueError(f"top_k must be an integer from 0 on (0: no limit), got {top_k!r}")
        if not (isinstance(top_p, int | float) and 0 < top_p <= 1):
            raise ValueError(f"top_p must be above 0 and at most 1, got {top_p!r}")
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
            raise ValueError(f"seed must be an integer from 0 on, got {seed!r}")
        self.temperature = float(temperature)
        self.top_k = top_k
        self.top_p = float(top_p)
        self._random = np.random.default_rng(seed)

    def pick(self, logits: np.ndarray) -> int:
        """A token id for logits [V]. ValueError if they are not a vector of numbers."""
        if logits.ndim != 1 or logits.size == 0:
            raise ValueError(f"logits must be a vector, got shape {logits.shape}")
        best = int(np.argmax(logits))  # the lowest id among equals; a NaN if there is one
        top = float(logits[best])
        if math.isnan(top) or top == -math.inf:
            raise ValueError(f"logits hold nothing to choose from: the best one is {top}")
        if self.temperature == 0 or top == math.inf:
            return best
        ids = self._top_k(logits)
        # Subtracting first keeps a tiny temperature from overflowing.
        with np.errstate(over="ignore", under="ignore"):
            weights = np.exp((logits[ids].astype(np.float64) - top) / self.temperature)
        if self.top_p < 1:
            ids, weights = self._top_p(ids, weights)
        sums = np.cumsum(weights)
        chosen = np.searchsorted(sums, self._random.random() * sums[-1], side="right")
        return int(ids[min(int(chosen), ids.size - 1)])

    def _top_k(self, logits: np.ndarray) -> np.ndarray:
        """Ids of the top_k best, ascending."""
        if self.top_k == 0 or self.top_k >= logits.size:
            return np.arange(logits.size)
        least = np.partition(logits, -self.top_k)[-self.top_k]
        above = np.flatnonzero(logits > least)
        equal = np.flatnonzero(logits == least)[: self.top_k - above.size]
        return np.sort(np.concatenate([above, equal]))

    def _top_p(self, ids: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The fewest best ids whose share of the weights is at least top_p, best first, and their weights."""
        total = weights.sum()
        # All that lies below this adds up to less than 1 - top_p; few are left to sort. The best weighs 1.
        likely = weights >= min(total * (1 - self.top_p) / weights.size, 1.0)
        ids, weights = ids[likely], weights[likely]
        order = np.argsort(-weights, kind="stable")
        ids, weights = ids[order], weights[order]
        keep = int(np.searchsorted(np.cumsum(weights), self.top_p * total)) + 1
        return ids[:keep], weights[:keep]
