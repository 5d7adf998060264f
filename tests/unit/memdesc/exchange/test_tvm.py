from __future__ import annotations

import pytest

from memdesc import (
    UnknownFormatError,
    UnsupportedFormatError,
    from_notation,
    memory_desc,
    to_notation,
)
from memdesc.exchange import written

_DIMS = (2, 17, 5, 4)


@pytest.mark.parametrize(
    ("tag", "string", "index_map"),
    [
        ("nChw16c", "NCHW16c", "lambda n, c, h, w: [n, c // 16, h, w, c % 16]"),
        ("a4bBcd", "N4cCHW", "lambda n, c, h, w: [n, c % 4, c // 4, h, w]"),
        (
            "ABcd4b16a4b",
            None,
            "lambda n, c, h, w: [n // 16, c // 16, h, w, c // 4 % 4, n % 16, c % 4]",
        ),
        ("ab(CD)4(cd)", None, "lambda n, c, h, w: [n, c, (h * 4 + w) // 4, (h * 4 + w) % 4]"),
    ],
)
def test_a_layout_is_a_string_and_an_index_map(
    tag: str, string: str | None, index_map: str
) -> None:
    desc = memory_desc(_DIMS, "f32", tag)
    texts = written(desc, "tvm", letters="nchw")
    assert texts == ((string, index_map) if string else (index_map,))
    for text in texts:
        assert from_notation(text, "tvm", _DIMS, letters="nchw") == desc


def test_dims_are_ordered_by_the_alphabet_or_by_a_family_of_letters() -> None:
    for text, tag in [("NHWC", "acdb"), ("ACDB", "acdb"), ("HWIO", "cdba"), ("NCHW16c", "aBcd16b")]:
        assert from_notation(text, "tvm", _DIMS) == memory_desc(_DIMS, "f32", tag)
    assert to_notation(memory_desc(_DIMS, "f32", "aBcd16b"), "tvm") == "ABCD16b"
    with pytest.raises(UnknownFormatError, match="the dims B, F, Y, X; give letters"):
        from_notation("BFYX", "tvm", _DIMS)
    with pytest.raises(UnknownFormatError, match="give letters"):
        from_notation("NCHW", "tvm", _DIMS, letters="oihw")


def test_blocks_that_are_one_physical_dim_are_blocks() -> None:
    assert from_notation("OIHW[2i4o]", "tvm", _DIMS) == memory_desc(_DIMS, "f32", "ABcd2b4a")
    assert from_notation("NCHW1c", "tvm", _DIMS) == memory_desc(_DIMS, "f32", "abcd")


@pytest.mark.parametrize(
    "text",
    [
        "lambda x, y: (x // 4, y, x % 4)",
        "T.index_map(lambda x, y: (x // T.int64(4), y, x % T.int64(4)))",
        "tvm.tirx.IndexMap.from_func(lambda x, y: [x // 4, y, x % 8 % 4], ndim=2)",
        "lambda x, y: [x // 2 // 2, y, x % 4]",
        "lambda x, y: [x // 4, y, x % 4, x % 4 // 4]",
    ],
)
def test_index_maps_are_read_as_written_by_hand_and_as_printed(text: str) -> None:
    assert from_notation(text, "tvm", (9, 3)) == memory_desc((9, 3), "f32", "Ab4a")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("NCHWc", "it is NCHW16c, or"),
        ("NCHW 16c", "it is NCHW16c, or"),
        (
            "OHWI16i64o2i",
            "2i is not the first block of one of its dims; a string of TVM has at most one block",
        ),
        ("NCHW4d", "4d is not the first block"),
        ("NCHW0c", "each once"),
        ("lambda a, b", "not a Python expression"),
        ("lambda a, b: a", "an index map is lambda"),
        ("lambda a, b, c: [a, b, c]", "it maps 3 indices"),
        ("lambda n, c: [" + "n+" * 950 + "c]", "nested too deeply|no expression"),
    ],
)
def test_other_strings_are_refused_with_the_rule(text: str, reason: str) -> None:
    with pytest.raises(UnknownFormatError, match=reason):
        from_notation(text, "tvm", (2, 3))


@pytest.mark.parametrize(
    ("outputs", "reason"),
    [
        ("a, b // 4", "must divide each dim into digits"),
        ("a, b // 2 % 3 % 2, b % 2", "b // 2 % 3 % 2 is not a digit"),
        ("a, b // 0", "b // 0 is not a digit"),
        ("a, c", "c is not a digit"),
        ("a, b * 4 + a", "b \\* 4 \\+ a is not a digit"),
        ("a * 4.0 + b", "a \\* 4.0 is not a digit"),
        ("(a + b) * 4", "\\(a \\+ b\\) \\* 4 is not a digit"),
        ("a, IndexMap.AXIS_SEPARATOR, b", "an axis separator"),
    ],
)
def test_maps_that_are_not_digits_are_refused(outputs: str, reason: str) -> None:
    with pytest.raises(UnsupportedFormatError, match=reason):
        from_notation(f"lambda a, b: [{outputs}]", "tvm", (2, 3))


def test_layouts_that_tvm_cannot_express_are_refused() -> None:
    for desc, reason in [
        (memory_desc((2, 17), "f32", "ab__b8"), "b \\(dim 1\\) is aligned to 24"),
        (memory_desc((2, 17), "f32", strides=(20, 1)), "leave gaps"),
    ]:
        with pytest.raises(UnsupportedFormatError, match=reason):
            to_notation(desc, "tvm")
