"""Vocabularies of other systems, most of them a table."""

from __future__ import annotations

import re

from memdesc.errors import UnknownFormatError, UnsupportedFormatError, short_repr
from memdesc.names import cldnn, weights
from memdesc.names.images import REFUSED, is_image
from memdesc.names.vocabulary import Vocabulary, refuse, rows_of
from memdesc.tags import FormatTag

# MACE at 0fc55a54: host buffers; HWOI and HWIM are the orders used in 2018.
_MACE = """
NCHW nchw data abcd
NHWC nchw data acdb
OIHW oihw weights abcd
HWOI oihw weights cdab
MIHW mihw depthwise_weights abcd
HWIM mihw depthwise_weights cdba
W    w    vector a
"""


class _Mace(Vocabulary):
    def parse(self, name: str, bits: int) -> FormatTag:
        """Read the name of a host buffer."""
        refuse(name, REFUSED)
        if is_image(name):
            raise UnsupportedFormatError(
                f"{short_repr(name)} is an image type, not a linear buffer; "
                "use memdesc.image_desc(dims, dtype, name)"
            )
        if name in self.rows:
            return super().parse(name, bits)
        raise UnknownFormatError(
            f"{short_repr(name)}: not a host buffer; they are {', '.join(self.rows)}"
        )


# TensorRT 10, NvInferRuntimeBase.h, TensorFormat; formats of the DLA are those of Orin. A
# vector-major format (kCHW32) has blocks of channels innermost; a vector-minor one (kHWC8) has the
# channels innermost and pads their number. Each exists only for some types.
_TENSORRT = """
kLINEAR     nchw  data abcd
kCHW2       nchw  data 16:aBcd2b
kHWC8       nchw  data 16:acdb__b8
kCHW4       nchw  data 8,16:aBcd4b
kCHW16      nchw  data 8,16:aBcd16b
kCHW32      nchw  data aBcd32b
kDHWC8      ncdhw data 16:acdeb__b8
kCDHW32     ncdhw data 8,16:aBcde32b
kHWC        nchw  data 8,32:acdb
kDLA_LINEAR nchw  data 8:abcd__d64 16:abcd__d32
kDLA_HWC4   nchw  data 8:acdb__b4__d16 16:acdb__b4__d8
kHWC16      nchw  data 8,16:acdb__b16
kDHWC       ncdhw data 32:acdeb
"""
_TENSORRT_START = r".*\bTensorFormat(::|\.)|k?(C?DHW|CHW|D?HWC)[0-9]|k(LINEAR|D?HWC|DLA)"
# the scope of a name in C++, and in Python, where names do not begin with k
_CPP_SCOPE, _PYTHON_SCOPE = r"^(nvinfer1::)?TensorFormat::", r"^((tensorrt|trt)\.)?TensorFormat\.k?"
_COLOURS = (3, 4)


class _TensorRT(Vocabulary):
    def bare(self, name: str) -> str:
        """Return a name as C++ has it, without its scope."""
        return re.sub(_PYTHON_SCOPE, "k", re.sub(_CPP_SCOPE, "", name))

    def key(self, name: str) -> str:
        """Return the name that C++ has. Letters alone, such as HWC, are a layout of TVM."""
        return name if name.isalpha() or name in self.rows else f"k{name}"

    def check_dims(self, name: str, dims: tuple[int, ...], tag: FormatTag) -> None:
        """Refuse DLA images with one channel, whose pixels have a single lane."""
        super().check_dims(name, dims, tag)
        if self.key(self.bare(name)) == "kDLA_HWC4" and dims[1] not in _COLOURS:
            raise UnsupportedFormatError(
                f"{name!r} with C = {dims[1]}: only 3 or 4 channels have this layout; an image "
                "of one channel is 'acdb__d32' of 16 bits, 'acdb__d64' of 8 bits"
            )


# Arm Compute Library, arm_gemm.hpp, WeightFormat. OHWIo<A>i<B> has blocks of A output channels
# around blocks of B input channels; names that end with _bf16 are for bf16 elements.
_ACL = """
OHWI                        oihw weights acdb
OHWIo{2,4,8,16,32,64,128}   oihw weights Acdb{}a
OHWIo{4,8,16,32,64}i2       oihw weights AcdB{}a2b
OHWIo{4,8,16,32,64}i2_bf16  oihw weights 16:AcdB{}a2b
OHWIo{4,8,16,32,64}i4       oihw weights AcdB{}a4b
OHWIo{4,8,16,32,64}i4_bf16  oihw weights 16:AcdB{}a4b
OHWIo{2,4,8,16,32,64}i8     oihw weights AcdB{}a8b
"""

