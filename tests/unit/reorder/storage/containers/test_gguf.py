"""Files of GGUF: those of the package gguf, damaged ones, unknown types, and models in parts."""

from __future__ import annotations

import json
import shutil
import struct
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest

import reorder
from memdesc import DATA_TYPES, MemdescError, known_records, memory_desc
from memdesc.record.gguf import GGUF_NUMBERS
from reorder.cli.main import main
from reorder.storage.containers.entry import Tensor
from reorder.storage.containers.gguf import (
    SCALARS,
    TYPES,
    plan,
    read,
)
from reorder.storage.containers.table import read_container
from reorder.storage.convert.conversion import Conversion, ConvertOptions, plan_conversion
from tests.gguf_files import gguf_file
from tests.headers import gguf_bytes as _file
from tests.headers import gguf_info as _info
from tests.headers import gguf_text as _text
from tests.writers import write_tensors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

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
    assert again["bytes"].dtype == "u8"
    assert new.tensors[-1].tensor_type == gguf.GGMLQuantizationType.I8


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
        (_file([_text("general.alignment") + struct.pack("<If", 6, 2)], []), "not an integer of"),
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


def test_types_without_a_record_are_listed_by_their_names(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(_file([], [_info("a", (256,), 15)], bytes(320)))
    entry = read(path).entries["a"]
    assert (entry.dtype, entry.nbytes, entry.desc) == ("Q8_K", 292, None)
    assert entry.reason == "memdesc has no data type and no record called 'Q8_K'"


def test_a_gguf_file_is_not_read_as_safetensors(tmp_path: Path) -> None:
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
        Tensor("scalar", "f32", (), 4),
    ]
    write_tensors(tmp_path / "x.gguf", tensors, {"b": x})
    found = read(tmp_path / "x.gguf").entries
    assert found["a"].desc == memory_desc((2, 3, 1, 5, 4), "f32")
    assert [found[name].shape for name in "ab"] == [tensor.shape for tensor in tensors[:2]]
    assert found["b"].desc == blocks
    assert found["b"].read().tobytes() == x.tobytes()
    assert found["scalar"].shape == (1,)  # readers expect a dim
    (_, b, _) = gguf.GGUFReader(tmp_path / "x.gguf").tensors
    assert b.data.tobytes() == x.tobytes()


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_types_and_dims_that_gguf_lacks_are_back_in_other_formats(
    tmp_path: Path, ending: str
) -> None:
    x = np.random.default_rng(0).integers(1, 255, (2, 3, 2, 5, 4), np.uint8)
    given = {
        "five": reorder.reorder(x, "plain", dtype="f32"),
        "bytes": reorder.reorder(x[0, 0], "cba"),
        "f8": reorder.reorder(x, "acdbe", dtype="f8_e5m2"),
    }
    reorder.save(tmp_path / f"a.{ending}", given)
    for one, other in (("a." + ending, "b.gguf"), ("b.gguf", "c." + ending)):
        reorder.convert(tmp_path / one, tmp_path / other, [])
    first, last = (read_container(tmp_path / f"{each}.{ending}").entries for each in "ac")
    assert {name: (each.dtype, each.shape, each.desc) for name, each in first.items()} == {
        name: (each.dtype, each.shape, each.desc) for name, each in last.items()
    }
    loaded = reorder.load_all(tmp_path / f"c.{ending}")
    assert all(np.array_equal(each.data, loaded[name].data) for name, each in given.items())


