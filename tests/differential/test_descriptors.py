"""Descriptors by tags, by strides and by steps from others, against oneDNN's own."""

import random
from contextlib import suppress
from ctypes import c_char_p

import numpy as np
import pytest
from hypothesis import strategies as st

from memdesc import MemdescError, MemoryDesc, memory_desc
from memdesc.tags import parse_tag
from tests.strategies import dims, tags
from tests.tables import ONEDNN_ALIASES, ONEDNN_CANONICAL

from . import known
from .cases import (
    Start,
    Step,
    count_tags,
    draw_dims_with_tails,
    draw_huge,
    dtypes_of,
    examples,
    make_rng,
    make_theirs,
    onednns,
    step_ours,
    step_theirs,
    steps,
)
from .compare import differing_fields, offsets_of
from .known import StartAnswer, StepAnswer
from .libdnnl import Desc, Fields, Library, Status
from .nesting import strict_desc
from .tally import Tally

_SIZES = [known.counts_no_bytes_of_what_is_read]
_STEPS = [*_SIZES, known.drops_a_blocked_unit_dim, known.merges_a_blocked_dim_as_if_it_were_plain]
_HUGE = [
    known.counts_the_outermost_extent_twice,
    known.fits_unsigned_64_bits_only,
    known.wraps_strides_of_no_elements,
]
_STRIDES = [*_SIZES, known.needs_more_bytes_than_int64_holds, known.counts_broadcasts_as_bytes]


def _fields(theirs: Desc | Status) -> Fields | Status:
    return theirs.fields() if isinstance(theirs, Desc) else theirs


def _answer(library: Library, start: Start, name: str | None = None) -> StartAnswer:
    ours: MemoryDesc | MemdescError
    try:
        ours = strict_desc(start.dims, start.dtype, name or start.tag, strides=start.strides)
    except MemdescError as error:
        ours = error
    return StartAnswer(library.version, ours, _fields(make_theirs(library, start)), start)


# Tags.


def test_the_table_of_tags_is_the_enum_of_the_library(library: Library) -> None:
    to_text = library.c.dnnl_fmt_tag2str
    to_text.restype = c_char_p
    count = count_tags(library)
    found = [to_text(value).decode() for value in range(2, 2 + count)]
    assert found == ONEDNN_CANONICAL[:count]
    assert (count, len(ONEDNN_ALIASES)) in {(760, 798), (873, 798)}


def test_every_name_of_a_tag_lays_three_shapes_out_as_libdnnl(library: Library) -> None:
    tally = Tally("names of tags", library.version)
    enum = ONEDNN_CANONICAL[: count_tags(library)]
    aliases = {name: tag for name, tag in ONEDNN_ALIASES.items() if tag in enum}
    assert len(aliases) == len(ONEDNN_ALIASES) or library.version < (3, 13)
    for name, tag in ({tag: tag for tag in enum} | aliases).items():
        for case in range(3):
            rng = make_rng(name, case)
            sizes = draw_dims_with_tails(rng, parse_tag(tag).block_sizes, zero=0.1)
            start = Start(sizes, rng.choice(dtypes_of(library)), tag)
            tally.judge(_answer(library, start, name), [], f"{name}: {start}")
    tally.check()
    assert tally.compared == 3 * len({*enum, *aliases})


_TAGGED = dims(zero=False).flatmap(lambda sizes: st.tuples(st.just(sizes), tags(len(sizes), 256)))


def test_well_formed_tags_outside_of_the_enum_lay_out_as_libdnnl(library: Library) -> None:
    tally = Tally("tags outside of the enum", library.version)
    for sizes, tag in examples(300, _TAGGED):
        start = Start(sizes, "f32", str(tag))
        tally.judge(_answer(library, start), [], start)
    tally.check()


def test_every_element_is_where_the_fields_of_libdnnl_say(dnnl_3_13: Library) -> None:
    for tag in ONEDNN_CANONICAL:
        rng = make_rng(tag, 3)
        sizes = draw_dims_with_tails(rng, parse_tag(tag).block_sizes, max_nelems=256)
        theirs = make_theirs(dnnl_3_13, Start(sizes, "f32", tag))
        assert isinstance(theirs, Desc)
        fields = theirs.fields()
        ours = memory_desc(sizes, "f32", tag).layout
        assert np.array_equal(ours.offsets(), offsets_of(fields, fields.dims)), (tag, sizes)


