from __future__ import annotations

from memdesc import data_type
from memdesc.source import language_of
from memdesc.source.statements import AddInt32, ClearBytes, Function, Parameter


def test_sums_behind_the_elements_are_added_byte_by_byte() -> None:
    function = Function(
        "sum",
        ("Sum.",),
        "",
        (Parameter("dst", data_type("s8"), is_written=True),),
        (ClearBytes("dst", 16, 8), AddInt32("dst", "16", "-128 * dst[3]")),
    )
    assert language_of("c").function(function) == [
        "/* Sum. */",
        "void sum(int8_t *dst)",
        "{",
        "    memset(dst + 16, 0, 8);",
        "    uint32_t sum = 0;",
        "    memcpy(&sum, dst + 16, sizeof sum);",
        "    sum += (uint32_t)(-128 * dst[3]);",
        "    memcpy(dst + 16, &sum, sizeof sum);",
        "}",
    ]
