import json
from pathlib import Path

import pytest

from memdesc import MemdescError
from reorder import convert
from reorder.checkpoints.formats.entry import Tensor
from reorder.checkpoints.formats.safetensors import homes_beside, plan_shards
from reorder.checkpoints.formats.table import format_of, read_container
from reorder.cli import main
from tests.checkpoints import fp8_layer, write_config, write_safetensors
from tests.unit.reorder.checkpoints.formats.models import shard


def _index(folder: Path, names: object) -> Path:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": names}))
    return path


def test_a_folder_without_an_index_is_all_its_files(tmp_path: Path) -> None:
    for name in "ba":
        shard(tmp_path / f"{name}.safetensors", name, **{"of": name, name: ""})
    found = read_container(tmp_path)
    assert [*found.entries] == ["a", "b"]
    assert found.metadata == {"of": "a", "a": "", "b": ""}


def test_a_folder_with_a_shard_missing_is_refused(tmp_path: Path) -> None:
    names = [f"model-{k:05}-of-00003.safetensors" for k in (1, 2, 3)]
    for k, name in enumerate(names):
        shard(tmp_path / name, f"t{k}")
    assert [*read_container(tmp_path).entries] == ["t0", "t1", "t2"]
    (tmp_path / names[1]).unlink()
    problem = rf"has 2 files .*{names[1]} is missing.*name one file .*{names[0]}"
    with pytest.raises(MemdescError, match=problem):
        read_container(tmp_path)
    with pytest.raises(MemdescError, match=f"{names[1]} is missing"):
        convert(tmp_path, tmp_path.with_name("out"), map=["*: plain, u8"])
    assert not tmp_path.with_name("out").exists()
    assert [*read_container(tmp_path / names[2]).entries] == ["t2"]
    assert [*read_container(tmp_path, skip_unreadable=True).unread] == [names[1]]
    (tmp_path / names[2]).unlink()
    with pytest.raises(MemdescError, match=f"{names[1]}.*{names[2]} are missing"):
        read_container(tmp_path)
    (tmp_path / names[0]).rename(tmp_path / "model-00001-of-99999.safetensors")
    with pytest.raises(MemdescError, match="and 9995 more are missing"):
        read_container(tmp_path)
    # `memdesc inspect` has a line for each
    unread = read_container(tmp_path, skip_unreadable=True).unread
    assert sum("are missing" in each.reason for each in unread.values()) == 1


@pytest.mark.parametrize(
    "name",
    ["../a.safetensors", "/etc/passwd", "x/../../a", "", "a\0", "..\\a", "link", "loop", "links/a"],
)
def test_shards_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    shard(tmp_path / "a.safetensors", "a")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "link").symlink_to("../a.safetensors")
    (folder / "links").symlink_to("..")
    (folder / "loop").symlink_to("loop")
    shard(folder / "b.safetensors", "b")
    why = r"index.json': .*(not the name of a file|leads out|link out|cannot be)"
    for others in ({}, {"b": "b.safetensors"}):
        _index(folder, {"a": name, **others})
        with pytest.raises(MemdescError, match=why):
            read_container(folder)


def test_an_index_is_read_and_names_of_other_files_are_of_no_format(tmp_path: Path) -> None:
    shard(tmp_path / "s.safetensors", "a", "b")
    path = _index(tmp_path, {"a": "s.safetensors", "b": "s.safetensors"})
    assert [*read_container(path).entries] == ["a", "b"]
    (tmp_path / "x.bin").touch()
    with pytest.raises(MemdescError, match="names no format of checkpoints"):
        read_container(tmp_path / "x.bin")
    assert format_of("x.npy").name == "npy"


def test_tensors_of_one_name_in_two_shards_are_refused() -> None:
    with pytest.raises(MemdescError, match="the same name"):
        plan_shards([Tensor("a", "u8", (1000,), 1000)] * 2, {}, 10)


def test_a_shard_alone_says_where_the_rest_of_a_weight_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: f"model-{k:05}-of-00002.safetensors" for k, name in enumerate(fp8_layer(), 1)}
    for name, array in fp8_layer().items():
        write_safetensors(tmp_path / files[name], {f"fc.{name}": array})
    _index(tmp_path, {f"fc.{name}": file for name, file in files.items()})
    write_config(tmp_path, quant_method="fp8", weight_block_size=[128, 128])
    assert main(["inspect", str(tmp_path / files["weight"])]) == 0
    said = f"fc.weight_scale_inv is in {files['weight_scale_inv']}, unread"
    assert said in capsys.readouterr().out
    assert homes_beside(tmp_path / "adapter.safetensors") == {}
