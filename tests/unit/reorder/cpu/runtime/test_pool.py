"""Every chunk of a job runs once, whoever is awake, and whoever calls."""

import ctypes
import threading
import time

import numpy as np
import pytest
from numpy.typing import NDArray

from reorder.cpu.kernels.interpreter import InterpreterCall
from reorder.cpu.runtime.intrinsics import exchange_shared, load_shared
from reorder.cpu.runtime.jit import c_function, compiled_at
from reorder.cpu.runtime.pool import ADDRESS, load_pool, run_job
from reorder.cpu.runtime.worker import MAX_WORKERS, Job, share_job
from reorder.memory.buffers import address_of
from tests.programs import run_python


def add_shared(address: int, index: int, value: int) -> None:
    """Add to an int64 that other threads change too."""
    is_added = False
    while not is_added:
        before = load_shared(address, index)
        is_added = exchange_shared(address, index, before, before + value)


def count_tasks(
    _src_at: int,
    dst_at: int,
    _program: int,
    _ranges: int,
    begin: int,
    end: int,
    _points: int,
    point_count: int,
) -> None:
    """Add one to the counter of each task, as an interpreter that does nothing else."""
    for task in range(begin, end):
        for _ in range(point_count):
            add_shared(dst_at, task, 1)


@pytest.fixture(scope="module")
def interpreter() -> int:
    """Return the address of the compiled counter."""
    return compiled_at(count_tasks, "counter")


def job_of(interpreter: int, bounds: NDArray[np.int64], workers: int, point_count: int = 1) -> Job:
    """Return a job whose interpreter reads no program, ranges or points."""
    return Job(
        interpreter=interpreter,
        program=0,
        ranges=0,
        steps=int(bounds[-1]),
        points=0,
        point_count=point_count,
        bounds=address_of(bounds),
        chunks=len(bounds) - 1,
        workers=workers,
        pool=ADDRESS,
    )


class Counted:
    """A job of a number of tasks in chunks, and how often each has run."""

    def __init__(
        self, interpreter: int, tasks: int, chunks: int, workers: int, points: int = 1
    ) -> None:
        self.counts = np.zeros(tasks, np.int64)
        self._bounds = np.linspace(0, tasks, chunks + 1).astype(np.int64)
        self._job = job_of(interpreter, self._bounds, workers, points)

    def run(self) -> None:
        """Run it once."""
        run_job(0, address_of(self.counts), self._job)


@pytest.mark.parametrize("workers", [0, 1, 2, 7, 40, MAX_WORKERS])
@pytest.mark.parametrize("chunks", [1, 2, 3, 8, 100, 300])
def test_every_chunk_runs_once(interpreter: int, chunks: int, workers: int) -> None:
    job = Counted(interpreter, 300, chunks, workers)
    for number in range(1, 30):
        job.run()
        if number % 15 == 3:  # workers that slept help again
            time.sleep(0.01)
        assert (job.counts == number).all()


def test_callers_at_once_get_what_they_asked_for(interpreter: int) -> None:
    jobs = [Counted(interpreter, 64, 16, 1 + k, points=20) for k in range(6)]

    def work(job: Counted) -> None:
        for _ in range(300):
            job.run()

    threads = [threading.Thread(target=work, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((job.counts == 300 * 20).all() for job in jobs)


def test_chunks_run_on_the_caller_and_on_a_worker() -> None:
    seen = []

    def walk(*numbers: int) -> None:
        seen.append((threading.get_ident(), numbers[4]))
        time.sleep(1e-3)

    callback = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(InterpreterCall._fields))(walk)
    bounds = np.arange(21, dtype=np.int64)
    load_pool()
    address = ctypes.cast(callback, ctypes.c_void_p).value or 0
    run_job(0, 0, job_of(address, bounds, 1))
    assert sorted(begin for _, begin in seen) == list(range(20))
    assert len({who for who, _ in seen}) == 2


def share_often(src_at: int, job: int, times: int) -> int:
    """Share a job many times; src is what the caller counts, dst are the counters of the tasks."""
    for _ in range(times):
        share_job(src_at, src_at, job)
    return 0


@pytest.mark.campaign
def test_a_million_jobs_lose_no_chunk(interpreter: int) -> None:
    rounds, times, tasks = 100, 10_000, 8
    bounds = np.arange(tasks + 1)
    counts = np.zeros(tasks, np.int64)
    job = job_of(interpreter, bounds, 3)
    load_pool()
    # the first ones start the workers
    run_job(0, address_of(counts), job)
    call = c_function(share_often, "jobs, one after the other")
    record = (ctypes.c_int64 * len(job))(*job)
    for done in range(1, rounds + 1):
        call(address_of(counts), ctypes.addressof(record), times)
        assert (counts == 1 + done * times).all()
    print(f"{rounds * times} jobs of {tasks} chunks on 4 threads")


_PROGRAMS = {
    "threads of a small stack": """
import os, threading
size = max(32768, os.sysconf("SC_THREAD_STACK_MIN"))
threading.stack_size(size)
import numpy as np, reorder
from memdesc import memory_desc
from reorder.cpu import PreparedReorder
from reorder.cpu.host import this_machine
src, dst = memory_desc((64, 64, 56), "f32", "abc"), memory_desc((64, 64, 56), "s8", "aBc16b")
machine = this_machine()._replace(threads=2)
run = PreparedReorder(reorder.plan_reorder(src, dst), None, machine)
x, y = np.ones((64, 64, 56), np.float32), np.zeros(dst.nbytes, np.uint8)
for _ in range(300):
    run(x, y)
assert (y == 1).all() and threading.stack_size() == size
""",
    "a fork while workers start": """
import os, signal, threading, numpy as np, reorder
from memdesc import memory_desc
from reorder.cpu import PreparedReorder
from reorder.cpu.host import this_machine
from reorder.cpu.runtime.pool import load_pool
load_pool()  # else jobs may run alone until it is compiled
src, dst = memory_desc((64, 64, 56), "f32", "abc"), memory_desc((64, 64, 56), "f32", "aBc16b")
machine = this_machine()._replace(threads=4)
run = PreparedReorder(reorder.plan_reorder(src, dst), None, machine)
x, y = np.ones(64 * 64 * 56, np.float32), np.zeros(64 * 64 * 56, np.float32)
children = []
def fork(*_):
    if not children:
        children.append(os.fork())
signal.signal(signal.SIGUSR1, fork)
start = threading.Thread.start
def start_and_fork(self):
    start(self)
    signal.raise_signal(signal.SIGUSR1)
code = 1
try:
    threading.Thread.start = start_and_fork
    for _ in range(3):
        y[:] = 0
        run(x, y)
        assert (y == 1).all()
    code = 0
finally:
    if children[0] == 0:
        os._exit(code)
assert os.waitpid(children[0], 0)[1] == 0
""",
}


@pytest.mark.parametrize("name", _PROGRAMS)
def test_unusual_processes(name: str) -> None:
    run_python("-c", _PROGRAMS[name])
