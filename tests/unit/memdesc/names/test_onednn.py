from __future__ import annotations

import re
from collections import Counter

import pytest

from memdesc import UnknownFormatError, UnsupportedFormatError, memory_desc, parse_tag
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
    ("alias", "canonical", "by_its_letters"),
    [
        ("OhwI24o", "Acdb24a", None),
        ("OhwI32o", "Acdb32a", None),
        ("gOhwI24o", "aBdec24b", None),
        ("gOhwI32o", "aBdec32b", None),
        ("gIOhw2i8o16i2o", "aBCde2c8b16c2b", "aCBde2c8b16c2b"),
        ("gIOdhw2i8o16i2o", "aBCdef2c8b16c2b", "aCBdef2c8b16c2b"),
    ],
)
def test_the_six_irregular_aliases_follow_the_enum_and_not_their_letters(
    alias: str, canonical: str, by_its_letters: str | None
) -> None:
    assert str(onednn.parse(alias)) == canonical != by_its_letters
    letters = "goidhw" if alias.startswith("g") else "oihw"
    letters = "".join(letter for letter in letters if letter in alias.lower())
    if by_its_letters:
        assert str(parse_tag(alias, letters)) == by_its_letters
    else:
        with pytest.raises(
            UnknownFormatError, match="dim i is upper-case, but no block of it follows"
        ):
            parse_tag(alias, letters)


@pytest.mark.parametrize(
    ("aliases", "canonical"),
    [
        ("x", "a"),
        ("nc tn oi", "ab"),
        ("cn nt io", "ba"),
        ("ncw oiw tnc", "abc"),
        ("nwc owi", "acb"),
        ("ntc", "bac"),
        ("wio", "cba"),
        ("woi", "cab"),
        ("iwo", "bca"),
        ("nchw oihw goiw ldnc ldio ldgo", "abcd"),
        ("nhwc ohwi", "acdb"),
        ("chwn ihwo", "bcda"),
        ("hwio", "cdba"),
        ("hwoi", "cdab"),
        ("iohw", "bacd"),
        ("gowi ldoi", "abdc"),
        ("wigo", "dcab"),
        ("gwio", "adcb"),
        ("ldigo", "abcde"),
        ("ldgoi", "abdec"),
        ("ghwio", "adecb"),
        ("godhwi", "abdefc"),
        ("gdhwio", "adefcb"),
        ("dhwigo", "defcab"),
    ],
)
def test_the_letters_that_are_present_number_the_dims_in_the_order_of_their_family(
    aliases: str, canonical: str
) -> None:
    assert {alias: str(onednn.parse(alias)) for alias in aliases.split()} == dict.fromkeys(
        aliases.split(), canonical
    )


def test_no_alias_is_also_a_canonical_name() -> None:
    assert not set(ONEDNN_ALIASES) & set(ONEDNN_CANONICAL)


def test_the_canonical_names_have_the_specified_counts_of_dims_and_blocks() -> None:
    ndims = Counter(onednn.parse(name).ndims for name in ONEDNN_CANONICAL)
    assert ndims == {1: 1, 2: 72, 3: 178, 4: 252, 5: 253, 6: 105, **dict.fromkeys(range(7, 13), 2)}
    blocks = [
        [digit.axis for digit in onednn.parse(name).digits if digit.extent]
        for name in ONEDNN_CANONICAL
    ]
    assert Counter(map(len, blocks)) == {0: 53, 1: 145, 2: 347, 3: 265, 4: 63}
    assert sum(len(axes) > len(set(axes)) for axes in blocks) == 328


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
