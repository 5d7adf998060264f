"""Hints in messages: tables of them, and what finds those without a row."""

import ast
import pickle
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import memdesc
import reorder
from tests import refused

ROOT = Path(__file__).parents[1]
# words that start a hint
_WORDS = re.compile(
    r"\b(pass|passed|use|give|did you mean|instead|see|leave|copy|make|write one)\b"
)

# what rows may use without an import
_COMMON = {"md": memdesc, "np": np, "pickle": pickle, "r": reorder, "replace": replace}


def check(
    table: Path, names: dict[str, Any], modules: Iterable[str], others: Iterable[str] = ()
) -> None:
    """Check and follow each hint; there is a row for each one in these modules but `others`."""
    messages = refused.check(refused.sections(table)["hints"], _COMMON | names)
    assert without_row(modules, messages, others) == []


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
