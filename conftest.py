"""Doctests that need an OpenCL device are skipped where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

_ROOT = Path(__file__).parent
_NEED_A_DEVICE = (_ROOT / "docs" / "opencl.md", _ROOT / "reorder" / "opencl")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip examples of OpenCL where no runtime works."""
    found = [item for item in items if any(item.path.is_relative_to(p) for p in _NEED_A_DEVICE)]
    if not found:
        return
    from reorder.opencl import devices  # noqa: PLC0415 - other tests need no pyopencl

    if any(device.works for device in devices()):
        return
    reason = "no OpenCL runtime (intel-opencl-rt or pocl-opencl-icd)"
    for item in found:
        item.add_marker(pytest.mark.skip(reason=reason))
