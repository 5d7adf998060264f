"""The fast path of a call: a builtin function of two arrays that checks them and runs a job.

It reads the fields of the array objects directly (numpy's C API, PyArrayObject_fields): reading
them through Python takes longer than a small reorder. It holds the GIL while it reads, since
another thread may assign `a.shape`, which frees the dims, and releases it to run the job. Arrays
that fail the check go to the slow path, which accepts other buffers too, and raises errors.
Tensors whose class exports them by a C function (DLPack 1.3, DLPackExchangeAPI) are read likewise.

Every builtin is the same compiled function with its own table, which Python passes as `self`. What
the function needs from Python is in the table too, so its machine code refers to no symbols.
"""

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from memdesc.tuples import NamedTuple
from reorder.cpu.machine import LINE_NBYTES
from reorder.cpu.runtime.intrinsics import INT_MASK, call_c, call_for_word, load_int
from reorder.cpu.runtime.jit import FAST_CALL, compiled_at
from reorder.cpu.runtime.pool import function_at
from reorder.cpu.runtime.worker import JOB, POOL, is_ready, run_steps
from reorder.cpu.tables import WORD_NBYTES, Words, fields_of, nbytes_of
from reorder.memory.buffers import DATA_SLOT, ArrayView, BufferCheck, address_of
from reorder.memory.dlpack import CPU_DEVICE, IS_COPIED, READ_ONLY, dlpack_dtype, exporter_at


class _ArrayFields(NamedTuple):
    """The words of an array object, from its type on; `ndim` and `flags` are the low halves."""

    type: int
    data: int
    ndim: int
    # addresses of the dims and of the strides
    dims: int
    strides: int
    base: int
    dtype: int
    flags: int


class _TensorFields(NamedTuple):
    # the major version is the low half
    version: int
    context: int
    # address of the function that frees the tensor, or 0
    deleter: int
    flags: int
    data: int
    device: int
    # the number of dims is the low half; above it are code, bits and lanes
    ndim_dtype: int
    # addresses of the dims and of the strides, in elements
    dims: int
    strides: int
    # from `data` to the first element
    byte_offset: int


class _ArrayCheck(NamedTuple):
    """Requirements on one array."""

    # address of the type: numpy's arrays, or a class of tensors
    type: int
    # addresses of the dtypes that an array may have: that of the elements or that of their bits,
    # both of `itemsize` bytes, or uint8
    own: int
    bits: int
    itemsize: int
    raw: int
    # for tensors, the address of the function that exports one, or 0
    exporter: int
    # the flags that must be set; for a tensor, those that must not be
    flags: int
    # the address of the buffer is a multiple of this
    alignment: int
    # bytes of the buffer that the reorder touches, and bytes from the data pointer to the buffer
    min_nbytes: int
    shift: int
    # where in the table the only legal number of dims (of a tensor, `ndim_dtype`), sizes and
    # strides are; 0 for any array of at least `min_nbytes`
    shown: int


class _CallCheck(NamedTuple):
    """The job, requirements on both arrays, and what a call needs of Python's C API."""

    # address of a table with the address of the job for each place of dst in its cache line. If an
    # entry is 0, the call does nothing, and the slow path may prepare the job of that place
    jobs: int
    # addresses of PyEval_SaveThread, which releases the GIL, or 0 to keep it; of
    # PyEval_RestoreThread, Py_IncRef and PyErr_Clear
    release: int
    acquire: int
    incref: int
    clear: int
    # addresses of what the call returns: None if it has run the job, False if it did nothing
    done: int
    undone: int


_ARRAY, _CHECK = fields_of(_ArrayFields), fields_of(_ArrayCheck)
_TENSOR = fields_of(_TensorFields)
_CALL = fields_of(_CallCheck)
# Byte offset of `_ArrayFields` in an array object.
_FIELDS_AT = (DATA_SLOT - _ARRAY.data) * WORD_NBYTES

# The table of a call is a `_CallCheck`, for src and dst an `_ArrayCheck` each, then views.
_SRC_AT = nbytes_of(_CallCheck)
_DST_AT = _SRC_AT + nbytes_of(_ArrayCheck)
_VIEWS_AT = _DST_AT + nbytes_of(_ArrayCheck)
# Fewer bytes of src and dst than this are moved in less time than other threads need to take the
# GIL.
_MIN_RELEASED = 16 << 10
# flags of arrays that can be written, NPY_ARRAY_WRITEABLE of numpy's C API; and of tensors that
# cannot, or are copies
_WRITABLE, _NOT_WRITTEN = 0x400, READ_ONLY | IS_COPIED
# The only version of tensors; later ones may differ after the flags.
_VERSION = 1
_CPU = CPU_DEVICE[0]


