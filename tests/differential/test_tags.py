"""All tags and aliases of oneDNN against its own descriptors."""

from ctypes import c_char_p

import numpy as np

from memdesc import memory_desc
from memdesc.tags import parse_tag

from . import known
from .cases import (
    Start,
    aliases,
    ask,
    canonical_tags,
    count_tags,
    draw_dims_with_tails,
    draw_free_tag,
    draw_huge,
    draw_ndims,
    dtypes_of,
    make_rng,
    make_theirs,
)
from .compare import offsets_of
from .known import StartAnswer
from .libdnnl import Desc
from .libdnnl_reorder import Executor
from .nesting import strict_desc
from .tally import Tally

_HUGE = [
    known.counts_the_outermost_extent_twice,
    known.fits_unsigned_64_bits_only,
    known.wraps_strides_of_no_elements,
]


def _answer(library: Executor, start: Start, name: str | None = None) -> StartAnswer:
    theirs = make_theirs(library, start)
    ours = ask(strict_desc, start.dims, start.dtype, name or start.tag)
    return StartAnswer(
        library.version, ours, theirs.fields() if isinstance(theirs, Desc) else theirs, start
    )


def test_the_table_of_tags_is_the_enum_of_the_library(library: Executor) -> None:
    to_text = library.c.dnnl_fmt_tag2str
    to_text.restype = c_char_p
    count = count_tags(library)
    assert [to_text(value).decode() for value in range(2, 2 + count)] == list(
        canonical_tags()[:count]
    )
    assert (count, len(aliases())) in {(760, 798), (873, 798)}


def test_every_canonical_tag_lays_three_shapes_out_as_libdnnl(library: Executor) -> None:
    tally = Tally("canonical tags", library.version)
    for tag in canonical_tags()[: count_tags(library)]:
        for case in range(3):
            rng = make_rng(tag, case)
            dims = draw_dims_with_tails(rng, parse_tag(tag).block_sizes, zero=0.1)
            start = Start(dims, rng.choice(dtypes_of(library)), tag)
            tally.judge(_answer(library, start), [], start)
    tally.check()
    assert tally.compared == 3 * count_tags(library)


def test_every_alias_lays_three_shapes_out_as_libdnnl(library: Executor) -> None:
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


def test_well_formed_tags_outside_of_the_enum_lay_out_as_libdnnl(library: Executor) -> None:
    tally = Tally("tags outside of the enum", library.version)
    for case in range(1000):
        rng = make_rng("free tags", case)
        tag = draw_free_tag(rng, draw_ndims(rng))
        start = Start(draw_dims_with_tails(rng, parse_tag(tag).block_sizes), "f32", tag)
        tally.judge(_answer(library, start), [], start)
    tally.check()


def test_every_element_is_where_the_fields_of_libdnnl_say(dnnl_3_13: Executor) -> None:
    for tag in canonical_tags():
        dims = draw_dims_with_tails(make_rng(tag, 3), parse_tag(tag).block_sizes, max_nelems=256)
        theirs = make_theirs(dnnl_3_13, Start(dims, "f32", tag))
        assert isinstance(theirs, Desc)
        fields = theirs.fields()
        ours = memory_desc(dims, "f32", tag).layout
        assert np.array_equal(ours.offsets(), offsets_of(fields, fields.dims)), (tag, dims)


def test_tags_of_huge_dims_are_refused_as_by_libdnnl_but_for_its_own_arithmetic(
    dnnl_3_13: Executor,
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
