"""What each system refuses to read or to write, and the reason that it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from memdesc import Extra, UnknownFormatError, memory_desc, parse_layout

if TYPE_CHECKING:
    from memdesc import MemoryDesc

# for notations that do not contain the sizes
_DIMS = {"mlir": (2, 3), "tvm": (2, 3), "pytorch": (2, 3)}
_PACK = "outer_dims_perm = [0, 1, 2, 3] inner_dims_pos = [1] inner_tiles = [16]"
# digits of two dims, the lowest first, so that each needs a tile of its own
_SWIZZLED = "".join(f"2b/{2**k}.2a/{2**k}." for k in range(9)).rstrip(".")

# strings that are not in a system's notation, with the rule that they break
_MISREAD: dict[str, list[tuple[str, str]]] = {
    "cute": [
        ("(2,3)", "it is shape:stride"),
        ("(2,3):(1,2,3)", "nested differently"),
        ("(2,(3,4)):(1,2)", "nested differently"),
        ("(2,0):(1,2)", "extent 0 with stride 2 is out of range"),
        ("(2,3):(1,9999999999999999999)", "is out of range"),
        ("(2,x):(1,2)", "found 'x\\)'"),
        ("(2,,3):(1,2)", "a comma must follow a number"),
        ("(2 3):(1,2)", "a comma is missing"),
        ("(2):(1", "each one number or one tuple"),
        ("2):(1", "does not close a tuple"),
        (f"{'(' * 70}2{')' * 70}:1", "nested too deeply"),
    ],
    "xla": [
        ("(f32[3], f32[4])", "one array shape"),
        ("f32[3,x]", "expected integers and commas, found '3,x'"),
        ("f32[3,4]{}", "must list dims 0 to 1 once each"),
        ("f32[3,4]{1,0:T(2,*)}", "sizes of 1 or more"),
        ("f32[3,4]{1,0:T(0,2)}", "sizes of 1 or more"),
        ("f32[3,4]{1,0:Q(2)}", "expected a suffix, found 'Q"),
        ("f32[3,4]{1,0:S(2)(3)}", "suffix S has several values"),
        ("f32[3,4]{1,0:S(2,3)}", "expected one integer"),
    ],
    "mlir": [
        ("tensor<2x3xf32>", "it is affine_map"),
        ("outer_dims_perm = [0, 1]", "must be given together"),
        (f"{_PACK} {_PACK}", "outer_dims_perm twice"),
        ("inner_dims_pos = [0] inner_tiles = [?]", "inner_tiles must be integers, not '\\?'"),
        ("inner_dims_pos = [0] inner_tiles = [0]", "a tile of 1 or more"),
        ("inner_dims_pos = [2] inner_tiles = [2]", "dims of 0 to 1"),
        ("inner_dims_pos = [1] inner_tiles = [2, 2]", "with a tile of 1 or more for each"),
        ("outer_dims_perm = [0] inner_dims_pos = [1] inner_tiles = [2]", "not the dims 0 to 1"),
        ("inner_dims_pos = [1] inner_tiles = [2] : tensor<2x3xf32>", "two types"),
        (
            "inner_dims_pos = [1] inner_tiles = [2] : tensor<2x3xf32> -> tensor<2x1x2xf32>",
            "must be tensor<2x2x2xf32>",
        ),
        (
            "inner_dims_pos = [1] inner_tiles = [2] : tensor<2x3xf32, #e> -> tensor<2x1x2xf32>",
            "not a shape and type",
        ),
        ("affine_map<(d0) -> (d0)>", "it maps 1 indices"),
        ("affine_map<(d0, d1) -> (d0 ceildiv 2)>", "not a Python expression"),
        ("memref<2x3xf32, strided<[3, x]>>", "is not a list of integers"),
        ("memref<2x3xf32, strided<[3, 1], offset: 1-1>>", "the offset '1-1' is not an integer"),
    ],
    "tvm": [
        ("NCHWc", "it is NCHW16c, or"),
        ("NCHW 16c", "it is NCHW16c, or"),
        (
            "OHWI16i64o2i",
            "2i is not the first block of one of its dims; a string of TVM has at most one block",
        ),
        ("NCHW4d", "4d is not the first block"),
        ("NCHW0c", "each once"),
        ("lambda a, b", "not a Python expression"),
        ("lambda a, b: a", "an index map is lambda"),
        ("lambda a, b, c: [a, b, c]", "it maps 3 indices"),
        ("lambda n, c: [" + "n+" * 950 + "c]", "nested too deeply|not a Python expression"),
    ],
    "pytorch": [
        ("torch.channels_last", "for 4 dims, not 2"),
        ("torch.blocked", "it is one of torch.contiguous_format"),
        ("stride=(3", "not a Python expression"),
        ("size=(2, 3), width=3", "each at most once, and not width"),
        ("size=(2, s0)", "'\\(2, s0\\)' is not a list of integers"),
        ("size=(2, 3), stride=(1, 2.0)", "is not a list of integers"),
        ("size=(2, 4)", "not the given \\(2, 3\\)"),
        ("dim_order=(0, 0)", "every dim of 0 to 1 once"),
        ("dim_order=(0, 1), stride=(3, 1)", "without strides"),
        (
            "FlexibleLayout('cpu', torch.float32, size=[2, 3], stride=[3, 1])",
            "a layout with known strides is",
        ),
        ("FixedLayout('cpu', size=[2, 3], stride=[3, 1])", "a layout with known strides is"),
    ],
    "openvino": [
        ("f16:bfyx", "it is type, format and dims"),
        ("x7:bfyx:1x3x4x4", "unknown data type 'x7'"),
        ("f16:nofmt:1x3x4x4", "unknown format 'nofmt'"),
    ],
}
# strings of layouts that no descriptor can describe
_INDESCRIBABLE: dict[str, list[tuple[str, str]]] = {
    "cute": [
        ("(8,8):(8,1) o (4,4):(4,1)", "a composition"),
        ("(8,8):(1@0,1@1)", "coordinates"),
    ],
    "xla": [
        ("f32[3,4]{1,0:L(8)}", "L\\(8\\) pads the whole buffer of 12 elements"),
        ("f32[3,4]{1,0:M(64)}", "64 bytes of metadata"),
        ("f32[3,4]{1,0:D(D,C)}", "sparse"),
        ("f32[3,4]{1,0:#(u32)}", "an index type"),
        ("f32[3,4]{1,0:*(u32)}", "a pointer type"),
        ("f32[3,4]{1,0:P(f32[3,4]{1,0})}", "a physical shape"),
        ("f32[3,4]{1,0:SC(1:20)}", "a split configuration"),
        ("s4[3,4]{1,0}", "4 bits are stored in 8 bits each; packed ones have E\\(4\\)"),
        ("f32[3,4]{1,0:E(64)}", "32 bits are stored in 64 bits"),
        ("c64[3,4]{1,0}", "has the type 'c64'"),
        ("f32[]", "a scalar has no dims"),
        ("f32[<=3,4]{1,0}", "dynamic dims"),
        ("f32[100]{0:T(8,128)}", "add dims of size 1 in front until it has 2"),
        ("f32[64,64]{1,0:T(8,8)(3,1)}", "a tile of 3 pads the inside of another, of extent 8 in a"),
        ("f32[4,64,64]{2,1,0:T(8,8)(*,8)}", "\\* joins dims that are already tiled"),
    ],
    "mlir": [
        ("memref<2x3xf32, strided<[?, 1]>>", "numbers given as '\\?' are not known"),
        ("memref<2x3xi1>", "has the type 'i1'"),
        ("affine_map<(d0, d1) -> ((d0, d1))>", "is not a digit"),
        ("affine_map<(d0, d1) -> (d0] + [d1)>", "must divide each dim"),
        ("affine_map<(d0, d1) -> (d0 + d1)>", "d0 \\+ d1 is not a digit"),
    ],
    "tvm": [
        ("lambda a, b: [a, b // 4]", "must divide each dim into digits"),
        ("lambda a, b: [a, b // 2 % 3 % 2, b % 2]", "b // 2 % 3 % 2 is not a digit"),
        ("lambda a, b: [a, b // 0]", "b // 0 is not a digit"),
        ("lambda a, b: [a, c]", "c is not a digit"),
        ("lambda a, b: [a, b * 4 + a]", "b \\* 4 \\+ a is not a digit"),
        ("lambda a, b: [a * 4.0 + b]", "a \\* 4.0 is not a digit"),
        ("lambda a, b: [(a + b) * 4]", "\\(a \\+ b\\) \\* 4 is not a digit"),
        ("lambda a, b: [a, IndexMap.AXIS_SEPARATOR, b]", "an axis separator"),
    ],
    "pytorch": [
        ("torch.preserve_format", "the layout of some other tensor"),
        (
            "FixedLayout('cpu', torch.complex64, size=[2], stride=[1])",
            r"the type 'torch\.complex64'",
        ),
    ],
    "openvino": [
        ("f16:bfyx:1x3x4x4:pad", "says that dims are padded"),
        ("f16:bfyx:?x3x4x4:nopad", "has dynamic dims"),
    ],
}
# layouts that a system cannot express
_INEXPRESSIBLE: dict[str, list[tuple[MemoryDesc, str]]] = {
    "cute": [
        (memory_desc((3, 4), "f32", strides=(4, 1), offset0=2), "offset 0, not 2"),
        (memory_desc((1, 3, 5, 5), "f32", "bf8_xy16"), "fused into one index"),
        (memory_desc((3, 0), "f32", "ab"), "extents are at least 1"),
        (memory_desc((16, 2), "f32", "Ab8a").submemory((4, 2), (0, 0)), "ends inside a block"),
        (memory_desc((2, 3, 1), "s8", "abc").with_extra(Extra(s8s8_mask=1)), "compensation"),
    ],
    "xla": [
        (memory_desc((4, 4), "f32", "AB" + _SWIZZLED), "need tiles of more than 256 dims"),
        (memory_desc((3, 4), "f32", "ab__b8"), "b \\(dim 1\\) is aligned to 8"),
        (memory_desc((3, 4), "f32", "A2ab"), "b \\(dim 1\\) is inside the blocks"),
        (memory_desc((3, 4), "f32", "b2aA"), "is outside its whole blocks"),
        (memory_desc((3, 4), "f32", strides=(5, 1)), "leave gaps"),
        (memory_desc((3, 4), "f32", strides=(4, 1), offset0=1), "offset0 is 1"),
    ],
    "mlir": [
        (memory_desc((2, 17), "f32", "ab__b8"), "b \\(dim 1\\) is aligned to 24"),
        (memory_desc((16, 2), "f32", "Ab8a").submemory((4, 2), (0, 0)), "leave gaps"),
        (memory_desc((2, 17), "boolean", strides=(20, 1)), "leave gaps"),
    ],
    "tvm": [
        (memory_desc((2, 17), "f32", "ab__b8"), "b \\(dim 1\\) is aligned to 24"),
        (memory_desc((2, 17), "f32", strides=(20, 1)), "leave gaps"),
    ],
    "pytorch": [
        (memory_desc((2, 17), "f32", "aB8b"), "b \\(dim 1\\) is blocked, by 8, and"),
        (memory_desc((2, 17), "f32", "ab__b8"), "b \\(dim 1\\) of size 17 is padded to 24"),
        (memory_desc((2, 17), "f32", "(ab)"), "dims a \\(dim 0\\), b \\(dim 1\\) are fused"),
        (memory_desc((2, 17), "s4", "ab"), "no tensors of s4 with two elements in a byte"),
        (memory_desc((2, 17), "f32", strides=(17, -1), offset0=16), "must not be negative"),
    ],
    "openvino": [(memory_desc((2, 3), "f32", "Ab3a"), "its GPU plugin has no format")],
    "cldnn": [(memory_desc((2, 3), "f32", "Ab3a"), "it has no name for Ab3a of f32")],
    "onednn": [(memory_desc((2, 3), "f32", strides=(4, 1)), "these strides leave gaps")],
    "memdesc": [(memory_desc((2, 3), "f32", strides=(3, 1), offset0=2), "offset0 is 2")],
}


def _rows(table: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(system, *row) for system, rows in table.items() for row in rows]


@pytest.mark.parametrize(("system", "text", "reason"), _rows(_MISREAD))
def test_a_string_that_is_not_in_the_notation_is_refused(
    system: str, text: str, reason: str
) -> None:
    with pytest.raises(UnknownFormatError, match=reason):
        parse_layout(f"{system}:{text}", _DIMS.get(system))
