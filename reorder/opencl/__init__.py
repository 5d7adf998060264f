"""Reorders on OpenCL devices: images, buffers, and every runtime on the machine.

Import it only when needed: pyopencl takes a tenth of a second to load. Examples start like this:

>>> import numpy as np, pyopencl as cl, pyopencl.array, memdesc, reorder
>>> from reorder import opencl
>>> context = cl.Context([opencl.find_device().device])
>>> queue = cl.CommandQueue(context)
"""

from reorder.opencl.device_memory import DeviceMemory
from reorder.opencl.enqueue import enqueue_pack, enqueue_reorder, enqueue_unpack, pack, unpack
from reorder.opencl.execution import kernel_texts
from reorder.opencl.runtimes import Device, devices, find_device, loader_report

__all__ = [
    "Device",
    "DeviceMemory",
    "devices",
    "enqueue_pack",
    "enqueue_reorder",
    "enqueue_unpack",
    "find_device",
    "kernel_texts",
    "loader_report",
    "pack",
    "unpack",
]


def __dir__() -> list[str]:
    """Return the public names and those with double underscores, without submodules."""
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
