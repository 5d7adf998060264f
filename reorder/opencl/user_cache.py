"""The folder of the user in which later processes find what was built or measured for a device."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

__all__ = ["VARIABLE", "cache_folder"]

# Names the folder; empty, nothing is kept.
VARIABLE = "MEMDESC_CACHE_DIR"


def cache_folder() -> Path | None:
    """Return the folder, which may not exist yet; None if nothing is to be kept."""
    named = os.environ.get(VARIABLE)
    if named is None:
        return Path(platformdirs.user_cache_dir("memdesc", appauthor=False)) / "opencl"
    return Path(named) / "opencl" if named else None
