"""The notation of kernels: LLVM numbers with operators, branches, loops, and tables in memory.

Addresses are LLVM's i64, like all numbers in tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias, TypeVar

from llvmlite import ir

from reorder.cpu.tables import fields_of

# llvmlite's builder, which emits instructions; the types of operands; and operands: an `IRValue`,
# or a Python number where one will do. llvmlite ships no type stubs, so type checkers see Any.
Builder: TypeAlias = ir.IRBuilder
Type: TypeAlias = ir.Type
Value: TypeAlias = Any

_Fields = TypeVar("_Fields", bound=tuple[Any, ...])

I64 = ir.IntType(64)
BYTE = ir.IntType(8)
_I64_POINTER = I64.as_pointer()


def _emits(integers: str, floats: str = "", neutral: int | None = None) -> Callable[..., Any]:
    """Return an operator that emits an instruction of llvmlite's builder.

    An integer operand that is `neutral` changes nothing, and needs no instruction.
    """
    of_integers, of_floats = (getattr(Builder, name or integers) for name in (integers, floats))

    def emit(self: IRValue, other: Value) -> IRValue:
        if isinstance(other, int) and other == neutral and not self.is_float:
            return self
        instruction = of_floats if self.is_float else of_integers
        return IRValue(self.builder, instruction(self.builder, self.raw, self.operand(other)))

    return emit


def _compares(symbol: str, of_integers: Any = Builder.icmp_signed) -> Callable[[Any, Any], Any]:
    def emit(self: IRValue, other: Value) -> IRValue:
        compare = Builder.fcmp_ordered if self.is_float else of_integers
        return IRValue(self.builder, compare(self.builder, symbol, self.raw, self.operand(other)))

    return emit


class IRValue:
    """An LLVM integer, float or pointer, or a vector, with operators that emit instructions.

    The other operand may be a Python number: a constant of the same type. Operators treat integers
    as signed, except `//` and `%`; `lshr`, `below` and `above` are unsigned too. Comparisons with
    NaN are false. `address[k]` is the k-th int64 from an address. All other methods are llvmlite's:
    `codes.zext(ir_type)` emits `builder.zext(codes, ir_type)`.
    """

    __slots__ = ("builder", "raw", "type")
    # `==` emits code, and a loop over `[]` would never end
    __hash__ = None  # type: ignore[assignment] # not hashable, as Python spells it
    __iter__ = None

    def __init__(self, builder: Builder, raw: Value) -> None:
        self.builder, self.raw, self.type = builder, raw, raw.type

    def __bool__(self) -> bool:
        raise TypeError(
            "a condition is known when the kernel runs: use when(), either() or where()"
        )

    def __getattr__(self, name: str) -> Callable[..., IRValue]:
        emit = getattr(Builder, name)

        def emit_here(*operands: Value, **options: Any) -> IRValue:
            numbers = map(self.operand, operands)
            return IRValue(self.builder, emit(self.builder, self.raw, *numbers, **options))

        return emit_here

    @property
    def is_float(self) -> bool:
        """Whether it is a float or a vector of floats."""
        own = self.type
        return not isinstance(own.element if isinstance(own, ir.VectorType) else own, ir.IntType)

    def operand(self, other: Value) -> Value:
        """Return another operand as llvmlite takes it; a Python number is given this type."""
        if isinstance(other, IRValue):
            return other.raw
        return constant(self.type, other) if isinstance(other, (int, float)) else other

    def like(self, other: float) -> IRValue:
        """Return a constant of this type, or the number itself."""
        return IRValue(self.builder, self.operand(other))

    def get_reference(self) -> str:
        """Return its name in instructions; with this and `type`, llvmlite accepts it as a value."""
        name: str = self.raw.get_reference()
        return name

    __add__, __sub__ = _emits("add", "fadd", neutral=0), _emits("sub", "fsub")
    __mul__, __truediv__ = _emits("mul", "fmul", neutral=1), _emits("fdiv")
    __floordiv__, __mod__ = _emits("udiv"), _emits("urem")
    __and__, __or__, __xor__ = _emits("and_"), _emits("or_"), _emits("xor")
    __lshift__, __rshift__ = _emits("shl"), _emits("ashr")
    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: float) -> Value:
        return self.like(other) - self

    __lt__, __le__ = _compares("<"), _compares("<=")
    __gt__, __ge__ = _compares(">"), _compares(">=")
    __eq__, __ne__ = _compares("=="), _compares("!=")
    below, above = (_compares(symbol, Builder.icmp_unsigned) for symbol in ("<", ">"))

    def __neg__(self) -> IRValue:
        return self.fneg() if self.is_float else self.neg()

    def __invert__(self) -> IRValue:
        return self.not_()

    def __getitem__(self, index: Value) -> IRValue:
        return self.word(index).load()

    def __setitem__(self, index: Value, value: Value) -> None:
        self.builder.store(self.operand(value), self.word(index))

    def word(self, index: Value) -> IRValue:
        """Return the typed pointer to the int64 with an index from this address."""
        first = self.inttoptr(_I64_POINTER).raw
        return IRValue(self.builder, self.builder.gep(first, [self.operand(index)]))

    def call_at(self, *values: Value) -> IRValue:
        """Call the C function at this address with int64 arguments; its result is an int64 too."""
        function = ir.FunctionType(I64, [I64] * len(values)).as_pointer()
        called = self.builder.call(self.inttoptr(function).raw, [*map(self.operand, values)])
        return IRValue(self.builder, called)

    def load_at(self, ir_type: Type, align: int = 1) -> IRValue:
        """Return the number of a type at this address."""
        loaded = self.inttoptr(ir_type.as_pointer()).load()
        loaded.raw.align = align
        return loaded

    def store_at(self, value: IRValue, align: int = 1, *, non_temporal: bool = False) -> None:
        """Write a number at this address."""
        store = self.builder.store(value, self.inttoptr(value.type.as_pointer()))
        store.align = align
        if non_temporal:
            mark_non_temporal(self.builder, store)


def mark_non_temporal(builder: Builder, store: Any) -> None:
    """Make a store non-temporal, so that it does not allocate a cache line."""
    node = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
    store.set_metadata("nontemporal", node)


class Variable:
    """A variable, which LLVM keeps in registers where it can."""

    def __init__(self, builder: Builder, ir_type: Type = I64) -> None:
        self._pointer = IRValue(builder, stack_pointer(builder, ir_type))

    @property
    def value(self) -> IRValue:
        """What it holds."""
        return self._pointer.load()

    @value.setter
    def value(self, value: Value) -> None:
        pointer = self._pointer
        if isinstance(value, int):
            value = ir.Constant(pointer.type.pointee, value)
        pointer.builder.store(value, pointer)


def constant(of: Type, number: float) -> Value:
    """Return a constant of a type, in every lane of a vector."""
    return ir.Constant(of, [number] * of.count if isinstance(of, ir.VectorType) else number)


def load_fields(address: Value, cls: type[_Fields]) -> _Fields:
    """Load the fields of a table at an address, as LLVM numbers of int64."""
    builder = address.builder
    first = builder.inttoptr(address.raw, _I64_POINTER)
    pointers = (builder.gep(first, [ir.Constant(I64, k)]) if k else first for k in fields_of(cls))
    fields: list[Value] = [IRValue(builder, builder.load(pointer)) for pointer in pointers]
    return cls(*fields)


def shared_constant(builder: Builder, name: str, content: Value, align: int | None = None) -> Value:
    """Return the address of a constant that all kernels of a module share."""
    module = builder.module
    if name not in module.globals:
        new_constant(builder, name, content).align = align
    return IRValue(builder, module.globals[name]).ptrtoint(I64)


def new_constant(builder: Builder, name: str, content: Value) -> Value:
    """Return a pointer to a new constant in memory, with a name that starts as given."""
    module = builder.module
    stored = ir.GlobalVariable(module, content.type, module.get_unique_name(name))
    stored.initializer = content
    stored.global_constant, stored.linkage = True, "private"
    return stored


def stack_pointer(builder: Builder, ir_type: Type, count: int = 1) -> Value:
    """Return a pointer to `count` numbers of a type on the stack of the kernel; the first is 0."""
    with builder.goto_entry_block():
        pointer = builder.alloca(ir_type, size=I64(count))
        builder.store(ir_type(None), pointer)
    return pointer


def stack_space(builder: Builder, ir_type: Type, count: int, align: int | None = None) -> Value:
    """Return the address of space for `count` numbers of a type, on the stack of the kernel."""
    space = stack_pointer(builder, ir_type, count)
    space.align = align
    return IRValue(builder, space).ptrtoint(I64)


def call(builder: Builder, name: str, result: Type, *arguments: Value) -> IRValue:
    """Call an intrinsic of LLVM by its full name."""
    signature = ir.FunctionType(result, [argument.type for argument in arguments])
    known = builder.module.globals
    function = known[name] if name in known else ir.Function(builder.module, signature, name)
    return IRValue(builder, builder.call(function, arguments))


def prefetch_to_write(address: Value) -> None:
    """Prefetch the cache line at an address into all caches, for writing."""
    _prefetch(address, 1, 3)


def prefetch_to_read(address: Value) -> None:
    """Prefetch the cache line at an address into all caches but the L1."""
    _prefetch(address, 0, 2)


def _prefetch(address: Value, writes: int, locality: int) -> None:
    """Prefetch a cache line; a locality of 3 is the highest, for all caches."""
    # the last 1: the data cache
    options = (ir.Constant(ir.IntType(32), number) for number in (writes, locality, 1))
    pointer = address.inttoptr(BYTE.as_pointer())
    call(address.builder, "llvm.prefetch.p0", ir.VoidType(), pointer, *options)


def when(condition: Value) -> AbstractContextManager[Any]:
    """Emit a branch: the code of the context runs if a condition holds."""
    block: AbstractContextManager[Any] = condition.builder.if_then(condition)
    return block


def either(condition: Value) -> AbstractContextManager[Any]:
    """Emit two branches; yields a context for each: the first is for a condition that holds."""
    blocks: AbstractContextManager[Any] = condition.builder.if_else(condition)
    return blocks


@contextmanager
def loop(start: Value, stop: Value, step: Value = 1) -> Iterator[Value]:
    """Emit `for i in range(start, stop, step)`; yields i. One of both ends must be an `IRValue`."""
    builder = (stop if isinstance(stop, IRValue) else start).builder
    before = builder.block
    body, done = (builder.append_basic_block(name) for name in ("body", "done"))
    # tested before the first step and after each one, so LLVM need not rotate the loop
    builder.cbranch(start < stop, body, done)
    builder.position_at_end(body)
    i = IRValue(builder, builder.phi(I64))
    i.raw.add_incoming(i.operand(start), before)
    yield i
    following = i + step
    i.raw.add_incoming(following, builder.block)
    again = builder.cbranch(following < stop, body, done)
    again.set_metadata("llvm.loop", _no_transformations(builder.module))
    builder.position_at_end(done)


def _no_transformations(module: Value) -> Value:
    """Return metadata that keeps LLVM from duplicating code; loops that profit use vectors."""
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


def kept(value: Value) -> IRValue:
    """Return a copy of a number, made here: it can be in a register where the number has none.

    When LLVM spills around many branches, it gives a number a single place, perhaps on the stack,
    although a loop behind the branches uses it in each step.
    """
    signature = ir.FunctionType(value.type, [value.type])
    copy = value.builder.asm(signature, "", "=r,0", [value.raw], side_effect=False)
    return IRValue(value.builder, copy)


def phi(*values: tuple[Value, Value]) -> IRValue:
    """Return the value that comes with the block that ran before this one."""
    (first, _), *_ = values
    merged = IRValue(first.builder, first.builder.phi(first.type))
    for value, block in values:
        merged.raw.add_incoming(value, block)
    return merged


def where(condition: Value, then: Value, otherwise: Value) -> IRValue:
    """Return the first number where a condition holds, else the second; two constants are int64."""
    ir_type = next((value.type for value in (then, otherwise) if isinstance(value, IRValue)), I64)
    first, second = (
        constant(ir_type, value) if isinstance(value, (int, float)) else value
        for value in (then, otherwise)
    )
    return IRValue(condition.builder, condition.builder.select(condition, first, second))


def minimum(a: Value, b: Value) -> Value:
    """Return the smaller of two numbers; the first must be an `IRValue`."""
    return where(a < b, a, b)


def maximum(a: Value, b: Value) -> Value:
    """Return the larger of two numbers; the first must be an `IRValue`."""
    return where(a > b, a, b)
