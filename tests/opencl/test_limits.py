"""Tensors that are larger than the buffers of a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import reorder
from memdesc import OutOfMemoryError, memory_desc

if TYPE_CHECKING:
    from tests.opencl.runtimes import Runtime


def test_buffers_that_a_device_does_not_allocate_are_refused_with_its_limit(
    runtime: Runtime,
) -> None:
    queue = runtime.queue
    most = queue.device.max_mem_alloc_size
    desc = memory_desc((most // 12 + 1, 3), "f32", strides=(0, 1))
    host = reorder.Memory(desc, np.zeros(3, np.float32), zero_pad=False)
    reason = rf"a buffer of \d+ bytes cannot be allocated on .* largest buffer has {most} bytes"
    with pytest.raises(OutOfMemoryError, match=reason):
        reorder.reorder(host, "ab", queue=queue)
    row = reorder.reorder(np.zeros((1, 3), np.float32), "ab", queue=queue)
    with pytest.raises(OutOfMemoryError, match=reason):
        reorder.reorder(reorder.opencl.DeviceMemory(queue, row.data, desc), "ab")
