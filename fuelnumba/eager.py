"""NumPy's functions and operators called on device arrays: each call is a small jitted function, kept by what it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .core.errors import FuelIndexError
from .core.ops import shown
from .core.source import user_location
from .core.tree import TreeDef, flatten_leaves, unflatten
from .jit import Jitted
from .run import array
from .run.array import DeviceArray
from .trace.apply import as_tensor
from .trace.traced import current_trace

MOST = 1024  # kinds of calls that are kept

_made: dict[Any, Jitted[..., Any]] = {}


def run(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`function(*args, **kwargs)` on the device where its arrays lie. What is no array is compiled in."""
    leaves: list[Any] = []
    structure = flatten_leaves((args, kwargs), leaves)
    if current_trace() is not None:  # in a jitted function, they are constants
        args, kwargs = unflatten(structure, [as_tensor(v) if isinstance(v, DeviceArray) else v for v in leaves])
        return function(*args, **kwargs)
    places = tuple(k for k, leaf in enumerate(leaves) if isinstance(leaf, (DeviceArray, np.ndarray)))
    fixed = tuple((k, type(leaf), _frozen(leaf)) for k, leaf in enumerate(leaves) if k not in places)
    key = (function, structure, places, fixed)
    jitted = _made.get(key)
    if jitted is None:
        while len(_made) >= MOST:
            _made.pop(next(iter(_made)), None)
        jitted = _made[key] = _jitted(function, TreeDef(structure), list(leaves), places)
    try:
        return jitted(*(leaves[k] for k in places))
    except FuelIndexError as err:  # which names the line of the first such call
        raise FuelIndexError(err.what, where=user_location(), cure=err.cure) from None


def _frozen(leaf: Any) -> Any:
    if isinstance(leaf, slice):  # not hashable before Python 3.12
        return ("slice", _frozen(leaf.start), _frozen(leaf.stop), _frozen(leaf.step))
    try:
        hash(leaf)
    except TypeError:
        return shown(leaf)
    return leaf


def _jitted(function: Callable[..., Any], tree: TreeDef, leaves: list[Any], places: tuple[int, ...]) -> Jitted[..., Any]:
    for k in places:
        leaves[k] = None  # the arrays of this call are not kept

    def call(*arrays: Any) -> Any:
        given = list(leaves)
        for k, a in zip(places, arrays):
            given[k] = a
        args, kwargs = unflatten(tree, given)
        return function(*args, **kwargs)

    call.__name__ = getattr(function, "__name__", "call")
    return Jitted(call)


array.eager = run
