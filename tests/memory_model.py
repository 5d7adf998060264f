"""Threads under the memory model of C11: every execution that it allows, step by step.

A thread is a generator that yields an `Access` and gets its result. Every location keeps all values
that were written to it, in modification order. A load may return any value that is not older than
what its thread has seen of this location; release and acquire hand on what a thread has seen, and
what happened before. So a thread sees old values as long as nothing orders it to see new ones, as
on processors with a weak memory order. Plain accesses that nothing orders are data races.

This is the model of release, acquire and relaxed accesses without cycles of dependencies (Lahav
et al., "Repairing sequential consistency in C/C++11", PLDI 2017). Sequentially consistent accesses
are taken for acquire and release, so what is right here is right with them.

The search is exhaustive. An access that no later one of another thread can conflict with comes at
once: its order makes no difference (a persistent set of one thread: Godefroid, "Partial-Order
Methods for the Verification of Concurrent Systems", 1996). Which threads access a location is
learned by searching, again until nothing new is found.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
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


Thread: TypeAlias = Generator[Access, int, None]


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


class DataRaceError(Exception):
    """Two accesses of which one is plain and one writes, and nothing orders them."""


class DeadlockError(Exception):
    """A thread that must end waits for ever."""


@dataclass(slots=True, eq=False)
class _Written:
    """A value in the modification order of a location."""

    value: int
    position: int
    # whether it replaced the value before it in one step, so that nothing comes between
    is_update: bool
    # what an acquiring read takes over: the newest values seen, and the accesses that came before
    view: _View
    clock: tuple[int, ...]


_View: TypeAlias = dict[int, _Written]


class Program(NamedTuple):
    """Threads, the memory that they begin with, and how many of them, the first, must end."""

    threads: Sequence[Callable[[], Thread]]
    memory: Mapping[int, int]
    required: int


class Run:
    """One execution, which follows a list of choices and then takes the first of each."""

    def __init__(self, program: Program, uses: Uses) -> None:
        threads, self._memory, self._required = program
        count = len(threads)
        self._uses = uses
        self._orders: dict[int, list[_Written]] = {}
        self._threads = [thread() for thread in threads]
        self._pending: list[Access | None] = [next(thread) for thread in self._threads]
        self._clocks = [[0] * count for _ in threads]
        self._views: list[_View] = [{} for _ in threads]
        # the last access of each thread to a location: plain or atomic, read or write
        self._last: dict[tuple[int, bool, bool], dict[int, int]] = {}
        # what a thread loaded last; one that waits goes on when there is a newer value, and loads
        # the newest, as it does in the end
        self._loaded = [0] * count
        self._is_fresh = [False] * count
        self._atomic: set[int] = set()

    def _order(self, address: int) -> list[_Written]:
        if address not in self._orders:
            clock = (0,) * len(self._threads)
            value = self._memory.get(address, 0)
            self._orders[address] = [_Written(value, 0, is_update=False, view={}, clock=clock)]
        return self._orders[address]

    def _seen(self, thread: int, address: int) -> int:
        """Return the position of the newest value of a location that a thread has seen."""
        seen = self._views[thread].get(address)
        return 0 if seen is None else seen.position

    def state(self) -> int:
        """Return a number for the state: equal states have the same future.

        It has the local variables of threads, what is left to see of each location, and which
        accesses came before which; not how often each thread has done what.
        """
        numbers: list[list[int]] = [[] for _ in self._threads]
        last = []
        for key, found in sorted(self._last.items()):
            if not key[1] and key[0] not in self._uses.plain:
                # atomic accesses do not race with each other
                continue
            for thread, number in sorted(found.items()):
                # what all others have seen races with nothing
                if any(number > clock[thread] for clock in self._clocks):
                    numbers[thread].append(number)
                    last.append((key, thread, number))
        for each in numbers:
            each.sort()

        def ranks(clock: Sequence[int]) -> tuple[int, ...]:
            return tuple(bisect_right(*pair) for pair in zip(numbers, clock, strict=True))

        least = {
            address: min(self._seen(thread, address) for thread in range(len(self._threads)))
            for address in sorted(self._atomic)
        }

        def views(view: _View) -> tuple[tuple[int, int], ...]:
            found = ((k, view[k].position - first) for k, first in least.items() if k in view)
            return tuple(pair for pair in found if pair[1] > 0)

        atomic = tuple(
            tuple(
                (each.value, each.is_update, ranks(each.clock), views(each.view))
                for each in self._orders[address][first:]
            )
            for address, first in least.items()
        )
        plain = tuple(
            (address, order[-1].value)
            for address, order in sorted(self._orders.items())
            if address not in least and len(order) > 1
        )
        threads = tuple(
            (
                local_variables(thread),
                self._loaded[k],
                self._is_fresh[k],
                ranks(self._clocks[k]),
                views(self._views[k]),
            )
            for k, thread in enumerate(self._threads)
        )
        accesses = tuple((key, t, bisect_right(numbers[t], n)) for key, t, n in last)
        return hash((atomic, plain, threads, accesses))

    def choices(self) -> list[tuple[int, int]]:
        """Return what may come next: a thread, and the position of the value that it reads.

        A plain access comes at once, since it is a race or its order makes no difference. So does
        an atomic one that is local, and the end of waiting, which only lets its thread go on.
        """
        found: list[tuple[int, int]] = []
        for thread, access in enumerate(self._pending):
            if access is None:
                continue
            if access.kind in PLAIN:
                return [(thread, len(self._order(access.address)) - 1)]
            here = [(thread, position) for position in self._positions(thread, access)]
            is_local = access.kind == "wait" or self._uses.is_local(thread, access)
            if is_local and len(here) == 1:
                return here
            found += here
        if not found and any(each is not None for each in self._pending[: self._required]):
            message = f"threads wait for {self._pending}"
            raise DeadlockError(message)
        return found

    def _positions(self, thread: int, access: Access) -> list[int]:
        """Return the positions of the values that an access may read, or write after."""
        if access.kind == "wait":
            address = self._loaded[thread]
            return [0] if self._seen(thread, address) < len(self._order(address)) - 1 else []
        order = self._order(access.address)
        newest = len(order) - 1
        if access.kind == "lock":
            return [newest] if order[newest].value else []
        if access.kind == "unlock" or (access.kind == "load" and self._is_fresh[thread]):
            return [newest]
        positions = list(range(self._seen(thread, access.address), newest + 1))
        if access.kind == "load":
            return positions
        is_free = [k == newest or not order[k + 1].is_update for k in range(newest + 1)]
        if access.kind == "exchange":
            return [k for k in positions if is_free[k] or order[k].value != access.expected]
        return [k for k in positions if is_free[k]]

    def step(self, thread: int, position: int) -> None:
        """Do the next access of a thread."""
        access = self._pending[thread]
        assert access is not None
        clock = self._clocks[thread]
        clock[thread] += 1
        result = 0
        if access.kind == "wait":
            self._is_fresh[thread] = True
        else:
            self._is_fresh[thread] = False
            if access.kind == "load":
                self._loaded[thread] = access.address
            if access.kind not in PLAIN:
                self._atomic.add(access.address)
            self._uses.add(thread, access)
            self._find_race(thread, access)
            result = self._access(thread, access, position)
        try:
            self._pending[thread] = self._threads[thread].send(result)
        except StopIteration:
            self._pending[thread] = None

    def _access(self, thread: int, access: Access, position: int) -> int:
        """Read and write; return what was read, or whether an exchange was made."""
        kind, address, value, expected, is_ordered = access
        order = self._order(address)
        old = order[position]
        view = self._views[thread]
        if kind not in WRITES:
            view[address] = old
            if kind != "read" and is_ordered:
                self._take_over(thread, old)
        if kind in {"read", "load"} or (kind == "exchange" and old.value != expected):
            return old.value if kind != "exchange" else 0
        new = {"add": old.value + value, "lock": 0, "unlock": 1}.get(kind, value)
        is_release = kind != "write" and is_ordered
        is_update = kind not in WRITES
        handed_view = dict(view) if is_release else {}
        handed_clock = tuple(self._clocks[thread]) if is_release else (0,) * len(self._threads)
        if is_update:
            # an update also hands on what the value that it replaces does (release sequence)
            handed_clock = tuple(map(max, handed_clock, old.clock))
            handed_view = self._newer(handed_view, old.view)
        written = _Written(new, position + 1, is_update, handed_view, handed_clock)
        view[address] = written
        if is_release or is_update:
            handed_view[address] = written
        for each in order[position + 1 :]:
            each.position += 1
        order.insert(position + 1, written)
        return 1 if kind == "exchange" else old.value

    def _take_over(self, thread: int, read: _Written) -> None:
        self._views[thread] = self._newer(self._views[thread], read.view)
        self._clocks[thread][:] = map(max, self._clocks[thread], read.clock)

    @staticmethod
    def _newer(view: _View, other: _View) -> _View:
        joined = dict(view)
        for address, seen in other.items():
            mine = joined.get(address)
            if mine is None or seen.position > mine.position:
                joined[address] = seen
        return joined

    def _find_race(self, thread: int, access: Access) -> None:
        is_plain = access.kind in PLAIN
        is_write = access.kind not in {"read", "load"}
        clock = self._clocks[thread]
        for other_plain in (True, False):
            for other_write in (True, False):
                if not ((is_plain or other_plain) and (is_write or other_write)):
                    continue
                last = self._last.get((access.address, other_plain, other_write), {})
                for other, number in last.items():
                    if other != thread and number > clock[other]:
                        message = f"threads {thread} and {other}: {access}"
                        raise DataRaceError(message)
        last = self._last.setdefault((access.address, is_plain, is_write), {})
        last[thread] = clock[thread]


def search(
    threads: Sequence[Callable[[], Thread]], memory: Mapping[int, int], required: int
) -> int:
    """Run threads in every order and with every value that the model allows; return the states.

    The first `required` threads must end; the others may wait for ever. What threads assert holds
    in every execution.
    """
    program, uses = Program(threads, memory, required), Uses()
    while True:
        uses.is_new = False
        states = _search(program, uses)
        if not uses.is_new:
            return states


def _search(program: Program, uses: Uses) -> int:
    """Return the states; ends early if a thread uses a location that it was not known to use."""
    states: set[int] = set()
    left: list[list[tuple[int, int]]] = [[]]
    while left and not uses.is_new:
        path = left.pop()
        run = Run(program, uses)
        for choice in path:
            run.step(*choice)
        while True:
            choices = run.choices()
            if not choices:
                break
            if len(choices) > 1:
                state = run.state()
                if state in states:
                    break
                states.add(state)
                left += [[*path, choice] for choice in choices[1:]]
            path = [*path, choices[0]]
            run.step(*choices[0])
    return len(states)
