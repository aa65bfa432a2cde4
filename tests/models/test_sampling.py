"""Choosing tokens: greedy, limits, determinism, arguments."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from fuelnumba.models.sampling import Sampler


def shares(sampler: Sampler, logits: np.ndarray, draws: int = 4000) -> np.ndarray:
    return np.bincount([sampler.pick(logits) for _ in range(draws)], minlength=logits.size) / draws


def logs(*probabilities: float) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(np.array(probabilities, np.float32))


def test_greedy_takes_the_best_and_the_lowest_id_among_equals() -> None:
    assert Sampler().pick(np.array([0, 3, 1, 3], np.float32)) == 1
    assert Sampler().pick(np.array([-np.inf, -np.inf, -9], np.float32)) == 2
    assert Sampler().pick(np.array([0, np.inf, np.inf], np.float32)) == 1
    assert type(Sampler().pick(np.array([1.0, 2.0]))) is int


def test_a_seed_gives_the_same_choices() -> None:
    logits = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    first, second, other = (Sampler(1.0, seed=seed) for seed in (5, 5, 6))
    picks = [[sampler.pick(logits) for _ in range(50)] for sampler in (first, second, other)]
    assert picks[0] == picks[1] != picks[2]
    assert Sampler(1.0).pick(logits) in range(1000)


def test_shares_follow_the_probabilities() -> None:
    np.testing.assert_allclose(
        shares(Sampler(1.0, seed=1), logs(0.5, 0.3, 0.2, 0)), [0.5, 0.3, 0.2, 0], atol=0.03
    )
    # Temperature 1/2 squares the odds: 25 : 9 : 4.
    np.testing.assert_allclose(
        shares(Sampler(0.5, seed=1), logs(0.5, 0.3, 0.2)), np.array([25, 9, 4]) / 38, atol=0.03
    )


def test_top_k_keeps_the_k_best_and_the_lowest_ids_among_equals() -> None:
    assert set(np.flatnonzero(shares(Sampler(1.0, top_k=2, seed=1), logs(0.1, 0.2, 0.4, 0.3)))) == {2, 3}
    assert set(np.flatnonzero(shares(Sampler(1.0, top_k=3, seed=1), logs(0.2, 0.4, 0.2, 0.2)))) == {0, 1, 2}
    assert Sampler(9.0, top_k=1, seed=1).pick(logs(0.3, 0.4, 0.3)) == 1
    full = shares(Sampler(1.0, top_k=99, seed=1), logs(0.5, 0.5))
    np.testing.assert_allclose(full, 0.5, atol=0.03)


def test_top_p_keeps_the_fewest_that_reach_it() -> None:
    kept = np.flatnonzero(shares(Sampler(1.0, top_p=0.65, seed=1), logs(0.1, 0.2, 0.4, 0.3)))
    assert set(kept) == {2, 3}
    kept = np.flatnonzero(shares(Sampler(1.0, top_p=0.75, seed=1), logs(0.1, 0.2, 0.4, 0.3)))
    assert set(kept) == {1, 2, 3}
    assert Sampler(1.0, top_p=1e-300, seed=1).pick(np.zeros(7)) == 0
    # Of the two best that top_k leaves, 4/7 and 3/7, the first alone reaches one half.
    assert set(np.flatnonzero(shares(Sampler(1.0, 2, 0.5, 1), logs(0.1, 0.2, 0.4, 0.3)))) == {2}


def test_top_p_agrees_with_sorting_everything() -> None:
    random = np.random.default_rng(3)
    for top_p in (0.1, 0.5, 0.9, 0.999):
        logits = random.normal(size=5000) * 3
        p = np.exp(logits - logits.max())
        order = np.argsort(-p, kind="stable")
        n = int(np.argmax(np.cumsum(p[order]) >= top_p * p.sum())) + 1
        ids, weights = Sampler(1.0, top_p=top_p)._top_p(np.arange(5000), p)
        np.testing.assert_array_equal(ids, order[:n])
        np.testing.assert_array_equal(weights, p[order[:n]])


def test_extreme_temperatures_do_not_overflow() -> None:
    logits = np.array([-3e38, 0, 3e38], np.float32)
    assert Sampler(1e-300, seed=1).pick(logits) == 2
    np.testing.assert_allclose(shares(Sampler(1e300, seed=1), logits), 1 / 3, atol=0.03)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": -0.1}, "temperature must be a finite number from 0 on, got -0.1"),
        ({"temperature": float("nan")}, "temperature must be a finite number from 0 on, got nan"),
        ({"temperature": float("inf")}, "temperature must be a finite number from 0 on, got inf"),
        ({"top_k": -1}, "top_k must be an integer from 0 on (0: no limit), got -1"),
        ({"top_k": 1.5}, "top_k must be an integer from 0 on (0: no limit), got 1.5"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, got 0.0"),
        ({"top_p": 1.1}, "top_p must be above 0 and at most 1, got 1.1"),
        ({"seed": -1}, "seed must be an integer from 0 on, got -1"),
        ({"seed": "x"}, "seed must be an integer from 0 on, got 'x'"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Sampler(**arguments)


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        ([[1.0, 2.0]], "logits must be a vector, got shape (1, 2)"),
        ([], "logits must be a vector, got shape (0,)"),
        ([1.0, float("nan")], "logits hold nothing to choose from: the best one is nan"),
        ([-np.inf, -np.inf], "logits hold nothing to choose from: the best one is -inf"),
    ],
)
def test_logits_are_checked(logits: list[Any], message: str) -> None:
    for temperature in (0.0, 1.0):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            Sampler(temperature).pick(np.array(logits))
