"""Files with a tensor of every type that the package gguf decodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import reorder
from memdesc import known_records
from memdesc.record.gguf import GGUF_NUMBERS
from tests.gguf_files import gguf_file

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

gguf = pytest.importorskip("gguf")

KIND = gguf.GGMLQuantizationType
NAMES = [name for name in GGUF_NUMBERS.values() if name in known_records() and name != "q1_0"]
SHAPE = (3, 512)


def kind_of(name: str) -> int:
    return int(KIND[name.removeprefix("gguf_").upper()])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, NDArray[np.uint8]]]:
    """Write a model with the package gguf; return its path and the bytes of its tensors."""
    return _written(tmp_path_factory.mktemp("gguf") / "model.gguf")


def _written(path: Path, mask: int = 0xFF) -> tuple[Path, dict[str, NDArray[np.uint8]]]:
    rng = np.random.default_rng(0)
    with gguf_file(path) as writer:
        tensors = {}
        for name in NAMES:
            block, nbytes = gguf.GGML_QUANT_SIZES[KIND(kind_of(name))]
            shape = (SHAPE[0], SHAPE[1] // block * nbytes)
            tensors[name] = rng.integers(0, 256, shape, np.uint8) & np.uint8(mask)
            writer.add_tensor(name, tensors[name], raw_dtype=KIND(kind_of(name)))
    return path, tensors


def by_gguf(data: NDArray[np.uint8], name: str) -> NDArray[np.float32]:
    with np.errstate(all="ignore"):
        found: NDArray[np.float32] = gguf.dequantize(data, KIND(kind_of(name)))
    return found


def test_a_checkpoint_decodes_the_tensors_of_every_type(
    model: tuple[Path, dict[str, NDArray[np.uint8]]],
) -> None:
    path, tensors = model
    with reorder.open_checkpoint(path) as checkpoint:
        assert [*checkpoint] == NAMES
        for name, data in tensors.items():
            assert checkpoint[name].shape == SHAPE
            found = checkpoint[name].numpy()
            assert np.array_equal(found, by_gguf(data, name), equal_nan=True), name


def test_every_type_is_converted_to_bf16(tmp_path: Path) -> None:
    # without this bit, the scales of all types are finite
    path, tensors = _written(tmp_path / "model.gguf", ~0x40 & 0xFF)
    reorder.convert(path, tmp_path / "out.safetensors", ["*: ab, bf16"])
    with reorder.open_checkpoint(tmp_path / "out.safetensors") as made:
        for name, data in tensors.items():
            wanted = reorder.reorder(by_gguf(data, name), dtype="bf16").numpy()
            found = made[name].numpy()
            assert np.array_equal(
                found.astype(np.float32), wanted.astype(np.float32), equal_nan=True
            ), name
