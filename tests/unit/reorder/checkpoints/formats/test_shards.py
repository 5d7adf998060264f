import json
from pathlib import Path

import pytest

from memdesc import MemdescError
from reorder.checkpoints.formats.entry import Tensor
from reorder.checkpoints.formats.safetensors import plan_shards
from reorder.checkpoints.formats.table import format_of, read_container
from tests.unit.reorder.checkpoints.formats.models import shard


def test_an_index_is_read_and_names_of_other_files_are_of_no_format(tmp_path: Path) -> None:
    shard(tmp_path / "s.safetensors", "a", "b")
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": dict.fromkeys("ab", "s.safetensors")}))
    assert [*read_container(path).entries] == ["a", "b"]
    (tmp_path / "x.bin").touch()
    with pytest.raises(MemdescError, match="names no format of checkpoints"):
        read_container(tmp_path / "x.bin")
    assert format_of("x.npy").name == "npy"


def test_tensors_of_one_name_in_two_shards_are_refused() -> None:
    with pytest.raises(MemdescError, match="the same name"):
        plan_shards([Tensor("a", "u8", (1000,), 1000)] * 2, {}, 10)


def test_a_folder_is_all_its_files_and_those_that_are_missing_are_one_line(tmp_path: Path) -> None:
    for name in "ba":
        shard(tmp_path / f"{name}.safetensors", name, **{"of": name, name: ""})
    found = read_container(tmp_path)
    assert [*found.entries] == ["a", "b"]
    assert found.metadata == {"of": "a", "a": "", "b": ""}
    shard(tmp_path / "model-00001-of-99999.safetensors", "c")
    unread = read_container(tmp_path, skip_unreadable=True).unread
    assert sum("are missing" in each.reason for each in unread.values()) == 1
