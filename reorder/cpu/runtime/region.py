"""Run a job in a parallel region of an OpenMP team, if one is awake: compiled code.

A team is the threads that an OpenMP runtime keeps for the parallel regions of one caller. After a
region they spin for some milliseconds, on all cores, before they sleep. Meanwhile a job on other
threads would have to share the cores with them, and a job on theirs starts at once. Once asleep,
they take longer to wake than the workers of the pool.

The CPU time of one of its threads shows whether a team is awake: it advances while they spin.
"""

from __future__ import annotations

from reorder.cpu.runtime.intrinsics import call_c, load_int, load_shared, pause, store_int
from reorder.cpu.runtime.pool_block import INT_MASK, POOL, TEAM, TEAM_AT
from reorder.cpu.tables import WORD_NBYTES

_NANOSECONDS = 10**9
# Between two looks at the clock of a thread: about a microsecond.
_PAUSES = 16


def _cpu_time(pool: int, fields: int) -> int:
    """Return the CPU time that the watched thread has used; -1 if it has ended."""
    time = fields + WORD_NBYTES * TEAM.seconds
    if call_c(load_int(pool, POOL.clock_at), (load_int(fields, TEAM.clock), time)) & INT_MASK:
        return -1
    seconds: int = load_int(fields, TEAM.seconds)
    nanoseconds: int = load_int(fields, TEAM.nanoseconds)
    return seconds * _NANOSECONDS + nanoseconds


def _is_awake(pool: int, fields: int) -> bool:
    """Whether the threads of a team spin."""
    before = load_int(fields, TEAM.cpu_time)
    now = _cpu_time(pool, fields)
    store_int(fields, TEAM.cpu_time, now)
    if now <= before:
        return False
    for _ in range(_PAUSES):
        pause()
    return bool(_cpu_time(pool, fields) > now)


def find_awake_team(pool: int) -> int:
    """Return the block of a team of the calling thread that is awake, or 0.

    A caller that is itself in a parallel region has none, nor has one whose regions have a single
    thread.
    """
    team = load_shared(pool, POOL.first_team)
    if team == 0:
        return 0
    this = call_c(load_int(pool, POOL.self_at), (0,))
    while team:
        fields = team + TEAM_AT
        if load_int(fields, TEAM.caller) == this and _is_awake(pool, fields):
            is_inside = call_c(load_int(fields, TEAM.inside_at), (0,)) & INT_MASK
            size = call_c(load_int(fields, TEAM.size_at), (0,)) & INT_MASK
            return team if size > 1 and not is_inside else 0
        team = load_int(fields, TEAM.next)
    return 0


def run_region(team: int) -> None:
    """Call the region function of a team on all its threads; returns when all have."""
    fields = team + TEAM_AT
    # 0: as many threads as the caller's regions have; another number would end threads
    call_c(load_int(fields, TEAM.parallel_at), (load_int(fields, TEAM.enter_at), team, 0, 0))
