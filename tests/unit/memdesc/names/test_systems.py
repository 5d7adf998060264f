"""Names of other systems, and orders of KV caches, against the formulas of their sources."""

import re

import numpy as np
import pytest

from memdesc import memory_desc
from memdesc.names import vocabularies

# A name, the type and the dims; then the indices of the array in memory, outermost first, in the
# letters of the logical dims. `w:8` says that the array has a multiple of 8 of them.
_FORMULAS = """
NCHW f32 2,3,4,5 n c h w
NHWC f32 2,3,4,5 n h w c
OIHW f32 2,3,4,5 o i h w
HWOI f32 2,3,4,5 h w o i
MIHW f32 2,3,4,5 m i h w
HWIM f32 2,3,4,5 h w i m
W f32 2 w
kLINEAR f32 2,35,3,5 n c h w
kCHW2 f16 2,35,3,5 n c//2 h w c%2
kCHW4 s8 2,35,3,5 n c//4 h w c%4
kCHW16 f16 2,35,3,5 n c//16 h w c%16
kCHW32 f32 2,35,3,5 n c//32 h w c%32
kCDHW32 s8 2,35,2,3,2 n c//32 d h w c%32
kHWC f32 2,35,3,5 n h w c
kDHWC f32 2,35,2,3,2 n d h w c
kHWC8 bf16 2,35,3,5 n h w c:8
kHWC16 f16 2,35,3,5 n h w c:16
kDHWC8 f16 2,35,2,3,2 n d h w c:8
kDLA_LINEAR f16 2,35,3,5 n c h w:32
kDLA_LINEAR s8 2,35,3,5 n c h w:64
kDLA_HWC4 f16 2,3,5,7 n h w:8 c:4
kDLA_HWC4 s8 2,4,5,17 n h w:16 c:4
OHWI f32 2,35,3,5 o h w i
OHWIo4 f32 2,35,3,5 o//4 h w i o%4:4
OHWIo8i4 s8 9,6,3,2 o//8 h w i//4 o%8 i%4
OHWIo16i2_bf16 bf16 17,3,2,2 o//16 h w i//2 o%16 i%2
OHWIo2i8 s8 5,9,2,2 o//2 h w i//8 o%2 i%8
NC1HWC0 f16 2,35,3,5 n c//16 h w c%16
NC1HWC0 s8 2,35,3,5 n c//32 h w c%32
NDC1HWC0 f32 2,35,2,3,2 n d c//16 h w c%16
FRACTAL_Z f16 17,35,2,3 i//16 h w o:16 i%16
FRACTAL_Z u8 17,35,2,3 i//32 h w o:16 i%32
FRACTAL_Z_3D f16 17,35,2,2,3 d i//16 h w o:16 i%16
FRACTAL_NZ f16 35,50 n//16 m:16 n%16
FRACTAL_NZ s8 35,50 n//32 m:16 n%32
FRACTAL_ZZ s8 35,50 m//32 n//32 m%32 n%32
elempack1 f32 3,3,5 c h*5+w:4
elempack1 s8 3,3,5 c h*5+w:16
elempack4 f32 8,3,5 c//4 h w c%4
elempack4 f16 8,3,5 c//4 h*5+w:2 c%4
elempack8 s8 8,3,5 c//8 h*5+w:2 c%8
elempack16 f32 16,3,5 c//16 h w c%16
NC4HW4 f32 2,35,3,5 n c//4 h w c%4
TensorStorageType::BUFFER f16 2,3,5,7 c//4 h w b c%4
TensorStorageType::IMAGE_BUFFER f32 2,3,5,7 c//4 h w b c%4
TensorStorageType::TEXTURE_ARRAY f16 2,3,5,7 c//4 h w b c%4
TensorStorageType::TEXTURE_2D f32 2,3,5,7 h c//4 w b c%4
kOSpatialIOGroupI4O4_1 f16 9,2,3,6 o//4 h w i//4 i%4 o%4
kOSpatialIOGroupI4O4_2 f16 9,2,3,6 o//8 h w i//4 o//4%2 i%4 o%4
kOSpatialIOGroupO4I4_2 f32 9,2,3,6 o//8 h w i//4 o//4%2 o%4 i%4
k2DX4I4YIsSpatialIAndXIsOOGroupO4_1 f16 9,2,3,6 i%4 h w i//4 o//4 o%4
k2DX4I4YIsSpatialIAndXIsOOGroupO4_4 f16 9,2,3,6 i%4 h w i//4 o//16 o//4%4:4 o%4
k2DX4O4YIsSpatialIAndXIsOOGroupI4_1 f16 9,2,3,6 o%4 h w i//4 o//4 i%4
C4NHW4 f16 2,6,5,7 c//4 n h w c%4
PACKED_INT8_4W4C s8 2,6,5,7 n h w//4 c//4 w%4 c%4
PACKED_INT8_4H4W s8 2,6,5,7 n c h//4 w//4 h%4 w%4
PACKED_INT8_4W s8 2,6,5,7 n c h w:4
PACKED_INT8_4C s8 2,6,5,7 n h w c:4
PACKED_INT8_4C1W s8 2,6,5,7 n h c//4 w c%4
executorch_q8_conv2d_weight s8 6,3,2,5 h i//4 o//4 w o%4 i%4
executorch_q8_linear_weight s8 6,10 k//4 n//4 n%4 k%4
LBHNC f32 3,5,4,6,16 l b h n c
LBNHC f32 3,5,4,6,16 l b n h c
LHBNC f32 3,5,4,6,16 l h b n c
BLHNC f32 3,5,4,6,16 b l h n c
BLNHC f32 3,5,4,6,16 b l n h c
BHLNC f32 3,5,4,6,16 b h l n c
vllm_paged_k u8 5,4,6,16 b h c//16 n c%16
vllm_paged_k f16 5,4,6,16 b h c//8 n c%8
vllm_paged_k f32 5,4,6,16 b h c//4 n c%4
vllm_paged_v f32 5,4,6,16 b h c n
NHD f32 5,4,6,16 b n h c
HND f32 5,4,6,16 b h n c
NB_NL_TWO_BS_NH_HS f32 3,5,2,4,6,16 b l t n h c
NB_NL_TWO_NH_BS_HS f32 3,5,2,4,6,16 b l t h n c
NL_X_NB_TWO_BS_NH_HS f32 5,2,4,6,16 b t n h c
NL_X_NB_TWO_NH_BS_HS f32 5,2,4,6,16 b t h n c
NL_X_TWO_NB_BS_NH_HS f32 5,2,4,6,16 t b n h c
NL_X_TWO_NB_NH_BS_HS f32 5,2,4,6,16 t b h n c
NL_X_TWO_NB_NH_ONE_BS_HS f32 5,2,4,6,16 t b h n c
NL_X_NB_BS_NH_TWO_HS f32 5,2,4,6,16 b n h t c
NL_X_NB_NH_BS_TWO_HS f32 5,2,4,6,16 b h n t c
NL_X_NB_BS_NH_CS f32 5,4,6,16 b n h c
NL_X_NB_NH_BS_CS f32 5,4,6,16 b h n c
NL_X_NB_BS_NH_HS f32 5,4,6,16 b n h c
NL_X_TWO_X_NB_BS_NH_HS f32 5,4,6,16 b n h c
TWO_X_NL_X_NB_BS_NH_HS f32 5,4,6,16 b n h c
NL_X_NB_BS_HS f32 5,6,16 b n c
NL_X_NBBS_ONE_HS f32 5,6,16 b n c
NL_X_NP_X_NB_BS_ONE_HS f32 5,6,16 b n c
TWO_X_NL_X_NBBS_NH_HS f32 5,4,6,16 b n h c
"""


@pytest.mark.parametrize("line", _FORMULAS.strip().splitlines())
def test_a_name_is_the_formula_of_its_source(line: str) -> None:
    name, dtype, sizes, *digits = line.split()
    desc = memory_desc(map(int, sizes.split(",")), dtype, name)
    along = dict(zip(desc.letters or "", np.indices(desc.dims), strict=True))
    wanted = np.zeros(desc.dims, np.int64)
    for digit in digits:
        text, _, multiple = digit.partition(":")
        index, whole = eval(text, along), int(multiple or 1)
        wanted = wanted * (-(-(index.max() + 1) // whole) * whole) + index
    assert np.array_equal(desc.layout.offsets(), wanted)
    assert name in [found.text for found in desc.names()]


def test_every_name_has_a_formula_or_differs_from_one_only_in_numbers() -> None:
    tested = {_without_numbers(line.split()[0]) for line in _FORMULAS.strip().splitlines()}
    for vocabulary in vocabularies():
        if vocabulary.name != "weights":  # packings have tests of their own
            assert {*map(_without_numbers, vocabulary.rows)} <= tested, vocabulary.name


def _without_numbers(name: str) -> str:
    return re.sub("[0-9]+", "0", name)
