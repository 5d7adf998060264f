from __future__ import annotations

import re

import pytest

from memdesc import UnknownFormatError, UnsupportedFormatError, memory_desc
from memdesc.names import onednn
from tests.tables import ONEDNN_ALIASES, ONEDNN_CANONICAL


def test_every_one_of_the_873_canonical_names_reads_back_as_itself() -> None:
    assert len(ONEDNN_CANONICAL) == 873
    assert {name: str(onednn.parse(name)) for name in ONEDNN_CANONICAL} == {
        name: name for name in ONEDNN_CANONICAL
    }


def test_every_one_of_the_798_aliases_reads_as_the_tag_that_the_enum_defines() -> None:
    assert len(ONEDNN_ALIASES) == 798
    assert {name: str(onednn.parse(name)) for name in ONEDNN_ALIASES} == ONEDNN_ALIASES


@pytest.mark.parametrize(
    ("name", "domain"),
    [
        ("abcd", "any"),
        ("ABcd4b16a4b", "any"),
        ("abcdefghijkl", "any"),
        ("nc", "data"),
        ("nCdhw16c", "data"),
        ("oi", "weights"),
        ("OIhw4i16o4i", "weights"),
        ("gOIdhw4i16o4i", "grouped weights"),
        ("goiw", "grouped weights"),
        ("tnc", "sequence"),
        ("nt", "sequence"),
        ("ldnc", "rnn states"),
        ("ldgOi32o", "rnn weights"),
        ("ldio", "rnn weights"),
        ("ldgo", "rnn bias"),
        ("x", "vector"),
    ],
)
def test_a_name_has_a_domain(name: str, domain: str) -> None:
    assert onednn.domain(name) == domain


def test_every_alias_has_a_domain_and_no_canonical_name_has_another_than_any() -> None:
    assert onednn.CANONICAL not in {onednn.domain(name) for name in ONEDNN_ALIASES}
    assert {onednn.domain(name) for name in ONEDNN_CANONICAL} == {onednn.CANONICAL}


@pytest.mark.parametrize(
    "name",
    [
        "nchW",
        "nchwx",
        "NCHW",
        "nchw16",
        "n16c",
        "oihw16i",
        "OIhw16i16",
        "b_fs_yx_fsv16",
        "hw",
        "dhw",
    ],
)
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(UnknownFormatError, match=f"^'{re.escape(name)}', at character [0-9]+: "):
        onednn.parse(name)


@pytest.mark.parametrize("name", ["any", "undef", "ldigo_p", "wino"])
def test_what_is_no_layout_of_elements_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(UnsupportedFormatError, match=f"^'{name}' cannot be described: "):
        memory_desc((2, 3), "f32", name)
