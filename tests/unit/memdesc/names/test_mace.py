"""MACE's host buffers, and types of images, which are cut into rows, columns and lane."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest

from memdesc import (
    MemdescError,
    UnknownFormatError,
    UnsupportedFormatError,
    image_desc,
    memory_desc,
    parse_layout,
)


@pytest.mark.parametrize("name", ["NCHW", "NHWC", "OIHW", "HWOI", "MIHW", "HWIM", "W"])
def test_a_host_buffer_is_row_major_in_the_order_of_its_letters(name: str) -> None:
    logical = {"NHWC": "NCHW", "HWOI": "OIHW", "HWIM": "MIHW"}.get(name, name)
    sizes = dict(zip(logical, (2, 3, 4, 5), strict=False))
    desc = memory_desc(sizes.values(), "f32", name)
    for position, places in enumerate(product(*(range(sizes[letter]) for letter in name))):
        index = dict(zip(name, places, strict=True))
        assert desc.offset(index[letter] for letter in logical) == position


@pytest.mark.parametrize("name", ["in_out_channel", "image_2d_rgba", "ac|Bd|4b", "||"])
def test_an_image_type_is_not_a_buffer_and_the_message_names_image_desc(name: str) -> None:
    with pytest.raises(
        UnsupportedFormatError,
        match=re.escape(f"{name!r} is an image type, not a linear buffer; use memdesc.image_desc("),
    ):
        parse_layout(f"mace:{name}", (2,))


def test_names_that_are_not_buffers_are_refused() -> None:
    with pytest.raises(
        UnknownFormatError,
        match=r"^'NWHC': not a host buffer; they are NCHW, NHWC, OIHW, HWOI, MIHW, HWIM, W$",
    ):
        parse_layout("mace:NWHC", (2,))
    make: Any
    for make in (memory_desc, image_desc):
        with pytest.raises(UnsupportedFormatError, match=r"holds G g G\^T of each 3x3 filter, wh"):
            make((2, 3, 3, 3), "f32", "winograd_filter")


@pytest.mark.parametrize(
    ("text", "tag", "size"),
    [
        ("|abc|", "abc", (24 * 35, 1, 1)),
        ("abc||", "abc", (1, 24 * 35, 1)),
        ("A4a/1|bc2a/4|", "A4a/1bc2a/4", (70, 12, 1)),
        ("A4a/1|2a/4bc|", "A4a/1.2a/4bc", (70, 12, 1)),
        ("ac|B1b|4b__c8", "acB4b__c8", (2, 24 * 8, 4)),
    ],
)
def test_an_image_is_a_tag_cut_into_rows_columns_and_lane(
    text: str, tag: str, size: tuple[int, ...]
) -> None:
    image = image_desc((24, 5, 7), "f32", text)
    assert (image.width, image.height, image.channels) == size
    assert image.desc == memory_desc((24, 5, 7), "f32", tag)


_PARTS = "must be letters and blocks; alignments go at the end"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("in_out", " is not an image type; they are in_out_channel, .*, or rows.columns.lane such"),
        ("ac|Bd", " is not an image type"),
        ("a|c|Bd|4b|", " is not an image type"),
        ("", " is not an image type"),
        ("ac4|bBd|4b", f": rows 'ac4' {_PARTS}"),
        ("ac|Bd__b8|4b", f": columns 'Bd__b8' {_PARTS}"),
        ("a4|c|Bd|4b", f": depth 'a4' {_PARTS}"),
        ("ac|Bd|8b", ": the lane part '8b' must be empty .one channel., one block of 4, such as"),
        ("aC|BD|4b4d4c", ": the lane part '4b4d4c' must be empty"),
        ("ac|bd|4b", ", which reads as 'acbd4b', at character 5: block 4b, but dim b is lower"),
    ],
)
def test_another_string_is_refused_with_the_invalid_part(text: str, reason: str) -> None:
    with pytest.raises(UnknownFormatError, match=re.escape(repr(text)) + reason):
        image_desc((2, 3, 4, 5), "f32", text)


@pytest.mark.parametrize(
    ("name", "dims", "reason"),
    [
        ("dw_conv2d_filter", (2, 5, 3, 3), "m = 2: its image holds only m = 1"),
        ("image_2d_rgba", (2, 3, 5, 7), "b = 2: its image holds only b = 1"),
        ("image_2d_rgba", (1, 2, 5, 7), "f = 2: its image holds only 3 or 4"),
        ("image_2d_rgba", (1, 5, 5, 7), "f = 5: its image holds only 3 or 4"),
    ],
)
def test_sizes_that_an_image_type_does_not_support_are_refused(
    name: str, dims: tuple[int, ...], reason: str
) -> None:
    with pytest.raises(MemdescError, match=f"{name} has {reason}"):
        image_desc(dims, "f32", name)
