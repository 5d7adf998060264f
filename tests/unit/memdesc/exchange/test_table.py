import pytest

from memdesc import MemdescError, memory_desc, parse_layout
from memdesc.exchange import SYSTEMS, written

_DESC = memory_desc((2, 17, 5, 4), "f32", "nChw16c")


def test_the_canonical_tag_is_onednns_first_name() -> None:
    assert written(_DESC, "onednn") == ("aBcd16b", "nChw16c", "gOiw16o")
    assert written(_DESC, "cldnn")[0] == "b_fs_yx_fsv16"
    assert _DESC.to_notation("memdesc") == "aBcd16b"


def test_a_vocabulary_reads_its_own_names_only() -> None:
    assert parse_layout("cldnn:b_fs_yx_fsv16", _DESC.dims) == _DESC
    assert parse_layout("memdesc:b_fs_yx_fsv16", _DESC.dims) == _DESC


def test_a_vocabulary_reads_names_of_four_bits_and_checks_sizes_as_memory_desc_does() -> None:
    for name in ("os_iyx_osv16", "os_is_osv32_isv32_swizzled_by_4", "iy_xs_os_xsv2_osv8__ao32"):
        for dims in ((4, 8), (4, 8, 2, 2), (4, 8, 1, 1), (4, 8, 3, 3)):
            for dtype in ("s4", "s8"):
                try:
                    desc = memory_desc(dims, dtype, name)
                except MemdescError:
                    with pytest.raises(MemdescError):
                        parse_layout(f"cldnn:{name}", dims, dtype)
                else:
                    assert parse_layout(f"cldnn:{name}", dims, dtype) == desc


# systems that have names for blocked or other layouts only
_PACKED = {
    "weights",
    "acl",
    "ascend",
    "ncnn",
    "mnn",
    "tflite_gpu",
    "executorch",
    "cutlass",
    "triton",
}


@pytest.mark.parametrize("system", [name for name in SYSTEMS if name not in _PACKED])
def test_a_plain_layout_is_written_by_every_system(system: str) -> None:
    assert SYSTEMS[system].name == system
    desc = memory_desc((2, 17, 5, 4), "f32", "abcd")
    assert parse_layout(f"{system}:{desc.to_notation(system)}", desc.dims, "f32") == desc


_HUGE = "0x" + "f" * 4000
_ONES = ",".join("1" * 13)
