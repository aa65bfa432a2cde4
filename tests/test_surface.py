"""What users see of the package without calling it: names, signatures, help, and what importing it brings along."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fuelnumba as fn
from fuelnumba.core.ops import OPS, Attr
from fuelnumba.tools import coverage
from fuelnumba.trace import documentation

Function = Any
NAMES = fn.ops.__all__
DUNDER = re.compile(r"__\w+__")


@pytest.fixture(autouse=True, scope="module")
def fresh() -> Iterator[None]:
    """Other tests read messages of ops that have seen no other lengths."""
    yield
    fn.ops._jitted.cache_clear()  # type: ignore[attr-defined]


def python(code: str) -> list[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


# ------------------------------------------------------------------------------------------------ names
def test_dir_has_the_public_names_only() -> None:
    assert {n for n in dir(fn) if not DUNDER.fullmatch(n)} == set(fn.__all__)
    assert all(hasattr(fn, n) for n in dir(fn))
    assert dir(fn.ops) == sorted(fn.ops.__all__)


def test_an_op_declared_later_is_among_the_names() -> None:
    fn.elementwise("surface_twice", lambda x: x + x, doc="twice x")
    try:
        assert "surface_twice" in dir(fn.ops) and "surface_twice" not in NAMES
        assert str(inspect.signature(fn.ops.surface_twice)) == "(x: ArrayLike) -> Array"
        assert inspect.getdoc(fn.ops.surface_twice).startswith("Twice x.\n")  # type: ignore[union-attr]
    finally:
        del OPS["surface_twice"]
        vars(fn.ops).pop("surface_twice", None)


def test_what_only_the_compiler_records_is_no_op_of_users() -> None:
    hidden = [n for n, op in OPS.items() if not op.is_public and n != "full"]
    assert "copy" in hidden and not set(hidden) & {o.name for o in coverage.operations()}
    for name in hidden:
        with pytest.raises(AttributeError):
            getattr(fn.ops, name)


# ------------------------------------------------------------------------------------------------ importing
IMPORTED = """
import sys
before = set(sys.modules)
{code}
new = {{name.partition(".")[0] for name in sys.modules.keys() - before}}
from importlib.metadata import packages_distributions
known = packages_distributions()
print(*sorted({{d.lower() for name in new for d in known.get(name, ())}} - {{"fuelnumba"}}))
"""


def test_importing_brings_few_others() -> None:
    """Each was weighed: ml_dtypes 0.7 takes half a second, Numba and SciPy one and more."""
    assert set(python(IMPORTED.format(code="import fuelnumba"))) <= {"numpy", "filelock", "platformdirs"}


def test_a_call_on_numpys_dtypes_does_not_import_ml_dtypes() -> None:
    code = "import fuelnumba as fn, numpy as np; fn.jit(lambda x: np.exp(x) + 1)(np.ones(3, np.float32))"
    assert "ml-dtypes" not in {n.replace("_", "-") for n in python(IMPORTED.format(code=code))}


@pytest.mark.parametrize("names", ["bf16 f8e4m3 f8e5m2 f8e8m0", "bfloat16 float8_e4m3fn float8_e5m2 float8_e8m0fnu"])
def test_narrow_dtypes_by_name_before_ml_dtypes_is_imported(names: str) -> None:
    code = f"""
import sys, numpy as np, fuelnumba as fn
assert "ml_dtypes" not in sys.modules
print(*(fn.jit(lambda x: x.astype(name))(np.ones(3, np.float32)).dtype for name in {names.split()!r}))"""
    assert python(code) == ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"]


def test_arrays_of_ml_dtypes_imported_later() -> None:
    code = """
import numpy as np, fuelnumba as fn
f = fn.jit(lambda x: x * 2)
f(np.ones(3, np.float32))
try:
    f(np.ones(3, np.complex64))
except fn.errors.FuelError as err:
    print(type(err).__name__)
import ml_dtypes
print(f(np.ones(3, ml_dtypes.bfloat16)).dtype, fn.dtypes.of_numpy(np.dtype(ml_dtypes.float8_e5m2)))
try:
    f(np.ones(3, ml_dtypes.float8_e3m4))
except fn.errors.FuelError as err:
    print(type(err).__name__)"""
    assert python(code) == ["DTypeError", "bfloat16", "f8e5m2", "DTypeError"]


# ------------------------------------------------------------------------------------------------ signatures and help
def sections(name: str) -> dict[str, str]:
    """The parts of an op's documentation; the beginning is that of ''."""
    parts = re.split(r"^(\w+)\n-+\n", inspect.getdoc(getattr(fn.ops, name)) or "", flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2]))}


