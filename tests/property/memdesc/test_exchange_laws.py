"""Each system's notation reads back as the same descriptor, or writing it is refused."""

from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memdesc import (
    MemdescError,
    MemoryDesc,
    UnknownFormatError,
    UnsupportedFormatError,
    memory_desc,
    parse_layout,
)
from memdesc.errors import short_repr
from memdesc.exchange import SYSTEMS, written
from memdesc.names import Name
from tests import strategies
from tests.named import NAMES, uneven_desc


def written_or_refused(desc: MemoryDesc, system: str) -> tuple[str, ...]:
    try:
        return written(desc, system)
    except UnsupportedFormatError as error:
        refused = str(error)
    assert f" cannot express {short_repr(desc)}: " in refused
    return ()


@pytest.mark.parametrize("system", SYSTEMS)
@given(desc=strategies.descs(max_ndims=6))
@settings(max_examples=12)
def test_reading_what_was_written_gives_the_same_descriptor(system: str, desc: MemoryDesc) -> None:
    for text in written_or_refused(desc, system):
        assert parse_layout(f"{system}:{text}", desc.dims, desc.dtype, letters=desc.letters) == desc


@given(name=st.sampled_from(NAMES), seed=st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_what_is_printed_of_a_layout_is_read_without_letters_as_the_same_offsets(
    name: Name, seed: Random
) -> None:
    desc = uneven_desc(name.text, seed)
    if desc is None:
        return
    for system in SYSTEMS:
        for text in written_or_refused(desc, system):
            try:
                found = memory_desc(desc.dims, desc.dtype, text)
            except UnknownFormatError as error:
                assert "is read as different layouts" in str(error)
            else:
                assert (found.layout.offsets() == desc.layout.offsets()).all()


@given(
    desc=strategies.descs(max_ndims=5),
    letters=st.permutations("nchwd"),
    system=st.sampled_from(list(SYSTEMS)),
)
@settings(max_examples=40)
def test_letters_of_dims_name_them_both_ways(
    desc: MemoryDesc, letters: list[str], system: str
) -> None:
    names = "".join(letters[: desc.ndims])
    try:
        text = desc.to_notation(system, letters=names)
    except UnsupportedFormatError:
        return
    assert parse_layout(f"{system}:{text}", desc.dims, desc.dtype, letters=names) == desc


@given(
    desc=strategies.descs(max_ndims=5),
    system=st.sampled_from([name for name, system in SYSTEMS.items() if system.spelling]),
)
@settings(max_examples=60)
def test_written_notations_are_read_without_naming_the_system_or_refused_as_ambiguous(
    desc: MemoryDesc, system: str
) -> None:
    for text in written_or_refused(desc, system):
        try:
            found = parse_layout(text, desc.dims, desc.dtype, letters=desc.letters)
        except UnknownFormatError as error:
            found, refused = desc, str(error)
        else:
            refused = "is read as different layouts"
        assert found == desc
        assert "is read as different layouts" in refused


_PIECES = [
    "(2,(16,2)):(32,(1,16))",
    "f32[2,17]{1,0:T(8,128)(2,1)E(4)S(1)}",
    "aB16b",
    "outer_dims_perm = [1, 0] inner_dims_pos = [1] inner_tiles = [16]",
    "affine_map<(d0, d1) -> (d0, d1 floordiv 2, d1 mod 2)>",
    "memref<2x17xf32, strided<[17, 1], offset: 3>>",
    " into %dest : tensor<2x17xf32> -> tensor<2x2x16xf32>",
    "lambda a, b: [a, (b * 1 + a) // 4, b // 2 % 2, b % T.int64(4)]",
    "AB[4b2a]",
    "size=(2, 17), stride=[17, 1], storage_offset=3",
    "dim_order=(1, 0)",
    "FixedLayout('cpu', torch.float32, size=[2, 17], stride=[17, 1])",
    "T.TileLayout(T.S[(2, 17):(17 @ Axis.m, 1)] + 3)",
    "memref<?x17xf32, affine_map<(d0, d1) -> (d0 * 17 + d1 + 2)>>",
    "17x1:2b@3",
    "f32::blocked:ab::f0",
    *"(){}[]:,*T1298 ",
]


@given(text=st.lists(st.sampled_from(_PIECES), max_size=9).map("".join) | st.text(max_size=20))
@settings(max_examples=150)
def test_any_string_is_read_or_refused(text: str) -> None:
    for system in SYSTEMS:
        for dims in (None, (2, 17)):
            try:
                desc = parse_layout(f"{system}:{text}", dims)
            except MemdescError:
                continue
            assert dims in (None, desc.dims)
    for dims in (None, (2, 17)):
        with suppress(MemdescError):
            assert dims in (None, parse_layout(text, dims).dims)
