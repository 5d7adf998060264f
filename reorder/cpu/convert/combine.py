"""The arithmetic of a reorder: one operation at a time over rows of values.

A record is [operation, rows, count, mask, how many bytes ahead the input is asked for], then three
tables: offsets of each row in the input, in the output and in the operand. The mask is of an operand's
place along a row: 0 where it stays, -1 where it goes along, `REPEATED` - 1 where it begins again.
Values are f32 or f64. A NaN that comes out is the quiet one without sign and payload, whatever went in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir

from reorder.cpu.convert.codec import Codec, code_bits
from reorder.cpu.convert.rows import Run, each_line, each_step, lanes_of, load_number
from reorder.cpu.kernels.emit import int64, loop
from reorder.cpu.target import has_fma
from reorder.values.formats import FLOATS, INTEGERS

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "ADD",
    "ADD_TIMES",
    "CLAMP",
    "DIVIDE",
    "HALF",
    "MULTIPLY",
    "QUOTIENT",
    "REPEATED",
    "SUBTRACT",
    "emit_combine",
]
__all__ += ["has_quick_division"]

# What is done to value x with operand y. A quotient is a division whose operand brings its
# reciprocals along, as the number.
SUBTRACT, MULTIPLY, DIVIDE, QUOTIENT, ADD, ADD_TIMES, CLAMP, HALF = range(8)
_HEAD = 5
# registers of the machine on which an operation works together: one test serves them all
_REGISTERS = 4
# an operand that is the same again after so many elements, or a part of that, stands there twice as long
REPEATED = 64
# what y must lie between for a quotient, and x from 2^-64 on, below 2^64: the steps to it neither overflow nor lose bits
_LEAST, _MOST = 2.0**-40, 2.0**40
_LOW, _HIGH = 2.0**-64, 2.0**64


def has_quick_division(divisors: NDArray[np.float64], work: str) -> bool:
    """Whether quotients by these divisors may be computed from their reciprocals."""
    magnitude = abs(divisors)
    return (
        work == "f32" and has_fma() and bool(((magnitude >= _LEAST) & (magnitude <= _MOST)).all())
    )


def _apply(codec: Codec, work: str, operation: int, x: Any, y: Any, number: Any, *, to: str) -> Any:
    """Return what an operation makes of vectors of values, which become a type."""
    builder, of = codec.builder, codec.values(work)
    if operation == CLAMP:
        low = builder.fsub(codec.splat(of, -0.0), y)
        x = builder.select(builder.fcmp_ordered(">", x, y), y, x)
        return builder.select(builder.fcmp_ordered("<", x, low), low, x)
    if operation == HALF:
        return codec.decode(codec.encode(x, work, "f16"), "f16", work)
    if operation == QUOTIENT:
        return _quotient(codec, x, y, number, to=to)
    if operation == ADD_TIMES:
        found = builder.fadd(x, builder.fmul(number, y))
    else:
        emit = {
            SUBTRACT: builder.fsub,
            MULTIPLY: builder.fmul,
            DIVIDE: builder.fdiv,
            ADD: builder.fadd,
        }[operation]
        found = emit(x, y)
    return found if to in INTEGERS else _canonical(codec, work, found)


def _canonical(codec: Codec, work: str, values: Any) -> Any:
    """Return values in which NaN is the quiet one without sign and payload."""
    nan = ir.Constant(codec.integers(code_bits(work)), [FLOATS[work].nan] * codec.lanes)
    is_number = codec.builder.fcmp_ordered("ord", values, values)
    return codec.builder.select(is_number, values, codec.builder.bitcast(nan, codec.values(work)))


def _quotient(codec: Codec, x: Any, y: Any, reciprocal: Any, *, to: str) -> Any:
    """Return x / y, rounded as a division is, by way of the rounded reciprocal; as integers, rounded, it is what matters.

    Two corrections by the exact remainder make it so (Markstein, IBM J. Res. Dev. 34, 1990), where
    nothing overflows or becomes denormal on the way. Zeros lose their sign, and all else is divided.
    """
    builder, of, i32 = codec.builder, codec.values("f32"), codec.integers(32)
    fma = f"llvm.fma.{codec.suffix(of)}"
    first = quotient = builder.fmul(x, reciprocal)
    for _ in range(2):
        rest = codec.call(fma, of, builder.fneg(quotient), y, x)
        quotient = codec.call(fma, of, rest, reciprocal, quotient)
    low, high = (int(np.float32(limit).view(np.uint32)) for limit in (_LOW, _HIGH))
    # what lies between has 0 there, whatever its sign
    bit = high - low
    moved = builder.sub(builder.bitcast(x, i32), codec.splat(i32, low))
    magnitude = codec.call(f"llvm.fabs.{codec.suffix(of)}", of, x)

    def divide() -> Any:
        found = builder.fdiv(x, y)
        return found if to in INTEGERS else _canonical(codec, "f32", found)

    def look() -> Any:
        is_large = builder.fcmp_unordered("uge", magnitude, codec.splat(of, _HIGH))
        if to in INTEGERS:
            return codec.rarely(is_large, divide, quotient)
        is_zero = builder.fcmp_ordered("==", x, codec.splat(of, 0.0))
        is_small = builder.fcmp_ordered("<", magnitude, codec.splat(of, _LOW))
        is_far = builder.or_(is_large, builder.and_(is_small, builder.not_(is_zero)))
        return codec.rarely(is_far, divide, builder.select(is_zero, first, quotient))

    return codec.rarely(codec.any_bit(moved, bit), look, quotient)


def emit_combine(
    builder: Any,
    record: Any,
    places: tuple[tuple[Any, Any], ...],
    number_at: Any,
    names: tuple[str, str, str],
    *,
    streams: bool,
) -> None:
    """Run one operation; `places` are addresses and indices of input, output and operand.

    `names` are the types of input and output, and the working type, which the operand has:
    elements become values, and values elements, in the same registers. `number_at` is the address
    of the number that `ADD_TIMES` multiplies the operand with, or of the reciprocals of `QUOTIENT`.
    Input and output may be the same. With `streams` whole cache lines are written past the caches.
    """
    work = names[2]
    rows, count = load_number(builder, record, int64(1)), load_number(builder, record, int64(2))
    mask, ahead = load_number(builder, record, int64(3)), load_number(builder, record, int64(4))
    is_single = builder.icmp_signed("==", mask, int64(0))
    tables = [
        builder.add(
            record, builder.shl(builder.add(int64(_HEAD), builder.mul(rows, int64(k))), int64(3))
        )
        for k in range(3)
    ]
    chosen = load_number(builder, record, int64(0))
    for operation in range(HALF + 1):
        if operation == QUOTIENT and not (work == "f32" and has_fma()):
            continue
        with (
            builder.if_then(builder.icmp_signed("==", chosen, int64(operation))),
            loop(builder, int64(0), rows) as row,
        ):
            source, target, operand = (
                Run(builder, name, address, builder.add(index, load_number(builder, table, row)))
                for name, (address, index), table in zip(names, places, tables, strict=True)
            )
            number = Run(
                builder, work, number_at, operand.index if operation == QUOTIENT else int64(0)
            )
            runs = source, target, operand, number
            if operation in {HALF, CLAMP}:
                _emit_row(operation, runs, (count, mask, ahead), work, single=True, streams=streams)
                continue
            with builder.if_else(is_single) as (one, many):
                with one:
                    _emit_row(
                        operation, runs, (count, mask, ahead), work, single=True, streams=streams
                    )
                with many:
                    _emit_row(
                        operation, runs, (count, mask, ahead), work, single=False, streams=streams
                    )


def _emit_row(
    operation: int,
    runs: tuple[Run, Run, Run, Run],
    span: tuple[Any, Any, Any],
    work: str,
    *,
    single: bool,
    streams: bool,
) -> None:
    count, mask, ahead = span
    source, target, operand, number = runs
    builder = source.builder

    def first(run: Run) -> Any:
        return builder.bitcast(run.load(int64(0), 1), Codec(builder, 1).values(work))

    # what stays is loaded once: a store might have changed it, for all that LLVM knows
    kept = first(operand) if single else None
    kept_number = (
        first(number) if operation == ADD_TIMES or (operation == QUOTIENT and single) else None
    )

    def read(codec: Codec, run: Run, i: Any, own: Any) -> Any:
        """Return neighbouring values, or one in every lane."""
        if own is None:
            return builder.bitcast(run.load(builder.and_(i, mask), codec.lanes), codec.values(work))
        return builder.shuffle_vector(
            own, ir.Constant(own.type, ir.Undefined), ir.Constant(codec.integers(32), None)
        )

    def step(i: Any, lanes: int, *, is_line: bool = False) -> None:
        codec = Codec(builder, lanes)
        if source.fills_line(lanes) or lanes == lanes_of(work, _REGISTERS)[0]:
            source.prefetch(i, lanes, ahead)
        x = codec.decode(source.load(i, codec.lanes), source.name, work)
        y = None if operation == HALF else read(codec, operand, i, kept)
        factor = None
        if operation in {QUOTIENT, ADD_TIMES}:
            factor = read(codec, number, i, kept_number)
        result = _apply(codec, work, operation, x, y, factor, to=target.name)
        target.store(codec.encode(result, work, target.name), i, streams=is_line)

    if streams:
        each_line(target, count, lanes_of(work, _REGISTERS), step, meets=False)
    else:
        each_step(builder, (int64(0), count), lanes_of(work, _REGISTERS), step, meets=False)
