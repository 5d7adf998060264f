"""Compiled stages, and the interpreter of tiles that calls them.

A conversion is compiled for a pair of a type and a working type, arithmetic for a working type and
the types that it loads and stores. A stage is an interpreter whose program is a table, and whose
point is a `Placement`, so the interpreter of tiles calls steps of any kind alike.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from numba import types

from reorder.cpu.kernels.combine import CombineTypes, emit_combine
from reorder.cpu.kernels.convert import ConvertTypes, emit_convert
from reorder.cpu.kernels.emit import Number, Value
from reorder.cpu.kernels.tiles import emit_tiles
from reorder.cpu.runtime.interpreters import compiled_interpreter
from reorder.cpu.runtime.scratch import free_scratch, slots_of, take_scratch
from reorder.cpu.schedule.tile_program import TILES, TilesHead
from reorder.cpu.tables import nbytes_of
from reorder.values.formats import narrow_working_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from reorder.cpu.kernels.interpreter import InterpreterCall


def tile_interpreter_at() -> int:
    """Return the address of the interpreter of tiles, which takes a scratch for each call."""
    return compiled_interpreter("interpreter of tiles", _emit_tiles_in_scratch)


def _emit_tiles_in_scratch(call: InterpreterCall, context: Any) -> None:
    builder = call.program.builder

    def run(function: Any, result: Any, *arguments: Value) -> Value:
        signature = result(*[types.int64] * len(arguments))
        given = [argument.raw for argument in arguments]
        return Number(builder, context.compile_internal(builder, function, signature, given))

    block = call.program[TILES.scratch_block]
    number = run(take_scratch, types.int64, block)
    first = call.program + nbytes_of(TilesHead)
    emit_tiles(call._replace(program=first), run(slots_of, types.int64, block, number))
    run(free_scratch, types.void, block, number)


def convert_stage(src: str, dst: str, *, streams: bool, as_codes: bool = False) -> int:
    """Return the address of the stage that converts one type to another, one the working type.

    With `streams` whole cache lines of dst, which must be aligned to its elements, are written by
    non-temporal stores; the interpreter of tiles emits the fence that these need. With `as_codes`
    codes are not converted, only their width changes.
    """
    work = None if as_codes else narrow_working_type(src, dst, arithmetic=False)
    key = "convert", src, dst, *["codes"] * as_codes
    emit = partial(emit_convert, types=ConvertTypes(src, dst, work, streams))
    return _stage(key, emit, streams=streams)


def combine_stage(src: str, dst: str, work: str, *, streams: bool) -> int:
    """Return the address of the stage that does arithmetic in a working type, from src to dst.

    `streams` as for `convert_stage`.
    """
    emit = partial(emit_combine, types=CombineTypes(src, dst, work, streams))
    return _stage(("combine", src, dst, work), emit, streams=streams)


def _stage(
    key: tuple[str, ...], emit: Callable[[InterpreterCall], None], *, streams: bool = False
) -> int:
    """Compile a stage."""
    name = ", ".join([*key, *["non-temporal stores"] * streams])
    return compiled_interpreter(f"stage: {name}", lambda call, _: emit(call))
