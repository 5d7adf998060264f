"""Where memory of callers lies: in which allocation, from which byte, and where on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl

from memdesc import MemdescError
from reorder.opencl.allocation import is_released_error

__all__ = ["ON_HOST", "host_view", "place_of"]

# The allocation of all memory that has addresses on the host: buffers that use an array, and SVM.
# Its bytes are numbered by address. No memory object has this pointer.
ON_HOST = 0


def place_of(memory: Any) -> tuple[int, int]:
    """Return the allocation that contains memory, and the first byte of the memory there.

    Raises
    ------
    MemdescError
        If it is a part of a buffer that was released.
    """
    if isinstance(memory, cl.SVMPointer):
        return ON_HOST, int(memory.svm_ptr)
    try:
        parent = memory.associated_memobject
    except cl.Error as error:
        if not is_released_error(error):
            raise
        msg = (
            "src or dst is a part of a Buffer that was released; keep the whole one as long as its "
            "parts are used"
        )
        raise MemdescError(msg) from None
    whole, start = (memory, 0) if parent is None else (parent, memory.offset)
    if whole.flags & cl.mem_flags.USE_HOST_PTR:
        return ON_HOST, start + int(whole.get_host_array((1,), np.uint8).ctypes.data)
    return whole.int_ptr, start


def host_view(memory: cl.SVMPointer, start: int, nbytes: int) -> cl.SVM[Any]:
    """Return a part of SVM for copies by the runtime; the host may not be able to read it."""
    part = _Bytes()
    part.__array_interface__ = {
        "version": 3,
        "typestr": "|u1",
        "shape": (nbytes,),
        "data": (int(memory.svm_ptr) + start, False),
    }
    return cl.SVM(np.asarray(part))


class _Bytes:
    """What numpy makes an array of without reading it."""

    __array_interface__: dict[str, Any]
