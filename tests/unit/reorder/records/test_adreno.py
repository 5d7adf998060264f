"""Q4_0 as llama.cpp keeps it on Adreno: made of GGUF's blocks and turned back, bit for bit."""

import numpy as np
import pytest

import reorder
from memdesc.record import record_desc
from reorder.records import Record, repack
from tests.packings import FORMULAS

_RNG = np.random.default_rng(0)


def _blocks(*dims: int) -> tuple[Record, np.ndarray, np.ndarray]:
    """Return random blocks of Q4_0, their codes and their scales."""
    *rows, inputs = dims
    scales = _RNG.standard_normal((*rows, inputs // 32), np.float32).astype(np.float16)
    low, high = (_RNG.integers(0, 16, (*scales.shape, 16), np.uint8) for _ in range(2))
    codes = np.concatenate([low, high], axis=-1).reshape(dims)
    bits = scales[..., None].view(np.uint8).reshape(*scales.shape, 2)
    packed = np.concatenate([bits, low | high << 4], axis=-1)
    return Record(record_desc(dims, "q4_0"), packed.reshape(-1)), codes, scales


@pytest.mark.parametrize(
    ("name", "dims"),
    [("ggml_soa", (8, 96)), ("adreno_noshuffle", (12, 64)), ("adreno_trans4_ns", (2, 8, 64))],
)
def test_blocks_become_the_two_arrays_of_a_device_and_come_back(
    name: str, dims: tuple[int, ...]
) -> None:
    record, codes, scales = _blocks(*dims)
    made = repack(record, name)
    nibbles = FORMULAS[name, 4](codes)
    assert np.array_equal(made.tensors["adreno_q"], nibbles[::2] | nibbles[1::2] << 4)
    turned = scales if name == "ggml_soa" else scales.swapaxes(-1, -2)
    assert made.tensors["adreno_d"].tobytes() == turned.tobytes()
    assert (repack(made, "q4_0").data == record.data).all()
    assert (reorder.dequantize(made).numpy() == reorder.dequantize(record).numpy()).all()
