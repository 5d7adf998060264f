import json
from pathlib import Path

import jsonschema
import pytest

from memdesc import Extra, MemdescError, MemoryDesc, memory_desc, parse_layout
from memdesc.dtypes import DATA_TYPES

SCHEMA = Path(__file__).parents[3] / "docs" / "descriptor.schema.json"

BLOCKED = {
    "schema": 1,
    "dtype": "bf16",
    "dims": [2, 3],
    "offset0": 8,
    "padded_offsets": [0, 0],
    "extra": None,
    "padded_dims": [2, 3],
    "strides": [24, 8],
    "inner_blks": [8],
    "inner_idxs": [1],
}
FUSED = {
    "schema": 1,
    "dtype": "f32",
    "dims": [1, 3, 2, 5],
    "offset0": 0,
    "padded_offsets": [0, 0, 0, 0],
    "extra": None,
    "letters": "bfyx",
    "axes": [[[0], 1], [[1], 8], [[2, 3], 16]],
    "blocks": [[0, 1, 1, 128], [1, 8, 1, 128], [1, 1, 8, 16], [2, 16, 1, 128], [2, 1, 16, 1]],
}


def test_json_has_onednns_fields_or_else_blocks() -> None:
    view = memory_desc((2, 17), "bf16", "aB8b").submemory((2, 3), (0, 8))
    fused = memory_desc((1, 3, 2, 5), "f32", "bf8_xy16")
    for desc, held in ((view, BLOCKED), (fused, FUSED)):
        assert json.loads(desc.to_json()) == held
        assert MemoryDesc.from_json(desc.to_json()) == desc
    assert MemoryDesc.from_json(fused.to_json().encode()) == fused  # type: ignore[arg-type] # bytes are read, too


def test_json_is_of_the_schema_that_is_published() -> None:
    schema = json.loads(SCHEMA.read_text("utf-8"))
    assert {*schema["properties"]["dtype"]["enum"]} == {*DATA_TYPES}
    check = jsonschema.Draft202012Validator(schema).validate
    for held in (BLOCKED, FUSED):
        check(held)
        for key in held.keys() - {"letters"}:
            with pytest.raises(jsonschema.ValidationError):
                check({name: value for name, value in held.items() if name != key})
    swizzled = parse_layout("Sw<3,3,3> o 0 o (8,64):(64,1)", dtype="f16")
    check(json.loads(swizzled.to_json()))
    weights = memory_desc((16, 16, 3, 3), "s8", "OIhw4i16o4i").with_extra(Extra(s8s8_mask=1))
    check(json.loads(weights.to_json()))


def test_a_missing_key_is_named() -> None:
    for key in BLOCKED:
        text = json.dumps({name: value for name, value in BLOCKED.items() if name != key})
        with pytest.raises(MemdescError, match="not a descriptor: the key ") as refused:
            MemoryDesc.from_json(text)
        assert str(refused.value).endswith(f"'{key}' is missing; to_json() shows the form")
