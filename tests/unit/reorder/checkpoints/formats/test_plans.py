"""Tensors that a format cannot hold are refused before anything is written."""

from pathlib import Path
from typing import Any

import pytest

from memdesc import MemdescError
from memdesc.record import record_desc
from reorder.checkpoints.formats.entry import Tensor
from reorder.checkpoints.formats.table import plan_file

_ENDINGS = ("safetensors", "gguf", "npz")
_PAIR = Tensor("a", "f32", (2,), 8)
_Q4_0 = Tensor("a", "q4_0", (32,), 18)


@pytest.mark.parametrize(
    ("ending", "tensors", "reason"),
    [
        *((ending, [_PAIR] * 2, "two tensors") for ending in ("safetensors", "gguf", "npz")),
        *(
            (ending, [_PAIR._replace(nbytes=9)], "takes 8 bytes, not 9")
            for ending in ("safetensors", "gguf")
        ),
        ("safetensors", [_Q4_0], "no type 'q4_0'"),
        (
            "safetensors",
            [Tensor("a", "u8", (64,), 64, record_desc((128, 8), "awq"))],
            "describe each of its tensors",
        ),
        ("gguf", [Tensor("a", "F6_E2M3", (4,), 3)], "no type 'F6_E2M3'"),
        ("gguf", [_Q4_0._replace(shape=(1, 1, 1, 1, 32))], "GGUF has 4 dims"),
        ("gguf", [Tensor("a", "ggml_type_42", (1, 1, 1, 1, 32), 18)], "GGUF has 4 dims"),
        ("gguf", [_Q4_0._replace(nbytes=19)], "takes 18 bytes, not 19"),
        ("npz", [Tensor("a", "F6_E2M3", (4,), 3)], "is not written with F6_E2M3 of shape"),
        (
            "npz",
            [Tensor("a", "u8", (17,), 17, record_desc((32,), "q4_0"))],
            "has 17 bytes, .* takes 18",
        ),
        ("npz", [_PAIR._replace(name="a" * 65535)], "too long"),
    ],
)
def test_what_a_format_cannot_hold_is_refused(ending: str, tensors: list[Any], reason: str) -> None:
    with pytest.raises(MemdescError, match=reason):
        plan_file(Path(f"x.{ending}"), tensors, {})


def test_metadata_that_is_not_text_is_refused() -> None:
    with pytest.raises(MemdescError, match="neither a string"):
        plan_file(Path("x.gguf"), [], {"a": 1})
