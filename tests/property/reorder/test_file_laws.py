"""Files give back what was saved; damaged ones are refused; a killed process leaves a whole one."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import reorder
from memdesc import MemdescError, MemoryDesc, memory_desc
from memdesc.record import record_desc
from reorder import Memory, Quantized, load, load_all, save
from reorder.checkpoints import save_raw
from reorder.records import Record
from tests.files import json_mutations, must_read_or_refuse, mutations, temporaries
from tests.strategies import descs

_FORMATS = ("safetensors", "npz")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as path:
        yield Path(path)


# What is saved is loaded


def _filled(desc: MemoryDesc, seed: int) -> Memory:
    """Return memory of random bytes, in gaps too; the padding holds zeros."""
    data = np.random.default_rng(seed).integers(0, 256, desc.nbytes, np.uint8)
    return Memory(desc, data)


def _check_equal(found: Memory, saved: Memory) -> None:
    assert found.desc == saved.desc
    assert found.data.tobytes() == saved.data.tobytes()


@given(desc=descs(max_nelems=2**12), kind=st.sampled_from(_FORMATS), seed=st.integers(0, 99))
def test_a_tensor_is_loaded_as_it_was_saved_and_copied(
    folder: Path, desc: MemoryDesc, kind: str, seed: int
) -> None:
    assume(not desc.has_broadcast)
    memory = _filled(desc, seed)
    save(folder / f"x.{kind}", memory)
    copied = shutil.copy(folder / f"x.{kind}", folder / f"y.{kind}")
    _check_equal(load(copied), memory)
    _check_equal(load(copied, mmap=True), memory)
    save_raw(folder / "x.bin", memory)
    assert (folder / "x.bin").read_bytes() == memory.data.tobytes()


@given(
    tensors=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
        descs(max_nelems=2**8),
        max_size=4,
    ),
    kind=st.sampled_from(_FORMATS),
)
@example(tensors={"empty": memory_desc((0, 1, 1), "f32", "bca")}, kind="safetensors")
def test_tensors_are_loaded_as_they_were_saved(
    folder: Path, tensors: dict[str, MemoryDesc], kind: str
) -> None:
    assume(not any(desc.has_broadcast for desc in tensors.values()))
    assume("__metadata__" not in tensors)
    saved = {name: _filled(desc, k) for k, (name, desc) in enumerate(tensors.items())}
    save(folder / f"x.{kind}", saved)
    found = load_all(folder / f"x.{kind}")
    assert found.keys() == saved.keys()
    for name, memory in saved.items():
        _check_equal(found[name], memory)


@given(desc=descs(max_nelems=2**8, max_ndims=4), seed=st.integers(0, 99))
def test_a_npy_is_the_tensor_or_is_refused(folder: Path, desc: MemoryDesc, seed: int) -> None:
    assume(not desc.has_broadcast)
    memory = _filled(desc, seed)
    path = folder / "x.npy"
    path.unlink(missing_ok=True)
    try:
        save(path, memory)
    except MemdescError:
        assert not path.exists()
        assert desc != memory_desc(desc.dims, desc.dtype) or desc.dtype.numpy.isbuiltin != 1
    else:
        _check_equal(load(path), memory)
        found = np.load(path)
        assert (found.dtype, found.shape) == (desc.dtype.numpy, desc.dims)
        assert found.tobytes() == memory.numpy().tobytes()


# Damaged files


@lru_cache(maxsize=8)
def _saved(kind: str) -> bytes:
    with TemporaryDirectory() as path:
        file = Path(path) / f"x.{kind.removesuffix('-compressed')}"
        x = np.ones((2, 32), np.float32)
        if kind == "npz-compressed":
            np.savez_compressed(file, x=x, y=np.zeros(9, np.int8))
        elif kind == "npy":
            np.save(file, x)
        else:
            tensors: dict[str, Any] = {
                "x": reorder.reorder(x, "aB8b"),
                "y": np.zeros(9, np.int8),
                "q": reorder.quantize(x, "u8", axis=0),
                "r": Record(record_desc((32, 8), "awq", group=32)),
            }
            save(file, tensors)
        return file.read_bytes()


@given(st.data())
def test_a_damaged_file_is_read_or_refused(folder: Path, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["npy", "npz", "npz-compressed", "safetensors"]))
    whole = _saved(kind)
    changed = data.draw(mutations(whole))
    if kind == "safetensors" and data.draw(st.booleans()):
        length = int.from_bytes(whole[:8], "little")
        header = json.loads(whole[8 : 8 + length])
        described = header["__metadata__"]
        for name in described:
            if data.draw(st.booleans()):
                described[name] = data.draw(json_mutations(json.loads(described[name]))).decode()
        text = json.dumps(header).encode()
        changed = len(text).to_bytes(8, "little") + text + whole[8 + length :]
    path = folder / f"x.{kind.removesuffix('-compressed')}"
    path.write_bytes(changed)
    must_read_or_refuse(lambda: load_all(path, Memory))
    must_read_or_refuse(lambda: load_all(path, Quantized))
    must_read_or_refuse(lambda: load_all(path, Record))


# Processes that save tensors of several layouts over each other. They are equal but for the number
# that was added to all elements, which says which of them was written, and its layout.

_SHAPE = (1, 16, 40, 48)
_DESCS = [memory_desc(_SHAPE, "u8", tag) for tag in ("abcd", "acdb", "aBcd8b", "aBcd16b", "cdab")]
_X = np.arange(np.prod(_SHAPE)).reshape(_SHAPE).astype(np.uint8)
_SAVER = """
import sys, threading
import numpy as np
from memdesc import MemoryDesc
from reorder import Memory, save
path, tensors, first, count, threads, *descs = sys.argv[1:]
tensors, descs = np.load(tensors), list(map(MemoryDesc.from_json, descs))
def work(first):
    for number in range(first, first + int(count)):
        k = number % len(descs)
        if threads == "1":
            print(number, flush=True)
        save(path, Memory(descs[k], tensors[k] + np.uint8(number % 251)))
