"""Jobs in parallel regions of an OpenMP runtime, for users who ask for them by `MEMDESC_OPENMP=1`.

After a parallel region of another library its threads spin for some milliseconds, on all cores.
Meanwhile a job on threads of ours has to share the cores with them, and a job on theirs starts at
once. Once they sleep, they take longer to wake than ours. Only functions that OpenMP and the GNU
runtime publish are called; Intel's and LLVM's have them too.
"""

import ctypes
import os
import re
from contextlib import suppress
from pathlib import Path

from reorder.cpu.runtime.jit import compiled_at
from reorder.cpu.runtime.pool_block import ADDRESS, POOL, function_at, publish
from reorder.cpu.runtime.worker import enter_region

_LIBRARY = re.compile(r"/\S*/lib(?:gomp|iomp5|omp)\b[^/\s]*\.so[^/\s]*$", re.MULTILINE)
_MAPS = Path("/proc/self/maps")
# What the words of the pool have the addresses of.
_FUNCTIONS = (
    (POOL.number_at, "omp_get_thread_num"),
    (POOL.inside_at, "omp_in_parallel"),
    (POOL.region_at, "GOMP_parallel"),
)


def load_openmp() -> None:
    """Let jobs run in regions of the first OpenMP runtime of this process."""
    enter = compile_region()
    for path in _runtimes():
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            addresses = [(field, function_at(library[name])) for field, name in _FUNCTIONS]
            # the last one tells other threads that the rest is there
            for field, address in ((POOL.enter_at, enter), *addresses):
                publish(ADDRESS, field, address)
            return


def compile_region() -> int:
    """Return the address of the function that each thread of a region runs."""
    return compiled_at(enter_region, "thread pool: region")


def _runtimes() -> list[str]:
    """Return the files of the OpenMP runtimes that are loaded; none where the system lists none."""
    with suppress(OSError):
        text = _MAPS.read_text(encoding="utf-8", errors="replace")
        return list(dict.fromkeys(match.group() for match in _LIBRARY.finditer(text)))
    return []
