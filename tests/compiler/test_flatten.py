"""Kernel text: what becomes of helpers, flags and loads. Texts only; nothing is compiled."""

from __future__ import annotations

import ast
import inspect
import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuelnumba  # noqa: F401  (declares the ops)
from fuelnumba.compiler import codegen, flatten
from fuelnumba.core import dtypes as dt
from fuelnumba.core.errors import CompileError
from fuelnumba.core.ops import GPU, NOT_POINTERS, OPS, Kernel
from fuelnumba.kernels import cooperative, half, intrinsics, lang, vmath
from fuelnumba.kernels.lang import *  # noqa: F403  (the words that the kernels below are written in)


def flat(text: str) -> str:
    return flatten.flatten_text(text)


def body(
    fn: Callable[..., Any],
    pointers: dict[str, dt.DType],
    bake: dict[str, Any] | None = None,
    **variables: dt.DType,
) -> str:
    statements = flatten.specialise(flatten.parse_kernel(fn), pointers, variables, bake or {})
    return ast.unparse(ast.fix_missing_locations(ast.Module(statements, [])))


def calls(text: str) -> set[str]:
    return {
        n.func.id
        for n in ast.walk(ast.parse(text))
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    }


def run_flat(text: str, **words: Any) -> Any:
    """The flat function as Python, over the NumPy meaning of the intrinsics."""
    scope = {n: getattr(lang, n) for n in dir(lang) if not n.startswith("_")}
    scope |= {n: getattr(vmath, n) for n in flatten.FUNCTIONS} | words
    exec(text, scope)
    return scope["f"]


# ------------------------------------------------------------ helpers
def test_helpers_are_written_out() -> None:
    text = flat("def f(x, u):\n    return rem_f32(x, f32(2)) + bf16_to_f32(u)\n")
    assert not calls(text) & flatten.helpers().keys()
    f = run_flat(text)
    for x in (-2.5, -0.3, 0.0, 0.7, 3.0):
        assert f(np.float32(x), np.uint16(0x3F80)) == np.float32(x) % 2 + 1


def test_elementary_functions_stay_calls() -> None:
    text = flat("def f(x):\n    return tanh_f32(x) + exp_f32(x * x)\n")
    assert calls(text) == {"tanh_f32", "exp_f32"}


@pytest.mark.parametrize("name", sorted(flatten.FUNCTIONS))
def test_the_text_of_an_elementary_function_computes_what_it_does(name: str) -> None:
    scope = {n: getattr(lang, n) for n in dir(lang) if not n.startswith("_")}
    scope |= {n: getattr(vmath, n) for n in flatten.FUNCTIONS - {name}}
    text = flatten.function_text(name)
    exec(text, scope)
    x = (np.float64 if name.endswith("64") else np.float32)(0.7)
    count = len(flatten.helpers()[name].args.args)
    assert not calls(text) & (flatten.helpers().keys() - flatten.FUNCTIONS)
    with np.errstate(all="ignore"):
        assert scope[name](*[x] * count) == getattr(vmath, name)(*[x] * count)


@pytest.mark.parametrize("name", ["cos_poly_f32", "log_tail_f32", "erf_near_f64", "bf16_to_f32", "expm1_core_f64"])
def test_a_helper_written_out_computes_what_the_helper_does(name: str) -> None:
    given = (
        np.uint16(0x3555)
        if name == "bf16_to_f32"
        else getattr(np, "float64" if name.endswith("64") else "float32")(0.7)
    )
    f = run_flat(flat(f"def f(x):\n    return {name}(x)\n"))
    helper = getattr(half if hasattr(half, name) else vmath, name)
    with np.errstate(over="ignore"):  # bit patterns wrap
        assert f(given) == helper(given)


def test_an_argument_is_evaluated_once() -> None:
    text = flat("def f(x):\n    return erf_near_f32(g(x))\n")
    assert text.count("g(x)") == 1


def test_helpers_inside_arguments_of_helpers() -> None:
    f = run_flat(flat("def f(x):\n    y = exp_f64(sin_f64(exp_f64(x)))\n    return y\n"))
    np.testing.assert_allclose(f(np.float64(0.3)), np.exp(np.sin(np.exp(0.3))), rtol=1e-14)


def test_helpers_in_loops_and_branches_stay_there() -> None:
    text = flat(
        "def f(n, x):\n    total = x\n    for k in range(n):\n        if k > 1:\n"
        "            total = exp_f64(total * 0.1)\n"
        "        else:\n            total = total + 1.0\n    while total > 0.5:\n"
        "        total = sin_f64(total) - 0.1\n    return total\n"
    )
    f = run_flat(text)
    total = 0.2
    for k in range(4):
        total = np.exp(total * 0.1) if k > 1 else total + 1
    while total > 0.5:
        total = np.sin(total) - 0.1
    np.testing.assert_allclose(f(4, np.float64(0.2)), total, rtol=1e-13)


