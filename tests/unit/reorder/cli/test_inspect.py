from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import reorder
from memdesc import memory_desc
from memdesc.record import record_desc
from reorder.checkpoints.formats.entry import Tensor
from reorder.checkpoints.formats.shards import plan_shards
from reorder.checkpoints.writer import Writer
from reorder.memory.memory import Memory
from tests.checkpoints import awq_layer, fp8_layer, write_safetensors
from tests.headers import message_field, safetensors_bytes

if TYPE_CHECKING:
    from tests.unit.reorder.cli.shell import Shell


@pytest.fixture
def model(shell: Shell) -> Path:
    """A folder of two shards, with AWQ weights as config.json declares."""
    del shell  # it enters the folder
    blocked = memory_desc((20, 3, 3, 3), "f32", "OIhw16o4i")
    marlin = memory_desc((64, 64), "u4", "marlin")
    tensors = [
        Tensor("conv", "u8", (blocked.nbytes,), blocked.nbytes, blocked),
        Tensor("norm", "bf16", (7,), 14),
        Tensor("scale", "f32", (), 4),
        Tensor("fc.qweight", "s32", (128, 2), 1024),
        Tensor("fc.qzeros", "s32", (1, 2), 8),
        Tensor("fc.scales", "f16", (1, 16), 32),
        Tensor("packed", "s32", (4, 128), marlin.nbytes, marlin),
        Tensor("q4", "u8", (36,), 36, record_desc((2, 32), "q4_0")),
        Tensor("odd", "F6_E2M3", (4,), 3),
        Tensor("view", "f32", (32,), 128, memory_desc((4, 4), "f32", strides=(8, 1))),
    ]
    with Writer(Path("m"), plan_shards(tensors, {}, 4700), is_folder=True) as writer:
        writer.finish()
    _declare(Path("m"), quant_method="awq", bits=4)
    return Path("m")


def _declare(model: Path, **section: object) -> None:
    text = json.dumps({"quantization_config": section})
    (model / "config.json").write_text(text, encoding="utf-8")


@pytest.mark.usefixtures("model")
def test_tensors_are_listed_by_what_they_hold(shell: Shell) -> None:
    facts = shell.facts("inspect m")
    rows = {row["name"]: row for row in facts["tensors"]}
    assert {
        name: ("x".join(map(str, row["dims"])), row["dtype"], row["layout"], row["padding"])
        for name, row in rows.items()
    } == {
        "conv": ("20x3x3x3", "f32", "OIhw16o4i", 2448),
        "norm": ("7", "bf16", "plain", 0),
        "scale": ("", "f32", "plain", 0),
        "fc.qweight": ("128x16", "u4", "awq qweight", 0),
        "fc.qzeros": ("1x16", "u4", "awq qzeros", 0),
        "fc.scales": ("1x16", "f16", "awq scales", 0),
        "packed": ("64x64", "u4", "marlin", 0),
        "q4": ("2x32", "q4_0", "record", 0),
        "odd": ("4", "F6_E2M3", "unknown", 0),
        "view": ("4x4", "f32", "strides=(8, 1)", 64),
    }
    assert rows["fc.qweight"]["stored_as"] == {"dtype": "s32", "shape": [128, 2]}
    assert "no data type" in rows["odd"]["why_unknown"]
    assert facts["bytes"] == sum(row["bytes"] for row in rows.values())
    assert facts["padding"] == 2448 + 64
    assert sum(kind["bytes"] for kind in facts["kinds"]) == facts["bytes"]
    assert len(facts["files"]) == 2
    assert {row["file"] for row in rows.values()} <= {*facts["files"]}


def test_a_layout_is_called_what_its_writer_called_it(shell: Shell) -> None:
    called = {
        **dict.fromkeys(("aBcd16b", "nChw16c", "b_fs_yx_fsv16"), (2, 17, 5, 4)),
        **dict.fromkeys(("Oihw16o", "Abcd16a"), (32, 8, 3, 3)),
    }
    made = {name: Memory(memory_desc(dims, "f32", name)) for name, dims in called.items()}
    for path in ("x.safetensors", "x.npz"):
        reorder.save(path, made)
        rows = shell.facts(f"inspect {path}")["tensors"]
        assert {row["name"]: row["layout"] for row in rows} == {name: name for name in called}


