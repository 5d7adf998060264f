import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memdesc import MemdescError
from reorder.checkpoints.formats.entry import PlannedFile, Tensor
from reorder.checkpoints.formats.safetensors import plan_shards
from reorder.checkpoints.formats.table import plan_file, read_container
from reorder.checkpoints.writer import InUseError, Writer, partial_folder
from tests.writers import one_tensor, write_part

_TENSOR = Tensor("a", "u8", (100,), 100)
_NAME = "x.safetensors"


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _make_pipe(target: Path) -> None:
    os.mkfifo(target)


@pytest.mark.parametrize(
    ("make", "is_folder", "overwrite", "reason"),
    [
        (Path.touch, False, False, "exists; it is only replaced with --overwrite"),
        (Path.mkdir, True, False, "exists; it is only replaced with --overwrite"),
        (Path.mkdir, False, True, "is a folder; name a file"),
        (_make_pipe, False, True, "it is a folder or a device"),
        (_make_pipe, True, True, "it is a folder or a device"),
        (lambda target: target.symlink_to("/proc"), True, False, "exists"),
    ],
)
def test_what_is_not_to_be_replaced_stays(
    tmp_path: Path, make: Callable[[Path], None], reason: str, *, is_folder: bool, overwrite: bool
) -> None:
    make(tmp_path / _NAME)
    mode = (tmp_path / _NAME).lstat().st_mode
    with pytest.raises(MemdescError, match=reason):
        Writer(tmp_path / _NAME, [], is_folder=is_folder, overwrite=overwrite)
    assert (tmp_path / _NAME).lstat().st_mode == mode
    assert _names(tmp_path) == {_NAME}


def test_a_target_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MemdescError, match="cannot be written: File name too long"):
        one_tensor(tmp_path / f"{'x' * 240}{_NAME}")
    if Path("/proc").is_mount():
        with pytest.raises(MemdescError, match="'/proc' is a mount point, which cannot be"):
            Writer(Path("/proc"), [], is_folder=True, overwrite=True)


def test_a_full_disk_is_told_before_the_start(tmp_path: Path) -> None:
    huge = PlannedFile("x", 2**55, (), {"a": (0, 2**55)})
    with pytest.raises(MemdescError, match="takes 36028797018963968 bytes, but its disk has"):
        Writer(tmp_path / "x", [huge]).begin()
    # others who fill the disk meanwhile take no room that an output needs
    with Writer(tmp_path / "x", [PlannedFile("x", 10**6, (), {"a": (0, 10**6)})]) as writer:
        assert writer.where("a").path.stat().st_blocks * 512 >= 10**6
        writer.discard()
    # the lock was given back
    with Writer(tmp_path / "x", [PlannedFile("x", 1, (), {"a": (0, 1)})]) as writer:
        writer.discard()
    with pytest.raises(MemdescError, match="cannot be written: No such file"):
        Writer(tmp_path / "no" / "x", []).begin()


def _files(*names: str) -> list[PlannedFile]:
    return [PlannedFile(name, 10, (), {name: (0, 10)}) for name in names]


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


def test_a_folder_with_files_of_others_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / "model"
    _fill(target, 1)
    (target / "sub").mkdir()
    links = {"link": Path("nowhere"), "linked_folder": tmp_path}
    named = "model", "model.safetensors-00001-of-00002.safetensors"
    for name in ("notes.txt", "sub/notes.txt", ".git", *named, *links):
        if name in links:
            (target / name).symlink_to(links[name])
        else:
            (target / name).write_text("mine")
        with pytest.raises(MemdescError, match=f"it holds '{name}', which this conversion does"):
            _fill(target, 2, overwrite=True)
        assert _filled(target) == 1
        (target / name).unlink()
    (target / "model-00001-of-00002.safetensors").touch()  # of other shards
    _fill(target, 2, overwrite=True)
    assert _filled(target) == 2
    assert _names(target) == {"model.safetensors"}


