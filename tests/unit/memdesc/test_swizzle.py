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
    assert np.array_equal(TILE.layout.shifted(512).offsets(), TILE.layout.offsets() + 512)
    assert "of the 32 banks" in TILE.show().svg
    # more elements than any memory holds
    assert memory_desc((1 << 40, 64), "u8", f"Sw<3,3,3> o ({1 << 40},64):(64,1)").nbytes == 1 << 46
    for system in {*SYSTEMS} - {"cute", "cutlass", "triton"}:
        with pytest.raises(UnsupportedFormatError, match="swizzled by XOR"):
            written(TILE, system)
    with pytest.raises(NotBlockedError, match="swizzled"):
        to_verbose(TILE)
    with pytest.raises(NotBlockedError, match="swizzled"):
        TILE.with_dtype("s8").with_extra(Extra(s8s8_mask=1))


def test_equal_swizzles_are_equal_values() -> None:
    base = memory_desc((4, 64), "f16").layout
    # rows 0 to 3 have no bit 8, and nothing is below bit 0
    one, other = (replace(base, xor=xor) for xor in (((3, 0b111000),), ((3, 16), (3, 8))))
    assert (one, hash(one), one.xor) == (other, hash(other), ((3, 0b11000),))
    assert replace(base, xor=((-3, 0b111111),)).xor == ((-3, 0b111000),)
    assert replace(base, xor=((3, 8), (3, 8))) == replace(base, xor=()) == base
    assert described(one) != described(base)
    for xor in (((2, 0b10100),), ((3, 8), (2, 8)), ((2, 0b11100),)):
        swizzled = described(replace(base, xor=xor))
        with pytest.raises(UnsupportedFormatError, match="a swizzle moves a run of bits"):
            written(swizzled, "cute")
        # with no notation, it is shown by its parts
        assert eval(repr(swizzled), vars(memdesc)) == swizzled


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


def test_the_last_offset_beyond_wide_gaps_takes_little_memory() -> None:
    # the bits that move span 2 ** 43 offsets, and there are 2 ** 14 elements
    wide = memory_desc((8, 128, 16), "f32", strides=(1 << 27, 1, 1 << 50)).layout
    layout = wide.with_xor(((-20, 5 << 40),))
    assert layout.last == int(layout.offsets().max()) == 16888499542163583
    # more elements than are searched, and gaps too wide for a search of offsets
    wide = memory_desc((1 << 11, 1 << 11), "f32", strides=(1 << 30, 1)).layout
    with pytest.raises(MemdescError, match="of bits too high, so the last offset is not known"):
        wide.with_xor(((-20, 1 << 40),))
