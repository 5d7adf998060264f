"""Decode block-quantised tensors: loops over segments and blocks, and the formula in vectors."""

from __future__ import annotations

from functools import reduce
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from memdesc import DATA_TYPES
from memdesc.record import BIT_PLANES, Codebook, Digits
from reorder.cpu.codecs.codec import Codec
from reorder.cpu.kernels.emit import BYTE, entry_address, int64, load_fields, load_int64, loop
from reorder.cpu.kernels.interpreter import each_task
from reorder.cpu.kernels.shuffle import pick
from reorder.cpu.schedule.record_pattern import MAX_LANES
from reorder.cpu.tables import WORD_NBYTES, nbytes_of
from reorder.cpu.target import BYTE_BITS, has_feature, is_x86
from reorder.values.formats import FLOATS, INTEGERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from reorder.cpu.kernels.emit import Builder, Value
    from reorder.cpu.kernels.interpreter import InterpreterCall
    from reorder.cpu.schedule.record_pattern import NumberPattern, Pattern

__all__ = ["DecodeHead", "DecodeKernel", "FieldHead", "emit_decode"]


class DecodeKernel(NamedTuple):
    """What the code depends on."""

    pattern: Pattern
    # name of the type that it writes. Stores are temporal: the system has just zeroed freshly
    # allocated memory through the cache, where non-temporal stores would take twice as long
    dtype: str


class DecodeHead(NamedTuple):
    """The instruction that decodes a record; a `FieldHead` for each field follows."""

    # blocks of a segment
    blocks: int
    # address of the table of starts: for each segment, the byte at which each field starts
    starts: int


class FieldHead(NamedTuple):
    """A field: the address of its tensor, and its bytes from one block to the next."""

    tensor: int
    advance: int


def emit_decode(builder: Builder, call: InterpreterCall, kernel: DecodeKernel) -> None:
    """Decode the segments of all tasks of a call to row-major memory at dst."""
    pattern, count = kernel.pattern, len(kernel.pattern.fields)
    nbytes = pattern.block * DATA_TYPES[kernel.dtype].bits // BYTE_BITS
    for task, instruction, _ in each_task(builder, call):
        head = load_fields(builder, instruction, DecodeHead)
        fields = []
        for index in range(count):
            at = nbytes_of(DecodeHead) + index * nbytes_of(FieldHead)
            fields.append(load_fields(builder, builder.add(instruction, int64(at)), FieldHead))
        with loop(builder, task.first, task.last) as segment:
            row = entry_address(builder, head.starts, segment, count * WORD_NBYTES)
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
                numbers = _Numbers(builder, pattern, addresses)
                _decode_block(numbers, kernel, entry_address(builder, dst, block, nbytes))


def _decode_block(numbers: _Numbers, kernel: DecodeKernel, dst: Value) -> None:
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
            code = numbers.difference(code, numbers.values(zero, positions))
        values = numbers.rounded(builder.fmul(scale(positions), numbers.as_float(code)))
        if offset is not None:
            add = builder.fadd if pattern.sign > 0 else builder.fsub
            values = numbers.rounded(add(values, offset(positions)))
        # a NaN that arithmetic produces has neither sign nor payload
        nan = codec.splat(values.type, float("nan"))
        values = builder.select(builder.fcmp_unordered("uno", values, values), nan, values)
        _store(builder, codec.encode(values, "f32", kernel.dtype), dst, first, kernel)


