"""Looking at Python objects without disturbing them, and telling the user's code from that of libraries."""

from __future__ import annotations

import enum
import functools
import os
import sys
import types
from argparse import Namespace
from collections import deque
from typing import Any

import numpy as np

from ..core.source import PACKAGE, is_library_file

__all__ = [
    "CONTAINERS",
    "MISSING",
    "RECORDS",
    "SCALARS",
    "WHOLE",
    "Missing",
    "UserCode",
    "is_library_class",
    "is_library_file",
    "is_standard",
    "is_wrapper",
    "name_of",
    "peek",
    "plain_function",
    "static",
]

#: Compared by type and value.
SCALARS = (
    *(bool, int, float, complex, str, bytes, range, slice, type(None), type(...)),
    *(enum.Enum, np.generic, np.dtype),
)
CONTAINERS = (list, tuple, dict, set, frozenset, deque, types.MappingProxyType)
#: What one guard covers with all that is inside.
WHOLE = (*SCALARS, *CONTAINERS, np.ndarray)
#: Instances whose attributes are data, every one.
RECORDS = (types.SimpleNamespace, Namespace)


class Missing:
    def __repr__(self) -> str:
        return "missing"


MISSING: Any = Missing()


# Looking ------------------------------------------------------------------------------------


def peek(holder: Any, name: str) -> Any:
    if isinstance(holder, dict):
        return holder.get(name, MISSING)
    try:
        return getattr(holder, name, MISSING)
    except Exception:  # an empty cell; a property that does not work outside its use
        return MISSING


def static(cls: type, name: str) -> Any:
    """What the class holds under a name, unbound."""
    for c in cls.__mro__:
        if name in c.__dict__:
            return c.__dict__[name]
    return MISSING


def is_wrapper(obj: Any) -> bool:
    """Jitted functions, `functools.lru_cache` and their like."""
    return not isinstance(obj, type) and callable(peek(obj, "__wrapped__"))


def plain_function(fn: Any) -> types.FunctionType | None:
    """The Python function inside wrappers, partials and methods."""
    for _ in range(100):
        if isinstance(fn, types.FunctionType):
            return fn
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif isinstance(fn, (types.MethodType, staticmethod, classmethod)):
            fn = fn.__func__
        elif is_wrapper(fn):
            fn = fn.__wrapped__
        else:
            return None
    return None


def name_of(fn: Any) -> str:
    plain = plain_function(fn)
    return plain.__qualname__.rpartition("<locals>.")[2] if plain else type(fn).__name__


# Whose code is it ------------------------------------------------------------------------------------


def is_library_class(cls: type) -> bool:
    if cls in RECORDS:
        return False
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return cls.__module__ == "builtins" or (file is not None and is_library_file(file))


def is_standard(module: types.ModuleType) -> bool:
    """NumPy, fuelnumba and the standard library, whose names are taken not to change."""
    name = module.__name__.partition(".")[0]
    return name in ("numpy", PACKAGE) or name in sys.stdlib_module_names


class UserCode:
    """The user's code, as seen from one function: all that is of no library.

    An installed package counts as the user's when the function belongs to it.
    """

    def __init__(self, function: types.FunctionType | None) -> None:
        package = (getattr(function, "__module__", None) or "").partition(".")[0]
        self.package = "" if package in (PACKAGE, "__main__") else package

    def has_file(self, file: str) -> bool:
        return not is_library_file(file) or self._in_package(file)

    def _in_package(self, file: str) -> bool:
        if not self.package:
            return False
        origin = getattr(sys.modules.get(self.package), "__file__", None)
        if not origin or not is_library_file(origin):
            return False
        if os.path.basename(origin).startswith("__init__."):
            return file.startswith(os.path.dirname(origin) + os.sep)
        return file == origin

    def has_module(self, module: types.ModuleType) -> bool:
        if module.__name__ in sys.builtin_module_names:
            return False
        file = getattr(module, "__file__", None)
        return file is None or self.has_file(file)

    def has_class(self, cls: type) -> bool:
        if cls.__module__ == "builtins":
            return False
        module = sys.modules.get(cls.__module__)
        return module is None or self.has_module(module)
