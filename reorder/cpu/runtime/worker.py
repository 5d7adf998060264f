"""Compiled code of the pool: a caller shares a job, and workers wait for one and help.

A worker enters a job by a compare-and-exchange of the state that it read for the same state with
one more worker. The state has the number of the job, so the exchange fails if the job was closed
or replaced. The chunks of a job are divided into a group for each thread. A thread starts with
the group of its number, since its caches may hold those data from the previous call, and goes on
with the other groups.
"""

from __future__ import annotations

from reorder.cpu.runtime.intrinsics import (
    add_shared,
    call_c,
    call_walker,
    exchange_shared,
    load_int,
    load_relaxed,
    load_shared,
    pause,
    store_int,
    store_relaxed,
    store_shared,
)
from reorder.cpu.runtime.jit import inner
from reorder.cpu.runtime.job import JOB
from reorder.cpu.runtime.pool_block import (
    INSIDE_MASK,
    INT_MASK,
    JOB_NUMBER,
    MAX_WORKERS,
    OPEN,
    POOL,
    TEAM,
    TEAM_AT,
    THREAD,
    THREAD_NBYTES,
    THREADS_AT,
)
from reorder.cpu.runtime.team import find_awake_team, run_region

__all__ = ["enter_region", "is_ready", "serve", "share_job"]

# One of this many spins yields the core, since the thread that is waited for may need it; the
# others pause.
_SPINS_PER_YIELD = 16
# A caller that waits longer than workers spin sleeps for this long between polls.
_SLEEP_MICROSECONDS = 20
# A thread that enters a job wakes this many others, so n threads are awake after log2(n) steps.
_WAKES = 2


@inner
def _wake_others(pool: int, thread: int) -> None:
    """Wake the workers below a thread in a binary tree, numbered like a heap, if they sleep."""
    first = _WAKES * thread + 1
    for k in range(first, first + _WAKES):
        other = pool + THREADS_AT + THREAD_NBYTES * k
        if (
            k <= load_relaxed(pool, POOL.last_worker)
            and load_relaxed(other, THREAD.asleep)
            and exchange_shared(other, THREAD.asleep, 1, 0)
        ):
            call_c(load_int(pool, POOL.release_at), (load_int(other, THREAD.lock),))


@inner
def _work(pool: int, thread: int) -> None:
    """Wake others, and run chunks of the job until none is left."""
    _wake_others(pool, thread)
    job = load_int(pool, POOL.job)
    bounds, chunks = load_int(job, JOB.bounds), load_int(job, JOB.chunks)
    groups = load_int(job, JOB.workers) + 1
    for distance in range(groups):
        group = (thread + distance) % groups
        counter = pool + THREADS_AT + THREAD_NBYTES * group
        first, last = group * chunks // groups, (group + 1) * chunks // groups
        chunk = first + add_shared(counter, THREAD.taken, 1)
        while chunk < last:
            call_walker(
                load_int(job, JOB.walker),
                (
                    load_int(pool, POOL.src_at),
                    load_int(pool, POOL.dst_at),
                    load_int(job, JOB.program),
                    load_int(job, JOB.tasks),
                    load_int(bounds, chunk),
                    load_int(bounds, chunk + 1),
                    load_int(job, JOB.points),
                    load_int(job, JOB.point_count),
                ),
            )
            chunk = first + add_shared(counter, THREAD.taken, 1)


@inner
def _spin(pool: int, spins_left: int) -> None:
    """Wait between two polls: pause, sometimes yield, and sleep if no spins are left."""
    if spins_left <= 0:
        call_c(load_int(pool, POOL.sleep_at), (_SLEEP_MICROSECONDS,))
    elif spins_left % _SPINS_PER_YIELD:
        pause()
    else:
        call_c(load_int(pool, POOL.yield_at), (0,))