def test_tags_of_huge_dims_are_refused_as_by_libdnnl_but_for_its_own_arithmetic(
    dnnl_3_13: Library,
) -> None:
    tally = Tally("tags of huge dims", dnnl_3_13.version)
    for case in range(2000):
        rng = make_rng("huge tags", case)
        tag = rng.choice(ONEDNN_CANONICAL)
        sizes = list(draw_dims_with_tails(rng, parse_tag(tag).block_sizes, max_nelems=64))
        sizes[rng.randrange(len(sizes))] = draw_huge(rng) >> rng.choice((0, 10, 20, 30))
        start = Start(tuple(sizes), rng.choice(dtypes_of(dnnl_3_13)), tag)
        if known.divides_by_zero(start):
            tally.leave_out(known.divides_by_zero)
        else:
            tally.judge(_answer(dnnl_3_13, start), _HUGE, start)
    tally.check(most_left_out=1)


# Strides, and equality.


def _nested(rng: random.Random, sizes: list[int]) -> list[int]:
    """Draw strides in any order of dims that nest: dense, with gaps, or 0."""
    strides = [0] * len(sizes)
    need = 1
    for dim in rng.sample(range(len(sizes)), len(sizes)):
        if rng.random() < 0.1:
            continue
        strides[dim] = need + (rng.randint(0, 3) if rng.random() < 0.3 else 0)
        need = strides[dim] * max(sizes[dim], 1)
        if sizes[dim] == 1 and rng.random() < 0.3:
            strides[dim] = rng.randint(0, 2 * need)
    return strides


