"""What compiled functions can do with memory and with C: functions without code in Python.

Operations on memory take an address and the index of an int64 from there. `kernels/intrinsics.py`
emits all functions of this module.
"""


def load_int(address: int, index: int) -> int:
    """Load an int64 that no other thread writes meanwhile."""
    raise NotImplementedError


def store_int(address: int, index: int, value: int) -> None:
    """Store an int64 that no other thread uses meanwhile."""
    raise NotImplementedError


# For words that other threads use at the same time: what is written before a store (release in C11)
# is visible after the load of it (acquire). None is relaxed, which x86 would not make faster.


def load_shared(address: int, index: int) -> int:
    """Load an int64, and see what was written before it was stored."""
    raise NotImplementedError


def store_shared(address: int, index: int, value: int) -> None:
    """Store an int64, and publish what was written before."""
    raise NotImplementedError


def exchange_shared(address: int, index: int, expected: int, value: int) -> bool:
    """Compare and exchange an int64 atomically; returns whether it had the expected value."""
    raise NotImplementedError


def pause() -> None:
    """Let a core that spins rest for some cycles, if it has an instruction for that."""
    raise NotImplementedError


def stack_address() -> int:
    """Return an address on the stack of this thread."""
    raise NotImplementedError


def call_c(address: int, values: tuple[int, ...]) -> int:
    """Call the C function at an address with integers or addresses.

    A function with fewer parameters ignores the rest. If it returns a C int, this is the low half
    of the result; if it returns nothing, the result has no meaning.
    """
    raise NotImplementedError


def call_interpreter(address: int, call: tuple[int, ...]) -> None:
    """Call the compiled interpreter at an address with an `InterpreterCall`."""
    raise NotImplementedError
