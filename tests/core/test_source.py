import contextlib
import dataclasses
import functools
import linecache
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import fuelnumba
from fuelnumba.core.source import SKIP_PACKAGES, Location, user_location


class Probe:
    """Notes the location at which an operator is used; its methods pretend to live in the package."""

    def __init__(self):
        self.seen = []

    def look(self, *args):
        self.seen.append(_here())
        return self

    __add__ = __mul__ = __gt__ = __getitem__ = __neg__ = __call__ = look

    def __bool__(self):
        self.look()
        return True


def _inside_package(f):
    """The same function, its code relabelled as a file of the package."""
    file = str(Path(fuelnumba.__file__).parent / "trace" / "pretend.py")
    return types.FunctionType(
        f.__code__.replace(co_filename=file), f.__globals__, f.__name__, f.__defaults__, f.__closure__
    )


def _here():
    return user_location()


_here = _inside_package(_here)
Probe.look = Probe.__add__ = Probe.__mul__ = Probe.__gt__ = _inside_package(Probe.look)
Probe.__getitem__ = Probe.__neg__ = Probe.__call__ = Probe.look
Probe.__bool__ = _inside_package(Probe.__bool__)


def marked(location):
    """What the caret points at, by position."""
    caret = location.caret()
    start = caret.index("^")
    return location.text()[start : len(caret)]


@pytest.fixture
def p():
    return Probe()


def test_line_and_columns_of_an_operator(p):
    p + 1
    (where,) = p.seen
    assert where.file == __file__
    assert where.function == "test_line_and_columns_of_an_operator"
    assert where.text() == "    p + 1"
    assert where.caret() == "    ^^^^^"
    assert str(where) == f"test_source.py:{where.line}"
    gap = " " * len(str(where.line))
    assert where.render() == (
        f"{gap}--> {__file__}:{where.line}, in test_line_and_columns_of_an_operator\n"
        f"{gap} |\n"
        f"{where.line} |     p + 1\n"
        f"{gap} |     ^^^^^"
    )


def test_each_operation_of_one_line_has_its_own_columns(p):
    p(1) + p[2] * 3 + -p
    whole = "p(1) + p[2] * 3 + -p"
    assert [marked(w) for w in p.seen] == ["p(1)", "p[2]", "p[2] * 3", whole[:15], "-p", whole]
    assert len({w.line for w in p.seen}) == 1


def test_condition(p):
    if p > 0:
        pass
    assert [marked(w) for w in p.seen] == ["p > 0", "p > 0"]


def test_expression_over_several_lines_is_marked_to_the_end_of_its_first(p):
    # fmt: off
    p + p(
        1,
    ) * 2
    # fmt: on
    call, product, total = p.seen
    assert [w.end_line - w.line for w in (call, product, total)] == [2, 2, 2]
    assert [marked(w) for w in p.seen] == ["p(", "p(", "p + p("]


def test_expression_that_starts_below(p):
    # fmt: off
    (1,
     p + 1,
     p * 2)
    # fmt: on
    assert [marked(w) for w in p.seen] == ["p + 1", "p * 2"]
    assert p.seen[1].line == p.seen[0].line + 1


def test_columns_count_characters_not_bytes(p):
    größe = p; größe + 1  # noqa: E702
    (where,) = p.seen
    assert where.caret() == " " * 15 + "^" * 9
    assert marked(where) == "größe + 1"


def test_wide_characters_take_two_cells(p):
    "漢字"; p + 1  # noqa: E702
    (where,) = p.seen
    assert where.caret() == " " * 12 + "^^^^^"


def test_tabs_stay_tabs():
    linecache.cache["<tabs>"] = (10, None, ["if True:\n", "\tx + 1\n"], "<tabs>")
    where = Location("<tabs>", 2, 2, 1, 6, "f")
    assert where.caret() == "\t^^^^^"


def test_method_and_comprehension_names(p):
    class Model:
        def forward(self):
            return p + 1

    Model().forward()
    assert p.seen[0].function == "Model.forward"


