"""A process without what only some systems have (docs/platforms.md), or without its folder."""

import numpy as np
import pytest

from reorder import compare_values, comparison
from tests.notice import without_notice
from tests.programs import run_python

# Packages that are imported first may use what the system has; ours must not.
_TAKE_AWAY = """
import builtins, io, mmap, os, pathlib, random, signal, sys
import numba, numpy

for name in (
    "sched_getaffinity", "preadv", "pwrite", "posix_fallocate", "getxattr", "setxattr",
    "register_at_fork", "geteuid", "fchmod",
):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGALRM", "SIGHUP"):
    if hasattr(signal, name):
        delattr(signal, name)
for name in ("MADV_FREE", "MADV_HUGEPAGE", "MAP_PRIVATE", "MAP_ANONYMOUS"):
    if hasattr(mmap, name):
        delattr(mmap, name)
usual = io.open
def open_(path, *given, **named):
    if str(path).startswith(("/proc", "/sys", "/etc")):
        raise FileNotFoundError(path)
    return usual(path, *given, **named)
io.open = builtins.open = open_
sys.platform = "elsewhere"
import reorder.system
reorder.system.system_function = lambda *_: None
import reorder.disk
import reorder.checkpoints.writer as writing
reorder.disk._HAS_OFFSETS = reorder.disk._OPENS_FOLDERS = False
writing.fcntl = None
"""
_USE = """
import numpy as np, reorder, reorder.cli, tempfile
from reorder.system import count_cores
from reorder.cpu.host import this_machine
from tests import installed

assert count_cores() == os.cpu_count()
assert this_machine().own_cache_nbytes == 1 << 20
assert installed.main() == 0
x = np.random.default_rng(0).random((4800, 1000), np.float32)
for _ in range(20):
    assert np.array_equal(reorder.reorder(x, "ba", threads=2).numpy(), x)
with tempfile.TemporaryDirectory() as folder:
    for _ in range(2):
        reorder.save(f"{folder}/x.npz", {"x": x})
    assert np.array_equal(np.load(f"{folder}/x.npz")["x"], x)
bench = "bench --from ab --to ba 512x512 --threads 2 --seconds 0.001"
assert reorder.cli.main(bench.split()) == 0
"""


@pytest.mark.slow
def test_reorders_are_right_where_nothing_of_linux_is_found() -> None:
    ran = run_python("-W", "error", "-c", _TAKE_AWAY + _USE, MEMDESC_MACHINE="")
    assert without_notice(ran.stderr) == ""
    assert "500 random reorders are right" in ran.stdout


def test_integers_of_64_bits_are_compared_where_no_float_is_wider_than_f64(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(comparison, "_WIDEST", np.float64)
    x = np.arange(100) << 40
    y = x.copy()
    y[7] += 3
    found = compare_values(x, y)
    assert found.worst is not None
    assert (found.differing, found.worst.at, found.worst.difference) == (1, (7,), 3.0)
