"""Compiled stages: one for each pair of a type and a working type, one arithmetic for each of those.

All have the signature of a walker: addresses of both sides, of a record, and of where it is
placed, so that steps of any kind are called alike. A record of a conversion is [rows, count, how many
bytes ahead src is asked for] and two tables, offsets of each row in src and dst.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic

from memdesc import DATA_TYPES
from reorder.cpu.convert.combine import emit_combine
from reorder.cpu.convert.rows import Run, emit_convert, load_number, prefetch
from reorder.cpu.kernels.emit import I64, int64, loop
from reorder.cpu.runtime.intrinsics import ARGUMENTS
from reorder.cpu.runtime.jit import compile_callback
from reorder.cpu.target import LINE_BITS
from reorder.values.formats import working_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from numba.core.typing.templates import Signature

__all__ = ["SLOTS", "SLOT_NBYTES", "asker", "combiner", "converter", "scratch"]

_NAMES = list(DATA_TYPES)
_SIGNATURE = numba.void(*[numba.int64] * ARGUMENTS)
_compiled: dict[tuple[str, ...], Any] = {}

# Room for a tile in each of its forms: of src, of dst, values, what dst held, the wide difference.
SLOTS, SLOT_NBYTES = 5, 16384 + 64
_NUMBERS = 128


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator] # numba ships no types
def convert_rows(
    _context: Any,
    src_at: Any,
    dst_at: Any,
    record: Any,
    place: Any,
    src: Any,
    dst: Any,
    streams: Any,
    raw: Any,
) -> tuple[Signature, Any]:
    """Convert rows from one type into another; both are numbers of types, known when compiled, and so are `streams` and `raw`, 0 or 1."""
    names = _NAMES[src.literal_value], _NAMES[dst.literal_value]

    def build(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        src_at, dst_at, record, place, *_ = args
        rows, count = load_number(builder, record, int64(0)), load_number(builder, record, int64(1))
        ahead = load_number(builder, record, int64(2))
        fro = builder.add(record, int64(24))
        to = builder.add(fro, builder.shl(rows, int64(3)))
        starts = load_number(builder, place, int64(0)), load_number(builder, place, int64(1))
        with loop(builder, int64(0), rows) as row:
            source = Run(
                builder, names[0], src_at, builder.add(starts[0], load_number(builder, fro, row))
            )
            target = Run(
                builder, names[1], dst_at, builder.add(starts[1], load_number(builder, to, row))
            )
            work = None if raw.literal_value else working_type(*names, arithmetic=False)
            emit_convert(
                source, target, count, work, ahead=ahead, streams=bool(streams.literal_value)
            )
        return context.get_dummy_value()

    index = types.int64
    return types.void(index, index, index, index, src, dst, streams, raw), build


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator] # numba ships no types
def combine_rows(
    _context: Any,
    src_at: Any,
    dst_at: Any,
    record: Any,
    place: Any,
    src: Any,
    dst: Any,
    work: Any,
    streams: Any,
) -> tuple[Signature, Any]:
    """Run one operation on rows; the operand is placed by an address and an index behind those of both sides."""
    names = _NAMES[src.literal_value], _NAMES[dst.literal_value], _NAMES[work.literal_value]

    def build(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        src_at, dst_at, record, place, *_ = args
        fro, to, at, operand, number = (load_number(builder, place, int64(k)) for k in range(5))
        emit_combine(
            builder,
            record,
            ((src_at, fro), (dst_at, to), (at, operand)),
            number,
            names,
            streams=bool(streams.literal_value),
        )
        return context.get_dummy_value()

    index = types.int64
    return types.void(index, index, index, index, src, dst, work, streams), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def ask_rows(_context: Any, src_at: Any, record: Any, place: Any) -> tuple[Signature, Any]:
    """Ask for rows of bytes, by a record of [rows, bytes of each, bits of an element] and a table of their offsets."""

    def build(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        src_at, record, place = args
        rows, nbytes, bits = (load_number(builder, record, int64(k)) for k in range(3))
        start = load_number(builder, place, int64(0))
        with loop(builder, int64(0), rows) as row:
            index = builder.add(start, load_number(builder, record, builder.add(row, int64(3))))
            first = builder.add(src_at, builder.ashr(builder.mul(index, bits), int64(3)))
            with loop(builder, int64(0), nbytes, LINE_BITS // 8) as at:
                prefetch(builder, builder.add(first, at))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def scratch(_context: Any) -> tuple[Signature, Any]:
    """Return the address of room on the stack: 128 numbers, then the slots, each at a cache line."""

    def build(_context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        room = cgutils.alloca_once(
            builder, ir.IntType(8), size=8 * _NUMBERS + SLOTS * SLOT_NBYTES + 64
        )
        address = builder.ptrtoint(room, I64)
        return builder.and_(builder.add(address, int64(63)), int64(-64))

    return types.int64(), build


def converter(src: str, dst: str, *, streams: bool, raw: bool = False) -> int:
    """Return the address of the conversion from one type into another, one of them the type that it computes in.

    With `streams` it writes past the caches, where dst is aligned to its elements; a `fence` must follow. With
    `raw` codes stay what they are, in elements of another width.
    """
    a, b, c, d = _NAMES.index(src), _NAMES.index(dst), int(streams), int(raw)

    def run(
        src_at: int,
        dst_at: int,
        program: int,
        _tasks: int,
        _begin: int,
        _end: int,
        places: int,
        _count: int,
    ) -> None:
        convert_rows(src_at, dst_at, program, places, a, b, c, d)

    return _address(
        (src, dst, *(["past the caches"] if streams else []), *(["codes"] if raw else [])), run
    )


def combiner(src: str, dst: str, work: str, *, streams: bool) -> int:
    """Return the address of the arithmetic in a working type, on elements of one type that become another; `streams` as for `converter`.

    One of the types, or both, is the working type: what it loads, or stores, is converted on the way.
    """
    a, b, c, d = _NAMES.index(src), _NAMES.index(dst), _NAMES.index(work), int(streams)

    def run(
        src_at: int,
        dst_at: int,
        program: int,
        _tasks: int,
        _begin: int,
        _end: int,
        places: int,
        _count: int,
    ) -> None:
        combine_rows(src_at, dst_at, program, places, a, b, c, d)

    key = src, dst, work
    return _address((*key, "past the caches") if streams else key, run)


def asker() -> int:
    """Return the address of what asks for rows, for steps to come."""

    def run(
        src_at: int,
        _dst_at: int,
        program: int,
        _tasks: int,
        _begin: int,
        _end: int,
        places: int,
        _count: int,
    ) -> None:
        ask_rows(src_at, program, places)

    return _address(("ahead",), run)


def _address(key: tuple[str, ...], function: Callable[..., None]) -> int:
    with global_compiler_lock:
        if key not in _compiled:
            _compiled[key] = compile_callback(function, _SIGNATURE, f"stage: {', '.join(key)}")
    return int(_compiled[key].address)
