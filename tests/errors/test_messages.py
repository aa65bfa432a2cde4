"""Whole messages, read with a new user's eyes: what happened, the marked expression, what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuelnumba import errors, jit
from fuelnumba.core import ir
from fuelnumba.tools import docs

from . import messages
from .messages import CASES, KEPT, V, X
from .told import raised, told


@pytest.mark.parametrize("name", CASES)
def test_it_says(name: str) -> None:
    call, text = CASES[name]
    try:
        assert told(call, messages.__file__) == text
    finally:
        KEPT.clear()


def test_a_graph_that_is_broken() -> None:
    f = jit(lambda x: np.exp(x))
    f(V)
    err = raised(lambda: ir.verify(ir.Graph([], f.graph.outputs)))
    assert type(err) is errors.GraphError
    assert re.sub(r"%\d+ = |uid=\d+, ", "", str(err)) == (
        "input(name='x'): f32[4] is not among the graph's inputs\n"
        "   = this is a bug in a pass: please report it with the printed graph")


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a-file").touch()
    monkeypatch.setenv("FUELNUMBA_CACHE_DIR", str(tmp_path / "a-file"))
    unique = 0.731 + len(KEPT)

    def f(x: Any) -> Any:
        return np.log1p(np.tanh(x) - unique) / np.exp2(x - 3) * np.sqrt(x) - np.cos(x)

    assert told(lambda: jit(f)(V), __file__) == (
        f"CacheError: cannot make the cache folder {tmp_path}/a-file/kernels: Not a directory\n"
        "at jit(f)(V)\n"
        "= set FUELNUMBA_CACHE_DIR to a folder you may write to")


def test_others_kernels_are_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("FUELNUMBA_CACHE_DIR", str(tmp_path))

    def f(x: Any) -> Any:
        return np.cos(np.log1p(np.tanh(x) - 0.5)) / np.exp2(x - 3) * np.sqrt(x) - np.sin(x)

    assert told(lambda: jit(f)(V), __file__) == (
        f"CacheError: the cache folder {folder} can be written to by others, who could put code into it\n"
        "at jit(f)(V)\n"
        "= chmod 700 it, or set FUELNUMBA_CACHE_DIR to a folder of your own")


def test_the_line_is_the_users_under_code_of_libraries() -> None:
    import scipy.special

    def f(x):
        return scipy.special.softmax(x)

    err = raised(lambda: jit(f)(X))
    assert isinstance(err, errors.TracingError) and err.where is not None
    assert (err.where.file, err.where.text().strip()) == (__file__, "return scipy.special.softmax(x)")


# ------------------------------------------------------------------------------------------------ every class
DOCUMENT = (Path(__file__).parents[2] / "docs" / "errors.md").read_text("utf-8")
# the tests above, and those in tests/vk; FuelError is the base, and raised for what is no kind of its own
ELSEWHERE = {"GraphError", "CacheError", "NoBackendForOp", "DeviceLostError"}


@pytest.mark.parametrize("name", errors.__all__)
def test_every_class_has_its_messages_and_its_example(name: str) -> None:
    told_here = {text.partition(":")[0] for _, text in CASES.values()} | ELSEWHERE
    assert name in told_here
    section = DOCUMENT.partition(f"\n### {name}\n")[2].partition("\n### ")[0]
    example = docs.EXAMPLE.search(section)
    assert example is not None and f"except fn.errors.{name} as err:" in example["code"]
    assert example["output"] and len(example["output"].splitlines()) > (name != "FuelError")
    assert "**Cause**" in section and "**Cure**" in section


@pytest.mark.parametrize("name", errors.__all__)
def test_the_document_names_the_built_in_classes(name: str) -> None:
    kind = getattr(errors, name)
    for built_in in (ValueError, TypeError, IndexError, AttributeError, NotImplementedError):
        row = next(line for line in DOCUMENT.splitlines() if line.startswith(f"| {built_in.__name__} |"))
        named = any(base.__name__ in row.replace("|", " ").split() for base in kind.__mro__)
        assert named is issubclass(kind, built_in), (name, built_in)
