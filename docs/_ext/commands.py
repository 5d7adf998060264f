"""The usage and the arguments of commands, as their help has them."""

from __future__ import annotations

import argparse
import functools
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from reorder.cli.main import command_parser

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sphinx.application import Sphinx


class CommandReference(SphinxDirective):
    """`{command} show`: usage and arguments of a command, as its help has them."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Make them."""
        (name,) = self.arguments
        parser = command_parser(name)
        parser.formatter_class = functools.partial(argparse.HelpFormatter, width=88)
        rows = []
        for action in parser._actions:  # noqa: SLF001 - argparse has no public list
            if isinstance(action, argparse._HelpAction):  # noqa: SLF001 - not public either
                continue
            value = f" {action.metavar or action.dest.upper()}" if action.nargs != 0 else ""
            flags = [f"{flag}{value}" for flag in action.option_strings]
            rows.append((flags or [str(action.metavar or action.dest)], action.help or ""))
        usage = parser.format_usage().replace("\n       ", "\n").removeprefix("usage: ")
        example = (parser.epilog or "").removeprefix("example: ")
        return [
            nodes.paragraph("", parser.description or ""),
            _console(usage),
            _table(("argument", "meaning"), rows),
            nodes.paragraph("", "For example:"),
            _console(example),
        ]


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> nodes.table:
    """Return a table; lists become literals below each other."""
    made = nodes.table()
    group = nodes.tgroup(cols=len(head))
    made += group
    group += [nodes.colspec(colwidth=1) for _ in head]
    top = nodes.thead()
    top += _row(head)
    body = nodes.tbody()
    body += [_row(row) for row in rows]
    group += [top, body]
    return made


def _row(cells: Iterable[object]) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        entry = nodes.entry()
        texts = cell if isinstance(cell, list) else [cell]
        for text in texts:
            paragraph = nodes.paragraph()
            paragraph += (
                nodes.literal("", str(text)) if isinstance(cell, list) else nodes.Text(str(text))
            )
            entry += paragraph
        row += entry
    return row


def _console(text: str) -> nodes.literal_block:
    return nodes.literal_block(text, text, language="text")


def setup(app: Sphinx) -> dict[str, object]:
    """Tell Sphinx."""
    app.add_directive("command", CommandReference)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
