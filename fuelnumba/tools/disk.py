"""The kernel cache as people look at it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ..compiler import modcache


@dataclass(frozen=True)
class CachedKernel:
    key: str
    label: str  # what it computes
    nbytes: int  # of its object code and its text
    made: datetime
    text: Path  # the kernel as one can read it


def kernels() -> list[CachedKernel]:
    """The kernels on disk, the oldest first. Raises CacheError."""
    found = []
    for path, nbytes in modcache.files():
        text = path.with_suffix(".py")
        if path.suffix == ".o":
            found.append(CachedKernel(path.stem, _label(text), nbytes + (text.stat().st_size if text.exists() else 0),
                                      datetime.fromtimestamp(path.stat().st_mtime), text))
    return sorted(found, key=lambda k: (k.made, k.key))


def _label(text: Path) -> str:
    """From the kernel's first line, `# label: parameters`."""
    try:
        with text.open(encoding="utf-8") as file:
            return file.readline().lstrip("# ").partition(":")[0].strip()
    except OSError:
        return ""


def readable(nbytes: int) -> str:
    """1234567 -> '1.2 MB'."""
    size = float(nbytes)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
