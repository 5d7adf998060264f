from __future__ import annotations

import re
from pathlib import Path

from memdesc.dtypes import ALIASES, DATA_TYPES
from reorder.values.formats import ONEDNN_TYPES

_PAGE = Path(__file__).parents[2] / "docs" / "dtypes.md"


def test_the_table_of_the_page_has_the_rows_of_the_code() -> None:
    page = _PAGE.read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.splitlines()
        if re.match(r"\| `", line)
    ]
    assert [row[0].strip("`") for row in rows] == list(DATA_TYPES)
    for (name, dtype), row in zip(DATA_TYPES.items(), rows, strict=True):
        others = [alias for alias, of in ALIASES.items() if of == name]
        assert row[1] == str(dtype.bits)
        assert row[2] == f"`{dtype.numpy.name}`"
        assert re.findall(r"`([^`]+)`", row[3]) == [a for a in others if a != dtype.numpy.name]
        assert (row[4] == "yes") == (name in ONEDNN_TYPES)
    assert f"these {len(DATA_TYPES)} types" in page
