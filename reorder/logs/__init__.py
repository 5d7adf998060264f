"""Analyse oneDNN logs: what the reorders cost, and which ones are unnecessary."""

from reorder.logs.layers import Layer, OpenVinoLayers, TorchLayers, read_layers
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
    "Reason",
    "RoundTrip",
    "Times",
    "TorchLayers",
    "read_layers",
    "report",
]
