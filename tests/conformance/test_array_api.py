"""Every function of the array API standard that is offered behaves as the standard says, and every departure is written down.

The table is array_api_strict's namespace: a function that becomes covered is tested here without a line being added. The
oracle of a call is array_api_strict, and NumPy where that refuses. Results that differ must be a departure of
`fuelnumba.tools.array_api`, which test_array_api_departures.py exercises one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import array_api_strict as strict
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fuelnumba as fn
from fuelnumba.core.errors import ArgumentError, FuelError, FuelIndexError, UnsupportedFunctionError
from fuelnumba.tools import array_api
from tests.parity.agree import NUMPY

from .array_api import (
    COVERED,
    DTYPES,
    IN_PLACE,
    NAME_OF,
    OPERATORS,
    Call,
    Drawn,
    First,
    Full,
    Hole,
    Long,
    Refused,
    array_count,
    build,
    by_numpy,
    by_strict,
    difference,
    expected,
    find,
    in_standard,
    ours,
    outcome,
    parameters,
)
from .departures import meant

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of means of nothing and overflow

every = pytest.mark.parametrize("name", [*COVERED, *OPERATORS])


def accepted(name: str) -> str:
    """The first dtype that strict takes for all arrays of a call."""
    return next((d for d in ("f32", "i32", "bool") if not isinstance(outcome(by_strict, build(name, First(), [d] * array_count(name))),
                                                                   Refused)), "f32")


def check(call: Call) -> None:
    """The call gives what the oracle gives, or is a documented departure."""
    agreed(call, outcome(ours, call), outcome(expected, call))


def agreed(call: Call, got: Any, want: Any) -> None:
    differs = difference(got, meant(call, want), values="empty" not in call.name)
    assert differs is None, f"{call!r}: {differs}\nIf this is on purpose, write it down in fuelnumba/tools/array_api.py."


# ------------------------------------------------------------------------------------------------ the table
def test_the_names_are_those_of_the_standard() -> None:
    assert sorted(array_api.NAMES) == in_standard()
    assert strict.__array_api_version__ == array_api.VERSION
    missing = [n for names in array_api.missing().values() for n in names]
    assert sorted([*array_api.offered(), *array_api.ORDINARY, *missing]) == in_standard()
    assert not [n for n in array_api.ORDINARY if array_api.is_covered(n)], "covered now: no longer NumPy's own"
    assert not [n for names in array_api.REASONS.values() for n in names if array_api.is_covered(n)], "covered now: needs no reason"


@pytest.mark.parametrize("name", [n for n in in_standard() if n not in COVERED and n not in array_api.ORDINARY])
def test_what_is_not_offered_says_so(name: str) -> None:
    try:
        function = find(np, name)
    except AttributeError:  # a NumPy older than the name
        return
    arrays = [np.eye(2) for p in parameters(name) if p.kind is p.POSITIONAL_ONLY and p.default is p.empty]
    with pytest.raises(UnsupportedFunctionError, match=r"numpy.* is not covered for traced values"):
        fn.jit(lambda *xs: function(*xs))(*arrays)


# ------------------------------------------------------------------------------------------------ calls
@every
@pytest.mark.parametrize("choose", [First(), Full(by_name=False), Full(by_name=True)], ids=["least", "by position", "by name"])
def test_parameters_are_taken_in_the_standards_form(name: str, choose: First) -> None:
    check(build(name, choose, [accepted(name)] * array_count(name)))


@every
def test_shapes(name: str) -> None:
    dtype = accepted(name)

    @settings(max_examples=12, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def draw(data: st.DataObject) -> None:
        check(build(name, Drawn(data.draw), [dtype] * array_count(name)))

    draw()


@every
def test_lengths_that_vary(name: str) -> None:
    """One jitted function, called with axes of length 2, 3, 5 and 4: from the second on they are symbolic."""
    dtypes = [accepted(name)] * array_count(name)
    calls = [build(name, Long(n), dtypes) for n in (2, 3, 5, 4)]
    if any((c.args, c.kwargs) != (calls[0].args, calls[0].kwargs) for c in calls) or name in ("can_cast", "result_type"):
        return  # lengths are among the arguments, or there are none
    jitted = fn.jit(lambda *arrays: calls[0].on(np, arrays))
    for call in calls:
        agreed(call, outcome(lambda call: ours(call, jitted), call), outcome(expected, call))


@given(st.data())
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_indexing(data: st.DataObject) -> None:
    """Ints, slices, `...` and None."""
    x = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)[:, :, :data.draw(st.sampled_from([4, 1, 0]))].copy()
    key: list[Any] = []
    for n in x.shape[:data.draw(st.integers(0, 3))]:
        bound = st.none() | st.integers(-n - 1, n + 1)
        whole = st.builds(slice, bound, bound, st.sampled_from([None, 1, 2, -1, -2]))
        key.append(data.draw(whole | st.integers(-n, n - 1) if n else whole))
    for thing in data.draw(st.lists(st.sampled_from([None, ...]), unique=True)):
        key.insert(data.draw(st.integers(0, len(key))), thing)
    jitted = fn.jit(lambda x: x[tuple(key)])
    try:
        want = np.asarray(x[tuple(key)])
    except IndexError:  # the ellipsis brought an index to another axis
        with pytest.raises(FuelIndexError):
            jitted(x)
    else:
        np.testing.assert_array_equal(jitted(x), want, strict=True)


# ------------------------------------------------------------------------------------------------ dtypes
SCALARS = (True, 2, 2.5)


def dtype_calls(name: str) -> Iterator[Call]:
    """Every combination of dtypes of the arrays, of an array and a Python scalar, and of an array and `dtype=`."""
    for dtypes in itertools.product(DTYPES, repeat=array_count(name)):
        yield build(name, First(), dtypes)
    params = parameters(name)
    pair = [k for k, p in enumerate(params) if p.name in ("x1", "x2") and "|" in str(p.annotation)]
    if len(pair) == 2 and name not in ("isin", "operator.matmul"):
        for d, scalar, k in itertools.product(DTYPES, SCALARS, pair):
            call = build(name, First(), [d, d])
            yield Call(name, tuple(scalar if i == k else a for i, a in enumerate(call.args)), call.kwargs, call.arrays)
    if any(p.name == "dtype" and p.default is None for p in params):
        for d, to in itertools.product(DTYPES, DTYPES):
            call = build(name, First(), [d])
            yield Call(name, call.args, {**call.kwargs, "dtype": np.dtype(NUMPY[to])}, call.arrays)
    if name in ("astype", "can_cast"):
        for d, to in itertools.product(DTYPES, DTYPES):
            call = build(name, First(), [d])
            yield Call(name, (call.args[0], np.dtype(NUMPY[to])), {}, call.arrays)


def kind(result: Any) -> Any:
    """Dtype and shape of arrays; other results as they are."""
    if isinstance(result, (list, tuple)):
        return [kind(r) for r in result]
    if hasattr(result, "dtype") and hasattr(result, "shape") and not isinstance(result, np.dtype):
        return NAME_OF.get(np.dtype(result.dtype), str(result.dtype)), tuple(result.shape)
    return "refused" if isinstance(result, (Refused, FuelError)) else result


def kinds_while_tracing(calls: Sequence[Call]) -> list[Any]:
    """The kind of each call's result, or "refused", in one trace that computes nothing."""
    found: list[Any] = []

    @fn.jit
    def f(given: Sequence[Any], x: Any) -> Any:
        for call, arrays in zip(calls, given):
            try:
                found.append(kind(call.on(np, arrays)))
            except FuelError:
                found.append("refused")
        return x

    f([list(c.arrays) for c in calls], np.zeros(1))
    return found


