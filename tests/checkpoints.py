"""Checkpoints for tests: safetensors written by its rule, and quantised layers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memdesc.dtypes import DATA_TYPES

_KINDS = {
    "int32": "I32",
    "float16": "F16",
    "float32": "F32",
    "uint8": "U8",
    "uint32": "U32",
    "int64": "I64",
    "complex64": "C64",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e5m2": "F8_E5M2",
    "int8": "I8",
}


def write_safetensors(
    path: Path, tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None
) -> None:
    """Write arrays as the package safetensors does."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    at = 0
    for name, array in tensors.items():
        offsets = [at, at + array.nbytes]
        header[name] = {
            "dtype": _KINDS[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": offsets,
        }
        at += array.nbytes
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            file.write(array.tobytes())


def awq_layer(
    seed: int = 0,
    dims: tuple[int, int] = (128, 256),
    group: int = 64,
    zeros: tuple[int, int] = (1, 8),
) -> dict[str, NDArray[Any]]:
    """Return the tensors of a layer as AutoAWQ stores them: any codes, zero points in a range."""
    rng = np.random.default_rng(seed)
    rows, columns = dims
    points = rng.integers(*zeros, (rows // group, columns // 8, 8))
    return {
        "qweight": rng.integers(-(2**31), 2**31, (rows, columns // 8)).astype(np.int32),
        "qzeros": (points << 4 * np.arange(8)).sum(-1).astype(np.uint32).view(np.int32),
        "scales": rng.random((rows // group, columns)).astype(np.float16),
    }


def gptq_layer(
    seed: int = 0, dims: tuple[int, int] = (128, 256), group: int = 64
) -> tuple[dict[str, NDArray[Any]], NDArray[np.float32]]:
    """Return the tensors of a layer as AutoGPTQ stores them, and its weights over (in, out)."""
    rng = np.random.default_rng(seed)
    rows, columns = dims
    codes = rng.integers(0, 16, dims)
    zeros = rng.integers(1, 16, (rows // group, columns))
    scales = rng.random((rows // group, columns)).astype(np.float16)
    shifts = 4 * np.arange(8)
    qweight = (codes.reshape(-1, 8, columns) << shifts[:, None]).sum(1)
    qzeros = (zeros.reshape(rows // group, -1, 8) - 1 << shifts).sum(-1)
    groups = np.arange(rows) // group
    values = (codes - zeros[groups]) * scales[groups].astype(np.float32)
    tensors = {
        "qweight": qweight.astype(np.uint32).view(np.int32),
        "qzeros": qzeros.astype(np.uint32).view(np.int32),
        "scales": scales,
    }
    return tensors, values.astype(np.float32)


def fp8_layer(seed: int = 0, dims: tuple[int, int] = (256, 128)) -> dict[str, NDArray[Any]]:
    """Return the tensors of a layer of FP8 in blocks of 128 x 128, as DeepSeek-V3 stores them."""
    rng = np.random.default_rng(seed)
    kind = DATA_TYPES["f8_e4m3"].numpy
    return {
        "weight": rng.standard_normal(dims).astype(kind),
        "weight_scale_inv": rng.random((dims[0] // 128, dims[1] // 128)).astype(np.float32),
    }


def write_config(folder: Path, **section: Any) -> None:
    """Write a config.json that declares quantised weights."""
    (folder / "config.json").write_text(json.dumps({"quantization_config": section}))


def model_folder(folder: Path, layers: int = 2, **options: Any) -> dict[str, NDArray[Any]]:
    """Write a quantised model into a new folder; returns its tensors."""
    rng = np.random.default_rng(1)
    tensors = {
        f"model.layers.{k}.mlp.{name}": array
        for k in range(layers)
        for name, array in awq_layer(k, **options).items()
    }
    tensors["model.layers.0.norm.weight"] = rng.random(32).astype(np.float16)
    tensors["lm_head.weight"] = rng.standard_normal((40, 128)).astype(np.float16)
    tensors["conv.weight"] = rng.standard_normal((20, 6, 3, 3)).astype(np.float32)
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
    config = {
        "architectures": ["Some"],
        "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 64},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    return tensors
