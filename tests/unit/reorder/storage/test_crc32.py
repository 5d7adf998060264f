from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdesc import MemdescError
from reorder.storage.crc32 import combine, crc32_of_file

if TYPE_CHECKING:
    from pathlib import Path


@given(st.binary(), st.binary())
def test_the_checksum_of_parts_is_that_of_all(one: bytes, other: bytes) -> None:
    assert combine(zlib.crc32(one), zlib.crc32(other), len(other)) == zlib.crc32(one + other)


@pytest.mark.parametrize("nbytes", [0, 1, 2**20 + 1, 2**26 + 3])
def test_files_are_summed_by_several_threads(tmp_path: Path, nbytes: int) -> None:
    data = np.random.default_rng(0).integers(0, 256, nbytes + 5, np.uint8).tobytes()
    (tmp_path / "x").write_bytes(data)
    assert crc32_of_file(tmp_path / "x", 5, nbytes) == zlib.crc32(data[5:])
    with pytest.raises(MemdescError, match="became shorter"):
        crc32_of_file(tmp_path / "x", 6, nbytes + 1)
