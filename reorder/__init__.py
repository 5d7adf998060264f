"""Move tensors between any two layouts that memdesc describes."""

from importlib import import_module
from typing import TYPE_CHECKING

from memdesc import __version__ as __version__
from reorder.api import execute, prepare, reorder
from reorder.forks import importing
from reorder.memory.memory import Memory
from reorder.memory.reference import execute_reference
from reorder.plan.nodes import Box, IndirectLoop, Node
from reorder.plan.plan import ReorderPlan, plan_reorder
from reorder.quantize import Quantized, dequantize, quantize
from reorder.threads import use_threads
from reorder.values.attr import Attr

if TYPE_CHECKING:
    from reorder import dask as dask
    from reorder import logs as logs
    from reorder import opencl
    from reorder import zarr as zarr
    from reorder.checkpoints.checkpoint import Checkpoint, StoredTensor, open_checkpoint
    from reorder.checkpoints.convert.conversion import (
        ConvertOptions,
        ConvertProgress,
        ConvertReport,
        convert,
    )
    from reorder.checkpoints.differences import Differing, differences
    from reorder.checkpoints.files import load, load_all, save, save_raw
    from reorder.comparison import Difference, ValueComparison, compare_values
    from reorder.identification.identify import Candidate, Identification, identify
    from reorder.identification.readings import TypeReading
    from reorder.plan.compare import Relation, compare_layouts
    from reorder.precompile import compile_kernels
    from reorder.records.gguf import dequantize_gguf
    from reorder.records.record import Record
    from reorder.records.repack import repack
    from reorder.runtime_dims import RuntimePlan, plan_runtime

__all__ = [
    "Attr",
    "Box",
    "Candidate",
    "Checkpoint",
    "ConvertOptions",
    "ConvertProgress",
    "ConvertReport",
    "Difference",
    "Differing",
    "Identification",
    "IndirectLoop",
    "Memory",
    "Node",
    "Quantized",
    "Record",
    "Relation",
    "ReorderPlan",
    "RuntimePlan",
    "StoredTensor",
    "TypeReading",
    "ValueComparison",
    "compare_layouts",
    "compare_values",
    "compile_kernels",
    "convert",
    "dequantize",
    "dequantize_gguf",
    "differences",
    "execute",
    "execute_reference",
    "identify",
    "load",
    "load_all",
    "open_checkpoint",
    "opencl",
    "plan_reorder",
    "plan_runtime",
    "prepare",
    "quantize",
    "reorder",
    "repack",
    "save",
    "save_raw",
    "use_threads",
]


def __dir__() -> list[str]:
    """Return the public names and those with double underscores, without submodules."""
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


# Submodules that are not loaded at the start: pyopencl takes a tenth of a second, and Dask and zarr
# are optional.
_SUBMODULES = {"dask", "logs", "opencl", "zarr"}

# Names that most programs do not use; their modules are loaded at the first use.
_MODULES = {
    "Candidate": "reorder.identification.identify",
    "Checkpoint": "reorder.checkpoints.checkpoint",
    "ConvertOptions": "reorder.checkpoints.convert.conversion",
    "ConvertProgress": "reorder.checkpoints.convert.conversion",
    "ConvertReport": "reorder.checkpoints.convert.conversion",
    "Difference": "reorder.comparison",
    "Differing": "reorder.checkpoints.differences",
    "Identification": "reorder.identification.identify",
    "Record": "reorder.records.record",
    "Relation": "reorder.plan.compare",
    "RuntimePlan": "reorder.runtime_dims",
    "StoredTensor": "reorder.checkpoints.checkpoint",
    "TypeReading": "reorder.identification.readings",
    "ValueComparison": "reorder.comparison",
    "compare_layouts": "reorder.plan.compare",
    "compare_values": "reorder.comparison",
    "compile_kernels": "reorder.precompile",
    "convert": "reorder.checkpoints.convert.conversion",
    "dequantize_gguf": "reorder.records.gguf",
    "differences": "reorder.checkpoints.differences",
    "identify": "reorder.identification.identify",
    "load": "reorder.checkpoints.files",
    "load_all": "reorder.checkpoints.files",
    "open_checkpoint": "reorder.checkpoints.checkpoint",
    "plan_runtime": "reorder.runtime_dims",
    "repack": "reorder.records.repack",
    "save": "reorder.checkpoints.files",
    "save_raw": "reorder.checkpoints.files",
}

if not TYPE_CHECKING:

    def __getattr__(name):  # noqa: ANN001, ANN202 - of a module; type checkers read the imports above
        if name in _SUBMODULES:
            with importing:
                return import_module(f"reorder.{name}")
        if name in _MODULES:
            with importing:
                globals()[name] = value = getattr(import_module(_MODULES[name]), name)
            return value
        msg = f"module 'reorder' has no attribute {name!r}"
        raise AttributeError(msg)
