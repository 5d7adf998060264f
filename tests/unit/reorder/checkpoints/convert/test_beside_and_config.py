"""What is beside the weights of a model stays true, or is left out and named."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from memdesc import MemdescError
from memdesc.dtypes import DATA_TYPES
from memdesc.record import record_desc
from tests.checkpoints import fp8_layer, write_safetensors
from tests.unit.reorder.checkpoints.convert.results import SMALL, words_of

_FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def _model(
    folder: Path, layer: dict[str, NDArray[Any]], section: dict[str, Any], **config: Any
) -> Path:
    folder.mkdir()
    tensors = {f"model.layers.0.mlp.{name}": x for name, x in layer.items()}
    write_safetensors(folder / "model.safetensors", tensors)
    text = json.dumps({"quantization_config": section, **config})
    (folder / "config.json").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "variant",
    [
        "model.fp16.safetensors",
        "model.fp16-00001-of-00002.safetensors",
        "model.safetensors.index.fp16.json",
        "model.fp16.safetensors.index.json",
    ],
)
def test_variants_of_weights_that_are_converted_are_left_out(tmp_path: Path, variant: str) -> None:
    source = _model(tmp_path / "in", fp8_layer(), _FP8)
    if variant.endswith(".json"):
        (source / variant).write_text("{}", encoding="utf-8")
    else:
        write_safetensors(source / variant, fp8_layer(1))
    report = reorder.convert(source, tmp_path / "out", options=SMALL, to="bf16")
    assert f"left out, because their weights are not converted: {variant}" in report.warnings
    assert not (tmp_path / "out" / variant).exists()
    reorder.convert(source, tmp_path / "same")
    assert (tmp_path / "same" / variant).exists()


def test_scales_keep_their_type_in_the_same_format() -> None:
    record = reorder.records.Record(record_desc((256, 128), "fp8_block", scales="e8m0"))
    assert dict(reorder.records.repack(record, "fp8_block").desc.options)["scales"] == "e8m0"
    assert (
        dict(reorder.records.repack(record, "fp8_block", scales="f32").desc.options)["scales"]
        == "f32"
    )


@pytest.mark.parametrize("text", ["1.2", "{}", '{"a": 1}', "[", "null"])
def test_metadata_that_is_not_a_descriptor_makes_no_file_unreadable(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"a": np.ones(4, np.float32)}, {"memdesc.version": text})
    with reorder.open_checkpoint(path) as found:
        assert [*found] == ["a"]
        assert found.metadata["memdesc.version"] == text
    reorder.convert(path, tmp_path / "y.safetensors", map=["a: f16"])
    with reorder.open_checkpoint(tmp_path / "y.safetensors") as made:
        assert made.metadata["memdesc.version"] == text


def test_codes_that_are_nan_stay_nan(tmp_path: Path) -> None:
    layer = fp8_layer()
    layer["weight"].view(np.uint8)[3, 5] = 0x7F
    source = _model(tmp_path / "in", layer, _FP8)
    reorder.convert(source, tmp_path / "out", options=SMALL, to="bf16")
    found = words_of(tmp_path / "out")["model.layers.0.mlp.weight"].astype(np.float32)
    assert np.isnan(found[3, 5])
    assert np.isfinite(np.delete(found.reshape(-1), 3 * 128 + 5)).all()


@pytest.mark.parametrize(
    ("dims", "block"), [((1000, 200), (125, 100)), ((130, 200), (128, 64)), ((96, 100), (7, 33))]
)
@pytest.mark.parametrize("is_compressed", [False, True])
def test_blocks_of_any_two_sizes_are_decoded(
    tmp_path: Path, dims: tuple[int, int], block: tuple[int, int], *, is_compressed: bool
) -> None:
    rng = np.random.default_rng(0)
    counts = [-(-size // step) for size, step in zip(dims, block, strict=True)]
    codes = rng.standard_normal(dims).astype(DATA_TYPES["f8_e4m3"].numpy)
    scales = rng.random(counts).astype(np.float32)
    name = "weight_scale" if is_compressed else "weight_scale_inv"
    section: dict[str, Any] = {"quant_method": "fp8", "weight_block_size": [*block]}
    if is_compressed:
        weights = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "block"}
        group = {"targets": ["Linear"], "weights": weights | {"block_structure": [*block]}}
        section = {"quant_method": "compressed-tensors", "format": "float-quantized"}
        section["config_groups"] = {"group_0": group}
    source = _model(tmp_path / "in", {"weight": codes, name: scales}, section)
    rows, columns = (np.arange(size) // step for size, step in zip(dims, block, strict=True))
    wanted = codes.astype(np.float32) * scales[rows][:, columns]
    with reorder.open_checkpoint(source) as found:
        record = found.record("model.layers.0.mlp")
        assert np.array_equal(reorder.dequantize(record).numpy(), wanted)
    reorder.convert(source, tmp_path / "out", options=SMALL._replace(max_bytes=100_000), to="bf16")
    made = words_of(tmp_path / "out")["model.layers.0.mlp.weight"]
    assert np.array_equal(made, wanted.astype(DATA_TYPES["bf16"].numpy))


@pytest.mark.parametrize("block", ["125", "0x4", "4x", "axb", "4x4x4", True])
def test_blocks_that_are_no_sizes_are_refused(block: Any) -> None:
    with pytest.raises(MemdescError, match="fp8_block: block"):
        record_desc((256, 128), "fp8_block", block=block)


@pytest.mark.parametrize("to", ["bf16", "f16"])
@pytest.mark.parametrize("key", ["torch_dtype", "dtype", ""])
def test_a_model_of_floats_takes_another_type(tmp_path: Path, to: str, key: str) -> None:
    source = tmp_path / "in"
    source.mkdir()
    rng = np.random.default_rng(0)
    floats = {"a.weight": rng.random((8, 4), np.float32), "norm": np.ones(4, np.float32)}
    same = {"b": np.ones(3, DATA_TYPES[to].numpy), "ids": np.arange(3, dtype=np.int64)}
    write_safetensors(source / "model.safetensors", floats | same)
    config = {"model_type": "some"} | ({key: "float32"} if key else {})
    (source / "config.json").write_text(json.dumps(config), encoding="utf-8")
    report = reorder.convert(source, tmp_path / "out", options=SMALL, to=to)
    said = f"weights of f32 are rounded to {to}, which does not hold all their numbers"
    assert report.warnings == (said,)
    found = words_of(tmp_path / "out")
    for name, x in (floats | same).items():
        wanted = x.astype(DATA_TYPES[to].numpy) if name in floats else x
        assert found[name].tobytes() == wanted.tobytes()
    made = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    long = {"bf16": "bfloat16", "f16": "float16"}[to]
    assert made == {"model_type": "some", key or "torch_dtype": long}
    with pytest.raises(MemdescError, match=f"all its floats are {to} already; copy it"):
        reorder.convert(tmp_path / "out", tmp_path / "again", options=SMALL, to=to)
