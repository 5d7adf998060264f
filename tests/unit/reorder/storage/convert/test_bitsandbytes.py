"""Models of bitsandbytes: NF4 and FP4 are read and decoded, other formats refused by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import (
    Field,
    MemdescError,
    Number,
    RecordDesc,
    Rule,
    UnsupportedFormatError,
    memory_desc,
    record_desc,
)
from tests.unit.reorder.storage.convert.results import SMALL, converted, refused

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_DIMS = (24, 256)


def _layer(
    kind: str = "nf4", block: int = 64
) -> tuple[dict[str, NDArray[Any]], NDArray[np.float32]]:
    """Return the tensors of a layer, and its numbers by the definition."""
    rng = np.random.default_rng(0)
    table = np.array(record_desc(_DIMS, f"bnb_{kind}").rule.code.table, np.float32)
    codes = rng.integers(0, 16, _DIMS, np.uint8)
    absmax = rng.random((_DIMS[0], _DIMS[1] // block)).astype(np.float32)
    state = {"quant_type": kind, "blocksize": block, "dtype": "bfloat16", "shape": [*_DIMS]}
    tensors = {
        "weight": (codes[:, ::2] << 4 | codes[:, 1::2]).reshape(-1, 1),
        "weight.absmax": absmax.reshape(-1),
        "weight.quant_map": table,
        f"weight.quant_state.bitsandbytes__{kind}": np.frombuffer(
            json.dumps(state).encode(), np.uint8
        ),
    }
    return tensors, table[codes] * absmax.repeat(block, 1)


def _config(kind: str = "nf4", **more: Any) -> dict[str, Any]:
    return {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False} | {
        "bnb_4bit_quant_type": kind,
        "bnb_4bit_use_double_quant": False,
        **more,
    }


def _folder(path: Path, layer: dict[str, NDArray[Any]], **section: Any) -> Path:
    path.mkdir()
    tensors = {f"fc.{name}": array for name, array in layer.items()}
    tensors["norm.weight"] = np.ones(8, ml_dtypes.bfloat16)
    reorder.save(path / "model.safetensors", tensors)
    (path / "config.json").write_text(json.dumps({"quantization_config": section}))
    return path


def _said(folder: Path) -> str:
    with reorder.open_checkpoint(folder) as checkpoint, pytest.raises(MemdescError) as caught:
        checkpoint.record("fc")
    return str(caught.value)


@pytest.mark.parametrize("block", [32, 64, 256])
@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_indices_of_numbers_are_read_and_decoded(tmp_path: Path, kind: str, block: int) -> None:
    layer, wanted = _layer(kind, block)
    folder = _folder(tmp_path / "in", layer, **_config(kind))
    with reorder.open_checkpoint(folder) as checkpoint:
        record = checkpoint.record("fc")
    assert record.desc == record_desc(_DIMS, f"bnb_{kind}", block=block)
    assert np.array_equal(reorder.dequantize(record).numpy(), wanted)
    found = converted(
        folder,
        tmp_path / "out",
        f"*: bnb_{kind} -> plain, bf16",
        settings=SMALL._replace(max_bytes=1 << 14),
    )
    assert {*found} == {"fc.weight", "norm.weight"}
    assert np.array_equal(found["fc.weight"], wanted.astype(ml_dtypes.bfloat16))
    assert json.loads((tmp_path / "out/config.json").read_text()) == {}


def test_what_was_read_is_saved_as_it_was(tmp_path: Path) -> None:
    layer, _ = _layer()
    folder = _folder(tmp_path / "in", layer, **_config())
    made = converted(folder, tmp_path / "out", "fc: bnb_nf4 -> bnb_nf4")
    for name, array in layer.items():
        assert made[f"fc.{name}"].shape == array.shape
        assert np.array_equal(made[f"fc.{name}"], array)
    section = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]
    assert section["bnb_4bit_quant_type"] == "nf4"


@pytest.mark.parametrize(
    ("changed", "section", "problem"),
    [
        ({}, _config("fp4"), "declares bnb_fp4: 'fc' has no tensor"),
        ({}, _config("int4"), "bnb_4bit_quant_type is 'int4', not nf4"),
        ({"weight.absmax": np.zeros(95, np.float32)}, _config(), "has the shape (95,)"),
        ({"weight.quant_map": np.zeros(16, np.float32)}, _config(), "does not hold what"),
        ({"weight.quant_map": np.zeros(8, np.float32)}, _config(), "has the shape (8,)"),
        (
            {"weight.nested_absmax": np.zeros(1, np.float32)},
            _config(bnb_4bit_use_double_quant=True),
            "'bnb_nested' cannot be described as a record: with double quantisation the scale",
        ),
        (
            {"weight.nested_absmax": np.zeros(1, np.float32)},
            _config(),
            "declares bnb_nf4: 'bnb_nested' cannot be described as a record: with double",
        ),
        ({}, _config(load_in_4bit=False, load_in_8bit=True), "LLM.int8 multiplies codes by"),
        ({}, _config(load_in_4bit=False), "load_in_4bit is False, not True"),
    ],
)
def test_what_files_and_tensors_contradict_is_refused(
    tmp_path: Path, changed: dict[str, NDArray[Any]], section: dict[str, Any], problem: str
) -> None:
    folder = _folder(tmp_path / "in", _layer()[0] | changed, **section)
    said = _said(folder)
    assert problem in said
    if "there is no record for" not in said:  # else the rule says what it is
        refused(folder, tmp_path / "out", "*: bnb_nf4 -> plain, bf16")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b'{"shape": [24, 256]}',
        b'{"blocksize": 64, "dtype": "bfloat16", "shape": 24}',
        b'{"blocksize": 64, "dtype": "bfloat16", "shape": [24, "a"]}',
        b'{"blocksize": "64", "dtype": "bfloat16", "shape": [24, 256]}',
        b'{"blocksize": 0, "dtype": "bfloat16", "shape": [24, 256]}',
        b'{"blocksize": 48, "dtype": "bfloat16", "shape": [24, 256]}',
        b'{"blocksize": 64, "dtype": "int8", "shape": [24, 256]}',
        b'{"blocksize": 64, "dtype": ["a"], "shape": [24, 256]}',
        b'{"blocksize": 64, "dtype": "bfloat16", "shape": [24, 9223372036854775807]}',
        b'{"blocksize": 64, "dtype": "bfloat16", "shape": [256, 24]}',
        b'{"blocksize": 64, "dtype": "bfloat16", "shape": [24, 256]}',
        b"\xff" * 79,
    ],
)
def test_a_state_that_is_not_the_one_of_the_weight_is_refused(tmp_path: Path, text: bytes) -> None:
    layer, _ = _layer()
    layer["weight.quant_state.bitsandbytes__nf4"] = np.frombuffer(text, np.uint8)
    folder = _folder(tmp_path / "in", layer, **_config())
    assert "config.json declares bnb_nf4: " in _said(folder)


def test_int8_weights_are_refused_by_their_scales(tmp_path: Path) -> None:
    layer: dict[str, NDArray[Any]] = {
        "weight": np.ones((4, 8), np.int8),
        "SCB": np.ones(4, np.float32),
        "weight_format": np.zeros((), np.uint8),
    }
    section = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    assert "'bnb_int8' cannot be described" in _said(_folder(tmp_path / "in", layer, **section))


def test_blocks_that_cross_rows_are_refused() -> None:
    with pytest.raises(MemdescError, match="bitsandbytes counts blocks over the whole matrix"):
        record_desc((64, 96), "bnb_nf4")
    with pytest.raises(UnsupportedFormatError, match="decode the scales first"):
        record_desc((64, 64), "bnb_nested")


def test_scales_of_double_quantisation_are_decoded_as_a_record_of_their_own() -> None:
    # the recipe of docs/records.md, beside the definition
    rng = np.random.default_rng(0)
    table = np.sort(rng.standard_normal(256)).astype(np.float32)
    indices, nested = rng.integers(0, 256, 600, np.uint8), rng.random(3).astype(np.float32)
    offset = np.float32(0.37)
    wanted = table[indices] * nested.repeat(256)[:600] + offset

    def field(name: str, kind: str, group: int) -> Field:
        return Field(name, kind, memory_desc((-(-600 // group),), kind).layout, (group,), name)

    desc = RecordDesc(
        (600,),
        (field("absmax", "u8", 1), field("nested", "f32", 256), field("offset", "f32", 600)),
        Rule(
            Number((("absmax", 0),), table=tuple(table.tolist())),
            (Number((("nested", 0),)),),
            offset=(Number((("offset", 0),)),),
        ),
    )
    held = {"absmax": indices, "nested": nested, "offset": np.array([offset])}
    assert np.array_equal(reorder.dequantize(reorder.Record(desc, held)).numpy(), wanted)
