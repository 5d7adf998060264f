"""Functions of the C library that the process has loaded; on Windows, none is found."""

from __future__ import annotations

import ctypes
import os
from typing import Any


def system_function(name: str, *argtypes: Any) -> Any:
    """Return a function of the C library by its name, or None if the library does not have it.

    One that Python calls is given the types of its arguments; it returns an int.
    """
    found = None if os.name == "nt" else getattr(ctypes.CDLL(None), name, None)
    if found is not None and argtypes:
        found.argtypes = argtypes
    return found
