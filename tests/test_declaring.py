"""Ops and kernels of the reader's own: declared again by a cell or module that is run again, refused otherwise."""

from __future__ import annotations

import importlib
import linecache
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

import fuelnumba as fn
from fuelnumba.compiler import bindings
from fuelnumba.core import errors
from fuelnumba.core.ops import OPS

X = np.array([1.0, 2.0, 4.0])


class Notebook:
    """Cells run one after the other in `__main__`, each under a file name made from its text, as ipykernel has it."""

    def __init__(self) -> None:
        self.space: dict[str, Any] = {"__name__": "__main__", "fn": fn, "np": np, "numba": numba}

    def run(self, cell: str) -> Any:
        name = f"/tmp/ipykernel_1/{hash(cell) & 0xFFFFFFFF}.py"
        linecache.cache[name] = (len(cell), None, cell.splitlines(True), name)
        exec(compile(cell, name, "exec"), self.space)
        return self.space.get("result")


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    before = {name: (op, list(op.kernels)) for name, op in OPS.items()}
    yield Notebook()
    for name in OPS.keys() - before.keys():
        del OPS[name]
        vars(fn.ops).pop(name, None)
    for op, kernels in before.values():
        op.kernels[:] = kernels
    for key in list(bindings.current().user):
        fn.unregister_kernel(key[0], key[1])


FORMULA = "fn.elementwise('twice', lambda x: x * {})"
DEFINE = """
from fuelnumba.core import dtypes as dt
from fuelnumba.core.dims import product
from fuelnumba.core.ops import CPU, Axis, Launch
from fuelnumba.kernels.generic import T, load, store
from fuelnumba.kernels.lang import f64

running = fn.define_op("running", "reduce", "x", infer=lambda x, axis: x, attrs={"axis": Axis(-1)}, last_axis="axis",
                       domain="float", ref=lambda x, axis: np.cumsum(x, axis), doc="sums of the elements up to each")
"""
KERNEL = """
@running.kernel(CPU, dt.FLOATS, launch=lambda i, o, a: Launch({"cols": i[0].shape[-1]}, total=product(i[0].shape[:-1])))
def running_rows(x, out, cols: int, lo, hi):
    for row in range(lo, hi):
        total = f64(0.0)
        for j in range(cols):
            total = total + f64(%s) * f64(load(x, row * cols + j))
            store(out, row * cols + j, T(total))
"""


def message(call: Any, *args: Any) -> str:
    with pytest.raises(errors.ArgumentError) as caught:
        call(*args)
    return str(caught.value)


def test_a_formula_that_is_run_again(notebook: Notebook) -> None:
    notebook.run(FORMULA.format(2))
    assert fn.ops.twice(X).tolist() == [2, 4, 8]
    f = notebook.run("result = f = fn.jit(lambda x: fn.ops.twice(x) + 1)")
    assert f(X).tolist() == [3, 5, 9]
    before = f.graph
    notebook.run(FORMULA.format(2))  # as it was
    assert f(X).tolist() == [3, 5, 9] and fn.ops.twice(X).tolist() == [2, 4, 8]
    notebook.run(FORMULA.format(3))  # edited
    assert f(X).tolist() == [4, 7, 13] and fn.ops.twice(X).tolist() == [3, 6, 12]
    assert f.compilations == 3 and f.misses == ["the op twice was declared anew"] * 2
    assert before.nodes()[-1] is not f.graph.nodes()[-1]
    assert fn.ops.twice(3.0) == 9  # of a scalar, which no input makes new


def test_a_kernel_that_is_run_again(notebook: Notebook) -> None:
    notebook.run(DEFINE)
    notebook.run(KERNEL % "1.0")
    f = fn.jit(lambda x: fn.ops.running(x) * 2)
    assert f(X).tolist() == [2, 6, 14]
    notebook.run(KERNEL % "10.0")
    assert f(X).tolist() == [20, 60, 140]
    assert f.misses == ["the kernel running_rows of running was attached anew"]
    assert len(OPS["running"].kernels) == 1


def test_an_op_that_is_run_again_waits_for_its_kernel(notebook: Notebook) -> None:
    notebook.run(DEFINE)
    notebook.run(KERNEL % "1.0")
    assert fn.ops.running(X).tolist() == [1, 3, 7]
    notebook.run(DEFINE)
    with pytest.raises(errors.NoKernelError) as caught:
        fn.ops.running(X)
    assert "running has no kernels" in str(caught.value)
    assert caught.value.cure == "attach one with the op's decorator kernel(...), anew if the op was declared anew"
    notebook.run(KERNEL % "2.0")
    assert fn.ops.running(X).tolist() == [2, 6, 14]


