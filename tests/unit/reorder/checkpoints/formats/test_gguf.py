"""Files of GGUF: those of the package gguf, damaged ones, unknown types, and models in parts."""

import os
import struct
import sys
import tracemalloc
from pathlib import Path
from types import FrameType

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from memdesc import MemdescError
from reorder.cli.main import main
from tests.headers import gguf_bytes as _file
from tests.headers import gguf_file
from tests.headers import gguf_info as _info
from tests.headers import gguf_text as _text
from tests.unit.reorder.checkpoints.formats.models import write_parts

# what the package does not decode
_WORDS = {"I8": "i1", "I16": "i2", "I32": "i4", "I64": "i8", "F64": "f8"}
_BYTES_ONLY = ("Q8_1", "Q8_K", "Q1_0")


def _write_every_type(path: Path) -> dict[str, NDArray[np.uint8]]:
    """Let the package write a tensor of each type and metadata of each kind; return the tensors."""
    rng, tensors = np.random.default_rng(0), {}
    with gguf_file(path) as writer:
        for kind in [each for each in gguf.GGUFValueType if each.name not in ("STRING", "ARRAY")]:
            writer.add_key_value(f"one.{kind.name}", 1, kind)
            writer.add_key_value(f"two.{kind.name}", [1, 0], gguf.GGUFValueType.ARRAY, kind)
        writer.add_array("tokenizer.ggml.tokens", ["a", "bc", "\u00e9"])
        for kind, (block, nbytes) in gguf.GGML_QUANT_SIZES.items():
            data = rng.integers(0, 256, (3, 512 // block * nbytes), np.uint8)
            writer.add_tensor(kind.name, data, raw_dtype=kind)
            tensors[kind.name] = data
    return tensors


def test_a_file_that_shrinks_while_its_header_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    with gguf_file(path) as writer:
        writer.add_array("tokenizer.ggml.tokens", ["token"] * 10_000)
        writer.add_tensor("a", np.ones(3, np.float32))

    def shrink(frame: FrameType, event: str, _: object) -> None:
        is_read = frame.f_globals.get("__name__") == "reorder.checkpoints.formats.gguf"
        if is_read and (event, frame.f_code.co_name) == ("call", "value"):
            os.truncate(path, 5000)

    sys.setprofile(shrink)
    try:
        # a mapped file would end the process by a signal
        with pytest.raises(MemdescError, match=r"x\.gguf' is not a GGUF file.*takes [0-9]+ bytes"):
            reorder.open_checkpoint(path)
    finally:
        sys.setprofile(None)


def test_an_array_of_many_strings_takes_little_more_memory_than_its_bytes(tmp_path: Path) -> None:
    path, strings = tmp_path / "x.gguf", struct.pack("<IIQ", 9, 8, 1 << 16) + bytes(8 << 16)
    path.write_bytes(_file([_text("general.name") + strings], []))
    reorder.open_checkpoint(path)  # imports modules before memory is measured
    tracemalloc.start()
    try:
        reorder.open_checkpoint(path)
        assert tracemalloc.get_traced_memory()[1] < 4 * len(strings)
    finally:
        tracemalloc.stop()


def test_tensors_of_every_type_are_those_of_the_package(tmp_path: Path) -> None:
    tensors = _write_every_type(tmp_path / "x.gguf")
    reorder.convert(tmp_path / "x.gguf", tmp_path / "y.gguf", map=["I16: rename=words"])
    old, new = (gguf.GGUFReader(tmp_path / f"{name}.gguf") for name in "xy")
    for key, field in old.fields.items():
        assert key.startswith("GGUF.") or field.contents() == new.fields[key].contents()
    for one, other in zip(old.tensors, new.tensors, strict=True):
        assert other.name == one.name.replace("I16", "words")
        assert (one.tensor_type, *one.shape) == (other.tensor_type, *other.shape)
        assert one.data.tobytes() == other.data.tobytes()
    with reorder.open_checkpoint(tmp_path / "x.gguf") as checkpoint:
        assert [*checkpoint] == [*tensors]
        for name, data in tensors.items():
            found = checkpoint[name]
            assert found.shape == (3, 512)
            assert np.array_equal(found.data, data.reshape(-1))
            own = name.lower().replace("i", "s") if name in _WORDS else name.lower()
            assert found.dtype in ({name} if name in _BYTES_ONLY else {own, f"gguf_{own}"})
            if name in _BYTES_ONLY:
                continue
            with np.errstate(all="ignore"):
                kind = gguf.GGMLQuantizationType[name]
                is_word = name in _WORDS
                wanted = data.view(_WORDS[name]) if is_word else gguf.dequantize(data, kind)
                assert np.array_equal(found.numpy(), wanted, equal_nan=True), name


def test_a_gguf_file_is_not_read_as_safetensors(tmp_path: Path) -> None:
    # the ninth byte of both is a brace
    infos = [_info(f"t{k}", (8,), offset=32 * k) for k in range(ord("{"))]
    path = tmp_path / "x.bin"
    path.write_bytes(_file([], infos, bytes(32 * ord("{"))))
    assert len(reorder.open_checkpoint(path)) == ord("{")


@pytest.mark.parametrize("dtype", ["f16", "u8", "bf16", "f8_e5m2", "u4", "boolean"])
@pytest.mark.parametrize(("dims", "layout"), [((20, 6), "Ab8a"), ((2, 3, 1, 5, 4), "abcde")])
def test_layouts_and_what_gguf_lacks_are_in_the_descriptor(
    tmp_path: Path, dtype: str, dims: tuple[int, ...], layout: str
) -> None:
    codes = np.random.default_rng(0).integers(0, 9, dims, np.uint8)
    made = reorder.reorder(codes, layout, dtype=dtype)
    reorder.save(tmp_path / "x.safetensors", {"a": made, "scalar": np.array(3, np.float32)})
    reorder.convert(tmp_path / "x.safetensors", tmp_path / "x.gguf")
    reorder.convert(tmp_path / "x.gguf", tmp_path / "y.npz")
    for name in ("x.gguf", "y.npz"):
        with reorder.open_checkpoint(tmp_path / name) as found:
            assert found["a"].desc == made.desc
            assert found["a"].data.tobytes() == made.data.tobytes()
            assert found["scalar"].shape == (1,)  # readers of GGUF expect a dim
    stored = {each.name: each.data for each in gguf.GGUFReader(tmp_path / "x.gguf").tensors}
    assert stored["a"].tobytes() == made.data.tobytes()


# Types that are not in our table: Q2_0 of newer llama.cpp, Q4_0_R8 of ik_llama.cpp, and one that
# no version has
_UNKNOWN = [42, 202, 2**32 - 1]


def _unknown(path: Path, kind: int, *, alignment: int = 32, cut: int = 0) -> NDArray[np.uint8]:
    """Write a file of known tensors with unknown ones between and after them; return its data."""
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


def test_unknown_types_are_compared_by_their_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = tmp_path / "x.gguf", tmp_path / "y.gguf"
    _unknown(paths[0], 42)
    raw = paths[0].read_bytes()
    last = np.frombuffer(raw[-32:], np.uint8)
    for data in (raw, raw[:-32] + (last << 4 | last >> 4).tobytes()):
        paths[1].write_bytes(data)
        assert main(["compare", *map(str, paths)]) == (data != raw)
        found = reorder.checkpoints.differences(paths[1], paths[0])
        assert len(found) == (data != raw)
    assert "d: tensor 'd' of ggml_type_42: memdesc does not know" in capsys.readouterr().out
    assert found["d"].causes == ("the nibbles of each byte are reversed",)
    paths[1].write_bytes(raw.replace(struct.pack("<IQI", 1, 9, 42), struct.pack("<IQI", 1, 9, 43)))
    (differing,) = reorder.checkpoints.differences(paths[1], paths[0]).values()
    assert differing.problem.startswith("cannot be compared: tensor 'd' of ggml_type_43")


@pytest.mark.parametrize("kind", _UNKNOWN)
def test_a_conversion_into_gguf_copies_the_bytes_of_unknown_types(
    tmp_path: Path, kind: int
) -> None:
    data = _unknown(tmp_path / "x.gguf", kind)
    _convert(tmp_path, "y.gguf", "a: f16", "b: rename=e")
    with reorder.open_checkpoint(tmp_path / "y.gguf") as found:
        assert found["a"].dtype == "f16"
        assert np.array_equal(found["e"].data, data[32 : 4 * 32])
        assert (found["e"].dtype, found["e"].shape) == (f"ggml_type_{kind}", (7,))
        assert np.array_equal(found["d"].data, data[5 * 32 :])
        assert found["none"].nbytes == 0
        for decode in (found["d"].memory, found["d"].numpy):
            with pytest.raises(MemdescError, match=f"does not know type {kind} of GGUF; its bytes"):
                decode()
    raw = (tmp_path / "y.gguf").read_bytes()
    assert raw.count(struct.pack("<IQI", 1, 9, kind)) == 1
    for cut, alignment in ((0, 16), (0, 1024), (1, 32), (31, 32)):  # the last needs no padding
        data = _unknown(tmp_path / "x.gguf", kind, alignment=alignment, cut=cut)
        with reorder.open_checkpoint(tmp_path / "x.gguf") as found:
            assert np.array_equal(found["b"].data, data[alignment : 4 * alignment])
            assert np.array_equal(found["d"].data, data[5 * alignment : 6 * alignment - cut])


def test_no_other_conversion_takes_unknown_types(tmp_path: Path) -> None:
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
            _convert(tmp_path, output, *rules)
    with pytest.raises(MemdescError, match="an output in the format of the input keeps it"):
        _convert(tmp_path, "y.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["x.gguf"]


def _convert(folder: Path, output: str, *rules: str) -> None:
    options = reorder.checkpoints.ConvertOptions(verify=True)
    reorder.convert(folder / "x.gguf", folder / output, map=rules, options=options)


# Models in several files


def test_parts_are_converted_into_one_file(tmp_path: Path) -> None:
    tensors = write_parts(tmp_path)
    parts = tuple(sorted(tmp_path.iterdir()))
    for part in parts:  # any is read as the whole model
        with reorder.open_checkpoint(part) as checkpoint:
            assert (checkpoint.files, [*checkpoint]) == (parts, [*tensors])
            assert {*checkpoint.metadata} == {"general.architecture", "llama.block_count"}
            assert all((checkpoint[name].numpy() == tensors[name]).all() for name in tensors)
    made = tmp_path / "made.gguf"
    rule = "blk.1: ba, f16"
    assert main(["convert", str(parts[0]), str(made), "--map", rule, "--verify"]) == 0
    reader = gguf.GGUFReader(made)
    assert [each.name for each in reader.tensors] == list(tensors)
    assert not any(key.startswith("split.") for key in reader.fields)
    assert (reader.tensors[4].data == tensors["blk.4"]).all()
