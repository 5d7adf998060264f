"""`memdesc doctor`: what works here, and what is missing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import __version__
from reorder.cli.doctor import COMMAND

if TYPE_CHECKING:
    from tests.unit.reorder.cli.shell import Shell


def test_versions_the_cache_and_every_opencl_device_are_reported(shell: Shell) -> None:
    found = shell.facts("doctor")
    assert (found["memdesc"], found["numpy"]) == (__version__, np.__version__)
    # tests assume one
    assert found["assumed_machine"] == os.environ["MEMDESC_MACHINE"]
    devices = found["opencl_devices"]
    assert all(device["works"] != bool(device["problem"]) for device in devices)
    lines = COMMAND.lay_out(found)
    assert sum("): works, " in line or "): fails: " in line for line in lines) == len(devices)


def test_what_is_missing_is_reported() -> None:
    device: dict[str, Any] = {"name": "n", "platform": "p", "version": "v", "problem": ""}
    device |= {"is_processor": False, "max_image": None}
    broken = {**device, "problem": "no compiler", "remedy": "install one"}
    processor = {**device, "is_processor": True, "max_image": (16, 8)}
    install = {"opencl_cpu_runtime": "pip install x"}

    def shown(*devices: dict[str, Any]) -> list[str]:
        found = {"kernel_cache": None, "opencl_runtimes": [], "opencl_devices": [*devices]}
        return COMMAND.lay_out(found | install)

    lines = shown(device, broken, processor)
    assert "set NUMBA_CACHE_DIR to a writable folder" in lines[0]
    assert lines[1].endswith("none found")
    assert lines[2].endswith("n (p, v): works, no images, buffers only")
    assert lines[3].endswith("n (p, v): fails: no compiler; install one")
    assert lines[4].endswith("up to 16 x 8; the CPU: a reorder without a device is faster")
    assert "pip install x installs a runtime for the CPU" in shown()[2]
    lines = COMMAND.lay_out({"kernel_cache": "/x", "opencl": "pyopencl does not load"})
    assert lines[1].endswith("pyopencl does not load")


def test_what_is_compiled_is_shown_only_with_compile(shell: Shell) -> None:
    said = shell.refusal("doctor --dtypes f32")
    assert "--dtypes and --records say what --compile compiles" in said
