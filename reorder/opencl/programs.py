"""Programs: built once for each context and pattern, and kept on disk for other processes.

Each binary has a file in the user's cache folder, named by a key that covers the source and what
the runtime says about itself. A file is the sha256 of that name and the binary, then the binary as
the runtime returned it: some runtimes crash on a damaged binary. A file that is damaged, unreadable
or refused by the runtime counts as missing: the program is built, and replaces it. Processes that
build one program at the same time each write a whole file. When all files together exceed
`cache_limit`, the least recently used ones are removed; a process that needs one builds it again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import warnings
from contextlib import suppress
from pathlib import Path
from threading import RLock
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import platformdirs
import pyopencl as cl
from pyopencl.tools import first_arg_dependent_memoize

from memdesc import MemdescError
from memdesc.errors import short_repr
from reorder.disk import write_file
from reorder.opencl.allocation import is_released_error, released_error
from reorder.opencl.kernel.access import Mode
from reorder.opencl.kernel.formula import Floats
from reorder.opencl.kernel.launch import KERNEL, Launch, Pattern, kernel_source

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


_LOG = logging.getLogger("reorder")
_NAME = re.compile("[0-9a-f]{64}")
_DIGEST_NBYTES = hashlib.sha256().digest_size

# The variable that names the cache folder; if it is set but empty, nothing is kept.
CACHE_FOLDER = "MEMDESC_CACHE_DIR"
# The variable that limits how many bytes of programs are kept there.
CACHE_LIMIT = "MEMDESC_CACHE_BYTES"
_DEFAULT_LIMIT = 1 << 28
_MAX_DIGITS = 18


class KernelPool:
    """A pool of kernel objects of one program; each serves one call, from arguments to launch.

    No call waits for another one: if all are in use, a thread, a finalizer or the handler of a
    signal gets a new object.
    """

    def __init__(self, program: cl.Program, name: str) -> None:
        self._program, self._name = program, name
        # raises where the program cannot make it
        idle = [self.new()]
        # returns an object that is not in use; raises IndexError if all are
        self.take_idle: Callable[[], cl.Kernel] = idle.pop
        # ends the use of an object
        self.give_back: Callable[[cl.Kernel], None] = idle.append

    def take(self) -> cl.Kernel:
        """Return an object that is not in use."""
        try:
            return self.take_idle()
        except IndexError:
            return self.new()

    def new(self) -> cl.Kernel:
        """Return a new object, which is in no pool."""
        return cl.Kernel(self._program, self._name)


class PreparedLaunch(NamedTuple):
    """A launch with its kernels.

    `names` are those of the arguments; the last one is a struct of `numbers`. `sizes` are the work
    items in total and per group.
    """

    launch: Launch
    kernels: KernelPool
    tables: tuple[cl.Buffer, ...]
    names: tuple[str, ...]
    numbers: NDArray[Any]
    sizes: tuple[tuple[int, ...], tuple[int, ...]]

    def with_constants(self, varying: Sequence[cl.Buffer]) -> cl.Kernel:
        """Return a new kernel with all arguments but src and dst."""
        kernel = self.kernels.new()
        for k, argument in enumerate((*varying, *self.tables), 2):
            kernel.set_arg(k, argument)
        _set_numbers(kernel, len(self.names) - 1, self.numbers)
        return kernel

    def enqueue(
        self,
        queue: cl.CommandQueue,
        memory: tuple[Any, Any],
        wait_for: Sequence[cl.Event] | None,
        varying: Sequence[cl.Buffer] = (),
    ) -> cl.Event:
        """Enqueue the launch from one memory to another; `varying` are scales and zero points.

        The runtime may say that src or dst was released, or that it does not take SVM.
        """
        src, dst = memory
        _, kernels, tables, names, numbers, sizes = self
        # a kernel that writes zeros takes no scales
        given = (src, dst, *varying, *tables) if names[0] == "src" else (dst, *tables)
        last = len(names) - 1
        shared = _BUFFERS
        if isinstance(src, cl.SVMPointer) or isinstance(dst, cl.SVMPointer):
            shared = isinstance(src, cl.SVMPointer), isinstance(dst, cl.SVMPointer)
            with _building:
                kernels = _kernels(queue.context, queue.device, self.launch.pattern, shared)
        try:
            kernel = kernels.take_idle()
        except IndexError:
            kernel = kernels.take()
        k = 0
        try:
            try:
                while k < last:
                    kernel.set_arg(k, given[k])
                    k += 1
            except cl.LogicError as error:
                if not is_released_error(error):
                    raise
                raise released_error(given[k], _ARGUMENTS[names[k]]) from None
            # `set_arg` calls this for bytes, but tries other kinds first, which takes 7 to 17 us
            _set_numbers(kernel, last, numbers)
            try:
                # by position: pyopencl takes longer for names
                return _enqueue(queue, kernel, *sizes, None, wait_for)
            except cl.LogicError as error:
                if error.code != cl.status_code.INVALID_KERNEL_ARGS or shared == _BUFFERS:
                    raise
        finally:
            kernels.give_back(kernel)
        msg = (
            f"kernels on device {queue.device.name.strip()!r} do not take shared virtual memory: "
            "its runtime says INVALID_KERNEL_ARGS; use a Buffer"
        )
        raise MemdescError(msg)


# what callers name the operands of a kernel
_ARGUMENTS = {"src": "x", "dst": "out"}
_enqueue: Callable[..., cl.Event] = cl.enqueue_nd_range_kernel
_set_numbers: Callable[..., None] = getattr(cl.Kernel, "_set_arg_buf", cl.Kernel.set_arg)
# neither src nor dst is SVM
_BUFFERS = (False, False)
# makes a device that can round quotients of f32 correctly do so
_DIVISION = ("-cl-fp32-correctly-rounded-divide-sqrt",)
# warning filters belong to the process; a finalizer may build a kernel while its thread builds one
_building = RLock()


def prepare(context: cl.Context, device: cl.Device, launch: Launch) -> PreparedLaunch:
    """Find or build the kernel of a launch on a device; raises as `build`."""
    pattern = launch.pattern
    with _building:
        kernels = _kernels(context, device, pattern)
    operands = ("dst",) if pattern.src.mode == Mode.NONE else ("src", "dst")
    items = pattern.work_items
    return PreparedLaunch(
        launch,
        kernels,
        tuple(constant_buffer(context, table) for table in launch.tables),
        (*operands, *pattern.varying, *pattern.tables, "params"),
        np.array(launch.params, pattern.index_type),
        ((launch.groups[0] * items, *launch.groups[1:]), (items, 1, 1)),
    )


def constant_buffer(context: cl.Context, values: NDArray[Any]) -> cl.Buffer:
    """Return a buffer of numbers; the runtime keeps it until no kernel uses it any more."""
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    return cl.Buffer(context, flags, hostbuf=values)


@first_arg_dependent_memoize
def _kernels(
    context: cl.Context,
    device: cl.Device,
    pattern: Pattern,
    shared: tuple[bool, bool] = (False, False),  # noqa: ARG001 - each value has its own kernels
) -> KernelPool:
    """Return the kernels of a pattern on a device.

    Each combination of SVM in src and dst has its own: on an H200, a kernel that had been given
    buffers refused SVM, and then buffers as well.
    """
    divides = pattern.conversion is not None and floats_of(device).divides
    options = _DIVISION if divides else ()
    return build((context, device), kernel_source(pattern), KERNEL, options)


def floats_of(device: cl.Device) -> Floats:
    """Return the arithmetic of a device."""
    single, config = device.single_fp_config, cl.device_fp_config
    exact = config.DENORM | config.INF_NAN | config.ROUND_TO_NEAREST
    rounds = bool(single & config.ROUND_TO_NEAREST)
    return Floats(
        has_f64=bool(device.double_fp_config),
        rounds=rounds,
        is_exact=single & exact == exact,
        divides=bool(single & config.CORRECTLY_ROUNDED_DIVIDE_SQRT),
        has_fma=bool(single & config.FMA),
    )


def build(
    place: tuple[cl.Context, cl.Device], source: str, name: str, options: Sequence[str] = ()
) -> KernelPool:
    """Build a program for a device of a context, and return the objects of one of its kernels.

    `place` is the context and the device. `options` are those of the compiler, whose message an
    error contains.
    """
    try:
        with warnings.catch_warnings():
            # runtimes warn about successful builds too
            warnings.simplefilter("ignore", cl.CompilerWarning)
            return KernelPool(build_program(*place, source, options), name)
    except cl.Error as error:
        reason = " ".join(str(error).split())[:400]
        msg = (
            f"the OpenCL compiler of {place[1].name.strip()} fails ({reason}); `memdesc doctor` "
            "tries every runtime"
        )
        raise MemdescError(msg) from error


def build_program(
    context: cl.Context, device: cl.Device, source: str, options: Sequence[str] = ()
) -> cl.Program:
    """Return the program of a source for a device of a context, from the cache if it is there.

    `options` are those of the compiler, whose errors are pyopencl's.
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
    digest, binary = content[:_DIGEST_NBYTES], content[_DIGEST_NBYTES:]
    if _digest(file, binary) != digest:
        return None
    with suppress(OSError):
        os.utime(file)  # it was used now
    return binary


