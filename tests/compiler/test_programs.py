"""Random programs: what comes out of the compiler against NumPy in float64, and against the graph's own interpreter.

Every graph is verified after each pass on the way (tests/conftest.py). A failing program is printed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuelnumba import jit
from fuelnumba.core import ir
from fuelnumba.core.errors import ShapeError
from fuelnumba.trace.interpret import interpret

from .programs import Maker, Program, integer_program

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def compare(program: Program, got: list[Any], expected: list[Any], rtol: float, atol: float) -> None:
    assert len(got) == len(expected)
    for k, g, e in zip(program.outputs, got, expected):
        e = np.asarray(e)
        assert g.shape == e.shape, f"v{k} has shape {g.shape} instead of {e.shape}\n{program}"
        np.testing.assert_allclose(g.astype(np.float64), e.astype(np.float64), rtol, atol, err_msg=f"v{k} of\n{program}")


@pytest.mark.parametrize("seed", range(100))
def test_float_program(seed: int) -> None:
    program = Maker(seed).make()
    f = jit(lambda *xs: program.run(xs, "traced"))
    got = f(*program.inputs)
    compare(program, got, program.run(program.inputs, "numpy"), 1e-9, 1e-9)
    ir.verify(f.graph)
    compare(program, got, interpret(f.graph, program.inputs), 1e-9, 1e-9)
    narrow = [x.astype(np.float32) for x in program.inputs]
    if not any(s.name in ("where", "less") for s in program.steps):
        compare(program, f(*narrow), program.run([x.astype(np.float64) for x in narrow], "numpy"), 2e-3, 2e-3)


@pytest.mark.parametrize("seed", range(1000, 1030))
def test_program_of_varying_length(seed: int) -> None:
    """One plan for all lengths: compiled for the first, for the second, and not again."""
    program = Maker(seed, length=7).make()
    f = jit(lambda *xs: program.run(xs, "traced"))
    for length in (7, 11, 13, 29):
        xs = [np.random.default_rng([seed, length]).standard_normal((length, *x.shape[1:])) for x in program.inputs]
        try:
            expected = program.run(xs, "numpy")
        except ValueError:  # lengths that were equal by chance
            with pytest.raises(ShapeError):
                f(*xs)
            return
        got = f(*xs)
        assert all(np.isfinite(np.asarray(e)).all() for e in expected)
        compare(program, got, expected, 1e-8, 1e-8)
    assert f.compilations <= 3, f"{f.misses}\n{program}"


@pytest.mark.parametrize("seed", range(2000, 2040))
def test_integer_program(seed: int) -> None:
    program = integer_program(seed)
    expected = program.run(program.inputs, "numpy")
    got = jit(lambda *xs: program.run(xs, "traced"))(*program.inputs)
    for k, g, e in zip(program.outputs, got, expected):
        assert g.dtype == np.asarray(e).dtype, f"v{k} is {g.dtype}, not {np.asarray(e).dtype}\n{program}"
        np.testing.assert_array_equal(g, e, err_msg=f"v{k} of\n{program}")
