from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from memdesc import (
    MemdescError,
    MemoryDesc,
    NotBlockedError,
    UnknownFormatError,
    UnsupportedFormatError,
    from_json,
    from_verbose,
    image_desc,
    memory_desc,
    runtime_desc,
    to_json,
    to_verbose,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# Verbose: the examples of the specification.

WIDE = (9, 8, 13, 11, 40, 9, 33, 17)
PARENT = (12, 9, 13, 11, 48, 9, 33, 17)


@pytest.mark.parametrize(
    ("desc", "text"),
    [
        (memory_desc((2, 16, 5, 4), "f32", "abcd"), "f32::blocked:abcd::f0"),
        (memory_desc((2, 17, 5, 4), "f32", "aBcd16b"), "f32:p:blocked:aBcd16b::f0"),
        (
            memory_desc((2, 3, 6, 2), "f32", strides=(48, 100, 8, 3)),
            "f32::blocked:bacd:48x100x8x3:f0",
        ),
        (
            memory_desc(PARENT, "f32", "abcdefhg").submemory(WIDE, (1, 1, 0, 0, 8, 0, 0, 0)),
            "f32:0:blocked:abcdefhg:311907024x34656336x2665872x242352x5049x561x1x33:f0",
        ),
        (memory_desc((3, 5, 2, 2), "s8", "ABcd4b16a4b"), "s8:p:blocked:ABcd4b16a4b::f0"),
        (memory_desc((3, 5, 1), "s8", "cba"), "s8::blocked:cba::f0"),
        # as the last one prints with compensation, which makes it count as not dense
        (
            memory_desc((2, 17), "f32", "aB8b").submemory((2, 3), (0, 8)),
            "f32:0:blocked:aB8b:24x8:f0",
        ),
        # a stride of 0 counts as the largest; ties go to more outer blocks, then to the letter
        (memory_desc((2, 3, 4), "f32", strides=(12, 0, 1)), "f32::blocked:bac:12x0x1:f0"),
        (memory_desc((2, 3), "f32", strides=(0, 0)), "f32::blocked:ba:0x0:f0"),
        (memory_desc((1, 5, 1), "f32", strides=(1, 1, 1)), "f32::blocked:bac::f0"),
        # a negative stride is a huge unsigned one
        (memory_desc((2, 3), "f32", strides=(9, -1), offset0=2), "f32:0:blocked:ba:9x-1:f0"),
    ],
)
def test_a_descriptor_prints_as_onednn_prints_it_and_reads_back(
    desc: MemoryDesc, text: str
) -> None:
    assert to_verbose(desc) == text
    assert from_verbose(text, desc.dims, offset0=desc.offset0) == desc


@pytest.mark.parametrize("prefix", ["", "src:", "dst:", "wei:", "bia:", "src0:", "src_", "wei1_"])
def test_the_name_before_a_descriptor_and_the_flag_a_are_skipped(prefix: str) -> None:
    desc = memory_desc((2, 17, 5, 4), "f32", "aBcd16b")
    assert from_verbose(f"{prefix}f32:ap:blocked:aBcd16b::f0", desc.dims) == desc


def test_the_older_form_without_strides_is_read() -> None:
    assert from_verbose("src_f32::blocked:abcd:f0", (2, 3, 4, 5)) == memory_desc(
        (2, 3, 4, 5), "f32"
    )


def test_a_dense_layout_at_an_offset_has_the_strides_of_its_tag() -> None:
    desc = from_verbose("f32:0:blocked:ba::f0", (2, 3), offset0=6)
    assert desc == memory_desc((2, 3), "f32", strides=(1, 2), offset0=6)
    assert to_verbose(desc) == "f32:0:blocked:ba::f0"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "f32",
        "undef::undef:::",
        "f32:a:any:any::f0",
        "f32::sparse:csr::f0",
        "f32::opaque:::f0",
        "f32:p:blocked:*::f0",
        "f32::blocked:ab:3x:f0",
        "f32::blocked:ab:3x1:",
        "f32::blocked:ab::f",
        "f32::blocked:ab::f0:s8m1",
        "f32:0p:blocked:ab::f0",
        "f32:pp:blocked:ab::f0",
        "f32::blocked:ab::f0\n",
        "f32::blocked:ab:" + "9" * 5000 + "x1:f0",
        "f32::blocked:(ab)::f0",
        None,
        3,
        b"f32::blocked:ab::f0",
        ["f32::blocked:ab::f0"],
    ],
)
def test_another_form_is_refused_with_the_form(text: Any) -> None:
    with pytest.raises(
        MemdescError,
        match=(
            r"not the form dtype:flags:blocked:tag:strides:f0, "
            r"such as 'f32:p:blocked:aBcd8b::f0'$"
        ),
    ) as caught:
        from_verbose(text, (2, 3))
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("f32:o:blocked:ab::f0", {}, r"padded offsets \(flag 'o'\) are not in the string"),
        (
            "f32:0:blocked:ab::f0",
            {},
            (
                "flag '0' says whether offset0 is other than 0, but offset0 is 0; "
                "the string does not hold its value"
            ),
        ),
        (
            "f32::blocked:ab::f0",
            {"offset0": 3},
            "flag '0' says whether offset0 is other than 0, but offset0 is 3",
        ),
        (
            "f32:0:blocked:ab::f0",
            {"offset0": "3"},
            "offset0 must be an integer that int64 holds, not '3'",
        ),
        ("f32::blocked:ab::f0", {"dims": None}, "dims must be a sequence of integers, not None"),
        ("f32::blocked:abc::f0", {}, r"dims \(2, 3\) have 2 sizes, but 'abc' is for 3"),
        ("f32::blocked:abc:3x1:f0", {}, r"dims \(2, 3\) have 2 sizes, but 'abc' is for 3"),
        (
            "f32::blocked:ab:3x1x1:f0",
            {},
            r"strides \(3, 1, 1\) must be 2 numbers, one for each dim",
        ),
        ("f32::blocked:ab:2x1:f0", {}, "two indices share one element"),
        ("f33::blocked:ab::f0", {}, "unknown data type 'f33'"),
        (
            "f32:p:blocked:ab::f0",
            {},
            (
                r"flag 'p' says that dims are padded, but no block pads \(2, 3\), "
                r"and the string does not hold"
            ),
        ),
        (
            "f32:p:blocked:aB3b::f0",
            {},
            r"flag 'p' says that dims are padded, but no block pads \(2, 3\)",
        ),
        (
            "f32::blocked:aB8b::f0",
            {},
            (
                r"without flag 'p' nothing is padded, but b \(dim 1\) of size 3 does not fill "
                r"blocks of 8"
            ),
        ),
        (
            "f32::blocked:aB2b:9x2:f0",
            {},
            (
                r"without flag 'p' nothing is padded, but b \(dim 1\) of size 3 does not fill "
                r"blocks of 2"
            ),
        ),
    ],
)
def test_a_verbose_string_that_contradicts_the_arguments_is_refused(
    text: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(MemdescError, match=reason):
        from_verbose(text, options.pop("dims", (2, 3)), **options)


def test_aliases_are_no_tags_in_a_verbose_string() -> None:
    with pytest.raises(UnknownFormatError, match=r"^'nchw', at character 1: no dim is called 'n'"):
        from_verbose("f32::blocked:nchw::f0", (2, 3, 4, 5))


def test_a_layout_outside_of_onednns_fields_has_no_verbose_string() -> None:
    with pytest.raises(NotBlockedError, match="are fused into one index"):
        to_verbose(memory_desc((2, 3, 4, 5), "f32", "bf8_xy16"))


def test_padding_that_no_block_makes_prints_but_does_not_read_back() -> None:
    desc = memory_desc((2, 3, 4, 5), "f32", "byxf_af32")
    assert to_verbose(desc) == "f32:p:blocked:acdb::f0"
    with pytest.raises(MemdescError, match="the string does not hold padded dims"):
        from_verbose(to_verbose(desc), desc.dims)


# JSON

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
    "axes": [[[0], 1], [[1], 8], [[2, 3], 16]],
    "blocks": [[0, 1, 1, 128], [1, 8, 1, 128], [1, 1, 8, 16], [2, 16, 1, 128], [2, 1, 16, 1]],
}


