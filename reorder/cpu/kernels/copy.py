"""Micro-kernel: rows of runs that are contiguous on both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir

from reorder.cpu.kernels.emit import I64, int64, loop, maximum, minimum
from reorder.cpu.target import LINE_BITS, register_bits

if TYPE_CHECKING:
    from reorder.cpu.kernels.emit import Elements, Loop, Place, Rows

__all__ = ["emit_run"]

# From here on a call of memmove costs less than it saves.
_CALL_NBYTES = 1024
# Runs of exactly so many bytes are moved as one vector, of several registers if need be.
_SHORT_NBYTES = (8, 16, 32, 64, 128, 256)


def emit_run(elements: Elements, src: Place, dst: Place, rows: Rows, run: Loop, end: Any) -> None:
    """Move rows of runs; what is not valid in either is written zero.

    Elements of src from index `end` on must not be read.
    """
    builder = elements.builder
    if elements.is_nibble:
        _emit_any(elements, src, dst, rows, run)
        return
    # runs of one vector, or of two that meet, need no choice in each row
    done = builder.append_basic_block("done")
    counts = [nbytes * 8 // elements.bits for nbytes in _SHORT_NBYTES if nbytes * 8 > elements.bits]
    for lanes in counts:
        with builder.if_then(builder.icmp_signed("==", run.extent, int64(lanes))):
            _emit_vectors(elements, src, dst, rows, (lanes, run.valid), end)
            builder.branch(done)
    for lanes in counts:
        # whole lines go past the caches one by one
        if elements.streams and lanes * elements.bits >= LINE_BITS:
            continue
        is_two = builder.and_(
            builder.icmp_signed(">", run.valid, int64(lanes)),
            builder.icmp_signed("<", run.valid, int64(2 * lanes)),
        )
        with builder.if_then(is_two):
            _emit_pairs(elements, src, dst, rows, run, lanes)
            builder.branch(done)
    _emit_any(elements, src, dst, rows, run)
    builder.branch(done)
    builder.position_at_end(done)


def _emit_vectors(
    elements: Elements, src: Place, dst: Place, rows: Rows, run: tuple[int, Any], end: Any
) -> None:
    """Move rows of one vector each, zeros behind what is valid of it."""
    builder = elements.builder
    lanes, valid = run
    zero = ir.Constant(elements.vector(lanes), None)
    data_rows = minimum(builder, rows.valid, rows.last)
    # where no element is valid src has none, and may not be looked at
    data_rows = builder.select(builder.icmp_signed(">", valid, int64(0)), data_rows, rows.first)
    is_whole = builder.icmp_signed("==", valid, int64(lanes))
    room = builder.sub(end, builder.add(src[1], int64(lanes)))
    # a row may be read beyond its run, but not beyond the end of src
    is_inside = builder.or_(is_whole, builder.icmp_signed("<=", rows.reach(builder), room))
    kept = elements.load_vector(
        _ones(builder), builder.sub(int64(_SHORT_NBYTES[-1] * 8 // elements.bits), valid), lanes
    )
    src, dst = elements.at(src), elements.at(dst)

    def move(fro: Place, to: Place) -> None:
        elements.store_line(builder.and_(elements.load_vector(*fro, lanes), kept), *to)

    with builder.if_else(is_inside) as (inside, tight):
        with inside:
            for fro, to, _ in rows._replace(last=data_rows).each(builder, src, dst):
                move(fro, to)
        with tight:
            for fro, to, _ in rows._replace(last=data_rows).each(builder, src, dst):
                with builder.if_else(builder.icmp_signed("<=", fro[1], room)) as (before, at_end):
                    with before:
                        move(fro, to)
                    with at_end:
                        elements.store_vector(zero, *to)
                        with loop(builder, int64(0), valid) as i:
                            elements.store(
                                elements.load(fro[0], builder.add(fro[1], i)),
                                to[0],
                                builder.add(to[1], i),
                            )
    for _, to, _ in rows._replace(first=maximum(builder, data_rows, rows.first)).each(
        builder, src, dst
    ):
        elements.store_vector(zero, *to)


def _ones(builder: Any) -> Any:
    """Return the address of a vector of ones in front of one of zeros: masks for all counts of elements.

    A mask that was compared LLVM would compare again for each row.
    """
    name = "memdesc.ones"
    module = builder.module
    if name not in module.globals:
        size = _SHORT_NBYTES[-1]
        kind = ir.ArrayType(ir.IntType(8), 2 * size)
        ones = ir.GlobalVariable(module, kind, name)
        ones.initializer, ones.global_constant, ones.linkage = (
            ir.Constant(kind, bytearray([255] * size + [0] * size)),
            True,
            "private",
        )
    return builder.ptrtoint(module.globals[name], I64)


def _emit_pairs(
    elements: Elements, src: Place, dst: Place, rows: Rows, run: Loop, lanes: int
) -> None:
    """Move rows of more than one vector and less than two, zeros behind."""
    builder = elements.builder
    data_rows = maximum(builder, minimum(builder, rows.valid, rows.last), rows.first)
    tail = builder.sub(run.valid, int64(lanes))
    src, dst = elements.at(src), elements.at(dst)
    for fro, to, _ in rows._replace(last=data_rows).each(builder, src, dst):
        both = [
            elements.load_vector(fro[0], builder.add(fro[1], at), lanes) for at in (int64(0), tail)
        ]
        for at, vector in zip((int64(0), tail), both, strict=True):
            elements.store_vector(vector, to[0], builder.add(to[1], at))
        _clear(elements, to, run.valid, run.extent)
    for _, to, _ in rows._replace(first=data_rows).each(builder, src, dst):
        _clear(elements, to, int64(0), run.extent)


def _clear(elements: Elements, place: Place, start: Any, stop: Any) -> None:
    builder = elements.builder
    with loop(builder, start, stop) as i:
        elements.store(elements.zero, place[0], builder.add(place[1], i))


def _emit_any(elements: Elements, src: Place, dst: Place, rows: Rows, run: Loop) -> None:
    builder = elements.builder
    src, dst = elements.at(src), elements.at(dst)
    for fro, to, is_valid in rows.each(builder, src, dst):
        valid = builder.select(is_valid, run.valid, int64(0))
        if elements.is_nibble:
            with loop(builder, int64(0), valid) as i:
                elements.store(
                    elements.load(fro[0], builder.add(fro[1], i)), to[0], builder.add(to[1], i)
                )
        else:
            _copy(elements, fro, to, valid)
        _clear(elements, to, valid, run.extent)


def _copy(elements: Elements, src: Place, dst: Place, count: Any) -> None:
    builder = elements.builder
    size = elements.bits // 8
    if elements.streams:
        lanes = LINE_BITS // elements.bits
        whole = builder.and_(count, int64(-lanes))
        with loop(builder, int64(0), whole, lanes) as i:
            line = elements.load_vector(src[0], builder.add(src[1], i), lanes)
            elements.store_line(line, dst[0], builder.add(dst[1], i))
        rest = (src[0], builder.add(src[1], whole)), (dst[0], builder.add(dst[1], whole))
        elements.copy_part(*rest, builder.sub(count, whole), lanes)
        return
    with builder.if_else(builder.icmp_signed(">=", count, int64(_CALL_NBYTES // size))) as (
        long,
        short,
    ):
        with long:
            byte = ir.IntType(8).as_pointer()
            to, fro = (builder.bitcast(elements.pointer(*place), byte) for place in (dst, src))
            # memmove: a reorder onto itself is legal
            move = builder.module.declare_intrinsic("llvm.memmove", [byte, byte, I64])
            builder.call(
                move, [to, fro, builder.mul(count, int64(size)), ir.Constant(ir.IntType(1), 0)]
            )
        with short:
            elements.copy(src, dst, count, register_bits() // elements.bits)
