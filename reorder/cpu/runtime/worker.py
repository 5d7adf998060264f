"""Compiled code of the pool, jobs, and the memory that a caller and the workers share.

A job is an interpreter, what it reads, and how threads share its steps. The memory is a block of
int64: `PoolFields`, then `ThreadFields` for the caller, which is thread 0, and for each worker.
Fields that different threads write often are in separate cache lines.

A worker enters a job by a compare-and-exchange of a word of its own, its turn. The caller ends the
job for the workers that have not entered by another exchange of that word, so a worker that comes
later cannot enter. The chunks of a job are divided into a group for each thread. A thread starts
with the group of its number, since its caches may hold that data from the previous call, and goes
on with the other groups. Where each group has one chunk, it goes on only if a thread is late: a
worker that had to be woken, or has not entered when the caller is done. If each of 16 threads read
the words of all others, that would take as long as the rest of a small job. For the same reason
there is no word that all threads write.

The comments of the fields say what orders writes and reads, in C11's terms. `state` publishes a
job: the caller writes the fields of the job, then stores `state` (release); a worker loads it
(acquire), and enters, so whatever it then reads belongs to this job. `turn` publishes the results:
a worker stores it after its last write, and the caller loads it (acquire). A caller that takes
`busy` sees what the caller before it had written.
tests/unit/reorder/cpu/runtime/test_memory_order.py runs these functions in every order that this
allows.

All counters contain the number of their job, so they need no reset. A reset would take the lines of
all workers from their caches before a job could begin.
"""

from memdesc.tuples import NamedTuple
from reorder.cpu.runtime.intrinsics import (
    INT_MASK,
    call_c,
    exchange_shared,
    load_int,
    load_shared,
    pause,
    store_int,
    store_shared,
)
from reorder.cpu.tables import fields_in_lines, fields_of, nbytes_in_lines

# Threads that help a caller, at most.
MAX_WORKERS = 255


class PoolFields(NamedTuple):
    """What all threads share, at the start of the block."""

    # whether a caller uses the pool: 0 or 1. An exchange takes it, a release store frees it
    busy: int
    # number of the job, and how many workers may enter it; see `JOB_UNIT`. Stored with release,
    # loaded with acquire
    state: int
    # addresses of the open job, of src and of dst: plain, written before `state` is stored, and
    # read by threads that have entered
    job: int
    src_at: int
    dst_at: int
    # number of the last job with threads that were late, whose chunks others take; chunks that
    # nobody else takes are run by the caller
    late: int
    # number of workers that were started: written by Python, and read under the GIL
    started: int
    # how often a worker polls for a job before it sleeps
    spins: int
    # addresses of C functions: yield the core; wait some microseconds for a lock of Python, which
    # is how a thread sleeps on every system, and a lock that is never free; acquire and release a
    # lock. They are written before any thread is started
    yield_at: int
    sleep_at: int
    never_free: int
    acquire_at: int
    release_at: int
    # addresses of functions of an OpenMP runtime: GOMP_parallel, or 0, omp_get_thread_num and
    # omp_in_parallel; and of the compiled function that each thread of a region runs. They are
    # written before the next one
    region_at: int
    number_at: int
    inside_at: int
    enter_at: int
    # address of the compiled function that shares a job, or 0: written by Python, and read under
    # the GIL
    share_at: int


class ThreadFields(NamedTuple):
    """The fields of one thread."""

    # how many chunks of its group were taken, by any thread, and of which job; see `TAKEN_UNIT`.
    # Changed by exchanges, which give each chunk to one thread
    taken: int
    # for a worker, twice the number of its last job, plus 1 while it is inside: the worker enters
    # and the caller ends the job by an exchange; a worker that leaves stores it with release, and
    # the caller loads it with acquire
    turn: int
    # whether it sleeps, or is about to: 0 or 1. A thread that wakes the worker clears it by an
    # exchange. A thread that reads it too early does not wake it, and others do the worker's part
    asleep: int
    # address of the lock on which it sleeps: written before the thread starts, and so before the
    # thread stores `asleep`
    lock: int


POOL = fields_in_lines(PoolFields, "busy", "state", "started")
THREAD = fields_in_lines(ThreadFields, "taken", "turn", "asleep")
# Byte offset of the fields of thread 0, and the bytes of each thread.
THREADS_AT = nbytes_in_lines(POOL)
THREAD_NBYTES = nbytes_in_lines(THREAD)
BLOCK_NBYTES = THREADS_AT + THREAD_NBYTES * (MAX_WORKERS + 1)

