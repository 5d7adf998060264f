import pytest

from memdesc import memory_desc, parse_layout
from memdesc.dtypes import DATA_TYPES
from memdesc.exchange import written

_DIMS = (2, 17, 5, 4)
_BLOCKED = memory_desc(_DIMS, "f32", "aBcd16b")
_PACK = "outer_dims_perm = [0, 1, 2, 3] inner_dims_pos = [1] inner_tiles = [16]"


def test_a_blocked_layout_is_attributes_an_operation_and_a_map() -> None:
    texts = written(_BLOCKED, "mlir")
    types = "tensor<2x17x5x4xf32> -> tensor<2x2x5x4x16xf32>"
    assert texts == (
        _PACK,
        f"%packed = linalg.pack %source padding_value(%zero : f32) {_PACK} into %dest : {types}",
        "affine_map<(d0, d1, d2, d3) -> (d0, d1 floordiv 16, d2, d3, d1 mod 16)>",
    )
    for text in texts:
        assert parse_layout(f"mlir:{text}", _DIMS, "f32") == _BLOCKED
    assert parse_layout(f"mlir:{texts[1]}") == _BLOCKED


def test_the_tag_of_attributes_is_that_of_the_same_order() -> None:
    text = "outer_dims_perm = [1, 0] inner_dims_pos = [1, 0] inner_tiles = [2, 8]"
    assert parse_layout(f"mlir:{text}", (9, 5)) == memory_desc((9, 5), "f32", "BA2b8a")
    # tiles of 1 divide nothing, and all outer dims in order need no permutation
    text = "inner_dims_pos = array<i64: 1, 0>, inner_tiles = array<i64: 1, 4>"
    assert parse_layout(f"mlir:{text}", (9, 5)) == memory_desc((9, 5), "f32", "Ab4a")
    text = "outer_dims_perm = [1, 0] inner_dims_pos = array<i64> inner_tiles = []"
    assert parse_layout(f"mlir:{text}", (9, 5)) == memory_desc((9, 5), "f32", "ba")


def test_unpack_describes_its_source() -> None:
    text = (
        f"%0 = linalg.unpack %src {_PACK} into %dst : "
        "tensor<2x2x5x4x16xf32> -> tensor<2x17x5x4xf32>"
    )
    assert parse_layout(f"mlir:{text}") == _BLOCKED


def test_strides_are_a_memref() -> None:
    desc = memory_desc((3, 4), "u8", strides=(-9, 2), offset0=20)
    text = "memref<3x4xui8, strided<[-9, 2], offset: 20>>"
    assert written(desc, "mlir") == (text,)
    assert parse_layout(f"mlir:{text}") == desc
    assert parse_layout("mlir:memref<3x4xsi8>") == memory_desc((3, 4), "s8", "ab")
    assert written(memory_desc((3, 4), "f16", "ab"), "mlir")[-1] == (
        "memref<3x4xf16, strided<[4, 1]>>"
    )


def test_more_than_one_block_of_a_dim_and_swizzles_are_maps() -> None:
    desc = memory_desc((33, 8), "f32", "AB4a/1.4b8a/4")
    digits = "floordiv 32, {1} floordiv 4, {0} mod 4, {1} mod 4, {0} floordiv 4 mod 8"
    text = f"affine_map<(d0, d1) -> (d0 {digits.format('d0', 'd1')})>"
    assert written(desc, "mlir") == (text,)
    printed = f"#map = affine_map<(x, y) -> (x {digits.format('x', 'y')})>"
    printed = printed.replace("x floordiv 4 mod", "(x floordiv 4) mod")
    for each in (text, printed):
        assert parse_layout(f"mlir:{each}", (33, 8)) == desc


@pytest.mark.parametrize("name", DATA_TYPES)
def test_every_data_type_but_booleans_has_a_name_there(name: str) -> None:
    desc = memory_desc((9, 5), name, "bA4a")
    texts = written(desc, "mlir")
    assert len(texts) == (2 if name == "boolean" else 3)
    for text in texts:
        assert parse_layout(f"mlir:{text}", (9, 5), name) == desc
