"""Compiled stages, and the interpreter of tiles that calls them.

A conversion is compiled for a pair of a type and a working type, arithmetic for a working type and
the types that it loads and stores. A stage is an interpreter whose program is a table, and whose
point is a `Placement`, so the interpreter of tiles calls steps of any kind alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.cpu.runtime.interpreters import compiled_interpreter
from reorder.cpu.runtime.intrinsics import load_int, run_tiles
from reorder.cpu.runtime.jit import compiled_at
from reorder.cpu.runtime.scratch import free_scratch, slots_of, take_scratch
from reorder.cpu.schedule.tile_program import TILES, TilesHead
from reorder.cpu.tables import nbytes_of
from reorder.values.formats import narrow_working_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from reorder.cpu.kernels.interpreter import InterpreterCall

_HEAD_NBYTES = nbytes_of(TilesHead)


def tile_interpreter_at() -> int:
    """Return the address of the interpreter of tiles, which takes a scratch for each call."""
    return compiled_at(_run_tiles, "interpreter of tiles")


def _run_tiles(  # noqa: PLR0913, PLR0917 - `InterpreterCall` as a C signature
    src_at: int,
    dst_at: int,
    program: int,
    ranges: int,
    begin: int,
    end: int,
    points: int,
    point_count: int,
) -> None:
    block = load_int(program, TILES.scratch_block)
    number = take_scratch(block)
    first = program + _HEAD_NBYTES
    call = (src_at, dst_at, first, ranges, begin, end, points, point_count)
    run_tiles(call, slots_of(block, number))
    free_scratch(block, number)


def convert_stage(src: str, dst: str, *, streams: bool, as_codes: bool = False) -> int:
    """Return the address of the stage that converts one type to another, one the working type.

    With `streams` whole cache lines of dst, which must be aligned to its elements, are written by
    non-temporal stores; the interpreter of tiles emits the fence that these need. With `as_codes`
    codes are not converted, only their width changes.
    """
    work = None if as_codes else narrow_working_type(src, dst, arithmetic=False)

    def emit(call: InterpreterCall) -> None:
        from reorder.cpu.kernels.convert import ConvertTypes, emit_convert

        emit_convert(call, ConvertTypes(src, dst, work, streams))

    return _stage(("convert", src, dst, *["codes"] * as_codes), emit, streams=streams)


def combine_stage(src: str, dst: str, work: str, *, streams: bool) -> int:
    """Return the address of the stage that does arithmetic in a working type, from src to dst.

    `streams` as for `convert_stage`.
    """

    def emit(call: InterpreterCall) -> None:
        from reorder.cpu.kernels.combine import CombineTypes, emit_combine

        emit_combine(call, CombineTypes(src, dst, work, streams))

    return _stage(("combine", src, dst, work), emit, streams=streams)


def _stage(key: tuple[str, ...], emit: Callable[[InterpreterCall], None], *, streams: bool) -> int:
    """Compile a stage."""
    name = ", ".join([*key, *["non-temporal stores"] * streams])
    return compiled_interpreter(f"stage: {name}", emit)
