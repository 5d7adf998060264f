from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from memdesc import MemdescError
from reorder.storage.containers.plan import PlannedFile, Span, Tensor
from reorder.storage.containers.shards import plan_shards
from reorder.storage.containers.table import plan_file, read_container
from reorder.storage.containers.writer import Writer, partial_folder

if TYPE_CHECKING:
    from pathlib import Path

_TENSOR = Tensor("a", "u8", (100,), 100)
_NAME = "x.safetensors"


def _writer(folder: Path, *, resume: bool = False, overwrite: bool = False) -> Writer:
    target = folder / _NAME
    files = plan_file(target, [_TENSOR], {})
    return Writer(target, files, resume=resume, overwrite=overwrite)


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_nothing_has_its_name_before_the_end(tmp_path: Path) -> None:
    with _writer(tmp_path) as writer:
        writer.write("a", 0, np.ones(100, np.uint8))
        writer.sync()
        assert _names(tmp_path) == {f".{_NAME}.memdesc-partial"}
        writer.finish()
    assert _names(tmp_path) == {_NAME}


def test_what_was_written_is_resumed(tmp_path: Path) -> None:
    with _writer(tmp_path) as writer:
        writer.write("a", 0, np.ones(50, np.uint8))
        (writer.partial / "journal").write_text("50")
    with _writer(tmp_path, resume=True) as writer:
        assert writer.is_resumed
        assert (writer.partial / "journal").read_text() == "50"
        writer.write("a", 50, np.ones(50, np.uint8))
        writer.finish()
    assert (read_container(tmp_path / _NAME).entries["a"].read() == 1).all()
    assert _names(tmp_path) == {_NAME}


def test_without_resume_leftovers_are_removed(tmp_path: Path) -> None:
    with _writer(tmp_path) as writer:
        (writer.partial / "journal").write_text("50")
        (writer.partial / "more").mkdir()
    with _writer(tmp_path) as writer:
        assert not writer.is_resumed
        assert _names(writer.partial) == {"files"}
        writer.discard()
    assert _names(tmp_path) == set()


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with _writer(tmp_path), pytest.raises(MemdescError, match="another process is writing"):
        _writer(tmp_path)


def test_targets_that_exist_are_refused(tmp_path: Path) -> None:
    (tmp_path / _NAME).write_text("old")
    with pytest.raises(MemdescError, match="exists"):
        _writer(tmp_path)
    with _writer(tmp_path, overwrite=True) as writer:
        writer.finish()
    assert (tmp_path / _NAME).read_bytes() != b"old"
    with pytest.raises(MemdescError, match="is a folder"):
        Writer(tmp_path, [])


def test_a_full_disk_is_told_before_the_start(tmp_path: Path) -> None:
    huge = PlannedFile("x", 2**55, (), {"a": Span(0, 2**55)})
    with pytest.raises(MemdescError, match="takes 36028797018963968 bytes, but its disk has"):
        Writer(tmp_path / "x", [huge])
    with pytest.raises(MemdescError, match="cannot be written: No such file"):
        Writer(tmp_path / "no" / "x", [])


def test_folders_get_their_names_whole(tmp_path: Path) -> None:
    tensors = [Tensor(f"t{k}", "u8", (60,), 60) for k in range(5)]
    files = plan_shards(tensors, {"format": "pt"}, 128)
    target = tmp_path / "model"
    for fill in (1, 2):
        with Writer(target, files, is_folder=True, overwrite=fill > 1) as writer:
            for tensor in tensors:
                writer.write(tensor.name, 0, np.full(60, fill, np.uint8))
            writer.finish()
        found = read_container(target)
        assert [*found.entries] == [tensor.name for tensor in tensors]
        assert all((entry.read() == fill).all() for entry in found.entries.values())
    assert len(found.files) == 3
    assert found.metadata == {"format": "pt"}
    assert _names(tmp_path) == {"model"}
    # a process ended between the two names
    grown = partial_folder(target)
    grown.mkdir()
    target.rename(grown / "old")
    with Writer(target, files, is_folder=True, overwrite=True) as writer:
        assert (read_container(target).entries["t0"].read() == 2).all()
        writer.discard()