@pytest.mark.usefixtures("model")
def test_tensors_are_filtered_and_sorted(shell: Shell) -> None:
    def column(options: str, name: str = "name") -> list[str]:
        return [row[name] for row in shell.facts(f"inspect m {options}")["tensors"]]

    assert column("--filter fc") == ["fc.qweight", "fc.qzeros", "fc.scales"]
    assert column("--filter fc.*s --sort padding") == ["fc.qzeros", "fc.scales"]
    sizes = column("--sort bytes", "bytes")
    assert sizes == sorted(sizes, reverse=True)
    names = column("--sort name")
    assert names == sorted(names)
    assert shell.facts("inspect m --filter nothing", 1)["count"] == 0


def test_several_files_are_one_table(shell: Shell) -> None:
    np.save("a.npy", np.zeros((2, 3)))
    reorder.save("b.npz", {"b": np.zeros(3)})
    assert shell.lines("inspect a.npy b.npz") == [
        "name  dims  dtype  layout  bytes  padding",
        "a     2x3   f64    plain      48        0",
        "b     3     f64    plain      24        0",
        "",
        "2 tensors of f64, plain: 72 bytes",
        "all: 2 tensors in 2 files, 72 bytes",
    ]
    assert shell.lines("inspect b.npz --filter x", 1) == ["all: 0 of 1 tensors in 1 file, 0 bytes"]


def test_one_tensor_has_the_name_that_other_commands_give_it(shell: Shell) -> None:
    reorder.save("b.npz", {"b": np.zeros(3), "bias": np.zeros(3)})
    Path("a.onnx").write_bytes(message_field(7, b""))
    assert [row["name"] for row in shell.facts("inspect b.npz:b")["tensors"]] == ["b"]
    assert shell.refusal("inspect b.npz:c") == "'b.npz' has no tensor 'c'; it has 2: b, bias"
    assert "has no tensor 'w'; it has 0" in shell.refusal("inspect a.onnx:w")
    assert "has no tensor 'w'; it has 0" in shell.refusal("check a.onnx:w")


@pytest.mark.parametrize(
    ("section", "note"),
    [
        ({"quant_method": "quark"}, "no record for quant_method 'quark'"),
        (
            {"quant_method": "gptq", "bits": 8},
            "config.json declares gptq: it is not gptq: gptq needs a multiple of 4 along b",
        ),
    ],
)
def test_what_config_declares_and_tensors_do_not_hold_is_noted(
    shell: Shell, model: Path, section: dict[str, object], note: str
) -> None:
    _declare(model, **section)
    facts = shell.facts("inspect m")
    assert note in facts["notes"][0]
    layouts = {row["name"]: row["layout"] for row in facts["tensors"]}
    assert layouts["fc.qweight"] == "plain"


@pytest.mark.parametrize("path", [".", "x.safetensors", "missing"])
def test_what_is_not_a_checkpoint_is_refused(shell: Shell, path: str) -> None:
    Path("x.safetensors").touch()
    shell.refusal(f"inspect {path}")


def test_only_headers_are_read(shell: Shell) -> None:
    path = Path("x.safetensors")
    head = safetensors_bytes({"a": {"dtype": "U8", "shape": [2**42], "data_offsets": [0, 2**42]}})
    path.write_bytes(head)
    try:
        with path.open("r+b") as file:
            file.truncate(len(head) + 2**42)
    except OSError:
        pytest.skip("the file system has no files of 4 TiB")
    assert shell.facts("inspect x.safetensors")["bytes"] == 2**42


def test_names_send_no_commands_to_the_terminal(shell: Shell) -> None:
    reorder.save("x.safetensors", {"\x1b[2J": np.zeros(1, np.uint8)})
    shown = "\n".join(shell.lines("inspect x.safetensors"))
    assert "\x1b" not in shown
    assert "\n\\x1b[2J  1 " in shown