def _draw(rng: random.Random, *, huge: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Draw dims and strides that nest, nearly nest, overlap, decrease, or exceed int64."""
    sizes = [
        rng.choice((1, 2, 3, 4, 5, rng.randint(0, 9)))
        for _ in range(rng.choice((1, 2, 2, 3, 3, 3, 4, 4, 5, 6, 12)))
    ]
    at, other = (rng.randrange(len(sizes)) for _ in range(2))
    strides = _nested(rng, sizes)
    match rng.choice(("nested", "nested", "nearly", "swapped", "small", "negative", "huge")):
        case "nearly":
            strides[at] = max(strides[at] + rng.randint(-3, 3), 0)
        case "swapped":
            strides[at], strides[other] = strides[other], strides[at]
        case "small":
            strides = [rng.randint(0, 12) for _ in sizes]
        case "negative":
            strides[at] = -strides[at] - rng.randint(0, 1)
        case "huge" if huge:
            (sizes if rng.random() < 0.5 else strides)[at] = draw_huge(rng)
            if rng.random() < 0.5:
                strides = [min(stride, known.INT64_MAX) for stride in _nested(rng, sizes)]
        case _:
            pass
    return tuple(sizes), tuple(strides)


@pytest.mark.parametrize("count", [2000, pytest.param(20_000, marks=pytest.mark.campaign)])
def test_strict_strides_are_accepted_exactly_where_libdnnl_accepts_them(
    library: Library, count: int
) -> None:
    tally = Tally("strides", library.version)
    for case in range(count):
        rng = make_rng("strides", case)
        # 3.2 has no rule about overflow
        sizes, strides = _draw(rng, huge=library.version >= (3, 13))
        start = Start(sizes, rng.choice(dtypes_of(library)), strides=strides)
        answer = _answer(library, start)
        tally.kinds["accepted" if isinstance(answer.theirs, Fields) else "refused"] += 1
        tally.judge(answer, _STRIDES, start)
        if isinstance(answer.ours, MemoryDesc):
            assert memory_desc(sizes, start.dtype, strides=strides) == answer.ours
    tally.check(most_left_out=0.03)
    assert min(tally.kinds["accepted"], tally.kinds["refused"]) > count / 4


_DIMS = dims()


def test_no_strides_at_all_are_row_major_as_in_libdnnl_but_where_a_dim_is_0(
    library: Library,
) -> None:
    for sizes in examples(100, _DIMS):
        theirs = make_theirs(library, Start(sizes, "f32"))
        assert isinstance(theirs, Desc)
        # there a 0 multiplies, unlike in oneDNN's own tag of that order; here both are one
        found = {*differing_fields(memory_desc(sizes, "f32"), theirs.fields())}
        assert found <= ({"strides"} if 0 in sizes else set()), sizes


@st.composite
def _alike(draw: st.DrawFn) -> tuple[MemoryDesc, MemoryDesc]:
    """Draw two descriptors of the same few elements, at times with one stride that differs."""
    sizes = tuple(draw(st.lists(st.sampled_from((1, 1, 2, 3)), min_size=1, max_size=5)))
    sizes = (*sizes[1:], 0) if draw(st.integers(0, 19)) == 7 else sizes
    one, other = (
        draw(onednns(sizes, draw(st.sampled_from(("f32",) * 9 + ("s32",))))) for _ in "ab"
    )
    if draw(st.booleans()):
        strides, at = list(one.strides), draw(st.integers(0, len(sizes) - 1))
        strides[at] += draw(st.integers(0, 2))
        names = "inner_blks", "inner_idxs", "padded_dims", "offset0"
        same = {name: getattr(one, name) for name in names}
        with suppress(MemdescError):
            other = memory_desc(sizes, one.dtype, strides=strides, **same)
    return one, other


_ALIKE = _alike()


@pytest.mark.parametrize("count", [300, pytest.param(20_000, marks=pytest.mark.campaign)])
def test_descriptors_are_equal_exactly_where_libdnnl_says_so_and_then_hash_alike(
    library: Library, count: int
) -> None:
    tally = Tally("equality", library.version)
    for one, other in examples(count, _ALIKE):
        theirs = library.by_fields(one).equals(library.by_fields(other))
        tally.compared += 1
        tally.kinds["equal" if theirs else "different"] += 1
        if (one == other) != theirs or (theirs and hash(one) != hash(other)):
            tally.differ(f"{one!r} == {other!r}: theirs {theirs}")
    tally.check()
    assert min(tally.kinds["equal"], tally.kinds["different"]) > count / 10


# Views, reshapes and permutations.


@st.composite
def _chains(draw: st.DrawFn) -> tuple[MemoryDesc, list[Step]]:
    """Draw a descriptor and up to three steps, of which the last may be refused."""
    dtype = draw(st.sampled_from(("f32", "s32", "s8", "bf16", "f16", "f64", "u4")))
    first = desc = draw(onednns(draw(dims()), dtype))
    chain: list[Step] = []
    while len(chain) < 3:
        chain.append(draw(steps(desc)))
        found = step_ours(desc, chain[-1])
        if not isinstance(found, MemoryDesc):
            break
        desc = found
    return first, chain


_CHAINS = _chains()


@pytest.mark.parametrize("count", [300, pytest.param(8_000, marks=pytest.mark.campaign)])
def test_chains_of_views_reshapes_and_permutations_are_accepted_and_lie_as_in_libdnnl(
    library: Library, count: int
) -> None:
    tally = Tally("views, reshapes, permutations", library.version)
    for first, chain in examples(count, _CHAINS):
        if first.dtype.name not in dtypes_of(library):
            continue
        ours: MemoryDesc | MemdescError = first
        theirs: Desc | Status = library.by_fields(first)
        for k, step in enumerate(chain, 1):
            # one of the two may have refused what is known to differ
            if not isinstance(ours, MemoryDesc) or not isinstance(theirs, Desc):
                break
            before, before_fields = ours, theirs.fields()
            ours, theirs = step_ours(ours, step), step_theirs(theirs, step)
            answer = StepAnswer(library.version, ours, _fields(theirs), before, before_fields, step)
            how = "refused" if isinstance(theirs, Status) else "accepted"
            tally.kinds[f"{step.name} {how}"] += 1
            if known.regroups_only_plain_dims(answer):
                tally.excuse(known.regroups_only_plain_dims)
            elif (
                tally.judge(answer, _STEPS, f"{first!r}: {chain[:k]}")
                or answer.only_the_size_is_0()
            ):
                continue
            break
    # 3.2 has no size for any of the many descriptors that do not start at 0
    tally.check(most_left_out=0.01 if library.version >= (3, 13) else 0.3)
    for name in ("submemory", "reshape", "permute_axes"):
        assert tally.kinds[f"{name} accepted"] > count / 10
        assert tally.kinds[f"{name} refused"] > count / 200
