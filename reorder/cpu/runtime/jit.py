"""Kernels by name: loaded from their files, or compiled once and kept there.

LLVM is imported only to compile. What comes from a file is what was compiled, so all processes run
the same code; a process that compiles a kernel loads it in the same way as later ones.
"""

import os
import sys
from collections.abc import Callable, Iterator
from ctypes import CFUNCTYPE, c_int64
from functools import cache
from importlib import import_module
from importlib.util import source_hash
from time import perf_counter
from typing import Any

from memdesc import __version__
from memdesc.tuples import NamedTuple
from reorder.cpu import kernel_files
from reorder.cpu.runtime.machine_code import linked, load, needs_llvm
from reorder.cpu.schedule.select import Kernel as MoveKernel
from reorder.cpu.schedule.select import parts_for
from reorder.cpu.target import instructions, processor, version_of
from reorder.forks import importing, importing_own, is_ending, wait_for_end
from reorder.stack import on_enough_stack, uninterrupted

# The packages that write kernels, and those whose values and constants they use.
_ROOT = __file__.replace(os.sep, "/").rsplit("/", 4)[0]
_SOURCES = (
    *("reorder/cpu", "reorder/values", "reorder/plan", "reorder/memory", "reorder/bench"),
    "memdesc/record",
)


class Kernel(NamedTuple):
    """A C function of int64 that can be compiled."""

    # identifies the code, on disk too
    name: str
    # returns LLVM's text, and the name of the function in it. It is called only if there is no
    # file, so it imports what it needs
    text: Callable[[], tuple[str, str]]
    # whether it only moves elements, for which LLVM needs fewer passes
    moves: bool = False


# the name under which the hash of the sources is kept
_DIGEST = "digest of sources"
# the addresses of kernels by name, and the seconds that each took: compiled, or loaded
_addresses: dict[str, int] = {}
_made: list[dict[str, Any]] = []
# Python functions that a process can do without: for repeated calls, and for threads.
FAST_CALL, SHARED_JOB = "fast call", "thread pool: job"
# Numba takes most of a second for such a function. Without a file of it, a process does without the
# function until that has cost this many seconds, and then compiles it for later processes as well.
_MOST_LOST = 0.02
_lost: dict[str, float] = {}


def compiled_kernels() -> list[dict[str, Any]]:
    """Return the kernels that this process has compiled or loaded from disk, with the seconds."""
    return [*_made]


def kernel_at(kernel: Kernel) -> int:
    """Return the address of a kernel, compiled or loaded once."""
    if kernel.name not in _addresses:
        processor()  # it may ask LLVM, on a thread that cannot have the lock
        with importing_own:
            on_enough_stack(lambda: _make(kernel))
    if kernel.name not in _addresses:
        # a signal handler has interrupted an import, for which another thread would wait
        is_inside = importing_own._is_owned()  # type: ignore[attr-defined] # noqa: SLF001 - as threading.Condition asks
        made = None
        # compiling imports modules, also in the compilers
        with importing():
            is_late = is_ending()
            if not is_late:
                made = uninterrupted(lambda: _make(kernel, with_llvm=True), here=is_inside)
        if is_late:
            wait_for_end()
            return kernel_at(kernel)
        # on this thread, without the lock: a logging handler may need both
        if made is not None:
            _tell(kernel.name, *made)
    return _addresses[kernel.name]


def compiled_at(function: Callable[..., int | None], name: str) -> int:
    """Return the address of a Python function as a C function of int64, compiled or loaded once.

    It may compute with integers, loop over ranges, and call intrinsics and other such functions.
    """

    def text() -> tuple[str, str]:
        from reorder.cpu.runtime.functions import text_of

        return text_of(function)

    return kernel_at(Kernel(name, text))


def compiled_interpreter(name: str, emits: str, *given: Any, moves: bool = False) -> int:
    """Return the address of an interpreter, compiled or loaded once by its name, on disk too.

    `emits` names the function that writes its body from an `InterpreterCall` and what is given, as
    ``module:function``: only a process without the code imports the module. With `moves` LLVM takes
    fewer passes, which suffices for code that computes nothing.
    """

    def text() -> tuple[str, str]:
        from reorder.cpu.kernels.interpreter import InterpreterCall
        from reorder.cpu.runtime.compiler import text_of

        module, _, function = emits.partition(":")
        emit = getattr(import_module(module), function)
        # no two functions that are loaded have the same name
        symbol = f"interpreter_{source_hash(name.encode()).hex()}"
        count = len(InterpreterCall._fields)
        written = text_of(lambda *call: emit(InterpreterCall(*call), *given), count, symbol)
        return written, symbol

    return kernel_at(Kernel(name, text, moves))


