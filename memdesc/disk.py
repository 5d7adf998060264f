"""Files of callers: their paths, and writing several at once, whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from memdesc.errors import MemdescError, short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import BinaryIO

__all__ = ["as_path", "write_files"]


def as_path(path: object) -> Path:
    """Return the path that a caller named; refuse what is not a path."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or "\0" in text:
        msg = f"a path is a string or a pathlib.Path, not {short_repr(path)}"
        raise MemdescError(msg)
    return Path(text)


def write_files(files: Mapping[Path, Callable[[BinaryIO], object]]) -> None:
    """Write files that belong together; they are renamed when all of them are complete.

    First all targets are checked, then all files are written under temporary names in the
    folders of their targets, then these are renamed.

    Raises
    ------
    MemdescError
        If one cannot be written.
    """
    staged: dict[Path, Path] = {}
    target = Path()
    try:
        for target in files:
            if target.exists() and not target.is_file():
                msg = f"{str(target)!r} cannot be written: it is a folder or a device; name a file"
                raise MemdescError(msg)
            if target.exists() and not os.access(target, os.W_OK):
                msg = f"{str(target)!r} is write-protected"
                raise MemdescError(msg)
        for target, write in files.items():
            # the target of a link is written, and the link stays
            real = target.resolve()
            staged[real] = _stage(real, write)
        for target, complete in staged.items():
            complete.replace(target)
    except OSError as error:
        msg = f"{str(target)!r} cannot be written: {error.strerror}"
        raise MemdescError(msg) from None
    finally:
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)


def _stage(target: Path, write: Callable[[BinaryIO], object]) -> Path:
    """Write a file under a temporary name in the folder of its target."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".memdesc.")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        # mkstemp makes files that only their owner reads; open() would have given these rights
        Path(name).chmod(0o666 & ~_umask())
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)


def _umask() -> int:
    # it can only be read by setting it
    mask = os.umask(0)
    os.umask(mask)
    return mask
