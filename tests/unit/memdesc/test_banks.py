"""Bank conflicts of accesses to a tile of 64 rows of 128 bytes."""

import pytest

import memdesc
from memdesc import MemdescError, MemoryDesc, memory_desc
from memdesc.errors import OutOfRangeError

# plain; 16-byte chunks swizzled with 1 row per phase and 8 phases, which is also NVMMA's 128 bytes;
# with 2 rows and 4 phases; NVMMA's 64 and 32 bytes
_LAYOUTS = (
    "ab",
    "SwizzledSharedLayout({chunk}, 1, 8, [1, 0])",
    "SwizzledSharedLayout({chunk}, 2, 4, [1, 0])",
    "NVMMASharedLayout(64, {bits})",
    "NVMMASharedLayout(32, {bits})",
)


def tiles(dtype: str) -> list[MemoryDesc]:
    bits = memdesc.data_type(dtype).bits
    texts = [text.format(chunk=128 // bits, bits=bits) for text in _LAYOUTS]
    return [memory_desc((64, 1024 // bits), dtype, text) for text in texts]


@pytest.mark.parametrize(
    ("dtype", "dim", "nbytes", "conflicts"),
    [
        ("f16", 1, 16, [0, 0, 0, 1, 3]),
        ("f16", 0, 16, [7, 0, 1, 0, 0]),
        ("f16", 0, 8, [15, 1, 3, 1, 1]),
        ("f16", 0, 4, [31, 3, 7, 3, 3]),
        ("f16", 0, 2, [31, 3, 7, 3, 3]),
        ("f32", 0, 16, [7, 0, 1, 0, 0]),
        ("f32", 0, 8, [15, 1, 3, 1, 1]),
        ("f32", 0, 4, [31, 3, 7, 3, 3]),
        ("u8", 0, 8, [15, 1, 3, 1, 1]),
        ("u8", 0, 4, [31, 3, 7, 3, 3]),
        ("u8", 0, 1, [31, 3, 7, 3, 3]),
    ],
)
def test_conflicts_are_those_of_triton(
    dtype: str, dim: int, nbytes: int, conflicts: list[int]
) -> None:
    assert [tile.bank_conflicts(dim, nbytes) for tile in tiles(dtype)] == conflicts


@pytest.mark.parametrize(
    ("desc", "dim", "nbytes", "reason"),
    [
        (memory_desc((8, 64), "f16"), 0, 3, "a lane moves 1, 2, 4, 8 or 16 bytes"),
        (memory_desc((8, 64), "f32"), 0, 2, "at least an element, not 2"),
        (memory_desc((8, 6), "f16"), 0, 8, "give fewer bytes"),
        (memory_desc((8, 8), "f16", "Sw<1,0,1> o (8,8):(8,1)"), 0, 4, "give fewer than 4 bytes"),
        (memory_desc((0, 8), "f16"), 0, 2, "a layout without elements has no access"),
    ],
)
def test_what_no_lane_moves_is_refused(
    desc: MemoryDesc, dim: int, nbytes: int, reason: str
) -> None:
    with pytest.raises(MemdescError, match=reason):
        desc.bank_conflicts(dim, nbytes)
    with pytest.raises(OutOfRangeError, match="dim 2 is not in 0 to 1"):
        desc.bank_conflicts(2)
