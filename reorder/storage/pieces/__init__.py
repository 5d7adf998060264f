"""Reorders of tensors in files, in pieces of bounded size."""
