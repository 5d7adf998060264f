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

from memdesc.names.vocabulary import Row, Vocabulary, rows_of
from memdesc.tags import LETTERS

# What the letters of dims stand for.
_DIMS = {
    "e": "expert",
    "t": "gate and up",
    "i": "in",
    "o": "out",
    "g": "group",
    "r": "row",
    "c": "column",
}

# `rows_of` explains the table
_TABLE = """
gptq Io weights 4:Ab8a 8:Ab4a +e # AutoGPTQ, GPTQModel: qweight
gptq_exllama Io weights 4:Ab2a/1.4a/2 # ExLlamaV2, qdq_4.cuh; vLLM, gptq_shuffle
awq iO weights 4:aB2b/1.4b/2 +e # AutoAWQ, GEMM: qweight and qzeros
# vLLM, marlin_utils.py
marlin IO weights 4:AB8b/1.4a/2.4b/16.2a/1.2b/8.2a/8 8:AB8b/1.4a/2.8b/8.2a/1.2a/8 +e
# vLLM, marlin_utils.py, 8-bit activations
marlin_a8 IO weights 4:AB8b/1.4a/4.4b/8.4a/1.2a/16 8:AB8b/1.4a/4.4b/8.2a/16.4a/1
# vLLM, marlin_utils.py
marlin_scales gO scales 16:aB8b/1.8b/8 +e
marlin_scales_channelwise gO scales 16:aB4b/2.4b/8.2b/1 #, one group
marlin_zeros gO zero_points 4:aB8b/1.2b/8.4b/16 8:aB8b/1.2b/32.2b/8.2b/16 +e
# torch 2.13, _convert_weight_to_int4pack_for_cpu
torch_int4_cpu Oi weights 4:Ab2a/16.16a/1.2a/32 +shape #, AVX-512
torch_int4_cpu_avx2 Oi weights 4:Ab16a/1.2a/16 +shape #, AVX2
torch_int4_cpu_default Oi weights 4:Ab32a +shape #, without AVX2
# torch 2.11, _convert_weight_to_int4pack on an NVIDIA GPU
tinygemm_k2 oI weights 4:AB8a4b/2.2b/1.2b/16.2b/8 #, inner_k_tiles=2
tinygemm_k4 oI weights 4:AB8a4b/2.2b/32.2b/1.2b/16.2b/8 #, inner_k_tiles=4
tinygemm_k8 oI weights 4:AB8a4b/2.4b/32.2b/1.2b/16.2b/8 #, inner_k_tiles=8
# TensorRT-LLM, preprocess_weights_for_mixed_gemm, f16 activations, sm80 to sm89
trtllm_mixed_gemm IO weights 4:BA4b2a/32.4a/2.2a/1.4a/8 8:BA2b4a/16.4a/2.2a/1.2a/8 +shape +e
# ROCm aiter, shuffle.py: shuffle_weight, layout (16, 16)
aiter_16x16 OI weights 4:AB2b16a32b 8:AB2b16a16b 16:AB4b16a8b +shape +e
# ROCm aiter, shuffle.py: shuffle_weight of 8-bit elements, then pack_int8_to_packed_int4
aiter_int4 OI weights 4:AB2b/16.16a2b/8.4b/1.2b/4 +e
# ROCm aiter, shuffle.py
aiter_a16w4_gated tOI weights 4:BaC4c16b32c +e #: shuffle_weight_a16w4, 16 lanes, gate_up
aiter_a16w4_separate OI weights 4:AB16a4b/8.4b/32.8b/1 +e #: shuffle_weight_a16w4_sep_fp4
# llama.cpp, ggml-opencl, cvt.cl
ggml_soa oI weights 4:aB16b/1.2b/16
adreno_noshuffle oI weights 4,8:Ba4b #, transposed words
adreno_trans4_ns eoI weights 4:aCb8c #, experts
adreno_scales og scales 16:ba #, transposed scales
aiter_scales rc scales 8:AB4b/1.16a/1.2b/4.2a/16__a256 +e # ROCm aiter: e8m0_shuffle
# ROCm aiter, shuffle.py
aiter_a16w4_scales RC scales 8:AB4b/1.16a/1.2b/4.2a/16 +e #: shuffle_scale_a16w4
aiter_a16w4_scales_gated tRC scales 8:BC4c/1.16b2c/4a +e #: shuffle_scale_a16w4, gate_up
aiter_a16w4_scales_separate RC scales 8:AB16a/1.4b/1.2b/4.2a/16 +e #: shuffle_scale_a16w4_sep_fp4
# FlashInfer 0.7.2
trtllm_gated toi weights bac +e #, reorder_rows_for_gated_act_gemm
trtllm_block_major_k oI weights 16:Ba64b 8:Ba128b 4:Ba256b +e #, convert_to_block_layout, 128 bytes
trtllm_shuffled16 Oi weights A2a/1.8a/2b +e #, shuffle_matrix_a, epilogue_tile_m=64
trtllm_shuffled32 Oi weights A4a/1.8a/4b +e #, shuffle_matrix_a, epilogue_tile_m=128
# FlashInfer 0.7.2, shuffle_matrix_a, epilogue_tile_m=64, after reorder_rows_for_gated_act_gemm
trtllm_shuffled16_gated tOi weights Ba8bc +e
# FlashInfer 0.7.2, shuffle_matrix_a, epilogue_tile_m=128, after reorder_rows_for_gated_act_gemm
trtllm_shuffled32_gated tOi weights B2b/1a8b/2c +e
# FlashInfer 0.7.2, shuffle_matrix_a, epilogue_tile_m=64, then convert_to_block_layout, 128 bytes
trtllm_shuffled16_block_major_k OI weights 16:BA2a/1.8a/2.64b 8:BA2a/1.8a/2.128b \
4:BA2a/1.8a/2.256b +e
# FlashInfer 0.7.2, shuffle_matrix_a, epilogue_tile_m=128, then convert_to_block_layout, 128 bytes
trtllm_shuffled32_block_major_k OI weights 16:BA4a/1.8a/4.64b 8:BA4a/1.8a/4.128b \
4:BA4a/1.8a/4.256b +e
# FlashInfer 0.7.2, shuffle_matrix_a, epilogue_tile_m=64, after reorder_rows_for_gated_act_gemm, \
then convert_to_block_layout, 128 bytes
trtllm_shuffled16_gated_block_major_k tOI weights 16:CBa8b64c 8:CBa8b128c 4:CBa8b256c +e
# FlashInfer 0.7.2, shuffle_matrix_a, epilogue_tile_m=128, after reorder_rows_for_gated_act_gemm, \
then convert_to_block_layout, 128 bytes
trtllm_shuffled32_gated_block_major_k tOI weights 16:CB2b/1a8b/2.64c 8:CB2b/1a8b/2.128c \
4:CB2b/1a8b/2.256c +e
# FlashInfer 0.7.2
trtllm_scales16 Rc scales 8:AB2a/16.2a/1.8a/2.4a/32.4b +e #, shuffle_matrix_sf_a, epilogue_tile_m=64
trtllm_scales32 Rc scales 8:AB4a/1.8a/4.4a/32.4b +e #, shuffle_matrix_sf_a, epilogue_tile_m=128
# FlashInfer 0.7.2, shuffle_matrix_sf_a, epilogue_tile_m=64, after reorder_rows_for_gated_act_gemm
trtllm_scales16_gated tRc scales 8:BC2b/8a8b/1.4b/16.4c +e
# FlashInfer 0.7.2, shuffle_matrix_sf_a, epilogue_tile_m=128, after reorder_rows_for_gated_act_gemm
trtllm_scales32_gated tRc scales 8:BC2b/1a8b/2.4b/16.4c +e
# DeepGEMM, get_mn_major_tma_aligned_packed_ue8m0_tensor and, of f32, \
get_mn_major_tma_aligned_tensor
deepgemm_scales rc scales 8:Ba4b__a4 32:ba__a4 +e
# FlashInfer 0.7.2, interleave_moe_weights_for_sm90_mixed_gemm, int4; TensorRT-LLM
sm90_mixed_gemm OI weights 4:A2b/16.8a/1B2b/32.4b/4.2a/8.4b/1 +e
# FlashInfer 0.7.2, interleave_moe_scales_for_sm90_mixed_gemm, groups of 32 and of 128
sm90_mixed_gemm_scales RC scales 8:AB16a/1.4a/16.4b 16:Ab8a/1.8a/8 +e
bf16_r16 OI weights 16:AB16a2b # ik_llama.cpp, repack_bf16
nvfp4_scales rc scales 8:AB32a/1.4a/32.4b +e # torchao 0.18, to_blocked; cuBLASLt; CUTLASS
nvfp4_scales_8x4 rc scales 8:AB8a4b # FlashInfer, SfLayout.layout_8x4
# cuBLASLt, cublasLtOrder_t; FasterTransformer, quantize_weight.cu
CUBLASLT_ORDER_COL32 rc matrix Ba32b
CUBLASLT_ORDER_COL4_4R2_8C rc matrix BA2a/1.4b2b4a/2.4b
CUBLASLT_ORDER_COL32_2R_4R4 rc matrix BA4a/2.4a/8.2a/1.32b
# CUTLASS 2
ColumnMajorInterleaved<{4,32,64}> rc matrix Ba{}b
RowMajorInterleaved<{4,32,64}> rc matrix Ab{}a
TensorNCxHWx<{4,32,64}> nchw data aBcd{}b
TensorCxRSKx<{4,32,64}> oihw weights Bcda{}b
# onnxruntime 1.31, MLAS
mlas_nchwc{8,16} nchw data 32:aBcd{}b
mlas_oihwbo{8,16} oihw weights 32:Abcd{}a #, input nchw
mlas_oihwbibo{8,16} oihw weights 32:ABcd{}b{}a
"""
# the suffix of a name if there is one matrix for each expert, one after the other
EXPERTS = "_experts"


def _of_experts(row: Row) -> Row:
    """Return a packing with an additional first dim, outermost in memory."""
    following = str.maketrans(LETTERS[:-1], LETTERS[1:]) | str.maketrans(
        LETTERS[:-1].upper(), LETTERS[1:].upper()
    )
    tags = {bits: f"a{tag.translate(following)}" for bits, tag in row.tags.items()}
    return row._replace(letters=f"e{row.letters}", domain=f"expert {row.domain}", tags=tags)


_ROWS = rows_of(_TABLE)
_ROWS |= {name + EXPERTS: _of_experts(row) for name, row in _ROWS.items() if row.has_experts}
# Other names (of cuDNN, torch, FlashInfer, the OCP's MX formats and bitsandbytes) -> name in the
# table.
_ALIASES = {
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
_STEMS = {name.split("_")[0].split("<")[0] for name in _ROWS if not name.startswith("torch")}

VOCABULARY = Vocabulary(
    "weights",
    "packing of weights",
    _ROWS,
    "|".join(sorted(["torch_", *_STEMS])),
    _REFUSED,
    _ALIASES,
    dims=_DIMS,
)
