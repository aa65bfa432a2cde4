"""Arrays that lie on a device."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import ArgumentError, BackendError
from ..core.ir import Resident
from ..core.ops import shown
from ..core.source import user_location

if TYPE_CHECKING:
    from .target import Target

#: Runs an operation on device arrays as a jitted function of one op; set by the floor above.
eager: Callable[..., Any] | None = None


class DeviceArray(np.lib.mixins.NDArrayOperatorsMixin, Resident):
    """An array in a device's memory, C-contiguous. A jitted function called with it runs there, and gives such arrays.

    `np.asarray(x)` or `x.numpy()` waits until it is computed, and copies it; `x.wait()` waits only. NumPy's functions and
    operators on it run on the device. It cannot be written to.
    """

    __slots__ = ("__weakref__", "_fetch", "buffer", "device", "dtype", "shape")
    __array_priority__ = 1000.0

    def __init__(self, device: Target, buffer: Any, shape: tuple[int, ...], dtype: np.dtype[Any],
                 fetch: Callable[[Any, tuple[int, ...], np.dtype[Any]], np.ndarray[Any, Any]]) -> None:
        self.device, self.buffer, self.shape, self.dtype, self._fetch = device, buffer, shape, dtype, fetch

    # -------------------------------------------------------------------------------------- what it is
    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __repr__(self) -> str:
        try:
            values = np.array2string(self.numpy(), separator=", ", prefix="DeviceArray(")
        except BackendError as err:  # debuggers show arrays of closed devices, too
            values = f"<shape {self.shape}: {err.what}>"
        return f"DeviceArray({values}, dtype={self.dtype.name}, device={self.device.name!r})"

    def __format__(self, spec: str) -> str:
        return format(self.numpy()[()], spec) if spec else str(self)

    def __reduce__(self) -> Any:
        """A copy on the device of that name, in whichever process."""
        return type(self.device).put, (self.device, self.numpy())

    # -------------------------------------------------------------------------------------- to the host
    def numpy(self) -> np.ndarray[Any, Any]:
        """A NumPy array with its values. Waits until they are computed; raises BackendError when the device is closed or
        lost."""
        return self._fetch(self.buffer, self.shape, self.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("a DeviceArray cannot be seen as a NumPy array without a copy")
        found = self.numpy()
        return found if dtype is None else found.astype(dtype, copy=False)

    def __dlpack__(self, **options: Any) -> Any:
        """A capsule of a copy in the host's memory."""
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # kDLCPU: what __dlpack__ hands out lies there

    def wait(self) -> DeviceArray:
        """Itself, once it is computed."""
        self.buffer.wait()
        return self

    def item(self, *index: int) -> Any:
        return self.numpy().item(*index)

    def tolist(self) -> Any:
        return self.numpy().tolist()

    def __bool__(self) -> bool:
        return bool(self.numpy())

    def __int__(self) -> int:
        return int(self.numpy())

    def __float__(self) -> float:
        return float(self.numpy())

    def __index__(self) -> int:
        return operator.index(self.numpy())

    # -------------------------------------------------------------------------------------- computing with it
    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        if out is not None:
            raise ArgumentError(f"{ufunc.__name__}(): out= cannot be given with a DeviceArray", where=user_location(),
                                cure="use the result")
        return _run(ufunc if method == "__call__" else _ufunc_method(ufunc, method), inputs, options)

    def __array_function__(self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        return _run(func, args, kwargs)

    def __getitem__(self, index: Any) -> Any:
        return _run(operator.getitem, (self, index), {})

    def __setitem__(self, index: Any, value: Any) -> None:
        raise ArgumentError("a DeviceArray cannot be written to", where=user_location(),
                            cure="make a new array: np.where, or fuelnumba.ops.write_slice in a function that donates it")

    def __getattr__(self, name: str) -> Any:
        """A method or property of NumPy's arrays, on the device."""
        if name.startswith("__") or not (name == "T" or callable(getattr(np.ndarray, name, None))):
            raise AttributeError(f"a DeviceArray has no attribute {shown(name)}")
        if name == "T":
            return _run(np.transpose, (self,), {})
        return lambda *args, **kwargs: _run(_method(name), (self, *args), kwargs)


@cache
def _method(name: str) -> Callable[..., Any]:
    """A method of arrays as a function: one for each name, since jitted functions are kept by it."""
    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(x, name)(*args, **kwargs)

    call.__name__ = name
    return call


@cache
def _ufunc_method(ufunc: np.ufunc, method: str) -> Callable[..., Any]:
    return getattr(ufunc, method)


def _run(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    assert eager is not None
    return eager(function, args, kwargs)
