"""Reorders that move or convert against their definition, with both buffers next to guard pages."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reorder
from memdesc import MemoryDesc, UnsupportedFormatError, memory_desc
from tests.attributes import attrs, conversions
from tests.conversions import PAIRS
from tests.reorders import Case, beyond_caches, check, few_boxes, forced_parts, random_bytes
from tests.strategies import desc_pairs

_CLDNN = [
    entry["name"]
    for entry in json.loads((Path(__file__).parents[2] / "data" / "cldnn_formats.json").read_text())
]
_PAIRS = desc_pairs()
_SEEDS = st.integers(0, 2**31)
Pair = tuple[MemoryDesc, MemoryDesc]


# the campaign draws any pair of types
_CONVERSIONS = (
    conversions() if settings.get_current_profile_name() == "campaign" else conversions(pairs=PAIRS)
)


@st.composite
def _swizzled(draw: st.DrawFn) -> Case:
    """Draw a case of which either layout may be swizzled."""
    found = []
    src, dst, attr = (*draw(_PAIRS | _CONVERSIONS), None)[:3]
    for desc in (src, dst):
        shift = draw(st.sampled_from([3, 3, 4, 2, 1, 6, -1, -3]))
        masks = [((1 << draw(st.integers(1, 3))) - 1) << draw(st.integers(0, 4))]
        if draw(st.integers(0, 7)) == 7:
            masks.append(draw(st.integers(0, 63)))
        xor = tuple((shift + (k if shift > 0 else -k), mask) for k, mask in enumerate(masks))
        layout = replace(desc.layout, xor=draw(st.sampled_from([xor, xor, ()])))
        found.append(memory_desc(desc.dims, desc.dtype, layout))
    return found[0], found[1], attr


@st.composite
def _reversed(draw: st.DrawFn) -> Pair:
    """Draw a pair in which some blocks lie in the opposite order."""
    found = []
    for desc in draw(_PAIRS):
        blocks, offset0 = list(desc.layout.blocks), desc.offset0
        for k in draw(st.sets(st.integers(0, len(blocks) - 1), max_size=2 * bool(desc.nelems))):
            offset0 += (blocks[k].extent - 1) * blocks[k].stride
            blocks[k] = blocks[k]._replace(stride=-blocks[k].stride)
        layout = replace(desc.layout, blocks=tuple(blocks), offset0=offset0)
        found.append(memory_desc(desc.dims, desc.dtype, layout))
    return found[0], found[1]


_ALL = {"any": _PAIRS, "swizzled": _swizzled(), "reversed": _reversed(), "converts": _CONVERSIONS}


@pytest.mark.parametrize("cases", _ALL.values(), ids=_ALL)
@given(st.data(), _SEEDS, st.booleans(), st.sampled_from([1, 1, 2, 3, 5]))
def test_a_reorder_writes_every_element_and_clears_every_padding_and_touches_nothing_else(
    cases: st.SearchStrategy[Case], data: st.DataObject, seed: int, at_end: bool, threads: int
) -> None:
    case = data.draw(cases)
    # with its own boxes, and with few, which have indirect loops
    for boxes in (nullcontext(), few_boxes()):
        with boxes, forced_parts(threads):
            check(case, seed, at_end=at_end, threads=threads)


# sizes around the sides of the kernels' tiles, and layouts that use each of them
_SIZES = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 40, 64, 65, 130])
_TAGS = {
    2: ["ab", "ba", "AB16b16a", "AB8a8b", "BA4a2b", "Ab32a", "AB16a4b", "AB2a4b2a"],
    3: [
        *("abc", "acb", "cba", "bac", "aBc16b", "aBc8b"),
        *("ABc4b16a4b", "ABc8b16a2b", "ABc16a2b", "Cab3c", "ABc48a32b"),
    ],
    4: [
        *("abcd", "acdb", "cdba", "aBcd16b", "aBcd8b", "ABcd16b16a", "ABcd4b16a4b"),
        *("ABcd8b8a2b", "ab(CD)4(cd)", "ABcd4a/1.8b8a/4.4b"),
    ],
}
_TYPES = {"f32", "s8", "bf16", "u4", "f16", "u8", "f8_e4m3", "s32", "f64", "s4"}
_CONVERTED = [pair for pair in PAIRS if {*pair} <= _TYPES]
_MOVED = [(dtype, dtype) for dtype in ("f32", "s8", "bf16", "f64", "u4")]


@st.composite
def _tiled(draw: st.DrawFn, types: list[tuple[str, str]]) -> Case:
    ndims = draw(st.sampled_from([2, 2, 3, 3, 4]))
    sizes = [draw(_SIZES) for _ in range(ndims)]
    while np.prod(sizes) > 40_000:
        sizes[sizes.index(max(sizes))] //= 3
    tags = st.sampled_from(_TAGS[ndims])
    src, dst = (memory_desc(sizes, dtype, draw(tags)) for dtype in draw(st.sampled_from(types)))
    return src, dst, draw(attrs(src, dst)) if types is _CONVERTED and draw(st.booleans()) else None


@pytest.mark.parametrize("types", [_MOVED, _CONVERTED], ids=["moves", "converts"])
@settings(max_examples=30)
@given(st.data(), _SEEDS, st.booleans(), st.sampled_from([1, 1, 2, 3]), st.booleans())
def test_every_kernel_is_right_at_every_edge_of_its_tiles_and_on_every_share_of_threads(
    types: list[tuple[str, str]],
    data: st.DataObject,
    seed: int,
    at_end: bool,
    threads: int,
    beyond: bool,
) -> None:
    with forced_parts(threads), beyond_caches() if beyond else nullcontext():
        check(data.draw(_tiled(types)), seed, at_end=at_end, threads=threads)


@given(_tiled(_MOVED), _SEEDS)
def test_the_way_back_restores_every_bit(case: Case, seed: int) -> None:
    src, dst, *_ = case
    memory = reorder.Memory(src, random_bytes(src.nbytes, seed))
    again = reorder.reorder(reorder.reorder(memory, dst), src)
    assert again.numpy().tobytes() == memory.numpy().tobytes()


@settings(max_examples=24)
@given(st.sampled_from(_CLDNN), st.sampled_from(("s8", "s4")))
def test_a_cldnn_layout_is_reached_and_left_bit_for_bit(name: str, dtype: str) -> None:
    _check_cldnn(name, dtype)


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(8))
def test_every_cldnn_layout_is_reached_and_left_bit_for_bit(part: int) -> None:
    for name in _CLDNN[part::8]:
        for dtype in ("s8", "s4"):
            _check_cldnn(name, dtype)


def _check_cldnn(name: str, dtype: str) -> None:
    # a type has the ways of one order of dims there and of the other order back
    grouped, weights = "g" in name, "o" in name
    ndims = next(
        (n for n in range(2, 9) if _describes(name, (2, 3, 5, 4, 2, 3, 1, 2)[:n], dtype)), None
    )
    if ndims is None:
        with pytest.raises(UnsupportedFormatError, match=name):
            memory_desc((1, 3, 1, 2), dtype, name)
        return
    sizes = {
        2: (19, 35),
        4: (35, 37, 2, 4),
        5: (3, 35, 18, 2, 4) if grouped else (19, 35, 2, 3, 2),
    }.get(ndims, (2, 17, 2, 1, 3, 2, 2, 2)[:ndims])
    if name == "os_is_osv32_isv32_swizzled_by_4":
        sizes = (35, 37, 1, 1)
    layout = memory_desc(sizes, dtype, name)
    plain = memory_desc(sizes, dtype, "abcdefgh"[:ndims])
    turned = memory_desc(sizes, dtype, "abcdefgh"[:ndims][::-1])
    there, back = (plain, turned) if dtype == "s8" else (turned, plain)
    for src, dst in ((there, layout), (layout, back)):
        check((src, dst), ndims + weights, at_end=True)


def _describes(name: str, sizes: tuple[int, ...], dtype: str) -> bool:
    try:
        memory_desc(
            sizes if "swizzled" not in name or len(sizes) != 4 else (2, 3, 1, 1), dtype, name
        )
    except ValueError:
        return False
    return True
