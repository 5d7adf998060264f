"""Move tensors between any two layouts that memdesc describes."""

from reorder.api import execute, prepare, reorder
from reorder.archive import load_archive, save_archive
from reorder.attr import Attr
from reorder.files import load, save
from reorder.limits import use_threads
from reorder.memory import Memory
from reorder.nodes import Box, Lookup, Node
from reorder.plan import ReorderPlan, plan_reorder
from reorder.quantize import Quantized, dequantize, quantize
from reorder.reference import execute_reference
from reorder.runtime import RuntimePlan, plan_runtime

__all__ = [
    "Attr",
    "Box",
    "Lookup",
    "Memory",
    "Node",
    "Quantized",
    "ReorderPlan",
    "RuntimePlan",
    "dequantize",
    "execute",
    "execute_reference",
    "load",
    "load_archive",
    "plan_reorder",
    "plan_runtime",
    "prepare",
    "quantize",
    "reorder",
    "save",
    "save_archive",
    "use_threads",
]
