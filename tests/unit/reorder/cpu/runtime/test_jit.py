"""Compiled kernels are kept, and never outlive their sources."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

import reorder
from reorder.cpu.runtime import jit, walker
from reorder.cpu.schedule.kernel import Kernel

_PACKAGE = Path(reorder.__file__).parent


def test_what_is_kept_on_disk_carries_the_digest_of_all_sources() -> None:
    reorder.reorder(np.zeros((3, 5), np.float32), "ba")
    compiled = walker._walkers[Kernel(32)]  # noqa: SLF001 - what the digest is written into
    cache = compiled._cache._cache_file  # noqa: SLF001 - likewise
    with Path(cache._index_path).open("rb") as file:  # noqa: SLF001 - likewise
        pickle.load(file)  # noqa: S301 - numba wrote it: its version
        stamp, _ = pickle.loads(file.read())  # noqa: S301 - likewise
    assert stamp == jit.digest_of(_PACKAGE)


@pytest.mark.parametrize(
    "name",
    [
        "reorder/cpu/record.py",
        "reorder/cpu/target.py",
        "reorder/cpu/kernels/transpose.py",
        "reorder/cpu/schedule/program.py",
        "reorder/plan/nodes.py",
        "memdesc/dtypes.py",
    ],
)
def test_a_change_of_any_source_changes_the_digest(name: str, tmp_path: Path) -> None:
    for package in ("memdesc", "reorder"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(_PACKAGE.parent / package, tmp_path / package, ignore=ignored)
    assert jit.digest_of(tmp_path / "reorder") == jit.digest_of(_PACKAGE)
    with (tmp_path / name).open("a", encoding="utf-8") as file:
        file.write("#")
    assert jit.digest_of(tmp_path / "reorder") != jit.digest_of(_PACKAGE)


def test_kernels_without_a_source_to_watch_are_compiled_all_the_same() -> None:
    names: dict[str, Any] = {}
    exec("def nothing(_): pass", names)  # noqa: S102 - a function that no file has
    compiled = jit.compile_callback(names["nothing"], numba.void(numba.int64), "nothing")
    assert compiled.address
    jit.jit_parallel(names["nothing"])(1)


def test_damaged_files_of_the_cache_are_written_anew(tmp_path: Path) -> None:
    program = (
        "import numpy as np, reorder; from reorder.cpu.runtime.jit import compiled_kernels;"
        "x = np.random.rand(4, 40);"
        "assert (reorder.reorder(x, 'ba').numpy() == x).all();"
        "print(len(compiled_kernels()))"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def run() -> None:
        command = [sys.executable, "-c", program]
        subprocess.run(command, env=environment, capture_output=True, check=True)

    run()
    for pattern in ("*.nbi", "*.nbc"):
        files = [*tmp_path.rglob(pattern)]
        assert files
        for file in files:
            file.write_bytes(file.read_bytes()[:-20])
        run()
        for file in files:
            with file.open("rb") as again:
                pickle.load(again)  # noqa: S301 - numba wrote it: its version, or the code


def test_where_numba_compiles_nothing_large_reorders_run_on_the_pool(tmp_path: Path) -> None:
    program = (
        "import numpy as np, reorder; from reorder.cpu import cache_folder, layer_name;"
        "x = np.random.rand(400, 400);"
        "assert (reorder.reorder(x, 'ba').numpy() == x).all();"
        "print(layer_name(), cache_folder())"
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
