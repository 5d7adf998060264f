"""`memdesc doctor`."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import memdesc
from reorder.cli.command import Command, Facts

if TYPE_CHECKING:
    import argparse

    from reorder.opencl import Device

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def _answer(_options: argparse.Namespace) -> tuple[Facts, int]:
    # numba is slow to load
    from reorder.cpu import cache_folder, count_threads, layer_name  # noqa: PLC0415 - see above

    facts: Facts = {
        "memdesc": memdesc.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    for package in ("numpy", "ml_dtypes", "numba", "llvmlite", "pyopencl", "tbb"):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    folder = cache_folder()
    facts |= {
        "thread_layer": layer_name(),
        "threads": count_threads(),
        "kernel_cache": folder
        or "none: no folder can be written, so each process compiles anew; "
        "set NUMBA_CACHE_DIR to one",
    }
    return facts | _opencl(), 0


def _opencl() -> Facts:
    """Test every OpenCL device; for those that fail, say how to mend it."""
    try:
        from reorder.opencl import devices, loader_report  # noqa: PLC0415 - only doctor asks
        from reorder.opencl.discovery import INSTALL_CPU_RUNTIME  # noqa: PLC0415 - likewise
    except ImportError as error:
        return {
            "opencl": f"pyopencl does not load ({error}): pip install --force-reinstall pyopencl"
        }
    found = devices()
    lines = [
        f"{device.name} ({device.platform}, {device.version}): "
        + (f"fails: {device.problem}; {device.mend}" if device.problem else _abilities(device))
        for device in found
    ]
    none = f"none: on x86-64 Linux {INSTALL_CPU_RUNTIME} brings a runtime that works on the CPU"
    return {"opencl_runtimes": loader_report() or ["none found"], "opencl_devices": lines or [none]}


def _abilities(device: Device) -> str:
    images = (
        f"images up to {device.max_width} x {device.max_height}"
        if device.has_images
        else "no images, buffers only"
    )
    return f"works, {images}"


COMMAND = Command(
    "doctor",
    "Report versions, threads, compiled kernels, OpenCL devices.",
    "doctor",
    _add_arguments,
    _answer,
)