def test_a_name_that_a_helper_assigns_twice_becomes_two_names(monkeypatch: pytest.MonkeyPatch) -> None:
    helper = ast.parse("def twice(x):\n    y = x + 1\n    y = y * 2\n    y = y - x\n    return x + y\n").body[
        0
    ]
    monkeypatch.setattr(flatten, "helpers", lambda: {"twice": helper})
    text = flat("def f(x, y):\n    z = twice(x + y)\n    return z + twice(y)\n")
    assigned = [n.targets[0].id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Assign)]
    assert len(assigned) == len(set(assigned))
    f = run_flat(text)

    def twice(x: int) -> int:
        return x + (x + 1) * 2 - x

    assert f(3, 5) == twice(8) + twice(5)


def test_a_helper_in_the_test_of_a_while_loop_is_refused() -> None:
    with pytest.raises(CompileError) as caught:
        flat("def f(x):\n    while rem_f32(x, 2) > 1:\n        x = x - 1\n    return x\n")
    assert str(caught.value) == "a helper function in the test of a while loop: rem_f32(x, 2) > 1"


def test_every_helper_is_straight_and_known_by_its_name() -> None:
    found = flatten.helpers()
    assert {"exp_f32", "exp_f64", "bf16_to_f32", "f32_to_bf16"} <= found.keys()
    for name in found:
        text = flat(
            f"def f({', '.join('abcdefgh'[: len(found[name].args.args)])}):\n    return "
            f"{name}({', '.join('abcdefgh'[: len(found[name].args.args)])})\n"
        )
        known = set(intrinsics.__all__) | flatten.FUNCTIONS
        assert calls(text) <= known, f"{name} calls {calls(text) - known}"
    assert {"exp", "tanh", "log"} <= flatten.generic_functions()


# ------------------------------------------------------------ specialise
def doubled(x, out, FLAG: bool, lo, hi):
    """The kernel's own words."""
    for i in range(lo, hi):
        v = T(load(x, i))  # noqa: F405
        if FLAG:
            v = exp(v)  # noqa: F405
        else:
            v = T(0.5) * v  # noqa: F405
        store(out, i, min(v, T(2)) if FLAG else v)  # noqa: F405


def test_baked_flags_are_decided() -> None:
    on = body(doubled, {"x": dt.f32, "out": dt.f32}, {"FLAG": True}, T=dt.f32)
    off = body(doubled, {"x": dt.f32, "out": dt.f32}, {"FLAG": False}, T=dt.f32)
    assert (
        on
        == "for i in range(lo, hi):\n    v = f32(x[i])\n    v = exp_f32(v)\n    out[i] = minimum(v, f32(2))"
    )
    assert off == "for i in range(lo, hi):\n    v = f32(x[i])\n    v = f32(0.5) * v\n    out[i] = v"


def test_flags_that_are_not_baked_stay() -> None:
    text = body(doubled, {"x": dt.f64, "out": dt.f64}, {}, T=dt.f64)
    assert "if FLAG:" in text and "exp_f64(v)" in text and "minimum(v, f64(2)) if FLAG else v" in text


CONVERTED = {
    "f32": ("x[i]", "v"),
    "f64": ("x[i]", "v"),
    "i32": ("x[i]", "v"),
    "u8": ("x[i]", "v"),
    "i64": ("x[i]", "v"),
    "bool": ("x[i] != u8(0)", "u8(v)"),
    "f16": ("f16_to_f32(x[i])", "f32_to_f16(v)"),
    "bf16": ("bf16_to_f32(x[i])", "f32_to_bf16(v)"),
    "f8e4m3": ("f8e4m3_to_f32(x[i])", "f32_to_f8e4m3(v)"),
    "f8e5m2": ("f8e5m2_to_f32(x[i])", "f32_to_f8e5m2(v)"),
    "f8e8m0": ("f8e8m0_to_f32(x[i])", "f32_to_f8e8m0(v)"),
}


def passed_on(x, out, i, lo, hi):
    v = load(x, i)  # noqa: F405
    store(out, i, v)  # noqa: F405


def moved(x, out, i, lo, hi):
    copy_element(out, i + 1, x, i * 2)  # noqa: F405


