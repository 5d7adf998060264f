"""Patterns to OpenCL C source, without a device."""
