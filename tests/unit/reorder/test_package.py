from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import memdesc
import reorder


def test_dir_lists_public_names_and_dunder_names_only() -> None:
    listed = dir(reorder)
    assert {name for name in listed if not name.startswith("__")} == set(reorder.__all__)
    assert {"__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"} <= set(listed)
    assert import_module("reorder.plan") is reorder.plan  # type: ignore[attr-defined] # a submodule


def test_both_packages_have_one_version() -> None:
    assert reorder.__version__ == memdesc.__version__


def test_names_that_few_programs_use_are_loaded_on_first_use_and_all_can_be_imported() -> None:
    code = (
        "import reorder as package; from reorder import *; "
        "print(all(name in globals() for name in package.__all__), package.load is load)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "True True\n"
    code = "import sys, reorder; print([name for name in sys.modules if 'reorder.storage' in name])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_the_opencl_package_is_loaded_on_first_use() -> None:
    code = (
        "import sys, reorder; before = 'pyopencl' in sys.modules; reorder.opencl.pack; "
        "print(before, 'pyopencl' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False True\n"
    with pytest.raises(AttributeError, match="module 'reorder' has no attribute 'opengl'"):
        reorder.opengl  # type: ignore[attr-defined]  # noqa: B018 - the access is the test
