"""Interpreters, and the micro-kernels and stages that they call, as LLVM instructions."""
