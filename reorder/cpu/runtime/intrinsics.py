"""What compiled functions can do with memory and with C: functions that emit their instructions.

Their parameters are then `IRValue`s, or tuples of these. Operations on memory take an address and
the index of an int64 from there.
"""

from typing import Any

from reorder.cpu.tables import WORD_NBYTES
from reorder.system import is_arm, is_x86

# The low half of a word, which holds the result of a function that returns a C int.
INT_MASK = (1 << 32) - 1


def load_int(address: Any, index: Any) -> int:
    """Load an int64 that no other thread writes meanwhile."""
    return address[index]  # type: ignore[no-any-return] # an int to the functions that call it


def store_int(address: Any, index: Any, value: Any) -> None:
    """Store an int64 that no other thread uses meanwhile."""
    address[index] = value


# For words that other threads use at the same time: what is written before a store (release in C11)
# is visible after the load of it (acquire). None is relaxed, which x86 would not make faster.


def load_shared(address: Any, index: Any) -> int:
    """Load an int64, and see what was written before it was stored."""
    return address.word(index).load_atomic("acquire", align=WORD_NBYTES)  # type: ignore[no-any-return] # see `load_int`


def store_shared(address: Any, index: Any, value: Any) -> None:
    """Store an int64, and publish what was written before."""
    value.store_atomic(address.word(index), "release", align=WORD_NBYTES)


def exchange_shared(address: Any, index: Any, expected: Any, value: Any) -> bool:
    """Compare and exchange an int64 atomically; returns whether it had the expected value."""
    exchanged = address.word(index).cmpxchg(expected, value, "seq_cst", "seq_cst")
    return exchanged.extract_value(idx=1)  # type: ignore[no-any-return] # see `load_int`


def pause(address: Any) -> None:
    """Let a core that polls words at an address rest for some cycles, if it has an instruction."""
    from llvmlite import ir  # only where it is compiled

    from reorder.cpu.llvm.emit import call

    if is_arm():
        # `yield` does nothing on cores of one thread; an instruction barrier (15: of the whole
        # system, the only scope there is) takes as long as a pause on x86
        call(address.builder, "llvm.aarch64.isb", ir.VoidType(), ir.IntType(32)(15))
    elif is_x86():
        call(address.builder, "llvm.x86.sse2.pause", ir.VoidType())


def call_c(address: Any, values: tuple[Any, ...]) -> int:
    """Call the C function at an address with integers or addresses.

    A function with fewer parameters ignores the rest. If it returns a C int, this is the low half
    of the result; if it returns nothing, the result has no meaning.
    """
    return address.call_at(*values)  # type: ignore[no-any-return] # see `load_int`


def call_for_word(address: Any, value: Any) -> int:
    """Call the C function at an address with a value and where to store a word; returns that.

    Returns 0 if the function fails: if the C int that it returns is not 0.
    """
    from reorder.cpu.llvm.emit import I64, stack_space, where

    at = stack_space(address.builder, I64, 1)
    at[0] = 0
    failed = address.call_at(value, at) & INT_MASK
    return where(failed == 0, at[0], 0)  # type: ignore[return-value] # see `load_int`
