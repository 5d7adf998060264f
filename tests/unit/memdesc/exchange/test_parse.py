"""`parse_layout`: any notation, without being told which."""

import pytest

from memdesc import MemdescError, UnknownFormatError, memory_desc, parse_layout
from memdesc.exchange import SYSTEMS

_DIMS = (2, 17, 5, 4)


def test_a_string_that_two_systems_read_differently_is_refused_with_both_readings() -> None:
    with pytest.raises(UnknownFormatError) as refused:
        parse_layout("(8,4):(1,8)", (32,))
    for part in (
        "with the prefix cute: memory_desc((32,), 'f32', 'A8a')",
        "with the prefix tvm: memory_desc((32,), 'f32', '4a/1A')",
        "write one, such as cute:(8,4):(1,8)",
    ):
        assert part in str(refused.value)
    assert parse_layout("cute:(8,4):(1,8)", (32,)) == memory_desc((32,), "f32", "A8a")
    assert parse_layout("tvm:(8,4):(1,8)", (32,)) == memory_desc((32,), "f32", "4a/1A")
    assert parse_layout("(8,4):(1,8)") == memory_desc((8, 4), "f32", "ba")


def test_the_data_type_is_that_of_the_string_the_given_one_or_the_default() -> None:
    assert parse_layout("f16:bfyx:1x2x3x4").dtype.name == "f16"
    assert parse_layout("nchw", _DIMS, "s8").dtype.name == "s8"
    assert parse_layout("f16:bfyx:1x2x3x4", default=None).dtype.name == "f16"


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
_PACKED = ("weights", "acl", "ascend", "ncnn", "mnn", "tflite_gpu", "executorch")
_SHARED = ("cutlass", "triton")


@pytest.mark.parametrize("system", [name for name in SYSTEMS if name not in _PACKED + _SHARED])
def test_a_plain_layout_is_written_by_every_system(system: str) -> None:
    assert SYSTEMS[system].name == system
    desc = memory_desc((2, 17, 5, 4), "f32", "abcd")
    assert parse_layout(f"{system}:{desc.to_notation(system)}", desc.dims, "f32") == desc
