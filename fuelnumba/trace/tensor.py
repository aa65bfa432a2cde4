"""`Tensor`: what a traced function gets for an array. Looks like an ndarray, and records what is done to it.

Operators and NumPy's protocols record ops; what a graph cannot hold (the truth of a value, its numbers,
writes into it) raises an error of its own class that points at the user's line.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from ..core.dims import same_shape
from ..core.errors import (
    DTypeError,
    FuelError,
    ShapeError,
    TracedBoolError,
    TracedConversionError,
    TracedIterationError,
    TracedMutationError,
    TracedToNumpyError,
    TracingError,
    UnsupportedAttributeError,
    UnsupportedFunctionError,
)
from . import arrange, contract, linalg, numpy_api
from .apply import as_tensor, call, cast, permute
from .indexing import getitem
from .instead import by_meaning, nearest
from .traced import (
    Trace,
    Traced,
    check_alive,
    check_numpys,
    current_trace,
    fail,
    form_of,
    in_form,
    placed,
    refuse,
    tracing_into,
)

__all__ = ["Tensor", "Trace", "current_trace", "tracing_into"]

_Binary = Callable[[Any, Any], Any]
_INSTEAD = {"flat": "use x.ravel(), which is a view", "imag": "values are real: the imaginary part is np.zeros_like(x)",
            **dict.fromkeys(("strides", "flags", "data", "ctypes", "base"), "a traced value has no memory yet")}
_KNOWN = (np.ndarray, np.generic, bool, int, float, list, tuple)


def _binary(op: str | _Binary) -> tuple[_Binary, _Binary]:
    """The operator and its reflection."""
    record = op if callable(op) else lambda a, b: call(op, a, b)

    def forward(self: Any, other: Any) -> Any:
        return NotImplemented if _defers(other) else _by_operator(record(self, other), self, other)

    def reflected(self: Any, other: Any) -> Any:
        return NotImplemented if _defers(other) else _by_operator(record(other, self), other, self)

    return forward, reflected


def _by_operator(result: Any, *operands: Any) -> Any:
    """Of Python numbers an operator makes a Python number, and of all else without axes a scalar of NumPy's."""
    pythons = all(x.form == "python" if isinstance(x, Traced) else not isinstance(x, (np.generic, np.ndarray)) for x in operands)
    return in_form(result, "python" if pythons else "scalar")


def _in_place(op: str | _Binary) -> _Binary:
    """`x += y`: a new value for the name, of x's shape and dtype as in NumPy. Scalars may widen, as NumPy's do."""
    forward, _ = _binary(op)
    name = op if isinstance(op, str) else op.__name__

    def assign(self: Any, other: Any) -> Any:
        result = forward(self, other)
        if result is NotImplemented or (not self.shape and form_of(self) != "array"):
            return result
        keeps_dtype = np.can_cast(result.dtype, self.dtype, "same_kind")
        if not keeps_dtype or not same_shape(result.shape, self.shape):
            fail(ShapeError if keeps_dtype else DTypeError, f"{name}() in place would make {result!r} of {self!r}",
                 "an in-place operator keeps shape and dtype: write it out, x = x + y for x += y")
        return in_form(cast(result, self.dtype), "array")

    return assign


def _defers(other: Any) -> bool:
    """An object that knows arrays itself (`__array_ufunc__ = None`) gets its turn."""
    return getattr(type(other), "__array_ufunc__", True) is None


def _compare(op: str) -> _Binary:
    return _binary(op)[0]


def _unary(op: str) -> Callable[[Any], Any]:
    return lambda self: _by_operator(call(op, self), self)


