"""The way of nearly every call: two numpy arrays that fit, checked and moved by one compiled function.

It reads the fields of the array objects themselves (numpy's C API, PyArrayObject_fields), which Python
takes longer to ask for than a small reorder lasts. What does not fit in any way is left as it is, for the
long way to move or to refuse.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from numba.core.compiler_lock import global_compiler_lock

from reorder.cpu.runtime.intrinsics import load_int
from reorder.cpu.runtime.jit import compile_callback, inner
from reorder.cpu.runtime.pool import JOB_SIZE, has_workers, share
from reorder.memory.buffers import DATA_SLOT, address_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from reorder.cpu.runtime.pool import Job
    from reorder.memory.buffers import BufferCheck

__all__ = ["enter", "table_of"]

# Fields of an array object, one word each: its type, data, how many dims (an int), dims, dtype, flags (an int).
_TYPE, _DATA, _NDIM, _DIMS, _DTYPE, _FLAGS = (DATA_SLOT + k for k in (-1, 0, 1, 2, 5, 6))
_INT = (1 << 32) - 1

# What is asked of an array: type, flags, bytes, and pairs of a dtype and the size of its elements.
_CHECK_SIZE, _DTYPES = 9, 3
_ALIGNMENT, _SRC, _DST = JOB_SIZE, JOB_SIZE + 1, JOB_SIZE + 1 + _CHECK_SIZE


def table_of(job: Job, src: BufferCheck, dst: BufferCheck) -> NDArray[np.int64]:
    """Return a job, and what it asks of its two arrays, as `enter`'s function reads them."""
    return np.array(
        [*job, max(src.alignment, dst.alignment), *_numbers(src), *_numbers(dst)], np.int64
    )


def _numbers(check: BufferCheck) -> list[int]:
    dtypes = [number for dtype in check.dtypes for number in (id(dtype), dtype.itemsize)]
    return [id(np.ndarray), check.flags, check.min_nbytes, *dtypes]


@cache
def enter() -> Callable[[int, int, int], int] | None:
    """Return the compiled function that runs one job on two numpy arrays, given by their `id`, and the address of its table.

    It returns 0, or has done nothing: an object is no array that fits, the two may overlap, or workers are
    still to be started. None where array objects are not what they are known to be.
    """
    if not _is_known_layout():
        return None
    with global_compiler_lock:
        compiled = compile_callback(
            _enter, numba.int64(numba.int64, numba.int64, numba.int64), "entry"
        )
    entry = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)(compiled.address)
    _owners.append(compiled)
    return entry


# compiled code that lives as long as the process
_owners: list[Any] = []


def _is_known_layout() -> bool:
    """Whether the fields of an array object hold what its attributes say."""
    sample = np.zeros((2, 3), np.int16)
    fields = (ctypes.c_int64 * (_FLAGS + 1)).from_address(id(sample))
    dims = (ctypes.c_int64 * 2).from_address(fields[_DIMS])
    seen = (
        fields[_TYPE],
        fields[_DATA],
        fields[_NDIM] & _INT,
        *dims,
        fields[_DTYPE],
        fields[_FLAGS] & _INT,
    )
    return seen == (id(np.ndarray), address_of(sample), 2, 2, 3, id(sample.dtype), sample.flags.num)


@inner
def _fits(array: int, check: int) -> bool:
    """Whether an object is a numpy array of a legal dtype, with all flags and bytes that are asked for."""
    if load_int(array, _TYPE) != load_int(check, 0):
        return False
    flags = load_int(check, 1)
    if load_int(array, _FLAGS) & flags != flags:
        return False
    dtype = load_int(array, _DTYPE)
    nbytes = 0
    for k in range(_DTYPES):
        if load_int(check, 3 + 2 * k) == dtype:
            nbytes = load_int(check, 4 + 2 * k)
    dims = load_int(array, _DIMS)
    for k in range(load_int(array, _NDIM) & _INT):
        nbytes *= load_int(dims, k)
    return bool(nbytes >= load_int(check, 2) and nbytes > 0)


def _enter(src: int, dst: int, job: int) -> int:
    if not _fits(src, job + 8 * _SRC) or not _fits(dst, job + 8 * _DST) or not has_workers(job):
        return 1
    src_at, dst_at = load_int(src, _DATA), load_int(dst, _DATA)
    apart = dst_at - src_at
    if (apart < load_int(job, _SRC + 2) and -apart < load_int(job, _DST + 2)) or (
        src_at | dst_at
    ) % load_int(job, _ALIGNMENT):
        return 1
    share(src_at, dst_at, job)
    return 0
