"""The picture of a record: the first bytes of each tensor, coloured by field."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from memdesc.dtypes import BYTE_BITS
from memdesc.index import index_at
from memdesc.picture.cells import Cell
from memdesc.picture.grid import FULL, Limits
from memdesc.picture.memory import Lines, memory_half, memory_text
from memdesc.picture.sheet import Half, Sheet

if TYPE_CHECKING:
    from memdesc.layout import Layout
    from memdesc.picture.picture import Picture

# Bytes of a line, and how many times the limit of lines is allowed: a block may have 210 bytes.
_LENGTH, _LINES = 8, 1.5
# The most elements that a cell names.
_NAMED = 2


class DrawnField(NamedTuple):
    """A field: its name, its tensor, the bits of an element, and the layout of the elements."""

    name: str
    tensor: str
    bits: int
    layout: Layout


def draw_fields(
    head: list[str], fields: list[DrawnField], sizes: dict[str, int], limits: Limits = FULL
) -> Picture:
    """Draw the first bytes of tensors under some head lines; each field has its own colour.

    `sizes` are the bytes of each tensor.
    """
    halves: list[Half] = []
    symbols = ["field"]
    text = [*head]
    most = int(limits.lines * _LINES)
    for tensor, nbytes in sizes.items():
        if not nbytes:
            continue
        rows = list(range(min(-(-nbytes // _LENGTH), most)))
        lines = Lines(nbytes, _LENGTH, rows, list(range(_LENGTH)))
        here = [(k, field) for k, field in enumerate(fields) if field.tensor == tensor]
        table = lines.table(partial(_cell, here), BYTE_BITS)
        symbols += ["padding"] if any(cell.is_padding for cell in table.shown) else []
        symbols += ["gap"] if any(cell.run is None for cell in table.shown) else []
        caption = f"{tensor}, {nbytes} bytes: in each the field and its elements"
        halves.append(memory_half(table, caption))
        text += ["", caption, *memory_text(table)]
    return Sheet(head, halves, [*dict.fromkeys([*symbols, "line"])], "\n".join(text)).picture()


def _cell(fields: list[tuple[int, DrawnField]], byte: int) -> Cell:
    """Return the cell of a byte, with its elements in the order of their bits."""
    # first bit, number and field, index
    elements = sorted(
        (
            (offset * field.bits % BYTE_BITS, number, field, index)
            for number, field in fields
            for offset in _offsets(field.bits, byte)
            if (index := index_at(field.layout, offset)) is not None
        ),
        key=lambda element: element[0],
    )
    hover = [f"byte {byte}"]
    texts, beyond = [], []
    for first, _, field, index in elements:
        beyond.append(any(i >= size for i, size in zip(index, field.layout.dims, strict=True)))
        what = "padding" if beyond[-1] else f"index ({', '.join(map(str, index))})"
        last = first + min(field.bits, BYTE_BITS) - 1
        hover.append(f"bits {first} to {last}: {field.name}, {what}")
        sizes = zip(index, field.layout.padded_dims(), strict=True)
        texts.append(",".join(str(i) for i, size in sizes if size > 1) or "0")
    if not elements:
        return Cell(str(byte), "", "\n".join([*hover, "no field"]), None, None, is_padding=False)
    # of several fields the first is named; of one field its first elements
    _, run, field, _ = elements[0]
    several = len({number for _, number, _, _ in elements}) > 1
    more = "…" if len(elements) > _NAMED and not several else ""
    named = " ".join(texts[: 1 if several else _NAMED])
    note = "pad" if all(beyond) else f"{field.name}{'+' if several else ''} {named}{more}"
    return Cell(str(byte), note, "\n".join(hover), run, None, is_padding=all(beyond))


def _offsets(bits: int, byte: int) -> range:
    """Return the offsets of the elements that have bits in a byte."""
    if bits >= BYTE_BITS:
        at = byte // (bits // BYTE_BITS)
        return range(at, at + 1)
    count = BYTE_BITS // bits
    return range(byte * count, (byte + 1) * count)
