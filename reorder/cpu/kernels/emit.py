"""LLVM instructions that all micro-kernels and stages are written with: loops, tables, prefetches.

Addresses are LLVM's i64, like all numbers in tables.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from llvmlite import ir
from numba.core import cgutils

from reorder.cpu.tables import WORD_NBYTES, fields_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "BYTE",
    "I64",
    "Builder",
    "Type",
    "Value",
    "entry_address",
    "int64",
    "int64_pointer",
    "load_fields",
    "load_int64",
    "loop",
    "maximum",
    "minimum",
    "prefetch",
    "shared_constant",
]

# Operands of LLVM instructions, their types, and the builder that emits them. llvmlite ships no
# type stubs, so type checkers see Any.
Value: TypeAlias = ir.Value
Type: TypeAlias = ir.Type
Builder: TypeAlias = ir.IRBuilder

_Fields = TypeVar("_Fields", bound=tuple[Any, ...])

I64 = ir.IntType(64)
BYTE = ir.IntType(8)


def int64(value: int) -> Value:
    """Return a constant."""
    return ir.Constant(I64, value)


def load_fields(builder: Builder, address: Value, kind: type[_Fields]) -> _Fields:
    """Load the fields of a table at an address, as LLVM values of int64."""
    first = builder.inttoptr(address, I64.as_pointer())
    fields = (builder.load(builder.gep(first, [int64(k)])) for k in fields_of(kind))
    return kind(*fields)


def load_int64(builder: Builder, address: Value, index: Value | int = 0) -> Value:
    """Return the int64 at an index from an address."""
    return builder.load(int64_pointer(builder, address, index))


def entry_address(builder: Builder, table: Value, index: Value, nbytes: int = WORD_NBYTES) -> Value:
    """Return the address of an entry of a table; entries are `nbytes` apart."""
    return builder.add(table, builder.mul(index, int64(nbytes)))


def int64_pointer(builder: Builder, address: Value, index: Value | int) -> Value:
    """Return the typed pointer to the int64 at an index from an address."""
    index = int64(index) if isinstance(index, int) else index
    return builder.gep(builder.inttoptr(address, I64.as_pointer()), [index])


def shared_constant(builder: Builder, name: str, content: Value, align: int | None = None) -> Value:
    """Return the address of a constant that all kernels of a module share."""
    module = builder.module
    if name not in module.globals:
        constant = ir.GlobalVariable(module, content.type, name)
        constant.initializer, constant.align = content, align
        constant.global_constant, constant.linkage = True, "private"
    return builder.ptrtoint(module.globals[name], I64)


def prefetch(builder: Builder, address: Value, *, writes: bool = False) -> None:
    """Prefetch the cache line at an address into all caches, for reading or for writing."""
    pointer, number = BYTE.as_pointer(), ir.IntType(32)
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(ir.VoidType(), [pointer, *[number] * 3]),
        "llvm.prefetch.p0",
    )
    # of the highest temporal locality, of data
    options = number(int(writes)), number(3), number(1)
    builder.call(function, [builder.inttoptr(address, pointer), *options])


@contextmanager
def loop(builder: Builder, start: Value, stop: Value, step: Value | int = 1) -> Iterator[Value]:
    """Emit `for i in range(start, stop, step)`; yields i."""
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
    builder.branch(head).set_metadata("llvm.loop", _no_transformations(builder.module))
    builder.position_at_end(done)


def _no_transformations(module: Value) -> Value:
    """Return the metadata that keeps LLVM from unrolling and vectorizing a loop.

    Loops that profit from vectors already use them; for the others LLVM would only double the code.
    """
    name = "memdesc.loop"
    if name not in module.namedmetadata:
        options = [module.add_metadata(["llvm.loop.unroll.disable"])]
        options.append(
            module.add_metadata(["llvm.loop.vectorize.enable", ir.Constant(ir.IntType(1), 0)])
        )
        node = module.add_metadata(options)
        # LLVM requires the first operand of loop metadata to be the node itself
        node.operands = (node, *node.operands)
        module.add_named_metadata(name, node)
    return module.namedmetadata[name].operands[0]


def minimum(builder: Builder, a: Value, b: Value) -> Value:
    """Return the smaller of two integers."""
    return builder.select(builder.icmp_signed("<", a, b), a, b)


def maximum(builder: Builder, a: Value, b: Value) -> Value:
    """Return the larger of two integers."""
    return builder.select(builder.icmp_signed(">", a, b), a, b)
