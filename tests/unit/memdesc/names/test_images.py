from __future__ import annotations

import re

import pytest

from memdesc import MemdescError, UnknownFormatError
from memdesc.names import images


@pytest.mark.parametrize(
    ("text", "tag", "rows", "columns"),
    [
        ("in_out_channel", "acBd4b", 2, 2),
        ("in_out_height", "aCbd4c", 2, 2),
        ("in_out_width", "acbD4d", 2, 2),
        ("conv2d_filter", "Acdb4a", 3, 1),
        ("dw_conv2d_filter", "Bacd4b", 1, 3),
        ("weight_height", "Acdb4a", 1, 3),
        ("weight_width", "acdB4b", 1, 3),
        ("argument", "A4a", 0, 1),
        ("image_2d_weights_c4_fyx_b", "a(BCD)4(bcd)", 1, 1),
        ("image_2d_weights_c1_b_fyx", "bcda", 3, 1),
        ("image_2d_rgba", "Bacd4b", 3, 1),
        ("|abc|", "abc", 0, 3),
        ("abc||", "abc", 3, 0),
        ("A4a/1|b2a/4|", "A4a/1b2a/4", 2, 2),
        ("A4a/1|2a/4b|", "A4a/1.2a/4b", 2, 2),
        ("ac|B1bd|4b__c8", "acBd4b__c8", 2, 2),
    ],
)
def test_an_image_type_is_a_tag_cut_into_rows_columns_and_lane(
    text: str, tag: str, rows: int, columns: int
) -> None:
    parsed, *cut = images.parse_image(text)
    assert (str(parsed), *cut) == (tag, rows, columns)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "in_out",
            "no image type; they are in_out_channel, .*, or rows.columns.lane such as 'ac|Bd|4b'",
        ),
        ("ac|Bd", "not an image type"),
        ("ac|Bd|4b|", "not an image type"),
        (
            "ac4|bBd|4b",
            "rows 'ac4' and columns 'bBd' must be letters and blocks; alignments go at the end",
        ),
        (
            "ac|Bd__b8|4b",
            ("rows 'ac' and columns 'Bd__b8' must be letters and blocks; alignments go at the end"),
        ),
        (
            "ac|Bd|8b",
            "the lane part '8b' must be empty .one channel. or one block of 4, such as '4b' .RGBA.",
        ),
        ("ac|b|d", "the lane part 'd' must be empty"),
        ("aC|BD|4b4d4c", "the lane part '4b4d4c' must be empty"),
        ("ac|bd|4b", "which reads as 'acbd4b', at character 5: block 4b, but dim b is lower-case"),
        ("", "not an image type"),
    ],
)
def test_a_string_that_is_no_image_is_refused_with_the_invalid_part(text: str, reason: str) -> None:
    with pytest.raises(UnknownFormatError, match=re.escape(repr(text)) + "(:|,| is) " + reason):
        images.parse_image(text)


def test_a_depthwise_multiplier_other_than_one_has_no_image() -> None:
    images.check_image_dims("dw_conv2d_filter", (1, 5, 3, 3))
    with pytest.raises(
        MemdescError,
        match="dw_conv2d_filter has multiplier m = 2: the kernels fill the image only for 1",
    ):
        images.check_image_dims("dw_conv2d_filter", (2, 5, 3, 3))


def test_an_rgba_image_has_one_picture_of_three_or_four_features() -> None:
    for features in (3, 4):
        images.check_image_dims("image_2d_rgba", (1, features, 5, 7))
    for b, f in ((2, 3), (1, 2), (1, 5)):
        with pytest.raises(
            MemdescError,
            match=(
                f"image_2d_rgba has b = {b}, f = {f}: the image holds a batch of 1 with 3 or "
                "4 features"
            ),
        ):
            images.check_image_dims("image_2d_rgba", (b, f, 5, 7))
