from __future__ import annotations

import pytest

from memdesc import memory_desc
from reorder.opencl.schedule.banks import spread
from reorder.opencl.schedule.transfers import OperandSpec
from tests.unit.reorder.opencl.launches import launches


@pytest.mark.parametrize("dtype", ["u8", "f16", "f32"])
def test_work_items_of_a_subgroup_store_and_load_different_banks(dtype: str) -> None:
    src, dst = (
        OperandSpec(memory_desc((4096, 4096), dtype, tag), None, dtype) for tag in ("ab", "ba")
    )
    (launch,) = launches(src, dst)
    tile = launch.pattern.tile
    assert tile is not None
    assert spread(tile, launch.pattern.work_items) == tile
    moved = [word ^ sum(((word >> s) & m) for s, m in tile.swizzle) for word in range(1024)]
    # a swizzle moves words within a row of banks, and no two to one place
    assert sorted(moved) == list(range(1024))
