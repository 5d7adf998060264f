"""MACE's host buffers, and types of images, which are cut into rows, columns and lane."""

from itertools import product

import pytest

from memdesc import image_desc, memory_desc


@pytest.mark.parametrize("name", ["NCHW", "NHWC", "OIHW", "HWOI", "MIHW", "HWIM", "W"])
def test_a_host_buffer_is_row_major_in_the_order_of_its_letters(name: str) -> None:
    logical = {"NHWC": "NCHW", "HWOI": "OIHW", "HWIM": "MIHW"}.get(name, name)
    sizes = dict(zip(logical, (2, 3, 4, 5), strict=False))
    desc = memory_desc(sizes.values(), "f32", name)
    for position, places in enumerate(product(*(range(sizes[letter]) for letter in name))):
        index = dict(zip(name, places, strict=True))
        assert desc.offset(index[letter] for letter in logical) == position


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
