from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from memdesc import MemdescError
from reorder.storage.containers.entry import PlannedFile, Span, Tensor
from reorder.storage.containers.partial import Partial, partial_folder
from reorder.storage.containers.shards import plan_shards
from reorder.storage.containers.table import plan_file, read_container
from reorder.storage.containers.writer import Writer
from tests.writers import one_tensor, write_part

_TENSOR = Tensor("a", "u8", (100,), 100)
_NAME = "x.safetensors"


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_targets_that_exist_are_refused(tmp_path: Path) -> None:
    (tmp_path / _NAME).write_text("old")
    with pytest.raises(MemdescError, match="exists"):
        one_tensor(tmp_path / _NAME)
    with one_tensor(tmp_path / _NAME, overwrite=True) as writer:
        writer.finish()
    assert (tmp_path / _NAME).read_bytes() != b"old"
    with pytest.raises(MemdescError, match="is a folder"):
        Writer(tmp_path, [])


def test_a_full_disk_is_told_before_the_start(tmp_path: Path) -> None:
    huge = PlannedFile("x", 2**55, (), {"a": Span(0, 2**55)})
    with pytest.raises(MemdescError, match="takes 36028797018963968 bytes, but its disk has"):
        Writer(tmp_path / "x", [huge]).begin()
    # the lock was given back
    with Writer(tmp_path / "x", [PlannedFile("x", 1, (), {"a": Span(0, 1)})]) as writer:
        writer.discard()
    with pytest.raises(MemdescError, match="cannot be written: No such file"):
        Writer(tmp_path / "no" / "x", []).begin()


def test_folders_get_their_names_whole(tmp_path: Path) -> None:
    tensors = [Tensor(f"t{k}", "u8", (60,), 60) for k in range(5)]
    files = plan_shards(tensors, {"format": "pt"}, 128)
    target = tmp_path / "model"
    for fill in (1, 2):
        with Writer(target, files, is_folder=True, overwrite=fill > 1) as writer:
            for tensor in tensors:
                write_part(writer, tensor.name, 0, np.full(60, fill, np.uint8))
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
    # or after them, before it had removed the old folder
    shutil.copytree(target, grown / "old")
    with Writer(target, files, is_folder=True, overwrite=True) as writer:
        writer.finish()
    assert (read_container(target).entries["t0"].read() == 0).all()
    assert _names(tmp_path) == {"model"}


def _files(*names: str) -> list[PlannedFile]:
    return [PlannedFile(name, 10, (), {name: Span(0, 10)}) for name in names]


def _fill(target: Path, fill: int, *, overwrite: bool = False) -> None:
    tensors = [Tensor("a", "u8", (60,), 60)]
    with Writer(
        target, plan_shards(tensors, {}, 128), is_folder=True, overwrite=overwrite
    ) as writer:
        write_part(writer, "a", 0, np.full(60, fill, np.uint8))
        writer.finish()


def _filled(target: Path) -> int:
    data = read_container(target).entries["a"].read()
    assert (data == data[0]).all()
    return int(data[0])


@pytest.mark.parametrize("name", ["notes.txt", "sub/notes.txt", ".git", "link", "linked_folder"])
def test_a_folder_with_files_of_others_is_not_replaced(tmp_path: Path, name: str) -> None:
    target = tmp_path / "model"
    _fill(target, 1)
    (target / "sub").mkdir()
    match name:
        case "link":
            (target / name).symlink_to("nowhere")
        case "linked_folder":
            (target / name).symlink_to(tmp_path)
        case _:
            (target / name).write_text("mine")
    with pytest.raises(MemdescError, match=f"it holds '{name}', which this conversion does not"):
        _fill(target, 2, overwrite=True)
    assert _filled(target) == 1
    (target / name).unlink()
    (target / "model-00001-of-00002.safetensors").touch()  # of other shards
    _fill(target, 2, overwrite=True)
    assert _filled(target) == 2
    assert _names(target) == {"model.safetensors"}


def test_files_that_are_added_meanwhile_are_not_lost(tmp_path: Path) -> None:
    target = tmp_path / "model"
    _fill(target, 1)
    files = plan_shards([Tensor("a", "u8", (60,), 60)], {}, 128)
    with Writer(target, files, is_folder=True, overwrite=True) as writer:
        (target / "notes").write_text("mine")
        with pytest.raises(MemdescError, match="it holds 'notes'"):
            writer.finish()
    assert (target / "notes").read_text() == "mine"
    assert _filled(target) == 1


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_folder_is_replaced_with_and_without_exchanging_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, can_exchange: bool
) -> None:
    if not can_exchange:
        monkeypatch.setattr("reorder.storage.containers.partial._renameat2", lambda: None)
    target = tmp_path / "model"
    for fill in (1, 2):
        _fill(target, fill, overwrite=True)
        assert _filled(target) == fill
        assert _names(tmp_path) == {"model"}


