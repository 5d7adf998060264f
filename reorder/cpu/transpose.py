"""Micro-kernel: two loops, rows contiguous in src and columns contiguous in dst.

Squares of V x V elements are loaded as V vectors along src, transposed in registers
by exchanging halves, quarters, ... of row pairs, and stored as V vectors along dst.
LLVM splits the vectors where the machine's are shorter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir

from reorder.cpu.emit import int64, loop

if TYPE_CHECKING:
    from reorder.cpu.emit import Elements, Loop

__all__ = ["emit_transposed"]

# Elements on a side of the square, by width in bits.
_SIDE = {8: 16, 16: 16, 32: 16, 64: 8}


def emit_transposed(elements: Elements, src: tuple[Any, Any], dst: tuple[Any, Any], rows: Loop, columns: Loop) -> None:
    """Move two loops; what is not valid in either is written zero."""
    builder = elements.builder
    side = 1 if elements.is_nibble else _SIDE[elements.bits]

    def from_src(row: Any, column: Any) -> tuple[Any, Any]:
        return src[0], builder.add(builder.add(src[1], row), builder.mul(column, columns.src_stride))

    def in_dst(row: Any, column: Any) -> tuple[Any, Any]:
        return dst[0], builder.add(builder.add(dst[1], column), builder.mul(row, rows.dst_stride))

    def whole(count: Any) -> Any:
        return builder.and_(count, int64(-side))

    def copy(row_range: tuple[Any, Any], column_range: tuple[Any, Any]) -> None:
        with loop(builder, *row_range) as row, loop(builder, *column_range) as column:
            elements.store(elements.load(*from_src(row, column)), *in_dst(row, column))

    def clear(row_range: tuple[Any, Any], column_range: tuple[Any, Any]) -> None:
        with loop(builder, *row_range) as row, loop(builder, *column_range) as column:
            elements.store(elements.zero, *in_dst(row, column))

    zero = int64(0)
    full_rows, full_columns = whole(rows.valid), whole(columns.valid)
    if side > 1:
        vector = ir.VectorType(elements.type, side)
        with loop(builder, zero, full_columns, side) as column, loop(builder, zero, full_rows, side) as row:
            square = [elements.load_vector(*from_src(row, builder.add(column, int64(k))), vector) for k in range(side)]
            for k, line in enumerate(_transpose(builder, square)):
                elements.store_vector(line, *in_dst(builder.add(row, int64(k)), column))
        copy((full_rows, rows.valid), (zero, full_columns))
        copy((zero, rows.valid), (full_columns, columns.valid))
    else:
        copy((zero, rows.valid), (zero, columns.valid))
    clear((zero, rows.valid), (columns.valid, columns.extent))
    clear((rows.valid, rows.extent), (zero, columns.extent))


def _transpose(builder: Any, square: list[Any]) -> list[Any]:
    """Transpose V vectors of V elements; stage by stage the distance halves."""
    side = len(square)
    distance = side // 2
    while distance:
        low = [j if not j & distance else side + j - distance for j in range(side)]
        high = [j + distance if not j & distance else side + j for j in range(side)]
        masks = [ir.Constant(ir.VectorType(ir.IntType(32), side), picks) for picks in (low, high)]
        square = list(square)
        for i in range(side):
            if not i & distance:
                pair = square[i], square[i + distance]
                square[i], square[i + distance] = (builder.shuffle_vector(*pair, mask) for mask in masks)
        distance //= 2
    return square
