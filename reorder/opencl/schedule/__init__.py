"""Boxes to launches, without a device."""
