"""Move tensors between any two layouts that memdesc describes.

Examples assume ``import memdesc``, ``import numpy as np`` and ``import reorder``.
"""

from typing import TYPE_CHECKING

from memdesc import __version__ as __version__
from memdesc.lazy import lazy, public
from reorder.api import execute, prepare, reorder
from reorder.forks import importing
from reorder.memory.memory import Memory
from reorder.plan.plan import plan_reorder
from reorder.threads import use_threads
from reorder.values.attr import Attr

if TYPE_CHECKING:
    from reorder import checkpoints as checkpoints
    from reorder import comparison as comparison
    from reorder import dask as dask
    from reorder import identification as identification
    from reorder import logs as logs
    from reorder import opencl
    from reorder import plan as plan
    from reorder import precompile as precompile
    from reorder import records as records
    from reorder import reference as reference
    from reorder import zarr as zarr
    from reorder.checkpoints.convert.conversion import convert
    from reorder.checkpoints.files import load, load_all, open_checkpoint, save
    from reorder.comparison import compare_values
    from reorder.identification.identify import identify
    from reorder.plan.compare import compare_layouts
    from reorder.quantized import Quantized, dequantize, quantize

__all__ = [
    "Attr",
    "Memory",
    "Quantized",
    "compare_layouts",
    "compare_values",
    "convert",
    "dequantize",
    "execute",
    "identify",
    "load",
    "load_all",
    "open_checkpoint",
    "opencl",
    "plan_reorder",
    "prepare",
    "quantize",
    "reorder",
    "save",
    "use_threads",
]

__dir__ = public(globals())

if not TYPE_CHECKING:
    # pyopencl takes a tenth of a second to load; Dask and zarr are optional
    __getattr__ = lazy(
        __name__,
        {
            "Quantized": "reorder.quantized",
            "compare_layouts": "reorder.plan.compare",
            "compare_values": "reorder.comparison",
            "convert": "reorder.checkpoints.convert.conversion",
            "dequantize": "reorder.quantized",
            "identify": "reorder.identification.identify",
            "load": "reorder.checkpoints.files",
            "load_all": "reorder.checkpoints.files",
            "open_checkpoint": "reorder.checkpoints.files",
            "quantize": "reorder.quantized",
            "save": "reorder.checkpoints.files",
        },
        {
            *("checkpoints", "comparison", "dask", "identification", "logs", "opencl"),
            *("plan", "precompile", "records", "reference", "zarr"),
        },
        importing,
    )
