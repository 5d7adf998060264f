"""Strings that differ from valid ones by a few characters are read correctly or refused."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memdesc import ImageDesc, MemoryDesc, image_desc, known_names, memory_desc
from memdesc.names import is_image
from memdesc.tags import FormatTag, parse_tag
from memdesc.verbose import from_verbose, to_verbose
from tests.files import mutations
from tests.property.memdesc.test_bad_input_laws import check, only_memdesc_errors

_DIMS = (2, 17, 5, 4)
_DESCS = [
    memory_desc(_DIMS, "f32", "nChw16c"),
    memory_desc(_DIMS, "s4", "ABcd4a/1.8b8a/4.4b"),
    memory_desc(_DIMS, "bf16", "a(cb)d"),
    memory_desc(_DIMS, "u8", strides=(400, 20, 4, 1), offset0=7),
    memory_desc((3, 2, 17, 5, 4), "s8", "b_fs_zyx_fsv16").submemory((3, 1, 16, 5, 4), (0,) * 5),
]


@cache
def _names() -> list[str]:
    return [name.text for name in known_names()]


def _mutated(strings: list[str]) -> st.SearchStrategy[str]:
    return st.sampled_from(strings).flatmap(
        lambda string: mutations(string.encode()).map(lambda data: data.decode("latin1"))
    )


def check_string(data: st.DataObject) -> None:
    """Read a changed string by the reader of its kind; what it reads is consistent."""
    kind = data.draw(st.sampled_from(["name", "name", "json", "verbose"]))
    found: FormatTag | MemoryDesc | ImageDesc | None
    if kind == "json":
        texts = [desc.to_json() for desc in _DESCS]
        found = only_memdesc_errors(MemoryDesc.from_json, data.draw(_mutated(texts)))
        if found:
            check(found)
    elif kind == "verbose":
        strings = [to_verbose(_DESCS[k]) for k in (0, 3)]
        read = only_memdesc_errors(from_verbose, data.draw(_mutated(strings)), _DIMS)
        if read is not None:
            check(read) if isinstance(read, MemoryDesc) else to_verbose(read)
    else:
        string = data.draw(_mutated(_names()))
        if found := only_memdesc_errors(parse_tag, string):
            assert parse_tag(str(found)) == found
        dims = data.draw(st.sampled_from([_DIMS, (35, 19), (2, 4, 8, 3, 5), (7,)]))
        if found := only_memdesc_errors(memory_desc, dims, "s8", string):
            check(found)
        if is_image(string):
            only_memdesc_errors(image_desc, dims, "f16", string)


@given(st.data())
def test_a_changed_string_is_read_as_what_it_says_or_refused(data: st.DataObject) -> None:
    check_string(data)


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(1, 11))
@settings(max_examples=50_000)
@given(st.data())
def test_fifty_thousand_changed_strings_are_read_as_what_they_say_or_refused(
    part: int, data: st.DataObject
) -> None:
    del part  # each draws other changes
    check_string(data)
