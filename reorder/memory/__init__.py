"""Callers' buffers, their elements and their padding, and the definition of a reorder."""
