"""Functions of the C library that the process has loaded; there are none on Windows."""

from __future__ import annotations

import ctypes
import os
from typing import Any


def system_function(name: str) -> Any:
    """Return a function of the C library by its name; None if the system has none of that name."""
    return None if os.name == "nt" else getattr(ctypes.CDLL(None), name, None)
