from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from memdesc.disk import as_path, state_of, write_files

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO


@pytest.mark.parametrize("path", [3, None, b"x.npy", 1.5, [], object(), "a\0b", "\ud800.npy"])
def test_what_is_no_path_is_refused_wherever_one_is_taken(path: Any) -> None:
    memory = reorder.reorder(np.ones((2, 3), np.float32), "ba")
    for use in (
        lambda: reorder.save(path, memory),
        lambda: reorder.load(path),
        lambda: reorder.save_archive(path, {"x": memory}),
        lambda: reorder.load_archive(path),
        lambda: memory_desc((2, 3), "f32", "ab").show().save(path),
    ):
        with pytest.raises(MemdescError, match=r"a path is a string or a pathlib\.Path, not "):
            use()


def test_a_path_may_be_a_string_or_a_path_object(tmp_path: Path) -> None:
    assert as_path(str(tmp_path)) == as_path(tmp_path) == tmp_path


def test_no_file_of_a_group_is_replaced_if_one_cannot_be_written(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"old")

    def fail(_: BinaryIO) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(MemdescError, match=r"second' cannot be written: No space left on device"):
        write_files({first: lambda file: file.write(b"new"), second: fail})
    assert first.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [first]


def test_a_picture_does_not_replace_a_file_that_is_write_protected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.svg").touch()
    # root may write anything, so the system's answer to everybody else is given here
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(MemdescError, match="write-protected"):
        memory_desc((2, 3), "f32", "ab").show().save(tmp_path / "x.svg")


def test_a_folder_or_a_pipe_in_the_place_of_a_file_is_refused_before_any_is_written(
    tmp_path: Path,
) -> None:
    first, second, pipe = tmp_path / "first", tmp_path / "second", tmp_path / "pipe"
    first.write_bytes(b"old")
    second.mkdir()
    os.mkfifo(pipe)
    for other in (second, pipe):
        with pytest.raises(MemdescError, match="it is a folder or a device"):
            write_files(
                {first: lambda file: file.write(b"new"), other: lambda file: file.write(b"new")}
            )
    assert first.read_bytes() == b"old"


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_files({tmp_path / "link": lambda file: file.write(b"new")})
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_name_as_long_as_names_may_be_is_written(tmp_path: Path) -> None:
    write_files({tmp_path / ("x" * 255): lambda file: file.write(b"new")})
    assert (tmp_path / ("x" * 255)).read_bytes() == b"new"


def test_names_that_lead_in_a_circle_are_refused_wherever_a_path_is_taken(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    memory = reorder.reorder(np.ones((2, 3), np.float32), "ba")
    for use in (
        lambda: reorder.save(tmp_path / "a", memory),
        lambda: reorder.load(tmp_path / "a"),
        lambda: reorder.save_archive(tmp_path / "a", {"x": memory}),
        lambda: reorder.load_archive(tmp_path / "a"),
        lambda: memory_desc((2, 3), "f32", "ab").show().save(tmp_path / "a"),
    ):
        with pytest.raises(MemdescError, match=r"cannot be .*: Too many levels of symbolic links"):
            use()


def test_two_names_of_one_file_are_refused_and_it_stays(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    link.symlink_to(real)
    with pytest.raises(MemdescError, match="it is the same file as another of them"):
        write_files({real: lambda file: file.write(b"1"), link: lambda file: file.write(b"2")})
    assert real.read_bytes() == b"old"


def test_a_folder_a_pipe_and_a_device_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", "/dev/zero"):
        for read in (reorder.load, reorder.load_archive):
            with pytest.raises(MemdescError, match="cannot be read: it is a folder or a device"):
                read(path)


def test_a_pipe_or_a_folder_in_the_place_of_a_descriptor_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(3))
    os.mkfifo(tmp_path / "x.npy.json")
    with pytest.raises(MemdescError, match=r"x\.npy\.json' cannot be read: it is a folder"):
        reorder.load(tmp_path / "x.npy")


_TOO_LARGE = """
import resource, sys
import numpy as np
import memdesc, reorder
memory = reorder.Memory(memdesc.memory_desc((10_000,), "f32", "a"))
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
for save, tensor in ((reorder.save, memory), (reorder.save_archive, {"x": memory})):
    try:
        save(sys.argv[1], tensor)
    except memdesc.MemdescError as error:
        print(error)
"""


def test_a_file_larger_than_allowed_names_the_reason_and_leaves_nothing(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _TOO_LARGE, str(tmp_path / "x.npy")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.count("x.npy' cannot be written: File too large") == 2
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_named_and_keeps_the_older_tensor(tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(tmp_path)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("only root mounts file systems")
    try:
        older = reorder.reorder(np.ones((16, 16), np.float32), "ba")
        reorder.save(tmp_path / "x.npy", older)
        larger = reorder.Memory(memory_desc((512, 512), "f32", "ba"))
        with pytest.raises(MemdescError, match="cannot be written: No space left on device"):
            reorder.save(tmp_path / "x.npy", larger)
        with pytest.raises(MemdescError, match="cannot be written: No space left on device"):
            reorder.save_archive(tmp_path / "x.npz", {"x": larger})
        found = reorder.load(tmp_path / "x.npy", verify=True)
        assert isinstance(found, reorder.Memory)
        assert found.desc == older.desc
        assert len(list(tmp_path.iterdir())) == 2
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_descriptor_of_a_terabyte_is_refused_without_reading_it(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(3))
    with (tmp_path / "x.npy.json").open("wb") as file:
        file.truncate(2**40)  # takes no place on disk
    with pytest.raises(MemdescError, match=r"json' has more than 1048576 bytes"):
        reorder.load(tmp_path / "x.npy")


def test_a_path_that_leads_through_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(MemdescError, match=r"x/y\.npy' cannot be read: Not a directory"):
        reorder.load(tmp_path / "x" / "y.npy")


def test_the_state_of_a_file_changes_when_another_takes_its_name(tmp_path: Path) -> None:
    file = tmp_path / "x"
    assert state_of(file) is None
    write_files({file: lambda file: file.write(b"a")})
    state = state_of(file)
    assert state_of(file) == state is not None
    write_files({file: lambda file: file.write(b"b")})
    assert state_of(file) != state
