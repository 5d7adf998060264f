"""Place machine code in memory, for the rest of the process.

On x86 Linux, code refers to its constants by their distance. Once these distances are written into
an object file (ELF), all of it is an image that runs at any address: no process needs a linker, or
LLVM, to load it. LLVM loads all other objects: those of other systems, those that call system
functions, and those with variables.
"""

import ctypes
import mmap
import struct
import sys
from collections.abc import Iterator

from memdesc.errors import MemdescError
from reorder.system import is_x86, system_function

# Whether code is compiled so that it is an image.
RUNS_IMAGES = is_x86() and sys.platform == "linux"
# Types of sections: symbols, and places to write distances to.
_SYMBOLS, _RELOCATIONS = 2, 4
# Both are a distance of 32 bits. The second is that of a function.
_DISTANCES = {2, 4}
# Sections without bytes in the file; flags of those that code writes, and of those in memory.
_NO_BYTES, _WRITTEN, _ALLOCATED = 8, 1, 2
_READ_WRITE, _READ_EXECUTE = 3, 5


def linked(compiled: bytes, symbol: str) -> bytes:
    """Return what `load` takes: an image's start, or the symbol; a zero byte; then the bytes."""
    image = bytearray(compiled)
    start = _link(image, symbol.encode()) if RUNS_IMAGES else None
    if start is None:
        return symbol.encode() + b"\0" + compiled
    return str(start).encode() + b"\0" + image


def _link(image: bytearray, symbol: bytes) -> int | None:
    """Write all distances into an object file; returns where a function is, or None if it cannot.

    Sections keep their places in the file, which are aligned as they must be in memory.
    """
    (headers_at,) = struct.unpack_from("<Q", image, 40)
    (count,) = struct.unpack_from("<H", image, 60)
    # for each section: type, flags, where it is in the file, bytes, and two sections it refers to
    sections = [*_rows("<4xIQ8xQQII16x", image, headers_at, 64 * count)]
    for type_, flags, *_ in sections:
        if flags & _ALLOCATED and (flags & _WRITTEN or type_ == _NO_BYTES):
            return None
    starts = [start for _, _, start, *_ in sections]
    ((start, nbytes, names),) = (rest[:3] for type_, _, *rest in sections if type_ == _SYMBOLS)
    symbols = [*_rows("<I2xHQ8x", image, start, nbytes)]
    places = [
        starts[section] + offset if 0 < section < count else None for _, section, offset in symbols
    ]
    for type_, _, start, nbytes, _, target in sections:
        if type_ != _RELOCATIONS:
            continue
        for offset, how, index, addend in _rows("<QIIq", image, start, nbytes):
            place = places[index]
            if how not in _DISTANCES or place is None:
                return None
            at = starts[target] + offset
            struct.pack_into("<i", image, at, place + addend - at)
    wanted = symbol + b"\0"
    return next(
        place
        for (name, *_), place in zip(symbols, places, strict=True)
        if image.startswith(wanted, starts[names] + name)
    )


def _rows(form: str, image: bytearray, start: int, nbytes: int) -> Iterator[tuple[int, ...]]:
    """Return the rows of a table in an object file."""
    return struct.iter_unpack(form, image[start : start + nbytes])


def needs_llvm(content: bytes) -> bool:
    """Whether code is loaded by LLVM."""
    return not content.partition(b"\0")[0].isdigit()


def load(content: bytes) -> int:
    """Place code in memory for the rest of the process; returns the address of its function."""
    start, _, image = content.partition(b"\0")
    if not needs_llvm(content):
        return _placed(image) + int(start)
    from reorder.cpu.runtime.compiler import load_object

    return load_object(image, start.decode())


def _placed(image: bytes) -> int:
    """Return the address of a copy of an image that can be executed but no longer written."""
    pages = mmap.mmap(-1, len(image), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, _READ_WRITE)
    pages[:] = image
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    protect = system_function("mprotect", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if protect(address, len(image), _READ_EXECUTE):
        raise MemdescError(
            "this system forbids running code that a process compiled, so nothing can be reordered"
        )
    # never freed, even when Python ends and clears all modules: threads may run it
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(pages))
    return address
