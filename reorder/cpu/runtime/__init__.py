"""Compiling, calling and sharing out kernels."""
