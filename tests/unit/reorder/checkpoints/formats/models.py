"""Models in several files: parts of GGUF as the package writes them, and shards of safetensors."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reorder.checkpoints.formats.entry import Tensor
from tests.headers import gguf_file
from tests.writers import write_tensors


def write_parts(folder: Path) -> dict[str, NDArray[Any]]:
    """Write five tensors into three parts of GGUF; return them."""
    rng = np.random.default_rng(0)
    tensors = {f"blk.{k}": rng.random((4, 32)).astype(np.float32) for k in range(5)}
    with gguf_file(folder / "m.gguf", split_max_tensors=2) as writer:
        writer.add_uint32("llama.block_count", 5)
        for name, array in tensors.items():
            writer.add_tensor(name, array)
    return tensors


def shard(path: Path, *names: str, **metadata: str) -> Path:
    """Write a file of safetensors with tensors of one byte."""
    return write_tensors(path, [Tensor(name, "u8", (1,), 1) for name in names], None, metadata)
