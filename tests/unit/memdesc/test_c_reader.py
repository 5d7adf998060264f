from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import memdesc
from memdesc import DATA_TYPES, memory_desc
from tests.c_reader import Reader
from tests.compiled import COMPILERS, compile_library

if TYPE_CHECKING:
    from collections.abc import Callable

_BLOCKED = memdesc.to_json(memory_desc((2, 17, 5, 4), "f32", "nChw16c"))
_FUSED = memdesc.to_json(memory_desc((2, 17, 5, 4), "s4", "aB(CD)8b16(cd)"))


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return Reader(tmp_path_factory.mktemp("reader"))


def test_the_header_is_filled_in_from_the_tables() -> None:
    header = memdesc.c_reader()
    assert "@" not in header
    assert all(f'{{"{name}", {dtype.bits}}}' in header for name, dtype in DATA_TYPES.items())


@pytest.mark.parametrize("compiler", COMPILERS, ids="-".join)
def test_the_header_compiles_without_warnings(compiler: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "memdesc.h").write_text(memdesc.c_reader(), encoding="utf-8")
    user = '#include "memdesc.h"\n#include "memdesc.h"\nint user(void) { return 0; }\n'
    compile_library(user, tmp_path, compiler, "-Wconversion", f"-I{tmp_path}")


@pytest.mark.parametrize("text", [_BLOCKED, _FUSED])
def test_both_forms_are_read(reader: Reader, text: str) -> None:
    assert reader.read(text) is None
    reader.check(memdesc.from_json(text))
    assert reader.read(json.dumps(json.loads(text), indent=3)) is None


def test_compensation_is_noticed(reader: Reader) -> None:
    desc = memory_desc((3, 5), "s8", "Ab4a").with_extra(memdesc.Extra(s8s8_mask=1))
    assert reader.read(memdesc.to_json(desc)) is None
    reader.check(desc)


def test_keys_that_are_not_known_are_skipped(reader: Reader) -> None:
    more = {"later": [{"a": ["]}", 'x"\\', None, -1.5e3, True]}, "b"], "": {}, "a": 0.5, "z": None}
    for fields in (more | json.loads(_BLOCKED), json.loads(_FUSED) | more):
        text = json.dumps(fields)
        assert reader.read(text) is None
        reader.check(memdesc.from_json(text))


