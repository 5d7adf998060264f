"""Swizzled layouts: each reorder, from and to one, equals its definition at guard pages."""

from typing import Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from tests.reorders import check, expect, random_bytes

TILE = memory_desc((7, 40), "f16", "Sw<3,3,3> o 0 o (8,64):(64,1)")
PITCHED = memory_desc((200, 64), "f16", "Sw<3,3,3> o 0 o (200,64):(72,1)")
# strides that are neither powers of two nor multiples of the pattern
ODD = memory_desc((200, 65), "f16", "Sw<3,3,3> o 0 o (200,65):(65,1)")
TILE_OF_ODD = memory_desc((200, 65), "f16", "Sw<3,3,3> o 0 o (200,128):(128,1)")


@pytest.mark.parametrize(
    ("text", "boxes"),
    [
        ("Sw<3,3,3> o 0 o (64,64):(64,1)", 8),
        ("Sw<1,3,3> o 0 o (64,64):(64,1)", 2),
        ("Sw<3,3,3> o 0 o (64,64):(1,64)", 8),
        ("Sw<2,3,-3> o 0 o (64,64):(64,1)", 4),
        ("Sw<3,3,3> o 512 o (64,64):(64,1)", 8),
    ],
)
def test_a_swizzle_takes_a_box_for_each_value_of_its_bits(text: str, boxes: int) -> None:
    desc = memory_desc((64, 64), "f16", text)
    assert len(reorder.plan_reorder("ab", desc).boxes) == boxes
    # rows that a pattern is a multiple of are joined into one
    rows = memory_desc((3, 5, 64), "f16", "Sw<3,3,3> o 0 o (3,5,64):(320,64,1)")
    assert len(reorder.plan_reorder("abc", rows).boxes) <= 16


def test_granules_without_constant_strides_are_in_a_table() -> None:
    plan = reorder.plan_reorder("ab", PITCHED)
    first, rest = plan.boxes
    # 64 rows of 9 granules repeat, so that much is in the table
    assert str(first) == (
        "@0:0 [512: a*64 b*8 -> a*72 b*8 as o, o ^ (o >> 3 & 56)] 3:4096:4608 8:1:1"
    )
    assert rest.indirect[0].extent == 64
    source, before = random_bytes(25600, 1), random_bytes(PITCHED.min_nbytes, 2)
    wanted, found = expect(plan.src, PITCHED, source, before), before.copy()
    reorder.execute(plan, source, found)
    assert np.array_equal(found, wanted)
    # the code of a plan has the XOR too
    code: dict[str, Any] = {}
    exec(plan.source("python"), code)
    elements, written = source.view(np.uint16), before.copy()
    code["tensor_reorder"](elements, written.view(np.uint16))
    assert np.array_equal(written, wanted)


def test_rows_at_any_element_are_cut_into_granules() -> None:
    plain = memory_desc((200, 65), "f16", "ba")
    plan = reorder.plan_reorder(plain, ODD)
    assert all(box.indirect for box in plan.boxes)
    # not one step for each of the 13,000 elements
    assert sum(loop.extent for box in plan.boxes for loop in box.indirect) < 13000 // 4
    check((plain, ODD), 3, at_end=True, threads=2)
    check((ODD, plain), 3, at_end=True)
    check((ODD, TILE_OF_ODD), 4, at_end=False)
    check((plain.with_dtype("f32"), ODD), 7, at_end=True)


def test_columns_after_whole_granules_are_moved_to_their_place() -> None:
    tile = memory_desc((8, 72), "f16", "Sw<2,4,4> o 512 o (8,72):(80,1)")
    plain = memory_desc((8, 72), "f16", "ba")
    check((tile, plain), 5, at_end=True)
    check((plain, tile), 5, at_end=True)


def test_memory_of_a_swizzle_is_right_or_refuses() -> None:
    x = np.arange(280, dtype=np.float16).reshape(7, 40)
    memory = reorder.reorder(x, TILE)
    assert np.array_equal(memory.numpy(), x)
    memory.check_padding()
    data: Any = memory.data.copy()
    data[2 * TILE.offset((7, 63), padded=True)] = 1
    with pytest.raises(MemdescError, match=r"\(7, 63\)"):
        reorder.Memory(TILE, data, zero_pad=False).check_padding()
    assert not reorder.Memory(TILE, data).data[2 * TILE.offset((7, 63), padded=True)]
    with pytest.raises(MemdescError, match="swizzled"):
        memory.blocks()
    relation = reorder.compare_layouts(TILE, memory_desc((7, 40), "f16"))
    assert relation.kind == "copy"
    same = memory_desc((7, 40), "f16", "Sw<3,3,3> o 512 o (8,64):(64,1)")
    assert reorder.compare_layouts(same, TILE)[:2] == ("view", 512)
    beyond = memory_desc((7, 40), "f16", "Sw<3,3,3> o 64 o (8,64):(64,1)")
    assert reorder.compare_layouts(beyond, TILE).kind == "copy"
    assert reorder.compare_layouts(TILE, TILE).kind == "no-op"


@pytest.mark.parametrize("text", ["K_SW64", "MN_SW64", "SwizzledSharedLayout(8, 2, 4, [1, 0])"])
def test_a_dump_of_a_swizzled_tile_is_identified(text: str) -> None:
    x = np.random.default_rng(2).standard_normal((64, 64)).astype(np.float16)
    tile = memory_desc((64, 64), "f16", text)
    found = reorder.identify(reorder.reorder(x, tile).data, x)
    (candidate,) = (each for each in found.candidates if each.agreement == 1)
    assert candidate.desc == tile