@cache
def interpreter_at(kernel: MoveKernel) -> int:
    """Return the address of the compiled interpreter of boxes whose elements a kernel moves.

    An interpreter with all parts is taken instead if it was compiled in advance.
    """
    whole = whole_kernel(kernel)
    chosen = whole if _is_on_disk(_name_of(whole)) else kernel
    emits = "reorder.cpu.kernels.boxes:emit_boxes"
    return compiled_interpreter(_name_of(chosen), emits, chosen, moves=True)


def whole_kernel(kernel: MoveKernel) -> MoveKernel:
    """Return the kernel with all parts, which runs every program for its elements."""
    return kernel._replace(parts=parts_for(kernel.bits, instructions()))


def _name_of(kernel: MoveKernel) -> str:
    return f"interpreter of {kernel}"


def is_due(name: str, lost: float = 0.0) -> bool:
    """Whether to load or compile a Python function now.

    It is time if the function has a file, or if the process has lost enough seconds without it;
    `lost` are those of this call.
    """
    _lost[name] = _lost.get(name, 0.0) + lost
    return name in _addresses or _lost[name] >= _MOST_LOST or _is_on_disk(name)


@cache
def _is_on_disk(name: str) -> bool:
    """Whether a kernel had a file when this process first asked, so that it needs no compiler."""
    return kernel_files.read(name, _key(name)) is not None


@cache
def c_function(function: Callable[[int, int, int], int | None], name: str) -> Any:
    """Compile a function of three integers; returns it as a ctypes function without a result."""
    return CFUNCTYPE(None, *[c_int64] * 3)(compiled_at(function, name))


def _make(kernel: Kernel, *, with_llvm: bool = False) -> tuple[float, str | None] | None:
    """Load a kernel or, with LLVM, compile it; do nothing if that is needed and not allowed.

    For a kernel that was compiled, returns the seconds and the folder that keeps it, if any.
    """
    name = kernel.name
    if name in _addresses:
        return None
    start = perf_counter()
    key = _key(name)
    kept = kernel_files.read(name, key)
    if not with_llvm and (kept is None or needs_llvm(kept)):
        return None
    if kept is None:
        from reorder.cpu.runtime.compiler import compile_text

        text, symbol = kernel.text()
        content = linked(compile_text(text, symbol, moves=kernel.moves), symbol)
    else:
        content = kept
    _addresses[name] = load(content)
    folder = kernel_files.write(name, key, content) if kept is None else None
    seconds = perf_counter() - start
    _made.append({"kernel": name, "seconds": seconds, "is_loaded": kept is not None})
    return (seconds, folder) if kept is None else None


def _tell(name: str, seconds: float, folder: str | None) -> None:
    """Log that a kernel was compiled; once in a process, tell whoever waits at a terminal why."""
    import logging  # slow to load, like all that compiles

    why = f"{folder} had no code for it" if folder else "no folder for it is writable"
    logging.getLogger("reorder").info("compiled the kernel %r in %.2f s: %s", name, seconds, why)
    first = next(kernel["kernel"] for kernel in _made if not kernel["is_loaded"])
    if name == first and sys.stderr is not None and sys.stderr.isatty():
        what = "kernels once" if folder else "kernels in each process, as no folder is writable"
        sys.stderr.write(f"memdesc: compiling {what}: {seconds:.1f} s for the first\n")


def _key(name: str) -> str:
    """Return all that the code of a kernel depends on."""
    facts = name, digest(), sys.platform, *processor()
    return "\n".join([*facts, version_of("llvmlite"), version_of("numba")])


def source_files(root: str = _ROOT) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the sources on which the code of kernels may depend, by their place in the root."""
    for place in ("memdesc/dtypes.py", "memdesc/tuples.py", "reorder/system.py"):
        yield place, os.stat(f"{root}/{place}")
    for package in _SOURCES:
        yield from _files(root, package)


def _files(root: str, place: str) -> Iterator[tuple[str, os.stat_result]]:
    for entry in sorted(os.scandir(f"{root}/{place}"), key=lambda entry: entry.name):
        inner = f"{place}/{entry.name}"
        if inner.endswith(".py"):
            yield inner, entry.stat()
        elif entry.name != "__pycache__" and entry.is_dir():
            yield from _files(root, inner)


@cache
def digest(root: str = _ROOT) -> str:
    """Return a hash of these sources, kept while the sizes and times of the files stay the same.

    One of these times is that of the last status change, which no installer can set.
    """
    files = dict(source_files(root))
    facts = (
        f"{name} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"
        for name, stat in files.items()
    )
    key = "\n".join([__version__, root, *facts])
    kept = kernel_files.read(_DIGEST, key)
    if kept is not None:
        return kept.hex()
    parts = [__version__.encode()]
    for name in files:
        with open(f"{root}/{name}", "rb") as file:
            parts += name.encode(), file.read()
    made = source_hash(b"\n".join(parts))
    kernel_files.write(_DIGEST, key, made)
    return made.hex()
