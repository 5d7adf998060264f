"""A reorder plan as a picture: src and dst side by side, which box writes what, from where."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from memdesc import MemdescError
from memdesc.inverse import index_at
from memdesc.picture import Picture
from memdesc.picture.cells import Cell, cells_of
from memdesc.picture.draw import frame, legend
from memdesc.picture.memory import Strip, lines_of
from memdesc.picture.svg import label
from memdesc.picture.text import cells_text
from memdesc.search import SearchLimitError, Term, solve
from reorder.plan.nodes import NOWHERE

if TYPE_CHECKING:
    from memdesc import MemoryDesc
    from reorder.plan.nodes import Box

__all__ = ["draw_plan", "trace"]

_MARGIN, _BETWEEN = 16, 36
_MAX_LOOKUPS = 1 << 14
_MAX_BOX_LINES = 8


def draw_plan(
    src_desc: MemoryDesc, dst_desc: MemoryDesc, boxes: tuple[Box, ...], written: str
) -> Picture:
    """Draw a plan, and what it prints: in dst, at each place the offset in src that it gets and the number of the box.

    Raises
    ------
    MemdescError
        If the plan looks up more offsets than can be searched for a picture.
    """
    head = written.splitlines()
    if len(head) > _MAX_BOX_LINES + 1:
        head = [*head[: _MAX_BOX_LINES + 1], f"… {len(head) - 1 - _MAX_BOX_LINES} more"]
    if not dst_desc.nelems:
        return Picture(frame(head, [], (0, 0)), written)
    src, dst = cells_of(src_desc.layout, src_desc.dtype), cells_of(dst_desc.layout, dst_desc.dtype)

    def run_in_dst(offset: int) -> int | None:
        index = index_at(src_desc.layout, offset)
        cell = None if index is None else dst.at(index)
        return None if cell is None else cell.run

    def at_src(offset: int) -> Cell:
        cell = src.at_offset(offset)
        return cell._replace(
            run=run_in_dst(offset) if cell.run is not None and not cell.is_padding else cell.run
        )

    def at_dst(offset: int) -> Cell:
        cell = dst.at_offset(offset)
        found = trace(boxes, offset)
        if found is None:
            return cell._replace(note="")
        box, source = found
        if source is None:
            return cell._replace(
                number="0",
                note=f"box {box}",
                hover=f"{cell.hover}\nzero, by box {box}",
                is_padding=True,
            )
        return cell._replace(
            number=str(source),
            note=f"box {box}",
            hover=f"{cell.hover}\nfrom src offset {source}, by box {box}",
        )

    top = _MARGIN + 18 * len(head) + 28
    captions = (
        "src: at each offset the index",
        "dst: at each offset where in src it comes from, and the box",
    )
    strips = [Strip(lines_of(src), at_src, src.dtype.bits, _MARGIN, top)]
    left = max(strips[0].right, _MARGIN + 7 * len(captions[0])) + _BETWEEN
    strips.append(Strip(lines_of(dst), at_dst, dst.dtype.bits, left, top))
    end = max(strip.bottom for strip in strips) + 18
    signs = ["run", *(["padding"] if src_desc.has_padding or dst_desc.has_padding else []), "line"]
    parts, right = legend(signs, end)
    parts += [
        label(x, top - 10, caption, style="faint")
        for x, caption in zip((_MARGIN, left), captions, strict=True)
    ]
    parts += [part for strip in strips for part in strip.paint()]
    text = [
        written,
        "",
        captions[1],
        *cells_text(strips[1].lines, strips[1].cells, dst.dtype.bits, of_number=True),
    ]
    return Picture(
        frame(head, parts, (max(strips[1].right, left + 7 * len(captions[1]), right), end + 22)),
        "\n".join(text),
    )


def trace(boxes: tuple[Box, ...], offset: int) -> tuple[int, int | None] | None:
    """Return which box writes an offset of dst, and the offset in src it reads, None for a zero.

    Returns None where no box writes, as in the gaps of a strided dst.
    """
    for k, box in enumerate(boxes):
        if box.lookups and box.size > _MAX_LOOKUPS:
            msg = (
                f"box {k} looks up offsets for {box.size} elements; pictures are made of "
                f"{_MAX_LOOKUPS} at most"
            )
            raise MemdescError(msg)
        # pairs of offsets that the lookups add, src and dst
        tables = [
            list(zip(*(side.tolist() for side in lookup.tables(0, lookup.extent)), strict=True))
            for lookup in box.lookups
        ]
        for chosen in product(*tables):
            target = offset - box.offsets[1] - sum(to for _, to in chosen)
            try:
                # the one loop of a single zero goes nowhere
                digits = solve(
                    [Term(node.strides[1] or 1, 0, node.extent - 1) for node in box.nodes], target
                )
            except SearchLimitError:
                msg = (
                    f"box {k}, {box}, has strides that do not nest; bounded work did not find what "
                    f"it writes at offset {offset}"
                )
                raise MemdescError(msg) from None
            if digits is None:
                continue
            is_zero = any(at == NOWHERE for at, _ in chosen) or any(
                d >= node.valid for d, node in zip(digits, box.nodes, strict=True)
            )
            at = sum(d * node.strides[0] for d, node in zip(digits, box.nodes, strict=True)) + sum(
                at for at, _ in chosen
            )
            return k, None if is_zero else box.offsets[0] + at
    return None
