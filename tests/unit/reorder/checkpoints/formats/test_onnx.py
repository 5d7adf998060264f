from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from memdesc.dtypes import DATA_TYPES
from reorder.checkpoints.formats.onnx import NUMBERS, read
from reorder.checkpoints.formats.table import read_container
from tests.headers import initializer as _initializer
from tests.headers import message_field
from tests.headers import number_field as _number
from tests.headers import pair as _pair

if TYPE_CHECKING:
    from pathlib import Path


def _raw(data: bytes) -> bytes:
    return message_field(9, data)


def _external(**values: object) -> bytes:
    pairs = [message_field(13, _pair(key, str(value))) for key, value in values.items()]
    return b"".join(pairs) + _number(14, 1)


def _model(path: Path, *initializers: bytes, more: bytes = b"") -> Path:
    node = message_field(1, message_field(4, b"Relu"))
    graph = message_field(7, node + b"".join(initializers))
    path.write_bytes(_number(1, 10) + graph + more)
    return path


def test_initializers_are_read_in_place(tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32)
    (tmp_path / "w.bin").write_bytes(bytes(8) + x.tobytes())
    packed = message_field(1, bytes([2, 3]))
    path = _model(
        tmp_path / "x.onnx",
        _initializer("raw", 1, (2, 3), _raw(x.tobytes())),
        _initializer("typed", 1, (6,), message_field(4, x.tobytes())),
        message_field(5, packed + _number(2, 1) + message_field(8, b"dims") + _raw(x.tobytes())),
        _initializer("outside", 1, (6,), _external(location="w.bin", offset=8, length=24)),
        _initializer("rest", 7, (1,), _external(location="w.bin")),
        _initializer("u4", 21, (3,), _raw(b"\x21\x03")),
        _initializer("complex", 14, (1,), _raw(bytes(8))),
        _initializer("empty", 1, (0, 3)),
        _initializer("shape", 7, (2,), message_field(7, bytes([1, 2]))),
        _initializer("text", 8, (1,), message_field(6, b"a")),
        more=message_field(14, _pair("memdesc.u4", memory_desc((1, 4), "u4", "ba").to_json()))
        + message_field(14, _pair("author", "me")),
    )
    found = read_container(path)
    assert found.format == "onnx"
    assert [*found.entries] == [
        "raw", "typed", "dims", "outside", "rest", "u4", "complex", "empty"
    ]  # fmt: skip
    for name in ("raw", "typed", "dims", "outside"):
        assert (found.entries[name].read().view(np.float32) == x).all()
    assert found.entries["dims"].shape == (2, 3)
    assert found.entries["rest"].file == tmp_path / "w.bin"
    assert found.entries["u4"].desc == memory_desc((1, 4), "u4", "ba")
    assert found.entries["complex"].desc is None
    assert found.files == (path, tmp_path / "w.bin")
    assert found.metadata == {"author": "me"}


def test_an_empty_file_of_external_data_is_mapped(tmp_path: Path) -> None:
    (tmp_path / "w.bin").touch()
    path = _model(tmp_path / "x.onnx", _initializer("a", 1, (0, 3), _external(location="w.bin")))
    with reorder.open_checkpoint(path) as found:
        assert found["a"].numpy().shape == (0, 3)
    mapped = reorder.load_all(path, mmap=True)["a"]
    assert mapped.data.nbytes == 0


def test_a_tensor_without_bytes_may_be_inside_another(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(8))
    parts = (("a", 2, 0), ("b", 0, 4))
    tensors = (
        _initializer(name, 1, (size,), _external(location="w.bin", offset=offset, length=4 * size))
        for name, size, offset in parts
    )
    assert [*read_container(_model(tmp_path / "x.onnx", *tensors)).entries] == ["a", "b"]


