"""Memory of freed results becomes that of new ones."""

import gc
import mmap
import os
import sys
from _thread import interrupt_main
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reorder
from reorder.memory.allocation import _POOL, Pool
from reorder.memory.buffers import address_of
from tests.programs import run_python

keeps_memory = pytest.mark.skipif(
    not hasattr(mmap, "MADV_FREE"), reason="the system cannot take freed memory back"
)
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

X = np.arange(3000 * 1500, dtype=np.float32).reshape(3000, 1500)


@pytest.fixture(autouse=True)
def no_blocks_of_earlier_tests() -> None:
    if _POOL is not None:
        _POOL.clear()


@pytest.fixture
def pool() -> Pool:
    return Pool(limit=64 << 20, advice=getattr(mmap, "MADV_FREE", 0))


class _Reviving:
    """Garbage in a cycle that lives on."""

    def __init__(self, held: Any, revived: list[Any]) -> None:
        self.cycle, self.held, self.revived = self, held, revived

    def __del__(self) -> None:
        self.revived.append(self.held)


@keeps_memory
@pytest.mark.parametrize(
    "hold",
    [
        lambda data: data,
        # only the object that owns the memory, of which an array can be made again
        lambda data: data.base,
        memoryview,
        lambda data: memoryview(data.base),
        lambda data: np.from_dlpack(data)[1:],
    ],
)
def test_memory_that_a_finalizer_revives_is_not_that_of_a_later_result(
    hold: Callable[[Any], Any], pool: Pool
) -> None:
    revived: list[Any] = []
    data = pool.new(8 << 20)
    data[:] = 7
    address = address_of(data)
    _Reviving(hold(data), revived)
    del data
    gc.collect()
    others = [pool.new(8 << 20) for _ in range(2)]
    assert address not in {address_of(other) for other in others}
    for other in others:
        other[:] = 9
    assert (np.asarray(revived[0])[: 4 << 20] == 7).all()
    # nobody has it any more
    revived.clear()
    gc.collect()
    assert address_of(pool.new(8 << 20)) == address


def test_an_interrupt_as_a_result_is_freed_is_not_lost() -> None:
    freed = [reorder.reorder(X, "ba").data]
    # neither call runs Python code, which would handle the interrupt before the memory is freed
    calls = map(methodcaller("__call__"), (interrupt_main, freed.clear))
    with pytest.raises(KeyboardInterrupt):
        deque(calls, maxlen=0)


@keeps_memory
def test_threads_never_share_memory(pool: Pool) -> None:
    sizes = [nbytes << 20 for nbytes in (1, 2, 3)]

    def work(number: int) -> None:
        for k in range(100):
            held = [pool.new(sizes[(number + k) % 3]) for _ in range(2)]
            for each in held:
                each[:] = number
            assert all((each == number).all() for each in held)
            del each, held

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))