@pytest.mark.parametrize("name", CONVERTED)
def test_loads_and_stores_convert(name: str) -> None:
    d = dt.dtype_of(name)
    loaded, stored = CONVERTED[name]
    assert body(passed_on, {"x": d, "out": d}, T=d) == f"v = {loaded}\nout[i] = {stored}"
    assert body(moved, {"x": d, "out": d}, T=d) == "out[i + 1] = x[i * 2]", "moving keeps the bits"


def through_a_variable(x, lo, hi):
    v = load(x + 1, 0)  # noqa: F405
    return v


def test_a_pointer_must_be_a_name() -> None:
    with pytest.raises(CompileError) as caught:
        body(through_a_variable, {"x": dt.f32}, T=dt.f32)
    assert str(caught.value) == "load(x + 1, 0): a pointer must be a parameter or a variable"


def test_a_kernel_without_source() -> None:
    scope: dict[str, Any] = {}
    exec("def made(x, out, lo, hi):\n    pass\n", scope)
    with pytest.raises(CompileError) as caught:
        flatten.kernel_text(scope["made"])
    assert str(caught.value) == (
        "the source of kernel made is not available\n   = define it in a file or a notebook cell"
    )


# ------------------------------------------------------------ every kernel
def _variants() -> list[Any]:
    found = []
    for op in OPS.values():
        for k in op.kernels:
            names = list(k.types)
            for choice in itertools.product(*(k.types[n] for n in names)):
                found.append(
                    pytest.param(
                        k,
                        dict(zip(names, choice)),
                        id=f"{op.name}-{k.name}-{'-'.join(d.name for d in choice)}",
                    )
                )
    return found


def _annotations(k: Kernel) -> dict[str, str]:
    return {p.name: str(p.annotation).strip("'\"") for p in inspect.signature(k.fn).parameters.values()}


def _baked(k: Kernel, flag: bool) -> dict[str, Any]:
    """Flags, words and, of kernels for groups, sizes: any that fit their places."""
    words = {"shared": "shared_f64", "shared_places": "shared_i64", "combine": "maximum", "join": "group_max"}
    given = _annotations(k).items()
    found = {n: flag if a == "bool" else words.get(n, "stack_f64") for n, a in given if a in ("bool", "Word")}
    return found | ({n: 2 for n, a in given if a == "int" and n.isupper()} if k.backend == GPU else {})


def _pointer_names(k: Kernel) -> list[str]:
    annotations = _annotations(k)
    names = list(annotations)
    end = next(
        (j for j, n in enumerate(names) if annotations[n] in NOT_POINTERS or n in ("status", "site", "lo")),
        len(names),
    )
    return names[:end]


@pytest.mark.parametrize(("kernel", "variables"), _variants())
def test_every_kernel_renders(kernel: Kernel, variables: dict[str, dt.DType]) -> None:
    """For each choice of its dtypes: a flat function that calls intrinsics only, or words for groups."""
    words = set(intrinsics.__all__) | (set(cooperative.__all__) if kernel.backend == GPU else set())
    names = _pointer_names(kernel)
    spelled = kernel.operands(len(names))
    dtypes = [variables.get(v) or dt.BY_NAME[v] for v in spelled.values()]
    assert kernel.match(dtypes) == {v: variables[v] for v in variables if v in spelled.values()}
    for flag in (True, False):
        source = codegen.kernel_source(kernel, dtypes, _baked(kernel, flag))
        tree = ast.parse(source.text())
        assert isinstance(tree.body[0], ast.FunctionDef) and tree.body[0].name == source.name
        unknown = calls(source.text()) - words - flatten.FUNCTIONS - {"range"}
        assert not unknown, unknown


def test_a_key_says_everything_the_text_depends_on() -> None:
    keys: dict[str, str] = {}
    for op in OPS.values():
        for k in op.kernels:
            names = list(k.types)
            for choice in itertools.islice(itertools.product(*(k.types[n] for n in names)), 4):
                variables = dict(zip(names, choice))
                dtypes = [
                    variables.get(v) or dt.BY_NAME[v] for v in k.operands(len(_pointer_names(k))).values()
                ]
                for value in (True, False):
                    source = codegen.kernel_source(k, dtypes, _baked(k, value))
                    text = source.text().replace(source.name, "f")
                    assert keys.setdefault(source.key, text) == text


def test_threads_parse_one_after_the_other() -> None:
    """CPython 3.11's own ast.parse raises SystemError now and then when several threads are in it."""
    text = inspect.getsource(vmath)
    failed: list[Exception] = []

    def parse() -> None:
        try:
            for _ in range(4):
                flatten._parse(text)
        except Exception as err:
            failed.append(err)

    threads = [threading.Thread(target=parse) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed
