"""The tables on pages are what the code says."""

from importlib import import_module
from pathlib import Path

import pytest

_DOCS = Path(__file__).parents[2] / "docs"


def test_the_tables_on_the_pages_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(_DOCS / "_ext"))
    tables = import_module("tables")

    pages = {page: page.read_text("utf-8") for page in _DOCS.glob("*.md")}
    old = [page.name for page, text in pages.items() if tables.current(text) != text]
    assert not old, "python docs/_ext/tables.py writes them"
    assert all(f"<!-- table: {name}" in "".join(pages.values()) for name in tables.TABLES)
