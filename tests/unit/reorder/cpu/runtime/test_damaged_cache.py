"""Files of compiled kernels that are truncated or damaged are compiled again and replaced."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from importlib.util import source_hash
from pathlib import Path

import pytest

from reorder.cpu import kernel_files
from tests.machine import assuming
from tests.programs import run_python

# two stages, and the interpreter that calls them
_KERNELS = """
import numpy as np, reorder
x = np.arange(63, dtype=np.float32).reshape(9, 7)
for dtype in ("f64", "s32"):
    assert (reorder.reorder(x, dtype=dtype).numpy() == x).all()
"""


def _run(folder: Path) -> None:
    run_python("-c", _KERNELS, NUMBA_CACHE_DIR=str(folder), **assuming(cores="1"))


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.kernel"))


def _times(folder: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for file in _files(folder)}


def _truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.choice([0, 1, 7, 8, 10, len(data) // 2, len(data) - 1])]


def _flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 8, 200])):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _another_format(_data: bytes, rng: random.Random) -> bytes:
    """Return what has the digest of its rest, but not the fields of a kernel."""
    content = rng.randbytes(rng.randrange(40))
    return source_hash(content) + content


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the kernels of this process."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("damage", [_truncate, _flip, _another_format])
def test_a_damaged_file_is_as_if_it_were_not_there(
    damage: Callable[[bytes, random.Random], bytes], folder: Path
) -> None:
    rng = random.Random(0)
    for _ in range(100):
        assert kernel_files.write("name", "key", b"code") == str(folder)
        assert kernel_files.read("name", "key") == b"code"
        (file,) = _files(folder)
        file.write_bytes(damage(file.read_bytes(), rng))
        assert kernel_files.read("name", "key") is None


def test_each_name_and_key_has_a_file_of_its_own(folder: Path) -> None:
    for name in (names := ("a b", "a_b", "a/b", "a.b", "../a", "a" * 300)):
        kernel_files.write(name, "key\nof a processor", name.encode())
    for name in names:
        assert kernel_files.read(name, "key\nof a processor") == name.encode()
        for key in ("", "key", "key\nof a processor ", "key\nof another one"):
            assert kernel_files.read(name, key) is None
    assert kernel_files.read("another name", "key\nof a processor") is None
    assert {file.parent for file in _files(folder)} == {folder}
    assert len(_files(folder)) == len(names)


def test_what_replaces_a_file_is_never_there_in_parts(folder: Path) -> None:
    kernel_files.write("name", "key", b"code")
    (file,) = _files(folder)
    with file.open("rb") as opened:
        kernel_files.write("name", "key", b"other code")
        # a process that reads the old file goes on to do so
        assert opened.read().endswith(b"keycode")
    assert [each.name for each in folder.iterdir()] == [file.name]


def test_a_folder_in_the_place_of_a_file_or_a_file_in_that_of_the_folder_keeps_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel_files.write("name", "key", b"code")
    (file,) = _files(folder)
    file.unlink()
    file.mkdir()
    for _ in range(2):
        assert kernel_files.write("name", "key", b"code") is None
        assert kernel_files.read("name", "key") is None
        assert [each.name for each in folder.iterdir()] == [file.name]
        (folder / file.name).rmdir() if file.is_dir() else None
        file.touch()
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(file))
    assert kernel_files.writable_folder() is None


_WITHOUT_HOME = """
import os, pathlib, pwd, sys
from reorder.cpu import kernel_files
# as where the installation is read-only, and the user has no entry and no home
kernel_files._write = lambda folder, name, content: False
def lacks(number):
    raise KeyError(number)
pwd.getpwuid = lacks
assert kernel_files.write("name", "key", b"code") is None
assert kernel_files.read("name", "key") is None
"""


def test_without_a_home_there_are_no_files_of_the_user(tmp_path: Path) -> None:
    """A relative folder, such as one named `~`, would be made wherever the process is."""
    environment = {"HOME": "~", "XDG_CACHE_HOME": ""}
    run_python("-c", _WITHOUT_HOME, **environment)
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_damaged_files_of_kernels_are_compiled_again_and_replaced(tmp_path: Path) -> None:
    rng = random.Random(0)

    def swap(files: list[Path]) -> None:
        # as two processes that compile at the same time would leave them if names were equal
        contents = [file.read_bytes() for file in files]
        for file, content in zip(files, [*contents[1:], contents[0]], strict=True):
            file.write_bytes(content)

    def damage(files: list[Path]) -> None:
        for file in files:
            file.write_bytes(rng.choice([_truncate, _flip])(file.read_bytes(), rng))

    _run(tmp_path)
    for change in (damage, swap):
        written = _times(tmp_path)
        assert len(written) >= 3
        change([*written])
        _run(tmp_path)
        replaced = _times(tmp_path)
        assert set(replaced) == set(written)
        assert all(replaced[file] > written[file] for file in written)
        _run(tmp_path)
        assert _times(tmp_path) == replaced


@pytest.mark.slow
def test_processes_that_compile_at_the_same_time_leave_whole_files(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), **assuming(cores="1")}
    command = [sys.executable, "-c", _KERNELS]
    running = [subprocess.Popen(command, env=environment) for _ in range(3)]
    assert [process.wait() for process in running] == [0] * 3
    written = _times(tmp_path)
    _run(tmp_path)
    assert _times(tmp_path) == written
    assert not [*tmp_path.glob(".*")]
