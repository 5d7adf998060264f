"""A kernel body in which each work item converts a run of elements between two buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdesc import DATA_TYPES
from reorder.opencl.codegen.conversion import BETA
from reorder.opencl.codegen.convert import code_type, converted, operand_value
from reorder.opencl.codegen.gather import gather_lines
from reorder.opencl.codegen.indices import index_lines
from reorder.opencl.codegen.pattern import AccessKind
from reorder.opencl.codegen.words import load_words, one_element, store_element, store_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reorder.opencl.codegen.conversion import Conversion
    from reorder.opencl.codegen.pattern import Pattern, Run

__all__ = ["run_lines"]


def run_lines(pattern: Pattern) -> Iterator[str]:
    """Return the body: a run is loaded, converted and stored; padding becomes 0."""
    conversion, run = pattern.conversion, pattern.run
    assert conversion is not None  # noqa: S101 - for the type checker: the body of conversions
    assert run is not None  # noqa: S101 - likewise
    reads = pattern.src.kind != AccessKind.NONE
    yield from index_lines(pattern)
    start = f"i0 * {run.length}" if run.length > 1 else "i0"
    yield f"const index_t first = {start};"
    outside = ["first >= p.extent0"]
    outside += [f"i{k} >= p.extent{k}" for k in range(1, len(pattern.loops))]
    outside += [f"g{k} >= p.gather{k}_extent" for k in range(len(pattern.gathers))]
    yield f"if ({' || '.join(outside)}) return;"
    for k, gather in enumerate(pattern.gathers):
        yield from gather_lines(k, gather, pattern.others, reads=reads)
    for operand in (*(("src",) if reads else ()), "dst", *pattern.others):
        yield f"const index_t {operand}_offset = {_start(pattern, operand)};"
    if run.is_nibble:
        yield "if ((dst_offset & 1) != p.parity) return;"
    lanes = range(run.length)
    yield f"{code_type(conversion.dst)} {', '.join(f'y{k} = 0' for k in lanes)};"
    if reads:
        yield from _conversion_block(pattern, conversion, run)
    yield from _store_lines(pattern, conversion, run)


def _start(pattern: Pattern, operand: str) -> str:
    """Return the offset of the first element of a work item."""
    terms = [f"p.{operand}", f"first * p.{operand}0"]
    terms += [f"i{k} * p.{operand}{k}" for k in range(1, len(pattern.loops))]
    terms += [f"gather{k}_{operand}" for k in range(len(pattern.gathers))]
    return " + ".join(terms)


def _conversion_block(pattern: Pattern, conversion: Conversion, run: Run) -> Iterator[str]:
    lanes = range(run.length)
    is_data = [f"i{k} < p.valid{k}" for k in range(1, len(pattern.loops))]
    is_data += [f"is_data{k}" for k in range(len(pattern.gathers))]
    if not run.is_whole:
        is_data.append("first < p.valid0")
    if is_data:
        yield f"if ({' && '.join(is_data)}) {{"
    yield f"{code_type(conversion.src)} {', '.join(f'x{k} = 0' for k in lanes)};"
    yield from _loads(run, ("src", pattern.src.kind, "x"), DATA_TYPES[conversion.src].bits)
    if BETA in conversion.roles:
        yield f"{code_type(conversion.dst)} {', '.join(f'old{k} = 0' for k in lanes)};"
        dst = ("dst", pattern.dst.kind, "old")
        yield from _loads(run, dst, DATA_TYPES[conversion.dst].bits)
    for k in lanes:
        done = f"y{k} = {converted(conversion, f'x{k}', _values(conversion, k), f'old{k}')};"
        yield done if run.is_whole or not k else f"if (first + {k} < p.valid0) {done}"
    if is_data:
        yield "}"


def _loads(run: Run, operand: tuple[str, str, str], bits: int) -> Iterator[str]:
    """Return the loads of a run: as words where elements are aligned, and all hold data."""
    name, kind, prefix = operand
    names = [f"{prefix}{k}" for k in range(run.length)]
    as_words = kind == AccessKind.VECTOR and run.length > 1
    if as_words:
        if not run.is_whole:
            yield f"if (first + {run.length} <= p.valid0) {{"
        yield from load_words(name, f"{name}_offset", bits, names)
        if run.is_whole:
            return
        yield "} else {"
    for k, lane in enumerate(names):
        load = f"{lane} = {one_element(name, _moved(name, k), bits)};"
        yield load if run.is_whole or not k else f"if (first + {k} < p.valid0) {load}"
    if as_words:
        yield "}"


def _store_lines(pattern: Pattern, conversion: Conversion, run: Run) -> Iterator[str]:
    bits = DATA_TYPES[conversion.dst].bits
    names = [f"y{k}" for k in range(run.length)]
    as_words = pattern.dst.kind == AccessKind.VECTOR and run.length > 1
    if as_words:
        if not run.is_whole:
            yield f"if (first + {run.length} <= p.extent0) {{"
        yield from store_words("dst", "dst_offset", bits, names)
        if run.is_whole:
            return
        yield "} else {"
    for k, lane in enumerate(names):
        store = store_element("dst", _moved("dst", k), bits, lane)
        yield store if run.is_whole or not k else f"if (first + {k} < p.extent0) {store}"
    if as_words:
        yield "}"


def _moved(operand: str, lane: int) -> str:
    """Return the offset of an element of a run."""
    return f"{operand}_offset + {lane} * p.{operand}0" if lane else f"{operand}_offset"


def _values(conversion: Conversion, lane: int) -> Callable[[str], str]:
    """Return the expression of the value of a role for an element of a run."""
    return lambda role: operand_value(conversion, role, _moved(role, lane))
