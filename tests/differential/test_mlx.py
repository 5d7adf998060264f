"""Weights of MLX, read and written here and by MLX itself, on its CPU backend.

`mx.dequantize` computes affine weights in the type of the scales: the product and then the sum are
rounded to it. A rule of a record says so, hence all bits are equal.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc.record import record_desc

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

pytestmark = pytest.mark.judges

mx: Any = pytest.importorskip("mlx.core", reason="mlx[cpu] is not installed")
mlx_utils: Any = pytest.importorskip("mlx.utils", reason="mlx[cpu] is not installed")
llama: Any = pytest.importorskip("mlx_lm.models.llama", reason="mlx-lm is not installed")
lm: Any = pytest.importorskip("mlx_lm.utils", reason="mlx-lm is not installed")
nn: Any = pytest.importorskip("mlx.nn", reason="mlx[cpu] is not installed")

_BITS = (1, 2, 3, 4, 5, 6, 8)
_GROUPS = (32, 64, 128)
_TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
_FLOATS = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
_MODES = {"mxfp4": (32, 4), "mxfp8": (32, 8), "nvfp4": (16, 4)}
_DIMS = (48, 384)


@pytest.fixture(autouse=True)
def _on_cpu() -> None:
    mx.set_default_device(mx.cpu)


def _theirs(array: NDArray[Any]) -> Any:
    """Return an array of MLX; its types are told by their bits."""
    if array.dtype == ml_dtypes.bfloat16:
        return mx.array(array.view(np.uint16)).view(mx.bfloat16)
    return mx.array(array)


def _ours(array: Any) -> NDArray[np.float32]:
    return np.array(array.astype(mx.float32))


def _same(ours: Any, theirs: Any) -> bool:
    """Whether all bits are equal; NaNs are equal."""
    found, wanted = np.asarray(ours, np.float32), _ours(theirs)
    is_nan = np.isnan(wanted)
    same = found.view(np.uint32) == wanted.view(np.uint32)
    return bool((same | is_nan).all() and (np.isnan(found) == is_nan).all())


def _layer(bits: int, group: int, scales: str) -> tuple[reorder.records.Record, list[Any]]:
    """Return a record with random bits in all codes, and its tensors in MLX."""
    rng = np.random.default_rng(bits * group)
    outputs, inputs = _DIMS
    sizes = outputs, inputs // group
    tensors: dict[str, NDArray[Any]] = {
        "weight": rng.integers(0, 2**32, (outputs, inputs * bits // 32), np.uint32),
        "scales": rng.standard_normal(sizes).astype(_TYPES[scales]),
        "biases": rng.standard_normal(sizes).astype(_TYPES[scales]),
    }
    desc = record_desc(_DIMS, "mlx", bits=bits, group=group, scales=scales)
    return reorder.records.Record(desc, tensors), [_theirs(each) for each in tensors.values()]


@pytest.mark.parametrize("scales", _TYPES)
@pytest.mark.parametrize("group", _GROUPS)
@pytest.mark.parametrize("bits", _BITS)
def test_affine_weights_are_decoded_as_by_mlx(bits: int, group: int, scales: str) -> None:
    record, tensors = _layer(bits, group, scales)
    for kind, name in _FLOATS.items():
        wanted = mx.dequantize(*tensors, group, bits, dtype=getattr(mx, name))
        assert _same(reorder.dequantize(record, dtype=kind).numpy(), wanted)


@pytest.mark.parametrize("mode", ["affine", *_MODES])
def test_experts_in_one_tensor_are_decoded_as_by_mlx(mode: str) -> None:
    group, bits = _MODES.get(mode, (64, 5))
    mx.random.seed(0)
    weight = mx.random.normal((4, 48, 256)).astype(mx.bfloat16)
    parts = mx.quantize(weight, group, bits, mode=mode)
    name, options = ("mlx", {"bits": bits}) if mode == "affine" else (f"mlx_{mode}", {})
    desc = record_desc((4, 48, 256), name, **options)
    held = {
        role: np.array(each.view(mx.uint8)) for role, each in zip(desc.tensors, parts, strict=True)
    }
    made = reorder.dequantize(reorder.records.Record(desc, held), dtype="bf16").numpy()
    biases = parts[2] if mode == "affine" else None
    assert _same(made, mx.dequantize(parts[0], parts[1], biases, group, bits, mode=mode))


@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("mode", _MODES)
def test_floats_are_decoded_as_by_mlx(mode: str, kind: str) -> None:
    group, bits = _MODES[mode]
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**32, (255, 256 * bits // 32), np.uint32)
    # all but 255: NaN of OCP's e8m0, infinity of MLX
    scales = np.arange(255 * 256 // group).astype(np.uint8).reshape(255, -1) % 255
    record = reorder.records.Record(
        record_desc((255, 256), f"mlx_{mode}"), {"weight": words, "scales": scales}
    )
    made = mx.dequantize(
        mx.array(words),
        mx.array(scales),
        None,
        group,
        bits,
        mode=mode,
        dtype=getattr(mx, _FLOATS[kind]),
    )
    assert _same(reorder.dequantize(record, dtype=kind).numpy(), made)


def _saved(path: Path, model: Any, section: dict[str, Any]) -> Path:
    """Save a model as mlx-lm does, with its section under both keys."""
    path.mkdir()
    tensors = dict(mlx_utils.tree_flatten(model.parameters()))
    mx.save_safetensors(str(path / "model.safetensors"), tensors, metadata={"format": "mlx"})
    config = {"quantization": section, "quantization_config": section}
    (path / "config.json").write_text(json.dumps(config))
    return path


def _model(quantise: Callable[[str, Any], Any], kind: Any, bits: int = 4) -> Any:
    """Return an embedding and layers, quantised as a function of their names."""
    model = nn.Module()
    model.embed_tokens = nn.Embedding(64, 256)
    model.norm = nn.RMSNorm(256)
    model.up = nn.Linear(256, 128)
    model.down = nn.Linear(128, 256, bias=False)
    model.lm_head = nn.Linear(256, 64, bias=False)
    model.set_dtype(kind)
    nn.quantize(model, 64, bits, class_predicate=quantise)
    return model


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16"])
def test_a_model_with_layers_of_their_own_is_read_as_mlx_saved_it(
    tmp_path: Path, kind: str
) -> None:
    of_layers: dict[str, Any] = {
        "up": {"group_size": 32, "bits": 3},
        "down": {"group_size": 32, "bits": 8, "mode": "mxfp8"},
        "lm_head": False,
    }
    model = _model(
        lambda name, layer: of_layers.get(name, hasattr(layer, "to_quantized")), getattr(mx, kind)
    )
    folder = _saved(tmp_path / "in", model, {"group_size": 64, "bits": 4, **of_layers})
    with reorder.open_checkpoint(folder) as checkpoint:
        for name in ("embed_tokens", "up", "down"):
            layer = model[name]
            wanted = mx.dequantize(
                layer.weight,
                layer.scales,
                layer.get("biases"),
                layer.group_size,
                layer.bits,
                mode=layer.mode,
                dtype=getattr(mx, kind),
            )
            made = reorder.dequantize(checkpoint.record(name), dtype="f32")
            if layer.mode == "affine" or kind != "float16":  # see docs/records.md
                assert _same(made.numpy(), wanted)
        assert checkpoint["lm_head.weight"].desc.dims == (64, 256)


@pytest.mark.parametrize(("bits", "wide"), [(2, 3), (3, 4), (4, 5), (5, 6), (6, 8)])
def test_what_is_written_here_is_loaded_by_mlx(tmp_path: Path, bits: int, wide: int) -> None:
    model = _model(lambda _, layer: hasattr(layer, "to_quantized"), mx.bfloat16, bits)
    folder = _saved(tmp_path / "in", model, {"group_size": 64, "bits": bits})
    rule = f"*: mlx(bits={bits}) -> mlx(bits={wide}, group=32)"
    reorder.convert(folder, tmp_path / "out", map=[rule])
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["quantization"] == {"bits": wide, "group_size": 32, "mode": "affine"}
    assert config["quantization"] == config["quantization_config"]
    loaded = mx.load(str(tmp_path / "out/model.safetensors"))
    x = mx.random.normal((3, 256)).astype(mx.bfloat16)
    for name in ("embed_tokens", "up"):
        layer = model[name]
        before = layer.weight, layer.scales, layer.biases
        after = [loaded[f"{name}.{each}"] for each in ("weight", "scales", "biases")]
        assert mx.array_equal(mx.dequantize(*after, 32, wide), mx.dequantize(*before, 64, bits))
        made = mx.quantized_matmul(x, *after, group_size=32, bits=wide)
        wanted = mx.quantized_matmul(x, *before, group_size=64, bits=bits)
        assert mx.allclose(made, wanted, rtol=1e-2, atol=1e-2)


def _llama(folder: Path, kind: str) -> Any:
    """Save a tiny Llama as mlx-lm quantises it, with layers of their own, and return it."""
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
    own = {"group_size": 32, "bits": 6}
    model, config = lm.quantize_model(
        model,
        config,
        64,
        4,
        quant_predicate=lambda name, _: own if name.endswith("down_proj") else True,
    )
    folder.mkdir()
    lm.save_model(folder, model)
    (folder / "config.json").write_text(json.dumps(config))
    return model


@pytest.mark.parametrize("kind", _FLOATS)
def test_a_llama_of_mlx_lm_is_decoded_and_written_as_by_mlx_lm(tmp_path: Path, kind: str) -> None:
    model = _llama(tmp_path / "in", _FLOATS[kind])
    tokens = mx.array([[1, 5, 7, 9]])
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
    group, bits = _MODES[mode]
    found = mx.dequantize(
        loaded["fc.weight"], loaded["fc.scales"], None, group, bits, mode=mode, dtype=mx.float32
    )
    assert _same(reorder.dequantize(record).numpy(), found)
