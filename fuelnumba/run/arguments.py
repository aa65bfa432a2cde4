"""What a call looks like: the kinds and layouts of its leaves, their names in words, and whether arrays overlap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.dims import Extent
from ..core.errors import ArgumentError
from ..core.layout import Layout
from ..core.treecode import LeafTest
from .array import DeviceArray
from .memory import address

Signature = tuple[Any, ...]
SCALAR = "scalar"
SCALARS = {bool: "b", int: "i", float: "f"}


def leaf_signature(leaf: Any) -> Signature | None:
    """Of an array: (dtype, shape, None or strides or, which is refused, "misaligned"); of a Python scalar: its kind. None for
    anything else. A scalar of NumPy's is made an array by the caller, and has SCALAR for its layout; an array on a device has
    the device there."""
    if type(leaf) is np.ndarray:
        flags = leaf.flags
        return (leaf.dtype, leaf.shape,
                None if flags.c_contiguous and flags.aligned else leaf.strides if flags.aligned else "misaligned")
    kind = SCALARS.get(type(leaf))
    if kind is not None:
        return (kind,)
    return (leaf.dtype, leaf.shape, leaf.device) if type(leaf) is DeviceArray else None


def leaf_tests(signatures: Sequence[Signature], leaves: Sequence[Any]) -> LeafTest:
    """What `treecode.matcher` asks of the leaves: that each has its signature, or is the object that it was."""

    def test(name: str, k: int, space: dict[str, Any]) -> tuple[str, str]:
        signature = signatures[k]
        if len(signature) == 1:
            kind = {"b": "bool", "i": "int", "f": "float"}.get(signature[0])
            space[f"o{k}"] = leaves[k] if kind is None else None
            return f"type({name}) is {kind}" if kind else f"{name} is o{k}", name
        space |= {"ndarray": np.ndarray, "asarray": np.asarray, f"d{k}": signature[0], f"s{k}": signature[1:]}
        if type(leaves[k]) is DeviceArray:
            space |= {"DeviceArray": DeviceArray, f"s{k}": signature[1], f"t{k}": signature[2]}
            return (f"type({name}) is DeviceArray and {name}.dtype == d{k} and {name}.shape == s{k} and {name}.device is t{k}",
                    name)
        if signature[2] == SCALAR:
            space[f"d{k}"] = signature[0].type
            return f"type({name}) is d{k}", f"asarray({name})"
        same_dtype = f"type({name}) is ndarray and ({name}.dtype is d{k} or {name}.dtype == d{k})"
        if signature[2] is None:
            space[f"s{k}"] = signature[1]
            laid_out = f"{name}.shape == s{k} and ((f := {name}.flags).carray or f.c_contiguous and f.aligned)"
        else:
            laid_out = f"({name}.shape, {name}.strides) == s{k} and (f := {name}.flags).aligned and not f.c_contiguous"
        return f"{same_dtype} and {laid_out}", name

    return test


def equal_statics(a: Any, b: Any) -> bool:
    """Of static values, which may be of the user's classes."""
    try:
        return bool(a == b)
    except Exception:
        return False


def overlap(leaves: Sequence[Any], donated: frozenset[int]) -> tuple[int, int] | None:
    """The positions of two arrays that share memory and of which one is donated; None when there are none."""
    buffers = [id(a.buffer) for a in leaves if type(a) is DeviceArray]
    if len(set(buffers)) < len(buffers):
        for k in sorted(donated):
            for j, a in enumerate(leaves):
                if j != k and type(a) is type(leaves[k]) is DeviceArray and a.buffer is leaves[k].buffer:
                    return min(j, k), max(j, k)
    spans = sorted((address(a), a.nbytes if a.flags.c_contiguous else -1, k)
                   for k, a in enumerate(leaves) if type(a) is np.ndarray and a.size)
    reach = given = 0  # where the arrays before this one end; the donated ones of them
    for start, nbytes, k in spans:
        if nbytes < 0 or start < (reach if k in donated else given):
            break
        reach = max(reach, start + nbytes)
        given = max(given, start + nbytes) if k in donated else given
    else:
        return None
    arrays = sorted(k for _, _, k in spans)
    return next(((min(j, k), max(j, k)) for j in sorted(donated) for k in arrays
                 if j != k and type(leaves[j]) is np.ndarray and np.shares_memory(leaves[j], leaves[k])), None)


def kind_in_words(kind: Signature) -> str:
    if len(kind) == 1:
        return {"b": "a Python bool", "i": "a Python int", "f": "a Python float"}.get(kind[0], "an object")
    if kind[2] == SCALAR:
        return f"a NumPy scalar of {kind[0]}"
    layout = "" if kind[2] is None else f" on {kind[2].name}" if hasattr(kind[2], "name") else f" with strides {kind[2]}"
    return f"{kind[0]} of rank {kind[1]}{layout}"


def identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name).strip("_")


def strided(array: np.ndarray[Any, Any], shape: tuple[Extent, ...], function: str, name: str) -> Layout:
    """The layout of an array with any strides. Raises ArgumentError when elements do not lie on whole steps."""
    if any(s % array.itemsize for s in array.strides):
        raise ArgumentError(f"{function}(): {name} has strides {array.strides}, no multiples of its itemsize {array.itemsize}",
                            cure="pass a copy: np.ascontiguousarray(x)")
    return Layout(shape, tuple(s // array.itemsize for s in array.strides))
