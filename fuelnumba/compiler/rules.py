"""Rewrite rules: each looks at one node and returns an equal, simpler one, or None. They are tried in order; the driver
(`simplify`) is called on nodes whose inputs are simple already."""

from __future__ import annotations

from collections.abc import Callable

from ..core import ir
from ..core.dims import same, same_shape
from ..core.ir import Node

Rule = Callable[[Node], "Node | None"]


def drop_identity_view(n: Node) -> Node | None:
    """A view that changes nothing."""
    x = n.inputs[0]
    if n.op.name in ("reshape", "broadcast_to") and same_shape(x.shape, n.shape):
        return x
    if n.op.name == "permute" and n.attr("axes") == tuple(range(len(n.shape))):
        return x
    if n.op.name == "slice" and same(n.attr("length"), x.shape[n.attr("axis")]) and n.attr("step") == 1:
        return x
    return None


def fold_permute_of_permute(n: Node) -> Node | None:
    x = n.inputs[0]
    if n.op.name == "permute" and x.op.name == "permute":
        inner = x.attr("axes")
        return ir.make(n.op, x.inputs, {"axes": tuple(inner[a] for a in n.attr("axes"))}, n.where)
    return None


def fold_reshape_of_reshape(n: Node) -> Node | None:
    x = n.inputs[0]
    if n.op.name == "reshape" and x.op.name in ("reshape", "squeeze", "unsqueeze"):
        return ir.make(n.op, x.inputs, n.attributes, n.where)
    return None


def fold_flip_of_flip(n: Node) -> Node | None:
    x = n.inputs[0]
    if n.op.name == "flip" and x.op.name == "flip" and n.attr("axis") == x.attr("axis"):
        return x.inputs[0]
    return None


def fold_view_of_full(n: Node) -> Node | None:
    """A scalar repeated to a shape has no layout."""
    x = n.inputs[0]
    if n.op.is_view and x.op is ir.FULL:
        return ir.full_node(x.attr("value"), n.shape, n.dtype, n.where)
    return None


def drop_identity_cast(n: Node) -> Node | None:
    return n.inputs[0] if n.op.name == "cast" and n.inputs[0].dtype is n.dtype else None


def fold_exact_cast(n: Node) -> Node | None:
    """cast(cast(x)): the middle dtype does not matter when it holds every value of x's dtype."""
    x = n.inputs[0]
    if n.op.name == "cast" and x.op.name == "cast":
        source, middle = x.inputs[0].dtype, x.dtype
        if source is not middle and _holds(middle.name, source.name):
            return ir.make(n.op, x.inputs, n.attributes, n.where)
    return None


def _holds(wide: str, narrow: str) -> bool:
    return narrow in {"f32": ("f16", "bf16", "f8e4m3", "f8e5m2"), "f64": ("f16", "bf16", "f32", "f8e4m3", "f8e5m2"),
                      "i16": ("u8", "i8"), "i32": ("u8", "i8", "i16"), "i64": ("u8", "i8", "i16", "i32", "u32")}.get(wide, ())


def drop_double_negation(n: Node) -> Node | None:
    x = n.inputs[0]
    return x.inputs[0] if n.op.name in ("negative", "logical_not", "bitwise_not") and x.op is n.op else None


def drop_copy_of_fresh(n: Node) -> Node | None:
    x = n.inputs[0]
    return x if n.op.name == "contiguous" and x.op.name == "contiguous" else None


def same_reduction_of_nothing(n: Node) -> Node | None:
    """sum, max, min, prod over no axes."""
    if n.op.kind == "reduce" and n.op.name in ("sum", "max", "min", "prod") and n.attr("axis") == ():
        return n.inputs[0] if same_shape(n.shape, n.inputs[0].shape) else None
    return None


RULES: tuple[Rule, ...] = (
    drop_identity_view, fold_view_of_full, fold_permute_of_permute, fold_reshape_of_reshape, fold_flip_of_flip,
    drop_identity_cast, fold_exact_cast, drop_double_negation, drop_copy_of_fresh, same_reduction_of_nothing,
)


def simplify(node: Node) -> Node:
    """The first rule's answer, or the node itself. x * 1, x + 0 and the like are left alone: they are not the identity for
    NaN, infinities or -0.0, or cost nothing in a fused kernel."""
    if not node.inputs:
        return node
    for rule in RULES:
        new = rule(node)
        if new is not None:
            return new
    return node
