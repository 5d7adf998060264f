"""XOR terms: what a swizzled descriptor answers, against the formula, and what it refuses."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

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


def formula(rows: int, columns: int) -> Any:
    row, column = np.indices((rows, columns))
    base = row * 64 + column
    return base ^ (base >> 3 & 0b111000)


# what the blocks of a swizzled descriptor do not tell; all else is as without the swizzle
REFUSED = {"blocks", "inner_blks", "inner_idxs", "strides"}
# What each method is, given arguments.
CALLS: dict[str, tuple[Callable[[], Any], Any]] = {
    "byte": (lambda: TILE.byte((1, 8)), 128),
    "index": (lambda: TILE.index(72), (1, 0)),
    "offset": (lambda: TILE.offset((1, 8)), 64),
    "permute_axes": (
        lambda: TILE.permute_axes((1, 0)),
        memory_desc((40, 7), "f16", "Sw<3,3,3> o 0 o (64,8):(1,64)"),
    ),
    "reshape": (
        lambda: TILE.reshape((7, 40, 1)),
        memory_desc((7, 40, 1), "f16", "Sw<3,3,3> o 0 o (8,64,1):(64,1,1)"),
    ),
    "show": (lambda: "72" in str(TILE.show()), True),
    "from_json": (lambda: MemoryDesc.from_json(TILE.to_json()), TILE),
    "to_json": (lambda: '"schema": 2' in TILE.to_json(), True),
    "to_notation": (lambda: TILE.to_notation("cute"), "Sw<3,3,3> o 0 o (8,64):(64,1)"),
    # the eighth lane has row 0 again, in the bank of row 1
    "bank_conflicts": (lambda: TILE.bank_conflicts(0), 1),
    "source": (lambda: "base ^ (base >> 3 & 56)" in TILE.source("cuda"), True),
    "submemory": (
        lambda: TILE.submemory((2, 40), (1, 0)).layout.offsets().tolist(),
        formula(7, 40)[1:3].tolist(),
    ),
    # with padding it is no tile of Triton's
    "names": (lambda: [name.text for name in TILE.names()], [*written(TILE, "cute")]),
    "with_letters": (lambda: TILE.with_letters("mk"), TILE),
    "with_dtype": (lambda: TILE.with_dtype("s8").nbytes, 512),
    "with_extra": (lambda: TILE.with_dtype("s8").with_extra(Extra(s8s8_mask=1)), NotBlockedError),
}


@pytest.mark.parametrize("name", [name for name in dir(MemoryDesc) if name[0] != "_"])
def test_an_attribute_is_refused_or_that_of_the_base_and_a_method_is_right(name: str) -> None:
    if name == "layout":
        return
    base = getattr(described(TILE.layout.base()), name)
    usual = (lambda: getattr(TILE, name)), NotBlockedError if name in REFUSED else base
    ask, expected = CALLS.get(name, usual)
    if isinstance(expected, type):
        with pytest.raises(expected, match="swizzled"):
            ask()
    else:
        assert ask() == expected


def test_no_other_system_writes_a_swizzle() -> None:
    for system in {*SYSTEMS} - {"cute", "cutlass", "triton"}:
        with pytest.raises(UnsupportedFormatError, match="swizzled by XOR"):
            written(TILE, system)
    with pytest.raises(NotBlockedError, match="swizzled"):
        to_verbose(TILE)


def test_offsets_are_those_of_the_formula_and_have_their_indices() -> None:
    assert np.array_equal(TILE.layout.offsets(), formula(7, 40))
    assert np.array_equal(TILE.layout.offsets(padded=True), formula(8, 64))
    index = TILE.index(formula(8, 64))
    assert np.array_equal(index, np.indices((8, 64)))
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


def test_the_last_offset_is_that_of_the_highest_element() -> None:
    rng = np.random.default_rng(5)
    for _ in range(60):
        dims = tuple(int(size) for size in rng.integers(1, 12, 3))
        strides = [int(stride) for stride in rng.permutation([1, 16, 256])]
        strides[0] *= int(rng.choice([-1, 1]))
        offset0 = int(rng.integers(0, 40)) + (dims[0] - 1) * max(-strides[0], 0)
        base = memory_desc(dims, "u8", strides=strides, offset0=offset0).layout
        shift = int(rng.choice([-4, -3, -1, 1, 3, 4, 7]))
        layout = replace(base, xor=((shift, int(rng.integers(0, 512))),))
        offsets = layout.offsets()
        assert layout.last == offsets.max()
        assert offsets.min() >= 0
        assert len(np.unique(offsets)) == offsets.size
        view = described(layout).submemory((1, *dims[1:]), (dims[0] - 1, 0, 0))
        assert np.array_equal(view.layout.offsets(), offsets[-1:])
        assert view.min_nbytes == 2 * (offsets[-1:].max() + 1)


def test_a_swizzled_matrix_that_no_memory_holds_has_a_last_offset() -> None:
    desc = memory_desc((1 << 40, 64), "u8", "Sw<3,3,3> o (1099511627776,64):(64,1)")
    assert desc.nbytes == desc.min_nbytes == 1 << 46
    assert desc.offset(((1 << 40) - 1, 63)) == (1 << 46) - 1 - 56


def test_a_buffer_starts_where_a_pattern_starts() -> None:
    layout = TILE.layout
    assert np.array_equal(layout.shifted(512).offsets(), layout.offsets() + 512)
    with pytest.raises(MemdescError, match="repeats every 512 elements, so it cannot start 64"):
        layout.shifted(64)


@pytest.mark.parametrize(
    ("text", "has_inverse"),
    [
        ("Sw<3,3,3> o 0 o (8,64):(64,1)", True),
        ("Sw<2,3,-3> o 64 o (8,64):(64,1)", True),
        ("Sw<1,0,3> o 0 o (8,64):(1,8)", True),
        ("triton:SharedLinearLayout([[0, 1], [0, 2], [1, 0], [2, 2]])", True),
        ("triton:SharedLinearLayout([[0, 1], [0, 3], [1, 2], [3, 0]])", False),
    ],
)
def test_source_code_has_the_same_offsets(text: str, has_inverse: bool) -> None:
    dims = (4, 4) if text.startswith("triton") else (7, 40)
    desc = memory_desc(dims, "f16", text)
    scope: dict[str, Any] = {}
    exec(desc.source("python", "t"), scope)
    offsets = [scope["t_offset"](row, column) for row, column in np.ndindex(dims)]
    assert offsets == desc.layout.offsets().ravel().tolist()
    array = np.arange(1, desc.nelems + 1)
    filled = np.full(desc.layout.last + 1, -1)
    scope["t_fill"](array, filled)
    assert np.array_equal(filled[offsets], array)
    assert ("t_index" in scope) == has_inverse
    if has_inverse:
        found = [scope["t_index"](offset) for offset in offsets]
        assert found == list(np.ndindex(dims))
        assert scope["t_index"](-1) is scope["t_index"](desc.layout.last + 1) is None