# graphengine of Ascend 910, formats/format_transfers, and GetCubeSizeByDataType: C0 is 32 for
# 8-bit elements, and 16 for wider ones.
_ASCEND = """
NC1HWC0      nchw  data    8:aBcd32b     16,32,64:aBcd16b
NDC1HWC0     ncdhw data    8:acBde32b    16,32,64:acBde16b
FRACTAL_Z    oihw  weights 8:BcdA16a32b  16,32,64:BcdA16a16b
FRACTAL_Z_3D oidhw weights 8:cBdeA16a32b 16,32,64:cBdeA16a16b
FRACTAL_NZ   mn    matrix  8:BA16a32b    16,32,64:BA16a16b
FRACTAL_ZZ   mn    matrix  8:AB32a32b    16,32,64:AB16a16b
"""
_DIAGONAL = (
    "it puts each channel on the diagonal of a block of Co by C0, which is mostly zeros; "
    "describe the plain weights"
)

# ncnn, mat.cpp, Mat::create: elempack channels are interleaved, and each plane of them starts at a
# multiple of 16 bytes (cstep). ncnn only packs whole blocks of channels.
_NCNN = """
elempack1  chw data 8:a(bc)__(bc)16  16:a(bc)__(bc)8   32:a(bc)__(bc)4
elempack4  chw data 8:A(bc)4a__(bc)4 16:A(bc)4a__(bc)2 32:Abc4a
elempack8  chw data 8:A(bc)8a__(bc)2 16,32:Abc8a
elempack16 chw data 8,16,32:Abc16a
"""

# MNN at 4d40bdbd, Tensor::CAFFE_C4, MNN_DATA_FORMAT_NC4HW4 and OpenCLRunningUtils.cpp. Backends
# that pack 8 or 16 channels use the first name too; here it has its meaning in files and
# interfaces. In buffers of OpenCL, MNN means C4NHW4 by it: channels are sliced outside the
# batch.
_MNN = """
NC4HW4 nchw data aBcd4b
C4NHW4 nchw data Bacd4b
"""

# TensorFlow, lite/delegates/gpu/common/task, tensor_desc.cc and weights_conversion.h: the storage
# types of its GPU delegate (ML Drift), with slices of four channels; weights in blocks of four
# outputs and four inputs, in groups of as many output slices as the name ends with. k2DX has four
# textures, one for each input channel of a slice (I4Y) or each output channel (O4Y).
_TFLITE_GPU = """
TensorStorageType::BUFFER        bhwc data Dbca4d
TensorStorageType::IMAGE_BUFFER  bhwc data Dbca4d
TensorStorageType::TEXTURE_2D    bhwc data bDca4d
TensorStorageType::TEXTURE_3D    bhwc data Dbca4d
TensorStorageType::TEXTURE_ARRAY bhwc data Dbca4d
kOSpatialIOGroupI4O4_1        ohwi weights AbcD4d4a
kOSpatialIOGroupI4O4_{2,4,8}  ohwi weights AbcD{}a4d4a
kOSpatialIOGroupO4I4_1        ohwi weights AbcD4a4d
kOSpatialIOGroupO4I4_2        ohwi weights AbcD8a4d
kOSpatialIOGroupO4I4_4        ohwi weights AbcD16a4d
kOSpatialIOGroupO4I4_8        ohwi weights AbcD32a4d
k2DX4I4YIsSpatialIAndXIsOOGroupO4_1 ohwi weights 4d/1bcDA4a
k2DX4I4YIsSpatialIAndXIsOOGroupO4_2 ohwi weights 4d/1bcDA4a__a8
k2DX4I4YIsSpatialIAndXIsOOGroupO4_4 ohwi weights 4d/1bcDA4a__a16
k2DX4I4YIsSpatialIAndXIsOOGroupO4_8 ohwi weights 4d/1bcDA4a__a32
k2DX4O4YIsSpatialIAndXIsOOGroupI4_1 ohwi weights 4a/1bcDA4d
k2DX4O4YIsSpatialIAndXIsOOGroupI4_2 ohwi weights 4a/1bcDA4d__a8
k2DX4O4YIsSpatialIAndXIsOOGroupI4_4 ohwi weights 4a/1bcDA4d__a16
k2DX4O4YIsSpatialIAndXIsOOGroupI4_8 ohwi weights 4a/1bcDA4d__a32
"""
_CUSTOM = "it takes the order of filter taps from data (spatial_remap); give the tag of yours"

# ExecuTorch at cff6f4dd, backends/vulkan/runtime, StorageUtils.h, pack_q8_conv2d_weights.glsl and
# pack_q8_linear_weight.glsl: packings of int8 in buffers; its textures are in `images`.
_EXECUTORCH = """
PACKED_INT8_4W4C            nchw data    8:acDB4d4b
PACKED_INT8_4H4W            nchw data    8:abCD4c4d
PACKED_INT8_4W              nchw data    8:abcd__d4
PACKED_INT8_4C              nchw data    8:acdb__b4
PACKED_INT8_4C1W            nchw data    8:acBd4b
executorch_q8_conv2d_weight ohwi weights 8:bDAc4a4d
executorch_q8_linear_weight nk   weights 8:BA4a4b
"""

