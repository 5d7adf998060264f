from __future__ import annotations

from typing import Any

import pytest

from memdesc import MemdescError, UnknownFormatError, memory_desc, parse_layout
from memdesc.exchange import SYSTEMS, written

_DESC = memory_desc((2, 17, 5, 4), "f32", "nChw16c")


def test_the_canonical_tag_is_onednns_first_name() -> None:
    assert written(_DESC, "onednn") == ("aBcd16b", "gOiw16o", "nChw16c")
    assert written(_DESC, "cldnn")[0] == "b_fs_yx_fsv16"
    assert _DESC.to_notation("memdesc") == "aBcd16b"


def test_a_vocabulary_reads_its_own_names_only() -> None:
    assert parse_layout("cldnn:b_fs_yx_fsv16", _DESC.dims) == _DESC
    assert parse_layout("memdesc:b_fs_yx_fsv16", _DESC.dims) == _DESC
    with pytest.raises(UnknownFormatError, match="b_fs_yx_fsv16"):
        parse_layout("onednn:b_fs_yx_fsv16", _DESC.dims)
    with pytest.raises(UnknownFormatError, match="does not contain the sizes; give dims"):
        parse_layout("onednn:nChw16c")


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


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("aBcd16b", "xla"), "aBcd16b"),
        ((_DESC, "xlb"), "no system 'xlb'; the systems are memdesc, onednn"),
    ],
)
def test_wrong_arguments_of_writing_are_named(arguments: Any, reason: str) -> None:
    with pytest.raises(MemdescError, match=reason):
        written(*arguments)


@pytest.mark.parametrize(
    ("arguments", "letters", "reason"),
    [
        ((3,), None, "a notation is a string, not 3"),
        (("xla:" + "a" * 10_000,), None, "at most 8192 characters"),
        (("onednn:a", ()), None, "1 to 12"),
        (("onednn:a", (2,)), "a1", "letters are a string"),
        (("onednn:a", (2,)), "ab", "1 different ones"),
        (("onednn:a",), "aa", "be different ones"),
    ],
)
def test_wrong_arguments_of_reading_are_named(
    arguments: Any, letters: str | None, reason: str
) -> None:
    with pytest.raises(MemdescError, match=reason):
        parse_layout(*arguments, letters=letters)


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


@pytest.mark.parametrize(
    ("text", "system", "reason"),
    [
        (f"FixedLayout('cpu', {_HUGE}, size=[2], stride=[1])", "pytorch", "of 16000 bits"),
        (f"lambda a, b: [a, b // {_HUGE}]", "tvm", "an integer of 16000 bits"),
        (f"memref<2x3xf32, strided<[{_HUGE}, 1]>>", "mlir", "an integer of 16000 bits"),
        (f"size=({_ONES}), dim_order={tuple(range(13))}", "pytorch", "1 to 12"),
        ("size=(2,), stride=(1,))(size=(3,)", "pytorch", "it is one of torch.contiguous_format"),
        ("f32[2,17]{1,0:T(8,128)T(2,1)}", "xla", "it has suffix T twice"),
        ("/" * 2000 + "__a__1" * 900, "openvino", "it is type, format and dims"),
    ],
    ids=lambda value: value[:16],
)
def test_strings_that_contradict_themselves_or_exceed_all_sizes_are_refused(
    text: str, system: str, reason: str
) -> None:
    with pytest.raises(MemdescError) as caught:
        parse_layout(f"{system}:{text}")
    assert reason in str(caught.value)
