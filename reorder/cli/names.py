"""`memdesc names`."""

from __future__ import annotations

from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from memdesc import Name, UnsupportedFormatError, known_names
from memdesc.names import images, resolve
from reorder.cli.command import Command, Facts, table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

__all__ = ["COMMAND"]

# Element widths in bits: a name without a layout at the first one is listed at the others.
_BITS, *_NARROWER = (32, 16, 8, 4)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "filter",
        metavar="FILTER",
        nargs="?",
        default="",
        help="part of a name, in any case, or a pattern such as 'nChw*c' (default: all)",
    )
    parser.add_argument("--ndims", type=int, metavar="N", help="only names for N dims")


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    names = [
        row
        for row in _rows()
        if _is_wanted(row["text"], options.filter)
        and (options.ndims is None or row["ndims"] == options.ndims)
    ]
    return {"count": len(names), "names": names}, 0 if names else 1


def _is_wanted(name: str, wanted: str) -> bool:
    if any(mark in wanted for mark in "*?["):
        return fnmatchcase(name, wanted)
    return wanted.lower() in name.lower()


def _rows() -> Iterator[Facts]:
    """Return the known names and image types; the tag of a refused name is None."""
    known = known_names()
    listed = {name.text for name in known}
    mace = [Name("mace", text, "image") for text in images.IMAGES if text not in listed]
    for name in (*known, *mace):
        if image := images.IMAGES.get(name.text):
            yield name._asdict() | {"ndims": len(image.letters), "tag": image.parts}
            continue
        try:
            tag = resolve(name.text, (), _BITS)
        except UnsupportedFormatError as reason:
            refused = {"ndims": None, "tag": None, "why": str(reason)}
            narrower = [*_of_widths(name.text)] or [refused]
            yield from (name._asdict() | row for row in narrower)
        else:
            yield name._asdict() | {"ndims": tag.ndims, "tag": str(tag)}


def _of_widths(name: str) -> Iterator[Facts]:
    """Return the tags of a packing, which exists only for some element widths."""
    for bits in _NARROWER:
        with suppress(UnsupportedFormatError):
            tag = resolve(name, (), bits)
            yield {"ndims": tag.ndims, "tag": str(tag), "bits": bits}


def _lay_out(facts: Facts) -> list[str]:
    """Return a line for each name."""
    rows = [(row["text"], row["vocabulary"], row["domain"], _layout(row)) for row in facts["names"]]
    if not rows:
        return ["no name matches"]
    return table(rows)


def _layout(row: Facts) -> str:
    tag = row["tag"] or "refused"
    return f"{tag} ({row['bits']} bits)" if "bits" in row else tag


COMMAND = Command(
    "names",
    "List the known names of layouts and images; exit code 1 if none matches.",
    "names 'nChw*c'",
    _add_arguments,
    _answer,
    _lay_out,
)