@every
def test_dtypes(name: str) -> None:
    """All in one trace that computes nothing: dtypes are known without."""
    calls = list(dtype_calls(name))
    found = kinds_while_tracing(calls)
    for call, got in zip(calls, found, strict=True):
        want = kind(meant(call, outcome(expected, call)))
        assert got == want, f"{call!r} is {got}, expected {want}"


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_operators_keep_the_dtype(name: str) -> None:
    calls = [build(name, First(), dtypes) for dtypes in itertools.product(DTYPES, repeat=2)]
    found = kinds_while_tracing(calls)
    for call, got in zip(calls, found, strict=True):
        fresh = Call(call.name, call.args, call.kwargs, tuple(a.copy() for a in call.arrays))
        want = kind(meant(call, outcome(by_numpy, fresh)))
        assert got == want, f"{call!r} is {got}, expected {want}"


# ------------------------------------------------------------------------------------------------ special values
def special(dtype: str) -> np.ndarray[Any, Any]:
    """The values for which the standard has special cases, and the ends of the range."""
    of = np.dtype(NUMPY[dtype])
    if dtype == "bool":
        return np.array([False, True])
    if dtype.startswith("f"):
        info = np.finfo(of)
        half = [0.0, 1.0, float("inf"), 0.5, 2.0, 3.0, 2.5, info.max, info.tiny, info.smallest_subnormal]
        return np.array([*half, *(-v for v in half), float("nan"), 1 + info.eps], of)
    ends = np.iinfo(of)
    wanted = {0, 1, -1, 2, -2, 3, 7, -8, 31, 64, ends.max, ends.max - 1, ends.min, ends.min + 1}
    return np.array(sorted(v for v in wanted if ends.min <= v <= ends.max), of)


