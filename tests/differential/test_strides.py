"""Strides, accepted or refused, and equality, against oneDNN's."""

import random
from math import prod

import numpy as np
import pytest

from memdesc import MemoryDesc, memory_desc

from . import known
from .cases import (
    Recipe,
    Start,
    Step,
    ask,
    count_tags,
    draw_dims_with_tails,
    draw_huge,
    draw_ndims,
    draw_perm,
    draw_strides,
    dtypes_of,
    follow_ours,
    follow_theirs,
    make_rng,
    make_theirs,
    tags_of,
)
from .compare import differing_fields
from .known import StartAnswer
from .libdnnl import Desc
from .libdnnl_reorder import Executor
from .nesting import strict_desc
from .tally import Tally

_KNOWN = [
    known.counts_no_bytes_of_what_is_read,
    known.needs_more_bytes_than_int64_holds,
    known.counts_broadcasts_as_bytes,
]
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
    library: Executor, count: int
) -> None:
    tally = Tally("strides", library.version)
    for case in range(count):
        rng = make_rng("strides", case)
        # 3.2 has no rule about overflow
        dims, strides = _draw(rng, huge=library.version >= (3, 13))
        start = Start(dims, rng.choice(dtypes_of(library)), strides=strides)
        theirs = make_theirs(library, start)
        ours = ask(strict_desc, dims, start.dtype, strides=strides)
        tally.kinds["accepted" if isinstance(theirs, Desc) else "refused"] += 1
        tally.judge(
            StartAnswer(
                library.version,
                ours,
                theirs.fields() if isinstance(theirs, Desc) else theirs,
                start,
            ),
            _KNOWN,
            start,
        )
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
    library: Executor,
) -> None:
    for case in range(200):
        rng = make_rng("no strides", case)
        dims = draw_dims_with_tails(rng, [rng.choice((1, 3))] * draw_ndims(rng), zero=0.2)
        theirs = make_theirs(library, Start(dims, "f32"))
        assert isinstance(theirs, Desc)
        # there a 0 multiplies, unlike in oneDNN's own tag of that order; here both are one
        found = {*differing_fields(memory_desc(dims, "f32"), theirs.fields())}
        assert found <= ({"strides"} if 0 in dims else set()), dims


def _draw_equal(rng: random.Random, dims: tuple[int, ...], library: Executor) -> Recipe:
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
    library: Executor, count: int
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
