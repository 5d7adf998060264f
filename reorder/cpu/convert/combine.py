"""The arithmetic of a reorder: one operation at a time over rows of values.

A record is [operation, rows, count, does the operand change along a row], then three tables:
offsets of each row in the input, in the output and in the operand. Values are f32 or f64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir

from reorder.cpu.convert.codec import Codec, code_bits
from reorder.cpu.convert.rows import Run, each_step, lanes_of, load_number
from reorder.cpu.emit import int64, loop
from reorder.formats import FLOATS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ADD", "CANONICAL", "CLAMP", "DIVIDE", "HALF", "HEAD", "MULTIPLY", "SUBTRACT", "emit_combine"]

# what is done to value x with operand y
SUBTRACT, MULTIPLY, DIVIDE, ADD, ADD_TIMES, CLAMP, HALF, CANONICAL = range(8)
HEAD = 4


def _operations(codec: Codec, work: str) -> dict[int, Callable[[Any, Any, Any], Any]]:
    """Return what emits each operation on x, y and a number."""
    builder = codec.builder
    of = codec.values(work)

    def clamp(x: Any, y: Any, _: Any) -> Any:
        low = builder.fsub(codec.splat(of, -0.0), y)
        x = builder.select(builder.fcmp_ordered(">", x, y), y, x)
        return builder.select(builder.fcmp_ordered("<", x, low), low, x)

    def half(x: Any, _y: Any, _: Any) -> Any:
        return codec.widen(codec.narrow(x, work, "f16"), "f16", work)

    def canonical(x: Any, _y: Any, _: Any) -> Any:
        nan = ir.Constant(codec.integers(code_bits(work)), [FLOATS[work].nan] * codec.lanes)
        return builder.select(builder.fcmp_ordered("ord", x, x), x, builder.bitcast(nan, of))

    return {
        SUBTRACT: lambda x, y, _: builder.fsub(x, y),
        MULTIPLY: lambda x, y, _: builder.fmul(x, y),
        DIVIDE: lambda x, y, _: builder.fdiv(x, y),
        ADD: lambda x, y, _: builder.fadd(x, y),
        ADD_TIMES: lambda x, y, number: builder.fadd(x, builder.fmul(number, y)),
        CLAMP: clamp,
        HALF: half,
        CANONICAL: canonical,
    }


def emit_combine(builder: Any, record: Any, places: tuple[tuple[Any, Any], ...], number_at: Any, work: str) -> None:
    """Run one operation; `places` are addresses and indices of input, output and operand.

    `number_at` is the address of the number that `ADD_TIMES` multiplies the operand with. Input
    and output may be the same.
    """
    rows, count = load_number(builder, record, int64(1)), load_number(builder, record, int64(2))
    is_single = builder.icmp_signed("==", load_number(builder, record, int64(3)), int64(0))
    tables = [builder.add(record, builder.shl(builder.add(int64(HEAD), builder.mul(rows, int64(k))), int64(3))) for k in range(3)]
    chosen = load_number(builder, record, int64(0))
    for operation in _operations(Codec(builder, 1), work):
        with builder.if_then(builder.icmp_signed("==", chosen, int64(operation))), loop(builder, int64(0), rows) as row:
            source, target, operand = (
                Run(builder, work, address, builder.add(index, load_number(builder, table, row)))
                for (address, index), table in zip(places, tables, strict=True)
            )
            if operation in {HALF, CANONICAL}:
                _emit_row(operation, (source, target, operand), count, None, work, single=True)
                continue
            number = Run(builder, work, number_at, int64(0)) if operation == ADD_TIMES else None
            if operation == CLAMP:
                _emit_row(operation, (source, target, operand), count, number, work, single=True)
                continue
            with builder.if_else(is_single) as (one, many):
                with one:
                    _emit_row(operation, (source, target, operand), count, number, work, single=True)
                with many:
                    _emit_row(operation, (source, target, operand), count, number, work, single=False)


def _emit_row(operation: int, runs: tuple[Run, Run, Run], count: Any, number: Run | None, work: str, *, single: bool) -> None:
    source, target, operand = runs
    builder = source.builder

    def spread(codec: Codec, run: Run) -> Any:
        """Return the first value of a run in every lane."""
        value = builder.bitcast(run.load(int64(0), 1), Codec(builder, 1).values(work))
        picks = ir.Constant(ir.VectorType(ir.IntType(32), codec.lanes), [0] * codec.lanes)
        return builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), picks)

    def step(i: Any, lanes: int) -> None:
        codec = Codec(builder, lanes)
        of = codec.values(work)
        x = builder.bitcast(source.load(i, lanes), of)
        y = x
        if operation not in {HALF, CANONICAL}:
            y = spread(codec, operand) if single else builder.bitcast(operand.load(i, lanes), of)
        factor = None if number is None else spread(codec, number)
        result = _operations(codec, work)[operation](x, y, factor)
        target.store(builder.bitcast(result, codec.integers(code_bits(work))), i)

    each_step(builder, (int64(0), count), lanes_of(work), step, meets=False)
