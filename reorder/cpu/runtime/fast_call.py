"""The fast path of a call: one compiled function checks two numpy arrays and runs the job.

It reads the fields of the array objects directly (numpy's C API, PyArrayObject_fields): reading
them through Python takes longer than a small reorder. It holds the GIL while it reads, since
another thread may assign `a.shape`, which frees the dims, and releases it to run the job. Arrays
that fail the check go to the slow path, which accepts more kinds of buffers, and raises errors.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reorder.cpu.runtime.intrinsics import call_c, load_int
from reorder.cpu.runtime.jit import c_function, inner
from reorder.cpu.runtime.job import Job
from reorder.cpu.runtime.pool_block import INT_MASK, function_at
from reorder.cpu.runtime.worker import is_ready, share_job
from reorder.cpu.tables import WORD_NBYTES, fields_of, nbytes_of
from reorder.memory.buffers import DATA_SLOT, BufferCheck, address_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


class _ArrayFields(NamedTuple):
    """The fields of an array object, starting with its type, a word each.

    `ndim` and `flags` are C ints: the low halves of their words.
    """

    type: int
    data: int
    ndim: int
    # addresses of the dims and of the strides
    dims: int
    strides: int
    base: int
    dtype: int
    flags: int


class _ArrayCheck(NamedTuple):
    """Requirements on one array; `_DTYPES` entries of `_LegalDtype` follow."""

    # address of numpy's type of arrays
    type: int
    # the flags that must be set
    flags: int
    min_nbytes: int


class _LegalDtype(NamedTuple):
    """A dtype that an array may have."""

    # address of the object, and bytes of an element
    dtype: int
    itemsize: int


class _CallCheck(NamedTuple):
    """Requirements on both arrays, and the functions of Python's C API that a call needs."""

    # the address of either is a multiple of this
    alignment: int
    # addresses of PyEval_SaveThread, which releases the GIL, and of PyEval_RestoreThread
    release: int
    acquire: int


_ARRAY, _CHECK = fields_of(_ArrayFields), fields_of(_ArrayCheck)
_DTYPE, _CALL = fields_of(_LegalDtype), fields_of(_CallCheck)
# Byte offset of `_ArrayFields` in an array object.
_FIELDS_AT = (DATA_SLOT - _ARRAY.data) * WORD_NBYTES

# Legal dtypes of an array: that of the descriptor, that of its bits, and uint8.
_DTYPES = 3
# The table of a call is a `Job`, a `_CallCheck`, and for src and dst an `_ArrayCheck` with dtypes.
_DTYPES_AT, _DTYPE_NBYTES = nbytes_of(_ArrayCheck), nbytes_of(_LegalDtype)
_CALL_AT = nbytes_of(Job)
_SRC_AT = _CALL_AT + nbytes_of(_CallCheck)
_DST_AT = _SRC_AT + _DTYPES_AT + _DTYPES * _DTYPE_NBYTES


def fast_call_table(job: Job, src: BufferCheck, dst: BufferCheck) -> NDArray[np.int64]:
    """Return the table of a call: a job, and the requirements on its two arrays."""
    call = _CallCheck(
        max(src.alignment, dst.alignment),
        function_at(ctypes.pythonapi.PyEval_SaveThread),
        function_at(ctypes.pythonapi.PyEval_RestoreThread),
    )
    return np.array([*job, *call, *_check_words(src), *_check_words(dst)], np.int64)


def _check_words(check: BufferCheck) -> list[int]:
    dtypes = [_LegalDtype(id(dtype), dtype.itemsize) for dtype in check.dtypes]
    assert len(dtypes) == _DTYPES  # noqa: S101 - compiled code reads this many
    head = _ArrayCheck(id(np.ndarray), check.flags, check.min_nbytes)
    return [*head, *(word for dtype in dtypes for word in dtype)]


@cache
def fast_call() -> Callable[[int, int, int], int] | None:
    """Return the C function that runs one job on two numpy arrays.

    It takes the `id` of both and the address of a `fast_call_table`. It returns 0, or 1 if it did
    nothing: because an object is not an array that meets the requirements, the arrays may
    overlap, or workers must be started first. None if the layout of array objects is unknown.
    """
    if not _is_known_layout():
        return None
    # the GIL is held when it starts, and when it returns
    call: Callable[[int, int, int], int] = c_function(_call, "fast call", ctypes.PYFUNCTYPE)
    return call


def _is_known_layout() -> bool:
    """Whether the fields of an array object are where `_ArrayFields` expects them."""
    sample = np.zeros((2, 3), np.int16)
    words = ctypes.c_int64 * len(_ArrayFields._fields)
    fields = _ArrayFields(*words.from_address(id(sample) + _FIELDS_AT))
    dims = (ctypes.c_int64 * sample.ndim).from_address(fields.dims)
    found = (
        (fields.type, fields.data, fields.dtype),
        (fields.ndim & INT_MASK, fields.flags & INT_MASK),
        tuple(dims),
    )
    return found == (
        (id(np.ndarray), address_of(sample), id(sample.dtype)),
        (sample.ndim, sample.flags.num),
        sample.shape,
    )


@inner
def _fits(array: int, check: int) -> bool:
    """Whether an object is a numpy array of a legal dtype with the required flags and size."""
    fields = array + _FIELDS_AT
    if load_int(fields, _ARRAY.type) != load_int(check, _CHECK.type):
        return False
    flags = load_int(check, _CHECK.flags)
    if load_int(fields, _ARRAY.flags) & flags != flags:
        return False
    dtype = load_int(fields, _ARRAY.dtype)
    nbytes = 0
    for k in range(_DTYPES):
        legal = check + _DTYPES_AT + _DTYPE_NBYTES * k
        if load_int(legal, _DTYPE.dtype) == dtype:
            nbytes = load_int(legal, _DTYPE.itemsize)
    dims = load_int(fields, _ARRAY.dims)
    for dim in range(load_int(fields, _ARRAY.ndim) & INT_MASK):
        nbytes *= load_int(dims, dim)
    return bool(nbytes >= load_int(check, _CHECK.min_nbytes) and nbytes > 0)


def _call(src: int, dst: int, table: int) -> int:
    src_check, dst_check = table + _SRC_AT, table + _DST_AT
    if not _fits(src, src_check) or not _fits(dst, dst_check) or not is_ready(table):
        return 1
    src_at = load_int(src + _FIELDS_AT, _ARRAY.data)
    dst_at = load_int(dst + _FIELDS_AT, _ARRAY.data)
    distance = dst_at - src_at
    may_overlap = distance < load_int(src_check, _CHECK.min_nbytes) and -distance < load_int(
        dst_check, _CHECK.min_nbytes
    )
    call = table + _CALL_AT
    if may_overlap or (src_at | dst_at) % load_int(call, _CALL.alignment):
        return 1
    state = call_c(load_int(call, _CALL.release), (0,))
    share_job(src_at, dst_at, table)
    call_c(load_int(call, _CALL.acquire), (state,))
    return 0
