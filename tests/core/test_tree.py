from __future__ import annotations

import dataclasses
import sys
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pytest

from fuelnumba.core.errors import ArgumentError
from fuelnumba.core.tree import LEAF, TreeDef, flatten, flatten_leaves, register_leaf, unflatten

Point = namedtuple("Point", "x y")


class Cell(NamedTuple):
    h: object
    c: object = None


@dataclass(frozen=True)
class Weights:
    wq: object
    wk: object = None


@dataclass
class Layer:
    weights: Weights
    scale: float = 1.0
    cache: object = field(init=False)

    def __post_init__(self):
        assert self.scale != -1, "must not run when rebuilt"


@dataclass(slots=True)
class Slotted:
    a: object
    b: object


@dataclass
class Empty:
    pass


def round_trip(obj):
    leaves, treedef = flatten(obj)
    return unflatten(treedef, leaves)


@pytest.mark.parametrize(
    "obj, leaves, shown",
    [
        (1, [1], "*"),
        (None, [], "None"),
        ([], [], "[]"),
        ((), [], "()"),
        ({}, [], "{}"),
        ([1, 2.0], [1, 2.0], "[*, *]"),
        ((1,), [1], "(*,)"),
        ({"b": 1, "a": [2, None]}, [1, 2], '{"b": *, "a": [*, None]}'),
        ({1: 1, (2, 3): 2}, [1, 2], "{1: *, (2, 3): *}"),
        (Point(1, [2]), [1, 2], "Point(x=*, y=[*])"),
        (Cell(1), [1], "Cell(h=*, c=None)"),
        (Weights(1, 2), [1, 2], "Weights(wq=*, wk=*)"),
        (Slotted(1, (2,)), [1, 2], "Slotted(a=*, b=(*,))"),
        (Empty(), [], "Empty()"),
        (OrderedDict(b=1, a=2), [1, 2], 'OrderedDict({"b": *, "a": *})'),
        ([[[]], {"x": {}}], [], '[[[]], {"x": {}}]'),
    ],
)
def test_leaves_repr_and_back(obj, leaves, shown):
    got, treedef = flatten(obj)
    assert got == leaves
    assert repr(treedef) == f"TreeDef({shown})"
    assert treedef.size == len(leaves)
    back = unflatten(treedef, got)
    assert back == obj and type(back) is type(obj)


def test_arrays_and_unknown_objects_are_leaves_by_identity():
    things = [np.ones(2), np.float32(1), "text", b"b", 1j, object(), {1, 2}, defaultdict(int), range(3)]
    leaves, treedef = flatten({"all": things})
    assert all(a is b for a, b in zip(leaves, things, strict=True))
    assert treedef.size == len(things)


def test_subclasses_of_containers_are_leaves():
    class MyDict(dict):
        pass

    class MyList(list):
        pass

    leaves, treedef = flatten([MyDict(a=1), MyList([1])])
    assert leaves == [{"a": 1}, [1]] and repr(treedef) == "TreeDef([*, *])"


def test_first_sight_of_a_leaf_type_gives_the_same_structure_as_later_ones():
    class New:
        pass

    first = flatten([New(), New(), {"a": New()}])[1]
    again = flatten([New(), New(), {"a": New()}])[1]
    assert first == again and hash(first) == hash(again)
    assert flatten((New(),))[1] == flatten((1,))[1]

    class Newer:
        pass

    assert flatten([1, Newer()])[1] == flatten([1, Newer()])[1] == flatten([1, 2])[1]


def test_order_of_a_dict_belongs_to_its_structure():
    a, b = flatten({"a": 1, "b": 2})[1], flatten({"b": 2, "a": 1})[1]
    assert a != b
    assert list(round_trip({"b": 2, "a": 1})) == ["b", "a"]


@pytest.mark.parametrize(
    "a, b",
    [
        ([1], (1,)),
        ([1], [[1]]),
        ([1, None], [1]),
        ([None], [[]]),
        ({"a": 1}, {"b": 1}),
        ({"a": 1}, OrderedDict(a=1)),
        (Point(1, 2), (1, 2)),
        (Weights(1, 2), Slotted(1, 2)),
        ([1, 2], [1, 2, 3]),
        (None, 1),
    ],
)
def test_different_trees_differ(a, b):
    one, two = flatten(a)[1], flatten(b)[1]
    assert one != two
    assert len({one, two}) == 2


def test_treedef_is_equal_by_structure_only():
    one, two = flatten({"a": [1, 2]})[1], flatten({"a": [np.ones(2), "x"]})[1]
    assert one == two and hash(one) == hash(two)
    assert one != one.structure


def test_dataclass_is_rebuilt_without_init():
    layer = Layer(Weights(1, 2), 3.0)
    layer.cache = [4]
    leaves, treedef = flatten(layer)
    assert leaves == [1, 2, 3.0, 4]
    back = unflatten(treedef, [1, 2, -1, 5])  # __post_init__ would refuse the scale
    assert type(back) is Layer and back.weights == Weights(1, 2)
    assert (back.scale, back.cache) == (-1, [5])


