"""The C reader of descriptors as a library."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import memdesc
from tests.compiled import compile_library

if TYPE_CHECKING:
    from pathlib import Path

    from memdesc import MemoryDesc

__all__ = ["Reader"]

_EXPORTS = """
static memdesc desc;
const char *read_desc(const char *text, int64_t size)
{
    return memdesc_read(text, (size_t)size, &desc);
}
int64_t offset_of(const int64_t *index) { return memdesc_offset(&desc, index); }
int64_t min_nbytes(void) { return desc.min_nbytes; }
int64_t bits(void) { return desc.bits; }
int has_extra(void) { return desc.has_extra; }
int64_t npy_data(const unsigned char *file, int64_t size)
{
    return memdesc_npy_data(file, (size_t)size);
}
"""


class Reader:
    """What the header makes of a text."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self._library = compile_library(
            memdesc.c_reader() + _EXPORTS, folder, ("gcc", "c"), "-O1", *flags
        )
        self._library.read_desc.restype = ctypes.c_char_p
        for name in ("offset_of", "min_nbytes", "bits", "npy_data"):
            getattr(self._library, name).restype = ctypes.c_int64

    def read(self, text: str | bytes) -> str | None:
        """Return the reason why a text is no descriptor, or None."""
        data = text.encode() if isinstance(text, str) else text
        # a copy of just these bytes, so that sanitizers see what is read beyond them
        reason = self._library.read_desc(
            ctypes.create_string_buffer(data, len(data)), ctypes.c_int64(len(data))
        )
        return None if reason is None else reason.decode()

    def facts(self) -> tuple[int, int, bool]:
        """Return the bytes that elements need, bits of one, and whether there is compensation."""
        library = self._library
        return library.min_nbytes(), library.bits(), bool(library.has_extra())

    def offset(self, index: tuple[int, ...]) -> int:
        """Return the offset of an index of the descriptor that was read last."""
        return int(self._library.offset_of((ctypes.c_int64 * len(index))(*index)))

    def npy_data(self, file: bytes) -> int:
        """Return where the elements of a .npy file start."""
        return int(self._library.npy_data(file, ctypes.c_int64(len(file))))

    def check(self, desc: MemoryDesc) -> None:
        """Compare what was read with a descriptor."""
        plain = desc.with_extra(None)
        assert self.facts() == (plain.min_nbytes, desc.dtype.bits, desc.extra is not None)
        if desc.nelems:
            last = tuple(size - 1 for size in desc.dims)
            middle = tuple(size // 2 for size in desc.dims)
            for index in ((0,) * desc.ndims, middle, last):
                assert self.offset(index) == desc.offset(index)
