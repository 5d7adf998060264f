"""Files of compiled kernels that are truncated or damaged are compiled again and replaced."""

from __future__ import annotations

import glob
import hashlib
import random
from typing import TYPE_CHECKING

import pytest

from reorder.cpu.runtime import jit
from tests.machine import assuming
from tests.programs import run_python

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


_LARGE = """
import numpy as np, reorder
x = np.random.default_rng(0).random((2500, 2500), np.float32)
assert (reorder.reorder(x, "ba").numpy() == x).all()
"""
_INTERPRETERS = """
assert (reorder.reorder(x[:9].astype(np.float64), "ba").numpy() == x[:9]).all()
assert (reorder.reorder(x[:5, :7], "ba", dtype="f64").numpy() == x[:5, :7]).all()
"""
# two kernels of one function, and one of another
_KERNELS = """
import numpy as np, reorder
x = np.arange(63, dtype=np.float32).reshape(9, 7)
for dtype in ("f64", "s32"):
    assert (reorder.reorder(x, dtype=dtype).numpy() == x).all()
"""


def _run(folder: Path, *, uses_pool: bool) -> None:
    program = (_LARGE + _INTERPRETERS) * uses_pool + _KERNELS
    machine = assuming(cores="2" if uses_pool else "1")
    run_python("-c", program, NUMBA_CACHE_DIR=str(folder), **machine)


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix in {".nbi", ".nbc"})


def _times(folder: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for file in _files(folder)}


def _truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.choice([0, 1, 31, 32, len(data) // 2, len(data) - 1])]


def _flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 8, 200])):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _of_another_numba(_data: bytes, _rng: random.Random) -> bytes:
    content = b"cnumba.core.types.of_another_version\nType\n."
    return hashlib.sha256(content).digest() + content


def _exchange(files: list[Path]) -> None:
    """Exchange the code of files, as two processes that compile at the same time may."""
    contents = [file.read_bytes() for file in files]
    for file, content in zip(files, [*contents[1:], contents[0]], strict=True):
        file.write_bytes(content)


@pytest.mark.parametrize("damage", [_truncate, _flip, _of_another_numba])
@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_a_damaged_file_is_as_if_it_were_not_there(
    damage: Callable[[bytes, random.Random], bytes], suffix: str, tmp_path: Path
) -> None:
    rng = random.Random(0)
    cache = jit._CacheFile(str(tmp_path), "kernel", "stamp")  # noqa: SLF001 - as numba calls it
    for _ in range(100):
        cache.save("key", b"code")
        assert cache.load("key") == b"code"
        (file,) = tmp_path.glob(f"*{suffix}")
        file.write_bytes(damage(file.read_bytes(), rng))
        assert cache.load("key") is None


# a campaign has thirty rounds in three parts, with interpreters and the code of the pool
@pytest.mark.parametrize(
    ("rounds", "seed"),
    [(1, 0), *(pytest.param(10, part, marks=pytest.mark.campaign) for part in range(1, 4))],
)
def test_damaged_files_of_kernels_are_compiled_again_and_replaced(
    rounds: int, seed: int, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    uses_pool = rounds > 1
    _run(tmp_path, uses_pool=uses_pool)
    for number in range(rounds):
        written = _times(tmp_path)
        for position, index in enumerate(sorted(tmp_path.rglob("*.nbi"))):
            code = sorted(index.parent.glob(f"{glob.escape(index.stem)}.*.nbc"))
            assert code
            kind = (number + position) % 3
            if len(code) > 1 and not number % 2:
                _exchange(code)
            elif kind:
                for file in code:
                    file.write_bytes((_truncate, _flip)[kind - 1](file.read_bytes(), rng))
            else:
                index.write_bytes(rng.choice([_truncate, _flip])(index.read_bytes(), rng))
        _run(tmp_path, uses_pool=uses_pool)
        replaced = _times(tmp_path)
        assert set(replaced) == set(written)
        _run(tmp_path, uses_pool=uses_pool)
        assert _times(tmp_path) == replaced
