"""Conversions that are killed, run out of disk, lose their source, or meet another conversion."""

import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from memdesc import MemdescError, memory_desc
from reorder.checkpoints import ConvertOptions, ConvertProgress
from reorder.checkpoints.convert.conversion import Conversion, plan_conversion
from reorder.checkpoints.formats.table import read_container
from reorder.checkpoints.reorder_file import FileReorder, reorder_file
from reorder.checkpoints.writer import partial_folder
from tests.checkpoints import model_folder
from tests.programs import run_python

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
