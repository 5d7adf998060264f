"""Decode block-quantised tensors: patterns of their fields, kernels for these, and their jobs."""
