"""Decode block-quantised tensors: loops over segments and blocks, and the formula in vectors."""

import operator
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from itertools import takewhile

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from memdesc.record import BIT_PLANES, Codebook, Number
from reorder.cpu.codecs import Codec, any_nan
from reorder.cpu.decoding.pattern import (
    MAX_LANES,
    DecodeHead,
    DecodeKernel,
    FieldHead,
    Pattern,
)
from reorder.cpu.kernels.interpreter import InterpreterCall, each_range
from reorder.cpu.llvm.emit import BYTE, IRValue, Type, Value, load_fields, loop, new_constant, where
from reorder.cpu.llvm.shuffle import pick
from reorder.cpu.tables import WORD_NBYTES, nbytes_of
from reorder.cpu.target import has_feature, has_masks
from reorder.system import is_x86
from reorder.values.formats import FLOATS, INTEGERS


def emit_decode(call: InterpreterCall, kernel: DecodeKernel) -> None:
    """Decode the segments of all ranges of a call to row-major memory."""
    pattern, count = kernel.pattern, len(kernel.pattern.fields)
    bits = DATA_TYPES[kernel.dtype].bits
    nbytes = pattern.block * bits // BYTE_BITS
    codec = Codec(call.dst_at.builder, kernel.lanes)
    for step_range, instruction, _ in each_range(call):
        head = load_fields(instruction, DecodeHead)
        fields_at = instruction + nbytes_of(DecodeHead)
        fields = [
            load_fields(fields_at + k * nbytes_of(FieldHead), FieldHead) for k in range(count)
        ]
        with loop(step_range.first, step_range.last) as segment:
            row = head.starts + segment * (count * WORD_NBYTES)
            starts = [field.tensor + row[k] for k, field in enumerate(fields)]
            base = call.dst_at + segment * (head.blocks * nbytes)
            with loop(0, head.blocks) as block:
                addresses = [
                    start + block * field.advance
                    for start, field in zip(starts, fields, strict=True)
                ]
                for first, values in _decoded(_Numbers(pattern, addresses), kernel):
                    place = base + block * nbytes + first * bits // BYTE_BITS
                    codes = codec.encode(values, "f32", kernel.dtype)
                    align = kernel.lanes * bits // BYTE_BITS if kernel.streams else 1
                    place.store_at(codes, align, non_temporal=kernel.streams)
    if kernel.streams:
        # make non-temporal stores visible to other threads
        call.dst_at.builder.fence("seq_cst")


def _decoded(numbers: "_Numbers", kernel: DecodeKernel) -> Iterator[tuple[int, Value]]:
    """Yield the numbers of a block vector by vector, each with the place of its first element."""
    pattern, lanes, rule = kernel.pattern, kernel.lanes, kernel.pattern.rule
    scale = _factors(numbers, rule.scale, pattern)
    offset = _factors(numbers, rule.offset, pattern) if rule.offset else None
    for first in range(0, pattern.block, lanes):
        positions = range(first, first + lanes)
        code = numbers.values(rule.code, positions)
        if rule.zero is not None:
            code = numbers.difference(code, numbers.values(rule.zero, positions))
        values = numbers.rounded(scale(positions) * numbers.as_float(code))
        if offset is not None:
            added = offset(positions)
            values = numbers.rounded(values + added if rule.sign > 0 else values - added)
        # a NaN that arithmetic produces has neither sign nor payload
        yield first, where(any_nan(values, values), float("nan"), values)


