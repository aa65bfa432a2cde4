"""Values without axes: NumPy's functions that take an axis do with 0, -1 and others what they do on arrays of rank 0."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuelnumba.core.errors import FuelError
from fuelnumba.trace.numpy_api import FUNCTIONS, REDUCE

from .tracing import check, run

VALUES = [np.array(v) for v in (2.5, np.float32(np.nan), 0.0, np.int64(3), np.int8(-7), True)]
AXES: list[Any] = [None, 0, -1, np.int64(0), (), (0,), (-1,), 1, -2, (0, 0), True]
KEEPING = ("sum", "prod", "mean", "max", "min", "any", "all", "argmax", "argmin", "var", "std", "ptp", "count_nonzero")

TABLE: dict[str, Callable[[Any, Any], Any]] = {
    **{n: lambda x, axis, n=n: getattr(np, n)(x, axis=axis) for n in (*KEEPING, "amax", "amin", "squeeze", "flip")},
    **{f"{n}, keepdims": lambda x, axis, n=n: getattr(np, n)(x, axis=axis, keepdims=True) for n in KEEPING},
    **{f"x.{n}": lambda x, axis, n=n: getattr(x, n)(axis=axis) for n in (*KEEPING[:-2], "squeeze")},
    **{f"{u.__name__}.reduce": lambda x, axis, u=u: u.reduce(x, axis=axis) for u in REDUCE},
    "add.reduce()": lambda x, axis: np.add.reduce(x),
    "take": lambda x, axis: np.take(x, 0, axis=axis), "take some": lambda x, axis: np.take(x, [0, 0, -1], axis=axis),
    "x.take": lambda x, axis: x.take(0, axis=axis),
    "repeat": lambda x, axis: np.repeat(x, 3, axis=axis), "x.repeat": lambda x, axis: x.repeat(2, axis=axis),
    "roll": lambda x, axis: np.roll(x, 1, axis=axis), "expand_dims": lambda x, axis: np.expand_dims(x, axis),
    "moveaxis": lambda x, axis: np.moveaxis(x, axis, 0), "swapaxes": lambda x, axis: np.swapaxes(x, axis, 0),
    "diff": lambda x, axis: np.diff(x, axis=axis), "concatenate": lambda x, axis: np.concatenate([x, x], axis=axis),
    "stack": lambda x, axis: np.stack([x, x], axis=axis), "split": lambda x, axis: np.split(x, 1, axis=axis),
    "array_split": lambda x, axis: np.array_split(x, 1, axis=axis),
    "norm": lambda x, axis: np.linalg.norm(x, axis=axis), "vector_norm": lambda x, axis: np.linalg.vector_norm(x, axis=axis),
    "transpose": lambda x, axis: np.transpose(x, axis),
    "take_along_axis": lambda x, axis: np.take_along_axis(x, np.array(0), axis=axis),
}
LENIENT = {"roll", "norm"}  # over no axes at all, (), NumPy raises a ValueError of its loops; here it is x, or |x|
ALSO = {"size", "unstack", "cross", "vecdot"}  # size is a number, the others need an axis that is there


def test_the_table_has_every_function_with_an_axis() -> None:
    named = {f.__name__ for f, ours in FUNCTIONS.items() if {"axis", "axes"} & set(inspect.signature(ours).parameters)}
    missing = {n for n in named if not any(key.split(",")[0] in (n, n.lstrip("a")) for key in TABLE)} - ALSO
    assert missing <= {"tensordot", "permute_dims", "fftshift", "ifftshift"}


@pytest.mark.parametrize("name", TABLE)
def test_an_axis_of_a_value_without_axes(name: str) -> None:
    """The same value, dtype and shape; or an error, where NumPy raises one."""
    for x in VALUES:
        for axis in AXES:
            if name in LENIENT and isinstance(axis, tuple) and not axis:
                continue
            def f(x: Any, axis: Any = axis) -> Any:
                return TABLE[name](x, axis)

            try:
                with np.errstate(all="ignore"):
                    f(x)
            except (TypeError, ValueError, IndexError):
                with pytest.raises(FuelError):
                    run(f, x)
            else:
                check(f, x)
