"""Messages call dims by the letters of the name that the caller used."""

import reorder
from memdesc import RUNTIME, memory_desc, runtime_desc

BFYX = memory_desc((2, 17, 5, 4), "f32", "b_fs_yx_fsv16")
WEIGHTS = memory_desc((3, 5, 2, 2), "s8", "oihw")
FUSED = memory_desc((3, 5, 2, 2), "s8", "os_i_yxs_osv4_yxsv4")
SWIZZLED = memory_desc((32, 32, 2, 2), "s8", "os_is_yx_isa8_osv8_isv4_swizzled_by_4")
ALIGNED = memory_desc((2, 17, 5, 4), "f32", "byxf_af32")
UNKNOWN = runtime_desc((RUNTIME, 17, 5, 4), "f32", "b_fs_yx_fsv16")


def test_the_reason_why_elements_move_names_dims_likewise() -> None:
    plain = memory_desc(BFYX.dims, "f32", "bfyx")
    assert "of b (dim 0) the offset" in reorder.compare_layouts(plain, BFYX).why
    # what was asked before does not matter
    abcd, blocked = (memory_desc(BFYX.dims, "f32", name) for name in ("abcd", "aBcd16b"))
    assert "of a (dim 0) the offset" in reorder.compare_layouts(abcd, blocked).why