threads_ = [threading.Thread(target=work, args=(int(first) + k,)) for k in range(int(threads))]
for thread in threads_: thread.start()
for thread in threads_: thread.join()
"""


class _Savers:
    """A folder, and processes that save to one file in it."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "folder"
        self.folder.mkdir()
        self.path, self._tensors = self.folder / "x.safetensors", home / "tensors.npy"
        np.save(self._tensors, np.stack([reorder.reorder(_X, desc).data for desc in _DESCS]))
        save(self.path, reorder.reorder(_X, _DESCS[0]))

    def start(self, first: int, count: int, threads: int) -> subprocess.Popen[str]:
        numbers = map(str, (first, count, threads))
        words = [str(self.path), str(self._tensors), *numbers, *map(MemoryDesc.to_json, _DESCS)]
        return subprocess.Popen(
            [sys.executable, "-c", _SAVER, *words], stdout=subprocess.PIPE, text=True
        )


@pytest.mark.parametrize("count", [3, pytest.param(500, marks=pytest.mark.campaign)])
@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGTERM])
def test_killed_processes_leave_one_whole_tensor(
    tmp_path: Path, kind: signal.Signals, count: int
) -> None:
    """Kill processes that save in a loop, at random moments, and check what each leaves."""
    savers = _Savers(tmp_path)
    chance = random.Random(count)
    found = {"older": 0, "newer": 0, "temporaries": 0}
    number = 1
    for _ in range(count):
        with savers.start(number, 10**6, 1) as saver:
            assert saver.stdout is not None
            saver.stdout.readline()
            time.sleep(chance.random() * 0.05)
            saver.send_signal(kind)
            begun = [number, *map(int, saver.stdout.read().split())]
        assert saver.returncode == -kind
        number = begun[-1]
        assert len(temporaries(savers.folder)) <= 1
        for left in temporaries(savers.folder):
            found["temporaries"] += 1
            left.unlink()
        memory = load(savers.path)
        values = memory.numpy()
        written = int(values[0, 0, 0, 0])
        assert written in {number % 251, (number - 1) % 251}
        assert np.array_equal(values, _X + np.uint8(written))
        found["newer" if written == number % 251 else "older"] += 1
        number -= written != number % 251
        assert memory.desc == _DESCS[number % len(_DESCS)]
        number += 1
    sys.stdout.write(f"{kind.name}: {found}\n")


@pytest.mark.parametrize("count", [20, pytest.param(2000, marks=pytest.mark.campaign)])
def test_of_many_savers_of_one_path_the_last_one_wins_whole(tmp_path: Path, count: int) -> None:
    """Let four threads of two processes save to one path; what is loaded meanwhile is whole."""
    savers = _Savers(tmp_path)
    with ExitStack() as stack:  # it waits for them, even after an error
        started = [stack.enter_context(savers.start(first, count, 2)) for first in (0, 3)]
        running = True
        while running:
            # one load more, when all have ended
            running = any(saver.poll() is None for saver in started)
            try:
                values = load(savers.path).numpy()
            except MemdescError as error:
                assert running, error
                assert "has changed since it was opened" in str(error)
            else:
                assert np.array_equal(values, _X + values[0, 0, 0, 0])
    assert [saver.returncode for saver in started] == [0, 0]
    assert [file.name for file in savers.folder.iterdir()] == ["x.safetensors"]
