"""Micro-kernel: rows of runs that are contiguous on both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir

from reorder.cpu.emit import I64, int64, loop, maximum, minimum, register_bits

if TYPE_CHECKING:
    from reorder.cpu.emit import Elements, Loop, Place, Rows

__all__ = ["emit_run"]

# From here on a call of memmove costs less than it saves.
_CALL_NBYTES = 1024
# Runs of exactly so many bytes are moved as one vector.
_SHORT_NBYTES = (8, 16, 32, 64)


def emit_run(elements: Elements, src: Place, dst: Place, rows: Rows, run: Loop) -> None:
    """Move rows of runs; what is not valid in either is written zero."""
    builder = elements.builder
    if elements.is_nibble:
        _emit_any(elements, src, dst, rows, run)
        return
    # whole vectors need no choice in each row
    is_whole = builder.icmp_signed("==", run.valid, run.extent)
    done = builder.append_basic_block("done")
    for nbytes in _SHORT_NBYTES:
        lanes = nbytes * 8 // elements.bits
        if lanes < 2:  # noqa: PLR2004 - an element alone is no vector
            continue
        fits = builder.and_(is_whole, builder.icmp_signed("==", run.extent, int64(lanes)))
        with builder.if_then(fits):
            _emit_vectors(elements, src, dst, rows, lanes)
            builder.branch(done)
    _emit_any(elements, src, dst, rows, run)
    builder.branch(done)
    builder.position_at_end(done)


def _emit_vectors(elements: Elements, src: Place, dst: Place, rows: Rows, lanes: int) -> None:
    """Move rows of one vector each."""
    zero = ir.Constant(elements.vector(lanes), None)
    valid = minimum(elements.builder, rows.valid, rows.last)
    for fro, to, _ in rows._replace(last=valid).each(elements.builder, src, dst):
        elements.store_vector(elements.load_vector(*fro, lanes), *to)
    for _, to, _ in rows._replace(first=maximum(elements.builder, valid, rows.first)).each(elements.builder, src, dst):
        elements.store_vector(zero, *to)


def _emit_any(elements: Elements, src: Place, dst: Place, rows: Rows, run: Loop) -> None:
    builder = elements.builder
    for fro, to, is_valid in rows.each(builder, src, dst):
        valid = builder.select(is_valid, run.valid, int64(0))
        if elements.is_nibble:
            with loop(builder, int64(0), valid) as i:
                elements.store(elements.load(fro[0], builder.add(fro[1], i)), to[0], builder.add(to[1], i))
        else:
            _copy(elements, fro, to, valid)
        with loop(builder, valid, run.extent) as i:
            elements.store(elements.zero, to[0], builder.add(to[1], i))


def _copy(elements: Elements, src: Place, dst: Place, count: Any) -> None:
    builder = elements.builder
    size = elements.bits // 8
    with builder.if_else(builder.icmp_signed(">=", count, int64(_CALL_NBYTES // size))) as (long, short):
        with long:
            byte = ir.IntType(8).as_pointer()
            to, fro = (builder.bitcast(elements.pointer(*place), byte) for place in (dst, src))
            # memmove: a reorder onto itself is legal
            move = builder.module.declare_intrinsic("llvm.memmove", [byte, byte, I64])
            builder.call(move, [to, fro, builder.mul(count, int64(size)), ir.Constant(ir.IntType(1), 0)])
        with short:
            elements.copy(src, dst, count, register_bits() // elements.bits)
