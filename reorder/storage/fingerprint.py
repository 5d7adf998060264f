"""Fingerprints of .npy files: what ties a descriptor to the one file that it describes.

A fingerprint is the size of the file, its generation, a digest of its header and of a bounded part
of its data, and a checksum of all data. The first three are compared by every load; the checksum
takes a pass over the data, and is compared where that is asked for.

The generation is a number that `save` changes whenever it writes over a file, and that numpy
leaves out: it tells arrays apart that differ only where the digest does not look.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc.errors import MemdescError
from reorder.storage.npy import MAX_GENERATION, Header

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import BinaryIO

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Fingerprint", "checksum", "free_generation", "of_data", "of_file"]

# data up to 1 MiB is digested whole; of more, 256 parts of 4 KiB from the first byte to the last
_PARTS = 256
_PART = 4096


class Fingerprint(NamedTuple):
    """What one .npy file was when a descriptor was written for it."""

    nbytes: int
    generation: int
    digest: str
    checksum: int | None

    @classmethod
    def from_json(cls, fields: Any) -> Fingerprint:
        """Check what a descriptor says of its array.

        Raises
        ------
        MemdescError
            If it has another form.
        """
        if isinstance(fields, dict):
            nbytes, generation, digest, total = map(fields.get, cls._fields)
            if (
                type(nbytes) is int
                and type(generation) is int
                and isinstance(digest, str)
                and (total is None or type(total) is int)
            ):
                return cls(nbytes, generation, digest, total)
        msg = f"'array' must have {', '.join(cls._fields)}; save the tensor again"
        raise MemdescError(msg)

    def is_of(self, other: Fingerprint) -> bool:
        """Whether two fingerprints are of one file; checksums, which some lack, are left out."""
        return self[:3] == other[:3]


def of_data(header: Header, data: NDArray[np.uint8], nbytes: int) -> Fingerprint:
    """Return the fingerprint, without checksum, of a file whose header and data are in memory."""
    return _fingerprint(header, nbytes, lambda start, stop: data[start:stop])


def of_file(header: Header, file: BinaryIO, nbytes: int) -> Fingerprint:
    """Return the fingerprint, without checksum, of an open file whose header was read."""

    def read(start: int, stop: int) -> bytes:
        file.seek(len(header.raw) + start)
        return file.read(stop - start)

    return _fingerprint(header, nbytes, read)


def _fingerprint(header: Header, nbytes: int, read: Callable[[int, int], Any]) -> Fingerprint:
    digest = hashlib.sha256(header.raw)
    if header.nbytes <= _PARTS * _PART:
        digest.update(read(0, header.nbytes))
    else:
        for k in range(_PARTS):
            start = (header.nbytes - _PART) * k // (_PARTS - 1)
            digest.update(read(start, start + _PART))
    return Fingerprint(nbytes, header.generation, digest.hexdigest(), None)


def checksum(data: NDArray[np.uint8]) -> int:
    """Return the CRC-32 of all data, as archives have it."""
    return zlib.crc32(memoryview(data))  # type: ignore[arg-type] # arrays of bytes are buffers


def free_generation(taken: Collection[int]) -> int:
    """Return the next generation that is not taken: 1 where none is."""
    start = max((number for number in taken if number <= MAX_GENERATION), default=0)
    cycle = ((start + k) % MAX_GENERATION + 1 for k in range(MAX_GENERATION))
    return next(number for number in cycle if number not in taken)
