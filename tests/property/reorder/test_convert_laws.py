"""Conversions against their definition, with both buffers next to guard pages."""

from contextlib import nullcontext

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import reorder
from memdesc import MemoryDesc, memory_desc
from reorder import Attr
from tests.attributes import attrs, conversions
from tests.conversions import PAIRS, random_codes
from tests.reorders import few_boxes, forced_parts, move_guarded, random_bytes, spoil_padding


def elements(desc: MemoryDesc, seed: int) -> NDArray[np.uint8]:
    """Return bytes of numbers of middling size and of any bits."""
    name, nbytes = desc.dtype.name, desc.min_nbytes
    if desc.dtype.bits < 32:
        return random_bytes(nbytes, seed)
    codes = random_codes(name, nbytes // desc.dtype.bits_dtype.itemsize + 3, seed)
    np.random.default_rng(seed).shuffle(codes)
    return codes.view(np.uint8)[:nbytes].copy()


def check(
    case: tuple[MemoryDesc, MemoryDesc, Attr | None], seed: int, *, at_end: bool, threads: int = 1
) -> None:
    """Compare a reorder with its definition, gaps and bytes of others included."""
    src, dst, attr = case
    source, before = elements(src, seed), elements(dst, seed + 1)
    wanted = before.copy()
    reorder.reference.execute_reference(src, dst, source, wanted, attr)
    plan = reorder.plan_reorder(src, dst, attr)
    moved = move_guarded(plan, source, before, at_end=at_end, threads=threads)
    assert np.array_equal(moved, wanted), plan
    # only elements of src may affect the result
    spoilt = spoil_padding(src, source, seed + 2) if not src.has_broadcast else source
    assert np.array_equal(
        move_guarded(plan, spoilt, before, at_end=not at_end, threads=threads), wanted
    )


# the campaign draws any pair
_IS_CAMPAIGN = settings.get_current_profile_name() == "campaign"


@given(
    case=conversions() if _IS_CAMPAIGN else conversions(pairs=PAIRS),
    seed=st.integers(0, 2**31),
    at_end=st.booleans(),
    threads=st.sampled_from([1, 1, 2, 3]),
)
def test_a_reorder_that_converts_equals_its_definition_and_touches_nothing_else(
    case: tuple[MemoryDesc, MemoryDesc, Attr | None], seed: int, at_end: bool, threads: int
) -> None:
    # with its own boxes, and with few, which have indirect loops
    for boxes in (nullcontext(), few_boxes()):
        with boxes, forced_parts(threads):
            check(case, seed, at_end=at_end, threads=threads)


_SIZES = st.sampled_from([1, 2, 3, 5, 8, 15, 16, 17, 33, 40, 64, 65, 130])
_TAGS = {
    2: ["ab", "ba", "AB16b16a", "BA4a2b", "Ab32a", "AB16a4b"],
    3: ["abc", "acb", "cba", "aBc16b", "ABc4b16a4b", "Cab3c", "ABc48a32b"],
    4: ["abcd", "acdb", "cdba", "aBcd16b", "aBcd8b", "ABcd16b16a", "ABcd4b16a4b", "ab(CD)4(cd)"],
}
_TYPES = {"f32", "s8", "bf16", "u4", "f16", "u8", "f8_e4m3", "s32", "f64", "s4"}
_PAIRS_OF_TYPES = [pair for pair in PAIRS if {*pair} <= _TYPES]


@st.composite
def _tiled(draw: st.DrawFn) -> tuple[MemoryDesc, MemoryDesc, Attr | None]:
    ndims = draw(st.sampled_from([2, 2, 3, 3, 4]))
    sizes = [draw(_SIZES) for _ in range(ndims)]
    while np.prod(sizes) > 40_000:
        sizes[sizes.index(max(sizes))] //= 3
    tags = st.sampled_from(_TAGS[ndims])
    pair = draw(st.sampled_from(_PAIRS_OF_TYPES))
    src, dst = (memory_desc(sizes, dtype, draw(tags)) for dtype in pair)
    return src, dst, draw(attrs(src, dst)) if draw(st.booleans()) else None


@given(_tiled(), st.integers(0, 2**31), st.booleans(), st.sampled_from([1, 1, 2, 3]))
def test_every_tile_is_right_at_every_edge_and_on_every_share_of_threads(
    case: tuple[MemoryDesc, MemoryDesc, Attr | None], seed: int, at_end: bool, threads: int
) -> None:
    with forced_parts(threads):
        check(case, seed, at_end=at_end, threads=threads)