def test_a_checkpoint_decodes_the_tensors_of_every_type(tmp_path: Path) -> None:
    rng, tensors, wanted = np.random.default_rng(0), {}, {}
    names = {*GGUF_NUMBERS.values()} & {*known_records()} - {"q1_0"}  # the package decodes them
    with gguf_file(tmp_path / "x.gguf") as writer:
        for name in sorted(names):
            kind = _KINDS[name.removeprefix("gguf_").upper()]
            block, nbytes = gguf.GGML_QUANT_SIZES[kind]
            tensors[name] = rng.integers(0, 256, (3, 512 // block * nbytes), np.uint8)
            writer.add_tensor(name, tensors[name], raw_dtype=kind)
            with np.errstate(all="ignore"):
                wanted[name] = gguf.dequantize(tensors[name], kind)
    with reorder.open_checkpoint(tmp_path / "x.gguf") as checkpoint:
        assert [*checkpoint] == [*wanted]
        for name, numbers in wanted.items():
            assert np.array_equal(checkpoint[name].data, tensors[name].reshape(-1))
            assert np.array_equal(checkpoint[name].numpy(), numbers, equal_nan=True), name


# Tensors of types that are not in our table, as of newer and other versions of ggml


# Q2_0 of llama.cpp, Q4_0_R8 of ik_llama.cpp, and what no version has
_UNKNOWN = [42, 202, 2**32 - 1]


def _unknown(path: Path, kind: int, *, alignment: int = 32, cut: int = 0) -> NDArray[np.uint8]:
    """Write a file of known tensors with unknown ones between and after them; returns its data."""
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
    head += _text("general.alignment") + struct.pack("<II", 4, alignment)
    for name, number, size, place in infos:
        head += _info(name, (size,), number, place * alignment)
    path.write_bytes(head + bytes(-len(head) % alignment) + data[: len(data) - cut].tobytes())
    return data


@pytest.mark.parametrize("kind", _UNKNOWN)
@pytest.mark.parametrize("alignment", [32, 16, 1024])
def test_they_are_listed_by_number_and_end_where_the_next_tensor_starts(
    tmp_path: Path, kind: int, alignment: int
) -> None:
    data = _unknown(tmp_path / "x.gguf", kind, alignment=alignment)
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
    data = _unknown(tmp_path / "x.gguf", 42, cut=cut)
    last = read(tmp_path / "x.gguf").entries["d"]
    assert np.array_equal(last.read(), data[5 * 32 : 6 * 32 - cut])


def test_inspect_lists_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _unknown(tmp_path / "x.gguf", 42)
    assert main(["inspect", str(tmp_path / "x.gguf"), "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["tensors"][1]
    assert (row["dtype"], row["layout"], row["bytes"]) == ("ggml_type_42", "unknown", 96)
    assert "type 42" in row["why_unknown"]


def test_they_are_compared_by_their_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = tmp_path / "x.gguf", tmp_path / "y.gguf"
    _unknown(paths[0], 42)
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


@pytest.mark.parametrize("kind", _UNKNOWN)
def test_a_conversion_into_gguf_copies_them_byte_for_byte(tmp_path: Path, kind: int) -> None:
    data = _unknown(tmp_path / "x.gguf", kind)
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
    _unknown(tmp_path / "x.gguf", 42)
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
    with pytest.raises(MemdescError, match="an output in the format of the input keeps it"):
        _planned(tmp_path, "y.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["x.gguf"]
    with pytest.raises(MemdescError, match="GGUF has 4 dims"):
        plan("x", [Tensor("a", "ggml_type_42", (1, 1, 1, 1, 32), 18)], {})


def _planned(folder: Path, output: str, *rules: str) -> Conversion:
    return plan_conversion(folder / "x.gguf", folder / output, rules, ConvertOptions(verify=True))


# Models in several files, as the package writes them


def _write_parts(folder: Path) -> dict[str, NDArray[Any]]:
    """Write five tensors into three parts; returns them."""
    rng = np.random.default_rng(0)
    tensors = {f"blk.{k}": rng.random((4, 32)).astype(np.float32) for k in range(5)}
    with gguf_file(folder / "m.gguf", split_max_tensors=2) as writer:
        writer.add_uint32("llama.block_count", 5)
        for name, array in tensors.items():
            writer.add_tensor(name, array)
    return tensors


def _part(folder: Path, number: int) -> Path:
    return folder / f"m-{number:05}-of-00003.gguf"


@pytest.mark.parametrize("number", [1, 2, 3])
def test_any_part_is_read_as_the_whole_model(tmp_path: Path, number: int) -> None:
    tensors = _write_parts(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        _part(tmp_path, k).name for k in (1, 2, 3)
    ]
    found = read_container(_part(tmp_path, number))
    assert found.files == tuple(_part(tmp_path, k) for k in (1, 2, 3))
    assert set(found.metadata) == {"general.architecture", "llama.block_count"}
    with reorder.open_checkpoint(_part(tmp_path, number)) as checkpoint:
        assert list(checkpoint) == list(tensors)
        assert all((checkpoint[name].numpy() == tensors[name]).all() for name in tensors)


def test_parts_are_converted_into_one_file(tmp_path: Path) -> None:
    tensors = _write_parts(tmp_path)
    made = tmp_path / "made.gguf"
    rule = "blk.1: ba, f16"
    assert main(["convert", str(_part(tmp_path, 1)), str(made), "--map", rule, "--verify"]) == 0
    reader = gguf.GGUFReader(made)
    assert [each.name for each in reader.tensors] == list(tensors)
    assert not any(key.startswith("split.") for key in reader.fields)
    assert (reader.tensors[4].data == tensors["blk.4"]).all()


def _missing(folder: Path) -> None:
    _part(folder, 2).unlink()


def _other(folder: Path) -> None:
    shutil.copy(_part(folder, 1), _part(folder, 2))


def _renamed(folder: Path) -> None:
    _part(folder, 1).rename(folder / "m.gguf")
    (folder / "m.gguf").rename(_part(folder, 1).with_name("m-00001-of-00004.gguf"))


def _other_count(folder: Path) -> None:
    _replace(_part(folder, 1), b"split.tensors.count" + b"\5\0\0\0" + b"\5", b"\6")


def _twice(folder: Path) -> None:
    _replace(_part(folder, 3), b"blk.4", b"1", at=4)


def _replace(path: Path, text: bytes, byte: bytes, at: int | None = None) -> None:
    """Replace a byte of a text in a file, by default the last one."""
    data = path.read_bytes()
    place = data.index(text) + (len(text) - 1 if at is None else at)
    path.write_bytes(data[:place] + byte + data[place + 1 :])


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (
            _missing,
            r"m-00001-of-00003\.gguf' is part 1 of 3 .*m-00002-of-00003\.gguf' is missing",
        ),
        (_other, r"m-00002-of-00003\.gguf' does not say that it is part 2 of 3"),
        (_renamed, r"is part 1 of 3 of a model, so it must be called NAME-00001-of-00003\.gguf"),
        (_other_count, "says 6 tensors in 3 parts, which have 5"),
        (_twice, r"m-00003-of-00003\.gguf' has 'blk\.1', which an earlier part has too"),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    tmp_path: Path, damage: Callable[[Path], None], told: str
) -> None:
    _write_parts(tmp_path)
    damage(tmp_path)
    with pytest.raises(MemdescError, match=told):
        read_container(min(tmp_path.iterdir()))
