"""A whole message in a form that can be written down: without folder, line number and the code around the marked part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fuelnumba.core.errors import FuelError


def raised(call: Callable[[], Any]) -> FuelError:
    with pytest.raises(FuelError) as caught:
        call()
    return caught.value


def told(call: Callable[[], Any], file: str) -> str:
    """What the call raises, in three parts: class and what, the expression that the caret marks, the cure. The place must
    lie in `file`, and the message must consist of these parts in its usual form."""
    err = raised(call)
    where = err.where
    assert where is not None and where.file == file, err
    caret = where.caret()
    marked = where.text()[caret.index("^"):len(caret)]
    gap = " " * len(str(where.line))
    assert str(err) == (f"{err.what}\n{gap}--> {file}:{where.line}, in {where.function}\n{gap} |\n{where.line} | {where.text()}\n"
                        f"{gap} | {caret}\n{gap} = {err.cure}")
    return f"{type(err).__name__}: {err.what}\nat {marked}\n= {err.cure}"
