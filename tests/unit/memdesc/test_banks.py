"""Bank conflicts of accesses to a tile of 64 rows of 128 bytes."""

from memdesc import data_type, memory_desc

# plain; 16-byte chunks swizzled with 1 row per phase and 8 phases, which is also NVMMA's 128 bytes;
# with 2 rows and 4 phases; NVMMA's 64 and 32 bytes
_LAYOUTS = (
    "ab",
    "SwizzledSharedLayout({chunk}, 1, 8, [1, 0])",
    "SwizzledSharedLayout({chunk}, 2, 4, [1, 0])",
    "NVMMASharedLayout(64, {bits})",
    "NVMMASharedLayout(32, {bits})",
)


# type, dim and bytes of an access, and its conflicts in each layout
_CONFLICTS = """
f16 1 16   0 0 0 1 3
f16 0 16   7 0 1 0 0
f16 0 8   15 1 3 1 1
f16 0 4   31 3 7 3 3
f16 0 2   31 3 7 3 3
f32 0 16   7 0 1 0 0
f32 0 8   15 1 3 1 1
f32 0 4   31 3 7 3 3
u8  0 8   15 1 3 1 1
u8  0 4   31 3 7 3 3
u8  0 1   31 3 7 3 3
"""


def test_conflicts_are_those_of_triton() -> None:
    for line in _CONFLICTS.strip().splitlines():
        dtype, *numbers = line.split()
        dim, nbytes, *conflicts = map(int, numbers)
        bits = data_type(dtype).bits
        texts = [text.format(chunk=128 // bits, bits=bits) for text in _LAYOUTS]
        tiles = [memory_desc((64, 1024 // bits), dtype, text) for text in texts]
        assert [tile.bank_conflicts(dim, nbytes) for tile in tiles] == conflicts
