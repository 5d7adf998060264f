"""Pictures of a layout (title, grid, memory, legend), of two memories, and of a record's fields."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import compress
from operator import itemgetter
from typing import Any

import numpy as np

from memdesc.dtypes import BYTE_BITS, DataType
from memdesc.errors import MemdescError, about, counted, short_repr
from memdesc.index import checked_index
from memdesc.int64 import checked_ints, entries_of
from memdesc.layout import Layout, indices_at
from memdesc.picture import Picture
from memdesc.picture.cells import CACHE_LINE, LINES, Cell, Cells, Pixels, digits
from memdesc.picture.halves import Half, Table, grid_of, lines_table, memory_table, plain
from memdesc.picture.svg import MEANINGS, drawing, fragment_of, svg_of
from memdesc.swizzle import xor_expression


def draw_layout(cells: Cells, title: str, nbytes: tuple[int, int]) -> Picture:
    """Draw the layout of a buffer under a title.

    `nbytes` are the bytes of the buffer, and how many of them are compensation after the elements.
    """
    whole, compensation = nbytes
    n_lines = -(-whole // CACHE_LINE)
    size = f"{whole} bytes in {counted(n_lines, 'cache line')}"
    size += f", the last {compensation} of them compensation" if compensation else ""
    what = "index" if cells.values is None else "value at"
    return draw_cells(cells, title, size, f"memory: each offset shows the {what}")


def draw_cells(cells: Cells, title: str, size: str, what: str) -> Picture:
    """Draw a buffer or an image of some size under a title; `what` says what its cells show."""
    layout = cells.layout
    padding = layout.padded_nelems - layout.nelems
    count = f"{layout.nelems} elements" + (f" and {padding} of padding" if padding else "")
    head = [title, f"{count}, {size}"]
    if not layout.nelems:
        return draw_memories([*head, "nothing to draw"], {}, set())
    order = f"memory order, outermost first: {digits(layout, cells.letters)}"
    if layout.xor:
        order += f"; then the offset o becomes {xor_expression('o', layout.xor)}"
    names = ",".join(cells.letters[dim] for dim in cells.long_dims)
    memory = f"{what} {names}".rstrip()
    memory += "; two elements share a byte" if cells.dtype.is_packed else ""
    legend = {"banks" if layout.xor else "run", "padding" if layout.has_padding else ""}
    legend.add(("pixel" if cells.pixels else "block") if cells.tiles else "")
    memories = {memory: memory_table(cells)}
    return draw_memories([*head, order], memories, legend, grid=grid_of(cells))


def draw_memories(
    head: list[str],
    memories: dict[str, Table],
    legend: set[str],
    text: str = "",
    grid: Half | None = None,
) -> Picture:
    """Draw memories under their captions, after a grid if there is one.

    `legend` has symbols for what cells do not show themselves. The text is that of the grid and the
    memories if none is given.
    """
    halves = [grid] if grid else []
    for caption, table in memories.items():
        halves.append(Half(caption, [table]))
        for cell in table.shown:
            is_shown = cell.is_padding, cell.run is None, cell.is_highlighted, bool(table.marks)
            legend.update(compress(("padding", "gap", "highlight", "line"), is_shown))
    symbols = [symbol for symbol in MEANINGS if symbol in legend]
    drawings = [drawing(half) for half in halves]
    text = text or "\n".join([*head, *(line for half in halves for line in half.text())])
    uncoloured = "\n".join(plain(line).rstrip() for line in text.split("\n"))
    fragment = fragment_of(head, drawings, symbols)
    return Picture(svg_of(head, drawings, symbols), uncoloured, fragment, text)


def checked_cells(
    desc: Any,
    letters: str,
    highlight: Iterable[Iterable[int]],
    values: Any = None,
    pixels: Pixels | None = None,
) -> Cells:
    """Return the cells of a descriptor; only elements and padding are highlighted.

    Values must be numbers.
    """
    layout: Layout = desc.layout
    try:
        entries = entries_of("highlight", highlight)
        indices = tuple(checked_ints("highlight", index) for index in entries)
    except (TypeError, MemdescError):
        raise MemdescError(
            f"highlight {short_repr(highlight)} must be a list of indices, "
            f"such as [{(0,) * layout.ndims}]"
        ) from None
    for index in indices:
        with about(f"highlight {index}"):
            checked_index(layout, index, padded=True, letters=letters)
    if values is not None and not isinstance(values.dtype, DataType):  # the dtype of a Memory
        values = np.asarray(values)
        if not np.can_cast(values.dtype, np.float64, "same_kind"):
            raise MemdescError(f"values must be numbers, not of type {values.dtype}")
    return Cells(layout, desc.dtype, letters, pixels, indices, values)


def draw_beside(a: Cells, b: Cells, titles: tuple[str, str]) -> Picture:
    """Draw two layouts of the same dims; the pointer shows the offset in the other one."""
    head = [f"a: {titles[0]}", f"b: {titles[1]}"]
    if not a.layout.nelems:
        return draw_memories([*head, "nothing to draw"], {}, set())
    caption = "each offset shows the index " + ",".join(a.letters[dim] for dim in a.long_dims)
    memories = {
        f"a: {caption}".rstrip(): memory_table(
            a, at_offset=lambda offset: _with_other(b, coloured_as(a, b, offset), "b")
        ),
        f"b: {caption}".rstrip(): memory_table(
            b, at_offset=lambda offset: _with_other(a, b.at_offset(offset), "a")
        ),
    }
    return draw_memories(head, memories, {"run", "block" if a.tiles or b.tiles else ""})


def coloured_as(cells: Cells, other: Cells, offset: int) -> Cell:
    """Return the cell at an offset, with the colour that its element has in another layout."""
    cell = cells.at_offset(offset)
    if cell.run is None or cell.is_padding:
        return cell
    target = other.at(cell.at)
    return cell._replace(run=None if target is None else target.run)


def _with_other(other: Cells, cell: Cell, name: str) -> Cell:
    if cell.run is None or cell.is_padding:
        return cell
    offset = other.layout.offset(cell.at)
    return cell._replace(hover=f"{cell.hover}\noffset in {name} {offset}")


# Bytes of a line, and the most lines: a block may have 210 bytes.
_LENGTH, _LINES = 8, LINES * 3 // 2
# The most elements that a cell names.
_NAMED = 2


def draw_fields(head: list[str], fields: Sequence[Any], sizes: dict[str, int]) -> Picture:
    """Draw the first bytes of tensors under some head lines; each field has its own colour.

    A field has a name, a tensor, the bits of an element, and the layout of the elements. `sizes`
    are the bytes of each tensor.
    """
    memories = {}
    for tensor, nbytes in sizes.items():
        rows, columns = range(min(-(-nbytes // _LENGTH), _LINES)), range(_LENGTH)
        held = [(k, field) for k, field in enumerate(fields) if field.tensor == tensor]
        at = partial(_byte, _elements(held, min(nbytes, len(rows) * _LENGTH)))
        caption = f"{tensor}, {nbytes} bytes: in each the field and its elements"
        if nbytes:
            memories[caption] = lines_table(at, BYTE_BITS, nbytes, [*rows], [*columns])
    return draw_memories(head, memories, {"field"})


# its first bit within the byte, the number of its field, that field, its index
_Element = tuple[int, int, Any, tuple[int, ...]]


def _elements(fields: list[tuple[int, Any]], nbytes: int) -> list[list[_Element]]:
    """Return the elements in each of the first bytes, in the order of their bits."""
    held: list[list[_Element]] = [[] for _ in range(nbytes)]
    for number, field in fields:
        offsets = np.arange(-(-nbytes * BYTE_BITS // field.bits))
        indices, exists = indices_at(field.layout, offsets)
        for offset in offsets[exists].tolist():
            first, index = offset * field.bits, tuple(int(i[offset]) for i in indices)
            for elements in held[first // BYTE_BITS : -(-(first + field.bits) // BYTE_BITS)]:
                elements.append((first % BYTE_BITS, number, field, index))
    return [sorted(elements, key=itemgetter(0)) for elements in held]


def _byte(held: list[list[_Element]], byte: int) -> Cell:
    """Return the cell of a byte."""
    elements = held[byte]
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
    # if there are several fields, the first is named; if there is one, its first elements are
    _, run, field, _ = elements[0]
    several = len({number for _, number, _, _ in elements}) > 1
    more = "…" if len(elements) > _NAMED and not several else ""
    named = " ".join(texts[: 1 if several else _NAMED])
    note = "pad" if all(beyond) else f"{field.name}{'+' if several else ''} {named}{more}"
    return Cell(str(byte), note, "\n".join(hover), run, None, is_padding=all(beyond))