def test_unset_field_stays_unset():
    leaves, treedef = flatten(Layer(Weights(1), 2.0))
    assert leaves == [1, 2.0]
    assert repr(treedef) == "TreeDef(Layer(weights=Weights(wq=*, wk=None), scale=*))"
    assert not hasattr(unflatten(treedef, leaves), "cache")
    full = Layer(Weights(1), 2.0)
    full.cache = None
    assert flatten(full)[1] != treedef


def test_dataclass_that_is_an_array_is_a_leaf():
    @dataclass
    class Array:
        data: object

        def __array__(self, dtype=None, copy=None):
            return self.data

    @register_leaf
    @dataclass
    class Marked:
        data: object

    a, m = Array(1), Marked(2)
    leaves, treedef = flatten([a, m])
    assert leaves[0] is a and leaves[1] is m and repr(treedef) == "TreeDef([*, *])"


def test_dataclass_that_extends_a_builtin_is_a_leaf():
    @dataclass
    class Odd(dict):
        a: int = 1

    odd = Odd()
    assert flatten(odd)[0] == [odd]


def test_class_itself_is_a_leaf():
    assert flatten([Weights, int])[0] == [Weights, int]


def test_paths():
    tree_ = {
        "emb": 0,
        "layers": [{"w": 1}, {"w": 2}, None, Weights(3, (4, Point(5, 6)))],
        7: {"it's": 8},
    }
    assert flatten(tree_)[1].paths("params") == [
        'params["emb"]',
        'params["layers"][0]["w"]',
        'params["layers"][1]["w"]',
        'params["layers"][3].wq',
        'params["layers"][3].wk[0]',
        'params["layers"][3].wk[1].x',
        'params["layers"][3].wk[1].y',
        'params[7]["it\'s"]',
    ]
    assert flatten(1)[1].paths("x") == ["x"]
    for path, leaf in zip(flatten(tree_)[1].paths("t"), flatten(tree_)[0], strict=True):
        assert eval(path, {"t": tree_}) == leaf


def test_flatten_leaves_gives_a_key():
    leaves: list = []
    structure = flatten_leaves({"a": [1, 2], "b": None}, leaves)
    assert leaves == [1, 2]
    assert structure == (dict, ("a", "b"), ((list, 2), None))
    assert {structure: 1}[flatten_leaves({"a": [3, 4], "b": None}, [])] == 1
    assert unflatten(structure, leaves) == {"a": [1, 2], "b": None}
    assert flatten_leaves(5, leaves) == LEAF and leaves == [1, 2, 5]


@pytest.mark.parametrize("leaves", [[], [1], [1, 2, 3]])
@pytest.mark.parametrize("obj", [[1, 2], {"a": 1, "b": [2]}])
def test_wrong_number_of_leaves(obj, leaves):
    with pytest.raises(ArgumentError) as caught:
        unflatten(flatten(obj)[1], leaves)
    assert str(caught.value) == f"a tree of 2 leaves cannot be built from {len(leaves)}"


def test_unflatten_takes_any_iterable_and_any_leaves():
    treedef = flatten((1, [2]))[1]
    assert unflatten(treedef, iter(["a", None])) == ("a", [None])


def cyclic_list():
    a: list = [1]
    a.append(a)
    return a


def cyclic_dict():
    a: dict = {"x": [1, {"y": 2}]}
    a["x"][1]["up"] = a["x"]
    return a


def cyclic_dataclass():
    a = Slotted(1, None)
    a.b = (a,)
    return a


@pytest.mark.parametrize(
    "make, path",
    [
        (cyclic_list, "the argument[1]"),
        (cyclic_dict, 'the argument["x"][1]["up"]'),
        (cyclic_dataclass, "the argument.b[0]"),
    ],
)
def test_cycles_are_named(make, path):
    with pytest.raises(ArgumentError) as caught:
        flatten(make())
    assert str(caught.value) == (
        f"{path} contains itself\n   = pass a tree: no list, dict or dataclass may be reached from itself"
    )


def test_a_container_used_twice_is_no_cycle():
    shared = [1, 2]
    assert flatten([shared, {"again": shared}])[0] == [1, 2, 1, 2]


def test_too_deep():
    deep: list = []
    for _ in range(sys.getrecursionlimit() + 10):
        deep = [deep]
    with pytest.raises(ArgumentError) as caught:
        flatten(deep)
    assert str(caught.value) == (
        "the argument is nested too deeply\n   = flatten it, or raise sys.setrecursionlimit"
    )


def test_large_model_round_trip():
    layers = [{"attn": {"wq": i, "wk": i + 1}, "norm": [i, (i, None)]} for i in range(100)]
    params = {"layers": layers, "head": Weights(1, 2)}
    leaves, treedef = flatten(params)
    assert len(leaves) == 402 == treedef.size
    assert unflatten(treedef, leaves) == params
    doubled = unflatten(treedef, [2 * leaf for leaf in leaves])
    assert doubled["layers"][3]["attn"] == {"wq": 6, "wk": 8}
    assert dataclasses.astuple(doubled["head"]) == (2, 4)


def test_treedef_of_a_bare_structure():
    assert TreeDef(LEAF).paths("x") == ["x"] and TreeDef(None).size == 0
    assert repr(TreeDef(LEAF)) == "TreeDef(*)"