def _factors(
    numbers: _Numbers, factors: tuple[NumberPattern, ...], block: int
) -> Callable[[range], Value]:
    """Return a function that gives the product of some numbers for the elements of a vector.

    The product of the first factors that all elements of a vector share is computed once for the
    block.
    """
    lanes = min(MAX_LANES, block)
    shared = tuple(takewhile(lambda factor: factor.run >= lanes, factors))
    rest = factors[len(shared) :]
    if not shared:
        return lambda positions: numbers.product(rest, positions)
    run = min(factor.run for factor in shared)
    products = numbers.product(shared, range(0, block, run))

    def of(positions: range) -> Value:
        splat = pick(numbers.builder, products, [positions[0] // run] * lanes)
        return numbers.product(rest, positions, splat)

    return of


def _store(builder: Builder, codes: Value, dst: Value, first: int, kernel: DecodeKernel) -> None:
    """Store the vector of the elements from `first` on."""
    nbytes = first * DATA_TYPES[kernel.dtype].bits // BYTE_BITS
    pointer = builder.inttoptr(builder.add(dst, int64(nbytes)), codes.type.as_pointer())
    builder.store(codes, pointer).align = 1


_I32 = ir.IntType(32)
_F32 = ir.FloatType()
# Elements between the first and the last of a vector that are loaded together.
_MAX_SPAN = 64
# Numbers of a codebook that are loaded as one integer.
_LOADS = (2, 4, 8)


def _is_looked_up(number: NumberPattern) -> bool:
    """Whether the codes have no sign: they stand for something else than an integer."""
    return bool(number.table or number.codebook or number.kind)


def _line(table: tuple[float, ...]) -> tuple[float, float] | None:
    """Return the first value and the step of a table on a line, or None if it is not, exactly."""
    values = np.array(table, np.float32)
    step = values[1] - values[0] if len(values) > 1 else np.float32(0)
    made = np.arange(len(values), dtype=np.float32) * step + values[0]
    is_line = np.array_equal(made.view(np.uint32), values.view(np.uint32))
    return (float(values[0]), float(step)) if is_line else None


def _digits(codec: Codec, codes: Value, digits: Digits, positions: range) -> Value:
    """Return a digit of each code, by the rule of `Digits`."""
    builder = codec.builder
    powers = [digits.base ** digits.lanes[k % len(digits.lanes)] for k in positions]
    rest = builder.mul(codes, ir.Constant(codes.type, powers))
    rest = builder.and_(rest, codec.splat(codes.type, (1 << BYTE_BITS) - 1))
    found = builder.mul(rest, codec.splat(codes.type, digits.base))
    return builder.lshr(found, codec.splat(codes.type, BYTE_BITS))


class _Numbers:
    """The numbers of the elements of one block, whose fields start at some addresses."""

    def __init__(self, builder: Builder, pattern: Pattern, addresses: list[Value]) -> None:
        self.builder = builder
        self._fields, self._kind, self._addresses = pattern.fields, pattern.kind, addresses
        self._block = pattern.block
        # codes that several vectors take numbers of
        self._known: dict[tuple[object, int], Value] = {}

    def values(self, number: NumberPattern, positions: range) -> Value:
        """Return the values of a number for some elements: i32, or f32 of floats and tables."""
        builder, codec = self.builder, Codec(self.builder, len(positions))
        (first, _), *more = number.parts
        kind = self._fields[first].kind
        if not more and kind not in BIT_PLANES and kind not in INTEGERS:
            return codec.decode(self._codes(codec, first, positions), kind, "f32")
        if isinstance(number.codebook, Codebook):
            return self._numbers_of(number, number.codebook, positions)
        joined = self._joined(number, positions)
        if number.table:
            return self._looked_up(codec, joined, number.table)
        if number.kind:
            bits = builder.trunc(joined, codec.integers(FLOATS[number.kind].bits))
            return codec.decode(bits, number.kind, "f32")
        if isinstance(number.codebook, Digits):
            joined = _digits(codec, joined, number.codebook, positions)
        if number.minus:
            joined = builder.sub(joined, codec.splat(joined.type, number.minus))
        return joined

    def _joined(self, number: NumberPattern, positions: range) -> Value:
        """Return the integers that the fields of a number make, as i32."""
        builder, codec = self.builder, Codec(self.builder, len(positions))
        parts = []
        for field, shift in number.parts:
            codes = self._integers(codec, field, positions, is_signed=not _is_looked_up(number))
            parts.append(builder.shl(codes, codec.splat(codes.type, shift)) if shift else codes)
        return reduce(builder.or_, parts)

    def product(
        self, numbers: tuple[NumberPattern, ...], positions: range, product: Value | None = None
    ) -> Value:
        """Return the product of numbers, from the left, after a first factor."""
        for number in numbers:
            factor = self.as_float(self.values(number, positions))
            join = self.builder.fdiv if number.divides else self.builder.fmul
            product = factor if product is None else self.rounded(join(product, factor))
        return product

    def rounded(self, values: Value) -> Value:
        """Return f32 rounded to what the rule is computed in."""
        if self._kind == "f32":
            return values
        codec = Codec(self.builder, values.type.count)
        return codec.decode(codec.encode(values, "f32", self._kind), self._kind, "f32")

    def difference(self, code: Value, zero: Value) -> Value:
        """Return a code minus a zero point: of integers, or rounded."""
        if zero.type == code.type:
            return self.builder.sub(code, zero)
        return self.rounded(self.builder.fsub(self.as_float(code), zero))

    def as_float(self, values: Value) -> Value:
        """Return values as f32."""
        if values.type.element == _F32:
            return values
        return self.builder.sitofp(values, ir.VectorType(_F32, values.type.count))

    def _integers(self, codec: Codec, index: int, positions: range, *, is_signed: bool) -> Value:
        """Return the integers of a field as i32; codes of a table have no sign."""
        builder, kind = self.builder, self._fields[index].kind
        codes, wide = self._codes(codec, index, positions), codec.integers(32)
        signed = is_signed and kind not in BIT_PLANES and INTEGERS[kind].is_signed
        bits = self._fields[index].bits
        if signed and bits < BYTE_BITS:
            left = codec.splat(wide, 32 - bits)
            return builder.ashr(builder.shl(builder.zext(codes, wide), left), left)
        return builder.sext(codes, wide) if signed else builder.zext(codes, wide)

    def _codes(self, codec: Codec, index: int, positions: range) -> Value:
        """Return the bits of elements of a field, in integers of at least a byte."""
        builder, field = self.builder, self._fields[index]
        offsets = [field.offsets[position] for position in positions]
        word = max(field.bits, BYTE_BITS)
        codes = self._load(codec, index, [offset // word for offset in offsets])
        if field.bits == word:
            return codes
        shifts = [offset % word for offset in offsets]
        wide = codec.integers(32)
        numbers = builder.zext(codes, wide)
        if any(shifts):
            numbers = builder.lshr(numbers, ir.Constant(wide, shifts))
        if any(shift + field.bits < word for shift in shifts):
            numbers = builder.and_(numbers, codec.splat(wide, (1 << field.bits) - 1))
        return builder.trunc(numbers, codes.type)

    def _load(self, codec: Codec, index: int, places: list[int]) -> Value:
        """Load words of a field, counted from the start of the block, into a vector."""
        builder = self.builder
        word = ir.IntType(max(self._fields[index].bits, BYTE_BITS))
        low, span = min(places), max(places) - min(places) + 1
        if span > max(_MAX_SPAN, codec.lanes):
            vector = ir.Constant(codec.vector(word), ir.Undefined)
            for lane, place in enumerate(places):
                vector = builder.insert_element(
                    vector, self._load_at(index, place, word), _I32(lane)
                )
            return vector
        loaded = self._load_at(index, low, ir.VectorType(word, span))
        lanes = [place - low for place in places]
        if lanes == list(range(span)):
            return loaded
        mask = ir.Constant(ir.VectorType(_I32, codec.lanes), lanes)
        return builder.shuffle_vector(loaded, ir.Constant(loaded.type, ir.Undefined), mask)

    def _load_at(self, index: int, place: int, kind: Value) -> Value:
        """Load an integer or a vector of them from the start of the block on; it is not aligned."""
        builder = self.builder
        nbytes = place * max(self._fields[index].bits, BYTE_BITS) // BYTE_BITS
        address = builder.add(self._addresses[index], int64(nbytes))
        loaded = builder.load(builder.inttoptr(address, kind.as_pointer()))
        loaded.align = 1
        return loaded

    def _numbers_of(self, number: NumberPattern, book: Codebook, positions: range) -> Value:
        """Return the numbers of a codebook as i32: loads of as many as a code has in a row."""
        builder, lanes = self.builder, [book.lanes[k % len(book.lanes)] for k in positions]
        kind = ir.ArrayType(BYTE, len(book.values))
        stored = cgutils.global_constant(
            builder, "memdesc.codebook", ir.Constant(kind, bytearray(book.values))
        )
        run, size = number.code_run, book.size
        is_whole = (
            size in _LOADS
            and run % size == 0
            and len(positions) % size == 0
            and lanes == [*range(size)] * (len(positions) // size)
        )
        count = size if is_whole else 1
        vector = ir.VectorType(ir.IntType(count * BYTE_BITS), len(positions) // count)
        found = ir.Constant(vector, ir.Undefined)
        for k in range(vector.count):
            at = builder.mul(self._code_at(number, positions[k * count]), _I32(size))
            at = builder.add(at, _I32(lanes[k * count]))
            address = builder.gep(stored, [_I32(0), at], inbounds=True)
            loaded = builder.load(builder.bitcast(address, vector.element.as_pointer()))
            loaded.align = 1
            found = builder.insert_element(found, loaded, _I32(k))
        numbers = builder.bitcast(found, ir.VectorType(BYTE, len(positions)))
        return builder.sext(numbers, ir.VectorType(_I32, len(positions)))

    def _code_at(self, number: NumberPattern, position: int) -> Value:
        """Return the code of an element; those of a block are computed once, in vectors."""
        count, run = min(MAX_LANES, self._block // number.code_run), number.code_run
        lane, first = position // run % count, position // (run * count) * run * count
        key = number.parts, first
        if key not in self._known:
            self._known[key] = self._joined(number, range(first, first + run * count, run))
        return self.builder.extract_element(self._known[key], _I32(lane))

    def _looked_up(self, codec: Codec, codes: Value, table: tuple[float, ...]) -> Value:
        """Return the values of a table: by one shuffle of bytes if it is short, else by loads."""
        builder, values = self.builder, codec.values("f32")
        if (line := _line(table)) is not None:
            first, step = (codec.splat(values, each) for each in line)
            return builder.fadd(builder.fmul(builder.uitofp(codes, values), step), first)
        is_short = len(table) == MAX_LANES and all(abs(value) <= 127 for value in table)  # noqa: PLR2004 - a byte
        is_whole = all(float(value).is_integer() for value in table)
        if is_short and is_whole and codec.lanes == MAX_LANES and is_x86() and has_feature("ssse3"):
            vector = codec.vector(BYTE)
            entries = ir.Constant(vector, [int(value) & 255 for value in table])
            found = codec.call(
                "llvm.x86.ssse3.pshuf.b.128", vector, entries, builder.trunc(codes, vector)
            )
            return builder.sitofp(builder.sext(found, codes.type), values)
        kind = ir.ArrayType(_F32, len(table))
        stored = cgutils.global_constant(
            builder, "memdesc.table", ir.Constant(kind, [_F32(value) for value in table])
        )
        found = ir.Constant(values, ir.Undefined)
        for lane in range(codec.lanes):
            code = builder.extract_element(codes, _I32(lane))
            entry = builder.load(builder.gep(stored, [_I32(0), code], inbounds=True))
            found = builder.insert_element(found, entry, _I32(lane))
        return found
