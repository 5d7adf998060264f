"""A file holds one idea: one of more than 300 lines says at its top why it is not two."""

import ast
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_MAX_LINES = 300
_LONG = sorted(
    str(file.relative_to(_ROOT))
    for folder in ("memdesc", "reorder", "tests")
    for file in (_ROOT / folder).rglob("*.py")
    if len(file.read_text(encoding="utf-8").splitlines()) > _MAX_LINES
)


@pytest.mark.parametrize("file", _LONG)
def test_a_long_file_says_why(file: str) -> None:
    docstring = ast.get_docstring(ast.parse((_ROOT / file).read_text(encoding="utf-8")))
    assert "over 300 lines" in " ".join((docstring or "").lower().split())