def test_json_has_onednns_fields_where_a_layout_has_them_and_blocks_where_not() -> None:
    view = memory_desc((2, 17), "bf16", "aB8b").submemory((2, 3), (0, 8))
    fused = memory_desc((1, 3, 2, 5), "f32", "bf8_xy16")
    assert json.loads(to_json(view)) == BLOCKED
    assert json.loads(to_json(fused)) == FUSED
    assert from_json(to_json(view)) == view
    assert from_json(to_json(fused)) == fused
    assert from_json(to_json(fused).encode()) == fused  # type: ignore[arg-type] # bytes are read, too


def test_json_of_swizzled_blocks_keeps_padded_dims_out() -> None:
    desc = memory_desc((35, 5), "s8", "AB2a/1.16a/2.4b")
    assert json.loads(to_json(desc)).keys() == FUSED.keys()
    assert from_json(to_json(desc)) == desc


@pytest.mark.parametrize("key", BLOCKED)
def test_a_missing_key_is_named(key: str) -> None:
    text = json.dumps({name: value for name, value in BLOCKED.items() if name != key})
    with pytest.raises(
        MemdescError,
        match=rf"^no descriptor: the key '{key}' is missing; to_json\(\) shows the form$",
    ):
        from_json(text)


@pytest.mark.parametrize("schema", [0, 2, "1", None, True, 1.0, [1]])
def test_another_schema_is_refused(schema: object) -> None:
    with pytest.raises(
        MemdescError, match=r"^descriptor of schema .*; this version reads schema 1$"
    ):
        from_json(json.dumps(BLOCKED | {"schema": schema}))


