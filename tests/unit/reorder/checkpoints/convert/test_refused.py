"""Conversions that are refused before anything is written."""

import json
from pathlib import Path

import pytest

from tests.checkpoints import model_folder, write_safetensors
from tests.unit.reorder.checkpoints.convert.results import converted, refused
from tests.unit.reorder.checkpoints.schemes import recorded


def test_mistakes_are_refused_before_anything_is_written(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for rule, problem in {
        "*.qweigh: awq -> gptq": "no tensor and no record is called '*.qweigh'; did you mean",
        "conv.weight: OIhw16i16o -> oihw": "conv.weight has 4320 bytes, but",
        "conv.weight: OIhw16i16p": "conv.weight, memory_desc((20, 6, 3, 3), 'f32', 'abcd')",
        "lm_head.weight: awq -> gptq": "lm_head.weight of f16 and shape (40, 128)",
        "*.0.mlp.qweight: awq -> gptq(zeros=v2)": "what comes before the names of its tensors",
        "lm_head.weight: ab, s8, scales=c": "names a dim that (40, 128) do not have",
        "lm_head.weight: ab, s8, scales=ab, groups=1x3": "3 does not divide b (dim 1) of size 128",
        "lm_head.weight: ab, s8, scales=a, groups=1x32": "needs b (dim 1) among the axes",
        "lm_head.weight: ab, s8, scales=a, groups=4x1": "both be among the axes: b (dim 1) is not",
        "lm_head.weight: ab, f16, scales=a": "u4 to u16, f8 or f4, not f16",
        "lm_head.weight: ab, dims=40x129": "lm_head.weight has 10240 bytes, but",
        "lm_head.weight: rename=conv.weight": "would both be called conv.weight",
        "*.mlp: gptq -> awq": "config.json declares awq, not gptq: name awq, or correct",
        "*.mlp: awq(bits=8) -> gptq": "awq has no option 'bits'",
        "*.mlp: awq -> gptq, f16": "records keep their types",
    }.items():
        said = refused(model, out, rule)
        assert f"rule {rule!r}" in said
        assert problem in said
    for target, problem in (
        (out, "config.json would declare q4_0"),
        (tmp_path / "out.safetensors", "rule '*.mlp: awq -> q4_0': model.layers.0.mlp"),
    ):
        assert problem in refused(model, target, "*.mlp: awq -> q4_0")
    said = refused(model, out, "*.mlp: awq -> gptq", "*.0.mlp.scales: f32")
    assert "moves model.layers.0.mlp.scales alone" in said


def test_numbers_that_the_other_side_cannot_say_are_refused(tmp_path: Path) -> None:
    model_folder(tmp_path / "model", zeros=(0, 2))
    said = refused(tmp_path / "model", tmp_path / "out", "model.*: awq -> gptq")
    assert "rule 'model.*: awq -> gptq': model.layers.0.mlp: zero points: qzeros of gptq" in said
    assert said.endswith("; gptq(zeros=v2) holds more zero points")
    converted(tmp_path / "model", tmp_path / "out", "model.*: awq -> gptq(zeros=v2)")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["quantization_config"]["checkpoint_format"] == "gptq_v2"


@pytest.mark.parametrize("is_last", [True, False])
def test_parts_of_records_that_only_some_weights_have_are_refused_in_any_order(
    tmp_path: Path, *, is_last: bool
) -> None:
    parts = recorded("pack_quantized", (64, 64), group=32, zeros=True)[0]
    with_zeros = {f"a{name}": array for name, array in parts.items()}
    without = {f"b{name}": x for name, x in parts.items() if name != ".weight_zero_point"}
    both = {**without, **with_zeros} if is_last else {**with_zeros, **without}
    source, target = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    rule = "*: pack_quantized -> plain, f32"
    write_safetensors(source, both | {"c.weight_zero_point": parts[".weight_zero_point"]})
    said = refused(source, target, rule)
    assert "c has weight_zero_point, but no weight_packed, weight_scale, weight_shape: a r" in said
    bare = {"c.weight_packed": parts[".weight_packed"], "c.weight_shape": parts[".weight_shape"]}
    write_safetensors(source, both | bare)
    said = refused(source, target, rule)
    assert "c has weight_packed, weight_shape, but no weight_scale: a record of pack_qu" in said
