"""Weights written here and loaded by MLX, on its CPU backend."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reorder
from memdesc.record import record_desc
from tests.differential.test_decoded import MODES, numbers, same

pytestmark = pytest.mark.judges

mx: Any = pytest.importorskip("mlx.core", reason="mlx[cpu] is not installed")
mlx_utils: Any = pytest.importorskip("mlx.utils", reason="mlx[cpu] is not installed")
llama: Any = pytest.importorskip("mlx_lm.models.llama", reason="mlx-lm is not installed")
lm: Any = pytest.importorskip("mlx_lm.utils", reason="mlx-lm is not installed")

_FLOATS = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
_TOKENS = [[1, 5, 7, 9]]


@pytest.fixture(autouse=True)
def _on_cpu() -> None:
    mx.set_default_device(mx.cpu)


def _llama(folder: Path, kind: str, bits: int = 4, own: Any = None) -> Any:
    """Save a tiny Llama as mlx-lm quantises it, down projections with `own`, and return it."""
    config = {
        "model_type": "llama",
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "vocab_size": 128,
        "tie_word_embeddings": False,
    }
    mx.random.seed(0)
    model = llama.Model(llama.ModelArgs.from_dict(config))
    model.set_dtype(getattr(mx, kind))
    model, config = lm.quantize_model(
        model,
        config,
        64,
        bits,
        quant_predicate=lambda name, _: own or True if name.endswith("down_proj") else True,
    )
    folder.mkdir()
    lm.save_model(folder, model)
    (folder / "config.json").write_text(json.dumps(config))
    return model


@pytest.mark.parametrize("kind", _FLOATS)
def test_a_llama_of_mlx_lm_is_decoded_and_written_as_by_mlx_lm(tmp_path: Path, kind: str) -> None:
    model = _llama(tmp_path / "in", _FLOATS[kind], own={"group_size": 32, "bits": 6})
    tokens = mx.array(_TOKENS)
    logits = model(tokens)
    wide = "mlx(bits=8, group=32)"
    reorder.convert(
        tmp_path / "in",
        tmp_path / "wide",
        map=[f"*: mlx -> {wide}", f"*.down_proj: mlx(bits=6) -> {wide}"],
    )
    loaded, config = lm.load_model(tmp_path / "wide")
    assert config["quantization"] == {"bits": 8, "group_size": 32, "mode": "affine"}
    assert mx.array_equal(loaded(tokens), logits)
    rules = [f"*: mlx -> plain, {kind}", f"*.down_proj: mlx(bits=6) -> plain, {kind}"]
    reorder.convert(tmp_path / "in", tmp_path / "out", map=rules)
    loaded, config = lm.load_model(tmp_path / "out")
    assert "quantization" not in config
    wanted = lm.dequantize_model(model)
    pairs = zip(
        sorted(mlx_utils.tree_flatten(loaded.parameters())),
        sorted(mlx_utils.tree_flatten(wanted.parameters())),
        strict=True,
    )
    for (name, one), (other_name, other) in pairs:
        assert name == other_name
        assert mx.array_equal(one, other)
    assert mx.array_equal(loaded(tokens), wanted(tokens))


@pytest.mark.parametrize(("bits", "wide"), [(2, 3), (3, 4), (4, 5), (5, 6), (6, 8)])
def test_what_is_written_here_is_loaded_by_mlx(tmp_path: Path, bits: int, wide: int) -> None:
    model = _llama(tmp_path / "in", "bfloat16", bits)
    rule = f"*: mlx(bits={bits}) -> mlx(bits={wide}, group=32)"
    reorder.convert(tmp_path / "in", tmp_path / "out", map=[rule])
    loaded, config = lm.load_model(tmp_path / "out")
    assert config["quantization"] == {"bits": wide, "group_size": 32, "mode": "affine"}
    assert config["quantization"] == config["quantization_config"]
    one, other = (
        dict(mlx_utils.tree_flatten(lm.dequantize_model(each).parameters()))
        for each in (loaded, model)
    )
    assert one.keys() == other.keys()
    assert all(mx.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(("mode", "source"), [("mxfp4", "ocp_mxfp4"), ("mxfp8", "ocp_mxfp8")])
def test_weights_of_others_are_written_for_mlx(tmp_path: Path, mode: str, source: str) -> None:
    rng = np.random.default_rng(0)
    desc = record_desc((256, 128), source, swizzled=False)
    tensors = {
        "data": rng.integers(0, 256, desc.tensors["data"], np.uint8),
        "scales": rng.integers(100, 140, (256, 4), np.uint8),
    }
    if mode == "mxfp8":
        tensors["data"] &= 0xF7  # no NaN
    record = reorder.records.Record(desc, tensors)
    moved = reorder.records.repack(record, f"mlx_{mode}")
    reorder.save(tmp_path / "x.safetensors", {"fc": moved})
    loaded = mx.load(str(tmp_path / "x.safetensors"))
    assert loaded["fc.weight"].dtype == mx.uint32
    assert loaded["fc.scales"].dtype == mx.uint8
    group, bits = MODES[mode]
    found = mx.dequantize(
        loaded["fc.weight"], loaded["fc.scales"], None, group, bits, mode=mode, dtype=mx.float32
    )
    assert same(reorder.dequantize(record).numpy(), numbers(found))
