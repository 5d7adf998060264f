"""`memdesc reorder` of tensors that are larger than what it may hold in memory."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest

import reorder
from reorder.checkpoints.writer import partial_folder
from tests.programs import run_python

if TYPE_CHECKING:
    from tests.unit.reorder.cli.shell import Shell

_SHAPE = (4, 40, 12, 10)
_ARRAY = np.random.default_rng(0).random(_SHAPE, np.float32)
_LIMIT = "--max-bytes 16KiB"


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ("--to nChw16c", np.float32),
        ("--to nhwc --to-dtype bf16", np.float32),
        ("--to nChw16c --to-dtype s8 --scale 0.01 --zero-point 3", np.float32),
        ("--to nhwc --to-dtype s8 --scale scales.npy:2", np.float32),
        ("--to nChw16c --dtype bf16", ml_dtypes.bfloat16),
        ("--to nChw16c --threads 3", np.int8),
    ],
)
@pytest.mark.parametrize("ending", [".safetensors", ".npz", ".bin"])
def test_the_file_is_the_one_that_is_written_at_once(
    shell: Shell, options: str, kind: type, ending: str
) -> None:
    np.save("in.npy", (_ARRAY * 50).astype(kind))
    np.save("scales.npy", np.linspace(0.3, 0.9, 40, dtype=np.float32))
    raw = "--raw" if ending == ".bin" else ""
    for out, limit in (("pieces", _LIMIT), ("once", "--max-bytes 1GiB")):
        shell.facts(f"reorder in.npy {out}{ending} {options} {raw} {limit}")
    assert Path(f"pieces{ending}").read_bytes() == Path(f"once{ending}").read_bytes()
    assert not [*Path().glob(".*")]


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        ("blocks.npy --from nChw8c", "blocks"),
        ("fortran.npy", "fortran"),
        ("saved.safetensors", "tensor"),
        ("saved.safetensors --from nChw8c", "tensor"),
        ("x.npz:x", "x"),
        ("packed.npz", "x"),
    ],
)
def test_arrays_described_files_and_members_of_archives_are_read_in_pieces(
    shell: Shell, source: str, kept: str
) -> None:
    m = reorder.reorder(_ARRAY, "nChw8c")
    np.save("blocks.npy", m.blocks())
    np.save("fortran.npy", np.asfortranarray(_ARRAY))
    reorder.save("saved.safetensors", m)
    reorder.save("x.npz", {"x": m, "other": np.zeros(3)})
    np.savez_compressed("packed.npz", x=_ARRAY)
    reorder.save("wanted.npz", {kept: reorder.reorder(_ARRAY, "nhwc")})
    name, _, options = source.partition(" ")
    shell.facts(f"reorder {name} out.npz --to nhwc {options} {_LIMIT}")
    assert Path("out.npz").read_bytes() == Path("wanted.npz").read_bytes()


@pytest.mark.parametrize("name", ["x.npy", "link.npy"])
def test_a_file_is_reordered_over_itself_and_over_others(shell: Shell, name: str) -> None:
    np.save("x.npy", _ARRAY)
    Path("link.npy").symlink_to("x.npy")
    for options, wanted in (("--to dcba", _ARRAY.T), ("--from dcba", _ARRAY)):
        shell.facts(f"reorder {name} {name} {options} {_LIMIT}")
        assert np.array_equal(np.load(name), wanted)
    assert Path("link.npy").is_symlink()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--to nChw16c --max-bytes 100", r"the smallest piece .* takes \d+ bytes"),
        ("--to nChw16c --max-bytes none", "not a size above 0"),
        ("--to nChw16c --max-bytes 1KiB --threads 0", "must be 1 or more"),
        ("--to abc --max-bytes 1KiB", "3"),
        ("--to nchw --dtype s8 --max-bytes 1KiB", "f32, not s8"),
        ("--to nchw --from nChw8c --max-bytes 1KiB", "5 axes"),
    ],
)
def test_what_cannot_be_done_leaves_nothing(shell: Shell, options: str, reason: str) -> None:
    np.save("x.npy", _ARRAY)
    assert re.search(reason, shell.refusal(f"reorder x.npy out.npz {options}"))
    assert [file.name for file in Path().iterdir()] == ["x.npy"]


# what getrusage has is at least what the parent had
_PEAK = """
import re, sys
from pathlib import Path
from reorder.cli import main
code = main(sys.argv[1:])
sys.stderr.write(re.search(r"VmHWM:\\s+([0-9]+) kB", Path("/proc/self/status").read_text())[1])
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("mebibytes", "limit"), [(120, 16), pytest.param(4096, 1024, marks=pytest.mark.campaign)]
)
def test_memory_is_bounded(tmp_path: Path, mebibytes: int, limit: int) -> None:
    path, out = tmp_path / "x.npy", tmp_path / "y.safetensors"
    rows = mebibytes * 8
    # a sparse file: zeros take no room
    header = np.lib.format.open_memmap(path, "w+", np.float32, (rows, 64, 16, 32))
    header[5, 7] = np.arange(512).reshape(16, 32)
    header.flush()
    options = ("--to", "nChw16c", "--max-bytes", f"{limit}MiB")
    ran = run_python("-c", _PEAK, "reorder", path, out, *options)
    peak = int(ran.stderr.split()[-1]) / 1024
    sys.stdout.write(f"{mebibytes} MiB with --max-bytes {limit}MiB: {peak:.0f} MiB at the most\n")
    assert peak < limit + 300
    found = reorder.load(out, mmap=True)
    assert (found[5, 7] == header[5, 7]).all()


@pytest.mark.campaign
def test_fifty_killed_processes_leave_whole_files(shell: Shell, tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((32, 64, 48, 48), np.float32)
    path, out = tmp_path / "in.npy", tmp_path / "out.safetensors"
    np.save(path, x)
    last = reorder.reorder(x, "nhwc").desc
    reorder.save(out, reorder.reorder(x, "nhwc"))
    found = {"older": 0, "newer": 0}
    chance = random.Random(0)
    whole = 0.0
    for k in range(51):
        tag = ("nChw16c", "nChw8c", "nhwc")[k % 3]
        arguments = ["reorder", str(path), str(out), "--to", tag, "--max-bytes", "1MiB"]
        with subprocess.Popen(
            [sys.executable, "-m", "memdesc", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as running:
            while running.poll() is None and not partial_folder(out).exists():
                time.sleep(0.001)
            start = time.monotonic()
            if not whole:  # the first one ends
                running.wait()
                whole = time.monotonic() - start
            time.sleep(chance.random() * 1.2 * whole)
            running.kill()
        memory = reorder.load(out)
        assert (memory.numpy() == x).all()
        found["older" if memory.desc == last else "newer"] += 1
        last = memory.desc
    sys.stdout.write(f"{found}\n")
    shell.facts(f"reorder {path} {out} --to nchw {_LIMIT}")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.npy", "out.safetensors"]
