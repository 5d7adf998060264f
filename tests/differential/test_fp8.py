"""FP8 weights decoded by torch with the formulas that their producers publish.

Sources: DeepSeek-V3, `inference/kernel.py`, `weight_dequant_kernel` (f32 codes times f32 scales,
rounded to the type of the output); compressed-tensors 0.20, `quantization/lifecycle/forward.py`,
`dequantize` (codes in the type of the scales, times the scales).
"""

from typing import Any

import numpy as np
import pytest

import reorder
from memdesc.record import record_desc

pytestmark = pytest.mark.peers

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

_CODES = {"f8_e4m3": "float8_e4m3fn", "f8_e5m2": "float8_e5m2"}
_SCALES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "e8m0": "float8_e8m0fnu"}


def _layer(dims: tuple[int, int], name: str, codes: str, scales: str) -> tuple[Any, Any, Any]:
    """Return a record with all codes and random scales, and its tensors in torch."""
    rng = np.random.default_rng(0)
    desc = record_desc(dims, name, codes=codes, scales=scales)
    words = torch.from_numpy(rng.integers(0, 256, dims, np.uint8))
    sizes = desc.field("weight_scale").layout.dims
    values = torch.from_numpy(rng.lognormal(-5, 1, sizes).astype(np.float32))
    scale = values.to(getattr(torch, _SCALES[scales]))
    tensors = {"weight": words.numpy(), "weight_scale": scale.view(torch.uint8).numpy()}
    return reorder.records.Record(desc, tensors), words.view(getattr(torch, _CODES[codes])), scale


def _of_each(scale: Any, groups: tuple[int, ...], dims: tuple[int, int]) -> Any:
    """Return the scale of each element."""
    rows = scale.repeat_interleave(groups[0], 0)[: dims[0]]
    return rows.repeat_interleave(groups[1], 1)[:, : dims[1]]


def _same(ours: Any, theirs: Any) -> bool:
    """Whether all bits are equal; NaNs are equal."""
    found, wanted = torch.from_numpy(np.asarray(ours, np.float32)), theirs.float()
    nans = torch.isnan(wanted)
    bits = torch.equal(found.view(torch.int32)[~nans], wanted.view(torch.int32)[~nans])
    return bool(bits and torch.equal(torch.isnan(found), nans))


@pytest.mark.parametrize("scales", _SCALES)
@pytest.mark.parametrize("codes", _CODES)
@pytest.mark.parametrize("name", ["fp8_tensor", "fp8_channel", "fp8_block"])
@pytest.mark.parametrize("dims", [(256, 256), (300, 130), (1, 7), (129, 1)])
def test_fp8_is_decoded_as_by_deepseek(
    dims: tuple[int, int], name: str, codes: str, scales: str
) -> None:
    record, weight, scale = _layer(dims, name, codes, scales)
    each = _of_each(scale.float(), record.desc.field("weight_scale").groups, dims)
    wanted = weight.float() * each
    assert _same(reorder.dequantize(record).numpy(), wanted)
    for kind in ("bf16", "f16"):
        made = reorder.dequantize(record, dtype=kind).numpy()
        assert _same(made, wanted.to(getattr(torch, _SCALES[kind])))


@pytest.mark.parametrize("codes", _CODES)
@pytest.mark.parametrize("name", ["fp8_tensor", "fp8_channel", "fp8_block"])
def test_scales_of_bf16_give_what_compressed_tensors_gives(name: str, codes: str) -> None:
    # the product has 12 bits at most, so f32 holds it and bf16 rounds it once
    record, weight, scale = _layer((300, 130), name, codes, "bf16")
    each = _of_each(scale, record.desc.field("weight_scale").groups, (300, 130))
    made = reorder.dequantize(record, dtype="bf16").numpy()
    assert _same(made, weight.to(torch.bfloat16) * each)
    exact = weight.double() * each.double()
    assert _same(made, exact.to(torch.bfloat16))
