"""Small groups for the kernels that run uncompiled."""

from __future__ import annotations

import pytest

from fuelnumba.kernels import gpu


@pytest.fixture
def group(monkeypatch):
    """Groups of eight threads, and a device that few of them fill."""
    monkeypatch.setattr(gpu, "GROUP", 8)
    monkeypatch.setattr(gpu, "FILL", 8)
