"""What the codec of zarr refuses: layouts, types, damaged chunks and metadata."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from memdesc import MemdescError, UnsupportedFormatError
from tests.unit.reorder.zarr_arrays import create

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.peers

zarr = pytest.importorskip("zarr", minversion="3.1", reason="zarr is not installed")
MemdescCodec = pytest.importorskip("reorder.zarr").MemdescCodec


@pytest.mark.parametrize(
    ("shape", "chunks", "layout", "stored", "message"),
    [
        ((100, 64), (30, 64), "marlin", "u4", "in must be a multiple of 16.*pad the tensor"),
        ((4, 4), (4, 4), "nChw16c", None, "nChw16c"),
        ((4, 4), (4, 4), "aB0b", None, "aB0b"),
        ((4, 4), (4, 4), "in_out_channel", None, "in_out_channel"),
        ((4, 4), (4, 4), "nv12", None, "cannot be described"),
    ],
)
def test_layouts_that_do_not_take_the_chunks_are_refused_before_anything_is_written(
    shape: tuple[int, ...], chunks: tuple[int, ...], layout: str, stored: str | None, message: str
) -> None:
    store: dict[str, Any] = {}
    with pytest.raises(MemdescError, match=message):
        zarr.create_array(
            store, shape=shape, chunks=chunks, dtype="u1", serializer=MemdescCodec(layout, stored)
        )
    assert store == {}


def test_types_that_have_no_layout_are_refused() -> None:
    codec = MemdescCodec("ab")
    with pytest.raises(MemdescError, match="complex64"):
        zarr.create_array({}, shape=(4, 4), dtype="c8", serializer=codec)
    with pytest.raises(MemdescError, match="a descriptor has 1 to 12"):
        zarr.create_array({}, shape=(), dtype="f4", serializer=codec)
    with pytest.raises(MemdescError, match="unknown data type 'q4'"):
        MemdescCodec("ab", "q4")
    with pytest.raises(MemdescError, match=r"layout must be a name such as 'nChw16c'.*not 3"):
        MemdescCodec(3)


@pytest.mark.parametrize(
    ("dtype", "way_out"),
    [
        ("c8", lambda x: x.real),
        ("M8[s]", lambda x: x.view("i8")),
        ("m8[ns]", lambda x: x.view("i8")),
        ("V4", lambda x: x.view("u4")),
    ],
)
@pytest.mark.parametrize(
    ("layout", "stored"), [("plain", "f32"), ("ba", "s64"), ("q4_0.d", None), ("q4_0.qs", None)]
)
def test_an_array_of_a_type_that_cannot_be_read_is_refused_before_it_is_made(
    dtype: str, way_out: Any, layout: str, stored: str | None
) -> None:
    codec = MemdescCodec(layout, stored)
    store: dict[str, Any] = {}
    name = np.dtype(dtype).newbyteorder("=").str if "V" in dtype else np.dtype(dtype).name
    with pytest.raises(MemdescError, match="cannot be stored as") as info:
        zarr.create_array(store, shape=(64, 64), dtype=dtype, serializer=codec)
    assert store == {}
    assert name.strip("|<") in str(info.value)
    assert (stored or codec.chunk_desc((64, 64), "f32").dtype.name) in str(info.value)
    # the way out that the message names
    x = way_out(np.zeros((64, 64), dtype))
    array = zarr.create_array({}, shape=x.shape, dtype=x.dtype, serializer=codec)
    array[:] = x
    assert (array[:] == x).all()


def _create_and_write_shards() -> None:
    codec = MemdescCodec("marlin", "u4")
    array = zarr.create_array(
        {}, shape=(60, 64), chunks=(30, 64), shards=(60, 64), dtype="u1", serializer=codec
    )
    array[...] = 1


def test_chunks_of_shards_that_do_not_fit_are_refused_as_they_are_written() -> None:
    # zarr 3.4 asks the codecs of shards already when the array is made
    with pytest.raises(UnsupportedFormatError, match="in must be a multiple of 16"):
        _create_and_write_shards()


@pytest.mark.parametrize("data", [b"", b"abc", bytes(513)])
def test_damaged_chunks_are_refused(data: bytes, tmp_path: Path) -> None:
    array = create(str(tmp_path / "a"), np.ones((8, 9), np.float32), "aB16b", chunks=(8, 9))
    (tmp_path / "a" / "c" / "0" / "0").write_bytes(data)
    message = (
        rf"memory_desc\(\(8, 9\), 'f32', 'aB16b'\) has 512 bytes, but this one has {len(data)}"
    )
    with pytest.raises(MemdescError, match=message):
        array[...]


@pytest.mark.parametrize(
    "configuration",
    [{}, {"layout": 3}, {"layout": None}, {"layout": "ab", "dtype": 7}, {"layout": "ab", "k": 1}],
)
def test_metadata_that_no_version_wrote_is_refused(
    configuration: dict[str, Any], tmp_path: Path
) -> None:
    create(str(tmp_path / "a"), np.ones((8, 9), np.float32), "aB16b", chunks=(8, 9))
    path = tmp_path / "a" / "zarr.json"
    metadata = json.loads(path.read_text())
    metadata["codecs"][0]["configuration"] = configuration
    path.write_text(json.dumps(metadata))
    with pytest.raises(MemdescError):
        zarr.open_array(tmp_path / "a")
