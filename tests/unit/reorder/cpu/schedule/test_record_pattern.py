from __future__ import annotations

import pytest

from memdesc import record_desc
from reorder.cpu.schedule.record_pattern import find_access


@pytest.mark.parametrize(
    ("name", "block", "blocks", "segments"),
    [
        ("q4_0", 64, 64, 8),
        ("q4_k", 256, 16, 8),
        ("q2_k", 256, 16, 8),
        ("q4_0_8x8", 64, 64, 8),
        ("cublas_nvfp4", 64, 64, 8),
    ],
)
def test_rows_are_one_segment_where_blocks_follow_each_other(
    name: str, block: int, blocks: int, segments: int
) -> None:
    access = find_access(record_desc((8, 4096), name))
    assert access is not None
    assert (access.pattern.block, access.blocks, len(access.starts)) == (block, blocks, segments)


def test_a_pattern_is_the_same_for_all_sizes_of_a_format() -> None:
    found = [find_access(record_desc(dims, "q6_k")) for dims in ((8, 4096), (2, 3, 512))]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].pattern == found[1].pattern


def test_words_of_several_rows_have_no_common_blocks() -> None:
    # of eight rows in each word, only the first begins at a whole byte
    assert find_access(record_desc((128, 256), "gptq")) is None
    assert find_access(record_desc((0, 256), "q4_0")) is None
