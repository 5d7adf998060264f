"""Boxes to the programs that compiled code interprets: pure functions."""
