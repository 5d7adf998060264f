"""XOR terms: what a swizzled descriptor answers, against the formula, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest

import memdesc
from memdesc import Axis, Block, Extra, Layout, MemdescError, MemoryDesc, memory_desc
from memdesc.errors import NotBlockedError, OverlapError, UnsupportedFormatError
from memdesc.exchange import SYSTEMS, written
from memdesc.verbose import to_verbose

# 7 rows of 40 in a tile of 8 rows of 64: bits 6 to 8 of an offset are added to bits 3 to 5
TILE = memory_desc((7, 40), "f16", "Sw<3,3,3> o 0 o (8,64):(64,1)")


def described(layout: Layout) -> MemoryDesc:
    return memory_desc(layout.dims, "f16", layout)


# what the blocks of a swizzled descriptor do not tell; other fields are as without the swizzle
REFUSED = {"blocks", "inner_blks", "inner_idxs", "strides"}


def test_a_field_is_refused_or_that_of_the_base() -> None:
    base = described(TILE.layout.base())
    for name in {name for name in dir(MemoryDesc) if name[0] != "_"} - {"layout"}:
        if name in REFUSED:
            with pytest.raises(NotBlockedError, match="swizzled"):
                getattr(TILE, name)
        elif not callable(own := getattr(TILE, name)):
            assert own == getattr(base, name)


def test_methods_take_the_swizzle_along_or_refuse() -> None:
    assert TILE.permute_axes((1, 0)).to_notation("cute") == "Sw<3,3,3> o 0 o (64,8):(1,64)"
    assert TILE.reshape((7, 40, 1)).to_notation("cute") == "Sw<3,3,3> o 0 o (8,64,1):(64,1,1)"
    assert '"schema": 2' in TILE.to_json()
    assert "72" in str(TILE.show())
    assert "base ^ (base >> 3 & 56)" in TILE.source("cuda")
    # with padding it is no tile of Triton's
    assert [name.text for name in TILE.names()] == [*written(TILE, "cute")]
    # the eighth lane has row 0 again, in the bank of row 1
    assert TILE.bank_conflicts(0) == 1
    with pytest.raises(NotBlockedError, match="swizzled"):
        TILE.with_dtype("s8").with_extra(Extra(s8s8_mask=1))


def test_no_other_system_writes_a_swizzle() -> None:
    for system in {*SYSTEMS} - {"cute", "cutlass", "triton"}:
        with pytest.raises(UnsupportedFormatError, match="swizzled by XOR"):
            written(TILE, system)
    with pytest.raises(NotBlockedError, match="swizzled"):
        to_verbose(TILE)


def test_offsets_are_those_of_the_formula_and_have_their_indices() -> None:
    row, column = np.indices((8, 64))
    base = row * 64 + column
    offsets = base ^ (base >> 3 & 0b111000)
    assert np.array_equal(TILE.layout.offsets(padded=True), offsets)
    index = TILE.index(offsets)
    assert np.array_equal(index, (row, column))
    assert index.is_padding.sum() == 512 - 280


def test_a_byte_swizzle_counts_elements_of_its_width() -> None:
    for dtype, low in {"s4": 5, "s8": 4, "f16": 3, "f32": 2, "f64": 1}.items():
        pointer = f"smem_ptr[{memdesc.data_type(dtype).bits}b](unset)"
        texts = f"Sw<3,4,3> o {pointer} o (64,64):(64,1)", f"Sw<3,{low},3> o (64,64):(64,1)"
        assert len({memory_desc((64, 64), dtype, text) for text in texts}) == 1
    # bits inside an element are not swapped
    assert memory_desc((8, 64), "f64", "Sw<3,1,3> o smem_ptr[64b](unset) o (8,64):(64,1)") == (
        memory_desc((8, 64), "f64", "Sw<1,0,3> o (8,64):(64,1)")
    )


def test_cute_writes_one_term_of_adjacent_bits() -> None:
    base = memory_desc((64, 64), "f16").layout
    assert written(described(replace(base, xor=((-3, 0b110000),))), "cute") == (
        "Sw<2,1,-3> o 0 o (64,64):(64,1)",
        "SW_2_1_-3 o 0 o (64,64):(64,1)",
        "Sw<2,2,-3> o smem_ptr[16b](unset) o (64,64):(64,1)",
    )
    for xor in (((3, 0b101000),), ((3, 8), (4, 8)), ((2, 0b11100),)):
        swizzled = described(replace(base, xor=xor))
        with pytest.raises(UnsupportedFormatError, match="a swizzle moves a run of bits"):
            written(swizzled, "cute")
        # with no notation, it is shown by its parts
        made = eval(repr(swizzled), vars(memdesc))
        assert made == swizzled


def test_the_legend_of_a_picture_tells_banks_from_runs() -> None:
    swizzled = memory_desc((64, 64), "f16", "Sw<3,3,3> o (64,64):(64,1)").show().svg
    plain = memory_desc((64, 64), "f16", "ab").show().svg
    assert "of the 32 banks" in swizzled
    assert "of the 32 banks" not in plain


def test_equal_swizzles_are_equal_values() -> None:
    base = memory_desc((4, 64), "f16").layout
    # rows 0 to 3 have no bit 8
    one, other = replace(base, xor=((3, 0b111000),)), replace(base, xor=((3, 16), (3, 8)))
    assert one == other
    assert hash(one) == hash(other)
    assert one.xor == ((3, 0b11000),)
    # nothing is below bit 0
    assert replace(base, xor=((-3, 0b111111),)).xor == ((-3, 0b111000),)
    assert replace(base, xor=((3, 8), (3, 8))) == replace(base, xor=()) == base
    assert described(one) == described(other)
    assert described(one) != described(base)
    assert hash(described(one)) == hash(described(other))
    assert repr(one) == f"{repr(base)[:-1]}, xor=((3, 24),))"


def test_terms_both_ways_must_be_one_to_one() -> None:
    base = memory_desc((8, 8), "f16").layout
    with pytest.raises(MemdescError, match="two bases the same offset"):
        replace(base, xor=((3, 1), (-3, 8)))  # 1 and 8 both become 9
    both = replace(base, xor=((2, 1), (-1, 8)))
    offsets = both.offsets()
    assert len(np.unique(offsets)) == 64
    desc = described(both)
    assert np.array_equal(desc.index(offsets), np.indices((8, 8)))
    # the overlap of a base is found before its swizzle
    blocks = Block(0, 1, 8, 4), Block(1, 1, 8, 1)
    with pytest.raises(OverlapError):
        described(Layout((8, 8), (Axis((0,), 8), Axis((1,), 8)), blocks, 0, ((2, 1),)))


def test_a_swizzled_matrix_that_no_memory_holds_has_a_last_offset() -> None:
    desc = memory_desc((1 << 40, 64), "u8", "Sw<3,3,3> o (1099511627776,64):(64,1)")
    assert desc.nbytes == desc.min_nbytes == 1 << 46
    assert desc.offset(((1 << 40) - 1, 63)) == (1 << 46) - 1 - 56


def test_a_buffer_starts_where_a_pattern_starts() -> None:
    layout = TILE.layout
    assert np.array_equal(layout.shifted(512).offsets(), layout.offsets() + 512)
    with pytest.raises(MemdescError, match="repeats every 512 elements, so it cannot start 64"):
        layout.shifted(64)