@keeps_memory
def test_of_more_than_the_limit_the_blocks_used_last_are_kept(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [pool.new(20 << 20) for _ in range(5)]
    addresses = [address_of(each) for each in held]
    assert pool.nbytes == 60 << 20
    held.clear()
    assert pool.nbytes == 60 << 20
    # huge pages are not needed
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    again = [address_of(each) for each in [pool.new(20 << 20) for _ in range(3)]]
    assert again == addresses[:1:-1]
    assert [pool.nbytes, pool.clear(), pool.nbytes, pool.clear()] == [60 << 20, True, 0, False]
    address = address_of(pool.new(3 << 20))
    assert address_of(pool.new(3 << 20)) == address
    # memory that the system cannot take back is not kept
    pool = Pool(limit=64 << 20, advice=12345)
    with pytest.raises(OSError, match="Invalid argument"):
        pool.new(8 << 20)
    assert pool.nbytes == 0


_SIZES = """
import resource, numpy as np, memdesc, reorder

def in_mib(key, path="/proc/self/status"):
    with open(path) as file:
        return sum(int(row.split()[1]) for row in file if row.startswith(key)) / 1024

def result(mib):
    x = np.broadcast_to(np.float32(1), (mib, 1 << 18))
    return reorder.reorder(x, "ab", threads=1)

def free_and_limit():
    results = [result(60) for _ in range(4)]
    del results
    limit = int(in_mib("VmSize") + 30) << 20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

result(1), result(300)
"""


def run_with_sizes(source: str) -> str:
    return run_python("-c", _SIZES + source).stdout


@linux
def test_a_process_keeps_at_most_512_mib_of_what_it_freed() -> None:
    source = """
before = in_mib("VmSize")
result(1024)
after_one = in_mib("VmSize") - before
results = [result(60) for _ in range(10)]
del results
print(after_one, in_mib("VmSize") - before)
"""
    after_one, after_many = map(float, run_with_sizes(source).split())
    assert abs(after_one) < 8
    assert after_many < 512 + 16


@linux
@keeps_memory
def test_the_system_can_take_freed_memory_back() -> None:
    rows = Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines()
    if not any(row.startswith("LazyFree:") for row in rows):
        pytest.skip("the kernel does not tell")
    source = """
x = result(64)
live = in_mib("LazyFree:", "/proc/self/smaps")
del x
print(live, in_mib("LazyFree:", "/proc/self/smaps"))
"""
    live, freed = map(float, run_with_sizes(source).split())
    assert live < 1
    assert freed >= 60


@linux
@keeps_memory
def test_freed_memory_is_given_up_before_a_new_result_fails() -> None:
    source = """
free_and_limit()
assert result(200).numpy().min() == 1
"""
    run_with_sizes(source)
    source = """
free_and_limit()
assert not reorder.Memory(memdesc.memory_desc((200 << 20,), "u8")).data.any()
try:
    reorder.Memory(memdesc.memory_desc((900 << 20,), "u8"))
except memdesc.errors.OutOfMemoryError as error:
    print(error)
"""
    assert f"{900 << 20} bytes are more memory" in run_with_sizes(source)


@keeps_memory
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_keeps_live_results_and_no_freed_ones() -> None:
    source = """
import os, numpy as np, reorder
from reorder.memory.allocation import _POOL
x = np.arange(3000 * 1500, dtype=np.float32).reshape(3000, 1500)
live = reorder.reorder(x, "ba", threads=1)
freed = reorder.reorder(x, "ba", threads=1)
address = freed.data.ctypes.data
del freed
child = os.fork()
if child == 0:
    code = 1
    try:
        assert not _POOL.nbytes
        mine = reorder.reorder(-x, "ba", threads=1)
        assert (live.numpy() == x).all()
        live.data[:] = 0
        del live
        mine = reorder.reorder(-x, "ba", threads=1)
        assert (mine.numpy() == -x).all()
        code = 0
    finally:
        os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert (live.numpy() == x).all()
again = reorder.reorder(x + 1, "ba", threads=1)
assert again.data.ctypes.data == address
assert (again.numpy() == x + 1).all() and (live.numpy() == x).all()
"""
    run_python("-W", "ignore::DeprecationWarning", "-c", source)


def test_results_that_live_until_the_end_of_the_process_end_silently() -> None:
    source = """
import atexit, logging, sys, threading, types, numpy as np, reorder
x = np.zeros((3000, 1500), np.float32)
last = reorder.reorder(x, "ba")
logging.kept = reorder.reorder(x, "ba")                    # of a module imported earlier
later = types.ModuleType("later")
sys.modules["later"] = later
later.kept = [reorder.reorder(x, "ba")]
later.kept.append(later.kept)
class Ends:
    def __del__(self):
        self.kept = None
ends = Ends()
ends.kept = reorder.reorder(x, "ba").numpy()
ends.self = ends
atexit.register(lambda m: reorder.reorder(m, "ab"), reorder.reorder(x, "ba"))
threading.Thread(target=lambda m: m.numpy(), args=(reorder.reorder(x, "ba"),)).start()
"""
    ran = run_python("-X", "dev", "-W", "error", "-c", source)
    assert (ran.stdout, ran.stderr) == ("", "")
