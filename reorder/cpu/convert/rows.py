"""Runs of elements at addresses, converted with vectors: what the stages share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils

from reorder.cpu.convert.codec import Codec, code_bits
from reorder.cpu.kernels.emit import I64, int64, loop, minimum
from reorder.cpu.target import LINE_BITS, register_bits

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Run",
    "each_line",
    "each_step",
    "emit_convert",
    "is_packed",
    "lanes_of",
    "load_number",
    "prefetch",
]

_BYTE = ir.IntType(8)
# the fewest values in a vector
_FEW = 8
# registers of the machine that are converted together
_REGISTERS = 2


def is_packed(name: str) -> bool:
    """Whether two elements share a byte."""
    return name in {"s4", "u4", "f4_e2m1"}


def load_number(builder: Any, address: Any, index: Any) -> Any:
    """Return the int64 at an index from an address."""
    return builder.load(builder.gep(builder.inttoptr(address, I64.as_pointer()), [index]))


def prefetch(builder: Any, address: Any) -> None:
    """Ask for a cache line."""
    byte, number = _BYTE.as_pointer(), ir.IntType(32)
    ask = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(ir.VoidType(), [byte, *[number] * 3]), "llvm.prefetch.p0"
    )
    builder.call(ask, [builder.inttoptr(address, byte), number(0), number(3), number(1)])


class Run(NamedTuple):
    """Neighbouring elements of one type: an address, and an index from there."""

    builder: Any
    name: str
    address: Any
    index: Any

    def _place(self, i: Any, of: Any) -> Any:
        index = self.builder.add(self.index, i)
        if is_packed(self.name):
            place = self.builder.add(self.address, self.builder.lshr(index, int64(1)))
        else:
            place = self.builder.add(
                self.address, self.builder.mul(index, int64(code_bits(self.name) // 8))
            )
        return self.builder.inttoptr(place, of.as_pointer())

    def load(self, i: Any, lanes: int) -> Any:
        """Return codes from the i-th element on; of 4-bit types from an even index."""
        builder, codec = self.builder, Codec(self.builder, lanes)
        own = codec.integers(code_bits(self.name))
        if not is_packed(self.name):
            codes = builder.load(self._place(i, own))
            codes.align = 1
            return codes
        if lanes == 1:
            byte = builder.load(self._place(i, _BYTE))
            code = builder.and_(builder.lshr(byte, self._shift(i)), _BYTE(15))
            return builder.insert_element(ir.Constant(own, ir.Undefined), code, ir.IntType(32)(0))
        pairs = ir.VectorType(_BYTE, lanes // 2)
        both = builder.load(self._place(i, pairs))
        both.align = 1
        low = builder.and_(both, ir.Constant(pairs, [15] * (lanes // 2)))
        high = builder.lshr(both, ir.Constant(pairs, [4] * (lanes // 2)))
        picks = [k // 2 + lanes // 2 * (k % 2) for k in range(lanes)]
        return builder.shuffle_vector(
            low, high, ir.Constant(ir.VectorType(ir.IntType(32), lanes), picks)
        )

    def store(self, codes: Any, i: Any, *, streams: bool = False) -> None:
        """Write codes from the i-th element on; of 4-bit types from an even index.

        With `streams` they are whole cache lines, and go past the caches.
        """
        builder = self.builder
        lanes = codes.type.count
        if not is_packed(self.name):
            store = builder.store(codes, self._place(i, codes.type))
            store.align = LINE_BITS // 8 if streams else 1
            if streams:
                store.set_metadata(
                    "nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
                )
            return
        if lanes == 1:
            place, shift = self._place(i, _BYTE), self._shift(i)
            code = builder.extract_element(codes, ir.IntType(32)(0))
            kept = builder.and_(builder.load(place), builder.not_(builder.shl(_BYTE(15), shift)))
            builder.store(builder.or_(kept, builder.shl(code, shift)), place)
            return
        undefined = ir.Constant(codes.type, ir.Undefined)
        picks = ir.VectorType(ir.IntType(32), lanes // 2)
        low = builder.shuffle_vector(codes, undefined, ir.Constant(picks, list(range(0, lanes, 2))))
        high = builder.shuffle_vector(
            codes, undefined, ir.Constant(picks, list(range(1, lanes, 2)))
        )
        both = builder.or_(low, builder.shl(high, ir.Constant(low.type, [4] * (lanes // 2))))
        builder.store(both, self._place(i, both.type)).align = 1

    def fills_line(self, lanes: int) -> bool:
        """Whether so many elements are a cache line or more."""
        return lanes * code_bits(self.name) >= LINE_BITS

    def prefetch(self, i: Any, lanes: int, ahead: Any) -> None:
        """Ask for the cache lines that so many elements from the i-th on have some bytes ahead."""
        first = self.builder.add(self.builder.ptrtoint(self._place(i, _BYTE), I64), ahead)
        for at in range(0, lanes * code_bits(self.name) // 8, LINE_BITS // 8):
            prefetch(self.builder, self.builder.add(first, int64(at)))

    def _shift(self, i: Any) -> Any:
        """Return how far up in its byte a 4-bit element lies."""
        index = self.builder.and_(self.builder.add(self.index, i), int64(1))
        return self.builder.shl(self.builder.trunc(index, _BYTE), _BYTE(2))


def each_step(
    builder: Any,
    span: tuple[Any, Any],
    sizes: tuple[int, ...],
    emit: Callable[[Any, int], None],
    *,
    meets: bool,
) -> None:
    """Emit `emit(i, lanes)` for vectors that cover a span: the widest that fits, then narrower ones.

    With `meets` the last vector may lie over the one before it, so what is done must not
    change when it is done twice.
    """
    first, last = span
    lanes, *rest = sizes
    if not rest:
        with loop(builder, first, last, lanes) as i:
            emit(i, lanes)
        return
    count = builder.sub(last, first)
    if meets:
        with builder.if_else(builder.icmp_signed(">=", count, int64(lanes))) as (enough, few):
            with enough:
                end = builder.sub(last, int64(lanes))
                with loop(builder, first, last, lanes) as i:
                    emit(minimum(builder, i, end), lanes)
            with few:
                each_step(builder, span, tuple(rest), emit, meets=True)
        return
    middle = builder.add(first, builder.and_(count, int64(-lanes)))
    with loop(builder, first, middle, lanes) as i:
        emit(i, lanes)
    each_step(builder, (middle, last), tuple(rest), emit, meets=False)


def each_line(
    dst: Run, count: Any, sizes: tuple[int, ...], emit: Callable[..., None], *, meets: bool
) -> None:
    """Emit steps over a run as `each_step` does, those that write whole cache lines with `is_line=True`."""
    builder = dst.builder
    size = code_bits(dst.name) // 8
    line = LINE_BITS // 8 // size
    address = builder.add(dst.address, builder.mul(dst.index, int64(size)))
    # up to the first whole line
    skipped = builder.and_(builder.sub(int64(0), address), int64(LINE_BITS // 8 - 1))
    at = minimum(builder, builder.udiv(skipped, int64(size)), count)
    each_step(builder, (int64(0), at), sizes, emit, meets=meets)
    for lanes in sorted({max(line, sizes[0]), line}, reverse=True):
        stop = builder.add(at, builder.and_(builder.sub(count, at), int64(-lanes)))
        with loop(builder, at, stop, lanes) as i:
            emit(i, lanes, is_line=True)
        at = stop
    each_step(builder, (at, count), sizes, emit, meets=meets)


def lanes_of(work: str | None, registers: int) -> tuple[int, ...]:
    """Return how many values (or bytes) vectors hold, the widest, of so many registers of the machine, first."""
    one = register_bits() // {"f32": 32, None: _BYTE.width}.get(work, 64)
    return (*sorted({registers * one, one, _FEW}, reverse=True), 1)


def emit_convert(
    src: Run, dst: Run, count: Any, work: str | None, *, ahead: Any, streams: bool
) -> None:
    """Convert a run of elements into another that does not share memory with it.

    Without a working type codes stay what they are. What lies `ahead` bytes further is asked for. With `streams`
    whole cache lines of dst are written past the caches.
    """
    builder = src.builder

    widest, *_ = lanes_of(work, _REGISTERS)
    is_far = builder.icmp_signed("!=", ahead, int64(0))

    def step(i: Any, lanes: int, *, is_line: bool = False) -> None:
        codec = Codec(builder, lanes)
        if src.fills_line(lanes) or lanes == widest:
            with builder.if_then(is_far):
                src.prefetch(i, lanes, ahead)
        codes = src.load(i, lanes)
        if work is not None:
            codes = codec.encode(codec.decode(codes, src.name, work), work, dst.name)
        dst.store(codes, i, streams=is_line)

    zero = int64(0)
    packed = next((run for run in (src, dst) if is_packed(run.name)), None)
    if packed is None and streams:
        each_line(dst, count, lanes_of(work, _REGISTERS), step, meets=True)
        return
    if packed is None:
        each_step(builder, (zero, count), lanes_of(work, _REGISTERS), step, meets=True)
        return
    # whole bytes in the middle; the element in front of them and the one behind alone
    head = minimum(builder, builder.and_(packed.index, int64(1)), count)
    with loop(builder, zero, head) as i:
        step(i, 1)
    last = builder.sub(count, builder.and_(builder.sub(count, head), int64(1)))
    each_step(builder, (head, last), (*lanes_of(work, _REGISTERS)[:-1], 2), step, meets=True)
    with loop(builder, last, count) as i:
        step(i, 1)