def test_twice_in_one_cell(notebook: Notebook) -> None:
    cell = FORMULA.format(2) + "\n" + FORMULA.format(3)
    assert message(notebook.run, cell).startswith("an op twice is declared twice\n --> /tmp/ipykernel_1/")
    assert fn.ops.twice(X).tolist() == [2, 4, 8]  # the first is there
    text = message(notebook.run, DEFINE + KERNEL % "1.0" + KERNEL % "2.0")
    assert text.startswith("a kernel running_rows of running is declared twice\n")
    assert text.endswith("= give the function another name")


def test_names_that_are_taken(notebook: Notebook) -> None:
    text = message(notebook.run, "fn.elementwise('tanh', lambda x: x)")
    assert text.splitlines()[0] == "there is an op tanh already, among fuelnumba's own"
    assert text.splitlines()[-1] == "  = give the op another name"
    assert fn.ops.tanh(np.zeros(2)).tolist() == [0, 0]
    notebook.run(FORMULA.format(2))
    assert message(fn.elementwise, "twice", lambda x: x * 4).splitlines()[0] == "there is an op twice already, from __main__"
    assert message(fn.define_op, "input", "leaf", "").startswith("there is an op input already, among fuelnumba's own")
    softmax = OPS["softmax"]
    name = softmax.kernels[0].name
    space = {"softmax": softmax, **notebook.space}
    cell = f"@softmax.kernel('cpu', (), launch=None)\ndef {name}(x, out, lo, hi): pass"
    assert message(exec, cell, space).startswith(f"there is a kernel {name} of softmax already, among fuelnumba's own")


def test_declarations_that_contradict_themselves(notebook: Notebook) -> None:
    from fuelnumba.core import scalar

    bad = scalar.arg(0) + scalar.arg(1)
    assert message(lambda: fn.define_op("bad", "elementwise", "x", infer=lambda x: x, expr=bad)).startswith(
        "op bad: its expression uses operand 1 of 1\n")
    assert "bad" not in OPS
    notebook.run(DEFINE)
    cell = "@running.kernel(CPU, dt.FLOATS, launch=None)\ndef k(x, out, n: int): pass"
    assert message(notebook.run, cell).startswith("kernel k of running must end with the parameters lo, hi\n")


def test_a_module_that_is_reloaded(notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, other = tmp_path / "my_ops_of_a_test.py", tmp_path / "my_other_ops_of_a_test.py"
    text = "import fuelnumba as fn\nfn.elementwise('mine_again', lambda x: x * {})\n"
    module.write_text(text.format(2))
    other.write_text(text.format(5))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    imported = importlib.import_module(module.stem)
    f = fn.jit(lambda x: fn.ops.mine_again(x))
    assert f(X).tolist() == [2, 4, 8]
    module.write_text(text.format(30))
    importlib.reload(imported)
    assert f(X).tolist() == [30, 60, 120]
    assert message(importlib.import_module, other.stem).startswith(f"there is an op mine_again already, from {module}\n")
    assert f(X).tolist() == [30, 60, 120]


def test_a_registered_kernel_that_is_run_again(notebook: Notebook) -> None:
    define = "@numba.njit\ndef half(x, out):\n    for i in range(x.size):\n        out.flat[i] = x.flat[i] * {}\n"
    register = "fn.register_kernel('tanh', ('f64', 'f64'), half)"
    notebook.run(define.format(0.5))
    notebook.run(register)
    f = fn.jit(lambda x: np.tanh(x))
    assert f(X).tolist() == [0.5, 1, 2]
    notebook.run(register)  # only this cell
    assert f(X).tolist() == [0.5, 1, 2]
    notebook.run(define.format(0.25))
    assert f(X).tolist() == [0.5, 1, 2]  # the function that was registered
    notebook.run(register)
    assert f(X).tolist() == [0.25, 0.5, 1]
    lines = message(notebook.run, register.replace("half", "numba.njit(lambda x, out: None)")).splitlines()
    assert lines[0] == "tanh has a registered kernel for f64 -> f64 on cpu already"
    assert lines[-1].endswith("= unregister_kernel frees the key")
