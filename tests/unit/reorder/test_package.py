from __future__ import annotations

import os
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
    opencl = {name for name in dir(reorder.opencl) if not name.startswith("__")}
    assert opencl == set(reorder.opencl.__all__)
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


def test_the_package_for_dask_is_loaded_on_first_use() -> None:
    code = (
        "import sys, reorder; before = 'reorder.dask' in sys.modules; "
        "print(before, callable(reorder.dask.reorder), 'dask' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False True False\n"


# A thread loads a module for half a second, and meanwhile the process forks.
_FORK = """
import os, sys, threading, time, reorder

class Slow:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "reorder.storage.files":
            begun.set()
            time.sleep(0.5)

begun = threading.Event()
sys.meta_path.insert(0, Slow)
thread = threading.Thread(target=lambda: reorder.save)
thread.start()
begun.wait()
if not (child := os.fork()):
    threading.Thread(target=lambda: (time.sleep(10), os._exit(3)), daemon=True).start()
    reorder.save
    os._exit(0)
thread.join()
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_waits_for_a_name_that_another_thread_loads() -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _FORK], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "0\n"
