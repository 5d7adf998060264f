import pytest

from memdesc import memory_desc, parse_layout
from tests.named import buffer_layout


@pytest.mark.parametrize(
    ("dims", "dtype", "tag", "text"),
    [
        ((2, 17, 5, 4), "f32", "nhwc", "f32[2,17,5,4]{1,3,2,0}"),
        ((2, 17, 5, 4), "f32", "nChw16c", "f32[2,17,5,4]{3,2,1,0:T(16,1,1)}"),
        ((9, 17, 3, 1), "s8", "OIhw16o16i", "s8[9,17,3,1]{3,2,1,0:T(16,16,1,1)}"),
        ((9, 17, 3, 1), "s8", "OIhw16i16o", "s8[9,17,3,1]{3,2,1,0:T(16,16,1,1)(16,1,1,1)}"),
        ((9, 17, 3, 1), "s8", "hwIO16i2o", "s8[9,17,3,1]{0,1,3,2:T(16,2)}"),
        ((64, 32), "bf16", "AB4a128b2a", "bf16[64,32]{1,0:T(8,128)(2,1)}"),
        (
            (99, 99, 1, 1),
            "s8",
            "os_is_yx_osa4_isa8_osv8_isv4",
            "s8[99,99,1,1]{3,2,1,0:T(32,32,1,1)(8,4,1,1)}",
        ),
        ((3, 5), "s4", "AB2a2b", "s4[3,5]{1,0:T(2,2)E(4)}"),
        ((3, 5), "boolean", "ab", "pred[3,5]{1,0}"),
        ((3, 0), "f64", "ba", "f64[3,0]{0,1}"),
        ((2, 3, 5, 5), "f32", "bf8_xy16", "f32[2,3,5,5]{3,2,1,0:T(8,*,16)}"),
        ((3, 5, 2), "f32", "a(bc)", "f32[3,5,2]{2,1,0:T(*,1)}"),
    ],
)
def test_blocks_are_tiles(dims: tuple[int, ...], dtype: str, tag: str, text: str) -> None:
    desc = memory_desc(dims, dtype, tag)
    assert desc.to_notation("xla") == text
    assert parse_layout(f"xla:{text}") == desc


def test_tiles_that_divide_what_is_outside_another_tile_swizzle_blocks() -> None:
    for text, tag in (
        ("f32[64,256]{1,0:T(8,128)(2,1,1,1)}", "AB8a/1.128b2a/8"),
        ("s8[99,99,1,1]{3,2,1,0:T(4,32,1,1)(8,1,1,1,1,4,1,1)}", "ABcd4a/1.8b8a/4.4b"),
        ("s8[2,3,4]{2,1,0:T(*,2,2)(2,1,1,1)}", "(AB)C2(ab)/1.2c2(ab)/2"),
    ):
        desc = buffer_layout(f"xla:{text}")
        assert desc == memory_desc(desc.dims, desc.dtype, tag)


def test_the_example_of_its_page_on_tiled_layouts_holds() -> None:
    # tiled_layout.md: element (2, 3) of F32[3,5]{1,0:T(2,2)} lies at 17
    assert buffer_layout("xla:f32[3,5]{1,0:T(2,2)}").offset((2, 3)) == 17


def test_dims_are_joined_after_a_tile_that_divides_nothing() -> None:
    desc = parse_layout("xla:f32[3,4,5]{0,1,2:T(1)(*,1,1)}")
    assert desc == memory_desc((3, 4, 5), "f32", "c(ba)")


def test_suffixes_that_do_not_change_offsets_are_read() -> None:
    plain = memory_desc((3, 4), "f32", "ab")
    for text in [
        "f32[3,4]",
        "f32[3,4]{1,0}",
        " f32[3, 4]{1, 0:S(1)}",
        "f32[3,4]{1,0:D(D,D)}",
        "f32[3,4]{1,0:L(4)}",
        "f32[3,4]{1,0:E(32)M(0)}",
    ]:
        assert parse_layout(f"xla:{text}", (3, 4), "f32") == plain
