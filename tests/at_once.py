"""Threads that start together."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable


def at_once(count: int, work: Callable[[int], None]) -> None:
    """Run `work(k)` in threads that start together; what one raises fails here."""
    start, errors = threading.Barrier(count), []

    def body(k: int) -> None:
        try:
            start.wait(60)
            work(k)
        except BaseException:
            errors.append(traceback.format_exc())

    threads = [threading.Thread(target=body, args=(k,), daemon=True) for k in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(300)
    assert not any(t.is_alive() for t in threads), "a thread hangs"
    assert not errors, errors[0]
