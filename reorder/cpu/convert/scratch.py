"""The scratch of a thread: the numbers of the walker over tiles, then slots for tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from reorder.cpu.kernels.emit import BYTE, I64, int64
from reorder.cpu.record import WORD_NBYTES
from reorder.cpu.target import LINE_NBYTES

if TYPE_CHECKING:
    from numba.core.typing.templates import Signature

__all__ = ["SLOTS", "SLOT_NBYTES", "scratch"]

# A slot for each form of a tile: elements of src, values, elements that dst held, their values,
# elements of dst. Half of a 32 KiB L1 each, so that a step finds what the one before it wrote;
# a line more, so that slots do not start at equal addresses modulo 4096.
SLOTS, SLOT_NBYTES = 5, 16384 + LINE_NBYTES
# The walker's numbers.
_NUMBERS = 128


@intrinsic  # type: ignore[untyped-decorator] # numba ships no types
def scratch(_context: Any) -> tuple[Signature, Any]:
    """Return the address of the scratch on the stack, at a cache line."""

    def build(_context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        nbytes = WORD_NBYTES * _NUMBERS + SLOTS * SLOT_NBYTES + LINE_NBYTES
        address = builder.ptrtoint(cgutils.alloca_once(builder, BYTE, size=nbytes), I64)
        aligned = builder.add(address, int64(LINE_NBYTES - 1))
        return builder.and_(aligned, int64(-LINE_NBYTES))

    return types.int64(), build