def entries(section: str) -> dict[str, str]:
    """heading -> the indented text below it."""
    found = re.findall(r"^(\S.*)\n((?: {4}.*\n?)+)", section, re.MULTILINE)
    assert sum(2 + text.rstrip("\n").count("\n") for _, text in found) == len(section.strip("\n").splitlines())
    return {heading: " ".join(text.split()) for heading, text in found}


def is_shown_well(annotation: Any) -> bool:
    text = inspect.formatannotation(annotation)
    return annotation not in (inspect.Parameter.empty, Any) and not isinstance(annotation, str) and not re.search(
        r"Any|'|typing|collections|object|fuelnumba|numpy", text)


@pytest.mark.parametrize("name", NAMES)
def test_every_signature_has_annotations(name: str) -> None:
    signature = inspect.signature(getattr(fn.ops, name))
    for p in signature.parameters.values():
        assert is_shown_well(p.annotation), p
        assert p.default is not None or "None" in inspect.formatannotation(p.annotation), p
    assert is_shown_well(signature.return_annotation)


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_is_explained(name: str) -> None:
    found = sections(name)
    assert list(found) == ["", "Parameters", "Returns", "Raises", "Notes"]
    assert re.fullmatch(r"(?s).+\.", found[""].strip())
    signature = inspect.signature(getattr(fn.ops, name))
    explained = entries(found["Parameters"])
    shown = [f"{'*' * (p.kind is p.VAR_POSITIONAL)}{p.name}" for p in signature.parameters.values()]
    assert [heading.split(" : ")[0] for heading in explained] == shown
    for (heading, text), p in zip(explained.items(), signature.parameters.values(), strict=True):
        assert inspect.formatannotation(p.annotation) in heading
        assert text.endswith(".") and "see above" not in text
    (gives, text), = entries(found["Returns"]).items()
    assert gives == inspect.formatannotation(signature.return_annotation)
    assert re.fullmatch(r"Shape: .+\. Dtype: .+\.", text) and "declaration" not in text
    assert "Like " in found["Notes"] and "Dtypes of " in found["Notes"]
    assert all(len(line) <= 100 for line in "".join(found.values()).splitlines())


def test_declarations_name_parameters_that_exist() -> None:
    for op in coverage.operations():
        known = {*inspect.signature(getattr(fn.ops, op.name)).parameters}
        assert op.args.keys() <= known, op
        assert all(issubclass(getattr(fn.errors, error), fn.errors.FuelError) for error in op.raises)


@pytest.mark.parametrize("name", NAMES)
def test_what_it_is_like_exists(name: str) -> None:
    """The names of NumPy and SciPy; others are not installed here."""
    for like in re.findall(r"(?:numpy|scipy)(?:\.\w+)+", sections(name)["Notes"]):
        parts = like.split(".")
        found: Any = importlib.import_module(".".join(parts[:2]) if parts[0] == "scipy" else "numpy")
        for part in parts[2 if parts[0] == "scipy" else 1:]:
            found = getattr(found, part)
        assert callable(found)


@pytest.mark.parametrize("name", NAMES)
def test_errors_show_names_and_defaults(name: str) -> None:
    with pytest.raises(fn.errors.ArgumentError) as info:
        getattr(fn.ops, name)(nothing_of_this_name=1)
    assert info.value.cure is not None and not re.search("Any|ArrayLike|->", info.value.cure)
    assert all(p in info.value.cure for p in inspect.signature(getattr(fn.ops, name)).parameters)


def test_how_help_reads() -> None:
    assert str(inspect.signature(fn.ops.softmax)) == "(x: ArrayLike, axis: int = -1) -> Array"
    assert inspect.getdoc(fn.ops.softmax) == """\
exp(x - max) / sum along an axis; a row of -inf only gives NaN.

Parameters
----------
x : ArrayLike
    Floats; numbers of other dtypes become floats.
axis : int, default -1
    An axis of x; a negative one counts from the end.

Returns
-------
Array
    Shape: x's.
    Dtype: that of x, or a float where that is none.

Raises
------
ArgumentError
    When an argument is no array of numbers, or a parameter is of the wrong type.
DTypeError
    When x has 8-bit floats.
AxisError
    When an axis is out of range.

Notes
-----
Like scipy.special.softmax, torch.softmax.
Dtypes of x on cpu: f16 bf16 f32 f64.
Dtypes of x on vulkan: f16 bf16 f32 f64."""
    assert str(inspect.signature(fn.ops.write_slice)) == (
        "(x: ArrayLike, src: ArrayLike, at: int | Tensor | tuple[int | Tensor, ...] = 0) -> Array")


