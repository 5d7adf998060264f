"""The search for teams of OpenMP: threads that other libraries of the process keep.

A team is entered only while it is awake. To learn which threads it has, a search runs one parallel
region, and only in a runtime with awake threads that do not belong to a known team: a region in a
runtime without threads would create some. Which runtime started a thread is read from the thread's
descriptor in the C library.

Searches take a fraction of a millisecond, and are made after 1, 2, 4, ... 1024 calls. A forked
child makes none: teams do not survive a fork. `MEMDESC_OPENMP=0` in the environment turns them off.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from reorder.cpu.runtime.jit import compiled_at
from reorder.cpu.runtime.pool_block import (
    ADDRESS,
    HAS_TEAMS,
    MAX_WORKERS,
    POOL,
    TEAM,
    allocate_block,
    function_at,
    pool_words,
    publish,
    team_words,
)
from reorder.cpu.runtime.worker import enter_region
from reorder.forks import at_fork
from reorder.memory.buffers import address_of

_LIBRARY = re.compile(r"/lib(gomp|iomp5|omp)\b[^/]*\.so[^/]*$")
_MAPS, _TASKS = Path("/proc/self/maps"), Path("/proc/self/task")
_MEMORY = Path("/proc/self/mem")
# The number of the system call `get_robust_list`. Its list is in the C library's descriptor of a
# thread, and the function that the thread was started with follows within this many bytes.
_GET_ROBUST_LIST = {"x86_64": 274, "aarch64": 100}
_DESCRIPTOR_NBYTES = 2048
# Calls between two searches: the most, and how many while the calling thread has a team in every
# runtime.
_MAX_CALLS, _CALLS = 1024, 64
# How long threads are watched: one whose CPU time does not advance meanwhile is not awake.
_LOOK_SECONDS = 2e-5


class _Runtime(NamedTuple):
    """An OpenMP runtime of the process: where its code is, and the addresses of its functions."""

    path: str
    begin: int
    end: int
    parallel: int
    number: int
    inside: int
    size: int


class _State:
    is_enabled = HAS_TEAMS and os.environ.get("MEMDESC_OPENMP") != "0"
    searching = threading.Lock()
    # calls until the next search, doubled by each
    calls = 1
    # number of modules of Python when libraries were listed, and what was found
    modules = 0
    runtimes: tuple[_Runtime, ...] = ()
    # the threads of each team, by the address of its block
    members: ClassVar[dict[int, frozenset[int]]] = {}


def runtimes() -> list[str]:
    """Return the paths of the OpenMP runtimes whose threads may run jobs."""
    _list_runtimes()
    return [runtime.path for runtime in _State.runtimes]


def refresh_teams() -> None:
    """Search for teams of the calling thread, if it is time."""
    words = pool_words()
    words[POOL.countdown] -= 1
    if words[POOL.countdown] > 0 or not _State.searching.acquire(blocking=False):
        return
    try:
        words[POOL.countdown] = _MAX_CALLS
        if _State.is_enabled:
            _list_runtimes()
            words[POOL.countdown] = _search()
    finally:
        _State.searching.release()


def _list_runtimes() -> None:
    """List the libraries of the process again if modules were imported since."""
    if not _State.is_enabled or _State.modules == len(sys.modules):
        return
    _State.modules = len(sys.modules)
    found = []
    with suppress(OSError):
        lines = _MAPS.read_text(encoding="utf-8", errors="replace").splitlines()
        code = [line for line in lines if _LIBRARY.search(line) and " r-xp " in line]
        found = [runtime for line in code for runtime in _load(line)]
    if tuple(found) != _State.runtimes:
        _State.runtimes = tuple(found)
        _State.calls = 1


def _load(line: str) -> list[_Runtime]:
    """Return the runtime of a line of `_MAPS`, or nothing if it lacks a function."""
    path = line[line.find("/") :]
    begin, end = (int(address, 16) for address in line.split(maxsplit=1)[0].split("-"))
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        names = ("GOMP_parallel", "omp_get_thread_num", "omp_in_parallel", "omp_get_max_threads")
        functions = [function_at(library[name]) for name in names]
    except (OSError, AttributeError):
        return []
    return [_Runtime(path, begin, end, *functions)]


def _search() -> int:
    """Make blocks for the teams of the calling thread that have none.

    Returns the number of calls until the next search.
    """
    this = threading.get_ident()
    mine = {
        (words[TEAM.parallel_at], words[TEAM.inside_at])
        for words in map(team_words, _teams())
        if words[TEAM.caller] == this and words[TEAM.cpu_time] >= 0
    }
    missing = [each for each in _State.runtimes if (each.parallel, each.inside) not in mine]
    if not _State.runtimes:
        return _MAX_CALLS
    if not missing:
        # a search for another thread may be due
        return _CALLS
    calls = _State.calls
    _State.calls = min(2 * calls, _MAX_CALLS)
    awake = _started_at(_awake_threads())
    for runtime in missing:
        is_awake = any(runtime.begin <= address < runtime.end for address in awake)
        if is_awake and not _call(runtime.inside) and _call(runtime.size) > 1:
            _add(runtime, this)
            _State.calls = 1
    return calls


def _teams() -> list[int]:
    """Return the addresses of the blocks of all teams."""
    found = []
    team = pool_words()[POOL.first_team]
    while team:
        found.append(team)
        team = team_words(team)[TEAM.next]
    return found


def _awake_threads() -> list[int]:
    """Return the threads that use the processor and do not belong to a known team."""
    known = {
        member
        for team in _teams()
        if team_words(team)[TEAM.cpu_time] >= 0
        for member in _State.members[team]
    }
    try:
        ids = {int(task.name) for task in _TASKS.iterdir()} - known
    except OSError:
        return []
    before = {each: _cpu_time(each) for each in ids}
    end = time.perf_counter() + _LOOK_SECONDS
    while time.perf_counter() < end:
        pass
    return [each for each, then in before.items() if _cpu_time(each) > then]


def _started_at(thread_ids: list[int]) -> list[int]:
    """Return the words of the C library's descriptors of threads.

    Among them are the addresses of the functions that the threads were started with.
    """
    words: list[int] = []
    head, nbytes = ctypes.c_size_t(), ctypes.c_size_t()
    number = _GET_ROBUST_LIST.get(platform.machine(), -1)
    # through the file, since a thread may end meanwhile, and with it the memory
    with suppress(OSError), _MEMORY.open("rb", buffering=0) as memory:
        for each in thread_ids:
            pointers = ctypes.byref(head), ctypes.byref(nbytes)
            if ctypes.CDLL(None).syscall(number, each, *pointers) == 0 and head.value:
                with suppress(OSError):
                    descriptor = os.pread(memory.fileno(), _DESCRIPTOR_NBYTES, head.value)
                    words += memoryview(descriptor).cast("q")
    return words


def _clock_of(thread_id: int) -> int:
    """Return the clock of the CPU time of a thread, as Linux encodes it."""
    return (~thread_id << 3) | 6


def _cpu_time(thread_id: int) -> int:
    try:
        return time.clock_gettime_ns(_clock_of(thread_id))
    except OSError:
        return -1  # it has ended


def compile_region() -> int:
    """Return the address of the function that threads of a team run."""
    return compiled_at(enter_region, "thread pool: region")


def _add(runtime: _Runtime, caller: int) -> None:
    """Ask the team of the calling thread for its threads, and add its block to the list."""
    words = pool_words()
    enter = compile_region()
    members = np.zeros(MAX_WORKERS + 1, np.int64)
    # the block of a team that has ended is reused, but only by a caller of the same number: another
    # thread may be reading it
    mine = [team for team in _teams() if team_words(team)[TEAM.caller] == caller]
    free = [team for team in mine if team_words(team)[TEAM.cpu_time] < 0]
    block = free[0] if free else allocate_block()
    for field in (POOL.thread_id_at, POOL.sleep_at, POOL.never_free, POOL.yield_at):
        pool_words(block)[field] = words[field]
    team = team_words(block)
    team[TEAM.parallel_at], team[TEAM.number_at] = runtime.parallel, runtime.number
    team[TEAM.inside_at], team[TEAM.size_at] = runtime.inside, runtime.size
    team[TEAM.enter_at] = enter
    team[TEAM.members] = address_of(members)
    _call(runtime.parallel, enter, block, 0, 0)
    team[TEAM.members] = 0
    found = [int(each) for each in members if each]
    _State.members[block] = frozenset(found)
    # a team of one thread is useless, and its block is reused
    team[TEAM.cpu_time] = 0 if len(found) > 1 else -1
    team[TEAM.clock] = _clock_of(found[-1])
    team[TEAM.caller] = caller
    if not free:
        team[TEAM.next] = words[POOL.first_team]
        publish(ADDRESS, POOL.first_team, block)


def _call(function: int, *arguments: int) -> int:
    """Call a C function without the GIL."""
    kinds = [ctypes.c_int64] * len(arguments)
    return int(ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(function)(*arguments))


def _forget() -> None:
    """Forget all teams in a forked child."""
    _State.is_enabled, _State.runtimes = False, ()
    _State.searching = threading.Lock()
    pool_words()[POOL.first_team] = 0


at_fork(lambda: None, lambda: None, _forget)
