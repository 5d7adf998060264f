"""`memdesc show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import memdesc
from memdesc import ImageDesc, MemdescError, known_records
from memdesc.names.weights import PACKINGS
from reorder.cli.command import (
    LAYOUT,
    Command,
    Facts,
    add_dims,
    add_dtype,
    add_picture,
    desc_facts,
    dims_of,
    image_facts,
    layout_of,
    numbers_of,
)

if TYPE_CHECKING:
    import argparse

    from memdesc.picture import Picture

__all__ = ["COMMAND"]

# a record with the name of a packing is shown as that packing of codes
_RECORDS = {*known_records()} - {*PACKINGS}


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tag", metavar="TAG", help=f"{LAYOUT}; or a record such as q4_k")
    add_dims(parser)
    add_dtype(parser)
    add_picture(parser, "draw it: the logical grid beside the memory")
    parser.add_argument("--draw", action="store_true", help="draw it here, as text")
    parser.add_argument(
        "--letters",
        help="what to call the dims in the picture, such as nchw (default: as the name does)",
    )
    parser.add_argument(
        "--highlight",
        metavar="INDEX",
        action="append",
        default=[],
        help="mark an element in the picture, such as 1,9,2,3; may be given several times",
    )


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    dims = dims_of(options.dims)
    if options.tag.lower() in _RECORDS:
        return _record(options, dims), 0
    layout = layout_of(options.tag, dims, options.dtype)
    facts = image_facts(layout) if isinstance(layout, ImageDesc) else desc_facts(layout)
    if options.svg is not None or options.draw:
        marked = [numbers_of(text, "the index to highlight") for text in options.highlight]
        _draw(options, layout.show(options.letters, highlight=marked), facts)
    return facts, 0


def _record(options: argparse.Namespace, dims: tuple[int, ...]) -> Facts:
    """Return the facts of a record."""
    if options.letters or options.highlight:
        msg = f"{options.tag} is a record, whose picture takes neither --letters nor --highlight"
        raise MemdescError(msg)
    record = memdesc.record_desc(dims, options.tag)
    facts: Facts = {
        "dims": record.dims,
        "rule": str(record.rule),
        "bytes": record.nbytes,
        "bits_per_element": round(record.bits_per_element, 4),
        "fields": [
            {
                "name": part.name,
                "type": part.kind,
                "dims": part.layout.dims,
                "groups": part.groups,
                "tensor": part.tensor,
            }
            for part in record.fields
        ],
    }
    if record.constants:
        facts["constants"] = [
            {"tensor": each.tensor, "type": each.kind, "values": each.values}
            for each in record.constants
        ]
    if options.svg is not None or options.draw:
        _draw(options, record.show(), facts)
    return facts


def _draw(options: argparse.Namespace, picture: Picture, facts: Facts) -> None:
    """Save a picture, or add it to the facts, as the options say."""
    if options.svg is not None:
        picture.save(options.svg)
        facts["wrote"] = options.svg
    if options.draw:
        facts["picture"] = picture.text.splitlines()


COMMAND = Command(
    "show",
    "Show a layout: padding, strides, blocks, bytes, names, and a picture.",
    "show nChw8c 2x17x5x4 --dtype f32 --svg nChw8c.svg",
    _add_arguments,
    _answer,
)
