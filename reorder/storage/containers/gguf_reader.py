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
            msg = f"{what} at byte {self.at} is not UTF-8: {short_repr(raw)}"
            raise MemdescError(msg) from None

    def value(self, kind: int) -> bytes:
        """Return the bytes of a value of metadata."""
        start = self.at
        self._skip(kind)
        self.file.seek(start)
        return self.file.read(self.at - start)

    def _skip(self, kind: int, depth: int = 0) -> None:
        if kind in SCALARS:
            self.take(SCALARS[kind], "a value")
        elif kind == STRING:
            self.take(self.number("Q", "a string"), "a string")
        elif kind == ARRAY and depth <= _MAX_DEPTH:
            inner = self.number("I", "the type of an array")
            size = SCALARS.get(inner, 8)
            count = self.count(size, "the values of an array")
            if inner in SCALARS:
                self.take(size * count, "an array")
            else:
                for _ in range(count):
                    self._skip(inner, depth + 1)
        else:
            msg = f"a value at byte {self.at} has type {kind}, which is unknown or nested too deep"
            raise MemdescError(msg)
