"""Fields of records as arrays of zarr."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import memdesc
import reorder
from memdesc import MemdescError
from tests.unit.reorder.zarr_arrays import chunk_bytes, create

pytestmark = pytest.mark.peers

pytest.importorskip("zarr", minversion="3.1", reason="zarr is not installed")

_RNG = np.random.default_rng(0)

# those of one tensor
_BLOCKS = [
    name
    for name in memdesc.record.known_records()
    if len(memdesc.record.record_desc((256, 256), name).tensors) == 1
]


@pytest.mark.parametrize("name", _BLOCKS)
def test_chunks_hold_the_fields_of_a_record_and_make_it_again(name: str) -> None:
    desc = memdesc.record.record_desc((32, 512), name)
    record = reorder.records.Record(desc, _RNG.integers(0, 256, desc.nbytes, np.uint8))
    again = reorder.records.Record(desc)
    nbytes = 0
    for part in desc.fields:
        store: dict[str, Any] = {}
        bits = record.field(part.name)
        whole = {"u4": np.uint8, "s4": np.int8}.get(part.kind)
        values = bits if whole is None else bits.astype(whole)
        chunks = (8, values.shape[1])
        array = create(store, values, f"{name}.{part.name}", chunks=chunks)
        nbytes += sum(len(chunk_bytes(store, k, 0)) for k in range(4))
        assert np.array_equal(array[7:9, 1:], values[7:9, 1:], equal_nan=part.kind == "f16")
        again.set_field(part.name, array[...])
    assert nbytes == desc.nbytes
    assert again.data.tobytes() == record.data.tobytes()


def test_the_order_of_a_field_is_that_of_its_record() -> None:
    store: dict[str, Any] = {}
    codes = np.arange(64, dtype=np.uint8).reshape(1, 64) % 16
    create(store, codes, "q4_0.qs", chunks=(1, 64))
    record = reorder.records.Record(memdesc.record.record_desc((1, 64), "q4_0"))
    record.set_field("qs", codes)
    assert chunk_bytes(store, 0, 0) == record.data.reshape(2, 18)[:, 2:].tobytes()


@pytest.mark.parametrize(
    ("layout", "dtype", "shape", "reason"),
    [
        ("q4_0.q", None, (4, 64), "no field"),
        ("q4_0.qs", None, (4, 65), "blocks of 32"),
        ("q4_0.qs", "u8", (4, 64), "already has a type"),
        ("gptq.qweight", None, (4,), "dims"),
        ("q6_k", None, (4, 256), r"'q6_k' is a record.*q6_k\.ql, q6_k\.qh, q6_k\.sc, q6_k\.d$"),
        (
            "q9_k.qh",
            None,
            (4, 256),
            r"unknown format 'q9_k\.qh'.*may be a field.*of the records q4_0",
        ),
        ("q9_k", None, (4, 256), "neither an outer part.*'fsv16'$"),
    ],
)
def test_fields_that_do_not_fit_are_refused(
    layout: str, dtype: str | None, shape: tuple[int, ...], reason: str
) -> None:
    with pytest.raises(MemdescError, match=reason):
        create({}, np.zeros(shape, np.uint8), layout, dtype, chunks=shape)


def test_planes_are_for_arrays_of_integers_that_they_hold() -> None:
    with pytest.raises(MemdescError, match="holds u2: the array must be of integers, not float32"):
        create({}, np.zeros((4, 256), np.float32), "q6_k.qh", chunks=(4, 256))
    with pytest.raises(MemdescError, match="holds u2, 0 to 3, but at"):
        create({}, np.full((4, 256), 4, np.uint8), "q6_k.qh", chunks=(4, 256))
