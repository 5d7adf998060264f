"""Micro-kernel: a run that is contiguous on both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir

from reorder.cpu.emit import I64, int64, loop

if TYPE_CHECKING:
    from reorder.cpu.emit import Elements

__all__ = ["emit_run"]


def emit_run(elements: Elements, src: tuple[Any, Any], dst: tuple[Any, Any], extent: Any, valid: Any) -> None:
    """Copy `valid` elements and write zeros up to `extent`; places are (address, index)."""
    builder = elements.builder
    if elements.is_nibble:
        with loop(builder, int64(0), valid) as i:
            elements.store(elements.load(src[0], builder.add(src[1], i)), dst[0], builder.add(dst[1], i))
        with loop(builder, valid, extent) as i:
            elements.store(elements.zero, dst[0], builder.add(dst[1], i))
        return
    size = int64(elements.bits // 8)
    byte = ir.IntType(8).as_pointer()
    to, fro = (builder.bitcast(elements.pointer(*place), byte) for place in (dst, src))
    # memmove: a reorder onto itself is legal, and costs nothing more
    move = builder.module.declare_intrinsic("llvm.memmove", [byte, byte, I64])
    with builder.if_then(builder.icmp_signed(">", valid, int64(0))):
        builder.call(move, [to, fro, builder.mul(valid, size), ir.Constant(ir.IntType(1), 0)])
    fill = builder.module.declare_intrinsic("llvm.memset", [byte, I64])
    with builder.if_then(builder.icmp_signed(">", extent, valid)):
        tail = builder.bitcast(elements.pointer(dst[0], builder.add(dst[1], valid)), byte)
        count = builder.mul(builder.sub(extent, valid), size)
        builder.call(fill, [tail, ir.Constant(ir.IntType(8), 0), count, ir.Constant(ir.IntType(1), 0)])