def test_what_others_make_meanwhile_stays(tmp_path: Path) -> None:
    target = tmp_path / "model"
    _fill(target, 1)
    files = plan_shards([Tensor("a", "u8", (60,), 60)], {}, 128)
    with Writer(target, files, is_folder=True, overwrite=True) as writer:
        (target / "notes").write_text("mine")
        with pytest.raises(MemdescError, match="it holds 'notes'"):
            writer.finish()
    assert (target / "notes").read_text() == "mine"
    assert _filled(target) == 1
    writer = Writer(tmp_path / _NAME, [plan_file(tmp_path / _NAME, [_TENSOR], {})])
    (tmp_path / _NAME).write_text("mine")
    with pytest.raises(MemdescError, match="exists; it is only replaced with --overwrite"):
        writer.begin()
    assert (tmp_path / _NAME).read_text() == "mine"
    assert not writer.folder.exists()


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


def test_nothing_is_written_after_the_end(tmp_path: Path) -> None:
    with one_tensor(tmp_path / _NAME) as writer:
        writer.finish()
    with pytest.raises(MemdescError, match=f"{_NAME}' is no longer being written"):
        write_part(writer, "a", 0, np.ones(100, np.uint8))


def _failing(monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> None:
    """Let a function of the system fail."""

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(name, fail)


def test_a_file_that_the_disk_has_no_room_for_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _failing(monkeypatch, "os.posix_fallocate", errno.ENOSPC)
    with pytest.raises(MemdescError, match="cannot be written: No space left"):
        one_tensor(tmp_path / _NAME)
    assert _names(tmp_path) == set()
    # nobody has the lock, and a file has its size where room cannot be promised
    _failing(monkeypatch, "os.posix_fallocate", errno.EOPNOTSUPP)
    with one_tensor(tmp_path / _NAME) as writer:
        writer.finish()
    assert (tmp_path / _NAME).read_bytes()[-100:] == bytes(100)


def _sharded(target: Path, **options: Any) -> Writer:
    facts = {"a": "1", "b": "1", "c": "1"} | options.pop("facts", {})
    files = _files("a", "b", "c")
    return Writer(target, files, is_folder=True, facts=facts, **options).begin()


@pytest.mark.parametrize(
    ("damage", "facts"),
    [(Path.stat, {"b": "2"}), (lambda path: os.truncate(path, 9), {}), (Path.unlink, {})],
)
def test_whole_files_with_equal_facts_are_kept_and_others_start_again(
    tmp_path: Path, damage: Callable[[Path], object], facts: dict[str, str]
) -> None:
    target = tmp_path / "model"
    with _sharded(target) as writer:
        lost = writer.where("c").path
        for name in "abc":
            write_part(writer, name, 0, np.full(10, 7, np.uint8))
        for name in "ab":
            writer.complete(name)
    (path,) = partial_folder(target).rglob("b")
    damage(path)
    with _sharded(target, resume=True, facts=facts) as writer:
        # a worker of the first run does not reach files of the second
        assert (lost.exists(), writer.where("c").path.name) == (False, "c")
        left = {each.name for each in (writer.folder / "files").rglob("*") if each.is_file()}
        assert writer.finished == left == {"a"}
        writer.finish()
    assert [(target / name).read_bytes() for name in "abc"] == [b"\7" * 10, bytes(10), bytes(10)]
    assert _names(tmp_path) == {"model"}


# The folder in which an output grows.


def _write(target: Path, *, resume: bool = False) -> None:
    with one_tensor(target, resume=resume) as writer:
        write_part(writer, "a", 0, np.ones(100, np.uint8))
        writer.finish()


def _begun(target: Path) -> Path:
    """Leave the folder of a conversion that has ended."""
    with one_tensor(target) as writer:
        writer.complete(target.name)
    assert partial_folder(target).stat().st_mode & 0o022 == 0
    return partial_folder(target)


@pytest.mark.parametrize("kind", ["link", "broken link", "file", "of others", "open to others"])
@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_that_others_made_or_may_write_into_is_refused(
    tmp_path: Path, kind: str, *, resume: bool
) -> None:
    precious = tmp_path / "precious"
    folder = partial_folder(tmp_path / _NAME)
    (precious / "files").mkdir(parents=True)
    (precious / "files" / _NAME).write_text("precious")
    match kind:
        case "link":
            folder.symlink_to(precious)
        case "broken link":
            folder.symlink_to(tmp_path / "nowhere")
        case "file":
            folder.touch()
        case "of others":
            if os.geteuid():
                pytest.skip("only root gives files to others")
            os.chown(_begun(tmp_path / _NAME), 12345, -1)
        case _:
            _begun(tmp_path / _NAME).chmod(0o775)
    with pytest.raises(MemdescError, match=r"is where a conversion writes, but (it|other)"):
        _write(tmp_path / _NAME, resume=resume)
    assert (precious / "files" / _NAME).read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()
    assert not (tmp_path / _NAME).exists()


def test_links_in_an_old_output_are_removed_and_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").touch()
    (_begun(tmp_path / _NAME) / "whole").mkdir()
    (partial_folder(tmp_path / _NAME) / "whole" / "link").symlink_to(precious)
    _write(tmp_path / _NAME)
    (_begun(tmp_path / f"y{_NAME}") / "whole").symlink_to(precious)
    _write(tmp_path / f"y{_NAME}")
    assert _names(tmp_path) == {"precious", _NAME, f"y{_NAME}"}
    assert _names(precious) == {"data"}


def test_a_folder_that_takes_the_place_of_the_locked_one_is_not_published(tmp_path: Path) -> None:
    target = tmp_path / _NAME
    folder = partial_folder(target)
    with one_tensor(target) as writer:
        write_part(writer, "a", 0, np.ones(100, np.uint8))
        writer.complete(_NAME)
        folder.rename(tmp_path / "away")
        with one_tensor(target) as second:
            with pytest.raises(MemdescError, match="it is no longer the folder that was locked"):
                writer.finish()
            writer.discard()
            second.finish()
    assert (target.read_bytes()[-100:], folder.exists()) == (bytes(100), False)


@pytest.mark.parametrize("is_opened", [False, True])
def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_opened: bool
) -> None:
    folder, opened = partial_folder(tmp_path / _NAME), os.open
    left = [1, 1]

    def with_others(name: Path, *arguments: int) -> int:
        is_removed = name == folder / "lock" and left and left.pop()
        if is_removed and not is_opened:
            folder.rmdir()
        handle = opened(name, *arguments)
        if is_removed and is_opened:
            name.unlink()
            folder.rmdir()
        return handle

    monkeypatch.setattr(os, "open", with_others)
    with one_tensor(tmp_path / _NAME):
        assert not left
        with pytest.raises(InUseError, match="another process is writing into"):
            one_tensor(tmp_path / _NAME)


