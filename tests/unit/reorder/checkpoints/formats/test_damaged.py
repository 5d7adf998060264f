"""Damaged files are refused with the rule and the numbers: `damaged.txt` has a line for each."""

import io
import json
import os
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from memdesc import MemdescError, memory_desc
from tests import headers, refused
from tests.files import read_metadata, write_metadata
from tests.headers import initializer, message_field
from tests.unit.reorder.checkpoints.formats.models import shard, write_parts

_SECTIONS = refused.sections(Path(__file__).with_name("damaged.txt"))
# the most bytes of memory that a damaged file takes, as a multiple of its own and in any case
_TIMES, _ALWAYS = 40, 1 << 22
_MAX_MESSAGE = 400
_HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n"


def _npy(header: str, data: bytes = b"", version: int = 1) -> bytes:
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header.encode() + data


def _zip(*members: tuple[str, bytes | str]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members:
            archive.writestr(name, data)
    return file.getvalue()


def _tensor(shape: Any = (2,), **more: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": shape, "data_offsets": (0, 8), **more}


def _model(*initializers: bytes) -> bytes:
    node = message_field(1, message_field(4, b"Relu"))
    return headers.number_field(1, 10) + message_field(7, node + b"".join(initializers))


def _external(**values: object) -> bytes:
    pairs = [message_field(13, headers.pair(key, str(value))) for key, value in values.items()]
    return initializer("a", 1, (2,), b"".join(pairs) + headers.number_field(14, 1))


def _put(whole: bytes, at: int, data: bytes) -> bytes:
    return whole[:at] + data + whole[at + len(data) :]


def _swap(path: Path, old: bytes, new: bytes) -> None:
    path.write_bytes(path.read_bytes().replace(old, new, 1))


def _record(name: str, dims: str) -> str:
    return f'{{"schema": 1, "record": {name}, "dims": {dims}}}'


_F4 = _npy(_HEADER, bytes(12))
_NAMES: dict[str, Any] = {
    "F4": _F4,
    "FIVE": memory_desc((2, 3, 2, 5, 2), "f32").to_json(),
    "HEADER": _HEADER,
    "ONE": _zip(("a.npy", _F4)),
    "QUANTIZED": {"name": "w", "quantized": {"axis": [], "groups": []}},
    "TWO": _zip(("a.npy", _F4), ("b.npy", _F4)),
    "at": _put,
    "external": _external,
    "field": message_field,
    "info": headers.gguf_info,
    "initializer": initializer,
    "made": _npy,
    "np": np,
    "number": headers.number_field,
    "pack": struct.pack,
    "record": _record,
    "shard_of_3": "model-{:05}-of-00003.safetensors".format,
    "stored": lambda nbytes: message_field(9, bytes(nbytes)),
    "swap": _swap,
    "tensor": _tensor,
    "text": headers.gguf_text,
}


class _Files:
    """Writes what a line says, and reads it; its methods are the calls of the table."""

    def __init__(self, home: Path) -> None:
        self._home, self._count = home, 0

    def _folder(self) -> Path:
        self._count += 1
        folder = self._home / str(self._count) / "model"
        folder.mkdir(parents=True)
        return folder

    def each(self, call: Callable[[Any], None], *given: Any) -> None:
        """Make a call for each, and refuse them with what all errors say first."""
        said = []
        for one in given:
            with pytest.raises(MemdescError) as caught:
                call(one)
            said.append(str(caught.value).partition("/model/")[2])
        raise MemdescError(os.path.commonprefix(said))  # noqa: RUF071 - of messages, not of paths

    def raw(self, name: str, data: bytes) -> None:
        folder = self._folder()
        for home in (folder.parent, folder):
            (home / "w").write_bytes(bytes(12))
        (folder / "out").symlink_to("../w")
        (folder / name).write_bytes(data)
        tracemalloc.start()
        try:
            reorder.load_all(folder / name)
        except MemdescError as error:
            assert str(error).startswith(repr(str(folder / name)))
            assert len(str(error).replace(str(folder), "")) < _MAX_MESSAGE
            assert tracemalloc.get_traced_memory()[1] <= _ALWAYS + _TIMES * len(data)
            raise
        finally:
            tracemalloc.stop()

    def safetensors(self, header: Any, data: bytes = b"", length: int | None = None) -> None:
        self.raw("x.safetensors", headers.safetensors_bytes(header, data, length))

    def of_a(self, fields: Any) -> None:
        self.safetensors({"a": fields})

    def of_shape(self, shape: Any) -> None:
        self.of_a(_tensor(shape))

    def described(self, text: str) -> None:
        self.safetensors({"__metadata__": {"memdesc.a": text}, "a": _tensor()}, bytes(8))

    def blocked(self, **stored: Any) -> None:
        metadata = {"memdesc.a": memory_desc((2, 17, 1, 5), "f16", "nChw8c").to_json()}
        tensor = _tensor(**stored, data_offsets=(0, 480))
        self.safetensors({"__metadata__": metadata, "a": tensor}, bytes(480))

    def array(self, array: NDArray[Any]) -> None:
        file = io.BytesIO()
        np.lib.format.write_array(file, array)
        desc = memory_desc((2, 3), "f32").to_json()
        self.npz(("x.npy", file.getvalue()), ("x.npy.json", desc))

    def noted(self, value: Any) -> None:
        fields = json.loads(memory_desc((2, 3), "f32").to_json()) | {"value": value}
        tensors = {"w": _tensor((2, 3), data_offsets=(0, 24)), "b": _tensor(data_offsets=(24, 32))}
        metadata = {"memdesc.w": json.dumps(fields)}
        self.safetensors({"__metadata__": metadata, **tensors}, bytes(32))

    def scaled(self, ending: str, dims: tuple[int, ...], dtype: str, **options: Any) -> None:
        path = self._folder() / "x.safetensors"
        weights = np.random.default_rng(0).random((4, 8), np.float32)
        reorder.save(path, reorder.quantize(weights, "s4", **options))
        other = memory_desc(dims, dtype, "plain").to_json()
        write_metadata(path, read_metadata(path) | {f"memdesc.tensor_{ending}": other})
        reorder.load_all(path, reorder.Quantized)

    def gguf(self, values: Any = (), infos: Any = (), data: bytes = b"", **more: Any) -> None:
        self.raw("x.gguf", headers.gguf_bytes(values, infos, data, **more))

    def parts(self, damage: Callable[[dict[int, Path]], None]) -> None:
        folder = self._folder()
        write_parts(folder)
        damage({k: folder / f"m-{k:05}-of-00003.gguf" for k in (1, 2, 3)})
        reorder.open_checkpoint(min(folder.iterdir()))

    def npy(self, *parts: Any) -> None:
        self.raw("x.npy", _npy(*parts))

    def changed(self, change: tuple[str, str]) -> None:
        self.npy(_HEADER.replace(*change))

    def of_sizes(self, sizes: str) -> None:
        self.changed(("(3,)", sizes))

    def npz(self, *members: tuple[str, bytes | str]) -> None:
        self.raw("x.npz", _zip(*members))

    def model(self, data: bytes) -> None:
        self.raw("x.onnx", data)

    def onnx(self, *initializers: bytes) -> None:
        self.model(_model(*initializers))

    def at_place(self, location: str) -> None:
        self.onnx(_external(location=location))

    def folder(self, *empty: str, index: Any = None, **homes: str) -> None:
        """Make empty files, shards by the names of their tensors, and an index."""
        folder = self._folder()
        for name, leads in (("link", "../a.safetensors"), ("links", ".."), ("loop", "loop")):
            (folder / name).symlink_to(leads)
        for name in empty:
            (folder / name).touch()
        for home in sorted({*" ".join(homes.values()).split()}):
            shard(folder / home, *(name for name in homes if home in homes[name]))
        if index is not None:
            text = index if isinstance(index, str) else json.dumps({"weight_map": index})
            (folder / "model.safetensors.index.json").write_text(text)
        reorder.open_checkpoint(folder)

    def at_home(self, home: str) -> None:
        self.folder(index={"a": home, "b": "b.safetensors"}, b="b.safetensors")


@pytest.mark.parametrize("section", _SECTIONS)
def test_a_damaged_file_is_refused_with_its_name_and_takes_no_memory(
    tmp_path: Path, section: str
) -> None:
    files = _Files(tmp_path)
    with pytest.raises(MemdescError):  # modules are imported before memory is measured
        files.raw("x.npz", b"PK")
    calls = {name: getattr(files, name) for name in vars(_Files) if not name.startswith("_")}
    refused.check(_SECTIONS[section], _NAMES | calls)


# Laws over all containers


def _saved(folder: Path, ending: str) -> bytes:
    path = folder / f"saved.{ending}"
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    if ending == "onnx":
        return _model(initializer("a", 1, (4, 6), message_field(9, x.tobytes())))
    tensors = {"a": x, "b": x[1]} if ending != "npy" else x
    reorder.save(path.with_suffix(".npz" if ending == "gguf" else f".{ending}"), tensors)
    if ending == "gguf":
        reorder.convert(path.with_suffix(".npz"), path)
    return path.read_bytes()


@pytest.mark.parametrize("ending", ["safetensors", "gguf", "npy", "npz", "onnx"])
def test_a_file_that_is_cut_or_has_a_flipped_bit_is_refused_or_read(
    tmp_path: Path, ending: str
) -> None:
    whole = _saved(tmp_path, ending)
    path = tmp_path / f"x.{ending}"
    path.write_bytes(whole)
    assert any(tensor.shape == (4, 6) for tensor in reorder.open_checkpoint(path).values())
    # the last tensor of a GGUF may end without padding
    for end in range(0, len(whole) - (32 if ending == "gguf" else 0), 7):
        path.write_bytes(whole[:end])
        with pytest.raises(MemdescError, match=rf"x\.{ending}"):
            reorder.open_checkpoint(path)
    for at in range(0, len(whole), 7):
        path.write_bytes(_put(whole, at, bytes([whole[at] ^ 1 << at % 8])))
        try:
            found = reorder.load_all(path, reorder.Memory)
        except MemdescError as error:
            assert f"x.{ending}" in str(error)
            continue
        assert all(each.nbytes <= len(whole) for each in found.values())
        # a .npz has checksums of all of its bytes
        is_equal = all(each.numpy().tobytes() in whole for each in found.values())
        assert is_equal or ending != "npz"
