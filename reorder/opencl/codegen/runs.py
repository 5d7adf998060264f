"""A kernel body in which each work item converts runs of elements between two buffers.

A work item has some runs, as far apart as the work-group has work items: all are loaded before the
first one is stored, so that more bytes are on their way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdesc import DATA_TYPES
from reorder.opencl.codegen.conversion import BETA
from reorder.opencl.codegen.convert import (
    INVERSE,
    code_type,
    converted,
    operand_type,
    operand_value,
)
from reorder.opencl.codegen.gather import gather_lines
from reorder.opencl.codegen.indices import index_lines
from reorder.opencl.codegen.pattern import AccessKind
from reorder.opencl.codegen.words import load_words, one_element, store_element, store_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.codegen.conversion import Conversion
    from reorder.opencl.codegen.pattern import Pattern, Run

__all__ = ["conversion_lines_of_run", "run_lines", "run_loads", "shared_lines"]


def run_lines(pattern: Pattern) -> Iterator[str]:
    """Return the body: runs are loaded, converted and stored; padding becomes 0."""
    conversion, run = pattern.conversion, pattern.run
    assert conversion is not None  # noqa: S101 - for the type checker: the body of conversions
    assert run is not None  # noqa: S101 - likewise
    reads = pattern.src.kind != AccessKind.NONE
    yield from index_lines(pattern)
    for k, gather in enumerate(pattern.gathers):
        yield f"if (g{k} >= p.gather{k}_extent) return;"
        yield from gather_lines(k, gather, pattern.others, reads=reads)
    if reads:
        yield from shared_lines(conversion, conversion.scalars, 0)
    steps = range(max((loop.steps for loop in pattern.loops), default=1))
    for s in steps:
        yield from _place_lines(pattern, run, s, reads=reads)
    if reads:
        for s in steps:
            yield f"{code_type(conversion.src)} {_names(f'x{s}', run, ' = 0')};"
            yield f"if (is_data_{s}) {{"
            load = (f"src_{s}", pattern.src.kind, f"x{s}")
            yield from run_loads(run, load, DATA_TYPES[conversion.src].bits, s)
            yield "}"
    for s in steps:
        yield f"if (is_inside_{s}) {{"
        yield f"{code_type(conversion.dst)} {_names('y', run, ' = 0')};"
        if reads:
            yield f"if (is_data_{s}) {{"
            yield from conversion_lines_of_run(pattern, conversion, run, s)
            yield "}"
        yield from _store_lines(pattern, conversion, run, s)
        yield "}"


def _names(prefix: str, run: Run, suffix: str = "") -> str:
    return ", ".join(f"{prefix}_{k}{suffix}" for k in range(run.length))


def _place_lines(pattern: Pattern, run: Run, s: int, *, reads: bool) -> Iterator[str]:
    """Return where a run lies, and whether it is inside and holds data."""
    index = [f"i{k}" for k in range(len(pattern.loops))]
    for k, loop in enumerate(pattern.loops):
        if loop.steps > 1 and s:
            index[k] = f"(i{k} + ({s} << p.shift{k}))"
    index[0] = f"first_{s}"
    start = f"i0 + ({s} << p.shift0)" if pattern.loops[0].steps > 1 and s else "i0"
    yield f"const index_t first_{s} = ({start}) * {run.length};"
    for operand in (*(("src",) if reads else ()), "dst", *pattern.others):
        terms = [f"p.{operand}", *(f"{i} * p.{operand}{k}" for k, i in enumerate(index))]
        terms += [f"gather{k}_{operand}" for k in range(len(pattern.gathers))]
        yield f"const index_t {operand}_{s} = {' + '.join(terms)};"
    inside = [f"{i} < p.extent{k}" for k, i in enumerate(index)]
    inside += [f"(dst_{s} & 1) == p.parity"] if run.is_nibble else []
    yield f"const int is_inside_{s} = {' && '.join(inside)};"
    if reads:
        data = [f"{i} < p.valid{k}" for k, i in enumerate(index)]
        data += [f"is_data{k}" for k in range(len(pattern.gathers))]
        yield f"const int is_data_{s} = {' && '.join([f'is_inside_{s}', *data])};"


def conversion_lines_of_run(
    pattern: Pattern, conversion: Conversion, run: Run, s: int
) -> Iterator[str]:
    """Return the statements that compute y_0, ... from the elements of src."""
    if BETA in conversion.roles:
        yield f"{code_type(conversion.dst)} {_names('old', run, ' = 0')};"
        load = (f"dst_{s}", pattern.dst.kind, "old")
        yield from run_loads(run, load, DATA_TYPES[conversion.dst].bits, s)
    if run.uniform:
        yield from shared_lines(conversion, run.uniform, s)
    shared = (*conversion.scalars, *run.uniform)
    for k in range(run.length):

        def value(role: str, k: int = k) -> str:
            if role in shared:
                return f"{role}_all"
            return operand_value(conversion, role, _moved(f"{role}_{s}", role, k))

        done = f"y_{k} = {converted(conversion, f'x{s}_{k}', value, f'old_{k}')};"
        yield done if run.is_whole or not k else f"if (first_{s} + {k} < p.valid0) {done}"


def shared_lines(conversion: Conversion, roles: tuple[str, ...], s: int) -> Iterator[str]:
    """Return the values of roles that all elements of a run share."""
    for role in roles:
        kind, read = operand_type(conversion, role), operand_value(conversion, role, f"{role}_{s}")
        yield f"const {kind} {role}_all = {read};"
    if conversion.multiplies and "dst_scale" in roles:
        yield f"const float {INVERSE} = 1.0f / dst_scale_all;"


def run_loads(run: Run, operand: tuple[str, str, str], bits: int, s: int) -> Iterator[str]:
    """Return the loads of a run: as words where elements are aligned, and all hold data."""
    offset, kind, prefix = operand
    name = offset.partition("_")[0]
    names = [f"{prefix}_{k}" for k in range(run.length)]
    as_words = kind == AccessKind.VECTOR and run.length > 1
    if as_words:
        if not run.is_whole:
            yield f"if (first_{s} + {run.length} <= p.valid0) {{"
        yield from load_words(name, offset, bits, names)
        if run.is_whole:
            return
        yield "} else {"
    for k, lane in enumerate(names):
        load = f"{lane} = {one_element(name, _moved(offset, name, k), bits)};"
        yield load if run.is_whole or not k else f"if (first_{s} + {k} < p.valid0) {load}"
    if as_words:
        yield "}"


def _store_lines(pattern: Pattern, conversion: Conversion, run: Run, s: int) -> Iterator[str]:
    bits = DATA_TYPES[conversion.dst].bits
    names = [f"y_{k}" for k in range(run.length)]
    as_words = pattern.dst.kind == AccessKind.VECTOR and run.length > 1
    if as_words:
        if not run.is_whole:
            yield f"if (first_{s} + {run.length} <= p.extent0) {{"
        yield from store_words("dst", f"dst_{s}", bits, names)
        if run.is_whole:
            return
        yield "} else {"
    for k, lane in enumerate(names):
        store = store_element("dst", _moved(f"dst_{s}", "dst", k), bits, lane)
        yield store if run.is_whole or not k else f"if (first_{s} + {k} < p.extent0) {store}"
    if as_words:
        yield "}"


def _moved(offset: str, operand: str, lane: int) -> str:
    """Return the offset of an element of a run."""
    return f"{offset} + {lane} * p.{operand}0" if lane else offset
