"""Kernels for devices whose work-groups are small, run on the devices of the machine."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest

from memdesc import memory_desc
from reorder import reorder
from reorder.opencl.execution import build_transfers, enqueue_transfers
from reorder.opencl.kernel.launch import DeviceTraits
from reorder.opencl.kernel.profile import GPU
from reorder.opencl.kernel.transfers import OperandSpec, plan_transfers

if TYPE_CHECKING:
    from tests.opencl.runtimes import Runtime


# each number of work items, shape and type once; a campaign combines them
_CASES = [("u8", (81, 20), 16), ("f32", (300, 9), 64), ("u8", (9, 300), 128)]
_ALL = product(("u8", "f32"), ((81, 20), (300, 9), (9, 300)), (16, 64, 128))


@pytest.mark.parametrize(
    ("dtype", "dims", "max_work_items"),
    [pytest.param(*case, marks=() if case in _CASES else pytest.mark.campaign) for case in _ALL],
)
def test_transposes_are_right_in_work_groups_of_any_size(
    dtype: str, dims: tuple[int, int], max_work_items: int, runtime: Runtime
) -> None:
    x = (
        np.random.default_rng(1)
        .integers(0, 100, dims)
        .astype({"u8": np.uint8, "f32": np.float32}[dtype])
    )
    src, dst = memory_desc(dims, dtype, "ab"), memory_desc(dims, dtype, "ba")
    traits = DeviceTraits(max_work_items, profile=GPU._replace(min_tiled=0))
    transfers = plan_transfers(OperandSpec(src), OperandSpec(dst), traits, is_aligned=True)
    prepared = build_transfers(runtime.context, runtime.device.device, transfers)
    memory = runtime.buffer(x), runtime.buffer(np.full(dst.nbytes, 0xA5, np.uint8))
    event = enqueue_transfers(runtime.queue, prepared, memory, None)
    assert runtime.read(memory[1], event).tobytes() == reorder(x, dst).data.tobytes()
