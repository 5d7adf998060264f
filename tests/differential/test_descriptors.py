"""Descriptors by tags, by strides and by steps from others, against oneDNN's own."""

import random
from ctypes import c_char_p
from math import prod

import numpy as np
import pytest

from memdesc import MemoryDesc, memory_desc
from memdesc.tags import parse_tag

from . import known
from .cases import (
    Recipe,
    Start,
    Step,
    aliases,
    ask,
    canonical_tags,
    count_tags,
    draw_dims_with_tails,
    draw_free_tag,
    draw_huge,
    draw_ndims,
    draw_perm,
    draw_step,
    draw_strides,
    dtypes_of,
    follow_ours,
    follow_theirs,
    make_ours,
    make_rng,
    make_theirs,
    step_ours,
    step_theirs,
    tags_of,
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


def _fields(theirs: Desc | Status) -> Fields | Status:
    return theirs.fields() if isinstance(theirs, Desc) else theirs


def _answer(library: Library, start: Start, name: str | None = None) -> StartAnswer:
    ours = ask(strict_desc, start.dims, start.dtype, name or start.tag, strides=start.strides)
    return StartAnswer(library.version, ours, _fields(make_theirs(library, start)), start)


# Tags.


def test_the_table_of_tags_is_the_enum_of_the_library(library: Library) -> None:
    to_text = library.c.dnnl_fmt_tag2str
    to_text.restype = c_char_p
    count = count_tags(library)
    assert [to_text(value).decode() for value in range(2, 2 + count)] == list(
        canonical_tags()[:count]
    )
    assert (count, len(aliases())) in {(760, 798), (873, 798)}


def test_every_canonical_tag_lays_three_shapes_out_as_libdnnl(library: Library) -> None:
    tally = Tally("canonical tags", library.version)
    for tag in canonical_tags()[: count_tags(library)]:
        for case in range(3):
            rng = make_rng(tag, case)
            dims = draw_dims_with_tails(rng, parse_tag(tag).block_sizes, zero=0.1)
            start = Start(dims, rng.choice(dtypes_of(library)), tag)
            tally.judge(_answer(library, start), [], start)
    tally.check()
    assert tally.compared == 3 * count_tags(library)


def test_every_alias_lays_three_shapes_out_as_libdnnl(library: Library) -> None:
    tally = Tally("aliases", library.version)
    enum = set(canonical_tags()[: count_tags(library)])
    names = {name: tag for name, tag in aliases().items() if tag in enum}
    for name, tag in names.items():
        for case in range(3):
            rng = make_rng(name, case)
            dims = draw_dims_with_tails(rng, parse_tag(tag).block_sizes, zero=0.1)
            start = Start(dims, rng.choice(dtypes_of(library)), tag)
            tally.judge(_answer(library, start, name), [], f"{name}: {start}")
    tally.check()
    assert tally.compared == 3 * len(names)
    assert len(names) == len(aliases()) or library.version < (3, 13)


def test_well_formed_tags_outside_of_the_enum_lay_out_as_libdnnl(library: Library) -> None:
    tally = Tally("tags outside of the enum", library.version)
    for case in range(1000):
        rng = make_rng("free tags", case)
        tag = draw_free_tag(rng, draw_ndims(rng))
        start = Start(draw_dims_with_tails(rng, parse_tag(tag).block_sizes), "f32", tag)
        tally.judge(_answer(library, start), [], start)
    tally.check()


def test_every_element_is_where_the_fields_of_libdnnl_say(dnnl_3_13: Library) -> None:
    for tag in canonical_tags():
        dims = draw_dims_with_tails(make_rng(tag, 3), parse_tag(tag).block_sizes, max_nelems=256)
        theirs = make_theirs(dnnl_3_13, Start(dims, "f32", tag))
        assert isinstance(theirs, Desc)
        fields = theirs.fields()
        ours = memory_desc(dims, "f32", tag).layout
        assert np.array_equal(ours.offsets(), offsets_of(fields, fields.dims)), (tag, dims)


def test_tags_of_huge_dims_are_refused_as_by_libdnnl_but_for_its_own_arithmetic(
    dnnl_3_13: Library,
) -> None:
    tally = Tally("tags of huge dims", dnnl_3_13.version)
    for case in range(2000):
        rng = make_rng("huge tags", case)
        tag = rng.choice(canonical_tags())
        blocks = parse_tag(tag).block_sizes
        dims = list(draw_dims_with_tails(rng, blocks, max_nelems=64))
        dims[rng.randrange(len(dims))] = draw_huge(rng) >> rng.choice((0, 10, 20, 30))
        start = Start(tuple(dims), rng.choice(dtypes_of(dnnl_3_13)), tag)
        if known.divides_by_zero(start):
            tally.leave_out(known.divides_by_zero)
            continue
        tally.judge(_answer(dnnl_3_13, start), _HUGE, start)
    tally.check(most_left_out=1)


# Strides, and equality.


_KNOWN = [*_SIZES, known.needs_more_bytes_than_int64_holds, known.counts_broadcasts_as_bytes]
_INT64_MAX = 2**63 - 1


def _draw(rng: random.Random, *, huge: bool = True) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Draw dims and strides that nest, nearly nest, overlap, decrease, or exceed int64."""
    ndims = draw_ndims(rng)
    dims = [rng.choice((1, 2, 3, 4, 5, rng.randint(1, 9))) for _ in range(ndims)]
    if rng.random() < 0.05:
        dims[rng.randrange(ndims)] = 0
    at = rng.randrange(ndims)
    strides = list(draw_strides(rng, dims))
    match rng.choice(("nested", "nested", "nearly", "nearly", "small", "negative", "huge")):
        case "nearly":
            strides[at] = max(strides[at] + rng.randint(-3, 3), 0)
            if rng.random() < 0.3:
                other = rng.randrange(ndims)
                strides[at], strides[other] = strides[other], strides[at]
        case "small":
            strides = [rng.randint(0, 12) for _ in dims]
        case "negative":
            strides[at] = -strides[at] - rng.randint(0, 1)
        case "huge" if huge:
            for _ in range(rng.randint(1, 2)):
                (dims if rng.random() < 0.5 else strides)[rng.randrange(ndims)] = draw_huge(rng)
            if rng.random() < 0.5:
                strides = [min(stride, _INT64_MAX) for stride in draw_strides(rng, dims)]
        case _:
            pass
    return tuple(dims), tuple(strides)


def _overlap(dims: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether two indices share an element, ignoring broadcasts; by enumeration."""
    at = np.zeros((1,) * len(dims), np.int64)
    for dim, (size, stride) in enumerate(zip(dims, strides, strict=True)):
        table = np.arange(size if stride else min(size, 1), dtype=np.int64) * stride
        at = at + table.reshape([-1 if axis == dim else 1 for axis in range(len(dims))])
    return len(np.unique(at)) < at.size


@pytest.mark.parametrize("count", [2000, pytest.param(20_000, marks=pytest.mark.campaign)])
def test_strict_strides_are_accepted_exactly_where_libdnnl_accepts_them(
    library: Library, count: int
) -> None:
    tally = Tally("strides", library.version)
    for case in range(count):
        rng = make_rng("strides", case)
        # 3.2 has no rule about overflow
        dims, strides = _draw(rng, huge=library.version >= (3, 13))
        start = Start(dims, rng.choice(dtypes_of(library)), strides=strides)
        answer = _answer(library, start)
        tally.kinds["accepted" if isinstance(answer.theirs, Fields) else "refused"] += 1
        tally.judge(answer, _KNOWN, start)
    tally.check(most_left_out=0.03)
    assert min(tally.kinds["accepted"], tally.kinds["refused"]) > count / 4


@pytest.mark.parametrize("count", [2000, pytest.param(20_000, marks=pytest.mark.campaign)])
def test_strides_without_strict_are_accepted_where_strict_ones_are_and_where_nothing_overlaps(
    count: int,
) -> None:
    more = 0
    for case in range(count):
        dims, strides = _draw(make_rng("strides", case))
        strict = ask(strict_desc, dims, "f32", strides=strides)
        loose = ask(memory_desc, dims, "f32", strides=strides)
        if isinstance(strict, MemoryDesc):
            assert loose == strict, (dims, strides)
        more += isinstance(loose, MemoryDesc) and not isinstance(strict, MemoryDesc)
        if not 0 < prod(dims) <= 4096 or max(map(abs, strides)) > 2**40:
            continue
        if isinstance(loose, MemoryDesc):
            assert not _overlap(dims, strides), (dims, strides)
        elif min(strides) >= 0:
            assert _overlap(dims, strides), (dims, strides, loose)
    assert more > count / 50


def test_no_strides_at_all_are_row_major_as_in_libdnnl_but_where_a_dim_is_0(
    library: Library,
) -> None:
    for case in range(200):
        rng = make_rng("no strides", case)
        dims = draw_dims_with_tails(rng, [rng.choice((1, 3))] * draw_ndims(rng), zero=0.2)
        theirs = make_theirs(library, Start(dims, "f32"))
        assert isinstance(theirs, Desc)
        # there a 0 multiplies, unlike in oneDNN's own tag of that order; here both are one
        found = {*differing_fields(memory_desc(dims, "f32"), theirs.fields())}
        assert found <= ({"strides"} if 0 in dims else set()), dims


def _draw_equal(rng: random.Random, dims: tuple[int, ...], library: Library) -> Recipe:
    """Draw a descriptor that is equal to another one of these dims rather often."""
    ndims = len(dims)
    dtype = rng.choices(("f32", "s32"), (9, 1))[0]
    match rng.choice(("tag", "strides", "strides", "permuted", "view", "reshaped", "row-major")):
        case "tag":
            return Recipe(Start(dims, dtype, rng.choice(tags_of(ndims, count_tags(library)))))
        case "strides":
            strides = list(draw_strides(rng, dims, broadcast=0, gap=0.05))
            return Recipe(Start(dims, dtype, strides=tuple(strides)))
        case "permuted":
            perm = draw_perm(rng, ndims)
            tag = rng.choice(tags_of(ndims, 48 if ndims < 6 else count_tags(library)))
            return Recipe(
                Start(tuple(dims[dim] for dim in perm), dtype, tag),
                (Step("permute_axes", (perm,)),),
            )
        case "view":
            # the strides of a larger parent; at times they are those of the view
            at = tuple(rng.choice((0, 0, 0, 1)) for _ in dims)
            whole = tuple(
                size + more + rng.choice((0, 0, 0, 1)) for size, more in zip(dims, at, strict=True)
            )
            return Recipe(
                Start(whole, dtype, strides=draw_strides(rng, whole, broadcast=0, gap=0)),
                (Step("submemory", (dims, at)),),
            )
        case "reshaped":
            flat = tuple(size for size in dims if size != 1) or (1,)
            return Recipe(
                Start(flat, dtype, rng.choice(tags_of(len(flat), count_tags(library)))),
                (Step("reshape", (dims,)),),
            )
        case _:
            return Recipe(Start(dims, dtype, "abcdef"[:ndims]))


@pytest.mark.parametrize("count", [2000, pytest.param(20_000, marks=pytest.mark.campaign)])
def test_descriptors_are_equal_exactly_where_libdnnl_says_so_and_then_hash_alike(
    library: Library, count: int
) -> None:
    tally = Tally("equality", library.version)
    for case in range(count):
        rng = make_rng("equality", case)
        dims = tuple(rng.choice((1, 1, 2, 3)) for _ in range(rng.choice((1, 2, 2, 3, 3, 4, 5))))
        if rng.random() < 0.05:
            dims = (*dims[:-1], 0)
        one, other = (_draw_equal(rng, dims, library) for _ in range(2))
        ours = follow_ours(one), follow_ours(other)
        first, second = follow_theirs(library, one), follow_theirs(library, other)
        assert isinstance(first, Desc)
        assert isinstance(second, Desc)
        theirs = first.equals(second)
        tally.compared += 1
        tally.kinds["equal" if theirs else "different"] += 1
        if (ours[0] == ours[1]) != theirs or (theirs and hash(ours[0]) != hash(ours[1])):
            tally.differ(f"{one} == {other}: theirs {theirs}")
    tally.check()
    assert min(tally.kinds["equal"], tally.kinds["different"]) > count / 10


# Views, reshapes and permutations.


def draw_start(rng: random.Random, library: Library) -> Start:
    """Draw a descriptor by a tag of the enum, by another tag, or by strides."""
    ndims = draw_ndims(rng)
    kind = rng.choice(("tag", "tag", "free tag", "strides"))
    if kind == "strides":
        dims = draw_dims_with_tails(
            rng, [rng.choice((1, 2, 4, 6)) for _ in range(ndims)], zero=0.05
        )
        return Start(dims, rng.choice(dtypes_of(library)), strides=draw_strides(rng, dims))
    if kind == "tag":
        tag = rng.choice(tags_of(ndims, count_tags(library)))
        return Start(
            draw_dims_with_tails(rng, parse_tag(tag).block_sizes, zero=0.05),
            rng.choice(dtypes_of(library)),
            tag,
        )
    tag = draw_free_tag(rng, ndims)
    return Start(draw_dims_with_tails(rng, parse_tag(tag).block_sizes), "f32", tag)


@pytest.mark.parametrize("count", [2000, pytest.param(20_000, marks=pytest.mark.campaign)])
def test_chains_of_views_reshapes_and_permutations_are_accepted_and_lie_as_in_libdnnl(
    library: Library, count: int
) -> None:
    tally = Tally("views, reshapes, permutations", library.version)
    case = 0
    while sum(tally.kinds.values()) < count:
        rng = make_rng("steps", case)
        case += 1
        start = draw_start(rng, library)
        ours, theirs = ask(make_ours, start), make_theirs(library, start)
        tally.judge(StartAnswer(library.version, ours, _fields(theirs), start), _SIZES, start)
        recipe = Recipe(start)
        while isinstance(ours, MemoryDesc) and isinstance(theirs, Desc) and len(recipe.steps) < 3:
            step = draw_step(rng, ours)
            recipe = Recipe(start, (*recipe.steps, step))
            before, before_fields = ours, theirs.fields()
            ours, theirs = ask(step_ours, ours, step), step_theirs(theirs, step)
            answer = StepAnswer(library.version, ours, _fields(theirs), before, before_fields, step)
            tally.kinds[
                f"{step.name} {'refused' if isinstance(theirs, Status) else 'accepted'}"
            ] += 1
            if known.regroups_only_plain_dims(answer):
                tally.excuse(known.regroups_only_plain_dims)
                break
            if not tally.judge(answer, _STEPS, recipe) and not answer.only_the_size_is_0():
                break
    # 3.2 has no size for any of the many views that do not start at 0
    tally.check(most_left_out=0.01 if library.version >= (3, 13) else 0.05)
    for name in ("submemory", "reshape", "permute_axes"):
        assert tally.kinds[f"{name} accepted"] > count / 10
        assert tally.kinds[f"{name} refused"] > count / 200
