import os
from importlib import import_module

import pytest

import memdesc
import reorder
from tests.programs import run_python


def test_the_public_names_are_these() -> None:
    assert reorder.__all__ == [
        *("Attr", "Memory", "Quantized", "compare_layouts", "compare_values", "convert"),
        *("dequantize", "execute", "identify", "load", "load_all", "open_checkpoint", "opencl"),
        *("plan_reorder", "prepare", "quantize", "reorder", "save", "use_threads"),
    ]


def test_dir_lists_public_names_and_dunder_names_only() -> None:
    listed = dir(reorder)
    for module in (reorder, reorder.opencl):
        assert {name for name in dir(module) if not name.startswith("__")} == set(module.__all__)
    assert {"__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"} <= set(listed)
    assert import_module("reorder.plan") is reorder.plan
    assert reorder.__version__ == memdesc.__version__
    with pytest.raises(AttributeError, match="module 'reorder' has no attribute 'opengl'"):
        reorder.opengl  # type: ignore[attr-defined]  # noqa: B018 - the access is the test


# A process of its own, which loads one package after another.
_LOADED = """
import sys
import reorder as package

def loaded(*names):
    print([any(name.startswith(start) for name in sys.modules) for start in names])

loaded("numba", "llvmlite", "pyopencl", "reorder.checkpoints", "reorder.dask")
import reorder.cli.show, reorder.cli.inspect
loaded("memdesc.picture", "reorder.cpu")
package.dask.reorder
loaded("reorder.dask", "dask", "pyopencl")
package.opencl.pack
loaded("pyopencl")
from reorder import *
print(all(name in globals() for name in package.__all__), package.load is load)
"""


def test_packages_that_few_programs_use_are_loaded_on_first_use_and_all_names_can_be_imported() -> (
    None
):
    assert run_python("-c", _LOADED).stdout.splitlines() == [
        *("[False, False, False, False, False]", "[False, False]", "[True, False, False]"),
        *("[True]", "True True"),
    ]


# A thread loads a module for half a second, and meanwhile the process forks.
_FORK = """
import os, sys, threading, time, reorder

class Slow:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "reorder.checkpoints.files":
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
    assert run_python("-W", "ignore", "-c", _FORK).stdout == "0\n"


# A fork takes the lock of logging, and then waits for a thread that imports what logs.
_LOGGED = """
import os, sys, threading, time
is_loaded = "logging" in sys.modules  # by the environment
import reorder
assert is_loaded or "logging" not in sys.modules

def load():
    with reorder.forks.importing():
        begun.set()
        time.sleep(0.5)
        logging.getLogger("another")

import logging
begun = threading.Event()
thread = threading.Thread(target=load)
thread.start()
begun.wait()
threading.Thread(target=lambda: (time.sleep(10), os._exit(3)), daemon=True).start()
if not (child := os.fork()):
    os._exit(0)
thread.join()
print(os.waitpid(child, 0)[1])
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_waits_for_a_thread_that_imports_what_logs() -> None:
    assert run_python("-W", "ignore", "-c", _LOGGED).stdout == "0\n"
