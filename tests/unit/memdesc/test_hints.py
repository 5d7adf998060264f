"""Every hint of memdesc works: the call that fails, its message, the call that follows."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import memdesc
from memdesc.exchange import written as _written
from tests import hints
from tests.hints import ROOT, Row

# not typed: most rows are mistakes that a type checker would find
md: Any = memdesc
written: Any = _written
desc = md.memory_desc

D = desc((2, 3), "f32", "ab")
COMPENSATED = desc((4, 4), "s8", "ab").with_extra(md.Extra(s8s8_mask=1))
FUSED = desc((2, 4), "f32", "(ab)")
SWIZZLED = desc((8, 64), "f16", "Sw<3,3,3> o 0 o (8,64):(64,1)").layout
Q3 = md.record.record_desc((2, 256), "q3_k")
ODD = np.zeros(5, np.dtype([("a", "u1"), ("b", "<f4")]))["b"]
PAIR = np.zeros(4, ml_dtypes.int4)
IMAGE = md.image_desc((1, 4, 3, 2), "f32", "in_out_channel")

ROWS = (
    Row(
        "give a layout or strides, not both",
        lambda: desc((3, 4), "f32", "ab", strides=(4, 1)),
        lambda: (desc((3, 4), "f32", "ab"), desc((3, 4), "f32", strides=(4, 1))),
    ),
    Row(
        "strides are passed as strides=",
        lambda: desc((3, 4), "f32", (4, 1)),
        lambda: desc((3, 4), "f32", strides=(4, 1)),
    ),
    Row(
        "go with strides=, not with a layout",
        lambda: desc((3, 4), "f32", "ab", offset0=2),
        lambda: desc((3, 4), "f32", strides=(4, 1), offset0=2),
    ),
    Row("copy the array", lambda: md.array_desc(ODD), lambda: md.array_desc(ODD.copy())),
    Row(
        "record_desc(dims, ",
        lambda: desc((2, 32), "f32", "q4_0"),
        lambda: md.record.record_desc((2, 32), "q4_0"),
    ),
    Row(
        "write one, such as cute:(8,4):(1,8)",
        lambda: desc((32,), "f32", "(8,4):(1,8)"),
        lambda: desc((32,), "f32", "cute:(8,4):(1,8)"),
    ),
    Row(
        "; give dtype",
        lambda: md.parse_layout("Sw<3,4,3> o smem_ptr[16b](unset) o (8,64):(64,1)"),
        lambda: md.parse_layout("Sw<3,4,3> o smem_ptr[16b](unset) o (8,64):(64,1)", None, "f16"),
    ),
    Row(
        "not 32 bits wide; give dtype",
        lambda: md.parse_layout("Layout_K_SW128_Atom<half_t>", (8, 64)),
        lambda: md.parse_layout("Layout_K_SW128_Atom<half_t>", (8, 64), "f16"),
    ),
    Row(
        "and f32 has 32; give dtype",
        lambda: md.parse_layout("NVMMASharedLayout(128, 16)", (8, 64)),
        lambda: md.parse_layout("NVMMASharedLayout(128, 16)", (8, 64), "f16"),
    ),
    Row(
        "; give fewer bytes",
        lambda: desc((8, 6), "f16").bank_conflicts(0, 8),
        lambda: desc((8, 6), "f16").bank_conflicts(0, 4),
    ),
    Row(
        "; give fewer than 4 bytes",
        lambda: desc((8, 8), "f16", "Sw<1,0,1> o (8,8):(8,1)").bank_conflicts(0, 4),
        lambda: desc((8, 8), "f16", "Sw<1,0,1> o (8,8):(8,1)").bank_conflicts(0, 2),
    ),
    Row(
        "; copy the buffer",
        lambda: SWIZZLED.shifted(64),
        lambda: SWIZZLED.shifted(0),
    ),
    Row(
        "; give dims",
        lambda: md.parse_layout("nhwc"),
        lambda: md.parse_layout("nhwc", (1, 2, 3, 4)),
    ),
    Row(
        "; give dtype",
        lambda: md.parse_layout("nhwc", (1, 2, 3, 4), default=None),
        lambda: md.parse_layout("nhwc", (1, 2, 3, 4), "f16", default=None),
    ),
    Row(
        "dataclasses.replace(value, dims=...)",
        lambda: setattr(D.layout, "dims", (1,)),
        lambda: replace(D.layout, offset0=1),
    ),
    Row(
        "value._replace(stride=...)",
        lambda: setattr(D.layout.blocks[0], "stride", 1),
        lambda: D.layout.blocks[0]._replace(stride=1),
    ),
    Row(
        "see memdesc.memory_desc",
        lambda: written(3, "cute"),
        lambda: written(D, "cute"),
    ),
    Row(
        "its .desc is one",
        lambda: written(IMAGE, "cute"),
        lambda: written(IMAGE.desc, "cute"),
    ),
    Row("make it again", lambda: D.__setstate__(()), lambda: pickle.loads(pickle.dumps(D))),
    Row(
        "see .blocks",
        lambda: desc((32, 4), "f32", "AB2a/1.16a/2.4b").inner_blks,
        lambda: desc((32, 4), "f32", "AB2a/1.16a/2.4b").blocks,
    ),
    Row(
        "see .blocks",
        lambda: desc((8, 3), "f32", "A4ab").inner_blks,
        lambda: desc((8, 3), "f32", "A4ab").blocks,
    ),
    Row(
        "make another with memory_desc()",
        lambda: setattr(D, "dims", (1,)),
        lambda: D.with_dtype("s8"),
    ),
    Row(
        "see permute_axes and reshape",
        lambda: D.show(beside=desc((6,), "f32", "a")),
        lambda: D.show(beside=desc((6,), "f32", "a").reshape((2, 3))),
    ),
    Row(
        "see with_extra(None)",
        lambda: COMPENSATED.reshape((16,)),
        lambda: COMPENSATED.with_extra(None).reshape((16,)),
    ),
    Row("did you mean 'f32'", lambda: md.data_type("f23"), lambda: md.data_type("f32")),
    Row(
        "or pass np.dtype('<i4')",
        lambda: md.data_type("<i4"),
        lambda: md.data_type(np.dtype("<i4")),
    ),
    Row(
        "give strides with the padded sizes",
        lambda: md.parse_layout("f16:bfyx:1x17x5x4:pad"),
        lambda: desc((1, 17, 5, 4), "f16", strides=(480, 28, 5, 1)),
    ),
    Row(
        "give the sizes of one run",
        lambda: md.parse_layout("f16:bfyx:?x17x5x4"),
        lambda: md.parse_layout("f16:bfyx:2x17x5x4"),
    ),
    Row(
        "; give dtype",
        lambda: md.parse_layout("Sw<3,4,3> o smem_ptr[16b](unset) o (8,64):(64,1)"),
        lambda: md.parse_layout("Sw<3,4,3> o smem_ptr[16b](unset) o (8,64):(64,1)", None, "f16"),
    ),
    Row(
        "; copy the buffer",
        lambda: SWIZZLED.shifted(64),
        lambda: SWIZZLED.shifted(0),
    ),
    Row(
        "; give dims",
        lambda: md.parse_layout("340x20x4x1"),
        lambda: md.parse_layout("340x20x4x1", (2, 17, 5, 4)),
    ),
    Row(
        "see with_extra(None)",
        lambda: COMPENSATED.to_notation("cute"),
        lambda: COMPENSATED.with_extra(None).to_notation("cute"),
    ),
    Row(
        "give letters, which are these",
        lambda: md.parse_layout("tvm:QZ", (2, 3)),
        lambda: md.parse_layout("tvm:QZ", (2, 3), letters="zq"),
    ),
    Row(
        "leave it out: with_extra(None)",
        lambda: COMPENSATED.with_dtype("f32"),
        lambda: COMPENSATED.with_extra(None).with_dtype("f32"),
    ),
    Row(
        "use None for no compensation",
        lambda: md.Extra(None),
        lambda: desc((4, 4), "s8", "ab").with_extra(None),
    ),
    Row(
        "see image_desc",
        lambda: md.ImageDesc(D, 1, 1, 1, 3),
        lambda: md.image_desc((1, 4, 3, 2), "f32", "in_out_channel"),
    ),
    Row("or use a buffer of .desc", lambda: IMAGE.check_size(1, 1), lambda: IMAGE.desc.nbytes),
    Row("see .blocks", lambda: FUSED.strides, lambda: FUSED.blocks),
    Row(
        "describe the plain tensor, such as 'bfyx'",
        lambda: desc((1, 4, 3, 2), "f32", "winograd_2x3_s1_data"),
        lambda: desc((1, 4, 3, 2), "f32", "bfyx"),
    ),
    Row(
        "describe the plain filter, such as 'oiyx'",
        lambda: desc((1, 4, 3, 2), "f32", "winograd_2x3_s1_weights"),
        lambda: desc((1, 4, 3, 2), "f32", "oiyx"),
    ),
    Row(
        "use memdesc.image_desc(dims, dtype, name)",
        lambda: desc((1, 4, 3, 2), "f16", "image_2d_rgba"),
        lambda: md.image_desc((1, 4, 3, 2), "f16", "image_2d_rgba"),
    ),
    Row(
        "use memdesc.image_desc(dims, dtype, name)",
        lambda: desc((1, 4, 3, 2), "f16", "in_out_channel"),
        lambda: md.image_desc((1, 4, 3, 2), "f16", "in_out_channel"),
    ),
    Row(
        "give strides instead",
        lambda: desc((1, 2, 4), "f32", "lstm_weights_dio"),
        lambda: desc((1, 2, 4), "f32", strides=(8, 4, 1)),
    ),
    Row(
        "give its tag or strides",
        lambda: desc((1, 2, 4), "f32", "custom"),
        lambda: desc((1, 2, 4), "f32", strides=(8, 4, 1)),
    ),
    Row(
        "give the tag of yours",
        lambda: desc((1, 2, 4, 4), "f32", "kOICustomSpatialI4O4"),
        lambda: desc((1, 2, 4, 4), "f32", "ABcd4b4a"),
    ),
    Row(
        "did you mean 'nChw16c'",
        lambda: desc((1, 4, 3, 2), "f32", "nChw61d"),
        lambda: desc((1, 4, 3, 2), "f32", "nChw16c"),
    ),
    Row(
        "give a data type of that width, such as u4",
        lambda: desc((8, 8), "f32", "gptq"),
        lambda: desc((8, 8), "u4", "gptq"),
    ),
    Row(
        "see .layout, in elements of that width",
        lambda: [f.desc for f in Q3.fields],
        lambda: [f.layout for f in Q3.fields],
    ),
    Row(
        "see record_desc",
        lambda: md.record.RecordDesc((2,), "x", (), 3),
        lambda: md.record.record_desc((2, 32), "q4_0"),
    ),
    Row(
        "use fp8_tensor, fp8_channel or fp8_block",
        lambda: md.record.record_desc((128, 128), "fp8"),
        lambda: [
            md.record.record_desc((128, 128), f"fp8_{each}")
            for each in ("tensor", "channel", "block")
        ],
    ),
    Row(
        "use gguf_mxfp4",
        lambda: md.record.record_desc((4, 64), "mxfp4"),
        lambda: [
            md.record.record_desc((4, 64), f"{each}_mxfp4")
            for each in ("gguf", "gpt_oss", "compressed", "modelopt", "ocp")
        ],
    ),
    Row(
        "use gguf_nvfp4",
        lambda: md.record.record_desc((4, 64), "nvfp4"),
        lambda: [
            md.record.record_desc((4, 64), f"{each}_nvfp4")
            for each in ("gguf", "modelopt", "compressed")
        ],
    ),
    Row(
        "give codes=",
        lambda: md.record.record_desc((128, 128), "fp8_tensor", codes="u8"),
        lambda: md.record.record_desc((128, 128), "fp8_tensor", codes="f8_e4m3"),
    ),
    Row(
        "give scales=f32 if it holds them exactly",
        lambda: md.record.record_desc((128, 128), "fp8_tensor", scales="f64"),
        lambda: md.record.record_desc((128, 128), "fp8_tensor", scales="f32"),
    ),
    Row(
        "see runtime_desc",
        lambda: md.RuntimeDesc((2, 3), "f32", None),
        lambda: md.runtime_desc((2, 3), "f32", "*"),
    ),
    Row(
        "use memory_desc(dims, dtype, tag)",
        lambda: md.runtime_desc((2, 3), "f32", "*").resolve((2, 3)),
        lambda: desc((2, 3), "f32", "ab"),
    ),
)

# not hints
_REASONS = (
    "strides E<k> or 1@0",
    "these strides leave gaps",
    "padded to {} make",
    "G g G^T",
    "transformed filters",
    "give a step and some do not",
    "the blocks inside make",
    "several indices would write",
    "{}pass",
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.hint[:60])
def test_a_hint_is_given_and_works(row: Row) -> None:
    hints.check(row)


MODULES = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "memdesc").rglob("*.py"))]


def test_no_hint_is_without_a_row() -> None:
    assert hints.without_row(MODULES, map(hints.message, ROWS), _REASONS) == []
