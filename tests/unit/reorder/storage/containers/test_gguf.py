from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest

import reorder
from memdesc import DATA_TYPES, MemdescError, RecordDesc, known_records, memory_desc, record_desc
from reorder.storage.containers.entry import Tensor
from reorder.storage.containers.gguf import SCALARS, TYPES, GgufValue, read
from reorder.storage.containers.table import read_container
from tests.gguf_files import gguf_file
from tests.headers import gguf_bytes as _file
from tests.headers import gguf_info as _info
from tests.headers import gguf_text as _text
from tests.writers import write_tensors

if TYPE_CHECKING:
    from pathlib import Path

_KINDS = gguf.GGMLQuantizationType


def _model(path: Path) -> dict[str, Any]:
    """Write a file with the package; returns what it should hold."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 64)).astype(np.float32)
    with gguf_file(path) as writer:
        writer.add_uint32("llama.block_count", 2)
        writer.add_array("tokenizer.ggml.tokens", ["a", "bc", "\u00e9"])
        writer.add_array("scores", [0.5, 1.5])
        writer.add_bool("flag", val=True)
        writer.add_tensor("f32", x)
        writer.add_tensor("ints", np.arange(6, dtype=np.int16).reshape(2, 3))
        values = {"f32": x, "ints": np.arange(6, dtype=np.int16).reshape(2, 3)}
        for kind in (_KINDS.Q4_0, _KINDS.Q8_0, _KINDS.Q5_1):
            data = gguf.quantize(x, kind)
            writer.add_tensor(kind.name, data, raw_dtype=kind)
            values[kind.name] = gguf.dequantize(data, kind)
    return values


def test_the_table_is_that_of_the_package() -> None:
    sizes = {kind.value: size for kind, size in gguf.constants.GGML_QUANT_SIZES.items()}
    assert {number: (row.block, row.nbytes) for number, row in TYPES.items()} == sizes
    for number, row in TYPES.items():
        name = _KINDS(number).name
        assert row.name.removeprefix("gguf_") in {name, name.lower()} or row.name in DATA_TYPES
        assert (row.name in DATA_TYPES) == (row.block == 1)
    known = {row.name for row in TYPES.values()} & set(known_records())
    assert known == {name for name in known_records() if name in dir(_KINDS) or _is_gguf(name)}
    assert set(SCALARS) == set(map(int, gguf.GGUFValueType)) - {8, 9}


def _is_gguf(name: str) -> bool:
    return name.removeprefix("gguf_").upper() in _KINDS.__members__


def test_files_of_the_package_are_read(tmp_path: Path) -> None:
    values = _model(tmp_path / "x.gguf")
    found = read(tmp_path / "x.gguf")
    assert found.entries.keys() == values.keys()
    for name, entry in found.entries.items():
        assert entry.shape == values[name].shape
        if entry.dtype in DATA_TYPES:
            assert (entry.read() == values[name].reshape(-1).view(np.uint8)).all()
            continue
        assert entry.desc == record_desc(entry.shape, name)
        assert isinstance(entry.desc, RecordDesc)
        record = reorder.Record(entry.desc, entry.read())
        assert (reorder.dequantize(record).numpy() == values[name]).all()
    assert found.metadata["general.architecture"] == "llama"
    assert found.metadata["llama.block_count"] == GgufValue(4, struct.pack("<I", 2))


def test_what_is_copied_is_read_by_the_package(tmp_path: Path) -> None:
    _model(tmp_path / "x.gguf")
    found = read(tmp_path / "x.gguf")
    blocked = memory_desc((20, 3), "f32", "Ab16a")
    tensors = [
        *(Tensor(*(e.name, e.dtype, e.shape, e.nbytes, e.desc)) for e in found.entries.values()),
        Tensor("blocked", "f32", (2, 3, 16), blocked.nbytes, blocked),
        Tensor("bytes", "u8", (5,), 5),
    ]
    data = {name: entry.read() for name, entry in found.entries.items()}
    write_tensors(tmp_path / "y.gguf", tensors, data, found.metadata)
    old, new = (gguf.GGUFReader(tmp_path / f"{name}.gguf") for name in "xy")
    for one, other in zip(old.tensors, new.tensors, strict=False):
        assert one.name == other.name
        assert one.tensor_type == other.tensor_type
        assert (one.shape == other.shape).all()
        assert (one.data == other.data).all()
    for key, field in old.fields.items():
        if not key.startswith("GGUF."):
            assert field.contents() == new.fields[key].contents()
    again = read(tmp_path / "y.gguf").entries
    assert again["blocked"].desc == blocked
    assert again["bytes"].desc == memory_desc((5,), "u8")
    assert again["bytes"].dtype == "s8"


_DEEP = struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 99 + bytes(99)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GGUF", "takes 4 bytes, but 0 are left"),
        (_file([], [], version=1), "version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "little-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "tensors are 1152921504606846976"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**63), "values of metadata are"),
        (_file([_text("a") + struct.pack("<I", 99)], []), "type 99"),
        (_file([_text("a") + _DEEP], []), "nested too deep"),
        (_file([_text("a") + struct.pack("<IIQ", 9, 0, 2**60)], []), "the values of an array"),
        (_file([_text("a") + struct.pack("<IQ", 8, 2**62)], []), "a string at byte"),
        (_file([_text("a") + struct.pack("<IB", 0, 1)] * 2, []), "two values"),
        (_file([_text(b"\xff") + struct.pack("<IB", 0, 1)], []), "not UTF-8"),
        (_file([_text("general.alignment") + struct.pack("<II", 4, 0)], []), "not a power of 2"),
        (_file([_text("general.alignment") + struct.pack("<II", 4, 48)], []), "not a power of 2"),
        (_file([_text("memdesc.a") + struct.pack("<I", 8) + _text("{}")], []), "not have"),
        (_file([], [_info("a", (2**62,) * 4)], bytes(8)), "takes bytes"),
        (_file([], [_info("a", (2**63,))], bytes(8)), "not a list of at most"),
        (_file([], [_info("a", (2,) * 99)], bytes(8)), "not a list of at most"),
        (_file([], [_text("a") + struct.pack("<I", 2**31)], bytes(64)), "2147483648 dims"),
        (_file([], [_info("a", (33,), 2)], bytes(99)), "do not divide its rows of 33"),
        (_file([], [_info("a", (2,), offset=2**63)], bytes(8)), "takes bytes"),
        (_file([], [_info("a", (2,)), _info("a", (2,), offset=32)], bytes(40)), "two tensors"),
        (_file([], [_info("a", (9,)), _info("b", (2,), offset=32)], bytes(40)), "overlap"),
        (_file([], [_info("a", (2,), offset=4)], bytes(16)), "not a multiple of the alignment, 32"),
        (
            _file([], [_info("a", (2,), offset=32), _info("b", (2,))], bytes(40)),
            "'b' starts at byte 0 of the data, but 'a', which comes before it, at 32",
        ),
        (_file([], [_info("a", (2,), 99, offset=2**63)], bytes(8)), "it has no bytes"),
        (_file([], [_info("a", (2,), 99)]), "ends at 0: it has no bytes"),
        (_file([], [_info("a", (2,), 99), _info("b", (2,))], bytes(8)), "it has no bytes"),
        (_file([], [_info("a", (2,), 99, offset=8)], bytes(16)), "not a multiple"),
        (_file([], [_info("a", (2,), 99), _info("b", (2,), offset=64)], bytes(32)), "takes bytes"),
        (
            _file([], [_info("a", (2,), 99, offset=32), _info("b", (2,))], bytes(64)),
            "'b' starts at byte 0",
        ),
        (
            _file([], [_info("a", (9,)), _info("b", (2,), 99, offset=32)], bytes(64)),
            "overlap",
        ),
        (_file([], [_info("a", (2**62,) * 4, 99)]), "it has no bytes"),
        (_file([], [_info("", (2,))], bytes(8)), "the name of a tensor"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    with pytest.raises(MemdescError, match=reason):
        read(path)


def test_the_types_that_are_no_records_are_listed_by_their_names(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(_file([], [_info("a", (256,), 15)], bytes(320)))
    entry = read(path).entries["a"]
    assert (entry.dtype, entry.nbytes, entry.desc) == ("Q8_K", 292, None)
    assert entry.reason == "memdesc has no data type and no record called 'Q8_K'"


def test_a_file_of_any_number_of_tensors_is_no_safetensors(tmp_path: Path) -> None:
    # the ninth byte of both is a brace
    infos = [_info(f"t{k}", (8,), offset=32 * k) for k in range(ord("{"))]
    path = tmp_path / "x.bin"
    path.write_bytes(_file([], infos, bytes(32 * ord("{"))))
    assert len(read_container(path).entries) == ord("{")


def test_more_dims_than_gguf_has_are_in_the_descriptor(tmp_path: Path) -> None:
    blocks = memory_desc((20, 6, 3, 3), "f16", "OIhw8i8o")
    x = np.random.default_rng(0).integers(0, 255, blocks.nbytes, np.uint8)
    tensors = [
        Tensor("a", "f32", (2, 3, 1, 5, 4), 480),
        Tensor("b", "f16", (3, 1, 3, 3, 8, 8), blocks.nbytes, blocks),
    ]
    write_tensors(tmp_path / "x.gguf", tensors, {"b": x})
    found = read(tmp_path / "x.gguf").entries
    assert found["a"].desc == memory_desc((2, 3, 1, 5, 4), "f32")
    assert found["a"].shape == (6, 1, 5, 4)
    assert found["b"].desc == blocks
    assert found["b"].read().tobytes() == x.tobytes()
    (_, b) = gguf.GGUFReader(tmp_path / "x.gguf").tensors
    assert b.data.tobytes() == x.tobytes()


def test_a_scalar_has_a_dim_because_readers_expect_one(tmp_path: Path) -> None:
    path = write_tensors(tmp_path / "x.gguf", [Tensor("a", "f32", (), 4)])
    assert read(path).entries["a"].shape == (1,)
