"""The names of a layout, in all vocabularies."""

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


def test_a_tensor_that_other_tags_would_pad_beyond_int64_still_has_tags() -> None:
    assert "Abc16a" in names_of(memory_desc((2**59, 1, 1), "u8", "Abc16a"))
