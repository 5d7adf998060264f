from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from memdesc import (
    MemdescError,
    UnknownFormatError,
    UnsupportedFormatError,
    array_desc,
    from_notation,
    memory_desc,
    to_notation,
)


def test_strides_and_the_offset_are_in_bytes() -> None:
    x = np.zeros((3, 4), ml_dtypes.bfloat16)[::-1, ::2]
    text = "shape=(3, 2), dtype='bfloat16', strides=(-8, 4), offset=16"
    assert to_notation(array_desc(x), "numpy") == text
    assert from_notation(text, "numpy") == array_desc(x)


@pytest.mark.parametrize("dtype", ["'float32'", "'<f4'", "np.float32", "numpy.float32", "'f32'"])
def test_types_are_read_as_numpy_spells_them(dtype: str) -> None:
    text = f"shape=(3, 2), dtype={dtype}, strides=(4, 12)"
    assert from_notation(text, "numpy") == memory_desc((3, 2), "f32", "ba")
    # numpy's "i8" has eight bytes
    assert str(from_notation("shape=(3,), dtype='i8'", "numpy").dtype) == "s64"


def test_what_the_caller_says_is_not_needed_in_the_string() -> None:
    assert from_notation("strides=(2, 6)", "numpy", (3, 2), "f16") == memory_desc(
        (3, 2), "f16", "ba"
    )


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ("", UnknownFormatError, "it is shape="),
        ("shape=(2, 3), order='F'", UnknownFormatError, "each once, and not order"),
        (
            "shape=(2, 3), dtype='f4', strides=(5, 4)",
            UnsupportedFormatError,
            "5 bytes are no whole",
        ),
        ("shape=(2,), dtype='f4', offset=2", UnsupportedFormatError, "2 bytes are no whole"),
        ("shape=(2,), dtype='int4'", UnsupportedFormatError, "one element a byte"),
        ("shape=(2,), dtype='complex64'", MemdescError, "unknown data type"),
        ("shape=(2,), dtype='float33'", MemdescError, "unknown data type"),
    ],
)
def test_other_strings_are_refused(text: str, kind: type[MemdescError], reason: str) -> None:
    with pytest.raises(kind, match=reason):
        from_notation(text, "numpy")


def test_blocks_and_packed_types_are_refused() -> None:
    for desc, reason in [
        (memory_desc((2, 17), "f32", "aB8b"), "is blocked"),
        (memory_desc((2, 17), "s4", "ab"), "one element a byte, not two"),
    ]:
        with pytest.raises(UnsupportedFormatError, match=reason):
            to_notation(desc, "numpy")
