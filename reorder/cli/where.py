"""`memdesc where`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memdesc import ImageDesc, MemdescError
from reorder.cli.command import (
    LAYOUT,
    Command,
    Facts,
    add_dims,
    add_dtype,
    buffer_of,
    dims_of,
    layout_of,
    numbers_of,
    table,
)

if TYPE_CHECKING:
    import argparse

    from memdesc import MemoryDesc

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tag", metavar="TAG", help=LAYOUT)
    add_dims(parser)
    parser.add_argument(
        "indices", metavar="INDEX", nargs="*", help="logical indices, such as 1,9,2,3"
    )
    add_dtype(parser)
    parser.add_argument(
        "--offset", type=int, metavar="N", action="append", default=[], help="an offset in elements"
    )
    parser.add_argument(
        "--byte", type=int, metavar="N", action="append", default=[], help="a byte of the buffer"
    )


def _answer(options: argparse.Namespace) -> tuple[Facts, int]:
    dims = dims_of(options.dims)
    layout = layout_of(options.tag, dims, options.dtype)
    image, desc = layout if isinstance(layout, ImageDesc) else None, buffer_of(layout)
    offsets = [desc.offset(numbers_of(text, "index"), padded=True) for text in options.indices]
    offsets += options.offset
    offsets += [offset for byte in options.byte for offset in _offsets_in(desc, byte)]
    if not offsets:
        msg = "give an index, such as 1,9,2,3, or a place in memory with --offset or --byte"
        raise MemdescError(msg)
    elements = [_element(desc, image, offset) for offset in offsets]
    return {"layout": repr(layout), "elements": elements}, 0


def _offsets_in(desc: MemoryDesc, byte: int) -> list[int]:
    """Return the offsets of the elements in a byte: two if they have 4 bits."""
    if desc.dtype.is_packed:
        return [2 * byte, 2 * byte + 1]
    return [byte // (desc.dtype.bits // 8)]


def _element(desc: MemoryDesc, image: ImageDesc | None, offset: int) -> Facts:
    index = desc.index(offset)
    facts: Facts = {"index": index, "offset": offset, "byte": desc.byte(index)}
    if desc.dtype.is_packed:
        facts["half"] = "high" if offset % 2 else "low"
    if image is not None:
        pixel, lane = divmod(offset, image.channels)
        facts |= {"pixel": (pixel % image.width, pixel // image.width), "lane": lane}
    return facts | {"padding": index.is_padding}


def _lay_out(facts: Facts) -> list[str]:
    """Return a line for each element."""
    rows = [[_cell(key, value) for key, value in one.items()] for one in facts["elements"]]
    return [facts["layout"], *table(rows)]


def _cell(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return key if value else ""
    return f"{key} {','.join(map(str, value)) if isinstance(value, tuple) else value}"


COMMAND = Command(
    "where",
    "Show where an index lies in memory, and which index lies at an offset or a byte.",
    "where nChw8c 2x17x5x4 1,9,2,3 --byte 1076",
    _add_arguments,
    _answer,
    _lay_out,
)
