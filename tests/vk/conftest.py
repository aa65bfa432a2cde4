"""Vulkan under the validation layer: whatever it says fails the test that ran."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from fuelnumba.vk import api
from fuelnumba.vk.device import Device, list_devices

os.environ["FUELNUMBA_VULKAN_VALIDATION"] = "1"  # read when the first instance is made


@pytest.fixture(autouse=True)
def _validated() -> Iterator[None]:
    assert api.instance().validates, "an instance without the validation layer was made before"
    api.messages.clear()
    yield
    assert not api.messages, "\n".join(api.messages)


@pytest.fixture
def device() -> Iterator[Device]:
    """A device of the test's own, which leaves nothing behind."""
    made = Device(list_devices()[0])
    yield made
    made.close()
    assert not made.live
