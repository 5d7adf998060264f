"""Conversions that are killed, run out of disk, lose their source, or meet another conversion."""

import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import reorder
import reorder.disk
from memdesc import MemdescError, memory_desc
from reorder.checkpoints import ConvertOptions, ConvertProgress
from reorder.checkpoints import writer as writing
from reorder.checkpoints.convert.conversion import Conversion, plan_conversion
from reorder.checkpoints.formats.table import read_container
from reorder.checkpoints.moves import tasks
from reorder.checkpoints.reorder_file import FileReorder, reorder_file
from reorder.checkpoints.writer import InUseError, partial_folder
from tests.checkpoints import model_folder
from tests.programs import run_python
from tests.unit.reorder.checkpoints.convert.results import contents, ended_after
from tests.writers import one_tensor

_PROGRAM = Path(__file__).with_name("kill_program.py")
_RULES = ("model.layers.*: awq -> gptq", "conv.weight: OIhw16i16o", "lm_head.weight: ba, f32")
# many tasks, one at a time
_SMALL = ConvertOptions(threads=1, max_bytes=8000)


def planned(folder: Path, settings: ConvertOptions = _SMALL) -> Conversion:
    if not (folder / "model").exists():
        model_folder(folder / "model")
    rules = _RULES
    return plan_conversion(folder / "model", folder / "out", rules, settings)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(2))
def test_conversions_that_are_killed_at_many_moments(tmp_path: Path, seed: int) -> None:
    model_folder(tmp_path / "model", layers=6)
    killed, whole, resumed = map(
        int, run_python(_PROGRAM, tmp_path, "50", str(seed)).stdout.split()
    )
    sys.stdout.write(f"{killed} kills, {whole} conversions whole, {resumed} files kept\n")
    assert killed >= 50
    assert whole
    assert resumed


def test_a_disk_that_fills_half_way_ends_in_an_error(tmp_path: Path) -> None:
    made = planned(tmp_path)
    made.writer.begin()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, ([*made.writer.files.values()][-1].nbytes // 2, limits[1])
    )
    try:
        with pytest.raises(MemdescError, match="cannot be written: File too large"):
            made.run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not (tmp_path / "out").exists()
    assert not partial_folder(tmp_path / "out").exists()  # no file was finished
    planned(tmp_path, _SMALL._replace(resume=True)).run()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: os.truncate(path, 5000), "it was shortened after"),
        (lambda path: os.truncate(path, 0), "it was shortened after"),
        (Path.touch, "has changed while it was converted"),
        (Path.unlink, "cannot be read: No such file"),
    ],
)
@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_source_that_changes_meanwhile_ends_in_an_error(
    tmp_path: Path, damage: Callable[[Path], object], said: str, name: str
) -> None:
    planned(tmp_path)
    (tmp_path / "model" / "tokenizer.json").write_text("{}" * 3000)
    made = planned(tmp_path)
    damage(tmp_path / "model" / name)
    with pytest.raises(MemdescError, match=said):
        made.run()
    assert not (tmp_path / "out").exists()


def test_memory_stays_within_the_bound_however_large_tensors_are(tmp_path: Path) -> None:
    """100 MB, of which no more than 8 MiB and what the program itself needs may be held."""
    source, target = tmp_path / "in.npy", tmp_path / "out.npy"
    np.lib.format.open_memmap(source, "w+", np.float32, (5000, 5000)).flush()
    arguments = [str(source), str(target), "--map", "*: ba", "--max-bytes", "8MiB"]
    # not ru_maxrss, which a process inherits from the one that starts it
    code = (
        "import re, sys; from reorder.cli import main; main(['convert', *sys.argv[1:]]); "
        "print(re.search(r'VmHWM:\\s*(\\d+) kB', open('/proc/self/status').read())[1])"
    )
    peak = int(run_python("-c", code, *arguments).stdout.split()[-1]) << 10
    assert target.stat().st_size > 100_000_000
    assert peak < (8 << 20) + 300_000_000


def test_bytes_that_are_damaged_on_their_way_are_found_when_they_are_read_back(
    tmp_path: Path,
) -> None:
    made = planned(tmp_path, _SMALL._replace(verify=True))
    size = [*made.writer.files.values()][-1].nbytes

    def damage(now: ConvertProgress) -> None:
        if now.stage == "converting" and now.done == now.total // 2:
            (finished,) = partial_folder(tmp_path / "out").rglob("model.safetensors")
            with finished.open("r+b") as file:
                file.seek(size - 100)
                file.write(b"x" * 100)

    with pytest.raises(MemdescError, match="what was written differs from the definition"):
        made.run(damage)
    assert not (tmp_path / "out").exists()


def test_a_reorder_between_files_that_fails_leaves_nothing(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((64, 64), np.float32))
    (entry,) = read_container(tmp_path / "x.npy").entries.values()
    src, dst = (memory_desc((64, 64), "f32", tag) for tag in ("ab", "ba"))
    with pytest.raises(MemdescError, match="has changed while it was converted"):
        reorder_file(
            FileReorder(entry, src, dst),
            tmp_path / "y.bin",
            max_bytes=1 << 20,
            threads=1,
            step=lambda _: (tmp_path / "x.npy").touch(),
        )
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


# A system without locks of folders or reads at offsets.


@pytest.fixture
def _less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "fcntl", None)
    for name in ("_HAS_OFFSETS", "_OPENS_FOLDERS"):
        monkeypatch.setattr(reorder.disk, name, False)
    monkeypatch.setattr(writing, "system_function", lambda *_: None)
    monkeypatch.setattr(tasks, "_sync_file_range", lambda: None)
    for name in ("preadv", "pwrite", "posix_fallocate"):
        monkeypatch.delattr(os, name, raising=False)


@pytest.mark.usefixtures("_less")
def test_one_process_writes_at_a_time_and_a_lock_that_was_left_is_named(tmp_path: Path) -> None:
    target = tmp_path / "x.safetensors"
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


@pytest.mark.usefixtures("_less")
def test_a_checkpoint_is_converted_to_the_same_bytes_after_an_interrupt_too(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    portable, usual = tmp_path / "portable", tmp_path / "usual"
    small = ConvertOptions(max_bytes=20_000, threads=1)
    rules = ("conv.weight: ohwi", "*.1.mlp: awq -> ab, f32")
    with ended_after(8) as end:
        settings = small._replace(shard_bytes=20_000)
        reorder.convert(model, portable, map=rules, options=settings, progress=end)
    assert partial_folder(portable).exists()
    reorder.convert(model, portable, map=rules, options=small._replace(resume=True))
    with pytest.raises(MemdescError, match="cannot replace a folder in one step"):
        reorder.convert(model, portable, map=rules, options=small._replace(overwrite=True))
    monkeypatch.undo()
    reorder.convert(model, usual, map=rules, options=small)
    assert contents(usual) == contents(portable)
    assert not partial_folder(portable).exists()
