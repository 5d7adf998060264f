"""What the tensors of a quantised weight are: all that says it must agree."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from reorder.checkpoints.config import Configs
from reorder.cli import main
from tests.checkpoints import fp8_layer, gptq_layer, write_config, write_safetensors
from tests.unit.reorder.checkpoints.convert.results import converted, refused
from tests.unit.reorder.checkpoints.schemes import numbers_in, refusal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m").mkdir()
    return tmp_path / "m"


def write(folder: Path, layer: Mapping[str, NDArray[Any]], **more: NDArray[Any]) -> None:
    named = {f"fc.{name}": array for name, array in {**layer, **more}.items()}
    write_safetensors(folder / "model.safetensors", named)


@pytest.mark.parametrize("name", ["qweight", "qzeros", "scales"])
def test_words_in_the_order_of_fortran_are_of_no_record(tmp_path: Path, name: str) -> None:
    layer, wanted = gptq_layer()
    arrays: dict[str, Any] = {f"fc.{each}": array for each, array in layer.items()}
    np.savez(tmp_path / "c.npz", **arrays)
    np.savez(tmp_path / "f.npz", **arrays | {f"fc.{name}": np.asfortranarray(layer[name])})
    assert np.array_equal(numbers_in(tmp_path / "c.npz", "fc", "gptq"), wanted)
    assert f"'fc.{name}' holds memory_desc" in refusal(tmp_path / "f.npz", "fc", "gptq")


def test_an_order_of_inputs_that_is_that_of_the_groups_is_none(folder: Path) -> None:
    layer, wanted = gptq_layer()
    order = np.arange(128, dtype=np.int32) // 64
    for desc_act in (False, True):
        write_config(folder, quant_method="gptq", desc_act=desc_act)
        for kind in (np.int32, np.int64):
            write(folder, layer, g_idx=order.astype(kind))
            assert np.array_equal(numbers_in(folder), wanted)
            assert np.array_equal(numbers_in(folder, "fc", "gptq"), wanted)
            out = folder.parent / f"{kind.__name__}-{desc_act}.safetensors"
            made = converted(folder, out, "fc: gptq -> awq(scales=f16)")
            assert {*made} == {f"fc.{name}" for name in layer}
    for wrong in (order[:-1], order.astype(np.float32), np.zeros(0, np.int32)):
        write(folder, layer, g_idx=wrong)
        said = refusal(folder)
        assert "is not an integer for each of the 128 inputs" in said or "not (128,) of s32" in said


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_scales_of_act_order_are_looked_up(folder: Path, kind: type) -> None:
    """*Law*: input k is decoded with the scale and the zero point of group g_idx[k]."""
    layer, _ = gptq_layer(dims=(128, 64), group=32)
    order = np.random.default_rng(0).permutation(np.arange(128) // 32)
    write_config(folder, quant_method="gptq", bits=4, group_size=32, desc_act=True)
    write(folder, layer, g_idx=order.astype(kind))
    nibbles = np.arange(8) * 4
    codes = (layer["qweight"][:, None].view(np.uint32) >> nibbles[:, None] & 15).reshape(128, 64)
    zeros = (layer["qzeros"][..., None].view(np.uint32) >> nibbles & 15).reshape(4, 64) + 1
    moved = codes.astype(np.float32) - zeros.astype(np.float32)[order]
    wanted = moved * layer["scales"].astype(np.float32)[order]
    for name in ((), ("gptq",)):
        assert np.array_equal(numbers_in(folder, "fc", *name), wanted)
    for small in (1 << 12, 1 << 30):
        out, rule = folder.parent / f"{small}.safetensors", "fc: gptq -> plain(axes=oi), f32"
        assert np.array_equal(converted(folder, out, rule, max_bytes=small)["fc.weight"], wanted.T)
    # scales that are looked up are read once
    report = reorder.convert(folder, folder.parent / "out.npz", "bf16")
    assert report.bytes_in == sum(array.nbytes for array in layer.values())
    assert "which no record holds" in refused(folder, folder.parent / "no", "fc: gptq -> awq")
    for step, shown in ((1, "1 to 4"), (-1, "-1 to 2")):
        write(folder, layer, g_idx=(order + step).astype(kind))
        assert f"fc.g_idx has groups {shown}, but there are 4" in refusal(folder)


def test_inspect_shows_scales_of_act_order_as_they_are_stored(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layer, _ = gptq_layer(dims=(128, 64), group=32)
    order = np.random.default_rng(0).permutation(np.arange(128) // 32).astype(np.int32)
    write_config(folder, quant_method="gptq", bits=4, group_size=32, desc_act=True)
    write(folder, layer, g_idx=order)
    assert main(["inspect", str(folder), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    rows = {row["name"]: (row["dims"], row["padding"]) for row in facts["tensors"]}
    grouped = dict.fromkeys(("fc.qzeros", "fc.scales"), ([4, 64], 0))
    assert rows == grouped | {"fc.qweight": ([128, 64], 0), "fc.g_idx": ([128], 0)}
    nbytes = sum(layer[name].nbytes for name in ("qweight", "qzeros", "scales"))
    (kind,) = facts["quantised"]
    assert (kind["scales"], kind["bytes"]) == ("groups of inputs in any order", nbytes)


def test_one_group_may_be_smaller_than_config_says(folder: Path) -> None:
    layer, wanted = gptq_layer(dims=(64, 256), group=64)
    write(folder, layer)
    write_config(folder, quant_method="gptq", group_size=128)
    assert np.array_equal(numbers_in(folder), wanted)
    write_config(folder, quant_method="gptq", group_size=32)
    assert "but the shapes of the tensors say one group of 64 inputs" in refusal(folder)


def test_a_prefix_without_words_of_a_record_is_told_what_there_is(folder: Path) -> None:
    write(folder, fp8_layer())
    assert "its tensors fit fp8_block: give the name" in refusal(folder)
    assert "'fc' is not gptq: no tensor 'qweight'; gptq has" in refusal(folder, "fc", "gptq")
    words, floats = np.ones((16, 8), np.int32), np.ones((16, 8), np.float16)
    write(folder, {"mlp.qweight": words, "mlp.scales": floats[:1]})
    said = refusal(folder, "fc", "gptq")
    assert said == "no quantised weight is called 'fc'; the file has 1: 'fc.mlp'"
    write(folder, {"weight": floats})
    assert refusal(folder) == "no quantised weight is called 'fc'; the file has 0"


def test_bytes_are_whole_blocks_of_a_record_of_one_tensor(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    blocks = np.arange(4 * 220, dtype=np.uint8).reshape(4, 220)
    reorder.save(path, {"b": blocks[:, 1:], "f": np.zeros((4, 110), np.float32), "w": blocks})
    with reorder.open_checkpoint(path) as checkpoint:
        assert checkpoint.record("w", "iq3_s").data.tobytes() == blocks.tobytes()
    assert "219 bytes are not whole elements of 3.4375 bits" in refusal(path, "b", "iq3_s")
    assert "'f' holds f32, and iq3_s is stored as bytes" in refusal(path, "f", "iq3_s")


_KIND = {"type": "int", "strategy": "channel"}
_COMPRESSED = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
_DYNAMIC = {r"-:.*\.gate$": {}, r"+:.*[.]up": {"bits": 8}, ".*": {"bits": 4}, ".*u.*": {"bits": 3}}
_IGNORED = ["lm_head", "model.layers.*.mlp.gate", "visual"]
_LISTED = {
    **dict.fromkeys(("lm_head", "model.lm_head", "model.layers.3.mlp.gate", "visual.0.fc")),
    **dict.fromkeys(("model.layers.3.mlp.gate.w1", "text.model.layers.3.mlp.gate")),
    **dict.fromkeys(("model.layers.3.mlp.gate_proj", "model.layers.3", "head", "a.visual.b"), 8),
}


def _groups(**bits: int) -> dict[str, Any]:
    groups = {
        name: {"targets": [name], "weights": _KIND | {"num_bits": number}}
        for name, number in bits.items()
    }
    nothing = {"targets": ["re:.*", "LlamaAttention"], "weights": None}
    return _COMPRESSED | {"config_groups": groups | {"cache": nothing}}


@pytest.mark.parametrize(
    ("section", "bits"),
    [
        # ends of names, and names with stars, are ignored where loaders compare these
        *(
            ({"quant_method": method, key: _IGNORED, **more}, _LISTED)
            for method, key, more in (
                ("fp8", "modules_to_not_convert", {}),
                ("awq", "modules_to_not_convert", {}),
                ("bitsandbytes", "llm_int8_skip_modules", {"load_in_8bit": True}),
                ("modelopt", "ignore", {"quant_algo": "FP8"}),
            )
        ),
        # else whole names
        (
            _COMPRESSED | {"ignore": ["lm_head", "a.b"], "num_bits": 8, **_KIND},
            {"lm_head": None, "a.b": None, "a.b.c": 8, "x.a.b": 8, "model.lm_head": 8},
        ),
        (
            {"group_size": 64, "bits": 4, "lm_head": False, "a.b": False},
            {"lm_head": None, "a.b": None, "a.b.c": 4, "x.a.b": 4, "model.lm_head": 4},
        ),
        # the first expression in sorted order, of groups that have weights
        (_groups(**{"re:f.*": 4, "re:.*c$": 8}), {"fc": 8, "fd": 4}),
        # names, then expressions, then classes
        (
            _groups(**{"Linear": 2, "re:.*_proj$": 4, "m.1.up_proj": 8, "re:.*.up$": 6}),
            {"m.0.up_proj": 4, "m.1.up_proj": 8, "m.1.up": 6, "m.0.down": 2},
        ),
        # lists of layers that are not quantised go first
        (
            _groups(**{"re:.*up": 4, "b.up": 8}) | {"ignore": ["a.up", "b.up"]},
            {"a.up": None, "b.up": None, "c.up": 4},
        ),
        # the first expression as it is written
        (
            {"quant_method": "gptq", "bits": 2, "dynamic": _DYNAMIC},
            {"m.gate": None, "m.up": 8, "m.gate_up": 4, "m.gate.up": 8, "mu": 4},
        ),
    ],
)
def test_layers_have_the_bits_that_a_section_says(
    tmp_path: Path, section: dict[str, Any], bits: dict[str, int | None]
) -> None:
    write_config(tmp_path, **section)
    found = Configs(tmp_path).declared
    assert found is not None
    for layer, wanted in bits.items():
        said = found.at(layer)[0]
        assert said.is_ignored == (wanted is None)
        assert wanted in (None, said.options.get("bits", 8))
        assert wanted or said.name is None
