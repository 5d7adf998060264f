"""Hand-made layouts, tags and images of any integers are correct or refused."""

from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from memdesc import Axis, Block, ImageDesc, Layout, MemdescError, MemoryDesc, image_desc
from memdesc.tags import FormatTag, parse_tag
from tests.by_hand import disguised, mutated
from tests.strategies import descs, tags

_SEEDS = st.integers(0, 2**32)
_MAX_SIZE = 1 << 14


def numbers(value: Any) -> list[Any]:
    """Return all numbers in tuples of tuples."""
    if isinstance(value, tuple):
        return [number for part in value for number in numbers(part)]
    return [value]


@given(descs(max_nelems=256), _SEEDS, st.sampled_from([0, 1, 1, 2]))
def test_a_layout_by_hand_is_refused_or_holds_python_ints_and_its_bounds(
    desc: MemoryDesc, seed: int, changes: int
) -> None:
    rng = np.random.default_rng(seed)
    known = desc.layout
    fields = (known.dims, known.axes, known.blocks, known.offset0)
    try:
        made = Layout(*mutated(fields, rng, changes))
    except MemdescError:
        assert changes
        return
    found = (made.dims, made.axes, made.blocks, made.offset0)
    assert {type(number) for number in numbers(found)} == {int}
    assert {type(axis) for axis in made.axes} == {Axis}
    assert {type(block) for block in made.blocks} == {Block}
    if not changes:
        assert made == known
    if made.nelems and made.padded_nelems <= _MAX_SIZE:
        offsets = made.offsets(padded=True)
        assert offsets.min() >= 0
        assert offsets.max() == made.last


@given(st.integers(1, 4).flatmap(lambda ndims: tags(ndims, any_digits=True)), _SEEDS)
# an alignment of 19 digits, 2**63 - 1
@example(parse_tag("(ABC)d2(abc)"), 439)
def test_a_tag_by_hand_is_refused_or_reads_back(tag: FormatTag, seed: int) -> None:
    rng = np.random.default_rng(seed)
    changes = int(rng.integers(3))
    try:
        made = FormatTag(*mutated((tag.axes, tag.digits, tag.align), rng, changes))
    except MemdescError:
        assert changes
        return
    assert {type(number) for number in numbers((made.axes, made.digits, made.align))} == {int}
    assert parse_tag(str(made)) == made


@given(st.tuples(*[st.integers(1, 9)] * 4), _SEEDS)
def test_an_image_by_hand_is_refused_or_has_all_of_its_pixels(
    dims: tuple[int, ...], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    known = image_desc(dims, "f32", "in_out_channel")
    sizes = (known.width, known.height, known.channels)
    width, height, channels = mutated(sizes, rng, int(rng.integers(3)))
    try:
        made = ImageDesc(known.desc, width, height, channels, known.name)
    except MemdescError:
        return
    last = tuple(size - 1 for size in dims)
    x, y, lane = made.pixel([disguised(i, rng) for i in last])
    assert x < made.width
    assert y < made.height
    assert lane < made.channels
