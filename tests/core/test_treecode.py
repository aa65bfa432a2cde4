"""Trees by code that is written for one structure, against flatten and unflatten."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, namedtuple
from typing import Any

import pytest

from fuelnumba.core.tree import flatten, flatten_leaves, unflatten
from fuelnumba.core.treecode import builder, matcher

Pair = namedtuple("Pair", "a b")


@dataclasses.dataclass
class Record:
    x: Any
    y: Any = None


@dataclasses.dataclass
class Late:
    x: Any
    y: Any = dataclasses.field(init=False)


@dataclasses.dataclass
class Nothing:
    pass


def nested(levels: int) -> Any:
    tree: Any = 1.0
    for _ in range(levels):
        tree = [tree]
    return tree


TREES = [
    1.0, None, (), [], {}, (1.0,), [1.0, 2.0], {"a": 1.0, "b": [2.0, 3.0]}, {1: 1.0, (2, "x"): (2.0, None)}, {"": {}, "a b": [[]]},
    Pair(1.0, [2.0]), OrderedDict(z=1.0, a=(2.0,)), Record(1.0, {"k": [2.0]}), [Record(1.0), Record(None, 2.0)], Nothing(), [(Nothing(), 1.0)],
    ({"w": 1.0, "b": [(2.0, 3.0), (4.0, 5.0)]},), nested(150),
]


def is_float(name: str, k: int, space: dict[str, Any]) -> tuple[str, str]:
    return f"type({name}) is float", name


@pytest.mark.parametrize("tree", TREES, ids=lambda t: repr(t)[:40])
def test_builder_is_unflatten(tree: Any) -> None:
    leaves, treedef = flatten(tree)
    made = builder(treedef.structure, {})(leaves)
    assert made == unflatten(treedef, leaves) == tree and type(made) is type(tree)
    if isinstance(made, list):
        assert made is not builder(treedef.structure, {})(leaves)


def test_builder_with_constants() -> None:
    _, treedef = flatten({"a": 1.0, "b": ["x", 2.0], "c": "y"})
    assert builder(treedef.structure, {1: "x", 3: "y"})([10.0, 20.0]) == {"a": 10.0, "b": ["x", 20.0], "c": "y"}
    assert builder(flatten("only")[1].structure, {0: "only"})([]) == "only"


@pytest.mark.parametrize("tree", TREES, ids=lambda t: repr(t)[:40])
def test_matcher_is_flatten(tree: Any) -> None:
    """It takes the trees of its structure, and no other's."""
    own: list[Any] = []
    structure = flatten_leaves(tree, own)
    match = matcher(structure, is_float)
    assert match is not None
    for other in [*TREES, {"b": 1.0, "a": [2.0, 3.0]}, [1.0, "s"], (1.0, 2.0), {"a": 1.0}, Record(1.0, 2.0)]:
        leaves: list[Any] = []
        if flatten_leaves(other, leaves) == structure and set(map(type, leaves)) <= {float}:
            assert match(other) == leaves
        else:
            assert match(other) is None


def test_fields_that_are_not_set() -> None:
    record = Late(1.0)
    record.y = 2.0
    match = matcher(flatten_leaves(record, []), is_float)
    assert match is not None and match(record) == [1.0, 2.0]
    del record.y
    assert match is not None and match(record) is None
    assert matcher(flatten_leaves(record, []), is_float) is None


def test_subclasses_are_others() -> None:
    class Mine(dict):
        pass

    match = matcher(flatten_leaves({"a": 1.0}, []), is_float)
    assert match is not None and match({"a": 1.0}) == [1.0] and match(Mine(a=1.0)) is None
