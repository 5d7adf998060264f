"""Compile kernels, call them, and divide their work among threads."""