def test_a_folder_has_its_name_back_if_the_new_one_cannot_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, rename = tmp_path / "model", os.replace
    _fill(target, 1)

    def fail(src: Path, dst: Path) -> None:
        if src.name == "files" and dst == target:
            raise OSError(errno.EIO, "no")
        rename(src, dst)

    monkeypatch.setattr("reorder.storage.containers.partial._renameat2", lambda: None)
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(MemdescError, match="cannot be written"):
        _fill(target, 2, overwrite=True)
    assert _filled(target) == 1


def test_a_target_that_is_made_while_the_lock_is_taken_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made_meanwhile(folder: Path) -> Partial:
        (tmp_path / _NAME).write_text("mine")
        return Partial(folder)

    monkeypatch.setattr("reorder.storage.containers.writer.Partial", made_meanwhile)
    with pytest.raises(MemdescError, match="exists; it is only replaced with --overwrite"):
        one_tensor(tmp_path / _NAME)
    assert (tmp_path / _NAME).read_text() == "mine"


def test_a_link_is_replaced_and_not_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / _NAME).symlink_to("file")
    with pytest.raises(MemdescError, match="exists"):
        one_tensor(tmp_path / _NAME)
    with one_tensor(tmp_path / _NAME, overwrite=True) as writer:
        writer.finish()
    assert not (tmp_path / _NAME).is_symlink()
    assert (tmp_path / "file").read_text() == "old"
    _fill(tmp_path / "folder", 1)
    (tmp_path / "folder" / "notes").write_text("mine")
    for name in ("folder", "nowhere"):
        (tmp_path / "model").symlink_to(name)
        _fill(tmp_path / "model", 2, overwrite=True)
        assert not (tmp_path / "model").is_symlink()
        assert _filled(tmp_path / "model") == 2
        (tmp_path / "model").rename(tmp_path / f"old-{name}")
    assert _filled(tmp_path / "folder") == 1


def test_names_may_have_any_character_and_almost_any_length(tmp_path: Path) -> None:
    longest = 255 - len("..memdesc-partial")
    for name in ("a\nb.safetensors", "é" * 100 + ".safetensors", "x" * (longest - 12) + _NAME[1:]):
        with one_tensor(tmp_path / name) as writer:
            writer.finish()
        assert (tmp_path / name).is_file()
    with pytest.raises(
        MemdescError, match=f"its name has 239 bytes, and may have at most {longest}"
    ):
        one_tensor(tmp_path / ("x" * (longest - 11) + _NAME[1:]))


