"""Where in the user's source something happened, with exact columns.

`user_location()` runs once per traced operation, so it only walks frames and looks positions up in a cache;
source text is read when a message is rendered.
"""

from __future__ import annotations

import functools
import linecache
import os
import sys
import sysconfig
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from types import CodeType, FrameType
from typing import NamedTuple

__all__ = ["SKIP_PACKAGES", "Location", "is_library_file", "locate", "user_location"]

PACKAGE = __name__.partition(".")[0]
PACKAGE_DIR = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
USERS = os.path.join(PACKAGE_DIR, "models") + os.sep  # written with the tracer, as users' code is
BOUNDARY = (os.path.join(PACKAGE_DIR, "jit.py"), "_call_traced")  # file and function that calls what is traced

#: Modules and packages whose frames stand between the user's line and us, and are never the user's.
SKIP_PACKAGES = (
    PACKAGE,
    "numpy",
    "functools",
    "contextlib",
    "dataclasses",
    "threading",
    "concurrent",
    "runpy",
)


@dataclass(frozen=True, slots=True)
class Location:
    """A piece of source text. Lines count from 1, columns from 0, in UTF-8 bytes as CPython has them; `col`
    and `end_col` are None where the code was compiled without positions."""

    file: str
    line: int
    end_line: int
    col: int | None
    end_col: int | None
    function: str

    def text(self) -> str:
        """The source line, without its line end; empty where the source is gone."""
        return linecache.getline(self.file, self.line).rstrip()

    def caret(self) -> str:
        """The line to print under `text()`; empty where columns or text are unknown."""
        text = self.text()
        if self.col is None or self.end_col is None or not text:
            return ""
        raw = text.encode()
        # An expression that goes on below is marked up to the end of its first line.
        end = self.end_col if self.end_line == self.line else len(raw)
        before = raw[: self.col].decode(errors="ignore")
        marked = raw[self.col : end].decode(errors="ignore")
        pad = "".join("\t" if c == "\t" else " " * _cells(c) for c in before)
        return pad + "^" * sum(map(_cells, marked)) if marked else ""

    @property
    def gutter(self) -> int:
        """Width of the line number in `render()`."""
        return len(str(self.line))

    def render(self) -> str:
        """The arrow and, where the source can be read, the line with its caret."""
        gap = " " * self.gutter
        lines = [f"{gap}--> {self.file}:{self.line}, in {self.function}"]
        if text := self.text():
            lines += [f"{gap} |", f"{self.line} | {text}"]
            if caret := self.caret():
                lines.append(f"{gap} | {caret}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"


def _cells(char: str) -> int:
    """Columns a character takes on a terminal."""
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


@functools.cache
def is_library_file(file: str) -> bool:
    """Is this file of the standard library, an installed distribution, or fuelnumba apart from its models?"""
    if file.startswith("<frozen ") or file.endswith(".pyx"):  # Cython: known by the path it was built at
        return True
    if file.startswith("<"):
        return False
    path = os.path.abspath(file)
    parts = path.split(os.sep)
    if "site-packages" in parts or "dist-packages" in parts:
        return True
    if path.startswith(PACKAGE_DIR + os.sep):
        return not path.startswith(USERS)
    return path.startswith(_standard_places())


@functools.cache
def _standard_places() -> tuple[str, ...]:
    paths = [sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib")]
    return tuple({p + os.sep for path in paths for p in (path, os.path.realpath(path))})


class _Code(NamedTuple):
    """What is known of a code object: the places found in it, None where it is never the user's."""

    code: CodeType  # kept alive: it is known by its id
    places: dict[int, Location] | None
    library: bool  # of an installed distribution: the user's only when nothing else is
    boundary: bool  # what is called from here is traced

    def place(self, lasti: int) -> Location:
        assert self.places is not None
        found = self.places.get(lasti)
        if found is None:
            found = self.places[lasti] = locate(self.code, lasti)
        return found


class _Frames:
    """What is known about code objects for one choice of packages to skip."""

    # Keyed by id, the code object kept alive beside it: hashing one is slow, and equality of code objects
    # ignores their file names.
    LIMIT = 8192

    def __init__(self, skip: Sequence[str]) -> None:
        self.skip = tuple(skip)
        self.known: dict[int, _Code] = {}

    def entry(self, code: CodeType) -> _Code:
        if len(self.known) >= self.LIMIT:
            self.known.clear()
        found = self.known[id(code)] = _Code(code, None if self.is_skipped(code) else {}, is_library_file(code.co_filename),
                                             (os.path.abspath(code.co_filename), code.co_name) == BOUNDARY)
        return found

    def is_skipped(self, code: CodeType) -> bool:
        file = code.co_filename
        if file.startswith(("<frozen ", "<__array_function__")):
            return True
        if file == "<string>":
            # Methods written by dataclasses and namedtuple; a user's own exec'd functions stay.
            return code.co_name.startswith("__") and code.co_name.endswith("__")
        path = os.path.abspath(file)
        if path.startswith(USERS):
            return False
        places = filter(None, map(_place, self.skip))
        return any(path == place or path.startswith(place + os.sep) for place in places)


def _place(package: str) -> str:
    """Folder of a package or file of a module; empty when it was not imported, so has no frames."""
    if package == PACKAGE:
        return PACKAGE_DIR
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    return os.path.dirname(file) if os.path.basename(file).startswith("__init__.") else file


def locate(code: CodeType, lasti: int) -> Location:
    """The place of one instruction."""
    # Positions come one per two-byte code unit.
    line, end_line, col, end_col = next(islice(code.co_positions(), lasti // 2, None), (None,) * 4)
    if line is None:
        line = code.co_firstlineno
        for start, end, number in code.co_lines():
            if start <= lasti < end and number is not None:
                line = number
        col = end_col = None
    name = getattr(code, "co_qualname", code.co_name)
    return Location(code.co_filename, line, end_line or line, col, end_col, name.rpartition("<locals>.")[2])


_default = _Frames(SKIP_PACKAGES)
_others: dict[tuple[str, ...], _Frames] = {SKIP_PACKAGES: _default}


def user_location(skip_packages: tuple[str, ...] = SKIP_PACKAGES) -> Location | None:
    """The innermost line on the stack outside the given packages and modules; None when there is none.

    Lines of other installed packages count only where a function of theirs is what is traced, or nothing else is there.
    """
    frames = _default
    if skip_packages is not SKIP_PACKAGES:
        frames = _others.setdefault(skip_packages, _Frames(skip_packages))
    known = frames.known
    frame: FrameType | None = sys._getframe(1)
    installed: Location | None = None
    while frame is not None:
        code = frame.f_code
        found = known.get(id(code)) or frames.entry(code)
        if found.places is not None:
            if not found.library:
                return found.place(frame.f_lasti)
            installed = installed or found.place(frame.f_lasti)
        elif found.boundary and installed is not None:
            return installed
        frame = frame.f_back
    return installed
