"""Kernels never outlive their sources: their files carry a hash of all that they depend on."""

import gc
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import reorder
from memdesc.record import record_desc
from reorder.cpu.decoding.jobs import decoder_at
from reorder.cpu.decoding.pattern import DecodeKernel, place_pattern
from reorder.cpu.runtime import jit
from reorder.cpu.runtime.jit import Kernel, interpreter_at
from reorder.cpu.runtime.stages import stage_at, tile_interpreter_at
from reorder.cpu.schedule.select import Kernel as MoveKernel
from reorder.cpu.schedule.tile_program import Operation, StageTypes

_ROOT = Path(reorder.__file__).parents[1]


def _compiles(name: str) -> Callable[[], object]:
    placed = place_pattern(record_desc((256, 4096), "q4_k"))
    assert placed is not None
    kernel = DecodeKernel(placed.pattern, "f32")
    return {
        "moves": lambda: interpreter_at(MoveKernel(8, streams=True)),
        "conversions": lambda: stage_at(
            StageTypes("bf16", "f32", "f32", Operation.CONVERT, streams=True)
        ),
        "arithmetic": lambda: stage_at(
            StageTypes("s8", "u8", "f32", Operation.NARROW_QUOTIENT, streams=True)
        ),
        "records": lambda: decoder_at(kernel),
        "tiles": tile_interpreter_at,
    }[name]


@pytest.mark.parametrize("name", ["moves", "conversions", "arithmetic", "records", "tiles"])
def test_all_code_that_writes_a_kernel_is_covered(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every function of ours that runs while the text of a kernel is made is in a covered file."""
    ran: set[str] = set()
    asked: list[Kernel] = []

    def note(frame: FrameType, _event: str, _argument: object) -> None:
        # what importing a module runs is covered by what it imports
        inner: FrameType | None = frame
        while inner is not None and inner is not here:
            if inner.f_code.co_name == "<module>":
                return
            inner = inner.f_back
        ran.add(frame.f_code.co_filename)

    def look(kernel: Kernel) -> int:
        asked.append(kernel)
        return 0

    compiles = _compiles(name)
    monkeypatch.setattr("reorder.cpu.runtime.jit.kernel_at", look)
    decoder_at.cache_clear()
    compiles()
    decoder_at.cache_clear()
    (kernel,) = asked
    gc.collect()  # what closes a forgotten generator would run meanwhile
    here = sys._getframe()  # noqa: SLF001 - where the walk through callers ends
    previous = sys.getprofile()
    sys.setprofile(note)
    try:
        kernel.text()
    finally:
        sys.setprofile(previous)
    ours = {file for file in ran if file.startswith(f"{_ROOT}/") and "/tests/" not in file}
    covered = {f"{_ROOT}/{name}" for name, _ in jit.source_files()}
    assert ours
    assert {file for file in ours if "site-packages" not in file} <= covered


def test_a_change_of_any_source_changes_the_digest(tmp_path: Path) -> None:
    for name, _ in jit.source_files():
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_ROOT / name, place)
    digests = [jit.digest(), jit.digest(str(tmp_path))]
    assert digests[0] == digests[1]
    for name in (
        "reorder/cpu/tables.py",
        "reorder/cpu/decoding/kernel.py",
        "reorder/values/formats.py",
        "reorder/plan/nodes.py",
        "memdesc/record/desc.py",
        "memdesc/dtypes.py",
    ):
        with (tmp_path / name).open("a", encoding="utf-8") as file:
            file.write("#")
        jit.digest.cache_clear()
        digests.append(jit.digest(str(tmp_path)))
    assert len({*digests}) == len(digests) - 1
    # an installer may give all versions of a file one time
    date = (tmp_path / name).stat()
    (tmp_path / name).write_text((tmp_path / name).read_text(encoding="utf-8")[:-1] + "\n")
    os.utime(tmp_path / name, ns=(date.st_atime_ns, date.st_mtime_ns))
    jit.digest.cache_clear()
    assert jit.digest(str(tmp_path)) not in digests
