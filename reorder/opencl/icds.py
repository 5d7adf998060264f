"""OpenCL's runtimes on the machine: the files that name their libraries, and bare libraries.

An ICD file holds the name of a runtime's library. Intel's runtime on PyPI installs one with a path
that does not exist; containers have NVIDIA's library without an ICD file.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from memdesc.tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        prefixes = tuple(
            dict.fromkeys(
                Path(prefix) for prefix in (sys.prefix, os.environ.get("CONDA_PREFIX")) if prefix
            )
        )
    if folders is None:
        paths = [part for part in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if part]
        folders = tuple(map(Path, (*paths, *_FOLDERS)))
    icds = [Icd(_named_in(file), str(file)) for file in _files(system)]
    for prefix in prefixes:
        icds += [
            _of_environment(file, prefix) for file in _files(prefix / "etc" / "OpenCL" / "vendors")
        ]
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


def _files(folder: Path) -> Iterator[Path]:
    try:
        yield from sorted(folder.glob("*.icd"))
    except OSError:
        return


def _named_in(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def _of_environment(file: Path, prefix: Path) -> Icd:
    """Return the runtime of an environment's ICD file; installers may have moved its library."""
    named = _named_in(file)
    if named is None:
        return Icd(None, str(file), "the file is empty or cannot be read")
    if not Path(named).is_absolute() or Path(named).exists():
        return Icd(named, str(file))
    moved = prefix / "lib" / Path(named).name
    if moved.exists():
        return Icd(str(moved), str(file), f"it names {named}, which does not exist")
    return Icd(
        None, str(file), f"it names {named}, which does not exist, and {moved} does not either"
    )
