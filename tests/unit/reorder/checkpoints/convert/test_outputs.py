"""Outputs: the files beside the tensors, names, shards, and what a format does not show or hold."""

import json
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from memdesc import MemdescError
from reorder import convert
from reorder.checkpoints import ConvertOptions
from tests.checkpoints import write_safetensors
from tests.unit.reorder.checkpoints.convert.results import SMALL, converted, refused

_X = np.arange(4096, dtype=np.float32).reshape(64, 64)
# a folder: tensors, text, or where a link leads
_Files = dict[str, Any]


def _index(**homes: str) -> str:
    return json.dumps({"weight_map": homes})


_ONE: _Files = {"model.safetensors": {"a": _X, "b": _X}}
_PARTS = [f"model-0000{k}-of-00002.safetensors" for k in (1, 2)]
_TWO: _Files = {name: {tensor: _X} for name, tensor in zip(_PARTS, "ab", strict=True)}
_TWO["model.safetensors.index.json"] = _index(a=_PARTS[0], b=_PARTS[1])
_LOST = "model-00002-of-00003.safetensors"
_OTHER = {"other": -_X, "a": _X}


def _made(folder: Path, files: _Files) -> Path:
    """Write a model's folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, dict):
            write_safetensors(path, content)
        elif isinstance(content, Path):
            path.symlink_to(content)
        else:
            path.write_text(content)
    return folder


def _names_in(path: Path) -> set[str]:
    """Return the names of the tensors of a checkpoint."""
    with reorder.open_checkpoint(path) as found:
        return set(found)


_OTHERS = "left out, because they are not files of the checkpoint that was read: "
_ADAPTER: _Files = {"adapter_model.safetensors": {"lora": _X}}
_STRAY: _Files = {"other.safetensors": _OTHER}
_INDEXED: _Files = {**_STRAY, "other.safetensors.index.json": _index(other="other.safetensors")}
# a model, files beside its tensors, the files that are left out, and what is said
_KEPT: list[tuple[_Files, _Files, tuple[str, ...], str]] = [
    ({"x-00001-of-00001.safetensors": {"a": _X, "b": _X}}, {}, (), ""),
    *(
        (own, others, (*others,), f"{_OTHERS}{', '.join(sorted(others))}")
        for own, others in (
            (_ONE, _ADAPTER),
            ({"model-00001-of-00001.safetensors": {"a": _X, "b": _X}}, _ADAPTER),
            (_ONE, _INDEXED),
            (_TWO, _INDEXED),
            (_TWO, _STRAY),
            (_TWO, {_LOST: _OTHER}),
        )
    ),
    *(
        (_ONE, {name: "x", "tokenizer.model": "x"}, (name,), f"{_OTHERS}{name}")
        for name in (
            *("pytorch_model.bin", "consolidated.00.pth", "model.fp16.safetensors"),
            *("model-00001-of-00002.fp16.safetensors", "model.safetensors.index.fp16.json"),
            *("model.fp16.safetensors.index.json", "model-q4_0.gguf", "x.onnx_data"),
        )
    ),
    (_ONE, {"2_Dense/model.safetensors": _OTHER}, (), "copied, but not converted: 2_Dense/model"),
    (_ONE, {"a/b/large": "x" * 50_000, "a/c.txt": "", "config.json": "{}"}, (), ""),
    (_ONE, {".cache/x": "x"}, (".cache/x",), ""),
    (_ONE, {"no": "x", "a/one": Path("../two"), "two": Path("no")}, (), ""),
    (
        _ONE,
        {"sub/no": "x", "link": Path("sub")},
        ("link",),
        "left out, because they are links to folders: link",
    ),
    (_ONE, {"away": Path("..")}, ("away",), "left out, because they are links to folders: away"),
]


@pytest.mark.parametrize(("own", "others", "left_out", "said"), _KEPT)
def test_files_beside_the_tensors_are_copied_or_named(
    tmp_path: Path, own: _Files, others: _Files, left_out: tuple[str, ...], said: str
) -> None:
    source, out = _made(tmp_path / "model", own | others), tmp_path / "out"
    for settings in (ConvertOptions(shard_bytes=1 << 30), ConvertOptions(overwrite=True)):
        report = convert(source, out, map=["a: f16"], options=settings)
        assert len(report.warnings) == bool(said)
        assert said in "".join(report.warnings)
        for name in others:
            assert os.path.lexists(out / name) is not (name in left_out)
            if name not in left_out:
                assert not (out / name).is_symlink()
                assert (out / name).read_bytes() == (source / name).read_bytes()
        assert _names_in(out) == {"a", "b"}


@pytest.mark.parametrize("stem", ["adapter_model", "consolidated", "model", "x"])
def test_a_loader_finds_the_files_of_a_folder_by_the_names_that_they_had(
    tmp_path: Path, stem: str
) -> None:
    many, again, tensors = tmp_path / "many", tmp_path / "again", {"a": _X, "b": _X}
    source = _made(
        tmp_path / "model", {f"{stem}.safetensors": tensors, "adapter_config.json": "{}"}
    )
    one = f"{stem}.safetensors"
    convert(source, many, "bf16", options=ConvertOptions(shard_bytes=1 << 13))
    parts = {f"{stem}-0000{k}-of-00002.safetensors" for k in (1, 2)}
    others = {"adapter_config.json", f"{stem}.safetensors.index.json"}
    assert {path.name for path in many.iterdir()} == parts | others
    lost = f"{stem}-00001-of-00003.safetensors"
    settings = ConvertOptions(shard_bytes=1 << 20)
    said = convert(_made(many, {lost: {"c": _X}}), again, "f16", options=settings).warnings
    assert f"{_OTHERS}{lost}" in said
    assert {path.name for path in again.iterdir()} == {one, "adapter_config.json"}
    # shards of other counts may be replaced
    convert(source, many, "bf16", options=ConvertOptions(overwrite=True))
    assert {path.name for path in many.iterdir()} == {one, "adapter_config.json"}


def test_a_model_of_diffusers_is_read_beside_its_variants(tmp_path: Path) -> None:
    stem, x = "diffusion_pytorch_model", {"a": _X}
    variant = f"{stem}.fp16.safetensors"
    source = _made(tmp_path / "in", {f"{stem}.safetensors": x, variant: {"a": -_X}})
    out, again = tmp_path / "out", tmp_path / "again"
    assert f"{_OTHERS}{variant}" in "".join(convert(source, out, map=["a: f16"]).warnings)
    assert [path.name for path in out.iterdir()] == [f"{stem}.safetensors"]
    parts = [f"{stem}-0000{k}-of-00002.safetensors" for k in (1, 2)]
    many = _made(tmp_path / "many", {parts[0]: x, parts[1]: {"b": _X}, variant: {"a": -_X}})
    index = f"{stem}.safetensors.index.json"
    _made(many, {index: _index(a=parts[0], b=parts[1])})
    _made(many, {f"{stem}.fp16.safetensors.index.json": _index(a=variant)})
    for path in (many, many / index):
        convert(path, again, map=["a: f16"], options=ConvertOptions(overwrite=True))
        assert {path.name for path in again.iterdir()} == {*parts, index}
        assert _names_in(again) == {"a", "b"}
    (out / f"{stem}.safetensors").rename(out / variant)
    convert(out, tmp_path / "folder")
    assert [path.name for path in (tmp_path / "folder").iterdir()] == [f"{stem}.safetensors"]
    convert(out / variant, tmp_path / "file")
    assert [path.name for path in (tmp_path / "file").iterdir()] == ["model.safetensors"]


def test_folders_of_a_cache_have_links_to_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "snapshots" / "abc" / "transformer"
    _made(tmp_path / "blobs", {"0a": {"a": _X}})
    _made(folder, {"model.safetensors": Path("../../../blobs/0a")})
    convert(folder, tmp_path / "out")
    assert _names_in(tmp_path / "out") == {"a"}
    _made(tmp_path / "other", {"b": {"a": _X}})
    _made(folder, {"stray.safetensors": Path("../../../other/b")})
    said = refused(folder, tmp_path / "new")
    assert "'stray.safetensors' is a link out of" in said
    (folder / "stray.safetensors").unlink()
    (folder / "stray.safetensors").hardlink_to(tmp_path / "other" / "b")
    convert(folder, tmp_path / "new")


# files beside the tensors, and why they are refused
_REFUSED: list[tuple[_Files, _Files, str]] = [
    (
        _TWO,
        {"model.safetensors": _OTHER},
        "is not a file of the checkpoint that was read, but loaders prefer it",
    ),
    (_ONE, {"notes": Path("nowhere")}, "notes' is a link that leads nowhere"),
    (_ONE, {"notes": Path("../nowhere")}, "notes' is a link out of"),
    (_ONE, {"notes": Path("notes")}, "notes' cannot be followed"),
    *(
        (_ONE, {name: Path(os.path.relpath("secret", (Path("model") / name).parent))}, "link out")
        for name in ("notes.txt", "config.json", "sub/notes.txt")
    ),
    (_ONE, {".hidden": Path("../secret"), "notes": Path(".hidden")}, "notes' is a link out of"),
    (_ONE, {".folder": Path("../away"), "notes": Path(".folder/file")}, "notes' is a link out of"),
]


@pytest.mark.parametrize(("own", "others", "said"), _REFUSED)
def test_files_that_lead_elsewhere_or_mislead_are_refused(
    tmp_path: Path, own: _Files, others: _Files, said: str
) -> None:
    (tmp_path / "secret").write_text("secret")
    _made(tmp_path / "away", {"file": "secret"})
    source = _made(tmp_path / "model", own | others)
    assert said in refused(source, tmp_path / "out")
    # one file has no place for them
    convert(source, tmp_path / "out.safetensors", map=[])


def test_paths_that_the_system_refuses_are_errors_of_ours(tmp_path: Path) -> None:
    source = _made(tmp_path / "model", _ONE)
    for name in ("out", "out.safetensors"):
        (tmp_path / name).symlink_to(name)
        with pytest.raises(MemdescError, match=r"out.*(exists|cannot be written)"):
            convert(source, tmp_path / name)
    with pytest.raises(MemdescError, match=r"xxx' cannot be used: File name too long"):
        convert(source, tmp_path / ("x" * 300) / "out")


def test_only_a_folder_becomes_a_folder_whose_name_has_a_dot(tmp_path: Path) -> None:
    source, target = _made(tmp_path / "model", _ONE), tmp_path / "Some-1.5"
    with pytest.raises(MemdescError, match="names no format of checkpoints"):
        convert(source / "model.safetensors", target)
    convert(source, target)
    assert _names_in(target) == {"a", "b"}


def test_shards_go_in_and_out(model: Path, tmp_path: Path) -> None:
    small = SMALL._replace(shard_bytes=20000)
    first = converted(model, tmp_path / "many", "*.mlp: awq -> gptq", settings=small)
    assert len([*(tmp_path / "many").glob("*.safetensors")]) > 2
    found = converted(tmp_path / "many", tmp_path / "again", "*.mlp: gptq -> awq")
    assert len([*(tmp_path / "again").glob("*.safetensors")]) > 1
    whole = converted(tmp_path / "again", tmp_path / "one.safetensors")
    assert all(np.array_equal(whole[name], array) for name, array in found.items())
    assert first.keys() == found.keys()


def test_a_rule_without_a_layout_or_a_type_does_all_it_says(tmp_path: Path) -> None:
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    blocked = x.reshape(2, 2, 2, 4).swapaxes(1, 2)
    write_safetensors(tmp_path / "x.safetensors", {"w": x, "b": np.ascontiguousarray(blocked)})
    wanted: dict[str, NDArray[Any]] = {
        "w: src_scale=2": 2 * x,
        "w: scale=2": x / 2,
        "w: dims=8x4": x.reshape(8, 4),
        "w: src_scale=2, dims=8x4": 2 * x.reshape(8, 4),
        "b: AB2a4b -> ab": x,
    }
    for k, (rule, array) in enumerate(wanted.items()):
        found = converted(tmp_path / "x.safetensors", tmp_path / f"{k}.safetensors", rule)
        assert np.array_equal(found[rule[0]], array)


@pytest.mark.parametrize(
    ("rules", "to"), [(["s: f16"], None), ([], "f16"), (["s: a"], None), (["s: a, f16"], None)]
)
def test_scalars_stay_scalars(tmp_path: Path, rules: list[str], to: str | None) -> None:
    """CLIP has one, and transformers refuses a vector of one element for it."""
    source, scale = tmp_path / "x.safetensors", np.full((), 2.6592, np.float32)
    write_safetensors(source, {"s": scale, "v": scale.reshape(1)})
    found = converted(source, tmp_path / "out.safetensors", *rules, to=to)
    assert found["s"] == (scale if rules == ["s: a"] else scale.astype(np.float16))
    assert (found["s"].shape, found["v"].shape) == ((), (1,))


def test_scalars_stay_scalars_beside_their_scales(tmp_path: Path) -> None:
    source, out = tmp_path / "x.safetensors", tmp_path / "out.safetensors"
    write_safetensors(source, {"s": np.full((), 2.5, np.float32)})
    for rule in ("s: plain, s8, scale=0.5", "s: plain, u4, scales=all"):
        found = converted(source, out, rule)
        assert (found["s"].shape, found["s_scale"].shape) == ((), (1,))
        held = reorder.load(out, reorder.Quantized)
        assert reorder.dequantize(held).numpy() == 2.5
        out.unlink()


@pytest.mark.parametrize(
    "rule", ["w: plain, holds=bf16", "w: ba, holds=bf16", "w: f32, holds=bf16"]
)
def test_a_rule_says_what_elements_without_a_type_are(tmp_path: Path, rule: str) -> None:
    """That is how numpy saves bf16."""
    x = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    np.savez(tmp_path / "x.npz", w=x)
    target = tmp_path / "y.safetensors"
    assert "'NAME: plain, holds=bf16'" in refused(tmp_path / "x.npz", target)
    assert "takes 24" in refused(tmp_path / "x.npz", target, "w: plain, holds=f32")
    convert(tmp_path / "x.npz", target, map=[rule])
    with reorder.open_checkpoint(target) as found:
        assert np.array_equal(found["w"].numpy(), x)


# --- what a format does not show or hold ---


_ARRAYS: dict[str, NDArray[Any]] = {
    "square": np.arange(64, dtype=np.float32).reshape(8, 8),
    "wide": np.arange(32, dtype=np.float32).reshape(4, 8),
    "cube": np.arange(128, dtype=np.float32).reshape(4, 8, 4),
    "unit": np.arange(16, dtype=np.float32).reshape(4, 1, 4),
    "row": np.arange(8, dtype=np.float32).reshape(1, 8),
    "none": np.zeros((0, 0), np.float32),
    "bytes": np.arange(64, dtype=np.uint8).reshape(8, 8),
}


def test_a_permutation_that_the_shape_does_not_show_is_named(tmp_path: Path) -> None:
    source = tmp_path / "x.safetensors"
    write_safetensors(source, _ARRAYS)
    hidden = ["square: ba", "square: ba, f16", "square: ba, s8, scales=all", "cube: cba"]
    hidden.append("unit: cba")
    shown = ["cube: abc", "cube: acb", "unit: bac", "wide: ba", "row: ba", "none: ba"]
    shown += ["square: AB4a4b", "square: ab", "square: f16", "square: rename=other"]
    shown.append("bytes: ba -> ab, holds=u4, dims=16x8")
    settings = SMALL._replace(dry_run=True)
    for rule in (*hidden, *shown):
        for output in ("y.safetensors", "y.gguf", "y.npz", "y"):
            report = convert(source, tmp_path / output, map=[rule], options=settings)
            # every GGUF file that is made of other files gets another one
            told = [each for each in report.warnings if "llama.cpp" not in each]
            assert len(told) == (rule in hidden), rule
            assert all(f"shapes of {rule.partition(':')[0]!r} do not show" in x for x in told)


@pytest.mark.parametrize("output", ["y.safetensors", "y.gguf", "y.npz"])
@pytest.mark.parametrize("rules", [[], ["*: rename=new.*"]])
def test_arrays_in_fortran_order_become_row_major(
    tmp_path: Path, output: str, rules: list[str]
) -> None:
    arrays = {name: np.asfortranarray(array) for name, array in _ARRAYS.items()}
    np.savez(tmp_path / "x.npz", allow_pickle=False, **arrays)
    target = tmp_path / output
    assert not convert(tmp_path / "x.npz", target, map=rules).warnings
    with reorder.open_checkpoint(target) as found:
        for name, array in arrays.items():
            stored = found[f"new.{name}" if rules else name]
            assert stored.shape == array.shape
            assert np.array_equal(stored.numpy(), array)
            assert np.array_equal(stored.data, np.ascontiguousarray(array).reshape(-1).view("u1"))
