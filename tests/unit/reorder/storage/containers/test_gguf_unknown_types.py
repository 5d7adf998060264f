"""Tensors of GGUF whose type is not in our table, as of newer and other versions of ggml."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest

import reorder
from memdesc import MemdescError
from reorder.cli import main
from reorder.storage.containers.entry import Tensor
from reorder.storage.containers.gguf import TYPES, plan, read, type_name, type_number
from reorder.storage.convert.conversion import Conversion, ConvertOptions, plan_conversion
from tests.headers import gguf_info, gguf_text

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

# Q2_0 of llama.cpp, Q4_0_R8 of ik_llama.cpp, and what no version has
_KINDS = [42, 202, 2**32 - 1]


def _model(path: Path, kind: int, *, alignment: int = 32, cut: int = 0) -> NDArray[np.uint8]:
    """Write a file of known tensors with unknown ones between and behind them; returns its data."""
    data = np.random.default_rng(kind).integers(0, 255, 6 * alignment, np.uint8)
    data[: 4 * 4] = np.arange(4, dtype=np.float32).view(np.uint8)
    data[4 * alignment :][: 4 * 4] = data[:16]
    infos = [
        ("a", 0, 4, 0),
        ("b", kind, 7, 1),
        ("none", kind, 0, 4),
        ("c", 0, 4, 4),
        ("d", kind, 9, 5),
    ]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), 1)
    head += gguf_text("general.alignment") + struct.pack("<II", 4, alignment)
    for name, number, size, place in infos:
        head += gguf_info(name, (size,), number, place * alignment)
    path.write_bytes(head + bytes(-len(head) % alignment) + data[: len(data) - cut].tobytes())
    return data


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("alignment", [32, 16, 1024])
def test_they_are_listed_by_number_and_end_where_the_next_tensor_starts(
    tmp_path: Path, kind: int, alignment: int
) -> None:
    data = _model(tmp_path / "x.gguf", kind, alignment=alignment)
    with reorder.open_checkpoint(tmp_path / "x.gguf") as found:
        assert [tensor.dtype for tensor in found.values()] == [
            "f32", f"ggml_type_{kind}", f"ggml_type_{kind}", "f32", f"ggml_type_{kind}"
        ]  # fmt: skip
        assert found["a"].numpy().tolist() == found["c"].numpy().tolist() == [0, 1, 2, 3]
        assert found["b"].shape == (7,)
        assert np.array_equal(found["b"].data, data[alignment : 4 * alignment])
        assert np.array_equal(found["d"].data, data[5 * alignment :])
        assert found["none"].nbytes == 0
        for decode in (found["b"].memory, found["b"].numpy):
            with pytest.raises(MemdescError, match=f"does not know type {kind} of GGUF; its bytes"):
                decode()


@pytest.mark.parametrize("cut", [1, 8, 31])
def test_the_last_one_may_end_without_padding(tmp_path: Path, cut: int) -> None:
    data = _model(tmp_path / "x.gguf", 42, cut=cut)
    last = read(tmp_path / "x.gguf").entries["d"]
    assert np.array_equal(last.read(), data[5 * 32 : 6 * 32 - cut])


def test_inspect_lists_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _model(tmp_path / "x.gguf", 42)
    assert main(["inspect", str(tmp_path / "x.gguf"), "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["tensors"][1]
    assert (row["dtype"], row["layout"], row["bytes"]) == ("ggml_type_42", "unknown", 96)
    assert "type 42" in row["why_unknown"]


def test_they_are_compared_by_their_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = tmp_path / "x.gguf", tmp_path / "y.gguf"
    _model(paths[0], 42)
    raw = paths[0].read_bytes()
    last = np.frombuffer(raw[-32:], np.uint8)
    for data in (raw, raw[:-32] + (last << 4 | last >> 4).tobytes()):
        paths[1].write_bytes(data)
        assert main(["compare", *map(str, paths)]) == (data != raw)
        breaches = reorder.check(paths[1], reference=paths[0]).breaches
        assert len(breaches) == (data != raw)
    assert "d: tensor 'd' of ggml_type_42: memdesc does not know" in capsys.readouterr().out
    assert breaches[0].causes == ("the nibbles of each byte are reversed",)
    paths[1].write_bytes(raw.replace(struct.pack("<IQI", 1, 9, 42), struct.pack("<IQI", 1, 9, 43)))
    (breach,) = reorder.check(paths[1], reference=paths[0]).breaches
    assert (
        breach.problem
        == "are ggml_type_43 of (9,), and those of the reference ggml_type_42 of (9,)"
    )


@pytest.mark.parametrize("kind", _KINDS)
def test_a_conversion_into_gguf_copies_them_byte_for_byte(tmp_path: Path, kind: int) -> None:
    data = _model(tmp_path / "x.gguf", kind)
    made = _planned(tmp_path, "y.gguf", "a: f16", "b: rename=e")
    made.run()
    found = read(tmp_path / "y.gguf").entries
    assert found["a"].dtype == "f16"
    assert np.array_equal(found["e"].read(), data[32 : 4 * 32])
    assert (found["e"].dtype, found["e"].shape) == (f"ggml_type_{kind}", (7,))
    assert np.array_equal(found["d"].read(), data[5 * 32 :])
    raw = (tmp_path / "y.gguf").read_bytes()
    assert raw.count(struct.pack("<IQI", 1, 9, kind)) == 1


def test_what_would_decode_or_store_them_otherwise_is_refused(tmp_path: Path) -> None:
    _model(tmp_path / "x.gguf", 42)
    for output, *rules in (
        ("y.gguf", "b: f16"),
        ("y.gguf", "b: ba"),
        ("y.gguf", "b: a -> a, f16"),
        ("y.safetensors",),
        ("y.npz",),
        ("y",),
    ):
        with pytest.raises(MemdescError, match=r"type.42"):
            _planned(tmp_path, output, *rules)
    assert [path.name for path in tmp_path.iterdir()] == ["x.gguf"]
    with pytest.raises(MemdescError, match="GGUF has 4 dims"):
        plan("x", [Tensor("a", "ggml_type_42", (1, 1, 1, 1, 32), 18)], {})


def _planned(folder: Path, output: str, *rules: str) -> Conversion:
    parsed = rules
    return plan_conversion(folder / "x.gguf", folder / output, parsed, ConvertOptions(verify=True))


def test_names_and_numbers_of_types_are_inverse() -> None:
    for number in (*TYPES, *_KINDS):
        assert type_number(type_name(number)) == number
    for name in ("ggml_type_", "ggml_type_x", "ggml_type_-1", "q4_9"):
        assert type_number(name) is None
