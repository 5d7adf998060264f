"""The walker that decodes records: loops over segments and blocks, and the formula in vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memdesc import DATA_TYPES
from reorder.cpu.convert.codec import Codec
from reorder.cpu.decode.numbers import Numbers
from reorder.cpu.decode.pattern import MAX_LANES
from reorder.cpu.kernels.emit import int64, load_int64, load_record, loop
from reorder.cpu.kernels.shuffle import pick
from reorder.cpu.kernels.walk import each_task
from reorder.cpu.record import WORD_NBYTES, nbytes_of
from reorder.cpu.target import BYTE_BITS

if TYPE_CHECKING:
    from collections.abc import Callable

    from reorder.cpu.decode.pattern import NumberPattern, Pattern
    from reorder.cpu.kernels.emit import Builder, Value
    from reorder.cpu.kernels.walk import WalkerCall

__all__ = ["DecodeHead", "DecodeKernel", "FieldHead", "emit_decode"]


class DecodeKernel(NamedTuple):
    """What the code depends on."""

    pattern: Pattern
    # name of the type that it writes. Stores are usual ones: memory that was just allocated is
    # zeroed by the system into the cache, and non-temporal stores would take twice as long there
    dtype: str


class DecodeHead(NamedTuple):
    """The program of a record; it is followed by a `FieldHead` for each field."""

    # blocks of a segment
    blocks: int
    # address of the table of starts: for each segment, the byte at which each field starts
    starts: int


class FieldHead(NamedTuple):
    """A field: the address of its tensor, and its bytes from one block to the next."""

    tensor: int
    advance: int


def emit_decode(builder: Builder, call: WalkerCall, kernel: DecodeKernel) -> None:
    """Decode the segments of all tasks of a call to row-major memory at dst."""
    pattern, count = kernel.pattern, len(kernel.pattern.fields)
    nbytes = pattern.block * DATA_TYPES[kernel.dtype].bits // BYTE_BITS
    for task, record, _ in each_task(builder, call):
        head = load_record(builder, record, DecodeHead)
        fields = []
        for index in range(count):
            at = nbytes_of(DecodeHead) + index * nbytes_of(FieldHead)
            fields.append(load_record(builder, builder.add(record, int64(at)), FieldHead))
        with loop(builder, task.first, task.last) as segment:
            row = builder.add(head.starts, builder.mul(segment, int64(count * WORD_NBYTES)))
            starts = [
                builder.add(field.tensor, load_int64(builder, row, index))
                for index, field in enumerate(fields)
            ]
            before = builder.mul(segment, builder.mul(head.blocks, int64(nbytes)))
            dst = builder.add(call.dst_at, before)
            with loop(builder, int64(0), head.blocks) as block:
                addresses = [
                    builder.add(start, builder.mul(block, field.advance))
                    for start, field in zip(starts, fields, strict=True)
                ]
                numbers = Numbers(builder, pattern.fields, addresses)
                _decode_block(numbers, kernel, builder.add(dst, builder.mul(block, int64(nbytes))))


def _decode_block(numbers: Numbers, kernel: DecodeKernel, dst: Value) -> None:
    """Decode one block to an address."""
    builder, pattern = numbers.builder, kernel.pattern
    lanes = min(MAX_LANES, pattern.block)
    codec = Codec(builder, lanes)
    scale = _factors(numbers, pattern.scale, pattern.block)
    offset = _factors(numbers, pattern.offset, pattern.block) if pattern.offset else None
    zero = pattern.zero
    for first in range(0, pattern.block, lanes):
        positions = range(first, first + lanes)
        code = numbers.values(pattern.code, positions)
        if zero is not None:
            code = builder.sub(code, numbers.values(zero, positions))
        values = builder.fmul(scale(positions), numbers.as_float(code))
        if offset is not None:
            add = builder.fadd if pattern.sign > 0 else builder.fsub
            values = add(values, offset(positions))
        # a NaN that comes out of arithmetic has neither sign nor payload
        nan = codec.splat(values.type, float("nan"))
        values = builder.select(builder.fcmp_unordered("uno", values, values), nan, values)
        _store(builder, codec.encode(values, "f32", kernel.dtype), dst, first, kernel)


def _factors(
    numbers: Numbers, factors: tuple[NumberPattern, ...], block: int
) -> Callable[[range], Value]:
    """Return what gives the product of some numbers for the elements of a vector.

    Where neighbours of a whole vector share it, it is computed once for the block.
    """
    lanes = min(MAX_LANES, block)
    run = min(factor.run for factor in factors)
    if run < lanes:
        return lambda positions: numbers.product(factors, positions)
    products = numbers.product(factors, range(0, block, run))

    def splat(positions: range) -> Value:
        return pick(numbers.builder, products, [positions[0] // run] * lanes)

    return splat


def _store(builder: Builder, codes: Value, dst: Value, first: int, kernel: DecodeKernel) -> None:
    """Store the vector of the elements from `first` on."""
    nbytes = first * DATA_TYPES[kernel.dtype].bits // BYTE_BITS
    pointer = builder.inttoptr(builder.add(dst, int64(nbytes)), codes.type.as_pointer())
    builder.store(codes, pointer).align = 1
