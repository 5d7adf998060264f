"""The picture of a record: the first bytes of each tensor, coloured by field."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from memdesc.dtypes import BYTE_BITS
from memdesc.index import index_at
from memdesc.picture.cells import Cell
from memdesc.picture.grid import FULL, Limits
from memdesc.picture.memory import Lines, strip_of
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


class _Element(NamedTuple):
    """An element that has bits in a byte."""

    number: int
    field: DrawnField
    at: tuple[int, ...]
    first_bit: int

    @property
    def is_padding(self) -> bool:
        """Whether it is beyond the dims."""
        sizes = self.field.layout.dims
        return any(i >= size for i, size in zip(self.at, sizes, strict=True))

    @property
    def text(self) -> str:
        """Its index, without dims of size 1."""
        sizes = self.field.layout.padded_dims()
        return ",".join(str(i) for i, size in zip(self.at, sizes, strict=True) if size > 1) or "0"


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
        strip = strip_of(lines, partial(_cell, here), BYTE_BITS)
        shown = strip.table.shown
        symbols += ["padding"] if any(cell.is_padding for cell in shown) else []
        symbols += ["gap"] if any(cell.run is None for cell in shown) else []
        caption = f"{tensor}, {nbytes} bytes: in each the field and its elements"
        halves.append(strip.half(caption))
        text += ["", caption, *strip.text()]
    return Sheet(head, halves, [*dict.fromkeys([*symbols, "line"])], "\n".join(text)).picture()


def _cell(fields: list[tuple[int, DrawnField]], byte: int) -> Cell:
    """Return the cell of a byte, with its elements in the order of their bits."""
    elements = sorted(
        (element for number, field in fields for element in _elements(number, field, byte)),
        key=lambda element: element.first_bit,
    )
    hover = [f"byte {byte}"]
    for element in elements:
        bits = min(element.field.bits, BYTE_BITS)
        last = element.first_bit + bits - 1
        what = "padding" if element.is_padding else f"index ({', '.join(map(str, element.at))})"
        hover.append(f"bits {element.first_bit} to {last}: {element.field.name}, {what}")
    if not elements:
        return Cell(str(byte), "", "\n".join([*hover, "no field"]), None, None, is_padding=False)
    # of several fields the first is named; of one field its first elements
    several = len({element.number for element in elements}) > 1
    named = [element.text for element in elements[: 1 if several else _NAMED]]
    more = "…" if len(elements) > _NAMED and not several else ""
    note = f"{elements[0].field.name}{'+' if several else ''} {' '.join(named)}{more}"
    is_padding = all(element.is_padding for element in elements)
    note = "pad" if is_padding else note
    return Cell(str(byte), note, "\n".join(hover), elements[0].number, None, is_padding=is_padding)


def _elements(number: int, field: DrawnField, byte: int) -> list[_Element]:
    """Return the elements of a field that have bits in a byte."""
    if field.bits >= BYTE_BITS:
        offsets = [byte // (field.bits // BYTE_BITS)]
    else:
        count = BYTE_BITS // field.bits
        offsets = list(range(byte * count, (byte + 1) * count))
    indices = [(offset, index_at(field.layout, offset)) for offset in offsets]
    return [
        _Element(number, field, index, offset * field.bits % BYTE_BITS)
        for offset, index in indices
        if index is not None
    ]
