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
        self.computed: list[tuple[Graph, int, int, Narrowing]] = []
        self.positions = positions
        file = getattr(getattr(function, "__code__", None), "co_filename", __file__)
        for n in {(n.node, n.dtype): n for n in reversed(narrowings)}.values():
            if is_library_file(file):  # an op called on arrays: the line is that of whoever called it first
                n = n._replace(where=None)
            info = np.iinfo(n.dtype.numpy)
            if n.node in positions:
                self.given.append((positions[n.node], int(info.min), int(info.max), n))
            else:
                self.computed.append((Graph([], [n.node]), int(info.min), int(info.max), n))

    def check(self, leaves: Sequence[Any], lengths: Mapping[str, int]) -> None:
        """Raises ArgumentError for an int that does not fit."""
        for k, least, largest, n in self.given:
            if not least <= leaves[k] <= largest:
                raise _refusal(f"the Python int {leaves[k]} does", n)
        for graph, least, largest, n in self.computed:
            value = self._value(graph, leaves, lengths)
            if not least <= value <= largest:
                raise _refusal(f"{value}, computed from Python numbers, does", n)

    def _value(self, graph: Graph, leaves: Sequence[Any], lengths: Mapping[str, int]) -> int:
        values: dict[Node, Any] = {}
        with np.errstate(all="ignore"):
            for n in graph.nodes():
                given = self.positions.get(n)
                values[n] = (evaluate_node(n, [values[i] for i in n.inputs], lengths) if given is None else
                             np.asarray(leaves[given], n.dtype.numpy))
        return int(values[graph.outputs[0]])


def _refusal(what: str, n: Narrowing) -> ArgumentError:
    at = f" ({n.where.file}:{n.where.line})" if n.where is not None else ""
    return ArgumentError(f"{what} not fit {n.dtype} in {n.op}(){at}",
                         cure=f"cast the array to a wider dtype, or pass a value that fits {n.dtype}")
