"""Programs that are kept on disk for other processes.

Each binary has a file in the user's cache folder, named by a key that covers the source and what
the runtime says about itself. A file is the sha256 of that name and the binary, then the binary as
the runtime returned it: some runtimes crash on a damaged binary. A file that is damaged, unreadable
or refused by the runtime counts as missing: the program is built, and replaces it. Each process
writes whole files. The least recently used files are removed when all together exceed 256 MiB.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import warnings
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pyopencl as cl

from memdesc import MemdescError
from reorder.disk import write_file
from reorder.system import user_cache_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

_LOG = logging.getLogger("reorder")
_NAME = re.compile("[0-9a-f]{64}")
_DIGEST_NBYTES = hashlib.sha256().digest_size

# The variable that names the cache folder; if it is set but empty, nothing is kept.
CACHE_FOLDER = "MEMDESC_CACHE_DIR"
# the most bytes of programs that are kept there
_MAX_NBYTES = 1 << 28


def build(
    place: tuple[cl.Context, cl.Device], source: str, options: Sequence[str] = ()
) -> cl.Program:
    """Return the program of a source for a context and its device, perhaps from the cache."""
    context, device = place
    folder = cache_folder()
    file = None if folder is None else folder / _key(device, source, options)
    binary = None if file is None else _read(file)
    with warnings.catch_warnings():
        # runtimes warn about successful builds too
        warnings.simplefilter("ignore", cl.CompilerWarning)
        if binary is not None:
            with suppress(cl.Error):
                return _built(cl.Program(context, [device], [binary]), device, options)
        start = perf_counter()
        try:
            program = _built(cl.Program(context, source), device, options)
        except cl.Error as error:
            reason = " ".join(str(error).split())[:400]
            raise MemdescError(
                f"the OpenCL compiler of {device.name.strip()} fails ({reason}); `memdesc doctor` "
                "tries every runtime"
            ) from error
    _LOG.info("built an OpenCL program in %.2f s: %s had none", perf_counter() - start, folder)
    if file is None:
        return program
    # it is not kept if the disk is full, permission is missing, or there is a folder of that name
    with suppress(OSError, MemdescError, cl.Error):
        info: Any = program
        # for a sub-device, PoCL lists the whole device
        binaries = [binary for binary in info.binaries if binary]
        if len(binaries) == 1:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            content = _digest(file, binaries[0]) + binaries[0]
            write_file(file, lambda out: out.write(content))
            _make_room(file.parent, _MAX_NBYTES)
    return program


def _built(program: Any, device: cl.Device, options: Sequence[str]) -> cl.Program:
    # pyopencl's own cache has no digests, and waits a minute if a process died while it held the
    # lock
    built: cl.Program = program.build(list(options), devices=[device], cache_dir=False)
    return built


def _key(device: cl.Device, source: str, options: Sequence[str]) -> str:
    platform = device.platform
    parts = (
        *(platform.vendor, platform.name, platform.version),
        *(device.vendor, device.name, device.version, device.driver_version),
        source,
        *options,
        # what pyopencl adds to the options of every build
        *os.environ.get("PYOPENCL_BUILD_OPTIONS", "").split(),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _read(file: Path) -> bytes | None:
    """Return the binary of a file; None if it is not there or damaged."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    binary = content[_DIGEST_NBYTES:]
    if content != _digest(file, binary) + binary:
        return None
    with suppress(OSError):
        os.utime(file)  # it was used now
    return binary


def _make_room(folder: Path, limit: int) -> None:
    """Remove the programs that were used least recently, until the rest is within the limit."""
    files = []
    for file in folder.iterdir():
        # another process may remove it, now and below
        with suppress(OSError):
            status = file.lstat()
            if _NAME.fullmatch(file.name) and S_ISREG(status.st_mode):
                files.append((status.st_mtime_ns, status.st_size, file))
    total = sum(nbytes for _, nbytes, _ in files)
    for _, nbytes, file in sorted(files):
        if total <= limit:
            return
        with suppress(OSError):
            file.unlink()
        total -= nbytes


def _digest(file: Path, binary: bytes) -> bytes:
    return hashlib.sha256(file.name.encode() + binary).digest()


def cache_folder() -> Path | None:
    """Return the folder, which may not exist yet; None if nothing should be kept."""
    named = os.environ.get(CACHE_FOLDER)
    if named is None:
        users = user_cache_folder()
        return None if users is None else Path(users, "opencl")
    return Path(named) / "opencl" if named else None
