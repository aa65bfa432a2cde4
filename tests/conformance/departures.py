"""Which generated calls are documented departures, by the names in `fuelnumba.tools.array_api`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .array_api import Call, Hole, Refused, by_numpy


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

def _as(dtype: str) -> Callable[[Call, Any], Any]:
    return lambda call, want: want.astype(dtype)


def _refused(call: Call, want: Any) -> Any:
    return Refused("as documented")


def _reciprocal(call: Call, want: Any) -> Any:
    x = call.arrays[0]
    with np.errstate(all="ignore"):
        return np.asarray(1 / x.astype(np.exp(x).dtype))


Applies, Becomes = Callable[[Call], bool], Callable[[Call, Any], Any]
# What the generated tests meet: which calls, and what becomes of the oracle's outcome. Other departures concern what they do
# not generate.
MET: dict[str, tuple[Applies, Becomes]] = {
    "unsigned sums": (lambda c: c.name in ("sum", "prod", "linalg.trace") and dtypes(c)[0].kind == "u" and "dtype" not in c.kwargs,
                      _as("int64")),
    "can_cast": (named("can_cast"), lambda c, want: by_numpy(c)),
    "arithmetic of bools": (lambda c: _ARITHMETIC(c) and all_bool(c), _refused),
    "squares of bools": (lambda c: c.name == "operator.pow" and dtypes(c) == [np.dtype(bool)] and 2 in c.args, _as("int64")),
    "products of bools": (lambda c: _PRODUCTS(c) and dtypes(c)[0] == dtypes(c)[-1] == np.bool_, _refused),
    "bools stay": (lambda c: c.name == "conj" and all_bool(c), _as("bool")),
    "reciprocal": (lambda c: c.name == "reciprocal" and dtypes(c)[0].kind in "biu", _reciprocal),
}


def meant(call: Call, want: Any) -> Any:
    """What the oracle's outcome of a call is here: another where the call is a documented departure."""
    return next((becomes(call, want) for applies, becomes in MET.values() if applies(call)), want)
