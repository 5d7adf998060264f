"""The state of a file says when it was replaced, and entries with notes may be members of sets."""

import os
from pathlib import Path
from time import time_ns

import numpy as np

from reorder import quantize, save
from reorder.checkpoints.formats.entry import FileState
from reorder.checkpoints.formats.table import read_container

# FAT gives the same time to all that is written within 2 s
_STEP = 2 * 10**9


def _replaced_at(path: Path, age: int) -> tuple[bool, int]:
    """Return whether a replacement of the same size and time is noticed, and when that was."""
    path.write_bytes(b"one")
    then = time_ns() - age
    os.utime(path, ns=(then, then))
    state = FileState.at(path)
    until = time_ns()
    other = path.with_name("other")
    other.write_bytes(b"two")
    os.utime(other, ns=(then, then))
    other.replace(path)
    return not state.is_at(path), until - then


def test_a_new_file_that_is_replaced_within_a_step_of_the_clock_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    # on a busy machine, a file may be older than a step before its state is taken
    seen = (_replaced_at(path, _STEP * 19 // 20) for _ in range(100))
    assert next(is_noticed for is_noticed, age in seen if age < _STEP)
    # the number of an older file may change by itself
    is_noticed, _ = _replaced_at(path, _STEP * 21 // 20)
    assert not is_noticed


def test_a_tensor_with_a_note_may_be_a_member_of_a_set(tmp_path: Path) -> None:
    save(tmp_path / "x.safetensors", quantize(np.ones((4, 8), np.float32), "s8"))
    found = [read_container(tmp_path / "x.safetensors").entries["tensor"] for _ in range(2)]
    assert found[0].note
    assert len({*found}) == 1
