"""Micro-kernel: rows of runs that are contiguous on both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir

from reorder.cpu.emit import I64, int64, loop, register_bits

if TYPE_CHECKING:
    from reorder.cpu.emit import Elements, Loop, Place, Rows

__all__ = ["emit_run"]

# From here on a call of memmove costs less than it saves.
_CALL_NBYTES = 1024


def emit_run(elements: Elements, src: Place, dst: Place, rows: Rows, run: Loop) -> None:
    """Move rows of runs; what is not valid in either is written zero."""
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
