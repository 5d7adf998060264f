from __future__ import annotations

import pytest

from memdesc import (
    MemdescError,
    UnknownFormatError,
    memory_desc,
    parse_layout,
)
from memdesc.exchange import from_notation, to_notation


@pytest.mark.parametrize(
    ("dims", "tag", "text"),
    [
        ((2, 17, 5, 4), "nChw16c", "(2,(16,2),5,4):(640,(1,320),64,16)"),
        ((5,), "a", "5:1"),
        ((5,), "A4a", "((4,2)):((1,4))"),
        ((33, 8), "AB4a/1.4b8a/4", "((4,8,2),(4,2)):((32,1,256),(8,128))"),
    ],
)
def test_digits_are_modes_from_the_innermost_on(dims: tuple[int, ...], tag: str, text: str) -> None:
    desc = memory_desc(dims, "f32", tag)
    assert to_notation(desc, "cute") == text
    assert from_notation(text, "cute", dims) == desc


def test_strides_with_gaps_and_of_zero_are_layouts() -> None:
    desc = memory_desc((3, 4, 2), "f32", strides=(7, 0, 3))
    assert to_notation(desc, "cute") == "(3,4,2):(7,0,3)"
    assert from_notation("(3,4,2):(7,0,3)", "cute") == desc


def test_layouts_are_read_as_other_programs_print_them() -> None:
    desc = memory_desc((6, 5), "f16", strides=(1, 6))
    for text in ["(_6,_5):(_1,_6)", "(6, 5) : (1, 6)", "(6,5,):(1,6,)", "((6),5):((1),6)"]:
        assert from_notation(text, "cute", dtype="f16") == desc
    assert from_notation("16:2", "cute") == memory_desc((16,), "f32", strides=(2,))
    # inner extents of 1 are not digits; deeper tuples are digits in turn
    assert from_notation("((1,(2,2),3)):((9,(1,2),4))", "cute").offset((7,)) == 7
    assert from_notation("((2,4),(3,5)):((3,6),(1,24))", "cute").offset((5, 7)) == 64


@pytest.mark.parametrize(
    "pointer", ["gmem_ptr[32b](0x7f0000)", "smem_ptr[16b](0x7f00)", "ptr[32b](0x7f)", "smem_ptr"]
)
def test_the_pointer_of_a_printed_tensor_is_left_out(pointer: str) -> None:
    assert parse_layout(f"{pointer} o (8,64):(64,1)") == memory_desc((8, 64), "f32", "ab")


def test_there_are_as_many_dims_as_modes_and_none_is_larger() -> None:
    with pytest.raises(UnknownFormatError, match="has 2 modes"):
        from_notation("(8,8):(8,1)", "cute", (8,))
    with pytest.raises(MemdescError, match="padded extent 8"):
        from_notation("(8,8):(8,1)", "cute", (8, 9))
