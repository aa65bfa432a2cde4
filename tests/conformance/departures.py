"""Which generated calls are documented departures, by the names in `fuelnumba.tools.array_api`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .array_api import Call, Hole


def dtypes(call: Call) -> list[np.dtype[Any]]:
    """Of the arrays and Python bools among the arguments."""
    given = [call.arrays[a.k] if isinstance(a, Hole) else a for a in call.args]
    return [np.asarray(v).dtype for v in given if isinstance(v, (np.ndarray, bool))]


def all_bool(call: Call) -> bool:
    return all(d == np.bool_ for d in dtypes(call)) and all(isinstance(a, (Hole, bool)) for a in call.args[:2])


def named(*names: str) -> Callable[[Call], bool]:
    return lambda call: call.name in names or call.name.removeprefix("operator.") in names


_ARITHMETIC = named("floor_divide", "remainder", "pow", "bitwise_left_shift", "bitwise_right_shift", "floordiv", "mod", "lshift",
                    "rshift", "ifloordiv", "imod", "ipow", "ilshift", "irshift")
_PRODUCTS = named("matmul", "tensordot", "linalg.matmul", "linalg.tensordot", "linalg.matrix_power", "imatmul")

# What the generated tests meet; the other departures concern what they do not generate.
MET: dict[str, Callable[[Call], bool]] = {
    "unsigned sums": lambda c: c.name in ("sum", "prod", "linalg.trace") and dtypes(c)[0].kind == "u" and "dtype" not in c.kwargs,
    "can_cast": lambda c: c.name == "can_cast",
    "arithmetic of bools": lambda c: _ARITHMETIC(c) and all_bool(c),
    "squares of bools": lambda c: c.name == "operator.pow" and dtypes(c) == [np.dtype(bool)] and 2 in c.args,
    "products of bools": lambda c: _PRODUCTS(c) and dtypes(c)[0] == dtypes(c)[-1] == np.bool_,
    "bools stay": lambda c: c.name in ("square", "conj", "round") and all_bool(c),
    "reciprocal": lambda c: c.name == "reciprocal" and dtypes(c)[0].kind in "biu",
}


def departure(call: Call) -> str | None:
    """The departure that a call is, if any."""
    return next((name for name, applies in MET.items() if applies(call)), None)
