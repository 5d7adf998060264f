"""Packings of quantised weights and of their scales: `gptq`, `marlin`, `nvfp4_scales`.

A packing permutes whole elements and may pad them, so it is a tag. It exists only for elements of
some widths, because kernels read words, and many packings need whole blocks. Which scales and zero
points belong to the elements, and by which rule, is not part of a layout. Each row gives its
source; for TensorRT-LLM, Marlin, cuBLASLt, aiter and ik_llama.cpp these are formulas, which the
tests state separately.

A packing that interleaves the gate with the up projection depends on where the second half of the
rows starts. It has a dim of size 2 for the halves, so that its tag does not depend on sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from memdesc.names.vocabulary import ANY_WIDTH, Row, Vocabulary
from memdesc.tags import LETTERS

# What the letters of dims stand for.
DIMS = MappingProxyType(
    {
        "e": "expert",
        "t": "gate and up",
        "i": "in",
        "o": "out",
        "g": "group",
        "r": "row",
        "c": "column",
    }
)

_MARLIN = "vLLM, marlin_utils.py"
_TORCH_CPU = "torch 2.13, _convert_weight_to_int4pack_for_cpu"
_TORCH_CUDA = "torch 2.11, _convert_weight_to_int4pack on an NVIDIA GPU"
_AITER = "ROCm aiter, shuffle.py"
_FLASHINFER = "FlashInfer 0.7.2"
_SM90 = f"{_FLASHINFER}, interleave_moe_"
_CUBLASLT = "cuBLASLt, cublasLtOrder_t; FasterTransformer, quantize_weight.cu"
_ADRENO = "llama.cpp, ggml-opencl, cvt.cl"
_MLAS = "onnxruntime 1.31, MLAS"

_SHUFFLED16 = f"{_FLASHINFER}, shuffle_matrix_a, epilogue_tile_m=64"
_SHUFFLED32 = f"{_FLASHINFER}, shuffle_matrix_a, epilogue_tile_m=128"
_SCALES16 = f"{_FLASHINFER}, shuffle_matrix_sf_a, epilogue_tile_m=64"
_SCALES32 = f"{_FLASHINFER}, shuffle_matrix_sf_a, epilogue_tile_m=128"
_GATED = "after reorder_rows_for_gated_act_gemm"
_BLOCKS = "then convert_to_block_layout, 128 bytes"


def _of_128_bytes(tag: str) -> dict[int, str]:
    """Return for each width a tag whose block {n} has 128 bytes."""
    return {bits: tag.format(n=1024 // bits) for bits in (16, 8, 4)}


# fmt: off
_ROWS = {
    "gptq": Row("io", "weights", {4: "Ab8a", 8: "Ab4a"}, "i", "AutoGPTQ, GPTQModel: qweight"),
    "gptq_exllama": Row(
        "io", "weights", {4: "Ab2a/1.4a/2"}, "i", "ExLlamaV2, qdq_4.cuh; vLLM, gptq_shuffle"),
    "awq": Row("io", "weights", {4: "aB2b/1.4b/2"}, "o", "AutoAWQ, GEMM: qweight and qzeros"),
    "marlin": Row(
        "io", "weights",
        {4: "AB8b/1.4a/2.4b/16.2a/1.2b/8.2a/8", 8: "AB8b/1.4a/2.8b/8.2a/1.2a/8"}, "io", _MARLIN),
    "marlin_a8": Row(
        "io", "weights",
        {4: "AB8b/1.4a/4.4b/8.4a/1.2a/16", 8: "AB8b/1.4a/4.4b/8.2a/16.4a/1"}, "io",
        f"{_MARLIN}, 8-bit activations"),
    "marlin_scales": Row("go", "scales", {16: "aB8b/1.8b/8"}, "o", _MARLIN),
    "marlin_scales_channelwise": Row(
        "go", "scales", {16: "aB4b/2.4b/8.2b/1"}, "o", f"{_MARLIN}, one group"),
    "marlin_zeros": Row(
        "go", "zero points", {4: "aB8b/1.2b/8.4b/16", 8: "aB8b/1.2b/32.2b/8.2b/16"}, "o", _MARLIN),
    "torch_int4_cpu": Row(
        "oi", "weights", {4: "Ab2a/16.16a/1.2a/32"}, "o", f"{_TORCH_CPU}, AVX-512",
        is_in_shape=True),
    "torch_int4_cpu_avx2": Row(
        "oi", "weights", {4: "Ab16a/1.2a/16"}, "o", f"{_TORCH_CPU}, AVX2",
        is_in_shape=True),
    "torch_int4_cpu_default": Row(
        "oi", "weights", {4: "Ab32a"}, "o", f"{_TORCH_CPU}, without AVX2",
        is_in_shape=True),
    "tinygemm_k2": Row(
        "oi", "weights", {4: "AB8a4b/2.2b/1.2b/16.2b/8"}, "i", f"{_TORCH_CUDA}, inner_k_tiles=2"),
    "tinygemm_k4": Row(
        "oi", "weights", {4: "AB8a4b/2.2b/32.2b/1.2b/16.2b/8"}, "i",
        f"{_TORCH_CUDA}, inner_k_tiles=4"),
    "tinygemm_k8": Row(
        "oi", "weights", {4: "AB8a4b/2.4b/32.2b/1.2b/16.2b/8"}, "i",
        f"{_TORCH_CUDA}, inner_k_tiles=8"),
    "trtllm_mixed_gemm": Row(
        "io", "weights", {4: "BA4b2a/32.4a/2.2a/1.4a/8", 8: "BA2b4a/16.4a/2.2a/1.2a/8"}, "io",
        "TensorRT-LLM, preprocess_weights_for_mixed_gemm, f16 activations, sm80 to sm89",
        is_in_shape=True),
    "aiter_16x16": Row(
        "oi", "weights", {4: "AB2b16a32b", 8: "AB2b16a16b", 16: "AB4b16a8b"}, "oi",
        f"{_AITER}: shuffle_weight, layout (16, 16)", is_in_shape=True),
    "aiter_int4": Row(
        "oi", "weights", {4: "AB2b/16.16a2b/8.4b/1.2b/4"}, "oi",
        f"{_AITER}: shuffle_weight of 8-bit elements, then pack_int8_to_packed_int4"),
    "aiter_a16w4_gated": Row(
        "toi", "weights", {4: "BaC4c16b32c"}, "oi",
        f"{_AITER}: shuffle_weight_a16w4, 16 lanes, gate_up"),
    "aiter_a16w4_separate": Row(
        "oi", "weights", {4: "AB16a4b/8.4b/32.8b/1"}, "oi",
        f"{_AITER}: shuffle_weight_a16w4_sep_fp4"),
    "ggml_soa": Row("oi", "weights", {4: "aB16b/1.2b/16"}, "i", _ADRENO),
    "adreno_noshuffle": Row(
        "oi", "weights", {4: "Ba4b", 8: "Ba4b"}, "i", f"{_ADRENO}, transposed words"),
    "adreno_trans4_ns": Row("eoi", "weights", {4: "aCb8c"}, "i", f"{_ADRENO}, experts"),
    "adreno_scales": Row("og", "scales", {16: "ba"}, "", f"{_ADRENO}, transposed scales"),
    "aiter_scales": Row(
        "rc", "scales", {8: "AB4b/1.16a/1.2b/4.2a/16__a256"}, "", "ROCm aiter: e8m0_shuffle"),
    "aiter_a16w4_scales": Row(
        "rc", "scales", {8: "AB4b/1.16a/1.2b/4.2a/16"}, "rc", f"{_AITER}: shuffle_scale_a16w4"),
    "aiter_a16w4_scales_gated": Row(
        "trc", "scales", {8: "BC4c/1.16b2c/4a"}, "rc",
        f"{_AITER}: shuffle_scale_a16w4, gate_up"),
    "aiter_a16w4_scales_separate": Row(
        "rc", "scales", {8: "AB16a/1.4b/1.2b/4.2a/16"}, "rc",
        f"{_AITER}: shuffle_scale_a16w4_sep_fp4"),
    "trtllm_gated": Row(
        "toi", "weights", {ANY_WIDTH: "bac"}, "",
        f"{_FLASHINFER}, reorder_rows_for_gated_act_gemm"),
    "trtllm_block_major_k": Row(
        "oi", "weights", _of_128_bytes("Ba{n}b"), "i",
        f"{_FLASHINFER}, convert_to_block_layout, 128 bytes"),
    "trtllm_shuffled16": Row("oi", "weights", {ANY_WIDTH: "A2a/1.8a/2b"}, "o", _SHUFFLED16),
    "trtllm_shuffled32": Row("oi", "weights", {ANY_WIDTH: "A4a/1.8a/4b"}, "o", _SHUFFLED32),
    "trtllm_shuffled16_gated": Row(
        "toi", "weights", {ANY_WIDTH: "Ba8bc"}, "o", f"{_SHUFFLED16}, {_GATED}"),
    "trtllm_shuffled32_gated": Row(
        "toi", "weights", {ANY_WIDTH: "B2b/1a8b/2c"}, "o", f"{_SHUFFLED32}, {_GATED}"),
    "trtllm_shuffled16_block_major_k": Row(
        "oi", "weights", _of_128_bytes("BA2a/1.8a/2.{n}b"), "oi", f"{_SHUFFLED16}, {_BLOCKS}"),
    "trtllm_shuffled32_block_major_k": Row(
        "oi", "weights", _of_128_bytes("BA4a/1.8a/4.{n}b"), "oi", f"{_SHUFFLED32}, {_BLOCKS}"),
    "trtllm_shuffled16_gated_block_major_k": Row(
        "toi", "weights", _of_128_bytes("CBa8b{n}c"), "oi",
        f"{_SHUFFLED16}, {_GATED}, {_BLOCKS}"),
    "trtllm_shuffled32_gated_block_major_k": Row(
        "toi", "weights", _of_128_bytes("CB2b/1a8b/2.{n}c"), "oi",
        f"{_SHUFFLED32}, {_GATED}, {_BLOCKS}"),
    "trtllm_scales16": Row(
        "rc", "scales", {8: "AB2a/16.2a/1.8a/2.4a/32.4b"}, "r", _SCALES16),
    "trtllm_scales32": Row("rc", "scales", {8: "AB4a/1.8a/4.4a/32.4b"}, "r", _SCALES32),
    "trtllm_scales16_gated": Row(
        "trc", "scales", {8: "BC2b/8a8b/1.4b/16.4c"}, "r", f"{_SCALES16}, {_GATED}"),
    "trtllm_scales32_gated": Row(
        "trc", "scales", {8: "BC2b/1a8b/2.4b/16.4c"}, "r", f"{_SCALES32}, {_GATED}"),
    "deepgemm_scales": Row(
        "rc", "scales", {8: "Ba4b__a4", 32: "ba__a4"}, "",
        "DeepGEMM, get_mn_major_tma_aligned_packed_ue8m0_tensor and, of f32, "
        "get_mn_major_tma_aligned_tensor"),
    "sm90_mixed_gemm": Row(
        "oi", "weights", {4: "A2b/16.8a/1B2b/32.4b/4.2a/8.4b/1"}, "oi",
        f"{_SM90}weights_for_sm90_mixed_gemm, int4; TensorRT-LLM"),
    "sm90_mixed_gemm_scales": Row(
        "rc", "scales", {8: "AB16a/1.4a/16.4b", 16: "Ab8a/1.8a/8"}, "rc",
        f"{_SM90}scales_for_sm90_mixed_gemm, groups of 32 and of 128"),
    "bf16_r16": Row("oi", "weights", {16: "AB16a2b"}, "oi", "ik_llama.cpp, repack_bf16"),
    "nvfp4_scales": Row(
        "rc", "scales", {8: "AB32a/1.4a/32.4b"}, "", "torchao 0.18, to_blocked; cuBLASLt; CUTLASS"),
    "nvfp4_scales_8x4": Row(
        "rc", "scales", {8: "AB8a4b"}, "", "FlashInfer, SfLayout.layout_8x4"),
    "CUBLASLT_ORDER_COL32": Row("rc", "matrix", {ANY_WIDTH: "Ba32b"}, "", _CUBLASLT),
    "CUBLASLT_ORDER_COL4_4R2_8C": Row(
        "rc", "matrix", {ANY_WIDTH: "BA2a/1.4b2b4a/2.4b"}, "", _CUBLASLT),
    "CUBLASLT_ORDER_COL32_2R_4R4": Row(
        "rc", "matrix", {ANY_WIDTH: "BA4a/2.4a/8.2a/1.32b"}, "", _CUBLASLT),
}
# fmt: on
# {n} interleaved elements, or blocks of {n} channels
_CUTLASS = {
    "ColumnMajorInterleaved<{n}>": Row("rc", "matrix", {ANY_WIDTH: "Ba{n}b"}, "", "CUTLASS 2"),
    "RowMajorInterleaved<{n}>": Row("rc", "matrix", {ANY_WIDTH: "Ab{n}a"}, "", "CUTLASS 2"),
    "TensorNCxHWx<{n}>": Row("nchw", "data", {ANY_WIDTH: "aBcd{n}b"}, "", "CUTLASS 2"),
    "TensorCxRSKx<{n}>": Row("oihw", "weights", {ANY_WIDTH: "Bcda{n}b"}, "", "CUTLASS 2"),
}
_NCHWC = {
    "mlas_nchwc{n}": Row("nchw", "data", {32: "aBcd{n}b"}, "", _MLAS),
    "mlas_oihwbo{n}": Row("oihw", "weights", {32: "Abcd{n}a"}, "", f"{_MLAS}, input nchw"),
    "mlas_oihwbibo{n}": Row("oihw", "weights", {32: "ABcd{n}b{n}a"}, "", _MLAS),
}
# The suffix of a name if there is one matrix for each expert, one after the other.
EXPERTS = "_experts"
_WITH_EXPERTS = (
    "gptq",
    "awq",
    "marlin",
    "marlin_scales",
    "marlin_zeros",
    "trtllm_mixed_gemm",
    "nvfp4_scales",
    "deepgemm_scales",
    *(name for name in _ROWS if name.startswith(("aiter", "trtllm_s", "trtllm_g", "trtllm_b"))),
    "sm90_mixed_gemm",
    "sm90_mixed_gemm_scales",
)


def _of_size(family: Mapping[str, Row], n: int) -> dict[str, Row]:
    return {
        name.format(n=n): row._replace(
            tags={bits: tag.format(n=n) for bits, tag in row.tags.items()}
        )
        for name, row in family.items()
    }


def _of_experts(row: Row) -> Row:
    """Return a packing with an additional first dim, outermost in memory."""
    following = str.maketrans(LETTERS[:-1], LETTERS[1:]) | str.maketrans(
        LETTERS[:-1].upper(), LETTERS[1:].upper()
    )
    tags = {bits: f"a{tag.translate(following)}" for bits, tag in row.tags.items()}
    return row._replace(letters=f"e{row.letters}", domain=f"expert {row.domain}", tags=tags)


PACKINGS = MappingProxyType(
    _ROWS
    | {name + EXPERTS: _of_experts(_ROWS[name]) for name in _WITH_EXPERTS}
    | {name: row for n in (4, 32, 64) for name, row in _of_size(_CUTLASS, n).items()}
    | {name: row for n in (8, 16) for name, row in _of_size(_NCHWC, n).items()}
)
# Other names (of cuDNN, torch, FlashInfer, the OCP's MX formats and bitsandbytes) -> name in the
# table.
ALIASES = MappingProxyType(
    {
        "mx_scales": "nvfp4_scales",
        "F8_128x4": "nvfp4_scales",
        "SWIZZLE_32_4_4": "nvfp4_scales",
        "layout_128x4": "nvfp4_scales",
        "layout_8x4": "nvfp4_scales_8x4",
        "BlockMajorK": "trtllm_block_major_k",
        "torch_int4_cuda": "tinygemm_k8",
        "col32": "CUBLASLT_ORDER_COL32",
        "col_turing": "CUBLASLT_ORDER_COL4_4R2_8C",
        "col_ampere": "CUBLASLT_ORDER_COL32_2R_4R4",
    }
)

_ACT_ORDER = (
    "it has groups that data (g_idx, act-order) assigns to rows; sort the rows by g_idx, then "
    "describe them as 'gptq'"
)
_HIGH_FIRST = (
    "the records bnb_nf4 and bnb_fp4 have it, or swap the halves of each byte, and describe them "
    "as 'ab'"
)
_NF4 = (
    "it holds indices into a table of 16 values, the first in the high half of a byte; "
    f"{_HIGH_FIRST} of u4"
)
_CODEBOOK = "it holds indices into codebooks, one for several values; decode it first"
_SPARSE = (
    "it keeps two of every four values and their positions (2:4 sparsity), which depend on "
    "the data; expand it first"
)
_BITS_APART = (
    "it moves the sign of an element apart from its other bits; describe weights that are not yet "
    "interleaved, and interleave them with FlashInfer's interleave_moe_weights_for_sm90_mixed_gemm"
)
# Names that are not layouts -> the reason.
_REFUSED = {
    "g_idx": _ACT_ORDER,
    "gptq_act_order": _ACT_ORDER,
    "marlin_24": _SPARSE,
    "sparse_24": _SPARSE,
    "bitsandbytes_nf4": _NF4,
    "bitsandbytes_fp4": f"its first element is in the high half of a byte; {_HIGH_FIRST}",
    "sm90_mixed_gemm_fp4": _BITS_APART,
    "sm90_mixed_gemm_fp4_fp8": _BITS_APART,
    "hqq": (
        "its bytes hold two rows half a matrix apart, the first in the high half; unpack it first"
    ),
    "exl2": "it mixes rows of 2 to 8 bits, in an order given by data (q_invperm); decode it first",
    "aqlm": _CODEBOOK,
    "quip": _CODEBOOK,
    "vptq": _CODEBOOK,
    "kleidiai": (
        "it stores the sums, scales and biases of each panel of output channels after its "
        "weights; describe the weights by a Layout whose outermost block skips them"
    ),
    "xnnpack": (
        "it stores a bias before each panel of nr output channels; describe the weights "
        "after it as memory_desc((n, k), dtype, strides=((k + 1) * nr, nr), inner_blks=(nr,), "
        "inner_idxs=(0,), offset0=nr)"
    ),
}


# "torch" alone starts other names, such as torch.channels_last
_STEMS = {name.split("_")[0].split("<")[0] for name in PACKINGS if not name.startswith("torch")}

VOCABULARY = Vocabulary(
    "weights",
    "packing of weights",
    PACKINGS,
    "|".join(sorted(["torch_", *_STEMS])),
    ALIASES,
    _REFUSED,
    DIMS,
    fixed={"t": 2},
)
