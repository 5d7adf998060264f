"""Models of GGUF in several files, as the package gguf writes them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest

import reorder
from memdesc import MemdescError
from reorder.cli.main import main
from reorder.storage.containers.table import read_container
from tests.gguf_files import gguf_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray


def write_parts(folder: Path) -> dict[str, NDArray[Any]]:
    """Write five tensors into three parts; returns them."""
    rng = np.random.default_rng(0)
    tensors = {f"blk.{k}": rng.random((4, 32)).astype(np.float32) for k in range(5)}
    with gguf_file(folder / "m.gguf", split_max_tensors=2) as writer:
        writer.add_uint32("llama.block_count", 5)
        for name, array in tensors.items():
            writer.add_tensor(name, array)
    return tensors


def part(folder: Path, number: int) -> Path:
    return folder / f"m-{number:05}-of-00003.gguf"


@pytest.mark.parametrize("number", [1, 2, 3])
def test_any_part_is_read_as_the_whole_model(tmp_path: Path, number: int) -> None:
    tensors = write_parts(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        part(tmp_path, k).name for k in (1, 2, 3)
    ]
    found = read_container(part(tmp_path, number))
    assert found.files == tuple(part(tmp_path, k) for k in (1, 2, 3))
    assert set(found.metadata) == {"general.architecture", "llama.block_count"}
    with reorder.open_checkpoint(part(tmp_path, number)) as checkpoint:
        assert list(checkpoint) == list(tensors)
        assert all((checkpoint[name].numpy() == tensors[name]).all() for name in tensors)


def test_parts_are_converted_into_one_file(tmp_path: Path) -> None:
    tensors = write_parts(tmp_path)
    made = tmp_path / "made.gguf"
    rule = "blk.1: ba, f16"
    assert main(["convert", str(part(tmp_path, 1)), str(made), "--map", rule, "--verify"]) == 0
    reader = gguf.GGUFReader(made)
    assert [each.name for each in reader.tensors] == list(tensors)
    assert not any(key.startswith("split.") for key in reader.fields)
    assert (reader.tensors[4].data == tensors["blk.4"]).all()


def _missing(folder: Path) -> None:
    part(folder, 2).unlink()


def _other(folder: Path) -> None:
    shutil.copy(part(folder, 1), part(folder, 2))


def _renamed(folder: Path) -> None:
    part(folder, 1).rename(folder / "m.gguf")
    (folder / "m.gguf").rename(part(folder, 1).with_name("m-00001-of-00004.gguf"))


def _other_count(folder: Path) -> None:
    _replace(part(folder, 1), b"split.tensors.count" + b"\5\0\0\0" + b"\5", b"\6")


def _twice(folder: Path) -> None:
    _replace(part(folder, 3), b"blk.4", b"1", at=4)


def _replace(path: Path, text: bytes, byte: bytes, at: int | None = None) -> None:
    """Replace a byte of a text in a file, by default the last one."""
    data = path.read_bytes()
    place = data.index(text) + (len(text) - 1 if at is None else at)
    path.write_bytes(data[:place] + byte + data[place + 1 :])


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (
            _missing,
            r"m-00001-of-00003\.gguf' is part 1 of 3 .*m-00002-of-00003\.gguf' is missing",
        ),
        (_other, r"m-00002-of-00003\.gguf' does not say that it is part 2 of 3"),
        (_renamed, r"is part 1 of 3 of a model, so it must be called NAME-00001-of-00003\.gguf"),
        (_other_count, "says 6 tensors in 3 parts, which have 5"),
        (_twice, r"m-00003-of-00003\.gguf' has 'blk\.1', which an earlier part has too"),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    tmp_path: Path, damage: Callable[[Path], None], told: str
) -> None:
    write_parts(tmp_path)
    damage(tmp_path)
    with pytest.raises(MemdescError, match=told):
        read_container(min(tmp_path.iterdir()))
