"""Nested arguments as a flat list of leaves and a structure.

Lists, tuples, named tuples, dicts, ordered dicts and dataclasses are branches; None is a branch without
leaves; everything else, other subclasses of the containers included, is a leaf. Rules worth knowing:

- A dict keeps its insertion order, and the order belongs to the structure: `{"a": x, "b": y}` and
  `{"b": y, "a": x}` are different trees, because a function that iterates over them does different things.
- A dataclass is its fields as they are set (`init=False` ones too). It is rebuilt without `__init__` and
  `__post_init__`, so that frozen and validating classes work; attributes that are no fields do not travel.
- Dataclasses that are themselves arrays (have `__array__`), or were given to `register_leaf`, are leaves.
- A container that contains itself is an ArgumentError.

Flattening happens at every warm call. A structure is therefore made of bare tuples, `(type, keys)` where all
children are leaves and `(type, keys, children)` elsewhere, `keys` being the length for sequences; a leaf is
`LEAF` and None is None. It is hashable and comparable as it stands; `TreeDef` wraps it for people.
"""

from __future__ import annotations

import dataclasses
import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

from .errors import ArgumentError

__all__ = ["LEAF", "TreeDef", "build", "flatten", "flatten_leaves", "register_leaf", "unflatten"]

#: The structure of a leaf.
LEAF = "*"

Structure = Hashable
Walk = Callable[[Any, list], Structure]


class Branch(NamedTuple):
    """How one type of container comes apart and together."""

    walk: Walk
    build: Callable[[type, Any, list], Any]  # type, keys, children
    path: Callable[[str, Any], str]  # of the container, key
    show: tuple[str, Callable[[Any], str], str]  # opening, key, closing


def flatten_leaves(obj: Any, leaves: list) -> Structure:
    """Append the leaves of `obj` to the list; return its structure, hashable and equal for equal trees."""
    try:
        walk = _walks.get(type(obj), _first_sight)
        if walk is None:
            leaves.append(obj)
            return LEAF
        return walk(obj, leaves)
    except RecursionError:
        raise _too_deep(obj) from None


def flatten(obj: Any) -> tuple[list, TreeDef]:
    """Leaves in order, and what `unflatten` needs to put them back."""
    leaves: list = []
    return leaves, TreeDef(flatten_leaves(obj, leaves))


def unflatten(treedef: TreeDef | Structure, leaves: Any) -> Any:
    """The tree with these leaves: the inverse of `flatten`, and of `flatten_leaves` for a bare structure."""
    structure = treedef.structure if isinstance(treedef, TreeDef) else treedef
    leaves = list(leaves)
    rest = iter(leaves)
    try:
        tree = _build(structure, rest)
        if next(rest, rest) is rest:
            return tree
    except _Short:
        pass
    raise ArgumentError(f"a tree of {TreeDef(structure).size} leaves cannot be built from {len(leaves)}")


def register_leaf(cls: type) -> type:
    """Take instances of this very class as leaves, whatever they look like. Usable as a decorator."""
    _walks[cls] = None
    _leaf_types.add(cls)
    return cls


class TreeDef:
    """A structure with a face: size, paths, repr. Equal and hashed by structure."""

    __slots__ = ("_hash", "structure")

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        self._hash = hash(structure)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeDef) and self.structure == other.structure

    @property
    def size(self) -> int:
        """Number of leaves."""
        return len(self.paths())

    def paths(self, name: str = "") -> list[str]:
        """The Python expression that reaches each leaf from `name`: `params["layers"][3].wq`."""
        out: list[str] = []
        _paths(self.structure, name, out)
        return out

    def __repr__(self) -> str:
        return f"TreeDef({_show(self.structure)})"


# Taking apart --------------------------------------------------------------------------------


