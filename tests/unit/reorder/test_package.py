from __future__ import annotations

import subprocess
import sys

import pytest

import reorder


def test_the_device_room_is_loaded_when_it_is_asked_for() -> None:
    code = "import sys, reorder; before = 'pyopencl' in sys.modules; reorder.opencl.pack; print(before, 'pyopencl' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False True\n"
    with pytest.raises(AttributeError, match="module 'reorder' has no attribute 'opengl'"):
        reorder.opengl  # type: ignore[attr-defined]  # noqa: B018 - asking is the test
