"""Every notebook runs from top to bottom, in this interpreter's environment."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook(path: Path) -> None:
    """Raises CellExecutionError, with the cell and its traceback, when one fails."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    notebook.cells.append(nbformat.v4.new_code_cell("import sys; print(sys.prefix, end='')"))
    NotebookClient(notebook, kernel_name="python3", timeout=60, resources={"metadata": {"path": str(FOLDER)}}).execute()
    assert notebook.cells[-1].outputs[0].text == sys.prefix, "the kernel belongs to another environment"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_outputs_are_stored(path: Path) -> None:
    """Someone who reads it without running it sees what it prints, and no error."""
    cells = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    assert any(c.outputs for c in cells)
    assert [c.execution_count for c in cells] == list(range(1, len(cells) + 1)), "it was not run from top to bottom"
    for page in [o.data["text/html"] for c in cells for o in c.outputs if "text/html" in o.get("data", {})]:
        ElementTree.fromstring(page)
    kinds = {o.output_type for c in cells for o in c.outputs}
    assert kinds <= {"stream", "execute_result", "display_data"}
