"""The arithmetic of a reorder: one operation at a time over rows of values.

A record is [operation, rows, count, does the operand change along a row], then three tables:
offsets of each row in the input, in the output and in the operand. Values are f32 or f64. A NaN
that comes out is the quiet one without sign and payload, whatever went in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir

from reorder.cpu.convert.codec import Codec, code_bits, has_feature
from reorder.cpu.convert.rows import Run, each_line, each_step, lanes_of, load_number
from reorder.cpu.emit import int64, loop
from reorder.formats import FLOATS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["ADD", "ADD_TIMES", "CLAMP", "DIVIDE", "HALF", "HEAD", "MULTIPLY", "QUOTIENT", "SUBTRACT", "emit_combine", "has_quick_division"]

# What is done to value x with operand y. A quotient is a division whose operand brings its
# reciprocals along, as the number.
SUBTRACT, MULTIPLY, DIVIDE, QUOTIENT, ADD, ADD_TIMES, CLAMP, HALF = range(8)
HEAD = 4
# registers of the machine on which an operation works together: one test serves them all
_REGISTERS = 4
# what x, and y, must lie between for a quotient: the steps to it neither overflow nor lose bits
_LOW, _HIGH, _LEAST, _MOST = -60, 60, 2.0**-40, 2.0**40


def _has_fma() -> bool:
    return has_feature("fma")


def has_quick_division(divisors: NDArray[np.float64], work: str) -> bool:
    """Whether quotients by these divisors may be computed from their reciprocals."""
    magnitude = abs(divisors)
    return work == "f32" and _has_fma() and bool(((magnitude >= _LEAST) & (magnitude <= _MOST)).all())


def _apply(codec: Codec, work: str, operation: int, x: Any, y: Any, number: Any) -> Any:
    """Return what an operation makes of vectors of values."""
    builder, of = codec.builder, codec.values(work)
    if operation == CLAMP:
        low = builder.fsub(codec.splat(of, -0.0), y)
        x = builder.select(builder.fcmp_ordered(">", x, y), y, x)
        return builder.select(builder.fcmp_ordered("<", x, low), low, x)
    if operation == HALF:
        return codec.widen(codec.narrow(x, work, "f16"), "f16", work)
    if operation == QUOTIENT:
        return _quotient(codec, x, y, number)
    if operation == ADD_TIMES:
        found = builder.fadd(x, builder.fmul(number, y))
    else:
        emit = {SUBTRACT: builder.fsub, MULTIPLY: builder.fmul, DIVIDE: builder.fdiv, ADD: builder.fadd}[operation]
        found = emit(x, y)
    return _canonical(codec, work, found)


def _canonical(codec: Codec, work: str, values: Any) -> Any:
    """Return values in which NaN is the quiet one without sign and payload."""
    nan = ir.Constant(codec.integers(code_bits(work)), [FLOATS[work].nan] * codec.lanes)
    is_number = codec.builder.fcmp_ordered("ord", values, values)
    return codec.builder.select(is_number, values, codec.builder.bitcast(nan, codec.values(work)))


def _quotient(codec: Codec, x: Any, y: Any, reciprocal: Any) -> Any:
    """Return x / y, rounded as a division is, by way of the rounded reciprocal.

    Two corrections by the exact remainder make it so (Markstein, IBM J. Res. Dev. 34, 1990), where
    nothing overflows or becomes denormal on the way; all else is divided.
    """
    builder, of, i32 = codec.builder, codec.values("f32"), codec.integers(32)
    fma = f"llvm.fma.{codec.suffix(of)}"
    quotient = builder.fmul(x, reciprocal)
    for _ in range(2):
        rest = codec.call(fma, of, builder.fneg(quotient), y, x)
        quotient = codec.call(fma, of, rest, reciprocal, quotient)
    form = FLOATS["f32"]
    magnitude = builder.and_(builder.bitcast(x, i32), codec.splat(i32, (1 << 31) - 1))
    low, high = ((exponent + form.bias) << form.mantissa for exponent in (_LOW, _HIGH))
    is_far = builder.icmp_unsigned(">", builder.sub(magnitude, codec.splat(i32, low)), codec.splat(i32, high - low))
    any_far = builder.icmp_unsigned("!=", builder.bitcast(is_far, ir.IntType(codec.lanes)), ir.IntType(codec.lanes)(0))
    before = builder.block
    with builder.if_then(any_far, likely=False):
        divided = _canonical(codec, "f32", builder.fdiv(x, y))
        after = builder.block
    found = builder.phi(of)
    found.add_incoming(quotient, before)
    found.add_incoming(divided, after)
    return found


def emit_combine(
    builder: Any, record: Any, places: tuple[tuple[Any, Any], ...], number_at: Any, names: tuple[str, str, str], *, streams: bool
) -> None:
    """Run one operation; `places` are addresses and indices of input, output and operand.

    `names` are the types of input and output, and the working type, which the operand has:
    elements become values, and values elements, in the same registers. `number_at` is the address
    of the number that `ADD_TIMES` multiplies the operand with, or of the reciprocals of `QUOTIENT`.
    Input and output may be the same. With `streams` whole cache lines are written past the caches.
    """
    work = names[2]
    rows, count = load_number(builder, record, int64(1)), load_number(builder, record, int64(2))
    is_single = builder.icmp_signed("==", load_number(builder, record, int64(3)), int64(0))
    tables = [builder.add(record, builder.shl(builder.add(int64(HEAD), builder.mul(rows, int64(k))), int64(3))) for k in range(3)]
    chosen = load_number(builder, record, int64(0))
    for operation in range(HALF + 1):
        if operation == QUOTIENT and not (work == "f32" and _has_fma()):
            continue
        with builder.if_then(builder.icmp_signed("==", chosen, int64(operation))), loop(builder, int64(0), rows) as row:
            source, target, operand = (
                Run(builder, name, address, builder.add(index, load_number(builder, table, row)))
                for name, (address, index), table in zip(names, places, tables, strict=True)
            )
            number = Run(builder, work, number_at, operand.index if operation == QUOTIENT else int64(0))
            runs = source, target, operand, number
            if operation in {HALF, CLAMP}:
                _emit_row(operation, runs, count, work, single=True, streams=streams)
                continue
            with builder.if_else(is_single) as (one, many):
                with one:
                    _emit_row(operation, runs, count, work, single=True, streams=streams)
                with many:
                    _emit_row(operation, runs, count, work, single=False, streams=streams)


def _emit_row(operation: int, runs: tuple[Run, Run, Run, Run], count: Any, work: str, *, single: bool, streams: bool) -> None:
    source, target, operand, number = runs
    builder = source.builder

    def read(codec: Codec, run: Run, i: Any, *, spread: bool) -> Any:
        """Return neighbouring values, or the first of a run in every lane."""
        if not spread:
            return builder.bitcast(run.load(i, codec.lanes), codec.values(work))
        value = builder.bitcast(run.load(int64(0), 1), Codec(builder, 1).values(work))
        picks = ir.Constant(ir.VectorType(ir.IntType(32), codec.lanes), [0] * codec.lanes)
        return builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), picks)

    def step(i: Any, lanes: int, *, is_line: bool = False) -> None:
        codec = Codec(builder, lanes)
        if lanes == lanes_of(work, _REGISTERS)[0]:
            source.prefetch(i, lanes)
        x = codec.widen(source.load(i, codec.lanes), source.name, work)
        y = None if operation == HALF else read(codec, operand, i, spread=single)
        factor = None
        if operation in {QUOTIENT, ADD_TIMES}:
            factor = read(codec, number, i, spread=single or operation == ADD_TIMES)
        result = _apply(codec, work, operation, x, y, factor)
        target.store(codec.narrow(result, work, target.name), i, streams=is_line)

    if streams:
        each_line(target, count, lanes_of(work, _REGISTERS), step, meets=False)
    else:
        each_step(builder, (int64(0), count), lanes_of(work, _REGISTERS), step, meets=False)
