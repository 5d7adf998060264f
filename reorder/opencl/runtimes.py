"""OpenCL's runtimes on the machine, and whether this process may use them.

An ICD file holds the name of a runtime's library. Intel's runtime on PyPI installs one with a path
that does not exist; containers have NVIDIA's library without an ICD file.

A forked child may not use OpenCL if its parent did: a runtime's threads do not exist there, and its
locks may be held, so most calls would wait for ever. The parent may have used OpenCL without this
library, but then a runtime is loaded.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from memdesc import MemdescError
from memdesc.tuples import NamedTuple
from reorder.forks import at_fork

# This variable names the only folder to search; the loader reads it once, at its first call.
VARIABLE = "OCL_ICD_VENDORS"

_SYSTEM = Path("/etc/OpenCL/vendors")
# libraries of runtimes that some machines have without an ICD file
_BARE = ("libnvidia-opencl.so.1", "libamdocl64.so")
_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/wsl/lib",
    "/opt/rocm/lib",
)


class Icd(NamedTuple):
    """A runtime that was found.

    `library` is a path, or a name that the system resolves; None if the library does not exist.
    `source` is the file that names it, `note` what is wrong with that file.
    """

    library: str | None
    source: str
    note: str = ""


def find_icds(
    system: Path = _SYSTEM,
    prefixes: tuple[Path, ...] | None = None,
    folders: tuple[Path, ...] | None = None,
) -> tuple[Icd, ...]:
    """Find every runtime.

    First the ICD files that loaders read by default, then those of environments (Python's own and
    conda's), then libraries without an ICD file, in the system's folders and `LD_LIBRARY_PATH`.
    """
    if prefixes is None:
        named = dict.fromkeys((sys.prefix, os.environ.get("CONDA_PREFIX")))
        prefixes = tuple(Path(prefix) for prefix in named if prefix)
    if folders is None:
        paths = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
        folders = tuple(map(Path, filter(None, (*paths, *_FOLDERS))))
    icds = [Icd(_named_in(file), str(file)) for file in _files(system)]
    for prefix in prefixes:
        icds += [_moved(file, prefix) for file in _files(prefix / "etc" / "OpenCL" / "vendors")]
    known = {Path(icd.library).name for icd in icds if icd.library}
    for name in _BARE:
        path = next((folder / name for folder in folders if (folder / name).exists()), None)
        if path is not None and not any(other.startswith(name.split(".so")[0]) for other in known):
            icds.append(Icd(str(path), str(path), f"no ICD file names {name}"))
    return tuple(icds)


def libraries() -> list[str]:
    """Return the libraries that the loader reads, by their names or paths, in order."""
    folder = os.environ.get(VARIABLE)
    if folder is None:
        named = [icd.library for icd in find_icds()]
    else:
        named = [_named_in(file) for file in _files(Path(folder))]
    return list(dict.fromkeys(filter(None, named)))


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.icd"))


def _named_in(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def _moved(file: Path, prefix: Path) -> Icd:
    """Return the runtime of an environment's ICD file; installers may have moved its library."""
    named = _named_in(file)
    if named is None:
        return Icd(None, str(file), "the file is empty or cannot be read")
    if not Path(named).is_absolute() or Path(named).exists():
        return Icd(named, str(file))
    moved, note = prefix / "lib" / Path(named).name, f"it names {named}, which does not exist"
    if moved.exists():
        return Icd(str(moved), str(file), note)
    return Icd(None, str(file), f"{note}, and {moved} does not either")


class _State:
    # whether this process has used OpenCL through this library
    uses_opencl = False
    # whether the process that was forked, or one before it, had used OpenCL
    is_parent_used = False
    is_forbidden = False


state = _State()


def check_process() -> None:
    """Refuse OpenCL in a child of a process that had used it; otherwise record that it is used."""
    if state.is_forbidden:
        raise MemdescError(
            "this process was forked from one that had used OpenCL, whose runtimes do not work in "
            "a forked child; start it with multiprocessing.get_context('spawn'), or fork before "
            "OpenCL is used"
        )
    state.uses_opencl = True


def _is_loaded(library: str) -> bool:
    """Whether a library is in the memory of this process; it is not loaded."""
    try:
        ctypes.CDLL(library, mode=os.RTLD_NOLOAD)
    except OSError:
        return False
    return True


def _before_fork() -> None:
    state.is_parent_used = state.uses_opencl or any(map(_is_loaded, libraries()))


def _in_child() -> None:
    state.is_forbidden = state.is_forbidden or state.is_parent_used


if hasattr(os, "fork"):
    at_fork(_before_fork, lambda: None, _in_child)
