"""ONNX's test cases of single nodes, run through `fn.jit`: of every op that is mapped, every case that no rule excludes."""

from __future__ import annotations

import pytest

from .onnx_cases import PAGE, RULES, Case, cases, check, sorted_cases, with_table
from .onnx_nodes import NODES, STATIC

RUN, EXCLUDED = sorted_cases()


@pytest.mark.parametrize("case", RUN, ids=lambda c: c.name)
def test_case(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", [c for c in RUN if not c.expanded and c.inputs], ids=lambda c: c.name)
def test_case_of_symbolic_lengths(case: Case) -> None:
    check(case, symbolic=True)


def test_no_case_of_a_mapped_op_is_missing() -> None:
    names = [c.name for c in RUN] + list(EXCLUDED)
    assert sorted(names) == sorted(c.name for c in cases() if c.op in NODES)


def test_every_rule_excludes_a_case() -> None:
    assert set(EXCLUDED.values()) == set(RULES)


def test_every_mapped_op_has_a_case_that_is_run() -> None:
    assert {c.op for c in RUN} == set(NODES) >= set(STATIC)


def test_page_has_the_counts() -> None:
    text = PAGE.read_text("utf-8")
    assert with_table(text) == text, "bring it up to date: python -m tests.conformance.onnx_cases"
