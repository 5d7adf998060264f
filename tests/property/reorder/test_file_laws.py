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
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import reorder
from memdesc import MemdescError, MemoryDesc, memory_desc
from memdesc.record import record_desc
from reorder import Memory, Quantized, load, load_all, save
from reorder.checkpoints import save_raw
from reorder.checkpoints.formats.entry import Tensor
from reorder.checkpoints.formats.safetensors import plan_shards
from reorder.checkpoints.writer import Writer
from reorder.records import Record
from tests.files import json_mutations, must_read_or_refuse, mutations, temporaries
from tests.headers import initializer, message_field, number_field, pair, safetensors_bytes
from tests.strategies import descs
from tests.writers import write_tensors

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


# Damaged files and checkpoints

_MAX_MESSAGE = 1000
_BLOCKED = memory_desc((5, 3), "f32", "Ab4a")
_TENSORS = [
    Tensor("blocked", "u8", (_BLOCKED.nbytes,), _BLOCKED.nbytes, _BLOCKED),
    Tensor("bf16", "bf16", (2, 3), 12),
    Tensor("f32", "f32", (3,), 12),
    Tensor("q4", "u8", (18,), 18, record_desc((1, 32), "q4_0")),
]
# the first three hold what was saved, and others what was converted
_KINDS = (
    *("saved.npy", "saved.npz", "compressed.npz", "saved.safetensors"),
    *("x.safetensors", "x.gguf", "x.npz", "x.onnx", "external.onnx", "shards"),
)


def _onnx(*, is_external: bool) -> bytes:
    """Return a model of two initializers, of 12 bytes in the model or outside."""
    places = {"location": "w.bin", "offset": "4", "length": "12"}.items()
    outside = b"".join(message_field(13, pair(key, value)) for key, value in places)
    data = outside + number_field(14, 1) if is_external else message_field(9, bytes(12))
    initializers = b"".join(
        initializer(name, kind, (3,), data)
        for name, kind in (("a", 1), ("b", 6))[: 1 if is_external else 2]
    )
    node = message_field(1, message_field(4, b"Relu"))
    described = pair("memdesc.a", memory_desc((1, 3), "f32", "ba").to_json())
    return (
        number_field(1, 10) + message_field(7, node + initializers) + message_field(14, described)
    )


@lru_cache(maxsize=16)
def _whole(kind: str) -> dict[str, bytes]:
    """Return the files of a kind, the one that is opened first."""
    if kind.endswith("onnx"):
        return {kind: _onnx(is_external=kind.startswith("external")), "w.bin": bytes(16)}
    x = np.ones((2, 32), np.float32)
    with TemporaryDirectory() as path:
        home = Path(path)
        if kind == "saved.npy":
            save(home / kind, x)
        elif kind == "compressed.npz":
            np.savez_compressed(home / kind, x=x, y=np.zeros(9, np.int8))
        elif kind.startswith("saved"):
            record = Record(record_desc((32, 8), "awq", group=32))
            quantized = reorder.quantize(x, "u8", axis=0)
            tensors: dict[str, Any] = {
                "x": reorder.reorder(x, "aB8b"),
                "y": x,
                "q": quantized,
                "r": record,
            }
            save(home / kind, tensors)
        elif kind == "shards":
            with Writer(home / "m", plan_shards(_TENSORS, {"a": "b"}, 50), is_folder=True) as w:
                w.finish()
            home /= "m"
        else:
            write_tensors(home / kind, _TENSORS, metadata={"a": "b"} if kind != "x.npz" else {})
        names = sorted(home.iterdir(), key=lambda file: (file.suffix == ".json", file.name))
        return {file.name: file.read_bytes() for file in names}


def _read_all(path: Path) -> str:
    """Open a checkpoint and read what can be read; returns "read", or "refused"."""
    try:
        checkpoint = reorder.open_checkpoint(path)
    except MemdescError as error:
        assert len(str(error)) < _MAX_MESSAGE
        return "refused"
    with checkpoint:
        for tensor in checkpoint.values():
            assert tensor.data.nbytes == tensor.nbytes
            try:
                array = tensor.numpy()
            except MemdescError as error:
                assert len(str(error)) < _MAX_MESSAGE
            else:
                assert array.nbytes <= 64 * max(tensor.nbytes, 1)
    return "read"


def _damaged(data: st.DataObject, name: str, whole: bytes) -> bytes:
    """Change bytes, or the JSON of a file or in it."""
    if name.endswith(".json") and data.draw(st.booleans()):
        return data.draw(json_mutations(json.loads(whole)))
    if not name.endswith(".safetensors") or data.draw(st.booleans()):
        return data.draw(mutations(whole))
    end = 8 + int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8:end])
    described = header.get("__metadata__", {})
    for key in [key for key in described if key.startswith("memdesc")]:
        if data.draw(st.booleans()):
            described[key] = data.draw(json_mutations(json.loads(described[key]))).decode()
    text = data.draw(json_mutations(header)) if data.draw(st.booleans()) else header
    return safetensors_bytes(text, whole[end:])


@settings(max_examples=settings().max_examples // 4)
@pytest.mark.parametrize("kind", _KINDS)
@given(data=st.data())
def test_damaged_files_are_read_or_refused(folder: Path, kind: str, data: st.DataObject) -> None:
    files = dict(_whole(kind))
    # the least example is whole
    if data.draw(st.booleans()):
        name = data.draw(st.sampled_from(sorted(files)))
        files[name] = _damaged(data, name, files[name])
    for old in folder.iterdir():
        old.unlink()
    for file, content in files.items():
        (folder / file).write_bytes(content)
    path = folder if kind == "shards" else folder / next(iter(files))
    is_read = _read_all(path) == "read"
    # checkpoints are not compressed
    assert is_read or files != _whole(kind) or kind == "compressed.npz"
    if kind.endswith((".npy", ".npz", ".safetensors")):
        for wanted in (Memory, Quantized, Record):
            must_read_or_refuse(partial(load_all, path, wanted))


@pytest.mark.parametrize(
    "changed",
    [
        {"dims": [2**40, 3], "strides": [0, 1], "padded_dims": [2**40, 3]},
        {"dims": [0, 2**62], "strides": [2**62, 1], "padded_dims": [0, 2**62]},
    ],
)
def test_descriptors_that_repeat_elements_are_refused(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    desc = (
        json.loads(memory_desc((1, 3), "f32", "ba").to_json())
        | changed
        | {"inner_blks": [], "inner_idxs": []}
    )
    header: dict[str, Any] = {
        "__metadata__": {"memdesc.a": json.dumps(desc)},
        "a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]},
    }
    path = tmp_path / "x.safetensors"
    path.write_bytes(safetensors_bytes(header, bytes(12)))
    with pytest.raises(MemdescError, match=r"repeats elements|has 12 bytes, but"):
        reorder.open_checkpoint(path)


def test_the_package_reads_the_undamaged_gguf(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(_whole("x.gguf")["x.gguf"])
    reader = gguf.GGUFReader(tmp_path / "x.gguf")
    assert [tensor.name for tensor in reader.tensors] == [each.name for each in _TENSORS]


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
