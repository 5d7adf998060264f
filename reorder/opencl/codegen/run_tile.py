"""A kernel body that converts a tile whose innermost loops in src and in dst differ.

Work items convert runs along loop 0, which is contiguous in src, into local memory, and store runs
along loop 1, which is contiguous in dst. Local memory has a row for each step of loop 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdesc import DATA_TYPES
from reorder.opencl.codegen.convert import code_type
from reorder.opencl.codegen.indices import index_lines
from reorder.opencl.codegen.pattern import AccessKind
from reorder.opencl.codegen.runs import conversion_lines_of_run, run_loads, shared_lines
from reorder.opencl.codegen.words import store_element, store_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.codegen.pattern import Pattern, RunTile

__all__ = ["run_tile_lines"]

_BYTE, _WORD = 8, 32
_TYPES = {8: "uchar", 16: "ushort", 32: "uint", 64: "ulong"}


def run_tile_lines(pattern: Pattern) -> Iterator[str]:
    """Return the body: all loads of a work item, its stores to local memory, then those to dst."""
    conversion, run, tile = pattern.conversion, pattern.run, pattern.run_tile
    assert conversion is not None  # noqa: S101 - for the type checker: the body of conversions
    assert run is not None  # noqa: S101 - likewise
    assert tile is not None  # noqa: S101 - likewise
    bits = DATA_TYPES[conversion.dst].bits
    held = max(bits, _BYTE)
    count = tile.width * tile.pitch + tile.width // run.length * tile.gap
    yield f"__local {_TYPES[held]} tile[{count}];"
    yield from index_lines(pattern)
    yield from shared_lines(conversion, conversion.scalars, 0)
    total = tile.width * tile.height // run.length
    steps = range(-(-total // pattern.work_items))
    for t in steps:
        yield from _place_lines(pattern, tile, t, run.length)
    for t in steps:
        names = ", ".join(f"x{t}_{k} = 0" for k in range(run.length))
        yield f"{code_type(conversion.src)} {names};"
        yield f"if (is_data_{t}) {{"
        source = (f"src_{t}", pattern.src.kind, f"x{t}")
        yield from run_loads(run, source, DATA_TYPES[conversion.src].bits, t)
        yield "}"
    for t in steps:
        yield f"if (n_{t} < {total}) {{"
        names = ", ".join(f"y_{k} = 0" for k in range(run.length))
        yield f"{code_type(conversion.dst)} {names};"
        yield f"if (is_data_{t}) {{"
        yield from conversion_lines_of_run(pattern, conversion, run, t)
        yield "}"
        yield f"const int to = {_row(tile, f's_{t}', run.length)} + d_{t};"
        for k in range(run.length):
            yield f"tile[to + {k * tile.pitch}] = y_{k};"
        yield "}"
    yield "barrier(CLK_LOCAL_MEM_FENCE);"
    yield from _store_lines(pattern, tile, run.length, bits)


def _row(tile: RunTile, step: str, length: int) -> str:
    """Return where a step of loop 0 starts in local memory."""
    gap = f" + {step} / {length} * {tile.gap}" if tile.gap else ""
    return f"{step} * {tile.pitch}{gap}"


def _place_lines(pattern: Pattern, tile: RunTile, t: int, length: int) -> Iterator[str]:
    """Return where a run lies, and whether its first element holds data."""
    chunks = tile.width // length
    yield f"const int n_{t} = (int)get_local_id(0) + {t * pattern.work_items};"
    yield f"const int s_{t} = n_{t} % {chunks} * {length}, d_{t} = n_{t} / {chunks};"
    yield f"const index_t first_{t} = i0 + s_{t};"
    outer = range(2, len(pattern.loops))
    for operand in ("src", *pattern.others):
        terms = [f"p.{operand}", f"first_{t} * p.{operand}0", f"(i1 + d_{t}) * p.{operand}1"]
        terms += [f"i{k} * p.{operand}{k}" for k in outer]
        yield f"const index_t {operand}_{t} = {' + '.join(terms)};"
    data = [f"d_{t} < {tile.height}", f"first_{t} < p.valid0", f"i1 + d_{t} < p.valid1"]
    data += [f"i{k} < p.valid{k}" for k in outer]
    yield f"const int is_data_{t} = {' && '.join(data)};"


def _store_lines(pattern: Pattern, tile: RunTile, run: int, bits: int) -> Iterator[str]:
    kind = "ulong" if bits > _WORD else "uint"
    total, chunks = tile.width * tile.height // tile.length, tile.height // tile.length
    names = [f"z{k}" for k in range(tile.length)]
    terms = ["p.dst", "(i0 + s) * p.dst0", "(i1 + d) * p.dst1"]
    terms += [f"i{k} * p.dst{k}" for k in range(2, len(pattern.loops))]
    as_words = pattern.dst.kind == AccessKind.VECTOR and tile.length > 1
    for t in range(-(-total // pattern.work_items)):
        yield "{"
        yield f"const int n = (int)get_local_id(0) + {t * pattern.work_items};"
        yield f"const int s = n / {chunks}, d = n % {chunks} * {tile.length};"
        yield f"if (s < {tile.width} && i0 + s < p.extent0 && i1 + d < p.extent1) {{"
        yield f"const index_t at = {' + '.join(terms)};"
        yield f"const int from = {_row(tile, 's', run)} + d;"
        for k, name in enumerate(names):
            yield f"const {kind} {name} = tile[from + {k}];"
        if as_words:
            yield f"if (i1 + d + {tile.length} <= p.extent1) {{"
            yield from store_words("dst", "at", bits, names)
            yield "} else {"
        for k, name in enumerate(names):
            store = store_element("dst", f"at + {k}" if k else "at", bits, name)
            yield f"if (i1 + d + {k} < p.extent1) {store}" if k else store
        if as_words:
            yield "}"
        yield "} }"
