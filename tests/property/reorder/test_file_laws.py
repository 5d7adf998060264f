"""Damaged files are read rightly or refused; a process that is killed leaves one whole tensor."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reorder
from memdesc import memory_desc, to_json
from reorder import Memory, load, load_archive, save, save_archive
from reorder.storage.files import sidecar
from tests.files import json_mutations, must_read_or_refuse, mutations, temporaries

if TYPE_CHECKING:
    from collections.abc import Iterator

_LAYOUTS = ("abcd", "aBcd8b", "bf8_xy16", "ABcd4a/1.8b8a/4.4b")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as path:
        yield Path(path)


@lru_cache(maxsize=8)
def _saved(tag: str) -> tuple[bytes, bytes]:
    """Return the bytes of the two files of a tensor that was written over another."""
    with TemporaryDirectory() as path:
        file = Path(path) / "x.npy"
        for _ in range(2):
            save(file, reorder.reorder(np.ones((2, 3, 2, 2), np.float32), tag))
        return file.read_bytes(), sidecar(file).read_bytes()


@lru_cache(maxsize=2)
def _archived(is_compressed: bool) -> bytes:
    with TemporaryDirectory() as path:
        file = Path(path) / "x.npz"
        x = np.ones((2, 3), np.float32)
        if is_compressed:
            np.savez_compressed(file, x=x, y=np.zeros(9, np.int8))
        else:
            save_archive(file, {"x": reorder.reorder(x, "aB8b"), "y": np.zeros(9, np.int8)})
        return file.read_bytes()


def _check_array(folder: Path, data: st.DataObject) -> None:
    whole, text = _saved(data.draw(st.sampled_from(_LAYOUTS)))
    # what is changed, and whether there is a descriptor, with or without a fingerprint
    case = data.draw(st.sampled_from(["array", "plain", "untied", "text", "fields", "fields"]))
    fields = json.loads(text)
    if case in {"untied", "fields"} and data.draw(st.booleans()):
        del fields["array"], fields["before"]
    match case:
        case "array" | "plain" | "untied":
            changed, beside = data.draw(mutations(whole)), json.dumps(fields).encode()
        case "text":
            changed, beside = whole, data.draw(mutations(text))
        case _:
            changed, beside = whole, data.draw(json_mutations(fields))
    (folder / "x.npy").write_bytes(changed)
    sidecar(folder / "x.npy").write_bytes(beside)
    if case == "plain":
        sidecar(folder / "x.npy").unlink()
    is_read = must_read_or_refuse(lambda: load(folder / "x.npy"))
    if case == "array":
        assert not is_read or changed == whole


def _check_archive(folder: Path, data: st.DataObject) -> None:
    whole = _archived(data.draw(st.booleans()))
    (folder / "x.npz").write_bytes(data.draw(mutations(whole)))
    must_read_or_refuse(lambda: load_archive(folder / "x.npz"))


@given(st.data())
def test_a_damaged_array_or_descriptor_is_read_rightly_or_refused(
    folder: Path, data: st.DataObject
) -> None:
    _check_array(folder, data)


@given(st.data())
def test_a_damaged_archive_is_read_rightly_or_refused(folder: Path, data: st.DataObject) -> None:
    _check_archive(folder, data)


# With the strings of `test_string_laws` a million.
@pytest.mark.campaign
@pytest.mark.parametrize("part", range(1, 6))
@settings(max_examples=50_000)
@given(st.data())
def test_fifty_thousand_damaged_arrays_and_descriptors(
    folder: Path, part: int, data: st.DataObject
) -> None:
    del part  # each draws other changes
    _check_array(folder, data)


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(1, 6))
@settings(max_examples=50_000)
@given(st.data())
def test_fifty_thousand_damaged_archives(folder: Path, part: int, data: st.DataObject) -> None:
    del part  # each draws other changes
    _check_archive(folder, data)


# Killed processes. Each saves tensors of several layouts over each other. They are equal but for
# the number that was added to all elements, which says which of them was written, and its layout.

_SHAPE = (1, 16, 40, 48)
_DESCS = [memory_desc(_SHAPE, "u8", tag) for tag in ("abcd", "acdb", "aBcd8b", "aBcd16b", "cdab")]
_SAVER = """
import itertools, sys
import numpy as np
from memdesc import from_json
from reorder import Memory, save
path, tensors, first, *descs = sys.argv[1:]
tensors, descs = np.load(tensors), list(map(from_json, descs))
for number in itertools.count(int(first)):
    k = number % len(descs)
    print(number, flush=True)
    save(path, Memory(descs[k], tensors[k] + np.uint8(number % 251)))
