from __future__ import annotations

import pytest

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
