"""Tensors that are larger than memory, or than numpy's arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from memdesc.errors import OutOfMemoryError
from memdesc.record import record_desc
from tests.memory_limit import limited_memory

if TYPE_CHECKING:
    from collections.abc import Callable

_ROWS = 2**40
_REPEATED = memory_desc((_ROWS, 3), "f32", strides=(0, 1))
_MEMORY = reorder.Memory(_REPEATED, np.zeros(3, np.float32), zero_pad=False)


class Rows:
    """Exports a row many times by DLPack, as torch's `expand` does."""

    array = np.lib.stride_tricks.as_strided(np.zeros(3, np.float32), (_ROWS, 3), (0, 4))

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: reorder.Memory(memory_desc((2**60,), "u8", "a")), f"{2**60} bytes are more"),
        (
            lambda: reorder.records.Record(record_desc((_ROWS, 2**15), "q4_0")),
            "bytes are more memory",
        ),
        (
            lambda: reorder.reorder(Rows(), "ab"),
            f"{12 * _ROWS} bytes are more memory than is",
        ),
        (lambda: reorder.reorder(Rows.array, "ba", src="ab"), f"{12 * _ROWS} bytes"),
        (lambda: reorder.reorder(_MEMORY, "ab"), f"{12 * _ROWS} bytes"),
        (lambda: _MEMORY.numpy(copy=True), "needs more memory than is available: .*12.0 TiB"),
        (lambda: _MEMORY[:, 1], "needs more memory than is available"),
        (_REPEATED.layout.offsets, "needs more memory than is available"),
    ],
)
def test_what_memory_does_not_hold_is_refused_with_the_bytes(
    call: Callable[[], Any], reason: str
) -> None:
    with limited_memory(), pytest.raises(OutOfMemoryError, match=reason) as caught:
        call()
    assert isinstance(caught.value, MemdescError)
    assert isinstance(caught.value, MemoryError)


def test_rows_that_repeat_are_read_one_by_one() -> None:
    assert _MEMORY[_ROWS - 1, 2] == 0
    assert _MEMORY.numpy().shape == (_ROWS, 3)


def test_empty_tensors_beyond_the_arrays_of_numpy_are_moved_and_not_shown() -> None:
    memory = reorder.Memory(memory_desc((0, 2**40, 2**22), "f64", "abc"))
    assert reorder.reorder(memory, "cba").nbytes == 0
    for call in (memory.numpy, memory.blocks, lambda: memory.apply(np.exp)):
        with pytest.raises(MemdescError, match="dims that span more bytes than a numpy array"):
            call()
