"""Python ints that meet narrower integer arrays. What an argument holds is not known while tracing: it is looked at before each
call, and one that does not fit is refused, as in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..core.errors import ArgumentError
from ..core.ir import Graph, Node
from ..core.source import is_library_file
from ..trace.interpret import evaluate_node
from ..trace.traced import Narrowing


class Fits:
    """What a traced function asks of its Python ints. positions: graph input -> its place among a call's leaves."""

    def __init__(self, narrowings: Sequence[Narrowing], positions: Mapping[Node, int], function: Callable[..., Any]) -> None:
        self.given: list[tuple[int, int, int, Narrowing]] = []  # place, least and largest value
        self.computed: list[tuple[list[Node], int, int, Narrowing]] = []  # what it is computed by, itself last
        self.positions = positions
        # the line of an op called on arrays is that of whoever called it first
        placed = not is_library_file(getattr(getattr(function, "__code__", None), "co_filename", __file__))
        for n in {(n.node, n.dtype): n for n in reversed(narrowings)}.values():
            n = n if placed else n._replace(where=None)
            info = np.iinfo(n.dtype.numpy)
            if n.node in positions:
                self.given.append((positions[n.node], info.min, info.max, n))
            else:
                self.computed.append((Graph([], [n.node]).nodes(), info.min, info.max, n))

    def check(self, leaves: Sequence[Any], lengths: Mapping[str, int]) -> None:
        """Raises ArgumentError for an int that does not fit."""
        for k, least, largest, n in self.given:
            if not least <= leaves[k] <= largest:
                raise _refusal(f"the Python int {leaves[k]} does", n)
        for nodes, least, largest, n in self.computed:
            value = self._value(nodes, leaves, lengths)
            if not least <= value <= largest:
                raise _refusal(f"{value}, computed from Python numbers, does", n)

    def _value(self, nodes: Sequence[Node], leaves: Sequence[Any], lengths: Mapping[str, int]) -> int:
        values: dict[Node, Any] = {}
        with np.errstate(all="ignore"):
            for n in nodes:
                given = self.positions.get(n)
                values[n] = (evaluate_node(n, [values[i] for i in n.inputs], lengths) if given is None else
                             np.asarray(leaves[given], n.dtype.numpy))
        return int(values[nodes[-1]])


def _refusal(what: str, n: Narrowing) -> ArgumentError:
    at = f" ({n.where.file}:{n.where.line})" if n.where is not None else ""
    return ArgumentError(f"{what} not fit {n.dtype} in {n.op}(){at}",
                         cure=f"cast the array to a wider dtype, or pass a value that fits {n.dtype}")
