"""A kernel body that moves tiles through local memory: vectors along src, then along dst.

A tile is some steps of several loops. On each side its `run` loops are contiguous: a work item
loads and stores vectors of them. Local memory holds the tile in the order of dst. Elements
narrower than 32 bits are transposed in registers, in units of as many rows as a word has elements.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from reorder.opencl.codegen.indices import index_lines
from reorder.opencl.codegen.vectors import transposed_words, word_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.codegen.pattern import Pattern, Side, Tile

__all__ = ["tile_lines"]

_WORD = 4
# steps of a work item that are written one after the other; more are a loop
_MAX_UNROLLED = 16


def tile_lines(pattern: Pattern) -> Iterator[str]:
    """Return the body: all loads of a work item, its stores to local memory, then those to dst."""
    tile = pattern.tile
    assert tile is not None  # noqa: S101 - for the type checker
    yield f"__local uint tile[{tile.local_words}];"
    yield from index_lines(pattern)
    loops = range(len(pattern.loops))
    outer = [f"i{k} < p.valid{k}" for k in loops if tile.extents[k] == 1]
    if outer:
        yield f"const int is_data = {' && '.join(outer)};"
    for side, counted in (("src", "valid"), ("dst", "extent")):
        terms = [f"p.{side}", *(f"i{k} * p.{side}{k}" for k in loops)]
        yield f"const index_t {side}_offset = {' + '.join(terms)};"
        yield f"const int {side}_run = {_run_length(tile, getattr(tile, side), counted)};"
    yield from _load_lines(tile, pattern.work_items, ["is_data"] if outer else [])
    yield "barrier(CLK_LOCAL_MEM_FENCE);"
    yield from _store_lines(tile, pattern.work_items)


def _run_length(tile: Tile, side: Side, counted: str) -> str:
    """Return the elements of a run that hold data, or that are inside."""
    *lower, top = side.run
    inside = f"(int)min((index_t){tile.extents[top]}, p.{counted}{top} - i{top})"
    return f"{inside} * {prod(tile.extents[k] for k in lower)}"


def _steps(total: int, work_items: int) -> tuple[str, list[str]]:
    """Return the head of a loop over a work item's vectors, and the first vector of each step.

    Few steps are unrolled, so that all loads are in flight together; then there is no loop.
    """
    count = -(-total // work_items)
    if count <= _MAX_UNROLLED:
        return "", [f"get_local_id(0) + {s * work_items}u" for s in range(count)]
    head = f"for (uint step = 0; step < {count * work_items}u; step += {work_items}u)"
    return head, ["get_local_id(0) + step"]


def _load_lines(tile: Tile, work_items: int, conditions: list[str]) -> Iterator[str]:
    """Return the loads of vectors of src under some conditions, and their stores to the tile."""
    total = tile.src_vectors
    head, starts = _steps(total, work_items)
    unit_loop = tile.dst.run[0]
    yield f"{head} {{"
    for s, start in enumerate(starts):
        digits = [(k, tile.extents[k]) for k in tile.src.rest]
        digits = [(k, t // tile.unit if k == unit_loop else t) for k, t in digits]
        scales = {unit_loop: tile.unit}
        yield f"const uint n{s} = {start};"
        step = tile.src_chunks
        inside = [] if total % work_items == 0 else [f"n{s} < {total}u"]
        inside += conditions
        offset = ["src_offset"]
        for k, extent in digits:
            scale = f" * {scales[k]}" if scales.get(k, 1) > 1 else ""
            yield f"const int x{k}_{s} = (int)(n{s} / {step}u % {extent}u){scale};"
            step *= extent
            offset.append(f"x{k}_{s} * p.src{k}")
            if tile.unit == 1 or k != unit_loop:
                inside.append(f"i{k} + x{k}_{s} < p.valid{k}")
        yield f"const index_t row_at{s} = {' + '.join(offset)};"
        yield f"__global const {tile.row_memory} *run{s} = src + row_at{s};"
        position = f"(int)(n{s} % {tile.src_chunks}u) * {tile.src.lanes}"
        yield f"const int r{s} = {position};"
        yield f"const int count{s} = {' && '.join(inside) or '1'} ? src_run - r{s} : 0;"
        # the parameter `other` of `load`: the bytes between two rows, half the stride of a pair
        more = f"p.src{unit_loop} / 2, " if tile.is_paired else ""
        for row in range(tile.unit):
            count, row_start = f"count{s}", f"run{s} + r{s}"
            if tile.unit > 1:
                inside_row = f"i{unit_loop} + x{unit_loop}_{s} + {row} < p.valid{unit_loop}"
                count = f"{inside_row} ? count{s} : 0"
                row_start += f" + {row} * p.src{unit_loop}" if row else ""
            if tile.src.is_shifted:
                # at most a word before the first element, and one behind the last one
                lanes, at = tile.src.lanes, row_start.replace("run", "row_at", 1)
                more = f"{at} >= {lanes} && {at} + {2 * lanes} <= p.src_end, "
            yield f"const {tile.src.vector} v{s}_{row} = load({row_start}, {more}{count});"
    for s in range(len(starts)):
        if total % work_items:
            yield f"if (n{s} < {total}u)"
        yield "{"
        base = [f"x{k}_{s} * {tile.local_strides[k]}" for k in tile.src.rest]
        yield f"const int to = {' + '.join(base) or '0'};"
        yield from _stored_words(tile, s) if tile.is_gathered else _scattered(tile, s)
        yield "}"
    yield "}"


def _stored_words(tile: Tile, s: int) -> Iterator[str]:
    """Return the stores of a vector to local memory that has the order of src."""
    words = tile.src.nbytes // _WORD
    yield f"const int w = (to + r{s} * {tile.nbytes}) >> 2;"
    for k in range(words):
        yield f"tile[bank(w{f' + {k}' if k else ''})] = {word_of(f'v{s}_0', k, words)};"


def _scattered(tile: Tile, s: int) -> Iterator[str]:
    """Return the stores of vectors to local memory that has the order of dst."""
    words = tile.src.nbytes // _WORD
    length = prod(tile.extents[k] for k in tile.src.run)
    rows = [f"v{s}_{row}" for row in range(tile.unit)]
    columns = list(transposed_words(rows, words)) if tile.unit > 1 else []
    for j in range(tile.src.lanes):
        position = f"r{s} + {j}" if j else f"r{s}"
        address = f"to + {_address(tile, tile.src, position)}"
        if length % tile.src.lanes:
            yield f"if ({position} < {length})"
        yield "{"
        if columns:
            yield f"tile[bank(({address}) >> 2)] = {columns[j]};"
        elif tile.nbytes < _WORD:
            at, shift = divmod(j * tile.nbytes, _WORD)
            value = f"{word_of(rows[0], at, words)} >> {shift * 8}"
            yield f"put(tile, {address}, ({tile.memory})({value}));"
        else:
            parts = tile.nbytes // _WORD
            for k in range(parts):
                part = word_of(rows[0], j * parts + k, words)
                yield f"tile[bank((({address}) >> 2){f' + {k}' if k else ''})] = {part};"
        yield "}"


def _gathered(tile: Tile, word: int) -> str:
    """Return a word of a vector of dst, of elements in local memory that has the order of src."""
    parts = []
    for k in range(_WORD // tile.nbytes):
        j = word * (_WORD // tile.nbytes) + k
        address = f"from + {_address(tile, tile.dst, f'r + {j}' if j else 'r')}"
        parts.append(f"(uint)get(tile, {address}) << {8 * tile.nbytes * k}")
    return " | ".join(parts)


def _address(tile: Tile, side: Side, position: str) -> str:
    """Return the byte in local memory of a position in the run of a side."""
    terms, step = [], 1
    for at, k in enumerate(side.run):
        digit = f"(uint)({position})"
        if step > 1:
            digit += f" / {step}u"
        if at < len(side.run) - 1:
            digit += f" % {tile.extents[k]}u"
        terms.append(f"(int)({digit}) * {tile.local_strides[k]}")
        step *= tile.extents[k]
    return " + ".join(terms)


def _store_lines(tile: Tile, work_items: int) -> Iterator[str]:
    total = tile.dst_vectors
    strides = tile.local_strides
    words = tile.dst.nbytes // _WORD
    head, starts = _steps(total, work_items)
    for first in starts:
        yield f"{head} {{"
        yield f"const uint n = {first};"
        inside = [] if total % work_items == 0 else [f"n < {total}u"]
        offset, local = ["dst_offset"], []
        step = tile.dst_chunks
        for k in tile.dst.rest:
            yield f"const int x{k} = (int)(n / {step}u % {tile.extents[k]}u);"
            step *= tile.extents[k]
            offset.append(f"x{k} * p.dst{k}")
            local.append(f"x{k} * {strides[k]}")
            inside.append(f"i{k} + x{k} < p.extent{k}")
        yield f"__global {tile.row_memory} *to = dst + ({' + '.join(offset)});"
        start = f"(int)(n % {tile.dst_chunks}u) * {tile.dst.lanes}"
        if tile.dst.is_shifted:
            # the first word starts before the run
            start += f" - (int)((uint)(uintptr_t)to / {tile.nbytes}u % {tile.dst.lanes}u)"
        yield f"const int r = {start};"
        yield f"const int count = {' && '.join(inside) or '1'} ? dst_run - r : 0;"
        address = " + ".join([f"r * {tile.nbytes}", *local])
        if tile.dst.is_shifted:
            yield f"store(to + r, funnel(tile, {address}), -r, count);"
        else:
            if tile.is_gathered:
                yield f"const int from = {' + '.join(local) or '0'};"
                parts = [_gathered(tile, k) for k in range(words)]
            else:
                yield f"const int w = ({address}) >> 2;"
                parts = [f"w{f' + {k}' if k else ''}" for k in range(words)]
                parts = [f"tile[bank({part})]" for part in parts]
            # bytes between two rows, as for `load`
            other = f"p.dst{tile.src.run[0]} / 2, " if tile.is_paired else ""
            vector = f"({tile.dst.vector})({', '.join(parts)})"
            yield f"store(to + r, {other}{vector}, count);"
        yield "}"
