"""Logs of oneDNN, analysed: what the reorders cost, and which need not be."""

from reorder.logs.reorders import LoggedReorder, RoundTrip
from reorder.logs.report import LogReport, report

__all__ = ["LogReport", "LoggedReorder", "RoundTrip", "report"]
