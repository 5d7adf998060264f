import pytest

from memdesc import UnknownFormatError
from memdesc.tags import parse_tag


def test_a_block_of_one_is_dropped_as_onednn_does() -> None:
    assert parse_tag("aB1b") == parse_tag("ab")
    assert parse_tag("A1a/1.4a/1b") == parse_tag("A4ab")


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


@pytest.mark.parametrize("text", ["a" * 5000, "aB" + "1b" * 5000, "é" * 10**6])
def test_very_long_strings_are_refused_in_a_short_message(text: str) -> None:
    with pytest.raises(
        UnknownFormatError, match=r"characters.: a tag has at most 4096 characters"
    ) as caught:
        parse_tag(text)
    assert len(str(caught.value)) < 200
