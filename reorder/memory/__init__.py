"""Buffers of callers, what lies in them, and the definition of a reorder over them."""
