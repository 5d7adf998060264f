"""Folders in which outputs grow: what others put there is neither followed nor removed."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from memdesc import MemdescError
from reorder.checkpoints.formats.partial import (
    InUseError,
    Partial,
    exchange,
    is_in_use,
    partial_folder,
    reserve,
    try_lock,
)
from tests.writers import one_tensor, write_part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NAME = "x.safetensors"


@pytest.fixture
def precious(tmp_path: Path) -> Iterator[Path]:
    """Give a folder of somebody's, which stays as it is."""
    folder = tmp_path / "precious"
    (folder / "files").mkdir(parents=True)
    for name in ("data", "facts", f"files/{_NAME}"):
        (folder / name).write_text("precious")
    yield folder
    for name in ("data", "facts", f"files/{_NAME}"):
        assert (folder / name).read_text() == "precious"


def write(target: Path, *, resume: bool = False) -> None:
    with one_tensor(target, resume=resume) as writer:
        write_part(writer, "a", 0, np.ones(100, np.uint8))
        writer.finish()


def begun(target: Path) -> Path:
    """Leave the folder of a conversion that has ended."""
    with one_tensor(target) as writer:
        writer.complete(target.name)
    return partial_folder(target)


@pytest.mark.parametrize("resume", [False, True])
def test_a_link_in_the_place_of_the_folder_is_refused(
    tmp_path: Path, precious: Path, *, resume: bool
) -> None:
    for name in (precious, tmp_path / "nowhere", precious / "data"):
        link = partial_folder(tmp_path / _NAME)
        link.symlink_to(name)
        with pytest.raises(MemdescError, match="it is a link or a file; move it away"):
            write(tmp_path / _NAME, resume=resume)
        assert not (tmp_path / "nowhere").exists()
        link.unlink()


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("name", ["files", f"files/{_NAME}", "growing", "facts", "notes"])
def test_a_link_in_the_folder_is_refused_and_named(
    tmp_path: Path, precious: Path, name: str, *, resume: bool
) -> None:
    target = tmp_path / _NAME
    folder = begun(target)
    path = folder / name
    if path.is_dir():
        path.rename(tmp_path / "away")
    path.unlink(missing_ok=True)
    path.symlink_to(precious / name if (precious / name).exists() else precious)
    with pytest.raises(MemdescError, match=f"{name}' is where a conversion writes"):
        write(target, resume=resume)
    assert path.is_symlink()
    assert not target.exists()


def test_links_in_an_old_output_are_removed_and_not_followed(
    tmp_path: Path, precious: Path
) -> None:
    target = tmp_path / _NAME
    (begun(target) / "old").mkdir()
    (partial_folder(target) / "old" / "link").symlink_to(precious)
    write(target)
    (begun(tmp_path / f"y.{_NAME}") / "old").symlink_to(precious)
    (tmp_path / f"y.{_NAME}").touch()
    with one_tensor(tmp_path / f"y.{_NAME}", overwrite=True) as writer:
        writer.finish()
    assert not partial_folder(tmp_path / f"y.{_NAME}").exists()


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_no_conversion_made_is_neither_removed_nor_published(
    tmp_path: Path, kind: str
) -> None:
    target = tmp_path / _NAME
    path = begun(target) / "notes"
    path.mkdir() if kind == "folder" else path.write_text("mine")
    with pytest.raises(MemdescError, match=r"notes' is where .*no conversion made it"):
        write(target)
    assert path.exists()