def _fp8_model(layers: int, block: int, *, without: str = "") -> None:
    """Save matrices of 256 x 80 in blocks of 128 x 128, which config.json may contradict."""
    codes = fp8_layer()["weight"][:, :80]
    scales = np.ones((2, 1), np.float32)
    layer = {"weight": np.ascontiguousarray(codes), "weight_scale_inv": scales}
    tensors = {f"layers.{k}.fc.{name}": x for k in range(layers) for name, x in layer.items()}
    tensors.pop(without, None)
    Path("m").mkdir()
    write_safetensors(Path("m/model.safetensors"), tensors)
    _declare(Path("m"), quant_method="fp8", weight_block_size=[block, block])


def test_equal_layers_share_a_line(shell: Shell) -> None:
    _fp8_model(3, 128)
    weight, scales, *_, total, kind = shell.lines("inspect m")[1:]
    assert weight.split()[:3] == ["layers.*.fc.weight", "(3)", "256x80"]
    assert scales.split()[:3] == ["layers.*.fc.weight_scale_inv", "(3)", "2x1"]
    assert total.startswith("all: 6 tensors")
    # the format's block, although the matrix is narrower
    assert kind.startswith("fp8_block, 8 bits, blocks of 128 x 128, ")
    assert shell.lines("inspect m --all")[1].split()[:2] == ["layers.0.fc.weight", "256x80"]
    assert len(shell.facts("inspect m")["tensors"]) == 6
    sizes = [row["bytes"] for row in shell.facts("inspect m --sort bytes")["alike"]]
    assert sizes == [3 * 256 * 80, 3 * 2 * 4]


def test_a_contradiction_of_many_layers_is_one_line(shell: Shell) -> None:
    _fp8_model(3, 64)
    *_, total, note = shell.lines("inspect m")
    assert total.startswith("all: 6 tensors")
    assert note.startswith("layers.0.fc.weight and 2 more: codes scaled by other tensors, not ")
    assert "'layers.0.fc.weight_scale_inv' of f32 has the shape (2, 1)" in note


def test_a_weight_without_its_scales_is_named(shell: Shell) -> None:
    _fp8_model(2, 128, without="layers.1.fc.weight_scale_inv")
    facts = shell.facts("inspect m", 1)
    assert facts["unscaled"] == ["layers.1.fc"]
    assert facts["notes"] == [
        "layers.1.fc: config.json declares fp8_block, but no scales are beside its codes of f8_e4m3"
    ]


def test_scales_without_their_weight_are_named(shell: Shell) -> None:
    _fp8_model(2, 128, without="layers.1.fc.weight")
    facts = shell.facts("inspect m", 1)
    assert facts["unscaled"] == ["layers.1.fc.weight_scale_inv"]
    (note,) = facts["notes"]
    assert note.startswith("layers.1.fc.weight_scale_inv: it scales a weight, as other tensors of")
    assert note.endswith("but there is no layers.1.fc.weight")


def test_what_makes_weights_mean_other_numbers_is_noted(shell: Shell) -> None:
    _fp8_model(1, 128)
    size = {"weight_block_size": [128, 128]}
    _declare(Path("m"), quant_method="fp8", rotation="hadamard", **size)
    (note,) = shell.facts("inspect m")["notes"]
    assert note.startswith("config.json says rotation 'hadamard', which rotates weights or act")


def test_what_is_listed_depends_on_what_the_tensors_are_and_not_on_their_places(
    shell: Shell,
) -> None:
    tensors = {f"layers.{k}.{name}": x for k in (10, 9) for name, x in awq_layer().items()}
    texts = []
    for folder, names in (("a", [*tensors]), ("b", [*tensors][::-1])):
        Path(folder).mkdir()
        write_safetensors(
            Path(folder, "model.safetensors"), {name: tensors[name] for name in names}
        )
        _declare(Path(folder), quant_method="awq")
        found = shell.facts(f"inspect {folder} --all")
        texts.append(json.dumps(found).replace(f"{folder}/", ""))
        weight = found["weights"][0]
        assert (weight["name"], weight["scheme"], weight["dims"]) == (
            "layers.10",
            "awq",
            [128, 256],
        )
        assert weight["options"]["group"] == 64
    assert texts[0] == texts[1]
    assert "offset" not in texts[0]