def _forbid(kind: type[FuelError], what: str, cure: str) -> Callable[..., NoReturn]:
    """A method that raises; `{x}` in `what` is the traced value."""

    def method(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        check_alive(self)
        self.origin.refused = placed(kind(what.format(x=self), cure=cure))
        raise self.origin.refused

    return method


_OUTSIDE = ("use NumPy functions and operators inside, and take the numbers from what the function returns; "
            "a number that chooses a shape belongs in static_argnames")


def _conversion(what: str, first: str = "") -> Callable[..., NoReturn]:
    return _forbid(TracedConversionError, f"{what} of {{x}}: its value is not known while tracing",
                   f"{first}keep it an array, x.astype(...) or np.exp(x) for math.exp(x), "
                   "or name the argument in static_argnames")


def _mutation(what: str) -> Callable[..., NoReturn]:
    return _forbid(TracedMutationError, f"{what} would write into {{x}}, which a graph cannot hold",
                   numpy_api.WRITE_CURE)


def _memory(what: str, first: str = "") -> Callable[..., NoReturn]:
    return _forbid(TracedToNumpyError,
                   f"{what} needs the memory of {{x}}, which does not exist while tracing", first + _OUTSIDE)


def _uncovered(name: str) -> Callable[..., NoReturn]:
    def method(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        check_alive(self)
        fail(UnsupportedFunctionError, f"{self!r}.{name}() is not covered for traced values", _nearest(name))

    return method


def _nearest(name: str) -> str:
    """The attributes of a traced value that are spelled like it."""
    forbidden = ("_forbid.", "_uncovered.")
    if (cure := by_meaning(name)) is not None:
        return cure
    if f"numpy.{name}" in numpy_api.covered():
        return f"use np.{name}(x)"
    inside = {*Traced.__slots__, "final", "trace_"}
    names = [n for n in dir(Tensor) if not n.startswith("_") and n not in inside
             and not getattr(getattr(Tensor, n), "__qualname__", "").startswith(forbidden)]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    return f"near to it are: {', '.join(f'x.{n}' for n in near)}" if near else nearest(name, ())


class Tensor(Traced):
    """A traced array: shape and dtype are known, the numbers are not yet."""

    __slots__ = ()
    __array_priority__ = 1000.0
    __hash__ = object.__hash__

    # -- operators
    __add__, __radd__ = _binary("add")
    __sub__, __rsub__ = _binary("subtract")
    __mul__, __rmul__ = _binary("multiply")
    __truediv__, __rtruediv__ = _binary("divide")
    __floordiv__, __rfloordiv__ = _binary("floor_divide")
    __mod__, __rmod__ = _binary("remainder")
    __divmod__, __rdivmod__ = _binary(numpy_api.divmod_)
    __pow__, __rpow__ = _binary(numpy_api.power)
    __matmul__, __rmatmul__ = _binary(contract.matmul)
    __and__, __rand__ = _binary("bitwise_and")
    __or__, __ror__ = _binary("bitwise_or")
    __xor__, __rxor__ = _binary("bitwise_xor")
    __lshift__, __rlshift__ = _binary("left_shift")
    __rshift__, __rrshift__ = _binary("right_shift")
    __iadd__, __isub__, __imul__, __itruediv__, __ifloordiv__, __imod__, __iand__, __ior__, __ixor__ = map(_in_place, (
        "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "bitwise_and", "bitwise_or", "bitwise_xor"))
    __ilshift__, __irshift__ = _in_place("left_shift"), _in_place("right_shift")
    __ipow__, __imatmul__ = _in_place(numpy_api.power), _in_place(contract.matmul)
    __eq__, __ne__ = _compare("equal"), _compare("not_equal")
    __lt__, __le__ = _compare("less"), _compare("less_equal")
    __gt__, __ge__ = _compare("greater"), _compare("greater_equal")
    __neg__, __abs__, __invert__ = _unary("negative"), _unary("absolute"), _unary("bitwise_not")

    def __pos__(self) -> Any:
        return _by_operator(numpy_api.positive(self), self)

    def __round__(self, ndigits: int | None = None) -> Any:
        return numpy_api.round_(self, ndigits or 0)

    __getitem__ = getitem

    # -- NumPy's protocols
    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return numpy_api.call_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if not all(issubclass(t, (Traced, *_KNOWN)) for t in types):
            return NotImplemented
        return numpy_api.call_function(func, args, kwargs)

    # -- properties
    @property
    def T(self) -> Any:
        return permute(self, range(self.ndim)[::-1])

    @property
    def mT(self) -> Any:
        return arrange.swapaxes(self, -1, -2)

    @property
    def real(self) -> Any:
        return self

    @property
    def imag(self) -> Any:
        return numpy_api.imag(self)

    # -- the array API standard
    def __array_namespace__(self, /, *, api_version: Any = None) -> Any:
        return np.empty(0).__array_namespace__(api_version=api_version)

    @property
    def device(self) -> str:
        """Of the arrays that come in and go out: 'cpu', as in NumPy."""
        return "cpu"

    def to_device(self, device: str, /, *, stream: Any = None) -> Any:
        refuse("to_device()", device=device, stream=stream)
        return self

    def __len__(self) -> int:
        if not self.shape:
            fail(TracingError, f"len() of {self!r}, which has no axes", "use x.size, which is 1, or pass an array with an axis")
        return int(self.shape[0])

    # -- methods
    sum, prod, mean = (numpy_api.reduction(n) for n in ("sum", "prod", "mean"))
    max, min, any, all = (numpy_api.extremum(n) for n in ("max", "min", "any", "all"))
    argmax, argmin = numpy_api.arg_extremum("argmax"), numpy_api.arg_extremum("argmin")
    var, std, round, clip = numpy_api.var, numpy_api.std, numpy_api.round_, numpy_api.clip
    ravel = flatten = arrange.ravel
    swapaxes, squeeze, repeat, take, copy = (arrange.swapaxes, arrange.squeeze, arrange.repeat, arrange.take,
                                             arrange.copy)
    dot, conj, conjugate, diagonal, trace = contract.dot, as_tensor, as_tensor, linalg.diagonal, linalg.trace

    def reshape(self, *shape: Any, order: str = "C", copy: Any = None) -> Any:
        return arrange.reshape(self, shape[0] if len(shape) == 1 else shape, order)

    def transpose(self, *axes: Any) -> Any:
        given = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
        return arrange.transpose(self, given)

    def astype(self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True,
               copy: bool = True) -> Any:
        refuse("x.astype()", order=order)
        return arrange.converted("astype", self, check_numpys(dtype), casting)

    # -- what a graph cannot hold
    __bool__ = _forbid(TracedBoolError, "the truth of {x} is not known while tracing",
                       "use np.where(condition, a, b) and & | ~, or name the argument in static_argnames")
    __contains__ = _forbid(TracedBoolError, "whether {x} contains a value is not known while tracing",
                           "use (x == value).any(), which is a traced value itself")
    __int__, __float__, __complex__ = _conversion("int()"), _conversion("float()"), _conversion("complex()")
    __index__ = _conversion("use as an index or a size")
    item, tolist = _conversion(".item()"), _conversion(".tolist()")
    __iter__ = _forbid(TracedIterationError,
                       "iteration over {x}: a loop over its elements would unroll the graph",
                       "use whole-array operations, or index: for i in range(len(x)): x[i]")
    __setitem__ = _mutation("x[...] = value")
    __delitem__ = _mutation("del x[...]")
    sort, fill, resize, put, itemset, partition = (_mutation(f".{n}()") for n in (
        "sort", "fill", "resize", "put", "itemset", "partition"))
    setflags, setfield, byteswap = (_mutation(f".{n}()") for n in ("setflags", "setfield", "byteswap"))
    __dlpack__ = __dlpack_device__ = _memory("DLPack")
    tobytes, tofile, dump, dumps, view, getfield = (_memory(f".{n}()") for n in (
        "tobytes", "tofile", "dump", "dumps", "view", "getfield"))
    __reduce__ = _memory("pickling")
    cumsum, cumprod, nonzero, searchsorted, argsort, argpartition, choose, compress = (
        _uncovered(n) for n in ("cumsum", "cumprod", "nonzero", "searchsorted",
                                "argsort", "argpartition", "choose", "compress"))

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        first = "" if dtype is None else f"write x.astype(np.{dtype}) for np.{dtype}(x); or "  # which asks for that dtype
        if self.weak:
            _conversion("use as a number", first)(self)
        _memory("np.asarray() or other code outside fuelnumba", first)(self)

    def __getattr__(self, name: str) -> NoReturn:
        """Of names that are not there: the protocols of others see an AttributeError, and so does hasattr()."""
        if name.startswith("_") or name in Traced.__slots__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        what = f"{self!r}.{name} is not covered" if hasattr(np.ndarray, name) else f"{self!r} has no attribute {name!r}"
        fail(UnsupportedAttributeError, what, _INSTEAD.get(name) or _nearest(name))

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __format__(self, spec: str) -> str:
        if spec:
            fail(TracedConversionError,
                 f"formatting of {self!r} with {spec!r}: its value is not known while tracing",
                 "print it without a format, or print what the function returns")
        return repr(self)
