"""The names of a layout, in all vocabularies."""

import pytest

from memdesc import MemoryDesc, memory_desc


def names_of(desc: MemoryDesc) -> list[str]:
    return [name.text for name in desc.names()]


def test_the_tags_are_all_names_of_the_layout_in_all_vocabularies() -> None:
    found = names_of(memory_desc((2, 17, 5, 4), "f32", "nChw16c"))
    known = "aBcd16b gOiw16o nChw16c NC1HWC0 b_fs_yx_fsv16 o_is_yx_isv16 bfyx_f16 mlas_nchwc16"
    assert set(found) == {*known.split()}
    assert found[0] == "nChw16c"
    assert names_of(memory_desc((2, 17, 5, 4), "f32", "b_fs_yx_fsv16"))[0] == "b_fs_yx_fsv16"
    known = "acdb nhwc ohwi byxf oyxi NHWC kHWC OHWI"
    assert set(names_of(memory_desc((2, 17, 5, 4), "f32", "nhwc"))) == {*known.split()}


def test_a_tag_that_onednn_does_not_enumerate_is_a_name_of_memdesc() -> None:
    assert memory_desc((2, 17), "f32", "aB3b").names() == (("memdesc", "aB3b", "any"),)


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("ABcd2a/1.16a/2.4b", (32, 32, 2, 2)),
        ("aB(CD)8b16(cd)", (1, 17, 5, 5)),
        ("acdb__b32", (1, 17, 2, 2)),
    ],
)
def test_notation_that_onednn_cannot_read_is_a_name_of_memdesc(
    name: str, dims: tuple[int, ...]
) -> None:
    assert ("memdesc", name, "any") in memory_desc(dims, "s8", name).names()
    assert "aB(CD)8b16(cd)" in names_of(memory_desc((2, 3, 4, 5), "f32", "bf8_xy16"))


def test_a_name_that_exists_for_some_sizes_only_is_among_the_tags_of_those_sizes() -> None:
    assert "iy_xs_os_xsv2_osv8__ao32" not in names_of(memory_desc((8, 2, 3, 4), "f32", "bcDA2d8a"))
    assert "iy_xs_os_xsv2_osv8__ao32" not in names_of(
        memory_desc((8, 2, 3, 3), "f32", "bcDA2d8a__a32")
    )
    assert "iy_xs_os_xsv2_osv8__ao32" in names_of(
        memory_desc((8, 2, 3, 4), "f32", "iy_xs_os_xsv2_osv8__ao32")
    )
    assert "os_is_osv32_isv32_swizzled_by_4" not in names_of(
        memory_desc((32, 32, 1, 2), "s8", "os_is_yx_osa4_isa8_osv8_isv4_swizzled_by_4")
    )
    assert "os_is_osv32_isv32_swizzled_by_4" in names_of(
        memory_desc((32, 32, 1, 1), "s8", "os_is_yx_osa4_isa8_osv8_isv4_swizzled_by_4")
    )


def test_names_that_pack_four_bits_differently_are_tags_of_that_layout_only() -> None:
    assert "os_iyx_osv16" in names_of(memory_desc((17, 3, 2, 3), "s4", "os_iyx_osv16"))
    assert "os_iyx_osv16" not in names_of(
        memory_desc((17, 3, 2, 3), "s8", "os_iyx_osv16").with_dtype("s4")
    )


def test_gaps_and_views_have_no_name() -> None:
    assert names_of(memory_desc((2, 3), "f32", strides=(4, 1))) == []
    assert names_of(memory_desc((4, 3), "f32").submemory((2, 3), (2, 0))) == []


def test_a_tensor_that_other_tags_would_pad_beyond_int64_still_has_tags() -> None:
    assert "Abc16a" in names_of(memory_desc((2**59, 1, 1), "u8", "Abc16a"))
