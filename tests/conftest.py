"""What all tests share: one kernel cache for the whole run, workers of pytest-xdist included, and fixed seeds."""

from __future__ import annotations

import functools
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from typing import Any

import hypothesis
import numpy as np
import pytest

from fuelnumba.compiler import plan
from fuelnumba.core import ir

hypothesis.settings.register_profile("fuelnumba", deadline=None, derandomize=True, database=None, print_blob=False)
hypothesis.settings.load_profile("fuelnumba")

SEED = 20240607


def pytest_configure(config: pytest.Config) -> None:
    """Workers are started after this and inherit the variables."""
    if "FUELNUMBA_CACHE_DIR" not in os.environ:
        os.environ["FUELNUMBA_CACHE_DIR"] = str(config.cache.mkdir("fuelnumba"))
    if not any(e.name == "fuelnumba" for e in metadata.entry_points(group="pytest11")):
        os.environ.setdefault("PYTEST_PLUGINS", "pytest_fuelnumba")  # an installation older than the plugin, or none
    os.environ["FUELNUMBA_VULKAN_VALIDATION"] = "1"


@pytest.fixture(autouse=True)
def _seeded() -> None:
    random.seed(SEED)
    np.random.seed(SEED)


@pytest.fixture(autouse=True)
def _vulkan_is_used_rightly() -> Iterator[None]:
    """Whatever the validation layer says fails the test that ran."""
    yield
    api = sys.modules.get("fuelnumba.vk.api")
    if api is not None and api.messages:
        said = "\n".join(api.messages)
        api.messages.clear()
        pytest.fail(said)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(SEED)


# ------------------------------------------------------------------------------------------------ every pass under the verifier
@pytest.fixture(autouse=True, scope="session")
def _passes_are_verified() -> Iterator[None]:
    """Whatever any test compiles: after each pass the graph is verified, and the steps are a valid order of it."""
    checked = {"lower": _verified(plan.lower), "legalise": _verified(plan.legalise),
               "order_writes": _verified(plan.order_writes), "fuse": _ordered(plan.fuse)}
    before = {name: getattr(plan, name) for name in checked}
    for name, fn in checked.items():
        setattr(plan, name, fn)
    yield
    for name, fn in before.items():
        setattr(plan, name, fn)


def _verified(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def call(graph: ir.Graph, *rest: Any) -> Any:
        ir.verify(graph)
        result = run(graph, *rest)
        ir.verify(result[0] if isinstance(result, tuple) else result)
        return result

    return call


def _ordered(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def call(graph: ir.Graph, before: Mapping[ir.Node, set[ir.Node]], *rest: Any) -> Any:
        steps = run(graph, before, *rest)
        done: dict[ir.Node, int] = {}
        for k, step in enumerate(steps):
            done.update(dict.fromkeys(step.nodes, k))
        work = [n for n in graph.nodes() if n.op.kind != "leaf" and not n.op.is_view]
        assert sorted(n.id for s in steps for n in s.nodes) == sorted(n.id for n in work), "a node is missing, or runs twice"
        for n in work:
            for i in n.inputs:
                latest = done[n] - i.op.is_view  # through a view, other elements are read than the one being made
                while i.op.is_view:
                    i = i.inputs[0]
                assert i not in done or done[i] <= latest, f"{n!r} does not run after its input {i!r}"
                shared = i in done and done[i] != done[n]
                assert not shared or i in steps[done[i]].outputs, f"{i!r} is read by {n!r} but not stored"
        for writer, readers in before.items():
            for r in readers & done.keys():
                assert done[r] < done[writer], f"{writer!r} overwrites what {r!r} has yet to read"
        return steps

    return call
