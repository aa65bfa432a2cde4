"""Structures of trees as code: what `flatten_leaves` and `unflatten` do for any tree, written out for one.

A function that is called again and again with trees of one kind has them taken apart by a few lines of Python that were made for
them, and its results put together so. Every container is a statement of its own: expressions may not nest deeply.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from .tree import LEAF, Structure, build

__all__ = ["builder", "matcher"]

LeafTest = Callable[[str, int, dict[str, Any]], tuple[str, str]]


def builder(structure: Structure, constants: Mapping[int, Any]) -> Callable[[Sequence[Any]], Any]:
    """A function that makes the tree of its leaves, without those that are constants, by their numbers among all."""
    space: dict[str, Any] = {"build": build}
    lines: list[str] = []
    numbers, places, names = count(), count(), count()

    def made(node: Any) -> str:
        if node is None:
            return "None"
        if node == LEAF:
            k = next(numbers)
            if k not in constants:
                return f"r[{next(places)}]"
            space[f"c{k}"] = constants[k]
            return f"c{k}"
        cls, keys, children = _parts(node)
        parts = [made(child) for child in children]
        n = next(names)
        if cls is list:
            text = f"[{', '.join(parts)}]"
        elif cls is tuple:
            text = f"({''.join(f'{p}, ' for p in parts)})"
        elif cls is dict:
            space.update({f"k{n}_{i}": key for i, key in enumerate(keys)})
            text = f"{{{', '.join(f'k{n}_{i}: {p}' for i, p in enumerate(parts))}}}"
        else:
            space.update({f"t{n}": cls, f"k{n}": keys})
            text = f"build(t{n}, k{n}, [{', '.join(parts)}])"
        lines.append(f"v{n} = {text}")
        return f"v{n}"

    result = made(structure)
    return _function("r", [*lines, f"return {result}"], space)


def matcher(structure: Structure, leaf: LeafTest) -> Callable[[Any], list[Any] | None] | None:
    """A function that gives a tree's leaves, or None when it is another one. `leaf(name, number, namespace)` says, as expressions
    over the name, what a leaf must be, and what is to stand for it. None for a tree with fields that are not set."""
    space: dict[str, Any] = {}
    lines: list[str] = []
    leaves: list[str] = []
    names = count(1)
    todo: list[tuple[str, Any]] = [("v0", structure)]
    while todo:
        name, node = todo.pop()
        if node is None:
            lines.append(f"if {name} is not None: return None")
            continue
        if node == LEAF:
            test, value = leaf(name, len(leaves), space)
            lines.append(f"if not ({test}): return None")
            leaves.append(value)
            continue
        cls, keys, children = _parts(node)
        inside = [f"v{next(names)}" for _ in children]
        space |= {f"t{name}": cls, f"k{name}": keys}
        lines.append(f"if type({name}) is not t{name}: return None")
        into = "".join(f"{v}, " for v in inside)
        if issubclass(cls, tuple | list):
            lines.append(f"if len({name}) != {len(inside)}: return None")
            lines += [f"{into}= {name}"] if inside else []
        elif cls in (dict, OrderedDict):
            lines.append(f"if tuple({name}) != k{name}: return None")
            lines += [f"{into}= {name}.values()"] if inside else []
        elif tuple(f.name for f in dataclasses.fields(cls)) == keys:  # type: ignore[arg-type]
            space["unset"] = space  # what no field holds, and no leaf is
            lines += [f"{v} = getattr({name}, {key!r}, unset)" for v, key in zip(inside, keys)]
        else:
            return None
        todo += reversed(list(zip(inside, children)))
    return _function("v0", [*lines, f"return [{', '.join(leaves)}]"], space)


def _parts(node: Any) -> tuple[type, Any, Sequence[Any]]:
    cls, keys = node[:2]
    return cls, keys, node[2] if len(node) == 3 else [LEAF] * (keys if isinstance(keys, int) else len(keys))


def _function(parameter: str, lines: Sequence[str], space: dict[str, Any]) -> Callable[[Any], Any]:
    body = "".join(f"    {line}\n" for line in lines)
    exec(f"def made({parameter}):\n{body}", space)
    return space["made"]
