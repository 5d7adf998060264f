from __future__ import annotations

import re
from itertools import product

import pytest

from memdesc import UnknownFormatError, UnsupportedFormatError, memory_desc
from memdesc.names import images, mace


@pytest.mark.parametrize(
    ("name", "letters"),
    [
        ("NCHW", "nchw"),
        ("NHWC", "nhwc"),
        ("OIHW", "oihw"),
        ("HWOI", "hwoi"),
        ("MIHW", "mihw"),
        ("HWIM", "hwim"),
        ("W", "w"),
    ],
)
def test_a_host_buffer_is_row_major_in_the_order_of_its_letters(name: str, letters: str) -> None:
    logical = {"nchw": "nchw", "nhwc": "nchw", "hwoi": "oihw", "hwim": "mihw"}.get(letters, letters)
    sizes = dict(zip(logical, (2, 3, 4, 5), strict=False))
    desc = memory_desc(sizes.values(), "f32", name)
    for position, places in enumerate(product(*(range(sizes[letter]) for letter in letters))):
        index = dict(zip(letters, places, strict=True))
        assert desc.offset(index[letter] for letter in logical) == position


@pytest.mark.parametrize(
    ("name", "domain"),
    [
        ("NCHW", "data"),
        ("NHWC", "data"),
        ("OIHW", "weights"),
        ("HWOI", "weights"),
        ("MIHW", "depthwise weights"),
        ("W", "vector"),
    ],
)
def test_a_host_buffer_has_a_domain(name: str, domain: str) -> None:
    assert mace.VOCABULARY.domain(name) == domain


@pytest.mark.parametrize("name", [*images.IMAGES, "ac|Bd|4b", "||"])
def test_an_image_type_is_no_buffer_and_the_message_names_image_desc(name: str) -> None:
    with pytest.raises(
        UnsupportedFormatError,
        match=re.escape(f"{name!r} is an image type, not a linear buffer; use memdesc.image_desc("),
    ):
        mace.parse(name)


def test_a_winograd_filter_is_refused_with_the_reason_as_buffer_and_as_image() -> None:
    reason = (
        r"'winograd_filter' cannot be described: it holds G g G\^T of each 3x3 filter, "
        r"which a reorder cannot make"
    )
    for parse in (mace.parse, images.parse_image):
        with pytest.raises(UnsupportedFormatError, match=reason):
            parse("winograd_filter")


def test_what_is_no_buffer_is_refused_with_the_buffers_there_are() -> None:
    with pytest.raises(
        UnknownFormatError,
        match=r"^'NWHC': not a host buffer; they are NCHW, NHWC, OIHW, HWOI, MIHW, HWIM, W$",
    ):
        mace.parse("NWHC")
