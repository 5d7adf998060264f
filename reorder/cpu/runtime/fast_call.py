"""The path of nearly every call: two numpy arrays that fit, checked and moved by one C function.

It reads the fields of the array objects themselves (numpy's C API, PyArrayObject_fields), which
Python takes longer to ask for than a small reorder takes. An array that does not fit, for
whatever reason, is left to the slow path, which moves it or says what is wrong.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numba
import numpy as np
from numba.core.compiler_lock import global_compiler_lock

from reorder.cpu.record import WORD_NBYTES, fields_of, nbytes_of
from reorder.cpu.runtime.intrinsics import load_int
from reorder.cpu.runtime.jit import compile_callback, inner
from reorder.cpu.runtime.job import Job
from reorder.cpu.runtime.worker import has_workers, share_job
from reorder.memory.buffers import DATA_SLOT, address_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from reorder.memory.buffers import BufferCheck

__all__ = ["fast_call", "fast_call_record"]


class _ArrayFields(NamedTuple):
    """An array object from its type on, one word each; `ndim` and `flags` are ints of 32 bits."""

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
    """What an array must be; a dtype and its size for each of `_DTYPES` follow."""

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
    """What both arrays must be."""

    # both start at multiples of this many bytes
    alignment: int


_ARRAY, _CHECK = fields_of(_ArrayFields), fields_of(_ArrayCheck)
_DTYPE, _CALL = fields_of(_LegalDtype), fields_of(_CallCheck)
# Where the first of them lies in an array object, in bytes.
_FIELDS_AT = (DATA_SLOT - _ARRAY.data) * WORD_NBYTES
# The low half of a word.
_INT_MASK = (1 << 32) - 1

# Legal dtypes of an array: its own, that of its bits, and bytes.
_DTYPES = 3
# A record of a call is a `Job`, a `_CallCheck`, and for src and dst an `_ArrayCheck` with dtypes.
_DTYPES_AT, _DTYPE_NBYTES = nbytes_of(_ArrayCheck), nbytes_of(_LegalDtype)
_CALL_AT = nbytes_of(Job)
_SRC_AT = _CALL_AT + nbytes_of(_CallCheck)
_DST_AT = _SRC_AT + _DTYPES_AT + _DTYPES * _DTYPE_NBYTES


def fast_call_record(job: Job, src: BufferCheck, dst: BufferCheck) -> NDArray[np.int64]:
    """Return a job and what it asks of its two arrays, as the compiled function reads them."""
    call = _CallCheck(max(src.alignment, dst.alignment))
    return np.array([*job, *call, *_check_words(src), *_check_words(dst)], np.int64)


def _check_words(check: BufferCheck) -> list[int]:
    dtypes = [_LegalDtype(id(dtype), dtype.itemsize) for dtype in check.dtypes]
    assert len(dtypes) == _DTYPES  # noqa: S101 - compiled code reads this many
    head = _ArrayCheck(id(np.ndarray), check.flags, check.min_nbytes)
    return [*head, *(word for dtype in dtypes for word in dtype)]


@cache
def fast_call() -> Callable[[int, int, int], int] | None:
    """Return the C function that runs one job on two numpy arrays.

    It takes the `id` of both and the address of a `fast_call_record`. It returns 0; or 1 and has
    done nothing: an object is no array that fits, the two may overlap, or workers are still to be
    started. None where array objects are not laid out as expected.
    """
    if not _is_known_layout():
        return None
    with global_compiler_lock:
        compiled = compile_callback(
            _call, numba.int64(numba.int64, numba.int64, numba.int64), "fast call"
        )
    call = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)(compiled.address)
    _owners.append(compiled)
    return call


# compiled code that lives as long as the process
_owners: list[Any] = []


def _is_known_layout() -> bool:
    """Whether the fields of an array object hold what its attributes say."""
    sample = np.zeros((2, 3), np.int16)
    words = ctypes.c_int64 * len(_ArrayFields._fields)
    fields = _ArrayFields(*words.from_address(id(sample) + _FIELDS_AT))
    dims = (ctypes.c_int64 * sample.ndim).from_address(fields.dims)
    found = (
        (fields.type, fields.data, fields.dtype),
        (fields.ndim & _INT_MASK, fields.flags & _INT_MASK),
        tuple(dims),
    )
    return found == (
        (id(np.ndarray), address_of(sample), id(sample.dtype)),
        (sample.ndim, sample.flags.num),
        sample.shape,
    )


@inner
def _fits(array: int, check: int) -> bool:
    """Whether an object is a numpy array of a legal dtype, with all flags and bytes asked for."""
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
    for dim in range(load_int(fields, _ARRAY.ndim) & _INT_MASK):
        nbytes *= load_int(dims, dim)
    return bool(nbytes >= load_int(check, _CHECK.min_nbytes) and nbytes > 0)


def _call(src: int, dst: int, record: int) -> int:
    src_check, dst_check = record + _SRC_AT, record + _DST_AT
    if not _fits(src, src_check) or not _fits(dst, dst_check) or not has_workers(record):
        return 1
    src_at = load_int(src + _FIELDS_AT, _ARRAY.data)
    dst_at = load_int(dst + _FIELDS_AT, _ARRAY.data)
    apart = dst_at - src_at
    may_overlap = apart < load_int(src_check, _CHECK.min_nbytes) and -apart < load_int(
        dst_check, _CHECK.min_nbytes
    )
    if may_overlap or (src_at | dst_at) % load_int(record + _CALL_AT, _CALL.alignment):
        return 1
    share_job(src_at, dst_at, record)
    return 0
