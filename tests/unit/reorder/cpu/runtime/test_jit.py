"""Compiled kernels are kept, and never outlive their sources."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numba
import numpy as np
import pytest

import reorder
from reorder.cpu.runtime import jit, walker
from reorder.cpu.schedule.kernel import Kernel


def nothing(_: int) -> None:
    """Do what takes little time to compile."""


def test_what_is_kept_on_disk_carries_the_digest_of_all_sources() -> None:
    reorder.reorder(np.zeros((3, 5), np.float32), "ba")
    cache = walker._walkers[Kernel(32)]._cache._cache_file  # noqa: SLF001 - what the digest is written into
    with Path(cache._index_path).open("rb") as file:  # noqa: SLF001 - likewise
        pickle.load(file)  # noqa: S301 - numba wrote it: its version
        stamp, _ = pickle.loads(file.read())  # noqa: S301 - likewise
    assert stamp == jit._digest()  # noqa: SLF001 - likewise


@pytest.mark.parametrize("name", ["transpose.py", "copy.py", "program.py", "nodes.py"])
def test_a_change_of_any_source_changes_the_digest(name: str) -> None:
    read = Path.read_bytes

    def changed(file: Path) -> bytes:
        return read(file) + (b"#" if file.name == name else b"")

    with mock.patch.object(Path, "read_bytes", changed):
        assert jit._digest.__wrapped__() != jit._digest()  # noqa: SLF001 - what it depends on


@pytest.mark.parametrize(
    "error", [RuntimeError("no locator available"), OSError("read-only"), AttributeError("_cache")]
)
def test_without_a_folder_kernels_are_compiled_all_the_same(error: Exception) -> None:
    def refuse(_: Any) -> None:
        raise error

    with mock.patch("reorder.cpu.runtime.jit._stamp", refuse):
        assert jit.compile_callback(nothing, numba.void(numba.int64), "nothing").address
        assert callable(jit.jit_parallel(nothing))


def test_where_numba_compiles_nothing_large_reorders_run_on_the_pool(tmp_path: Path) -> None:
    program = (
        "import numpy as np, reorder; from reorder.cpu import cache_folder, layer_name; x = np.random.rand(400, 400);"
        "assert (reorder.reorder(x, 'ba').numpy() == x).all(); print(layer_name(), cache_folder())"
    )
    environment = {
        **os.environ,
        "NUMBA_DISABLE_JIT": "1",
        "NUMBA_NUM_THREADS": "2",
        # nothing that was compiled before is there
        "NUMBA_CACHE_DIR": str(tmp_path),
    }
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "pool None\n"), ran.stderr
