"""The codec of zarr v3, with the real zarr, and with Dask on top."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import memdesc
import reorder
from memdesc import MemdescError
from tests.unit.reorder.zarr_arrays import chunk_bytes, create

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.peers

zarr = pytest.importorskip("zarr", minversion="3.1", reason="zarr is not installed")
MemdescCodec = pytest.importorskip("reorder.zarr").MemdescCodec

_RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    "name",
    ["channels_last", "dnnl::memory::format_tag::nhwc", "200x1x50x10", "f32::blocked:acdb::f0"],
)
def test_a_layout_has_any_name(name: str) -> None:
    store: dict[str, Any] = {}
    x = _RNG.random((2, 10, 4, 5), np.float32)
    array = create(store, x, name, chunks=x.shape)
    assert (array[...] == x).all()
    assert chunk_bytes(store, 0, 0, 0, 0) == reorder.reorder(x, "nhwc").data.tobytes()


def test_a_chunk_holds_the_bytes_of_the_layout_with_its_padding() -> None:
    store: dict[str, Any] = {}
    x = _RNG.random((3, 40, 5, 4), np.float32)
    array = create(store, x, "nChw16c", chunks=(2, 20, 5, 4), fill_value=7)
    assert (array[...] == x).all()
    edge = np.full((2, 20, 5, 4), 7, np.float32)
    edge[:1] = x[2:, 20:]
    stored = chunk_bytes(store, 1, 1, 0, 0)
    assert stored == reorder.reorder(edge, "nChw16c").data.tobytes()
    codec = array.metadata.codecs[0]
    desc = codec.chunk_desc(array.chunks, array.dtype)
    named = memdesc.data_type(array.dtype)
    assert codec.chunk_desc(array.chunks, named) == codec.chunk_desc(array.chunks, named.name)
    assert codec.chunk_desc(array.chunks, named) == desc
    assert desc == memdesc.memory_desc((2, 20, 5, 4), "f32", "nChw16c")
    reorder.Memory(desc, np.frombuffer(stored, np.uint8), zero_pad=False).check_padding()


@pytest.mark.parametrize("layout", ["plain", "bacd", "nChw16c", "b_fs_yx_fsv16", "in_out_channel"])
def test_slices_are_those_of_numpy(layout: str) -> None:
    x = _RNG.random((3, 40, 5, 4), np.float32)
    array = create({}, x, layout, chunks=(2, 20, 3, 4))
    assert (array[1, 17:22] == x[1, 17:22]).all()
    assert (array[:, ::7, 4, 1:3] == x[:, ::7, 4, 1:3]).all()
    assert (array.oindex[[0, 2], [1, 30]] == x[[0, 2]][:, [1, 30]]).all()
    assert (array.blocks[1, 1] == x[2:, 20:]).all()
    array[1:, 19:21, 2] = x[1:, 19:21, 2] = -1
    assert (array[...] == x).all()


def test_chunks_that_were_not_written_are_the_fill_value() -> None:
    store: dict[str, Any] = {}
    array = create(store, np.full((4, 9), 5, np.float32), "Ab8a", chunks=(2, 9), fill_value=5)
    assert [key for key in store if key.startswith("c/")] == []
    array[0, 3] = 1
    assert array[:2].sum() == 5 * 18 - 4
    assert (array[2:] == 5).all()


@pytest.mark.parametrize(
    ("dtype", "layout", "size"),
    [("u4", "gptq", 2), ("s4", "BA4a2b", 2), ("u8", "gptq", 1), ("f4_e2m1", "ba", 2)],
)
def test_elements_of_other_types_are_stored_as_they_are_told(
    dtype: str, layout: str, size: int
) -> None:
    kind = np.int8 if dtype == "s4" else np.uint8
    low, high = {"u4": (0, 16), "s4": (-8, 8), "u8": (0, 256), "f4_e2m1": (0, 5)}[dtype]
    x = _RNG.integers(low, high, (70, 48)).astype(kind)
    store: dict[str, Any] = {}
    array = create(store, x, layout, dtype, chunks=(64, 48))
    assert (array[...] == x).all()
    assert len(chunk_bytes(store, 0, 0)) == 64 * 48 // size
    desc = memdesc.memory_desc((64, 48), dtype, layout)
    assert chunk_bytes(store, 0, 0) == reorder.reorder(x[:64], desc).data.tobytes()


def test_floats_that_a_type_holds_exactly_come_back_with_all_bits() -> None:
    x = np.array([[0.0, -0.0, 1.5, np.inf, -np.inf, np.nan]], np.float32)
    array = create({}, x, "ba", "bf16", chunks=(1, 6))
    assert array[...].tobytes() == x.tobytes()


def test_values_that_a_type_does_not_hold_are_refused_and_nothing_is_written() -> None:
    store: dict[str, Any] = {}
    array = create(store, np.full((8, 2), 3, np.uint8), "gptq", "u4", chunks=(8, 2))
    before = chunk_bytes(store, 0, 0)
    with pytest.raises(
        MemdescError, match=r"u4 cannot represent 17, the value at \(1, 0\) of a chunk"
    ) as no:
        array[1] = [17, 16]
    assert "would store 15; 2 of 16 values do not fit" in str(no.value)
    assert chunk_bytes(store, 0, 0) == before
    with pytest.raises(MemdescError, match=r"bf16 cannot represent 0\.1"):
        create({}, np.full((2, 2), 0.1, np.float32), "ba", "bf16")


@pytest.mark.parametrize("dtype", [">f4", "<f4", "f8", "f2", "bool", "i8", "u2", "i1"])
def test_types_of_zarr_keep_their_byte_order(dtype: str) -> None:
    x = _RNG.integers(0, 100, (5, 7)).astype(dtype)
    array = create({}, x, "BA4a4b", chunks=(3, 4))
    assert array.dtype == x.dtype
    assert array[...].tobytes() == x.tobytes()


def test_shards_hold_chunks_in_the_layout() -> None:
    x = _RNG.random((3, 40, 5, 4), np.float32)
    store: dict[str, Any] = {}
    array = create(store, x, "nChw16c", chunks=(1, 20, 5, 4), shards=(2, 40, 5, 4))
    assert array.shards == (2, 40, 5, 4)
    assert (array[...] == x).all()
    assert (zarr.open_array(store)[2, 3:35, ::2] == x[2, 3:35, ::2]).all()
    chunk = reorder.reorder(x[:1, :20], "nChw16c").data.tobytes()
    assert chunk in chunk_bytes(store, 0, 0, 0, 0)


def test_compressors_and_filters_work_around_it(tmp_path: Path) -> None:
    x = np.zeros((64, 64), np.float32)
    x[3, 5] = 1
    array = zarr.create_array(
        tmp_path / "a",
        shape=x.shape,
        chunks=(16, 64),
        dtype="float32",
        filters=[zarr.codecs.TransposeCodec(order=(1, 0))],
        serializer=MemdescCodec("Ab16a"),
        compressors=[zarr.codecs.GzipCodec(), zarr.codecs.Crc32cCodec()],
    )
    array[...] = x
    assert (zarr.open_array(tmp_path / "a")[...] == x).all()
    assert (tmp_path / "a" / "c" / "0" / "0").stat().st_size < 200


def test_another_program_opens_it_by_the_name_in_the_metadata(tmp_path: Path) -> None:
    x = _RNG.random((4, 20), np.float32)
    create(str(tmp_path / "a"), x, "aB16b", chunks=(2, 20))
    codecs = json.loads((tmp_path / "a" / "zarr.json").read_text())["codecs"]
    assert codecs == [{"name": "memdesc", "configuration": {"layout": "aB16b"}}]
    program = (
        "import sys, zarr; x = zarr.open_array(sys.argv[1])[...]; "
        "sys.stdout.buffer.write(x.tobytes())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "a"], capture_output=True, check=False
    )
    assert ran.stderr.decode() == ""
    assert ran.stdout == x.tobytes()


def test_a_record_is_kept_as_an_array_for_each_field(tmp_path: Path) -> None:
    desc = memdesc.record.record_desc((256, 64), "gptq", group=32)
    tensors = {
        name: _RNG.integers(0, 100, nbytes).astype(np.uint8)
        for name, nbytes in desc.tensors.items()
    }
    record = reorder.records.Record(desc, tensors)
    group = zarr.create_group(tmp_path)
    for name, layout, dtype in (
        ("qweight", "gptq", "u4"),
        ("qzeros", "ab", "u4"),
        ("scales", "ab", None),
    ):
        x = record.field(name)
        array = group.create_array(
            name,
            shape=x.shape,
            dtype="uint8" if dtype else x.dtype,
            serializer=MemdescCodec(layout, dtype),
            compressors=None,
        )
        array[...] = x
    stored = {
        name: (tmp_path / name / "c" / "0" / "0").read_bytes() for name in ("qweight", "qzeros")
    } | {"scales": (tmp_path / "scales" / "c" / "0" / "0").read_bytes()}
    assert stored == {name: data.tobytes() for name, data in tensors.items()}
    again = reorder.records.Record(desc, stored)
    assert (reorder.dequantize(again).data == reorder.dequantize(record).data).all()


def test_a_tag_is_stored_by_its_notation() -> None:
    codec = MemdescCodec(memdesc.tags.parse_tag("Ab16a"), np.dtype("f4"))
    fields = {"name": "memdesc", "configuration": {"layout": "Ab16a", "dtype": "f32"}}
    assert codec.to_dict() == fields
    assert MemdescCodec.from_dict(fields) == codec


def test_dask_reads_and_writes_it_in_parallel(tmp_path: Path) -> None:
    da = pytest.importorskip("dask.array")
    x = _RNG.random((40, 60), np.float32)
    array = zarr.create_array(
        tmp_path / "a",
        shape=x.shape,
        chunks=(16, 20),
        dtype="f4",
        serializer=MemdescCodec("BA8b4a"),
    )
    da.store(da.from_array(x, chunks=(16, 20)), array, lock=False)
    lazy = da.from_zarr(str(tmp_path / "a"))
    assert lazy.chunks == ((16, 16, 8), (20, 20, 20))
    assert (lazy.compute() == x).all()
    assert (lazy[3:30, 5:].max(axis=0).compute() == x[3:30, 5:].max(axis=0)).all()


@given(
    st.sampled_from(["plain", "ba", "Ab3a", "aB4b", "BA2b3a", "AB2a/1.4a/2.4b", "ab__a8"]),
    st.sampled_from(["float32", "uint8", "int64", "float16"]),
    st.tuples(st.integers(1, 20), st.integers(1, 20)),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.integers(0, 9),
)
def test_arrays_read_as_they_were_written(
    layout: str, dtype: str, shape: tuple[int, int], chunks: tuple[int, int], fill: int
) -> None:
    x = np.random.default_rng(shape[0]).integers(0, 99, shape).astype(dtype)
    store: dict[str, Any] = {}
    create(store, x, layout, chunks=chunks, fill_value=fill)
    assert (zarr.open_array(store)[...] == x).all()
    whole = np.full(chunks, fill, dtype)
    part = x[: chunks[0], : chunks[1]]
    whole[: part.shape[0], : part.shape[1]] = part
    if (whole != fill).any():
        assert chunk_bytes(store, 0, 0) == reorder.reorder(whole, layout).data.tobytes()
