"""Interleaved rows of ik_llama.cpp: by the loops of its `repack_*`, stated byte by byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import reorder
from memdesc import MemdescError
from memdesc.record import record_desc
from tests.records import plain_scales, random_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

gguf = pytest.importorskip("gguf")


def q4_0_r8(rows: Bytes) -> Bytes:
    found = np.zeros(128, np.uint8)
    for run, k, i in np.ndindex(4, 8, 4):
        found[32 * run + 4 * k + i] = rows[k, 4 * run + i]
    return found


def q8_0_r8(rows: Bytes) -> Bytes:
    found = np.zeros(256, np.uint8)
    for run, k, i in np.ndindex(4, 8, 4):
        found[32 * run + 4 * k + i] = rows[k, i + 4 * run]
        found[32 * run + 4 * k + i + 128] = rows[k, i + 4 * run + 16]
    return found


def iq4_nl_r4(rows: Bytes) -> Bytes:
    found = np.zeros(64, np.uint8)
    for k, i in np.ndindex(4, 4):
        for first in (0, 4):
            low, high = rows[k, i + first], rows[k, i + first + 8]
            found[4 * k + i + 8 * first] = low & 15 | (high & 15) << 4
            found[4 * k + i + 8 * first + 16] = low >> 4 | high & 0xF0
    return found


FORMATS = [("q4_0", 8, q4_0_r8), ("q8_0", 8, q8_0_r8), ("iq4_nl", 4, iq4_nl_r4)]


@pytest.mark.parametrize(("name", "count", "interleave"), FORMATS)
@pytest.mark.parametrize("dims", [(8, 32), (24, 160)])
def test_rows_are_interleaved_as_ik_llama_does(
    dims: tuple[int, int], name: str, count: int, interleave: Callable[[Bytes], Bytes]
) -> None:
    rng = np.random.default_rng(0)
    record = plain_scales(random_record(record_desc(dims, name), rng), rng)
    blocks = record.data.reshape(dims[0], dims[1] // 32, -1)
    expected = [
        part
        for first in range(0, dims[0], count)
        for rows in blocks[first : first + count].swapaxes(0, 1)
        for part in (rows[:, :2].reshape(-1), interleave(rows[:, 2:]))
    ]
    packed = reorder.records.repack(record, f"{name}_r{count}")
    assert np.array_equal(packed.data, np.concatenate(expected))
    assert np.array_equal(reorder.records.repack(packed, name).data, record.data)
    values = gguf.dequantize(blocks.reshape(dims[0], -1), gguf.GGMLQuantizationType[name.upper()])
    assert np.array_equal(reorder.dequantize(packed).numpy(), values)


def test_rows_that_fill_no_block_are_refused() -> None:
    with pytest.raises(MemdescError, match=r"^q8_0_r8 needs a multiple of 8 along a \(dim 0\)"):
        record_desc((12, 64), "q8_0_r8")
