"""Every public function of NumPy on traced values: where NumPy takes the call, a traced one gives the same numbers, or says in
an error of ours, at the user's line, that it is not covered and what is. Never an error of NumPy's, never a wrong value."""

from __future__ import annotations

import re
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from fuelnumba.core.errors import FuelError, TracingError
from fuelnumba.trace import instead, numpy_api
from fuelnumba.trace.interpret import interpret
from fuelnumba.trace.traced import Traced

from .tracing import trace

# They have no say, and no numbers: a traced value cannot be iterated over; np.empty_like holds anything; these two catch
# whatever np.asarray([x]) raises, and answer False
ODD = {"numpy.iterable", "numpy.empty_like", "numpy.array_equal: f([x], [x])", "numpy.array_equiv: f([x], [x])"}
# Where it differs from NumPy (docs/numpy.md)
DIFFERENT = {"numpy.reciprocal: f(x)"}
# No functions of arrays: settings, files, documentation, objects that are no arrays
OTHERS = {
    "numpy": {"test", "info", "set_printoptions", "printoptions", "seterr", "seterrcall", "setbufsize", "errstate", "show_config",
              "show_runtime", "save", "savez", "savez_compressed", "savetxt", "load", "loadtxt", "fromfile", "fromregex",
              "genfromtxt", "frombuffer", "fromstring", "fromiter", "get_include", "geterr", "geterrcall", "getbufsize",
              "get_printoptions", "typename", "frompyfunc", "bmat", "nested_iters", "datetime_data", "from_dlpack"},
    "numpy.random": {"test", "seed", "set_state", "get_state", "set_bit_generator", "get_bit_generator", "default_rng", "bytes"},
    "numpy.linalg": {"test"},
    "numpy.fft": {"test"},
}
MODULES = {"numpy": np, "numpy.linalg": np.linalg, "numpy.fft": np.fft, "numpy.random": np.random}

Call = Callable[[Any, Any], Any]
CALLS: dict[str, Call] = {
    "f(x)": lambda f, x: f(x),
    "f(x, x)": lambda f, x: f(x, x),
    "f(x, 1)": lambda f, x: f(x, 1),
    "f(1, x)": lambda f, x: f(1, x),
    "f(x, 0)": lambda f, x: f(x, 0),
    "f(x, (0, 1))": lambda f, x: f(x, (0, 1)),
    "f(x, x, x)": lambda f, x: f(x, x, x),
    "f(x, 0, 1)": lambda f, x: f(x, 0, 1),
    "f(A, x)": lambda f, x: f(A, x),
    "f(x, A)": lambda f, x: f(x, A),
    "f([x, x])": lambda f, x: f([x, x]),
    "f((x, x), 0)": lambda f, x: f((x, x), 0),
    "f([x], [x])": lambda f, x: f([x], [x]),
    "f(x, axis=0)": lambda f, x: f(x, axis=0),
    "f(x, axis=-1)": lambda f, x: f(x, axis=-1),
    "f(x, keepdims=True)": lambda f, x: f(x, keepdims=True),
    "f(x, dtype)": lambda f, x: f(x, np.float32),
    "f(x, out=)": lambda f, x: f(x, out=np.zeros((3, 3))),
    "f(x, where=)": lambda f, x: f(x, where=A > 2),
    "f(subscripts, x)": lambda f, x: f("ij,jk->ik", x, x),
    "f(function, x)": lambda f, x: f(np.sum, 0, x),
}
A = np.array([[1.5, 2.0, 0.5], [4.0, 1.0, 3.0], [2.0, 7.0, 5.0]])
V = np.array([1, 3, 2])


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for path, module in MODULES.items():
        for name in sorted(vars(module).keys() | set(dir(module))):
            fn = getattr(module, name)
            if not name.startswith("_") and name not in OTHERS[path] and callable(fn) and not isinstance(fn, (type, types.ModuleType)):
                yield f"{path}.{name}", fn


FUNCTIONS = dict(functions())


def arrays(value: Any) -> list[Any]:
    """The array results in a value; what is known while tracing (shapes, dtypes, truths) is none."""
    if isinstance(value, (list, tuple)):
        return [a for v in value for a in ([np.asarray(v)] if isinstance(v, np.generic) else arrays(v))]
    return [value] if isinstance(value, (Traced, np.ndarray)) else []


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore")
def test_it_is_covered_or_says_that_it_is_not(name: str) -> None:
    fn = FUNCTIONS[name]
    for how, call in CALLS.items():
        what = f"{name}: {how}"
        for x in (A, V):
            if name not in ODD and what not in ODD and not (what in DIFFERENT and x is V):
                check(fn, call, x, what)


def check(fn: Callable[..., Any], call: Call, x: Any, what: str) -> None:
    np.random.seed(0)
    try:
        expected = call(fn, x.copy())
    except Exception:  # NumPy does not take it either
        return
    if any(a.dtype == object for a in arrays(expected)):
        return
    found: list[Any] = []

    def traced(x: Any) -> Any:
        found[:] = [call(fn, x)]
        return [a for a in arrays(found[0]) if isinstance(a, Traced)]

    try:
        graph, _ = trace(traced, [x])
    except FuelError as err:
        named = what.partition(":")[0].removeprefix("numpy.") in err.what or "cannot stand for an array" in err.what
        assert isinstance(err, TracingError) or named, f"{what}: {err!r}"
        assert err.where is not None and err.where.file == __file__, f"{what}: {err}"
        assert err.where.function == "<lambda>" and err.cure, f"{what}: {err}"
        return
    except Exception as err:
        raise AssertionError(f"{what}: {type(err).__name__}: {err}") from err
    got, wanted = arrays(found[0]), arrays(expected)
    if not got and not wanted:
        assert repr(found[0]) == repr(expected), f"{what}: {found[0]!r} instead of {expected!r}"
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = iter(interpret(graph, [x]))
    got = [next(values) if isinstance(a, Traced) else a for a in got]
    wanted = wanted or [np.asarray(expected)]
    assert len(got) == len(wanted), what
    for g, w in zip(got, wanted):
        assert (g.shape, g.dtype) == (w.shape, w.dtype), f"{what}: {g.dtype}{g.shape} instead of {w.dtype}{w.shape}"
        np.testing.assert_allclose(g, w, rtol=1e-6, atol=1e-12, err_msg=what)


def test_what_is_named_instead_is_covered() -> None:
    constants = {"np.eye", "np.arange", "np.abs"}  # of static lengths, made while tracing; another name of np.absolute
    covered = {name.replace("numpy.", "np.", 1) for name in numpy_api.covered()}
    for cure in instead._GROUPS.values():
        assert set(re.findall(r"np\.[a-z_0-9.]*[a-z0-9]", cure)) <= covered | constants, cure
    for names in instead._GROUPS:
        assert all(hasattr(np, n) or hasattr(np.linalg, n) or hasattr(np.fft, n) for n in names.split()), names