def _sequence(cls: type) -> Walk:
    def walk(obj: Any, leaves: list) -> Structure:
        # One C loop decides the common case, a row of leaves of known types.
        if _leaf_types.issuperset(map(type, obj)):
            leaves += obj
            return (cls, len(obj))
        children = _children(obj, leaves)
        return (cls, len(obj), children) if children else (cls, len(obj))

    return walk


def _mapping(cls: type) -> Walk:
    def walk(obj: Any, leaves: list) -> Structure:
        values = obj.values()
        if _leaf_types.issuperset(map(type, values)):
            leaves += values
            return (cls, tuple(obj))
        keys = tuple(obj)
        children = _children(values, leaves)
        return (cls, keys, children) if children else (cls, keys)

    return walk


def _record(cls: type) -> Walk:
    names = tuple(f.name for f in dataclasses.fields(cls))
    if not names:
        return lambda obj, leaves: (cls, ())
    # attrgetter gives a tuple only for two names or more.
    get = attrgetter(*names) if len(names) > 1 else lambda obj: (getattr(obj, names[0]),)

    def walk(obj: Any, leaves: list) -> Structure:
        have = names
        try:
            values = get(obj)
        except AttributeError:  # a field with init=False that was never set
            have = tuple(name for name in names if hasattr(obj, name))
            values = tuple(getattr(obj, name) for name in have)
        if _leaf_types.issuperset(map(type, values)):
            leaves += values
            return (cls, have)
        children = _children(values, leaves)
        return (cls, have, children) if children else (cls, have)

    return walk


def _children(values: Any, leaves: list) -> tuple | None:
    """Structures of the children; None when all are leaves after all."""
    out: list = []
    walks = _walks
    flat = True
    for value in values:
        walk = walks.get(type(value), _first_sight)
        if walk is None:
            leaves.append(value)
            out.append(LEAF)
        else:
            sub = walk(value, leaves)
            out.append(sub)
            if sub is not LEAF:
                flat = False
    return None if flat else tuple(out)


def _first_sight(obj: Any, leaves: list) -> Structure:
    """Classify a type that no tree has had yet, then treat the object by it."""
    cls = type(obj)
    branch = _branch_of(cls)
    if branch is None:
        register_leaf(cls)
        leaves.append(obj)
        return LEAF
    _branches[cls] = branch
    _walks[cls] = branch.walk
    return branch.walk(obj, leaves)


def _branch_of(cls: type) -> Branch | None:
    if issubclass(cls, tuple) and hasattr(cls, "_fields") and hasattr(cls, "_make"):
        fields: tuple[str, ...] = cls._fields
        return Branch(
            _sequence(cls),
            lambda cls, n, values: tuple.__new__(cls, values),
            lambda at, i: f"{at}.{fields[i]}",
            (cls.__name__ + "(", lambda i: f"{fields[i]}=", ")"),
        )
    is_array = hasattr(cls, "__array__") or hasattr(cls, "__array_function__")
    if dataclasses.is_dataclass(cls) and not is_array and _is_plain(cls):
        return Branch(
            _record(cls),
            _build_record,
            lambda at, k: f"{at}.{k}",
            (cls.__name__ + "(", lambda k: f"{k}=", ")"),
        )
    return None


def _is_plain(cls: type) -> bool:
    """Can instances be made bare? Not those of classes that extend a built-in such as dict."""
    try:
        object.__new__(cls)
    except TypeError:
        return False
    return True


def _too_deep(obj: Any) -> ArgumentError:
    """Why the recursion did not end; walks with a stack of its own."""
    stack: list[tuple[Any, str, frozenset[int]]] = [(obj, "the argument", frozenset())]
    seen: set[int] = set()
    while stack:
        node, path, above = stack.pop()
        if id(node) in above:
            return ArgumentError(
                f"{path} contains itself",
                cure="pass a tree: no list, dict or dataclass may be reached from itself",
            )
        branch = _branches.get(type(node))
        if branch is None or id(node) in seen:
            continue
        seen.add(id(node))
        above |= {id(node)}
        if isinstance(node, dict):
            items: Any = node.items()
        elif isinstance(node, (list, tuple)):
            items = enumerate(node)
        else:
            names = [f.name for f in dataclasses.fields(node)]
            items = [(name, getattr(node, name, None)) for name in names]
        stack += [(child, branch.path(path, key), above) for key, child in items]
    return ArgumentError(
        "the argument is nested too deeply", cure="flatten it, or raise sys.setrecursionlimit"
    )


