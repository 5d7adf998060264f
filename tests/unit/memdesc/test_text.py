from __future__ import annotations

import json
from typing import Any

import pytest

from memdesc import (
    MemdescError,
    MemoryDesc,
    UnsupportedFormatError,
    image_desc,
    memory_desc,
)
from memdesc.verbose import to_verbose

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
    assert json.loads(view.to_json()) == BLOCKED
    assert json.loads(fused.to_json()) == FUSED
    assert MemoryDesc.from_json(view.to_json()) == view
    assert MemoryDesc.from_json(fused.to_json()) == fused
    assert MemoryDesc.from_json(fused.to_json().encode()) == fused  # type: ignore[arg-type] # bytes are read, too


@pytest.mark.parametrize("key", BLOCKED)
def test_a_missing_key_is_named(key: str) -> None:
    text = json.dumps({name: value for name, value in BLOCKED.items() if name != key})
    with pytest.raises(
        MemdescError,
        match=rf"^not a descriptor: the key '{key}' is missing; to_json\(\) shows the form$",
    ):
        MemoryDesc.from_json(text)


@pytest.mark.parametrize("schema", [0, 3, "1", None, True, 1.0, [1]])
def test_another_schema_is_refused(schema: object) -> None:
    with pytest.raises(
        MemdescError, match=r"^descriptor of schema .*; this version reads schema 1 and 2$"
    ):
        MemoryDesc.from_json(json.dumps(BLOCKED | {"schema": schema}))


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "nan", "\ud800", b"\xff", None, 3, {}),
        *(
            "[" * 100_000,
            "[" * 2000 + "]" * 2000,
            '{"schema":' * 5000,
            "9" * 5000,
            '{"schema": 1, "dims": [' + "9" * 5000 + "]}",
        ),
    ],
    ids=lambda text: repr(text)[:20],
)
def test_strings_that_are_not_json_are_refused(text: Any) -> None:
    with pytest.raises(
        MemdescError,
        match=r"^not a descriptor: .*; to_json\(\) shows the form$|^a descriptor is a JSON",
    ) as caught:
        MemoryDesc.from_json(text)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("base", "changes", "reason"),
    [
        (
            BLOCKED,
            {"dims": [2, float("nan")]},
            r"dims must be a sequence of integers, not \[2, nan\]",
        ),
        (BLOCKED, {"dims": [2, 10**400]}, "dims must be integers that int64 holds"),
        (BLOCKED, {"dtype": ["f32"]}, "unknown data type"),
        (BLOCKED, {"offset0": [0]}, r"offset0 must be an integer that int64 holds, not \[0\]"),
        (BLOCKED, {"strides": [1, 1]}, "share one element"),
        (
            BLOCKED,
            {"padded_dims": [2, 2]},
            r"padded extent 2 of b \(dim 1\) must be at least its size 3",
        ),
        (FUSED, {"axes": 3}, "not a descriptor: 'int' object is not iterable"),
        (
            FUSED,
            {"axes": [[[0], 1], [[1], 8], [[2, 3]]]},
            "not a descriptor: not enough values to unpack",
        ),
        (
            FUSED,
            {"axes": [[[0], 1], [[1], 8], [[2, -1], 16]]},
            "are not a partition of dims 0 to 3",
        ),
        (
            FUSED,
            {"axes": [[[0], 1], [[1], 8], [2, 16]]},
            "axes must be a sequence of integers, not 2",
        ),
        (
            FUSED,
            {"axes": [[[0], 1], [[1], 8], [[2, 3], "x"]]},
            "axes must be an integer that int64 holds, not 'x'",
        ),
        (
            FUSED,
            {"blocks": [[0, 1, 1]]},
            "not a descriptor: .* missing 1 required positional argument: 'stride'",
        ),
        (FUSED, {"blocks": []}, "must lead down to step 1 in each of the axes"),
    ],
)
def test_fields_of_an_illegal_layout_are_refused_with_the_rule(
    base: dict[str, Any], changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(MemdescError, match=reason):
        MemoryDesc.from_json(json.dumps(base | changes))


def test_padded_offsets_other_than_0_are_read_and_refused() -> None:
    with pytest.raises(
        UnsupportedFormatError, match=r"padded_offsets \(0, 1\) are not supported; only 0"
    ):
        MemoryDesc.from_json(json.dumps(BLOCKED | {"padded_offsets": [0, 1]}))
    with pytest.raises(MemdescError, match=r"not a descriptor: .*'flags'"):
        MemoryDesc.from_json(json.dumps(BLOCKED | {"extra": {"flags": 1}}))
    with pytest.raises(MemdescError, match="extra must be an Extra or None, not 3"):
        MemoryDesc.from_json(json.dumps(BLOCKED | {"extra": 3}))
    with pytest.raises(
        MemdescError, match=r"padded_offsets \(0,\) must be 2 numbers, one for each dim"
    ):
        MemoryDesc.from_json(json.dumps(BLOCKED | {"padded_offsets": [0]}))


def test_only_descriptors_are_written() -> None:
    write: Any = to_verbose
    for value in (3, None, "nchw"):
        with pytest.raises(
            MemdescError, match=r"desc must be a MemoryDesc, not .*; see memdesc\.memory_desc"
        ):
            write(value)
    with pytest.raises(
        MemdescError, match=r"desc must be a MemoryDesc, not image_desc\(.*\); its \.desc is one"
    ):
        write(image_desc((1, 4, 3, 3), "f16", "in_out_channel"))
