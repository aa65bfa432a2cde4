"""The number of threads, and when they take part."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fuelnumba
from fuelnumba.run import executor


@pytest.fixture(autouse=True)
def _threads_are_restored() -> Iterator[None]:
    before = fuelnumba.num_threads()
    yield
    fuelnumba.set_num_threads(before)


@pytest.fixture
def threads_wake(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take part in all calls that have work to share."""
    monkeypatch.setattr(executor, "WORTH_WAKING", 1)