def _changed(**values: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda fields: fields | values


def _without(key: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda fields: {name: value for name, value in fields.items() if name != key}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_changed(schema=2), "another schema"),
        (_without("schema"), "another schema"),
        (_changed(dtype="f31"), "an unknown data type"),
        (_changed(dtype="f" * 99), "an unknown data type"),
        (_without("dims"), "dims, offset0, or axes and blocks are missing or illegal"),
        (_changed(dims=[]), "dims, offset0, or axes and blocks are missing or illegal"),
        (_changed(dims=[1] * 13), "dims, offset0, or axes and blocks are missing or illegal"),
        (_changed(dims=[2, -17, 5, 4]), "dims, offset0, or axes and blocks are missing or illegal"),
        (_changed(dims=[2, 1.5]), "a number is no integer"),
        (_changed(dims=3), "an array is missing"),
        (_changed(dims=["a"]), "an integer is missing"),
        (_changed(dims=[0] * 999), "an array has too many numbers"),
        (_changed(offset0=2**63), "a number exceeds int64"),
        (_changed(offset0=2**63 - 1), "the layout exceeds int64"),
        (_changed(dtype="u8", offset0=2**63 - 1279), "the layout exceeds int64"),
        (_changed(dtype="u8", offset0=2**63 - 1280), "the bytes exceed int64"),
        (_changed(offset0=2**61), "the bytes exceed int64"),
        (_changed(offset0=-1), "the layout reaches in front of its buffer"),
        (_changed(offset0=-(2**63) + 1), "the layout reaches in front of its buffer"),
        (_changed(padded_offsets=[0, 1, 0, 0]), "padded_offsets must be 0"),
        (_changed(strides=[1]), "padded_dims, strides, inner_blks or inner_idxs have another leng"),
        (_changed(inner_idxs=[4]), "an inner block has no size, or no dim"),
        (_changed(inner_blks=[0]), "an inner block has no size, or no dim"),
        (_changed(inner_blks=[2**62] * 2, inner_idxs=[1, 1]), "the inner blocks exceed int64"),
        (_changed(padded_dims=[2, 16, 5, 4]), "a padded extent does not fit its dims, or exceeds"),
        (_changed(padded_dims=[2, -1, 5, 4]), "a padded size is negative"),
        (_changed(strides=[-640, 320, 64, 16]), "the layout reaches in front of its buffer"),
        (_changed(axes=[[[0], 2]]), "dims, offset0, or axes and blocks are missing or illegal"),
        (_changed(axes=[[[0], 2]], blocks=[[0, 1, 2, 1]]), "axes are no partition of the dims"),
        (_changed(axes=[[0, 2]], blocks=[]), "an array is missing"),
        (_changed(axes=[[[0, 1, 2, 3], 680]], blocks=[[0, 1, 680]]), "blocks are not [axis, step,"),
        (_changed(axes=[[[0, 1, 2, 3], 680]], blocks=[[0, 2, 340, 1]]), "blocks do not lead down"),
        (
            _changed(axes=[[[0, 1, 2, 3], 680]], blocks=[[0, 4, 170, 8], [0, 1, 2, 1]]),
            "a block does not cut the one before it",
        ),
        (
            _changed(axes=[[[0, 1, 2, 3], 680]], blocks=[[0, 1, 680, 1], [1, 1, 1, 1]]),
            "blocks do not follow axis by axis",
        ),
    ],
)
def test_what_is_no_descriptor_is_refused_with_the_reason(
    reader: Reader, change: Callable[[dict[str, Any]], dict[str, Any]], reason: str
) -> None:
    text = json.dumps(change(json.loads(_BLOCKED)))
    found = reader.read(text)
    assert found is not None
    assert found.startswith(reason)
    with pytest.raises(memdesc.MemdescError):
        memdesc.from_json(text)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema', '{"schema":1', "{}", "{}x", '{"a":}'])
def test_texts_that_are_no_object_are_refused(reader: Reader, text: str) -> None:
    assert reader.read(text) is not None


def test_nesting_does_not_exhaust_the_stack(reader: Reader) -> None:
    assert reader.read('{"a": ' + "[" * 100_000) == "a value is missing"
    assert reader.read('{"dims": ' + "[" * 100_000) == "arrays are nested too deep"


def test_the_elements_of_a_npy_file_are_found(reader: Reader, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(5, dtype=np.uint8))
    file = (tmp_path / "x.npy").read_bytes()
    assert file[reader.npy_data(file) :] == bytes(range(5))
    assert [reader.npy_data(file[:size]) for size in (0, 9, 40)] == [-1] * 3
    assert reader.npy_data(b"x" * 200) == -1
    second = b"\x93NUMPY\2\0" + (4).to_bytes(4, "little") + b"{} \nab"
    assert second[reader.npy_data(second) :] == b"ab"


def test_the_schema_in_the_docs_describes_what_is_written() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is in the extra test")
    path = Path(__file__).parents[3] / "docs" / "descriptor.schema.json"
    schema = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert schema["properties"]["dtype"]["enum"] == list(DATA_TYPES)
    extra = memory_desc((3, 5), "s8", "ab").with_extra(memdesc.Extra(asymmetric_mask=2))
    for text in (_BLOCKED, _FUSED, memdesc.to_json(extra)):
        fields = json.loads(text)
        validator.validate(fields | {"later": 1})
        for key in set(fields):
            assert not validator.is_valid({k: v for k, v in fields.items() if k != key}), key
    assert not validator.is_valid(json.loads(_BLOCKED) | {"schema": 2})
    assert not validator.is_valid(json.loads(_BLOCKED) | {"dims": [-1]})