def make_fast_call(
    jobs: Words,
    checks: tuple[BufferCheck, BufferCheck],
    views: tuple[ArrayView | None, ArrayView | None] = (None, None),
) -> Callable[[Any, Any], object] | None:
    """Return the builtin function of src and dst that runs the job of a table of jobs.

    Without a view, a side takes contiguous arrays as `BufferCheck` does. The function does nothing
    if an object is not such an array, if the two may overlap, or if workers must be started. The
    table must outlive it. Returns None in a free-threaded Python.
    """
    method = fast_call()
    if method is None:
        return None
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return make(ctypes.addressof(method), _call_table(jobs, checks, views), None)  # type: ignore[no-any-return] # a builtin


def _call_table(
    jobs: Words,
    checks: tuple[BufferCheck, BufferCheck],
    views: tuple[ArrayView | None, ArrayView | None],
) -> Words:
    nbytes = sum(check.min_nbytes for check in checks)
    call = _CallCheck(
        address_of(jobs),
        0 if nbytes < _MIN_RELEASED else function_at(ctypes.pythonapi.PyEval_SaveThread),
        function_at(ctypes.pythonapi.PyEval_RestoreThread),
        function_at(ctypes.pythonapi.Py_IncRef),
        function_at(ctypes.pythonapi.PyErr_Clear),
        id(None),
        id(False),  # noqa: FBT003 - its address
    )
    words: list[int] = []
    listed: list[int] = []
    for check, view in zip(checks, views, strict=True):
        own, bits, raw = check.dtypes
        cls: type = np.ndarray
        exporter, flags, shift, shown_at = 0, check.flags, 0, 0
        if view is not None:
            cls, exporter = view.kind, exporter_at(view.kind)
            own = bits = raw = view.dtype
            flags, shift = check.write and _WRITABLE, view.shift
            shown_at = _VIEWS_AT + WORD_NBYTES * len(listed)
            head, strides = len(view.shape), view.strides
            if exporter:
                flags = check.write and _NOT_WRITTEN
                head |= dlpack_dtype(view.dtype) << 32
                strides = tuple(stride // view.dtype.itemsize for stride in strides)
            listed += [head, *view.shape, *strides]
        dtypes = id(own), id(bits), own.itemsize, id(raw)
        least = check.alignment, check.min_nbytes
        words += _ArrayCheck(id(cls), *dtypes, exporter, flags, *least, shift, shown_at)
    return np.array([*call, *words, *listed], np.int64)


class _Method(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_FASTCALL = 0x80  # METH_FASTCALL: the arguments are an array and their number


# The one method, kept until the process ends: builtin functions have its address.
_methods: dict[str, _Method] = {}


def fast_call() -> _Method | None:
    """Return the function as Python's C API takes it; None in a free-threaded Python."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None
    if FAST_CALL not in _methods:
        method = _Method(b"reorder", compiled_at(_call, FAST_CALL), _FASTCALL, None)
        # if several threads come here at the same time, one of them sets it
        _methods.setdefault(FAST_CALL, method)
    return _methods[FAST_CALL]


def _call(this: int, arguments: int, count: int) -> int:
    table = load_int(this + _FIELDS_AT, _ARRAY.data)
    result: int = load_int(table, _CALL.undone)
    if count == 2:  # noqa: PLR2004 - src and dst
        src, dst = load_int(arguments, 0), load_int(arguments, 1)
        of_src, of_dst = _export(src, table + _SRC_AT, table), _export(dst, table + _DST_AT, table)
        src_at = _buffer_of(src, table + _SRC_AT, table, of_src)
        dst_at = _buffer_of(dst, table + _DST_AT, table, of_dst)
        if src_at != 0 and dst_at != 0 and _runs(src_at, dst_at, table):
            result = load_int(table, _CALL.done)
        _free(of_src)
        _free(of_dst)
    call_c(load_int(table, _CALL.incref), (result,))
    return result


def _export(thing: int, check: int, table: int) -> int:
    """Return the address of a tensor's export, which must be freed; 0 if there is none."""
    exporter = load_int(check, _CHECK.exporter)
    if exporter == 0 or load_int(thing + _FIELDS_AT, _ARRAY.type) != load_int(check, _CHECK.type):
        return 0
    tensor = call_for_word(exporter, thing)
    if tensor == 0:
        call_c(load_int(table, _CALL.clear), (0,))
    return tensor


def _free(tensor: int) -> None:
    """Free an export, if there is one."""
    if tensor != 0 and load_int(tensor, _TENSOR.deleter) != 0:
        call_c(load_int(tensor, _TENSOR.deleter), (tensor,))


def _buffer_of(thing: int, check: int, table: int, tensor: int) -> int:
    """Return where the buffer of an array or of an exported tensor starts; 0 if it does not fit."""
    fields = thing + _FIELDS_AT
    at = 0
    if tensor != 0:
        at = _tensor_data(tensor, check, table)
    elif (
        load_int(fields, _ARRAY.type) == load_int(check, _CHECK.type)
        and load_int(check, _CHECK.exporter) == 0
        and _fits(fields, check, table)
    ):
        at = load_int(fields, _ARRAY.data)
    return at + load_int(check, _CHECK.shift) if at != 0 else 0


def _fits(fields: int, check: int, table: int) -> bool:
    """Whether an array has a legal dtype, the required flags and the size."""
    flags = load_int(check, _CHECK.flags)
    if load_int(fields, _ARRAY.flags) & flags != flags:
        return False
    dtype = load_int(fields, _ARRAY.dtype)
    nbytes = 0
    if dtype == load_int(check, _CHECK.own) or dtype == load_int(check, _CHECK.bits):
        nbytes = load_int(check, _CHECK.itemsize)
    elif dtype == load_int(check, _CHECK.raw):
        nbytes = 1
    ndim, dims = load_int(fields, _ARRAY.ndim) & INT_MASK, load_int(fields, _ARRAY.dims)
    shown = load_int(check, _CHECK.shown)
    if shown != 0:
        strides = load_int(fields, _ARRAY.strides)
        return bool(nbytes > 0 and _matches(ndim, dims, strides, table + shown))
    for dim in range(ndim):
        nbytes *= load_int(dims, dim)
    return bool(nbytes >= load_int(check, _CHECK.min_nbytes) and nbytes > 0)


def _tensor_data(tensor: int, check: int, table: int) -> int:
    """Return where an exported tensor starts; 0 if it is not the one shown."""
    if (
        load_int(tensor, _TENSOR.version) & INT_MASK == _VERSION
        and load_int(tensor, _TENSOR.flags) & load_int(check, _CHECK.flags) == 0
        and load_int(tensor, _TENSOR.device) & INT_MASK == _CPU
        and load_int(tensor, _TENSOR.data) != 0
        and load_int(tensor, _TENSOR.strides) != 0
        and _matches(
            load_int(tensor, _TENSOR.ndim_dtype),
            load_int(tensor, _TENSOR.dims),
            load_int(tensor, _TENSOR.strides),
            table + load_int(check, _CHECK.shown),
        )
    ):
        return load_int(tensor, _TENSOR.data) + load_int(tensor, _TENSOR.byte_offset)
    return 0


def _matches(head: int, dims: int, strides: int, shown: int) -> bool:
    """Whether an array has the number of dims, the sizes and the strides of a view."""
    if load_int(shown, 0) != head:
        return False
    ndim = head & INT_MASK
    for dim in range(ndim):
        if load_int(shown, 1 + dim) != load_int(dims, dim):
            return False
        if load_int(shown, 1 + ndim + dim) != load_int(strides, dim):
            return False
    return True


def _runs(src_at: int, dst_at: int, table: int) -> bool:
    """Run the job on buffers at two addresses if the checks allow it; returns whether it ran."""
    src_check, dst_check = table + _SRC_AT, table + _DST_AT
    distance = dst_at - src_at
    may_overlap = distance < load_int(src_check, _CHECK.min_nbytes) and -distance < load_int(
        dst_check, _CHECK.min_nbytes
    )
    if may_overlap or src_at % load_int(src_check, _CHECK.alignment) != 0:
        return False
    if dst_at % load_int(dst_check, _CHECK.alignment) != 0:
        return False
    job = load_int(load_int(table, _CALL.jobs), dst_at % LINE_NBYTES)
    if job == 0 or not is_ready(job):
        return False
    share = load_int(load_int(job, JOB.pool), POOL.share_at)
    release = load_int(table, _CALL.release)
    state = 0
    if release != 0:
        state = call_c(release, (0,))
    if load_int(job, JOB.workers) == 0:
        # this needs no code of the pool
        run_steps(job, src_at, dst_at, 0, load_int(job, JOB.steps))
    else:
        call_c(share, (src_at, dst_at, job))
    if release != 0:
        call_c(load_int(table, _CALL.acquire), (state,))
    return True
