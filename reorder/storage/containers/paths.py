"""Files that headers name.

Source: the cache of huggingface_hub 0.30, in which the files of `snapshots/REVISION` are links into
`blobs`.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from memdesc.errors import MemdescError, short_repr

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["safe_path"]


def safe_path(folder: Path, name: object, what: str) -> Path:
    """Return a file that a header names in its folder; refuse those that lie elsewhere.

    Raises
    ------
    MemdescError
        If the name is absolute, has ``..``, or leads out of the folder by a link; links into the
        blobs of a cache of huggingface_hub are followed.
    """
    if not isinstance(name, str) or not name or "\0" in name or "\\" in name:
        msg = f"{what} is not the name of a file: {short_repr(name)}"
        raise MemdescError(msg)
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts:
        msg = f"{what} {short_repr(name)} leads out of {str(folder)!r}, which is not followed"
        raise MemdescError(msg)
    path = folder / pure
    try:
        home, real = folder.resolve(), path.resolve()
    except (OSError, RuntimeError, ValueError):
        msg = f"{what} {short_repr(name)} cannot be followed"
        raise MemdescError(msg) from None
    is_cache = home.parent.name == "snapshots" and real.parent == home.parent.parent / "blobs"
    if not real.is_relative_to(home) and not is_cache:
        msg = f"{what} {short_repr(name)} is a link out of {str(folder)!r}, which is not followed"
        raise MemdescError(msg)
    return path
