"""Accesses of threads to memory, and which threads access a location.

A thread is a generator that yields an `Access` and gets its result.
"""

from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias

# kinds of accesses
PLAIN = {"read", "write"}
WRITES = {"write", "store"}
_READS = {"read", "load"}
_NO_THREADS: frozenset[int] = frozenset()


class Access(NamedTuple):
    """What a thread does next.

    `kind` is read or write (plain), load, store, add or exchange (atomic), lock or unlock, or wait:
    until there is a newer value of what was loaded last. Ordered atomic accesses acquire and
    release.
    """

    kind: str
    address: int = 0
    value: int = 0
    # of an exchange
    expected: int = 0
    is_ordered: bool = True


Thread: TypeAlias = "Generator[Access, int, None]"


class Uses:
    """Which threads read and write a location, in all executions so far."""

    def __init__(self) -> None:
        self._readers: dict[int, set[int]] = {}
        self._writers: dict[int, set[int]] = {}
        # locations with plain accesses
        self.plain: set[int] = set()
        # whether an access since the last search was new
        self.is_new = False

    def add(self, thread: int, access: Access) -> None:
        """Note an access."""
        kind, address = access[:2]
        threads = (self._readers if kind in _READS else self._writers).setdefault(address, set())
        if thread not in threads or (kind in PLAIN and address not in self.plain):
            threads.add(thread)
            if kind in PLAIN:
                self.plain.add(address)
            self.is_new = True

    def is_local(self, thread: int, access: Access) -> bool:
        """Whether no other thread writes what an access reads, or reads what it writes."""
        kind, address = access[:2]
        return self._writers.get(address, _NO_THREADS) <= {thread} and (
            kind in _READS or self._readers.get(address, _NO_THREADS) <= {thread}
        )


def local_variables(thread: Thread) -> tuple[object, ...]:
    """Return where a thread is, and its variables: of all functions that it is in."""
    found: list[object] = []
    generator: Any = thread
    while generator is not None:
        frame = generator.gi_frame
        if frame is not None:
            found += [frame.f_code.co_name, frame.f_lasti, repr(frame.f_locals)]
        generator = generator.gi_yieldfrom
    return tuple(found)