def _factors(
    numbers: "_Numbers", factors: tuple[Number, ...], pattern: Pattern
) -> Callable[[range], Value]:
    """Return a function of positions: the product of factors, shared ones multiplied once."""
    lanes = min(MAX_LANES, pattern.block)
    shared = tuple(takewhile(lambda factor: pattern.run_of(factor) >= lanes, factors))
    rest = factors[len(shared) :]
    if not shared:
        return lambda positions: numbers.product(rest, positions)
    run = min(map(pattern.run_of, shared))
    products = numbers.product(shared, range(0, pattern.block, run))

    def of(positions: range) -> Value:
        splat = pick(products, [positions[0] // run] * lanes)
        return numbers.product(rest, positions, splat)

    return of


_I32 = ir.IntType(32)
_F32 = ir.FloatType()
# Words of a field that are loaded as one vector, some of which are picked; a wider span is loaded
# word by word.
_MAX_SPAN = 64
# Up to this many parts, joining the parts of one code is faster than those of a vector of codes.
_MAX_SCALAR_PARTS = 4
# How many numbers of a codebook can be loaded as one integer.
_LOADS = (2, 4, 8)


def _line(values: NDArray[np.float32]) -> tuple[float, float] | None:
    """Return first value and step of a table that is exactly evenly spaced, else None."""
    with np.errstate(all="ignore"):  # infinities equal no value of a table
        step = values[1] - values[0] if len(values) > 1 else np.float32(0)
        made = np.arange(len(values), dtype=np.float32) * step + values[0]
    is_line = np.array_equal(made.view(np.uint32), values.view(np.uint32))
    return (float(values[0]), float(step)) if is_line else None


class _Numbers:
    """The numbers of the elements of one block, whose fields start at some addresses."""

    def __init__(self, pattern: Pattern, addresses: list[Value]) -> None:
        self.builder = addresses[0].builder
        self._pattern, self._work = pattern, pattern.rule.kind
        names = (field.name for field in pattern.fields)
        self._fields = dict(zip(names, zip(pattern.fields, addresses, strict=True), strict=True))
        # codes whose numbers are spread over several vectors
        self._known: dict[tuple[object, int], Value] = {}

    def values(self, number: Number, positions: range) -> Value:
        """Return the values of a number at some positions: i32, or f32 from floats and tables."""
        codec = Codec(self.builder, len(positions))
        (first, _), *more = number.parts
        dtype = self._fields[first][0].kind
        if not more and dtype not in BIT_PLANES and dtype not in INTEGERS:
            return codec.decode(self._codes(codec, first, positions), dtype, "f32")
        if number.codebook:
            return self._numbers_of(number, number.codebook, positions)
        joined = self._whole_codes(number, positions)
        if number.table:
            return self._looked_up(codec, joined, np.array(number.table, np.float32))
        if number.kind:
            bits = joined.trunc(codec.integers(FLOATS[number.kind].bits))
            return codec.decode(bits, number.kind, "f32")
        return joined - number.minus if number.minus else joined

    def _whole_codes(self, number: Number, positions: range) -> Value:
        """Return the integers that the fields of a number make, as i32."""
        codec = Codec(self.builder, len(positions))
        parts = []
        for field, shift in number.parts:
            # indices and the bits of floats have no sign
            is_signed = not number.is_looked_up
            codes = self._integers(codec, field, positions, is_signed=is_signed)
            parts.append(codes << shift if shift else codes)
        return reduce(operator.or_, parts)

    def product(
        self, numbers: tuple[Number, ...], positions: range, first: Value | None = None
    ) -> Value:
        """Return the product of `first`, if it is given, and of numbers, from the left."""
        product = first
        for number in numbers:
            factor = self.as_float(self.values(number, positions))
            if product is None:
                product = factor
                continue
            product = self.rounded(product / factor if number.divides else product * factor)
        return product

    def rounded(self, values: Value) -> Value:
        """Return f32 values rounded to the type in which the rule is computed."""
        if self._work == "f32":
            return values
        codec = Codec(self.builder, values.type.count)
        return codec.decode(codec.encode(values, "f32", self._work), self._work, "f32")

    def difference(self, code: Value, zero: Value) -> Value:
        """Return a code minus a zero point: exact for two integers, else rounded."""
        if zero.type == code.type:
            return code - zero
        return self.rounded(self.as_float(code) - zero)

    def as_float(self, values: Value) -> Value:
        if values.type.element == _F32:
            return values
        return values.sitofp(ir.VectorType(_F32, values.type.count))

    def _integers(self, codec: Codec, name: str, positions: range, *, is_signed: bool) -> Value:
        """Return the integers of a field as i32."""
        _, dtype, bits, _ = self._fields[name][0]
        codes, wide = self._codes(codec, name, positions), codec.integers(32)
        signed = is_signed and dtype not in BIT_PLANES and INTEGERS[dtype].is_signed
        if signed and bits < BYTE_BITS:
            return codes.zext(wide) << 32 - bits >> 32 - bits
        return codes.sext(wide) if signed else codes.zext(wide)

    def _codes(self, codec: Codec, name: str, positions: range) -> Value:
        """Return the bits of elements of a field, in integers of at least a byte."""
        field = self._fields[name][0]
        offsets = [field.offsets[position] for position in positions]
        word = max(field.bits, BYTE_BITS)
        codes = self._load(codec, name, [offset // word for offset in offsets])
        if field.bits == word:
            return codes
        shifts = [offset % word for offset in offsets]
        wide = codec.integers(32)
        numbers = codes.zext(wide)
        if any(shifts):
            numbers = numbers.lshr(ir.Constant(wide, shifts))
        if any(shift + field.bits < word for shift in shifts):
            numbers &= (1 << field.bits) - 1
        return numbers.trunc(codes.type)

    def _load(self, codec: Codec, name: str, places: list[int]) -> Value:
        """Load words of a field, counted from the start of the block, into a vector."""
        word = ir.IntType(max(self._fields[name][0].bits, BYTE_BITS))
        low, span = min(places), max(places) - min(places) + 1
        if span > max(_MAX_SPAN, codec.lanes):
            words = (self._load_at(name, place, word) for place in places)
            return _vector_of(words, codec.vector(word))
        loaded = self._load_at(name, low, ir.VectorType(word, span))
        lanes = [place - low for place in places]
        if lanes == list(range(span)):
            return loaded
        return pick(loaded, lanes)

    def _load_at(self, name: str, place: int, ir_type: Value) -> Value:
        """Load an integer, or a vector of them, at a place in the block; it is not aligned."""
        field, address = self._fields[name]
        return (address + place * max(field.bits, BYTE_BITS) // BYTE_BITS).load_at(ir_type)

    def _numbers_of(self, number: Number, book: Codebook, positions: range) -> Value:
        """Return numbers of a codebook as i32; those in adjacent lanes are loaded together."""
        builder, lanes = self.builder, [book.lanes[k % len(book.lanes)] for k in positions]
        array = ir.ArrayType(BYTE, len(book.values))
        stored = new_constant(
            builder, "memdesc.codebook", ir.Constant(array, bytearray(book.values))
        )
        run, size = self._pattern.run_of_codes(number), book.size
        is_whole = (
            size in _LOADS
            and run % size == 0
            and len(positions) % size == 0
            and lanes == [*range(size)] * (len(positions) // size)
        )
        count = size if is_whole else 1
        vector = ir.VectorType(ir.IntType(count * BYTE_BITS), len(positions) // count)
        places = (
            self._code_at(number, positions[k * count]) * size + lanes[k * count]
            for k in range(vector.count)
        )
        packed = _vector_of((_entry(stored, at, vector.element, 1) for at in places), vector)
        numbers = packed.bitcast(ir.VectorType(BYTE, len(positions)))
        return numbers.sext(ir.VectorType(_I32, len(positions)))

    def _code_at(self, number: Number, position: int) -> Value:
        """Return the code of an element: of many parts, by vectors for the whole block."""
        if len(number.parts) <= _MAX_SCALAR_PARTS:
            codes = self._whole_codes(number, range(position, position + 1))
            return codes.extract_element(_I32(0))
        run = self._pattern.run_of_codes(number)
        count = min(MAX_LANES, self._pattern.block // run)
        lane, first = position // run % count, position // (run * count) * run * count
        key = number.parts, first
        if key not in self._known:
            self._known[key] = self._whole_codes(number, range(first, first + run * count, run))
        return self._known[key].extract_element(_I32(lane))

    def _looked_up(self, codec: Codec, codes: Value, table: NDArray[np.float32]) -> Value:
        """Return the values of a table: by one instruction if it is short, else by loads."""
        builder, values = self.builder, codec.values("f32")
        if (line := _line(table)) is not None:
            first, step = line
            return codes.uitofp(values) * step + first
        is_short = len(table) == codec.lanes == MAX_LANES
        if is_short and has_masks():
            entries = ir.Constant(values, table.tolist())
            return codec.call("llvm.x86.avx512.permvar.sf.512", values, entries, codes)
        # bytes hold these numbers, but not -0.0
        is_whole = all(
            value.is_integer() and abs(value) <= 127 and (value or not np.signbit(value))  # noqa: PLR2004 - a byte
            for value in table
        )
        if is_short and is_whole and is_x86() and has_feature("ssse3"):
            vector = codec.vector(BYTE)
            entries = ir.Constant(vector, [int(value) & 255 for value in table])
            picked = codec.call("llvm.x86.ssse3.pshuf.b.128", vector, entries, codes.trunc(vector))
            return picked.sext(codes.type).sitofp(values)
        array = ir.ArrayType(_F32, len(table))
        stored = new_constant(
            builder, "memdesc.table", ir.Constant(array, [_F32(float(value)) for value in table])
        )
        lane_codes = (codes.extract_element(_I32(lane)) for lane in range(codec.lanes))
        return _vector_of((_entry(stored, code, _F32) for code in lane_codes), values)


def _vector_of(numbers: Iterable[Value], ir_type: Type) -> Value:
    vector: Value = ir.Constant(ir_type, ir.Undefined)
    for lane, number in enumerate(numbers):
        vector = IRValue(number.builder, vector).insert_element(number, _I32(lane))
    return vector


def _entry(table: Value, index: Value, ir_type: Type, align: int | None = None) -> Value:
    """Load a number of type `ir_type` from a table of constants, at an index."""
    entry = IRValue(index.builder, index.builder.gep(table, [_I32(0), index], inbounds=True))
    loaded = entry.bitcast(ir_type.as_pointer()).load()
    loaded.raw.align = align
    return loaded
