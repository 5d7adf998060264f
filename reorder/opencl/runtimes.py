"""OpenCL's runtimes and devices: find them, try them, and tell whether this process may use them.

An ICD file holds the name of a runtime's library. Intel's runtime on PyPI installs one with a path
that does not exist; containers have NVIDIA's library without an ICD file.

A forked child may not use OpenCL if its parent did: a runtime's threads do not exist there, and its
locks may be held, so most calls would wait forever. The parent may have used OpenCL without this
library; a runtime is loaded in that case.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl

from memdesc import MemdescError
from memdesc.errors import short_repr
from memdesc.immutable import value_class
from memdesc.tuples import NamedTuple
from reorder.forks import at_fork
from reorder.opencl.binaries import build

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    """A runtime: its library if that exists, the file that names it, and the file's defect."""

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
        path = next((folder / name for folder in folders if _exists(folder / name)), None)
        if path is not None and not any(other.startswith(name.split(".so")[0]) for other in known):
            icds.append(Icd(str(path), str(path), f"no ICD file names {name}"))
    return tuple(icds)


def libraries() -> list[str]:
    """Return the libraries that the loader reads, by name or path, in order."""
    folder = os.environ.get(VARIABLE)
    if folder is None:
        named = [icd.library for icd in find_icds()]
    else:
        named = [_named_in(file) for file in _files(Path(folder))]
    return list(dict.fromkeys(filter(None, named)))


def _files(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(folder.glob("*.icd"))
    return []


def _exists(file: Path) -> bool:
    """Whether a file exists; False if the system refuses to look."""
    with suppress(OSError):
        return file.exists()
    return False


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
    if not Path(named).is_absolute() or _exists(Path(named)):
        return Icd(named, str(file))
    moved, note = prefix / "lib" / Path(named).name, f"it names {named}, which does not exist"
    if _exists(moved):
        return Icd(str(moved), str(file), note)
    return Icd(None, str(file), f"{note}, and {moved} does not either")


class _State:
    """Whether this process used OpenCL, and whether its parent, or an earlier one, had used it."""

    uses_opencl = is_parent_used = is_forbidden = False


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
    """Whether a library is already in the memory of this process; it is not loaded here."""
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


_TRIAL = """__kernel void trial(__global int *out) {
    out[get_global_id(0)] = (int)get_global_id(0) + 1;
}"""
_TRIAL_WORK_ITEMS = 16
# How to get a runtime that needs no GPU, on x86-64 Linux; the packages of the extra `opencl-cpu`.
INSTALL_CPU_RUNTIME = "pip install intel-opencl-rt intel-cmplr-lib-rt"
_lock = Lock()


@value_class
class Device:
    """A device and what it can do.

    Parameters
    ----------
    device : pyopencl.Device
        For `pyopencl.Context([device])`.
    name, platform, version : str
        As the runtime reports them.
    has_images : bool
        Whether it has images.
    max_width, max_height : int
        Largest image, in pixels.
    problem : str
        What is wrong; empty if a small program was built and ran.
    remedy : str
        How to repair it; empty if it works.

    Examples
    --------
    >>> all(device.works or device.remedy for device in opencl.devices())
    True
    """

    device: cl.Device
    name: str
    platform: str
    version: str
    has_images: bool
    max_width: int
    max_height: int
    problem: str = ""
    remedy: str = ""

    @property
    def works(self) -> bool:
        """Whether a small program was built and ran."""
        return not self.problem

    @property
    def is_processor(self) -> bool:
        """Whether it is a CPU, where a reorder without OpenCL is faster."""
        return bool(self.device.type & cl.device_type.CPU)


def devices() -> tuple[Device, ...]:
    """Return every OpenCL device of the machine, after running a small program on each.

    Runtimes are found without settings: the system's, those that pip and conda installed, and
    libraries without an ICD file. If `OCL_ICD_VENDORS` is set, only its folder is searched.
    The loader searches once per process: if pyopencl was used before, the devices are those it
    found then.

    Raises
    ------
    MemdescError
        In a forked child whose parent used OpenCL.

    Examples
    --------
    >>> usable = [d.device for d in opencl.devices() if d.works]
    """
    cl_devices: list[cl.Device] = []
    for platform in _platforms():
        with suppress(cl.Error):  # a platform without devices
            cl_devices += platform.get_devices()
    return tuple(map(_probed, cl_devices))


def find_device(name: str = "") -> Device:
    """Return the first device that works and whose name or platform contains a string.

    Parameters
    ----------
    name : str
        Part of either, in upper or lower case, such as ``"nvidia"``; by default any device. If it
        is part of neither, it may be a whole word that the runtime writes after the OpenCL version,
        such as ``"pocl"``.

    Raises
    ------
    MemdescError
        If no such device works; the message lists the devices and what is wrong with each.

    Examples
    --------
    >>> opencl.find_device().works
    True
    """
    if not isinstance(name, str):
        raise MemdescError(f"the name of a device is a string, not {short_repr(name)}")
    wanted = name.strip().lower()
    every = devices()
    named = [d for d in every if wanted in d.name.lower() or wanted in d.platform.lower()]
    # "OpenCL", the version of OpenCL, and then the words of the runtime
    named = named or [d for d in every if wanted in d.version.lower().split()[2:]]
    for device in named:
        if device.works:
            return device
    listed = "; ".join(
        f"{d.name} ({d.platform}){f' fails: {d.problem}' if d.problem else ''}"
        for d in named or every
    )
    raise MemdescError(
        f"no OpenCL device {name!r} works; there are: {listed or 'none'}. `memdesc doctor` says "
        "more"
    )


def loader_report() -> list[str]:
    """Return a line about each runtime found.

    Each has the file that names the runtime, the library and, if there is a problem, what is wrong
    with the file and why the library does not load.

    Examples
    --------
    >>> lines = opencl.loader_report()
    """
    if VARIABLE in os.environ:
        return [f"{VARIABLE}={os.environ[VARIABLE]} is set, so it alone decides"]
    lines = []
    for icd in find_icds():
        notes = [icd.note] if icd.note else []
        if icd.library is not None:
            try:
                ctypes.CDLL(icd.library)
            except OSError as error:
                notes.append(f"does not load: {error}")
        said = f" ({'; '.join(notes)})" if notes else ""
        lines.append(f"{icd.source}: {icd.library or 'unusable'}{said}")
    return lines


def _platforms() -> list[cl.Platform]:
    """Return the platforms; the loader reads its folder at the first call of a process."""
    check_process()
    with _lock, ExitStack() as stack:
        names = [] if VARIABLE in os.environ else libraries()
        if names:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="opencl-icds-"))
            for k, library in enumerate(names):
                Path(folder, f"{k}.icd").write_text(f"{library}\n", encoding="utf-8")
            os.environ[VARIABLE] = folder
            stack.callback(os.environ.pop, VARIABLE, None)
        with suppress(cl.Error):  # the loader fails if there is no platform
            return list(cl.get_platforms())
        return []