def test_a_parameter_of_an_unknown_kind() -> None:
    """An attribute that a user declared by a function of their own."""
    op = fn.define_op("surface_odd", "elementwise", "x", infer=lambda x, way: x, attrs={"way": Attr(lambda v, _: v)}, doc="odd")
    try:
        assert str(documentation.signature_of(op)) == "(x: ArrayLike, way) -> Array"
        assert "\nway\n    " in documentation.documentation_of(op, documentation.signature_of(op))
    finally:
        del OPS["surface_odd"]


# ------------------------------------------------------------------------------------------------ what is said of errors
def good(name: str) -> dict[str, Any]:
    """Arguments that fit: the operands and attributes of the op's first sample."""
    x = np.ones((4, 3), np.float32)
    of_doors: dict[str, dict[str, Any]] = {
        "full": {"value": 1.0, "shape": (2, 3), "dtype": "f32"}, "split": {"x": x, "parts": 2, "axis": 0},
        "write_slice": {"x": x, "src": x[:2], "at": (1, 0)}, "cast": {"x": x, "dtype": "f64"}}
    if name in of_doors:
        return of_doors[name]
    op = OPS[name]
    operands, attrs = next(iter(op.samples())) if op.samples else ((), {})
    names = documentation.inputs_of(op)
    if not operands:
        of = {"int": np.int32, "bits": np.int32, "truth": np.bool_}.get(op.domain, np.float32)
        operands = tuple(np.ones((2, 3), np.bool_ if n == "condition" else of) for n in names)
    arrays = [a.astype(np.float32) if a.dtype.kind == "f" else a for a in map(np.asarray, operands)]
    given = {"xs": arrays} if names == ["xs"] else dict(zip(names, arrays))
    return {**given, **{n: 0 for n, a in op.attrs.items() if a.default is inspect.Parameter.empty}, **attrs}


def call(name: str, given: dict[str, Any]) -> Any:
    rest = {n: v for n, v in given.items() if n != "xs"}
    return getattr(fn.ops, name)(*given.get("xs", ()), **rest)


def bad_arrays(like: Any) -> Iterator[Any]:
    shape = np.shape(like)
    yield object()
    yield from (np.ones(shape, of) for of in (ml_dtypes.float8_e5m2, np.float32, np.bool_))
    yield from (np.ones(s, np.float32) for s in ((), (0,), (7,), (1, 7, 1, 1), (7, 0)))
    yield from (np.ones(7, np.int64), np.full(shape, 99), np.array(99))


BAD_PARAMETERS = [object(), 99, -99, (0, 0), (99,), 1.5, "no", -1, -2, (3, -7), 7, (0, 1, 2), [1.5]]


def bad(name: str) -> Iterator[dict[str, Any]]:
    """The fitting arguments with one of them put wrong."""
    fits = good(name)
    for p in inspect.signature(getattr(fn.ops, name)).parameters.values():
        if p.name == "xs":
            yield from ({**fits, "xs": xs} for xs in ([], *([*fits["xs"], a] for a in bad_arrays(fits["xs"][0]))))
        elif "ArrayLike" in str(p.annotation):
            yield from ({**fits, p.name: a} for a in bad_arrays(fits.get(p.name, 0)))
        else:
            yield from ({**fits, p.name: v} for v in BAD_PARAMETERS)


def refusals(name: str) -> set[str]:
    found = set()
    for given in bad(name):
        try:
            call(name, given)
        except fn.errors.FuelError as err:
            found.add(type(err).__name__)
    if name == "write_slice":  # starts that are known at run time only
        f = fn.jit(lambda x, at: fn.ops.write_slice(x, x[:1], at=(at[0], 0)))
        for start in (np.array([99]), np.array([0.5])):
            with pytest.raises(fn.errors.FuelError) as info:
                f(np.ones((4, 3), np.float32), start)
            found.add(type(info.value).__name__)
    return found


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", NAMES)
def test_the_errors_that_are_named_are_those_raised(name: str) -> None:
    call(name, good(name))
    assert refusals(name) == entries(sections(name)["Raises"]).keys()