def test_frames_of_numpy_and_of_helpers_of_the_standard_library_are_skipped(p):
    functools.partial(p)(1)
    line = p.seen[-1].line

    @contextlib.contextmanager
    def scope():
        yield

    with scope():
        functools.reduce(lambda a, b: a + b, [p, p])
    assert [w.function for w in p.seen[1:]] == ["<lambda>"]
    np.vectorize(lambda i: p(i), otypes=[object])(np.arange(1))
    assert {w.file for w in p.seen} == {__file__}
    assert line < p.seen[1].line

    np.apply_along_axis(_inside_package(lambda row: p(1) and 1.0), 0, np.ones(2))
    assert "np.apply_along_axis" in p.seen[-1].text()


def test_generated_methods_of_dataclasses_are_skipped():
    p = Probe()
    Probe.__eq__ = Probe.look
    try:

        @dataclasses.dataclass
        class Pair:
            a: object

        assert Pair(p) == Pair(Probe())
    finally:
        del Probe.__eq__
    assert {marked(w) for w in p.seen} == {"Pair(p) == Pair(Probe())"}


def test_source_that_lives_only_in_linecache(p):
    text = "def cell(p):\n    return p * 2\n"
    linecache.cache["<cell 7>"] = (len(text), None, text.splitlines(True), "<cell 7>")
    space = {}
    exec(compile(text, "<cell 7>", "exec"), space)
    space["cell"](p)
    (where,) = p.seen
    assert where.render() == " --> <cell 7>:2, in cell\n  |\n2 |     return p * 2\n  |            ^^^^^"


def test_source_that_is_gone(p):
    space = {}
    exec(compile("def f(p):\n    p + 1\n", "<nowhere>", "exec"), space)
    space["f"](p)
    (where,) = p.seen
    assert (where.text(), where.caret()) == ("", "")
    assert where.render() == " --> <nowhere>:2, in f"


def test_code_without_columns(p):
    def f(p):
        return p + 1

    # What -X no_debug_ranges leaves: lines, and no columns.
    import subprocess

    script = (
        "from fuelnumba.core.source import user_location\n"
        "def f():\n"
        "    return (1 +\n"
        "      user_location().line)\n"
        "assert f() == 5, f()\n"
        "w = user_location()\n"
        "assert (w.line, w.col, w.end_col, w.caret()) == (6, None, None, ''), w\n"
    )
    done = subprocess.run(
        [sys.executable, "-X", "no_debug_ranges", "-c", script], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_code_without_any_positions(p):
    def f(p):
        return p + 1

    bare = types.FunctionType(f.__code__.replace(co_linetable=b""), f.__globals__)
    bare(p)
    (where,) = p.seen
    assert (where.line, where.col, where.caret()) == (f.__code__.co_firstlineno, None, "")


def test_equal_code_in_two_files_is_kept_apart(p):
    for file in ("<one>", "<two>"):
        space = {}
        exec(compile("def f(p): p + 1", file, "exec"), space)
        space["f"](p)
    assert [w.file for w in p.seen] == ["<one>", "<two>"]


def test_other_packages_can_be_skipped_and_nothing_may_be_left():
    where = user_location((*SKIP_PACKAGES, "pytest", "_pytest", "pluggy"))
    assert where.function == "test_other_packages_can_be_skipped_and_nothing_may_be_left"
    skip_all = tuple({name.partition(".")[0] for name in sys.modules} | {__name__})
    assert user_location(skip_all) is None or user_location(skip_all).file.startswith("<")


def test_positions_are_looked_up_once(p, monkeypatch):
    from fuelnumba.core import source

    calls = []
    locate = source.locate
    monkeypatch.setattr(source, "locate", lambda *a: calls.append(a) or locate(*a))
    for _ in range(3):
        p + 1
    assert len(calls) == 1
    assert p.seen[0] is p.seen[2]
