"""A kernel body for processors: one work item transposes a tile in its private memory.

Loop 0 of the tile is contiguous in src, loop 1 in dst. Blocks of rows are loaded as vectors and
transposed in registers, in words of 32 bits: rows of narrower elements are first joined to words.
Private memory has the tile in the order of dst, so that dst is written in whole runs; where columns
follow one another in dst they are written there at once. Elements are converted while they are
narrow: on the way to dst where they become wider, else on the way from src. Tiles at the end of a
loop begin earlier: some elements are written twice, with the same bits.
"""

from __future__ import annotations

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
from reorder.opencl.codegen.serial_rows import (
    MOST_LANES,
    converts_rows,
    floor_power,
    is_direct,
    lanes_of_row,
    positions,
    transposed_rows,
)
from reorder.opencl.codegen.vectors import unit_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.codegen.pattern import Pattern, Serial

__all__ = ["serial_tile_lines", "unit_functions"]

_BYTE, _WORD, _VECTOR = 8, 4, 16
# Rows ahead that are prefetched, bytes of a cache line, and of rows that processors do not follow
# by themselves: f32 to bf16 takes 0.65 to 0.75 of the time with rows of 512 bytes, and 1.05 to 1.1
# with rows of 4 KiB.
_AHEAD, _LINE, _MOST_FETCHED = 4, 64, 1024
# OpenCL's own function does nothing in PoCL
_FETCH = (
    "#if defined(__x86_64__) || defined(__aarch64__)",
    "#define fetch(p, n) __builtin_prefetch((const void *)(size_t)(p))",
    "#else",
    "#define fetch(p, n) prefetch(p, n)",
    "#endif",
)


def unit_functions(pattern: Pattern) -> Iterator[str]:
    """Return the functions that join rows of narrow elements to words, and one that prefetches."""
    yield from _FETCH
    assert pattern.serial is not None  # noqa: S101 - for the type checker: a tile of one work item
    nbytes = pattern.serial.private_bits // _BYTE
    lanes = lanes_of_row(pattern.serial)
    if nbytes < _WORD and lanes * nbytes >= _WORD:
        words = lanes * nbytes // _WORD
        yield from unit_lines(_WORD // nbytes, "uint" if words == 1 else f"uint{words}")


def serial_tile_lines(pattern: Pattern, serial: Serial) -> Iterator[str]:
    """Return the body: rows of src into private memory, then runs of it to dst."""
    kind = ELEMENT_TYPES[f"b{serial.private_bits}"].memory
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
    writes_dst = is_direct(pattern, serial)
    if not writes_dst:
        yield f"{kind} transposed[{size}] __attribute__((aligned(64)));"
    converts = converts_rows(pattern, serial)
    if converts:
        yield f"{kind} rows[{tile[0] * tile[1]}] __attribute__((aligned(64)));"
    outer = [k for k in loops if k > 1 and tile[k] > 1]
    for k in outer:
        yield f"for (int x{k} = 0; x{k} < {tile[k]}; ++x{k}) {{"
    if writes_dst:
        terms = ["dst_tile", *(f"x{k} * p.dst{k}" for k in outer)]
        yield f"__global {kind} *const to = dst + ({' + '.join(terms)});"
        strides[0] = tile[1]
    else:
        to = " + ".join(f"x{k} * {strides[k]}" for k in outer) or "0"
        yield f"{kind} *const to = transposed + ({to});"
    if converts:
        yield from _converted_rows(pattern, serial, outer)
        row = f"rows + (d + {{row}}) * {tile[0]} + s"
    else:
        terms = ["src_tile", *(f"x{k} * p.src{k}" for k in outer)]
        yield f"__global const {kind} *const from = src + ({' + '.join(terms)});"
        row = "from + (d + {row}) * p.src1 + s"
    yield from transposed_rows(pattern, serial, row, strides[0])
    yield from ("}" for _ in outer)
    if not writes_dst:
        yield from _stored(pattern, serial, strides)


def _private(serial: Serial) -> tuple[dict[int, int], int]:
    """Return the strides of the loops in private memory, in elements, and its size."""
    strides, stride = {}, 1
    for k in serial.order:
        strides[k] = stride
        stride *= serial.tile[k]
    # rows start in different sets of the cache
    stride += _VECTOR * _BYTE // serial.private_bits
    for k, extent in enumerate(serial.tile):
        if k not in strides:
            strides[k] = stride
            stride *= extent
    return strides, stride


def _converted_rows(pattern: Pattern, serial: Serial, outer: list[int]) -> Iterator[str]:
    yield f"for (int d = 0; d < {serial.tile[1]}; ++d) {{"
    yield from _prefetches(pattern, serial, outer)
    for operand in ("src", *pattern.others):
        terms = [f"{operand}_tile", f"d * p.{operand}1"]
        terms += [f"x{k} * p.{operand}{k}" for k in outer]
        yield f"const index_t {operand}_at = {' + '.join(terms)};"
    kind = ELEMENT_TYPES[f"b{serial.private_bits}"].memory
    yield f"{kind} *const row = rows + d * {serial.tile[0]};"
    yield from shared_values(pattern, serial.uniform, "_at")
    yield from run_of_elements(pattern, serial, str(serial.tile[0]), "row")
    yield "}"


def _prefetches(pattern: Pattern, serial: Serial, outer: list[int]) -> Iterator[str]:
    """Return the prefetches of a row ahead, of row d."""
    width, height = serial.tile[:2]
    nbytes = element_bits(pattern)[0] // _BYTE
    if not nbytes or width * nbytes > _MOST_FETCHED or height <= _AHEAD:
        return
    terms = ["src_tile", f"min(d + {_AHEAD}, {height - 1}) * p.src1"]
    ahead = " + ".join([*terms, *(f"x{k} * p.src{k}" for k in outer)])
    line = _LINE // nbytes
    for k in range(0, width, line):
        yield f"fetch(src + ({ahead}) + {k}, {min(line, width - k)});"


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
        pair = f"transposed[{start} + 2 * k] | transposed[{start} + 2 * k + 1] << 4"
        yield f"    dst[(({at}) >> 1) + k] = (uchar)({pair});"
    elif serial.private_bits < element_bits(pattern)[1]:
        yield f"for (int k = 0; k < {length}; ++k)"
        value = stored_value(pattern, serial, f"transposed[{start} + k]", "k")
        yield f"    dst[{at} + k] = {value};"
    else:
        lanes = min(floor_power(length), MOST_LANES)
        yield from positions("k", length, lanes)
        if lanes == 1:
            yield f"dst[{at} + k] = transposed[{start} + k];"
        else:
            kind = f"{ELEMENT_TYPES[pattern.dst.element].memory}{lanes}"
            yield f"typedef {kind} run_t __attribute__((aligned({serial.private_bits // _BYTE})));"
            value = f"*(const run_t *)(transposed + ({start}) + k)"
            yield f"*(__global run_t *)(dst + ({at}) + k) = {value};"
        yield "}"
    yield from ("}" for _ in rest)
