"""fuelnumba: NumPy functions become fused, compiled kernels."""

from . import eager, ops  # noqa: F401
from .compiler.bindings import register_kernel, unregister_kernel
from .core import dtypes, errors
from .core.ops import Aval, elementwise
from .core.ops import op as define_op
from .jit import Jitted, cache_stats, jit, on_compile
from .run.array import DeviceArray
from .run.cpu import num_threads, set_num_threads
from .run.target import device, to_device
from .trace.tensor import Tensor

__version__ = "0.1.0"

__all__ = ["Aval", "DeviceArray", "Jitted", "Tensor", "cache_stats", "define_op", "device", "dtypes", "elementwise", "errors",
           "jit", "num_threads", "on_compile", "ops", "register_kernel", "set_num_threads", "to_device", "unregister_kernel"]


def __dir__() -> list[str]:
    """The public names, without the rooms that importing them leaves here."""
    return [*__all__, "__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"]
