import contextlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdesc import MemdescError, MemoryDesc, memory_desc
from memdesc.names import Name
from tests.named import NAMES, uneven_desc


@given(st.sampled_from(NAMES), st.randoms(use_true_random=False))
def test_a_descriptor_by_a_known_name_has_this_name_among_its_tags(
    name: Name, random: Random
) -> None:
    if desc := uneven_desc(name.text, random):
        assert name in desc.names()
        assert MemoryDesc.from_json(desc.to_json()) == desc
        assert eval(repr(desc)) == desc


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(3))
def test_every_known_name_is_among_the_tags_of_uneven_sizes(seed: int) -> None:
    random = Random(seed)
    described = {name: desc for name in NAMES if (desc := uneven_desc(name.text, random))}
    assert len(described) > 1800
    for name, desc in described.items():
        assert name in desc.names()
        with contextlib.suppress(MemdescError):  # outside of oneDNN's fields
            assert desc == memory_desc(
                desc.dims,
                desc.dtype,
                strides=desc.strides,
                inner_blks=desc.inner_blks,
                inner_idxs=desc.inner_idxs,
                padded_dims=desc.padded_dims,
            )
