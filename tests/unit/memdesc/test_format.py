from __future__ import annotations

import pytest

import memdesc
from memdesc import RUNTIME, data_type, image_desc, memory_desc, parse_tag, runtime_desc

VALUES = (
    memory_desc((2, 3), "f32", "ba"),
    image_desc((1, 4, 2, 2), "f16", "in_out_channel"),
    runtime_desc((RUNTIME, 3), "s8", "ab"),
    data_type("bf16"),
    parse_tag("aB8b"),
)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_is_formatted_as_its_text(value: object) -> None:
    assert f"{value:>90}" == str(value).rjust(90)
    assert f"{value}" == str(value)


def test_values_that_print_as_one_line_take_a_format() -> None:
    for value in (
        memory_desc((2, 17, 5, 4), "f32", "nChw8c"),
        memdesc.image_desc((1, 17, 5, 4), "f16", "in_out_channel"),
        memdesc.runtime_desc((memdesc.RUNTIME, 4), "f32", "ab"),
        memdesc.data_type("bf16"),
        memdesc.parse_tag("aBcd8b"),
    ):
        assert f"{value}" == str(value)
        assert f"{value:>60}" == str(value).rjust(60)
        with pytest.raises(ValueError, match="format code"):
            f"{value:d}"
