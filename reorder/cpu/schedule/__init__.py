"""Boxes to named records that compiled code reads: pure functions."""
