from pathlib import Path

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from memdesc.dtypes import DATA_TYPES
from reorder.checkpoints.formats.onnx import TYPES
from reorder.checkpoints.formats.table import read_container
from tests.headers import initializer as _initializer
from tests.headers import message_field
from tests.headers import number_field as _number
from tests.headers import pair as _pair


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
        # a tensor without bytes may be inside another
        _initializer("none", 1, (0,), _external(location="w.bin", offset=12, length=0)),
        _initializer("rest", 7, (1,), _external(location="w.bin")),
        _initializer("u4", 21, (3,), _raw(b"\x21\x03")),
        _initializer("complex", 14, (1,), _raw(bytes(8))),
        _initializer("empty", 1, (0, 3)),
        _initializer("shape", 7, (2,), message_field(7, bytes([1, 2]))),
        _initializer("text", 8, (1,), message_field(6, b"a")),
        more=message_field(14, _pair("author", "me")),
    )
    found = read_container(path)
    assert found.format == "onnx"
    assert [*found.entries] == [
        "raw", "typed", "dims", "outside", "none", "rest", "u4", "complex", "empty"
    ]  # fmt: skip
    for name in ("raw", "typed", "dims", "outside"):
        assert (found.entries[name].read().view(np.float32) == x).all()
    assert found.entries["dims"].shape == (2, 3)
    assert found.entries["rest"].file == tmp_path / "w.bin"
    assert found.entries["u4"].desc == memory_desc((3,), "u4")
    assert found.entries["complex"].desc is None
    assert found.files == (path, tmp_path / "w.bin")
    assert found.metadata == {"author": "me"}


@pytest.mark.parametrize("count", [1, 3])
def test_a_rule_says_how_an_odd_number_of_4_bit_elements_is_stored(
    tmp_path: Path, count: int
) -> None:
    data = b"\x21\x03"[: -(-count // 2)]
    path, held = tmp_path / "x.onnx", _initializer("u4", 21, (count,), _raw(data))
    path.write_bytes(_number(1, 10) + message_field(7, held))  # no nodes use the codes
    reorder.convert(path, tmp_path / "y.safetensors", map=["u4: plain -> a"])
    assert reorder.load(tmp_path / "y.safetensors").desc == memory_desc((count,), "u4")


def test_an_empty_file_of_external_data_is_mapped(tmp_path: Path) -> None:
    (tmp_path / "w.bin").touch()
    path = _model(tmp_path / "x.onnx", _initializer("a", 1, (0, 3), _external(location="w.bin")))
    with reorder.open_checkpoint(path) as found:
        assert found["a"].numpy().shape == (0, 3)
    mapped = reorder.load_all(path, mmap=True)["a"]
    assert mapped.data.nbytes == 0


@pytest.mark.peers
def test_the_types_are_those_of_the_package() -> None:
    import onnx  # a peer

    kinds = onnx.TensorProto.DataType
    ours = {"f8_e4m3": "FLOAT8E4M3FN", "e8m0": "FLOAT8E8M0", "f4_e2m1": "FLOAT4E2M1"}
    for number, name in TYPES.items():
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


def test_bytes_in_a_graph_are_not_changed_without_their_scales(tmp_path: Path) -> None:
    codes = _initializer("codes", 2, (4,), _raw(bytes(4)))
    wide = _initializer("wide", 6, (1,), _raw(bytes(4)))
    path, out = _model(tmp_path / "x.onnx", codes, wide), tmp_path / "y.npz"
    with pytest.raises(MemdescError, match="codes holds codes whose scales only the nodes of the"):
        reorder.convert(path, out, map=["codes: s32"])
    assert reorder.convert(path, out, map=["wide: f32"]).converted == 1
