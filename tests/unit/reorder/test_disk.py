import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError
from reorder.disk import open_file, read_if_exists, write_file
from tests.programs import run_python

MEMORY = reorder.reorder(np.ones((2, 3), np.float32), "ba")
USES: list[Callable[[Any], object]] = [
    *(reorder.load, reorder.load_all),
    lambda path: reorder.save(path, MEMORY),
    lambda path: reorder.checkpoints.save_raw(path, MEMORY),
]


@pytest.mark.parametrize("path", [3, None, b"x.npy", 1.5, [], object(), "a\0b", "\ud800.npy", ""])
def test_only_paths_are_taken_as_paths(path: Any) -> None:
    for use in USES:
        with pytest.raises(MemdescError, match=r"a path is a string or a pathlib\.Path, not "):
            use(path)


def test_a_file_is_written_and_synced_before_it_gets_its_name_and_then_the_name_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "x"
    target.write_bytes(b"old")
    done: list[Any] = []
    sync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        files = {each.stat().st_ino: each.read_bytes() for each in tmp_path.iterdir()}
        done.append((files.get(os.fstat(handle).st_ino, "the folder"), target.read_bytes()))
        sync(handle)

    def replaced(grown: Path, name: Path) -> None:
        done.append((grown.parent, grown.read_bytes(), name))
        replace(grown, name)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    write_file(target, lambda file: file.write(b"new"))
    assert done == [(b"new", b"old"), (tmp_path, b"new", target), ("the folder", b"new")]
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("old", [b"old", None])
def test_a_failure_leaves_the_old_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    error: BaseException,
    old: bytes | None,
) -> None:
    target = tmp_path / "x"
    if old is not None:
        target.write_bytes(old)

    def fail(*_: object) -> None:
        raise error

    if step != "write":
        monkeypatch.setattr(os, step, fail)
    with pytest.raises((MemdescError, KeyboardInterrupt)) as caught:
        write_file(target, fail if step == "write" else lambda file: file.write(b"new"))
    if isinstance(error, OSError):
        assert str(caught.value) == f"'{target}' cannot be written: No space left on device"
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == (
        [("x", old)] if old else []
    )


def test_permissions_are_those_of_the_file_before_or_of_any_new_file(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        write_file(tmp_path / "x", lambda file: file.write(b"1"))
        assert (tmp_path / "x").stat().st_mode & 0o7777 == 0o640
        (tmp_path / "x").chmod(0o4755)
        write_file(tmp_path / "x", lambda file: file.write(b"2"))
        # what runs with the rights of its owner does so no longer
        assert (tmp_path / "x").stat().st_mode & 0o7777 == 0o755
    finally:
        os.umask(mask)


def test_a_file_that_is_write_protected_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").touch()
    # root may write anything, so the system's answer to everybody else is given here
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(MemdescError, match="write-protected"):
        write_file(tmp_path / "x", lambda file: file.write(b"new"))


def test_a_folder_a_pipe_or_a_device_in_the_place_of_a_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for other in (tmp_path / "folder", tmp_path / "pipe", tmp_path / "link", Path(os.devnull)):
        with pytest.raises(MemdescError, match="cannot be written: it is a folder or a device"):
            write_file(other, lambda file: file.write(b"new"))
    assert len(list(tmp_path.iterdir())) == 3
    # a pipe that takes the place of a file is not waited for
    (tmp_path / "file").touch()
    was_file = (tmp_path / "file").stat()
    monkeypatch.setattr(Path, "stat", lambda *_: was_file)
    with (
        pytest.raises(MemdescError, match="cannot be read: it is a folder or a device"),
        open_file(tmp_path / "pipe"),
    ):
        pass


def test_a_link_is_kept_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    for name in ("real", "made"):
        (tmp_path / f"to {name}").symlink_to(tmp_path / name)
        write_file(tmp_path / f"to {name}", lambda file: file.write(b"new"))
        assert (tmp_path / f"to {name}").is_symlink()
        assert (tmp_path / name).read_bytes() == b"new"


def test_names_that_lead_in_a_circle_are_refused_wherever_a_path_is_taken(tmp_path: Path) -> None:
    (tmp_path / "a.npz").symlink_to(tmp_path / "b.svg")
    (tmp_path / "b.svg").symlink_to(tmp_path / "a.npz")
    for use, name in zip(USES, ("a.npz", "a.npz", "a.npz", "b.svg"), strict=True):
        with pytest.raises(MemdescError, match=r"cannot be .*: Too many levels of symbolic links"):
            use(tmp_path / name)


_TOO_LARGE = """
import resource, sys
import numpy as np
import memdesc, reorder
memory = reorder.Memory(memdesc.memory_desc((10_000,), "f32", "a"))
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
for name in ("/x.npy", "/x.npz", "/x.safetensors"):
    try:
        reorder.save(sys.argv[1] + name, memory)
    except memdesc.MemdescError as error:
        print(error)
"""


def test_a_file_larger_than_allowed_names_the_reason_and_leaves_nothing(tmp_path: Path) -> None:
    run = run_python("-c", _TOO_LARGE, tmp_path)
    assert run.stdout.count("' cannot be written: File too large") == 3
    assert not list(tmp_path.iterdir())


def test_a_small_file_is_read_if_it_exists_and_is_small(tmp_path: Path) -> None:
    file = tmp_path / "x"
    assert read_if_exists(file, 3) is None
    assert read_if_exists(tmp_path / ("x" * 300), 3) is None
    file.write_bytes(b"abc")
    assert read_if_exists(file, 3) == b"abc"
    file.write_bytes(b"abcd")
    with pytest.raises(MemdescError, match="x' has more than 3 bytes"):
        read_if_exists(file, 3)
    (tmp_path / "link").symlink_to(tmp_path / "none")
    with pytest.raises(MemdescError, match="link' cannot be read: No such file"):
        read_if_exists(tmp_path / "link", 3)
