"""A Vulkan device for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fuelnumba.vk import api
from fuelnumba.vk.device import Device, list_devices


@pytest.fixture
def device() -> Iterator[Device]:
    """A device of the test's own, under the validation layer, which leaves nothing behind."""
    assert api.instance().validates
    made = Device(list_devices()[0])
    yield made
    made.close()
    assert not made.live
