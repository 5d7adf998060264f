"""Boxes to kernel launches, without a device."""
