"""Outputs: shards, files that are copied beside the tensors, names, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError
from reorder import convert
from reorder.checkpoints import ConvertOptions
from tests.checkpoints import model_folder, write_safetensors
from tests.gguf_files import gguf_file
from tests.headers import message_field
from tests.unit.reorder.checkpoints.convert.results import SMALL, converted, refused

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_X = np.arange(4096, dtype=np.float32).reshape(64, 64)


def names_in(path: Path) -> set[str]:
    """Return the names of the tensors of a checkpoint."""
    with reorder.open_checkpoint(path) as found:
        return set(found)


@pytest.mark.parametrize("name", ["model", "model-00001-of-00001", "x-00001-of-00001"])
def test_an_adapter_beside_a_model_is_another_file(tmp_path: Path, name: str) -> None:
    model_folder(tmp_path / "model")
    own = tmp_path / "model" / "model.safetensors"
    own.rename(own.with_name(f"{name}.safetensors"))
    adapter = tmp_path / "model" / "adapter_model.safetensors"
    write_safetensors(adapter, {"lora_A.weight": _X})
    assert "lora_A.weight" not in names_in(tmp_path / "model")
    converted(tmp_path / "model", tmp_path / "out", "model.*: awq -> gptq")
    assert (tmp_path / "out" / adapter.name).read_bytes() == adapter.read_bytes()
    assert "lora_A.weight" not in names_in(tmp_path / "out")


@pytest.mark.parametrize("is_sharded", [False, True])
def test_the_index_of_other_weights_beside_a_model_is_another_file(
    tmp_path: Path, *, is_sharded: bool
) -> None:
    source, own, name = tmp_path / "in", "model.safetensors", "other.safetensors"
    if is_sharded:
        indexed_model(source, name)
    else:
        source.mkdir()
        for file, tensors in ((own, {"a": _X, "b": _X}), (name, {"other": -_X})):
            write_safetensors(source / file, tensors)
    index = json.dumps({"weight_map": {"other": name}}).encode()
    (source / f"{name}.index.json").write_bytes(index)
    assert names_in(source) == {"a", "b"}
    converted(source, tmp_path / "out", "a: ba")
    assert (tmp_path / "out" / f"{name}.index.json").read_bytes() == index
    assert names_in(tmp_path / "out") == {"a", "b"}


def indexed_model(folder: Path, stray: str) -> None:
    """Write a model of two shards and an index, and weights that the index does not name."""
    folder.mkdir()
    names = [f"model-0000{k}-of-00002.safetensors" for k in (1, 2)]
    for name, tensor in zip(names, "ab", strict=True):
        write_safetensors(folder / name, {tensor: _X})
    index = {"weight_map": dict(zip("ab", names, strict=True))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    write_safetensors(folder / stray, {"other": -_X, "a": _X})


def test_weights_outside_of_the_index_do_not_replace_what_is_written(tmp_path: Path) -> None:
    indexed_model(tmp_path / "model", "model.safetensors")
    for shard_bytes in (None, 1 << 30):
        settings = ConvertOptions(shard_bytes=shard_bytes)
        said = r"model\.safetensors' is not a file of the checkpoint, whose index names other files"
        with pytest.raises(MemdescError, match=said):
            convert(tmp_path / "model", tmp_path / "out", map=[], options=settings)


def test_weights_outside_of_the_index_are_copied_and_stay_outside(tmp_path: Path) -> None:
    indexed_model(tmp_path / "model", "other.safetensors")
    out = tmp_path / "out"
    convert(tmp_path / "model", out, map=["a: ba"], options=ConvertOptions(shard_bytes=1 << 30))
    stray = (tmp_path / "model" / "other.safetensors").read_bytes()
    assert (out / "other.safetensors").read_bytes() == stray
    with reorder.open_checkpoint(out) as found:
        assert sorted(found) == ["a", "b"]
        assert np.array_equal(found["a"].numpy(), _X)


def test_a_name_that_the_container_keeps_for_itself_is_refused(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "x.safetensors", {"x": _X})
    rule = "x: rename=__metadata__"
    with pytest.raises(MemdescError, match="cannot be called '__metadata__'"):
        convert(tmp_path / "x.safetensors", tmp_path / "y.safetensors", map=[rule])


def test_files_of_a_model_that_one_file_has_no_place_for_are_named(tmp_path: Path) -> None:
    indexed_model(tmp_path / "model", "stray.safetensors")
    (tmp_path / "model" / "config.json").write_text("{}")
    (warning,) = convert(tmp_path / "model", tmp_path / "out.npz").warnings
    assert "without config.json, stray.safetensors of the input" in warning


def test_tensors_that_an_onnx_model_does_not_store_as_bytes_are_named(tmp_path: Path) -> None:
    typed = message_field(5, b"\x08\x01\x10\x0a\x2a\x01\x07" + message_field(8, b"half"))
    (tmp_path / "x.onnx").write_bytes(message_field(7, typed))
    for output in ("y.safetensors", "y"):
        (warning,) = convert(tmp_path / "x.onnx", tmp_path / output).warnings
        assert warning.startswith("'half' are not written")


def test_scalars_that_the_container_stores_with_a_dim_are_named(tmp_path: Path) -> None:
    one = np.float32(1)
    np.savez(tmp_path / "x.npz", a=one, b=one, c=one, d=one, matrix=_X)
    (warning,) = convert(tmp_path / "x.npz", tmp_path / "y.gguf").warnings
    assert warning == "a .gguf stores 'a', 'b', 'c' and 1 more, which are scalars, with shape (1,)"
    for name in ("y.safetensors", "y.npz", "y"):
        assert not convert(tmp_path / "x.npz", tmp_path / name).warnings


def test_metadata_of_a_gguf_that_have_no_place_are_named(tmp_path: Path) -> None:
    with gguf_file(tmp_path / "x.gguf") as writer:
        for k in range(4):
            writer.add_uint32(f"llama.{k}", k)
        writer.add_tensor("a", _X)
    (warning,) = convert(tmp_path / "x.gguf", tmp_path / "out").warnings
    assert warning.startswith("the metadata of the .gguf, general.architecture, llama.0, llama.1 ")
    assert "and 2 more, are left out: a .safetensors has no place for them" in warning
    assert not convert(tmp_path / "x.gguf", tmp_path / "y.gguf").warnings


def test_a_gguf_without_an_architecture_is_told_to_be_a_container(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "x.safetensors", {"model.norm.weight": _X})
    (warning,) = convert(tmp_path / "x.safetensors", tmp_path / "y.gguf").warnings
    assert warning.startswith("a .gguf without general.architecture is a container of tensors: ")


@pytest.mark.parametrize("same", ["pytorch_model.bin", "consolidated.00.safetensors"])
def test_other_files_of_weights_that_are_converted_are_left_out(tmp_path: Path, same: str) -> None:
    write_safetensors(tmp_path / "model.safetensors", {"a": _X})
    source, names = tmp_path / "model", [same, "training_args.bin"]
    source.mkdir()
    (tmp_path / "model.safetensors").rename(source / "model.safetensors")
    for name in names:
        (source / name).write_bytes(b"x")
    report = convert(source, tmp_path / "out", map=["a: f16"])
    assert report.warnings == (f"left out, because their weights are not converted: {same}",)
    assert not (tmp_path / "out" / names[0]).exists()
    assert (tmp_path / "out" / names[1]).exists()
    convert(source, tmp_path / "same")
    assert (tmp_path / "same" / names[0]).exists()


@pytest.mark.parametrize("name", ["Llama-3.1-8B-bf16", "Qwen2.5", "Some.Instruct", "x.tensors/"])
def test_names_of_models_may_have_dots(tmp_path: Path, name: str) -> None:
    indexed_model(tmp_path / "model", "other.safetensors")
    convert(tmp_path / "model", f"{tmp_path}/{name}", map=["a: f16"])
    assert names_in(tmp_path / name) == {"a", "b"}


@pytest.mark.parametrize("name", ["x.safetensor", "x.safetensors2", "x.bin", "x.GGUF", "x.pt"])
def test_endings_like_those_of_files_are_refused(tmp_path: Path, name: str) -> None:
    indexed_model(tmp_path / "model", "other.safetensors")
    with pytest.raises(MemdescError, match="names no format of checkpoints"):
        convert(tmp_path / "model", tmp_path / name)


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


def test_a_rule_without_a_layout_or_a_type_does_all_it_says(tmp_path: Path) -> None:
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    write_safetensors(tmp_path / "x.safetensors", {"w": x})
    wanted: dict[str, NDArray[Any]] = {
        "w: src_scale=2": 2 * x,
        "w: scale=2": x / 2,
        "w: dims=8x4": x.reshape(8, 4),
        "w: src_scale=2, dims=8x4": 2 * x.reshape(8, 4),
    }
    for k, (rule, array) in enumerate(wanted.items()):
        found = converted(tmp_path / "x.safetensors", tmp_path / f"{k}.safetensors", rule)
        assert np.array_equal(found["w"], array)
    said = refused(tmp_path / "x.safetensors", tmp_path / "y.safetensors", "w: holds=u4")
    assert "has 8 elements in a word of f32; give its dims=" in said
