"""Packings of weights by their published formulas: words and shifts, tables of positions, views.

Nothing here knows a tag. Each function takes unsigned elements, one a byte, by their logical
indices, and returns the elements in the order of memory, the low bits of a word first.
"""

import re
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Elements = NDArray[Any]
Formula = Callable[[Elements], Elements]


# The order of eight 4-bit elements, or of four 8-bit ones, in a word whose pairs are 16 bits apart.
INTERLEAVED = {4: (0, 2, 4, 6, 1, 3, 5, 7), 8: (0, 2, 1, 3)}


def _elements(words: Elements, bits: int) -> Elements:
    """Take 32-bit words apart, the lowest bits first."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    return (words.reshape(-1, 1) >> shifts & ((1 << bits) - 1)).reshape(-1)


def _words(elements: Elements, bits: int) -> Elements:
    """Join neighbours along the last axis into 32-bit words, the first in the lowest bits."""
    per_word = 32 // bits
    words = np.zeros((*elements.shape[:-1], elements.shape[-1] // per_word), np.uint32)
    for i in range(per_word):
        words |= elements[..., i::per_word].astype(np.uint32) << np.uint32(bits * i)
    return words


def _padded(q: Elements, *blocks: int) -> Elements:
    """Round the dims up to multiples, with zeros."""
    sizes = [-(-size // block) * block for size, block in zip(q.shape, blocks, strict=True)]
    found = np.zeros(sizes, q.dtype)
    found[tuple(map(slice, q.shape))] = q
    return found


def view(pattern: str) -> Formula:
    """Dims cut into parts, the last one fastest, and all parts in their order in memory.

    "n a16 | k c32 -> n k a c" are 16 rows side by side, 32 elements of each in turn. A dim is
    padded to whole parts.
    """
    left, _, right = pattern.partition(" -> ")
    parts = [re.findall("([a-z])([0-9]*)", dim) for dim in left.split("|")]
    names = [name for dim in parts for name, _ in dim]

    def pack(q: Elements) -> Elements:
        blocks = [prod(int(size or 1) for _, size in dim) for dim in parts]
        padded = _padded(q, *blocks)
        shape: list[int] = []
        for dim, size, block in zip(parts, padded.shape, blocks, strict=True):
            shape += [int(part or size // block) for _, part in dim]
        order = [names.index(name) for name in right.split()]
        return padded.reshape(shape).transpose(order).reshape(-1)

    return pack


def gptq(bits: int) -> Formula:
    """Words of neighbours along in, one for each out."""

    def pack(q: Elements) -> Elements:
        return _elements(np.ascontiguousarray(_words(q.T, bits).T), bits)

    return pack


def gptq_exllama(q: Elements) -> Elements:
    """GPTQ's words, in each the even elements first."""
    words = np.ascontiguousarray(_words(q.T, 4).T)
    shuffled = np.zeros_like(words)
    for i in range(4):
        shuffled |= (words >> (8 * i) & 0xF) << (4 * i)
        shuffled |= (words >> (8 * i + 4) & 0xF) << (4 * i + 16)
    return _elements(shuffled, 4)


