"""The folder of the user in which later processes find what was built or measured for a device."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from memdesc import MemdescError
from memdesc.errors import short_repr

__all__ = ["LIMIT", "VARIABLE", "cache_folder", "cache_limit"]

# Names the folder; empty, nothing is kept.
VARIABLE = "MEMDESC_CACHE_DIR"
# Says how many bytes of programs are kept there.
LIMIT = "MEMDESC_CACHE_BYTES"
_DEFAULT_LIMIT = 1 << 28
_MAX_DIGITS = 18


def cache_folder() -> Path | None:
    """Return the folder, which may not exist yet; None if nothing is to be kept."""
    named = os.environ.get(VARIABLE)
    if named is None:
        return Path(platformdirs.user_cache_dir("memdesc", appauthor=False)) / "opencl"
    return Path(named) / "opencl" if named else None


def cache_limit() -> int:
    """Return the most bytes of programs that are kept.

    Raises
    ------
    MemdescError
        If the variable is no number of bytes, or of more than 18 digits.
    """
    named = os.environ.get(LIMIT)
    if named is None:
        return _DEFAULT_LIMIT
    if not (named.isascii() and named.isdigit() and len(named) <= _MAX_DIGITS):
        msg = (
            f"{LIMIT}={short_repr(named)} is no number of bytes of at most {_MAX_DIGITS} digits; "
            f"say {_DEFAULT_LIMIT}, or 0 to keep none"
        )
        raise MemdescError(msg)
    return int(named)