def test_a_file_with_another_name_and_a_pipe_are_refused(tmp_path: Path, precious: Path) -> None:
    target = tmp_path / _NAME
    path = begun(target) / "files" / _NAME
    path.unlink()
    path.hardlink_to(precious / "data")
    with pytest.raises(MemdescError, match="the same file has another name too"):
        write(target, resume=True)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(MemdescError, match="it is not a regular file"):
        write(target, resume=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = begun(tmp_path / _NAME)
    os.chown(folder, 12345, -1)
    with pytest.raises(MemdescError, match="it belongs to another user, 12345"):
        write(tmp_path / _NAME)
    assert folder.exists()


def test_others_may_not_put_files_beside_what_grows(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = begun(tmp_path / _NAME)
        assert folder.stat().st_mode & 0o777 == 0o755
        assert (folder / "files" / _NAME).stat().st_mode & 0o777 == 0o666
        folder.chmod(0o777)
        begun(tmp_path / _NAME)
        assert folder.stat().st_mode & 0o777 == 0o755
    finally:
        os.umask(before)


def test_a_link_that_somebody_makes_meanwhile_is_not_followed(
    tmp_path: Path, precious: Path
) -> None:
    target = tmp_path / _NAME
    with one_tensor(target) as writer:
        grown = writer.where("a").path.parent
        (grown / _NAME).unlink()
        (grown / _NAME).symlink_to(precious / "data")
        with pytest.raises(MemdescError, match="it is not a regular file"):
            write_part(writer, "a", 0, np.ones(100, np.uint8))
        (grown / _NAME).unlink()
        (grown / _NAME).hardlink_to(precious / "data")
        with pytest.raises(MemdescError, match="the same file has another name too"):
            write_part(writer, "a", 0, np.ones(100, np.uint8))
        (grown / _NAME).unlink()
        grown.rmdir()
        grown.symlink_to(precious / "files")
        with pytest.raises(MemdescError, match="cannot be written"):
            write_part(writer, "a", 0, np.ones(1, np.uint8))
        with pytest.raises(MemdescError, match="cannot be written"):
            writer.finish()
    assert not target.exists()


def test_the_lock_is_of_the_folder_that_has_the_name(tmp_path: Path) -> None:
    """Another process may remove the folder between its creation and its lock."""
    first = Partial(tmp_path / "folder")
    (tmp_path / "folder").rename(tmp_path / "renamed")
    second = Partial(tmp_path / "folder")
    with pytest.raises(InUseError, match="another process is writing"):
        Partial(tmp_path / "folder")
    for each in (first, second):
        each.close()


def test_a_folder_that_somebody_puts_in_its_place_meanwhile_is_not_written_to(
    tmp_path: Path, precious: Path
) -> None:
    target = tmp_path / _NAME
    folder = partial_folder(target)
    with one_tensor(target) as writer:
        folder.rename(tmp_path / "away")
        folder.symlink_to(precious)
        with pytest.raises(MemdescError, match="it is no longer the folder that was locked"):
            write_part(writer, "a", 0, np.ones(9, np.uint8))
        with pytest.raises(MemdescError, match="it is no longer the folder that was locked"):
            writer.finish()
        writer.discard()
    assert not target.exists()


@pytest.mark.parametrize("is_opened", [False, True])
def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_opened: bool
) -> None:
    path, opened = tmp_path / "folder", os.open
    left = [1, 1]

    def with_others(name: Path, *arguments: int) -> int:
        is_removed = name == path and left and left.pop()
        if is_removed and not is_opened:
            path.rmdir()
        handle = opened(name, *arguments)
        if is_removed and is_opened:
            path.rmdir()
        return handle

    monkeypatch.setattr(os, "open", with_others)
    found = Partial(path)
    assert not left
    with pytest.raises(InUseError):
        Partial(path)
    found.close()


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
        write(target, resume=True)
    finally:
        for handle in (answer, asked, closed):
            os.close(handle)
        os.waitpid(child, 0)


def test_a_folder_is_in_use_as_long_as_somebody_writes_in_it(tmp_path: Path) -> None:
    target = tmp_path / _NAME
    folder = partial_folder(target)
    assert not is_in_use(folder)
    with one_tensor(target):
        assert is_in_use(folder)
    assert not is_in_use(folder)
    assert not is_in_use(folder)  # asking leaves no lock


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_that_cannot_lock_is_not_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    folder = tmp_path / "folder"
    Partial(folder).close()
    with monkeypatch.context() as patch:
        patch.setattr("fcntl.flock", fail)
        with pytest.raises(MemdescError) as caught:
            Partial(folder)
        assert not folder.exists()
        folder.mkdir()
        assert not is_in_use(folder)
    assert str(caught.value) == (
        f"{str(folder)!r} cannot be locked, so another process could write into it too: "
        f"{os.strerror(number)}; write to a file system that supports locks"
    )
    assert not isinstance(caught.value, InUseError)
    Partial(folder).close()


def test_asking_leaves_no_lock_to_a_child_that_is_forked_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = begun(tmp_path / _NAME)
    copies: list[int] = []

    def forked_meanwhile(path: Path, handle: int) -> bool:
        copies.append(os.dup(handle))  # a child has one too, and with it the lock
        return try_lock(path, handle)

    monkeypatch.setattr("reorder.checkpoints.formats.partial.try_lock", forked_meanwhile)
    assert not is_in_use(folder)
    monkeypatch.undo()
    Partial(folder).close()
    os.close(*copies)


def test_two_names_are_exchanged_where_the_system_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert not exchange(Path("missing"), tmp_path / "b")
    if sys.platform == "linux":
        assert exchange(tmp_path / "a", Path("b"))
        assert (tmp_path / "a" / "b").exists()
        assert (tmp_path / "b" / "a").exists()
    monkeypatch.setattr("reorder.checkpoints.formats.partial._renameat2", lambda: None)
    assert not exchange(tmp_path / "a", tmp_path / "b")


def test_facts_are_gone_from_the_disk_before_the_files_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(tmp_path / _NAME)
    folder = Partial(partial_folder(tmp_path / _NAME))
    calls: list[str] = []
    for module, name in ((os, "unlink"), (os, "fsync"), (shutil, "rmtree")):
        call = getattr(module, name)

        def recorded(
            path: Path | int,
            *,
            name: str = name,
            call: Callable[..., None] = call,
            **options: int | None,
        ) -> None:
            full = Path(f"/proc/self/fd/{path}").readlink() if isinstance(path, int) else path
            calls.append(f"{name} {Path(full).name}")
            call(path, **options)

        monkeypatch.setattr(module, name, recorded)
    folder.clear()
    assert calls[:3] == ["unlink facts", f"fsync {folder.path.name}", "rmtree files"]
    folder.close()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="Linux lists open files")
