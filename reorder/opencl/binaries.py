"""Programs in the cache folder of the user: built once for each source, device and driver.

A file has the name of a key, which covers the source and what the runtime says of itself. It
begins with a digest of the key and the binary, since runtimes may crash where a binary is damaged.
Files that are damaged, that cannot be read, or whose binary the runtime refuses are as if they
were not there: the program is built, and replaces them. Processes that build one program at the
same time each write a whole file.

    sha256 of the key and the rest, the binary that the runtime returned
"""

from __future__ import annotations

import hashlib
import logging
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pyopencl as cl

from memdesc import MemdescError
from memdesc.disk import write_files
from reorder.opencl.user_cache import cache_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["build_program"]

_LOG = logging.getLogger("reorder")
_DIGEST_NBYTES = hashlib.sha256().digest_size


def build_program(context: cl.Context, source: str, options: Sequence[str] = ()) -> cl.Program:
    """Return the program of a source for all devices of a context, from the cache if it is there.

    `options` are those of the compiler.

    Raises
    ------
    pyopencl.Error
        If the runtime cannot build it.
    """
    folder = cache_folder()
    devices = context.devices
    files = [] if folder is None else [folder / _key(device, source, options) for device in devices]
    binaries = [_read(file) for file in files]
    found = [binary for binary in binaries if binary is not None]
    if files and len(found) == len(files):
        with suppress(cl.Error):
            return _built(cl.Program(context, devices, found), options)
    start = perf_counter()
    program = _built(cl.Program(context, source), options)
    _LOG.info("built an OpenCL program in %.2f s: %s had none", perf_counter() - start, folder)
    info: Any = program
    for device, binary in zip(info.devices, info.binaries, strict=True):
        if folder is not None and binary:
            _write(folder / _key(device, source, options), binary)
    return program


def _built(program: Any, options: Sequence[str]) -> cl.Program:
    # pyopencl's own cache has no digests, and waits a minute where a process died that held it
    built: cl.Program = program.build(list(options), cache_dir=False)
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
    return binary if _digest(file, binary) == digest else None


def _write(file: Path, binary: bytes) -> None:
    # a full disk, no permission, or a folder in the place of a file: the program is not kept
    with suppress(OSError, MemdescError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_files({file: lambda out: out.write(_digest(file, binary) + binary)})


def _digest(file: Path, binary: bytes) -> bytes:
    return hashlib.sha256(file.name.encode() + binary).digest()
