"""Orders of paged KV caches: vLLM's `LBHNC`, FlashInfer's `NHD`, LMCache's `NL_X_NB_BS_NH_CS`.

The logical dims are always in this order, without those that the tensor of a name does not have:
layer, block (page), K and V, head, token in the block, channel. Orders that fuse K and V into the
channels have one dim for both. A page table is data, not part of a layout.

Sources: vLLM at 14f7a27, `v1/kv_cache_layout.py`, and `csrc/attention/attention_kernels.cuh` for
the keys of PagedAttention, whose channels are in vectors of 16 bytes; FlashInfer 0.7.2, paged
`kv_layout` of K or V alone; LMCache 0.5.6, `v1/gpu_connector/kv_format/specs`, where the part of a
name before the last `X` counts the tensors, and the rest spells the order in one of them.
"""

from __future__ import annotations

from memdesc.names.vocabulary import ANY_WIDTH, Row, Vocabulary

_DOMAIN = "kv cache"
_LOGICAL = "lbthnc"
_DIMS = {"l": "layers", "b": "blocks", "t": "K and V", "h": "heads", "n": "tokens", "c": "channels"}
_VLLM = ("LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC")
# LMCache's words, each with the dims that it stands for; ONE is a dim of size 1
_SIZES = {"NL": "l", "NB": "b", "TWO": "t", "NH": "h", "BS": "n", "HS": "c", "CS": "c"}
_WORDS = _SIZES | {"NBBS": "bn", "ONE": ""}
_LMCACHE = (
    *("NB_NL_TWO_BS_NH_HS", "NB_NL_TWO_NH_BS_HS"),
    *("NL_X_NB_TWO_BS_NH_HS", "NL_X_NB_TWO_NH_BS_HS"),
    *("NL_X_TWO_NB_BS_NH_HS", "NL_X_TWO_NB_NH_BS_HS", "NL_X_TWO_NB_NH_ONE_BS_HS"),
    *("NL_X_NB_BS_NH_TWO_HS", "NL_X_NB_NH_BS_TWO_HS", "NL_X_NB_BS_NH_CS", "NL_X_NB_NH_BS_CS"),
    *("NL_X_NB_BS_NH_HS", "NL_X_TWO_X_NB_BS_NH_HS", "TWO_X_NL_X_NB_BS_NH_HS"),
    *("NL_X_NB_BS_HS", "NL_X_NBBS_ONE_HS", "NL_X_NP_X_NB_BS_ONE_HS", "TWO_X_NL_X_NBBS_NH_HS"),
)


def _row(order: str) -> Row:
    """Return the row of dims in the order of memory."""
    letters = "".join(letter for letter in _LOGICAL if letter in order)
    tag = order.translate({ord(letter): "abcdef"[k] for k, letter in enumerate(letters)})
    return Row(letters, _DOMAIN, {ANY_WIDTH: tag})


def _order(name: str) -> str:
    """Return the dims of one tensor of a format of LMCache."""
    return "".join(_WORDS[word] for word in name.rpartition("X_")[2].split("_"))


_ROWS = {
    **{name: _row(name.lower()) for name in _VLLM},
    "vllm_paged_k": Row("bhnc", _DOMAIN, {8: "abDc16d", 16: "abDc8d", 32: "abDc4d"}, "c"),
    "vllm_paged_v": _row("bhcn"),
    "NHD": _row("bnhc"),
    "HND": _row("bhnc"),
    **{name: _row(_order(name)) for name in _LMCACHE},
}
_REFUSED = {
    "NL_X_NB_BSV_BSS": (
        "it holds in each block the codes of all tokens, then their f32 scales; describe both "
        "separately, the scales with an offset0"
    )
}
VOCABULARY = Vocabulary(
    "kvcache",
    "order of KV caches",
    _ROWS,
    "NL_|NB_|TWO_X|vllm_paged",
    refused=_REFUSED,
    dims=_DIMS,
    fixed={"t": 2},
)
