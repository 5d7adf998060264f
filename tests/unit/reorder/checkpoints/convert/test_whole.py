"""Quantised weights stay whole: codes do not change without what turns them into numbers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from memdesc.dtypes import DATA_TYPES
from tests.checkpoints import fp8_layer, write_config, write_safetensors
from tests.unit.reorder.checkpoints.convert.results import SMALL, converted, refused

_F8 = DATA_TYPES["f8_e4m3"].numpy


def written(folder: Path, tensors: dict[str, NDArray[Any]], **section: Any) -> Path:
    """Write a model of some tensors and a section of its config.json."""
    folder.mkdir(exist_ok=True)
    write_safetensors(folder / "model.safetensors", tensors)
    if section:
        write_config(folder, **section)
    return folder


@pytest.fixture
def fp8(tmp_path: Path) -> Path:
    layer = {f"fc.{name}": array for name, array in fp8_layer(dims=(256, 256)).items()}
    norm: dict[str, NDArray[Any]] = {
        "norm.weight": np.ones(8, np.float16),
        "norm.scale": np.ones(8, np.float32),
    }
    return written(tmp_path / "fp8", layer | norm, quant_method="fp8", weight_block_size=[128, 128])


@pytest.mark.parametrize(
    ("array", "scale"),
    [
        (np.arange(7), np.ones((), np.float32)),  # indices have 64 bits, codes do not
        (np.arange(7).astype(np.uint64), np.ones(7, np.float32)),
        (np.ones(7, np.float32), np.ones(7, np.float32)),
        (np.ones(7, np.int8), np.ones(4096, np.float32)),  # more scales than there are numbers
    ],
)
def test_a_tensor_beside_an_unrelated_scale_is_not_one_of_codes(
    tmp_path: Path, array: NDArray[Any], scale: NDArray[Any]
) -> None:
    np.savez(tmp_path / "x.npz", tokens=array, tokens_scale=scale)
    found = converted(tmp_path / "x.npz", tmp_path / "y.safetensors", "*: f32")
    assert np.array_equal(found["tokens"], array.astype(np.float32))
    codes, beside = np.ones(7, np.int8), np.ones(7, np.float32)
    np.savez(tmp_path / "x.npz", tokens=codes, tokens_scale=beside)
    said = refused(tmp_path / "x.npz", tmp_path / "z.safetensors", "*: f32")
    assert "tokens holds codes" in said


_INT8, _WORDS = np.ones((64, 64), np.int8), np.ones((64, 64), np.uint8)
_BF16 = np.ones((64, 64), DATA_TYPES["bf16"].numpy)


@pytest.mark.parametrize(
    ("codes", "array", "other"),
    [
        ("fc.weight", _INT8, "fc.SCB"),
        ("fc.weight", _WORDS, "fc.weight.absmax"),
        ("fc.weight", _BF16, "fc.weight.quant_map"),
        ("fc.weight", _BF16, "fc.weight.quant_state.bitsandbytes__nf4"),
        ("fc.weight", np.ones((64, 8), np.int32), "fc.biases"),
        ("fc.weight", _WORDS, "fc.weight_scale_2"),
        ("fc.weight", np.ones((64, 64), _F8), "fc.scale"),
        ("fc.weight", np.ones((64, 64), _F8), "fc.qscale_weight"),
        ("fc.weight", _INT8, "fc.weight_zero_point"),
        ("fc.weight_packed", np.ones((64, 8), np.int32), "fc.weight_scale"),
        ("fc.weight_packed", np.ones((64, 8), np.int32), "fc.weight_g_idx"),
        ("mlp.experts.gate_up_proj_blocks", _WORDS, "mlp.experts.gate_up_proj_scales"),
        ("mlp.experts.gate_up_proj", np.ones((64, 64), _F8), "mlp.experts.gate_up_proj_scale_inv"),
        ("fc.weight", _INT8, "fc.dequant_scale"),
        ("fc.weight:qdata", _INT8, "fc.weight:scale"),
        ("fc._weight_qdata", _WORDS, "fc._weight_per_tensor_scale"),
        ("fc.weight._data", _INT8, "fc.weight._scale"),
        ("fc.weight._data._data", _WORDS, "fc.weight._shift"),
        ("W_quantized", _INT8, "W_scale"),
        ("W", _INT8, "W_scale"),
        ("W", _INT8, "W_zero_point"),
        ("W_Q4", _WORDS, "W_scales"),
        ("fc.qweight", np.ones((64, 8), np.int32), "fc.g_idx"),
        ("fc.W_q", _WORDS, "fc.zero"),
        ("fc.B", np.ones((64, 8), np.int32), "fc.s"),
        ("weight", np.ones((64, 64), _F8), "weight_scale"),
    ],
)
def test_codes_and_what_scales_them_are_known_by_their_names(
    tmp_path: Path, codes: str, array: NDArray[Any], other: str
) -> None:
    source = tmp_path / "in.safetensors"
    scales = np.ones((1, 1), np.float32)
    write_safetensors(source, {codes: array, other: scales, "a.weight": np.ones(4, np.float16)})
    for rule in (f"{codes}: ba", f"{codes}: f32", f"{other}: f16", f"{codes}: rename=x"):
        said = refused(source, tmp_path / "out.safetensors", rule)
        assert f"{codes} holds codes" in said
        assert other in said
    assert converted(source, tmp_path / "out.npz", "a.weight: f32")["a.weight"].shape == (4,)
    write_safetensors(source, {codes: array, "other": scales})
    converted(source, tmp_path / "out.safetensors", "other: f16")


def test_all_parts_may_take_new_names_that_tell_the_same(fp8: Path, tmp_path: Path) -> None:
    both = ["fc.weight: rename=experts.w1", "fc.weight_scale_inv: rename=experts.w1_scale_inv"]
    assert {"experts.w1", "experts.w1_scale_inv"} < converted(fp8, tmp_path / "out", *both).keys()
    for rule in both:
        assert "fc.weight holds codes" in refused(fp8, tmp_path / "no", rule)


def test_no_part_takes_the_role_of_another(fp8: Path, tmp_path: Path) -> None:
    ones = np.ones((8, 8), np.uint32), np.ones((8, 1), np.float16), np.ones((8, 1), np.float16)
    names = ("up.weight", "up.scales", "up.biases")
    named: dict[str, NDArray[Any]] = dict(zip(names, ones, strict=True))
    mlx = written(tmp_path / "mlx", named, group_size=64, bits=4)
    for new in ("up", "down"):
        roles = {"weight": "weight", "scales": "biases", "biases": "scales"}
        rules = [f"up.{old}: rename={new}.{role}" for old, role in roles.items()]
        assert "up.weight holds codes" in refused(mlx, tmp_path / "no", *rules)
    rule = "fc.weight_scale_inv: rename=fc.weight_scale"  # which loaders of this format do not read
    assert "fc.weight holds codes" in refused(fp8, tmp_path / "no", rule)


def test_a_weight_that_lies_in_two_shards_is_one(fp8: Path, tmp_path: Path) -> None:
    converted(fp8, tmp_path / "two", settings=SMALL._replace(shard_bytes=1000))
    index = json.loads((tmp_path / "two" / "model.safetensors.index.json").read_text())
    home = {name: tmp_path / "two" / file for name, file in index["weight_map"].items()}
    assert home["fc.weight"] != home["fc.weight_scale_inv"]
    for name in ("fc.weight", "fc.weight_scale_inv"):
        for rule in (f"{name}: bf16", f"{name}: rename=x"):
            said = refused(home[name], tmp_path / "o.safetensors", rule)
            assert "may hold codes whose scales are in other files of the model: name" in said
        converted(home[name], tmp_path / f"{name}.safetensors")
    (tmp_path / "two" / home["fc.weight_scale_inv"].name).unlink()
    said = refused(home["fc.weight"], tmp_path / "o.safetensors", to="bf16")
    assert "model.safetensors.index.json', or its folder" in said


@pytest.mark.parametrize("kind", [_F8, np.int8])
def test_codes_of_a_quantised_model_have_scales_by_some_name(tmp_path: Path, kind: Any) -> None:
    tensors = {"fc.weight": np.ones((8, 8), kind), "fc.odd_name": np.ones((1, 1), np.float32)}
    source = written(tmp_path / "m", tensors)
    converted(source, tmp_path / "plain", "fc.weight: f32")  # nothing says that it is quantised
    write_config(source, quant_method="fp8")
    said = refused(source, tmp_path / "out", "fc.weight: f32")
    assert "according to config.json, but no tensor beside it is known to hold their" in said


def test_broken_configs_stop_no_conversion_of_other_tensors(tmp_path: Path) -> None:
    source = written(tmp_path / "m", {"a.weight": np.ones((8, 8), np.float16)})
    (source / "config.json").write_text("{")
    converted(source, tmp_path / "out", "a.weight: f32")
