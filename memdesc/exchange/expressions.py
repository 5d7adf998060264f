"""Strings of other systems that are Python expressions, read without being run."""

from __future__ import annotations

import ast

from memdesc.errors import MemdescError
from memdesc.exchange.system import not_understood
from memdesc.int64 import INT64_MAX, checked_ints

__all__ = ["arguments", "integer", "integers", "keywords", "parse"]


def parse(system: str, text: str, source: str | None = None) -> ast.expr:
    """Return the tree of an expression: the text, or another one that was made of it."""
    try:
        tree = ast.parse((text if source is None else source).strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise not_understood(system, text, "it is no expression of Python's grammar") from None
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, int) and value > INT64_MAX:
            reason = f"an integer of {value.bit_length()} bits is in it, and 63 are the most"
            raise not_understood(system, text, reason)
    return tree


def arguments(system: str, text: str, known: tuple[str, ...], reason: str) -> dict[str, ast.expr]:
    """Return the keyword arguments that a string is, at least one; refuse others with a reason."""
    call = parse(system, text, f"f({text})")
    found = keywords(system, text, call, known)
    if (
        not isinstance(call, ast.Call)
        or not isinstance(call.func, ast.Name)
        or call.args
        or not found
    ):
        raise not_understood(system, text, reason)
    return found


def keywords(system: str, text: str, call: ast.expr, known: tuple[str, ...]) -> dict[str, ast.expr]:
    """Return the keyword arguments of a call; refuse others than the known ones."""
    found: dict[str, ast.expr] = {}
    for keyword in call.keywords if isinstance(call, ast.Call) else []:
        if keyword.arg not in known or keyword.arg in found:
            reason = f"it has {', '.join(known)}, each once, and not {keyword.arg}"
            raise not_understood(system, text, reason)
        found[keyword.arg] = keyword.value
    return found


def integers(system: str, text: str, node: ast.expr) -> tuple[int, ...]:
    """Return a tuple or a list of integers."""
    try:
        value = ast.literal_eval(node)
        return checked_ints("integers", value)
    except (ValueError, TypeError, MemdescError):
        raise not_understood(system, text, f"{ast.unparse(node)!r} are no integers") from None


def integer(system: str, text: str, node: ast.expr) -> int:
    """Return one integer."""
    return integers(system, text, ast.Tuple([node]))[0]
