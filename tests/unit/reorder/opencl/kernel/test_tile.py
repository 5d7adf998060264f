from __future__ import annotations

import pytest

from memdesc import memory_desc
from reorder.opencl.kernel.profile import GPU
from reorder.opencl.kernel.skewed import Skewed
from reorder.opencl.kernel.tile import Tile
from reorder.opencl.kernel.transfers import OperandSpec
from tests.unit.reorder.opencl.launches import check_source, launches


@pytest.mark.parametrize("max_work_items", [1, 32, 64, 100, 128, 256, 1024])
@pytest.mark.parametrize("dims", [(8, 4096), (4096, 8), (64, 64), (9, 300), (300, 9), (1000, 1000)])
@pytest.mark.parametrize("dtype", ["u8", "f16", "f32", "f64"])
def test_tiles_fit_into_local_memory_and_work_groups(
    dtype: str, dims: tuple[int, int], max_work_items: int
) -> None:
    src, dst = (OperandSpec(memory_desc(dims, dtype, tag)) for tag in ("ab", "ba"))
    (launch,) = launches(src, dst, max_work_items, GPU._replace(min_tiled=0))
    check_source(launch)
    pattern = launch.pattern
    assert pattern.work_items <= max_work_items
    tile = pattern.body
    assert isinstance(tile, Tile | Skewed)
    assert tile.local_words * 4 <= 32768
