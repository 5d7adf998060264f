"""OpenCL C of a pattern, without a device."""
