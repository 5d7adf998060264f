"""Compiled kernels are kept, and never outlive their sources."""

from __future__ import annotations

import hashlib
import pickle
import shutil
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core.codegen import JITCodeLibrary
from numba.core.registry import cpu_target

import reorder
from reorder.cpu.runtime import jit
from tests.machine import assuming
from tests.programs import run_python

_PACKAGE = Path(reorder.__file__).parent


def test_what_is_kept_on_disk_carries_the_digest_of_all_sources() -> None:
    reorder.reorder(np.zeros((3, 5), np.float32), "ba")
    compiled = jit._callbacks["interpreter of 32-bit elements"]  # noqa: SLF001 - what has the digest
    cache = compiled._cache._cache_file  # noqa: SLF001 - likewise
    digest = hashlib.sha256().digest_size
    content = Path(cache._index_path).read_bytes()[digest:]  # noqa: SLF001 - likewise
    version, stamp, names = pickle.loads(content)
    assert (version, stamp) == (numba.__version__, jit.digest_of(_PACKAGE))
    for name in names.values():
        code = Path(cache._data_path(name)).read_bytes()[digest:]  # noqa: SLF001 - likewise
        assert pickle.loads(code)[1] == stamp


def test_a_change_of_any_source_changes_the_digest(tmp_path: Path) -> None:
    for package in ("memdesc", "reorder"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(_PACKAGE.parent / package, tmp_path / package, ignore=ignored)
    digests = [jit.digest_of(_PACKAGE), jit.digest_of(tmp_path / "reorder")]
    assert digests[0] == digests[1]
    for name in (
        "reorder/cpu/tables.py",
        "reorder/cpu/target.py",
        "reorder/cpu/kernels/transpose.py",
        "reorder/cpu/schedule/program.py",
        "reorder/plan/nodes.py",
        "memdesc/dtypes.py",
    ):
        with (tmp_path / name).open("a", encoding="utf-8") as file:
            file.write("#")
        digests.append(jit.digest_of(tmp_path / "reorder"))
    assert len(set(digests[1:])) == len(digests[1:])


def test_functions_of_others_are_compiled_as_numba_does() -> None:
    codegen = cpu_target.target_context.codegen()
    libraries: list[type] = []

    def walk() -> int:
        libraries.append(codegen._library_class)  # noqa: SLF001 - what is exchanged meanwhile
        return 0

    with jit._modules_optimized_once():  # noqa: SLF001 - as `compile_callback` does
        walk()
    walk()
    assert libraries == [jit._Library, JITCodeLibrary]  # noqa: SLF001 - likewise
    assert numba.njit(lambda x: x + 1)(1) == 2


def test_a_running_compilation_is_timed() -> None:
    running: list[float] = []

    class Signature:
        return_type = numba.void

        @property
        def args(self) -> Any:
            """What is asked while the compilation runs."""
            running.append(jit.compiling_seconds())
            return (numba.int64,)

    before = sum(made["seconds"] for made in jit.compiled_kernels())
    assert jit.compiling_seconds() == 0
    jit.compile_callback(_nothing, Signature(), "a function that is timed")
    assert running[0] > before
    assert jit.compiling_seconds() == 0
    assert sum(made["seconds"] for made in jit.compiled_kernels()) > before


def _nothing(_: int) -> None:
    pass


def test_kernels_without_a_source_to_watch_are_compiled_all_the_same() -> None:
    names: dict[str, Any] = {}
    exec("def nothing(_): pass", names)
    compiled = jit.compile_callback(names["nothing"], numba.void(numba.int64), "nothing")
    assert compiled.address


_WARM = """
import logging
logging.basicConfig(level="INFO", format="%(name)s: %(message)s")
import numpy as np, reorder
from memdesc import Extra, memory_desc
x = np.random.default_rng(0).standard_normal((300, 500), np.float32)
assert (reorder.reorder(x, "ba").numpy() == x).all()
reorder.quantize(x, "s8", axis=0)
desc = memory_desc(x.shape, "s8", "AB16b16a4b").with_extra(Extra(s8s8_mask=1))
reorder.reorder(x, desc)
"""


def test_a_later_process_compiles_nothing_and_the_log_says_what_is_compiled(tmp_path: Path) -> None:
    logs = []
    for _ in range(2):
        ran = run_python("-c", _WARM, NUMBA_CACHE_DIR=str(tmp_path), **assuming(cores="2"))
        logs.append(ran.stderr)
    cold, warm = logs
    assert "reorder: compiled the kernel 'interpreter of 32-bit elements' in" in cold
    assert f"s: {tmp_path}" in cold
    assert "had no code for it" in cold
    assert warm == ""


_FIRST = """
import numpy as np, reorder
from reorder.cpu import compiled_kernels

x = np.random.default_rng(0).standard_normal((400, 500), np.float32)
for _ in range(9):
    x = x[1:]
    assert (reorder.reorder(x, "ba").numpy() == x).all()
    print(len(compiled_kernels()))
"""


def test_the_first_small_reorders_need_no_code_but_their_kernel() -> None:
    *first, last = run_python("-c", _FIRST, **assuming(cores="2")).stdout.split()
    assert first == ["1"] * 8
    assert int(last) > 1
