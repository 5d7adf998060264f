"""Programs in the cache folder of the user: built once for each source, device and driver.

A file has the name of a key, which covers the source and what the runtime says of itself. It
begins with a digest of the key and the binary, since runtimes may crash where a binary is damaged.
Files that are damaged, that cannot be read, or whose binary the runtime refuses are as if they
were not there: the program is built, and replaces them. Processes that build one program at the
same time each write a whole file.

Where all files together exceed the limit of `cache_limit`, those go that were not used for the
longest time. A process that wants one of them builds it again.

    sha256 of the key and the rest, the binary that the runtime returned
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pyopencl as cl

from memdesc import MemdescError
from memdesc.disk import write_files
from reorder.opencl.user_cache import cache_folder, cache_limit

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["build_program"]

_LOG = logging.getLogger("reorder")
_NAME = re.compile("[0-9a-f]{64}")
_DIGEST_NBYTES = hashlib.sha256().digest_size


def build_program(
    context: cl.Context, device: cl.Device, source: str, options: Sequence[str] = ()
) -> cl.Program:
    """Return the program of a source for a device of a context, from the cache if it is there.

    `options` are those of the compiler.

    Raises
    ------
    pyopencl.Error
        If the runtime cannot build it.
    MemdescError
        If the limit of the cache is no number.
    """
    folder, limit = cache_folder(), cache_limit()
    file = None if folder is None else folder / _key(device, source, options)
    binary = None if file is None else _read(file)
    if binary is not None:
        with suppress(cl.Error):
            return _built(cl.Program(context, [device], [binary]), device, options)
    start = perf_counter()
    program = _built(cl.Program(context, source), device, options)
    _LOG.info("built an OpenCL program in %.2f s: %s had none", perf_counter() - start, folder)
    if file is not None:
        # PoCL lists the whole device for a part of it
        info: Any = program
        binaries = [binary for binary in info.binaries if binary]
        if len(binaries) == 1:
            _write(file, binaries[0])
            _make_room(file.parent, limit)
    return program


def _built(program: Any, device: cl.Device, options: Sequence[str]) -> cl.Program:
    # pyopencl's own cache has no digests, and waits a minute where a process died that held it
    built: cl.Program = program.build(list(options), devices=[device], cache_dir=False)
    return built


def _key(device: cl.Device, source: str, options: Sequence[str]) -> str:
    platform = device.platform
    parts = (
        *(platform.vendor, platform.name, platform.version),
        *(device.vendor, device.name, device.version, device.driver_version),
        source,
        *options,
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _read(file: Path) -> bytes | None:
    """Return the binary of a file; None if it is not there or damaged."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    digest, binary = content[:_DIGEST_NBYTES], content[_DIGEST_NBYTES:]
    if _digest(file, binary) != digest:
        return None
    with suppress(OSError):
        os.utime(file)  # it was used now
    return binary


def _write(file: Path, binary: bytes) -> None:
    # a full disk, no permission, or a folder in the place of a file: the program is not kept
    with suppress(OSError, MemdescError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_files({file: lambda out: out.write(_digest(file, binary) + binary)})


def _make_room(folder: Path, limit: int) -> None:
    """Remove the programs that were used least recently, until the others keep the limit."""
    found = []
    with suppress(OSError):
        for entry in os.scandir(folder):
            # another process may remove it, now and below
            with suppress(OSError):
                if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    found.append((status.st_mtime_ns, status.st_size, entry.path))
    total = sum(nbytes for _, nbytes, _ in found)
    for _, nbytes, path in sorted(found):
        if total <= limit:
            return
        with suppress(OSError):
            Path(path).unlink()
        total -= nbytes


def _digest(file: Path, binary: bytes) -> bytes:
    return hashlib.sha256(file.name.encode() + binary).digest()
