"""`memdesc compare`: two tensors, and the tensors of two checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import reorder
from tests.checkpoints import fp8_layer, gptq_layer, model_folder, write_config, write_safetensors
from tests.headers import message_field

if TYPE_CHECKING:
    from tests.unit.reorder.cli.shell import Shell

_DUMP = "conv_dst0__f16__1_17_5_4__b_fs_yx_fsv16.bin"
_LAYOUT = "--from-a f16:b_fs_yx_fsv16:1x17x5x4:nopad"
_PLACES = (
    "offset 3 (byte 6) in a, 60 (byte 240) in b",
    "offset 464 (byte 928) in a, 329 (byte 1316) in b",
)


@pytest.fixture
def dump(shell: Shell) -> str:
    """Save a dump of OpenVINO, same.npy with its values, and ref.npy with some others."""
    del shell  # it enters the folder
    x = np.arange(340, dtype=np.float16).reshape(1, 17, 5, 4)
    reorder.reorder(x, "b_fs_yx_fsv16").data.tofile(_DUMP)
    y = x.astype(np.float32)
    np.save("same.npy", y)
    y[0, 16, 2:4, 1:] += 0.5
    y[0, 3, 0, 0] = np.nan
    np.save("ref.npy", y)
    return _DUMP


def test_what_differs_and_where_is_listed(shell: Shell, dump: str) -> None:
    lines = shell.lines(f"compare {dump} ref.npy {_LAYOUT} --limit 2", 1)
    assert "differing         7" in lines
    assert lines[4:7] == [
        "max ulp           2",
        "mean error        0.0088495575",
        "cosine            0.99999995",
    ]
    assert lines[8:] == [
        f"first             (0, 3, 0, 0): 60.0 and nan, inf apart; {_PLACES[0]}",
        f"                  (0, 16, 2, 1): 329.0 and 329.5, 0.5 apart; {_PLACES[1]}",
        "where             dim 0 (b): all of 1",
        "                  dim 1 (f): 3, 16 of 17",
        "                  dim 2 (y): 0, 2 to 3 of 5",
        "                  dim 3 (x): all of 4",
        "padding not zero  a 0, b 0",
        "padding differs   no",
    ]
    facts = shell.facts(f"compare {dump} ref.npy {_LAYOUT} --atol 0.5", 1)
    assert facts["worst"]["b"] == "nan"
    assert facts["where"][1] == {"dim": "dim 1 (f)", "differing": [[3, 3]], "of": 17}
    assert "differing         0" in shell.lines(f"compare {dump} same.npy {_LAYOUT}")


def test_many_places_are_counted(shell: Shell) -> None:
    x = np.zeros(40, np.int8)
    np.save("a.npy", x)
    x[::2] = 1
    np.save("b.npy", x)
    shown = "\n".join(shell.lines("compare a.npy b.npy", 1))
    assert "dim 0: 0, 2, 4, 6, 8, 10, 12, 14, ... (20 ranges) of 40" in shown


def test_the_step_of_the_coarser_type_is_tolerated_where_it_is_asked_for(shell: Shell) -> None:
    x = np.random.default_rng(0).standard_normal((17, 40), np.float32)
    np.save("x.npy", x)
    reorder.save("half.safetensors", reorder.reorder(x, "Ab16a", dtype="bf16"))
    shell.lines("compare x.npy half.safetensors", 1)
    facts = shell.facts("compare x.npy half.safetensors --resolution")
    assert 0.4 < facts["max_ulp"] <= 0.5
    assert 0 < facts["mean_error"] < 0.01
    assert 0.9999 < facts["cosine"] < 1
    x[3, 4] *= 1.02
    np.save("x.npy", x)
    found = shell.lines("compare x.npy half.safetensors --resolution", 1)
    assert "differing         1" in found


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (f"missing ref.npy {_LAYOUT}", "'missing' cannot be read: No such file"),
        (f"ref.npy ref.npy {_LAYOUT}", "'ref.npy' holds float32, not f16"),
        ("dump.bin ref.npy", "raw bytes, and its name does not say which; give --from-a"),
        ("ref.npy dump.bin", "raw bytes, and its name does not say which; give --from-b"),
        ("ref.npy ref.npy --from-a '(8'", "unknown format '(8'"),
        ("ref.npy ref.npy --atol -1", "atol must be a finite number"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    shell: Shell, dump: str, command: str, reason: str
) -> None:
    Path(dump).rename("dump.bin")
    assert reason in shell.refusal(f"compare {command}")


def test_layouts_may_be_given_apart_from_sizes_and_type(shell: Shell, dump: str) -> None:
    Path(dump).rename("dump.bin")
    told = "--from-a b_fs_yx_fsv16 --from-b b_fs_yx_fsv16 --dims 1x17x5x4 --dtype f16"
    shell.facts(f"compare dump.bin dump.bin {told}")
    # an array keeps the type that it states, and elements without one get the type of the raw bytes
    np.save("void.npy", np.load("same.npy").astype(np.float16).view("V2"))
    told = "--from-a b_fs_yx_fsv16 --dims 1x17x5x4 --dtype f16"
    for other in ("same.npy", "void.npy"):
        assert shell.facts(f"compare dump.bin {other} {told}")["differing"] == 0
    assert "holds f32, not f16" in shell.refusal("compare same.npy same.npy --dtype f16")


# The layout of a dump, in `memdesc reorder`.


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--dims 1x17x5x4 --dtype f16",
        "--from f16:b_fs_yx_fsv16:1x17x5x4:nopad",
    ],
)
def test_reorder_finds_the_layout_of_a_dump(shell: Shell, dump: str, options: str) -> None:
    shell.facts(f"reorder {dump} out.npy {options}")
    assert reorder.compare_values(reorder.load("out.npy"), np.load("same.npy")).is_equal


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--from bfyx", "does not contain the sizes and the data type; give --dims and --dtype"),
        ("--dims 1x17x5x5", "'aBcd16b'), which contradicts --dims 1x17x5x5"),
        ("--dtype bf16", "'aBcd16b'), which contradicts --dtype bf16; leave that out"),
        (
            "--from bfyx --dims 1x32x5x4 --dtype f16",
            "'aBcd16b'), which contradicts --from, which says memory_desc((1, 32, 5, 4), 'f16', ",
        ),
    ],
)
def test_reorder_refuses_what_does_not_say_one_layout(
    shell: Shell, dump: str, options: str, reason: str
) -> None:
    assert reason in shell.refusal(f"reorder {dump} out.npy {options}")


def test_an_offset_says_that_the_name_of_a_dump_is_wrong(shell: Shell, dump: str) -> None:
    given = "--from bfyx --dims 1x32x5x4 --dtype f16"
    assert "contradicts --from-a" in shell.refusal(
        f"compare {dump} same.npy --from-a f16:bfyx:1x32x5x4"
    )
    shell.facts(f"reorder {dump} out.npy {given} --offset 0")
    assert np.load("out.npy").shape == (1, 32, 5, 4)


# Folders of dumps.


def test_a_header_before_raw_bytes_is_skipped(shell: Shell, dump: str) -> None:
    data = Path(dump).read_bytes()
    Path("headed.bin").write_bytes(bytes(128) + data)
    layout = "f16:b_fs_yx_fsv16:1x17x5x4"
    assert shell.facts(f"compare headed.bin same.npy --from-a {layout} --offset 128")
    assert shell.facts(f"compare same.npy headed.bin --from-b {layout} --offset 128")
    said = shell.refusal(f"compare headed.bin same.npy --from-a {layout} --offset 64")
    assert "from byte 64 on" in said
    said = shell.refusal("compare same.npy ref.npy --offset 128")
    assert said.startswith("--offset is for raw bytes; 'same.npy' and 'ref.npy' say where")
    for folder, file in (("a", "headed.bin"), ("b", "same.npy")):
        Path(folder).mkdir()
        Path(folder, "x").write_bytes(Path(file).read_bytes())
    assert shell.facts(f"compare a b --from-a {layout} --offset 128")["compared"] == 1


def test_files_of_the_same_names_are_compared(shell: Shell, dump: str) -> None:
    for folder, value in (("a", 0), ("b", 1)):
        Path(folder).mkdir()
        x = np.load("same.npy").astype(np.float16)
        x[0, 5] += value
        Path(folder, f"same_{dump}").write_bytes(Path(dump).read_bytes())
        reorder.reorder(x, "b_fs_yx_fsv16").data.tofile(f"{folder}/{dump}")
        np.save(f"{folder}/only_{folder}.npy", x)
        Path(folder, "notes.txt").write_text("3")
    found = shell.facts("compare a b", 1)
    assert (found["compared"], found["only_in_a"], found["only_in_b"]) == (
        3,
        ["only_a.npy"],
        ["only_b.npy"],
    )
    notes, differing = sorted(found["differing"], key=lambda row: row["name"], reverse=True)
    assert "holds raw bytes, and its name does not say which" in notes["problem"]
    assert (differing["name"], differing["differing"]) == (dump, 20)
    assert differing["worst"][0] == [0, 5, 0, 0]
    lines = "\n".join(shell.lines("compare a b", 1))
    assert f"{dump}: 20 of 340 elements, worst (0, 5, 0, 0): 100.0 and 101.0, max ulp" in lines
    assert len(shell.facts("compare a b --atol 1", 1)["differing"]) == 1
    shell.facts("compare a a", 1)
    Path("a/notes.txt").unlink()
    shell.facts("compare a a")


def test_what_is_not_a_file_in_a_folder_of_dumps_is_not_compared(shell: Shell, dump: str) -> None:
    for folder in "ab":
        Path(folder, "inner").mkdir(parents=True)
        Path(folder, dump).write_bytes(Path(dump).read_bytes())
        Path(folder, "inner", folder).write_text(folder)
    Path("b/lost").symlink_to("nowhere")
    found = shell.facts("compare a b", 1)
    assert (found["compared"], found["differing"]) == (1, [])
    assert found["not_compared"] == [
        "inner: it is a folder; compare it by its path",
        "lost: it is not a file",
    ]


@pytest.mark.parametrize("pair", ["a missing", "missing a"])
def test_a_folder_that_is_missing_is_named(shell: Shell, dump: str, pair: str) -> None:
    Path("a").mkdir()
    Path(dump).rename(f"a/{dump}")
    said = shell.refusal(f"compare {pair}")
    assert "'missing' cannot be read: there is no such file or folder" in said


def test_an_empty_folder_has_nothing_to_compare(shell: Shell, dump: str) -> None:
    for folder in "ab":
        Path(folder).mkdir()
    Path(dump).rename(f"a/{dump}")
    found = shell.facts("compare a b", 1)
    assert (found["compared"], found["only_in_a"]) == (0, [dump])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("dump.bin", "or a name like those of OpenVINO's dumps, such as conv1__f16__1_17_5_4__b"),
        ("x__f16__1_17_5_4__b_gs_yx.bin", "unknown format 'b_gs_yx'"),
    ],
)
def test_a_dump_whose_name_does_not_describe_it_is_refused(
    shell: Shell, dump: str, name: str, reason: str
) -> None:
    Path(dump).rename(name)
    assert reason in shell.refusal(f"reorder {name} out.npy")


def test_a_layout_may_be_given_for_all_files_of_a_folder(shell: Shell) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for folder, layout in (("a", "ab"), ("b", "ba")):
        Path(folder).mkdir()
        for k in range(2):
            reorder.reorder(x + k, layout).data.tofile(f"{folder}/{k}.bin")
    told = "--dims 3x4 --dtype f32 --from-a ab --from-b"
    assert shell.facts(f"compare a b {told} ba")["compared"] == 2
    assert len(shell.facts(f"compare a b {told} ab", 1)["differing"]) == 2


# Packings of weights.


def test_packings_of_the_same_numbers_are_equal(shell: Shell) -> None:
    a, b = "gptq", "marlin"
    q = np.random.default_rng(0).integers(0, 16, (128, 64), np.uint8)
    np.save("plain.npy", q)
    for name in (a, b):
        packed = reorder.reorder(q, name, dtype="u4")
        reorder.save(f"{name}.safetensors", packed)
        words = packed.data.view(np.int32).reshape(16 if name == "gptq" else 8, -1)
        np.save(f"{name}.npy", words)
        np.savez(f"{name}.npz", up=words)
    layouts = f"--from-a u4:{a}:128x64", f"--from-b u4:{b}:128x64"
    shell.facts(f"compare {a}.safetensors {b}.safetensors")
    shell.facts(f"compare {a}.npy {b}.npy {' '.join(layouts)}")
    shell.facts(f"compare {a}.npz:up {b}.safetensors {layouts[0]}")
    shell.facts(f"compare {a}.safetensors plain.npy {layouts[0]}")
    shell.facts(f"compare {a}.npy {b}.npy {layouts[0]} --from-b u4:{a}:128x64", 1)
    said = shell.refusal(f"compare {a}.safetensors {b}.safetensors --from-b u4:{a}:128x64")
    assert "leave --from-b out" in said
    said = shell.refusal(f"compare {a}.npy plain.npy")
    assert "say what they are, such as --from-a u4:gptq:4096x4096" in said


def test_commands_on_one_tensor_say_that_codes_are_codes(shell: Shell) -> None:
    layer, _ = gptq_layer()
    reorder.save("x.npz", {f"fc.{name}": array for name, array in layer.items()})
    layer["qweight"].tofile("dump.bin")
    codes = "fc.qweight holds codes: fc.qzeros, fc.scales turn them into numbers, and are not"
    packs = "gptq packs codes: scales and zero points turn them"
    dump = "reorder dump.bin z.npz --dims 128x256 --dtype u4 --from"
    for command, note in (
        ("compare x.npz:fc.qweight x.npz:fc.qweight", codes),
        ("reorder x.npz:fc.qweight y.npz --to ba", codes),
        ("reorder x.npz:fc.scales y.npz --to ba", ""),
        (f"{dump} gptq", packs),
        (f"{dump} ab", ""),
    ):
        shown = "\n".join(shell.lines(command))
        assert note in shown
        assert "codes" in shown if note else "codes" not in shown


# Checkpoints.

_LAYERS = [f"model.layers.{k}.mlp.weight" for k in range(2)]


@pytest.mark.parametrize(
    "rule", ["awq -> gptq", "awq -> ba, f32", "awq -> torch_int4_cpu(scales=f32)"]
)
def test_records_are_compared_by_their_numbers(shell: Shell, rule: str) -> None:
    model_folder(Path("a"), zeros=(1, 9))
    # no config.json declares what no loader reads from it
    other = "b.safetensors" if "torch" in rule else "b"
    reorder.convert("a", other, map=[f"model.*.mlp: {rule}"])
    found = shell.facts(f"compare a {other}")
    assert (found["compared"], found["differing"], found["raw_codes"]) == (5, [], [])
    assert "differing  none" in "\n".join(shell.lines(f"compare a {other}"))


@pytest.mark.parametrize("dims", [(128, 256), (128, 128)])
def test_a_record_may_have_its_dims_in_another_order_than_floats(
    shell: Shell, dims: tuple[int, int]
) -> None:
    layer, numbers = gptq_layer(dims=dims)
    Path("a").mkdir()
    write_config(Path("a"), quant_method="gptq")
    write_safetensors(Path("a/model.safetensors"), {f"fc.{x}": y for x, y in layer.items()})
    floats = np.ascontiguousarray(numbers.T)
    reorder.save("right.safetensors", {"fc.weight": floats})
    floats[3, 5] += 1
    reorder.save("wrong.safetensors", {"fc.weight": floats})
    for order, index in (("a {}.safetensors", [5, 3]), ("{}.safetensors a", [3, 5])):
        assert shell.facts(f"compare {order.format('right')}")["differing"] == []
        (row,) = shell.facts(f"compare {order.format('wrong')}", 1)["differing"]
        assert (row["differing"], row["worst"][0]) == (1, index)


def test_experts_in_one_tensor_have_the_name_of_their_floats(shell: Shell) -> None:
    Path("a").mkdir()
    write_config(Path("a"), quant_method="fp8", weight_block_size=[128, 128])
    ends = (name.removeprefix("weight") for name in fp8_layer())
    layer = dict(zip(ends, fp8_layer().values(), strict=True))
    write_safetensors(
        Path("a/model.safetensors"), {f"mlp.experts.up{end}": x for end, x in layer.items()}
    )
    reorder.convert("a", "b", map=["mlp*: fp8_block(scale_inv=true) -> plain, f32"])
    found = shell.facts("compare a b")
    assert (found["compared"], found["only_in_a"], found["differing"]) == (1, [], [])


def test_a_code_that_differs_is_found_in_another_packing(shell: Shell) -> None:
    model_folder(Path("a"))
    tensors = model_folder(Path("b"))
    tensors["model.layers.1.mlp.qweight"][5, 1] ^= 1
    write_safetensors(Path("b/model.safetensors"), tensors)
    reorder.convert("b", "c", map=["model.*.mlp: awq -> gptq"])
    (row,) = shell.facts("compare a c", 1)["differing"]
    assert (row["name"], row["differing"], row["worst"][0]) == (_LAYERS[1], 1, [5, 8])
    shown = "\n".join(shell.lines("compare a c", 1))
    assert f"{_LAYERS[1]}: record_desc((128, 256), 'awq'" in shown


def test_raw_codes_and_what_one_side_lacks_are_reported(shell: Shell) -> None:
    layer = {f"fc.{name}": array for name, array in fp8_layer().items()}
    for name, more in (("a", "x"), ("b", "y")):
        Path(name).mkdir()
        write_config(Path(name), quant_method="fp8")
        tensors = layer | {more: np.ones(3, np.float32)}
        write_safetensors(Path(name, "model.safetensors"), tensors)
    found = shell.facts("compare a b", 1)
    assert found["raw_codes"] == ["fc.weight", "fc.weight_scale_inv"]
    assert (found["only_in_a"], found["only_in_b"], found["differing"]) == (["x"], ["y"], [])


def test_a_tensor_with_the_name_of_a_decoded_record_is_compared_too(shell: Shell) -> None:
    folders = Path("a"), Path("b")
    for value, folder in enumerate(folders):
        more = {_LAYERS[0]: np.full((128, 256), value, np.float32)}
        tensors = model_folder(folder) | more
        write_safetensors(folder / "model.safetensors", tensors)
    found = shell.facts("compare a b", 1)
    assert [row["name"] for row in found["differing"]] == [_LAYERS[0]]
    tensors["model.layers.0.mlp.qweight"][5, 1] ^= 1
    write_safetensors(folder / "model.safetensors", tensors)
    more_found = shell.facts("compare a b", 1)
    names = {row["name"] for row in more_found["differing"]}
    assert names == {_LAYERS[0].removesuffix(".weight"), _LAYERS[0]}
    assert found["compared"] == more_found["compared"] == 6


def test_a_copy_without_its_config_is_compared_by_its_codes(shell: Shell) -> None:
    model_folder(Path("a"))
    reorder.convert("a", "b.safetensors", map=[])
    names = {f"model.layers.{k}.mlp.{x}" for k in (0, 1) for x in ("qweight", "qzeros", "scales")}
    for pair in ("a b.safetensors", "b.safetensors a"):
        found = shell.facts(f"compare {pair}")
        assert (found["only_in_a"], found["only_in_b"], found["differing"]) == ([], [], [])
        assert {*found["raw_codes"]} == names


def test_tensors_that_cannot_be_read_are_not_called_equal(shell: Shell) -> None:
    kept = b"".join(message_field(k, each) for k, each in ((8, b"w"), (9, bytes(4))))
    numbers = message_field(8, b"shape") + message_field(7, bytes([2, 3]))
    sparse = message_field(1, message_field(8, b"gaps"))
    kinds = (b"\x08\x01\x10\x01", kept), (b"\x08\x02\x10\x07", numbers)
    graph = b"".join(message_field(5, dims + each) for dims, each in kinds)
    Path("a.onnx").write_bytes(message_field(7, graph + message_field(15, sparse)))
    found = shell.facts("compare a.onnx a.onnx", 1)
    assert (found["compared"], found["differing"]) == (1, [])
    names = [each.partition(":")[0] for each in found["not_compared"]]
    assert names == ["gaps", "shape"]
    assert [*reorder.checkpoints.differences("a.onnx", "a.onnx")] == ["gaps", "shape"]
    assert "shape, gaps: not shown: the file does not store" in shell.lines("inspect a.onnx")[-1]
    assert "'shape', 'gaps' are not written" in shell.facts("convert a.onnx b.npz")["warnings"][0]


def test_a_type_is_not_ignored_where_tensors_have_theirs(shell: Shell) -> None:
    reorder.save("a.safetensors", np.ones(3, np.float32))
    said = shell.refusal("compare a.safetensors a.safetensors --dtype f16")
    assert "--dtype is for raw bytes" in said


@pytest.mark.parametrize("other", ["missing", "raw.bin"])
def test_the_side_that_is_not_a_checkpoint_is_named(shell: Shell, other: str) -> None:
    model_folder(Path("a"))
    Path("raw.bin").write_bytes(bytes(4))
    for pair in (f"a {other}", f"{other} a"):
        said = shell.refusal(f"compare {pair}")
        assert f"'{other}'" in said
        assert "'a'" not in said


def test_what_explains_every_byte_is_said(shell: Shell) -> None:
    x = np.arange(16 * 64, dtype=np.float32).reshape(16, 64)
    reorder.save("good.npz", {"w": reorder.reorder(x, "AB8b8a"), "b": x})
    reorder.save("bad.npz", {"w": reorder.reorder(np.roll(x, 8, 0), "AB8b8a"), "b": x + 1})
    rows = shell.facts("compare bad.npz good.npz", 1)["differing"]
    assert {row["name"]: row["causes"] for row in rows} == {
        "w": ["the halves of dim 0 are swapped"],
        "b": [],
    }
    shown = "\n".join(shell.lines("compare bad.npz good.npz", 1))
    assert "; the halves of dim 0 are swapped" in shown
