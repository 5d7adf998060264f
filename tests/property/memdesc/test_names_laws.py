from __future__ import annotations

import contextlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdesc import (
    MemdescError,
    MemoryDesc,
    UnsupportedFormatError,
    data_type,
    from_json,
    known_names,
    memory_desc,
    to_json,
)
from memdesc.names import resolve

NAMES = [name for name in known_names() if "image" not in name.text]


def uneven_desc(name: str, random: Random) -> MemoryDesc | None:
    """Describe sizes of which few are whole blocks; None where the name is refused for them.

    Packings that take whole blocks only get these.
    """
    dtype = data_type(random.choice(("f32", "f16", "s8", "s4")))
    with contextlib.suppress(UnsupportedFormatError):
        tag = resolve(name, (), dtype.bits)
        dims = [random.choice((1, 2, 3, 5, 17)) for _ in range(tag.ndims)]
        with contextlib.suppress(UnsupportedFormatError):
            return memory_desc(dims, dtype, name)
        dims = [size * block for size, block in zip(dims, tag.block_sizes, strict=True)]
        return memory_desc(dims, dtype, name)
    return None


@given(st.sampled_from(NAMES), st.randoms(use_true_random=False))
def test_a_descriptor_by_a_known_name_has_this_name_among_its_tags(
    name: tuple[str, str, str], random: Random
) -> None:
    if desc := uneven_desc(name[1], random):
        assert name in desc.tags()
        assert from_json(to_json(desc)) == desc
        assert eval(repr(desc)) == desc  # noqa: S307 - repr is meant to be evaluated


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(3))
def test_every_known_name_is_among_the_tags_of_uneven_sizes(seed: int) -> None:
    random = Random(seed)  # noqa: S311 - a repeatable one
    described = {name: desc for name in NAMES if (desc := uneven_desc(name.text, random))}
    assert len(described) > 1800
    for name, desc in described.items():
        assert name in desc.tags()
        with contextlib.suppress(MemdescError):  # outside of oneDNN's fields
            assert desc == memory_desc(
                desc.dims,
                desc.dtype,
                strides=desc.strides,
                inner_blks=desc.inner_blks,
                inner_idxs=desc.inner_idxs,
                padded_dims=desc.padded_dims,
            )
