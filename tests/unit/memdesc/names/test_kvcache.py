"""Orders of KV caches against numpy: the shape of each engine's tensor, as its sources state it."""

import numpy as np
import pytest

import reorder
from memdesc import known_names, memory_desc

# sizes of layers, blocks, K and V, heads, tokens and channels
_L, _B, _T, _H, _N, _C = 3, 5, 2, 4, 6, 16

# name -> the logical shape, and the axes of the engine's tensor in the order of memory
_BHNC, _BTHNC = (_B, _H, _N, _C), (_B, _T, _H, _N, _C)
_LBHNC, _LBTHNC = (_L, _B, _H, _N, _C), (_L, _B, _T, _H, _N, _C)
_TENSORS = {
    # vLLM, KVCacheLayout: the value of each member
    "LBHNC": (_LBHNC, (0, 1, 2, 3, 4)),
    "LBNHC": (_LBHNC, (0, 1, 3, 2, 4)),
    "LHBNC": (_LBHNC, (0, 2, 1, 3, 4)),
    "BLHNC": (_LBHNC, (1, 0, 2, 3, 4)),
    "BLNHC": (_LBHNC, (1, 0, 3, 2, 4)),
    "BHLNC": (_LBHNC, (1, 2, 0, 3, 4)),
    "vllm_paged_v": (_BHNC, (0, 1, 3, 2)),  # blocks, heads, channels, tokens
    # FlashInfer: N and H name the tokens of a page and the heads
    "NHD": (_BHNC, (0, 2, 1, 3)),
    "HND": (_BHNC, (0, 1, 2, 3)),
    # LMCache: the shape that the page of each format states
    "NB_NL_TWO_BS_NH_HS": (_LBTHNC, (1, 0, 2, 4, 3, 5)),
    "NB_NL_TWO_NH_BS_HS": (_LBTHNC, (1, 0, 2, 3, 4, 5)),
    "NL_X_NB_TWO_BS_NH_HS": (_BTHNC, (0, 1, 3, 2, 4)),
    "NL_X_NB_TWO_NH_BS_HS": (_BTHNC, (0, 1, 2, 3, 4)),
    "NL_X_TWO_NB_BS_NH_HS": (_BTHNC, (1, 0, 3, 2, 4)),
    "NL_X_TWO_NB_NH_BS_HS": (_BTHNC, (1, 0, 2, 3, 4)),
    "NL_X_TWO_NB_NH_ONE_BS_HS": (_BTHNC, (1, 0, 2, 3, 4)),
    "NL_X_NB_BS_NH_TWO_HS": (_BTHNC, (0, 3, 2, 1, 4)),
    "NL_X_NB_NH_BS_TWO_HS": (_BTHNC, (0, 2, 3, 1, 4)),
    "NL_X_NB_BS_NH_CS": (_BHNC, (0, 2, 1, 3)),
    "NL_X_NB_NH_BS_CS": (_BHNC, (0, 1, 2, 3)),
    "NL_X_NB_BS_NH_HS": (_BHNC, (0, 2, 1, 3)),
    "NL_X_TWO_X_NB_BS_NH_HS": (_BHNC, (0, 2, 1, 3)),
    "TWO_X_NL_X_NB_BS_NH_HS": (_BHNC, (0, 2, 1, 3)),
    "NL_X_NB_BS_HS": ((_B, _N, _C), (0, 1, 2)),
    "NL_X_NBBS_ONE_HS": ((_B, _N, _C), (0, 1, 2)),
    "NL_X_NP_X_NB_BS_ONE_HS": ((_B, _N, _C), (0, 1, 2)),
    "TWO_X_NL_X_NBBS_NH_HS": (_BHNC, (0, 2, 1, 3)),
}


@pytest.mark.parametrize("name", _TENSORS)
def test_tensor_of_a_name(name: str) -> None:
    shape, order = _TENSORS[name]
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    assert reorder.reorder(x, name).elements.tolist() == x.transpose(order).ravel().tolist()


def test_every_name_has_a_tensor() -> None:
    known = {name.text for name in known_names() if name.vocabulary == "kvcache"}
    assert known == {*_TENSORS, "vllm_paged_k", "NL_X_NB_BSV_BSS"}


@pytest.mark.parametrize(("dtype", "x"), [("u8", 16), ("f16", 8), ("f32", 4)])
def test_keys_of_paged_attention_have_vectors_of_16_bytes(dtype: str, x: int) -> None:
    """[num_blocks, num_heads, head_size / x, block_size, x], x the elements of 16 bytes."""
    keys = (
        np.arange(_B * _H * _N * _C)
        .reshape(_BHNC)
        .astype({"u8": "u1", "f16": "f2"}.get(dtype, "f4"))
    )
    wanted = keys.reshape(_B, _H, _N, _C // x, x).transpose(0, 1, 3, 2, 4)
    packed = reorder.reorder(keys, memory_desc(_BHNC, dtype, "vllm_paged_k"))
    assert packed.data.tobytes() == wanted.tobytes()