"""


def _kill_savers(folder: Path, count: int, kind: signal.Signals) -> dict[str, int]:
    """Kill processes that save in a loop, at random moments, and check what each leaves."""
    path, tensors = folder / "x.npy", folder.parent / "tensors.npy"
    x = np.arange(np.prod(_SHAPE)).reshape(_SHAPE).astype(np.uint8)
    np.save(tensors, np.stack([reorder.reorder(x, desc).data for desc in _DESCS]))
    chance = random.Random(count)  # noqa: S311 - moments, not secrets
    found = {"older": 0, "newer": 0, "temporaries": 0}
    save(path, Memory(_DESCS[0], reorder.reorder(x, _DESCS[0]).data))
    number = 1
    for _ in range(count):
        arguments = [str(path), str(tensors), str(number), *map(to_json, _DESCS)]
        saver = subprocess.Popen(
            [sys.executable, "-c", _SAVER, *arguments], stdout=subprocess.PIPE, text=True
        )
        with saver:
            assert saver.stdout is not None
            saver.stdout.readline()
            time.sleep(chance.random() * 0.05)
            saver.send_signal(kind)
            begun = [number, *map(int, saver.stdout.read().split())]
        assert saver.returncode == -kind
        number = begun[-1]
        found["temporaries"] += len(temporaries(folder))
        assert len(temporaries(folder)) <= 1
        memory = load(path, verify=True)
        assert isinstance(memory, Memory)
        values = memory.numpy()
        written = int(values[0, 0, 0, 0])
        assert written in {number % 251, (number - 1) % 251}
        assert np.array_equal(values, x + np.uint8(written))
        found["newer" if written == number % 251 else "older"] += 1
        number -= written != number % 251
        assert memory.desc == _DESCS[number % len(_DESCS)]
        number += 1
    return found


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_process_leaves_one_whole_tensor(tmp_path: Path, kind: signal.Signals) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    _kill_savers(folder, 3, kind)
    _save_in_another_process(folder)
    assert not temporaries(folder)


@pytest.mark.campaign
@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGTERM])
def test_five_hundred_killed_processes_leave_whole_tensors(
    tmp_path: Path, kind: signal.Signals
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    found = _kill_savers(folder, 500, kind)
    sys.stdout.write(f"{kind.name}: {found}\n")
    _save_in_another_process(folder)
    assert not temporaries(folder)


# Savers of one path: each thread of each process saves tensors over those of the others.

_SAVERS = """
import sys, threading
import numpy as np
from memdesc import from_json
from reorder import Memory, save
path, tensors, first, count, *descs = sys.argv[1:]
tensors, descs = np.load(tensors), list(map(from_json, descs))
def work(first):
    for number in range(first, first + int(count)):
        k = number % len(descs)
        save(path, Memory(descs[k], tensors[k] + np.uint8(number % 251)))
threads = [threading.Thread(target=work, args=(int(first) + k,)) for k in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def _check_savers(folder: Path, count: int) -> None:
    """Let four threads of two processes save to one path; what is loaded meanwhile is whole."""
    path, tensors = folder / "x.npy", folder.parent / "tensors.npy"
    x = np.arange(np.prod(_SHAPE)).reshape(_SHAPE).astype(np.uint8)
    np.save(tensors, np.stack([reorder.reorder(x, desc).data for desc in _DESCS]))
    save(path, Memory(_DESCS[0], reorder.reorder(x, _DESCS[0]).data))
    savers = []
    for first in (0, 3):
        arguments = [str(path), str(tensors), str(first), str(count), *map(to_json, _DESCS)]
        savers.append(subprocess.Popen([sys.executable, "-c", _SAVERS, *arguments]))
    running = True
    while running:
        # one load more, when all have ended
        running = any(saver.poll() is None for saver in savers)
        memory = load(path, verify=True)
        assert isinstance(memory, Memory)
        values = memory.numpy()
        assert np.array_equal(values, x + values[0, 0, 0, 0])
    assert [saver.wait() for saver in savers] == [0, 0]
    assert sorted(file.name for file in folder.iterdir()) == ["x.npy", "x.npy.json"]


@pytest.mark.skipif(os.name != "posix", reason="folders are locked on POSIX systems only")
@pytest.mark.parametrize("count", [20, pytest.param(2000, marks=pytest.mark.campaign)])
def test_of_many_savers_of_one_path_the_last_one_wins_whole(tmp_path: Path, count: int) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    _check_savers(folder, count)


def _save_in_another_process(folder: Path) -> None:
    """Save anything; a process looks for abandoned files once, and this one has done so."""
    code = (
        "import sys, reorder, memdesc\n"
        "desc = memdesc.memory_desc((3,), 'u8', 'a')\n"
        "reorder.save(sys.argv[1], reorder.Memory(desc))"
    )
    subprocess.run([sys.executable, "-c", code, str(folder / "y.npy")], check=True)
