"""Move tensors between any two layouts that memdesc describes."""

from importlib import import_module
from typing import TYPE_CHECKING

from memdesc import __version__ as __version__
from reorder.api import execute, prepare, reorder
from reorder.memory.memory import Memory
from reorder.memory.reference import execute_reference
from reorder.plan.compare import Relation, compare
from reorder.plan.nodes import Box, Lookup, Node
from reorder.plan.plan import ReorderPlan, plan_reorder
from reorder.quantize import Quantized, dequantize, quantize
from reorder.runtime_dims import RuntimePlan, plan_runtime
from reorder.storage.archive import load_archive, save_archive
from reorder.storage.files import load, save
from reorder.threads import use_threads
from reorder.values.attr import Attr

if TYPE_CHECKING:
    from reorder import opencl

__all__ = [
    "Attr",
    "Box",
    "Lookup",
    "Memory",
    "Node",
    "Quantized",
    "Relation",
    "ReorderPlan",
    "RuntimePlan",
    "compare",
    "dequantize",
    "execute",
    "execute_reference",
    "load",
    "load_archive",
    "opencl",
    "plan_reorder",
    "plan_runtime",
    "prepare",
    "quantize",
    "reorder",
    "save",
    "save_archive",
    "use_threads",
]


def __dir__() -> list[str]:
    """Return the public names, and the names in double underscores, without submodules."""
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


if not TYPE_CHECKING:

    def __getattr__(name):  # noqa: ANN001, ANN202 - of a module; type checkers read the import above
        # pyopencl takes a tenth of a second to load, so it waits until it is asked for
        if name == "opencl":
            return import_module("reorder.opencl")
        msg = f"module 'reorder' has no attribute {name!r}"
        raise AttributeError(msg)
