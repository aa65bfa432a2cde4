"""Asking jitted functions for errors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuelnumba import errors

F32 = np.float32


def arange(*shape: int, dtype: Any = F32) -> np.ndarray[Any, Any]:
    return np.arange(1, 1 + int(np.prod(shape)), dtype=dtype).reshape(shape)


def message(call: Callable[[], Any], kind: type[errors.FuelError] = errors.FuelError) -> str:
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind or kind is errors.FuelError
    return str(caught.value)


def said(call: Callable[[], Any], kind: type[errors.FuelError] = errors.FuelError) -> str:
    """The message without its place, which lies in the file of the test."""
    with pytest.raises(kind) as caught:
        call()
    err = caught.value
    assert type(err) is kind or kind is errors.FuelError
    assert err.where is not None and err.where.file == sys._getframe(1).f_globals["__file__"]
    return str(type(err)(err.what, cure=err.cure))
