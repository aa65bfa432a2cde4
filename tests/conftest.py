"""What all tests share: one kernel cache for the whole run, workers of pytest-xdist included, and fixed seeds."""

from __future__ import annotations

import os
import random

import hypothesis
import numpy as np
import pytest

hypothesis.settings.register_profile("fuelnumba", deadline=None, derandomize=True, database=None, print_blob=False)
hypothesis.settings.load_profile("fuelnumba")

SEED = 20240607


def pytest_configure(config: pytest.Config) -> None:
    """Workers are started after this and inherit the variable."""
    if "FUELNUMBA_CACHE_DIR" not in os.environ:
        os.environ["FUELNUMBA_CACHE_DIR"] = str(config.cache.mkdir("fuelnumba"))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    random.seed(SEED)
    np.random.seed(SEED)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(SEED)
