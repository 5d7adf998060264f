"""What of this folder is Sphinx's and holds no doctests, and what needs a part of the system."""

import pytest

from reorder.opencl import devices

collect_ignore = ["conf.py", "_ext"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the page that needs a runtime where there is none."""
    for item in items:
        if item.path.name == "opencl.md" and not any(device.works for device in devices()):
            item.add_marker(
                pytest.mark.skip(reason="no OpenCL runtime (intel-opencl-rt or pocl-opencl-icd)")
            )