@inner
def _prepare(block: int, src_at: int, dst_at: int, job: int) -> None:
    """Write a job to the block of the threads that will run it."""
    store_int(block, POOL.job, job)
    store_int(block, POOL.src_at, src_at)
    store_int(block, POOL.dst_at, dst_at)
    for thread in range(load_int(job, JOB.workers) + 1):
        store_int(block + THREADS_AT + THREAD_NBYTES * thread, THREAD.taken, 0)


@inner
def share_job(src_at: int, dst_at: int, job: int) -> None:
    """Run a job on this thread and others: a team that is awake, else the workers.

    If there are none, or another caller has the pool, this thread runs it alone.
    """
    pool = load_int(job, JOB.pool)
    workers = load_int(job, JOB.workers)
    team = find_awake_team(pool) if workers else 0
    if team:
        _prepare(team, src_at, dst_at, job)
        run_region(team)
        return
    if workers == 0 or not exchange_shared(pool, POOL.busy, 0, 1):
        call_walker(
            load_int(job, JOB.walker),
            (
                src_at,
                dst_at,
                load_int(job, JOB.program),
                load_int(job, JOB.tasks),
                0,
                load_int(job, JOB.steps),
                load_int(job, JOB.points),
                load_int(job, JOB.point_count),
            ),
        )
        return
    _prepare(pool, src_at, dst_at, job)
    store_relaxed(pool, POOL.last_worker, workers)
    store_int(pool, POOL.finished, 0)
    number = load_relaxed(pool, POOL.state) // JOB_NUMBER + 1
    store_shared(pool, POOL.state, number * JOB_NUMBER + OPEN)
    _work(pool, 0)
    # close the job, and wait for the workers that have entered it
    inside = add_shared(pool, POOL.state, -OPEN) & INSIDE_MASK
    spins_left = load_relaxed(pool, POOL.spins)
    while load_shared(pool, POOL.finished) < inside:
        spins_left -= 1
        _spin(pool, spins_left)
    store_shared(pool, POOL.busy, 0)


@inner
def is_ready(job: int) -> bool:
    """Whether all workers that a job may have were started, and no search for teams is due."""
    workers = load_int(job, JOB.workers)
    if workers == 0:
        return True
    pool = load_int(job, JOB.pool)
    countdown = load_relaxed(pool, POOL.countdown) - 1
    store_relaxed(pool, POOL.countdown, countdown)
    return bool(countdown > 0 and load_shared(pool, POOL.started) >= workers)


def serve(pool: int, thread: int, spins: int) -> int:
    """Run jobs as a worker; after `spins` polls without a job sleep, or return as thread 0."""
    number = -1
    spins_left = spins
    this = pool + THREADS_AT + THREAD_NBYTES * thread
    while True:
        spins_left -= 1
        state = load_shared(pool, POOL.state)
        is_new = (state & OPEN) != 0 and state // JOB_NUMBER != number
        if is_new and thread <= load_relaxed(pool, POOL.last_worker):
            if exchange_shared(pool, POOL.state, state, state + 1):
                number = state // JOB_NUMBER
                _work(pool, thread)
                add_shared(pool, POOL.finished, 1)
                spins_left = spins
        elif spins_left > 0:
            _spin(pool, spins_left)
        elif thread == 0:
            return 0
        else:
            store_shared(this, THREAD.asleep, 1)
            call_c(load_int(pool, POOL.acquire_at), (load_int(this, THREAD.lock), 1))
            spins_left = spins


def enter_region(team: int) -> None:
    """Work as a thread of a team in a parallel region, or write the number of the thread."""
    fields = team + TEAM_AT
    thread = call_c(load_int(fields, TEAM.number_at), (0,)) & INT_MASK
    members = load_int(fields, TEAM.members)
    if members:
        if thread <= MAX_WORKERS:
            thread_id = call_c(load_int(team, POOL.thread_id_at), (0,)) & INT_MASK
            store_int(members, thread, thread_id)
    elif thread <= load_int(load_int(team, POOL.job), JOB.workers):
        _work(team, thread)
