from __future__ import annotations

import pytest

from memdesc import (
    DATA_TYPES,
    UnknownFormatError,
    UnsupportedFormatError,
    from_notation,
    memory_desc,
    to_notation,
)


def test_the_fields_of_a_tensor_are_written_and_read() -> None:
    desc = memory_desc((3, 4), "bf16", strides=(-1, 5), offset0=6)
    text = "ndim=2, dtype=(4, 16, 1), shape=(3, 4), strides=(-1, 5), byte_offset=12"
    assert to_notation(desc, "dlpack") == text
    assert from_notation(text, "dlpack") == desc


@pytest.mark.parametrize("name", DATA_TYPES)
def test_every_data_type_has_a_code(name: str) -> None:
    desc = memory_desc((3, 4), name, strides=(1, 3), offset0=2)
    assert from_notation(to_notation(desc, "dlpack"), "dlpack") == desc


@pytest.mark.parametrize("strides", ["", ", strides=None", ", strides=NULL", ", strides=(4, 1)"])
def test_no_strides_are_row_major(strides: str) -> None:
    desc = memory_desc((3, 4), "f32", "ab")
    assert from_notation(f"shape=(3, 4){strides}", "dlpack") == desc


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is ndim=2"),
        ("shape=(3, 4), device=1", "each once, and not device"),
        ("shape=(3, 4), shape=(3, 4)", "each once, and not shape|no expression"),
        ("ndim=3, shape=(3, 4)", "ndim is not 2"),
    ],
)
def test_other_strings_are_refused_with_the_rule(text: str, reason: str) -> None:
    with pytest.raises(UnknownFormatError, match=reason):
        from_notation(text, "dlpack")


def test_what_no_descriptor_or_tensor_holds_is_refused() -> None:
    with pytest.raises(UnsupportedFormatError, match=r"\(5, 64, 1\), which is none here"):
        from_notation("dtype=(5, 64, 1), shape=(3,)", "dlpack")
    with pytest.raises(UnsupportedFormatError, match="byte 6 is no start of an element of 32"):
        from_notation("dtype=(2, 32, 1), shape=(3,), byte_offset=6", "dlpack")
    with pytest.raises(UnsupportedFormatError, match="element 3 starts inside a byte"):
        to_notation(memory_desc((3,), "s4", strides=(1,), offset0=3), "dlpack")
    with pytest.raises(UnsupportedFormatError, match="is blocked"):
        to_notation(memory_desc((3,), "f32", "A2a"), "dlpack")
