"""What is written on a system without locks of folders or reads at offsets."""

import os
from pathlib import Path

import pytest

import reorder
import reorder.disk
from memdesc import MemdescError
from reorder.checkpoints import writer as writing
from reorder.checkpoints.moves import tasks
from reorder.checkpoints.writer import InUseError, partial_folder
from tests.unit.reorder.checkpoints.convert.results import contents, ended_after
from tests.writers import one_tensor

_NAME = "x.safetensors"
_RULES = ("conv.weight: ohwi", "*.1.mlp: awq -> ab, f32")
_SMALL = reorder.checkpoints.ConvertOptions(max_bytes=20_000, threads=2)


@pytest.fixture(autouse=True)
def _on_a_system_that_has_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "fcntl", None)
    for name in ("_HAS_OFFSETS", "_OPENS_FOLDERS"):
        monkeypatch.setattr(reorder.disk, name, False)
    monkeypatch.setattr(writing, "system_function", lambda *_: None)
    monkeypatch.setattr(tasks, "_sync_file_range", lambda: None)
    for name in ("preadv", "pwrite", "posix_fallocate"):
        monkeypatch.delattr(os, name, raising=False)


def test_one_process_writes_at_a_time_and_a_lock_that_was_left_is_named(tmp_path: Path) -> None:
    target = tmp_path / _NAME
    folder = partial_folder(target)
    with one_tensor(target):
        with pytest.raises(InUseError, match="lock', which a killed process left"):
            one_tensor(target)
        assert (folder / "lock").exists()
    (folder / "lock").touch()  # as a killed process leaves it
    with pytest.raises(InUseError):
        one_tensor(target, resume=True)
    (folder / "lock").unlink()
    one_tensor(target, resume=True).close()


def test_a_checkpoint_is_converted_to_the_same_bytes_after_an_interrupt_too(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    portable, usual = tmp_path / "portable", tmp_path / "usual"
    with ended_after(8) as end:
        reorder.convert(
            model,
            portable,
            map=_RULES,
            options=_SMALL._replace(shard_bytes=20_000, threads=1),
            progress=end,
        )
    assert partial_folder(portable).exists()
    reorder.convert(model, portable, map=_RULES, options=_SMALL._replace(resume=True))
    with pytest.raises(MemdescError, match="cannot replace a folder in one step"):
        reorder.convert(model, portable, map=_RULES, options=_SMALL._replace(overwrite=True))
    monkeypatch.undo()
    reorder.convert(model, usual, map=_RULES, options=_SMALL)
    assert contents(usual) == contents(portable)
    assert not partial_folder(portable).exists()
