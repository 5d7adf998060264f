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


def tile_lines(pattern: Pattern) -> Iterator[str]:
    """Return the body: all loads of a work item, its stores to local memory, then those to dst."""
    tile = pattern.tile
    assert tile is not None  # noqa: S101 - for the type checker
    yield f"__local uint tile[{tile.local_words}];"
    yield from index_lines(pattern)
    loops = range(len(pattern.loops))
    outer = [f"i{k} < p.valid{k}" for k in loops if tile.extents[k] == 1]
    yield f"const int is_data = {' && '.join(outer) or '1'};"
    for side, counted in (("src", "valid"), ("dst", "extent")):
        terms = [f"p.{side}", *(f"i{k} * p.{side}{k}" for k in loops)]
        yield f"const index_t {side}_offset = {' + '.join(terms)};"
        yield f"const int {side}_run = {_run_length(tile, getattr(tile, side), counted)};"
    yield from _load_lines(tile, pattern.work_items)
    yield "barrier(CLK_LOCAL_MEM_FENCE);"
    yield from _store_lines(tile, pattern.work_items)


def _run_length(tile: Tile, side: Side, counted: str) -> str:
    """Return the elements of a run that hold data, or that are inside."""
    *lower, top = side.run
    inside = f"(int)min((index_t){tile.extents[top]}, p.{counted}{top} - i{top})"
    return f"{inside} * {prod(tile.extents[k] for k in lower)}"


def _load_lines(tile: Tile, work_items: int) -> Iterator[str]:
    total = tile.src_vectors
    steps = -(-total // work_items)
    unit_loop = tile.dst.run[0]
    for s in range(steps):
        digits = [(k, tile.extents[k]) for k in tile.src.rest]
        digits = [(k, t // tile.unit if k == unit_loop else t) for k, t in digits]
        scales = {unit_loop: tile.unit}
        yield f"const uint n{s} = get_local_id(0) + {s * work_items}u;"
        yield f"const int r{s} = (int)(n{s} % {tile.src_chunks}u) * {tile.src.lanes};"
        step = tile.src_chunks
        inside = ["is_data"] if total % work_items == 0 else [f"n{s} < {total}u", "is_data"]
        offset = [f"src_offset + r{s}"]
        for k, extent in digits:
            scale = f" * {scales[k]}" if scales.get(k, 1) > 1 else ""
            yield f"const int x{k}_{s} = (int)(n{s} / {step}u % {extent}u){scale};"
            step *= extent
            offset.append(f"x{k}_{s} * p.src{k}")
            if tile.unit == 1 or k != unit_loop:
                inside.append(f"i{k} + x{k}_{s} < p.valid{k}")
        yield f"const int count{s} = {' && '.join(inside)} ? src_run - r{s} : 0;"
        yield f"__global const {tile.memory} *from{s} = src + ({' + '.join(offset)});"
        for row in range(tile.unit):
            count, start = f"count{s}", f"from{s}"
            if tile.unit > 1:
                inside_row = f"i{unit_loop} + x{unit_loop}_{s} + {row} < p.valid{unit_loop}"
                count = f"{inside_row} ? count{s} : 0"
                start = f"from{s} + {row} * p.src{unit_loop}" if row else start
            yield f"const {tile.src.vector} v{s}_{row} = load({start}, {count});"
    for s in range(steps):
        yield from _scatter_lines(tile, s, is_whole=total % work_items == 0)


def _scatter_lines(tile: Tile, s: int, *, is_whole: bool) -> Iterator[str]:
    """Return the stores of a work item's vectors to local memory, in the order of dst."""
    strides = tile.local_strides
    base = [f"x{k}_{s} * {strides[k]}" for k in tile.src.rest]
    if not is_whole:
        yield f"if (n{s} < {tile.src_vectors}u)"
    yield "{"
    yield f"const int to = {' + '.join(base) or '0'};"
    length = prod(tile.extents[k] for k in tile.src.run)
    cells: Iterator[tuple[int, str]]
    if tile.unit > 1:
        rows = [f"v{s}_{row}" for row in range(tile.unit)]
        cells = transposed_words(rows, tile.src.nbytes // _WORD, tile.unit)
    else:
        cells = enumerate([""] * tile.src.lanes)
    for j, word in cells:
        position, terms = f"r{s} + {j}" if j else f"r{s}", ["to"]
        step = 1
        for at, k in enumerate(tile.src.run):
            digit = f"(uint)({position})"
            if step > 1:
                digit += f" / {step}u"
            if at < len(tile.src.run) - 1:
                digit += f" % {tile.extents[k]}u"
            terms.append(f"(int)({digit}) * {strides[k]}")
            step *= tile.extents[k]
        address = " + ".join(terms)
        if length % tile.src.lanes:
            yield f"if ({position} < {length})"
        yield "{"
        vector = f"v{s}_0"
        if tile.unit > 1:
            yield f"tile[bank(({address}) >> 2)] = {word};"
        elif tile.nbytes >= _WORD:
            words = tile.nbytes // _WORD
            for w in range(words):
                part = word_of(vector, j * words + w, tile.src.nbytes // _WORD)
                yield f"tile[bank((({address}) >> 2){f' + {w}' if w else ''})] = {part};"
        else:
            at_byte = j * tile.nbytes
            part = word_of(vector, at_byte // _WORD, tile.src.nbytes // _WORD)
            shifted = f"{part} >> {at_byte % _WORD * 8}" if at_byte % _WORD else part
            yield f"put(tile, {address}, ({tile.memory})({shifted}));"
        yield "}"
    yield "}"


def _store_lines(tile: Tile, work_items: int) -> Iterator[str]:
    total = tile.dst_vectors
    strides = tile.local_strides
    words = tile.dst.nbytes // _WORD
    for s in range(-(-total // work_items)):
        yield "{"
        yield f"const uint n = get_local_id(0) + {s * work_items}u;"
        inside = [] if total % work_items == 0 else [f"n < {total}u"]
        offset, local = ["dst_offset"], []
        step = tile.dst_chunks
        for k in tile.dst.rest:
            yield f"const int x{k} = (int)(n / {step}u % {tile.extents[k]}u);"
            step *= tile.extents[k]
            offset.append(f"x{k} * p.dst{k}")
            local.append(f"x{k} * {strides[k]}")
            inside.append(f"i{k} + x{k} < p.extent{k}")
        yield f"__global {tile.memory} *to = dst + ({' + '.join(offset)});"
        start = f"(int)(n % {tile.dst_chunks}u) * {tile.dst.lanes}"
        if tile.dst.is_shifted:
            # the first vector starts before the run, so that all start at multiples of a vector
            start += f" - (int)((uint)(uintptr_t)to / {tile.nbytes}u % {tile.dst.lanes}u)"
        yield f"const int r = {start};"
        yield f"const int count = {' && '.join(inside) or '1'} ? dst_run - r : 0;"
        address = " + ".join([f"r * {tile.nbytes}", *local])
        if tile.dst.is_shifted:
            yield f"store(to + r, funnel(tile, {address}), -r, count);"
        else:
            yield f"const int w = ({address}) >> 2;"
            parts = [f"tile[bank(w{f' + {c}' if c else ''})]" for c in range(words)]
            yield f"store(to + r, ({tile.dst.vector})({', '.join(parts)}), count);"
        yield "}"
