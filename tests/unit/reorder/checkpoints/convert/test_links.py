"""Links in a model's folder: what stays in it is copied, what leads out of it is refused."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

import reorder
from memdesc import MemdescError
from tests.checkpoints import write_safetensors

if TYPE_CHECKING:
    from pathlib import Path

_X = np.arange(16, dtype=np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", {"x": _X})
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "away").mkdir()
    return folder


@pytest.mark.parametrize("name", ["notes.txt", "config.json", "sub/notes.txt"])
@pytest.mark.parametrize("kind", ["relative", "absolute", "chain", "through_a_folder"])
def test_a_file_that_is_a_link_out_of_the_model_is_refused(
    tmp_path: Path, model: Path, name: str, kind: str
) -> None:
    link = model / name
    link.parent.mkdir(exist_ok=True)
    match kind:
        case "relative":
            link.symlink_to(os.path.relpath(tmp_path / "secret", link.parent))
        case "absolute":
            link.symlink_to(tmp_path / "secret")
        case "chain":
            (model / ".hidden").symlink_to(tmp_path / "secret")
            link.symlink_to(model / ".hidden")
        case _:
            (tmp_path / "away" / "file").write_text("secret")
            (model / ".folder").symlink_to(tmp_path / "away")
            link.symlink_to(model / ".folder" / "file")
    with pytest.raises(MemdescError, match=f"{name}' is a link out of .*which is not followed"):
        reorder.convert(model, tmp_path / "out", map=[])
    # one file has no place for it
    reorder.convert(model, tmp_path / "out.safetensors", map=[])


@pytest.mark.parametrize("target", ["nowhere", "../nowhere", "notes.txt"])
def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path, model: Path, target: str) -> None:
    (model / "notes.txt").symlink_to(target)
    with pytest.raises(MemdescError, match=r"notes\.txt'.* (nowhere|out of|followed)"):
        reorder.convert(model, tmp_path / "out", map=[])


def test_links_that_stay_in_the_model_are_copied_as_files(tmp_path: Path, model: Path) -> None:
    (model / "sub").mkdir()
    (model / "notes.txt").write_text("notes")
    (model / "sub" / "one.txt").symlink_to("../two.txt")
    (model / "two.txt").symlink_to(model / "notes.txt")
    reorder.convert(model, tmp_path / "out", map=[])
    for name in ("notes.txt", "two.txt", "sub/one.txt"):
        path = tmp_path / "out" / name
        assert not path.is_symlink()
        assert path.read_text() == "notes"


@pytest.mark.parametrize("target", ["../away", "sub"])
def test_links_to_folders_are_not_copied_and_are_named(
    tmp_path: Path, model: Path, target: str
) -> None:
    (model / "sub").mkdir()
    (model / "sub" / "notes.txt").write_text("notes")
    (model / "linked").symlink_to(target)
    made = reorder.convert(model, tmp_path / "out", map=[])
    assert "linked' is a link to a folder, which is not copied" in made.warnings[0]
    found = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert found == ["model.safetensors", "sub"]


def test_the_cache_of_hugging_face_is_read(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    for folder in (blobs, snapshot / "sub"):
        folder.mkdir(parents=True)
    write_safetensors(blobs / "0", {"x": _X})
    for k, name in enumerate(("model.safetensors", "config.json", "sub/notes.txt")):
        if k:
            (blobs / str(k)).write_text("{}")
        link = snapshot / name
        link.symlink_to(os.path.relpath(blobs / str(k), link.parent))
    reorder.convert(snapshot, tmp_path / "out", map=[])
    assert (tmp_path / "out" / "sub" / "notes.txt").read_text() == "{}"
    assert (tmp_path / "out" / "config.json").read_text() == "{}"


def test_an_output_in_a_circle_of_links_is_refused(tmp_path: Path, model: Path) -> None:
    for name in ("out", "out.safetensors"):
        (tmp_path / name).symlink_to(name)
        with pytest.raises(MemdescError, match=r"out.*(exists|cannot be written)"):
            reorder.convert(model, tmp_path / name, map=[])


def test_what_the_system_says_of_a_path_is_an_error_of_ours(tmp_path: Path, model: Path) -> None:
    with pytest.raises(MemdescError, match=r"xxx' cannot be used: File name too long"):
        reorder.convert(model, tmp_path / ("x" * 300) / "out", map=[])
