"""`parse_layout`: any notation, without being told which."""

import pytest

from memdesc import (
    UnknownFormatError,
    UnsupportedFormatError,
    image_desc,
    memory_desc,
    parse_layout,
)
from memdesc.exchange import SYSTEMS, written
from tests.named import buffer_layout

_DIMS = (2, 17, 5, 4)


@pytest.mark.parametrize("tag", ["nChw16c", "nhwc", "aBcd8b", "ABcd4b16a4b", "plain", "a4bBcd"])
def test_notations_of_every_system_are_read_without_naming_the_system(tag: str) -> None:
    desc = memory_desc(_DIMS, "f32", tag)
    for system in SYSTEMS:
        try:
            texts = written(desc, system)
        except UnsupportedFormatError:
            continue
        for text in texts:
            assert parse_layout(text, _DIMS, "f32") == desc, (system, text)
            assert parse_layout(f"{system}:{text}", _DIMS, "f32") == desc


@pytest.mark.parametrize(
    ("text", "dims", "layout"),
    [
        ("480x160x32x8:8b@16", _DIMS, {"inner": (8, 1), "offset0": 16}),
        ("340,20,4,1", _DIMS, "abcd"),
        ("(340, 20, 4, 1)", _DIMS, "abcd"),  # as torch prints tensor.stride()
        ("[340, 1, 68, 17]", _DIMS, "acdb"),
        ("(4,)", (1,), "a"),
        ("(0, 2, 3, 1)", _DIMS, "acdb"),  # tensor.dim_order(): as strides, elements would overlap
        ("channels_last", _DIMS, "acdb"),
        ("NHWC", _DIMS, "acdb"),
        ("NCHW16c", _DIMS, "aBcd16b"),
        ("abx", _DIMS, "abcd"),
        ("4:1", (4,), "a"),
        ("f32:p:blocked:aBcd16b::f0", _DIMS, "aBcd16b"),
        ("memref<3x4xf32, affine_map<(d0, d1) -> (d1, d0)>>", None, "ba"),
        ("memref<?x4xf32>", (3, 4), "ab"),
        ("T.TileLayout(T.S[(4, 8):(1, 4)])", None, "ba"),
    ],
)
def test_each_notation_is_found_by_its_spelling(
    text: str, dims: tuple[int, ...] | None, layout: object
) -> None:
    found = parse_layout(text, dims)
    if isinstance(layout, str):
        assert found == memory_desc(found.dims, "f32", layout)
    else:
        strides = (480, 160, 32, 8)
        assert found == memory_desc(
            _DIMS, "f32", strides=strides, inner_blks=(8,), inner_idxs=(1,), offset0=16
        )


def test_names_win_and_image_types_are_images() -> None:
    assert parse_layout("in_out_channel", (1, 6, 2, 3), "f16") == image_desc(
        (1, 6, 2, 3), "f16", "in_out_channel"
    )
    # TVM would need letters for these
    assert parse_layout("bfyx", _DIMS) == memory_desc(_DIMS, "f32", "abcd")


def test_a_string_that_two_systems_read_differently_is_refused_with_both_readings() -> None:
    with pytest.raises(UnknownFormatError) as refused:
        parse_layout("(8,4):(1,8)", (32,))
    for part in (
        "with the prefix cute: memory_desc((32,), 'f32', 'A8a')",
        "with the prefix tvm: memory_desc((32,), 'f32', '4a/1A')",
        "write one, such as cute:(8,4):(1,8)",
    ):
        assert part in str(refused.value)
    assert parse_layout("cute:(8,4):(1,8)", (32,)) == memory_desc((32,), "f32", "A8a")
    assert parse_layout("tvm:(8,4):(1,8)", (32,)) == memory_desc((32,), "f32", "4a/1A")
    assert parse_layout("(8,4):(1,8)") == memory_desc((8, 4), "f32", "ba")


def test_a_tuple_that_is_strides_and_an_order_of_dims_is_read_with_a_prefix() -> None:
    by_strides = memory_desc((2, 3), "f32", strides=(1, 0))
    assert parse_layout("strides:(1, 0)", (2, 3)) == by_strides
    assert parse_layout("pytorch:(1, 0)", (2, 3)) == memory_desc((2, 3), "f32", "ba")


def test_the_data_type_is_that_of_the_string_the_given_one_or_the_default() -> None:
    assert parse_layout("f16:bfyx:1x2x3x4").dtype.name == "f16"
    assert parse_layout("nchw", _DIMS, "s8").dtype.name == "s8"
    assert parse_layout("f16:bfyx:1x2x3x4", default=None).dtype.name == "f16"


def test_extents_of_a_tile_layout_are_digits_of_the_dims_that_are_given() -> None:
    text = "S[(2, 4, 3, 8):(96, 1 @ Axis.m, 32, 4)] + 5"
    desc = buffer_layout(f"tvm:{text}", (8, 24))
    for i, j in ((0, 0), (3, 7), (5, 23), (7, 9)):
        place = 5 + i // 4 * 96 + i % 4 + j // 8 * 32 + j % 8 * 4
        assert desc.offset((i, j)) == place


@pytest.mark.parametrize(
    ("text", "strides", "offset0"),
    [
        ("memref<3x4xf32, affine_map<(d0, d1) -> (d0 * 8 + d1)>>", (8, 1), 0),
        ("memref<3x4xf32, affine_map<(d0, d1) -> (2 * d1 + d0 * 8 + 3)>>", (8, 2), 3),
        ("memref<3x4xf32, affine_map<(d0, d1) -> (d0 * -4 + d1 + 8)>>", (-4, 1), 8),
        ("memref<3xi8, affine_map<(d0) -> (d0)>>", (1,), 0),
    ],
)
def test_the_map_of_a_memref_to_one_number_gives_strides(
    text: str, strides: tuple[int, ...], offset0: int
) -> None:
    desc = buffer_layout(f"mlir:{text}")
    assert (desc.strides, desc.offset0) == (strides, offset0)
