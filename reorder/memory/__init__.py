"""Buffers of callers, their elements and padding, and the definition of a reorder."""
