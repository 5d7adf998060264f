"""The codec of zarr v3, with the real zarr, and with Dask on top."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import memdesc
import reorder
from memdesc import MemdescError, UnsupportedFormatError
from tests import hints, refused

pytestmark = pytest.mark.peers

zarr = pytest.importorskip("zarr", minversion="3.1", reason="zarr is not installed")
MemdescCodec = pytest.importorskip("reorder.zarr").MemdescCodec

_RNG = np.random.default_rng(0)


def create(store: Any, x: NDArray[Any], layout: str, dtype: str | None = None, **other: Any) -> Any:
    """Make an array with the codec and nothing else, and write all of x."""
    array = zarr.create_array(
        store,
        shape=x.shape,
        dtype=x.dtype,
        serializer=MemdescCodec(layout, dtype),
        compressors=None,
        **other,
    )
    array[...] = x
    return array


def chunk_bytes(store: Any, *at: int) -> bytes:
    """Return what is stored for the chunk at these indices."""
    return bytes(store["c/" + "/".join(map(str, at))].to_bytes())


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
    for shape in (5, None, "ab", (4, 2.5), (4, True)):
        for layout in ("ab", "q6_k.qh"):
            with pytest.raises(MemdescError, match="shape must be"):
                MemdescCodec(layout).chunk_desc(shape, "u8")
    assert desc == memdesc.memory_desc((2, 20, 5, 4), "f32", "nChw16c")
    reorder.Memory(desc, np.frombuffer(stored, np.uint8), zero_pad=False).check_padding()


@pytest.mark.parametrize(
    "layout", ["plain", "b_fs_yx_fsv16", "in_out_channel", "f32::blocked:acdb::f0"]
)
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
    # what a type holds exactly comes back with all bits
    x = np.array([[0.0, -0.0, 1.5, np.inf, -np.inf, np.nan]], np.float32)
    assert create({}, x, "ba", "bf16", chunks=(1, 6))[...].tobytes() == x.tobytes()
    # a NaN may become another
    x = np.array([[0x7FC00001]], np.uint32).view(np.float32)
    assert np.isnan(create({}, x, "ba", "bf16", chunks=(1, 1))[...]).all()


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
    codec = MemdescCodec(memdesc.tags.parse_tag("Ab16a"), np.dtype("f4"))
    fields = {"name": "memdesc", "configuration": {"layout": "Ab16a", "dtype": "f32"}}
    assert codec.to_dict() == fields
    assert MemdescCodec.from_dict(fields) == codec
    program = (
        "import sys, zarr; x = zarr.open_array(sys.argv[1])[...]; "
        "sys.stdout.buffer.write(x.tobytes())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "a"], capture_output=True, check=False
    )
    assert ran.stderr.decode() == ""
    assert ran.stdout == x.tobytes()


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


# Fields of records


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in memdesc.record.known_records()
        if len(memdesc.record.record_desc((256, 256), name).tensors) == 1
    ],
)
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


# What is refused


def _refused(
    layout: Any, stored: str | None = None, *, dims: tuple[int, ...], dtype: str = "u1", **more: Any
) -> None:
    """Make an array, which must be refused before anything is written."""
    store: dict[str, Any] = {}
    try:
        codec = MemdescCodec(layout, stored)
        more = {"chunks": dims} | more
        zarr.create_array(
            store, shape=dims, dtype=dtype, serializer=codec, compressors=None, **more
        )
    finally:
        assert store == {}


def test_an_array_is_refused_before_anything_is_written() -> None:
    (lines,) = refused.sections(Path(__file__).with_name("zarr_refused.txt")).values()
    refused.check(lines, {"refused": _refused, "written": written, "np": np})


def test_chunks_of_shards_that_do_not_fit_are_refused_as_they_are_written() -> None:
    # zarr 3.4 asks the codecs of shards already when the array is made
    with pytest.raises(UnsupportedFormatError, match="in must be a multiple of 16"):
        create({}, np.ones((60, 64), np.uint8), "marlin", "u4", chunks=(30, 64), shards=(60, 64))


def test_damaged_chunks_and_metadata_that_no_version_wrote_are_refused(tmp_path: Path) -> None:
    array = create(str(tmp_path / "a"), np.ones((8, 9), np.float32), "aB16b", chunks=(8, 9))
    for data in (b"", b"abc", bytes(513)):
        (tmp_path / "a" / "c" / "0" / "0").write_bytes(data)
        message = rf"'aB16b'\) has 512 bytes, but this one has {len(data)}"
        with pytest.raises(MemdescError, match=message):
            array[...]
    path = tmp_path / "a" / "zarr.json"
    metadata = json.loads(path.read_text())
    layouts: list[dict[str, Any]] = [{}, {"layout": 3}, {"layout": None}]
    for configuration in (*layouts, {"layout": "ab", "dtype": 7}, {"layout": "ab", "k": 1}):
        metadata["codecs"][0]["configuration"] = configuration
        path.write_text(json.dumps(metadata))
        with pytest.raises(MemdescError):
            zarr.open_array(tmp_path / "a")


HALF = np.full((4, 4), 0.5, np.float32)
CODES = np.ones((64, 64), np.uint8)


def written(x: Any, layout: str = "ba", dtype: str | None = None) -> bool:
    """Make an array, and return whether what is read is what was written."""
    done = (create({}, x, layout, dtype)[...] == x).all()
    assert done
    return bool(done)


def test_every_hint_is_given_and_works() -> None:
    hints.check(Path(__file__).with_name("zarr_hints.txt"), globals(), ["reorder/zarr.py"])
