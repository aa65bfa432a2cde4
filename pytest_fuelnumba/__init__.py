"""The pytest plugin of fuelnumba: `@pytest.mark.parity` and the fixture `parity_case`. See docs/testing.md.

It stands outside of the package, so that pytest starts without importing fuelnumba: that happens when a test carries the
marker.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

MARKER = ("parity(op, kernel=None, dtypes=None, layouts=None): run the test once for each case of an op of fuelnumba, given "
          "as the fixture parity_case; `kernel`, a numba.njit function, serves the op meanwhile")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("parity")
    if marker is None:
        return
    where = metafunc.definition.nodeid
    if "parity_case" not in metafunc.fixturenames:
        raise pytest.Collector.CollectError(f"{where}: a test with the marker parity takes the argument parity_case")
    try:
        given = inspect.signature(_cases).bind(*marker.args, **marker.kwargs)
    except TypeError as err:
        raise pytest.Collector.CollectError(f"{where}: {err}; the marker is {MARKER.split(':')[0]}") from None
    try:
        found = _cases(*given.args, **given.kwargs)
    except _errors() as err:
        raise pytest.Collector.CollectError(f"{where}: {_one_line(err)}") from None
    metafunc.parametrize("parity_case", found, ids=str, indirect=True)


def _cases(op: Any, kernel: Any = None, dtypes: Any = None, layouts: Any = None) -> list[Any]:
    from fuelnumba.core.errors import ArgumentError
    from fuelnumba.testing import cases

    if kernel is not None and not hasattr(kernel, "py_func"):
        name = getattr(kernel, "__name__", kernel)
        raise ArgumentError(f"{name!r} is not a Numba function", cure="decorate it with numba.njit")
    return list(cases(op, dtypes, layouts, kernel=kernel))


def _errors() -> type[Exception]:
    from fuelnumba.core.errors import FuelError

    return FuelError


def _one_line(err: Any) -> str:
    return f"{err.what}; {err.cure}" if err.cure else str(err.what)


@pytest.fixture
def parity_case(request: pytest.FixtureRequest) -> Iterator[Any]:
    """One case of the op that the test's marker names: `parity_case.check()` runs and compares it."""
    case = getattr(request, "param", None)
    if case is None:
        pytest.fail("the fixture parity_case needs the marker: @pytest.mark.parity(op=...)", pytrace=False)
    try:
        undo = case.register()
    except _errors() as err:
        pytest.fail(_one_line(err), pytrace=False)
    yield case
    undo()
