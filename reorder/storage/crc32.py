"""CRC-32 of bytes in a file: parts by several threads, then the checksum of all from theirs.

A checksum is a polynomial over GF(2), bits reversed; bytes that follow multiply it by a power of x.
Source: `crc32_combine` of zlib 1.3.
"""

from __future__ import annotations

import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING

from memdesc import MemdescError
from memdesc.disk import open_file
from reorder.cores import count_cores

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["combine", "crc32_of_file"]

_POLYNOMIAL = 0xEDB88320
# x to the power of 0 and of 1
_ONE, _X = 1 << 31, 1 << 30
# bytes that are read at once, and the least for a thread
_PIECE, _SHARE = 2**20, 2**25
_MAX_THREADS = 8


def crc32_of_file(path: Path, start: int, nbytes: int) -> int:
    """Return the checksum of some bytes of a file, which are read in pieces.

    Raises
    ------
    MemdescError
        If the file cannot be read, or ends before.
    """
    count = max(min(count_cores(), _MAX_THREADS, nbytes // _SHARE), 1)
    if count == 1:
        return _crc32(path, start, start + nbytes)
    bounds = [start + nbytes * k // count for k in range(count + 1)]
    with ThreadPoolExecutor(count) as pool:
        parts = pool.map(lambda k: _crc32(path, bounds[k], bounds[k + 1]), range(count))
        total = 0
        for k, part in enumerate(parts):
            total = combine(total, part, bounds[k + 1] - bounds[k])
    return total


def _crc32(path: Path, at: int, end: int) -> int:
    total, buffer = 0, memoryview(bytearray(_PIECE))
    with open_file(path) as file:
        while at < end:
            count = os.preadv(file.fileno(), [buffer[: end - at]], at)
            if not count:
                msg = f"{str(path)!r} became shorter while it was read"
                raise MemdescError(msg)
            total, at = zlib.crc32(buffer[:count], total), at + count
    return total


def combine(first: int, second: int, nbytes: int) -> int:
    """Return the checksum of two parts from theirs; the second one has some bytes.

    *Law*: `combine(crc32(a), crc32(b), len(b)) == crc32(a + b)`.

    Examples
    --------
    >>> from zlib import crc32
    >>> from reorder.storage.crc32 import combine
    >>> combine(crc32(b"ab"), crc32(b"cde"), 3) == crc32(b"abcde")
    True
    """
    power, bit = _ONE, 0
    while nbytes >> bit:
        if nbytes >> bit & 1:
            power = _multiplied(_power(bit + 3), power)
        bit += 1
    return _multiplied(power, first) ^ second


@lru_cache
def _power(exponent: int) -> int:
    """Return x to the power of 2 to the power of an exponent."""
    return _X if not exponent else _multiplied(_power(exponent - 1), _power(exponent - 1))


def _multiplied(one: int, other: int) -> int:
    product, mask = 0, _ONE
    while mask:
        if one & mask:
            product ^= other
        other = other >> 1 ^ (_POLYNOMIAL if other & 1 else 0)
        mask >>= 1
    return product
