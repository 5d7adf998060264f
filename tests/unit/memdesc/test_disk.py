from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from memdesc.disk import as_path, write_files

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO


@pytest.mark.parametrize("path", [3, None, b"x.npy", 1.5, [], object(), "a\0b"])
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
