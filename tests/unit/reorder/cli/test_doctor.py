"""`memdesc doctor`: what works here, and what is missing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from reorder.cli import main
from reorder.cli.doctor import COMMAND

if TYPE_CHECKING:
    from pytest import CaptureFixture  # noqa: PT013 - the type of a fixture


def test_doctor_tries_every_opencl_device(capsys: CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert all(device["works"] != bool(device["problem"]) for device in found["opencl_devices"])
    lines = COMMAND.lay_out(found)
    count = len(found["opencl_devices"])
    assert sum("): works, " in line or "): fails: " in line for line in lines) == count


def test_doctor_says_what_is_missing() -> None:
    device = {
        "name": "n",
        "platform": "p",
        "version": "v",
        "max_image": None,
        "is_processor": False,
    }
    broken = {**device, "problem": "no compiler", "remedy": "install one"}
    found = {
        "kernel_cache": None,
        "opencl_runtimes": [],
        "opencl_devices": [{**device, "problem": ""}, broken],
        "opencl_cpu_runtime": "pip install x",
    }
    lines = COMMAND.lay_out(found)
    assert "set NUMBA_CACHE_DIR to a writable folder" in lines[0]
    assert lines[1].endswith("none found")
    assert lines[2].endswith("n (p, v): works, no images, buffers only")
    assert lines[3].endswith("n (p, v): fails: no compiler; install one")
    processor = {**device, "problem": "", "is_processor": True, "max_image": (16, 8)}
    (line,) = (
        one for one in COMMAND.lay_out({**found, "opencl_devices": [processor]}) if "(p, v)" in one
    )
    assert line.endswith("images up to 16 x 8; the CPU: a reorder without a device is faster")
    none = COMMAND.lay_out({**found, "opencl_devices": []})
    assert "pip install x installs a runtime for the CPU" in none[2]
    assert (
        "opencl" in COMMAND.lay_out({"kernel_cache": "/x", "opencl": "pyopencl does not load"})[1]
    )


def test_what_is_compiled_is_said_only_with_compile(capsys: CaptureFixture[str]) -> None:
    assert main(["doctor", "--dtypes", "f32"]) == 2
    assert "--dtypes and --records say what --compile compiles" in capsys.readouterr().err