# Orders of paged KV caches. The logical dims are always layer, block (page), K and V, head, token
# in the block, channel, without those that the tensor of a name does not have. Orders that fuse K
# and V into the channels have one dim for both. A page table is data, not part of a layout.
#
# vLLM at 14f7a27, v1/kv_cache_layout.py, and csrc/attention/attention_kernels.cuh for the keys of
# PagedAttention, whose channels are in vectors of 16 bytes; FlashInfer 0.7.2, paged kv_layout of K
# or V alone; LMCache 0.5.6, v1/gpu_connector/kv_format/specs, where the part of a name before the
# last X counts the tensors, and the rest spells the order in one of them.
_KV_CACHE = """
LBHNC lbhnc kv_cache abcde
LBNHC lbhnc kv_cache abdce
LHBNC lbhnc kv_cache acbde
BLHNC lbhnc kv_cache bacde
BLNHC lbhnc kv_cache badce
BHLNC lbhnc kv_cache bcade
vllm_paged_k             bhnC   kv_cache 8:abDc16d 16:abDc8d 32:abDc4d
vllm_paged_v             bhnc   kv_cache abdc
NHD                      bhnc   kv_cache acbd
HND                      bhnc   kv_cache abcd
NB_NL_TWO_BS_NH_HS       lbthnc kv_cache bacedf
NB_NL_TWO_NH_BS_HS       lbthnc kv_cache bacdef
NL_X_NB_TWO_BS_NH_HS     bthnc  kv_cache abdce
NL_X_NB_TWO_NH_BS_HS     bthnc  kv_cache abcde
NL_X_TWO_NB_BS_NH_HS     bthnc  kv_cache badce
NL_X_TWO_NB_NH_BS_HS     bthnc  kv_cache bacde
NL_X_TWO_NB_NH_ONE_BS_HS bthnc  kv_cache bacde
NL_X_NB_BS_NH_TWO_HS     bthnc  kv_cache adcbe
NL_X_NB_NH_BS_TWO_HS     bthnc  kv_cache acdbe
NL_X_NB_BS_NH_CS         bhnc   kv_cache acbd
NL_X_NB_NH_BS_CS         bhnc   kv_cache abcd
NL_X_NB_BS_NH_HS         bhnc   kv_cache acbd
NL_X_TWO_X_NB_BS_NH_HS   bhnc   kv_cache acbd
TWO_X_NL_X_NB_BS_NH_HS   bhnc   kv_cache acbd
NL_X_NB_BS_HS            bnc    kv_cache abc
NL_X_NBBS_ONE_HS         bnc    kv_cache abc
NL_X_NP_X_NB_BS_ONE_HS   bnc    kv_cache abc
TWO_X_NL_X_NBBS_NH_HS    bhnc   kv_cache acbd
"""
_APART = (
    "it holds in each block the codes of all tokens, then their f32 scales; describe both "
    "separately, the scales with an offset0"
)

# in the order in which they are asked for a name
VOCABULARIES = (
    cldnn.VOCABULARY,
    _Mace("mace", "host buffer of MACE", rows_of(_MACE), "[A-Z]+$"),
    weights.VOCABULARY,
    _TensorRT("tensorrt", "format of TensorRT", rows_of(_TENSORRT), _TENSORRT_START),
    Vocabulary("acl", "weight format of the Arm Compute Library", rows_of(_ACL), "OHWI"),
    Vocabulary(
        "ascend",
        "format of Ascend",
        rows_of(_ASCEND),
        "NC1|NDC1|C1|FRACTAL_",
        {"C1HWNCoC0": _DIAGONAL},
    ),
    Vocabulary("ncnn", "packing of ncnn", rows_of(_NCNN), "elempack"),
    Vocabulary("mnn", "format of MNN", rows_of(_MNN), "NC4|C4N"),
    Vocabulary(
        "tflite_gpu",
        "layout of TFLite's GPU delegate",
        rows_of(_TFLITE_GPU),
        "TensorStorageType::|kOSpatial|kOICustom|k2DX",
        dict.fromkeys(("kOICustomSpatialI4O4", "kOICustomSpatialO4I4"), _CUSTOM),
    ),
    Vocabulary(
        "executorch",
        "packing of ExecuTorch",
        rows_of(_EXECUTORCH),
        "PACKED_INT8|TENSOR_|executorch_q8",
        {name: why for name, why in REFUSED.items() if name.startswith(("PACKED", "TENSOR"))},
    ),
    Vocabulary(
        "kvcache",
        "order of KV caches",
        rows_of(_KV_CACHE),
        "NL_|NB_|TWO_X|vllm_paged",
        {"NL_X_NB_BSV_BSS": _APART},
        dims={
            "l": "layers",
            "b": "blocks",
            "t": "K and V",
            "h": "heads",
            "n": "tokens",
            "c": "channels",
        },
    ),
)
