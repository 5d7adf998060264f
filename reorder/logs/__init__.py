"""Analyse oneDNN logs: what the reorders cost, and which ones are unnecessary."""

from reorder.logs.reorders import LoggedReorder, RoundTrip
from reorder.logs.report import LogReport, report

__all__ = ["LogReport", "LoggedReorder", "RoundTrip", "report"]