def is_elementwise(name: str) -> bool:
    """With `x` or `x1, x2` for all its parameters, and as many results as elements."""
    f = find(np, name)
    scalarlike = isinstance(f, np.ufunc) and f.signature is None
    return scalarlike or name in ("round", "real", "imag", "clip", "where", "isin") or name.startswith("operator.")


def grid(name: str, dtype: str) -> tuple[np.ndarray[Any, Any], ...]:
    """Every special value, or every pair of them."""
    v = special(dtype)
    first, second = np.repeat(v, len(v)), np.tile(v, len(v))
    if name == "where":
        return np.resize([True, False, False], len(first)), first, second
    if name == "clip":
        return first, second, second[::-1].copy()
    if name == "isin":
        return v, v[::2].copy()
    if array_count(name) == 1:
        return (v,)
    if name in ("pow", "operator.pow") and not dtype.startswith("f"):
        return first[second >= 0], second[second >= 0]
    return first, second


def signs_of_zeros(got: Any, want: Any) -> str | None:
    if not isinstance(got, np.ndarray) or got.dtype.kind != "f":
        return None
    differ = (got == 0) & (want == 0) & (np.signbit(got) != np.signbit(want))
    return f"{differ.sum()} zeros have another sign" if differ.any() else None


# The standard lets these have zeros of either sign: it does not order them.
EITHER_ZERO = ("maximum", "minimum", "clip", "max", "min")


@pytest.mark.parametrize("name", [n for n in (*COVERED, *OPERATORS) if is_elementwise(n) and n != "operator.matmul"])
def test_special_values(name: str) -> None:
    for dtype in DTYPES:
        arrays = grid(name, dtype)
        call = Call(name, tuple(map(Hole, range(len(arrays)))), {}, arrays)
        got, want = outcome(ours, call), outcome(expected, call)
        agreed(call, got, want)
        if name not in EITHER_ZERO:
            assert signs_of_zeros(got, want) is None, call


@pytest.mark.parametrize("name", [n for n in COVERED if any(p.name == "keepdims" for p in parameters(n))])
def test_reductions_of_special_values(name: str) -> None:
    """Of every pair, in rows and in columns."""
    for dtype in DTYPES:
        rows = np.stack(grid("add", dtype), axis=-1)
        calls = [Call(name, (Hole(0),), {"axis": -1}, (rows,)), Call(name, (Hole(0),), {"axis": 0}, (np.ascontiguousarray(rows.T),))]
        if not any(p.name == "axis" for p in parameters(name)):
            calls = [Call(name, (Hole(0),), {}, (rows[:, None].copy(),))]
        for call in calls:
            got, want = outcome(ours, call), outcome(expected, call)
            agreed(call, got, want)
            if name not in EITHER_ZERO:
                assert signs_of_zeros(got, want) is None, call


