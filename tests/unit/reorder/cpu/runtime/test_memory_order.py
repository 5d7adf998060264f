"""The functions of the pool, run in every order that the memory model of C11 allows.

The functions are those of worker.py, as Python: each call of an intrinsic becomes an access for
`tests.memory_model`. An interpreter reads src and writes its step of dst, so every job must see
what its caller wrote before, no step may be lost or run twice, and the caller must see all results.
"""

import ast
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from reorder.cpu.runtime import worker
from reorder.cpu.runtime.worker import JOB, POOL, THREAD, THREAD_NBYTES, THREADS_AT, Job
from reorder.cpu.tables import WORD_NBYTES
from tests.memory_model import Access, DataRaceError, Thread, search

# addresses of the block, of locks, of the jobs and of src and dst of each job
_POOL, _LOCKS, _JOBS, _SRC, _DST, _BOUNDS = (k << 20 for k in range(1, 7))
_YIELD, _SLEEP, _ACQUIRE, _RELEASE, _INTERPRETER = range(1, 6)
_STEPS = 2


def _load(kind: str, *, is_ordered: bool) -> Callable[..., Access]:
    return lambda at, word: Access(kind, at + WORD_NBYTES * word, is_ordered=is_ordered)


def _store(kind: str, *, is_ordered: bool) -> Callable[..., Access]:
    return lambda at, word, value: Access(
        kind, at + WORD_NBYTES * word, value, is_ordered=is_ordered
    )


def _exchange(*, is_ordered: bool) -> Callable[..., Access]:
    return lambda at, word, expected, value: Access(
        "exchange", at + WORD_NBYTES * word, value, expected, is_ordered
    )


_ACCESSES: dict[str, Callable[..., Access]] = {
    "load_int": _load("read", is_ordered=False),
    "store_int": _store("write", is_ordered=False),
    "load_shared": _load("load", is_ordered=True),
    "store_shared": _store("store", is_ordered=True),
    "exchange_shared": _exchange(is_ordered=True),
    "pause": lambda _: Access("wait"),
}


def _call_c(function: int, arguments: tuple[int, ...]) -> Thread:
    if function == _INTERPRETER:
        yield from _run_interpreter(arguments)
    elif function == _ACQUIRE:
        yield Access("lock", arguments[0])
    elif function == _RELEASE:
        yield Access("unlock", arguments[0])
    else:
        yield Access("wait")


def _run_interpreter(call: tuple[int, ...]) -> Thread:
    src, dst, _, _, begin, end, _, _ = call
    for step in range(begin, end):
        value = yield Access("read", src)
        done = yield Access("read", dst + WORD_NBYTES * step)
        yield Access("write", dst + WORD_NBYTES * step, done + value)


class _AsThreads(ast.NodeTransformer):
    """Functions as generators: intrinsics yield an access, and functions yield those of others."""

    def __init__(self, functions: set[str]) -> None:
        self._functions = functions

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in _ACCESSES:
            return ast.Yield(node)
        return ast.YieldFrom(node) if name in self._functions else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.decorator_list, node.returns = [], None
        return node


def _functions(**accesses: Callable[..., Access]) -> dict[str, Any]:
    """Return the functions of worker.py as threads; `accesses` replace some of their accesses."""
    tree = ast.parse(inspect.getsource(worker))
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    tree = ast.fix_missing_locations(_AsThreads({*defined, "call_c"}).visit(tree))
    names = {**vars(worker), **_ACCESSES, "call_c": _call_c, **accesses}
    exec(compile(tree, worker.__file__, "exec"), names)
    return names


def _search(functions: dict[str, Any], callers: int, jobs: int, workers: int) -> int:
    """Run callers that share some jobs each, one after the other, and the workers."""
    pool = {POOL.spins: 1, POOL.started: workers, POOL.yield_at: _YIELD}
    pool |= {POOL.sleep_at: _SLEEP, POOL.acquire_at: _ACQUIRE, POOL.release_at: _RELEASE}
    memory = {_POOL + WORD_NBYTES * field: value for field, value in pool.items()}
    for thread in range(1, workers + 1):
        fields = _POOL + THREADS_AT + THREAD_NBYTES * thread
        memory[fields + WORD_NBYTES * THREAD.lock] = _LOCKS + WORD_NBYTES * thread
    memory |= {_BOUNDS + WORD_NBYTES * k: k for k in range(_STEPS + 1)}
    job = Job(_INTERPRETER, 0, 0, _STEPS, 0, 1, _BOUNDS, _STEPS, workers, _POOL)

    def call(caller: int) -> Thread:
        src, dst, job_at = (base + 0x10000 * caller for base in (_SRC, _DST, _JOBS))
        total = 0
        for number in range(1, jobs + 1):
            for field, value in zip(JOB, job, strict=True):
                yield Access("write", job_at + WORD_NBYTES * field, value)
            yield Access("write", src, number)
            yield from functions["share_job"](src, dst, job_at)
            total += number
            for step in range(_STEPS):
                found = yield Access("read", dst + WORD_NBYTES * step)
                assert found == total, (caller, number, step, found)

    def work(thread: int) -> Thread:
        yield from functions["serve"](_POOL, thread, 1)

    threads = [lambda k=k: call(k) for k in range(callers)]
    threads += [lambda k=k: work(k) for k in range(1, workers + 1)]
    return search(threads, memory, callers)


@pytest.mark.slow
def test_a_job_is_whole_in_every_order() -> None:
    assert _search(_functions(), callers=1, jobs=1, workers=1) > 400


@pytest.mark.campaign
@pytest.mark.parametrize(("callers", "jobs", "workers"), [(1, 2, 1), (1, 3, 1), (2, 1, 1)])
def test_jobs_are_whole_in_every_order(callers: int, jobs: int, workers: int) -> None:
    states = _search(_functions(), callers, jobs, workers)
    print(f"{states} states of {callers} callers, {jobs} jobs each, {workers} workers")


def _store_weakly(*, of_pool: bool) -> Callable[..., Access]:
    """Return stores that publish nothing: of fields of the pool, or of those of threads."""
    return lambda at, word, value: Access(
        "store", at + WORD_NBYTES * word, value, is_ordered=(at == _POOL) != of_pool
    )


def _load_by_chance(at: int, word: int) -> Access:
    """Return a load of a field of a thread that is not atomic."""
    return (_load("load", is_ordered=True) if at == _POOL else _ACCESSES["load_int"])(at, word)


_WEAKER = {
    "a state that publishes no job": {"store_shared": _store_weakly(of_pool=True)},
    "a state that is read without what was published": {
        "load_shared": _load("load", is_ordered=False)
    },
    "results that are not published": {"store_shared": _store_weakly(of_pool=False)},
    "turns and counters that are read by chance": {"load_shared": _load_by_chance},
}


@pytest.mark.slow
@pytest.mark.parametrize("weaker", _WEAKER)
def test_weaker_orders_are_found(weaker: str) -> None:
    with pytest.raises(DataRaceError):
        _search(_functions(**_WEAKER[weaker]), 1, 2, 1)
