"""ONNX's own test cases of single nodes, with ONNX's values: which of them are run here, and which not, by rule.

    python -m tests.conformance.onnx_cases          # brings the table in docs/conformance.md up to date

A case is a model of one node, or (`_expanded`) of the primitive nodes that ONNX's definition of an op is made of.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

import fuelnumba as fn
from fuelnumba.core import dtypes as dt

from . import onnx_layers  # noqa: F401  (maps more nodes)
from .onnx_nodes import NODES, STATIC

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
BEGIN, END = "<!-- onnx cases -->\n", "<!-- end -->"


@dataclass(frozen=True, eq=False)
class Case:
    name: str
    op: str  # the op that is tested
    expanded: bool
    graph: Any
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    rtol: float
    atol: float

    @property
    def ops(self) -> list[str]:
        return [n.op_type for n in self.graph.node]


@functools.cache
def cases() -> tuple[Case, ...]:
    """All of them, also of ops that are not mapped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    made = [_case(c) for c in found]
    plain = sorted((c for c in made if not c.expanded), key=lambda c: len(c.name), reverse=True)
    return tuple(c if not c.expanded else _of_op(c, plain) for c in made)


def _case(case: TestCase) -> Case:
    graph = case.model.graph
    (inputs, outputs), = case.data_sets
    named_in = dict(zip((v.name for v in graph.input), map(_array, inputs), strict=True))
    named_out = dict(zip((v.name for v in graph.output), map(_array, outputs), strict=True))
    return Case(case.name, graph.node[0].op_type, "_expanded" in case.name, graph, named_in, named_out, case.rtol, case.atol)


def _of_op(case: Case, plain: list[Case]) -> Case:
    """An expanded case has the name of a plain one in front."""
    op = next(p.op for p in plain if case.name.startswith(p.name + "_"))
    return Case(case.name, op, True, case.graph, case.inputs, case.outputs, case.rtol, case.atol)