@pytest.mark.parametrize("text", ["[]", "3", "null", '"schema"', "NaN", "true", "[[1, 2]]"])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(
        MemdescError, match=r"^a descriptor is a JSON object, not .*; to_json\(\) shows the form$"
    ):
        from_json(text)


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
def test_what_is_no_json_is_refused(text: Any) -> None:
    with pytest.raises(
        MemdescError,
        match=r"^no descriptor: .*; to_json\(\) shows the form$|^a descriptor is a JSON",
    ) as caught:
        from_json(text)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("base", "changes", "reason"),
    [
        (
            BLOCKED,
            {"dims": [2, float("nan")]},
            r"dims must be a sequence of integers, not \[2, nan\]",
        ),
        (BLOCKED, {"dims": [2.0, 3]}, r"dims must be a sequence of integers, not \[2.0, 3\]"),
        (BLOCKED, {"dims": 2}, "dims must be a sequence of integers, not 2"),
        (BLOCKED, {"dims": {"a": 2}}, "dims must be a sequence of integers, not {'a': 2}"),
        (BLOCKED, {"dims": [2, 10**400]}, "dims must be integers that int64 holds"),
        (BLOCKED, {"dtype": ["f32"]}, "unknown data type"),
        (BLOCKED, {"dtype": None}, "unknown data type None"),
        (BLOCKED, {"offset0": [0]}, r"offset0 must be an integer that int64 holds, not \[0\]"),
        (BLOCKED, {"offset0": None}, "offset0 must be an integer that int64 holds, not None"),
        (BLOCKED, {"strides": None}, "strides must be a sequence of integers, not None"),
        (BLOCKED, {"strides": [1, 1]}, "share one element"),
        (
            BLOCKED,
            {"padded_dims": [2, 2]},
            r"padded extent 2 of b \(dim 1\) must be at least its size 3",
        ),
        (BLOCKED, {"padded_dims": None}, "padded_dims must be a sequence of integers, not None"),
        (FUSED, {"axes": 3}, "no descriptor: 'int' object is not iterable"),
        (
            FUSED,
            {"axes": [[[0], 1], [[1], 8], [[2, 3]]]},
            "no descriptor: not enough values to unpack",
        ),
        (FUSED, {"axes": [[[0], 1], [[1], 8], [[2, -1], 16]]}, "are no partition of dims 0 to 3"),
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
            "no descriptor: .* missing 1 required positional argument: 'stride'",
        ),
        (FUSED, {"blocks": []}, "must lead down to step 1 in each of the axes"),
    ],
)
def test_fields_that_describe_no_layout_are_refused_with_the_rule(
    base: dict[str, Any], changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(MemdescError, match=reason):
        from_json(json.dumps(base | changes))


def test_padded_offsets_other_than_0_are_read_and_refused() -> None:
    with pytest.raises(
        UnsupportedFormatError, match=r"padded_offsets \(0, 1\) are not supported; only 0"
    ):
        from_json(json.dumps(BLOCKED | {"padded_offsets": [0, 1]}))
    with pytest.raises(MemdescError, match=r"no descriptor: .*'flags'"):
        from_json(json.dumps(BLOCKED | {"extra": {"flags": 1}}))
    with pytest.raises(MemdescError, match="extra must be an Extra or None, not 3"):
        from_json(json.dumps(BLOCKED | {"extra": 3}))
    with pytest.raises(
        MemdescError, match=r"padded_offsets \(0,\) must be 2 numbers, one for each dim"
    ):
        from_json(json.dumps(BLOCKED | {"padded_offsets": [0]}))


@pytest.mark.parametrize("write", [to_json, to_verbose])
def test_what_is_no_descriptor_is_not_written(write: Callable[[Any], str]) -> None:
    for value in (3, None, "nchw", runtime_desc((2, 3), "f32", "ab")):
        with pytest.raises(
            MemdescError, match=r"desc must be a MemoryDesc, not .*; see memdesc\.memory_desc"
        ):
            write(value)
    with pytest.raises(
        MemdescError, match=r"desc must be a MemoryDesc, not image_desc\(.*\); its \.desc is one"
    ):
        write(image_desc((1, 4, 3, 3), "f16", "in_out_channel"))


@pytest.mark.parametrize("axes", [[[[0, -100], 2], [[1], 3]], [[[0], 2], [[1, -5], 3]]])
def test_axes_of_negative_dims_are_refused(axes: object) -> None:
    fields = FUSED | {"dims": [2, 3], "padded_offsets": [0, 0], "axes": axes}
    with pytest.raises(MemdescError, match="no partition of dims 0 to 1"):
        from_json(json.dumps(fields | {"blocks": [[0, 1, 2, 3], [1, 1, 3, 1]]}))
