"""Names of tiles in shared memory: Triton's layouts, CUTLASS's atoms, TMA's modes."""

from contextlib import suppress

import numpy as np
import pytest

from memdesc import MemdescError, UnsupportedFormatError, memory_desc, parse_layout
from memdesc.exchange import written

SWIZZLED = "SwizzledSharedLayout(vec=8, per_phase=1, max_phase=8, order=[1, 0])"

# a layout, its dims and type, and offsets of indices that Triton 3.9's `to_linear_layout`, or CuTe,
# gives
WORKED = """
SwizzledSharedLayout(vec=8, per_phase=1, max_phase=8, order=[1, 0]) | \
64x64 f16 | 1,0:72 1,8:64 3,9:209 7,63:455 63,63:4039
NVMMASharedLayout(128, 16) | 64x64 f16 | 1,0:72 1,8:64 63,63:4039
gl.SwizzledSharedLayout(4, 2, 4, [1, 0]) | 16x32 f16 | 1,0:32 2,0:68 3,5:97 6,31:211
NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16) | \
16x128 f16 | 1,0:72 0,64:1024 3,73:1233 15,127:1991
ttgl.NVMMASharedLayout(64, 16, transposed=True) | 32x16 f16 | 1,0:1 0,1:32 0,2:72 9,3:97 31,15:487
NVMMASharedLayout(32, 8) | 16x64 s8 | 4,0:144 4,16:128 0,32:512 5,33:689
NVMMASharedLayout(32, 32) | 8x8 f32 | 4,0:36 4,4:32 5,1:45
NVMMASharedLayout(128, 16, rank=3) | 2x4x64 f16 | 0,1,0:72 1,0,0:288 1,3,9:497
NVMMASharedLayout(128, 8, fp4_padded=True) | 16x64 u8 | 0,7:7 0,8:16 1,0:144 1,8:128
SharedLinearLayout([[0, 1], [0, 2], [1, 0], [2, 2]]) | 4x4 f32 | 1,0:4 2,0:10 2,2:8 3,3:13
#ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}> | \
64x64 f16 | 1,0:72
#ttg.shared_linear<{offset = [[0, 1], [0, 2], [1, 0], [2, 2]]}, alignment = 16> | 4x4 f32 | 3,3:13
#ttg.padded_shared<[128:+8] {order = [1, 0], shape = [64, 64]}> | \
64x64 f16 | 1,0:64 2,0:136 63,63:4343
Sw<3,3,3> o (64,64):(64,1) | 64x64 f16 | 1,0:72 1,8:64 3,9:209 7,63:455 63,63:4039
Sw<2,4,3> o (64,64):(64,1) | 64x64 f16 | 2,0:144 3,17:193
Sw<1,4,3> o (64,64):(64,1) | 64x64 f16 | 2,0:144 3,17:193
Sw<3,4,3> o (8,128):(128,1) | 8x128 f16 | 1,0:144 1,16:128 7,127:911
Sw<3,2,3> o (8,32):(32,1) | 8x32 f16 | 1,0:36 1,4:32 7,31:227
Sw<2,3,-3> o (64,64):(64,1) | 64x64 f16 | 0,8:72 1,8:8 2,24:88
Sw<3,3,3> o (64,64):(1,64) | 64x64 f16 | 0,1:72 8,1:64 9,3:209
Sw<3,3,3> o 64 o (8,64):(64,1) | 8x64 f16 | 0,0:72 0,8:64
S<3,4,3> o 0 o (8,64):(64,1) | 8x64 f16 | 1,0:64 2,0:144 4,8:296
"""


@pytest.mark.parametrize("line", WORKED.strip().splitlines())
def test_a_layout_has_the_offsets_of_its_system_and_is_read_as_it_is_written(line: str) -> None:
    text, tensor, pairs = line.split(" | ")
    sizes, dtype = tensor.split()
    dims = tuple(map(int, sizes.split("x")))
    numbers = [[*map(int, pair.replace(":", ",").split(","))] for pair in pairs.split()]
    offsets = {tuple(index): offset for *index, offset in numbers}
    desc = memory_desc(dims, dtype, text)
    assert {index: desc.offset(index) for index in offsets} == offsets
    assert {desc.index(offset): offset for offset in offsets.values()} == offsets
    for system in ("triton", "cute"):
        texts: list[str] = []
        with suppress(UnsupportedFormatError):
            texts = [*written(desc, system)]
        # a padded layout of Triton may be read, but is not written
        is_own = system == "triton" and ("Shared" in text or "#ttg" in text)
        assert texts or not is_own or "padded" in text.lower(), text
        for again in texts:
            assert parse_layout(f"{system}:{again}", dims, dtype) == desc


def test_tiles_of_each_width_are_written_as_nvmma_too() -> None:
    for bits in (8, 16, 32, 64):
        text = f"NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth={bits})"
        tile = memory_desc((16, 1024 // bits), f"u{bits}", text)
        assert written(tile, "triton")[2] == text


def test_a_memdesc_of_ttgir_has_sizes_and_a_type() -> None:
    attribute = "#ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>"
    desc = parse_layout(f"!ttg.memdesc<64x64xf16, {attribute}, #ttg.shared_memory, mutable>")
    assert desc == memory_desc((64, 64), "f16", SWIZZLED)
    assert desc == memory_desc((64, 64), "f16", f"#shared = {attribute}")
    # one of three buffers
    assert desc == parse_layout(f"!ttg.memdesc<64x64xf16, {attribute}, #smem, mutable, 3x64x64>")
    assert written(memory_desc((64, 64), "f16", SWIZZLED), "triton")[:2] == (SWIZZLED, attribute)


def test_any_linear_map_of_bits_is_read_and_written() -> None:
    rng = np.random.default_rng(3)
    read = 0
    while read < 30:
        bases = [[int(code) >> 2, int(code) & 3] for code in rng.integers(0, 16, 4)]
        text = f"SharedLinearLayout({bases})"
        try:
            desc = memory_desc((4, 4), "f32", text)
        except MemdescError:  # singular
            continue
        read += 1
        for offset in range(16):
            index = [0, 0]
            for bit, base in enumerate(bases):
                if offset >> bit & 1:
                    index = [index[0] ^ base[0], index[1] ^ base[1]]
            assert desc.offset(tuple(index)) == offset
            assert desc.index(offset) == tuple(index)
        assert memory_desc((4, 4), "f32", written(desc, "triton")[-2]) == desc
