"""Blocks whose elements lie in the opposite order: codes with the high half of a byte first."""

from dataclasses import replace

import numpy as np
import pytest

import reorder
from memdesc import MemoryDesc, memory_desc
from memdesc.desc import desc_of
from reorder.reference import execute_reference

_TAGS = ("aB2b", "ABdc4b2a2b", "aBcd8b", "BAcd16a4b", "aB(CD)8b16(cd)", "Abcd3a")
_DIMS = (5, 18, 3, 4)


def _reversed(desc: MemoryDesc, picks: tuple[int, ...]) -> MemoryDesc:
    """Return a descriptor in which some blocks lie in the opposite order."""
    layout = desc.layout
    blocks = list(layout.blocks)
    offset0 = layout.offset0
    for pick in picks:
        block = blocks[pick % len(blocks)]
        blocks[pick % len(blocks)] = block._replace(stride=-block.stride)
        offset0 += (block.extent - 1) * block.stride
    return desc_of(desc.dtype, replace(layout, blocks=tuple(blocks), offset0=offset0))


def test_the_high_half_of_a_byte_may_be_first() -> None:
    desc = _reversed(memory_desc((3, 6), "u4", "aB2b"), (2,))
    assert desc.layout.offsets()[0].tolist() == [1, 0, 3, 2, 5, 4]
    words = np.arange(1, 10, dtype=np.uint8) * 17 ^ 5
    found = reorder.reorder(reorder.Memory(desc, words), "ab").numpy().astype(np.uint8)
    assert np.array_equal(found, np.stack([words >> 4, words & 15], -1).reshape(3, 6))


@pytest.mark.parametrize("kind", ["u4", "u8", "f32"])
@pytest.mark.parametrize("seed", range(6))
def test_reversed_blocks_are_moved_as_by_definition(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    tag = _TAGS[seed]
    dims = _DIMS if "c" in tag.lower() else _DIMS[:2]
    plain = memory_desc(dims, kind, tag)
    desc = _reversed(plain, tuple({*rng.integers(0, 9, 2).tolist()}))
    there, back = (reorder.plan_reorder(*pair) for pair in ((plain, desc), (desc, plain)))
    src = reorder.Memory(plain, rng.integers(0, 256, plain.nbytes, np.uint8))
    for plan in (there, back):
        wanted, found = (reorder.Memory(plan.dst) for _ in range(2))
        execute_reference(plan.src, plan.dst, src.data, wanted.data)
        reorder.execute(plan, src.data, found.data)
        assert np.array_equal(found.data, wanted.data)
        src = found
