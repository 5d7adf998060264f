"""Every hint of memdesc works: the call that fails, its message, the call that follows."""

from typing import Any

import numpy as np

import memdesc
from memdesc.exchange import written as _written
from tests import hints
from tests.hints import ROOT

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
IMAGE = md.image_desc((1, 4, 3, 2), "f32", "in_out_channel")

ROWS = hints.rows("""
    desc((3, 4), "f32", "ab", strides=(4, 1))  # give a layout or strides, not both
        desc((3, 4), "f32", "ab")
        desc((3, 4), "f32", strides=(4, 1))
    desc((3, 4), "f32", (4, 1))  # strides are passed as strides=
        desc((3, 4), "f32", strides=(4, 1))
    desc((3, 4), "f32", "ab", offset0=2)  # go with strides=, not with a layout
        desc((3, 4), "f32", strides=(4, 1), offset0=2)
    md.array_desc(ODD)  # copy the array
        md.array_desc(ODD.copy())
    desc((2, 32), "f32", "q4_0")  # record_desc(dims,
        md.record.record_desc((2, 32), "q4_0")
    desc((32,), "f32", "(8,4):(1,8)")  # write one, such as cute:(8,4):(1,8)
        desc((32,), "f32", "cute:(8,4):(1,8)")
    md.parse_layout("Layout_K_SW128_Atom<half_t>", (8, 64))  # not 32 bits wide; give dtype
        md.parse_layout("Layout_K_SW128_Atom<half_t>", (8, 64), "f16")
    md.parse_layout("NVMMASharedLayout(128, 16)", (8, 64))  # and f32 has 32; give dtype
        md.parse_layout("NVMMASharedLayout(128, 16)", (8, 64), "f16")
    desc((8, 6), "f16").bank_conflicts(0, 8)  # ; give fewer bytes
        desc((8, 6), "f16").bank_conflicts(0, 4)
    desc((8, 8), "f16", "Sw<1,0,1> o (8,8):(8,1)").bank_conflicts(0, 4)  # ; give fewer than 4 bytes
        desc((8, 8), "f16", "Sw<1,0,1> o (8,8):(8,1)").bank_conflicts(0, 2)
    md.parse_layout("nhwc")  # ; give dims
        md.parse_layout("nhwc", (1, 2, 3, 4))
    md.parse_layout("nhwc", (1, 2, 3, 4), default=None)  # ; give dtype
        md.parse_layout("nhwc", (1, 2, 3, 4), "f16", default=None)
    setattr(D.layout, "dims", (1,))  # dataclasses.replace(value, dims=...)
        replace(D.layout, offset0=1)
    setattr(D.layout.blocks[0], "stride", 1)  # value._replace(stride=...)
        D.layout.blocks[0]._replace(stride=1)
    written(3, "cute")  # see memdesc.memory_desc
        written(D, "cute")
    written(IMAGE, "cute")  # its .desc is one
        written(IMAGE.desc, "cute")
    D.__setstate__(())  # make it again
        pickle.loads(pickle.dumps(D))
    desc((32, 4), "f32", "AB2a/1.16a/2.4b").inner_blks  # see .blocks
        desc((32, 4), "f32", "AB2a/1.16a/2.4b").blocks
    desc((8, 3), "f32", "A4ab").inner_blks  # see .blocks
        desc((8, 3), "f32", "A4ab").blocks
    setattr(D, "dims", (1,))  # make another with memory_desc()
        D.with_dtype("s8")
    D.show(beside=desc((6,), "f32", "a"))  # see permute_axes and reshape
        D.show(beside=desc((6,), "f32", "a").reshape((2, 3)))
    COMPENSATED.reshape((16,))  # see with_extra(None)
        COMPENSATED.with_extra(None).reshape((16,))
    md.data_type("f23")  # did you mean 'f32'
        md.data_type("f32")
    md.data_type("<i4")  # or pass np.dtype('<i4')
        md.data_type(np.dtype("<i4"))
    md.parse_layout("f16:bfyx:1x17x5x4:pad")  # give strides with the padded sizes
        desc((1, 17, 5, 4), "f16", strides=(480, 28, 5, 1))
    md.parse_layout("f16:bfyx:?x17x5x4")  # give the sizes of one run
        md.parse_layout("f16:bfyx:2x17x5x4")
    md.parse_layout("Sw<3,4,3> o smem_ptr[16b](unset) o (8,64):(64,1)")  # ; give dtype
        md.parse_layout("Sw<3,4,3> o smem_ptr[16b](unset) o (8,64):(64,1)", None, "f16")
    SWIZZLED.shifted(64)  # ; copy the buffer
        SWIZZLED.shifted(0)
    md.parse_layout("340x20x4x1")  # ; give dims
        md.parse_layout("340x20x4x1", (2, 17, 5, 4))
    COMPENSATED.to_notation("cute")  # see with_extra(None)
        COMPENSATED.with_extra(None).to_notation("cute")
    md.parse_layout("tvm:QZ", (2, 3))  # give letters, which are these
        md.parse_layout("tvm:QZ", (2, 3), letters="zq")
    COMPENSATED.with_dtype("f32")  # leave it out: with_extra(None)
        COMPENSATED.with_extra(None).with_dtype("f32")
    md.Extra(None)  # use None for no compensation
        desc((4, 4), "s8", "ab").with_extra(None)
    md.ImageDesc(D, 1, 1, 1, 3)  # see image_desc
        md.image_desc((1, 4, 3, 2), "f32", "in_out_channel")
    FUSED.strides  # see .blocks
        FUSED.blocks
    desc((1, 4, 3, 2), "f32", "winograd_2x3_s1_data")  # describe the plain tensor, such as 'bfyx'
        desc((1, 4, 3, 2), "f32", "bfyx")
    desc((1, 4, 3, 2), "f32", "winograd_2x3_s1_weights")
            # describe the plain filter, such as 'oiyx'
        desc((1, 4, 3, 2), "f32", "oiyx")
    desc((1, 4, 3, 2), "f16", "image_2d_rgba")  # use memdesc.image_desc(dims, dtype, name)
        md.image_desc((1, 4, 3, 2), "f16", "image_2d_rgba")
    desc((1, 4, 3, 2), "f16", "in_out_channel")  # use memdesc.image_desc(dims, dtype, name)
        md.image_desc((1, 4, 3, 2), "f16", "in_out_channel")
    desc((1, 2, 4), "f32", "lstm_weights_dio")  # give strides instead
        desc((1, 2, 4), "f32", strides=(8, 4, 1))
    desc((1, 2, 4), "f32", "custom")  # give its tag or strides
        desc((1, 2, 4), "f32", strides=(8, 4, 1))
    desc((1, 2, 4, 4), "f32", "kOICustomSpatialI4O4")  # give the tag of yours
        desc((1, 2, 4, 4), "f32", "ABcd4b4a")
    desc((1, 4, 3, 2), "f32", "nChw61d")  # did you mean 'nChw16c'
        desc((1, 4, 3, 2), "f32", "nChw16c")
    desc((8, 8), "f32", "gptq")  # give a data type of that width, such as u4
        desc((8, 8), "u4", "gptq")
    [f.desc for f in Q3.fields]  # see .layout, in elements of that width
        [f.layout for f in Q3.fields]
    md.record.RecordDesc((2,), "x", (), 3)  # see record_desc
        md.record.record_desc((2, 32), "q4_0")
    md.record.record_desc((128, 128), "fp8")  # use fp8_tensor, fp8_channel or fp8_block
        [md.record.record_desc((128, 128), f"fp8_{each}") for each in ("tensor", "channel",
            "block")]
    md.record.record_desc((4, 64), "mxfp4")  # use gguf_mxfp4
        [md.record.record_desc((4, 64), f"{each}_mxfp4") for each in ("gguf", "gpt_oss",
            "compressed", "modelopt", "ocp")]
    md.record.record_desc((4, 64), "nvfp4")  # use gguf_nvfp4
        [md.record.record_desc((4, 64), f"{each}_nvfp4") for each in ("gguf", "modelopt",
            "compressed")]
    md.record.record_desc((128, 128), "fp8_tensor", codes="u8")  # give codes=
        md.record.record_desc((128, 128), "fp8_tensor", codes="f8_e4m3")
    md.record.record_desc((128, 128), "fp8_tensor", scales="f64")
            # give scales=f32 if it holds them exactly
        md.record.record_desc((128, 128), "fp8_tensor", scales="f32")
    md.RuntimeDesc((2, 3), "f32", None)  # see runtime_desc
        md.runtime_desc((2, 3), "f32", "*")
    md.runtime_desc((2, 3), "f32", "*").resolve((2, 3))  # use memory_desc(dims, dtype, tag)
        desc((2, 3), "f32", "ab")
""")

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


MODULES = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "memdesc").rglob("*.py"))]


def test_every_hint_is_given_and_works() -> None:
    hints.check(ROWS, globals(), MODULES, _REASONS)