# A state is the number of a job times this, plus the workers that may enter it.
JOB_UNIT = 1 << 16
# A counter of chunks is the number of a job times this, plus those that were taken. A group has
# fewer: some chunks for each batch of a reorder.
TAKEN_UNIT = 1 << 20


class Job(NamedTuple):
    """What an interpreter takes besides src and dst, and its chunks: a table for compiled code."""

    # address of the compiled interpreter
    interpreter: int
    # addresses of the program and of the table of ranges
    program: int
    ranges: int
    # steps of the interpreter: ranges times points
    steps: int
    # address of the table of points, and how many there are
    points: int
    point_count: int
    # address of the bounds of the chunks, which are ranges of steps, and number of chunks
    bounds: int
    chunks: int
    # the most workers of the pool that help the caller
    workers: int
    # address of the block of the pool
    pool: int


JOB = fields_of(Job)

# One of this many spins yields the core, which the thread that is waited for may need; the others
# pause.
_SPINS_PER_YIELD = 16
# A caller that waits longer than workers spin sleeps for this long between polls.
_SLEEP_MICROSECONDS = 20
# A thread that enters a job wakes this many others, so n threads are awake after log2(n) steps.
_WAKES = 2


def _wake_others(pool: int, thread: int, workers: int, number: int) -> None:
    """Wake the workers below a thread in a binary tree, numbered like a heap, if they sleep."""
    first = _WAKES * thread + 1
    for k in range(first, first + _WAKES):
        other = pool + THREADS_AT + THREAD_NBYTES * k
        if (
            k <= workers
            and load_shared(other, THREAD.asleep)
            and exchange_shared(other, THREAD.asleep, 1, 0)
        ):
            store_shared(pool, POOL.late, number)
            call_c(load_int(pool, POOL.release_at), (load_int(other, THREAD.lock),))


def _take(group: int, number: int, chunks: int) -> int:
    """Take a chunk of a group of a job; returns its index, or `chunks` if none is left."""
    none_taken = number * TAKEN_UNIT
    while True:
        word = load_shared(group, THREAD.taken)
        taken = word - none_taken if word > none_taken else 0
        if taken >= chunks:
            return chunks
        if exchange_shared(group, THREAD.taken, word, none_taken + taken + 1):
            return taken


def run_steps(job: int, src_at: int, dst_at: int, begin: int, end: int) -> None:
    """Run a range of the steps of a job."""
    call_c(
        load_int(job, JOB.interpreter),
        (
            src_at,
            dst_at,
            load_int(job, JOB.program),
            load_int(job, JOB.ranges),
            begin,
            end,
            load_int(job, JOB.points),
            load_int(job, JOB.point_count),
        ),
    )


def _run_group(pool: int, group: int, number: int) -> None:
    """Run chunks of a group of the job with a number until none is left."""
    job = load_int(pool, POOL.job)
    bounds, chunks = load_int(job, JOB.bounds), load_int(job, JOB.chunks)
    groups = load_int(job, JOB.workers) + 1
    words = pool + THREADS_AT + THREAD_NBYTES * group
    first, last = group * chunks // groups, (group + 1) * chunks // groups
    chunk = first + _take(words, number, last - first)
    while chunk < last:
        src_at, dst_at = load_int(pool, POOL.src_at), load_int(pool, POOL.dst_at)
        run_steps(job, src_at, dst_at, load_int(bounds, chunk), load_int(bounds, chunk + 1))
        chunk = first + _take(words, number, last - first)


def _helps(pool: int, thread: int, number: int) -> bool:
    """Whether a thread goes on with the groups of others when its own has no chunk left.

    Where each group has one chunk, the caller checks whether all workers have entered; if not, it
    tells all threads that one is late.
    """
    job = load_int(pool, POOL.job)
    groups = load_int(job, JOB.workers) + 1
    if load_int(job, JOB.chunks) > groups:
        return True
    if thread == 0:
        for k in range(1, groups):
            if load_shared(pool + THREADS_AT + THREAD_NBYTES * k, THREAD.turn) < 2 * number:
                store_shared(pool, POOL.late, number)
    return bool(load_shared(pool, POOL.late) == number)


def _work(pool: int, thread: int, number: int) -> None:
    """Run chunks of the job with a number until none is left for this thread."""
    groups = load_int(load_int(pool, POOL.job), JOB.workers) + 1
    for distance in range(groups):
        if distance == 1 and not _helps(pool, thread, number):
            return
        _run_group(pool, (thread + distance) % groups, number)