# Putting together --------------------------------------------------------------------------------


class _Short(Exception):
    """The leaves ran out."""


def _build(structure: Any, rest: Iterator[Any]) -> Any:
    if structure is None:
        return None
    if structure == LEAF:
        for leaf in rest:
            return leaf
        raise _Short
    cls, keys = structure[:2]
    if len(structure) == 2:
        n = keys if isinstance(keys, int) else len(keys)
        values = list(islice(rest, n))
        if len(values) != n:
            raise _Short
    else:
        values = [_build(child, rest) for child in structure[2]]
    return _branches[cls].build(cls, keys, values)


def build(cls: type, keys: Any, values: list) -> Any:
    """A container of any kind, of its children."""
    return _branches[cls].build(cls, keys, values)


def _build_record(cls: type, names: tuple[str, ...], values: list) -> Any:
    obj: Any = object.__new__(cls)
    for name, value in zip(names, values):
        object.__setattr__(obj, name, value)  # passes by what makes a frozen class frozen
    return obj


# For people --------------------------------------------------------------------------------


def _walk_structure(structure: Any) -> Iterator[tuple[Any, Any]]:
    """Pairs of key and structure of the children."""
    keys = structure[1]
    keys = range(keys) if isinstance(keys, int) else keys
    children = structure[2] if len(structure) == 3 else [LEAF] * len(keys)
    return zip(keys, children)


def _paths(structure: Any, at: str, out: list[str]) -> None:
    if structure == LEAF:
        out.append(at)
    elif structure is not None:
        path = _branches[structure[0]].path
        for key, child in _walk_structure(structure):
            _paths(child, path(at, key), out)


def _show(structure: Any) -> str:
    if structure is None or structure == LEAF:
        return str(structure)
    start, show_key, end = _branches[structure[0]].show
    inner = [show_key(key) + _show(child) for key, child in _walk_structure(structure)]
    if structure[0] is tuple and len(inner) == 1:
        end = "," + end
    return start + ", ".join(inner) + end


def _quote(key: Any) -> str:
    return json.dumps(key, ensure_ascii=False) if isinstance(key, str) else repr(key)


def _item(at: str, key: Any) -> str:
    return f"{at}[{_quote(key)}]"


_named: Callable[[Any], str] = lambda key: f"{_quote(key)}: "
_unnamed: Callable[[Any], str] = lambda key: ""

_branches: dict[type, Branch] = {
    list: Branch(_sequence(list), lambda cls, n, values: values, _item, ("[", _unnamed, "]")),
    tuple: Branch(_sequence(tuple), lambda cls, n, values: tuple(values), _item, ("(", _unnamed, ")")),
    dict: Branch(
        _mapping(dict), lambda cls, keys, values: dict(zip(keys, values)), _item, ("{", _named, "}")
    ),
    OrderedDict: Branch(
        _mapping(OrderedDict),
        lambda cls, keys, values: OrderedDict(zip(keys, values)),
        _item,
        ("OrderedDict({", _named, "})"),
    ),
}

# What the warm path asks: the walk of a container, or None for a leaf; and the types known to be leaves.
_walks: dict[type, Walk | None] = {cls: branch.walk for cls, branch in _branches.items()}
_walks[type(None)] = lambda *_: None
_leaf_types: set[type] = set()
for _cls in (bool, int, float, complex, str, bytes):
    register_leaf(_cls)
