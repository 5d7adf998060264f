"""A pytest plugin for the examples in docstrings and pages, which are outside this folder.

Those that need an OpenCL device are skipped where there is none; those that need packages of an
extra are marked `peers`.
"""

import doctest
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import memdesc
import reorder

_ROOT = Path(__file__).parents[1]
_NEED_A_DEVICE = (_ROOT / "docs" / "opencl.md", _ROOT / "reorder" / "opencl")
# Files that need a package of an extra, by its name: with the mark `peers`, as tests of others.
_NEED_A_PACKAGE = {
    "dask": (_ROOT / "docs" / "dask.md", _ROOT / "reorder" / "dask.py"),
    "zarr": (_ROOT / "docs" / "zarr.md", _ROOT / "reorder" / "zarr.py"),
    "torch": (_ROOT / "docs" / "torch.md",),
}

_MISSING = {
    path
    for package, paths in _NEED_A_PACKAGE.items()
    if find_spec(package) is None
    for path in paths
}


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out files that need a package which is not installed."""
    return True if collection_path in _MISSING else None


def is_runnable(page: Path) -> bool:
    """Whether the examples of a page have the packages and the device that they need."""
    if page in _MISSING:
        return False
    if page not in _NEED_A_DEVICE:
        return True
    from reorder.opencl import devices  # other pages need no pyopencl

    return any(device.works for device in devices())


@pytest.fixture(autouse=True)
def _start_of_examples(
    request: pytest.FixtureRequest, doctest_namespace: dict[str, object]
) -> Iterator[None]:
    """Start examples as numpydoc does, with the imports that all of them need.

    Those of reorder.opencl start as its docstring says.
    """
    doctest_namespace |= {"memdesc": memdesc, "np": np, "reorder": reorder}
    if request.node.path.is_relative_to(_NEED_A_DEVICE[1]):
        from reorder import opencl  # other tests need no pyopencl

        for line in doctest.script_from_examples(str(opencl.__doc__)).splitlines():
            exec(line, doctest_namespace)
    yield
    # other examples have their own imports
    doctest_namespace.clear()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark examples that need packages, and skip those of OpenCL where no runtime works."""
    examples = [item for item in items if isinstance(item, pytest.DoctestItem)]
    needed = [path for paths in _NEED_A_PACKAGE.values() for path in paths]
    for item in examples:
        if any(item.path.is_relative_to(path) for path in needed):
            item.add_marker(pytest.mark.peers)
    found = [item for item in examples if any(item.path.is_relative_to(p) for p in _NEED_A_DEVICE)]
    if not found:
        return
    from reorder.opencl import devices  # other tests need no pyopencl

    if any(device.works for device in devices()):
        return
    reason = "no OpenCL runtime (intel-opencl-rt or pocl-opencl-icd)"
    for item in found:
        item.add_marker(pytest.mark.skip(reason=reason))
