"""Damaged checkpoints are read or refused: no other error, and no memory for what they claim."""

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reorder
from memdesc import MemdescError, memory_desc
from memdesc.record import record_desc
from reorder.checkpoints.formats.entry import Tensor
from reorder.checkpoints.formats.shards import plan_shards
from reorder.checkpoints.writer import Writer
from tests.files import json_mutations, mutations
from tests.headers import initializer, message_field, number_field, pair
from tests.writers import write_tensors

_LENGTH = 8
_MAX_MESSAGE = 1000
_BLOCKED = memory_desc((5, 3), "f32", "Ab4a")
_TENSORS = [
    Tensor("blocked", "u8", (_BLOCKED.nbytes,), _BLOCKED.nbytes, _BLOCKED),
    Tensor("bf16", "bf16", (2, 3), 12),
    Tensor("f32", "f32", (3,), 12),
    Tensor("q4", "u8", (18,), 18, record_desc((1, 32), "q4_0")),
]
_FORMATS = ("safetensors", "gguf", "npz", "npy", "onnx", "external", "shards")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as path:
        yield Path(path)


def _onnx(*, is_external: bool) -> bytes:
    """Return a model of two initializers, of 12 bytes in the model or outside."""
    places = {"location": "w.bin", "offset": "4", "length": "12"}.items()
    outside = b"".join(message_field(13, pair(key, value)) for key, value in places)
    data = outside + number_field(14, 1) if is_external else message_field(9, bytes(12))
    initializers = b"".join(
        initializer(name, kind, (3,), data)
        for name, kind in (("a", 1), ("b", 6))[: 1 if is_external else 2]
    )
    node = message_field(1, message_field(4, b"Relu"))
    described = pair("memdesc.a", memory_json())
    return (
        number_field(1, 10) + message_field(7, node + initializers) + message_field(14, described)
    )


def memory_json() -> str:
    return memory_desc((1, 3), "f32", "ba").to_json()


@lru_cache(maxsize=16)
def _whole(kind: str) -> dict[str, bytes]:
    """Return the files of a checkpoint, the one that is opened first."""
    with TemporaryDirectory() as path:
        home = Path(path)
        if kind in {"onnx", "external"}:
            return {"x.onnx": _onnx(is_external=kind == "external"), "w.bin": bytes(16)}
        if kind == "npy":
            reorder.save(home / "x.npy", np.ones((5, 3), np.float32))
        elif kind == "shards":
            with Writer(home / "m", plan_shards(_TENSORS, {"a": "b"}, 50), is_folder=True) as w:
                w.finish()
            home /= "m"
        else:
            metadata = {"a": "b"} if kind != "npz" else {}
            write_tensors(home / f"x.{kind}", _TENSORS, metadata=metadata)
        names = sorted(home.iterdir(), key=lambda file: (file.suffix == ".json", file.name))
        if kind == "shards":
            names.reverse()
        return {file.name: file.read_bytes() for file in names}


def _read_all(path: Path) -> str:
    """Open a checkpoint and read what can be read; returns "read", or "refused"."""
    try:
        checkpoint = reorder.open_checkpoint(path)
    except MemdescError as error:
        assert len(str(error)) < _MAX_MESSAGE
        return "refused"
    with checkpoint:
        for tensor in checkpoint.values():
            assert tensor.data.nbytes == tensor.nbytes
            try:
                array = tensor.numpy()
            except MemdescError as error:
                assert len(str(error)) < _MAX_MESSAGE
            else:
                assert array.nbytes <= 64 * max(tensor.nbytes, 1)
    return "read"


@pytest.mark.parametrize("kind", _FORMATS)
def test_undamaged_checkpoints_are_read(folder: Path, kind: str) -> None:
    for old in folder.iterdir():
        old.unlink()
    for file, content in _whole(kind).items():
        (folder / file).write_bytes(content)
    assert _read_all(folder if kind == "shards" else folder / next(iter(_whole(kind)))) == "read"


@given(kind=st.sampled_from(_FORMATS), data=st.data())
def test_a_damaged_checkpoint_is_read_or_refused(
    folder: Path, kind: str, data: st.DataObject
) -> None:
    files = dict(_whole(kind))
    name = data.draw(st.sampled_from(sorted(files)))
    whole = files[name]
    if name.endswith(".json"):
        changed = data.draw(st.one_of(mutations(whole), json_mutations(json.loads(whole))))
    elif name.endswith(".safetensors") and data.draw(st.booleans()):
        end = _LENGTH + int.from_bytes(whole[:_LENGTH], "little")
        text = data.draw(json_mutations(json.loads(whole[_LENGTH:end])))
        changed = len(text).to_bytes(_LENGTH, "little") + text + whole[end:]
    else:
        changed = data.draw(mutations(whole))
    files[name] = changed
    for old in folder.iterdir():
        old.unlink()
    for file, content in files.items():
        (folder / file).write_bytes(content)
    _read_all(folder if kind == "shards" else folder / next(iter(files)))


@pytest.mark.parametrize(
    "changed",
    [
        {"dims": [2**40, 3], "strides": [0, 1], "padded_dims": [2**40, 3]},
        {"dims": [0, 2**62], "strides": [2**62, 1], "padded_dims": [0, 2**62]},
    ],
)
def test_descriptors_that_repeat_elements_are_refused(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    desc = json.loads(memory_json()) | changed | {"inner_blks": [], "inner_idxs": []}
    header: dict[str, Any] = {
        "__metadata__": {"memdesc.a": json.dumps(desc)},
        "a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]},
    }
    text = json.dumps(header).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(text).to_bytes(_LENGTH, "little") + text + bytes(12))
    with pytest.raises(MemdescError, match=r"repeats elements|has 12 bytes, but"):
        reorder.open_checkpoint(path)


def test_the_package_reads_the_undamaged_gguf(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(_whole("gguf")["x.gguf"])
    reader = gguf.GGUFReader(tmp_path / "x.gguf")
    assert [tensor.name for tensor in reader.tensors] == [each.name for each in _TENSORS]