@pytest.mark.parametrize(
    ("initializers", "reason"),
    [
        ([_initializer("a", 1, (2,), _raw(bytes(9)))], "takes 8 bytes, but 9 are stored"),
        ([_initializer("a", 1, (2**62, 2**62), _raw(bytes(9)))], "takes 8507"),
        ([_initializer("a", 1, (-1,), _raw(bytes(8)))], "not a list of at most 64 sizes"),
        ([_initializer("a", 1, (1,) * 65, _raw(bytes(4)))], "not a list of at most 64 sizes"),
        ([_initializer("a", 1, (2,), _raw(bytes(8)))] * 2, "2 initializers are called 'a'"),
        ([_initializer("", 1, (2,), _raw(bytes(8)))], "the name of a tensor"),
        ([_initializer("a", 1, (2,), _external())], "not the name of a file: None"),
        ([_initializer("a", 1, (2,), _external(location="../w"))], "leads out of"),
        ([_initializer("a", 1, (2,), _external(location="/etc/passwd"))], "leads out of"),
        ([_initializer("a", 1, (2,), _external(location="out"))], "a link out of"),
        ([_initializer("a", 1, (2,), _external(location="no"))], "No such file"),
        (
            [_initializer("a", 1, (2,), _external(location="w", offset=-1))],
            "offset is not a number",
        ),
        ([_initializer("a", 1, (2,), _external(location="w", offset="1" * 99))], "not a number"),
        ([_initializer("a", 1, (2,), _external(location="w", offset=9))], "takes bytes 9 to 17"),
        (
            [_initializer("a", 1, (2**40,), _external(location="w"))],
            "takes bytes 0 to 4398046511104",
        ),
        (
            [
                _initializer("a", 1, (2,), _external(location="w")),
                _initializer("b", 1, (2,), _external(location="w", offset=4)),
            ],
            "overlap",
        ),
    ],
)
def test_damaged_initializers_are_refused(
    tmp_path: Path, initializers: list[bytes], reason: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w").write_bytes(bytes(12))
    (folder / "w").write_bytes(bytes(12))
    (folder / "out").symlink_to("../w")
    with pytest.raises(MemdescError, match=reason):
        read(_model(folder / "x.onnx", *initializers))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no graph"),
        (b"\x08\x01", "no graph"),
        (b"\xff" * 20, "does not end"),
        (b"\x08" + b"\x80" * 10 + b"\1", "does not end within 10 bytes and 64 bits"),
        (b"\x08" + b"\xff" * 9 + b"\2", "does not end within 10 bytes and 64 bits"),
        (message_field(7, message_field(5, message_field(1, b"\x80" * 9))), "does not end"),
        (_number(2**29, 0), "fields have numbers from 1 to 536870911"),
        (b"\x3a\x7f\x00", "ends at byte"),
        (b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "ends at byte"),
        (b"\x0b", "does not start a field"),
        (b"\x00\x01", "ends at byte"),
        (b"\x3a", "does not end"),
        (message_field(14, message_field(1, b"\xff")), "not UTF-8"),
        (message_field(14, message_field(1, b"a" * 2**21)), "at most 1048576 are read"),
        (
            message_field(14, _pair("memdesc.a", '{"schema": 1}')) + message_field(7, b""),
            "does not have",
        ),
        (b"\x09" + bytes(8) + b"\x0d" + bytes(4), "no graph"),
    ],
)
def test_damaged_models_are_refused(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "x.onnx").write_bytes(data)
    with pytest.raises(MemdescError, match=reason):
        read(tmp_path / "x.onnx")


@pytest.mark.peers
def test_the_types_are_those_of_the_package() -> None:
    import onnx  # a peer

    kinds = onnx.TensorProto.DataType
    ours = {"f8_e4m3": "FLOAT8E4M3FN", "e8m0": "FLOAT8E8M0", "f4_e2m1": "FLOAT4E2M1"}
    for name, number in NUMBERS.items():
        if name not in DATA_TYPES:
            assert kinds.Name(number).lower() == name
            continue
        dtype = onnx.helper.tensor_dtype_to_np_dtype(number)
        assert dtype == memory_desc((1,), name).dtype.numpy, (name, kinds.Name(number))
        assert name not in ours or kinds.Name(number) == ours[name]


def test_models_are_not_written(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.zeros(3))
    said = r"y\.onnx': a \.onnx is read but not written; name one of \.safetensors, \.gguf"
    with pytest.raises(MemdescError, match=said):
        reorder.convert(tmp_path / "x.npz", tmp_path / "y.onnx")
    assert not (tmp_path / "y.onnx").exists()
