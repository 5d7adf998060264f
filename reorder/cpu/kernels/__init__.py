"""Micro-kernels, as LLVM instructions."""