@pytest.mark.parametrize("name", ["data", "more"])
def test_a_file_beside_the_target_is_not_replaced_either(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    files = _files("data", "more", "x")
    with pytest.raises(MemdescError, match=f"{name}' exists"):
        Writer(tmp_path / "x", files)
    assert (tmp_path / name).read_text() == "mine"
    # nothing is left of a writer that wrote nothing
    assert _names(tmp_path) == {name}


def test_files_beside_a_folder_are_not_its_own(tmp_path: Path) -> None:
    files = _files("data", "more", "x")
    (tmp_path / "data").write_text("mine")
    with Writer(tmp_path / "model", files, is_folder=True) as writer:
        writer.finish()
    assert _names(tmp_path) == {"data", "model"}
    assert (tmp_path / "data").read_text() == "mine"


def _two_files() -> list[PlannedFile]:
    """Return the plan of an output of two files, of which the second is the target."""
    return [
        PlannedFile("x.data", 10, (), {_TENSOR.name: Span(0, 10)}),
        PlannedFile("x", 4, ((0, b"head"),), {}),
    ]


def _ended_between_names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Writer:
    """End a writer whose first file has its name already, and the target has not."""
    target = folder / "x"
    writer = Writer(target, _two_files())
    replace = os.replace

    def end_at_target(name: Path, to: Path) -> None:
        if to == target:
            raise KeyboardInterrupt
        replace(name, to)

    with monkeypatch.context() as patch, writer:
        patch.setattr(os, "replace", end_at_target)
        with pytest.raises(KeyboardInterrupt):
            writer.finish()
    assert not target.exists()
    assert (folder / "x.data").exists()
    return writer


def test_an_output_that_ended_between_its_two_names_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = _ended_between_names(tmp_path, monkeypatch).target
    files = _two_files()
    with pytest.raises(MemdescError, match=r"x\.data' exists"):
        Writer(target, files)
    with Writer(target, files, resume=True) as writer:
        assert writer.is_resumed
        assert not (tmp_path / "x.data").exists()
        writer.finish()
    assert _names(tmp_path) == {"x", "x.data"}


def test_a_file_that_somebody_makes_is_not_taken_for_one_of_ours(tmp_path: Path) -> None:
    target = tmp_path / "x"
    files = _two_files()
    with Writer(target, files):
        pass
    (tmp_path / "x.data").write_text("mine")
    with pytest.raises(MemdescError, match=r"x\.data' exists"):
        Writer(target, files, resume=True)
    assert (tmp_path / "x.data").read_text() == "mine"


def test_data_that_somebody_removes_between_the_names_are_written_again(tmp_path: Path) -> None:
    names = ("data", "more", "x")
    files = _files(*names)
    with Writer(tmp_path / "x", files) as writer:
        grown = writer.open.path / "files"
    for name in names[:-1]:
        (grown / name).rename(tmp_path / name)
    with pytest.raises(MemdescError, match="data' exists"):
        Writer(tmp_path / "x", files)
    with Writer(tmp_path / "x", files, resume=True) as writer:
        assert writer.is_resumed
        assert _names(tmp_path) == {partial_folder(tmp_path / "x").name}
    (grown / "data").unlink()
    with Writer(tmp_path / "x", files, resume=True) as writer:
        assert not writer.is_resumed
        writer.finish()
    assert _names(tmp_path) == {*names}


def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / _NAME
    os.mkfifo(target)
    with pytest.raises(MemdescError, match="pipe"):
        one_tensor(tmp_path / _NAME, overwrite=True)
    with pytest.raises(MemdescError, match="pipe"):
        _fill(target, 1, overwrite=True)
    assert target.is_fifo()


@pytest.mark.skipif(not Path("/proc").is_mount(), reason="a mount point that is always there")
def test_a_mount_point_is_not_replaced() -> None:
    with pytest.raises(MemdescError, match="'/proc' is a mount point, which cannot be replaced"):
        Writer(Path("/proc"), [], is_folder=True, overwrite=True)


def test_nothing_is_written_after_the_end(tmp_path: Path) -> None:
    with one_tensor(tmp_path / _NAME) as writer:
        writer.finish()
    with pytest.raises(MemdescError, match=f"{_NAME}' is no longer being written"):
        write_part(writer, "a", 0, np.ones(100, np.uint8))


def test_a_file_that_the_disk_has_no_room_for_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int, nbytes: int) -> None:
        del handle, nbytes
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("reorder.storage.containers.writer.reserve", full)
    with pytest.raises(MemdescError, match=f"files/{_NAME}' cannot be written: No space left"):
        one_tensor(tmp_path / _NAME)
    assert _names(tmp_path) == set()
    monkeypatch.undo()
    with one_tensor(tmp_path / _NAME) as writer:  # nobody has the lock
        writer.discard()


@pytest.mark.parametrize("is_folder", [False, True])
def test_files_that_are_not_planned_are_not_published(tmp_path: Path, *, is_folder: bool) -> None:
    target = tmp_path / ("model" if is_folder else _NAME)
    files = plan_shards([_TENSOR], {}, 128) if is_folder else plan_file(target, [_TENSOR], {})
    with Writer(target, files, is_folder=is_folder) as writer:
        (writer.open.path / "files" / "more").write_text("x")
    with Writer(target, files, is_folder=is_folder, resume=True) as writer:
        assert writer.is_resumed
        writer.finish()
    assert _names(tmp_path) == {target.name}
    assert not is_folder or _names(target) == {"model.safetensors"}


def test_names_are_bounded_where_the_system_does_not_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pathconf")
    names = ["x" * (nbytes - len("..memdesc-partial")) for nbytes in (255, 256)]
    Writer(tmp_path / names[0], [], is_folder=True)
    with pytest.raises(MemdescError, match="its name has 239 bytes, and may have at most 238"):
        Writer(tmp_path / names[1], [], is_folder=True)


def test_without_resume_what_has_its_name_stays_until_it_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = _ended_between_names(tmp_path, monkeypatch).target
    with Writer(target, _two_files(), overwrite=True) as writer:
        writer.discard()
    assert _names(tmp_path) == {"x.data"}
    with pytest.raises(MemdescError, match=r"x\.data' exists"):
        Writer(target, _two_files(), resume=True)


def test_files_that_would_be_lost_are_named(tmp_path: Path) -> None:
    for name in "cba":
        (tmp_path / name).touch()
    with pytest.raises(MemdescError, match="it holds 'a', 'b', 'c', which"):
        Writer(tmp_path, [], is_folder=True, overwrite=True)
    (tmp_path / "d").touch()
    with pytest.raises(MemdescError, match="it holds 'a', 'b', 'c' and 1 more, which"):
        Writer(tmp_path, [], is_folder=True, overwrite=True)
