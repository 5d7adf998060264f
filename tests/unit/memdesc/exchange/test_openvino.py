"""OpenVINO's layout strings, and the names of its dumped files."""

import pytest

from memdesc import MemoryDesc, memory_desc, parse_layout

_DESC = memory_desc((1, 17, 5, 4), "f16", "b_fs_yx_fsv16")


@pytest.mark.parametrize(
    ("text", "desc"),
    [
        ("f16:b_fs_yx_fsv16:1x17x5x4:nopad", _DESC),
        ("f16:b_fs_yx_fsv16:1x17x5x4", _DESC),
        ("f32:bfyx:1x3:nopad", memory_desc((1, 3, 1, 1), "f32", "bfyx")),
        ("i8:os_is_yx_isv16_osv16:9x8x3x3:nopad", memory_desc((9, 8, 3, 3), "s8", "ABcd16b16a")),
        ("f32:bfzyx:1x3x4x5x6:nopad", memory_desc((1, 3, 4, 5, 6), "f32", "bfzyx")),
        ("u4:bfyx:1x16x5x4:nopad", memory_desc((1, 16, 5, 4), "u4", "bfyx")),
        ("conv_1_dst0__f16__1_17_5_4__b_fs_yx_fsv16.bin", _DESC),
        ("dump/conv__x_dst0__f16__1_17_5_4__b_fs_yx_fsv16.bin", _DESC),
    ],
)  # fmt: skip
def test_a_layout_says_type_format_and_dims(text: str, desc: MemoryDesc) -> None:
    assert parse_layout(f"openvino:{text}") == desc


def test_a_layout_is_written_by_the_names_of_its_gpu_plugin() -> None:
    assert _DESC.to_notation("openvino") == "f16:b_fs_yx_fsv16:1x17x5x4:nopad"
    weights = memory_desc((32, 16, 3, 3), "s8", "os_is_yx_isv16_osv16")
    assert weights.to_notation("openvino") == "i8:os_is_yx_isv16_osv16:32x16x3x3:nopad"
