from __future__ import annotations

import pytest

from memdesc import UnknownFormatError
from memdesc.tags import parse_tag


def test_a_block_of_one_is_dropped_as_onednn_does() -> None:
    assert parse_tag("aB1b") == parse_tag("ab")
    assert parse_tag("A1a/1.4a/1b") == parse_tag("A4ab")


def test_dims_in_parentheses_are_one_axis_row_major_in_the_written_order() -> None:
    assert parse_tag("aB(CD)8b16(cd)").axes == ((0,), (1,), (2, 3))
    assert parse_tag("a(CB)4(cb)").axes == ((0,), (2, 1))


def test_steps_in_descending_order_are_not_written_back() -> None:
    assert str(parse_tag("A4a/2.2a/1b")) == "A4a2ab"


def test_an_alignment_at_the_end_belongs_to_an_axis() -> None:
    assert parse_tag("abc__b8").align == (1, 8, 1)
    assert parse_tag("a(BC)4(bc)__a2__(bc)8").align == (2, 8)
    assert str(parse_tag("a(BC)4(bc)__(bc)8__a2")) == "a(BC)4(bc)__a2__(bc)8"


@pytest.mark.parametrize(
    "text",
    ["A9223372036854775807a", "A2a/1.4611686018427387903a/2", "(ABC)d2(abc)__d9223372036854775807"],
)
def test_numbers_up_to_the_largest_of_int64_are_read(text: str) -> None:
    assert str(parse_tag(text)) == text


def test_letters_of_another_family_name_the_dims_in_messages() -> None:
    assert parse_tag("nChw16c", "nchw") == parse_tag("aBcd16b")


@pytest.mark.parametrize(
    ("text", "at", "reason"),
    [
        ("aBcd16c", 5, "block 16c, but dim c is lower-case in 'aBcd'; blocked dims are upper-case"),
        ("aBcd", 2, "dim b is upper-case, but no block of it follows"),
        ("a(BC)", 2, "dim (bc) is upper-case, but no block of it follows"),
        ("ab16c", 3, "block 16c, but there is no outer letter for c"),
        ("abb", 2, "dim b appears twice among the outer letters"),
        ("a(ab)", 1, "dim a appears twice among the outer letters"),
        ("abd", 1, "the dims run from 'a' without a gap, but 'c' is missing"),
        ("", 1, "a tag starts with the letters of its dims, such as 'abcd'"),
        ("4a", 1, "a tag starts with the letters of its dims, such as 'abcd'"),
        ("abm", 3, "no dim is called 'm'; the dims are a, b, c, d, e, f, g, h, i, j, k, l"),
        ("ab c", 3, "expected a letter or a block such as 16b, found ' c'"),
        ("aB16", 3, "expected a letter or a block such as 16b, found '16'"),
        (
            "aB" + "9" * 20 + "b",
            3,
            "expected a letter or a block such as 16b, found '99999999999999999999b'",
        ),
        ("aB9223372036854775808b", 3, "the blocks of dim b multiply to more than int64 holds"),
        ("ab__b9223372036854775808", 3, "alignment 9223372036854775808 is more than int64 holds"),
        ("aB\u0664b", 3, "expected a letter or a block such as 16b, found '\u0664b'"),
        ("aB0b", 3, "block 0b has a size of zero"),
        ("aB4b/0", 3, "block 4b/0 has a size of zero"),
        ("aB16B", 3, "block 16B names its dim in upper case; blocks are written 16b"),
        ("aB/4.4b", 2, "'B/4.' gives a step to an outer letter"),
        ("a(bC)", 2, "'(bC)' mixes upper and lower case"),
        ("A4a/1.4ab", 2, "some blocks of dim a give a step and some do not"),
        ("A4a/2b", 2, "step 2 of dim a: the blocks inside make 1"),
        ("A2a/1.4a/4b", 7, "step 4 of dim a: the blocks inside make 2"),
        (
            "aB" + "99999999999999999b" * 2,
            3,
            "the blocks of dim b multiply to more than int64 holds",
        ),
        ("ab__c8", 3, "expected an alignment such as __b8, once for each axis, found '__c8'"),
        ("ab__b8__b8", 7, "expected an alignment such as __b8, once for each axis, found '__b8'"),
        ("ab__b0", 3, "expected an alignment such as __b8, once for each axis, found '__b0'"),
        ("ab__b8x", 7, "expected an alignment such as __b8, once for each axis, found 'x'"),
        ("a(bc)__b8", 6, "expected an alignment such as __b8, once for each axis, found '__b8'"),
        ("ab__m8", 3, "no dim is called 'm'"),
    ],
)
def test_a_broken_rule_is_named_with_its_character(text: str, at: int, reason: str) -> None:
    with pytest.raises(UnknownFormatError) as caught:
        parse_tag(text)
    assert str(caught.value).startswith(f"{text!r}, at character {at}: {reason}")


@pytest.mark.parametrize("text", ["a" * 5000, "aB" + "1b" * 5000, "é" * 10**6])
def test_very_long_strings_are_refused_in_a_short_message(text: str) -> None:
    with pytest.raises(
        UnknownFormatError, match=r"characters.: a tag has at most 4096 characters"
    ) as caught:
        parse_tag(text)
    assert len(str(caught.value)) < 200
