"""Read and analyse oneDNN logs: what the reorders cost, and which ones are unnecessary."""

from reorder.logs.layers import Layer, OpenVinoLayers, TorchLayers, read_layers
from reorder.logs.log import PassedOver, UnreadLine, VerboseEntry, VerboseLog, read_verbose
from reorder.logs.primitive import (
    PostOp,
    Problem,
    QuantizationParameter,
    VerboseAttributes,
    VerbosePrimitive,
    VerboseTensor,
)
from reorder.logs.reorders import LoggedReorder, Neighbour, RoundTrip
from reorder.logs.report import LayerTime, LogReport, Reason, report
from reorder.logs.times import Times

__all__ = [
    "Layer",
    "LayerTime",
    "LogReport",
    "LoggedReorder",
    "Neighbour",
    "OpenVinoLayers",
    "PassedOver",
    "PostOp",
    "Problem",
    "QuantizationParameter",
    "Reason",
    "RoundTrip",
    "Times",
    "TorchLayers",
    "UnreadLine",
    "VerboseAttributes",
    "VerboseEntry",
    "VerboseLog",
    "VerbosePrimitive",
    "VerboseTensor",
    "read_layers",
    "read_verbose",
    "report",
]
