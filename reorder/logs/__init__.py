"""Read and analyse oneDNN logs: what the reorders cost, and which ones are unnecessary."""

from reorder.logs.layers import Layer, read_layers
from reorder.logs.log import VerboseEntry, VerboseLog, read_verbose
from reorder.logs.primitive import VerboseAttributes, VerbosePrimitive, VerboseTensor
from reorder.logs.reorders import LoggedReorder, RoundTrip
from reorder.logs.report import LogReport, report

__all__ = [
    "Layer",
    "LogReport",
    "LoggedReorder",
    "RoundTrip",
    "VerboseAttributes",
    "VerboseEntry",
    "VerboseLog",
    "VerbosePrimitive",
    "VerboseTensor",
    "read_layers",
    "read_verbose",
    "report",
]
