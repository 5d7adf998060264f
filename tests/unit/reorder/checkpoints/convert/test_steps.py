"""The order in which a conversion writes, syncs and renames, and ends before each of its calls."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import reorder
from tests.checkpoints import write_safetensors
from tests.programs import run_python

_PROGRAM = Path(__file__).with_name("steps_program.py")
_X = np.arange(32 * 32, dtype=np.float32).reshape(32, 32)

Calls = list[tuple[str, ...]]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Give a folder in memory where there is one: hundreds of calls wait for the disk."""
    memory = Path("/dev/shm")  # noqa: S108 - the name is made by tempfile
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as name:
        yield Path(name)


def source_of(folder: Path, fill: float, name: str) -> Path:
    folder.mkdir()
    small = {} if name.endswith(".npy") else {"small": np.full(4, fill, np.float32)}
    write_safetensors(folder / "model.safetensors", {"x": _X + fill, **small})
    (folder / "tokenizer.json").write_text("{}")
    return folder


def ended_at_each_call(folder: Path, name: str, *, is_replaced: bool) -> Calls:
    """End a conversion before each call; return those of one that nobody ends."""
    source_of(folder / "source", 0.5, name)
    (folder / "template").mkdir()
    if is_replaced:
        before = source_of(folder / "before", 0.25, name)
        reorder.convert(before, folder / "template" / name)
    found = run_python(_PROGRAM, folder, name)
    return [tuple(call) for call in json.loads(found.stdout)]


def after(calls: Calls, *call: str) -> int:
    """Return where a call is, which occurs once."""
    (found,) = (k for k, each in enumerate(calls) if each == call)
    return found


def check_order(calls: Calls, name: str, files: list[str], published: tuple[str, ...]) -> None:
    """Check that what gets its name is on disk, and that the name is before anything is removed."""
    partial = f".{name}.memdesc-partial"
    named = after(calls, *published)
    for file in files:
        (path,) = {
            call[1] for call in calls if call[0] == "pwrite" and call[1].endswith(f"/{file}")
        }
        assert path.startswith(f"{partial}/growing/")
        written = max(k for k, call in enumerate(calls) if call == ("pwrite", path))
        (finished,) = (
            k
            for k, call in enumerate(calls)
            if call[:2] == ("replace", path) and call[2].startswith(f"{partial}/files/")
        )
        assert written < calls.index(("fsync", path)) < finished < named
        if f"{partial}/whole" in published:
            moved = after(calls, "replace", calls[finished][2], f"{partial}/whole/{file}")
            assert finished < moved < calls.index(("fsync", f"{partial}/whole")) < named
    kept = calls.index(("fsync", "."), named)
    removed = [k for k, call in enumerate(calls) if k > named and call[0] in ("unlink", "rmdir")]
    assert removed
    assert kept < min(removed)


# a child for each call takes a minute on a busy machine
@pytest.mark.parametrize(
    ("name", "is_replaced"),
    [
        ("out.safetensors", False),
        ("out", True),
        *(
            pytest.param(name, is_replaced, marks=pytest.mark.campaign)
            for name in ("out.safetensors", "out", "out.npz", "out.npy")
            for is_replaced in (False, True)
        ),
    ],
)
def test_an_output_is_whole_or_not_there(folder: Path, name: str, *, is_replaced: bool) -> None:
    calls = ended_at_each_call(folder, name, is_replaced=is_replaced)
    if name == "out":
        published = (
            "exchange" if is_replaced else "replace",
            f".{name}.memdesc-partial/whole",
            name,
        )
        check_order(calls, name, ["model.safetensors", "tokenizer.json"], published)
        return
    (call,) = (call for call in calls if call[0] == "replace" and call[2] == name)
    check_order(calls, name, [name], call)