@pytest.mark.parametrize("discards", [True, False])
def test_a_child_that_is_forked_holds_no_lock(tmp_path: Path, *, discards: bool) -> None:
    target = tmp_path / _NAME
    writer = one_tensor(target)
    asked, answer = os.pipe()
    closed, said = os.pipe()
    child = os.fork()
    if not child:  # it may close what it has, and lives on until it is told to end
        try:
            if discards:
                writer.discard()
            os.close(answer)
            os.write(said, b"x")
            os.read(asked, 1)
        finally:
            os._exit(0)
    os.close(said)
    try:
        assert os.read(closed, 1)
        with pytest.raises(InUseError):
            one_tensor(target)
        write_part(writer, "a", 0, np.ones(100, np.uint8))
        writer.close()
        _write(target, resume=True)
    finally:
        for handle in (answer, asked, closed):
            os.close(handle)
        os.waitpid(child, 0)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_that_cannot_lock_is_not_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    _failing(monkeypatch, "fcntl.flock", number)
    with pytest.raises(MemdescError) as caught:
        one_tensor(tmp_path / _NAME)
    assert str(caught.value) == (
        f"{str(partial_folder(tmp_path / _NAME))!r} cannot be locked, so another process could "
        f"write into it too: {os.strerror(number)}; write to a file system that supports locks"
    )
    assert not isinstance(caught.value, InUseError)
    assert _names(tmp_path) == set()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="Linux lists open files")
def test_no_file_stays_open(tmp_path: Path) -> None:
    open_files = Path("/proc/self/fd")
    before = len([*open_files.iterdir()])
    for _ in range(3):
        _begun(tmp_path / _NAME)
        _write(tmp_path / _NAME, resume=True)
        with one_tensor(tmp_path / "z.npz"), pytest.raises(InUseError):
            one_tensor(tmp_path / "z.npz")
        (tmp_path / _NAME).unlink()
    assert len([*open_files.iterdir()]) == before
