"""The documents say what is: tables are current, examples run and print what stands below them, links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fuelnumba.tools import docs

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
UPDATE = "bring it up to date: python -m fuelnumba.tools.docs README.md docs/*.md"

document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)


@document
def test_tables_are_current(path: Path) -> None:
    text = path.read_text("utf-8")
    assert docs.with_tables(text) == text, UPDATE


def test_every_table_stands_somewhere() -> None:
    named = {m["name"] for path in DOCUMENTS for m in docs.MARKED.finditer(path.read_text("utf-8"))}
    assert named == set(docs.GENERATED)


@document
def test_examples_print_what_stands_there(path: Path) -> None:
    text = path.read_text("utf-8")
    examples = list(docs.EXAMPLE.finditer(text))
    for example, printed in zip(examples, docs.run_examples(text), strict=True):
        assert docs.comparable(printed) == docs.comparable(example["output"] or ""), UPDATE


@document
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text("utf-8")):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_docs_notice_what_is_stale(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- generated: promotion -->\nold\n<!-- end -->\n\n```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n")
    assert docs.main(["--check", str(page)]) == 1
    assert docs.main([str(page)]) == 0
    assert docs.main(["--check", str(page)]) == 0
    assert "\n\n```text\n2\n```\n" in page.read_text() and "| **bf16** |" in page.read_text()


def test_an_example_that_fails_is_reported() -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        docs.run_examples("```python\n1 / 0\n```\n")


def test_the_picture_shows_every_room() -> None:
    tree = ElementTree.fromstring((ROOT / "docs" / "architecture.svg").read_text("utf-8"))
    words = {t.text for t in tree.iter("{http://www.w3.org/2000/svg}text")}
    package = ROOT / "fuelnumba"
    rooms = {f"{p.name}/" for p in package.iterdir() if (p / "__init__.py").exists()}
    rooms |= {p.name for p in package.glob("*.py") if not p.name.startswith("_")}
    assert rooms <= words


# ------------------------------------------------------------------------------------------------ the two commands
def commands() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)


def test_readme_has_two_commands() -> None:
    """One line each; before the second one, what the system has to bring for it."""
    run, test = commands()
    assert run.count("\n") == 1 and "-m fuelnumba generate " in run
    system, command = test.splitlines()
    assert system.startswith("apt-get install ") and "-m pytest " in command


def test_ci_runs_the_readmes_test_commands() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    readme = (ROOT / "README.md").read_text("utf-8")
    found = [re.findall(f"{pattern}.*", readme, re.M) for pattern in re.findall(r"grep -m1 -E '(.*)' README\.md", script)]
    assert found == [[line] for line in commands()[1].splitlines()]
