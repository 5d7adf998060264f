"""`memdesc doctor`: what is installed and works here, or compile the CPU kernels in advance."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import numpy as np

import memdesc
from reorder.assumed import VARIABLE
from reorder.cli.command import Command, Facts, Options, Said, facts_of, lines
from reorder.cli.progress import Progress

if TYPE_CHECKING:
    import pyopencl as cl

    from reorder.opencl import Device

_PACKAGES = ("numpy", "ml_dtypes", "numba", "llvmlite", "pyopencl")
# what a report says about a device, by pyopencl's names
_DEVICE_INFO = (
    *("vendor", "driver_version", "opencl_c_version", "max_compute_units"),
    *("max_work_group_size", "local_mem_size", "global_mem_size", "global_mem_cacheline_size"),
    *("image_support", "image2d_max_width", "image2d_max_height", "image_pitch_alignment"),
    "extensions",
)
# layouts, buffers and images, that a report moves a tensor into and back
TRIALS = (
    *(("nhwc", "f32"), ("nChw16c", "f32"), ("b_fs_yx_fsv16", "f16"), ("nChw4c", "u8")),
    *(("in_out_channel", "f32"), ("in_out_channel", "f16"), ("image_2d_weights_c4_fyx_b", "f32")),
)
_NO_CACHE = (
    "none: no folder is writable, so each process compiles again; set NUMBA_CACHE_DIR to a "
    "writable folder"
)
# steps of the progress bar
_PARTS = 1000


def _answer(options: Options) -> tuple[Facts, int]:
    if options.compile:
        return _compile(), 0
    if options.report:
        return {"report": _report()}, 0
    from reorder.cpu import cache_folder, count_threads  # LLVM is slow to load

    folder = cache_folder()
    facts: Facts = {
        "memdesc": memdesc.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        **{package: _version(package) for package in _PACKAGES},
        "threads": count_threads(),
        "kernel_cache": str(folder) if folder else Said(None, _NO_CACHE),
    }
    if VARIABLE in os.environ:
        facts["assumed_machine"] = os.environ[VARIABLE]
    return facts | _opencl(), 0


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _report() -> list[str]:
    """Return Markdown about the machine and each device, with the results of a few moves there."""
    packages = ", ".join(f"{package} {_version(package)}" for package in _PACKAGES)
    system = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    lines = [f"memdesc {memdesc.__version__}, {system}: {packages}"]
    try:
        from reorder.opencl import devices  # only doctor asks

        on_hand = devices()
    except (ImportError, memdesc.MemdescError) as error:
        return [*lines, "", f"No OpenCL: {error}"]
    for device in on_hand:
        lines += ["", f"| {device.name} | {device.platform}, {device.version} |", "| --- | --- |"]
        lines += [f"| {name} | {text} |" for name, text in _rows_of(device)]
    return lines if on_hand else [*lines, "", "No OpenCL device."]


def _rows_of(device: Device) -> Iterator[tuple[str, str]]:
    """Yield what a device reports about itself, then whether moves to it and back are exact."""
    import pyopencl as cl  # only doctor asks

    for name in _DEVICE_INFO:
        try:
            value = getattr(device.device, name)
        except (AttributeError, cl.Error):  # newer OpenCL, or no images
            continue
        yield name.replace("_", " "), str(value).strip()
    if not device.works:
        yield "fails", device.problem
        return
    context = cl.Context([device.device])
    queue = cl.CommandQueue(context)
    for dst, dtype in TRIALS:
        yield f"{dst}, {dtype}", _tried(dst, dtype, queue)


def _tried(dst: str, dtype: str, queue: cl.CommandQueue) -> str:
    """Move a tensor to a device and back, and say whether its bits are the same."""
    from reorder.api import reorder

    x = np.random.default_rng(0).integers(-9, 9, (2, 37, 31, 29)).astype(np.float32)
    plain = reorder(x, "nchw", dtype=dtype)
    started = time.perf_counter()
    try:
        back = reorder(reorder(plain, dst, queue=queue), "nchw", queue=queue).get()
    except (memdesc.MemdescError, RuntimeError, MemoryError) as error:
        return f"fails: {' '.join(str(error).split())}"
    took = time.perf_counter() - started
    wrong = int((back.data != plain.data).sum())
    return f"{f'{wrong} bytes differ' if wrong else 'exact'} ({took:.2f} s with compiling)"


def _compile() -> Facts:
    # these load LLVM, which is slow
    from reorder.cpu import cache_folder
    from reorder.precompile import compile_kernels

    with Progress(_PARTS) as bar:

        def show(done: int, total: int) -> None:
            bar.move_to(_PARTS * done // total, f"step {done + 1} of {total}")

        made = compile_kernels(progress=show)
    return {
        "folder": str(cache_folder()),
        "kernels": len(made),
        "compiled": sum(not kernel["is_loaded"] for kernel in made),
        "seconds": round(sum(kernel["seconds"] for kernel in made), 2),
    }


def _opencl() -> Facts:
    """Test every OpenCL device; say how to repair those that fail."""
    try:
        from reorder.opencl import devices, loader_report  # only doctor asks
        from reorder.opencl.binaries import cache_folder  # only doctor asks
        from reorder.opencl.runtimes import INSTALL_CPU_RUNTIME  # only doctor asks

        on_hand = devices()
    except ImportError as error:
        why = f"pyopencl does not load ({error}): pip install --force-reinstall pyopencl"
        return {"opencl": why}
    except memdesc.MemdescError as error:
        return {"opencl": str(error)}
    facts = opencl_facts(loader_report(), on_hand, INSTALL_CPU_RUNTIME)
    folder = cache_folder()
    return facts | {"opencl_cache": folder and str(folder)}


def opencl_facts(runtimes: list[str], on_hand: Sequence[Device], how: str) -> Facts:
    """Return the runtimes and devices of OpenCL; `how` installs a runtime for the CPU."""
    names = ("name", "platform", "version", "is_processor", "works", "problem", "remedy")
    devices = [
        facts_of(device, *names)
        | {"max_image": (device.max_width, device.max_height) if device.has_images else None}
        for device in on_hand
    ]
    none = f"none: on x86-64 Linux, {how} installs a runtime for the CPU"
    return {
        "opencl_runtimes": Said(runtimes, runtimes or ["none found"]),
        "opencl_devices": Said(devices, [*map(_device_line, devices)] or [none]),
        "opencl_cpu_runtime": Said(how),
    }


def _device_line(device: Facts) -> str:
    name = f"{device['name']} ({device['platform']}, {device['version']})"
    if device["problem"]:
        return f"{name}: fails: {device['problem']}; {device['remedy']}"
    slow = "; this is the CPU, where plain reorders are faster" if device["is_processor"] else ""
    size = device["max_image"]
    images = "no images, buffers only" if size is None else f"images up to {size[0]} x {size[1]}"
    return f"{name}: works, {images}{slow}"


COMMAND = Command(_answer, lambda facts: facts.get("report") or lines(facts))
