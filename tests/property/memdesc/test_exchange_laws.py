"""Each system's notation reads back as the same descriptor, or writing it is refused."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memdesc import MemoryDesc, UnknownFormatError, UnsupportedFormatError, parse_layout
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


def read(text: str, desc: MemoryDesc, letters: str | None) -> MemoryDesc | None:
    """Read a notation without naming its system; None where it is refused as ambiguous."""
    try:
        found = parse_layout(text, desc.dims, desc.dtype, letters=letters)
    except UnknownFormatError as error:
        assert "is read as different layouts" in str(error)
        return None
    assert isinstance(found, MemoryDesc)
    return found


@pytest.mark.parametrize("system", SYSTEMS)
@given(desc=strategies.descs(max_ndims=6), letters=st.permutations("nchwde"))
@settings(max_examples=12)
def test_reading_what_was_written_gives_the_same_descriptor(
    system: str, desc: MemoryDesc, letters: list[str]
) -> None:
    texts = written_or_refused(desc, system)
    for text in texts:
        assert parse_layout(f"{system}:{text}", desc.dims, desc.dtype, letters=desc.letters) == desc
        if SYSTEMS[system].spelling:
            assert read(text, desc, desc.letters) in {desc, None}
    if texts:  # letters of dims name them both ways
        names = "".join(letters[: desc.ndims])
        text = f"{system}:{desc.to_notation(system, letters=names)}"
        assert parse_layout(text, desc.dims, desc.dtype, letters=names) == desc


@given(name=st.sampled_from(NAMES), seed=st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_what_is_printed_of_a_layout_is_read_without_letters_as_the_same_offsets(
    name: Name, seed: Random
) -> None:
    desc = uneven_desc(name.text, seed)
    if desc is None or desc.nelems > 10**5:
        return
    for system in SYSTEMS:
        for text in written_or_refused(desc, system):
            found = read(text, desc, None)
            assert found is None or (found.layout.offsets() == desc.layout.offsets()).all()