def awq(q: Elements) -> Elements:
    """Words along out, the even elements first."""
    words = np.zeros((q.shape[0], q.shape[1] // 8), np.uint32)
    for i, k in enumerate(INTERLEAVED[4]):
        words |= q[:, k::8].astype(np.uint32) << np.uint32(4 * i)
    return _elements(words, 4)


def marlin(bits: int) -> Formula:
    """Tiles of 16 x 16 in fours along out, each in the order of an m16n8k16 fragment."""
    rows = [(2 * (t % 4), 2 * (t % 4) + 1, 2 * (t % 4) + 8, 2 * (t % 4) + 9) for t in range(32)]
    order = [
        256 * j + 16 * row + t // 4 + 8 * block
        for t in range(32)
        for j in range(4)
        for block in (0, 1)
        for row in rows[t]
    ]
    return _marlin(bits, 16, order, INTERLEAVED[bits])


def marlin_a8(bits: int) -> Formula:
    """Tiles of 32 x 16 in twos along out, for the fragments of 8-bit activations."""
    order = [
        512 * j + 16 * (4 * (t % 4) + 16 * half + row) + t // 4 + 8 * block
        for t in range(32)
        for j in range(2)
        for block in (0, 1)
        for half in (0, 1)
        for row in range(4)
    ]
    return _marlin(bits, 32, order, {4: (0, 4, 1, 5, 2, 6, 3, 7), 8: (0, 1, 2, 3)}[bits])


def _marlin(bits: int, rows: int, order: list[int], in_word: tuple[int, ...]) -> Formula:
    table = np.array(order).reshape(-1, len(in_word))[:, in_word].reshape(-1)

    def pack(q: Elements) -> Elements:
        k, n = q.shape
        tiles = q.reshape(k // rows, rows, n // 16, 16).swapaxes(1, 2).reshape(-1, 1024)
        return _elements(_words(tiles[:, table], bits), bits)

    return pack


SCALE_ORDER = [i + 8 * j for i in range(8) for j in range(8)]
SINGLE_SCALE_ORDER = [2 * i + j for i in range(4) for j in (0, 1, 8, 9, 16, 17, 24, 25)]


def by_table(order: list[int]) -> Formula:
    """Runs of as many elements as a table is long, in its order."""

    def pack(q: Elements) -> Elements:
        return q.reshape(-1, len(order))[:, order].reshape(-1)

    return pack


def marlin_zeros(bits: int) -> Formula:
    """Zero points in the order of scales, then in the order of words."""

    def pack(q: Elements) -> Elements:
        return by_table(list(INTERLEAVED[bits]))(by_table(SCALE_ORDER)(q))

    return pack


def tinygemm(inner_k_tiles: int) -> Formula:
    """One word for each of 32 lanes and each two tiles of 16 along in."""

    def pack(q: Elements) -> Elements:
        rows = _padded(q, 8, 1)
        n, k = rows.shape
        found = []
        for n_tile in range(n // 8):
            for k_outer in range(0, k, 16 * inner_k_tiles):
                for lane in range(32):
                    for k_tile in range(0, inner_k_tiles, 2):
                        first = k_outer + 16 * k_tile + lane % 4 * 2
                        v = [first + d for d in (0, 1, 8, 9, 16, 17, 24, 25)]
                        row = rows[n_tile * 8 + lane // 4]
                        found.append(row[[v[0], v[2], v[4], v[6], v[1], v[3], v[5], v[7]]])
        return np.concatenate(found)

    return pack


def trtllm_mixed_gemm(bits: int) -> Formula:
    """Rows permuted for ldmatrix, transposed, columns interleaved, then words interleaved."""
    table = {
        4: [8 * b + c + 2 * a for a in range(4) for b in range(4) for c in range(2)],
        8: [8 * b + c + 2 * a for a in range(4) for b in range(2) for c in range(2)],
    }[bits]

    def pack(q: Elements) -> Elements:
        k, n = q.shape
        rows = q.reshape(-1, len(table), n)[:, table].reshape(k, n)
        columns = 16 // bits
        tiles = rows.T.reshape(n // columns, columns, k // 64, 64).swapaxes(1, 2)
        return by_table(list(INTERLEAVED[bits]))(tiles)

    return pack


# Where the rows of a block go, as FlashInfer states it (srcToDstBlk16RowMap, srcToDstBlk32RowMap).
ROW_MAPS = {
    16: [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15],
    32: [first + 8 * k for first in range(8) for k in range(4)],
}


def trtllm(
    shuffle: int = 0, *, gated: bool = False, bits: int | None = None, then: Formula | None = None
) -> Formula:
    """Alternate the rows of two halves, shuffle the rows in blocks, cut columns of 128 bytes."""

    def pack(q: Elements) -> Elements:
        rows = q
        if gated:
            rows = np.empty((2 * q.shape[1], q.shape[2]), q.dtype)
            rows[0::2], rows[1::2] = q
        if shuffle:
            moved = np.empty_like(rows)
            at = np.arange(len(rows))
            moved[at // shuffle * shuffle + np.array(ROW_MAPS[shuffle])[at % shuffle]] = rows
            rows = moved
        if bits:
            rows = rows.reshape(len(rows), -1, 1024 // bits).swapaxes(0, 1)
        return then(rows) if then else rows.reshape(-1)

    return pack


def sm90_mixed_gemm(q: Elements) -> Elements:
    """Each lane's 4 elements of rows 8 apart, to columns 8 apart: what the kernel's lanes write."""
    n, k = q.shape
    found = np.empty((n, k // 4, 4), q.dtype)
    for block in range(n // 2):
        row = block // 8 * 16 + block % 8
        for lane in range(k // 4):
            at = lane // 16 * 16 + lane % 16 // 8 * 8 + lane % 4 * 2
            to = row + lane % 8 // 4 * 8
            found[to, at] = q[row, 4 * lane : 4 * lane + 4]
            found[to, at + 1] = q[row + 8, 4 * lane : 4 * lane + 4]
    return found.reshape(-1)


# Parts in the order of memory, by the name and the bits of an element. Sources are those of the
# names.
_VIEWS = """
ggml_soa 4                      n | k a2 b16 -> n k b a
adreno_noshuffle 4 8            n | k w4 -> k n w
adreno_trans4_ns 4              e | n | k w8 -> e k n w
adreno_scales 16                n | k -> k n
torch_int4_cpu 4                n b2 c32 | k -> n k c b
torch_int4_cpu_avx2 4           n b2 c16 | k -> n k c b
torch_int4_cpu_default 4        n a16 b2 | k -> n k a b
aiter_16x16 4                   n a16 | k c32 -> n k a c
aiter_16x16 8                   n a16 | k c16 -> n k a c
aiter_16x16 16                  n a16 | k c8 -> n k a c
aiter_scales 8                  m x8 a2 b16 | n c2 d4 -> m x n d b c a
aiter_int4 4                    n a16 | k c2 e2 f4 -> n k a c f e
aiter_a16w4_gated 4             h | n a16 | k c32 -> n h k a c
aiter_a16w4_separate 4          n a16 | k b4 c4 d8 -> n k a c b d
aiter_a16w4_scales 8            n a2 b16 | k c2 d4 -> n k d b c a
aiter_a16w4_scales_separate 8   n a2 b16 | k c2 d4 -> n k b d c a
aiter_a16w4_scales_gated 8      h | n b16 | k c2 d4 -> n k d b c h
deepgemm_scales 8               m a4 | n c4 -> n m a c
deepgemm_scales 32              m a4 | n -> n m a
sm90_mixed_gemm_scales 8        n s4 r16 | g e4 -> n g r s e
sm90_mixed_gemm_scales 16       n s8 r8 | g -> n g r s
bf16_r16 16                     n a16 | k c2 -> n k a c
nvfp4_scales 8                  r a4 b32 | c d4 -> r c b a d
nvfp4_scales_8x4 8              r a8 | c d4 -> r c a d
CUBLASLT_ORDER_COL32 0          r | c p32 -> c r p
CUBLASLT_ORDER_COL4_4R2_8C 0    r a4 b2 | c d4 e2 f4 -> c r b d e a f
CUBLASLT_ORDER_COL32_2R_4R4 0   r x4 y4 z2 | c d32 -> c r y x z d
ColumnMajorInterleaved<{n}> 0   r | c p{n} -> c r p
RowMajorInterleaved<{n}> 0      r p{n} | c -> r c p
TensorNCxHWx<{n}> 0             a | b p{n} | c | d -> a b c d p
TensorCxRSKx<{n}> 0             a | b p{n} | c | d -> b c d a p
mlas_nchwc{m} 32                a | b p{m} | c | d -> a b c d p
mlas_oihwbo{m} 32               o p{m} | i | h | w -> o i h w p
mlas_oihwbibo{m} 32             o p{m} | i q{m} | h | w -> o i h w q p
"""


def _views() -> dict[tuple[str, int], Formula]:
    found = {}
    for row in _VIEWS.strip().splitlines():
        for n, m in ((4, 8), (32, 16), (64, 16)):
            head, pattern = row.replace("{n}", str(n)).replace("{m}", str(m)).split(maxsplit=1)
            words = pattern.split()
            widths = [word for word in words if word.isdigit()]
            for bits in widths:
                found[head, int(bits)] = view(" ".join(words[len(widths) :]))
    return found


_SCALES = view("r a4 b32 | c d4 -> r c b a d")
FORMULAS: dict[tuple[str, int], Formula] = {
    **_views(),
    ("gptq", 4): gptq(4),
    ("gptq", 8): gptq(8),
    ("gptq_exllama", 4): gptq_exllama,
    ("awq", 4): awq,
    ("marlin", 4): marlin(4),
    ("marlin", 8): marlin(8),
    ("marlin_a8", 4): marlin_a8(4),
    ("marlin_a8", 8): marlin_a8(8),
    ("marlin_scales", 16): by_table(SCALE_ORDER),
    ("marlin_scales_channelwise", 16): by_table(SINGLE_SCALE_ORDER),
    ("marlin_zeros", 4): marlin_zeros(4),
    ("marlin_zeros", 8): marlin_zeros(8),
    ("tinygemm_k2", 4): tinygemm(2),
    ("tinygemm_k4", 4): tinygemm(4),
    ("tinygemm_k8", 4): tinygemm(8),
    ("trtllm_mixed_gemm", 4): trtllm_mixed_gemm(4),
    ("trtllm_mixed_gemm", 8): trtllm_mixed_gemm(8),
    ("trtllm_gated", 0): trtllm(gated=True),
    **{("trtllm_block_major_k", bits): trtllm(bits=bits) for bits in (4, 8, 16)},
    **{
        (f"trtllm_shuffled{n}{'_gated' * gated}{'_block_major_k' * bool(bits)}", bits): trtllm(
            n, gated=gated, bits=bits
        )
        for n in (16, 32)
        for gated in (False, True)
        for bits in (0, 4, 8, 16)
    },
    **{
        (f"trtllm_scales{n}{'_gated' * gated}", 8): trtllm(n, gated=gated, then=_SCALES)
        for n in (16, 32)
        for gated in (False, True)
    },
    ("sm90_mixed_gemm", 4): sm90_mixed_gemm,
}