def _write(file: Path, binary: bytes) -> None:
    # on a full disk, without permission, or if there is a folder of that name, it is not kept
    with suppress(OSError, MemdescError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(file, lambda out: out.write(_digest(file, binary) + binary))


def _make_room(folder: Path, limit: int) -> None:
    """Remove the programs that were used least recently, until the others keep the limit."""
    files = []
    with suppress(OSError):
        for entry in os.scandir(folder):
            # another process may remove it, now and below
            with suppress(OSError):
                if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    files.append((status.st_mtime_ns, status.st_size, entry.path))
    total = sum(nbytes for _, nbytes, _ in files)
    for _, nbytes, path in sorted(files):
        if total <= limit:
            return
        with suppress(OSError):
            Path(path).unlink()
        total -= nbytes


def _digest(file: Path, binary: bytes) -> bytes:
    return hashlib.sha256(file.name.encode() + binary).digest()


def cache_folder() -> Path | None:
    """Return the folder, which may not exist yet; None if nothing is to be kept."""
    named = os.environ.get(CACHE_FOLDER)
    if named is None:
        # without a home folder there is none for caches; some versions then return a relative path
        with suppress(RuntimeError):
            users = Path(platformdirs.user_cache_dir("memdesc", appauthor=False))
            if users.is_absolute():
                return users / "opencl"
        return None
    return Path(named) / "opencl" if named else None


def cache_limit() -> int:
    """Return the most bytes of programs that are kept."""
    named = os.environ.get(CACHE_LIMIT)
    if named is None:
        return _DEFAULT_LIMIT
    if not (named.isascii() and named.isdigit() and len(named) <= _MAX_DIGITS):
        msg = (
            f"{CACHE_LIMIT}={short_repr(named)} is not a number of bytes of at most {_MAX_DIGITS} "
            f"digits; give {_DEFAULT_LIMIT}, or 0 to keep none"
        )
        raise MemdescError(msg)
    return int(named)
