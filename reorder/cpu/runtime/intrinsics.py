"""The few operations that the walker needs beside plain Python, as numba intrinsics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from reorder.cpu.kernels.copy import emit_copy
from reorder.cpu.kernels.edge_tile import ColumnSpan
from reorder.cpu.kernels.elements import Elements, Location
from reorder.cpu.kernels.emit import I64, int64
from reorder.cpu.kernels.loop_group import LoopGroup, Transposition
from reorder.cpu.kernels.row_table import InnerLoop, RowTable
from reorder.cpu.kernels.strided import emit_strided
from reorder.cpu.kernels.transpose import emit_transposed
from reorder.cpu.schedule.kernel import Kernel
from reorder.cpu.schedule.program import HEAD, LOOP
from reorder.cpu.schedule.select import RUN, TRANSPOSED
from reorder.cpu.target import is_arm, is_x86

if TYPE_CHECKING:
    from numba.core.typing.templates import Signature

__all__ = [
    "ARGUMENTS",
    "add_shared",
    "call",
    "call_c",
    "counters",
    "exchange_shared",
    "fence",
    "load_int",
    "load_shared",
    "pause",
    "run_inner",
    "store_int",
    "store_shared",
]

# Loops of one step are dropped, and the product of the others fits 63 bits.
_MAX_LOOPS = 64
# What a compiled walker takes: eight integers.
ARGUMENTS = 8


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator] # numba ships no types
def run_inner(
    _context: Any,
    src_at: Any,
    dst_at: Any,
    src: Any,
    dst: Any,
    box: Any,
    first: Any,
    last: Any,
    is_valid: Any,
    bits: Any,
    streams: Any,
) -> tuple[Signature, Any]:
    """Run the inner part of a box at one place, its rows or columns from `first` to `last`.

    `bits` and `streams` are those of the `Kernel`, known when it is compiled.
    """
    kernel = Kernel(bits.literal_value, bool(streams.literal_value))

    def build(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        src_at, dst_at, src, dst, box, first, last, is_valid, *_ = args
        elements = Elements(builder, kernel)
        zero = int64(0)

        def read(index: Any) -> Any:
            return builder.load(builder.gep(builder.inttoptr(box, I64.as_pointer()), [index]))

        at = builder.add(int64(HEAD), builder.mul(int64(LOOP), read(int64(3))))

        def own(k: int) -> Any:
            return read(builder.add(at, int64(k)))

        def valid(k: int) -> Any:
            return builder.select(is_valid, own(k), zero)

        micro_kernel = read(zero)
        with builder.if_else(builder.icmp_signed("==", micro_kernel, int64(TRANSPOSED))) as (
            transposed,
            otherwise,
        ):
            with transposed:
                tables = builder.add(box, builder.shl(builder.add(at, int64(8)), int64(3)))
                columns = LoopGroup(own(0), valid(1), own(4), tables)
                rows = LoopGroup(
                    own(2), own(3), own(5), builder.add(tables, builder.shl(own(0), int64(3)))
                )
                move = Transposition(
                    elements,
                    Location(src_at, src),
                    Location(dst_at, dst),
                    columns,
                    rows,
                    builder.icmp_signed("!=", own(7), zero),
                )
                emit_transposed(move, ColumnSpan(first, last, read(int64(4)), own(6)))
            with otherwise:
                tables = builder.add(box, builder.shl(builder.add(at, int64(6)), int64(3)))
                lines = RowTable(
                    first,
                    last,
                    valid(1),
                    tables,
                    builder.add(tables, builder.shl(own(0), int64(3))),
                )
                sides = Location(src_at, src), Location(dst_at, dst)
                run = InnerLoop(own(2), own(3), own(4), own(5))
                with builder.if_else(builder.icmp_signed("==", micro_kernel, int64(RUN))) as (
                    contiguous,
                    strided,
                ):
                    with contiguous:
                        emit_copy(elements, *sides, lines, run, read(int64(4)))
                    with strided:
                        emit_strided(elements, *sides, lines, run)
        return context.get_dummy_value()

    numbers = [types.int64] * 7
    return types.void(*numbers, types.boolean, bits, streams), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def load_int(_context: Any, address: Any, index: Any) -> tuple[Signature, Any]:
    """Return the int64 at an index from an address."""

    def build(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.load(builder.gep(builder.inttoptr(args[0], I64.as_pointer()), [args[1]]))

    return types.int64(types.int64, types.int64), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def store_int(_context: Any, address: Any, index: Any, value: Any) -> tuple[Signature, Any]:
    """Write an int64 at an index from an address."""

    def build(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        builder.store(args[2], builder.gep(builder.inttoptr(args[0], I64.as_pointer()), [args[1]]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def load_shared(_context: Any, address: Any, index: Any) -> tuple[Signature, Any]:
    """Return the int64 at an index from an address, and see all that was written before it was."""

    def build(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.load_atomic(_place(builder, args), "acquire", 8)

    return types.int64(types.int64, types.int64), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def store_shared(_context: Any, address: Any, index: Any, value: Any) -> tuple[Signature, Any]:
    """Write the int64 at an index from an address, behind all that was written before."""

    def build(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        builder.store_atomic(args[2], _place(builder, args), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def add_shared(_context: Any, address: Any, index: Any, value: Any) -> tuple[Signature, Any]:
    """Add to the int64 at an index from an address, and return what it was."""

    def build(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _place(builder, args), args[2], "seq_cst")

    return types.int64(types.int64, types.int64, types.int64), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def exchange_shared(
    _context: Any, address: Any, index: Any, seen: Any, value: Any
) -> tuple[Signature, Any]:
    """Write the int64 at an index from an address if it still is what was seen; returns whether it was."""

    def build(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.extract_value(
            builder.cmpxchg(_place(builder, args), args[2], args[3], "seq_cst", "seq_cst"), 1
        )

    return types.boolean(types.int64, types.int64, types.int64, types.int64), build


def _place(builder: Any, args: Any) -> Any:
    return builder.gep(builder.inttoptr(args[0], I64.as_pointer()), [args[1]])


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def pause(_context: Any) -> tuple[Signature, Any]:
    """Let a core rest for some cycles, where it has an instruction for that."""

    def build(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        if is_x86():
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(
                cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause"), []
            )
        elif is_arm():
            kind = ir.FunctionType(ir.VoidType(), [ir.IntType(32)])
            builder.call(
                cgutils.get_or_insert_function(builder.module, kind, "llvm.aarch64.hint"),
                [ir.IntType(32)(1)],
            )
        return context.get_dummy_value()

    return types.void(), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def call_c(_context: Any, address: Any, first: Any, second: Any) -> tuple[Signature, Any]:
    """Call a C function at an address with integers or addresses, of which it takes as many as it has."""

    def build(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [I64, I64])
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def counters(_context: Any) -> tuple[Signature, Any]:
    """Return the address of 64 int64 on the stack of the calling kernel."""

    def build(_context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        return builder.ptrtoint(cgutils.alloca_once(builder, I64, size=_MAX_LOOPS), I64)

    return types.int64(), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def fence(_context: Any) -> tuple[Signature, Any]:
    """Let other threads see what non-temporal stores have written."""

    def build(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), build


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def call(
    _context: Any,
    address: Any,
    src_at: Any,
    dst_at: Any,
    program: Any,
    tasks: Any,
    begin: Any,
    end: Any,
    places: Any,
    count: Any,
) -> tuple[Signature, Any]:
    """Call a compiled walker by its address."""

    def build(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        function = ir.FunctionType(ir.VoidType(), [I64] * ARGUMENTS)
        builder.call(builder.inttoptr(args[0], function.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * (ARGUMENTS + 1)), build
