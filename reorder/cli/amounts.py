"""Amounts as the command line names them: bytes, and threads."""

from __future__ import annotations

import re

from memdesc import MemdescError
from reorder.cores import count_cores

__all__ = ["bytes_of", "threads_of"]

_UNITS = {"": 1, "K": 10, "M": 20, "G": 30, "T": 40}
# more are no faster anywhere, and take longer to start
_THREADS = 256
_SIZE = re.compile(r"([0-9]{1,12}) ?([KMGT]?)i?B?", re.ASCII | re.IGNORECASE)


def bytes_of(flag: str, text: str) -> int:
    """Return a size such as ``200MiB``, in bytes; units are powers of 1024."""
    found = _SIZE.fullmatch(text.strip())
    size = int(found[1]) << _UNITS[found[2].upper()] if found and found[2] else 0
    size = int(found[1]) if found and not found[2] else size
    if not size:
        msg = f"{flag} {text!r} is no size above 0, such as 200MiB or 1073741824"
        raise MemdescError(msg)
    return size


def threads_of(given: int | None) -> int:
    """Return how many threads run: by default all that the process may use."""
    if given is None:
        return count_cores()
    if given < 1:
        msg = f"--threads {given} must be 1 or more"
        raise MemdescError(msg)
    return min(given, _THREADS)
