"""A kernel body for processors: one work item transposes a tile in its private memory.

Loop 0 of the tile is contiguous in src, loop 1 in dst. Blocks of rows are loaded as vectors and
transposed in registers, in words of 32 bits: rows of narrower elements are first joined to words.
Private memory has the tile in the order of dst, so that dst is written in whole runs; where columns
follow one another in dst they are written there at once. Elements are converted while they are
narrow: on the way to dst where they become wider, else on the way from src. Tiles at the end of a
loop begin earlier: some elements are written twice, with the same bits.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING

from reorder.opencl.codegen.element_types import ELEMENT_TYPES
from reorder.opencl.codegen.indices import index_lines
from reorder.opencl.codegen.serial import (
    element_bits,
    run_of_elements,
    shared_values,
    stored_value,
)
from reorder.opencl.codegen.vectors import unit_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.codegen.pattern import Pattern, Serial

__all__ = ["serial_tile_lines", "unit_functions"]

_BYTE, _WORD, _VECTOR = 8, 4, 16
# bytes of a row that are loaded together, if elements are narrower than words; words otherwise
_NARROW_ROW, _WORDS = 32, 4
# rows of words that are transposed together: four if the tile has as many, else two
_GROUPS = (4, 2)
_MOST_LANES = 16
# the longest rows that are parts of vectors
_MOST_PARTS = 4


def unit_functions(pattern: Pattern) -> Iterator[str]:
    """Return the functions that join rows of narrow elements to words, for vectors of words."""
    assert pattern.serial is not None  # noqa: S101 - for the type checker: a tile of one work item
    nbytes = pattern.serial.held // _BYTE
    lanes = _lanes(pattern.serial)
    if nbytes < _WORD and lanes * nbytes >= _WORD:
        words = lanes * nbytes // _WORD
        yield from unit_lines(_WORD // nbytes, "uint" if words == 1 else f"uint{words}")


def serial_tile_lines(pattern: Pattern, serial: Serial) -> Iterator[str]:
    """Return the body: rows of src into private memory, then runs of it to dst."""
    kind = ELEMENT_TYPES[f"b{serial.held}"].memory
    strides, size = _private(serial)
    tile = serial.tile
    loops = range(len(tile))
    yield from index_lines(pattern)
    scalars = () if pattern.conversion is None else pattern.conversion.scalars
    yield from shared_values(pattern, scalars, "")
    for k in loops:
        if tile[k] > 1:
            yield f"const index_t j{k} = min(i{k}, p.extent{k} - {tile[k]});"
        else:
            yield f"const index_t j{k} = i{k};"
    for operand in ("src", "dst", *pattern.others):
        terms = [f"p.{operand}", *(f"j{k} * p.{operand}{k}" for k in loops)]
        yield f"const index_t {operand}_tile = {' + '.join(terms)};"
    is_direct = _is_direct(pattern, serial)
    if not is_direct:
        yield f"{kind} turned[{size}] __attribute__((aligned(64)));"
    converts = _converts_rows(pattern, serial)
    if converts:
        yield f"{kind} rows[{tile[0] * tile[1]}] __attribute__((aligned(64)));"
    outer = [k for k in loops if k > 1 and tile[k] > 1]
    for k in outer:
        yield f"for (int x{k} = 0; x{k} < {tile[k]}; ++x{k}) {{"
    if is_direct:
        terms = ["dst_tile", *(f"x{k} * p.dst{k}" for k in outer)]
        yield f"__global {kind} *const to = dst + ({' + '.join(terms)});"
        strides[0] = tile[1]
    else:
        to = " + ".join(f"x{k} * {strides[k]}" for k in outer) or "0"
        yield f"{kind} *const to = turned + ({to});"
    if converts:
        yield from _converted_rows(pattern, serial, outer)
        row = f"rows + (d + {{row}}) * {tile[0]} + s"
    else:
        terms = ["src_tile", *(f"x{k} * p.src{k}" for k in outer)]
        yield f"__global const {kind} *const from = src + ({' + '.join(terms)});"
        row = "from + (d + {row}) * p.src1 + s"
    yield from _turned(pattern, serial, row, strides[0])
    yield from ("}" for _ in outer)
    if not is_direct:
        yield from _stored(pattern, serial, strides)


def _is_direct(pattern: Pattern, serial: Serial) -> bool:
    """Whether columns follow one another in dst, in elements of dst."""
    return serial.order[:2] == (1, 0) and serial.held == element_bits(pattern)[1]


def _converts_rows(pattern: Pattern, serial: Serial) -> bool:
    """Whether rows pass private memory before they are transposed."""
    src, dst = element_bits(pattern)
    return src < _BYTE or (pattern.conversion is not None and serial.held >= dst)


def _private(serial: Serial) -> tuple[dict[int, int], int]:
    """Return the strides of the loops in private memory, in elements, and its size."""
    strides, stride = {}, 1
    for k in serial.order:
        strides[k] = stride
        stride *= serial.tile[k]
    # rows start in different sets of the cache
    stride += _VECTOR * _BYTE // serial.held
    for k, extent in enumerate(serial.tile):
        if k not in strides:
            strides[k] = stride
            stride *= extent
    return strides, stride


def _converted_rows(pattern: Pattern, serial: Serial, outer: list[int]) -> Iterator[str]:
    yield f"for (int d = 0; d < {serial.tile[1]}; ++d) {{"
    for operand in ("src", *pattern.others):
        terms = [f"{operand}_tile", f"d * p.{operand}1"]
        terms += [f"x{k} * p.{operand}{k}" for k in outer]
        yield f"const index_t {operand}_at = {' + '.join(terms)};"
    kind = ELEMENT_TYPES[f"b{serial.held}"].memory
    yield f"{kind} *const row = rows + d * {serial.tile[0]};"
    yield from shared_values(pattern, serial.uniform, "_at")
    yield from run_of_elements(pattern, serial, str(serial.tile[0]), "row")
    yield "}"


def _lanes(serial: Serial) -> int:
    """Return the elements of a vector along loop 0."""
    nbytes = serial.held // _BYTE
    most = _NARROW_ROW // nbytes if nbytes < _WORD else _WORDS
    return min(most, _floor_power(serial.tile[0]))


def _turned(pattern: Pattern, serial: Serial, row: str, pitch: int) -> Iterator[str]:
    """Return the loops over the blocks of two loops; `pitch` is the private stride of loop 0."""
    width, height = serial.tile[:2]
    nbytes, lanes = serial.held // _BYTE, _lanes(serial)
    is_dense = serial.is_dense or _converts_rows(pattern, serial)
    if is_dense and nbytes < _WORD and 1 < width <= _MOST_PARTS and height >= _VECTOR // nbytes:
        yield from _parted(pattern, serial, row, pitch)
        return
    unit = max(_WORD // nbytes, 1)
    groups = next((count for count in _GROUPS if height >= unit * count), 1)
    rows = unit * groups
    if lanes * nbytes < _WORD or height < unit or (groups == 1 and unit == 1):
        yield f"for (int d = 0; d < {height}; ++d)"
        yield f"for (int s = 0; s < {width}; ++s) to[s * {pitch} + d] = *({row.format(row=0)});"
        return
    yield from _blocks_of_rows(serial, rows, row, pitch)
    # a few columns behind the vectors are moved one by one
    left = width % lanes if width % lanes * _WORDS <= lanes else 0
    if left:
        yield f"for (int k = 0; k < {rows}; ++k) for (int s = {width - left}; s < {width}; ++s)"
        yield f"    to[s * {pitch} + d + k] = *({row.format(row='k')});"
    yield from _positions("s", width - left, lanes)
    scalar = ELEMENT_TYPES[f"b{serial.held}"].memory
    words = lanes * nbytes // _WORD
    word = scalar if nbytes > _WORD else "uint"
    vector = word if words == 1 else f"{word}{lanes if nbytes >= _WORD else words}"
    # words that start at any element, and that may be the elements of arrays of another type
    aligned = f"__attribute__((aligned({nbytes}), may_alias))"
    yield f"typedef {vector} row_t {aligned};"
    yield f"typedef {word}{groups if groups > 1 else ''} column_t {aligned};"
    space, to = _spaces(pattern, serial)
    for k in range(rows):
        yield f"const {vector} r{k} = *({space}const row_t *)({row.format(row=k)});"
    # column `unit * j + c` of a group is word j of its vector c
    for g, c in product(range(groups), range(unit)):
        joined = f"r{g}"
        if unit > 1:
            joined = f"column{c}({', '.join(f'r{unit * g + k}' for k in range(unit))})"
        yield f"const {vector} v{g}_{c} = {joined};"
    for c, j in product(range(unit), range(lanes // unit)):
        parts = [f"v{g}_{c}" if words == 1 else f"v{g}_{c}.s{j}" for g in range(groups)]
        column = parts[0] if groups == 1 else f"({word}{groups})({', '.join(parts)})"
        yield f"*({to}column_t *)(to + (s + {unit * j + c}) * {pitch} + d) = {column};"
    yield "} }"


def _parted(pattern: Pattern, serial: Serial, row: str, pitch: int) -> Iterator[str]:
    """Return the loop over rows that follow one another: their columns are parts of vectors."""
    width, rows = serial.tile[0], _VECTOR * _BYTE // serial.held
    scalar = ELEMENT_TYPES[f"b{serial.held}"].memory
    lanes = next(n for n in (_MOST_LANES, rows) if width * rows % n == 0)
    yield from _blocks_of_rows(serial, rows, row, pitch)
    space, to = _spaces(pattern, serial)
    yield "const int s = 0;"
    aligned = f"__attribute__((aligned({serial.held // _BYTE})))"
    yield f"typedef {scalar}{lanes} rows_t {aligned};"
    yield f"typedef {scalar}{rows} column_t {aligned};"
    for k in range(width * rows // lanes):
        at = f"{row.format(row=0)} + {k * lanes}"
        yield f"const {scalar}{lanes} r{k} = *({space}const rows_t *)({at});"
    for s in range(width):
        places = [divmod(k * width + s, lanes) for k in range(rows)]
        column = ", ".join(f"r{vector}.s{lane:x}" for vector, lane in places)
        yield f"*({to}column_t *)(to + {s * pitch} + d) = ({scalar}{rows})({column});"
    yield "}"


def _spaces(pattern: Pattern, serial: Serial) -> tuple[str, str]:
    """Return the address spaces of the rows that are transposed, and of their columns."""
    private = _converts_rows(pattern, serial), not _is_direct(pattern, serial)
    src, dst = ("" if is_private else "__global " for is_private in private)
    return src, dst


def _blocks_of_rows(serial: Serial, rows: int, row: str, pitch: int) -> Iterator[str]:
    """Return the head of a loop over rows; a few rows behind it are moved one by one."""
    width, height = serial.tile[:2]
    left = height % rows if height % rows * _WORDS <= rows else 0
    if left:
        yield f"for (int d = {height - left}; d < {height}; ++d) for (int s = 0; s < {width}; ++s)"
        yield f"    to[s * {pitch} + d] = *({row.format(row=0)});"
    yield from _positions("d", height - left, rows)


def _positions(name: str, extent: int, step: int) -> Iterator[str]:
    """Return the head of a loop in steps, of which the last one begins earlier if need be."""
    if extent % step == 0:
        yield f"for (int {name} = 0; {name} < {extent}; {name} += {step}) {{"
        return
    yield f"for (int {name}_ = 0; {name}_ < {extent}; {name}_ += {step}) {{"
    last = extent - step
    yield f"const int {name} = {name}_ < {last} ? {name}_ : {last};"


def _stored(pattern: Pattern, serial: Serial, strides: dict[int, int]) -> Iterator[str]:
    """Return the loops that copy the runs of private memory to dst."""
    rest = [k for k, extent in enumerate(serial.tile) if extent > 1 and k not in serial.order]
    for k in rest:
        yield f"for (int x{k} = 0; x{k} < {serial.tile[k]}; ++x{k}) {{"
    start = " + ".join(f"x{k} * {strides[k]}" for k in rest) or "0"
    at = " + ".join(["dst_tile", *(f"x{k} * p.dst{k}" for k in rest)])
    length = prod(serial.tile[k] for k in serial.order)
    if element_bits(pattern)[1] < _BYTE:
        yield f"for (int k = 0; k < {length // 2}; ++k)"
        pair = f"turned[{start} + 2 * k] | turned[{start} + 2 * k + 1] << 4"
        yield f"    dst[(({at}) >> 1) + k] = (uchar)({pair});"
    elif serial.held < element_bits(pattern)[1]:
        yield f"for (int k = 0; k < {length}; ++k)"
        yield f"    dst[{at} + k] = {stored_value(pattern, serial, f'turned[{start} + k]', 'k')};"
    else:
        lanes = min(_floor_power(length), _MOST_LANES)
        yield from _positions("k", length, lanes)
        if lanes == 1:
            yield f"dst[{at} + k] = turned[{start} + k];"
        else:
            kind = f"{ELEMENT_TYPES[pattern.dst.element].memory}{lanes}"
            yield f"typedef {kind} run_t __attribute__((aligned({serial.held // _BYTE})));"
            value = f"*(const run_t *)(turned + ({start}) + k)"
            yield f"*(__global run_t *)(dst + ({at}) + k) = {value};"
        yield "}"
    yield from ("}" for _ in rest)


def _floor_power(extent: int) -> int:
    return 1 << (extent.bit_length() - 1)