def test_no_file_stays_open(tmp_path: Path) -> None:
    open_files = Path("/proc/self/fd")
    before = len([*open_files.iterdir()])
    for _ in range(3):
        begun(tmp_path / _NAME)
        assert not is_in_use(partial_folder(tmp_path / _NAME))
        write(tmp_path / _NAME, resume=True)
        folder = Partial(partial_folder(tmp_path / "z"))
        (folder.path / "x").hardlink_to(tmp_path / _NAME)
        with pytest.raises(MemdescError, match="another name"), folder.open("x", os.O_RDONLY):
            pass
        with pytest.raises(InUseError):
            Partial(folder.path)
        (folder.path / "x").unlink()
        (tmp_path / _NAME).unlink()
        folder.close()
    assert len([*open_files.iterdir()]) == before


def test_what_others_put_into_the_folder_in_the_end_stays(tmp_path: Path) -> None:
    target = tmp_path / _NAME
    with one_tensor(target) as writer:
        (writer.open.path / "notes").write_text("mine")
        writer.finish()
    assert target.is_file()
    assert (partial_folder(target) / "notes").read_text() == "mine"


def test_asking_for_what_is_not_there_makes_nothing(tmp_path: Path) -> None:
    folder = Partial(tmp_path / "folder")
    assert folder.nbytes_of("files/x") is None
    assert not [*folder.path.iterdir()]
    folder.close()


def test_a_file_has_its_size_where_room_cannot_be_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [errno.EOPNOTSUPP, errno.ENOSPC]

    def fail(*_: int) -> None:
        raise OSError(given[0], os.strerror(given[0]))

    monkeypatch.setattr(os, "posix_fallocate", fail)
    with (tmp_path / "x").open("wb") as file:
        reserve(file.fileno(), 10)
        assert os.fstat(file.fileno()).st_size == 10
        given.pop(0)
        with pytest.raises(OSError, match="No space left"):
            reserve(file.fileno(), 20)
