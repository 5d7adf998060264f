"""Headers of GGUF, read number by number; nothing is read that the file is too short for."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from memdesc.errors import MemdescError, short_repr
from reorder.storage.containers.gguf_types import ARRAY, SCALARS, STRING

if TYPE_CHECKING:
    from typing import BinaryIO

__all__ = ["Reader"]

# bytes of everything in front of the data; tokenizers take up to some ten million
_MAX_HEADER = 2**28
# arrays within arrays
_MAX_DEPTH = 4


class Reader:
    """Reads numbers and strings of a header; refuses what ends behind the file."""

    def __init__(self, file: BinaryIO, nbytes: int) -> None:
        self.file = file
        self.at = 0
        self.left = min(nbytes, _MAX_HEADER)

    def take(self, count: int, what: str) -> bytes:
        """Return the next bytes."""
        if count > self.left:
            msg = (
                f"{what} at byte {self.at} takes {count} bytes, but {self.left} are left of the "
                f"file or of the {_MAX_HEADER} that a header may have"
            )
            raise MemdescError(msg)
        data = self.file.read(count)
        if len(data) < count:
            msg = f"it ends within {what}, at byte {self.at + len(data)}"
            raise MemdescError(msg)
        self.at += count
        self.left -= count
        return data

    def number(self, form: str, what: str) -> int:
        """Return the next number, by its letter in `struct`."""
        value: int = struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}"), what))[0]
        return value

    def count(self, least: int, what: str) -> int:
        """Return how many follow, of at least some bytes each."""
        found = self.number("Q", what)
        if found * least > self.left:
            msg = f"{what} are {found}, but only {self.left} bytes follow"
            raise MemdescError(msg)
        return found

    def text(self, what: str) -> str:
        """Return the next string."""
        raw = self.take(self.number("Q", what), what)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            msg = f"{what} at byte {self.at} is no UTF-8: {short_repr(raw)}"
            raise MemdescError(msg) from None

    def value(self, kind: int, depth: int = 0) -> bytes:
        """Return the bytes of a value of metadata."""
        if kind in SCALARS:
            return self.take(SCALARS[kind], "a value")
        if kind == STRING:
            nbytes = self.take(8, "a string")
            return nbytes + self.take(int.from_bytes(nbytes, "little"), "a string")
        if kind != ARRAY or depth > _MAX_DEPTH:
            msg = f"a value at byte {self.at} has type {kind}, which is none, or too deep"
            raise MemdescError(msg)
        inner = self.number("I", "the type of an array")
        size = SCALARS.get(inner, 8)
        count = self.count(size, "the values of an array")
        head = struct.pack("<IQ", inner, count)
        if inner in SCALARS:
            return head + self.take(size * count, "an array")
        return head + b"".join([self.value(inner, depth + 1) for _ in range(count)])