def _probed(device: cl.Device) -> Device:
    problem = _problem_of(device)
    return Device(
        device,
        device.name.strip(),
        device.platform.name.strip(),
        device.version.strip(),
        bool(device.image_support),
        device.image2d_max_width if device.image_support else 0,
        device.image2d_max_height if device.image_support else 0,
        problem,
        _remedy_of(problem),
    )


def _problem_of(device: cl.Device) -> str:
    """Build and run a small program; return the error, or an empty string."""
    try:
        out = try_program((cl.Context([device]), device), _TRIAL, _TRIAL_WORK_ITEMS)
    except (MemdescError, cl.Error) as error:
        return " ".join(str(error).split())
    if out.tolist() != list(range(1, _TRIAL_WORK_ITEMS + 1)):
        return f"a kernel that counts to {_TRIAL_WORK_ITEMS} wrote {out.tolist()}"
    return ""


def try_program(place: tuple[cl.Context, cl.Device], text: str, items: int) -> NDArray[np.int32]:
    """Return what the work items of a kernel named ``trial`` write, one number each."""
    context, device = place
    queue, out = cl.CommandQueue(context, device), np.zeros(items, np.int32)
    kernel = cl.Kernel(build(place, text), "trial")
    buffer = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, out.nbytes)
    kernel.set_arg(0, buffer)
    cl.enqueue_nd_range_kernel(queue, kernel, (items,), None)
    cl.enqueue_copy(queue, out, buffer)
    return out


def _remedy_of(problem: str) -> str:
    if not problem:
        return ""
    if "unknown target CPU" in problem:
        return (
            "this PoCL is too old for the processor: pip uninstall pocl-binary-distribution, "
            "and install the system's (apt install pocl-opencl-icd) "
            f"or {INSTALL_CPU_RUNTIME}"
        )
    return (
        f"update or reinstall the runtime; on x86-64 Linux {INSTALL_CPU_RUNTIME} brings one "
        "that runs on the CPU"
    )
