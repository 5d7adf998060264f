"""Allocation of host memory: zeroed, and aligned to cache lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memdesc import OutOfMemoryError
from reorder.memory.buffers import address_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["zeroed_bytes"]

_LINE_NBYTES = 64


def zeroed_bytes(nbytes: int) -> NDArray[np.uint8]:
    """Allocate zeros that start with a cache line.

    Raises
    ------
    OutOfMemoryError
        If the system does not have this much memory.
    """
    try:
        raw = np.zeros(nbytes + _LINE_NBYTES, np.uint8)
    except (MemoryError, ValueError):
        msg = f"{nbytes} bytes are more memory than there is; reorder parts of the tensor"
        raise OutOfMemoryError(msg) from None
    skipped = -address_of(raw) % _LINE_NBYTES
    return raw[skipped : skipped + nbytes]
