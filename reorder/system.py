"""What the operating system gives: functions of its C library, and a folder for caches."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any


def system_function(name: str, *argtypes: Any) -> Any:
    """Return a function of the C library, which returns an int, or None, as on Windows."""
    found = None if os.name == "nt" else getattr(ctypes.CDLL(None), name, None)
    if found is not None and argtypes:
        found.argtypes = argtypes
    return found


def user_cache_folder() -> str | None:
    """Return this package's folder among the user's caches, if any; it need not exist."""
    home = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
    usual = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    caches = os.environ.get(home) or os.path.expanduser(usual)
    # a relative folder would be made wherever the process is
    return f"{caches}/memdesc" if os.path.isabs(caches) else None
