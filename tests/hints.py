"""Hints in messages: tables of them, and what finds those without a row."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from memdesc import MemdescError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).parents[1]
# words that start a hint
_WORDS = re.compile(
    r"\b(pass|passed|use|give|did you mean|instead|see|leave|copy|make|write one)\b"
)


class Row(NamedTuple):
    """A call that fails, a part of the hint in its message, and a call that follows the hint."""

    hint: str
    fails: Callable[[], object]
    works: Callable[[], object]


def message(row: Row) -> str:
    """Return the message of the call that fails."""
    with pytest.raises((MemdescError, AttributeError, TypeError)) as caught:
        row.fails()
    return str(caught.value)


def check(row: Row) -> None:
    """Check that the hint is in the message, and follow it."""
    assert row.hint in message(row)
    row.works()


def without_row(
    modules: Iterable[str], messages: Iterable[str], others: Iterable[str] = ()
) -> list[str]:
    """Return which hints of modules are in none of the messages, and contain none of the others."""
    known = [*messages]
    return [
        f"{module}: {text}"
        for module in modules
        for text in _texts(module)
        if _WORDS.search(text)
        and not any(other in text for other in others)
        and not any(_pattern(text).search(each) for each in known)
    ]


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, text.split("{}"))), re.DOTALL)


def _texts(module: str) -> list[str]:
    """Return the strings of a module that are parts of messages, with {} for what is put in."""
    tree = ast.parse((ROOT / module).read_text("utf-8"))
    parts = {
        id(value)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for value in node.values
    }
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    parts |= {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    found = []
    for node in ast.walk(tree):
        if id(node) in parts:
            continue
        if isinstance(node, ast.JoinedStr):
            values = (
                each.value if isinstance(each, ast.Constant) else "{}" for each in node.values
            )
            found.append("".join(map(str, values)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            found.append(node.value)
    return found