def _spin(pool: int, spins_left: int) -> None:
    """Wait between two polls: pause, sometimes yield, and sleep if no spins are left."""
    if spins_left <= 0:
        lock = load_int(pool, POOL.never_free)
        call_c(load_int(pool, POOL.sleep_at), (lock, _SLEEP_MICROSECONDS, 0))
    elif spins_left % _SPINS_PER_YIELD:
        pause(pool)
    else:
        call_c(load_int(pool, POOL.yield_at), (0,))


def _enter(worker: int, number: int) -> bool:
    """Enter the job with a number as a worker; returns False if it has ended."""
    turn = load_shared(worker, THREAD.turn)
    return bool(turn < 2 * number and exchange_shared(worker, THREAD.turn, turn, 2 * number + 1))


def _end(pool: int, workers: int, number: int) -> None:
    """End a job for the workers that have not entered it, and wait for the others."""
    spins_left = load_shared(pool, POOL.spins)
    for thread in range(1, workers + 1):
        worker = pool + THREADS_AT + THREAD_NBYTES * thread
        turn = load_shared(worker, THREAD.turn)
        while turn != 2 * number:
            if turn < 2 * number:
                exchange_shared(worker, THREAD.turn, turn, 2 * number)
            else:
                spins_left -= 1
                _spin(pool, spins_left)
            turn = load_shared(worker, THREAD.turn)


def share_job(src_at: int, dst_at: int, job: int) -> None:
    """Run a job on this thread and others: free workers, or threads of an OpenMP runtime."""
    pool = load_int(job, JOB.pool)
    workers = load_int(job, JOB.workers)
    if workers == 0 or not exchange_shared(pool, POOL.busy, 0, 1):
        run_steps(job, src_at, dst_at, 0, load_int(job, JOB.steps))
        return
    store_int(pool, POOL.job, job)
    store_int(pool, POOL.src_at, src_at)
    store_int(pool, POOL.dst_at, dst_at)
    number = load_shared(pool, POOL.state) // JOB_UNIT + 1
    region = load_int(pool, POOL.region_at)
    if region and not call_c(load_int(pool, POOL.inside_at), (0,)) & INT_MASK:
        # no worker may enter
        store_shared(pool, POOL.state, number * JOB_UNIT)
        # a region may have fewer threads
        store_shared(pool, POOL.late, number)
        # 0: as many threads as the caller's regions have; another number would end some of them
        call_c(region, (load_int(pool, POOL.enter_at), pool, 0, 0))
    else:
        store_shared(pool, POOL.state, number * JOB_UNIT + workers)
        _wake_others(pool, 0, workers, number)
        _work(pool, 0, number)
        _end(pool, workers, number)
    store_shared(pool, POOL.busy, 0)


def is_ready(job: int) -> bool:
    """Whether all threads that a job may have are there; the caller holds the GIL."""
    workers = load_int(job, JOB.workers)
    pool = load_int(job, JOB.pool)
    return bool(
        workers == 0
        or load_int(pool, POOL.started) >= workers
        or (load_int(pool, POOL.share_at) and load_int(pool, POOL.region_at))
    )


def serve(pool: int, thread: int, spins: int) -> None:
    """Run jobs as a worker; after `spins` polls without a job sleep, or return as thread 0."""
    number = 0
    spins_left = spins
    this = pool + THREADS_AT + THREAD_NBYTES * thread
    while True:
        spins_left -= 1
        state = load_shared(pool, POOL.state)
        if state // JOB_UNIT > number:
            number = state // JOB_UNIT
            if 0 < thread <= state % JOB_UNIT and _enter(this, number):
                _wake_others(pool, thread, state % JOB_UNIT, number)
                _work(pool, thread, number)
                store_shared(this, THREAD.turn, 2 * number)
                spins_left = spins
        elif spins_left > 0:
            _spin(pool, spins_left)
        elif thread == 0:
            return
        else:
            store_shared(this, THREAD.asleep, 1)
            call_c(load_int(pool, POOL.acquire_at), (load_int(this, THREAD.lock), 1))
            spins_left = spins


def enter_region(pool: int) -> None:
    """Work as a thread of an OpenMP runtime in a parallel region."""
    thread = call_c(load_int(pool, POOL.number_at), (0,)) & INT_MASK
    if thread <= load_int(load_int(pool, POOL.job), JOB.workers):
        _work(pool, thread, load_shared(pool, POOL.state) // JOB_UNIT)
