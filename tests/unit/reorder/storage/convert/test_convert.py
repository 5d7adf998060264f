"""Checkpoints converted: the numbers, the files around them, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc, record_desc
from reorder.storage.containers.table import read_container
from reorder.storage.convert.convert import Settings, convert, plan
from reorder.storage.convert.rules import parse_rule
from tests.checkpoints import awq_layer, model_folder, write_safetensors

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SMALL = Settings(max_bytes=1 << 20, verify=True)


def converted(
    source: Path, target: Path, *rules: str, settings: Settings = SMALL
) -> dict[str, NDArray[Any]]:
    """Convert, and return the words of each tensor of the output, by its name."""
    convert(plan(source, target, [parse_rule(rule) for rule in rules], settings))
    kinds = {"s32": np.int32, "f16": np.float16, "f32": np.float32, "s8": np.int8, "u8": np.uint8}
    return {
        name: entry.read().view(kinds[entry.dtype]).reshape(entry.shape)
        for name, entry in read_container(target).entries.items()
    }


def refused(source: Path, target: Path, *rules: str, settings: Settings = SMALL) -> str:
    """Return the line that refuses a conversion; nothing was written."""
    before = sorted(target.parent.rglob("*"))
    with pytest.raises(MemdescError) as caught:
        convert(plan(source, target, [parse_rule(rule) for rule in rules], settings))
    assert sorted(target.parent.rglob("*")) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def values_of(tensors: dict[str, NDArray[Any]], prefix: str, name: str) -> NDArray[np.float32]:
    """Return the numbers of a quantised layer, over (in, out)."""
    held = {
        each.rpartition(".")[2]: array for each, array in tensors.items() if each.startswith(prefix)
    }
    desc = record_desc((128, 256), name, group=64)
    return reorder.dequantize(reorder.Record(desc, held)).numpy()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    model_folder(tmp_path / "model")
    return tmp_path / "model"


def test_a_rule_over_a_prefix_moves_records_and_what_the_model_says_of_them(
    model: Path, tmp_path: Path
) -> None:
    before = {name: entry.read() for name, entry in read_container(model).entries.items()}
    old = converted(model, tmp_path / "same")
    new = converted(model, tmp_path / "out", "model.layers.*: awq -> gptq")
    for k in range(2):
        prefix = f"model.layers.{k}.mlp."
        assert np.array_equal(values_of(new, prefix, "gptq"), values_of(old, prefix, "awq"))
    assert new["model.layers.0.mlp.qweight"].shape == (16, 256)
    assert new["model.layers.0.mlp.qzeros"].shape == (2, 32)
    scales = new["model.layers.0.mlp.scales"]
    assert scales.dtype == np.float16
    assert scales.shape == (2, 256)
    assert np.array_equal(new["lm_head.weight"], old["lm_head.weight"])
    found = json.loads((tmp_path / "out" / "config.json").read_text())
    assert found["architectures"] == ["Some"]
    assert found["quantization_config"]["quant_method"] == "gptq"
    assert found["quantization_config"]["group_size"] == 64
    assert (tmp_path / "out" / "tokenizer.json").read_text() == "{}"
    back = tmp_path / "back"
    converted(tmp_path / "out", back, "*.mlp: gptq -> awq")
    after = {name: entry.read() for name, entry in read_container(back).entries.items()}
    assert all(np.array_equal(after[name], data) for name, data in before.items())


def test_all_other_files_of_a_model_are_copied_but_hidden_ones(model: Path, tmp_path: Path) -> None:
    for name in ("a/b/large.bin", "a/c.txt", ".cache/x", "README.md"):
        path = model / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * 5000)
    converted(model, tmp_path / "out", "conv.*: f16")
    found = {
        path.relative_to(tmp_path / "out").as_posix()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    named = {"config.json", "tokenizer.json", "model.safetensors"}
    assert found == named | {"a/b/large.bin", "a/c.txt", "README.md"}
    for name in ("a/b/large.bin", "config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (model / name).read_bytes()


def test_the_width_of_codes_is_that_of_the_source(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    layer: dict[str, NDArray[Any]] = {
        "a.qweight": rng.integers(-(2**31), 2**31, (32, 128)).astype(np.int32),
        "a.qzeros": np.full((2, 32), 0x7F7F7F7F, np.int32),
        "a.scales": rng.random((2, 128)).astype(np.float16),
    }
    write_safetensors(tmp_path / "in.safetensors", layer)
    found = converted(
        tmp_path / "in.safetensors", tmp_path / "out.safetensors", "a: gptq(bits=8) -> marlin"
    )
    assert found["a.qweight"].shape == (8, 512)
    back = converted(
        tmp_path / "out.safetensors", tmp_path / "back.safetensors", "a: marlin(bits=8) -> gptq"
    )
    assert all(np.array_equal(back[name], array) for name, array in layer.items())


def test_layouts_keep_their_descriptor_and_are_stored_by_their_physical_shape(
    model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.safetensors"
    found = converted(model, out, "conv.weight: OIhw16i16o", "lm_head.weight: ba, f32")
    assert found["conv.weight"].shape == (2, 1, 3, 3, 16, 16)
    checkpoint = reorder.open_checkpoint(out)
    assert checkpoint["conv.weight"].desc == memory_desc((20, 6, 3, 3), "f32", "OIhw16i16o")
    source = reorder.open_checkpoint(model)
    assert np.array_equal(checkpoint["conv.weight"].numpy(), source["conv.weight"].numpy())
    assert np.array_equal(
        checkpoint["lm_head.weight"].numpy(), source["lm_head.weight"].numpy().astype(np.float32)
    )
    assert found["lm_head.weight"].shape == (128, 40)
    # and back, by what the file says
    again = converted(out, tmp_path / "again.safetensors", "conv.weight: oihw")
    assert np.array_equal(again["conv.weight"], source["conv.weight"].numpy())


def test_a_rule_on_one_tensor_moves_its_layout_and_warns_of_its_companions(
    model: Path, tmp_path: Path
) -> None:
    rule = parse_rule("*.0.mlp.qweight: awq -> marlin")
    made = plan(model, tmp_path / "out", [rule], SMALL)
    (warning,) = made.warnings
    assert "model.layers.0.mlp.qweight without model.layers.0.mlp.qzeros, " in warning
    convert(made)
    entry = read_container(tmp_path / "out").entries["model.layers.0.mlp.qweight"]
    assert (entry.dtype, entry.shape) == ("s32", (8, 512))
    assert entry.desc == memory_desc((128, 256), "u4", "marlin")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["quantization_config"]["quant_method"] == "awq"


def test_the_last_rule_that_matches_serves(model: Path, tmp_path: Path) -> None:
    found = converted(
        model,
        tmp_path / "out.safetensors",
        "*.weight: f32",
        "conv.*: ohwi",
        "lm_head.*: rename=h.*",
    )
    assert found["conv.weight"].shape == (20, 3, 3, 6)
    assert found["model.layers.0.norm.weight"].dtype == np.float32
    assert found["h.weight"].dtype == np.float16


def test_records_become_plain_numbers(model: Path, tmp_path: Path) -> None:
    old = converted(model, tmp_path / "same")
    new = converted(model, tmp_path / "out", "model.layers.*: awq -> ba, f32")
    wanted = values_of(old, "model.layers.1.mlp.", "awq")
    assert np.array_equal(new["model.layers.1.mlp.weight"], wanted.T)
    assert "quantization_config" not in json.loads((tmp_path / "out" / "config.json").read_text())


def test_scales_are_chosen_from_the_data(model: Path, tmp_path: Path) -> None:
    # pieces of some rows each
    small = SMALL._replace(max_bytes=4000)
    out = tmp_path / "out.safetensors"
    found = converted(model, out, "lm_head.weight: ab, s8, scales=a", settings=small)
    x = reorder.open_checkpoint(model)["lm_head.weight"].numpy()
    wanted = reorder.quantize(x, "s8", axis=0)
    assert np.array_equal(found["lm_head.weight"], wanted.memory.numpy())
    assert np.array_equal(found["lm_head.weight_scale"], wanted.scales)


def test_scales_of_no_elements_are_1(tmp_path: Path) -> None:
    source = tmp_path / "in.npz"
    np.savez(source, a=np.ones((1, 0), np.float32), b=np.ones((0, 3), np.float32))
    rules = ("a: u8, scales=a", "b: AB4a4b, s8, scales=ab")
    found = converted(source, tmp_path / "out.safetensors", *rules)
    assert found["a_scale"].tolist() == [1]
    assert found["a_zero_point"].tolist() == [0]
    assert found["b_scale"].shape == (0, 3)


def test_scales_are_chosen_for_no_types_that_quantize_does_not_take(tmp_path: Path) -> None:
    source, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    write_safetensors(source, {"w": np.ones((8, 8), np.float32)})
    small = tmp_path / "small.safetensors"
    convert(plan(source, small, [parse_rule("w: f8_e4m3")], SMALL))
    said = refused(small, out, "w: s8, scales=a")
    assert "quantize takes floats of 16 bits or more, not f8_e4m3" in said


def test_scales_that_are_given_are_applied(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    found = converted(model, out, "lm_head.weight: s8, scale=0.05, zero_point=3")
    x = reorder.open_checkpoint(model)["lm_head.weight"].numpy()
    attr = reorder.Attr(dst_scale=0.05, dst_zero_point=3, saturate=True)
    assert np.array_equal(
        found["lm_head.weight"], reorder.reorder(x, dtype="s8", attr=attr).numpy()
    )


@pytest.mark.parametrize("group", [64, -1])
def test_scales_of_marlin_have_the_shape_and_the_order_that_loaders_expect(
    tmp_path: Path, group: int
) -> None:
    rng = np.random.default_rng(0)
    rows = 1 if group == -1 else 128 // group
    layer: dict[str, NDArray[Any]] = {
        "a.qweight": rng.integers(-(2**31), 2**31, (16, 256)).astype(np.int32),
        "a.qzeros": np.full((rows, 32), 0x77777777, np.int32),
        "a.scales": rng.random((rows, 256)).astype(np.float16),
    }
    source, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    write_safetensors(source, layer)
    found = converted(source, out, "a: gptq -> marlin")
    if group == -1:  # the tables of vLLM
        order = [2 * i + j for i in range(4) for j in (0, 1, 8, 9, 16, 17, 24, 25)]
    else:
        order = [i + 8 * j for i in range(8) for j in range(8)]
    wanted = layer["a.scales"].reshape(-1, len(order))[:, order].reshape(rows, 256)
    assert np.array_equal(found["a.scales"], wanted)
    # of another program, without descriptors
    plain = tmp_path / "plain.safetensors"
    write_safetensors(plain, found)
    back = converted(plain, tmp_path / "back.safetensors", "a: marlin -> gptq")
    assert all(np.array_equal(back[name], array) for name, array in layer.items())


def test_gguf_blocks_become_layers_of_other_systems(tmp_path: Path) -> None:
    desc = record_desc((64, 256), "q4_0")
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 256, (64, 8, 18)).astype(np.uint8)
    blocks[:, :, :2] = rng.random((64, 8)).astype(np.float16)[..., None].view(np.uint8)
    record = reorder.Record(desc, blocks)
    source = tmp_path / "in.safetensors"
    write_safetensors(source, {"blk.0.ffn.weight": blocks.reshape(64, 144)})
    found = converted(source, tmp_path / "out.safetensors", "blk.*: q4_0 -> awq")
    assert sorted(found) == [f"blk.0.ffn.{name}" for name in ("qweight", "qzeros", "scales")]
    assert found["blk.0.ffn.qweight"].shape == (256, 8)
    held = {name.rpartition(".")[2]: array for name, array in found.items()}
    made = reorder.Record(record_desc((256, 64), "awq", group=32), held)
    wanted = reorder.dequantize(record).numpy()
    assert np.array_equal(reorder.dequantize(made).numpy().T, wanted)
    rule = parse_rule("*.ffn: awq -> q4_0")
    convert(plan(tmp_path / "out.safetensors", tmp_path / "x.gguf", [rule], SMALL))
    entry = read_container(tmp_path / "x.gguf").entries["blk.0.ffn.weight"]
    assert (entry.dtype, entry.shape) == ("q4_0", (64, 256))
    assert np.array_equal(entry.read(), blocks.reshape(-1))


def test_mistakes_are_refused_before_anything_is_written(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for rule, problem in {
        "*.qweigh: awq -> marlin": "no tensor and no record is called '*.qweigh'; did you mean",
        "conv.weight: OIhw16i16o -> oihw": "conv.weight has 4320 bytes, but",
        "conv.weight: OIhw16i16p": "conv.weight, memory_desc((20, 6, 3, 3), 'f32', 'abcd')",
        "conv.weight: AB16a8b": "conv.weight",
        "conv.weight: s8": "give scale=, or scales= to choose them from the data",
        "lm_head.weight: awq -> marlin": "lm_head.weight of f16 and shape (40, 128)",
        "*.0.mlp.qweight: awq -> gptq(zeros=v2)": "what stands before the names of its tensors",
        "lm_head.weight: q4_0": "of numbers no records are made: give a data type and scales=",
        "lm_head.weight: dims=40x128, ba": "'ba' is neither a data type nor KEY=VALUE; a layout",
        "lm_head.weight: ab, s8, scales=c": "name a dim that (40, 128) do not have",
        "lm_head.weight: ab, s8, scales=ab, groups=1x3": "3 does not divide b (dim 1) of size 128",
        "lm_head.weight: ab, s8, scales=a, groups=1x32": "needs b (dim 1) among the axes",
        "lm_head.weight: ab, s8, scales=a, groups=4x1": "both be among the axes: b (dim 1) is not",
        "lm_head.weight: ab, f16, scales=a": "u4 to u16, f8 or f4, not f16",
        "lm_head.weight: ab, dims=40x129": "lm_head.weight has 10240 bytes, but",
        "lm_head.weight: rename=conv.weight": "would both be called conv.weight",
        "*.mlp: gptq -> awq": "model.layers.0.mlp.qweight of s32 has the shape (128, 32)",
        "*.mlp: awq -> q4_0": "model.layers.0.mlp",
        "*.mlp: awq(bits=8) -> gptq": "awq has no option 'bits'",
        "*.mlp: awq -> gptq, f16": "records keep their types",
    }.items():
        said = refused(model, out, rule)
        assert f"rule {rule!r}" in said
        assert problem in said
    said = refused(model, out, "*.mlp: awq -> gptq", "*.0.mlp.scales: f32")
    assert "moves model.layers.0.mlp.scales alone" in said


def test_numbers_that_the_other_side_cannot_say_are_refused(tmp_path: Path) -> None:
    model_folder(tmp_path / "model", zeros=(0, 2))
    said = refused(tmp_path / "model", tmp_path / "out", "model.*: awq -> gptq")
    assert "rule 'model.*: awq -> gptq': model.layers.0.mlp: zero points: qzeros of gptq" in said
    assert said.endswith("gptq(zeros=v2) says all zero points")
    converted(tmp_path / "model", tmp_path / "out", "model.*: awq -> gptq(zeros=v2)")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["quantization_config"]["checkpoint_format"] == "gptq_v2"
    said = refused(tmp_path / "model", tmp_path / "out2", "model.*: awq -> marlin")
    assert said.endswith("marlin has one zero point for all, 8")


def test_codes_of_more_bits_than_the_other_format_has_are_refused(tmp_path: Path) -> None:
    layer: dict[str, NDArray[Any]] = {
        "a.qweight": np.full((16, 32), 0x01020304, np.int32),
        "a.qzeros": np.full((1, 8), 0x01010101, np.int32),
        "a.scales": np.ones((1, 32), np.float16),
    }
    source, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    write_safetensors(source, layer)
    rule = "a: gptq(bits=8, zeros=v2) -> awq"
    converted(source, tmp_path / "small.safetensors", rule)
    layer["a.qweight"][9, 5] = 0x10000000
    write_safetensors(source, layer)
    assert "the code at (39, 5) becomes 16" in refused(source, out, rule)


def test_records_of_an_archive_have_the_types_of_their_descriptors(tmp_path: Path) -> None:
    layer: dict[str, NDArray[Any]] = {
        "a.qweight": np.zeros((16, 64), np.int32),
        "a.qzeros": np.full((2, 8), 0x77777777, np.int32),
        "a.scales": np.ones((2, 64), np.float32),
    }
    write_safetensors(tmp_path / "in.safetensors", layer)
    source = tmp_path / "x.npz"
    rule = parse_rule("a: gptq -> torch_int4_cpu(scales=bf16)")
    convert(plan(tmp_path / "in.safetensors", source, [rule], SMALL))
    back = [parse_rule("a: torch_int4_cpu -> ab, f32")]
    convert(plan(source, tmp_path / "y.safetensors", back, SMALL))
    found = reorder.open_checkpoint(tmp_path / "y.safetensors")["a.weight"].numpy()
    assert (found == -8).all()


@pytest.mark.parametrize(
    ("name", "rule", "problem"),
    [
        ("gguf_mxfp4", "awq", "codes that are looked up need tables of one length"),
        ("q4_1", "q4_0", "it has no offset, and the one of group"),
        ("q8_0", "q4_0", "q4_0"),
        ("q4_0", "gptq(group=64, zeros=v2)", "scales"),
    ],
)
def test_blocks_that_the_other_format_does_not_have_are_refused(
    tmp_path: Path, name: str, rule: str, problem: str
) -> None:
    desc = record_desc((64, 64), name)
    rng = np.random.default_rng(0)
    record = reorder.Record(desc)
    for part in desc.fields:
        whole = np.float16 if part.kind == "f16" else np.int64
        values = rng.integers(0, 8 if part.kind in {"u4", "s4"} else 100, part.layout.dims)
        record.set_field(part.name, values.astype(whole))
    # the last block alone is wrong, where one can be: the formats fit the others
    source = tmp_path / "in.safetensors"
    write_safetensors(source, {"a.weight": record.data.reshape(64, -1)})
    said = refused(source, tmp_path / "out.safetensors", f"a.weight: {name} -> {rule}")
    assert f"rule 'a.weight: {name} -> {rule}': a.weight: " in said
    assert problem in said


def test_a_record_without_one_of_its_tensors_is_refused(tmp_path: Path) -> None:
    layer = awq_layer()
    tensors = {f"a.{name}": array for name, array in layer.items()}
    write_safetensors(tmp_path / "in.safetensors", tensors | {"b.qweight": layer["qweight"]})
    said = refused(tmp_path / "in.safetensors", tmp_path / "out.safetensors", "*: awq -> gptq")
    assert "b has qweight, but no qzeros, scales" in said


def test_an_order_of_inputs_that_is_data_is_refused(tmp_path: Path) -> None:
    layer = {f"a.{name}": array for name, array in awq_layer().items()}
    source, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    order = np.arange(128, dtype=np.int32) // 64
    write_safetensors(source, layer | {"a.g_idx": order})
    found = converted(source, tmp_path / "ok.safetensors", "a: awq -> gptq")
    assert sorted(found) == ["a.qweight", "a.qzeros", "a.scales"]
    write_safetensors(source, layer | {"a.g_idx": order[::-1].copy()})
    assert "a.g_idx assigns inputs to groups in an order that is data" in refused(
        source, out, "a: awq -> gptq"
    )


def test_inputs_are_never_the_output(model: Path, tmp_path: Path) -> None:
    for target in (model, model / "out", model / "model.safetensors", tmp_path):
        assert "which is never changed" in refused(model, target, "conv.*: f16")
    assert "there is no folder" in refused(model, tmp_path / "no" / "out", "conv.*: f16")
    (tmp_path / "out").mkdir()
    assert "exists" in refused(model, tmp_path / "out", "conv.*: f16")
    converted(model, tmp_path / "out", "conv.*: f16", settings=SMALL._replace(overwrite=True))
    assert "names no format" in refused(model, tmp_path / "out.bin", "conv.*: f16")


def test_shards_go_in_and_out(model: Path, tmp_path: Path) -> None:
    small = SMALL._replace(shard_bytes=20000)
    first = converted(model, tmp_path / "many", "*.mlp: awq -> gptq", settings=small)
    assert len([*(tmp_path / "many").glob("*.safetensors")]) > 2
    found = converted(tmp_path / "many", tmp_path / "again", "*.mlp: gptq -> awq")
    assert len([*(tmp_path / "again").glob("*.safetensors")]) > 1
    whole = converted(tmp_path / "again", tmp_path / "one.safetensors")
    assert all(np.array_equal(whole[name], array) for name, array in found.items())
    assert first.keys() == found.keys()
    assert "name a folder for shards" in refused(
        model, tmp_path / "x.safetensors", "conv.*: f16", settings=small
    )


def test_a_tensor_beyond_the_bound_is_cut(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((256, 640)).astype(np.float32)
    write_safetensors(tmp_path / "in.safetensors", {"w": x})
    small = Settings(max_bytes=100_000, threads=2)
    out = tmp_path / "out.safetensors"
    made = plan(tmp_path / "in.safetensors", out, [parse_rule("w: BA16a16b")], small)
    assert convert(made)["tasks"] > 20
    desc = memory_desc(x.shape, "f32", "BA16a16b")
    entry = read_container(out).entries["w"]
    assert np.array_equal(entry.read(), reorder.reorder(x, desc).data)
    assert "and max_bytes is 100" in refused(
        tmp_path / "in.safetensors",
        tmp_path / "no.safetensors",
        "w: BA16a16b",
        settings=Settings(max_bytes=100),
    )


def test_types_that_an_archive_does_not_have_come_back(tmp_path: Path) -> None:
    names = ("in.safetensors", "b.npz", "c.gguf", "d.safetensors")
    first, *others = (tmp_path / name for name in names)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    write_safetensors(tmp_path / "x.safetensors", {"x": x, "y": x})
    rules = [parse_rule("x: bf16"), parse_rule("y: f8_e5m2")]
    convert(plan(tmp_path / "x.safetensors", first, rules, SMALL))
    source = first
    for target in others:
        convert(plan(source, target, [], SMALL))
        source = target
    old, new = read_container(first).entries, read_container(source).entries
    for name, dtype in (("x", "bf16"), ("y", "f8_e5m2")):
        assert (new[name].dtype, new[name].shape, new[name].is_described) == (dtype, (2, 3), False)
        assert new[name].read().tobytes() == old[name].read().tobytes()


def test_tensors_without_a_data_type_are_copied(tmp_path: Path) -> None:
    x = np.arange(8, dtype=np.complex64)
    write_safetensors(tmp_path / "x.safetensors", {"x": x})
    convert(plan(tmp_path / "x.safetensors", tmp_path / "y.safetensors", [], Settings()))
    entry = read_container(tmp_path / "y.safetensors").entries["x"]
    assert (entry.dtype, entry.read().tobytes()) == ("C64", x.tobytes())
    said = refused(tmp_path / "x.safetensors", tmp_path / "z.safetensors", "x: f32")
    assert "rule 'x: f32': x: memdesc has no data type" in said