# ------------------------------------------------------------------------------------------------ the array object
def test_attributes_and_methods() -> None:
    """A function written for any library of the standard runs when jitted."""
    seen: dict[str, Any] = {}

    def normalised(x: Any) -> Any:
        xp = x.__array_namespace__()
        seen.update(dtype=x.dtype, ndim=x.ndim, shape=x.shape, size=x.size, device=x.device)
        seen.update(kind=xp.isdtype(x.dtype, "real floating"), eps=float(xp.finfo(x.dtype).eps))
        y = xp.astype(x - xp.mean(x, axis=-1, keepdims=True), xp.float64).to_device(x.device)
        z = y / xp.std(y, axis=-1, correction=1, keepdims=True) + xp.zeros(x.shape, dtype=xp.float64, device=x.device)
        return xp.concat([z.T, z.mT], axis=0), xp.where(z > 0, z, xp.zeros_like(z, device=z.device))

    x = np.array([[1, 2, 4], [8, 16, 32]], np.float32)
    got = fn.jit(normalised)(x)
    assert seen == {"dtype": np.float32, "ndim": 2, "shape": (2, 3), "size": 6, "device": "cpu", "kind": True, "eps": 2.0**-23}
    for a, b in zip(got, normalised(x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, strict=True)
    assert fn.jit(lambda x: x.__array_namespace__(api_version="2023.12").sqrt(x))(x).tolist() == np.sqrt(x).tolist()
    with pytest.raises(ValueError, match="1999"):
        fn.jit(lambda x: x.__array_namespace__(api_version="1999.12"))(x)


@pytest.mark.parametrize("elsewhere", [
    lambda x: x.to_device("gpu"), lambda x: np.zeros_like(x, device="gpu"), lambda x: np.full(2, x[0], device="gpu", like=x),
    lambda x: np.astype(x, np.float32, device="gpu"),
])
def test_devices_that_do_not_exist(elsewhere: Any) -> None:
    with pytest.raises(UnsupportedFunctionError, match="is not covered with device="):
        fn.jit(elsewhere)(np.ones(3))


def test_functions_that_take_no_traced_values_are_numpys_own() -> None:
    @fn.jit
    def f(x: Any) -> Any:
        n = x.shape[0]
        made = np.arange(n) + np.linspace(0, 1, n) + np.asarray([1.0, 2.0]) + np.eye(n)[0] + np.fft.fftfreq(n)
        assert np.broadcast_shapes(x.shape, (3, 1)) == (3, 2)
        assert np.isdtype(x.dtype, "integral") and np.iinfo(x).max == 127 and np.iinfo(x.dtype).min == -128
        assert np.finfo(x / 2).dtype == np.float64
        return x + made

    np.testing.assert_allclose(f(np.array([1, 2], np.int8)), np.array([1 + 0 + 0 + 1 + 1, 2 + 1 + 1 + 2 + 0 - 0.5]), strict=True)


# ------------------------------------------------------------------------------------------------ beyond the standard, found here
@pytest.mark.parametrize("call", [
    lambda x: np.copy(x, order="F"), lambda x: x.copy("F"), lambda x: x.astype(np.float32, order="F"),
    lambda x: np.zeros_like(x, order="F"), lambda x: np.zeros(3, order="F", like=x), lambda x: np.full(3, 1, order="F", like=x),
    lambda x: np.add(x, x, order="F"),
])
def test_fortran_order_is_refused_everywhere(call: Any) -> None:
    with pytest.raises(UnsupportedFunctionError, match="is not covered with order="):
        fn.jit(call)(np.ones((2, 3)))


@pytest.mark.parametrize("call", [
    lambda x: x.astype(np.int32, casting="safe"), lambda x: np.concatenate([x, x], dtype=np.int32),
    lambda x: np.stack([x, x], dtype=np.int32), lambda x: np.vstack([x, x], dtype=np.int32),
    lambda x: np.hstack([x, x], dtype=np.float32, casting="safe"), lambda x: np.add(x, x, dtype=np.int32),
    lambda x: np.concatenate([x, x], dtype=np.float32, casting="no"), lambda x: np.sin(x, dtype=np.float32, casting="safe"),
])
def test_casts_follow_numpys_rules(call: Any) -> None:
    x = np.ones(3)
    with pytest.raises(TypeError):
        call(x)
    with pytest.raises(FuelError, match=r"cannot cast f64 to \w+ by the rule"):
        fn.jit(call)(x)


@pytest.mark.parametrize("dtype", ["u8", "i8", "i32", "i64"])
def test_clip_to_ints_beyond_the_dtype(dtype: str) -> None:
    x = special(dtype)
    for low, high in ((-2**70, 2**70), (None, 2**70), (-2**70, 5), (1, 2**63), (-1, 300)):
        info = np.iinfo(x.dtype)
        if (low is not None and low > info.max) or (high is not None and high < info.min):
            continue
        call = Call("clip", (Hole(0), low, high), {}, (x,))
        got, want = outcome(ours, call), outcome(by_numpy, call)
        assert difference(got, want) is None, (low, high)
    with pytest.raises(ArgumentError, match="does not fit"):
        fn.jit(lambda x: np.clip(x, 2**70, None))(x)
