"""What the micro-kernels are written in: LLVM instructions over elements at addresses.

An element is an integer of its width; a 4-bit one is the low half of a byte here.
Addresses, indices and strides are LLVM's i64, the latter two in elements.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from llvmlite import ir

from reorder.cpu.record import fields_of
from reorder.cpu.target import LINE_BITS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.cpu.schedule.kernel import Kernel

__all__ = [
    "I64",
    "Builder",
    "Elements",
    "Loop",
    "Place",
    "Rows",
    "Type",
    "Value",
    "int64",
    "load_record",
    "loop",
    "maximum",
    "minimum",
]

# What LLVM instructions are made of: llvmlite ships no types, so these are names for Any.
Value: TypeAlias = ir.Value
Type: TypeAlias = ir.Type
Builder: TypeAlias = ir.IRBuilder

_Record = TypeVar("_Record", bound=tuple[Any, ...])

I64 = ir.IntType(64)
_BYTE = ir.IntType(8)


def int64(value: int) -> Value:
    """Return a constant."""
    return ir.Constant(I64, value)


def load_record(builder: Builder, address: Value, kind: type[_Record]) -> _Record:
    """Return the record at an address: its fields are the int64 there, as LLVM values."""
    first = builder.inttoptr(address, I64.as_pointer())
    fields = (builder.load(builder.gep(first, [int64(k)])) for k in fields_of(kind))
    return kind(*fields)


class Loop(NamedTuple):
    """A node as LLVM values."""

    extent: Any
    valid: Any
    src_stride: Any
    dst_stride: Any


class Rows(NamedTuple):
    """Rows `first` to `last`, which hold data up to `valid`, and tables of their offsets."""

    first: Any
    last: Any
    valid: Any
    src_table: Any
    dst_table: Any

    def reach(self, builder: Any) -> Any:
        """Return how far behind the first row the last one starts in src, which stands behind the tables."""
        size = builder.sub(self.dst_table, self.src_table)
        return builder.load(builder.inttoptr(builder.add(self.dst_table, size), I64.as_pointer()))

    def each(self, builder: Any, src: Place, dst: Place) -> Iterator[tuple[Place, Place, Any]]:
        """Emit a loop over the rows; gives where each lies, and whether it holds data."""
        with loop(builder, self.first, self.last) as row:
            places = []
            for place, table in ((src, self.src_table), (dst, self.dst_table)):
                offset = builder.load(builder.gep(builder.inttoptr(table, I64.as_pointer()), [row]))
                places.append((place[0], builder.add(place[1], offset)))
            yield places[0], places[1], builder.icmp_signed("<", row, self.valid)


# An address, and an index of elements from there.
Place = tuple[Any, Any]


class Elements:
    """Loads and stores of one element width.

    Parameters
    ----------
    builder : llvmlite.ir.IRBuilder
        Where the instructions go.
    kernel : Kernel
        The width, and whether whole cache lines are written by non-temporal stores.
    """

    def __init__(self, builder: Builder, kernel: Kernel) -> None:
        self.builder = builder
        self.bits, self.streams = kernel
        self.is_nibble = kernel.is_packed
        self.type = _BYTE if self.is_nibble else ir.IntType(self.bits)
        self.zero = ir.Constant(self.type, 0)

    def pointer(self, address: Any, index: Any, of: Any = None) -> Any:
        """Return the typed place of an element, or of a vector that starts there."""
        place = self.builder.gep(self.builder.inttoptr(address, self.type.as_pointer()), [index])
        return place if of is None else self.builder.bitcast(place, of.as_pointer())

    def at(self, place: Place) -> Place:
        """Return the same place, its index in the address: one number for loops to keep.

        What they do not keep they load from the stack, and wait there for stores with the same low
        bits of their address.
        """
        if self.is_nibble:
            return place
        return self.builder.add(place[0], self.builder.mul(place[1], int64(self.bits // 8))), int64(
            0
        )

    def _half(self, address: Any, index: Any) -> tuple[Any, Any]:
        """Return the byte of a 4-bit element, and how far up in it the element lies."""
        byte = self.pointer(address, self.builder.lshr(index, int64(1)))
        shift = self.builder.shl(
            self.builder.trunc(self.builder.and_(index, int64(1)), _BYTE), _BYTE(2)
        )
        return byte, shift

    def load(self, address: Any, index: Any) -> Any:
        """Return one element."""
        if self.is_nibble:
            byte, shift = self._half(address, index)
            return self.builder.and_(self.builder.lshr(self.builder.load(byte), shift), _BYTE(15))
        element = self.builder.load(self.pointer(address, index))
        element.align = 1  # elements joined to wider ones keep the alignment they had
        return element

    def store(self, value: Any, address: Any, index: Any) -> None:
        """Write one element; a 4-bit one leaves the other half of its byte."""
        if self.is_nibble:
            byte, shift = self._half(address, index)
            kept = self.builder.and_(
                self.builder.load(byte), self.builder.not_(self.builder.shl(_BYTE(15), shift))
            )
            self.builder.store(self.builder.or_(kept, self.builder.shl(value, shift)), byte)
        else:
            self.builder.store(value, self.pointer(address, index)).align = 1

    def vector(self, lanes: int) -> Any:
        """Return the type of so many neighbouring elements."""
        return ir.VectorType(self.type, lanes)

    def load_vector(self, address: Any, index: Any, lanes: int) -> Any:
        """Return neighbouring elements as one vector."""
        vector = self.builder.load(self.pointer(address, index, self.vector(lanes)))
        vector.align = 1
        return vector

    def store_vector(self, value: Any, address: Any, index: Any) -> None:
        """Write neighbouring elements from one vector."""
        self.builder.store(value, self.pointer(address, index, value.type)).align = 1

    def store_line(self, value: Any, address: Any, index: Any) -> None:
        """Write a vector, past the caches if it is whole lines and the kernel streams."""
        if not self.streams or value.type.count * self.bits % LINE_BITS:
            self.store_vector(value, address, index)
            return
        store = self.builder.store(value, self.pointer(address, index, value.type))
        store.align = LINE_BITS // 8
        store.set_metadata(
            "nontemporal", self.builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
        )

    def copy_part(self, src: Place, dst: Place, count: Any, lanes: int) -> None:
        """Copy fewer than `lanes` elements: a half, a quarter, ... as the bits of `count` say."""
        builder = self.builder
        lanes //= 2
        while lanes:
            with builder.if_then(
                builder.icmp_signed("!=", builder.and_(count, int64(lanes)), int64(0))
            ):
                done = builder.and_(count, int64(-2 * lanes))
                self.store_vector(
                    self.load_vector(src[0], builder.add(src[1], done), lanes),
                    dst[0],
                    builder.add(dst[1], done),
                )
            lanes //= 2

    def copy(self, src: Place, dst: Place, count: Any, lanes: int) -> None:
        """Copy a run with vectors; the last one meets the one before it."""
        builder = self.builder
        with builder.if_else(builder.icmp_signed(">=", count, int64(lanes))) as (long, short):
            with long:
                end = builder.sub(count, int64(lanes))
                with loop(builder, int64(0), count, lanes) as i:
                    at = minimum(builder, i, end)
                    self.store_vector(
                        self.load_vector(src[0], builder.add(src[1], at), lanes),
                        dst[0],
                        builder.add(dst[1], at),
                    )
            with short:
                self.copy_part(src, dst, count, lanes)


@contextmanager
def loop(builder: Any, start: Any, stop: Any, step: Any = 1) -> Iterator[Any]:
    """Emit `for i in range(start, stop, step)`; gives i."""
    before = builder.block
    head, body, done = (builder.append_basic_block(name) for name in ("head", "body", "done"))
    builder.branch(head)
    builder.position_at_end(head)
    i = builder.phi(I64)
    i.add_incoming(start, before)
    builder.cbranch(builder.icmp_signed("<", i, stop), body, done)
    builder.position_at_end(body)
    yield i
    i.add_incoming(builder.add(i, int64(step) if isinstance(step, int) else step), builder.block)
    builder.branch(head).set_metadata("llvm.loop", _as_written(builder.module))
    builder.position_at_end(done)


def _as_written(module: Any) -> Any:
    """Return what keeps LLVM from making vectors of a loop, and several loops: those that pay are vectors as written."""
    name = "memdesc.loop"
    if name not in module.namedmetadata:
        options = [module.add_metadata(["llvm.loop.unroll.disable"])]
        options.append(
            module.add_metadata(["llvm.loop.vectorize.enable", ir.Constant(ir.IntType(1), 0)])
        )
        node = module.add_metadata(options)
        node.operands = (node, *node.operands)  # as LLVM tells loops from other nodes
        module.add_named_metadata(name, node)
    return module.namedmetadata[name].operands[0]


def minimum(builder: Any, a: Any, b: Any) -> Any:
    """Return the smaller of two integers."""
    return builder.select(builder.icmp_signed("<", a, b), a, b)


def maximum(builder: Any, a: Any, b: Any) -> Any:
    """Return the larger of two integers."""
    return builder.select(builder.icmp_signed(">", a, b), a, b)
