"""A whole message in a form that can be written down: without folder and line number, the code at the left margin."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from fuelnumba.core.errors import FuelError


def raised(call: Callable[[], Any]) -> FuelError:
    with pytest.raises(FuelError) as caught:
        call()
    return caught.value


def told(call: Callable[[], Any], file: str) -> str:
    """What the call raises: class and message; the place must lie in `file`."""
    err = raised(call)
    assert err.where is not None and err.where.file == file, err
    assert err.cure, err
    lines = str(err).splitlines()
    code = next(k for k, line in enumerate(lines) if line.startswith(f"{err.where.line} | "))
    margin = len(str(err.where.line)) + 3
    indent = len(lines[code]) - margin - len(lines[code][margin:].lstrip())
    out = []
    for k, line in enumerate(lines):
        line = line.replace(f"{file}:{err.where.line}", "here")
        if k in (code, code + 1):
            line = "| " + line[margin + indent:]
        elif k == code - 1:
            continue
        out.append(re.sub(r"^ +(?=-->|= )", "", line))
    return f"{type(err).__name__}: " + "\n".join(out)
