"""Packings of weights by their published formulas: words and shifts, tables of positions, offsets.

Nothing here knows a tag. Each function takes unsigned elements, one a byte, by their logical
indices, and returns the elements in the order of memory, the low bits of a word first.
"""

from collections.abc import Callable
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


def torch_int4_cpu(rows: int, apart: int) -> Formula:
    """For each block of rows and each column its bytes; rows some way apart share a byte."""

    def pack(q: Elements) -> Elements:
        n, k = q.shape
        columns = q.reshape(n // rows, rows // apart // 2, 2, apart, k)
        return columns.transpose(0, 4, 1, 3, 2).reshape(-1)

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


def aiter_16x16(bits: int) -> Formula:
    """16 rows side by side, 16 bytes of each in turn."""
    run = 128 // bits
    block = 64 if bits == 4 else 32

    def pack(q: Elements) -> Elements:
        n, k = q.shape
        view = q.reshape(n // 16, 16, k // block, block // run, run)
        return view.transpose(0, 2, 3, 1, 4).reshape(-1)

    return pack


def aiter_scales(q: Elements) -> Elements:
    """The rows padded to 256, the columns to 8."""
    padded = _padded(q, 256, 8)
    m, n = padded.shape
    return padded.reshape(m // 32, 2, 16, n // 8, 2, 4).transpose(0, 3, 5, 2, 4, 1).reshape(-1)


def aiter_int4(q: Elements) -> Elements:
    """8-bit elements in tiles of 16 x 16; in each word the elements 0 4 1 5 2 6 3 7."""
    return by_table([0, 4, 1, 5, 2, 6, 3, 7])(aiter_16x16(8)(q))


def aiter_a16w4_gated(q: Elements) -> Elements:
    """16 rows of one half, then those of the other; 16 bytes of each row in turn."""
    halves, n, k = q.shape
    view = q.reshape(halves, n // 16, 16, k // 128, 4, 32)
    return view.transpose(1, 0, 3, 4, 2, 5).reshape(-1)


def aiter_a16w4_separate(q: Elements) -> Elements:
    """16 rows; of 64 bytes of each, four words 16 bytes apart side by side."""
    n, k = q.shape
    return q.reshape(n // 16, 16, k // 128, 4, 4, 8).transpose(0, 2, 1, 4, 3, 5).reshape(-1)


def aiter_a16w4_scales(*order: int) -> Formula:
    """Two packs of 16 rows, two of 4 columns; `order`: rows, pack, lane, columns, pack, lane."""

    def pack(q: Elements) -> Elements:
        n, k = q.shape
        return q.reshape(n // 32, 2, 16, k // 8, 2, 4).transpose(order).reshape(-1)

    return pack


def aiter_a16w4_scales_gated(q: Elements) -> Elements:
    """The two halves in place of the two packs of rows."""
    halves, n, k = q.shape
    view = q.reshape(halves, n // 16, 16, k // 8, 2, 4)
    return view.transpose(1, 3, 5, 2, 4, 0).reshape(-1)


# Where the rows of a block go, as FlashInfer states it (srcToDstBlk16RowMap, srcToDstBlk32RowMap).
ROW_MAPS = {
    16: [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15],
    32: [first + 8 * k for first in range(8) for k in range(4)],
}


def trtllm(
    shuffle: int = 0,
    *,
    gated: bool = False,
    bits: int | None = None,
    then: Formula | None = None,
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


def deepgemm_scales(columns: int) -> Formula:
    """The rows padded to 4; words of columns, those of neighbouring rows side by side."""

    def pack(q: Elements) -> Elements:
        padded = _padded(q, 4, columns)
        return padded.reshape(len(padded), -1, columns).swapaxes(0, 1).reshape(-1)

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


def sm90_mixed_gemm_scales(slices: int) -> Formula:
    """64 rows folded into slices: 16 bytes hold the scales of one row of each."""

    def pack(q: Elements) -> Elements:
        n, groups = q.shape
        each = 16 // slices if slices < 8 else 1
        view = q.reshape(n // 64, slices, 64 // slices, groups // each, each)
        return view.transpose(0, 3, 2, 1, 4).reshape(-1)

    return pack


def bf16_r16(q: Elements) -> Elements:
    """Pairs along in of 16 rows in turn."""
    n, k = q.shape
    return q.reshape(n // 16, 16, k // 2, 2).swapaxes(1, 2).reshape(-1)


def by_offset(rows: int, columns: int, offset: Callable[[Any, Any, int], Any]) -> Formula:
    """A matrix padded to whole tiles, each element at the offset that a formula gives."""

    def pack(q: Elements) -> Elements:
        padded = _padded(q, rows, columns)
        found = np.zeros(padded.size, q.dtype)
        row, column = np.indices(q.shape)
        found[offset(row, column, len(padded))] = q
        return found

    return pack


def _scales_128x4(row: Any, column: Any, _rows: int) -> Any:
    return column % 4 + column // 4 * 512 + row % 32 * 16 + row % 128 // 32 * 4


def nvfp4_scales(q: Elements) -> Elements:
    """Tiles of 128 x 4, row-major; rows 32 apart side by side."""
    panels = [q[first : first + 128] for first in range(0, q.shape[0], 128)]
    return np.concatenate([by_offset(128, 4, _scales_128x4)(panel) for panel in panels])


def nvfp4_scales_8x4(q: Elements) -> Elements:
    """Tiles of 8 x 4, row-major."""
    columns = -(-q.shape[1] // 4)
    return by_offset(8, 4, lambda r, c, _: r // 8 * columns * 32 + c // 4 * 32 + r % 8 * 4 + c % 4)(
        q
    )


def _turing(row: Any, column: Any, rows: int) -> Any:
    tile = (row // 8 * 8 + row % 2 * 4 + column % 32 // 8) * 32
    return column // 32 * 32 * rows + tile + (column % 8 // 4 * 4 + row % 8 // 2) * 4 + column % 4


def _ampere(row: Any, column: Any, rows: int) -> Any:
    in_tile = (((row % 8) // 2 * 4 + row % 32 // 8) * 2 + row % 2) * 32 + column % 32
    return column // 32 * 32 * rows + row // 32 * 1024 + in_tile


def column_interleaved(n: int) -> Formula:
    """Panels of n columns, each row-major."""
    return by_offset(1, n, lambda r, c, rows: c // n * rows * n + r * n + c % n)


def row_interleaved(n: int) -> Formula:
    """Panels of n rows, each column-major."""

    def pack(q: Elements) -> Elements:
        return column_interleaved(n)(q.T)

    return pack


def in_channels(n: int, order: tuple[int, ...]) -> Formula:
    """Blocks of n along dim 1, padded; `order` of the dims (a, b / n, c, d), then n of b."""

    def pack(q: Elements) -> Elements:
        a, _, c, d = q.shape
        return _padded(q, 1, n, 1, 1).reshape(a, -1, n, c, d).transpose(*order, 2).reshape(-1)

    return pack


def mlas_filter(n: int, *, blocked_input: bool) -> Formula:
    """Filters for blocks of n output channels, and of as many input channels where these are."""

    def pack(q: Elements) -> Elements:
        inputs = n if blocked_input else 1
        padded = _padded(q, n, inputs, 1, 1)
        blocks = padded.reshape(-1, n, padded.shape[1] // inputs, inputs, *q.shape[2:])
        return blocks.transpose(0, 2, 4, 5, 3, 1).reshape(-1)

    return pack


def ggml_soa(q: Elements) -> Elements:
    """GGUF's order within a block of 32: byte j holds the values j and j + 16."""
    return q.reshape(-1, 2, 16).swapaxes(1, 2).reshape(-1)


def transposed_words(per_word: int) -> Formula:
    """Words of neighbours along in, as a matrix that is transposed."""
    return lambda q: q.reshape(len(q), -1, per_word).swapaxes(0, 1).reshape(-1)


def adreno_experts(q: Elements) -> Elements:
    """Words of eight values, transposed for each expert."""
    return np.concatenate([transposed_words(8)(expert) for expert in q])


FORMULAS: dict[tuple[str, int], Formula] = {
    ("ggml_soa", 4): ggml_soa,
    ("adreno_noshuffle", 4): transposed_words(4),
    ("adreno_noshuffle", 8): transposed_words(4),
    ("adreno_trans4_ns", 4): adreno_experts,
    ("adreno_scales", 16): lambda q: q.T.reshape(-1),
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
    ("torch_int4_cpu", 4): torch_int4_cpu(64, 32),
    ("torch_int4_cpu_avx2", 4): torch_int4_cpu(32, 16),
    ("torch_int4_cpu_default", 4): torch_int4_cpu(32, 1),
    ("tinygemm_k2", 4): tinygemm(2),
    ("tinygemm_k4", 4): tinygemm(4),
    ("tinygemm_k8", 4): tinygemm(8),
    ("trtllm_mixed_gemm", 4): trtllm_mixed_gemm(4),
    ("trtllm_mixed_gemm", 8): trtllm_mixed_gemm(8),
    ("aiter_16x16", 4): aiter_16x16(4),
    ("aiter_16x16", 8): aiter_16x16(8),
    ("aiter_16x16", 16): aiter_16x16(16),
    ("aiter_scales", 8): aiter_scales,
    ("aiter_int4", 4): aiter_int4,
    ("aiter_a16w4_gated", 4): aiter_a16w4_gated,
    ("aiter_a16w4_separate", 4): aiter_a16w4_separate,
    ("aiter_a16w4_scales", 8): aiter_a16w4_scales(0, 3, 5, 2, 4, 1),
    ("aiter_a16w4_scales_separate", 8): aiter_a16w4_scales(0, 3, 2, 5, 4, 1),
    ("aiter_a16w4_scales_gated", 8): aiter_a16w4_scales_gated,
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
        (f"trtllm_scales{n}{'_gated' * gated}", 8): trtllm(n, gated=gated, then=nvfp4_scales)
        for n in (16, 32)
        for gated in (False, True)
    },
    ("deepgemm_scales", 8): deepgemm_scales(4),
    ("deepgemm_scales", 32): deepgemm_scales(1),
    ("sm90_mixed_gemm", 4): sm90_mixed_gemm,
    ("sm90_mixed_gemm_scales", 8): sm90_mixed_gemm_scales(4),
    ("sm90_mixed_gemm_scales", 16): sm90_mixed_gemm_scales(8),
    ("bf16_r16", 16): bf16_r16,
    ("nvfp4_scales", 8): nvfp4_scales,
    ("nvfp4_scales_8x4", 8): nvfp4_scales_8x4,
    ("CUBLASLT_ORDER_COL32", 0): column_interleaved(32),
    ("CUBLASLT_ORDER_COL4_4R2_8C", 0): by_offset(8, 32, _turing),
    ("CUBLASLT_ORDER_COL32_2R_4R4", 0): by_offset(32, 32, _ampere),
    **{(f"ColumnMajorInterleaved<{n}>", 0): column_interleaved(n) for n in (4, 32, 64)},
    **{(f"RowMajorInterleaved<{n}>", 0): row_interleaved(n) for n in (4, 32, 64)},
    **{(f"TensorNCxHWx<{n}>", 0): in_channels(n, (0, 1, 3, 4)) for n in (4, 32, 64)},
    **{(f"TensorCxRSKx<{n}>", 0): in_channels(n, (1, 3, 4, 0)) for n in (4, 32, 64)},
    **{(f"mlas_nchwc{n}", 32): in_channels(n, (0, 1, 3, 4)) for n in (8, 16)},
    **{(f"mlas_oihwbo{n}", 32): mlas_filter(n, blocked_input=False) for n in (8, 16)},
    **{(f"mlas_oihwbibo{n}", 32): mlas_filter(n, blocked_input=True) for n in (8, 16)},
}
