"""What the reorders of a device move: descriptors of linear memory, attributes, random bytes."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from memdesc import ImageDesc, MemoryDesc
from reorder import Attr

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reorder.bench.device_cases import DeviceCase

__all__ = ["attr_of", "linear_desc", "random_bytes"]

# Words of random data that repeat; no power of two, so that rows of a tensor differ.
_RANDOM_WORDS = 4_194_301


def linear_desc(desc: MemoryDesc | ImageDesc) -> MemoryDesc:
    """Return the descriptor of a buffer, or of the pixels of an image in one."""
    return desc.desc if isinstance(desc, ImageDesc) else desc


def attr_of(case: DeviceCase) -> Attr | None:
    """Return the attributes of a case."""
    return None if case.scale is None else Attr(src_scale=case.scale)


def random_bytes(desc: MemoryDesc) -> NDArray[np.uint8]:
    """Return random bytes; floats of 16 and 32 bits have a magnitude from 32 to 128."""
    words = _random_words(desc.dtype.name)
    return np.resize(words, -(-desc.nbytes // 4)).view(np.uint8)[: desc.nbytes]


@cache
def _random_words(dtype: str) -> NDArray[np.uint32]:
    words = np.random.default_rng(1).integers(0, 1 << 32, _RANDOM_WORDS, np.uint32)
    if dtype == "f32":
        words = words & np.uint32(0x80FFFFFF) | np.uint32(0x42000000)
    elif dtype == "f16":
        words = words & np.uint32(0x87FF87FF) | np.uint32(0x50005000)
    return words
