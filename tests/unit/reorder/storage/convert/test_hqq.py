"""Models of HQQ: codes in parts of bytes, float zero points, and facts in tensors of their own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder
from memdesc import DATA_TYPES, MemdescError, record_desc
from tests.unit.reorder.storage.convert.results import converted, refused

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_DIMS = (24, 256)


def _layer(
    bits: int = 4, group: int = 64, kind: str = "bf16"
) -> tuple[dict[str, NDArray[Any]], NDArray[Any]]:
    """Return the tensors of a layer, and its numbers: each operation in the type of the scales."""
    rng = np.random.default_rng(bits)
    dtype, parts = DATA_TYPES[kind].numpy, 8 // bits
    codes = rng.integers(0, 1 << bits, _DIMS, np.uint8)
    rows = codes.reshape(parts, -1, group)
    packed = sum(rows[k].astype(np.uint8) << bits * (parts - 1 - k) for k in range(parts))
    count = _DIMS[0] * _DIMS[1] // group
    scale = rng.random((count, 1)).astype(dtype)
    zero = (rng.random((count, 1)) * (1 << bits)).astype(dtype)
    names = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}
    tensors: dict[str, NDArray[Any]] = {
        "W_q": np.asarray(packed, np.uint8),
        "scale": scale,
        "zero": zero,
        "shape": np.array(_DIMS, np.int64),
        "nbits": np.array(bits, np.int32),
        "group_size": np.array(group, np.int32),
        "axis": np.array(1, np.int32),
        "packing": np.frombuffer(f"{bits}bit_u8".encode(), np.uint8),
        "unpack_view_dtype": np.frombuffer(b"torch.uint8", np.uint8),
        "compute_dtype": np.frombuffer(f"torch.{names[kind]}".encode(), np.uint8),
        "round_zero": np.array(bits == 4, np.uint8),
    }
    for name, flag in {
        "view_as_float": 0,
        "quant_scale": 0,
        "quant_zero": 0,
        "offload_meta": 0,
        "encoded_state_dict": 1,
        "stores_quant_config": 1,
        "channel_wise": 1,
        "optimize": 1,
    }.items():
        tensors[name] = np.array(flag, np.uint8)
    each = [array.reshape(_DIMS[0], -1).repeat(group, 1) for array in (scale, zero)]
    moved = (codes.astype(np.float32) - each[1].astype(np.float32)).astype(dtype)
    numbers = (moved.astype(np.float32) * each[0].astype(np.float32)).astype(dtype)
    return tensors, numbers


def _folder(path: Path, layer: dict[str, NDArray[Any]]) -> Path:
    path.mkdir()
    reorder.save(path / "model.safetensors", {f"fc.{name}": each for name, each in layer.items()})
    config = {"quantization_config": {"quant_method": "hqq", "quant_config": {}}}
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.mark.parametrize("kind", ["f32", "bf16", "f16"])
@pytest.mark.parametrize(("bits", "group"), [(8, 64), (4, 64), (4, 32), (2, 128), (1, 256)])
def test_weights_are_read_and_decoded(tmp_path: Path, bits: int, group: int, kind: str) -> None:
    layer, wanted = _layer(bits, group, kind)
    folder = _folder(tmp_path / "in", layer)
    with reorder.open_checkpoint(folder) as checkpoint:
        record = checkpoint.record("fc")
    sizes = _DIMS[1] if group == _DIMS[1] else group
    assert record.desc == record_desc(_DIMS, "hqq", bits=bits, group=sizes, scales=kind)
    assert reorder.dequantize(record, dtype=kind).numpy().tobytes() == wanted.tobytes()
    rule = f"*: hqq(bits={bits}) -> plain, {kind}"
    found = converted(folder, tmp_path / "out", rule)
    assert {*found} == {"fc.weight"}
    assert found["fc.weight"].tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"axis": np.array(0, np.int32)}, "'fc.axis' does not hold what"),
        ({"nbits": np.array(3, np.int32)}, "bits must be 1, 2, 4 or 8, not 3"),
        ({"nbits": np.array(8, np.int32)}, "'fc.W_q' of u8 has the shape (48, 64)"),
        ({"nbits": np.zeros(2, np.int32)}, "'fc.nbits' of s32 and shape (2,) is not an integer"),
        ({"nbits": np.array(4.0, np.float32)}, "is not an integer"),
        ({"group_size": np.array(96, np.int32)}, "a group of 96 does not divide"),
        ({"group_size": np.array(32, np.int32)}, "has the shape"),
        ({"shape": np.array((24, 128), np.int64)}, "has the shape"),
        ({"shape": np.array((25, 256), np.int64)}, "needs a multiple of 2 along a"),
        ({"shape": np.array(24, np.int64)}, "does not hold the 2 dims of a matrix"),
        ({"quant_zero": np.array(1, np.uint8)}, "'fc.quant_zero' does not hold what"),
        ({"compute_dtype": np.frombuffer(b"torch.bfloat32", np.uint8)}, "does not hold what"),
        ({"zero": np.zeros((96, 1), np.float16)}, "'fc.zero' of f16 has the shape"),
        ({"zero": None}, "has no tensor 'zero'"),
        ({"optimize": None}, "has no tensor 'optimize'"),
    ],
)
def test_what_tensors_contradict_is_refused(
    tmp_path: Path, changed: dict[str, Any], problem: str
) -> None:
    layer = {name: each for name, each in (_layer()[0] | changed).items() if each is not None}
    folder = _folder(tmp_path / "in", layer)
    with reorder.open_checkpoint(folder) as checkpoint, pytest.raises(MemdescError) as caught:
        checkpoint.record("fc")
    assert problem in str(caught.value)
    refused(folder, tmp_path / "out", "*: hqq -> plain, bf16")


def test_float_zero_points_are_moved_to_more_bits_and_to_nothing_else() -> None:
    layer, wanted = _layer(2)
    desc = record_desc(_DIMS, "hqq", bits=2)
    record = reorder.Record(desc, {name: layer[name] for name in desc.tensors})
    wide = reorder.repack(record, "hqq", bits=4, group=32)
    assert reorder.dequantize(wide, dtype="bf16").numpy().tobytes() == wanted.tobytes()
    for name in ("awq", "mlx", "q4_1"):
        with pytest.raises(MemdescError, match="zero points that are floats"):
            reorder.repack(record, name)
    with pytest.raises(MemdescError, match="rounding differs where zero points"):
        reorder.repack(record, "hqq", scales="f32")
