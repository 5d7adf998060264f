"""Micro-kernels: five to seven rows of bytes interleaved into one, and one row split into as many.

Tiles of bytes have 16 columns, of which these would use less than half. Here each line of dst
collects its bytes from n lines of src by n permutations; tiles need about 70 / n shuffles for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llvmlite import ir

from reorder.cpu.kernels.elements import Location
from reorder.cpu.kernels.emit import BYTE, I64, int64, loop, minimum
from reorder.cpu.kernels.shuffle import permute_bytes
from reorder.cpu.target import BYTE_BITS, LINE_NBYTES, has_byte_permutations

if TYPE_CHECKING:
    from reorder.cpu.kernels.elements import Elements
    from reorder.cpu.kernels.emit import Builder, Value
    from reorder.cpu.kernels.loop_group import LoopGroup, Transposition

__all__ = ["emit_lines", "line_counts"]

_COUNTS = (5, 6, 7)
_LINE = ir.VectorType(BYTE, LINE_NBYTES)


def line_counts(elements: Elements) -> tuple[int, ...]:
    """Return how many rows, or columns, are moved by permutations of whole lines."""
    return _COUNTS if elements.bits == BYTE_BITS and has_byte_permutations() else ()


def emit_lines(move: Transposition, span: tuple[Value, Value], count: int, is_split: Value) -> None:
    """Interleave `count` rows, or split one into `count` columns, of a line or more.

    `span` is the range of columns, or that of the rows if `is_split`. The last lines overlap those
    before them.
    """
    elements, builder = move.elements, move.elements.builder
    tables = (_table(builder, count, is_split=way) for way in (True, False))
    table = builder.select(is_split, *tables)
    end = builder.sub(span[1], int64(LINE_NBYTES))
    with loop(builder, *span, LINE_NBYTES) as next_step:
        step = minimum(builder, next_step, end)

        def place(group: LoopGroup, start: Location, k: Value, is_one: Value) -> Location:
            """Return line `k` of one row or column, or the line at this step of the k-th one."""
            first = group.locate(elements, start, builder.select(is_one, step, k))
            behind = builder.mul(k, int64(LINE_NBYTES))
            return first.plus(builder, builder.select(is_one, behind, step))

        lines = [
            elements.load_vector(place(move.rows, move.src, int64(k), is_split), LINE_NBYTES)
            for k in range(count)
        ]
        with loop(builder, int64(0), int64(count)) as k:
            target = place(move.columns, move.dst, k, builder.not_(is_split))
            elements.store_vector(_collect(elements, lines, table, k), target)


def _collect(elements: Elements, lines: list[Value], table: Value, k: Value) -> Value:
    """Return line `k` of the result of a table."""
    builder = elements.builder
    size = 2 * LINE_NBYTES
    start = Location(table, builder.mul(k, int64(len(lines) * size)))
    result = ir.Constant(_LINE, None)
    for number, line in enumerate(lines):
        indices, taken = (
            elements.load_vector(start.plus(builder, int64(number * size + part)), LINE_NBYTES)
            for part in (0, LINE_NBYTES)
        )
        found = builder.and_(permute_bytes(builder, indices, line), taken)
        result = builder.or_(result, found)
    return result


def _table(builder: Builder, count: int, *, is_split: bool) -> Value:
    """Return the address of a constant: for each line of dst, and for each of src, two lines.

    They are the index of each byte in that line of src, and whether it comes from there: all ones.
    """
    name = f"memdesc.lines.{count}.{int(is_split)}"
    module = builder.module
    if name not in module.globals:
        content = bytearray()
        for first in range(0, count * LINE_NBYTES, LINE_NBYTES):
            places = [
                _place(j, count, is_split=is_split) for j in range(first, first + LINE_NBYTES)
            ]
            for number in range(count):
                content += bytes(index for _, index in places)
                content += bytes(255 * (line == number) for line, _ in places)
        kind = ir.ArrayType(BYTE, len(content))
        table = ir.GlobalVariable(module, kind, name)
        table.initializer, table.align = ir.Constant(kind, content), LINE_NBYTES
        table.global_constant, table.linkage = True, "private"
    return builder.ptrtoint(module.globals[name], I64)


def _place(j: int, count: int, *, is_split: bool) -> tuple[int, int]:
    """Return which line of src has byte `j` of the lines of dst, and where there."""
    if not is_split:
        return j % count, j // count
    column, number = divmod(j, LINE_NBYTES)
    return divmod(number * count + column, LINE_NBYTES)
