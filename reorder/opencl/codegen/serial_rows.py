"""Blocks of the rows of a tile, transposed in registers by one work item."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from reorder.opencl.codegen.element_types import ELEMENT_TYPES
from reorder.opencl.codegen.serial import element_bits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.codegen.pattern import Pattern, Serial

__all__ = [
    "MOST_LANES",
    "converts_rows",
    "floor_power",
    "is_direct",
    "lanes_of_row",
    "positions",
    "transposed_rows",
]

_BYTE, _WORD, _VECTOR = 8, 4, 16
# bytes of a row that are loaded together, if elements are narrower than words; words otherwise
_NARROW_ROW, _WORDS = 32, 4
# rows of words that are transposed together: four if the tile has as many, else two
_GROUPS = (4, 2)
MOST_LANES = 16
# the longest rows that are parts of vectors
_MOST_PARTS = 4


def transposed_rows(pattern: Pattern, serial: Serial, row: str, pitch: int) -> Iterator[str]:
    """Return the loops over the blocks of two loops; `pitch` is the private stride of loop 0."""
    width, height = serial.tile[:2]
    nbytes, lanes = serial.private_bits // _BYTE, lanes_of_row(serial)
    is_dense = serial.is_dense or converts_rows(pattern, serial)
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
    yield from positions("s", width - left, lanes)
    scalar = ELEMENT_TYPES[f"b{serial.private_bits}"].memory
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
    width, rows = serial.tile[0], _VECTOR * _BYTE // serial.private_bits
    scalar = ELEMENT_TYPES[f"b{serial.private_bits}"].memory
    lanes = next(n for n in (MOST_LANES, rows) if width * rows % n == 0)
    yield from _blocks_of_rows(serial, rows, row, pitch)
    space, to = _spaces(pattern, serial)
    yield "const int s = 0;"
    aligned = f"__attribute__((aligned({serial.private_bits // _BYTE})))"
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


def _blocks_of_rows(serial: Serial, rows: int, row: str, pitch: int) -> Iterator[str]:
    """Return the head of a loop over rows; a few rows behind it are moved one by one."""
    width, height = serial.tile[:2]
    left = height % rows if height % rows * _WORDS <= rows else 0
    if left:
        yield f"for (int d = {height - left}; d < {height}; ++d) for (int s = 0; s < {width}; ++s)"
        yield f"    to[s * {pitch} + d] = *({row.format(row=0)});"
    yield from positions("d", height - left, rows)


def positions(name: str, extent: int, step: int) -> Iterator[str]:
    """Return the head of a loop in steps, of which the last one begins earlier if need be."""
    if extent % step == 0:
        yield f"for (int {name} = 0; {name} < {extent}; {name} += {step}) {{"
        return
    yield f"for (int {name}_ = 0; {name}_ < {extent}; {name}_ += {step}) {{"
    last = extent - step
    yield f"const int {name} = {name}_ < {last} ? {name}_ : {last};"


def lanes_of_row(serial: Serial) -> int:
    """Return the elements of a vector along loop 0."""
    nbytes = serial.private_bits // _BYTE
    most = _NARROW_ROW // nbytes if nbytes < _WORD else _WORDS
    return min(most, floor_power(serial.tile[0]))


def converts_rows(pattern: Pattern, serial: Serial) -> bool:
    """Whether rows pass private memory before they are transposed."""
    src, dst = element_bits(pattern)
    return src < _BYTE or (pattern.conversion is not None and serial.private_bits >= dst)


def is_direct(pattern: Pattern, serial: Serial) -> bool:
    """Whether columns follow one another in dst, in elements of dst."""
    return serial.order[:2] == (1, 0) and serial.private_bits == element_bits(pattern)[1]


def _spaces(pattern: Pattern, serial: Serial) -> tuple[str, str]:
    """Return the address spaces of the rows that are transposed, and of their columns."""
    private = converts_rows(pattern, serial), not is_direct(pattern, serial)
    src, dst = ("" if is_private else "__global " for is_private in private)
    return src, dst


def floor_power(extent: int) -> int:
    """Return the largest power of two that is no larger."""
    return 1 << (extent.bit_length() - 1)
