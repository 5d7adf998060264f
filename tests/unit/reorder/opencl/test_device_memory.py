from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from memdesc import MemdescError, image_desc, memory_desc
from reorder.opencl import DeviceMemory


@pytest.mark.parametrize(
    "desc", [memory_desc((2, 3), "f32", "ab"), image_desc((1, 4, 3, 3), "f16", "in_out_channel")]
)
def test_numpy_is_told_that_data_lie_on_a_device(desc: Any) -> None:
    memory = DeviceMemory(None, None, desc)  # type: ignore[arg-type] # nothing is asked of the queue
    for read in (
        np.asarray,
        np.array,
        np.ascontiguousarray,
        lambda x: np.ones(6) + x,
        lambda x: np.asarray(x, np.float32),
    ):
        with pytest.raises(
            MemdescError,
            match=r"lies on a device, where numpy does not read; \.get\(\) copies it to the host",
        ):
            read(memory)


def test_the_string_of_memory_of_a_device_is_its_descriptor() -> None:
    memory = DeviceMemory(None, None, memory_desc((2, 3), "f32", "ba"))  # type: ignore[arg-type] # nothing is asked of the queue
    assert repr(memory) == "DeviceMemory(memory_desc((2, 3), 'f32', 'ba'))"


def test_memory_of_a_device_in_a_notebook_shows_the_picture_of_its_layout() -> None:
    for desc in (
        memory_desc((2, 3), "f32", "ab"),
        image_desc((1, 4, 3, 3), "f16", "in_out_channel"),
    ):
        memory = DeviceMemory(None, None, desc)  # type: ignore[arg-type] # nothing is asked of the queue
        assert memory._repr_html_() == desc._repr_html_()
