import pytest

from memdesc import (
    memory_desc,
    parse_layout,
)
from tests.named import buffer_layout


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
    assert desc.to_notation("cute") == text
    assert parse_layout(f"cute:{text}", dims) == desc


def test_strides_with_gaps_and_of_zero_are_layouts() -> None:
    desc = memory_desc((3, 4, 2), "f32", strides=(7, 0, 3))
    assert desc.to_notation("cute") == "(3,4,2):(7,0,3)"
    assert parse_layout("cute:(3,4,2):(7,0,3)") == desc


def test_layouts_are_read_as_other_programs_print_them() -> None:
    desc = memory_desc((6, 5), "f16", strides=(1, 6))
    for text in ["(_6,_5):(_1,_6)", "(6, 5) : (1, 6)", "(6,5,):(1,6,)", "((6),5):((1),6)"]:
        assert parse_layout(f"cute:{text}", dtype="f16") == desc
    assert parse_layout("cute:16:2") == memory_desc((16,), "f32", strides=(2,))
    # inner extents of 1 are not digits; deeper tuples are digits in turn
    assert buffer_layout("cute:((1,(2,2),3)):((9,(1,2),4))").offset((7,)) == 7
    assert buffer_layout("cute:((2,4),(3,5)):((3,6),(1,24))").offset((5, 7)) == 64


@pytest.mark.parametrize(
    "pointer", ["gmem_ptr[32b](0x7f0000)", "smem_ptr[16b](0x7f00)", "ptr[32b](0x7f)", "smem_ptr"]
)
def test_the_pointer_of_a_printed_tensor_is_left_out(pointer: str) -> None:
    assert parse_layout(f"{pointer} o (8,64):(64,1)") == memory_desc((8, 64), "f32", "ab")
