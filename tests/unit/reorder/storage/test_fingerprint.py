from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from memdesc import MemdescError
from reorder.storage.fingerprint import Fingerprint, checksum, free_generation, of_data, of_file
from reorder.storage.npy import MAX_GENERATION, header_of, read_header


@pytest.mark.parametrize("nbytes", [0, 1, 4095, 2**20, 2**20 + 1, 3_000_001])
def test_bytes_in_memory_and_in_a_file_have_one_fingerprint(nbytes: int) -> None:
    data = np.random.default_rng(0).integers(0, 256, nbytes, np.uint8)
    header = header_of(data, 3)
    whole = header.raw + data.tobytes()
    file = io.BytesIO(whole)
    assert of_file(read_header(file), file, len(whole)) == of_data(header, data, len(whole))


@pytest.mark.parametrize("nbytes", [1000, 3_000_001])
def test_the_ends_the_header_the_size_and_the_generation_are_in_it(nbytes: int) -> None:
    data = np.zeros(nbytes, np.uint8)
    found = of_data(header_of(data, 1), data, nbytes)
    for at in (0, -1):
        other = data.copy()
        other[at] = 1
        assert not of_data(header_of(data, 1), other, nbytes).is_of(found)
        assert checksum(other) != checksum(data)
    assert not of_data(header_of(data, 2), data, nbytes).is_of(found)
    assert not of_data(header_of(data.view(np.int8), 1), data, nbytes).is_of(found)
    assert not of_data(header_of(data, 1), data, nbytes + 1).is_of(found)
    assert found._replace(checksum=3).is_of(found)


@pytest.mark.parametrize(
    "fields",
    [None, 3, [], {}, {"nbytes": 1, "generation": 1}]
    + [
        {"nbytes": 1, "generation": 1, "digest": "x", "checksum": 1} | change
        for change in (
            {"nbytes": "1"},
            {"generation": None},
            {"generation": True},
            {"digest": 3},
            {"checksum": "x"},
            {"checksum": 1.5},
        )
    ],
    ids=ascii,
)
def test_what_is_no_fingerprint_is_refused(fields: Any) -> None:
    with pytest.raises(MemdescError, match="'array' must have nbytes, generation, digest, check"):
        Fingerprint.from_json(fields)


def test_a_free_generation_is_none_of_the_taken_ones() -> None:
    assert free_generation(()) == 1
    assert free_generation({0}) == 1
    assert free_generation({3, 2}) == 4
    assert free_generation({MAX_GENERATION, 1}) == 2
    assert free_generation({10**9, 2}) == 3
