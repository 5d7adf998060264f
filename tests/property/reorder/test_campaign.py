"""A million random reorders in parts: pytest -m campaign; conversions are beside their laws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.reorder.test_reorder_laws import check
from tests.reorders import forced_parts
from tests.strategies import desc_pairs

if TYPE_CHECKING:
    from memdesc import MemoryDesc


# With the conversions of `test_convert_laws` a million.
@pytest.mark.campaign
@pytest.mark.parametrize("part", range(1, 21))
@settings(max_examples=40_000)
@given(desc_pairs(), st.integers(0, 2**31), st.booleans(), st.sampled_from([1, 2, 5]))
def test_forty_thousand_reorders_equal_their_definition(
    part: int, pair: tuple[MemoryDesc, MemoryDesc], seed: int, at_end: bool, threads: int
) -> None:
    del part  # each draws other cases
    with forced_parts(threads):
        check(*pair, seed, at_end=at_end, threads=threads)
