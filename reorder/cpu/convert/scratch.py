"""The scratch of a thread: slots for tiles, on the stack of the walker over tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba.core import cgutils

from reorder.cpu.convert.records import Base
from reorder.cpu.kernels.emit import BYTE, I64, int64
from reorder.cpu.target import BYTE_BITS, LINE_NBYTES

if TYPE_CHECKING:
    from reorder.cpu.kernels.emit import Builder, Value

__all__ = ["SLOT_BITS", "SLOT_NBYTES", "emit_scratch"]

# Every `Base` but src and dst is a slot.
_SLOTS = len(Base) - Base.SRC_ELEMENTS
# Two slots fill a 32 KiB L1, so that a step finds in it what the step before wrote; a cache line
# more, so that slots do not start at equal addresses modulo 4096.
SLOT_NBYTES = 16384 + LINE_NBYTES
SLOT_BITS = SLOT_NBYTES * BYTE_BITS


def emit_scratch(builder: Builder) -> Value:
    """Return the address of the first slot, at a cache line."""
    nbytes = _SLOTS * SLOT_NBYTES + LINE_NBYTES
    address = builder.ptrtoint(cgutils.alloca_once(builder, BYTE, size=nbytes), I64)
    return builder.and_(builder.add(address, int64(LINE_NBYTES - 1)), int64(-LINE_NBYTES))