def _array(value: Any) -> Any:
    """An array, or what it is when it is none: a sequence, or nothing."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, (np.ndarray, np.generic)) else value


# ------------------------------------------------------------------------------------------------ what is not run
def _attributes(case: Case) -> Iterator[tuple[str, str, Any]]:
    for n in case.graph.node:
        for a in n.attribute:
            yield n.op_type, a.name, onnx.helper.get_attribute_value(a)


def _dtypes(case: Case) -> set[str]:
    """Of everything that the case hands in, expects, or holds; 'none' where it is no array."""
    values = [*case.inputs.values(), *case.outputs.values()]
    found = {v.dtype.name if isinstance(v, np.ndarray) else "none" for v in values}
    for op, name, value in _attributes(case):
        if isinstance(value, onnx.TensorProto):
            found.add(numpy_helper.to_array(value).dtype.name)
        elif op == "Cast" and name == "to":
            found.add(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(value)).name)
    return found


OURS = {d.numpy.name for d in dt.ALL}



def _trains(case: Case) -> bool:
    """Dropout and BatchNormalization in training: random numbers, and statistics to be carried on."""
    return bool(case.inputs.get("t")) or any(name == "training_mode" and value for _, name, value in _attributes(case))


def _rounds_up(case: Case) -> bool:
    return "float8_e8m0fnu" in {v.dtype.name for v in case.outputs.values()}


def _needs_diagonal(case: Case) -> bool:
    return any(name == "equation" and (b"ii" in value or b"." in value) for _, name, value in _attributes(case))


#: reason -> does it apply to a case of a mapped op?
RULES: dict[str, Callable[[Case], bool]] = {
    "a sequence, or an optional value": lambda c: "none" in _dtypes(c),
    "a dtype that fuelnumba does not have": lambda c: bool(_dtypes(c) - OURS),
    "training": _trains,
    "a cast to f8e8m0 that rounds up; ours rounds to the nearest": _rounds_up,
    "einsum with `...` or the diagonal of an array, which is not covered": _needs_diagonal,
    "the definition uses an op that is not mapped": lambda c: not NODES.keys() >= set(c.ops),
}


def reason_against(case: Case) -> str | None:
    """The first rule that excludes a case; None when it is run."""
    return next((reason for reason, applies in RULES.items() if applies(case)), None)


@functools.cache
def sorted_cases() -> tuple[tuple[Case, ...], dict[str, str]]:
    """The cases that are run, and name -> reason of those of mapped ops that are not."""
    run, excluded = [], {}
    for case in cases():
        if case.op not in NODES:
            continue
        reason = reason_against(case)
        if reason is None:
            run.append(case)
        else:
            excluded[case.name] = reason
    return tuple(run), excluded


# ------------------------------------------------------------------------------------------------ running one
def _decoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        array = numpy_helper.to_array(value)
        return array if array.ndim else array[()]
    return value


def _keywords(call: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(call).parameters) if inspect.isfunction(call) else ()


def program(case: Case) -> tuple[Any, dict[str, Any]]:
    """The graph as a function of the inputs that may be traced, and these. Inputs that must be static are baked in."""
    steps = []
    for n in case.graph.node:
        attributes = {a.name: _decoded(onnx.helper.get_attribute_value(a)) for a in n.attribute}
        if "outputs" in _keywords(NODES[n.op_type]):
            attributes["outputs"] = len(n.output)
        steps.append((NODES[n.op_type], attributes, tuple(n.input), tuple(n.output)))
    static = _static_names(case)
    baked = {k: v for k, v in case.inputs.items() if k in static}
    given = {k: v for k, v in case.inputs.items() if k not in static}
    names, wanted = tuple(given), tuple(case.outputs)

    def run(*arrays: Any) -> tuple[Any, ...]:
        values = {"": None, **baked, **dict(zip(names, arrays))}
        for call, attributes, inputs, outputs in steps:
            made = call(*(values[k] for k in inputs), **attributes)
            values.update((k, v) for k, v in zip(outputs, made if isinstance(made, tuple) else (made,)) if k)
        return tuple(values[k] for k in wanted)

    return run, given


def _static_names(case: Case) -> set[str]:
    """The inputs that a static position depends on, but for their shapes."""
    needed: set[str] = set()
    for n in reversed(case.graph.node):
        if n.op_type in ("Shape", "Size"):
            continue
        if needed & set(n.output):
            needed.update(n.input)
        else:
            needed.update(n.input[k] for k in STATIC.get(n.op_type, ()) if k < len(n.input))
    return needed


#: Dtype, expanded -> two units of the last place. ONNX's own runner grants them to bf16. An expansion rounds to f16 after every
#: step, where one unit is as much as ONNX's tolerance of 1e-3.
ROOM = {("bfloat16", False): 2**-6, ("bfloat16", True): 2**-6, ("float16", True): 2**-9}


def check(case: Case, symbolic: bool = False) -> None:
    """Trace, compile and run; dtype and shape are ONNX's, integers too, floats within the case's tolerance.

    With symbolic lengths, each axis longer than 1 is an unknown of its own.
    """
    run, given = program(case)
    names = [f"input_{k}" for k in range(len(given))]
    run.__signature__ = inspect.Signature([inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names])
    shapes = {name: [f"{name}_{k}" for k in range(array.ndim)] for name, array in zip(names, given.values())}
    jitted = fn.jit(run, dims=shapes if symbolic else None)
    results = jitted(*given.values())
    assert jitted.plan.launches, "nothing was computed by a kernel"
    for (name, expected), result in zip(case.outputs.items(), results, strict=True):
        assert result.dtype == expected.dtype and result.shape == expected.shape, name
        if expected.dtype.kind in "biu":
            np.testing.assert_array_equal(result, expected, err_msg=name)
            continue
        rtol = max(case.rtol, ROOM.get((expected.dtype.name, case.expanded), 0))
        np.testing.assert_allclose(result.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=case.atol, err_msg=name)


# ------------------------------------------------------------------------------------------------ the page
def table() -> str:
    """Counts: per op of ONNX, and of what was left out, per reason."""
    run, excluded = sorted_cases()
    plain = Counter(c.op for c in run if not c.expanded)
    definitions = Counter(c.op for c in run if c.expanded)
    left = Counter(c.op for c in cases() if c.name in excluded)
    mapped = len(run) + len(excluded)
    lines = [f"onnx {onnx.__version__}: of {len(cases())} cases, {mapped} are of the {len(NODES)} ops below; "
             f"{len(run)} of these are run, {plain.total()} as nodes and {definitions.total()} as definitions.", "",
             "| cases | why they are not run |", "| --- | --- |"]
    lines += [f"| {n} | {reason} |" for reason, n in Counter(excluded.values()).most_common()]
    lines += ["", "| op of ONNX | nodes | definitions | not run |", "| --- | --- | --- | --- |"]
    lines += [f"| {op} | {plain[op] or ''} | {definitions[op] or ''} | {left[op] or ''} |" for op in sorted(NODES)]
    return "\n".join(lines)


def with_table(text: str) -> str:
    """The page with its table made anew."""
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n{table()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text("utf-8")), "utf-8")
