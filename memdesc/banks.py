"""Bank conflicts: how often the lanes of an access need the same bank of shared memory.

Memory has 32 banks of 4 bytes. A wavefront serves 128 bytes, which is 8 lanes of 16 bytes, or 32
lanes of up to 4. It takes as many steps as there are distinct words in the bank that has most of
them. For all accesses that were compared, this rule gives the numbers of Triton 3.9's
`bank_conflicts`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from memdesc.errors import MemdescError, OutOfRangeError
from memdesc.int64 import checked_int
from memdesc.layout import Layout

BANKS, WORD = 32, 4
_LANES = 32
# what a wavefront serves, and what a lane may move, in bytes
_WAVEFRONT, _WIDTHS = BANKS * WORD, (1, 2, 4, 8, 16)
# the most elements whose offsets are computed, many more than shared memory holds
_MAX_NELEMS = 1 << 24


def bank_steps(words: Iterable[int]) -> int:
    """Return the steps in which the banks serve words: the most distinct words in one bank."""
    return max(Counter(word % BANKS for word in set(words)).values())


def bank_conflicts(layout: Layout, bits: int, dim: int, nbytes: int) -> int:
    """Return the extra steps that an access of 32 lanes along a dim takes.

    Each lane moves `nbytes` bytes of elements that are contiguous in memory.
    """
    along, width = checked_int("dim", dim), checked_int("nbytes", nbytes)
    if not 0 <= along < layout.ndims:
        raise OutOfRangeError(f"dim {along} is not in 0 to {layout.ndims - 1}")
    if width not in _WIDTHS or width * 8 < bits:
        raise MemdescError(
            f"a lane moves 1, 2, 4, 8 or 16 bytes, and at least an element, not {width}"
        )
    if not layout.nelems:
        raise MemdescError("a layout without elements has no access")
    if layout.nelems > _MAX_NELEMS:
        raise MemdescError(
            f"a tile of shared memory has at most {_MAX_NELEMS} elements here, not "
            f"{layout.nelems}; submemory(dims, offsets) describes a part of a tensor"
        )
    offsets = layout.offsets()
    count = width * 8 // bits
    # the dim whose elements are adjacent in memory before a swizzle
    inner = [block for block in layout.blocks if block.stride == 1 and block.step == 1]
    innermost = max(inner, key=lambda block: block.extent, default=layout.blocks[-1])
    fast = layout.axes[innermost.axis].dims[-1]
    if offsets.shape[fast] % count:
        raise MemdescError(
            f"{width} bytes are {count} elements, and dim {fast}, which is contiguous in memory, "
            f"has {offsets.shape[fast]}; give fewer bytes"
        )
    runs = np.moveaxis(offsets, fast, -1)
    runs = runs.reshape(*runs.shape[:-1], -1, count)
    if np.any(np.diff(runs) != 1):
        raise MemdescError(
            f"{count} elements are not adjacent in memory; give fewer than {width} bytes"
        )
    # lanes count along the dim first, then along the others, the last one first
    starts = runs[..., 0]
    if along != fast:
        starts = np.moveaxis(starts, along - (along > fast), -1)
    first = starts.reshape(-1)[:_LANES] * bits // 8
    words = first[:, None] // WORD + np.arange(-(-width // WORD))
    group = min(_WAVEFRONT // width, _LANES)
    return (
        max(bank_steps(words[k : k + group].ravel().tolist()) for k in range(0, len(words), group))
        - 1
    )
